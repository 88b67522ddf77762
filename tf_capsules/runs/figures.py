"""The figures that a recipe names: what each measures in a run, how it is drawn, and all of them as files."""

import functools
import pathlib

import keras
import numpy as np

from tf_capsules import analysis
from tf_capsules.analysis import plots, viewpoints
from tf_capsules.analysis.diagnostics import read_rows
from tf_capsules.files import local
from tf_capsules.runs.folder import RunFolder, short_names


def check_names(names):
    """Raises a ValueError for the name of a figure that is not there."""
    if unknown := [name for name in names if name not in DRAWERS]:
        raise ValueError(f"There is no figure {unknown[0]!r}; there are {', '.join(DRAWERS)}.")


def draw(run):
    """Yields (name, matplotlib figure) for each figure that the recipe of a `tf_capsules.runs.Run` names.

    A figure is left out if the run lacks the history, the decoder or the data for it: a printed line says why.
    """
    check_names(run.recipe.figures)
    for name in run.recipe.figures:
        if name in LACKS and (lack := LACKS[name](run)):
            print(f"{name}: left out, {lack}", flush=True)
        else:
            yield name, DRAWERS[name](run)


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


def _no_decoder(run):
    return None if getattr(run.model, "decoder", None) is not None else "the network has no decoder"


def _two_objects(run):
    """The numbers of the first eight test images with two objects, among the first hundred."""
    _, labels = run.examples(100)
    if not isinstance(labels, dict) or "part_labels" not in labels:
        return []
    return np.flatnonzero((labels["part_labels"] >= 0).all(-1))[:8]


def _no_two_objects(run):
    return _no_decoder(run) or (None if len(_two_objects(run)) else "no test image has two objects")


def _reconstructions(run):
    measured = analysis.measure_reconstructions(run.model, *run.examples(256))
    return plots.draw_reconstructions(measured, run.data.spec.class_names)


def _dimension_perturbation(run):
    (image,), (label,) = run.examples(1)
    images = analysis.perturb_dimensions(run.model, image, label)
    return plots.draw_dimension_perturbation(images, run.data.spec.class_names[label])


def _overlapping_reconstructions(run):
    (images, targets), two = run.examples(100), _two_objects(run)
    parts, labels = targets["parts"][two], targets["part_labels"][two]
    measured = analysis.measure_overlapping_reconstructions(run.model, images[two], parts, labels)
    return plots.draw_overlapping_reconstructions(measured, run.data.spec.class_names)


def _routing_changes(run):
    images, _ = run.examples(64)
    return plots.draw_routing_changes(analysis.measure_routing_changes(run.model, images), len(images))


def _pose_changes(run):
    images, _ = run.examples(4)  # fifty iterations, twice: a quarter of a minute
    schedules = ("concurrent", "sequential")
    measured = {one: analysis.measure_pose_changes(run.model, images, schedule=one) for one in schedules}
    layers = [layer.name for layer in run.model.encoder.get_layer("routing").chain]
    return plots.draw_pose_changes(measured, layers, len(images))


def _routing_maps(run):
    images, _ = run.examples(4, raw=True)
    inputs, labels = run.examples(4)
    labels = labels["label"] if isinstance(labels, dict) else labels
    maps = analysis.measure_routing_maps(run.model, inputs)
    probabilities = analysis.predict_probabilities(run.model, inputs)
    return plots.draw_routing_maps(images, maps, probabilities, labels, class_names=run.data.spec.class_names)


def _parse_tree(run):
    images, _ = run.examples(1, raw=True)
    inputs, _ = run.examples(1)
    shown = images if images.shape == inputs.shape else inputs  # cropped-off borders have no capsules
    levels = analysis.measure_parse_tree(run.model, inputs[0])
    (probabilities,) = analysis.predict_probabilities(run.model, inputs)
    return plots.draw_parse_tree(shown[0], levels, probabilities, class_names=run.data.spec.class_names)


def _vote_distances(run):
    measured = analysis.measure_example_votes(run.model, *run.examples(256))
    return plots.draw_vote_distances(measured, class_names=run.data.spec.class_names)


def _vote_similarities(run):
    images, labels = run.examples(256)
    measured = {name: analysis.measure_vote_similarities(each, images, labels) for name, each in run.models().items()}
    return plots.draw_vote_similarities(measured, len(images))


def _stereo_pairs(run):
    arrays = run.data.test_split.arrays
    views = viewpoints.find_views(arrays, "azimuth")
    return plots.draw_stereo_sheet(arrays["image"], views, run.data.spec.class_names)


def _poses(run, factor):
    predict = functools.partial(analysis.predict, run.model)
    return viewpoints.measure_view_poses(predict, run.data.test_split, factor, run.recipe.preprocess)


def _pose_trajectories(run):
    measured = [_poses(run, factor) for factor in ("elevation", "azimuth")]
    return plots.draw_pose_trajectories(measured, run.data.spec.class_names)


def _sentence_attribution(run):
    texts, _ = run.examples(1, raw=True)
    inputs, _ = run.examples(1)
    (shares,) = keras.ops.convert_to_numpy(analysis.class_shares(run.model, inputs))
    (probabilities,) = analysis.predict_probabilities(run.model, inputs)
    tokens = run.data.transformer.tokens(texts[0])
    return plots.draw_sentence_attribution(tokens, shares[: len(tokens)], run.data.spec.class_names, probabilities)


DRAWERS = {
    "training_curves": lambda run: plots.draw_training_curves(run.history),
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
    "poses_by_azimuth": lambda run: plots.draw_pose_curves(_poses(run, "azimuth")),
    "poses_by_elevation": lambda run: plots.draw_pose_curves(_poses(run, "elevation")),
    "pose_trajectories": _pose_trajectories,
    "sentence_attribution": _sentence_attribution,
}

# Functions that say what a run lacks for a figure, or return None.
LACKS = {
    "training_curves": lambda run: None if run.history else "the run has no history",
    "reconstructions": _no_decoder,
    "dimension_perturbation": _no_decoder,
    "overlapping_reconstructions": _no_two_objects,
    "stereo_pairs": _no_pairs,
    "poses_by_azimuth": functools.partial(_no_views, factors=("azimuth",)),
    "poses_by_elevation": functools.partial(_no_views, factors=("elevation",)),
    "pose_trajectories": functools.partial(_no_views, factors=("elevation", "azimuth")),
}


def save_figure(figure, path):
    """Writes a matplotlib figure, makes its folder if it is absent, and returns the path."""
    path = local(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, bbox_inches="tight")
    return path


def save_figures(run, folder=None):
    """Draws the figures that a run's recipe names, and its diagnostics where they were measured; yields the paths.

    They are written to `folder`; None: to the folder `figures` of the run.
    """
    folder = run.folder / "figures" if folder is None else pathlib.Path(folder)
    for name, figure in draw(run):
        yield save_figure(figure, folder / f"{name}.png")
    if rows := read_rows(run.folder / "diagnostics.csv"):
        yield save_figure(plots.draw_routing_diagnostics(rows), folder / "routing_diagnostics.png")


def save_curves(run_folders, folder="figures"):
    """Draws the training curves of several runs side by side, and compares their losses; yields the paths.

    Raises a ValueError for a folder without a finished epoch, or one that is named twice.
    """
    runs = dict(zip(short_names(run_folders), map(RunFolder, run_folders), strict=True))
    histories = {name: run.history() for name, run in runs.items()}
    if empty := [name for name, history in histories.items() if not history]:
        raise ValueError(f"{empty[0]} is not the folder of a run with a finished epoch.")
    folder = pathlib.Path(folder)
    losses = {name: run.config()["resolved"]["loss"] for name, run in runs.items()}
    yield save_figure(plots.draw_training_curves(histories, losses), folder / "training_curves.png")
    yield save_figure(plots.draw_loss_comparison(histories, losses), folder / "loss_comparison.png")
