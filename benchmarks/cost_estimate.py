"""Estimates the memory and multiply-adds of a training step, and measures the memory.

    python benchmarks/cost_estimate.py [RECIPE[@ITERATIONS]:BATCH ...] [--output results/cost_estimate.csv]
    python benchmarks/cost_estimate.py runtime

Random images in the recipe's shape, in float32, without XLA. Each measurement runs in its own process (see
`networks.py`), three times; the row has the largest of the three. Memory is the largest resident size above the process
with its network built: weights and the optimizer's slots exist by then, so they do not count. The estimate is the peak
of `tf_capsules.analysis.estimate_cost` without weights and slots. `runtime` measures the first steps of chains of 1 to
200 tiny layers: their tensors are small, so memory grows with the operations of the graph. Close other jobs first.
"""

import argparse

from networks import build, measure
from processes import alone, parsed, timed

ROWS = (
    "sabour2017-mnist:128",
    "heinsen2019-smallnorb:20",
    "tsai2020-cifar10@2:128",
    "hinton2018-smallnorb-small:16",
    "tsai2020-cifar10-cnn:128",
    "tsai2020-cifar10-dynamic@3:128",
)


def estimate(name, batch):
    from tf_capsules.analysis import estimate_cost
    from tf_capsules.runs.compiling import compile_model

    model, recipe, spec = build(name, batch)
    compile_model(model, recipe, spec, jit="off")
    cost = estimate_cost(model, batch)
    there = cost.memory["weights"] + cost.memory["optimizer"]
    return {"memory": (cost.peak - there) / 2**20, "there": there / 2**20, "multiply_adds": cost.multiply_adds}


def nothing(layers):
    """Measures and estimates a chain of `layers` dense layers of one unit."""
    import keras
    import numpy as np

    from tf_capsules.analysis import estimate_cost

    model = keras.Sequential([keras.Input((1,)), *(keras.layers.Dense(1) for _ in range(layers))])
    model.compile("adam", "mse", jit_compile=False)
    model.optimizer.build(model.trainable_variables)
    x = np.zeros((1, 1), "float32")
    found = timed(lambda: model.train_on_batch(x, x), steps=3)
    memory = estimate_cost(model, 1).memory["runtime"]
    return found | {"estimate": memory / 2**20}


def one(what, *arguments):
    return {"estimate": estimate, "measure": measure, "nothing": nothing}[what](*arguments)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("rows", nargs="*", metavar="ROW", default=ROWS, help="RECIPE[@ITERATIONS]:BATCH, or runtime")
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--output", default="results/cost_estimate.csv")
    options = parsed(parser, one)
    from tf_capsules.runs.machine import environment
    from tf_capsules.runs.results import append_row

    for row in options.rows:
        if row == "runtime":
            for layers in (1, 10, 30, 100, 200):
                found = alone(__file__, "nothing", layers)
                print(f"{layers:4} layers: {found['memory']:4} MiB, estimated {found['estimate']:4.0f}", flush=True)
            continue
        name, _, batch = row.partition(":")
        estimated = alone(__file__, "estimate", name, int(batch))
        runs = [alone(__file__, "measure", name, "training step", int(batch), options.steps) for _ in range(3)]
        measured = max(run["memory"] for run in runs)
        append_row(
            options.output,
            {
                "row": name,
                "batch": int(batch),
                "weights_and_slots_mb": round(estimated["there"], 1),
                "estimated_mb": round(estimated["memory"]),
                "measured_mb": measured,
                "least_measured_mb": min(run["memory"] for run in runs),
                "ratio": round(estimated["memory"] / measured, 2),
                "multiply_adds": estimated["multiply_adds"],
                **environment(),
            },
        )
        print(f"{row:36} {estimated['memory']:6.0f} MiB estimated, {measured:6} measured", flush=True)


if __name__ == "__main__":
    main()
