import keras
import numpy as np
import pytest
from backend import array

from tf_capsules.optimizers import Adam, CoupledAdam, CoupledRMSprop, CoupledSGD, RAdam


@pytest.mark.parametrize("make", [Adam, RAdam, CoupledAdam, CoupledRMSprop, CoupledSGD])
@pytest.mark.parametrize("excluded", [False, True])
def test_gradients_of_an_embedding_s_repeated_rows_are_summed(make, excluded):
    tf = pytest.importorskip("tensorflow")
    if keras.backend.backend() != "tensorflow":
        pytest.skip("other backends have no sparse gradients")
    slices = tf.IndexedSlices(tf.constant([[0.5, -1.0], [0.25, 3.0], [1.5, 1.0]]), tf.constant([1, 3, 1]), (5, 2))
    found = []
    for gradient in (slices, tf.convert_to_tensor(slices)):
        weight, optimizer = keras.Variable(np.ones((5, 2)), name="embeddings"), make(0.01)
        if excluded:
            optimizer.exclude_from_weight_decay(var_names=["embeddings"])
        for _ in range(8):
            optimizer.apply([gradient], [weight])
        found.append(array(weight))
    np.testing.assert_allclose(*found, rtol=1e-6)
