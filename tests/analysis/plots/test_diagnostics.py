import numpy as np
import pytest
from analysis.capsnets import legend

from tf_capsules.analysis.plots import draw_routing_diagnostics


def row(epoch, iteration, layer="class_capsules"):
    measured = {"coupling_entropy": 1 / (epoch + iteration), "dead_capsules": epoch / 10, "change": iteration / 8}
    return {"epoch": epoch, "layer": layer, "iteration": iteration, **measured}


def test_diagnostics_have_three_panels_and_a_line_a_layer(saved):
    rows = [row(epoch, iteration) for epoch in (1, 2, 3) for iteration in (1, 2, 3)]
    figure = saved(draw_routing_diagnostics(rows))
    entropy, dead, change = figure.axes
    np.testing.assert_allclose(entropy.lines[0].get_ydata(), [row["coupling_entropy"] for row in rows[2::3]])
    np.testing.assert_allclose(dead.lines[0].get_ydata(), [100 * row["dead_capsules"] for row in rows[2::3]])
    assert entropy.lines[0].get_label() == "class_capsules, 3 iterations"
    np.testing.assert_allclose(change.lines[0].get_ydata(), [row["change"] for row in rows[-2:]])
    other = [row(epoch, 1, "parts") for epoch in (1, 2, 3)]
    assert legend(draw_routing_diagnostics(rows + other)) == ["class_capsules, 3 iterations", "parts, 1 iteration"]
    with pytest.raises(ValueError, match="no rows"):
        draw_routing_diagnostics([])
