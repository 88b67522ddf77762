"""The papers' figures, and the measurements behind them. matplotlib is imported when a figure is made."""

from tf_capsules.analysis import figures, measures
from tf_capsules.analysis.attribution import class_shares, sentence_attribution
from tf_capsules.analysis.costs import estimate_cost
from tf_capsules.analysis.diagnostics import RoutingDiagnostics, measure_couplings
from tf_capsules.analysis.measures import (
    measure_equivariance,
    measure_pose_changes,
    measure_routing_changes,
    measure_routing_maps,
    measure_vote_distances,
    measure_vote_similarities,
    perturb_dimensions,
    reconstruct_parts,
)
from tf_capsules.analysis.parse_tree import draw_parse_tree, measure_parse_tree

__all__ = [
    "RoutingDiagnostics",
    "class_shares",
    "draw_parse_tree",
    "estimate_cost",
    "figures",
    "measure_couplings",
    "measure_equivariance",
    "measure_parse_tree",
    "measure_pose_changes",
    "measure_routing_changes",
    "measure_routing_maps",
    "measure_vote_distances",
    "measure_vote_similarities",
    "measures",
    "perturb_dimensions",
    "reconstruct_parts",
    "sentence_attribution",
]
