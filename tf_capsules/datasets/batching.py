"""Which examples belong to which batch: the options of all streams, and their arithmetic."""

import dataclasses

import numpy as np

from tf_capsules.arguments import is_positive, is_whole, one_of, positive_int
from tf_capsules.datasets import augment


@dataclasses.dataclass(frozen=True)
class Batching:
    """Options of `Split.batches`, `ArrayBatches` and `StateBatches`.

    Args:
        count: how many examples there are.
        batch_size: examples a batch; the last batch of an epoch holds the rest.
        training: True: random order and augmentation. False: the order of the examples, no augmentation. Order,
            augmentation and generated images are a pure function of (seed, pass over the examples, index of the
            example). Without `epoch_size` a pass is an epoch.
        seed: of the training stream, 0 to 2**31 - 1.
        epochs, initial_epoch: the stream holds the epochs initial_epoch .. epochs - 1, one after another.
        limit: use the first `limit` examples only.
        epoch_size: number of examples in an epoch of training. An epoch goes on where the last one stopped: order,
            augmentation and generated images depend on the pass over all examples, not on the epoch. None: all.
        pad: fill an epoch's last batch with examples from the epoch's start, and yield weights (batch,). The fill has
            weight 0. Real examples weigh more, so that means are over them alone: in training over those of the batch
            (batch_size / their number), in evaluation over those of the epoch (steps * batch_size / size).
        mixup: (alpha, classes) mixes every training batch after its preprocessing (Zhang et al. 2018, as in Heinsen
            2019). x becomes (1 - r) x + r x[permutation], and so do the one-hot labels. There is one r from
            Beta(alpha, alpha) for each sample and one permutation for the batch. They are a pure function of (seed,
            epoch, step). The fill of `pad` is neither mixed nor mixed in.
        crop: for evaluation. A number from 0: the step "crop" takes a random window, a pure function of (crop, index
            of the example). One of `tf_capsules.datasets.augment.FIXED_CROPS`: that window. None: the central one.
        part: (index, count): only the rows of process `index` in each batch, when `count` processes train together.
            `count` must divide `batch_size`; `pad` must be set, so that all batches are equally large. None: all rows.

    Raises:
        ValueError: arguments out of their range.

    >>> batching = Batching(11, 4, epoch_size=6, training=True)
    >>> batching.steps, batching.order(1, np.arange(4))
    (2, (array([6, 7, 8, 9]), array([0, 0, 0, 0])))
    """

    count: int
    batch_size: int
    training: bool = False
    seed: int = 0
    epochs: int = 1
    initial_epoch: int = 0
    limit: int | None = None
    epoch_size: int | None = None
    pad: bool = False
    mixup: tuple | None = None
    crop: int | str | None = None
    part: tuple | None = None

    def __post_init__(self):
        positive_int("batch_size", self.batch_size)
        for name in ("training", "pad"):
            one_of(name, getattr(self, name), (True, False))
        for name in ("limit", "epoch_size"):
            if getattr(self, name) is not None:
                positive_int(name, getattr(self, name))
        if not is_whole(self.seed, 0, 2**31 - 1):
            raise ValueError(f"seed must be a whole number in 0 .. 2**31 - 1, not {self.seed!r}")
        if not is_whole(self.epochs, 1, 2**20 - 1) or not is_whole(self.initial_epoch, 0, self.epochs - 1):
            epochs = f"epochs {self.initial_epoch!r} to {self.epochs!r}"
            raise ValueError(f"{epochs}: need 0 <= initial_epoch < epochs < 2**20")
        if self.epoch_size is not None and not self.training:
            raise ValueError(f"epoch_size {self.epoch_size!r} is for training; in evaluation all examples are used")
        if self.part is not None:
            index, count = self.part if isinstance(self.part, (tuple, list)) and len(self.part) == 2 else (None, None)
            whole = is_whole(count, 1) and is_whole(index, 0, count - 1)
            if not whole or self.batch_size % count or not self.pad:
                must = "must be (index, count); count must divide batch_size, pad must be set"
                raise ValueError(f"part {self.part!r} {must}. Received: batch_size={self.batch_size}, pad={self.pad}")
        if self.mixup is not None:
            if not isinstance(self.mixup, (list, tuple)) or len(self.mixup) != 2:
                raise ValueError(f"mixup is a pair (alpha, classes), for instance (0.2, 5), not {self.mixup!r}")
            alpha, classes = self.mixup
            if not is_positive(alpha):
                raise ValueError(f"alpha of mixup must be a number above 0, not {alpha!r}")
            positive_int("classes of mixup", classes)
            if not self.training:
                raise ValueError(f"mixup {self.mixup!r} is for training; in evaluation images are not mixed")
        if (crop := self.crop) is not None:
            if not is_whole(crop, 0, 2**31 - 1) and crop not in (fixed := augment.FIXED_CROPS):
                raise ValueError(f"crop is a whole number from 0 to 2**31 - 1 or one of {fixed}, not {crop!r}")
            if self.training:
                raise ValueError(f"crop {crop!r} is for evaluation; in training each epoch has random crops of its own")

    def check_labels(self, labels):
        """Raises a ValueError unless these are numbers of classes, and few enough for `mixup`."""
        labels = np.asarray(labels)
        whole = labels.dtype.kind in "iuf" and (labels == np.rint(labels)).all()
        if not whole or labels.ndim != 1 or not 0 <= labels.min() <= labels.max() < 2**31:
            found = f"{labels.dtype} {labels.shape}: {np.array2string(labels, threshold=9, separator=', ')}"
            raise ValueError(f"labels are whole numbers (N,) from 0. Received: {found}")
        if self.mixup is not None and labels.max() >= self.mixup[1]:
            found = f"{labels.min()} to {labels.max()}"
            raise ValueError(f"mixup of {self.mixup[1]!r} classes needs labels from 0 to one less. Received: {found}")

    def check_steps(self, steps):
        """The preprocess steps that apply, as tuples; a ValueError if `crop` is given, unless exactly one is a crop."""
        steps = augment.check(steps) if self.training else augment.in_evaluation(steps)
        if self.crop is not None and [step[0] for step in steps].count("crop") != 1:
            raise ValueError(f'crops need one preprocess step "crop"; there are {steps!r}')
        return steps

    @property
    def examples(self):
        """How many different examples are used."""
        return min(self.count, self.limit or self.count)

    @property
    def size(self):
        """Number of examples in an epoch."""
        return self.epoch_size or self.examples

    @property
    def steps(self):
        """Number of batches in an epoch, the last short one included."""
        return -(-self.size // self.batch_size)

    @property
    def batches(self):
        """Number of batches in all epochs."""
        return self.steps * (self.epochs - self.initial_epoch)

    @property
    def rows(self):
        """The rows of each batch that this process gets, as a slice."""
        index, count = self.part or (0, 1)
        size = self.batch_size // count
        return slice(index * size, (index + 1) * size)

    def order(self, epoch, positions):
        """Maps positions in an epoch to places in a pass over all examples, and to its number: arrays or tensors."""
        places = positions % self.size
        if self.training:
            places += epoch * self.size
        return places % self.examples, places // self.examples

    def shares(self, real):
        """The weight of each real example in a batch that has `real` of them: see `pad`."""
        return self.batch_size / real if self.training else self.steps * self.batch_size / self.size
