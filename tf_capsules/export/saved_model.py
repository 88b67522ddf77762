"""Networks on images as SavedModels."""

from tf_capsules.export.answers import for_any_number
from tf_capsules.export.images import decoded, image_answer, in_unit_range, served_shape, warn_of_image_logits
from tf_capsules.export.serving import free_folder, write_saved_model
from tf_capsules.lazy import tf
from tf_capsules.models.feedback import without_feedback


def export_saved_model(
    model, folder, preprocess=(), class_names=None, default="float32", image_shape=None, warmup=False
):
    """Writes a SavedModel that any TensorFlow server can run, with each weight stored once.

    Decoder, optimizer and metrics are left out: answers do not depend on them. The signatures take a batch of any
    size, also an empty one:

    | signature | argument | dtype and shape |
    | --- | --- | --- |
    | `serving_float32` | `images` | float32 (batch, height, width, channels) in [0, 1] |
    | `serving_uint8` | `images` | uint8 (batch, height, width, channels), 0 to 255 |
    | `serving_bytes` | `files` | string (batch,): encoded image files; for models of 1 or 3 channels |
    | `serving_default` | `images` | one of the first two, see `default` |

    Each returns a dict: "probabilities" float32 (batch, classes); for capsule networks "poses" float32
    (batch, classes, *pose); "class" int64 (batch,), the most probable; with `class_names` also "label" string (batch,).
    The loaded object also has `serve(images)`, which takes float32 or uint8 images; keep the object for as long as you
    call it. Float images with a NaN, or with a value that lies more than 0.01 outside [0, 1], get an
    `InvalidArgumentError`, and so does an animated WebP file. Files are PNG, JPEG, BMP, still WebP or GIF (its first
    frame). They are decoded to the model's channels and, if their size differs, resized (bilinear, antialiased).

    The export warns if it can tell that the model answers with logits.

    Args:
        model: a `CapsuleClassifier`, or a Keras model from images to class probabilities (batch, classes).
        folder: where to write, returned as a `pathlib.Path`; it may be absent or empty. An earlier SavedModel there is
            replaced when the new one is complete; any other folder is refused.
        preprocess: steps of `tf_capsules.datasets.augment`, as in evaluation, that become part of the served model.
        class_names: a name for each class, or None.
        default: what `serving_default` takes, "float32" or "uint8".
        image_shape: (height, width, channels) of the served images, before `preprocess`. None: what the model and the
            steps imply. It must be given if they leave it open (a crop, or a model for images of any size).
        warmup: also write a request of one example to each signature. TensorFlow Serving runs these requests when it
            loads the model, so that the first user does not wait. Needs the package tensorflow-serving-api.

    Raises:
        ValueError: before anything is written: a model of other inputs or answers, steps that do not lead to its
            images, too many or too few class names, an unknown default, or a folder that can't be written or holds
            something else than a SavedModel.
        ImportError: `warmup` without the package tensorflow-serving-api.
        RuntimeError: Keras runs on another backend than TensorFlow.

    Example:
        >>> export_saved_model(model, "saved_models/digits", class_names=[str(digit) for digit in range(10)])
        >>> served = tf.saved_model.load("saved_models/digits")
        >>> served.serve(images)["class"]
    """
    model = without_feedback(model)
    shape = served_shape(model, preprocess, image_shape)
    if default not in ("float32", "uint8"):
        raise ValueError(f'`default` must be "float32" or "uint8". Received: {default!r}')
    folder = free_folder(folder, warmup)
    warn_of_image_logits(model, preprocess, shape)

    answer = for_any_number(image_answer(model, preprocess, shape, class_names))

    @tf.function(autograph=False)
    def serve(images):
        return answer(in_unit_range(images))

    @tf.function(autograph=False)
    def serve_files(files):
        spec = tf.TensorSpec(shape, tf.float32)
        return answer(tf.map_fn(lambda file: decoded(file, shape), files, fn_output_signature=spec))

    specs = {dtype: tf.TensorSpec((None, *shape), dtype, "images") for dtype in ("float32", "uint8")}
    signatures = {f"serving_{dtype}": serve.get_concrete_function(spec) for dtype, spec in specs.items()}
    signatures["serving_default"] = signatures[f"serving_{default}"]
    if shape[-1] in (1, 3):
        signatures["serving_bytes"] = serve_files.get_concrete_function(tf.TensorSpec((None,), tf.string, "files"))

    return write_saved_model(folder, signatures, warmup, serve=serve)
