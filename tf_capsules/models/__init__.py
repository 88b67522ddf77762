"""The papers' networks as Keras models, one file a paper.

The functions that make them have these arguments, results and errors in common. Each describes only the others.

Args:
    image_shape: (height, width, channels).
    classes: number of classes.
    weights: None; the path of a weights file; or the name of a shipped set (`tf_capsules.models.weights.names()`).
    name: of the model.

Returns:
    A model that is not compiled: a `CapsuleClassifier`, whose activations are the lengths of the class capsules unless
    the function says otherwise; or, of a network without capsules, a Keras model from images to class probabilities
    (batch, classes), unless the function says otherwise.

Raises:
    ValueError: arguments out of range, an image that is too small, unknown weights.

What a model answers is computed in float32 under every dtype policy.
"""

from tf_capsules.models import backbones, heinsen2019, hinton2018, li2018, mazzia2021, sabour2017, tsai2020
from tf_capsules.models.classifier import CapsuleClassifier, class_outputs, class_probabilities
from tf_capsules.models.feedback import FeedbackClassifier, FeedbackModel, with_feedback
from tf_capsules.models.feedback_unit import FeedbackAgreement

__all__ = [
    "CapsuleClassifier",
    "FeedbackAgreement",
    "FeedbackClassifier",
    "FeedbackModel",
    "backbones",
    "class_probabilities",
    "class_outputs",
    "heinsen2019",
    "hinton2018",
    "li2018",
    "mazzia2021",
    "sabour2017",
    "tsai2020",
    "with_feedback",
]
