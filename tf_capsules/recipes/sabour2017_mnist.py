"""MNIST, 3 routing iterations, with reconstruction: the paper's main result.

Paper: Sabour et al. 2017, table 1, last row; figures 3 and 4
Command: tf-capsules train sabour2017-mnist
Device: one GPU, or two CPU cores for a few epochs
Hours: 0.15 to 0.32 an epoch on two CPU cores with other jobs beside it (mixed_bfloat16; results/mnist.csv)
Published: 0.25% test error (mean of 3 runs, standard deviation 0.005), after more than 1,000 epochs
Measured: 0.58% test error after 5 epochs (one run, --decay-steps 60 --dtype mixed_bfloat16; results/mnist.csv)
"""

from tf_capsules.models.sabour2017 import CapsNet
from tf_capsules.recipes import Recipe

RECIPE = Recipe(
    model=CapsNet,
    dataset="mnist",
    preprocess=(("shift", 2),),
    figures=("training_curves", "reconstructions", "dimension_perturbation", "routing_changes"),
)
