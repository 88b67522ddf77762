"""The figures that a recipe asks for, drawn from its run."""

import functools

import keras

from tf_capsules.analysis import figures, measures, viewpoints
from tf_capsules.analysis.attribution import class_shares, sentence_attribution
from tf_capsules.models import class_probabilities


def draw(run):
    """Yields (name, matplotlib figure) for each of the recipe's figures; a run without a history has no curves.

    Args:
        run: a `tf_capsules.training.Run`.

    Raises:
        ValueError: the data lack what a figure shows, such as views of the same toy.
    """
    for name in run.recipe.figures:
        if run.history or name != "training_curves":
            yield name, DRAWERS[name](run)


def _training_curves(run):
    return figures.training_curves(run.history)


def _reconstructions(run):
    images, labels = run.examples(256)
    return figures.reconstructions(run.model, images, labels)


def _dimension_perturbation(run):
    images, labels = run.examples(1)
    return figures.dimension_perturbation(run.model, images[0], labels[0])


def _overlapping_reconstructions(run):
    images, targets = run.examples(8)
    return figures.overlapping_reconstructions(run.model, images, targets["parts"], targets["part_labels"])


def _routing_changes(run):
    images, _ = run.examples(64)
    return figures.routing_changes(run.model, images)


def _stereo_pairs(run):
    return viewpoints.stereo_sheet(_split(run), run.data.spec.class_names)


def _poses(run, factor):
    predict = functools.partial(measures.predict, run.model)
    return viewpoints.measure_view_poses(predict, _split(run), factor, run.recipe.preprocess)


def _split(run):
    if run.data.test_split is None:
        raise ValueError(f"Viewpoints are drawn of a data set that knows them. Received arrays: {run.data.spec.name}")
    return run.data.test_split


def _poses_by_azimuth(run):
    return viewpoints.pose_curves(_poses(run, "azimuth"))


def _poses_by_elevation(run):
    return viewpoints.pose_curves(_poses(run, "elevation"))


def _pose_trajectories(run):
    measured = [_poses(run, factor) for factor in ("elevation", "azimuth")]
    return viewpoints.pose_trajectories(measured, run.data.spec.class_names)


def _sentence_attribution(run):
    texts, _ = run.examples(1, raw=True)
    inputs, _ = run.examples(1)
    outputs, shares = class_shares(run.model, inputs, return_outputs=True)
    shares, scores = (keras.ops.convert_to_numpy(x[0]) for x in (shares, class_probabilities(run.model, outputs)))
    tokens = run.data.transformer.tokens(texts[0])
    return sentence_attribution(tokens, shares[: len(tokens)], run.data.spec.class_names, scores)


DRAWERS = {
    "training_curves": _training_curves,
    "reconstructions": _reconstructions,
    "dimension_perturbation": _dimension_perturbation,
    "overlapping_reconstructions": _overlapping_reconstructions,
    "routing_changes": _routing_changes,
    "stereo_pairs": _stereo_pairs,
    "poses_by_azimuth": _poses_by_azimuth,
    "poses_by_elevation": _poses_by_elevation,
    "pose_trajectories": _pose_trajectories,
    "sentence_attribution": _sentence_attribution,
}
