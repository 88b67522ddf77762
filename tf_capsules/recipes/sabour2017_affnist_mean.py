"""affNIST protocol, routing replaced by a mean over the children: a control.

Paper: Sabour et al. 2017, section 5.2 has no such row
Command: tf-capsules train sabour2017-affnist-mean
Device: one GPU, or two CPU cores for a few epochs
Published: none
Measured: see results/affnist.csv
"""

from tf_capsules.recipes.sabour2017_affnist import RECIPE as AFFNIST

RECIPE = AFFNIST.but(model_options=dict(iterations=1, competition="children"))
