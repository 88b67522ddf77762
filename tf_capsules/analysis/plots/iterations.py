"""Pictures of how much routing changes from one iteration to the next."""

import numpy as np

from tf_capsules.analysis.plots import drawing


def draw_routing_changes(changes, images):
    """How much the routing logits change in each routing iteration, on a logarithmic scale.

    Source: Sabour et al. 2017, appendix A.

    Args:
        changes: (iterations,) of `measure_routing_changes`.
        images: number of images that they are a mean over.
    """
    axes = drawing.new_figure(5.6, 4.0).subplots()
    drawing.add_line(axes, 0, np.arange(1, len(changes) + 1), changes, None)
    drawing.label_axes(axes, "routing iteration", "mean absolute change of a logit")
    drawing.log_scale(axes)
    return drawing.add_caption(axes.figure, f"Mean over {drawing.counted(images, 'image')}, all children and parents.")


def draw_pose_changes(measured, layers, images):
    """How far the poses of each layer move in each iteration, on a logarithmic scale, a panel for each schedule.

    Args:
        measured: dict from a schedule, "concurrent" or "sequential", to what `measure_pose_changes` gives.
        layers: names of the layers.
        images: number of images that they are a mean over.
    """
    figure = drawing.new_figure(4.6 * len(measured) + 1.9, 4.0)
    panels = figure.subplots(1, len(measured), sharey=True, squeeze=False)[0]
    for axes, (schedule, changes) in zip(panels, measured.items(), strict=True):
        for number, (name, one) in enumerate(zip(layers, changes, strict=True)):
            drawing.add_line(axes, number, np.arange(2, len(one) + 2), one, name.replace("_", " "))
        drawing.label_axes(axes, "routing iteration", "")
        axes.set_title(schedule, fontsize=11)
    drawing.log_scale(panels[0])  # its limits are those of all panels, so all curves have to be there
    panels[0].set_ylabel("mean distance that a pose moves")
    drawing.add_legend(figure)
    over = f"{drawing.counted(images, 'image')} and all capsules of a layer"
    return drawing.add_caption(figure, f"Mean over {over}; the same weights in all iterations.")
