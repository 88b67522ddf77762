import keras
import numpy as np
import pytest
from backend import any_batch, array

from tf_capsules.layers import CapConv
from tf_capsules.models import li2018

BOTH, STACK, CONVOLUTION = ("convolution", "stack"), ("stack",), ("convolution",)


def trainable(model):
    return sum(int(np.prod(weight.shape)) for weight in model.trainable_weights)


@pytest.mark.parametrize(
    "network, options, parameters",
    [
        ("CapNet", dict(), 9_913_600),
        ("CapNet", dict(routing="em"), 9_991_540),
        ("CapNet", dict(grid=(4, 4)), 2_835_712),
        ("CapNet", dict(routing="em", grid=(4, 4)), 2_910_580),
        ("CapNet", dict(initial_logits="learned"), 9_913_600 + 4_214_784),
        ("CapNet", dict(initial_logits="random"), 9_913_600),
        ("SameShapeCNN", dict(), 1_575_690),
        ("SameSizeCNN", dict(), 9_624_782),
        ("ShortEncapNet", dict(), 1_689_856),
        ("ShortEncapNet", dict(coefficients="own"), 8_124_224),
        ("ShortEncapNet", dict(coefficients="crossed"), 8_124_224),
        ("ShortEncapNet", dict(coefficients="both"), 8_133_440),
        ("ResNetTwin", dict(), 11_156_778),
        ("EncapNet", dict(coefficients=None, skips=()), 176_000),
        ("EncapNet", dict(coefficients=None, skips=STACK, layers=(2,) * 4), 162_240),
        ("EncapNet", dict(coefficients=None, skips=BOTH), 1_743_680),
        ("EncapNet", dict(coefficients=None, skips=CONVOLUTION, layers=(4,) * 4), 1_757_440),
        ("EncapNet", dict(coefficients="own", skips=()), 34_907_264),
        ("EncapNet", dict(coefficients="crossed", skips=BOTH), 36_474_944),
        ("EncapNet", dict(coefficients="own", skips=BOTH, layers=(2,) * 4), 27_734_848),
        ("EncapNet", dict(skips=()), 34_976_384),
        ("EncapNet", dict(skips=STACK, layers=(4,) * 4), 43_733_760),
        ("EncapNet", dict(skips=BOTH), 36_544_064),
        ("EncapNet", dict(skips=BOTH, classes=100), 36_544_064 + 737_280),
    ],
    ids=str,
)
def test_published_parameter_counts(network, options, parameters):
    # Shapes alone: the weights are never drawn.
    with keras.StatelessScope(initialize_variables=False):
        assert trainable(getattr(li2018, network)(**options)) == parameters
    keras.utils.clear_session(free_memory=False)


def test_scaled_initial_poses_of_capnet_depend_on_the_image():
    images = np.random.default_rng(0).uniform(size=(8, 16, 16, 3)).astype("float32")
    spread = {}
    for initialization in ("released", "scaled"):
        keras.utils.set_random_seed(0)
        model = li2018.CapNet((16, 16, 3), grid=(2, 2), initialization=initialization)
        poses = array(model(images)["poses"])
        spread[initialization] = np.linalg.norm(poses.std(0)) / np.linalg.norm(poses.mean(0))
    assert spread["scaled"] > 1000 * spread["released"]


def test_shapes_of_encapnet():
    with keras.StatelessScope(initialize_variables=False):
        encoder = li2018.EncapNet().encoder
        shapes = [encoder.get_layer(f"module_{m}_type_2_3").output.shape for m in range(1, 5)]
        assert shapes == [(None, 32, 32, 32, 2), (None, 16, 16, 32, 4), (None, 8, 8, 32, 8), (None, 4, 4, 32, 16)]
        assert encoder.output["poses"].shape == (None, 10, 16)
        large = li2018.EncapNet((128, 128, 3), stem="strided", layers=(1,) * 4, coefficients=None).encoder
        assert large.get_layer("module_1_type_1").output.shape == (None, 32, 32, 32, 2)
        large = li2018.EncapNet((224, 224, 3), stem="strided", layers=(1,) * 4, coefficients=None).encoder
        assert large.get_layer("module_4_type_1").output.shape == (None, 7, 7, 32, 16)
    keras.utils.clear_session(free_memory=False)


def test_a_network_of_101_layers():
    with keras.StatelessScope(initialize_variables=False):
        options = dict(layers=(3, 20, 60, 12), coefficients=(None, None, "both", "both"))
        encoder = li2018.EncapNet(**options, skips=("convolution", "layer")).encoder
        capsules = [layer for layer in encoder.layers if isinstance(layer, CapConv)]
        assert 1 + len(capsules) + 1 == 101
        assert [layer.coefficients for layer in capsules] == [None] * 25 + ["both"] * 74
    keras.utils.clear_session(free_memory=False)


def test_skips_of_type_2_start_at_the_module_or_at_each_layer():
    images = np.random.default_rng(0).random((2, 6, 5, 3)).astype("float32")
    for skips, around in ((("stack",), [False, False, True]), (("layer",), [True] * 3), ((), [False] * 3)):
        model = li2018.EncapNet((6, 5, 3), 4, layers=(3,), coefficients=None, types=3, skips=skips)
        for number, skipped in enumerate(around, start=1):
            layer = model.encoder.get_layer(f"module_1_type_2_{number}")
            layer.master.set_weights([np.zeros(w.shape) for w in layer.master.get_weights()])
            given = keras.Model(model.encoder.input, layer.output)
            assert (np.abs(array(given(images))).max() > 0) == skipped


@pytest.mark.long
def test_capnet_without_votes_is_capnet_with_stored_votes():
    images = np.random.default_rng(1).random((3, 9, 8, 2)).astype("float32")
    for routing in ("dynamic", "em"):
        sizes = dict(image_shape=(9, 8, 2), classes=4, dim=5, iterations=2)
        free, stored = (li2018.CapNet(routing=routing, votes_memory=memory, **sizes) for memory in ("auto", "store"))
        stored.set_weights(free.get_weights())
        expected = stored(images)
        # EM routing loops over the types of capsules; a graph has the body of this loop only once.
        call = any_batch(free, images) if routing == "em" else free
        for name, value in call(images).items():
            np.testing.assert_allclose(array(value), array(expected[name]), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "network, options, message",
    [
        ("CapNet", dict(routing="attention"), "`routing`.*Received: 'attention'"),
        ("CapNet", dict(routing="em", iterations="3"), "`iterations`.*Received: '3'"),
        ("CapNet", dict(grid=(0, 2)), "`grid`.*Received: 0"),
        ("CapNet", dict(grid=2.5), "`grid`.*Received: 2.5"),
        ("CapNet", dict(dim="a"), "`dim`.*Received: 'a'"),
        ("EncapNet", dict(coefficients="v3"), "`coefficients`.*Received: 'v3'"),
        ("EncapNet", dict(coefficients=("own", None)), "for each of 4 modules.*Received"),
        ("EncapNet", dict(skips=("stack", "layer")), "`skips`.*Received"),
        ("EncapNet", dict(layers=(1, 0)), "`layers`.*Received: 0"),
        ("EncapNet", dict(layers=()), r"`layers`.*Received: \(\)"),
        ("EncapNet", dict(layers=None), "`layers`.*Received: None"),
        ("EncapNet", dict(layers=2.0), "`layers`.*Received: 2.0"),
        ("EncapNet", dict(coefficients=3), "`coefficients`.*Received: 3"),
        ("EncapNet", dict(skips=3), r"`skips`.*Received: \(3,\)"),
        ("EncapNet", dict(coefficients=None, exclude_own=True), "`exclude_own` needs `coefficients`"),
        ("CapNet", dict(routing="em", competition="parents"), "`competition` is no .*'em'.*Received: 'parents'"),
        ("CapNet", dict(initialization="small"), "`initialization` must be one of 'released', 'scaled'"),
        ("CapNet", dict(routing="em", initialization="scaled"), "`initialization` is no .*'em'.*Received: 'scaled'"),
        ("CapNet", dict(normalization=1.0), "`normalization` is no .*'dynamic'.*Received: 1.0"),
        ("ResNetTwin", dict(filters=8, blocks=(1,)), "`filters`.*Received: 8"),
        ("ResNetTwin", dict(filters=(8, 8), blocks=(1,)), r"`filters` and `blocks`.*Received: \(8, 8\) and \(1,\)"),
        ("EncapNet", dict(stem="wide"), "`stem`.*Received: 'wide'"),
        ("ShortEncapNet", dict(coefficients="v1"), "`coefficients`.*Received: 'v1'"),
    ],
)
def test_what_does_not_fit_is_named(network, options, message):
    with pytest.raises(ValueError, match=message):
        getattr(li2018, network)(**options)
