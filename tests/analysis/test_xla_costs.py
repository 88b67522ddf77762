"""What XLA finds that a step takes, on JAX."""

import keras
import numpy as np
import pytest

from tf_capsules.analysis import estimate_cost
from tf_capsules.layers import DynamicRouting
from tf_capsules.losses import MarginLoss
from tf_capsules.models.sabour2017 import CapsNet

pytestmark = pytest.mark.skipif(keras.backend.backend() != "jax", reason="JAX compiles every step with XLA")


def test_an_inference_of_a_known_size():
    """A product of matrices: its multiply-adds, its weights and inputs, and no more than its result beside them."""
    inputs = keras.Input((7,))
    cost = estimate_cost(keras.Model(inputs, keras.layers.Dense(5, use_bias=False)(inputs)), 300, training=False)
    assert cost.multiply_adds == 300 * 7 * 5
    assert cost.memory["weights"] == 4 * 7 * 5 and cost.memory["inputs"] == 4 * 300 * 7
    assert 4 * 300 * 5 <= cost.memory["working"] < 4 * 300 * 5 + 4096
    assert cost.memory["optimizer"] == 0
    (dense, _) = cost.layers
    assert (dense.parameters, dense.activations, dense.multiply_adds, dense.kept) == (35, 4 * 300 * 5, None, None)


@pytest.fixture(scope="module")
def model():
    sizes = {"filters": 6, "kernel_size": 3, "types": 3, "pose": 4, "primary_kernel_size": 3, "primary_strides": 1}
    model = CapsNet((8, 7, 1), classes=5, dim=9, **sizes, decoder_units=(11,))
    model.compile("adam", MarginLoss())
    return model


def test_a_training_step(model):
    cost, forward = estimate_cost(model, 20), estimate_cost(model, 20, training=False)
    assert cost.total("parameters") == model.count_params()
    assert cost.memory["weights"] == 4 * sum(np.prod(v.shape, dtype=int) for v in model.variables)
    assert cost.memory["optimizer"] == 2 * 4 * model.count_params() + 8  # two slots and two numbers
    assert 2 < cost.multiply_adds / forward.multiply_adds < 5
    assert cost.memory["working"] < estimate_cost(model, 40).memory["working"]
    routing = next(row for row in cost.layers if row.kind == DynamicRouting.__name__)
    assert routing.stored_votes == 4 * 20 * (4 * 3 * 3) * 5 * 9 and routing.held_votes
    table, (last_but_one, last) = str(cost).splitlines()[:-2], str(cost).splitlines()[-2:]
    assert table[-1].split()[-2:] == ["?", "?"]  # what the layers have in all
    assert last_but_one.endswith(f"of a batch of 20. A training step has {cost.multiply_adds:,} multiply-adds.")
    assert last.startswith("Peak memory of a training step: ") and last.endswith(").")


def test_layers_are_left_as_they_were(model):
    estimate_cost(model, 2)
    assert not any("call" in vars(layer) for layer in model.encoder.layers)
    assert model.predict(np.zeros((1, 8, 7, 1)), verbose=0)["activations"].shape == (1, 5)


def test_labels_of_other_losses_are_asked_for():
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(3)], name="values")
    model.compile("adam", "mse")
    with pytest.raises(ValueError, match=r"'values' fails with class numbers .*`targets=keras.KerasTensor\("):
        estimate_cost(model, 4)
    assert estimate_cost(model, 4, targets=keras.KerasTensor(model.output_shape[1:])).batch_size == 4
    with pytest.raises(TypeError, match="incompatible shapes"):
        estimate_cost(model, 4, targets=keras.KerasTensor((5,)))
