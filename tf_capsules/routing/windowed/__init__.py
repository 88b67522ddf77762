"""Routing in the windows of a convolution: each parent position has its own children."""

from tf_capsules.routing.windowed.dynamic import windowed_dynamic_routing
from tf_capsules.routing.windowed.em import windowed_em_routing
from tf_capsules.routing.windowed.inverted_attention import windowed_inverted_attention
from tf_capsules.routing.windowed.votes import make_votes
from tf_capsules.routing.windowed.windows import Windows

__all__ = ["Windows", "make_votes", "windowed_dynamic_routing", "windowed_em_routing", "windowed_inverted_attention"]
