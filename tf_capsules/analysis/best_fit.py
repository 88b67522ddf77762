"""The memory that TensorFlow's allocator takes on a CPU for a sequence of buffers, which is more than they hold."""

import bisect

GRAIN = 256  # bytes
SMALL = 2**18  # buffers up to this size are left to the C library
FIRST_REGION = 2**21
_WHOLE = 2**27  # what is left over of a chunk and as large as this is always split off


class BestFit:
    """Replays best fit with coalescing, the allocator that TensorFlow uses where it has oneDNN.

    Memory comes in regions, each at least twice as large as the one before, and once written to it stays with the
    process. A buffer gets the smallest free chunk that it fits into, all of it unless that is twice as large as asked
    for; free neighbours become one. For each grain of its regions it keeps a handle of eight bytes.
    """

    def __init__(self):
        self._next, self._sizes = FIRST_REGION, []
        self._written = []  # of each region the spans that were
        self._free = []  # chunks (size, region, start), in order
        self._used = {}

    @property
    def resident(self):
        """Bytes that have been written to, and the allocator's handles."""
        written = sum(end - start for spans in self._written for start, end in spans)
        return written + 8 * sum(self._sizes) // GRAIN

    def take(self, key, size):
        """A buffer of so many bytes, to be given back by its key."""
        if size <= SMALL:
            return
        needed = -(-size // GRAIN) * GRAIN
        place = bisect.bisect_left(self._free, (needed, -1, -1))
        if place == len(self._free):
            self._extend(needed)
            place = bisect.bisect_left(self._free, (needed, -1, -1))
        whole, region, start = self._free.pop(place)
        if whole >= 2 * needed or whole - needed >= _WHOLE:
            bisect.insort(self._free, (whole - needed, region, start + needed))
            whole = needed
        self._used[key] = whole, region, start
        self._written[region] = _joined(self._written[region], start, start + size)

    def give_back(self, key):
        """Frees a buffer; one that was too small to be kept here is passed over."""
        if key not in self._used:
            return
        whole, region, start = self._used.pop(key)
        end = start + whole
        for chunk in [c for c in self._free if c[1] == region and (c[2] + c[0] == start or c[2] == end)]:
            self._free.remove(chunk)
            start, end = min(start, chunk[2]), max(end, chunk[2] + chunk[0])
        bisect.insort(self._free, (end - start, region, start))

    def _extend(self, needed):
        while self._next < needed:
            self._next *= 2
        bisect.insort(self._free, (self._next, len(self._written), 0))
        self._written.append([])
        self._sizes.append(self._next)
        self._next *= 2


def _joined(spans, start, end):
    """Spans of bytes in order and apart from each other, with one more."""
    apart = [span for span in spans if span[1] < start or span[0] > end]
    met = [span for span in spans if span not in apart]
    return sorted([*apart, (min([start, *(s for s, _ in met)]), max([end, *(e for _, e in met)]))])
