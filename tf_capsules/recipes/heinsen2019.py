"""Heinsen 2019: An algorithm for routing capsules in all domains."""

from keras.losses import SparseCategoricalCrossentropy

from tf_capsules.losses import SoftmaxCrossentropy
from tf_capsules.models.heinsen2019 import ImageCapsNet, MeanPooling, SelfAttentionCapsNet, TextCapsNet
from tf_capsules.optimizers import RAdam
from tf_capsules.recipes.recipe import Recipe

_BEST = "The published figure is of the best snapshot of ten trainings, by validation"

# fmt: off
SMALLNORB = Recipe("heinsen2019-smallnorb", "smallNORB, whole stereo pairs of 96x96",
    model=ImageCapsNet, dataset="smallnorb", preprocess=(("pad_crop", 16, "edge"),), mixup=0.2,
    loss=SoftmaxCrossentropy, batch_size=20, optimizer=RAdam, learning_rate=0.0005, warmup=0.1,
    momentum_cycle=True,  # in the author's code; the paper does not mention it
    figures=("training_curves", "parse_tree", "stereo_pairs",
        "poses_by_azimuth", "poses_by_elevation", "pose_trajectories"),
    published="99.1%", source="section 3 and table 1", note=f"{_BEST} on the test split.")
SST5 = SMALLNORB.row(
    "heinsen2019-sst5", "SST-5/R, sentences of film reviews in five sentiments, on a frozen GPT-2 large", "58.5%",
    "section 4 and table 2", f"{_BEST}.", model=TextCapsNet, dataset="sst_fine", transformer="gpt2-large",
    preprocess=(), epochs=3, figures=("training_curves", "sentence_attribution"),
    device="one GPU; the hidden states of all phrases, some 130 GB, are computed whenever they are needed")
SST5_MINILM = SST5.row("heinsen2019-sst5-minilm", "SST-5/R as in the paper, on a frozen MiniLM instead of GPT-2 large",
    None, "no row of the paper: its network on a smaller transformer",
    "MiniLM has 22 million parameters, GPT-2 large 774 million.", transformer="sentence-transformers/all-MiniLM-L6-v2",
    device="two CPU cores, half an hour; keeps hidden states of 9.2 GB")
SST2_MINILM = SST5_MINILM.row(
    "heinsen2019-sst2-minilm", "SST-2/R as in the paper, on a frozen MiniLM instead of GPT-2 large",
    note=SST5_MINILM.note, dataset="sst_binary",
    device="two CPU cores, a quarter of an hour; keeps hidden states of 5.5 GB")


def _mean(name, row):
    return row.row(name, f"the baseline of {row.name}: hidden states averaged over tokens, one dense layer",
        source="no row of the paper: the control that routing has to beat on the same phrases", model=MeanPooling,
        loss=SparseCategoricalCrossentropy, mixup=None)


RECIPES = (
    SMALLNORB,
    SMALLNORB.short("heinsen2019-smallnorb-short", 15),
    SMALLNORB.row("heinsen2019-toys", "toys drawn by code with smallNORB's factors, for where smallNORB is not at hand",
        source="the paper's network at a quarter of the channels; the data set is not the paper's",
        device="two CPU cores", dataset="rendered_toys",
        dataset_options=dict(lightings=0, test_pairs=None),  # of one lighting the test toys in all views, for figures
        preprocess=(("pad_crop", 4, "edge"),), filters=32, types=16, parts=32, epochs=10),
    SST5, SST5_MINILM,
    _mean("heinsen2019-sst5-minilm-mean", SST5_MINILM),
    SST5.row("heinsen2019-sst2", "SST-2/R, sentences of film reviews in two sentiments, on a frozen GPT-2 large",
        "95.6%", "section 4 and table 3", SST5.note, dataset="sst_binary", device=SST5.device.replace("130", "80")),
    SST2_MINILM,
    _mean("heinsen2019-sst2-minilm-mean", SST2_MINILM),
    SST2_MINILM.row(
        "heinsen2019-sst2-self-attention",
        "SST-2, two blocks of self-attention and a routing layer instead of a whole transformer",
        source="no row of the paper; suggested in section 6",
        note="Reads the embeddings alone of the hidden states that are kept.", model=SelfAttentionCapsNet,
        figures=SST2_MINILM.figures),
)
