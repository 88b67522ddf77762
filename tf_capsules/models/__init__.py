"""The papers' networks as Keras models, one file a paper."""

from tf_capsules.models import backbones, heinsen2019, hinton2018, li2018, mazzia2021, sabour2017, tsai2020
from tf_capsules.models.classifier import CapsuleClassifier, class_probabilities, class_scores
from tf_capsules.models.feedback import FeedbackClassifier, FeedbackModel, with_feedback
from tf_capsules.models.feedback_unit import FeedbackAgreement

__all__ = [
    "CapsuleClassifier",
    "FeedbackAgreement",
    "FeedbackClassifier",
    "FeedbackModel",
    "backbones",
    "class_probabilities",
    "class_scores",
    "heinsen2019",
    "hinton2018",
    "li2018",
    "mazzia2021",
    "sabour2017",
    "tsai2020",
    "with_feedback",
]
