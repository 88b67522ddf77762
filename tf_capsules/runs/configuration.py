"""What a run is: the configuration in its folder, and which changes a resumed run may have."""

import dataclasses
import json
import os
import typing
import warnings

from tf_capsules import recipes
from tf_capsules.argument_types import is_of
from tf_capsules.files import reading, writable
from tf_capsules.recipes import Recipe
from tf_capsules.runs.errors import TrainingError, reported
from tf_capsules.runs.folder import OTHER_VERSION, RunFolder
from tf_capsules.runs.option import check_arguments, with_tuples
from tf_capsules.runs.settings import DECLARED, Settings

# These values of `Recipe` are functions or classes. The configuration holds their names.
_FUNCTIONS = ("model", "loss", "optimizer", "feedback")

# What a recipe says about itself.
WORDS = ("name", "title", "source", "published", "device", "note")

_GIVE_IT = "Give the `Recipe` that it was trained with: `load_run(folder, recipe=...)`"

_OVER_THE_WHOLE_RUN = {
    "decays": "the learning rate falls over the whole run, so that it depends on the number of epochs; start a new run",
    "warmup": "with a warm-up the learning rate depends on the number of epochs; start a new run",
    "drops": "the learning rate drops at fixed shares of all epochs; start a new run",
    "margin_schedule": "with a growing margin its size depends on the number of epochs; start a new run",
}


def configuration(recipe, settings):
    """What was asked for, as plain JSON values: the settings, and all values of the recipe as they apply."""
    names = [field.name for field in dataclasses.fields(recipe) if field.name not in WORDS]
    values = {name: getattr(recipe, name) for name in names}
    values |= {name: values[name] and values[name].__name__ for name in _FUNCTIONS}
    values["model"] = f"{recipe.model.__module__}.{values['model']}"
    return _plain({"recipe": recipe.name, "settings": dataclasses.asdict(settings), "resolved": values})


def _plain(values):
    return json.loads(json.dumps(values, default=_path))


def _path(value):
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    hint = "A recipe's values must go into a JSON file; other objects belong in its network, a function."
    raise TrainingError(f"{hint} Received: {value!r}")


def check_folder(folder, config, recipe, resume):
    """Checks that a run fits into its folder; a TrainingError for other files, or a run that can't go on like this.

    Returns the configuration (with the folder's data if the run is resumed) and the number of finished epochs.
    """
    if folder.has_run() and not folder.has_epoch():
        if "resolved" not in reported(folder.read_json, "config.json"):
            raise TrainingError(f"{folder.path} holds other files already (config.json). Choose another --output.")
        return config, 0  # a run that ended in its first epoch is replaced
    if resume and folder.has_run():
        with folder.held():  # tells at once that another process trains there, and replaces what is read below
            before = folder.config()
        if changed := _differences(before, config):
            raise TrainingError(f"--resume: {folder.path} holds a run with other settings: {'; '.join(changed)}.")
        if not (epochs := folder.checkpoints()):
            raise TrainingError(f"--resume: {folder.path} has no checkpoint to go on from. Choose another --output.")
        done = epochs[-1]
        if done > recipe.epochs:
            raise TrainingError(f"--resume: {folder.path} has finished {done} epochs, more than {recipe.epochs}.")
        if len(folder.history(recipe.metric)) < done:
            raise TrainingError(f"--resume: {folder.path}/history.csv has fewer epochs than the checkpoint ({done}).")
        return config | {"data": before["data"]}, done
    reported(writable, folder.path / "config.json")
    if folder.has_run():
        hint = "Add --resume to go on with it, or choose another --output."
        raise TrainingError(f"{folder.path} holds a run already. {hint}")
    if folder.path.exists() and (names := sorted(path.name for path in folder.path.iterdir())):
        few = ", ".join(names[:3])
        raise TrainingError(f"{folder.path} holds other files already ({few}). Choose another --output.")
    return config, 0


def check_same_data(folder, before, spec, renamed):
    """Raises a TrainingError if a resumed run has other data than before; with `renamed` the name may differ.

    Other contents of the same sizes are a warning: labels may have been put right, or images decoded anew.
    """
    now, contents = spec.to_json(), before.get("contents", "")
    before = before | {"contents": spec.contents} | ({"name": spec.name} if renamed else {})
    if before != now:
        changed = [f"{key} {before.get(key)}, now {value}" for key, value in now.items() if before.get(key) != value]
        raise TrainingError(f"--resume: {folder.path} was trained on other data: {'; '.join(changed)}.")
    if contents not in ("", spec.contents):
        warnings.warn(f"--resume: {folder.path} was trained on other examples or labels than those of {spec.name} now.")


def recorded_recipe(config, recipe=None):
    """The recipe of a run as it applied to its training, even if the recipe has changed since.

    The configuration holds values, and functions, such as the network, by name. The functions come from `recipe`, by
    default the package's own of that name; those that the configuration names as the defaults of `Recipe`, from there.
    Raises a ValueError for an unknown recipe, one with another function, or a wrong value.
    """
    hints = typing.get_type_hints(Recipe)
    kept = {**_defaults(Recipe), **config["resolved"]}
    values = {name: with_tuples(kept[name]) for name in hints if name in kept and name not in (*_FUNCTIONS, *WORDS)}
    for name, value in values.items():
        if not is_of(value, hints[name]):
            raise ValueError(f"the {name} of its recipe can't be {value!r}")
    try:
        recipe = recipe or recipes.get(config["recipe"])
    except ValueError as error:
        raise ValueError(f"{error} {_GIVE_IT}") from error
    for field in dataclasses.fields(Recipe):
        if field.name in _FUNCTIONS and field.name in config["resolved"]:
            wanted = str(config["resolved"][field.name]).rpartition(".")[2]  # a network's name has its module before it
            own, default = (getattr(one, "__name__", "None") for one in (getattr(recipe, field.name), field.default))
            if wanted == default != own:
                values[field.name] = field.default
            elif wanted != own:
                raise ValueError(f"it was trained with the {field.name} {wanted}, {recipe.name} has {own}. {_GIVE_IT}")
    return dataclasses.replace(recipe, **values)


def recorded_settings(config):
    """The recorded values of `Settings`, for a single process."""
    kept = config["settings"] | dict.fromkeys(("processes", "process", "coordinator"))
    # Earlier versions kept these beside `data`, which is all the data.
    return kept if kept.get("data") is None else {**kept, "data_dir": None, "download": False}


def resumed(folder, **given):
    """The `Recipe` and the `Settings` with which a run is resumed, in a single process unless more are given.

    `given` are values of `Settings` that replace the run's. For a folder without a run, the recipe is None and the
    settings are those given. Raises a ValueError for a damaged run, or one of another version.
    """
    folder = RunFolder(folder)
    if not folder.has_run():
        return None, Settings(**given)
    config = folder.config()
    with reading(folder.path / "config.json", OTHER_VERSION):
        recipe = recorded_recipe(config)
        check_arguments("network", recipe.model_options, recipe.model)
    return recipe, Settings(**{**recorded_settings(config), **given})


def _differences(before, after):
    if before["recipe"] != after["recipe"]:
        return [f"recipe {before['recipe']}, now {after['recipe']}"]
    free = {"figures", *(name for name, one in DECLARED.items() if one.outside_run or not one.fixed)}
    changed, resolved = {}, _defaults(Recipe) | before["resolved"]
    for part, kind in (("settings", Settings), ("resolved", Recipe)):  # a key in both is reported as resolved
        # A key that the version which wrote the configuration did not know had its default.
        kept = {**_defaults(kind), **before[part]}
        for key, value in after[part].items():
            field = DECLARED[key].recipe if part == "settings" else None
            if field and resolved.get(field) == after["resolved"].get(field):
                continue  # what was set is the recipe's own value
            if key not in free and kept.get(key) != value:
                changed[key] = f"{key} {kept.get(key)!r}, now {value!r}"
    then, now = (config["resolved"].get("epochs") for config in (before, after))
    reasons = [reason for part, reason in _OVER_THE_WHOLE_RUN.items() if then != now and after["resolved"][part]]
    return [*changed.values(), *(f"epochs {then}, now {now}: {reason}" for reason in reasons)]


def _defaults(kind):
    """The default values of a dataclass as plain JSON values; functions are left out."""
    defaults = {}
    for field in dataclasses.fields(kind):
        if field.default_factory is not dataclasses.MISSING:
            defaults[field.name] = field.default_factory()
        elif field.default is not dataclasses.MISSING and not callable(field.default):
            defaults[field.name] = field.default
    return _plain(defaults)
