"""Measures a training step of each network of Li et al. 2018, table 1: seconds and peak memory.

    python benchmarks/encapnet.py [--steps 2] [--rows a b c d e f] [--output results/encapnet_cost.csv]

Random images of 32x32x3 in batches of 128; forward, backward and Adam, stem included, in float32. The benchmark also
measures the two CapNets with stored votes, and in a textbook form of the paper's equations in PyTorch (needs `torch`).
Those run in batches of 2 and 1, since larger ones need tens of gigabytes: compare seconds an image. Each row runs in
its own process, one after another. Seconds are the median of the steps; memory is the largest resident size above the
process with its libraries imported and its network built. The textbook form and stored votes have the same weights, so
the loss of their first step is the same. Close other jobs first.
"""

import argparse

from processes import alone, parsed, software, timed

# row of the table: (network, its options, form, batch)
ROWS = {
    "a": [
        ("CapNet", {}, "votes free", 128),
        ("CapNet", {"votes_memory": "store"}, "votes stored", 2),
        ("CapNet", {}, "textbook, PyTorch", 2),
    ],
    "b": [
        ("CapNet", {"routing": "em"}, "votes free", 128),
        ("CapNet", {"routing": "em", "votes_memory": "store"}, "votes stored", 1),
        ("CapNet", {"routing": "em"}, "textbook, PyTorch", 1),
    ],
    "c": [("SameShapeCNN", {}, "", 128)],
    "d": [("SameSizeCNN", {}, "", 128)],
    "e": [("ShortEncapNet", {}, "", 128)],
    "f": [("ShortEncapNet", {"coefficients": "crossed"}, "", 128)],
}


def measure(network, options, form, batch, steps):
    """Median seconds of a step, MiB above the process with its network, and the loss of the first step."""
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
    if form == "textbook, PyTorch":
        train = torch_step(model, images, labels)
    else:
        model.compile(CoupledAdam(), MarginLoss(), jit_compile=False)

        def train():
            return np.ravel(model.train_on_batch(images, labels))[0]

    losses = []

    def step():
        losses.append(train())
        return losses[0]

    return timed(step, steps, warm_up=1)


def torch_step(capnet, images, labels):
    """A PyTorch training step with the weights of `capnet`; it routes line by line on stored votes."""
    import numpy as np
    import torch
    from torch.nn.functional import batch_norm, conv2d, one_hot

    def parameter(weight, order=None):
        weight = np.array(weight) if order is None else np.ascontiguousarray(np.transpose(weight, order))
        return torch.nn.Parameter(torch.from_numpy(weight))

    convolutions, routings = [], []  # in the order of the encoder's layers, each with its normalisation
    for layer in capnet.encoder.layers:
        kind = type(layer).__name__
        if kind == "Conv2D":
            convolutions.append((layer.strides[0], parameter(layer.kernel, (3, 2, 0, 1)), parameter(layer.bias)))
        elif kind == "BatchNormalization":
            convolutions[-1] += parameter(layer.gamma), parameter(layer.beta)
        elif kind in ("DynamicRouting", "EMRouting"):
            names = ("vote_bias",) if kind == "DynamicRouting" else ("bias", "beta_u", "beta_a")
            kernel, *others = (getattr(layer, name) for name in ("kernel", *names))
            groups, capsules, d, e = kernel.shape
            grouped = parameter(kernel, (0, 1, 3, 2))  # (groups, capsules, e, d), as a convolution of 1x1 has it
            routings.append((capsules, e, grouped, *map(parameter, others)))
    parameters = [weight for layer in convolutions + routings for weight in layer if not isinstance(weight, int)]
    optimizer = torch.optim.Adam(parameters, lr=1e-4, eps=1e-7, weight_decay=5e-4)
    images = torch.from_numpy(images).permute(0, 3, 1, 2).contiguous()
    targets = one_hot(torch.from_numpy(labels), 10)

    def convolve(x, layer):
        strides, kernel, bias, gamma, beta = layer
        x = conv2d(x, kernel, bias, stride=strides, padding=1)
        return batch_norm(x, None, None, gamma, beta, training=True, eps=1e-5).relu()

    def votes_of(x, capsules, e, kernel, bias):
        """Votes (batch, capsules, e, children) of `x` (batch, groups * d, rows, columns), by group, row and column."""
        groups, _, _, d = kernel.shape
        votes = conv2d(x, kernel.reshape(-1, d, 1, 1), bias.reshape(-1), groups=groups)
        return votes.reshape(len(x), groups, capsules, e, -1).permute(0, 2, 3, 1, 4).flatten(3)

    def dynamic(votes):
        logits = torch.zeros(len(votes), votes.shape[1], votes.shape[3])
        for iteration in range(3):
            couplings = logits.softmax(2)
            sums = (couplings[:, :, None] * votes).sum(3)
            square = (sums**2).sum(2, keepdim=True)
            parents = sums * square.sqrt() / (1 + square)
            if iteration < 2:
                logits = logits + (parents[..., None] * votes).sum(2)
        return parents

    def em(votes, activations, beta_u, beta_a):
        eps = 2.2e-16
        routing = torch.full((len(votes), votes.shape[1], votes.shape[3]), 1 / votes.shape[1])
        for iteration in range(3):
            routing = routing * activations[:, None]
            mass = routing.sum(2) + eps
            means = (routing[:, :, None] * votes).sum(3) / mass[..., None]
            squares = (votes - means[..., None]) ** 2
            deviations = ((routing[:, :, None] * squares).sum(3) / mass[..., None] + 1e-12).sqrt()
            cost = ((deviations + eps).log() + beta_u[:, None]).sum(2) * mass
            low, high = cost.amin(1, keepdim=True), cost.amax(1, keepdim=True)
            cost = 10 * (cost - low) / (high - low + eps) - 5
            scores = (1 + iteration) * (beta_a - cost)
            if iteration < 2:
                exponent = (squares / (2 * deviations[..., None] ** 2 + eps)).sum(2)
                density = torch.exp(-exponent) / ((2 * np.pi * deviations**2).prod(2).sqrt() + eps)[..., None]
                joint = scores.sigmoid()[..., None] * density
                routing = joint / (joint.sum(1, keepdim=True) + eps)
        return means, scores.sigmoid()

    def loss_of():
        x = images
        for layer in convolutions[:4]:
            x = convolve(x, layer)
        activations = [convolve(x, layer).flatten(1) for layer in convolutions[4:]]
        for capsules, e, kernel, bias, *betas in routings:
            votes = votes_of(x, capsules, e, kernel, bias)
            if betas:
                poses, above = em(votes, *activations, *betas)
                activations = [above]
            else:
                poses = dynamic(votes)
            if capsules > 10:  # back to feature maps: capsules are in the order of type, row, column
                x = poses.reshape(len(x), 32, 8, 8, e).permute(0, 1, 4, 2, 3).flatten(1, 2)
        lengths = ((poses**2).sum(2) + 1e-12).sqrt()
        present = targets * (0.9 - lengths).relu() ** 2
        absent = 0.5 * (1 - targets) * (lengths - 0.1).relu() ** 2
        return (present + absent).sum(1).mean()

    def step():
        optimizer.zero_grad()
        loss = loss_of()
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=list(ROWS))
    parser.add_argument("--output", default="results/encapnet_cost.csv")
    options = parsed(parser, measure)
    from tf_capsules.runs.results import append_row

    for name in options.rows:
        for network, arguments, form, batch in ROWS[name]:
            found = alone(__file__, network, arguments, form, batch, options.steps)
            row = {
                "row": name,
                "network": network,
                "form": form,
                "batch": batch,
                "seconds_a_batch": round(found["seconds"], 3),
                "seconds_an_image": round(found["seconds"] / batch, 4),
                "peak_memory_mb": found["memory"],
                "loss": round(found["value"], 4),
                **software(form),
            }
            append_row(options.output, row)
            took = f"{row['seconds_a_batch']:8.3f} s  {row['seconds_an_image']:7.4f} s an image"
            print(f"({name}) {network:14} {form:17} batch {batch:3}  {took}  {found['memory']:6} MiB  {row['loss']}",
                  flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
