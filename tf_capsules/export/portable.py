"""Networks on images as LiteRT and ONNX files.

Both converters drop assertions. So values outside [0, 1] get an answer here; a SavedModel refuses them.
"""

import importlib.util

from tf_capsules.datasets import augment
from tf_capsules.export.answers import for_any_number, need_tensorflow
from tf_capsules.export.images import image_answer, served_shape, warn_of_image_logits
from tf_capsules.files import replacing, writable
from tf_capsules.lazy import tf
from tf_capsules.models.feedback import without_feedback

_ONNX_OPSET = 18


def export_litert(model, file, preprocess=(), image_shape=None):
    """Writes a LiteRT (TensorFlow Lite) model for phones and small devices.

    Its signature `serving_default` takes `images`, float32 (batch, height, width, channels) in [0, 1], one or more, and
    returns "probabilities", "class" and, for capsule networks, "poses" as in `export_saved_model`. The range is not
    checked. Weights are float32. The converter is TensorFlow's; convolutional EM routing needs version 2.21 or later.

    Args:
        model, preprocess, image_shape: as in `export_saved_model`.
        file: where to write, returned as a `pathlib.Path`; by convention its name ends in ".tflite". An earlier LiteRT
            model is replaced when the new one is complete; any other file is refused.

    Raises:
        ValueError: as in `export_saved_model`; also a model that computes in half precision or has Keras's quantized
            layers, or a file of another kind.
        RuntimeError: Keras runs on another backend than TensorFlow.

    Example:
        >>> export_litert(model, "digits.tflite")
        >>> ai_edge_litert.interpreter.Interpreter("digits.tflite").get_signature_runner()(images=images)["class"]
    """
    file = _free_file(file, "LiteRT", lambda old: old.read_bytes()[4:8] == b"TFL3")  # its FlatBuffers identifier
    if quantized := [layer.name for layer in model._flatten_layers() if getattr(layer, "quantization_mode", None)]:
        hint = "export the model without `quantize`, or as a SavedModel or ONNX"
        raise ValueError(f"LiteRT's converter does not take Keras's quantized layers ({quantized[0]}, ...): {hint}.")
    concrete = _portable_answer("LiteRT", model, preprocess, image_shape).get_concrete_function()

    module = tf.Module()
    module.weights = list(concrete.graph.variables)
    content = tf.lite.TFLiteConverter.from_concrete_functions([concrete], module).convert()
    with replacing(file) as part:
        part.write_bytes(content)
    return file


def export_onnx(model, file, preprocess=(), image_shape=None):
    """Writes an ONNX model, for ONNX Runtime and other readers of this format.

    Its input `images` is float32 (batch, height, width, channels) in [0, 1], any number of them; its outputs are
    "probabilities", "class" and, for capsule networks, "poses" as in `export_saved_model`. The range is not checked;
    the input's `doc_string` states it. Weights are float32. It needs the packages tf2onnx and onnx, which
    `pip install "tf_capsules[export]"` brings.

    Args:
        model, file, preprocess, image_shape: as in `export_litert`, with its result and errors, but quantized
            layers are taken; the name of the file ends in ".onnx" by convention.

    Raises:
        ValueError: also for a model that has loops within an image, such as `tf_capsules.models.li2018.CapNet`.
        ImportError: tf2onnx or onnx is not installed.

    Example:
        >>> export_onnx(model, "digits.onnx")
        >>> onnxruntime.InferenceSession("digits.onnx").run(["class"], {"images": images})
    """
    need_tensorflow()
    if missing := [name for name in ("tf2onnx", "onnx") if importlib.util.find_spec(name) is None]:
        raise ImportError(f"ONNX needs {', '.join(missing)}, not installed (pip install 'tf_capsules[export]')")
    file = _free_file(file, "ONNX", _is_onnx)
    answer = _portable_answer("ONNX", model, preprocess, image_shape)

    import onnx
    import tf2onnx

    graph, _ = tf2onnx.convert.from_function(answer, answer.input_signature, opset=_ONNX_OPSET)
    graph.graph.input[0].doc_string = "float32 (batch, height, width, channels) in [0, 1]; the range is not checked"
    try:
        onnx.checker.check_model(graph, full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        raise ValueError(f"{model.name} has operations that can't be converted to ONNX: {error}") from error
    with replacing(file) as part:
        part.write_bytes(graph.SerializeToString())
    return file


def _free_file(file, form, is_of_form):
    """The path, if it does not exist, or if `is_of_form` finds a model of this form there; else a ValueError."""
    file = writable(file)
    if file.is_dir():
        raise ValueError(f"`file` must name a file; {file} is a folder.")
    if file.exists() and not is_of_form(file):
        raise ValueError(f"{file} is not overwritten: it exists, and is no {form} model.")
    return file


def _is_onnx(file):
    import onnx
    from google.protobuf.message import DecodeError

    try:
        return bool(onnx.load_model_from_string(file.read_bytes()).graph.node)
    except DecodeError:
        return False


def _portable_answer(form, model, preprocess, image_shape):
    """`image_answer` as a `tf.function` of operations that the converter to "LiteRT" or "ONNX" knows.

    Neither converter follows a loop over parts of a batch of unknown size. Networks with such loops run image by image.
    """
    model = without_feedback(model)
    shape = served_shape(model, preprocess, image_shape)
    inner_shape = augment.output_shape(preprocess, shape)
    answer = each = image_answer(model, preprocess, shape)
    network = image_answer(model, (), inner_shape)

    def traced(answer, batch, shape):
        return tf.function(answer, [tf.TensorSpec((batch, *shape))], autograph=False).get_concrete_function()

    def loops(graph):
        return any("While" in operation.type for operation in graph.get_operations())

    graph = traced(network, None, inner_shape).graph
    dtypes = {tensor.dtype.name for operation in graph.get_operations() for tensor in operation.outputs}
    if half := dtypes & {"bfloat16", "float16"}:
        hint = "load its weights into a model that is built with the dtype policy float32"
        raise ValueError(f"{form} is written in float32, the model computes in {half.pop()}: {hint}.")
    warn_of_image_logits(model, preprocess, shape)
    if loops(graph):
        if form == "ONNX" and loops(traced(network, 1, inner_shape).graph):
            raise ValueError(f"{model.name} loops within an image, which its ONNX form can't.")
        outputs = traced(each, 1, shape).structured_outputs
        specs = {name: tf.TensorSpec(x.shape[1:], x.dtype) for name, x in outputs.items()}

        def answer(images):
            return tf.map_fn(
                lambda image: {name: x[0] for name, x in each(image[None]).items()}, images, fn_output_signature=specs
            )
    elif form == "ONNX":
        answer = for_any_number(answer)
    return tf.function(answer, [tf.TensorSpec((None, *shape), tf.float32, "images")], autograph=False)
