import pytest

from tf_capsules import recipes
from tf_capsules.runs.data_spec import expected_spec


@pytest.mark.parametrize(
    ("name", "raw", "seen"),
    [
        ("sabour2017-mnist", (28, 28, 1), (28, 28, 1)),
        ("li2018-h-imagenet", (128, 128, 3), (128, 128, 3)),
        ("li2018-h-imagenet-large-mild", (256, 256, 3), (224, 224, 3)),
    ],
)
def test_images_are_as_the_recipe_loads_and_prepares_them(name, raw, seen):
    spec = expected_spec(recipes.get(name))
    assert (spec.raw_shape, spec.image_shape) == (raw, seen)


def test_a_folder_of_images_is_not_known_before():
    with pytest.raises(ValueError, match="folder takes its classes from your files"):
        expected_spec(recipes.get("sabour2017-mnist").replace(dataset="folder"))


def test_an_unknown_data_set_is_named():
    with pytest.raises(ValueError, match="unknown data set 'mnits'; there are digits"):
        expected_spec(recipes.get("sabour2017-mnist").replace(dataset="mnits"))
