"""Measures concurrent inverted attention routing at the CIFAR-10 shapes: seconds and memory, forward and backward.

    python benchmarks/inverted_attention.py [--batch 16] [--steps 5] [--output results/inverted_attention_cost.csv]

16x16x32 capsules of 4x4 go through a convolution of 3x3 with stride 2, one with stride 1, and a full connection to ten
classes, with 1, 2, 3 and 5 iterations. (With 2 iterations the class capsules depend on the first poses of the layers
below, so only the class layer routes again.) The benchmark compares three forms: the layers, which keep no votes for
the backward pass; the layers with stored votes; and a textbook form of the routing of Tsai et al. 2020 in PyTorch
(needs `torch`): patches, one einsum for the votes, a softmax. The first two also run with XLA. Each row runs in its own
process, one after another, three times in turn. Seconds are the median of the three medians; memory is the largest
resident size above the idle process. Close other jobs first.
"""

from processes import compare, timed

ITERATIONS = (1, 2, 3, 5)
FORMS = ("layers", "layers, XLA", "stored votes", "stored votes, XLA", "textbook, PyTorch")
TYPES, CLASSES = 32, 10


def measure(form, iterations, batch, steps):
    """Median seconds of a step, and MiB above the idle process."""
    import numpy as np

    random = np.random.default_rng(0)
    poses = random.normal(size=(batch, 16, 16, TYPES, 4, 4)).astype("float32")
    shapes = [(3, 3, TYPES, TYPES, 4, 4), (3, 3, TYPES, TYPES, 4, 4), (800, CLASSES, 4, 4)]
    spreads = [(TYPES / (4 * 9 * TYPES)) ** 0.5] * 2 + [(CLASSES / (4 * 800)) ** 0.5]
    kernels = [random.normal(0, spread, shape).astype("float32") for shape, spread in zip(shapes, spreads, strict=True)]
    make = torch_step if form == "textbook, PyTorch" else keras_step
    # All forms must give the same norm, which shows that they compute the same.
    return timed(make(form, iterations, poses, kernels), steps)


def keras_step(form, iterations, poses, kernels):
    import tensorflow as tf

    from tf_capsules.layers import ConcurrentRouting, ConvInvertedAttentionRouting, InvertedAttentionRouting

    memory = "store" if form.startswith("stored") else "auto"
    layers = [
        ConvInvertedAttentionRouting(TYPES, 4, kernel_size=3, strides=2, votes_memory=memory),
        ConvInvertedAttentionRouting(TYPES, 4, kernel_size=3, votes_memory=memory),
        InvertedAttentionRouting(CLASSES, 4, votes_memory=memory),
    ]
    chain = ConcurrentRouting(layers, iterations)
    chain.build(poses.shape)
    for layer, kernel in zip(layers, kernels, strict=True):
        layer.kernel.assign(kernel)
    poses = tf.constant(poses)

    @tf.function(jit_compile=form.endswith("XLA"))
    def gradients():
        with tf.GradientTape() as tape:
            tape.watch(poses)
            loss = tf.reduce_sum(chain(poses) ** 3)
        return tape.gradient(loss, [poses, *(weight.value for weight in chain.trainable_weights)])

    return lambda: tf.norm(gradients()[0]).numpy()


def torch_step(form, iterations, poses, kernels):
    """The paper's equations line by line on stored votes."""
    import torch
    from torch.nn.functional import layer_norm

    poses, *kernels = (torch.tensor(x, requires_grad=True) for x in (poses, *kernels))
    norms = [(torch.ones(16, requires_grad=True), torch.zeros(16, requires_grad=True)) for _ in kernels]

    def patches(x, strides):
        """(batch, height, width, types, 4, 4) as (batch, rows, columns, 3, 3, types, 4, 4)."""
        x = x.unfold(1, 3, strides).unfold(2, 3, strides)
        return x.permute(0, 1, 2, 6, 7, 3, 4, 5)

    def normalized(x, norm):
        return layer_norm(x.flatten(-2), (16,), *norm, eps=1e-5).unflatten(-1, (4, 4))

    def convolution(x, parents, kernel, norm, strides):
        votes = torch.einsum("bxyklird,klijde->bxyklijre", patches(x, strides), kernel)
        if parents is None:
            shares = torch.full(votes.shape[:-2], 1 / votes.shape[-3])
        else:
            shares = (torch.einsum("bxyklijre,bxyjre->bxyklij", votes, parents) / 4).softmax(-1)
        return normalized(torch.einsum("bxyklijre,bxyklij->bxyjre", votes, shares), norm)

    def classes(x, parents, kernel, norm):
        votes = torch.einsum("bird,ijde->bijre", x.flatten(1, 3), kernel)
        if parents is None:
            shares = torch.full(votes.shape[:-2], 1 / votes.shape[-3])
        else:
            shares = (torch.einsum("bijre,bjre->bij", votes, parents) / 4).softmax(-1)
        return normalized(torch.einsum("bijre,bij->bjre", votes, shares), norm)

    layers = [
        lambda x, parents: convolution(x, parents, kernels[0], norms[0], 2),
        lambda x, parents: convolution(x, parents, kernels[1], norms[1], 1),
        lambda x, parents: classes(x, parents, kernels[2], norms[2]),
    ]

    def step():
        found = []
        for layer in layers:
            found.append(layer(found[-1] if found else poses, None))
        for left in reversed(range(iterations - 1)):
            children = [poses, *found[:-1]]
            # As in ours, updates that can't reach the last layer any more are skipped.
            found = [
                layer(child, parents) if len(layers) - 1 - number <= left else parents
                for number, (layer, child, parents) in enumerate(zip(layers, children, found, strict=True))
            ]
        (found[-1] ** 3).sum().backward()
        norm = poses.grad.norm().item()
        for tensor in (poses, *kernels, *(x for pair in norms for x in pair)):
            tensor.grad = None
        return norm

    return step


if __name__ == "__main__":
    compare(
        __file__,
        __doc__,
        measure,
        "iterations",
        {t: t for t in ITERATIONS},
        FORMS,
        16,
        "results/inverted_attention_cost.csv",
    )
