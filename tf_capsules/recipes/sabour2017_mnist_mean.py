"""MNIST, routing replaced by a mean over the children, with reconstruction: a control.

Paper: Sabour et al. 2017, table 1 has no such row
Command: tf-capsules train sabour2017-mnist-mean
Device: one GPU, or two CPU cores for a few epochs
Hours: 0.03 an epoch of 10,000 images on two CPU cores (mixed_bfloat16)
Published: none
Measured: 89.65% test error in 2 epochs of 10,000 images (results/mnist_ablation.csv): not begun to learn
"""

# One iteration of competition between children: every parent is the plain mean of its votes.
from tf_capsules.recipes.sabour2017_mnist import RECIPE as MNIST

RECIPE = MNIST.but(model_options=dict(iterations=1, competition="children"))
