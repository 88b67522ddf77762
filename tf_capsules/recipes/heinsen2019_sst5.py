"""SST-5/R, sentences of film reviews in five sentiments, on a frozen GPT-2 large.

Paper: Heinsen 2019, section 4.2 and table 2
Command: tf-capsules train heinsen2019-sst5
Device: one GPU; the hidden states of all phrases, some 300 GB, are computed whenever they are needed
Published: 58.5% test accuracy
Measured: not yet; see heinsen2019-sst5-minilm
"""

from tf_capsules.losses import SoftmaxCrossentropy
from tf_capsules.models.heinsen2019 import TextCapsNet
from tf_capsules.optimizers import RAdam
from tf_capsules.recipes import Recipe

RECIPE = Recipe(
    model=TextCapsNet,
    dataset="sst_fine",
    transformer="gpt2-large",
    loss=SoftmaxCrossentropy,
    epochs=3,
    batch_size=20,
    optimizer=RAdam,
    learning_rate=0.0005,
    decay_steps=None,
    warmup=0.1,
    # In the author's code; the paper does not mention it.
    momentum_cycle=True,
    mixup=0.2,
    figures=("training_curves", "sentence_attribution"),
)
