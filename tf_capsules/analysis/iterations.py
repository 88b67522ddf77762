"""How much routing changes from one iteration to the next."""

import numpy as np
from keras import ops

from tf_capsules.analysis.inference import in_batches, inputs_at, to_numpy
from tf_capsules.analysis.routing_layers import find_layer, stopped_layers
from tf_capsules.arguments import is_whole, positive_int
from tf_capsules.layers import ConcurrentRouting
from tf_capsules.layers.connections import rows_of


def measure_routing_changes(model, images, iterations=5, layer="class_capsules", batch_size=100):
    """Mean absolute change of a routing logit in each routing iteration.

    Source: Sabour et al. 2017, appendix A. The change in iteration t is the agreement of the votes with the parents
    after t iterations. The last iteration counts too, though procedure 1 doesn't use its agreement. The change doesn't
    go to 0 as routing settles: settled routing adds the same agreement each time.

    Args:
        model: a `CapsuleClassifier` with a `DynamicRouting` layer.
        images: (batch, height, width, channels).
        iterations: number of iterations, which may be more than the model was trained with.
        layer: name of the routing layer in the model's encoder.
        batch_size: images routed at a time.

    Returns:
        (iterations,) means over images, children and parents.

    Raises:
        ValueError: iterations below 1, a layer of another kind, or images of another shape.
    """
    iterations = positive_int("iterations", iterations)
    routing = find_layer(model, layer)
    if not routing.logits_add_agreements:
        raise ValueError(f"The {type(routing).__name__} {layer!r} does not add agreements to its routing logits.")
    layers, inputs = stopped_layers(routing, iterations), inputs_at(routing, model)
    total = np.zeros(iterations)
    for batch in in_batches(model, images, batch_size):
        children = inputs(batch)
        votes = routing.make_votes(children[0])
        total += [len(batch) * to_numpy(ops.mean(ops.abs(votes.agreement(layer(*children))))) for layer in layers]
    return total / len(images)


def measure_pose_changes(model, images, iterations=50, schedule=None, layer="routing", batch_size=20):
    """How far the poses of each layer move in each iteration of concurrent routing.

    Source: an open question of Tsai et al. 2020, section 4.1. All layers are routed together, with the same weights in
    all iterations, as in a deep equilibrium model. Do the poses converge?

    Args:
        model: a `CapsuleClassifier`, or a functional model, with a `ConcurrentRouting` layer.
        images, batch_size: see `measure_routing_changes`, also for the errors.
        iterations: at least 2, and possibly more than the model was trained with.
        schedule: "concurrent" or "sequential"; None: the model's own.
        layer: name of the `ConcurrentRouting`.

    Returns:
        (layers, iterations - 1): the Euclidean norm of `p(t) - p(t - 1)` for t from 2 on, the mean over capsules.
    """
    if not is_whole(iterations, 2):
        raise ValueError(f"`iterations` must be a whole number of at least 2. Received: {iterations!r}")
    routing = find_layer(model, layer, chain=True)
    again = ConcurrentRouting(routing.chain, iterations, schedule or routing.schedule, dtype=routing.dtype_policy)
    total, inputs = 0.0, inputs_at(routing, model)
    for batch in in_batches(model, images, batch_size):
        moved = []
        for results in again(*inputs(batch), return_iterations=True):
            poses = [one[0] if isinstance(one, (tuple, list)) else one for one in results]  # activations may follow
            poses = np.stack([to_numpy(one) for one in poses])  # (iterations, batch, *capsules, *pose)
            entries = (-2, -1) if rows_of(poses.shape[1:]) else (-1,)
            distances = np.sqrt(np.square(np.diff(poses, axis=0)).sum(entries))
            moved.append(distances.reshape(iterations - 1, len(batch), -1).mean(-1).sum(-1))
        total += np.stack(moved)
    return total / len(images)
