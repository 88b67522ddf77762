"""smallNORB, 3 routing iterations, A = B = C = D = 32: the paper's main result.

Paper: Hinton et al. 2018, section 4 and table 1
Command: tf-capsules train hinton2018-smallnorb
Device: one GPU, or two CPU cores for a few epochs
Published: 1.8% test error (1.4% with several crops of each test image)
Measured: not yet

The margin of the spread loss is that of the authors' formula, which they have reach 0.976 after 400,000 steps; here it
does so at the end of the run, however long that is.
"""

from tf_capsules.losses import SpreadLoss
from tf_capsules.models.hinton2018 import MatrixCapsNet
from tf_capsules.recipes import Recipe

RECIPE = Recipe(
    model=MatrixCapsNet,
    model_options=dict(l2=1e-7),
    dataset="smallnorb",
    # The magnitudes are those of the best known open implementation: on standardized values, 2 and 0.5 to 1.5.
    preprocess=(
        ("downscale", 2),
        ("standardize_each",),
        ("crop", 32),
        ("brightness", 2 * 255),
        ("contrast", 0.5, 1.5),
    ),
    loss=SpreadLoss,
    margin_schedule="sigmoid",
    epochs=300,
    batch_size=64,
    learning_rate=0.003,
    decay_steps=20_000,
    figures=("training_curves", "parse_tree", "vote_distances"),
)
