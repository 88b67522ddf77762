"""Which children a parent sees, and which parents compete for a child, where parents lie on a grid of their own."""

from keras import ops

# Axis legend as in `tf_capsules.routing.votes`; a parent's position counts as an example of a larger batch.


class Windows:
    """The windows of a convolution without padding, in which each parent position sees its children.

    Source: Hinton et al. 2018, section 3: a child divides itself among all parents that see it, of all types and at all
    positions. A child that no window covers takes no part.

    Args:
        height, width: of the children's grid.
        kernel_size, strides: of the windows, each (rows, columns).

    Attributes:
        shape: of the grid of parents, (rows, columns).
    """

    def __init__(self, height, width, kernel_size, strides=(1, 1)):
        self.grid, self.strides = (height, width), tuple(strides)
        self.offsets = [(row, column) for row in range(kernel_size[0]) for column in range(kernel_size[1])]
        self.shape = tuple((n - k) // s + 1 for n, k, s in zip(self.grid, kernel_size, strides, strict=True))
        if min(self.shape) < 1:
            raise ValueError(f"A grid of {height} x {width} children is smaller than the window {tuple(kernel_size)}.")
        self.positions = self.shape[0] * self.shape[1]
        self._span = tuple(s * (n - 1) + 1 for n, s in zip(self.shape, strides, strict=True))

    def gather(self, x):
        """(batch, height, width, types, ...) as (batch * positions, children of a window, ...).

        The order of the children is row, column, type; that of a sample's positions row, column.
        """
        (tall, wide), (down, across) = self._span, self.strides
        parts = [x[:, row : row + tall : down, column : column + wide : across] for row, column in self.offsets]
        x = ops.stack(parts, axis=3)
        shape = ops.shape(x)
        return ops.reshape(x, (shape[0] * self.positions, shape[3] * shape[4], *shape[5:]))

    def scatter(self, x, reduce=ops.add, empty=0.0):
        """(batch * positions, children of a window) as (batch, height, width, types): what `reduce` makes of a child.

        The transpose of `gather`; `empty` is the value of a place where nothing is.
        """
        x = ops.reshape(x, (-1, *self.shape, len(self.offsets), x.shape[1] // len(self.offsets)))
        results = [self._place(x[:, :, :, index], *offset, empty) for index, offset in enumerate(self.offsets)]
        total = results[0]
        for result in results[1:]:
            total = reduce(total, result)
        return total

    def _place(self, x, row, column, empty):
        """(batch, *shape, types) at every stride's place of the children's grid, from (row, column) on."""
        (down, across), types = self.strides, x.shape[3]
        x = ops.reshape(x, (-1, self.shape[0], 1, self.shape[1], 1, types))
        x = ops.pad(x, [[0, 0], [0, 0], [0, down - 1], [0, 0], [0, across - 1], [0, 0]], constant_values=empty)
        x = ops.reshape(x, (-1, self.shape[0] * down, self.shape[1] * across, types))
        x = x[:, : self._span[0], : self._span[1]]
        below, right = (n - start - span for n, start, span in zip(self.grid, (row, column), self._span, strict=True))
        return ops.pad(x, [[0, 0], [row, below], [column, right], [0, 0]], constant_values=empty)

    def couple(self, logits):
        """Couplings: logits normalised over all parents, types and positions, that see a child.

        Args:
            logits: (batch * positions, children of a window, parent types).

        Returns:
            An array of that shape, of which all that belongs to one child sums to 1.
        """
        # An initial value, for Keras refuses the maximum of an empty batch.
        highest = self.scatter(
            ops.stop_gradient(ops.max(logits, axis=-1, initial=float("-inf"))), ops.maximum, float("-inf")
        )
        joint = ops.exp(logits - self.gather(highest)[..., None])
        return joint / self.gather(self.scatter(ops.sum(joint, axis=-1)))[..., None]
