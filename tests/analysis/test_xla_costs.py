"""The costs that XLA reports for a step, on JAX."""

import keras
import numpy as np
import pytest
from analysis.capsnets import small_capsnet

from tf_capsules.analysis import estimate_cost
from tf_capsules.layers import DynamicRouting
from tf_capsules.losses import MarginLoss

pytestmark = pytest.mark.skipif(keras.backend.backend() != "jax", reason="JAX compiles every step with XLA")


def test_an_inference_of_a_known_size():
    """A matrix product needs its multiply-adds, weights and inputs, and besides them only memory for its result."""
    inputs = keras.Input((7,))
    cost = estimate_cost(keras.Model(inputs, keras.layers.Dense(5, use_bias=False)(inputs)), 300, training=False)
    assert cost.multiply_adds == 300 * 7 * 5
    assert cost.memory["weights"] == 4 * 7 * 5 and cost.memory["inputs"] == 4 * 300 * 7
    assert 4 * 300 * 5 <= cost.memory["working"] < 4 * 300 * 5 + 4096
    assert cost.memory["optimizer"] == 0
    (dense, _) = cost.layers
    assert (dense.parameters, dense.activations, dense.multiply_adds, dense.kept) == (35, 4 * 300 * 5, None, None)


def test_a_training_step():
    model = small_capsnet()
    model.compile("adam", MarginLoss())
    cost, forward = estimate_cost(model, 20), estimate_cost(model, 20, training=False)
    assert cost.total("parameters") == model.count_params()
    assert cost.memory["weights"] == 4 * sum(np.prod(v.shape, dtype=int) for v in model.variables)
    assert cost.memory["optimizer"] == 2 * 4 * model.count_params() + 8  # two slots and two numbers
    assert 2 < cost.multiply_adds / forward.multiply_adds < 5
    assert cost.memory["working"] < estimate_cost(model, 40).memory["working"]
    routing = next(row for row in cost.layers if row.kind == DynamicRouting.__name__)
    assert routing.stored_votes == 4 * 20 * (4 * 3 * 3) * 5 * 9 and routing.held_votes
    table, (last_but_one, last) = str(cost).splitlines()[:-2], str(cost).splitlines()[-2:]
    assert table[-1].split()[-2:] == ["?", "?"]  # the row of the layers' totals
    assert last_but_one.endswith(f"of a batch of 20. A training step has {cost.multiply_adds:,} multiply-adds.")
    assert last.startswith("Peak memory of a training step: ") and last.endswith(").")
