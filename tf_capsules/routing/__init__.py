"""Routing algorithms: pure functions over votes, on every Keras backend."""

from tf_capsules.routing.couplings import couple
from tf_capsules.routing.dynamic import dynamic_routing
from tf_capsules.routing.em import em_routing
from tf_capsules.routing.inverted_attention import inverted_attention
from tf_capsules.routing.net_benefit import heinsen_routing, mask_logits
from tf_capsules.routing.self_attention import self_attention_routing
from tf_capsules.routing.squash import length, squash, squash_exponential
from tf_capsules.routing.votes import DistinctVotes, SharedVotes, StoredVotes, Votes
from tf_capsules.routing.windowed import Windows

__all__ = [
    "DistinctVotes",
    "SharedVotes",
    "StoredVotes",
    "Votes",
    "Windows",
    "couple",
    "dynamic_routing",
    "em_routing",
    "heinsen_routing",
    "inverted_attention",
    "length",
    "mask_logits",
    "self_attention_routing",
    "squash",
    "squash_exponential",
]
