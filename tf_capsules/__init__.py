"""Capsule networks for Keras. Importing the package registers every layer, loss, metric and model with Keras."""

from tf_capsules import layers, losses, metrics, models, optimizers, routing
from tf_capsules.version import __version__

__all__ = ["__version__", "layers", "losses", "metrics", "models", "optimizers", "routing"]
