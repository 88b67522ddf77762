"""The share of each input that goes to each class: coupling coefficients, multiplied from inputs to classes."""

import functools

from keras import ops

from tf_capsules.analysis.inference import inputs_at
from tf_capsules.layers import SequenceCapsules
from tf_capsules.layers.connections import masked, on_grid
from tf_capsules.models.classifier import gives_logits


def routings(model):
    """The layers "parts" (if there is one) and "classes" of a network's encoder, if all answer as `HeinsenRouting`."""
    layers = {layer.name: layer for layer in getattr(getattr(model, "encoder", None), "layers", ())}
    found = [layers[name] for name in ("parts", "classes") if name in layers]
    alike = all(getattr(layer, "answers", ()) == ("poses", "logits", "variances") for layer in found)
    return tuple(found) if "classes" in layers and alike else ()


def class_shares(model, inputs, return_outputs=False):
    """The share of each input capsule that goes to each class, through all routings.

    Source: Heinsen 2019, section 2. A routing sends a share F_i R_ij of child i's data to parent j, where the R_ij of a
    child sum to 1. So child i gives class k the share F_i sum_j R1_ij R2_jk. Over the classes these sum to the child's
    activation F_i. The product of couplings is ours, not the paper's. A class's betas say what a share gains or costs.

    Args:
        model: one of the capsule networks of Heinsen 2019, or another `CapsuleClassifier` whose encoder ends in the
            layers "parts" and "classes", or in "classes" alone, all `HeinsenRouting`; else a ValueError.
        inputs: what the model is called with.
        return_outputs: also return the model's outputs; at no extra cost if these are logits.

    Returns:
        (batch, tokens, layers, classes) for texts, 0 for masked tokens; (batch, rows, columns, types, classes) for
        images; in at least float32. With `return_outputs` a pair: the outputs (a dict) and the shares.

    Example:
        >>> from tf_capsules.models.heinsen2019 import TextCapsNet
        >>> states = {"embeddings": np.zeros((2, 11, 7, 384)), "mask": np.ones((2, 11))}
        >>> class_shares(TextCapsNet(7, 384, 5), states).shape
        TensorShape([2, 11, 7, 5])
    """
    layers = routings(model)
    if not layers:
        expected = 'whose encoder ends in the HeinsenRouting layers "parts" and "classes", or in "classes" alone'
        raise ValueError(f"Shares need a CapsuleClassifier {expected}. Received: {model!r}")
    poses, logits, mask = (*inputs_at(layers[0], model)(inputs), None, None)[:3]
    shape, couplings = ops.shape(poses)[: 4 if on_grid(poses.shape) else 2], []
    activations = None if logits is None else ops.sigmoid(ops.cast(logits, layers[0].routing_dtype))
    for layer in layers:
        first = mask if layer is layers[0] else None
        poses, logits, variances, last = layer(poses, logits, mask=first, return_couplings=True)
        couplings.append(last)
    shares = functools.reduce(ops.matmul, couplings)
    activations = masked(activations, mask, ops.shape(shares)[:2], shares.dtype)
    if activations is not None:
        shares = activations[..., None] * shares
    capsules = next((layer for layer in model.encoder.layers if isinstance(layer, SequenceCapsules)), None)
    if capsules is not None:
        depth = capsules.depth.shape[0]
        shape = (shape[0], shape[1] // depth, depth)
    shares = ops.reshape(shares, (*shape, ops.shape(shares)[-1]))
    if not return_outputs:
        return shares
    own = {"activations": logits, "poses": poses, "variances": variances}
    return own if gives_logits(model) else model(inputs, training=False), shares
