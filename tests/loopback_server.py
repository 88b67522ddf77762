"""A small server that speaks TensorFlow Serving's protocol on the loopback interface, gRPC and REST.

    python tests/loopback_server.py NAME=FOLDER [NAME=FOLDER ...]

Each folder holds numbered versions. The server loads them as TensorFlow Serving does: in a session, by the signatures
of the graph, without the Python objects beside it. It prints its two ports as JSON and answers until its standard input
is closed. It lacks batching, classify and regress, labels of versions, and the search for new versions.
"""

import base64
import collections
import concurrent.futures
import contextlib
import functools
import http.client
import http.server
import importlib.util
import json
import pathlib
import re
import sys
import threading

import grpc
import numpy as np
import tensorflow as tf
from google.protobuf import json_format
from tensorflow.core.protobuf.config_pb2 import CallableOptions
from tensorflow_serving.apis import (
    get_model_metadata_pb2,
    get_model_status_pb2,
    model_service_pb2_grpc,
    predict_pb2,
    prediction_log_pb2,
    prediction_service_pb2_grpc,
)

if importlib.util.find_spec("tensorflow_text"):
    import tensorflow_text  # noqa: F401 (graphs of models of texts use its operations)

WARMUP = "assets.extra/tf_serving_warmup_requests"
HTTP = collections.defaultdict(lambda: 500, INVALID_ARGUMENT=400, FAILED_PRECONDITION=400, NOT_FOUND=404)
PATH = re.compile(r"/v1/models/([^/:]+)(?:/versions/(\d+))?(:predict|/metadata)?")


class Refused(Exception):
    """The error of a refused request; its arguments are the name of a gRPC status code and a message."""


def invalid(message):
    return Refused("INVALID_ARGUMENT", message)


class Version:
    """A loaded SavedModel, which has run its warm-up requests."""

    def __init__(self, folder):
        self.session = tf.compat.v1.Session(graph=tf.Graph())
        with self.session.graph.as_default():
            self.signatures = tf.compat.v1.saved_model.load(self.session, ["serve"], str(folder)).signature_def
        self.callable = functools.cache(self._callable)
        self.warmed = [self.predict(request) for request in warmup_requests(folder)]

    def signature(self, name, error="FAILED_PRECONDITION"):
        name = name or "serving_default"
        if name not in self.signatures:
            raise Refused(error, f'Serving signature key "{name}" not found.')
        return self.signatures[name]

    def predict(self, request):
        """The outputs of a `PredictRequest`: {name: array}."""
        signature = self.signature(request.model_spec.signature_name)
        given, wanted = set(request.inputs), set(signature.inputs)
        if given != wanted:
            extra, missing = ", ".join(sorted(given - wanted)), ", ".join(sorted(wanted - given))
            raise invalid(f"input size does not match signature. Sent extra: {{{extra}}}. Missing: {{{missing}}}.")
        feeds = {}
        for name, info in signature.inputs.items():
            if request.inputs[name].dtype != info.dtype:
                types = [tf.dtypes.as_dtype(x.dtype).name for x in (info, request.inputs[name])]
                raise invalid("Expects arg {} to be {} but {} is provided".format(name, *types))
            try:
                feeds[info.name] = tf.make_ndarray(request.inputs[name])
            except (TypeError, ValueError) as error:  # contents that don't fill the shape
                raise invalid(f"Could not parse tensor {name}: {error}") from error
        names = list(request.output_filter) or list(signature.outputs)
        if unknown := set(names) - set(signature.outputs):
            raise invalid(f"output tensor alias not found in signature: {', '.join(unknown)}")
        outputs = tuple(signature.outputs[name].name for name in names)
        try:
            answers = self.callable(outputs, tuple(feeds))(*feeds.values())
        except tf.errors.OpError as error:
            raise Refused(grpc_code(error.error_code), error.message) from error
        return dict(zip(names, answers, strict=True))

    def _callable(self, outputs, inputs):
        # Unlike `Session.run`, the callable does not check shapes but lets the graph do so, as TensorFlow Serving does.
        return self.session._make_callable_from_options(CallableOptions(feed=inputs, fetch=outputs))


def grpc_code(number):
    return next(code.name for code in grpc.StatusCode if code.value[0] == number)


def warmup_requests(folder):
    """The requests of a version's warm-up file; none without that file."""
    file = pathlib.Path(folder) / WARMUP
    records = tf.data.TFRecordDataset(str(file)).as_numpy_iterator() if file.exists() else ()
    return [prediction_log_pb2.PredictionLog.FromString(record).predict_log.request for record in records]


class Models:
    """All versions of all models: {name: {number: Version}}."""

    def __init__(self, folders):
        self.versions = {
            name: {int(path.name): Version(path) for path in pathlib.Path(folder).iterdir() if path.name.isdecimal()}
            for name, folder in folders.items()
        }

    def of(self, spec):
        """(number, version) that a `ModelSpec` asks for; without a number the highest version."""
        known = self.versions.get(spec.name, {})
        number = spec.version.value if spec.HasField("version") else max(known, default=None)
        if number not in known:
            asked = f"Specific({spec.name}, {number})" if spec.HasField("version") else f"Latest({spec.name})"
            raise Refused("NOT_FOUND", f"Servable not found for request: {asked}")
        return number, known[number]

    def predict(self, request):
        number, version = self.of(request.model_spec)
        response = predict_pb2.PredictResponse(model_spec=request.model_spec)
        response.model_spec.version.value = number
        response.model_spec.signature_name = request.model_spec.signature_name or "serving_default"
        for name, value in version.predict(request).items():
            response.outputs[name].CopyFrom(tf.make_tensor_proto(value))
        return response

    def metadata(self, request):
        if list(request.metadata_field) != ["signature_def"]:
            raise invalid("GetModelMetadataRequest must specify the metadata_field signature_def")
        number, version = self.of(request.model_spec)
        response = get_model_metadata_pb2.GetModelMetadataResponse(model_spec=request.model_spec)
        response.model_spec.version.value = number
        signatures = get_model_metadata_pb2.SignatureDefMap(signature_def=version.signatures)
        response.metadata["signature_def"].Pack(signatures)
        return response

    def status(self, request):
        self.of(request.model_spec)
        response = get_model_status_pb2.GetModelStatusResponse()
        for number in sorted(self.versions[request.model_spec.name], reverse=True):
            if not request.model_spec.HasField("version") or number == request.model_spec.version.value:
                state = response.model_version_status.add(version=number)
                state.state = get_model_status_pb2.ModelVersionStatus.AVAILABLE
                state.status.SetInParent()  # OK
        return response


def grpc_servicers(models):
    """The gRPC services, each method of which calls one of `models`."""

    def method(function):
        def call(self, request, context):
            try:
                return function(request)
            except Refused as refused:
                context.abort(grpc.StatusCode[refused.args[0]], refused.args[1])

        return call

    predictions = {"Predict": method(models.predict), "GetModelMetadata": method(models.metadata)}
    return (
        type("Predictions", (prediction_service_pb2_grpc.PredictionServiceServicer,), predictions)(),
        type("Statuses", (model_service_pb2_grpc.ModelServiceServicer,), {"GetModelStatus": method(models.status)})(),
    )


def tensor(value, info, name):
    """The array of a JSON value for an input of a signature."""
    dtype = tf.dtypes.as_dtype(info.dtype)

    def leaves(value):
        if isinstance(value, list):
            for part in value:
                yield from leaves(part)
        else:
            yield value

    def shape(value):
        if not isinstance(value, list):
            return ()
        parts = {shape(part) for part in value} or {()}
        if len(parts) > 1:
            raise invalid(f"Encountered list at unexpected size in {name}")
        return (len(value), *parts.pop())

    def converted(leaf):
        if dtype == tf.string:
            if isinstance(leaf, dict) and set(leaf) == {"b64"} and isinstance(leaf["b64"], str):
                with contextlib.suppress(ValueError):
                    return base64.b64decode(leaf["b64"], validate=True)
                raise invalid("Unable to base64 decode")
            if isinstance(leaf, str):
                with contextlib.suppress(UnicodeEncodeError):
                    return leaf.encode("utf-8", "surrogateescape")
                raise invalid("JSON Parse error: The surrogate pair in string is invalid.")
        elif type(leaf) in ((int,) if dtype.is_integer else (int, float)):
            return leaf
        raise invalid(f"JSON Value: {json.dumps(leaf)[:100]} is not of expected type: {dtype.name}")

    values = [converted(leaf) for leaf in leaves(value)]
    try:
        # TensorFlow Serving does not check the range of small integers, so they wrap.
        array = np.array(values, object if dtype == tf.string else np.int64 if dtype.is_integer else np.float32)
        return array.reshape(shape(value)).astype(dtype.as_numpy_dtype)
    except OverflowError as error:
        raise invalid(f"JSON Value of {name} is not of expected type: {dtype.name}") from error


def request_of(body, request, version):
    """Fills a `PredictRequest` from the JSON of a REST call; returns whether the JSON is in row format."""
    try:
        body = json.loads(body.decode("utf-8", "surrogateescape"))  # bytes that are not UTF-8 pass unchanged
    except ValueError as error:
        raise invalid(f"JSON Parse error: {error}") from error
    if not isinstance(body, dict):
        raise invalid("JSON Value: Is not object")
    if not isinstance(body.get("signature_name", ""), str):
        raise invalid("'signature_name' key must be a string value.")
    request.model_spec.signature_name = body.get("signature_name", "")
    infos = version.signature(request.model_spec.signature_name, "INVALID_ARGUMENT").inputs
    by_row = "instances" in body
    if by_row == ("inputs" in body):
        raise invalid("Expecting one of 'inputs' or 'instances' keys")
    values = body["instances"] if by_row else body["inputs"]
    if by_row:
        if not isinstance(values, list) or not values:
            raise invalid("No values in 'instances' array")
        if named(values[0]):
            if any(not named(row) or set(row) != set(infos) for row in values):
                raise invalid(f"Failed to process 'instances' list: keys must be equal to: {', '.join(infos)}")
            values = {name: [row[name] for row in values] for name in infos}
    if not named(values):
        if len(infos) > 1:
            raise invalid(f"a plain list, but multiple input tensors are required: {', '.join(infos)}")
        values = dict.fromkeys(infos, values)
    for name, info in infos.items():
        if name not in values:
            raise invalid(f"Missing named input: {name} in 'inputs' object.")
        array = tensor(values[name], info, name)
        request.inputs[name].CopyFrom(tf.make_tensor_proto(array, info.dtype, array.shape))
    return by_row


def named(value):
    return isinstance(value, dict) and set(value) != {"b64"}


def json_of(response, by_row):
    """The body that answers a REST call."""

    def plain(name, value):
        if isinstance(value, list):
            return [plain(name, part) for part in value]
        if isinstance(value, bytes):
            binary = name.endswith("_bytes")
            return {"b64": base64.b64encode(value).decode()} if binary else value.decode("utf-8", "surrogateescape")
        return value

    outputs = {name: plain(name, tf.make_ndarray(value).tolist()) for name, value in response.outputs.items()}
    if not by_row:
        return {"outputs": outputs if len(outputs) > 1 else next(iter(outputs.values()))}
    if len(outputs) == 1:
        return {"predictions": next(iter(outputs.values()))}
    rows = zip(*outputs.values(), strict=True)
    return {"predictions": [dict(zip(outputs, row, strict=True)) for row in rows]}


def rest_handler(models):
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_GET(self):
            self.answer(b"")

        def do_POST(self):
            self.answer(self.rfile.read(int(self.headers["Content-Length"])))

        def answer(self, body):
            try:
                code, answer = 200, self.called(body)
            except Refused as refused:
                code, answer = HTTP[refused.args[0]], {"error": refused.args[1]}
            content = json.dumps(answer, ensure_ascii=False).encode("utf-8", "surrogateescape")
            self.send_response(code)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def called(self, body):
            found = PATH.fullmatch(self.path)
            if not found or (self.command == "POST") != (found[3] == ":predict"):
                raise invalid(f"Malformed request: {self.command} {self.path}")
            name, number, what = found.groups()
            if what == ":predict":
                request = predict_pb2.PredictRequest()
            elif what == "/metadata":
                request = get_model_metadata_pb2.GetModelMetadataRequest(metadata_field=["signature_def"])
            else:
                request = get_model_status_pb2.GetModelStatusRequest()
            request.model_spec.name = name
            if number is not None:
                request.model_spec.version.value = int(number)
            if what == ":predict":
                by_row = request_of(body, request, models.of(request.model_spec)[1])
                return json_of(models.predict(request), by_row)
            response = models.metadata(request) if what else models.status(request)
            return json_format.MessageToDict(
                response, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
            )

        def log_message(self, *_):
            pass

    return Handler


@contextlib.contextmanager
def serving(folders):
    """Serves {name: folder}; yields {"grpc": port, "rest": port, "models": the loaded `Models`}."""
    models = Models(folders)
    server = grpc.server(concurrent.futures.ThreadPoolExecutor(16))
    predictions, statuses = grpc_servicers(models)
    prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(predictions, server)
    model_service_pb2_grpc.add_ModelServiceServicer_to_server(statuses, server)
    port = server.add_insecure_port("127.0.0.1:0")
    rest = http.server.ThreadingHTTPServer(("127.0.0.1", 0), rest_handler(models))
    thread = threading.Thread(target=rest.serve_forever)
    server.start()
    thread.start()
    try:
        yield {"grpc": port, "rest": rest.server_address[1], "models": models}
    finally:
        rest.shutdown()
        thread.join()
        rest.server_close()
        server.stop(None).wait()
        for version in (version for versions in models.versions.values() for version in versions.values()):
            version.session.close()


class Client:
    """Asks for a model, by gRPC and by REST; a context manager."""

    def __init__(self, ports, name):
        self.name = name
        self.channel = grpc.insecure_channel(f"127.0.0.1:{ports['grpc']}")
        self.predictions = prediction_service_pb2_grpc.PredictionServiceStub(self.channel)
        self.http = http.client.HTTPConnection("127.0.0.1", ports["rest"])

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.channel.close()
        self.http.close()

    def request(self, inputs, signature="", version=None):
        request = predict_pb2.PredictRequest()
        request.model_spec.name, request.model_spec.signature_name = self.name, signature
        if version is not None:
            request.model_spec.version.value = version
        for name, value in inputs.items():
            request.inputs[name].CopyFrom(tf.make_tensor_proto(value))
        return request

    def ask_grpc(self, inputs, signature="", version=None):
        """{name: array}, or raises grpc.RpcError."""
        response = self.predictions.Predict(self.request(inputs, signature, version), timeout=60)
        return {name: tf.make_ndarray(value) for name, value in response.outputs.items()}

    def ask_rest(self, body=None, what=":predict", version=None):
        """Returns (status, JSON of the answer); a body of bytes is sent unchanged."""
        content = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        path = f"/v1/models/{self.name}" + ("" if version is None else f"/versions/{version}") + what
        self.http.request("POST" if body is not None else "GET", path, content)
        response = self.http.getresponse()
        return response.status, json.loads(response.read())


if __name__ == "__main__":
    with serving(dict(argument.split("=", 1) for argument in sys.argv[1:])) as ports:
        print(json.dumps({name: ports[name] for name in ("grpc", "rest")}), flush=True)
        sys.stdin.read()
