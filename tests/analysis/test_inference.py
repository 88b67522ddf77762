import keras
import numpy as np
import pytest
from analysis.capsnets import array

from tf_capsules.analysis import inference
from tf_capsules.analysis.inference import inputs_at
from tf_capsules.layers import EMRouting
from tf_capsules.models.heinsen2019 import TextCapsNet


def test_predictions_do_not_depend_on_the_batches(model, images):
    whole, parts = inference.predict(model, images), inference.predict(model, images, batch_size=4)
    for name in ("activations", "poses"):
        np.testing.assert_allclose(parts[name], whole[name], atol=1e-6)
    with pytest.raises(ValueError, match="`batch_size` .* Received: -1"):
        inference.predict(model, images, batch_size=-1)
    with pytest.raises(ValueError, match=r"takes one or more images \(8, 7, 1\)"):
        inference.predict(model, {"embeddings": images})
    plain = keras.Sequential([keras.Input((8, 7, 1)), keras.layers.Flatten(), keras.layers.Dense(5)])
    assert inference.predict(plain, images, batch_size=4).shape == (6, 5)


def test_models_of_other_inputs_are_named(images):
    vectors, numbers = keras.Input((9, 8)), keras.Input((4,))
    both = keras.Model([vectors, numbers], keras.layers.Concatenate()([keras.layers.Flatten()(vectors), numbers]))
    for model, shape in (
        (keras.Model(vectors, keras.layers.Flatten()(vectors), name="of_vectors"), r"'of_vectors' takes .None, 9, 8"),
        (TextCapsNet(layers=2, width=4, classes=3, dim=4, parts=3), r"'text_capsnet' takes \[\(None, None, 2, 4\)"),
        (both, r"takes \[\(None, 9, 8\), \(None, 4\)\]"),
    ):
        with pytest.raises(ValueError, match=rf"needs a model of images \(height, width, channels\)[.] .*{shape}"):
            inference.predict(model, images)


def test_inputs_keep_the_mask_that_keras_passes_on():
    poses, activations = keras.Input((6, 4)), keras.Input((6,))
    routing = EMRouting(3, 5, name="routing")
    routed = routing(keras.layers.Masking()(poses), activations)
    model = keras.Model([poses, activations], routed)
    given = np.random.default_rng(0).normal(size=(2, 6, 4)).astype("float32")
    given[:, 4:] = 0
    found = inputs_at(routing, model)([given, np.ones((2, 6), "float32")])
    want, unmasked = (array(one[0]) for one in (model([given, np.ones((2, 6))]), routing(given)))
    np.testing.assert_allclose(array(routing(*found, return_couplings=True)[0]), want, atol=1e-6)
    assert np.abs(want - unmasked).max() > 1e-3
