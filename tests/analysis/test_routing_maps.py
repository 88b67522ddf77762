import keras
import numpy as np
import pytest
from analysis.capsnets import array, small_capsnet, small_images

from tf_capsules import analysis
from tf_capsules.models.tsai2020 import AttentionCapsNet


@pytest.mark.parametrize(
    "schedule, iterations, activations",
    [
        ("concurrent", 1, False),
        ("concurrent", 3, False),
        ("concurrent", 3, True),
        ("sequential", 2, False),
        ("sequential", 2, True),
    ],
)
def test_routing_maps_are_the_couplings_on_the_way_up(schedule, iterations, activations):
    options = dict(filters=5, types=2, pose=(2, 3), convolutions=((3, 3, 1),), hidden=(4,), activations=activations)
    model = AttentionCapsNet((11, 12, 1), 3, schedule=schedule, iterations=iterations, **options)
    images = 3 * np.random.default_rng(0).normal(size=(5, 11, 12, 1)).astype("float32")
    maps = analysis.measure_routing_maps(model, images, batch_size=2)
    assert maps.shape == (5, 6, 6, 3)
    np.testing.assert_allclose(maps.sum(-1), 1, rtol=1e-5)
    if iterations == 1:
        np.testing.assert_allclose(maps, 1 / 3, rtol=1e-5)
        return
    assert np.ptp(maps) > 0.01
    routing = model.encoder.get_layer("routing")
    convolution, hidden, last = routing.chain
    lowest = keras.Model(model.encoder.input, keras.tree.flatten(routing.input)).predict_on_batch(images)
    lowest = lowest if activations else [lowest[0] if isinstance(lowest, list) else lowest]
    found = routing(*lowest, return_iterations=True)

    def couplings(layer, children, parents):
        children = children if isinstance(children, (tuple, list)) else [children]
        return array(layer(*children, parents=parents, return_couplings=True)[-1])

    if schedule == "sequential":
        steps = [(lowest, found[0][0]), (found[0][-1], found[1][0]), (found[1][-1], found[2][0])]
    else:
        steps = [(lowest, None), (found[0][0], found[1][0]), (found[1][1], found[2][1])]
    first, second, third = (couplings(layer, *step) for layer, step in zip(routing.chain, steps, strict=True))
    above = (second @ third).reshape(5, 4, 4, 3, 3)  # (batch, row, column, type, class)
    wanted = np.zeros((5, 6, 6, 3))
    for row, column in np.ndindex(4, 4):
        window = np.einsum("bij,bjc->bic", first[:, row, column], above[:, row, column]).reshape(5, 3, 3, 2, 3)
        wanted[:, row : row + 3, column : column + 3] += window.sum(3)
    np.testing.assert_allclose(maps, wanted / wanted.sum(-1, keepdims=True), rtol=1e-4)


def test_bad_input_is_named():
    with pytest.raises(ValueError, match="Conv2D, not a chain of capsule layers"):
        analysis.measure_routing_maps(small_capsnet(), small_images(), layer="convolution")
