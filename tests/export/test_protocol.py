"""Exports give the Keras model's answers by TensorFlow Serving's protocol. For models of texts see test_text.py."""

import base64
import io

import keras
import numpy as np
import pytest
from PIL import Image

from tf_capsules import export
from tf_capsules.models.sabour2017 import CapsNet

if keras.backend.backend() != "tensorflow":
    pytest.skip("export runs on TensorFlow", allow_module_level=True)
grpc = pytest.importorskip("grpc")
pytest.importorskip("tensorflow_serving.apis", reason="needs the package tensorflow-serving-api")

import tensorflow as tf  # noqa: E402
from loopback_server import WARMUP, Client, serving, warmup_requests  # noqa: E402

NAMES = ["ant", "bee", "café", "dog", "eel"]
SHAPE = (8, 7, 3)
SIGNATURES = ["serving_default", "serving_float32", "serving_uint8", "serving_bytes"]


def make_model():
    sizes = {"filters": 6, "kernel_size": 3, "types": 3, "pose": 4, "primary_kernel_size": 3, "primary_strides": 1}
    return CapsNet(SHAPE, classes=5, dim=9, **sizes, decoder_units=None, iterations=1)


def make_images(count=4, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (count, *SHAPE), dtype=np.uint8)


def encoded(image, kind="PNG"):
    file = io.BytesIO()
    Image.fromarray(image).save(file, kind)
    return file.getvalue()


def inputs_of(signature, images):
    """The inputs of a signature, as Python lists or NumPy arrays."""
    if signature == "serving_bytes":
        return {"files": [encoded(image) for image in images]}
    return {"images": images if signature == "serving_uint8" else images / np.float32(255)}


def as_json(value):
    if isinstance(value, bytes):
        return {"b64": base64.b64encode(value).decode()}
    return [as_json(part) for part in value] if isinstance(value, list) else value.tolist()


def assert_answers(answers, model, images):
    want = {name: keras.ops.convert_to_numpy(x) for name, x in model(images / np.float32(255)).items()}
    assert set(answers) == {"probabilities", "poses", "class", "label"}
    np.testing.assert_allclose(answers["probabilities"], want["activations"], atol=1e-6)
    np.testing.assert_allclose(answers["poses"], want["poses"], atol=1e-6)
    np.testing.assert_array_equal(answers["class"], want["activations"].argmax(-1))
    labels = [label.decode() if isinstance(label, bytes) else label for label in answers["label"]]
    assert labels == [NAMES[number] for number in want["activations"].argmax(-1)]


@pytest.fixture(scope="module")
def models():
    """Two networks with different weights."""
    keras.utils.set_random_seed(0)
    return {1: make_model(), 2: make_model()}


@pytest.fixture(scope="module")
def folder(models, tmp_path_factory):
    folder = tmp_path_factory.mktemp("served") / "insects"
    for number, model in models.items():
        target = export.version_folder(folder)
        assert target == folder / str(number)
        export.export_saved_model(model, target, class_names=NAMES, warmup=number == 2)
    return folder


@pytest.fixture(scope="module")
def server(folder):
    with serving({"insects": folder}) as server:
        yield server


@pytest.fixture
def client(server):
    with Client(server, "insects") as client:
        yield client


@pytest.mark.parametrize("signature", SIGNATURES)
def test_each_signature_gives_the_models_numbers(models, client, signature):
    images = make_images()
    inputs = inputs_of(signature, images)
    assert_answers(client.ask_grpc(inputs, signature), models[2], images)
    ((name, value),) = inputs.items()
    value = as_json(value)
    for instances in (value, [{name: one} for one in value]):
        status, answer = client.ask_rest({"signature_name": signature, "instances": instances})
        assert status == 200
        rows = answer["predictions"]
        assert_answers({key: [row[key] for row in rows] for key in rows[0]}, models[2], images)
    for columns in (value, {name: value}):
        status, answer = client.ask_rest({"signature_name": signature, "inputs": columns})
        assert status == 200
        assert_answers(answer["outputs"], models[2], images)


def test_versions_stand_side_by_side_and_the_highest_answers(models, client):
    images = make_images()
    inputs, body = inputs_of("serving_default", images), {"inputs": (images / 255).tolist()}
    answers = {version: client.ask_grpc(inputs, version=version) for version in (None, 1, 2)}
    assert np.abs(answers[1]["poses"] - answers[2]["poses"]).max() > 1e-3
    for version, model in ((None, models[2]), *models.items()):
        assert_answers(answers[version], model, images)
        assert_answers(client.ask_rest(body, version=version)[1]["outputs"], model, images)
    with pytest.raises(grpc.RpcError) as error:
        client.ask_grpc(inputs, version=3)
    assert error.value.code() == grpc.StatusCode.NOT_FOUND
    assert client.ask_rest(body, version=3) == (
        404,
        {"error": "Servable not found for request: Specific(insects, 3)"},
    )
    status, answer = client.ask_rest(what="")
    states = [(row["version"], row["state"], row["status"]["error_code"]) for row in answer["model_version_status"]]
    assert status == 200 and states == [("2", "AVAILABLE", "OK"), ("1", "AVAILABLE", "OK")]


def test_metadata_tell_what_the_signatures_take(client):
    from tensorflow_serving.apis import get_model_metadata_pb2

    request = get_model_metadata_pb2.GetModelMetadataRequest(metadata_field=["signature_def"])
    request.model_spec.name = "insects"
    response = client.predictions.GetModelMetadata(request, timeout=60)
    signatures = get_model_metadata_pb2.SignatureDefMap()
    response.metadata["signature_def"].Unpack(signatures)
    takes = {
        name: {key: (info.dtype, *(size.size for size in info.tensor_shape.dim)) for key, info in one.inputs.items()}
        for name, one in signatures.signature_def.items()
        if name in SIGNATURES
    }
    floats = {"images": (tf.float32.as_datatype_enum, -1, *SHAPE)}
    assert takes == {
        "serving_default": floats,
        "serving_float32": floats,
        "serving_uint8": {"images": (tf.uint8.as_datatype_enum, -1, *SHAPE)},
        "serving_bytes": {"files": (tf.string.as_datatype_enum, -1)},
    }
    status, answer = client.ask_rest(what="/metadata")
    assert status == 200 and answer["model_spec"]["version"] == "2"
    assert set(SIGNATURES) <= set(answer["metadata"]["signature_def"]["signature_def"])


PICTURE = encoded(make_images()[0])
JPEG = encoded(make_images()[0], "JPEG")
ZEROS = np.zeros((2, *SHAPE), np.float32)


@pytest.mark.parametrize(
    "signature, inputs, code",
    [
        ("serving_default", {"images": np.zeros((2, 9, 7, 3), np.float32)}, "INVALID_ARGUMENT"),
        ("serving_default", {"images": np.zeros(SHAPE, np.float32)}, "INVALID_ARGUMENT"),
        ("serving_default", {"images": np.zeros((0, 9, 7, 3), np.float32)}, "INVALID_ARGUMENT"),
        ("serving_default", {"images": np.zeros((2, *SHAPE))}, "INVALID_ARGUMENT"),
        ("serving_default", {"images": ZEROS + 200}, "INVALID_ARGUMENT"),
        ("serving_float32", {"images": ZEROS - 1}, "INVALID_ARGUMENT"),
        ("serving_float32", {"images": ZEROS * np.nan}, "INVALID_ARGUMENT"),
        ("serving_uint8", {"images": ZEROS}, "INVALID_ARGUMENT"),
        ("serving_bytes", {"files": ZEROS}, "INVALID_ARGUMENT"),
        ("serving_bytes", {"files": [[PICTURE]]}, "INVALID_ARGUMENT"),
        ("serving_bytes", {"files": [PICTURE, b"not an image"]}, "INVALID_ARGUMENT"),
        ("serving_bytes", {"files": [b""]}, "INVALID_ARGUMENT"),
        ("serving_bytes", {"files": [PICTURE[:40]]}, "INVALID_ARGUMENT"),
        ("serving_bytes", {"files": [JPEG[:100]]}, "INVALID_ARGUMENT"),
        ("serving_default", {}, "INVALID_ARGUMENT"),
        ("serving_default", {"images": ZEROS, "files": [PICTURE]}, "INVALID_ARGUMENT"),
        ("serving_default", {"pictures": ZEROS}, "INVALID_ARGUMENT"),
        ("no_such_signature", {"images": ZEROS}, "FAILED_PRECONDITION"),
    ],
)
def test_bad_grpc_requests_are_refused_and_the_next_is_answered(models, client, signature, inputs, code):
    with pytest.raises(grpc.RpcError) as error:
        client.ask_grpc(inputs, signature)
    assert error.value.code().name == code and error.value.details()
    images = make_images(1)
    assert_answers(client.ask_grpc(inputs_of("serving_bytes", images), "serving_bytes"), models[2], images)


GREY, RAGGED = ZEROS.tolist(), [ZEROS[0].tolist(), ZEROS[0, 1:].tolist()]
FILES = {"signature_name": "serving_bytes"}


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[1, 2]",
        {},
        {"instances": GREY, "inputs": GREY},
        {"instances": []},
        {"instances": 3},
        {"instances": [{"pictures": GREY[0]}]},
        {"inputs": {"pictures": GREY}},
        {"inputs": {"images": []}},
        {"instances": RAGGED},
        {"inputs": RAGGED},
        {"instances": ZEROS[:, 1:].tolist()},
        {"instances": (ZEROS + 200).tolist()},
        {"instances": [["a"]]},
        {"instances": [[1, 2], [3], [4, 5, 6]]},
        {"instances": GREY, "signature_name": 3},
        {"instances": [{"b64": "AAAA"}]},
        {"instances": GREY, "signature_name": "no_such_signature"},
        {"instances": (ZEROS + 0.5).tolist(), "signature_name": "serving_uint8"},
        {"instances": (ZEROS.astype(object) + 2**70).tolist(), "signature_name": "serving_uint8"},
        {**FILES, "instances": [7]},
        {**FILES, "instances": ["not an image"]},
        {**FILES, "instances": [{"b64": "***"}]},
        {**FILES, "instances": [as_json(PICTURE[:40])]},
        {**FILES, "inputs": as_json(PICTURE)},
    ],
    ids=lambda body: repr(body)[:60],
)
def test_bad_rest_requests_are_refused_and_the_next_is_answered(models, client, body):
    status, answer = client.ask_rest(body)
    assert status == 400 and set(answer) == {"error"} and answer["error"]
    images = make_images(1)
    status, answer = client.ask_rest({**FILES, "inputs": as_json([encoded(images[0])])})
    assert status == 200
    assert_answers(answer["outputs"], models[2], images)


def test_empty_batches_are_answered(client):
    for signature in SIGNATURES:
        none = [] if signature == "serving_bytes" else make_images(0)
        inputs = {"files": np.array([], object)} if signature == "serving_bytes" else inputs_of(signature, none)
        answers = client.ask_grpc(inputs, signature)
        assert {name: value.shape for name, value in answers.items()} == {
            "probabilities": (0, 5),
            "poses": (0, 5, 9),
            "class": (0,),
            "label": (0,),
        }
    # An empty JSON list does not tell the size of images.
    status, answer = client.ask_rest({**FILES, "inputs": []})
    assert status == 200 and answer["outputs"] == {"probabilities": [], "poses": [], "class": [], "label": []}


def test_the_warmup_file_has_a_request_to_each_signature_and_the_server_runs_them(folder, server):
    assert not (folder / "1" / WARMUP).exists() and not server["models"].versions["insects"][1].warmed
    requests = warmup_requests(folder / "2")
    assert sorted(request.model_spec.signature_name for request in requests) == sorted(SIGNATURES)
    assert (folder / "2" / WARMUP).stat().st_size < 4000
    for request in requests:
        rebuilt = type(request)()
        rebuilt.model_spec.signature_name = request.model_spec.signature_name
        for name, value in request.inputs.items():
            rebuilt.inputs[name].CopyFrom(tf.make_tensor_proto(tf.make_ndarray(value)))
            assert value.tensor_shape.dim[0].size == 1
        assert rebuilt == request  # it has no fields that the protocol lacks
    answers = server["models"].versions["insects"][2].warmed
    assert len(answers) == 4
    for answer in answers:
        assert answer["probabilities"].shape == (1, 5) and np.isfinite(answer["poses"]).all()
