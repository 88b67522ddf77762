import json
import pathlib
import shutil

import keras
import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")

from tf_capsules import text  # noqa: E402
from tf_capsules.text import keras_engine  # noqa: E402
from tf_capsules.text.checkpoint import Checkpoint  # noqa: E402

TEXTS = ["So slow !", "", "Naïve 中文 😀", "It 's " * 40, "a\x00b\r\n c", "we'll say so"]
BYTES = [*(sentence.encode() for sentence in TEXTS), b"\xff\xfebroken\xe2"]


def with_head(transformer):
    """Maps strings to probabilities: a softmax of the states, summed over layers and averaged over real tokens."""
    module = tf.Module()
    module.states = transformer.graph

    def serve(texts):
        embeddings, mask = module.states(texts)
        mean = tf.einsum("bnlm,bn->bm", embeddings, mask) / tf.reduce_sum(mask, 1, keepdims=True)
        return {"probabilities": tf.nn.softmax(mean)}

    module.serve = tf.function(serve, input_signature=[tf.TensorSpec((None,), tf.string, name="texts")])
    return module


@pytest.mark.parametrize("kind", ["gpt2", "bert"])
class TestGraph:
    @pytest.fixture
    def transformer(self, request, load, kind):
        return load(request.getfixturevalue(kind), "keras-hub")

    def test_equal_to_the_eager_states(self, transformer):
        states, mask = transformer.hidden_states(BYTES)
        from_strings, real = transformer.graph(tf.constant(BYTES))
        assert from_strings.shape[2:] == (transformer.layers, transformer.width)
        np.testing.assert_array_equal(real, mask)
        np.testing.assert_allclose(from_strings, states, atol=1e-6)

    def test_any_batch_and_length_in_one_graph(self, transformer):
        counts = []
        for texts in (BYTES, BYTES[:1], BYTES[1:3], []):
            states, mask = transformer.graph(tf.constant(texts, tf.string))
            assert states.shape[:2] == mask.shape and len(mask) == len(texts)
            counts.append(transformer.graph.encode.experimental_get_tracing_count())
        assert len(set(counts)) == 1

    def test_saved_with_each_weight_once_and_served(self, transformer, tmp_path):
        """For serving by a process without this package see export/test_text.py."""
        module = with_head(transformer)
        tf.saved_model.save(module, tmp_path, signatures=module.serve)
        stored = sum(file.stat().st_size for file in tmp_path.glob("variables/*"))
        numbers = sum(int(np.prod(weight.shape)) for weight in transformer.graph.variables)
        assert numbers > 2000 and 4 * numbers <= stored < 4 * numbers * 1.1 + 10_000
        states, mask = transformer.hidden_states(BYTES)
        mean = np.einsum("bnlm,bn->bm", states, mask) / mask.sum(1, keepdims=True)
        expected = np.exp(mean) / np.exp(mean).sum(-1, keepdims=True)
        loaded = tf.saved_model.load(str(tmp_path))
        for texts in (BYTES, BYTES[:1], []):
            answer = loaded.signatures["serving_default"](tf.constant(texts, tf.string))["probabilities"]
            assert answer.shape == (len(texts), transformer.width)
            np.testing.assert_allclose(answer, expected[: len(texts)], rtol=1e-4)

    def test_states_on_another_backend_of_keras(self, transformer, monkeypatch):
        expected, _ = transformer.hidden_states(BYTES)
        monkeypatch.setattr(keras.backend, "backend", lambda: "another")  # whose tensors no TensorFlow graph takes
        monkeypatch.setattr(type(transformer.graph), "encode", None)
        np.testing.assert_allclose(transformer.hidden_states(BYTES)[0], expected, atol=2e-5)

    def test_no_word_is_remembered(self, transformer):
        before = transformer.tokenize(TEXTS)
        transformer.tokenize([f"word{number}" for number in range(50)])
        for a, b in zip(before, transformer.tokenize(TEXTS), strict=True):
            np.testing.assert_array_equal(a, b)
        tables = [table for table in transformer.graph._tables if not isinstance(table, tf.lookup.StaticHashTable)]
        assert not tables

    def test_frozen(self, transformer):
        with tf.GradientTape() as tape:
            total = tf.reduce_sum(transformer.graph(tf.constant(TEXTS))[0])
        gradients = tape.gradient(total, transformer.graph.variables)
        assert len(gradients) > 20 and all(gradient is None for gradient in gradients)


def test_the_policy_of_the_moment_does_not_matter(bert, load):
    import keras

    expected, _ = load(bert, "keras-hub").hidden_states(TEXTS)
    keras.config.set_dtype_policy("mixed_bfloat16")
    states, _ = text.load(bert, "keras-hub").hidden_states(TEXTS)
    np.testing.assert_allclose(states, expected, atol=1e-6)


class TestRefusals:
    @pytest.fixture(autouse=True)
    def needs_safetensors(self):
        pytest.importorskip("safetensors")

    @pytest.fixture
    def changed(self, request, tmp_path):
        """changed(kind, key=value, ...): the checkpoint with these values in its configuration."""

        def change(kind, **changes):
            folder = shutil.copytree(request.getfixturevalue(kind), tmp_path / kind)
            config = json.loads((folder / "config.json").read_text())
            (folder / "config.json").write_text(json.dumps(config | changes))
            return folder

        return change

    @pytest.mark.parametrize(
        "kind, changes, words",
        [
            ("gpt2", {"activation_function": "relu"}, "activation_function is 'relu'"),
            ("gpt2", {"n_inner": 13}, "n_inner is 13, not 4 times its width 12"),
            ("gpt2", {"scale_attn_by_inverse_layer_idx": True}, "scale_attn_by_inverse_layer_idx is True, not False"),
            ("gpt2", {"layer_norm_epsilon": 1e-6}, "layer_norm_epsilon is 1e-06, not 1e-05"),
            ("bert", {"hidden_act": "relu"}, "hidden_act is 'relu', not 'gelu' or"),
            ("bert", {"layer_norm_eps": 1e-5}, "layer_norm_eps is 1e-05"),
            ("bert", {"model_type": "roberta"}, "type 'roberta', not 'gpt2' or 'bert'"),
        ],
    )
    def test_other_computations_are_named(self, changed, kind, changes, words):
        folder = changed(kind, **changes)
        with pytest.raises(ValueError, match=f"{folder} can't be loaded: the engine 'keras-hub' .*{words}"):
            text.load(folder, "keras-hub")

    @pytest.mark.parametrize("activation", ["gelu_new", "gelu_pytorch_tanh"])
    @pytest.mark.usefixtures("pytorch")
    def test_the_tanh_form_is_computed_where_it_is_asked_for(self, changed, load, activation):
        exact = load(changed("bert").parent / "bert", "keras-hub")
        folder = shutil.copytree(exact.checkpoint.folder, exact.checkpoint.folder.parent / "tanh")
        config = json.loads((folder / "config.json").read_text()) | {"hidden_act": activation}
        (folder / "config.json").write_text(json.dumps(config))
        states, mask = text.load(folder, "keras-hub").hidden_states(TEXTS)
        expected, _ = text.load(folder, "transformers").hidden_states(TEXTS)
        np.testing.assert_allclose(states[mask > 0], expected[mask > 0], atol=2e-5)
        assert np.abs(states - exact.hidden_states(TEXTS)[0])[mask > 0].max() > 1e-4

    @pytest.mark.usefixtures("pytorch")
    def test_without_a_pooler(self, changed):
        from safetensors.numpy import load_file, save_file

        path = changed("bert") / "model.safetensors"
        weights = {name: value for name, value in load_file(path).items() if "pooler" not in name}
        save_file(weights, path, {"format": "pt"})
        with pytest.raises(ValueError, match="no pooler"):
            text.load(path.parent, "keras-hub")
        assert text.load(path.parent).engine == "transformers"

    @pytest.mark.parametrize(
        "kind, name", [("gpt2", "transformer.h.1.ln_2.bias"), ("bert", "embeddings.LayerNorm.bias")]
    )
    def test_missing_weights_are_named(self, changed, kind, name):
        from safetensors.numpy import load_file, save_file

        path = changed(kind) / "model.safetensors"
        weights = load_file(path)
        del weights[name]
        save_file(weights, path, {"format": "pt"})
        with pytest.raises(
            ValueError, match=f"keras-hub can't read {path.parent}: .*{name.removeprefix('transformer.')}"
        ):
            text.load(path.parent, "keras-hub")

    def test_another_tokenizer(self, changed):
        path = changed("gpt2") / "tokenizer.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | {"normalizer": {"type": "NFC"}}))
        with pytest.raises(ValueError, match="normalizer is"):
            text.load(path.parent, "keras-hub")

    @pytest.mark.parametrize("absent", ["n_embd", "n_positions"])
    def test_a_configuration_that_leaves_a_value_out(self, changed, absent):
        path = changed("gpt2", n_inner=48) / "config.json"
        path.write_text(json.dumps({k: value for k, value in json.loads(path.read_text()).items() if k != absent}))
        with pytest.raises(ValueError, match=f"can't compute it: its files have another form: it lacks '{absent}'"):
            text.load(path.parent)

    def test_a_tokenizer_of_another_form(self, changed):
        path = changed("gpt2") / "tokenizer.json"
        path.write_text(json.dumps({"model": json.loads(path.read_text())["model"]}))
        with pytest.raises(ValueError, match="'keras-hub' can't compute it: .* another form: it lacks 'pre_tokenizer'"):
            text.load(path.parent)

    @pytest.mark.usefixtures("pytorch")
    def test_the_tokenizer_may_limit_the_length(self, changed):
        folder = changed("bert")
        (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "BertTokenizer", "model_max_length": 9}')
        for engine in ("keras-hub", "transformers"):
            transformer = text.load(folder, engine)
            assert transformer.max_length == 9 == len(transformer.tokens("so " * 30))


def test_refusal_needs_no_keras_hub(tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "t5"}')
    (tmp_path / "model.safetensors").write_bytes(b"")
    assert "type 't5'" in keras_engine.refusal(Checkpoint(pathlib.Path(tmp_path)))
