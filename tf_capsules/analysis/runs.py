"""The figures that a recipe asks for, drawn from its run."""

from tf_capsules.analysis import figures


def draw(run):
    """Yields (name, matplotlib figure) for each of the recipe's figures.

    Args:
        run: a `tf_capsules.training.Run`.
    """
    for name in run.recipe.figures:
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


DRAWERS = {
    "training_curves": _training_curves,
    "reconstructions": _reconstructions,
    "dimension_perturbation": _dimension_perturbation,
    "overlapping_reconstructions": _overlapping_reconstructions,
    "routing_changes": _routing_changes,
}
