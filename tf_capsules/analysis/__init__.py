"""What trained networks do, as arrays and numbers; `tf_capsules.analysis.plots` draws them."""

from tf_capsules.analysis.attribution import class_shares
from tf_capsules.analysis.costs import estimate_cost
from tf_capsules.analysis.couplings import measure_couplings
from tf_capsules.analysis.decoder import (
    measure_overlapping_reconstructions,
    measure_reconstructions,
    perturb_dimensions,
    reconstruct_parts,
)
from tf_capsules.analysis.diagnostics import RoutingDiagnostics
from tf_capsules.analysis.equivariance import measure_equivariance
from tf_capsules.analysis.inference import predict, predict_probabilities
from tf_capsules.analysis.iterations import measure_pose_changes, measure_routing_changes
from tf_capsules.analysis.parse_tree import measure_parse_tree
from tf_capsules.analysis.routing_maps import measure_routing_maps
from tf_capsules.analysis.votes import measure_example_votes, measure_vote_distances, measure_vote_similarities

__all__ = [
    "RoutingDiagnostics",
    "class_shares",
    "estimate_cost",
    "measure_couplings",
    "measure_equivariance",
    "measure_example_votes",
    "measure_overlapping_reconstructions",
    "measure_parse_tree",
    "measure_pose_changes",
    "measure_reconstructions",
    "measure_routing_changes",
    "measure_routing_maps",
    "measure_vote_distances",
    "measure_vote_similarities",
    "perturb_dimensions",
    "predict",
    "predict_probabilities",
    "reconstruct_parts",
]
