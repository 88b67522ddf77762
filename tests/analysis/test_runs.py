import dataclasses

import pytest

from tf_capsules import recipes, training
from tf_capsules.analysis import runs


@pytest.fixture(scope="module")
def toys(tmp_path_factory):
    """A few steps of the rendered toys' recipe, with few views."""
    recipe = recipes.get("heinsen2019-toys").but(
        dataset_options=dict(size=30, train_pairs=12, elevations=(0, 4), azimuths=(0, 5, 9)),
        model_options=dict(filters=4, types=3, parts=9),
        preprocess=(("pad_crop", 2, "edge"),),
        epochs=1,
    )
    return training.train(recipe, tmp_path_factory.mktemp("runs") / "toys", verbose=0)


def test_each_figure_that_the_recipe_names_is_drawn(toys):
    figures = dict(runs.draw(toys))
    assert list(figures) == list(toys.recipe.figures)
    assert len(figures["stereo_pairs"].axes) == 5
    assert len(figures["poses_by_azimuth"].axes) == len(figures["poses_by_elevation"].axes) == 12
    lines = figures["poses_by_azimuth"].axes[0].lines
    assert len(lines) >= 26 and len(lines[0].get_xdata()) == 3
    assert len(figures["poses_by_elevation"].axes[0].lines[0].get_xdata()) == 2


def test_arrays_know_no_viewpoints(toys):
    data = dataclasses.replace(toys.data, test_split=None, spec=dataclasses.replace(toys.data.spec, name="my.npz"))
    run = dataclasses.replace(toys, load=lambda: data)
    with pytest.raises(ValueError, match="Received arrays: my.npz"):
        dict(runs.draw(run))
