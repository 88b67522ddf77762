"""The networks of Li et al. 2018 with their feedback agreement units."""

from collections.abc import Sequence
from typing import Any, TypedDict, Unpack

import keras

from tf_capsules.layers.arguments import one_of, truth_value
from tf_capsules.losses import PairedKLDivergence, SinkhornDivergence
from tf_capsules.models.feedback import with_feedback


class Transport(TypedDict, total=False):
    """Arguments of `SinkhornDivergence`."""

    cost: str
    epsilon: float
    iterations: int
    unbiased: bool
    plan_gradient: bool


def feedback(
    network: keras.Model,
    links: str | Sequence[str] = ("half",),
    vanilla: bool = False,
    critic: bool = True,
    divergence: str = "transport",
    weight: float = 10.0,
    **transport: Unpack[Transport],
):
    """An `EncapNet` or a `ResNetTwin` with the paper's feedback agreement units, for training: see `with_feedback`.

    Source: Li et al. 2018, section 3.2, figure 3 (a) and the ablations of section 5.1 (table 3).

    Args:
        network: the network. Its own weights are trained: save or export this network for inference.
        links: in each module of EncapNet, any of "half": from the module's input to the middle of its Type II layers;
            and "same": from the output of Type I to that of the last Type II layer. A `ResNetTwin` takes "half" only:
            from a stage's input to its end, with plain generators.
        vanilla: whether generators are plain: without capsule types (as if there were one) and without squash.
        critic: whether a critic's features are compared, rather than the maps themselves.
        divergence: "transport", or "kl".
        weight: of the units' divergences.
        transport: arguments of `SinkhornDivergence`.

    Raises:
        ValueError: arguments out of range, another network.

    Example:
        >>> from tf_capsules.models.li2018 import EncapNet
        >>> network = EncapNet((8, 8, 3), types=4, layers=(2, 2))
        >>> [lower for lower, _ in feedback(network, ("half", "same")).links]
        ['primary_capsules', 'module_1_type_1', 'module_1_type_2_2', 'module_2_type_1']
    """
    one_of("divergence", divergence, ("transport", "kl"))
    truth_value("vanilla", vanilla)
    if divergence == "kl" and transport:
        raise ValueError(f'`divergence="kl"` takes no arguments of `SinkhornDivergence`. Received: {transport!r}')
    links = links if isinstance(links, (list, tuple)) else (links,)
    if not links or set(links) - {"half", "same"} or len(set(links)) < len(links):
        raise ValueError(f'`links` must be of "half" and "same". Received: {links!r}')
    encoder = getattr(network, "encoder", network)
    names = [layer.name for layer in getattr(encoder, "layers", [])]
    pairs, groups = [], 1
    if "module_1_type_1" in names:
        groups = encoder.get_layer("primary_capsules").output.shape[3]
        pairs = _links_of_modules(names, links)
    elif "stage_1" in names and tuple(links) == ("half",):
        stages = ["stem", *(name for name in names if name.startswith("stage_"))]
        pairs, vanilla = list(zip(stages, stages[1:], strict=False)), True
    if not pairs:
        expected = 'an EncapNet, or with the links "half" a ResNetTwin'
        raise ValueError(f"`network` must be {expected}. Received: {network!r} with links {links!r}.")
    options: dict[str, Any] = dict(groups=1 if vanilla else groups, squash=not vanilla, critic=critic)
    options["divergence"] = PairedKLDivergence() if divergence == "kl" else SinkhornDivergence(**transport)
    return with_feedback(network, pairs, weight, **options)


def _links_of_modules(names, links):
    """(lower, higher) layers of EncapNet, module by module."""
    pairs, below, module = [], "primary_capsules", 1
    while f"module_{module}_type_1" in names:
        type_2 = [name for name in names if name.startswith(f"module_{module}_type_2_")]
        ends = {"half": (below, type_2[(len(type_2) - 1) // 2]), "same": (f"module_{module}_type_1", type_2[-1])}
        pairs += [ends[link] for link in links]
        below, module = type_2[-1], module + 1
    return pairs
