import dataclasses

import numpy as np
import pytest
from backend import untraced_steps

from tf_capsules import recipes
from tf_capsules.datasets.pipeline import Split
from tf_capsules.models.hinton2018 import MatrixCapsNet
from tf_capsules.runs import Settings, train
from tf_capsules.runs import figures as drawing

FEW = Settings(epochs=1, train_limit=32, test_limit=40, jit="off")


@pytest.fixture(scope="module")
def toys(tmp_path_factory):
    """A few steps of the rendered toys' recipe, with few views."""
    recipe = recipes.get("heinsen2019-toys").replace(
        dataset_options=dict(size=30, train_pairs=12, elevations=(0, 4), azimuths=(0, 5, 9)),
        model_options=dict(filters=4, types=3, parts=9),
        preprocess=(("pad_crop", 2, "edge"),),
        epochs=1,
    )
    with untraced_steps():
        return train(recipe, tmp_path_factory.mktemp("runs") / "toys", Settings(jit="off"), verbose=0)


@pytest.mark.long
def test_each_figure_that_the_recipe_names_is_drawn(toys):
    figures = dict(drawing.draw(toys))
    assert list(figures) == list(toys.recipe.figures)
    assert len(figures["stereo_pairs"].axes) == 5
    assert len(figures["poses_by_azimuth"].axes) == len(figures["poses_by_elevation"].axes) == 12
    lines = figures["poses_by_azimuth"].axes[0].lines
    assert len(lines) >= 26 and len(lines[0].get_xdata()) == 3
    assert len(figures["poses_by_elevation"].axes[0].lines[0].get_xdata()) == 2


def test_vote_distances_are_drawn_for_the_classes_of_the_data(toys):
    model = MatrixCapsNet((30, 30, 2), filters=4, types=3, capsules=(3, 4), iterations=2)
    run = dataclasses.replace(toys, model=model, recipe=toys.recipe.replace(figures=("vote_distances",)))
    figure = dict(drawing.draw(run))["vote_distances"]
    assert [axes.get_title() for axes in figure.axes[1:6]] == list(toys.data.spec.class_names)


def of_other_data(run, **changes):
    data = dataclasses.replace(run.data, **changes)
    return dataclasses.replace(run, load=lambda: data)


def drawn(run, capsys):
    """The figures of a run, and the printed lines."""
    figures = dict(drawing.draw(run))
    return figures, capsys.readouterr().out.splitlines()


def test_arrays_know_no_viewpoints_but_have_curves(toys, capsys):
    spec = dataclasses.replace(toys.data.spec, name="my.npz")
    figures, lines = drawn(of_other_data(toys, test_split=None, spec=spec), capsys)
    assert list(figures) == ["training_curves", "parse_tree"]
    assert lines[0] == "stereo_pairs: left out, my.npz has no pairs of two cameras"
    assert lines[1].startswith("poses_by_azimuth: left out, my.npz has no views by azimuth. ")
    assert [line.split(": left out, ")[0] for line in lines] == list(toys.recipe.figures)[2:]


def test_coloured_views_of_one_camera_lack_the_pairs_only(toys):
    arrays = toys.data.test_split.arrays
    coloured = Split({**arrays, "image": np.repeat(arrays["image"][..., :1], 3, axis=-1)})
    run = of_other_data(toys, test_split=coloured)
    lacks = {name: lack(run) for name, lack in drawing.LACKS.items() if name in run.recipe.figures}
    assert [name for name, lack in lacks.items() if lack is not None] == ["stereo_pairs"]


def test_views_that_are_missing_or_unknown_are_named(toys, capsys):
    arrays = toys.data.test_split.arrays
    low = arrays["elevation"] == 0
    one_elevation = Split({name: column[~low] for name, column in arrays.items()})
    unknown = Split({name: column for name, column in arrays.items() if name != "instance"})
    for split, reason in ((one_elevation, "toys lack views by azimuth at elevation 0"), (unknown, "lacks: instance")):
        figures, lines = drawn(of_other_data(toys, test_split=split), capsys)
        assert "training_curves" in figures and "poses_by_azimuth" not in figures
        assert len(figures) + len(lines) == len(toys.recipe.figures)
        (line,) = [line for line in lines if line.startswith("poses_by_azimuth")]
        assert reason in line
        assert any(line.startswith("stereo_pairs: left out, rendered_toys has no views by azimuth") for line in lines)


def test_a_run_without_a_history_has_no_curves(toys, capsys):
    run = dataclasses.replace(toys, history=[], recipe=toys.recipe.replace(figures=("training_curves",)))
    assert list(drawing.draw(run)) == []
    assert capsys.readouterr().out == "training_curves: left out, the run has no history\n"


def test_networks_without_a_decoder_have_no_pictures_of_it(toys, capsys):
    names = ("reconstructions", "dimension_perturbation", "overlapping_reconstructions")
    run = dataclasses.replace(toys, recipe=toys.recipe.replace(figures=names))
    assert list(drawing.draw(run)) == []
    assert capsys.readouterr().out.splitlines() == [f"{name}: left out, the network has no decoder" for name in names]


def test_pictures_name_the_classes_of_the_data(tmp_path):
    recipe = recipes.get("sabour2017-digits").replace(
        model_options=dict(filters=4, types=2, dim=4, decoder_units=(7,)),
        figures=("reconstructions", "dimension_perturbation"),
    )
    with untraced_steps():
        run = train(recipe, tmp_path / "run", FEW, verbose=0)
    names = tuple(f"kind {number}" for number in range(10))
    spec = dataclasses.replace(run.data.spec, class_names=names)
    figures = dict(drawing.draw(dataclasses.replace(of_other_data(run, spec=spec), trained_on=spec)))
    assert figures["reconstructions"].axes[0].get_title().count("kind") == 3
    assert "class kind" in figures["dimension_perturbation"].get_supxlabel()


@pytest.mark.long
def test_images_with_one_object_are_left_out_of_overlapping_reconstructions(tmp_path, monkeypatch):
    recipe = recipes.get("sabour2017-multimnist").replace(
        dataset="diverse_multimnist",
        dataset_options=dict(source="digits"),
        model_options=dict(filters=4, kernel_size=3, primary_kernel_size=3, types=2, dim=4, decoder_units=(7,)),
        figures=("overlapping_reconstructions",),
    )
    with untraced_steps():
        run = train(recipe, tmp_path / "run", FEW, verbose=0)
    assert (run.examples(100)[1]["part_labels"] < 0).any()
    assert dict(drawing.draw(run))["overlapping_reconstructions"].axes
    labels = run.examples(100)[1]
    none = {**labels, "part_labels": np.full_like(labels["part_labels"], -1)}
    for given in (none, np.zeros(100, int)):
        monkeypatch.setattr(type(run), "examples", lambda self, count, given=given: (None, given))
        assert drawing.LACKS["overlapping_reconstructions"](run) == "no test image has two objects"


def test_a_figure_that_is_not_there_is_named(toys):
    run = dataclasses.replace(toys, recipe=toys.recipe.replace(figures=("training_curve",)))
    with pytest.raises(ValueError, match="There is no figure 'training_curve'; there are training_curves, "):
        next(drawing.draw(run))


def test_every_reason_to_leave_out_belongs_to_a_figure():
    assert set(drawing.LACKS) <= set(drawing.DRAWERS)


@pytest.mark.long
def test_routing_maps_mark_all_classes_of_an_image(tmp_path):
    recipe = recipes.get("tsai2020-diverse-multimnist").replace(
        dataset_options=dict(source="digits"),
        model_options=dict(filters=4, types=2, pose=(2, 2), convolutions=((3, 3, 1),)),
        figures=("routing_maps",),
    )
    with untraced_steps():
        run = train(recipe, tmp_path / "run", FEW, verbose=0)
    _, labels = run.examples(4)
    figure = dict(drawing.draw(run))["routing_maps"]
    titles = [axes.get_title() for axes in figure.axes[:16:4]]
    assert titles == [", ".join(map(str, np.flatnonzero(hot))) for hot in labels["label"]]
    assert max(map(len, titles)) > 1
