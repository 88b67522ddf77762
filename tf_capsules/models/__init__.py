"""The papers' networks as Keras models, one file a paper."""

from tf_capsules.models import heinsen2019, hinton2018, sabour2017
from tf_capsules.models.classifier import CapsuleClassifier, class_probabilities, class_scores

__all__ = ["CapsuleClassifier", "class_probabilities", "class_scores", "heinsen2019", "hinton2018", "sabour2017"]
