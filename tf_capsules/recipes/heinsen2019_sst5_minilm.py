"""SST-5/R as in the paper, on a frozen MiniLM of 22 million parameters in place of GPT-2 large.

Paper: Heinsen 2019, section 4.2 and table 2, with another transformer
Command: tf-capsules train heinsen2019-sst5-minilm
Device: two CPU cores; half an hour; hidden states of 9.2 GB are kept
Published: 58.5% test accuracy with GPT-2 large
Measured: 48.73%, one run, seed 0 (results/sst.csv)
"""

from tf_capsules.recipes.heinsen2019_sst5 import RECIPE as SST5

RECIPE = SST5.but(transformer="sentence-transformers/all-MiniLM-L6-v2")
