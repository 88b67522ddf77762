"""Recipes: the papers' experiments as data, one module a paper.

A module's `RECIPES` lists what `tf-capsules train NAME` can train: recipes written out in full, and the rows of the
papers' tables that change a few values of one. The first line of a module names its paper.
"""

import difflib

from tf_capsules.recipes import heinsen2019, hinton2018, li2018, mazzia2021, sabour2017, tsai2020
from tf_capsules.recipes.recipe import Recipe

__all__ = ["DEFAULT", "PAPERS", "Recipe", "get", "names"]

DEFAULT = "sabour2017-digits"

_MODULES = (sabour2017, hinton2018, li2018, heinsen2019, tsai2020, mazzia2021)

# Key and citation of each paper, and all recipes by name, both in the order of the papers and their tables.
PAPERS = {module.__name__.rpartition(".")[2]: str(module.__doc__).splitlines()[0].rstrip(".") for module in _MODULES}
_RECIPES = {recipe.name: recipe for module in _MODULES for recipe in module.RECIPES}


def names():
    """Names of all recipes, paper by paper, in the order of its tables."""
    return list(_RECIPES)


def get(name):
    """The recipe of that name; a ValueError where there is none."""
    if name in _RECIPES:
        return _RECIPES[name]
    base, at, iterations = str(name).partition("@")
    if at and base in _RECIPES:
        raise ValueError(f"Only tables take {name}. Other commands take {base} --iterations {iterations}.")
    near = difflib.get_close_matches(str(name), _RECIPES, n=3, cutoff=0.5)
    hint = f"Did you mean {' or '.join(near)}?" if near else f"`tf-capsules list` has all {len(_RECIPES)}."
    raise ValueError(f"There is no recipe {name!r}. {hint}")
