"""Draws what `tf_capsules.analysis` measures. Each function returns a `matplotlib.figure.Figure`.

>>> figure = draw_training_curves([{"epoch": 1, "loss": 0.8, "val_loss": 0.7}])
>>> figure.savefig("curves.png")  # doctest: +SKIP
"""

from tf_capsules.analysis.plots.attacks import draw_attacked_images, draw_robustness
from tf_capsules.analysis.plots.attribution import draw_sentence_attribution
from tf_capsules.analysis.plots.decoder import (
    draw_dimension_perturbation,
    draw_overlapping_reconstructions,
    draw_reconstructions,
)
from tf_capsules.analysis.plots.diagnostics import draw_routing_diagnostics
from tf_capsules.analysis.plots.iterations import draw_pose_changes, draw_routing_changes
from tf_capsules.analysis.plots.parse_tree import draw_parse_tree
from tf_capsules.analysis.plots.published import draw_accuracy_by_parameters
from tf_capsules.analysis.plots.routing_maps import draw_routing_maps
from tf_capsules.analysis.plots.training import (
    draw_accuracy_by_iterations,
    draw_convergence,
    draw_loss_comparison,
    draw_training_curves,
)
from tf_capsules.analysis.plots.viewpoints import draw_pose_curves, draw_pose_trajectories, draw_stereo_sheet
from tf_capsules.analysis.plots.votes import draw_vote_distances, draw_vote_similarities

__all__ = [
    "draw_accuracy_by_iterations",
    "draw_accuracy_by_parameters",
    "draw_attacked_images",
    "draw_convergence",
    "draw_dimension_perturbation",
    "draw_loss_comparison",
    "draw_overlapping_reconstructions",
    "draw_parse_tree",
    "draw_pose_changes",
    "draw_pose_curves",
    "draw_pose_trajectories",
    "draw_reconstructions",
    "draw_robustness",
    "draw_routing_changes",
    "draw_routing_diagnostics",
    "draw_routing_maps",
    "draw_sentence_attribution",
    "draw_stereo_sheet",
    "draw_training_curves",
    "draw_vote_distances",
    "draw_vote_similarities",
]
