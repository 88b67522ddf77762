"""SST-2, two blocks of self-attention and a routing layer in place of a whole transformer.

Paper: none; suggested by Heinsen 2019, section 6
Command: tf-capsules train heinsen2019-sst2-self-attention
Device: two CPU cores; hidden states of 5.5 GB are kept, of which the network reads the embeddings
Published: -
Measured: 76.66%, one run, seed 0, 10 minutes (results/sst.csv)
"""

from tf_capsules.models.heinsen2019 import SelfAttentionCapsNet
from tf_capsules.recipes.heinsen2019_sst2_minilm import RECIPE as SST2

RECIPE = SST2.but(model=SelfAttentionCapsNet)
