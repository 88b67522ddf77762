"""Predictions of an exported SavedModel for image files and texts."""

import importlib.util
import io
import itertools
import os
import pathlib

from tf_capsules.analysis.plots import draw_sentence_attribution
from tf_capsules.datasets.folder import upright
from tf_capsules.export.serving import is_saved_model
from tf_capsules.files import reading
from tf_capsules.lazy import tf
from tf_capsules.runs.exporting import FORMATS
from tf_capsules.runs.figures import save_figure
from tf_capsules.runs.folder import EXPORTED, RunFolder

MOST_TOKENS = 100  # in a picture of a text


class ExportedModel:
    """An exported SavedModel, or the one in a run folder, used through its signatures alone.

    Raises a FileNotFoundError if the folder is neither, a ValueError for a damaged or another model,
    or a run that was trained on after its export.
    """

    def __init__(self, folder):
        given = folder
        folder = next(filter(is_saved_model, (pathlib.Path(folder), pathlib.Path(folder, "saved_model"))), None)
        if folder is None:
            raise FileNotFoundError(
                f"{given} is neither an exported SavedModel nor a run that holds one; "
                "`tf-capsules export RUN` makes it."
            )
        config = _run_config(folder)
        several = config is not None and config["resolved"].get("metric") == "exact_match"
        self._names = config["data"]["class_names"] if several else ()
        self._threshold = (several and config["resolved"].get("threshold")) or 0.5
        if importlib.util.find_spec("tensorflow_text"):
            import tensorflow_text  # noqa: F401 (its operations are in the graphs of models of texts)
        self.folder = folder
        with reading(folder, "is no SavedModel that can be served"):
            self._loaded = tf.saved_model.load(str(folder))  # has to live as long as its signatures
            self.signatures = self._loaded.signatures
            self._takes = set(self.signatures["serving_default"].structured_input_signature[1])
            self.takes_images = "images" in self._takes
            for signature in self.signatures.values():
                if not {"class", "probabilities"} <= set(signature.structured_outputs):
                    answers = ", ".join(signature.structured_outputs)
                    raise ValueError(f"it answers {answers}, not class and probabilities")

    def predict(self, inputs):
        """Yields for each image file or text the recognised classes, and the model's answer, a dict of arrays.

        The classes are pairs of a label and a probability: the most probable class; in a run folder with several
        classes an image then the others above the recipe's threshold, by default 0.5. A ValueError or
        FileNotFoundError for inputs that are neither.
        """
        if "embeddings" in self._takes:
            raise ValueError(f"{self.folder} takes a transformer's hidden states: texts can't be given to it.")
        if "texts" in self._takes:
            return self._predict_texts(inputs)
        if "serving_bytes" in self.signatures:
            return self._predict_images(inputs)
        raise ValueError(f"{self.folder} takes images of neither 1 nor 3 channels: image files can't be given to it.")

    def _predict_images(self, paths):
        for path in paths:
            if not os.path.isfile(path):
                what = f"{path} is a folder, give its files." if os.path.isdir(path) else f"There is no file {path}."
                raise FileNotFoundError(what)
        for path in paths:
            try:
                answer = self.signatures["serving_bytes"](tf.constant([_upright(path)]))
            except tf.errors.InvalidArgumentError as error:
                raise ValueError(
                    f"{path} can't be read as an image: it is damaged, or not a PNG, JPEG, BMP, GIF or WebP file."
                ) from error
            yield self._recognised(answer)

    def _predict_texts(self, texts):
        files = [text for text in texts if os.path.isfile(text)]  # unlike pathlib's, false for an impossible name
        if files:
            raise ValueError(
                f"This model classifies texts: give each text itself, in quotes. Received a file: {files[0]}"
            )
        served = self.signatures.get("serving_attribution", self.signatures["serving_default"])
        for text in texts:
            yield self._recognised(served(texts=tf.constant([os.fsencode(text)])))

    def _recognised(self, answer):
        answer = {key: value.numpy()[0] for key, value in answer.items()}
        label = answer["label"].decode() if "label" in answer else str(answer["class"])
        pairs = enumerate(zip(self._names, answer["probabilities"].tolist(), strict=False))
        others = [pair for number, pair in pairs if number != answer["class"] and pair[1] > self._threshold]
        others.sort(key=lambda pair: -pair[1])
        return [(label, float(answer["probabilities"].max())), *others], answer


def _run_config(exported):
    """The configuration of the run whose folder holds this export, or None.

    Raises a ValueError if the run was trained on afterwards.
    """
    folder = RunFolder(exported.parent)
    now = folder.checkpoints()
    if exported.name != FORMATS["saved_model"] or not now:
        return None
    if (folder.path / EXPORTED).exists():
        then = folder.read_json(EXPORTED).get("epochs")
        if then != now[-1]:
            raise ValueError(
                f"{folder.path} was exported after epoch {then}, and trained to epoch {now[-1]} since: "
                f"`tf-capsules export {folder.path}` exports it anew."
            )
    try:
        return folder.config()
    except ValueError:  # of another version: the model is served without it
        return None


def _upright(path):
    """An image file as a client would send it: upright, opaque PNG or JPEG, as images are read for training."""
    from PIL import ExifTags, Image

    content = pathlib.Path(path).read_bytes()
    try:
        image = Image.open(io.BytesIO(content), formats=("PNG", "JPEG", "BMP", "GIF", "WEBP"))
        as_it_is = image.getexif().get(ExifTags.Base.Orientation, 1) == 1 and not image.has_transparency_data
    except Exception:  # no image that Pillow knows; TensorFlow decides whether it is one
        return content
    if image.format in ("PNG", "JPEG", "MPO") and as_it_is:
        return content
    sent = io.BytesIO()
    with reading(path, "can't be read as an image"):
        upright(image, "L" if image.mode[0] in "1LI" else "RGB").save(sent, "png")
    return sent.getvalue()


def save_attribution(answer, folder):
    """Draws into a folder what each token of a text was used for; returns the path, or None for too many tokens."""
    if len(answer["tokens"]) > MOST_TOKENS:
        return None
    tokens = [token.decode() for token in answer["tokens"]]
    names = [name.decode() for name in answer["labels"]] if "labels" in answer else range(len(answer["probabilities"]))
    figure = draw_sentence_attribution(tokens, answer["shares"], [str(name) for name in names], answer["probabilities"])
    taken = (pathlib.Path(folder) / f"attribution_{number}.png" for number in itertools.count(1))
    return save_figure(figure, next(path for path in taken if not path.exists()))
