"""A small synthetic set with smallNORB's factors: toy-like solids drawn by code. It is not smallNORB.

>>> pairs = render(label=2, instance=0, elevation=0, azimuth=range(18), lighting=0, size=32)
>>> pairs.shape
(18, 32, 32, 2)
"""

import functools
import itertools

import numpy as np

from tf_capsules.arguments import is_whole
from tf_capsules.datasets.novel_viewpoints import novel_viewpoints, rows
from tf_capsules.datasets.pipeline import Dataset, Split
from tf_capsules.datasets.rendering import Lighting, ball, bar, block, stereo_pairs
from tf_capsules.datasets.smallnorb import CLASS_NAMES

_INSTANCES = {"train": (4, 6, 7, 8, 9), "test": (0, 1, 2, 3, 5)}  # as in smallNORB
_FACTORS = {"label": 5, "instance": 10, "elevation": 9, "azimuth": 18, "lighting": 6}

_NOTE = "synthetic: solids drawn by code with the factors of smallNORB, not smallNORB"

_RADIUS = 0.8  # of a toy; half the width of the picture is 1
_PAIRS = 32  # drawn at a time
_TIRES, _GLASS = 0.5, 0.6
_LIGHTINGS = (
    Lighting(0.50, ((0.45, 125, 60),)),
    Lighting(0.42, ((0.40, 40, 55),)),
    Lighting(0.34, ((0.25, 160, 60), (0.12, -20, 50))),
    Lighting(0.55, ((0.45, -120, 65),)),
    Lighting(0.44, ((0.25, 20, 50), (0.25, 150, 50))),
    Lighting(0.60, ((0.40, -50, 65),)),
)


def rendered_toys(
    data_dir=None,
    download=False,
    size=48,
    train_pairs=2000,
    test_pairs=1000,
    elevations=tuple(range(9)),
    azimuths=tuple(range(18)),
    lightings=tuple(range(6)),
):
    """Synthetic toys from two cameras, with the classes, factors and arrays of smallNORB; drawn when it is loaded.

    Each split has five toys in each of five categories. Both splits have the same five kinds, in other proportions. The
    cameras are 6 degrees apart. There are 9 elevations of 30 to 70 degrees, 18 azimuths 20 degrees apart, 6 lightings.

    Args:
        data_dir, download: not used.
        size: pixels to a side.
        train_pairs, test_pairs: how many of a split's 24,300 pairs are drawn, chosen at random (seeds 0 and 1); None
            for all.
        elevations, azimuths, lightings: the numbers, from 0, that are drawn.

    Returns:
        A Dataset with images (size, size, 2). The splits' arrays also hold `instance`, `elevation`, `azimuth` and
        `lighting`, with the numbers of smallNORB.

    Raises:
        ValueError: before anything is drawn: a size below 8, a factor that is not there, more pairs than there are.
    """
    train, test = _drawn(size, train_pairs, test_pairs, *_shuffled(elevations, azimuths, lightings))
    return Dataset("rendered_toys", train, test, CLASS_NAMES, _NOTE)


def rendered_toys_novel_azimuth(
    data_dir=None, download=False, size=48, train_pairs=2000, test_pairs=1000, lightings=tuple(range(6))
):
    """Rendered toys, trained on azimuths 300 to 40. `familiar`: the test toys at these; test split: at others.

    Source of the division: Hinton, Sabour, Frosst 2018, section 5.1. Arguments and errors are those of
    `rendered_toys`. `test_pairs` counts familiar pairs (up to 8,100), and likewise novel pairs (up to 16,200).
    """
    return _novel("azimuth", size, train_pairs, test_pairs, lightings)


def rendered_toys_novel_elevation(
    data_dir=None, download=False, size=48, train_pairs=2000, test_pairs=1000, lightings=tuple(range(6))
):
    """As `rendered_toys_novel_azimuth`, trained on the three lowest elevations, 30 to 40 degrees."""
    return _novel("elevation", size, train_pairs, test_pairs, lightings)


def _novel(factor, size, train_pairs, test_pairs, lightings):
    parts = novel_viewpoints(*_shuffled(range(9), range(18), lightings), factor)
    train, familiar, novel = _drawn(size, train_pairs, test_pairs, *parts)
    return Dataset(f"rendered_toys_novel_{factor}", train, novel, CLASS_NAMES, _NOTE, familiar=familiar)


def _shuffled(*factors):
    """The columns of all training and of all test pairs of these factors, each in a fixed random order of its own."""
    for seed, instances in enumerate(_INSTANCES.values()):
        table = np.array(list(itertools.product(range(5), instances, *map(np.atleast_1d, factors))))
        order = np.random.default_rng(seed).permutation(len(table))
        yield dict(zip(_FACTORS, table.reshape(-1, len(_FACTORS))[order].T, strict=True))


def _drawn(size, train_pairs, test_pairs, *parts):
    """A split of each part, given as columns: training pairs, then test pairs."""
    chosen = []
    for columns in parts:
        option, pairs = ("test_pairs", test_pairs) if chosen else ("train_pairs", train_pairs)
        columns = _whole(columns)
        most = len(columns["label"])
        if pairs is not None and not is_whole(pairs, 1, most):
            raise ValueError(f"{option} must be a whole number from 1 to {most:,}, or None for all, not {pairs!r}")
        chosen.append(rows(columns, slice(pairs)))
    return [Split({"image": render(**columns, size=size)} | columns) for columns in chosen]


def _whole(columns):
    """The columns as whole numbers; a ValueError for a number that is not there."""
    for name, column in columns.items():
        wrong = column[(column < 0) | (column >= _FACTORS[name]) | (column % 1 != 0)]
        if wrong.size:
            raise ValueError(f"{name} is a whole number from 0 to {_FACTORS[name] - 1}, not {wrong[0]}")
    return {name: column.astype(int) for name, column in columns.items()}


def render(label, instance, elevation, azimuth, lighting, size=96):
    """Pictures of synthetic toys from the left and the right camera, (pairs, size, size, 2) uint8.

    Args:
        label: category, 0 .. 4 as in `CLASS_NAMES`; this and the next four are numbers or (pairs,).
        instance: which toy of the category, 0 .. 9.
        elevation: 0 .. 8 for 30, 35, .. 70 degrees.
        azimuth: 0 .. 17 for 0, 20, .. 340 degrees; at 0 the toy faces to the right.
        lighting: 0 .. 5.
        size: pixels to a side.

    Raises:
        ValueError: a number that is not there.
    """
    columns = np.broadcast_arrays(*map(np.atleast_1d, (label, instance, elevation, azimuth, lighting)))
    label, instance, elevation, azimuth, lighting = _whole(dict(zip(_FACTORS, columns, strict=True))).values()
    if not is_whole(size, 8):
        raise ValueError(f"size is a number of pixels, 8 or more, not {size!r}")
    images = np.empty((len(label), size, size, 2), np.uint8)
    groups, group = np.unique(np.stack([label, instance, lighting]), axis=1, return_inverse=True)
    for number, (category, which, light) in enumerate(groups.T):
        solids, middle = _toy(int(category), int(which))
        members = np.flatnonzero(group == number)
        for index in np.array_split(members, -(-len(members) // _PAIRS)):
            turns, heights = -90 - 20 * azimuth[index], 30 + 5 * elevation[index]
            images[index] = stereo_pairs(solids, turns, heights, _LIGHTINGS[light], size, middle)
    return images


@functools.cache
def _toy(label, instance):
    """The solids of a toy, scaled to size, and the middle of the toy."""
    random = np.random.default_rng((label, instance))
    kind = next(numbers.index(instance) for numbers in _INSTANCES.values() if instance in numbers)
    solids = _MAKERS[label](kind, random.uniform)
    corners = np.concatenate([solid.corners() for solid in solids])
    middle = (corners.min(0) + corners.max(0)) / 2
    scale = _RADIUS / np.linalg.norm(corners - middle, axis=1).max()
    offset = -scale * middle * (1, 1, 0)
    return [solid.moved(scale, offset) for solid in solids], scale * middle + offset


# The makers of toys: x is ahead, y to the left, z up from the floor; `pick(low, high)` draws a proportion.


def _animal(kind, pick):
    """Horse, dog, giraffe, hippopotamus, deer."""
    leg, girth, length, neck, rise, head = (
        (0.42, 0.15, 0.38, 0.30, 55, 0.10),
        (0.28, 0.11, 0.30, 0.13, 50, 0.11),
        (0.50, 0.14, 0.30, 0.62, 68, 0.085),
        (0.20, 0.23, 0.42, 0.10, 10, 0.16),
        (0.44, 0.12, 0.33, 0.24, 60, 0.085),
    )[kind]
    leg, girth, length, neck, rise = (value * pick(0.88, 1.15) for value in (leg, girth, length, neck, rise))
    back, thick, stride = leg + 0.75 * girth, (0.3 + 0.1 * (kind == 3)) * girth, pick(0.0, 0.1)
    solids = [
        ball((0, 0, back), (1.15 * length, 0.8 * girth, girth)),
        ball((0.62 * length, 0, back + 0.01), (0.5 * length, 0.9 * girth, 1.12 * girth)),
        ball((-0.62 * length, 0, back + 0.01), (0.48 * length, 0.88 * girth, 1.05 * girth)),
    ]
    for x, y in itertools.product((-0.78, 0.78), (-0.5, 0.5)):
        foot = (x * length + stride * np.sign(x * y), y * girth, 0)
        solids.append(bar((x * length, y * girth, back), foot, thick))
    rise = np.radians(rise)
    start = np.array([0.85 * length, 0, back + 0.35 * girth])
    skull = start + (neck + 0.3 * head) * np.array([np.cos(rise), 0, np.sin(rise)])
    snout = skull + (1.2 * head, 0, -0.35 * head)
    solids += [
        bar(start - (0.05, 0, 0.05), skull, 0.65 * head + 0.1 * girth),
        ball(skull, (1.3 * head, 0.85 * head, head)),
        ball(snout, (head * (1.3 if kind == 0 else 0.9), 0.6 * head, 0.55 * head)),
    ]
    for side in (-1, 1):
        ear = skull + (-0.3 * head, 0.55 * side * head, 0.6 * head)
        solids.append(bar(ear, ear + (-0.03, 0.3 * side * head, 0.75 * head), 0.28 * head))
        if kind == 4:
            fork = ear + (0.02, 0.09 * side, 0.24)
            solids += [bar(ear, fork, 0.025), bar(fork, fork + (0.14, 0.03 * side, 0.08), 0.022)]
            solids.append(bar(fork, fork + (-0.1, 0.08 * side, 0.14), 0.022))
    root = np.array([-1.1 * length, 0, back + 0.3 * girth])
    drop = (-0.32, 0.2, -0.25, -0.12, 0.05)[kind]
    return [*solids, bar(root, root + (-0.6 * abs(drop) - 0.05, 0, drop), 0.035 if kind == 0 else 0.025)]


def _human(kind, pick):
    """Standing with a spear, walking, aiming a rifle, arms raised, hands on the hips."""
    hip, trunk, wide, thick, head = (value * pick(0.9, 1.12) for value in (0.52, 0.4, 0.15, 0.068, 0.115))
    neck, stride = hip + trunk, (0.05, 0.24, 0.2, 0.02, 0.03)[kind] * pick(0.8, 1.2)
    apart = 0.1 + 0.08 * (kind in (3, 4))
    solids = [bar((0, 0, 0), (0, 0, 0.04), 0.3)]
    for side in (-1, 1):
        foot = np.array([side * stride, side * apart, 0.07])
        knee = np.array([0.5 * side * stride + 0.04, side * (apart + 0.08) / 2, 0.05 + 0.5 * hip])
        joint = (0, 0.08 * side, hip + 0.03)
        solids += [bar(foot, knee, 0.9 * thick), bar(knee, joint, 1.15 * thick), ball(knee, thick)]
        solids.append(ball(foot + (0.05, 0, 0), (0.12, 0.06, 0.05)))
    solids += [
        ball((0, 0, hip + 0.08), (0.75 * wide, 1.0 * wide, 0.13)),
        ball((0, 0, hip + 0.58 * trunk), (0.72 * wide, 1.05 * wide, 0.5 * trunk)),
        ball((0, 0, neck - 0.06), (0.6 * wide, 1.35 * wide, 0.085)),
        bar((0, 0, neck - 0.05), (0, 0, neck + 0.1), 0.05),
        ball((0.01, 0, neck + 0.07 + head), (head, 0.88 * head, 1.15 * head)),
        ball((0.02 + head, 0, neck + 0.05 + head), 0.025),
    ]
    # Directions of upper arm and forearm, as of a left arm.
    down, ahead = ((0.0, 0.25, -1.0), (0.25, 0.1, -1.0)), ((0.6, 0.3, -0.7), (0.95, -0.2, 0.25))
    raised, hips = ((0.1, 0.9, 0.45), (0.0, 0.3, 1.0)), ((-0.25, 0.85, -0.55), (0.3, -0.75, -0.7))
    swing = (0.55, 0.2, -0.85), (0.8, 0.0, -0.3)
    back = (-0.6, 0.2, -0.8), (-0.2, 0.1, -1.0)
    spear = (0.2, 0.9, -0.1), (0.5, 0.4, 0.75)
    arms = ((spear, down), (swing, back), (ahead, ahead), (raised, raised), (hips, hips))[kind]
    for side, (upper, lower) in zip((-1, 1), arms, strict=True):
        shoulder = np.array([0, 1.25 * side * wide, neck - 0.07])
        elbow = shoulder + 0.27 * np.array(upper) * (1, side, 1)
        hand = elbow + 0.27 * np.array(lower) * (1, side, 1)
        solids += [bar(shoulder, elbow, 0.8 * thick), bar(elbow, hand, 0.68 * thick)]
        solids += [ball(elbow, 0.8 * thick), ball(hand, 0.9 * thick)]
        if kind == 0 and side == -1:
            solids.append(bar(hand * (1, 1, 0) + (0, 0, 0.04), hand + (0, 0, 0.55), 0.025))
        if kind == 2 and side == -1:
            solids.append(bar(hand - (0.22, 0, 0.02), hand + (0.5, 0.05, 0.05), 0.03))
    crown = neck + 0.07 + 1.5 * head
    if kind in (0, 4):
        for height, radius in ((0.025, 1.9 * head), (0.12, head)):
            solids.append(bar((0, 0, crown), (0, 0, crown + height), radius))
    if kind == 2:
        solids.append(ball((-0.01, 0, crown - 0.02), (1.3 * head, 1.2 * head, 0.85 * head)))
    return solids


def _airplane(kind, pick):
    """With a propeller, with two jet engines, with four, a delta wing, a high wing."""
    span, chord, sweep, taper, length, thick = (
        (0.78, 0.30, 0.03, 0.70, 0.66, 0.105),
        (0.80, 0.30, 0.34, 0.35, 0.86, 0.100),
        (0.86, 0.28, 0.30, 0.40, 0.86, 0.110),
        (0.52, 0.72, 0.50, 0.12, 0.86, 0.085),
        (0.92, 0.24, 0.00, 0.85, 0.66, 0.095),
    )[kind]
    span, chord, sweep, length, thick = (value * pick(0.88, 1.12) for value in (span, chord, sweep, length, thick))
    middle, at = thick + 0.12, (0.16, 0.08, 0.08, -0.18, 0.16)[kind]
    wing = np.array([at, 0, middle + thick * (0.75 if kind == 4 else -0.45)])
    tail = np.array([-0.86 * length, 0, middle + 0.02])
    rise, fin = 0.0 if kind == 4 else 0.09, pick(0.2, 0.28)
    solids = [
        ball((0, 0, middle), (length, thick, thick)),
        bar(tail * (0.6, 1, 1), (0.5 * length, 0, middle), 0.9 * thick),
        ball((0.42 * length, 0, middle + 0.72 * thick), (0.17, 0.55 * thick, 0.55 * thick), _GLASS),
        block(tail - (0.12, 0.018, 0), tail + (0.12, 0.018, fin), {(0, 2): -0.09}, [(1, 0, 0.3, 1), (-1, 0, 0.1, 1)]),
    ]
    for side in (-1, 1):
        solids.append(_wing(wing, chord, side * span, sweep, rise, taper))
        if kind != 3:
            solids.append(_wing(tail, 0.2, side * 0.36 * span, 0.08, 0.02, 0.6))
        for share in {1: (0.36,), 2: (0.3, 0.62)}.get(kind, ()):
            front = wing + (0.55 * chord - sweep * share, side * share * span, rise * share - 0.07)
            solids.append(bar(front - (0.24, 0, 0), front, 0.058))
    if kind in (0, 4):
        nose = np.array([length, 0, middle])
        solids.append(bar(nose - (0.06, 0, 0), nose + (0.02, 0, 0), 0.035))
        solids += [block(nose - blade, nose + blade) for blade in ((0.01, 0.22, 0.03), (0.01, 0.03, 0.22))]
    return solids


def _wing(root, chord, span, sweep, rise, taper):
    """A wing from `root`, to the right if `span` is negative; its tip lies back by `sweep` and up by `rise`."""
    side, half = np.sign(span), np.array([chord, abs(span), 0.035]) / 2
    middle = root + np.array([-sweep, span, rise]) / 2
    slopes = [(ahead, 0.5 * (1 - taper) * side, 0, 0.5 * (1 + taper)) for ahead in (-1, 1)]
    return block(middle - half, middle + half, {(0, 1): -side * sweep / 2, (2, 1): side * rise / 2}, slopes)


def _truck(kind, pick):
    """With a box, a tank, a tipping trough, logs, a long box behind a hood."""
    length, half, wheel = 1.4 * pick(0.92, 1.15), 0.26 * pick(0.92, 1.1), 0.115 * pick(0.9, 1.1)
    nose, end, floor = length / 2, -length / 2, 1.35 * wheel
    cabin, height, slant = pick(0.28, 0.36), pick(0.42, 0.5), pick(0.08, 0.3)
    front = nose - 0.24 * (kind == 4)
    rear = front - cabin
    low, high = np.array([rear, -half, floor]), np.array([front, half, floor + height])
    slope, screen = [(1, 0, slant, 1)], [(1, 0, 0.48 * slant, 1)]
    solids = [
        block((end, -0.75 * half, floor - 0.06), (nose, 0.75 * half, floor + 0.04)),
        block(low, high, slopes=slope),
        block(low + (0.1, 0.03, 0.52 * height), high + (0.012, -0.03, -0.06), slopes=screen, paint=_GLASS),
        block(low + (0.07, -0.01, 0.52 * height), high + (-0.1, 0.01, -0.06), paint=_GLASS),
    ]
    if kind == 4:
        solids.append(block((front - 0.05, -0.85 * half, floor), (nose, 0.85 * half, floor + 0.5 * height)))
    bed, back, wide, tall = floor + 0.05, rear - 0.06, 1.04 * half, pick(0.52, 0.66)
    if kind in (0, 4):
        solids.append(block((end, -wide, bed), (back, wide, floor + tall)))
    if kind == 1:
        solids += [
            bar((end, 0, bed + half), (back, 0, bed + half), 0.95 * half),
            bar((0, 0, bed + half), (0, 0, bed + 2.1 * half), 0.08),
        ]
    if kind in (2, 3):
        solids.append(block((end, -wide, bed), (back, wide, bed + 0.06)))
    if kind == 2:
        solids += [block((x - 0.02, -wide, bed), (x + 0.02, wide, bed + 0.34)) for x in (end + 0.02, back - 0.02)]
        solids += [block((end, y - 0.02, bed), (back, y + 0.02, bed + 0.34)) for y in (-wide, wide)]
    if kind == 3:
        for y, up in ((-0.16, 0.16), (0, 0.16), (0.16, 0.16), (-0.08, 0.32), (0.08, 0.32)):
            solids.append(bar((end - 0.03, y, bed + up), (back - 0.03, y, bed + up), 0.085))
    axles = (nose - 0.2, end + 0.2, end + 0.2 + 2.15 * wheel)[: 3 if kind in (1, 4) else 2]
    return solids + _wheels(axles, half, wheel)


def _car(kind, pick):
    """Saloon, estate, sports car, hatchback, beetle."""
    length, half, wheel = 1.36 * pick(0.93, 1.1), 0.29 * pick(0.94, 1.08), 0.12 * pick(0.9, 1.08)
    ahead, behind, screen, back, roof = (
        (0.27, 0.20, 0.55, 0.45, 0.21),
        (0.27, 0.02, 0.50, 0.12, 0.22),
        (0.40, 0.14, 0.75, 0.80, 0.16),
        (0.25, 0.05, 0.50, 0.60, 0.23),
        (0.24, 0.14, 0.45, 0.60, 0.22),
    )[kind]
    length *= (1, 1, 1.02, 0.82, 0.85)[kind]
    nose, end, low, waist = length / 2, -length / 2, 0.55 * wheel, 1.35 * wheel + pick(0.09, 0.12)
    roof *= pick(0.92, 1.1)
    hull = [(1, 0, 0.2, 1.08), (-1, 0, 0.15, 1.08), (0, 1, 0.12, 1.06), (0, -1, 0.12, 1.06), (0.2, 0, 1, 1.08)]
    slopes = [(1, 0, screen, 1), (-1, 0, back, 1), (0, 1, 0.15, 1), (0, -1, 0.15, 1)]
    first = np.array([end + behind * length, -0.93 * half, waist - 0.03])
    last = np.array([nose - ahead * length, 0.93 * half, waist + roof])
    solids = [
        block((end, -half, low), (nose, half, waist), slopes=hull),
        block(first, last, slopes=slopes),
        block(first + (-0.012, 0.05, 0.05), last + (0.012, -0.05, -0.03), slopes=slopes, paint=_GLASS),
        block(first + (0.06, -0.008, 0.05), last + (-0.06, 0.008, -0.03), slopes=slopes, paint=_GLASS),
    ]
    if kind == 2:
        solids.append(block((end - 0.02, -0.95 * half, waist + 0.09), (end + 0.13, 0.95 * half, waist + 0.125)))
        for y in (-0.6 * half, 0.6 * half):
            solids.append(block((end + 0.02, y - 0.02, waist - 0.05), (end + 0.08, y + 0.02, waist + 0.1)))
    if kind == 4:
        for x, drop, height in ((0.62 * nose, 0.07, 0.14), (0.62 * end, 0.05, 0.17)):
            solids.append(ball((x, 0, waist - drop), (0.3, 0.75 * half, height)))
    return solids + _wheels((nose - 0.19 * length, end + 0.2 * length), half, wheel)


def _wheels(axles, half, radius):
    return [
        bar((x, side * (half - 0.09), radius), (x, side * (half + 0.012), radius), radius, _TIRES)
        for x, side in itertools.product(axles, (-1, 1))
    ]


_MAKERS = (_animal, _human, _airplane, _truck, _car)
