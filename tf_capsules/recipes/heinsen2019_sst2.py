"""SST-2/R, sentences of film reviews in two sentiments, on a frozen GPT-2 large.

Paper: Heinsen 2019, section 4.2 and table 3
Command: tf-capsules train heinsen2019-sst2
Device: one GPU
Published: 95.6% test accuracy
Measured: not yet; see heinsen2019-sst2-minilm
"""

from tf_capsules.recipes.heinsen2019_sst5 import RECIPE as SST5

RECIPE = SST5.but(dataset="sst_binary")
