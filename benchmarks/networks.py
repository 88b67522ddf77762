"""Measures the networks of recipes: seconds and peak memory of an inference and of a training step.

    python benchmarks/networks.py cifar10 [--batch 128] [--steps 3] [--output results/networks_cost.csv]
    python benchmarks/networks.py diverse_multimnist
    python benchmarks/networks.py RECIPE[@ITERATIONS] ...
    python benchmarks/networks.py --draw results/networks_cost.csv

The first two commands measure the tables of Tsai et al. 2020; the last draws results/figures/networks_cost.png. Images
are random, in the recipe's shape. A training step has the recipe's loss and optimizer, in float32. Each measurement
runs in its own process, one after another. Seconds are the median of the steps; memory is the largest resident size
above the process with its libraries imported and its network built. Close other jobs first.
"""

import argparse
import csv

from processes import alone, parsed, timed

CIFAR10 = [
    *(f"tsai2020-cifar10@{t}" for t in (1, 2, 3, 4, 5)),
    *(f"tsai2020-cifar10-dynamic@{t}" for t in (1, 2, 3, 4, 5)),
    *(f"tsai2020-cifar10-em@{t}" for t in (1, 2, 3, 4, 5)),
    "tsai2020-cifar10-cnn",
]
DIVERSE_MULTIMNIST = [
    *(f"tsai2020-diverse-multimnist@{t}" for t in (1, 2, 3)),
    *(f"tsai2020-diverse-multimnist-wide@{t}" for t in (1, 2, 3)),
    *(f"tsai2020-diverse-multimnist-vector@{t}" for t in (1, 2, 3)),
    *(f"tsai2020-diverse-multimnist-dynamic@{t}" for t in (1, 2, 3)),
    "tsai2020-diverse-multimnist-cnn",
    "tsai2020-diverse-multimnist-cnn-learned",
]
TABLES = {"cifar10": CIFAR10, "diverse_multimnist": DIVERSE_MULTIMNIST}
WHAT = ("inference", "training step")


def build(name, batch, dtype="float32"):
    """The uncompiled network of a row, its recipe, and the `ImageSpec` of images in the recipe's shape."""
    import keras

    from tf_capsules import datasets
    from tf_capsules.datasets import augment
    from tf_capsules.runs.compiling import build_model
    from tf_capsules.runs.data_spec import ImageSpec
    from tf_capsules.runs.table import Row

    keras.utils.set_random_seed(0)
    row = Row(name)
    recipe = row.recipe if row.iterations is None else row.recipe.replace(model_options={"iterations": row.iterations})
    raw, classes = next(tuple(rest[-2:]) for set_, *rest in datasets.describe() if set_ == recipe.dataset)
    shape = augment.output_shape(recipe.preprocess, raw)
    spec = ImageSpec(recipe.dataset, tuple(map(str, range(classes))), batch, batch, "", raw, shape)
    return build_model(recipe, spec, dtype), recipe, spec


def measure(name, what, batch, steps, dtype="float32"):
    import keras
    import numpy as np

    from tf_capsules.runs.compiling import compile_model

    model, recipe, spec = build(name, batch, dtype)
    shape, classes = spec.image_shape, len(spec.class_names)
    random = np.random.default_rng(0)
    images = random.random((batch, *shape), np.float32)
    if what == "inference":
        model.compile(jit_compile=False)
        found = timed(lambda: next(iter(keras.tree.flatten(model.predict_on_batch(images)))).flat[0], steps, warm_up=1)
    else:
        compile_model(model, recipe, spec, jit="off")
        labels = random.integers(0, classes, batch)
        if recipe.metric == "exact_match":
            labels = np.eye(classes, dtype="float32")[labels]
        found = timed(lambda: np.ravel(model.train_on_batch(images, labels))[0], steps, warm_up=1)
    return found | {"parameters": model.count_params()}


def draw(path):
    """Draws seconds and memory against routing iterations: one row of panels for each data set, one line a network."""
    from tf_capsules.analysis.plots.drawing import COLORS, MARKERS, add_caption, new_figure

    with open(path, newline="") as file:
        rows = list(csv.DictReader(file))
    shown = {}
    for table, names in TABLES.items():
        known = [row for row in rows if row["row"] in names]
        shown[table] = sorted(known, key=lambda row, names=names: names.index(row["row"]))
    shown = {table: rows for table, rows in shown.items() if rows}
    figure = new_figure(9.6, 3.8 * len(shown))
    panels = figure.subplots(len(shown), 2, squeeze=False)
    for (table, rows), axes in zip(shown.items(), panels, strict=True):
        kinds = dict.fromkeys(row["row"].partition("@")[0] for row in rows)
        for panel, column, label, scale in zip(
            axes, ("seconds", "peak_memory_mb"), ("seconds an image", "MiB"), (True, False), strict=True
        ):
            for number, kind in enumerate(kinds):
                for what, style in zip(WHAT, ("--", "-"), strict=True):
                    some = [row for row in rows if row["row"].partition("@")[0] == kind and row["what"] == what]
                    x = [int(row["row"].partition("@")[2] or 0) for row in some]
                    y = [float(row[column]) / (int(row["batch"]) if scale else 1) for row in some]
                    name = kind.partition(f"{table.replace('_', '-')}")[2].strip("-") or "inverted attention"
                    name = name if what == WHAT[1] else None
                    options = dict(color=COLORS[number % len(COLORS)], linestyle=style, label=name)
                    panel.plot(x, y, marker=MARKERS[number % len(MARKERS)], markersize=5, **options)
            if scale:
                panel.set_yscale("log")
            else:
                panel.set_ylim(0)
            panel.set_xlabel("routing iterations (0: none)")
            panel.locator_params(axis="x", integer=True)
            panel.set_ylabel(label)
            panel.set_title(f"{table.replace('_', ' ')}, batch {rows[0]['batch']}", fontsize=11)
        axes[0].legend(frameon=False, fontsize=8)
    add_caption(
        figure,
        "Solid, and the upper of two points at 0: a training step. Dashed: inference. Memory: peak above the process "
        "with its network built.",
    )
    figure.savefig("results/figures/networks_cost.png", bbox_inches="tight")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("rows", nargs="*", metavar="ROW", help=f"{' or '.join(TABLES)}, or RECIPE[@ITERATIONS]")
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--output", default="results/networks_cost.csv")
    parser.add_argument("--draw", metavar="FILE.csv")
    options = parsed(parser, measure)
    if options.draw:
        draw(options.draw)
        return
    from tf_capsules.runs.machine import environment
    from tf_capsules.runs.results import append_row

    for name in [one for asked in options.rows for one in TABLES.get(asked, [asked])]:
        for what in WHAT:
            found = alone(__file__, name, what, options.batch, options.steps)
            row = {
                "row": name,
                "what": what,
                "batch": options.batch,
                "seconds": round(found["seconds"], 4),
                "peak_memory_mb": found["memory"],
                "parameters": found["parameters"],
                **environment(),
            }
            append_row(options.output, row)
            print(f"{name:40} {what:14} {row['seconds']:8.3f} s  {row['peak_memory_mb']:6} MiB", flush=True)


if __name__ == "__main__":
    main()
