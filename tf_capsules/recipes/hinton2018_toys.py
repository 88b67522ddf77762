"""Synthetic toys with smallNORB's factors, for where smallNORB is not at hand.

Paper: the network and the training of Hinton et al. 2018, small; the data set is not the paper's.
Command: tf-capsules train hinton2018-toys
Device: two CPU cores
Published: none
Measured: not yet
"""

from tf_capsules.recipes.hinton2018_smallnorb import RECIPE as SMALLNORB

RECIPE = SMALLNORB.but(
    dataset="rendered_toys",
    # The toys have smallNORB's size when it is halved.
    preprocess=SMALLNORB.preprocess[1:],
    model_options=dict(filters=32, types=8, capsules=(8, 8)),
    epochs=10,
    batch_size=32,
)
