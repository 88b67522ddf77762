"""Labels in both their forms, class numbers and rows, as rows."""

from keras import ops


def class_rows(what, labels, predictions):
    """Labels as rows, and predictions, two arrays (batch, classes). Errors of other predictions begin with `what`."""
    labels, predictions = map(ops.convert_to_tensor, (labels, predictions))
    if len(predictions.shape) != 2:
        raise ValueError(f"{what} (batch, classes). Received predictions of shape {tuple(predictions.shape)}.")
    return class_targets(labels, predictions), predictions


def class_targets(labels, predictions):
    """Class numbers (batch,) or (batch, 1), or rows (batch, classes), as rows in the predictions' dtype.

    The predictions are (batch, classes, ...). With a single class, labels (batch, 1) are rows. A number that is no
    class gives a row of NaN: a graph can't raise an error, so NaN in the results shows it.
    """
    classes = predictions.shape[1]
    if getattr(labels.shape, "rank", 1) is None:  # of TensorFlow
        raise ValueError("Labels of unknown rank. If their form changes between calls, compile the model again.")
    shape = tuple(labels.shape)
    batches = {None, *shape[:1], predictions.shape[0]} - {None}
    fits = len(shape) in (1, 2) and len(batches) < 2
    if fits and len(shape) == 2 and shape[1] == classes:
        return ops.cast(labels, predictions.dtype)
    if fits and (len(shape) == 1 or shape[1] == 1):
        labels = ops.reshape(labels, (-1, 1))
        numbers = ops.cast(labels, "int32")
        known = ops.logical_and(numbers >= 0, numbers < classes)
        known = ops.logical_and(known, ops.cast(numbers, labels.dtype) == labels)  # 1.7 is no class, nor is 2**32
        rows = ops.cast(numbers == ops.arange(classes, dtype="int32"), predictions.dtype)
        return ops.where(known, rows, ops.full_like(rows, float("nan")))
    unknown = " Set the unknown number of columns, for example by `tf.ensure_shape`." if shape[1:] == (None,) else ""
    raise ValueError(
        f"Labels must be class numbers (batch,) or one-hot or multi-hot rows (batch, {classes}). "
        f"Received labels of shape {shape} for predictions of shape {tuple(predictions.shape)}.{unknown}"
    )
