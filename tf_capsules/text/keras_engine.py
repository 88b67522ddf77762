"""GPT-2 and BERT forms by keras-hub: without PyTorch, and in the graph from the strings on."""

import functools

import keras
import numpy as np

from tf_capsules.files import one_line
from tf_capsules.lazy import tf
from tf_capsules.text.tokenizers import BytePair, UnsupportedTokenizer, WordPiece
from tf_capsules.text.transformer import FrozenTransformer

_TANH_GELU = {"gelu_new", "gelu_pytorch_tanh"}
# What keras-hub can compute: (key of the configuration, the values that it may have, the value if the key is absent).
_FIXED = {
    "gpt2": (
        ("activation_function", _TANH_GELU, "gelu_new"),
        ("layer_norm_epsilon", {1e-5}, 1e-5),
        ("scale_attn_weights", {True}, True),
        ("scale_attn_by_inverse_layer_idx", {False}, False),
        ("add_cross_attention", {False}, False),
    ),
    "bert": (
        ("hidden_act", _TANH_GELU | {"gelu"}, "gelu"),
        ("layer_norm_eps", {1e-12}, 1e-12),
        ("position_embedding_type", {"absolute"}, "absolute"),
        ("is_decoder", {False}, False),
        ("add_cross_attention", {False}, False),
    ),
}


def refusal(checkpoint):
    """Why this engine can't compute a checkpoint, or None."""
    config = checkpoint.config
    kind = config["model_type"]
    if kind not in _FIXED:
        return f"it is of type {kind!r}, not {' or '.join(map(repr, _FIXED))}"
    for key, values, default in _FIXED[kind]:
        if config.get(key, default) not in values:
            return f"its {key} is {config[key]!r}, not {' or '.join(map(repr, sorted(values)))}"
    if kind == "bert" and not any(name.endswith("pooler.dense.weight") for name in checkpoint.weights):
        return "it has no pooler, which keras-hub looks for"
    try:
        if kind == "gpt2" and config.get("n_inner") not in (None, 4 * config["n_embd"]):
            return f"its n_inner is {config['n_inner']}, not 4 times its width {config['n_embd']}"
        _tokenizer(checkpoint)
    except UnsupportedTokenizer as error:
        return str(error)
    except (AttributeError, KeyError, TypeError) as error:
        return f"its files have another form: {one_line(error)}"
    return None


def _tokenizer(checkpoint):
    gpt2 = checkpoint.config["model_type"] == "gpt2"
    positions = checkpoint.config["n_positions" if gpt2 else "max_position_embeddings"]
    max_length = min(positions, checkpoint.tokenizer_limit or positions)
    return (BytePair if gpt2 else WordPiece).from_folder(checkpoint.folder, max_length), max_length


class Transformer(FrozenTransformer):
    """See `FrozenTransformer`."""

    engine = "keras-hub"

    def __init__(self, checkpoint):
        self._tokenizer, max_length = _tokenizer(checkpoint)
        self._model = _hidden_states_model(checkpoint)
        layers, width = self._model.output_shape[2:]
        gpt2 = checkpoint.config["model_type"] == "gpt2"
        super().__init__(checkpoint, layers, width, max_length, self._tokenizer.pad_id, gpt2)

    @functools.cached_property
    def graph(self):
        return _strings_to_states(self._tokenizer, self._model, self._attends_to_padding)

    def _tokenize(self, texts):
        rows = self.graph.tokenize(texts)
        return np.split(rows.values.numpy(), rows.row_splits.numpy()[1:-1])

    def _spell(self, ids):
        return [self._tokenizer.spellings[number] for number in ids]

    def _encode(self, ids, seen):
        if keras.backend.backend() == "tensorflow":
            return self.graph.encode(ids, seen).numpy()
        return keras.ops.convert_to_numpy(_states(self._model, *map(keras.ops.convert_to_tensor, (ids, seen))))


def _hidden_states_model(checkpoint):
    """A Keras model from token ids and padding mask (batch, tokens) to hidden states (batch, tokens, layers, width)."""
    from keras_hub.models import BertBackbone, GPT2Backbone
    from safetensors import SafetensorError

    gpt2 = checkpoint.config["model_type"] == "gpt2"
    segments = {"num_segments": checkpoint.config.get("type_vocab_size", 2)}
    kind, options = (GPT2Backbone, {}) if gpt2 else (BertBackbone, segments)
    try:
        backbone = kind.from_preset(str(checkpoint.folder), dtype="float32", **options)
    except (SafetensorError, KeyError, ValueError) as error:
        raise ValueError(f"keras-hub can't read {checkpoint.folder}: {error}") from error
    if gpt2:
        layers = [backbone.embeddings_add, *backbone.transformer_layers[:-1], backbone.layer_norm]
    else:
        layers = [backbone.embeddings_layer_norm, *backbone.transformer_layers]
        if checkpoint.config.get("hidden_act", "gelu") == "gelu":
            for layer in backbone.transformer_layers:  # keras-hub takes the tanh form for all
                layer._feedforward_intermediate_dense.activation = keras.activations.gelu
    states = keras.ops.stack([layer.output for layer in layers], axis=2)
    return keras.Model(backbone.inputs, states, dtype="float32")


def _states(model, ids, seen):
    inputs = {"token_ids": ids, "padding_mask": seen, "segment_ids": keras.ops.zeros_like(ids)}
    return model([inputs[tensor.name] for tensor in model.inputs], training=False)


def _strings_to_states(tokenizer, model, attends_to_padding):
    numbers = tf.TensorSpec((None, None), tf.int32)
    rows = tf.RaggedTensorSpec((None, None), tf.int32)

    class StringsToStates(tf.Module):
        """See `FrozenTransformer.graph`."""

        def __init__(self):
            super().__init__()
            # A SavedModel has to keep these alone; the Keras model itself would take more room and time.
            self._weights, self._tables = [weight.value for weight in model.weights], tokenizer.resources

        @tf.function(input_signature=[tf.TensorSpec((None,), tf.string)], autograph=False)
        def __call__(self, texts):
            return self.states(self.tokenize(texts))

        @tf.function(input_signature=[rows], autograph=False)
        def states(self, ids):
            real = tf.sequence_mask(ids.row_lengths(), dtype=tf.int32)
            ids = ids.to_tensor(tokenizer.pad_id)
            return self.encode(ids, tf.ones_like(real) if attends_to_padding else real), tf.cast(real, tf.float32)

        @tf.function(input_signature=[tf.TensorSpec((None,), tf.string)], autograph=False)
        def tokenize(self, texts):
            return tokenizer(texts)

        @tf.function(input_signature=[rows], autograph=False)
        def spell(self, ids):
            return tf.gather(tokenizer.spellings, ids).to_tensor("")

        @tf.function(input_signature=[numbers, numbers], autograph=False)
        def encode(self, ids, seen):
            return tf.stop_gradient(_states(model, ids, seen))  # frozen, so that nothing is kept for a backward pass

    return StringsToStates()
