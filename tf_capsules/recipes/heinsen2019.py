"""Heinsen 2019: An algorithm for routing capsules in all domains."""

import keras

from tf_capsules.losses import SoftmaxCrossentropy
from tf_capsules.models.heinsen2019 import ImageCapsNet, MeanPooling, SelfAttentionCapsNet, TextCapsNet
from tf_capsules.optimizers import RAdam
from tf_capsules.recipes.recipe import Recipe

_BEST = "The published figure is of the best snapshot of ten trainings, by validation"
_POSES = ("poses_by_azimuth", "poses_by_elevation", "pose_trajectories")

SMALLNORB = Recipe(
    "heinsen2019-smallnorb",
    "smallNORB, whole stereo pairs of 96x96",
    model=ImageCapsNet,
    dataset="smallnorb",
    preprocess=(("pad_crop", 16, "edge"),),
    loss=SoftmaxCrossentropy,
    batch_size=20,
    optimizer=RAdam,
    learning_rate=0.0005,
    warmup=0.1,
    # In the author's code; the paper does not mention it.
    momentum_cycle=True,
    mixup=0.2,
    figures=("training_curves", "parse_tree", "stereo_pairs", *_POSES),
    source="section 3 and table 1",
    published="99.1%",
    note=f"{_BEST} on the test split.",
)
SST5 = SMALLNORB.row(
    "heinsen2019-sst5",
    "SST-5/R, sentences of film reviews in five sentiments, on a frozen GPT-2 large",
    "58.5%",
    "section 4 and table 2",
    model=TextCapsNet,
    dataset="sst_fine",
    transformer="gpt2-large",
    preprocess=(),
    epochs=3,
    figures=("training_curves", "sentence_attribution"),
    device="one GPU; the hidden states of all phrases, some 130 GB, are computed whenever they are needed",
    note=f"{_BEST}.",
)
SST5_MINILM = SST5.row(
    "heinsen2019-sst5-minilm",
    "SST-5/R as in the paper, on a frozen MiniLM instead of GPT-2 large",
    source="no row of the paper: its network on a smaller transformer",
    transformer="sentence-transformers/all-MiniLM-L6-v2",
    device="two CPU cores, half an hour; keeps hidden states of 9.2 GB",
    note="MiniLM has 22 million parameters, GPT-2 large 774 million.",
)
SST2_MINILM = SST5_MINILM.row(
    "heinsen2019-sst2-minilm",
    "SST-2/R as in the paper, on a frozen MiniLM instead of GPT-2 large",
    dataset="sst_binary",
    device="two CPU cores, a quarter of an hour; keeps hidden states of 5.5 GB",
    note=SST5_MINILM.note,
)


def _mean(name, row):
    return row.row(
        name,
        f"the baseline of {row.name}: hidden states averaged over tokens, one dense layer",
        source="no row of the paper: the control that routing has to beat on the same phrases",
        model=MeanPooling,
        loss=keras.losses.SparseCategoricalCrossentropy,
        mixup=None,
    )


RECIPES = (
    SMALLNORB,
    SMALLNORB.short("heinsen2019-smallnorb-short", 15),
    SMALLNORB.row(
        "heinsen2019-toys",
        "toys drawn by code with smallNORB's factors, for where smallNORB is not at hand",
        source="the paper's network at a quarter of the channels; the data set is not the paper's",
        device="two CPU cores",
        dataset="rendered_toys",
        # Of one lighting the test toys in all views, which the figures show.
        dataset_options=dict(lightings=0, test_pairs=None),
        preprocess=(("pad_crop", 4, "edge"),),
        model_options=dict(filters=32, types=16, parts=32),
        epochs=10,
    ),
    SST5,
    SST5_MINILM,
    _mean("heinsen2019-sst5-minilm-mean", SST5_MINILM),
    SST5.row(
        "heinsen2019-sst2",
        "SST-2/R, sentences of film reviews in two sentiments, on a frozen GPT-2 large",
        "95.6%",
        "section 4 and table 3",
        dataset="sst_binary",
        device=SST5.device.replace("130", "80"),
        note=SST5.note,
    ),
    SST2_MINILM,
    _mean("heinsen2019-sst2-minilm-mean", SST2_MINILM),
    SST2_MINILM.row(
        "heinsen2019-sst2-self-attention",
        "SST-2, two blocks of self-attention and a routing layer instead of a whole transformer",
        source="no row of the paper; suggested in section 6",
        model=SelfAttentionCapsNet,
        figures=SST2_MINILM.figures,
        note="Reads the embeddings alone of the hidden states that are kept.",
    ),
)
