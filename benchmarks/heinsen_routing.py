"""Measures Heinsen's routing, by net benefit and cost: seconds and peak memory, forward and backward.

    python benchmarks/heinsen_routing.py [--steps 10] [--output results/heinsen_routing_cost.csv]
    python benchmarks/heinsen_routing.py --scaling [--output results/heinsen_routing_scaling.csv]
    python benchmarks/heinsen_routing.py --draw results/heinsen_routing_scaling.csv

The first command compares three forms at the shapes of the paper's networks and several batch sizes: the layer's own
choice of votes and stored votes in TensorFlow (both in a graph and with XLA), and a textbook form of algorithm 1 in
PyTorch (needs `torch` and `opt_einsum`). All have three iterations. The second command routes 10,000 to 1,000,000 input
capsules of 4x4 into 64, in chunks. The third draws the rows of the second as
results/figures/heinsen_routing_scaling.png. Each row runs in its own process, one after another. Seconds are the median
step; memory is the largest resident size above the idle process with libraries and data loaded. Close other jobs first.
"""

import argparse

from processes import alone, parsed, software, timed

# children, rows, columns of a child's pose, parents, columns of a parent's pose
SHAPES = {
    "smallNORB, 5184 to 64": (5184, 4, 4, 64, 4),
    "text of 20 tokens, 740 to 64": (740, 1, 64, 64, 2),
}
BATCHES = {"smallNORB, 5184 to 64": (1, 4, 20), "text of 20 tokens, 740 to 64": (20,)}
FORMS = ("layer", "layer, XLA", "stored votes", "stored votes, XLA", "textbook, PyTorch")
CHILDREN = (10_000, 30_000, 100_000, 300_000, 1_000_000)
CHUNK = 8192


def measure(form, batch, shape, steps, chunk=None):
    """Median seconds of a step, and MiB above the idle process."""
    import numpy as np

    children, rows, columns, parents, out = shape
    random = np.random.default_rng(0)
    poses = random.normal(size=(batch, children, rows, columns)).astype("float32")
    scores = random.normal(size=(batch, children)).astype("float32")
    make = torch_step if form == "textbook, PyTorch" else keras_step
    return timed(make(form, poses, scores, parents, out, chunk), steps)


def keras_step(form, poses, scores, parents, out, chunk):
    import tensorflow as tf

    from tf_capsules.layers import HeinsenRouting

    memory = "store" if form.startswith("stored") else "auto"
    layer = HeinsenRouting(parents, out, sharing="all", votes_memory=memory, children_per_chunk=chunk)
    layer.build(poses.shape)
    poses, scores = tf.constant(poses), tf.constant(scores)

    @tf.function(jit_compile=form.endswith("XLA"))
    def gradients():
        with tf.GradientTape() as tape:
            tape.watch([poses, scores])
            means, logits, variances = layer(poses, scores)
            loss = tf.reduce_sum(means * means) + tf.reduce_sum(logits) + tf.reduce_sum(variances)
        return tape.gradient(loss, [poses, scores, *(weight.value for weight in layer.trainable_weights)])

    return lambda: gradients()[0].numpy().ravel()[0]


def torch_step(form, poses, scores, parents, out, chunk):
    """Algorithm 1 line by line on stored votes."""
    import torch

    poses, scores = torch.tensor(poses, requires_grad=True), torch.tensor(scores, requires_grad=True)
    rows, columns = poses.shape[2:]
    weights = [
        torch.randn(parents, columns, out) / columns,
        torch.zeros(parents, rows, out),
        torch.zeros(parents),
        torch.zeros(parents),
    ]
    kernel, bias, beta_use, beta_ignore = (weight.requires_grad_() for weight in weights)

    def route():
        votes = torch.einsum("bicd,jdh->bijch", poses, kernel) + bias
        activation = torch.sigmoid(scores)[..., None]
        means = logits = variances = None
        for iteration in range(3):
            if iteration == 0:
                routing = torch.full(votes.shape[:3], 1 / parents)
            else:
                squares = (votes - means[:, None]) ** 2 / (2 * variances[:, None])
                density = -squares.sum((-1, -2)) - 0.5 * variances.log().sum((-1, -2))[:, None]
                routing = torch.softmax(torch.nn.functional.logsigmoid(logits)[:, None] + density, dim=-1)
            used = activation * routing
            ignored = activation - used
            logits = (beta_use * used).sum(1) - (beta_ignore * ignored).sum(1)
            mass = used.sum(1)[..., None, None] + 1e-5
            means = torch.einsum("bij,bijch->bjch", used, votes) / mass
            variances = torch.einsum("bij,bijch->bjch", used, (votes - means[:, None]) ** 2) / mass + 1e-5
        return means, logits, variances

    def step():
        means, logits, variances = route()
        ((means**2).sum() + logits.sum() + variances.sum()).backward()
        first = poses.grad.ravel()[0].item()
        for tensor in (poses, scores, *weights):
            tensor.grad = None
        return first

    return step


def compare(steps, output):
    from tf_capsules.runs.results import append_row

    for name, shape in SHAPES.items():
        for batch in BATCHES[name]:
            measured = {form: alone(__file__, form, batch, shape, steps) for form in FORMS}
            slowest = measured["textbook, PyTorch"]["seconds"]
            for form, one in measured.items():
                row = {
                    "shape": name,
                    "batch": batch,
                    "form": form,
                    "seconds": round(one["seconds"], 4),
                    "times_faster_than_textbook": round(slowest / one["seconds"], 1),
                    "peak_memory_mb": one["memory"],
                    **software(form),
                }
                append_row(output, row)
                print(
                    f"{name:30} batch {batch:2}  {form:20} {row['seconds']:8.4f} s  {one['memory']:6} MiB", flush=True
                )


def scale(steps, output):
    from tf_capsules.runs.machine import environment
    from tf_capsules.runs.results import append_row

    for children in CHILDREN:
        one = alone(__file__, "layer", 1, (children, 4, 4, 64, 4), steps, CHUNK)
        row = {
            "children": children,
            "chunk": CHUNK,
            "seconds": round(one["seconds"], 4),
            "microseconds_a_child": round(1e6 * one["seconds"] / children, 3),
            "peak_memory_mb": one["memory"],
            **environment(),
        }
        append_row(output, row)
        print(f"{children:9,} children  {row['seconds']:8.4f} s  {one['memory']:6} MiB", flush=True)


def draw(path):
    """Seconds and memory over the number of children."""
    import csv
    import pathlib

    from matplotlib.figure import Figure

    with open(path, newline="") as file:
        rows = list(csv.DictReader(file))
    children, seconds, memory = (
        [float(row[name]) for row in rows] for name in ("children", "seconds", "peak_memory_mb")
    )
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    for axes, values, unit in ((left, seconds, "seconds, forward and backward"), (right, memory, "peak memory, MiB")):
        axes.plot(children, values, "o-", color="#0b2a6f")
        axes.set(xscale="log", yscale="log", xlabel="input capsules of 4x4, routed into 64", ylabel=unit)
        axes.grid(alpha=0.3, which="both")
        for x, y in zip(children, values, strict=True):
            label = f"{y:.2f} s" if axes is left else f"{y:.0f}"
            axes.annotate(label, (x, y), (-2, 7), textcoords="offset points", ha="right", fontsize=9)
        axes.margins(0.15, 0.2)
        proportional = [values[-1] * count / children[-1] for count in children]
        axes.plot(children, proportional, "--", color="#d98200", label="in proportion to the largest")
    left.legend(loc="lower right", frameon=False)
    target = pathlib.Path(path).parent / "figures" / "heinsen_routing_scaling.png"
    figure.savefig(target, dpi=110)
    print(f"picture: {target}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--scaling", action="store_true", help="many children, in chunks")
    parser.add_argument("--output", help="a CSV file to which rows are added")
    parser.add_argument("--draw", metavar="FILE.csv", help="draw the rows of --scaling")
    options = parsed(parser, measure)
    if options.draw:
        draw(options.draw)
    elif options.scaling:
        scale(options.steps, options.output or "results/heinsen_routing_scaling.csv")
    else:
        compare(options.steps, options.output or "results/heinsen_routing_cost.csv")


if __name__ == "__main__":
    main()
