import dataclasses

import keras
import pytest
from analysis.cost_rows import row_of

from tf_capsules.analysis import estimate_cost
from tf_capsules.layers import (
    ConcurrentRouting,
    ConvDynamicRouting,
    ConvInvertedAttentionRouting,
    DynamicRouting,
    HeinsenRouting,
    InvertedAttentionRouting,
)

pytestmark = pytest.mark.skipif(keras.backend.backend() not in ("tensorflow", "jax"), reason="these trace a step")


def test_a_stored_vote_is_the_size_of_a_parent_and_a_held_one_that_of_a_child():
    batch, children, d, parents, e = 3, 11, 4, 5, 6
    pairs = 4 * batch * children * parents  # bytes
    stored = row_of(DynamicRouting(parents, e, votes_memory="store"), (children, d))
    assert (stored.stored_votes, stored.held_votes) == (pairs * e, pairs * e)
    free = row_of(DynamicRouting(parents, e), (children, d))
    assert (free.stored_votes, free.held_votes) == (pairs * e, pairs * d)
    once = row_of(DynamicRouting(parents, e, iterations=1), (children, d))
    assert (once.stored_votes, once.held_votes) == (pairs * e, 0)
    shared = row_of(HeinsenRouting(parents, e, sharing="all"), (20, 3, 2))
    assert (shared.stored_votes, shared.held_votes) == (4 * batch * 20 * parents * 3 * e, 0)


def test_a_call_that_returns_couplings_stores_its_votes():
    poses, found = keras.Input((6, 6, 8, 16)), {}
    for asked in (True, False):
        layer = ConvDynamicRouting(8, 16, name="routing")
        model = keras.Model(poses, layer(poses, return_couplings=asked))
        found[asked] = next(row for row in estimate_cost(model, 64, training=False).layers if row.name == "routing")
    assert found[True].held_votes == found[True].stored_votes == found[False].stored_votes > found[False].held_votes


def test_votes_of_windows_exist_for_some_examples():
    chain = [ConvInvertedAttentionRouting(7, 4, strides=2), InvertedAttentionRouting(5, 4)]
    inputs = keras.Input((9, 9, 6, 4, 4))
    model = keras.Model(inputs, ConcurrentRouting(chain, iterations=3)(inputs))
    chain[0].plan = dataclasses.replace(chain[0].plan, examples=2)
    rows = {row.kind: row for row in estimate_cost(model, 8, training=False).layers}
    first, last = rows["ConvInvertedAttentionRouting"], rows["InvertedAttentionRouting"]
    assert first.stored_votes == 4 * 8 * 4 * 4 * 9 * 6 * 7 * 16
    assert first.held_votes == first.stored_votes / 4
    assert last.held_votes == last.stored_votes == 4 * 8 * 4 * 4 * 7 * 5 * 16
    # The loop over chunks counts all its rounds: as many multiply-adds as without chunks.
    chunked = first.multiply_adds
    chain[0].plan = dataclasses.replace(chain[0].plan, examples=8)
    whole = next(row for row in estimate_cost(model, 8, training=False).layers if row.name == chain[0].name)
    assert chunked == whole.multiply_adds


def test_routing_in_a_layer_of_ones_own_has_unknown_votes():
    class Around(keras.layers.Layer):
        def __init__(self):
            super().__init__()
            self.inner = DynamicRouting(5, 6)

        def call(self, x):
            return self.inner(x)

    row = row_of(Around(), (11, 4))
    assert (row.stored_votes, row.held_votes) == (None, None)


def test_a_routing_of_ones_own_has_unknown_votes():
    class Mine(keras.layers.Layer):
        def call(self, poses, return_couplings=False):
            return keras.ops.mean(poses, axis=1, keepdims=True)

    inputs = keras.Input((4, 3))
    cost = estimate_cost(keras.Model(inputs, Mine(name="mine")(inputs)), 2, training=False)
    assert cost.layers[0].stored_votes is None
    line = next(line for line in str(cost).splitlines() if line.startswith("mine"))
    assert line.split()[4:6] == ["?", "?"]


def test_parents_by_position_are_those_of_a_later_iteration():
    poses, parents = keras.Input((6, 4)), keras.Input((5, 16))
    held = []
    for call in (lambda layer: layer(poses, None, parents), lambda layer: layer(poses, parents=parents)):
        layer = InvertedAttentionRouting(5, 16, votes_memory="recompute")
        model = keras.Model([poses, parents], call(layer))
        held.append(
            next(row for row in estimate_cost(model, 2, training=False).layers if row.name == layer.name).held_votes
        )
    assert held[0] == held[1] > 0
