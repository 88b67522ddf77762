"""Measures Adam in one kernel against Keras's Adam: its update alone, and training steps of a small network.

    python benchmarks/adam.py [--steps 60] [--dtype float32] [--output results/adam_cost.csv]

The network is `EfficientCapsNet` with its decoder, 1.57 million trainable parameters; images are random. Both forms run
in one process, in turn, so that both meet the same other work. A row has medians. Close other jobs first.
"""

import argparse
import statistics
import time


def in_turn(forms, steps):
    """The median milliseconds of each function, called one after the other, `steps` times."""
    times = {name: [] for name in forms}
    for step in range(steps + 3):
        for name, call in forms.items():
            start = time.perf_counter()
            call()
            if step >= 3:
                times[name].append(1000 * (time.perf_counter() - start))
    return {name: round(statistics.median(each), 2) for name, each in times.items()}


def updates(optimizers):
    """Functions that apply random gradients to the network's parameters."""
    import keras
    import tensorflow as tf

    from tf_capsules.models.mazzia2021 import EfficientCapsNet

    def update(optimizer):
        weights = EfficientCapsNet().trainable_variables
        gradients = [tf.constant(keras.random.normal(weight.shape, stddev=0.01)) for weight in weights]
        optimizer.build(weights)
        return tf.function(lambda: optimizer.apply(gradients, weights), autograph=False)

    return {name: update(optimizer(1e-3)) for name, optimizer in optimizers.items()}


def training_steps(optimizers, batch):
    """Functions that train the network for a step."""
    import numpy as np
    import tensorflow as tf

    from tf_capsules.losses import MarginLoss
    from tf_capsules.models.mazzia2021 import EfficientCapsNet

    examples = np.random.default_rng(0).random((batch, 28, 28, 1), "float32"), np.arange(batch) % 10
    stream = tf.data.Dataset.from_tensors(examples).repeat()

    def step(optimizer):
        model = EfficientCapsNet()
        model.compile(optimizer, MarginLoss(), jit_compile=False)
        model.make_train_function()
        batches = iter(stream)
        return lambda: model.train_function(batches)

    return {name: step(optimizer(1e-3)) for name, optimizer in optimizers.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--dtype", choices=("float32", "mixed_bfloat16"), default="float32")
    parser.add_argument("--output", default="results/adam_cost.csv")
    options = parser.parse_args()
    import keras

    from tf_capsules.optimizers import Adam
    from tf_capsules.runs.machine import environment
    from tf_capsules.runs.results import append_row

    keras.config.set_dtype_policy(options.dtype)
    optimizers = {"ours_ms": Adam, "keras_ms": keras.optimizers.Adam}
    measured = {"update": in_turn(updates(optimizers), options.steps)}
    for batch in (16, 64):
        measured[f"training step, batch {batch}"] = in_turn(training_steps(optimizers, batch), options.steps)
    for what, medians in measured.items():
        print(f"{options.dtype} {what:24} ours {medians['ours_ms']:7.2f} ms, Keras's {medians['keras_ms']:7.2f} ms")
        append_row(options.output, {"what": what, "dtype": options.dtype} | medians | environment())


if __name__ == "__main__":
    main()
