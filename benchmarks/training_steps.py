"""Measures a training step of the papers' networks, in milliseconds an image.

    python benchmarks/training_steps.py [--steps 8] [--dtype float32] [--output results/training_steps.csv]
    python benchmarks/training_steps.py --onednn --output results/training_steps_onednn.csv

The networks, batch sizes, losses and optimizers are those of the recipes; the images are random. Networks run in up to
two more forms: with Keras's layer in place of ours (batch normalization, or the strided convolution of primary
capsules, which differs in bfloat16 alone), and with one routing iteration. One iteration has uniform couplings, so it
is a mean in place of routing. With --onednn the one other form is ours with oneDNN, which TensorFlow uses on some CPUs
only if it is asked to. Each form runs in its own process, in turn, three times. A row has the smallest of the
three medians, since other work on a machine only ever adds time. Close other jobs first.
"""

import argparse
import os

import networks
from processes import alone, parsed

OURS, KERAS, MEAN = "ours", "Keras's batch normalization", "one iteration"
CONVOLUTION, ONEDNN = "Keras's convolution", "ours, TF_ENABLE_ONEDNN_OPTS=1"
ROWS = {
    "heinsen2019-smallnorb": (OURS, KERAS, MEAN),
    "tsai2020-cifar10@2": (OURS, MEAN),
    "hinton2018-smallnorb-small@2": (OURS, MEAN),
    "li2018-cifar10-short": (OURS, KERAS),
    "sabour2017-mnist": (OURS, CONVOLUTION, MEAN),
    "sabour2017-multimnist-short": (OURS, CONVOLUTION),
    "mazzia2021-mnist-short": (OURS, KERAS),
}


def measure(row, form, steps, dtype):
    """Seconds an image."""
    if form == ONEDNN:
        os.environ["TF_ENABLE_ONEDNN_OPTS"] = "1"
    import keras

    from tf_capsules.layers import BatchNormalization
    from tf_capsules.layers.folded_convolution import FoldedConv2D
    from tf_capsules.runs.table import Row

    if form == KERAS:
        BatchNormalization.call = keras.layers.BatchNormalization.call
    if form == CONVOLUTION:
        FoldedConv2D.convolution_op = keras.layers.Conv2D.convolution_op
    batch = Row(row).recipe.batch_size
    row = f"{row.partition('@')[0]}@1" if form == MEAN else row
    return networks.measure(row, "training step", batch, steps, dtype)["seconds"] / batch


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=list(ROWS))
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--dtype", choices=("float32", "mixed_bfloat16"), default="float32")
    parser.add_argument("--onednn", action="store_true", help="compare with oneDNN in place of the other forms")
    parser.add_argument("--output", default="results/training_steps.csv")
    options = parsed(parser, measure)
    from tf_capsules.runs.machine import environment
    from tf_capsules.runs.results import append_row

    for name in options.rows:
        same = CONVOLUTION if options.dtype == "float32" else None
        forms = (OURS, ONEDNN) if options.onednn else ROWS[name]
        seconds = {form: [] for form in forms if form != same}
        for _ in range(3):
            for form, found in seconds.items():
                found.append(alone(__file__, name, form, options.steps, options.dtype))
        for form, found in seconds.items():
            row = {"row": name, "form": form, "dtype": options.dtype, "ms_an_image": round(1000 * min(found), 2)}
            append_row(
                options.output, row | {"slower_than_ours": round(min(found) / min(seconds[OURS]), 2)} | environment()
            )
            print(f"{name:30} {form:30} {row['ms_an_image']:8.2f} ms", flush=True)


if __name__ == "__main__":
    main()
