import itertools

from matplotlib.backends.backend_agg import FigureCanvasAgg

from tf_capsules.analysis.plots import draw_accuracy_by_parameters
from tf_capsules.analysis.plots.published import SMALLNORB


def test_accuracies_are_shown_with_their_names(saved):
    own = ("mine", 271_688, 98.9)
    (axes,) = saved(draw_accuracy_by_parameters([own])).axes
    points = {tuple(line.get_xydata()[0]): line.get_color() for line in axes.get_lines()}
    assert set(points) == {(x, accuracy) for _, x, accuracy in (*SMALLNORB, own)}
    assert len({points[own[1:]], *(points[row[1:]] for row in SMALLNORB)}) == 2
    (legend,) = axes.figure.legends
    colors = dict(zip((text.get_text() for text in legend.get_texts()), legend.legend_handles, strict=True))
    assert {name: line.get_color() for name, line in colors.items()} == {
        "published": points[SMALLNORB[0][1:]],
        "here": points[own[1:]],
    }
    texts = {text.get_text().replace("\n", " "): text for text in axes.texts}
    assert set(texts) == {name for name, _, _ in (*SMALLNORB, own)}
    assert {"200K", "500K", "1M", "2M", "5M"} <= {text.get_text() for text in axes.get_xticklabels()}
    # No two names overlap.
    figure, canvas = axes.figure, FigureCanvasAgg(axes.figure)
    canvas.draw()
    boxes = [text.get_window_extent(canvas.get_renderer()) for text in axes.texts]
    assert not any(one.overlaps(other) for one, other in itertools.combinations(boxes, 2))
    assert all(box.x1 <= figure.bbox.width and box.x0 >= 0 for box in boxes)


def test_published_rows():
    assert max(SMALLNORB, key=lambda row: row[2])[1:] == (273_000, 99.1)
    assert min(SMALLNORB, key=lambda row: row[1])[1:] == (151_664, 98.23)
