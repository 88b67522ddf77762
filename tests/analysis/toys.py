"""Views of three made-up toys with the factors of smallNORB."""

import itertools

import numpy as np

TOYS = [(0, 3), (0, 5), (2, 1)]  # category and instance


def arrays(elevations=9, azimuths=18, lightings=2):
    """Every view of three toys, in random order. The first pixels of an image hold its factors; its channels differ."""
    rows = [(*toy, *rest) for toy, *rest in itertools.product(TOYS, *map(range, (elevations, azimuths, lightings)))]
    rows = np.random.default_rng(0).permutation(np.array(rows))
    image = np.zeros((len(rows), 5, 6, 2), np.uint8)
    image[:, 0, :5, 0] = rows
    image[..., 1] = image[..., 0] + 100
    return dict(zip(("label", "instance", "elevation", "azimuth", "lighting"), rows.T, strict=True)) | {"image": image}
