import functools

import numpy as np
import pytest
from backend import as_one_program, float64, results_and_gradients, slow_on_jax

from tf_capsules import routing
from tf_capsules.routing import SharedVotes
from tf_capsules.routing.dynamic_by_parents import dynamic_routing_by_parents

dynamic_routing = as_one_program(routing.dynamic_routing)


@slow_on_jax
@pytest.mark.parametrize(
    "iterations, rows, given",  # each pair of choices is in one case
    [
        (3, (), ()),
        (3, (2,), ("votes",)),
        (3, (), ("bias", "initial_logits")),
        (1, (2,), ()),
        (1, (), ("votes",)),
        (1, (2,), ("bias", "initial_logits")),
    ],
)
def test_some_parents_at_a_time_are_as_all_at_once(iterations, rows, given):
    random = np.random.default_rng(8)
    x = {
        "poses": random.normal(size=(3, 10, *rows, 4)),
        "kernel": random.normal(size=(5, 7, 4, 6)) / 2,
        "votes": random.normal(size=(5, 7, *rows, 6)),
        "bias": random.normal(size=(7, *rows, 6)),
        "initial_logits": random.normal(size=(10, 7)),
    }
    names = ("poses", "kernel", *given)
    options = {"mask": random.random((3, 10)) > 0.4 if given else None}
    direction = random.normal(size=(3, 7, *rows, 6))

    def route(chunk, *values):
        of = dict(zip(names, values, strict=True))
        votes = SharedVotes(of.pop("poses"), of.pop("kernel"), of.pop("votes", None))
        if chunk is None:
            return dynamic_routing(votes, iterations, competition="children", **of, **options)
        return dynamic_routing_by_parents(votes, iterations, parents_per_chunk=chunk, **of, **options)

    with float64():
        values = [x[name] for name in names]
        results = []
        for chunk in (None, 3, 100):
            poses, gradients = results_and_gradients(functools.partial(route, chunk), [direction])(*values)
            results.append([poses, *gradients])
    for others in results[1:]:
        for wanted, actual in zip(results[0], others, strict=True):
            np.testing.assert_allclose(actual, wanted, rtol=1e-9, atol=1e-11)
