"""Compares self-attention routing with dynamic routing and its textbook form: seconds and peak memory.

    python benchmarks/self_attention.py [--batch 64] [--steps 20] [--output results/self_attention_cost.csv]

Children of 8 numbers route to ten parents of 16: the 16 children of the MNIST network of Mazzia et al. 2021, and the
1,152 of Sabour's. The benchmark compares five forms: the layer, which keeps no votes; the layer with stored votes;
`DynamicRouting` with three iterations at the same shapes; the paper's equations line by line in TensorFlow, with the
matrix of agreements between all children; and the textbook form, which makes the tensor of votes and, as the authors'
code does, sums the votes before it takes agreements. It measures a call, and a call with the gradients of the poses
and of the weights. Each row runs in its own process, one after another, three times in
turn. Seconds are the median of the three medians; memory is the largest resident size above the idle process. Close
other jobs first.
"""

from processes import compare, timed

PARENTS, DIM, CHILD_DIM = 10, 16, 8
CASES = {
    f"{children} children, {what}": (children, what)
    for children in (16, 1152)
    for what in ("call", "call and gradients")
}
FORMS = ("layer", "layer, stored votes", "dynamic routing", "matrix of agreements", "textbook")


def measure(form, case, batch, steps):
    """Median seconds of a step, and MiB above the idle process."""
    import numpy as np
    import tensorflow as tf

    children, what = case
    random = np.random.default_rng(0)
    poses = tf.constant(random.normal(size=(batch, children, CHILD_DIM)).astype("float32"))
    route, weights = (textbook if form in FORMS[-2:] else layer)(form, children, random)

    @tf.function
    def call():
        return route(poses)

    @tf.function
    def gradients():
        with tf.GradientTape() as tape:
            tape.watch(poses)
            loss = tf.reduce_sum(route(poses) ** 3)
        return tape.gradient(loss, [poses, *weights])

    if what == "call":
        return timed(lambda: tf.norm(call()).numpy(), steps)
    return timed(lambda: tf.norm(gradients()[0]).numpy(), steps)


def kernels(children, random):
    """Kernel and prior, the same for all forms."""
    kernel = random.normal(scale=0.1, size=(children, PARENTS, CHILD_DIM, DIM)).astype("float32")
    return kernel, random.normal(scale=0.1, size=(children, PARENTS)).astype("float32")


def layer(form, children, random):
    from tf_capsules.layers import DynamicRouting, SelfAttentionRouting

    kernel, prior = kernels(children, random)
    if form == "dynamic routing":
        made = DynamicRouting(PARENTS, DIM, iterations=3)
        made.build((None, children, CHILD_DIM))
    else:
        made = SelfAttentionRouting(PARENTS, DIM, votes_memory="store" if "stored" in form else "auto")
        made.build((None, children, CHILD_DIM))
        made.prior.assign(prior)
    made.kernel.assign(kernel)
    return made, [weight.value for weight in made.trainable_weights]


def textbook(form, children, random):
    """The equations on the tensor of votes, (batch, parents, children, dim)."""
    import tensorflow as tf

    kernel, prior = map(tf.Variable, kernels(children, random))

    def route(poses):
        votes = tf.einsum("bid,ijde->bjie", poses, kernel)
        if form == "textbook":
            agreements = tf.einsum("bjie,bjke->bji", votes, votes)  # TensorFlow sums over k first
        else:
            agreements = tf.reduce_sum(tf.matmul(votes, votes, transpose_b=True), axis=-1)
        couplings = tf.nn.softmax(agreements / DIM**0.5, axis=1) + tf.transpose(prior)
        sums = tf.reduce_sum(couplings[..., None] * votes, axis=2)
        norm = tf.norm(sums, axis=-1, keepdims=True)
        return (1 - tf.exp(-norm)) * sums / (norm + 1e-20)

    return route, [kernel, prior]


if __name__ == "__main__":
    compare(__file__, __doc__, measure, "case", CASES, FORMS, 64, "results/self_attention_cost.csv")
