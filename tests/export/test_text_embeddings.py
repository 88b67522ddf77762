"""Networks on texts, served from hidden states. For serving from strings see test_text.py."""

import importlib.util
import re
import subprocess
import sys

import keras
import numpy as np
import pytest
from served import NAMES, make_model

from tf_capsules import export
from tf_capsules.models.heinsen2019 import TextCapsNet

if keras.backend.backend() != "tensorflow":
    pytest.skip("export runs on TensorFlow", allow_module_level=True)

import tensorflow as tf  # noqa: E402


def make_text_model(**options):
    """A text network with random betas: with betas of zero its answers would not differ from text to text."""
    keras.utils.set_random_seed(0)
    text_model = TextCapsNet(layers=3, width=8, classes=5, dim=6, parts=9, **options)
    random = np.random.default_rng(1)
    for weight in text_model.weights:
        if "beta" in weight.name:
            weight.assign(random.normal(scale=0.1, size=weight.shape))
    return text_model


def make_states(batch=4, tokens=7):
    embeddings = np.random.default_rng(0).normal(size=(batch, tokens, 3, 8)).astype("float32")
    return embeddings, (np.arange(tokens) < 1 + 2 * np.arange(batch)[:, None]).astype("float32")


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """(network, folder)."""
    text_model, warmup = make_text_model(), importlib.util.find_spec("tensorflow_serving") is not None
    folder = tmp_path_factory.mktemp("head") / "1"
    return text_model, export.export_embeddings_saved_model(text_model, folder, NAMES, warmup=warmup)


@pytest.fixture(scope="module")
def loaded(exported):
    return tf.saved_model.load(str(exported[1]))


SERVE_EMBEDDINGS = """
import sys, numpy as np, tensorflow as tf
states = np.load("states.npz")
loaded = tf.saved_model.load(sys.argv[1])
answer = loaded.signatures["serving_default"](**{name: tf.constant(states[name]) for name in states})
assert not [name for name in sys.modules if name.split(".")[0] in ("tf_capsules", "tensorflow_text")]
np.savez("answers.npz", **{name: value.numpy() for name, value in answer.items()})
"""


@pytest.mark.long
def test_a_text_network_is_served_from_hidden_states(exported, tmp_path):
    (text_model, folder), (embeddings, mask) = exported, make_states()
    np.savez(tmp_path / "states.npz", embeddings=embeddings, mask=mask)
    command = [sys.executable, "-c", SERVE_EMBEDDINGS, str(folder)]
    subprocess.run(command, check=True, cwd=tmp_path, capture_output=True, timeout=120)
    outputs = text_model({"embeddings": embeddings, "mask": mask})
    probabilities = keras.ops.convert_to_numpy(keras.ops.softmax(outputs["activations"]))
    assert probabilities.std(0).min() > 1e-3
    with np.load(tmp_path / "answers.npz", allow_pickle=True) as answers:
        assert set(answers) == {"probabilities", "poses", "class", "label"}
        np.testing.assert_allclose(answers["probabilities"], probabilities, atol=1e-6)
        np.testing.assert_allclose(answers["poses"], outputs["poses"], atol=1e-6)
        np.testing.assert_array_equal(answers["class"], probabilities.argmax(-1))
        assert [label.decode() for label in answers["label"]] == [NAMES[c] for c in answers["class"]]
    stored = tf.train.list_variables(str(folder / "variables" / "variables"))
    numbers = [int(np.prod(shape)) for name, shape in stored if "OBJECT_GRAPH" not in name and "counter" not in name]
    assert sum(numbers) == text_model.count_params()


@pytest.mark.long
def test_any_number_of_texts_and_tokens(exported, loaded, tmp_path):
    keras.config.set_dtype_policy("mixed_bfloat16")
    half = make_text_model()
    unnamed = tf.saved_model.load(str(export.export_embeddings_saved_model(half, tmp_path / "half")))
    names = {"probabilities", "poses", "class"}
    for text_model, served, keys, tolerance in (
        (exported[0], loaded, names | {"label"}, 1e-6),
        (half, unnamed, names, 0.02),
    ):
        for batch, tokens in ((1, 7), (2, 1), (4, 0), (0, 7), (0, 0)):
            embeddings, mask = make_states(batch, tokens)
            answers = served.serve(embeddings, mask)
            want = text_model({"embeddings": embeddings, "mask": mask})
            assert set(answers) == keys
            assert answers["poses"].dtype == answers["probabilities"].dtype == tf.float32
            np.testing.assert_allclose(answers["poses"], want["poses"], atol=tolerance)
            np.testing.assert_allclose(answers["probabilities"], tf.nn.softmax(want["activations"]), atol=tolerance)


def test_a_mask_of_other_texts_is_refused(loaded):
    embeddings, mask = make_states(4, 6)
    with pytest.raises(tf.errors.InvalidArgumentError, match="the mask is \\(batch, tokens\\) of the embeddings"):
        loaded.signatures["serving_default"](embeddings=tf.constant(embeddings), mask=tf.constant(mask.T))
    with pytest.raises(tf.errors.InvalidArgumentError, match=re.escape("[4,6,3,7] is not compatible")):
        loaded.signatures["serving_default"](embeddings=tf.constant(embeddings[..., 1:]), mask=tf.constant(mask))


def test_each_export_takes_its_own_kind_of_model(tmp_path):
    model = make_model()
    text_model = make_text_model()
    with pytest.raises(ValueError, match='dict of hidden states, "embeddings" and "mask".*CapsuleClassifier'):
        export.export_embeddings_saved_model(model, tmp_path / "model")
    with pytest.raises(ValueError, match="5 classes. Received 2"):
        export.export_embeddings_saved_model(text_model, tmp_path / "model", ["ant", "bee"])
    for function in (export.export_saved_model, export.export_litert):
        with pytest.raises(ValueError, match="hidden states of texts, not images.*CapsuleClassifier"):
            function(text_model, tmp_path / "model")
    assert not list(tmp_path.iterdir())
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(ValueError, match="is not overwritten: it holds other files"):
        export.export_embeddings_saved_model(text_model, tmp_path)


def test_hidden_states_are_warmed_up_too(exported, loaded):
    pytest.importorskip("tensorflow_serving.apis", reason="needs the package tensorflow-serving-api")
    from loopback_server import Client, serving

    with serving({"head": exported[1].parent}) as server, Client(server, "head") as client:
        (answer,) = server["models"].versions["head"][1].warmed
        assert answer["probabilities"].shape == (1, 5) and np.isfinite(answer["poses"]).all()
        embeddings, mask = make_states()
        want = loaded.serve(embeddings, mask)["probabilities"]
        answer = client.ask_grpc({"embeddings": embeddings, "mask": mask})
        np.testing.assert_allclose(answer["probabilities"], want, atol=1e-6)
        rows = [{"embeddings": e.tolist(), "mask": m.tolist()} for e, m in zip(embeddings, mask, strict=True)]
        status, answer = client.ask_rest({"instances": rows})
        assert status == 200
        np.testing.assert_allclose([row["probabilities"] for row in answer["predictions"]], want, atol=1e-6)
        assert client.ask_rest({"instances": embeddings.tolist()})[0] == 400
