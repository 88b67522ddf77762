"""The papers' networks as Keras models, one file a paper."""

from tf_capsules.models import sabour2017
from tf_capsules.models.classifier import CapsuleClassifier, class_scores

__all__ = ["CapsuleClassifier", "class_scores", "sabour2017"]
