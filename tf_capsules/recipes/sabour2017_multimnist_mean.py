"""MultiMNIST, routing replaced by a mean over the children: a control.

Paper: Sabour et al. 2017, table 1 has no such row
Command: tf-capsules train sabour2017-multimnist-mean
Device: one GPU, or two CPU cores for a few epochs
Published: none
Measured: see results/multimnist.csv
"""

from tf_capsules.recipes.sabour2017_multimnist import RECIPE as MULTIMNIST

RECIPE = MULTIMNIST.but(model_options=dict(iterations=1, competition="children"))
