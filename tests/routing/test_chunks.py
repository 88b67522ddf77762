import numpy as np
from backend import array
from keras import ops

from tf_capsules.routing.chunks import by_examples, equal_chunks


def test_chunks_are_of_one_size_with_the_least_padding():
    assert [equal_chunks(total, 4) for total in (0, 3, 4, 5, 9)] == [(1, 0), (1, 3), (1, 4), (2, 3), (3, 3)]


def test_some_examples_at_a_time_give_what_all_give():
    x, y = np.random.default_rng(0).normal(size=(2, 5, 3)).astype("float32")

    def function(x, y):
        return x * y, ops.sum(x, axis=0)

    for size in (None, 2, 5):
        arrays = [ops.convert_to_tensor(x), ops.convert_to_tensor(y)]
        products, total = by_examples(function, size, arrays, [(3,)], [(3,)])
        np.testing.assert_allclose(array(products), x * y, rtol=1e-6)
        np.testing.assert_allclose(array(total), x.sum(0), atol=1e-5)
