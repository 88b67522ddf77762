"""The windows of a convolution, one after the other, and the forms of their gradient."""

from tf_capsules.layers.convolutional import ConvRoutingLayer


def windows_of(poses, mask, rows, columns):
    """Yields (row, column), the poses in that window as children (batch, children, ...), and their mask or None."""
    for row in range(poses.shape[1] - rows + 1):
        for column in range(poses.shape[2] - columns + 1):
            parts = [x if x is None else x[:, row : row + rows, column : column + columns] for x in (poses, mask)]
            children = parts[0].reshape(len(poses), -1, *poses.shape[4:])
            yield (row, column), children, None if mask is None else parts[1].reshape(len(poses), -1)


def memory_forms(monkeypatch):
    """Values of `votes_memory`; while the last is used, layers in windows take the gradient that the backend finds."""
    yield from ("auto", "store")
    monkeypatch.setattr(ConvRoutingLayer, "_differentiates_votes", lambda *_: True)
    yield "store"
