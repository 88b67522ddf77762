"""What routing does while a network trains."""

from tf_capsules.analysis.plots.drawing import add_caption, add_legend, add_line, label_axes, new_figure


def draw_routing_diagnostics(rows):
    """Three panels with a line for each layer: entropy of the couplings, dead capsules, and change by iteration.

    Args:
        rows: of a `tf_capsules.analysis.RoutingDiagnostics`; a ValueError if there are none.
    """
    if not rows:
        raise ValueError("There are no rows of diagnostics to draw.")
    figure = new_figure(13.6, 3.8)
    panels = figure.subplots(1, 3)
    last_epoch = max(row["epoch"] for row in rows)
    for number, layer in enumerate(dict.fromkeys(row["layer"] for row in rows)):
        own = [row for row in rows if row["layer"] == layer]
        last = max(row["iteration"] for row in own)
        ends = [row for row in own if row["iteration"] == last]
        epochs = [row["epoch"] for row in ends]
        name = f"{layer}, {last} iteration{'s' * (last > 1)}"
        add_line(panels[0], number, epochs, [row["coupling_entropy"] for row in ends], name)
        add_line(panels[1], number, epochs, [100 * row["dead_capsules"] for row in ends], name)
        changes = [row for row in own if row["epoch"] == last_epoch and row["iteration"] > 1]
        if changes:
            add_line(panels[2], number, [row["iteration"] for row in changes], [row["change"] for row in changes], name)
    label_axes(panels[0], "epoch", "entropy of the couplings (1: even)")
    label_axes(panels[1], "epoch", "dead capsules (%)")
    label_axes(panels[2], "iteration", f"change of the couplings, epoch {last_epoch}")
    panels[0].set_ylim(0, 1.05)
    panels[1].set_ylim(0, 105)
    panels[2].set_ylim(0, max(0.1, 1.05 * panels[2].dataLim.ymax) if panels[2].lines else 1)
    add_legend(figure)
    dead = "Dead: less than a tenth of an even share in every example."
    change = "Change: the mean absolute change since the iteration before, divided by the mean coupling."
    return add_caption(figure, f"{dead} {change}")
