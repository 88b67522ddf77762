"""Synthetic toys with smallNORB's factors, for where smallNORB is not at hand.

Paper: the network and the training of Heinsen 2019 at a quarter of the channels; the data set is not the paper's.
Command: tf-capsules train heinsen2019-toys
Device: two CPU cores
Published: none
Measured: not yet
"""

from tf_capsules.recipes.heinsen2019_smallnorb import RECIPE as SMALLNORB

RECIPE = SMALLNORB.but(
    dataset="rendered_toys",
    # Of one lighting the test toys in all views, which the figures show.
    dataset_options=dict(lightings=0, test_pairs=None),
    preprocess=(("pad_crop", 4, "edge"),),
    model_options=dict(filters=32, types=16, parts=32),
    epochs=10,
)
