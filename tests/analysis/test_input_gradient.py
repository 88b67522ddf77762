import keras
import numpy as np
import pytest
from analysis.classifiers import KERNEL, SHAPE, expected_gradient, linear

from tf_capsules.analysis.attacks import fgsm
from tf_capsules.analysis.input_gradient import InputGradient
from tf_capsules.analysis.robustness import measure_gradients
from tf_capsules.losses import MarginLoss
from tf_capsules.models import with_feedback
from tf_capsules.models.classifier import CapsuleClassifier
from tf_capsules.models.sabour2017 import CapsNet


@pytest.fixture(scope="module")
def images():
    return np.random.default_rng(0).random((7, *SHAPE), dtype="float32")


def test_gradient_of_a_softmax_classifier_is_that_in_closed_form(gradient, images, labels):
    np.testing.assert_allclose(gradient(images, labels), expected_gradient(images, labels), atol=1e-6)


def test_each_loss_is_of_its_own_image_whatever_the_batches(gradient, images, labels):
    whole = gradient(images, labels)
    for i in (0, 6):
        np.testing.assert_allclose(gradient(images[i : i + 1], labels[i : i + 1])[0], whole[i], atol=1e-6)
    np.testing.assert_allclose(InputGradient(gradient.model)(images, labels), whole, atol=1e-6)


def test_capsule_lengths_are_attacked_by_their_log_odds():
    sizes = {"filters": 6, "kernel_size": 3, "types": 3, "pose": 4, "primary_kernel_size": 3, "primary_strides": 1}
    model, labels = CapsNet((8, 7, 1), classes=5, dim=9, **sizes, decoder_units=None), np.array([1, 4, 0])
    pictures = np.random.default_rng(1).random((3, 8, 7, 1), dtype="float32")

    def losses(x):
        lengths = keras.ops.convert_to_numpy(model(x)["activations"]).astype("float64")
        odds = lengths / (1 - lengths)
        return -np.log(odds[np.arange(3), labels] / odds.sum(-1))

    gradient = InputGradient(model)
    got = gradient(pictures, labels)
    direction = np.random.default_rng(2).normal(size=pictures.shape)
    direction = (direction / np.linalg.norm(direction, axis=(1, 2), keepdims=True)).astype("float32")
    slope = (losses(pictures + 0.02 * direction) - losses(pictures - 0.02 * direction)) / 0.04
    np.testing.assert_allclose((got * direction).sum((1, 2, 3)), slope, rtol=0.02, atol=1e-4)
    raised = losses(fgsm(gradient, pictures, labels, 0.1))
    assert (raised > losses(pictures)).all()


def test_a_logistic_function_that_is_1_in_float32_hides_no_gradient(images, labels):
    inputs = keras.Input(SHAPE)
    logits = keras.layers.Dense(4)(keras.layers.Flatten()(inputs))
    logits = keras.layers.Rescaling(1.0, [20.0, 22.0, 24.0, 26.0])(logits)
    outputs = {"activations": keras.ops.sigmoid(logits), "poses": logits}
    hidden, told = keras.Model(inputs, outputs), keras.Model(inputs, {**outputs, "logits": logits})
    assert measure_gradients(InputGradient(hidden), images, labels)[0] == 1
    zeros, norm = measure_gradients(InputGradient(told), images, labels)
    assert zeros == 0 and norm > 0


def test_linear_scores_are_logits(gradient, images, labels):
    model = linear(KERNEL, bias=-9.0, logits=True)
    np.testing.assert_allclose(InputGradient(model)(images, labels), gradient(images, labels), atol=1e-6)


def test_scores_that_may_be_logits_need_a_loss_of_logits(gradient, images, labels):
    model = linear(KERNEL, bias=-9.0, logits=True)
    model = keras.Sequential([keras.Input(SHAPE), *model.layers, keras.layers.Rescaling(1.0)])
    with pytest.raises(ValueError, match="If its outputs are logits"):
        InputGradient(model)(images, labels)
    told = InputGradient(model, keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    np.testing.assert_allclose(told(images, labels), gradient(images, labels), atol=1e-6)


@pytest.mark.parametrize("count", [1, 4, 7])
@pytest.mark.parametrize("name", ["mean_squared_error", "categorical_crossentropy", "categorical_hinge"])
def test_losses_of_rows_get_one_hot_rows(images, labels, name, count):
    of_rows = getattr(keras.losses, name)
    model = linear(KERNEL)
    own = InputGradient(model, lambda labels, found: of_rows(keras.ops.one_hot(labels, found.shape[-1]), found))
    for loss in (name, getattr(keras.losses, name.title().replace("_", ""))()):
        model.compile(loss=loss)
        found = InputGradient(model, "trained")(images[:count], labels[:count])
        np.testing.assert_allclose(found, own(images[:count], labels[:count]), atol=1e-6)
        assert np.abs(found).max() > 0


def test_losses_that_make_no_sense_are_refused(gradient, images, labels):
    with pytest.raises(ValueError, match="The loss must have a value for each image. Received: <function"):
        InputGradient(gradient.model, lambda y_true, y_pred: keras.ops.sum(y_pred))(images, labels)
    with pytest.raises(ValueError, match="`loss` must be one of 'crossentropy', 'trained'. Received: 'hinge'"):
        InputGradient(gradient.model, "hinge")
    with pytest.raises(ValueError, match="needs a compiled model"):
        InputGradient(linear(KERNEL), "trained")


def test_the_trained_loss_of_a_model_of_several_outputs_is_that_of_its_activations(images, labels):
    inputs = keras.Input(SHAPE)
    logits = keras.layers.Dense(4, use_bias=False)(keras.layers.Flatten()(inputs))
    model = keras.Model(inputs, {"activations": keras.ops.sigmoid(logits), "poses": logits})
    model.set_weights([KERNEL])
    expected = InputGradient(model, MarginLoss())(images, labels)
    model.compile(loss={"activations": MarginLoss()})
    np.testing.assert_array_equal(InputGradient(model, "trained")(images, labels), expected)
    model.compile(loss={"poses": "mse"})
    with pytest.raises(ValueError, match="with a loss of its class outputs. Received: .* with loss .*{'poses': 'mse'}"):
        InputGradient(model, "trained")
    single = linear(KERNEL)
    single.compile(loss=[keras.losses.CategoricalHinge()])
    assert np.abs(InputGradient(single, "trained")(images, labels)).max() > 0


def test_logits_of_a_capsule_network_are_its_scores(images, labels):
    inputs = keras.Input(SHAPE)
    logits = keras.layers.Dense(4, use_bias=False)(keras.layers.Flatten()(inputs))
    told = keras.Model(inputs, {"activations": keras.ops.sigmoid(logits), "logits": logits, "poses": logits})
    told.set_weights([KERNEL])
    np.testing.assert_allclose(InputGradient(told)(images, labels), expected_gradient(images, labels), atol=1e-6)
    scores = CapsuleClassifier(keras.Model(inputs, {"activations": logits, "poses": logits}), logits=True)
    np.testing.assert_allclose(InputGradient(scores)(images, labels), expected_gradient(images, labels), atol=1e-6)


@pytest.mark.parametrize("softmax", [keras.ops.softmax, keras.activations.softmax, keras.layers.Softmax()])
def test_probabilities_are_no_logits_whatever_makes_them(gradient, images, labels, softmax):
    model = linear(KERNEL, logits=True)
    model = keras.Model(model.inputs, softmax(model.outputs[0]))
    np.testing.assert_allclose(InputGradient(model)(images, labels), gradient(images, labels), atol=1e-6)


def test_a_model_with_feedback_units_has_the_gradient_of_its_network():
    inputs = keras.Input((8, 8, 3))
    low = keras.layers.Conv2D(4, 3, padding="same", name="low")(inputs)
    high = keras.layers.Conv2D(4, 3, padding="same", name="high")(low)
    network = keras.Model(inputs, keras.layers.Dense(3, "softmax")(keras.layers.Flatten()(high)))
    model = with_feedback(network, [("low", "high")], groups=1)
    model.compile("sgd", "sparse_categorical_crossentropy")
    x, labels = np.random.default_rng(0).random((2, 8, 8, 3), "float32"), [0, 2]
    wanted = InputGradient(network)(x, labels)
    for loss in ("crossentropy", "trained"):
        np.testing.assert_allclose(InputGradient(model, loss)(x, labels), wanted, atol=1e-6)


def test_an_encoder_of_the_user_s_own_model_is_not_taken_for_the_model(images):
    class Mine(keras.Model):
        def __init__(self):
            super().__init__()
            self.encoder = keras.Sequential([keras.Input(SHAPE), keras.layers.Flatten(), keras.layers.Dense(7)])
            self.head = keras.layers.Dense(3, "softmax")

        def call(self, x):
            return self.head(self.encoder(x))

    model = Mine()
    model(images)
    with pytest.raises(ValueError, match="This needs a CapsuleClassifier, a functional model, or a Sequential"):
        InputGradient(model)
