"""The baseline of heinsen2019-sst2-minilm: hidden states averaged over tokens, one dense layer.

Paper: none; the control that routing has to beat on the same phrases
Command: tf-capsules train heinsen2019-sst2-minilm-mean
Device: two CPU cores
Published: -
Measured: 84.07%, one run, seed 0 (results/sst.csv)
"""

from tf_capsules.recipes.heinsen2019_sst5_minilm_mean import RECIPE as SST5

RECIPE = SST5.but(dataset="sst_binary")
