"""`tf-capsules cost`."""

from tf_capsules import recipes
from tf_capsules.cli.options import add_settings, given_settings
from tf_capsules.runs import Settings
from tf_capsules.runs.cost import estimate_recipe_cost

HELP = "Estimate what a recipe takes before it is trained: multiply-adds, votes, memory."


def add_parser(parser):
    parser.add_argument("recipe", help="name of a recipe")
    names = ("batch_size", "iterations", "network", "feedback", "loss")
    add_settings(parser, names, batch_size="examples a step (default: the recipe's)")
    parser.add_argument("--image-shape", help="of the network's input, such as 32x32x3 (default: the recipe's)")
    parser.add_argument("--size", type=int, help="size of unknown input axes: for texts, the number of tokens")
    parser.add_argument("--inference", action="store_true", help="of an inference instead of a training step")


def run(options):
    settings = Settings(**given_settings(options))
    recipe = recipes.get(options.recipe)
    settings.check(recipe)
    shape = None if options.image_shape is None else _shape(options.image_shape)
    cost = estimate_recipe_cost(settings.apply(recipe), shape, options.size, not options.inference)
    changed = ", ".join(settings.stated())
    print(f"{recipe.name}{changed and ' with ' + changed}: {settings.title(recipe)}\n")
    print(cost)


def _shape(text):
    sizes = text.split("x")
    if len(sizes) != 3 or not all(size.isdecimal() and int(size) for size in sizes):
        raise ValueError(f"--image-shape is HEIGHTxWIDTHxCHANNELS. Received: {text}")
    return tuple(map(int, sizes))
