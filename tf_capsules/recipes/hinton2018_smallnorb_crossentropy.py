"""smallNORB, with cross-entropy.

Paper: Hinton et al. 2018, section 4 and table 1
Command: tf-capsules train hinton2018-smallnorb-crossentropy
Device: one GPU, or two CPU cores for a few epochs
Published: 5.8% test error
Measured: not yet

The softmax is over the logits of the activations: over activations in (0, 1) the loss of five classes could not
fall below 0.905.
"""

from tf_capsules.losses import SoftmaxCrossentropy
from tf_capsules.recipes.hinton2018_smallnorb import RECIPE as SMALLNORB

RECIPE = SMALLNORB.but(model_options=dict(logits=True), loss=SoftmaxCrossentropy, margin_schedule=None)
