"""The poses of class capsules while the viewpoint moves around a toy."""

import dataclasses
from typing import NamedTuple

import numpy as np

from tf_capsules.datasets import augment
from tf_capsules.models import class_outputs

_DEGREES = {"azimuth": lambda number: 20 * number, "elevation": lambda number: 30 + 5 * number}


@dataclasses.dataclass(frozen=True, eq=False)
class Views:
    """The examples of a split that show each toy, in the order of one factor; the other factors are fixed.

    Attributes:
        factor: "azimuth" or "elevation".
        degrees: (views,).
        labels, instances: (toys,), each toy's category and its number within the category.
        index: (toys, views), numbers of examples.
    """

    factor: str
    degrees: np.ndarray
    labels: np.ndarray
    instances: np.ndarray
    index: np.ndarray

    def toy(self, label, instance=None):
        """The row of a category's toy with this number (None: its first toy); a ValueError if there is none."""
        wanted = (self.labels == label) & (instance is None or self.instances == instance)
        if not wanted.any():
            toy = "toy" if instance is None else f"instance {instance}"
            raise ValueError(f"There is no {toy} of category {label}.")
        return wanted.argmax()


@dataclasses.dataclass(frozen=True, eq=False)
class ViewPoses:
    """Poses of the capsule of the true category in every view.

    Attributes:
        views: the `Views`.
        poses: (toys, views, pose vectors, size), the rows of the pose matrices.
        activated: (toys, views), the predicted class.
    """

    views: Views
    poses: np.ndarray
    activated: np.ndarray

    @property
    def differing(self):
        """Number of images whose most active capsule is not that of the true category."""
        return int((self.activated != self.views.labels[:, None]).sum())

    @property
    def changes(self):
        """The `PoseChanges` of each toy."""
        return compare_poses(self.poses)


class PoseChanges(NamedTuple):
    """|p(t) - p(0)| / |p(0)|, |p(t)| / |p(0)| and cos(p(t), p(0)), each (..., views, pose vectors)."""

    change: np.ndarray
    norm_ratio: np.ndarray
    cosine: np.ndarray


def find_views(arrays, factor, elevation=0, azimuth=0, lighting=0):
    """Finds every toy's images in the order of one factor, the others fixed: `Views` by category and instance.

    Source: Heinsen 2019, figures 6 and 7.

    Args:
        arrays: those of a `Split`: aligned columns `label`, `instance`, `elevation`, `azimuth` and `lighting`.
        factor: "azimuth" or "elevation".
        elevation, azimuth, lighting: the numbers at which the other two factors are fixed.

    Raises:
        ValueError: another factor, a column that is missing or unknown (-1), or a toy without one of the views.
    """
    if factor not in _DEGREES:
        raise ValueError(f"The factor is azimuth or elevation. Received: {factor!r}")
    names = ("label", "instance", "elevation", "azimuth", "lighting")
    if unknown := [name for name in names if name not in arrays or (np.asarray(arrays[name]) < 0).any()]:
        raise ValueError(f"Views are found by {', '.join(names)}. The split lacks: {', '.join(unknown)}.")
    fixed = {"elevation": elevation, "azimuth": azimuth, "lighting": lighting}
    del fixed[factor]
    chosen = np.flatnonzero(np.all([arrays[name] == value for name, value in fixed.items()], axis=0))
    toys, toy = np.unique(np.stack([arrays["label"], arrays["instance"]], axis=-1), axis=0, return_inverse=True)
    numbers, number = np.unique(arrays[factor][chosen], return_inverse=True)
    index = np.full((len(toys), len(numbers)), -1)
    index[toy.ravel()[chosen], number] = chosen
    lacking = (index < 0).sum(1) if index.size else np.ones(len(toys), int)
    if lacking.any():
        label, instance = toys[lacking.argmax()]
        where = " and ".join(f"{name} {value}" for name, value in fixed.items())
        lack = f"{(lacking > 0).sum()} of {len(toys)} toys lack views by {factor} at {where}"
        such = f"such as instance {instance} of category {label}"
        raise ValueError(f"{lack}, {such}. Take the whole test split, not a part of it.")
    return Views(factor, _DEGREES[factor](numbers), toys[:, 0], toys[:, 1], index)


def measure_view_poses(predict, split, factor, preprocess=(), **fixed):
    """Poses of the true category's capsule, view by view, as `ViewPoses`. For errors see `find_views`.

    Source: Heinsen 2019, figures 6 and 7. The captions name the activated capsule. The author's code takes the capsule
    of the true category, as this function does. `ViewPoses.differing` counts the images where the two differ.

    Args:
        predict: function from images (batch, height, width, channels) in [0, 1] to a dict of "activations" (batch,
            classes) and "poses" (batch, classes, rows, columns), for instance `functools.partial(inference.predict,
            model)`. Each row of a pose is a pose vector; a vector pose (batch, classes, size) is a single one.
        split: a `Split` with the factors of smallNORB, see `find_views`.
        factor: "azimuth" or "elevation".
        preprocess: steps of `tf_capsules.datasets.augment`, applied as in evaluation.
        fixed: numbers of the fixed factors, see `find_views`.
    """
    views = find_views(split.arrays, factor, **fixed)
    flat = views.index.reshape(-1)
    images = split.arrays["image"][flat].astype("float32") / 255
    outputs = predict(np.stack([augment.apply(preprocess, image) for image in images]))
    poses = np.asarray(outputs["poses"])[np.arange(len(flat)), np.asarray(split.arrays["label"])[flat]]
    poses = poses if poses.ndim == 3 else poses[:, None]
    activated = np.asarray(class_outputs(outputs)).argmax(-1)
    return ViewPoses(views, poses.reshape(*views.index.shape, *poses.shape[1:]), activated.reshape(views.index.shape))


def compare_poses(poses):
    """How pose vectors (..., views, pose vectors, size) differ from those of the first view, as `PoseChanges`.

    Source: Heinsen 2019, figures 6 and 7. A vector of the first view that has length 0 raises a ValueError.

    >>> turned = compare_poses(np.array([[[1.0, 0.0]], [[0.0, 2.0]]]))
    >>> turned.norm_ratio[:, 0], turned.cosine[:, 0]
    (array([1., 2.]), array([1., 0.]))
    """
    poses = np.asarray(poses, "float64")
    first, norms = poses[..., :1, :, :], np.linalg.norm(poses, axis=-1)
    start = norms[..., :1, :]
    if not start.all():
        raise ValueError("A pose vector of the first view is zero: changes relative to it are undefined.")
    change = np.linalg.norm(poses - first, axis=-1) / start
    # A vector of length 0 has no direction: its cosine counts as 0.
    cosine = (poses * first).sum(-1) / np.where(norms > 0, norms * start, 1)
    return PoseChanges(change, norms / start, cosine)


def project_poses(poses):
    """The pose vectors (views, pose vectors, size) of one toy as points of a plane, (views, pose vectors, 2).

    Source: Heinsen 2019, figure 4: metric multidimensional scaling. It keeps the distances between points close to
    those between the vectors. It starts from the two principal axes, so equal poses give equal points.
    """
    from sklearn.manifold import smacof
    from sklearn.metrics import pairwise_distances

    vectors = np.asarray(poses, "float64").reshape(-1, np.shape(poses)[-1])
    centred = vectors - vectors.mean(0)
    if not centred.any():
        return np.zeros((*np.shape(poses)[:2], 2))  # points without distances, of which the algorithm warns
    _, _, axes = np.linalg.svd(centred, full_matrices=False)
    start = np.zeros((len(vectors), 2))
    start[:, : len(axes)] = centred @ axes[:2].T
    options = dict(n_init=1, max_iter=3000, eps=1e-9, normalized_stress=False)
    points, _ = smacof(pairwise_distances(vectors), init=start, **options)
    return points.reshape(*np.shape(poses)[:2], 2)


def signed_areas(points):
    """Areas of closed polygons (..., corners, 2). If a polygon is flipped over, its area changes sign.

    >>> signed_areas(np.array([[0, 0], [2, 0], [2, 1], [0, 1]]))
    np.float64(2.0)
    """
    x, y = np.moveaxis(np.asarray(points, "float64"), -1, 0)
    return (x * np.roll(y, -1, -1) - np.roll(x, -1, -1) * y).sum(-1) / 2
