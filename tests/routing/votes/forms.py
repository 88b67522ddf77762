"""The forms of votes, their methods, and arrays to try them on."""

import numpy as np
from keras import ops

from tf_capsules.routing import DistinctVotes, SharedVotes, StoredVotes
from tf_capsules.routing.couplings import softmax

BATCH, CHILDREN, PARENTS, ROWS, COLUMNS, OUT = 2, 6, 4, 3, 5, 7


TOLERANCE = {"float64": 1e-9, "float32": 2e-5}


def make_arrays(groups, matrix, use_bias, dtype, one_column=False):
    random = np.random.default_rng(1)
    rows = (ROWS,) if matrix else ()
    shapes = {
        "poses": (BATCH, CHILDREN, *rows, COLUMNS),
        "kernel": (groups, PARENTS, COLUMNS, OUT),
        "weights": (BATCH, CHILDREN, 1 if one_column else PARENTS),
        "parents": (BATCH, PARENTS, *rows, OUT),
        "precisions": (BATCH, PARENTS, *rows, OUT),
        "constants": (BATCH, PARENTS),
        "activations": (BATCH, CHILDREN),
    }
    if use_bias:
        shapes["bias"] = (groups, PARENTS, *rows, OUT)
    arrays = {name: 0.4 * random.normal(size=shape) for name, shape in shapes.items()}
    for name in ("weights", "precisions", "activations"):
        arrays[name] = np.abs(arrays[name])
    return {name: x.astype(dtype) for name, x in arrays.items()}


def stored(poses, kernel, bias=None, activations=None):
    """Votes written out, child i using kernel[i % groups]."""
    groups = [i % kernel.shape[0] for i in range(CHILDREN)]
    votes = ops.einsum("bi...d,ijde->bij...e", poses, ops.take(kernel, groups, axis=0))
    votes = votes if bias is None else votes + ops.take(bias, groups, axis=0)
    return StoredVotes(votes, activations, kernel.shape[0])


def by_groups(*arguments):
    return SharedVotes(*arguments, children_per_chunk=1)


def by_chunks(*arguments):
    return SharedVotes(*arguments, children_per_chunk=4)


FORMS = {
    "shared by all": (SharedVotes, 1),
    "shared in groups": (SharedVotes, 3),
    "shared by all, in chunks": (by_chunks, 1),
    "shared in groups, in chunks": (by_chunks, 3),
    "shared in groups, one after the other": (by_groups, 3),
    "distinct": (DistinctVotes, 6),
}


def softmax_numpy(x, axis):
    e = np.exp(x - x.max(axis=axis, keepdims=True))
    return e / e.sum(axis=axis, keepdims=True)


METHODS = {
    "weighted_sum": lambda votes, x: votes.weighted_sum(x["weights"]),
    "agreement": lambda votes, x: votes.agreement(x["parents"]),
    "log_density": lambda votes, x: votes.log_density(x["parents"] - votes.origin, x["precisions"], x["constants"]),
    "masses": lambda votes, x: votes.moments(x["weights"], epsilon=0.01)[0],
    "means": lambda votes, x: votes.moments(x["weights"], epsilon=0.01)[1] + votes.origin,
    "variances": lambda votes, x: votes.moments(x["weights"], epsilon=0.01)[2],
    "variances of a function": lambda votes, x: votes.moments(
        lambda votes, *state: softmax(votes.log_density(*state), -1),
        x["parents"] - votes.origin,
        x["precisions"],
        x["constants"],
    )[2],
}


USES = {
    "weighted_sum": ("weights",),
    "agreement": ("parents",),
    "log_density": ("parents", "precisions", "constants"),
    "masses": ("weights", "activations"),
    "means": ("weights", "activations"),
    "variances": ("weights", "activations"),
    "variances of a function": ("parents", "precisions", "constants", "activations"),
}
