"""Routing algorithms: pure functions over votes, on every Keras backend."""

from tf_capsules.routing.dynamic import dynamic_routing
from tf_capsules.routing.squash import length, squash
from tf_capsules.routing.votes import DistinctVotes, SharedVotes, StoredVotes, Votes, couple

__all__ = ["DistinctVotes", "SharedVotes", "StoredVotes", "Votes", "couple", "dynamic_routing", "length", "squash"]
