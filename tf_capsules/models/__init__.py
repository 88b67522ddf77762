"""The papers' networks as Keras models, one file a paper."""

from tf_capsules.models import backbones, heinsen2019, hinton2018, li2018, sabour2017, tsai2020
from tf_capsules.models.classifier import CapsuleClassifier, class_probabilities, class_scores

__all__ = [
    "CapsuleClassifier",
    "backbones",
    "class_probabilities",
    "class_scores",
    "heinsen2019",
    "hinton2018",
    "li2018",
    "sabour2017",
    "tsai2020",
]
