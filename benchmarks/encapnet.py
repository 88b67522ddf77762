"""What a training step of each network of Li et al. 2018, table 1, takes: seconds and peak memory.

    python benchmarks/encapnet.py [--steps 2] [--rows a b c d e f] [--output results/encapnet_cost.csv]

Random images of 32x32x3 in batches of 128; forward, backward and Adam, stem included, in float32. The two CapNets are
also measured with stored votes, in batches of 2 and 1, since larger ones need tens of gigabytes: compare seconds an
image. Each row is a process of its own, one after another; seconds are the median of the steps, memory the largest
resident size above the process with its libraries imported and its network built. Close other jobs first.
"""

import argparse
import json

from processes import alone, timed

# row of the table: (network, its options, form, batch)
ROWS = {
    "a": [("CapNet", {}, "votes free", 128), ("CapNet", {"votes": "stored"}, "votes stored", 2)],
    "b": [
        ("CapNet", {"routing": "em"}, "votes free", 128),
        ("CapNet", {"routing": "em", "votes": "stored"}, "votes stored", 1),
    ],
    "c": [("SameShapeCNN", {}, "", 128)],
    "d": [("SameSizeCNN", {}, "", 128)],
    "e": [("ShortEncapNet", {}, "", 128)],
    "f": [("ShortEncapNet", {"coefficients": "crossed"}, "", 128)],
}


def measure(network, options, batch, steps):
    import keras
    import numpy as np

    from tf_capsules.losses import MarginLoss
    from tf_capsules.models import li2018
    from tf_capsules.optimizers import CoupledAdam

    keras.utils.set_random_seed(0)
    random = np.random.default_rng(0)
    images = random.random((batch, 32, 32, 3)).astype("float32")
    labels = random.integers(0, 10, batch)
    model = getattr(li2018, network)(**options)
    model.compile(CoupledAdam(), MarginLoss(), jit_compile=False)
    return timed(lambda: np.ravel(model.train_on_batch(images, labels))[0], steps, warm_up=1)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=list(ROWS))
    parser.add_argument("--output", default="results/encapnet_cost.csv")
    parser.add_argument("--one", type=json.loads, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measure(*options.one)))
        return
    from tf_capsules.training import append_row, environment

    for name in options.rows:
        for network, arguments, form, batch in ROWS[name]:
            found = alone(__file__, network, arguments, batch, options.steps)
            row = {
                "row": name,
                "network": network,
                "form": form,
                "batch": batch,
                "seconds_a_batch": round(found["seconds"], 3),
                "seconds_an_image": round(found["seconds"] / batch, 4),
                "peak_memory_mb": found["memory"],
                **environment(),
            }
            append_row(options.output, row)
            print(f"({name}) {network:14} {form:14} batch {batch:3}  {row['seconds_a_batch']:8.3f} s  "
                  f"{row['seconds_an_image']:7.4f} s an image  {row['peak_memory_mb']:6} MiB", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
