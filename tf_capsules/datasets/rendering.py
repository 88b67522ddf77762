"""Stereo pictures of convex solids by ray casting, with lamps and shadows on the floor, in NumPy.

A solid is an affine image of a ball, a round bar or a block. Camera and lamps are far away, so the rays of a picture
are parallel. A linear or quadratic equation says where a ray meets a solid.

>>> table = [block((-0.4, -0.3, 0.5), (0.4, 0.3, 0.6)), bar((0, 0, 0), (0, 0, 0.5), 0.1)]
>>> stereo_pairs(table, [20, 90, 160], [40, 40, 50], Lighting(0.4, ((0.5, 120, 60),)), size=32).shape
(3, 32, 32, 2)
"""

import dataclasses
import itertools
import typing

import numpy as np

PAINT, FLOOR = 0.78, 0.95  # share of the light that they reflect
_SAMPLES = 2  # rays per pixel and axis
_SKY = -55, 50  # where most of the ambient light comes from: azimuth and height, as of a lamp
_FACES = np.array([[*axis, 1.0] for axis in (*np.eye(3), *-np.eye(3))])


class Lighting(typing.NamedTuple):
    """The lamps about a scene. Seen by the cameras, a lamp of azimuth 0 is on the right, one of 90 behind the scene."""

    ambient: float  # the strength of the ambient light
    lamps: tuple  # (strength, azimuth, height) of each lamp; angles are in degrees


@dataclasses.dataclass(frozen=True, eq=False)
class Solid:
    """The points `centre + matrix @ p` of a convex set of places p in [-1, 1]^3; z is up, the floor is at 0.

    The set holds all p with `sum(curved * p**2) <= 1`, and `plane[:3] @ p <= plane[3]` for every plane.
    """

    centre: np.ndarray
    matrix: np.ndarray
    curved: tuple
    planes: np.ndarray
    paint: float

    def corners(self):
        """The corners of the block, p in [-1, 1]^3, that encloses the solid: (8, 3)."""
        return self.centre + np.array(list(itertools.product((-1, 1), repeat=3))) @ self.matrix.T

    def moved(self, scale, offset):
        """The solid, larger by a factor and then moved."""
        return dataclasses.replace(self, centre=self.centre * scale + offset, matrix=self.matrix * scale)


def ball(centre, radii, paint=PAINT):
    """An ellipsoid with its axes along x, y, z."""
    matrix = np.diag(np.broadcast_to(np.asarray(radii, float), 3))
    return Solid(np.array(centre, float), matrix, (1, 1, 1), _FACES[:0], paint)


def bar(start, end, radius, paint=PAINT):
    """A round bar with flat ends."""
    start, end = np.array(start, float), np.array(end, float)
    axis = (end - start) / 2
    side = np.cross(axis, np.eye(3)[np.abs(axis).argmin()])
    other = np.cross(axis, side)
    columns = [side * (radius / np.linalg.norm(side)), other * (radius / np.linalg.norm(other)), axis]
    return Solid((start + end) / 2, np.stack(columns, axis=1), (1, 1, 0), _FACES[[2, 5]], paint)


def block(low, high, shear=None, slopes=(), paint=PAINT):
    """A box between two corners, which may be sheared and cut.

    Args:
        shear: {(i, j): by}: axis i moves by `by` from the middle to the upper end of axis j.
        slopes: (x, y, z, limit), planes x p_x + y p_y + z p_z <= limit that cut the box; p is in [-1, 1]^3.
    """
    low, high = np.array(low, float), np.array(high, float)
    matrix = np.diag((high - low) / 2)
    for place, by in (shear or {}).items():
        matrix[place] += by
    planes = np.concatenate([_FACES, np.array(slopes, float).reshape(-1, 4)])
    return Solid((low + high) / 2, matrix, (0, 0, 0), planes, paint)


def stereo_pairs(solids, azimuths, elevations, lighting, size, target=(0, 0, 0), reach=1.0, stereo=6.0):
    """What a left and a right camera see of solids on a floor, (pairs, size, size, 2) uint8.

    Args:
        solids: sequence of `Solid`.
        azimuths, elevations: (pairs,), the place of the middle between the cameras, in degrees. Seen from azimuth -90,
            the x axis points to the right. As the azimuth grows, it turns clockwise, seen from above.
        lighting: a `Lighting`; the lamps move with the cameras.
        target: the point in the middle of the picture.
        reach: half the width that the picture shows.
        stereo: degrees of azimuth between the cameras.
    """
    from scipy.ndimage import uniform_filter

    turns, heights = np.tile(azimuths, 2), np.tile(elevations, 2)
    right, up, forward = _axes(turns + np.repeat([-stereo / 2, stereo / 2], len(azimuths)), heights)
    views, count, pixel = len(turns), size * _SAMPLES, 2 * reach / size

    def towards(turn, height):
        return -_axes(turns + 90 + turn, np.full(views, height))[2]

    sky, lamps = towards(*_SKY), [(strength, towards(*place)) for strength, *place in lighting.lamps]

    # Shadows are soft, so one ray a pixel is enough. The floor's points are linear in the pixel's place, too. Rays go
    # from there to the lamp.
    corner = target + (up - right) * (reach - pixel / 2)
    to_floor = np.eye(3) - forward[:, :, None] * [0, 0, 1] / forward[:, 2, None, None]
    floor = np.full((views, size, size), FLOOR * lighting.ambient, "float32")
    for strength, lamp in lamps:
        shadow = np.zeros_like(floor)
        rays = np.concatenate([to_floor @ np.stack([right, -up], axis=-1) * pixel, lamp[..., None]], axis=-1)
        for window, _, hit, _ in _trace(solids, _vectors(to_floor, corner), rays, size, None):
            shadow[window] = np.maximum(shadow[window], hit)
        edge = 2 * (size // 24) + 1
        shadow = uniform_filter(shadow, (1, edge, edge), mode="nearest")
        floor += np.float32(FLOOR * strength * lamp[0, 2]) * (1 - shadow)

    step = pixel / _SAMPLES
    corner = target + (up - right) * (reach - step / 2)
    rays = np.stack([right * step, -up * step, forward], axis=-1)
    light = floor.repeat(_SAMPLES, 1).repeat(_SAMPLES, 2)
    depth = np.full(light.shape, np.inf, "float32")
    traced = _trace(solids, corner, rays, count, (lighting.ambient, sky, lamps))
    for solid, (window, near, hit, shade) in zip(solids, traced, strict=True):
        behind = depth[window]
        closer = hit & (near < behind)
        depth[window] = np.where(closer, near, behind)
        light[window] = np.where(closer, np.float32(solid.paint) * shade, light[window])
    pixels = np.clip(light.reshape(2, -1, size, _SAMPLES, size, _SAMPLES).mean((3, 5)), 0, 1)
    return np.moveaxis(np.rint(pixels * 255).astype(np.uint8), 0, -1)


def _axes(azimuths, elevations):
    """Right, up and forward (views, 3) of cameras that look at the origin."""
    a, e = np.radians(azimuths), np.radians(elevations)
    right = np.stack([-np.sin(a), np.cos(a), np.zeros_like(a)], axis=-1)
    forward = -np.stack([np.cos(e) * np.cos(a), np.cos(e) * np.sin(a), np.sin(e)], axis=-1)
    return right, np.cross(right, forward), forward


def _vectors(matrices, vectors):
    return (matrices @ vectors[..., None])[..., 0]


def _trace(solids, corner, rays, count, lights):
    """Where the rays of each view meet each solid.

    The first pixel's ray begins at `corner`, (views, 3). The columns of `rays`, (views, 3, 3), lead from a pixel's ray
    to the next on the right, to the next below, and along a ray. `lights` are ambient strength, direction of the sky,
    and lamps; None: no shades. Yields for each solid a window (three index arrays), and three arrays (views, height,
    width) in it: how far along its ray the solid is met, whether it is met, and how much light falls there.
    """
    pixels = np.linalg.inv(rays)
    for solid in solids:
        curved, inverse = np.array(solid.curved), np.linalg.inv(solid.matrix)
        back = pixels @ solid.matrix
        middle = _vectors(pixels, solid.centre - corner)[:, :2]
        spread = (np.sqrt(back**2 @ curved) + np.abs(back) @ (1 - curved))[:, :2]
        low, high = np.ceil(middle - spread), np.floor(middle + spread) + 1
        width, height = np.clip((high - low).max(0), 1, count).astype(int)
        left, top = np.clip(low, 0, count - np.array([width, height])).astype(int).T
        across, down = left[:, None, None] + np.arange(width), (top[:, None] + np.arange(height))[:, :, None]
        window = np.arange(len(rays))[:, None, None], down, across
        yield window, *_meet(solid, inverse, corner, rays, np.float32(across), np.float32(down), lights)


def _meet(solid, inverse, corner, rays, across, down, lights):
    """What `_trace` yields of one solid."""
    corner, rays = np.float32((corner - solid.centre) @ inverse.T), np.float32(inverse @ rays)
    inverse, planes, axes = np.float32(inverse), np.float32(solid.planes), np.flatnonzero(solid.curved)

    def linear(direction):
        """Start and slope of the rays in a direction, in the coordinates of the solid."""
        x, y, slope = (direction @ rays).T[..., None, None]
        return x * across + (y * down + (corner @ direction)[:, None, None]), slope

    near = np.full((len(rays), down.shape[1], across.shape[2]), -np.inf, "float32")
    far, face = -near, np.zeros(near.shape, "int8")
    for number, (*direction, limit) in enumerate(planes):
        begin, slope = linear(np.array(direction))
        slope = np.where(np.abs(slope) < 1e-6, np.float32(1e-6), slope)  # a ray along the plane
        met = (limit - begin) / slope
        far = np.minimum(far, np.where(slope < 0, np.inf, met))
        met = np.where(slope < 0, met, -np.inf)
        face = np.where(met > near, np.int8(number), face)
        near = np.maximum(near, met)
    view = np.arange(len(rays))[:, None, None]
    shade = None if lights is None or not len(planes) else _shade((planes[:, :3] @ inverse)[None], *lights)[view, face]
    if not len(axes):
        return near, near < far, shade
    places, along = zip(*(linear(axis) for axis in np.eye(3, dtype="float32")[axes]), strict=True)
    a = np.maximum(sum(k * k for k in along), np.float32(1e-6))
    b = sum(k * p for k, p in zip(along, places, strict=True))
    square = b * b - a * (sum(p * p for p in places) - 1)
    root = np.sqrt(np.maximum(square, 0))
    met = (-b - root) / a
    far = np.where(square > 0, np.minimum(far, (root - b) / a), -np.inf)
    if lights is not None:
        gradient = np.stack([p + met * k for k, p in zip(along, places, strict=True)], axis=-1) @ inverse[axes]
        rounded = _shade(gradient, *lights)
        shade = rounded if shade is None else np.where(met > near, rounded, shade)
    near = np.maximum(near, met)
    return near, near < far, shade


def _shade(normals, ambient, sky, lamps):
    """The light (views, ...) on surfaces with normals (views or 1, ..., 3)."""
    normals = normals / np.linalg.norm(normals, axis=-1, keepdims=True)

    def facing(directions):
        return np.einsum("v...i,vi->v...", normals, np.float32(directions))

    normals = np.broadcast_to(normals, (len(sky), *normals.shape[1:]))
    light = np.float32(ambient) * (np.float32(0.65) + np.float32(0.35) * facing(sky))
    for strength, lamp in lamps:
        light += np.float32(strength) * np.maximum(facing(lamp), 0)
    return light
