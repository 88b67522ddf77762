"""Any transformer of Hugging Face's library, on PyTorch: hidden states only, outside TensorFlow."""

import numpy as np

from tf_capsules.lazy import torch
from tf_capsules.text.transformer import FrozenTransformer


def refusal(checkpoint):
    """Why this engine can't compute a checkpoint, or None."""
    from transformers import CONFIG_MAPPING

    kind = checkpoint.config["model_type"]
    return None if kind in CONFIG_MAPPING else f"the installed transformers library does not know the type {kind!r}"


class Transformer(FrozenTransformer):
    """See `FrozenTransformer`. Of a model with encoder and decoder, only the encoder is used."""

    engine = "transformers"

    def __init__(self, checkpoint):
        from transformers import AutoModel, AutoTokenizer

        options = {"local_files_only": True, "trust_remote_code": False}
        model, report = AutoModel.from_pretrained(
            checkpoint.folder, dtype=torch.float32, use_safetensors=True, output_loading_info=True, **options
        )
        # The library would draw missing weights at random. A pooler is not used here.
        if missing := sorted(name for name in report["missing_keys"] if "pooler" not in name):
            raise ValueError(f"{checkpoint.folder} lacks {len(missing)} weights, among them {missing[0]!r}")
        self._model = (model.get_encoder() if model.config.is_encoder_decoder else model).eval()
        # Split: special tokens that a text spells out are plain text.
        self._tokenizer = AutoTokenizer.from_pretrained(checkpoint.folder, split_special_tokens=True, **options)
        closes = self._tokenizer("a")["input_ids"][-1:]
        self._end = [] if closes and closes[0] in self._tokenizer.all_special_ids else [self._tokenizer.eos_token_id]
        if None in self._end:
            raise ValueError(f"the tokenizer in {checkpoint.folder} neither closes texts nor has an end-of-text token")
        end = self._tokenizer.eos_token_id
        pad = end if self._tokenizer.pad_token_id is None else self._tokenizer.pad_token_id
        _, _, layers, width = self._encode(np.zeros((1, 1)), np.ones((1, 1))).shape
        super().__init__(checkpoint, layers, width, self._limit(checkpoint), pad, pad == end and self._end == [end])

    def _limit(self, checkpoint):
        """The most tokens that both the positions and the tokenizer's configuration allow."""
        positions = getattr(self._model.config, "max_position_embeddings", None)
        padding = getattr(getattr(self._model, "embeddings", None), "padding_idx", None)
        if positions is not None and padding is not None:
            positions -= padding + 1  # RoBERTa and similar models count positions from there
        limits = [limit for limit in (checkpoint.tokenizer_limit, positions) if limit is not None]
        if not limits:
            raise ValueError(f"neither config.json nor tokenizer_config.json in {checkpoint.folder} limits the tokens")
        return min(limits)

    def _tokenize(self, texts):
        limit = self.max_length - len(self._end)
        rows = self._tokenizer(texts, truncation=True, max_length=limit, return_attention_mask=False)["input_ids"]
        return [row + self._end for row in rows]

    def _spell(self, ids):
        return [self._tokenizer.decode([number]) for number in ids]

    def _encode(self, ids, seen):
        ids, seen = (torch.from_numpy(numbers.astype(np.int64)) for numbers in (ids, seen))
        with torch.inference_mode():
            states = self._model(input_ids=ids, attention_mask=seen, output_hidden_states=True).hidden_states
            return torch.stack(states, dim=2).numpy()
