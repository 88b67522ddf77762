"""Measures the cost of routing in the MNIST capsule network: seconds and peak memory of a training step.

    python benchmarks/dynamic_routing.py [--variants VARIANT ...] [--batch 64] [--steps 20]
        [--output results/dynamic_routing_cost.csv]

Each variant of the network (Sabour et al. 2017, MNIST, with decoder) runs in its own process, one after another, three
times in turn. A row has the median of the three times and the largest memory. Variants: routing without stored votes
(the layer's own choice), routing with stored votes (the usual implementation), and the mean of the votes in place of
routing. The share of routing is (step - step with mean) / step. "layer" is the class capsule layer alone, "convolution"
a `ConvDynamicRouting` of 14x14x8 capsules of 16 to 6x6x16 of 16, each forward and backward. Close other jobs first.
"""

import argparse
import statistics

from processes import alone, parsed, timed

VARIANTS = {
    "network, routing without stored votes": dict(votes_memory="auto"),
    "network, routing with stored votes": dict(votes_memory="store"),
    "network, mean in place of routing": dict(iterations=1, competition="children"),
    "layer, without stored votes": dict(votes_memory="auto"),
    "layer, without stored votes, XLA": dict(votes_memory="auto"),
    "layer, with stored votes": dict(votes_memory="store"),
    "layer, with stored votes, XLA": dict(votes_memory="store"),
    "layer, mean": dict(iterations=1, competition="children"),
    "convolution, without stored votes": dict(votes_memory="auto"),
    "convolution, with stored votes": dict(votes_memory="store"),
    "convolution, mean": dict(iterations=1),
}


def measure(variant, batch, steps):
    """Seconds a step and peak memory in MiB above the process with the libraries imported."""
    import keras

    keras.utils.set_random_seed(0)
    options = {"iterations": 3, **VARIANTS[variant]}
    if variant.startswith("network"):
        return measure_network(options, batch, steps)
    from tf_capsules.layers import ConvDynamicRouting, DynamicRouting

    if variant.startswith("convolution"):
        return measure_layer(ConvDynamicRouting(16, 16, 3, 2, **options), (batch, 14, 14, 8, 16), steps)
    return measure_layer(DynamicRouting(10, 16, **options), (batch, 1152, 8), steps, xla="XLA" in variant)


def measure_network(options, batch, steps):
    """A training step of the MNIST network with other options of its class capsules."""
    import time

    import keras
    import numpy as np
    import tensorflow as tf

    import tf_capsules
    from tf_capsules.runs.machine import peak_memory_mb

    before = peak_memory_mb()
    model = network(options)
    rng = np.random.default_rng(0)
    images = tf.constant(rng.random((batch, 28, 28, 1), np.float32))
    labels = tf.constant(rng.integers(0, 10, batch))
    model.compile(keras.optimizers.Adam(), tf_capsules.losses.MarginLoss(), jit_compile=False)
    stream = tf.data.Dataset.from_tensors((images, labels)).repeat()
    seconds = []

    class Clock(keras.callbacks.Callback):
        def on_train_batch_begin(self, batch, logs=None):
            self.started = time.perf_counter()

        def on_train_batch_end(self, batch, logs=None):
            seconds.append(time.perf_counter() - self.started)

    model.fit(stream, steps_per_epoch=steps + 3, callbacks=[Clock()], verbose=0)
    return {"seconds": statistics.median(seconds[3:]), "memory": peak_memory_mb() - before}


def measure_layer(layer, shape, steps, xla=False):
    """A layer alone, forward and backward."""
    import numpy as np
    import tensorflow as tf

    poses = tf.constant(np.random.default_rng(0).normal(scale=0.1, size=shape).astype(np.float32))
    layer.build(poses.shape)

    @tf.function(jit_compile=xla)
    def gradients():
        with tf.GradientTape() as tape:
            tape.watch(poses)
            loss = tf.reduce_sum(tf.square(layer(poses)))
        return tape.gradient(loss, [poses, layer.kernel.value])

    return timed(lambda: gradients()[0].numpy().ravel()[0], steps)


def network(options):
    """The MNIST network with other options of its class capsules."""
    import keras

    from tf_capsules.layers import DynamicRouting
    from tf_capsules.models.sabour2017 import CapsNet

    def change(layer):
        if isinstance(layer, DynamicRouting):
            return DynamicRouting.from_config({**layer.get_config(), **options})
        return layer.__class__.from_config(layer.get_config())

    model = CapsNet()
    encoder = keras.models.clone_model(model.encoder, clone_function=change)
    return type(model)(encoder, keras.layers.deserialize(keras.layers.serialize(model.decoder)))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, default=list(VARIANTS))
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--output", default="results/dynamic_routing_cost.csv")
    options = parsed(parser, measure)
    from tf_capsules.runs.machine import environment
    from tf_capsules.runs.results import append_row

    runs = {variant: [] for variant in options.variants}
    for _ in range(3):
        for variant in runs:
            runs[variant].append(alone(__file__, variant, options.batch, options.steps))
            print(variant, runs[variant][-1], flush=True)
    seconds = {variant: statistics.median(run["seconds"] for run in both) for variant, both in runs.items()}
    mean = seconds.get("network, mean in place of routing")
    for variant, both in runs.items():
        shared = mean is not None and variant.startswith("network")
        share = round((seconds[variant] - mean) / seconds[variant], 3) if shared else ""
        row = {
            "variant": variant,
            "batch": options.batch,
            "seconds": round(seconds[variant], 4),
            "routing_share": share,
            "peak_memory_mb": max(run["memory"] for run in both),
            **environment(),
        }
        append_row(options.output, row)
        print(f"{variant:40} {row['seconds']:.4f} s  {row['peak_memory_mb']} MiB  {share}")


if __name__ == "__main__":
    main()
