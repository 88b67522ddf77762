"""Measures convolutional EM routing at the paper's shapes: seconds and peak memory, forward and backward.

    python benchmarks/em_routing.py [--batch 8] [--steps 5] [--output results/em_routing_cost.csv]

It compares three forms: the layer, which keeps no votes for the backward pass; the layer with stored votes; and a
textbook form of procedure 1 of Hinton et al. 2018 in PyTorch (needs `torch`), with competition over all positions. The
first two also run with XLA. All have three iterations, 4x4 poses and the cost normalised by the data. Each row runs in
its own process, one after another, three times in turn. Seconds are the median of the three medians; memory is the
largest resident size above the idle process. Close other jobs first.
"""

from processes import compare, timed

# rows and columns of the grid, child types, parent types, strides; windows of 3x3
SHAPES = {
    "14x14x32 to 6x6x32": (14, 32, 32, 2),
    "6x6x32 to 4x4x32": (6, 32, 32, 1),
    "14x14x8 to 6x6x16": (14, 8, 16, 2),
    "6x6x16 to 4x4x16": (6, 16, 16, 1),
}
FORMS = ("layer", "layer, XLA", "stored votes", "stored votes, XLA", "textbook, PyTorch")


def measure(form, shape, batch, steps):
    """Median seconds of a step, and MiB above the idle process."""
    import numpy as np

    size, types, parents, strides = shape
    random = np.random.default_rng(0)
    poses = random.normal(size=(batch, size, size, types, 4, 4)).astype("float32")
    activations = random.uniform(size=(batch, size, size, types)).astype("float32")
    kernel = random.normal(size=(3, 3, types, parents, 4, 4)).astype("float32")
    make = torch_step if form == "textbook, PyTorch" else keras_step
    step = make(form, poses, activations, kernel, strides)
    # All forms must give the same norm, which shows that they compute the same.
    return timed(step, steps)


def keras_step(form, poses, activations, kernel, strides):
    import tensorflow as tf

    from tf_capsules.layers import ConvEMRouting

    memory = "store" if form.startswith("stored") else "auto"
    options = dict(normalization="data", votes_memory=memory, beta_u_initializer="zeros", beta_a_initializer="zeros")
    layer = ConvEMRouting(kernel.shape[3], 4, 3, strides, **options)
    layer.build(poses.shape)
    layer.kernel.assign(kernel)
    poses, activations = tf.constant(poses), tf.constant(activations)

    @tf.function(jit_compile=form.endswith("XLA"))
    def gradients():
        with tf.GradientTape() as tape:
            tape.watch([poses, activations])
            means, _, logits = layer(poses, activations)
            loss = tf.reduce_sum(means * means) + tf.reduce_sum(logits)
        return tape.gradient(loss, [poses, activations, *(weight.value for weight in layer.trainable_weights)])

    return lambda: tf.norm(gradients()[2]).numpy()


def torch_step(form, poses, activations, kernel, strides):
    """Procedure 1 line by line on stored votes."""
    import math

    import torch
    from torch.nn.functional import logsigmoid, unfold

    batch, size, _, types = activations.shape
    parents = kernel.shape[3]
    positions = ((size - 3) // strides + 1) ** 2
    variables = [torch.tensor(x, requires_grad=True) for x in (poses, activations, kernel)]
    betas = [torch.zeros(parents, requires_grad=True) for _ in range(2)]

    def gather(x):
        """(batch, size, size, types, ...) as (batch, positions, 9 * types, ...)."""
        rest = x.shape[4:]
        x = unfold(x.flatten(3).permute(0, 3, 1, 2), kernel_size=3, stride=strides)
        x = x.reshape(len(x), types, math.prod(rest), 9, positions).permute(0, 4, 3, 1, 2)
        return x.reshape(len(x), positions, 9 * types, *rest)

    children = torch.arange(size * size * types, dtype=torch.float64).reshape(1, size, size, types)
    children = gather(children).long().flatten(1).expand(batch, -1)

    def over_child(x, reduce):
        """Reduces all entries of `x` (batch, positions, 9 * types) of the same child; every entry gets the result."""
        zeros = torch.zeros(batch, size * size * types)
        reduced = zeros.scatter_reduce(1, children, x.flatten(1), reduce, include_self=False)
        return reduced.gather(1, children).reshape(x.shape)

    cover = over_child(torch.ones(batch, positions, 9 * types), "sum")

    def route():
        poses, activations, kernel = variables
        beta_u, beta_a = betas
        votes = torch.einsum("bpird,ijde->bpijre", gather(poses), kernel.reshape(9 * types, parents, 4, 4)).flatten(4)
        activation = gather(activations)[..., None]
        routing = (1 / cover / parents)[..., None].expand(*votes.shape[:4])
        means = variances = scores = None
        for iteration in range(3):
            if iteration:
                squares = (votes - means[:, :, None]) ** 2 / (2 * variances[:, :, None])
                density = -squares.sum(-1) - 0.5 * (2 * math.pi * variances).log().sum(-1)[:, :, None]
                logits = logsigmoid(scores)[:, :, None] + density
                highest = over_child(logits.detach().amax(-1), "amax")
                joint = (logits - highest[..., None]).exp()
                routing = joint / over_child(joint.sum(-1), "sum")[..., None]
            shares = (routing * activation)[..., None]
            mass = shares.sum(2)
            means = (shares * votes).sum(2) / (mass + 1e-9)
            variances = (shares * (votes - means[:, :, None]) ** 2).sum(2) / (mass + 1e-9) + 1e-9
            costs = 100 * parents / (9 * types) * (beta_u[:, None] + 0.5 * variances.log()) * mass
            scores = 0.01 * (1 - 0.95 ** (iteration + 1)) * (beta_a - costs.sum(-1))
        return means, scores

    def step():
        means, scores = route()
        ((means**2).sum() + scores.sum()).backward()
        norm = variables[2].grad.norm().item()
        for tensor in (*variables, *betas):
            tensor.grad = None
        return norm

    return step


if __name__ == "__main__":
    compare(__file__, __doc__, measure, "shape", SHAPES, FORMS, 8, "results/em_routing_cost.csv")
