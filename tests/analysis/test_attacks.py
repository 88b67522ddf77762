import keras
import numpy as np
import pytest

from tf_capsules.analysis import attacks
from tf_capsules.analysis.attacks import (
    InputGradient,
    attacked_images,
    basic_iterative,
    fgsm,
    input_units,
    masking_signs,
    measure_attacks,
    measure_gradients,
    robustness_curves,
)
from tf_capsules.losses import MarginLoss
from tf_capsules.models.sabour2017 import CapsNet

SHAPE = (2, 3, 1)


def linear(kernel, bias=0.0, logits=False, name="linear"):
    """A softmax classifier of flat images, kernel (pixels, classes)."""
    kernel = np.asarray(kernel, "float32")
    dense = keras.layers.Dense(kernel.shape[1], None if logits else "softmax")
    model = keras.Sequential([keras.Input(SHAPE), keras.layers.Flatten(), dense], name=name)
    dense.set_weights([kernel, np.full(kernel.shape[1], bias, "float32")])
    return model


KERNEL = np.random.default_rng(3).normal(size=(6, 4))


@pytest.fixture(scope="module")
def gradient():
    return InputGradient(linear(KERNEL), batch_size=3)


@pytest.fixture(scope="module")
def images():
    return np.random.default_rng(0).random((7, *SHAPE), dtype="float32")


@pytest.fixture(scope="module")
def labels():
    return np.array([0, 1, 2, 3, 0, 2, 1])


def probabilities(images):
    scores = np.exp(images.reshape(len(images), -1) @ KERNEL)
    return scores / scores.sum(-1, keepdims=True)


def expected_gradient(images, labels):
    """d(-log p_t)/dx = W (p - e_t) for a softmax of x W."""
    return ((probabilities(images) - np.eye(4)[labels]) @ KERNEL.T).reshape(images.shape)


def test_gradient_and_step_of_a_softmax_classifier_are_those_in_closed_form(gradient, images, labels):
    want = expected_gradient(images, labels)
    np.testing.assert_allclose(gradient(images, labels), want, atol=1e-6)
    np.testing.assert_allclose(fgsm(gradient, images, labels, 0.25), images + 0.25 * np.sign(want), atol=1e-6)
    towards = fgsm(gradient, images, labels, 0.25, targeted=True)
    np.testing.assert_allclose(towards, images - 0.25 * np.sign(want), atol=1e-6)


def test_each_loss_is_of_its_own_image_whatever_the_batches(gradient, images, labels):
    whole = gradient(images, labels)
    for i in (0, 6):
        np.testing.assert_allclose(gradient(images[i : i + 1], labels[i : i + 1])[0], whole[i], atol=1e-6)
    np.testing.assert_allclose(InputGradient(gradient.model)(images, labels), whole, atol=1e-6)


def test_one_iterative_step_is_the_fast_method(gradient, images, labels):
    one = basic_iterative(gradient, images, labels, 0.125, steps=1, bounds=(0, 1))
    np.testing.assert_array_equal(one, fgsm(gradient, images, labels, 0.125, bounds=(0, 1)))


@pytest.mark.parametrize("step_size", [None, 0.07])
def test_iterations_follow_the_gradient_where_they_are_and_stay_within_epsilon(gradient, images, labels, step_size):
    got = basic_iterative(gradient, images, labels, 0.1, steps=3, step_size=step_size)
    want = images
    for _ in range(3):
        want = want + (step_size or 0.1 / 3) * np.sign(expected_gradient(want, labels))
        want = np.clip(want, images - 0.1, images + 0.1)
    np.testing.assert_allclose(got, want, atol=1e-6)
    assert np.abs(got - images).max() <= 0.1 + 1e-6


@pytest.mark.parametrize("attack", [fgsm, basic_iterative])
def test_bounds_hold_and_targets_become_likelier(gradient, images, labels, attack):
    targets = (labels + 1) % 4
    got = attack(gradient, images, targets, 0.3, targeted=True, bounds=(0, 1))
    assert got.min() == 0 and got.max() == 1 and got.dtype == np.float32
    index = np.arange(7), targets
    assert (probabilities(got)[index] > probabilities(images)[index]).all()
    assert (probabilities(attack(gradient, images, labels, 0.3))[np.arange(7), labels]
            < probabilities(images)[np.arange(7), labels]).all()  # fmt: skip


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


def test_the_loss_of_training_may_be_flat_where_the_default_is_not(images, labels):
    """Sigmoid scores like capsule lengths: the right ones above 0.9, the others below 0.1."""
    dense = keras.layers.Dense(4, "sigmoid", kernel_initializer="ones")
    model = keras.Sequential([keras.Input(SHAPE), keras.layers.Flatten(), dense])
    right = np.zeros(7, int)
    dense.set_weights([np.full((6, 4), 0.01), np.array([4, -4, -4, -4])])
    model.compile(loss=MarginLoss())
    assert measure_gradients(InputGradient(model, "trained"), images, right) == (1.0, 0.0)
    zeros, norm = measure_gradients(InputGradient(model), images, right)
    assert zeros == 0 and norm > 0
    rows = list(measure_attacks({"flat": InputGradient(model, "trained")}, images, right, [0.5], ["fgsm"]))
    assert {row["zero_gradient_share"] for row in rows} == {1.0}
    assert masking_signs(rows) == ["flat: 100.0% of the entries of its gradients are 0"]


def test_a_logistic_function_that_is_1_in_float32_hides_no_gradient(images, labels):
    inputs = keras.Input(SHAPE)
    logits = keras.layers.Dense(4)(keras.layers.Flatten()(inputs))
    logits = keras.layers.Rescaling(1.0, [20.0, 22.0, 24.0, 26.0])(logits)
    outputs = {"activations": keras.ops.sigmoid(logits), "poses": logits}
    hidden, told = keras.Model(inputs, outputs), keras.Model(inputs, {**outputs, "logits": logits})
    assert measure_gradients(InputGradient(hidden), images, labels)[0] == 1
    zeros, norm = measure_gradients(InputGradient(told), images, labels)
    assert zeros == 0 and norm > 0


def test_rows_are_what_the_models_make_of_the_images(images, labels):
    models = {"a": linear(KERNEL, name="a"), "b": linear(KERNEL[::-1], name="b")}
    gradients = {name: InputGradient(model, batch_size=4) for name, model in models.items()}
    rows = list(measure_attacks(gradients, images, labels, [0.3, 0.1], ["bim"], steps=2, bounds=(0, 1)))
    assert len(rows) == 2 * 2 * 3 * 2 and [row["epsilon"] for row in rows[:6:2]] == [0, 0.1, 0.3]
    for row in rows:
        source, judge = gradients[row["made_on"]], gradients[row["model"]]
        shares = []
        for target in range(4):
            if row["goal"] == "untargeted":
                made = basic_iterative(source, images, labels, row["epsilon"], 2, bounds=(0, 1))
                shares.append((judge.classify(made) == labels).mean())
            else:
                chosen = images[labels != target]
                wanted = np.full(len(chosen), target)
                made = basic_iterative(source, chosen, wanted, row["epsilon"], 2, targeted=True, bounds=(0, 1))
                shares.append((judge.classify(made) == target).mean())
        assert row["value"] == pytest.approx(np.mean(shares))
        assert row["images"] == 7 and row["steps"] == 2
        zeros, norm = measure_gradients(source, images, labels)
        assert (row["zero_gradient_share"], row["gradient_norm"]) == (zeros, norm)


def test_only_images_that_all_models_get_right_are_attacked(images):
    a, b = (InputGradient(linear(kernel)) for kernel in (KERNEL, -KERNEL))
    labels = a.classify(images)
    assert (b.classify(images) != labels).all()
    with pytest.raises(ValueError, match="None of the 7 images is classified rightly by all models"):
        measure_attacks({"a": a, "b": b}, images, labels, only_right=True)
    labels[:2] = (labels[:2] + 1) % 4
    (*_, row) = measure_attacks({"a": a}, images, labels, [0.1], ["fgsm"], ["untargeted"], only_right=True)
    assert row["images"] == 5
    clean = next(measure_attacks({"a": a}, images, labels, [0.1], ["fgsm"], ["untargeted"], only_right=True))
    assert (clean["epsilon"], clean["value"]) == (0, 1)


def test_signs_of_masked_gradients():
    def row(value, made_on="a", attack="bim", goal="untargeted", epsilon=0.1, **changes):
        metric = attacks.GOALS[goal]
        row = {"model": "a", "made_on": made_on, "attack": attack, "goal": goal, "epsilon": epsilon, "value": value}
        return row | {"images": 100, "steps": 10, "metric": metric, "zero_gradient_share": 0.1} | changes

    assert masking_signs([row(0.5), row(0.45, "b"), row(0.55, attack="fgsm")]) == []
    assert masking_signs([row(0.1, goal="targeted"), row(0.05, "b", goal="targeted")]) == []
    assert masking_signs([row(0.5), row(0.3, "b"), row(0.2, attack="fgsm")]) == [
        "a: untargeted, epsilon 0.1: bim made on b leaves accuracy at 30.0%, against 50.0% made on itself",
        "a: untargeted, epsilon 0.1: one step leaves accuracy at 20.0%, against 50.0% by 10 steps",
    ]
    assert len(masking_signs([row(0.1, goal="targeted"), row(0.4, "b", goal="targeted")])) == 1


def test_curves_show_each_model_solid_and_what_is_transferred_dashed(gradient, images, labels, tmp_path):
    gradients = {"a": gradient, "b $1": InputGradient(linear(-KERNEL))}
    rows = list(measure_attacks(gradients, images, labels, [0.1, 0.2], steps=2))
    figure = robustness_curves(rows, "shares of the pixel range")
    assert [axes.get_title() for axes in figure.axes[:2]] == list(attacks.ATTACKS.values())
    assert len(figure.axes) == 4
    lines = {line.get_label(): line for line in figure.axes[2].get_lines()}
    assert list(lines) == ["a", "b $1, made on a", "a, made on b $1", "b $1"]
    assert [line.get_linestyle() for line in lines.values()] == ["-", "--", "--", "-"]
    for line, (model, made_on) in zip(
        lines.values(), [("a", "a"), ("b $1", "a"), ("a", "b $1"), ("b $1",) * 2], strict=True
    ):
        of_line = ("fgsm", "targeted", model, made_on)
        points = [
            (r["epsilon"], 100 * r["value"]) for r in rows if attacks._key(r)[2:4] + attacks._key(r)[:2] == of_line
        ]
        np.testing.assert_allclose(line.get_xydata(), points)
    figure.savefig(tmp_path / "curves.png")


def test_pictures_name_what_the_model_sees(gradient, images, labels, tmp_path):
    figure = attacked_images(gradient, images, labels, [0.2, 0.9], "fgsm", bounds=None, class_names="pqrs")
    grid = np.reshape(figure.axes, (3, 7))
    for row, epsilon in zip(grid, (0.0, 0.2, 0.9), strict=True):
        found = gradient.classify(fgsm(gradient, images, labels, epsilon))
        assert [axes.get_xlabel() for axes in row] == ["pqrs"[i] for i in found]
        wrong = [axes.xaxis.label.get_color() != "black" for axes in row]
        assert wrong == (found != labels).tolist()
    assert [axes.get_title() for axes in grid[0]] == ["pqrs"[i] for i in labels]
    figure.savefig(tmp_path / "pictures.png")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"epsilon": -0.1}, "Epsilon must be a number, 0 or more. Received: -0.1"),
        ({"epsilon": float("nan")}, "Epsilon must be a number, 0 or more. Received: nan"),
        ({"epsilon": True}, "Received: True"),
        ({"steps": 0}, "`steps` must be a whole number of at least 1. Received: 0"),
        ({"step_size": 0.0}, "`step_size` must be a number above 0. Received: 0.0"),
        ({"bounds": (1, 0)}, r"two numbers, the lower one first. Received: \(1, 0\)"),
        ({"bounds": (0.5, 1)}, r"beyond the bounds \(0.5, 1\)"),
        ({"images": np.zeros((7, 3, 2, 1))}, r"images \(2, 3, 1\). Received an array of shape \(7, 3, 2, 1\)"),
        ({"images": np.zeros((0, *SHAPE))}, r"Received an array of shape \(0, 2, 3, 1\)"),
        ({"images": np.full((7, *SHAPE), np.nan)}, "Images must be finite numbers"),
        ({"labels": np.zeros(5, int)}, r"Each image needs one label. Received shapes \(7, 2, 3, 1\) and \(5,\)"),
        ({"labels": np.full(7, 4)}, "from 0 to 3. Received: "),
        ({"labels": np.zeros(7)}, "whole numbers from 0 to 3"),
    ],
)
def test_what_makes_no_sense_is_named(gradient, images, labels, change, message):
    arguments = {"images": images, "labels": labels, "epsilon": 0.1} | change
    with pytest.raises(ValueError, match=message):
        basic_iterative(gradient, **arguments)


def test_measurements_that_make_no_sense_are_refused_at_once(gradient, images, labels):
    other = InputGradient(linear(KERNEL[:, :3]))
    for arguments, message in (
        (({}, images, labels), "of the same classes"),
        (({"a": gradient, "b": other}, images, labels), "Received: {'a': 4, 'b': 3}"),
        (({"a": gradient}, images, labels, [0]), "no epsilon above 0"),
        (({"a": gradient}, images, labels, [0.1, -1]), "Received: -1"),
        (({"a": gradient}, images, labels, [0.1], ["pgd"]), "must be one of 'fgsm', 'bim'. Received: 'pgd'"),
        (({"a": gradient}, images, labels, [0.1], ["bim"], []), "no goals"),
        (({"a": gradient}, images, labels[:3]), "Each image needs one label"),
    ):
        with pytest.raises(ValueError, match=message):
            measure_attacks(*arguments)
    with pytest.raises(ValueError, match="`loss` must be one of 'crossentropy', 'trained'. Received: 'hinge'"):
        InputGradient(gradient.model, "hinge")
    with pytest.raises(ValueError, match="needs a compiled model"):
        InputGradient(linear(KERNEL), "trained")


def test_scores_that_are_logits_need_a_loss_of_logits(gradient, images, labels):
    model = linear(KERNEL, bias=-9.0, logits=True)
    with pytest.raises(ValueError, match="Where its scores are logits"):
        InputGradient(model)(images, labels)
    told = InputGradient(model, keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    np.testing.assert_allclose(told(images, labels), gradient(images, labels), atol=1e-6)


def test_units_follow_the_preprocessing():
    assert input_units((("shift", 2), ("crop", 24))) == ("shares of the pixel range", (0.0, 1.0))
    assert input_units((("crop", 24), ("standardize",)))[1] is None
    assert input_units((("standardize_each",), ("crop", 24))) == ("standard deviations of a channel", None)
