import itertools

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

from tf_capsules.analysis.plots import draw_accuracy_by_parameters, draw_accuracy_by_year
from tf_capsules.analysis.plots.published import SMALLNORB, SST5


@pytest.mark.parametrize(
    "function, published, own, ticks",
    [
        (draw_accuracy_by_parameters, SMALLNORB, ("mine", 271_688, 98.9), ["500K", "1M", "2M", "5M"]),
        (draw_accuracy_by_year, SST5, ("mine", 2019, 47.1), ["2013", "2014"]),
        (draw_accuracy_by_year, SST5, ("mine", 2031, 53.6), ["2013", "2031"]),
    ],
)
def test_accuracies_are_shown_with_their_names(saved, function, published, own, ticks):
    (axes,) = saved(function([own])).axes
    points = {tuple(line.get_xydata()[0]): line.get_color() for line in axes.get_lines()}
    assert set(points) == {(x, accuracy) for _, x, accuracy in (*published, own)}
    assert len({points[own[1:]], *(points[row[1:]] for row in published)}) == 2
    texts = {text.get_text().replace("\n", " "): text for text in axes.texts}
    assert set(texts) == {name for name, _, _ in (*published, own)}
    assert set(ticks) <= {text.get_text() for text in axes.get_xticklabels()}
    # No two names overlap.
    figure, canvas = axes.figure, FigureCanvasAgg(axes.figure)
    canvas.draw()
    boxes = [text.get_window_extent(canvas.get_renderer()) for text in axes.texts]
    assert not any(one.overlaps(other) for one, other in itertools.combinations(boxes, 2))
    assert all(box.x1 <= figure.bbox.width and box.x0 >= 0 for box in boxes)


def test_published_rows():
    assert max(SMALLNORB, key=lambda row: row[2])[1:] == (273_000, 99.1)
    assert max(SST5, key=lambda row: row[2])[1:] == (2019, 58.5)
    assert len(draw_accuracy_by_year().axes[0].get_lines()) == 12
