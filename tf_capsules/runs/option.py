"""Declares an option once, as a dataclass field with its type, default, help and allowed values.

The checks of `Settings`, the command line and the configuration of a run are made from these fields.
"""

import dataclasses
import inspect
import math
import os
import types
import typing
from collections.abc import Callable, Sequence

from tf_capsules.argument_types import is_of
from tf_capsules.recipes import Recipe
from tf_capsules.runs.errors import TrainingError


@dataclasses.dataclass(frozen=True)
class Allowed:
    """The values that an option may have: in words, and as a function that tests a value."""

    words: str
    test: Callable
    choices: tuple = ()


AT_LEAST_1 = Allowed("at least 1", lambda value: value >= 1)
ABOVE_0 = Allowed("above 0", lambda value: 0 < value < math.inf)
BETWEEN_0_AND_1 = Allowed("between 0 and 1", lambda value: 0 < value < 1)
SHARE = Allowed("a share above 0, at most 1", lambda value: 0 < value <= 1)
SEED = Allowed(f"from 0 to {2**31 - 1}", lambda value: 0 <= value < 2**31)


def one_of(*choices):
    """Allows these values only."""
    return Allowed(" or ".join(choices), choices.__contains__, choices)


@dataclasses.dataclass(frozen=True)
class Option:
    """What the command line and the checks know of a field.

    Attributes:
        help: what it sets, for the command line and the documentation.
        allowed: the values that it may have besides None.
        metavar: the placeholder of its value in the help of the command line; None for its name.
        recipe: the field of `Recipe` that it sets: a dict of options that it extends, or the field of its own name, if
            there is one.
        fixed: whether a resumed run must have the same value.
        outside_run: true for what does not change the trained weights, such as paths, the number of processes, or
            diagnostics. It may differ between processes and in a resumed run.
        name, hint: those of the field; `declared` fills them in.
    """

    help: str
    allowed: Allowed | None = None
    default: object = None
    metavar: str | None = None
    recipe: str | None = None
    fixed: bool = True
    outside_run: bool = False
    name: str = ""
    hint: object = None

    @property
    def flag(self):
        """Its name on the command line."""
        return f"--{self.name.replace('_', '-')}"

    @property
    def kind(self):
        """The type that a text for it is converted to: the first in its hint that is not None."""
        return next(kind for kind in typing.get_args(self.hint) or (self.hint,) if kind is not type(None))

    @property
    def path(self):
        """Whether it is a path, which the configuration keeps as an absolute one."""
        return os.PathLike in typing.get_args(self.hint)

    @property
    def full_help(self):
        """Its help, with the choices and the default."""
        text = self.help
        if self.allowed is not None and self.allowed.choices:
            *first, last = self.allowed.choices
            text += f": {', '.join(first)} or {last}"
        if self.default is None or self.default is False or "(default" in text:
            return text
        return f"{text} (default: {self.default:g})" if self.kind is float else f"{text} (default: {self.default})"

    def check(self, value):
        """Raises a TrainingError for a value of another type, or one that isn't allowed."""
        if not is_of(value, self.hint):
            raise TrainingError(f"{self.flag} can't be {value!r}.")
        if isinstance(value, int) and value >= 2**31:
            raise TrainingError(f"{self.flag} must be below {2**31}. Received: {value}")
        if value is not None and self.allowed is not None and not self.allowed.test(value):
            raise TrainingError(f"{self.flag} must be {self.allowed.words}. Received: {value}")

    def as_arguments(self, value):
        """The words on the command line that give a value; the value is not None."""
        if self.kind is bool:
            return [self.flag if value else f"--no-{self.flag[2:]}"]
        if self.kind is dict:
            return [word for text in assignments(value) for word in (self.flag, text)]
        return [self.flag, str(value)]

    def as_texts(self, value):
        """What a row of results says of a value; the value is not None."""
        texts = assignments(value) if self.kind is dict else [float(value) if self.kind is float else value]
        return [f"{self.name} {text}" for text in texts]


def option(help, allowed=None, default=None, **rest):
    """A dataclass field that declares an option. Arguments: see `Option`."""
    return dataclasses.field(default=default, metadata={"option": Option(help, allowed, default, **rest)})


def declared(settings):
    """The options of a dataclass, by name, in their order."""
    hints, of_recipe = typing.get_type_hints(settings), typing.get_type_hints(Recipe)
    found = {}
    for field in dataclasses.fields(settings):
        name, one = field.name, field.metadata["option"]
        recipe = one.recipe or (name if name in of_recipe else None)
        found[name] = dataclasses.replace(one, name=name, hint=hints[name], recipe=recipe)
    return found


def assignments(values):
    """A dict of values as NAME=VALUE, as they are given on the command line."""
    return [f"{name}={_as_text(value)}" for name, value in sorted(values.items())]


def _as_text(value, inside=False):
    """A value as on the command line: a list without brackets, unless it is empty or inside another one."""
    if not isinstance(value, (list, tuple)):
        return str(value)
    text = ",".join(_as_text(part, True) for part in value) + ("," if len(value) == 1 else "")
    return f"({text})" if inside or not value else text


def documented(settings):
    """A class decorator that adds the options' help to the docstring."""
    lines = (f"        {one.name}: {one.full_help}." for one in declared(settings).values())
    settings.__doc__ = "\n".join([settings.__doc__.rstrip(), "", "    Attributes:", *lines, "    "])
    return settings


def with_tuples(value):
    """A JSON value with tuples, which recipes have, instead of lists."""
    if isinstance(value, dict):
        return {key: with_tuples(part) for key, part in value.items()}
    return tuple(map(with_tuples, value)) if isinstance(value, list) else value


def check_arguments(name, values, function, without=()):
    """Raises a TrainingError for a value of the wrong type, or an argument that `function` lacks or is in `without`."""
    if not values:
        return
    hints = _argument_types(function)
    own = sorted(hints.keys() - set(without))
    for key, value in values.items():
        if key not in own:
            raise TrainingError(
                f"--{name} {key}={value}: {function.__name__} has no such argument that may be set; "
                f"it has {', '.join(own) or 'none'}."
            )
        if not is_of(with_tuples(value), hints[key]):
            raise TrainingError(f"--{name} {key} must be {_in_words(hints[key], key)}. Received: {value!r}")


def _argument_types(function):
    """The types of a function's arguments by name, from hints, default values and an unpacked `TypedDict`."""
    hints, found = typing.get_type_hints(function.__init__ if inspect.isclass(function) else function), {}
    for one in inspect.signature(function).parameters.values():
        if one.kind is one.VAR_KEYWORD:
            found |= typing.get_type_hints(*typing.get_args(hints[one.name])) if one.name in hints else {}
        elif one.kind is not one.VAR_POSITIONAL:
            plain = isinstance(one.default, (bool, int, float, str))
            found[one.name] = hints.get(one.name, type(one.default) if plain else typing.Any)
    return found


_WORDS = {int: "a whole number", float: "a number", bool: "true or false", str: "a word", types.NoneType: "none"}


def _in_words(hint, name):
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):
        return " or ".join(dict.fromkeys(_in_words(part, name) for part in parts))
    if origin in (list, tuple, Sequence):
        if typing.get_origin(parts[0]):
            return f"a list of lists ({name}=(A,B),(C,D))"
        return f"a list ({name}=A,B or, with one entry, {name}=A,)"
    return _WORDS.get(hint) or f"a {hint.__name__}"
