"""What a model has to know of its data. A run's configuration holds it."""

import dataclasses
import json
import typing

from tf_capsules import datasets, text
from tf_capsules.argument_types import is_of
from tf_capsules.datasets import augment


@dataclasses.dataclass(frozen=True)
class DataSpec:
    """What a model has to know of its data, as values for `config.json`. `train_size` is the size of an epoch.

    `contents` is a checksum of a user's own examples and labels, "" for other data.
    """

    name: str
    class_names: tuple[str, ...]
    train_size: int
    test_size: int
    note: str
    contents: str = dataclasses.field(default="", kw_only=True)

    def noted(self, *remarks, **changes):
        """The same with further remarks in its note, empty ones left out, and with other changes."""
        return dataclasses.replace(self, note="; ".join(filter(None, [self.note, *remarks])), **changes)

    def to_json(self):
        """The values as plain JSON ones."""
        return json.loads(json.dumps(dataclasses.asdict(self)))

    @staticmethod
    def from_json(values):
        """The `DataSpec` that `to_json` gave; a ValueError for values of another version, or none at all."""
        if not isinstance(values, dict):
            raise ValueError(f"data are described by a dict. Received: {values!r}")
        kind = TextSpec if "transformer" in values else ImageSpec
        hints = typing.get_type_hints(kind)
        if {"contents", *values} != set(hints):  # earlier versions did not keep the checksum
            raise ValueError(f"data are described by {', '.join(hints)}. Received: {', '.join(values)}")
        values = {key: tuple(value) if isinstance(value, list) else value for key, value in values.items()}
        for key, value in values.items():
            if not is_of(value, hints[key]):
                raise ValueError(f"the {key} of data can't be {value!r}")
        return kind(**values)


@dataclasses.dataclass(frozen=True)
class ImageSpec(DataSpec):
    """Images: `raw_shape` before the recipe's preprocessing, `image_shape` as the model sees them."""

    raw_shape: tuple[int, int, int]
    image_shape: tuple[int, int, int]

    @property
    def model_arguments(self):
        return {"image_shape": self.image_shape, "classes": len(self.class_names)}

    @property
    def inputs(self):
        return f"images {self.image_shape}"


@dataclasses.dataclass(frozen=True)
class TextSpec(DataSpec):
    """Texts, which the model sees as all hidden states of a frozen transformer."""

    transformer: str
    layers: int
    width: int

    @property
    def model_arguments(self):
        return {"layers": self.layers, "width": self.width, "classes": len(self.class_names)}

    @property
    def inputs(self):
        return f"{self.layers} hidden states of {self.width}"


def expected_spec(recipe, image_shape=None):
    """The `DataSpec` of a recipe's data, without loading them: sizes and class names are made up.

    `image_shape` is (height, width, channels) of the images as the model sees them; None for the data set's. Raises a
    ValueError for an image shape of texts, an unknown data set, "folder", or an unknown transformer.
    """
    datasets.check_name(recipe.dataset)
    shape, classes = next(tuple(rest[-2:]) for name, *rest in datasets.describe() if name == recipe.dataset)
    if classes is None:
        raise ValueError(f"The data set {recipe.dataset} takes its classes from your files: their number is not known.")
    common = recipe.dataset, tuple(map(str, range(classes))), recipe.batch_size, 0, ""
    if recipe.transformer is None:
        side = recipe.dataset_options.get("image_size")
        shape = shape if side is None else (side, side, shape[2])
        return ImageSpec(*common, shape, image_shape or tuple(augment.output_shape(recipe.preprocess, shape)))
    if image_shape is not None:
        raise ValueError(f"An image shape is for images; {recipe.name} is on texts. Received: {image_shape}")
    transformer = text.load(recipe.transformer)
    return TextSpec(*common, recipe.transformer, transformer.layers, transformer.width)
