"""`tf-capsules list`."""

import dataclasses
import difflib

from tf_capsules import datasets, recipes
from tf_capsules.models import weights
from tf_capsules.recipes.measured import measured

HELP = "List recipes, data sets or shipped weights, or show all of one recipe."


def add_parser(parser):
    words = "recipes (the default), datasets, weights, or the name of a recipe"
    parser.add_argument("what", nargs="?", default="recipes", metavar="WHAT", help=words)


def run(options):
    if options.what == "recipes":
        return _list_recipes()
    if options.what == "datasets":
        rows = [
            (name, f"{text}{'' if shape is None else f', {classes} classes, ' + 'x'.join(map(str, shape))}")
            for name, text, shape, classes in datasets.describe()
        ]
    elif options.what == "weights":
        rows = [(name, str(weights.FOLDER / f"{name}.md")) for name in weights.names()]
    elif near := difflib.get_close_matches(options.what, ("recipes", "datasets", "weights"), n=1):
        raise ValueError(f"There is no list {options.what!r}. Did you mean {near[0]}?")
    else:
        return _show(recipes.get(options.what))
    width = max((len(name) for name, _ in rows), default=0)
    for name, text in rows:
        print(f"{name:{width}}  {text}")


def _show(recipe):
    for field in dataclasses.fields(recipe):
        value = getattr(recipe, field.name)
        if value not in (None, False, "", (), {}):
            print(f"{field.name:16}  {getattr(value, '__name__', value)}")
    print(f"{'measured here':16}  {_measured_here(recipe)}")


def _measured_here(recipe):
    found = measured(recipe)
    return found.text(recipe.measure) if found else "not measured"


def _list_recipes():
    rows, figures = [recipes.get(name) for name in recipes.names()], {}
    for recipe in rows:
        figure = recipe.published or "-"
        figures[recipe.name] = f"{figure} {recipe.measure}" if figure.endswith("%") else figure
    name_width, width = max(map(len, figures)), max(map(len, figures.values()))
    for paper, citation in recipes.PAPERS.items():
        print(citation)
        for recipe in (recipe for recipe in rows if recipe.paper == paper):
            here = _measured_here(recipe)
            print(f"  {recipe.name:{name_width}}  {figures[recipe.name]:{width}}  {here:40}  {recipe.title}")
        print()
    print(
        "Columns: recipe, the paper's figure (of a short regime: of the same network, trained as in the paper), the "
        "figure measured here, what it is."
    )
