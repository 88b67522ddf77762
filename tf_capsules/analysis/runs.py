"""The figures that a recipe asks for, drawn from its run."""

import functools

import keras

from tf_capsules.analysis import figures, measures, viewpoints
from tf_capsules.analysis.attribution import class_shares, sentence_attribution
from tf_capsules.analysis.parse_tree import draw_parse_tree
from tf_capsules.models import class_probabilities


def draw(run):
    """Yields (name, matplotlib figure) for each of the recipe's figures that the run can give.

    A figure is left out, with a printed line that says why, where the run has no history or its data lack what the
    figure shows, such as views of the same toy.

    Args:
        run: a `tf_capsules.training.Run`.
    """
    for name in run.recipe.figures:
        lack = LACKS[name](run) if name in LACKS else None
        if lack is None:
            yield name, DRAWERS[name](run)
        else:
            print(f"{name}: left out, {lack}", flush=True)


def _no_history(run):
    return None if run.history else "the run has no history"


def _no_views(run, factors):
    split = run.data.test_split
    for factor in factors:
        try:
            viewpoints.find_views({} if split is None else split.arrays, factor)
        except ValueError as error:
            return f"{run.data.spec.name} has no views by {factor}. {error}"
    return None


def _no_pairs(run):
    split = run.data.test_split
    if split is None or split.image_shape[-1] != 2:
        return f"{run.data.spec.name} has no pairs of two cameras"
    return _no_views(run, ("azimuth",))


def _training_curves(run):
    return figures.training_curves(run.history)


def _reconstructions(run):
    images, labels = run.examples(256)
    return figures.reconstructions(run.model, images, labels, class_names=run.data.spec.class_names)


def _dimension_perturbation(run):
    images, labels = run.examples(1)
    return figures.dimension_perturbation(run.model, images[0], labels[0], run.data.spec.class_names)


def _overlapping_reconstructions(run):
    images, targets = run.examples(8)
    parts, labels = targets["parts"], targets["part_labels"]
    return figures.overlapping_reconstructions(run.model, images, parts, labels, run.data.spec.class_names)


def _routing_changes(run):
    images, _ = run.examples(64)
    return figures.routing_changes(run.model, images)


def _pose_changes(run):
    images, _ = run.examples(4)  # fifty iterations, twice: a quarter of a minute
    return figures.pose_changes(run.model, images)


def _routing_maps(run):
    images, _ = run.examples(4, raw=True)
    inputs, labels = run.examples(4)
    labels = labels["label"] if isinstance(labels, dict) else labels
    return figures.routing_maps(run.model, images, inputs, labels, class_names=run.data.spec.class_names)


def _parse_tree(run):
    images, _ = run.examples(1, raw=True)
    inputs, _ = run.examples(1)
    shown = images if images.shape == inputs.shape else inputs  # what is cut off has no capsules
    return draw_parse_tree(run.model, shown[0], inputs[0], class_names=run.data.spec.class_names)


def _vote_distances(run):
    images, labels = run.examples(256)
    return figures.vote_distances(run.model, images, labels, class_names=run.data.spec.class_names)


def _vote_similarities(run):
    images, labels = run.examples(256)
    return figures.vote_similarities(run.models(), images, labels)


def _stereo_pairs(run):
    return viewpoints.stereo_sheet(run.data.test_split, run.data.spec.class_names)


def _poses(run, factor):
    predict = functools.partial(measures.predict, run.model)
    return viewpoints.measure_view_poses(predict, run.data.test_split, factor, run.recipe.preprocess)


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
    "pose_changes": _pose_changes,
    "routing_maps": _routing_maps,
    "parse_tree": _parse_tree,
    "vote_distances": _vote_distances,
    "vote_similarities": _vote_similarities,
    "stereo_pairs": _stereo_pairs,
    "poses_by_azimuth": _poses_by_azimuth,
    "poses_by_elevation": _poses_by_elevation,
    "pose_trajectories": _pose_trajectories,
    "sentence_attribution": _sentence_attribution,
}

# What a run may lack for a figure: functions that say it, or return None.
LACKS = {
    "training_curves": _no_history,
    "stereo_pairs": _no_pairs,
    "poses_by_azimuth": functools.partial(_no_views, factors=("azimuth",)),
    "poses_by_elevation": functools.partial(_no_views, factors=("elevation",)),
    "pose_trajectories": functools.partial(_no_views, factors=("elevation", "azimuth")),
}
