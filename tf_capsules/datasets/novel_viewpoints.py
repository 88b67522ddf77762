"""Novel viewpoints: toys seen in training from a third of smallNORB's viewpoints, other toys tested from all."""

import numpy as np

# Azimuths 300, 320, 340, 0, 20, 40 degrees; elevations 30, 35, 40 degrees.
_FAMILIAR = {"azimuth": (15, 16, 17, 0, 1, 2), "elevation": (0, 1, 2)}


def novel_viewpoints(train, test, factor):
    """Training examples at familiar viewpoints, and test examples at familiar and at novel ones: three dicts of arrays.

    Source: Hinton, Sabour, Frosst 2018, section 5.1.

    Args:
        train, test: dicts of arrays (N, ...): the columns of smallNORB's factors, and any others.
        factor: "azimuth": 300 to 40 degrees are familiar, 60 to 280 novel; "elevation": 30 to 40 degrees are familiar,
            45 to 70 novel.

    >>> columns = {"azimuth": np.arange(18), "lighting": np.zeros(18)}
    >>> [len(part["azimuth"]) for part in novel_viewpoints(columns, columns, "azimuth")]
    [6, 6, 12]
    """
    if factor not in _FAMILIAR:
        raise ValueError(f"viewpoints are novel by {' or '.join(_FAMILIAR)}, not {factor!r}")
    seen, familiar = (np.isin(columns[factor], _FAMILIAR[factor]) for columns in (train, test))
    return rows(train, seen), rows(test, familiar), rows(test, ~familiar)


def rows(columns, chosen):
    """Those rows of all columns."""
    return {name: column[chosen] for name, column in columns.items()}
