"""Every recipe of every paper: names, networks, parameters."""

import inspect
import re

import keras
import numpy as np
import pytest

from tf_capsules import datasets, recipes
from tf_capsules.datasets import augment
from tf_capsules.runs import figures as drawing

FEEDBACK = ("-2", "-kl", "-biased", "-plan-gradient", "-no-critic", "-vanilla", "-l2")
DEEP = 189_596_288
PARAMETERS = {
    "sabour2017-digits": 271_488,
    "sabour2017-mnist": 8_215_568,
    "sabour2017-mnist-short": 8_215_568,
    "sabour2017-mnist-r1": 8_215_568,
    "sabour2017-mnist-mean": 8_215_568,
    "sabour2017-mnist-no-reconstruction": 6_804_224,
    "sabour2017-mnist-r1-no-reconstruction": 6_804_224,
    "sabour2017-mnist-cnn": 35_445_522,
    **dict.fromkeys(("sabour2017-multimnist", "sabour2017-multimnist-short"), 11_361_808),
    "sabour2017-multimnist-r1": 11_361_808,
    "sabour2017-multimnist-cnn": 24_563_978,
    "sabour2017-affnist": 13_475_648,
    "sabour2017-affnist-r1": 13_475_648,
    "sabour2017-cifar10": 22_476_288,
    "sabour2017-cifar10-r1": 22_476_288,
    "sabour2017-smallnorb": 6_661_120,
    "sabour2017-svhn": 1_004_896,
    "hinton2018-smallnorb": 317_194,
    "hinton2018-smallnorb-r1": 317_194,
    "hinton2018-smallnorb-r2": 317_194,
    "hinton2018-smallnorb-r5": 317_194,
    "hinton2018-smallnorb-vector": 4_779_274,
    "hinton2018-smallnorb-no-coordinates": 317_194,
    "hinton2018-smallnorb-vector-no-coordinates": 4_779_274,
    "hinton2018-smallnorb-margin": 317_194,
    "hinton2018-smallnorb-crossentropy": 317_194,
    **dict.fromkeys(("hinton2018-smallnorb-small", "hinton2018-smallnorb-small-short"), 68_754),
    **dict.fromkeys(("hinton2018-smallnorb-cnn", "hinton2018-smallnorb-cnn-short"), 4_253_349),
    "hinton2018-novel-azimuth": 317_194,
    "hinton2018-novel-azimuth-test-toys": 317_194,
    "hinton2018-novel-azimuth-cnn": 4_253_349,
    "hinton2018-novel-azimuth-cnn-test-toys": 4_253_349,
    "hinton2018-novel-elevation": 317_194,
    "hinton2018-novel-elevation-test-toys": 317_194,
    "hinton2018-novel-elevation-cnn": 4_253_349,
    "hinton2018-novel-elevation-cnn-test-toys": 4_253_349,
    "hinton2018-mnist": 318_964,
    "hinton2018-cifar10": 459_444,
    **dict.fromkeys(
        (f"tsai2020-cifar10{row}" for row in ("", "-short", "-r1", "-r3", "-r4", "-r5", "-sequential")), 561_297
    ),
    "tsai2020-cifar10-no-layer-norm": 561_201,
    "tsai2020-cifar10-learned-start": 561_297 + 1_184,
    "tsai2020-cifar10-random-start": 561_297 + 1_184,
    # With the moving means and variances of the batch normalizations.
    "tsai2020-cifar10-activations": 561_297 + 256 * 32 + 4 * 32,
    "tsai2020-cifar10-resnet": 1_828_817 + 3_200,
    "tsai2020-cifar10-dynamic": 7_992_576,
    "tsai2020-cifar10-dynamic-r1": 7_992_576,
    "tsai2020-cifar10-dynamic-resnet": 12_451_136 + 5_504,
    **dict.fromkeys((f"tsai2020-cifar10-em{row}" for row in ("", "-r1", "-r3")), 453_044 + 512),
    "tsai2020-cifar10-em-resnet": 1_710_580 + 3_200,
    "tsai2020-cifar10-cnn": 18_919_434 + 4_096,
    "tsai2020-cifar10-resnet18": 11_173_962 + 9_600,
    "tsai2020-cifar100": 1_462_989,
    "tsai2020-cifar100-resnet": 2_799_629 + 3_200,
    "tsai2020-cifar100-dynamic": 31_585_536,
    "tsai2020-cifar100-dynamic-resnet": 36_044_096 + 5_504,
    "tsai2020-cifar100-em": 499_304 + 512,
    "tsai2020-cifar100-em-resnet": 1_756_840 + 3_200,
    "tsai2020-cifar100-cnn": 19_011_684 + 4_096,
    "tsai2020-cifar100-resnet18": 11_220_132 + 9_600,
    "tsai2020-diverse-multimnist": 9_963_969,
    "tsai2020-diverse-multimnist-wide": 41_593_281,
    "tsai2020-diverse-multimnist-vector": 42_478_017,
    "tsai2020-diverse-multimnist-dynamic": 42_478_592,
    "tsai2020-diverse-multimnist-cnn": 19_553_162 + 4_096,
    "tsai2020-diverse-multimnist-cnn-learned": 42_490_762 + 4_096,
    "tsai2020-diverse-multimnist-short": 1_697_473,
    "tsai2020-diverse-multimnist-dynamic-short": 34_212_096,
    "tsai2020-diverse-multimnist-cnn-learned-short": 3_253_130 + 512,
    # With the moving means and variances of the batch normalizations.
    # Feedback units are not a part of the network.
    **dict.fromkeys((f"li2018-cifar10{row}" for row in ("", "-mild", "-strong", "-skip-1")), 36_567_168),
    **dict.fromkeys((f"li2018-svhn{row}" for row in ("", "-mild", "-strong")), 36_567_168),
    **dict.fromkeys((f"li2018-cifar10-feedback{row}" for row in ("", *FEEDBACK)), 36_567_168),
    **dict.fromkeys((f"li2018-cifar10-{row}" for row in ("both", "skip-2")), 34_976_384 + 23_104),
    **dict.fromkeys((f"li2018-cifar10-{row}" for row in ("own", "crossed")), 34_907_264 + 23_104),
    "li2018-cifar10-master": 176_000 + 7_744,
    **dict.fromkeys((f"li2018-cifar10-resnet{row}" for row in ("", "-feedback", "-kl")), 11_156_778 + 9_664),
    **dict.fromkeys((f"li2018-cifar100{row}" for row in ("", "-mild", "-strong")), 36_544_064 + 737_280 + 23_104),
    **dict.fromkeys((f"li2018-cifar10-capnet{row}" for row in ("", "-r1", "-r2", "-r4", "-parents")), 9_913_600 + 960),
    **dict.fromkeys(
        (
            f"li2018-cifar10-capnet{optimizer}{loss}"
            for optimizer in ("", "-sgd", "-rmsprop")
            for loss in ("", "-spread-fixed", "-spread", "-cross-entropy")
        ),
        9_913_600 + 960,
    ),
    "li2018-cifar10-capnet-learned-logits": 9_913_600 + 4_214_784 + 960,
    "li2018-cifar10-capnet-random-logits": 9_913_600 + 4_214_784 + 960,
    "li2018-cifar10-capnet-short": 2_835_712 + 960,
    **dict.fromkeys((f"li2018-cifar10-capnet-em{row}" for row in ("", "-plain")), 9_991_540 + 1_024),
    # Each class has 8,192 parameters if the last maps are 4x4, and 25,088 if they are 7x7.
    "li2018-h-imagenet": 36_544_064 + 190 * 8_192 + 23_104,
    "li2018-h-imagenet-deep": DEEP,
    **dict.fromkeys((f"li2018-h-imagenet-large{row}" for row in ("", "-mild", "-strong")), DEEP + 200 * 16_896),
    "li2018-imagenet": 36_544_064 - 10 * 8_192 + 1000 * 25_088 + 23_104,
    **dict.fromkeys((f"li2018-cifar10-cnn{row}" for row in ("", "-short")), 1_575_690 + 1_984),
    "li2018-cifar10-cnn-large": 9_624_782 + 5_224,
    **dict.fromkeys((f"li2018-cifar10-short{row}" for row in ("", "-short")), 8_124_224 + 4_032),
    **dict.fromkeys((f"li2018-cifar10-short-master{row}" for row in ("", "-short")), 1_689_856 + 1_984),
    # Two input channels fewer.
    "li2018-mnist-capnet": 9_913_600 - 576 + 960,
    "li2018-mnist-capnet-em": 9_991_540 - 576 + 1_024,
    "li2018-mnist-cnn": 1_575_690 - 576 + 1_984,
    "li2018-mnist-cnn-large": 9_624_782 - 576 + 5_224,
    "li2018-mnist-short": 8_124_224 - 576 + 4_032,
    "li2018-mnist-short-master": 1_689_856 - 576 + 1_984,
    **dict.fromkeys(("mazzia2021-mnist", "mazzia2021-mnist-short"), 161_824 + 576 + 1_411_344),
    "mazzia2021-smallnorb": 151_664 + 229_570,
    "mazzia2021-smallnorb-short": 151_664,
    # A decoder of 36x36 pixels.
    **dict.fromkeys(("mazzia2021-multimnist", "mazzia2021-multimnist-short"), 154_656 + 576 + 607_744 + 1025 * 36 * 36),
    **dict.fromkeys(("heinsen2019-smallnorb", "heinsen2019-smallnorb-short"), 272_592),
    "heinsen2019-sst5": 142_912,
    "heinsen2019-sst2": 141_376,
}
OWN = {
    "sabour2017-affnist-cnn": (20e6, 40e6),
    "heinsen2019-toys": (4e4, 9e4),
    "hinton2018-toys": (15e3, 35e3),
    "heinsen2019-sst5-minilm": (3e4, 5e4),
    "heinsen2019-sst2-minilm": (3e4, 5e4),
    "heinsen2019-sst5-minilm-mean": (13e3, 14e3),
    "heinsen2019-sst2-minilm-mean": (5e3, 6e3),
    "heinsen2019-sst2-self-attention": (12e4, 14e4),
}
STATES = {"gpt2-large": (37, 1280), "sentence-transformers/all-MiniLM-L6-v2": (7, 384)}
COUNTED = {}  # {network and options: number of parameters}
SETS = {name: (shape, classes) for name, _, shape, classes in datasets.describe()}


@pytest.mark.parametrize("name", recipes.names())
def test_a_recipe_builds_the_paper_s_network_from_names_that_exist(name):
    recipe = recipes.get(name)
    shape, classes = SETS[recipe.dataset]
    if "image_size" in recipe.dataset_options:
        shape = (recipe.dataset_options["image_size"],) * 2 + shape[2:]
    if recipe.transformer is None:
        inputs = {"image_shape": augment.output_shape(augment.check(recipe.preprocess), shape)}
    else:
        inputs = dict(zip(("layers", "width"), STATES[recipe.transformer], strict=True))
        assert datasets.of_texts(recipe.dataset) and not recipe.preprocess
    options = {**inputs, "classes": classes, **recipe.model_options}
    key = recipe.model.__name__, repr(options)  # many recipes differ only in their training
    if key not in COUNTED:
        # Only shapes: the weights are neither drawn nor allocated.
        with keras.StatelessScope(initialize_variables=False):
            COUNTED[key] = recipe.model(**options).count_params()
        keras.utils.clear_session(free_memory=False)
    if name in PARAMETERS:
        assert COUNTED[key] == PARAMETERS[name]
    else:  # the paper gives no network
        least, most = OWN[name]
        assert least < COUNTED[key] < most
    labels = np.eye(classes)[[1]] if recipe.metric == "exact_match" else np.array([1])
    assert recipe.loss()(labels, np.full((1, classes), 0.5)) > 0
    assert set(recipe.figures) <= set(drawing.DRAWERS)
    special = {"multimnist": "exact_match", "li2018-imagenet": "top_5"}
    assert recipe.metric == next((metric for part, metric in special.items() if part in name), "accuracy")


@pytest.mark.parametrize("name", recipes.names())
def test_a_recipe_says_where_it_comes_from(name):
    recipe = recipes.get(name)
    assert recipe.source and recipe.device and len(recipe.title) <= 100
    assert recipe.paper in recipes.PAPERS and name.startswith(f"{recipe.paper}-")
    # The paper's figure as printed, or its words where it has none.
    assert recipe.published is None or re.fullmatch(r"\d+\.\d+%(( top-5)? error)?|[a-z ]+", recipe.published)
    assert ("top-5" in (recipe.published or "")) == (recipe.metric == "top_5")
    assert recipe.published or recipe.note or "paper" in recipe.source or "figure" in recipe.source


def test_a_recipe_is_found_by_its_name():
    """No name is put together from parts: a search for it ends in the module of its paper."""
    for module in recipes._MODULES:
        source = inspect.getsource(module)
        assert [recipe.name for recipe in module.RECIPES if f'"{recipe.name}"' not in source] == []


def test_recipes_of_a_paper_stand_together():
    papers = [recipes.get(name).paper for name in recipes.names()]
    assert list(dict.fromkeys(papers)) == list(recipes.PAPERS) and papers == sorted(papers, key=papers.index)
    rows = [recipe.name for module in recipes._MODULES for recipe in module.RECIPES]
    assert len(rows) == len(set(rows))


def test_an_unknown_recipe_is_named_with_what_comes_near():
    with pytest.raises(ValueError, match="no recipe 'sabour2017-mnits'. Did you mean .*sabour2017-mnist"):
        recipes.get("sabour2017-mnits")
