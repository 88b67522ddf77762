"""Pictures of runs, as files."""

import pathlib

from tf_capsules.runs.folder import RunFolder, short_names


def save_figure(figure, path):
    """Writes a matplotlib figure, makes its folder if it is absent, and returns the path."""
    path = pathlib.Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, bbox_inches="tight")
    return path


def save_figures(run, folder=None):
    """Draws the figures that a run's recipe names, and its diagnostics where they were measured; yields the paths.

    They are written to `folder`; None: to the folder `figures` of the run.
    """
    from tf_capsules.analysis import plots
    from tf_capsules.analysis.diagnostics import read_rows
    from tf_capsules.analysis.figures import draw

    folder = run.folder / "figures" if folder is None else pathlib.Path(folder)
    for name, figure in draw(run):
        yield save_figure(figure, folder / f"{name}.png")
    rows = read_rows(run.folder / "diagnostics.csv")
    if rows:
        yield save_figure(plots.draw_routing_diagnostics(rows), folder / "routing_diagnostics.png")


def save_curves(run_folders, folder="figures"):
    """Draws the training curves of several runs side by side, and compares their losses; yields the paths.

    Raises a ValueError for a folder without a finished epoch, or one that is named twice.
    """
    from tf_capsules.analysis import plots

    runs = dict(zip(short_names(run_folders), map(RunFolder, run_folders), strict=True))
    histories = {name: run.history() for name, run in runs.items()}
    if empty := [name for name, history in histories.items() if not history]:
        raise ValueError(f"{empty[0]} is not the folder of a run with a finished epoch.")
    folder = pathlib.Path(folder)
    losses = {name: run.config()["resolved"]["loss"] for name, run in runs.items()}
    yield save_figure(plots.draw_training_curves(histories, losses), folder / "training_curves.png")
    yield save_figure(plots.draw_loss_comparison(histories, losses), folder / "loss_comparison.png")
