import keras
import numpy as np
import pytest

from tf_capsules.analysis import inference
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
