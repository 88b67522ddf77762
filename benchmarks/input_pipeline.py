"""Measures the images a second of a recipe's input pipeline, from decoded arrays in memory to augmented batches.

    python benchmarks/input_pipeline.py tsai2020-cifar10 sabour2017-mnist

Random images of the recipe's shape stand in for the data set, so the script needs no data. With `--arrays` NumPy makes
the batches, as it does where TensorFlow is not installed. The script prints images and megabytes a second of one core,
the best of five passes. It counts CPU time, not waiting, so other work on the machine hardly matters.
"""

import argparse
import itertools
import time

import numpy as np

from tf_capsules import datasets, recipes
from tf_capsules.datasets.arrays import ArrayBatches
from tf_capsules.datasets.pipeline import Split


def images_a_second(stream, batch_size, batches):
    """Images a second of one core: the best of five passes over `batches` batches, after one batch as warm-up."""
    stream = iter(stream)
    next(stream)
    best = 0.0
    for _ in range(5):
        started = time.process_time()
        for _ in itertools.islice(stream, batches):
            pass
        best = max(best, batches * batch_size / (time.process_time() - started))
    return best


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("recipes", nargs="+")
    parser.add_argument("--arrays", action="store_true", help="NumPy batches in place of tf.data")
    parser.add_argument("--batches", type=int, default=40, help="in each pass (default: 40)")
    options = parser.parse_args()
    shapes = {name: shape for name, _, shape, _ in datasets.describe()}
    random = np.random.default_rng(0)
    for name in options.recipes:
        recipe = recipes.get(name)
        images = random.integers(0, 256, (10_000, *shapes[recipe.dataset]), np.uint8)
        labels = random.integers(0, 10, len(images))
        asked = dict(preprocess=recipe.preprocess, training=True, epochs=1000)
        if options.arrays:
            arrays = ArrayBatches(images, labels, recipe.batch_size, **asked)
            stream = map(arrays.__getitem__, range(len(arrays)))
        else:
            stream = Split({"image": images, "label": labels}).batches(recipe.batch_size, **asked)
        pace = images_a_second(stream, recipe.batch_size, options.batches)
        size = 4 * np.prod(next(iter(stream))[0].shape[1:]) / 1e6
        print(f"{name}: {pace:,.0f} images, {pace * size:,.0f} MB a second of one core", flush=True)


if __name__ == "__main__":
    main()
