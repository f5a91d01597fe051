"""A user's picture, and as the model saw it; and the traces in memory with pictures or sounds, by id."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from attnwidgets.tracing.text.units import Box
    from attnwidgets.tracing.trace import Trace

    # Turns pixels [row, column, channel] of 0 to 255 into the model's inputs.
    Reads = Callable[[NDArray[np.uint8]], Mapping[str, Any]]

_COLOURS, _WHITE = 3, 255
_CHANNELS = (1, _COLOURS, _COLOURS + 1)  # grey; red, green and blue; and opacity
_EDGE = 2  # outermost pixels, in which a filter reads beyond the picture
_LEAST = 0.98  # of white: pixels that lie wholly in the picture, rather than in padding around it
_PROBE = 32  # side of a plain picture
_LOW, _LARGE = (
    8,
    512,
)  # where ramps begin, as far from black as from white; pixels from which on noise is full

Line = tuple[float, float]  # scale and shift

_TRACES: WeakValueDictionary[str, Trace] = WeakValueDictionary()


@dataclass(frozen=True, eq=False)
class Picture:
    """A picture.

    Args:
        seen: The picture that the model saw, [row, column, channel] of 0 to 255: resized, cut and padded,
            before its numbers were normalised. None where its input is a list of patches.
        given: The user's picture, [row, column, channel] of 0 to 255, without transparency; None if the user
            passed the model's input.
        scale: Pixels of the given picture for each pixel seen, (down, across); None if unknown.
        shift: Position in the given picture of the upper left corner of the seen picture, (down, across);
            negative where it was padded.
        areas: The area of the given picture that each of the model's views shows, in pixels, beyond the
            picture where it was padded; None for views without any of it. Empty if unknown.
    """

    seen: NDArray[np.uint8] | None
    given: NDArray[np.uint8] | None = None
    scale: tuple[float, float] | None = None
    shift: tuple[float, float] = (0.0, 0.0)
    areas: tuple[Box | None, ...] = ()

    def box(self, row: int, column: int, grid: tuple[int, int]) -> tuple[float, float, float, float]:
        """Return where a patch lies in the given picture, in pixels: (top, left, bottom, right).

        In the seen picture, if no picture was given.

        Args:
            row: Of the patch.
            column: Of the patch.
            grid: Rows and columns of all patches, as in `trace.units["patch"].grid`.

        Raises:
            ValueError: If `scale` and `shift` of the given picture are unknown.

        Example:
            >>> from attnwidgets.tracing.media.picture import Picture
            >>> seen = np.zeros((224, 224, 3), np.uint8)
            >>> Picture(seen, None, (2.0, 2.0), (10.0, 0.0)).box(0, 1, (16, 16))
            (10.0, 28.0, 38.0, 56.0)
        """
        if self.seen is None or self.scale is None:
            raise ValueError("it is not known how this picture was resized and cut")
        high, wide = (length / count for length, count in zip(self.seen.shape, grid, strict=False))
        corners = ((row * high, column * wide), ((row + 1) * high, (column + 1) * wide))
        (top, left), (bottom, right) = (
            [self.shift[axis] + self.scale[axis] * corner[axis] for axis in (0, 1)] for corner in corners
        )
        return top, left, bottom, right

    def __repr__(self) -> str:
        sizes = [
            f"{image.shape[1]} x {image.shape[0]} pixels {word}"
            for word, image in (("given", self.given), ("seen", self.seen))
            if image is not None
        ]
        return f"<Picture of {', '.join(sizes)}>"


def seen_pixels(pixels: NDArray[np.floating]) -> Picture | None:
    """Return the picture of a model's input [channel, row, column] from the least to the largest number.

    None unless it has one or three colours.
    """
    if pixels.ndim != _COLOURS or len(pixels) not in (1, _COLOURS):
        return None
    low, high = float(pixels.min()), float(pixels.max())
    scaled = (pixels - low) / (high - low or 1.0) * _WHITE
    seen = np.broadcast_to(scaled.transpose(1, 2, 0), (*pixels.shape[1:], _COLOURS))
    return Picture(np.round(seen).astype(np.uint8), None, (1.0, 1.0))


def views_in(inputs: Mapping[str, Any]) -> list[NDArray[np.floating] | None]:
    """Return the views of a picture in a model's inputs, [channel, row, column] each; [] without a picture.

    The last axes of a model's pixels are always these three; what is before them counts views (tiles, crops,
    the whole picture). Molmo 2 lists the patches of square views, row by row, each [row, column, channel]. A
    list of patches with its grid is a view whose pixels are not read: [None].
    """
    pixels = inputs.get("pixel_values")
    if pixels is not None and inputs.get("image_token_pooling") is not None:
        side, patch = math.isqrt(pixels.shape[-2]), math.isqrt(pixels.shape[-1] // _COLOURS)
        cut = pixels.reshape(-1, side, side, patch, patch, _COLOURS).permute(0, 5, 1, 3, 2, 4)
        pixels = cut.reshape(-1, _COLOURS, side * patch, side * patch)
    shape = tuple(getattr(pixels, "shape", ()))
    if len(shape) <= _COLOURS:
        listed = any(inputs.get(name) is not None for name in ("image_grid_thw", "spatial_shapes"))
        return [None] if listed and shape else []
    return list(pixels.reshape(-1, *shape[-_COLOURS:]).detach().float().cpu().numpy())  # type: ignore[union-attr]


def seen_by(reads: Reads, original: NDArray[np.uint8], inputs: Mapping[str, Any]) -> Picture:
    """Return a picture with the pixels that a processor makes of it, located by means of other pictures.

    Nothing is assumed about its options: a black and a white picture tell how numbers are normalised, a
    picture of the same size, in which red and green are a pixel's position, tells where each pixel of each
    view comes from.

    Args:
        reads: The processor.
        original: The picture, [row, column, channel].
        inputs: What it made of the picture.
    """
    unknown = Picture(None, original)
    views = views_in(inputs)
    if len(views) == 1 and views[0] is None:  # patches of the whole picture, in its proportions
        return replace(unknown, areas=((0.0, 0.0, float(original.shape[0]), float(original.shape[1])),))
    pixels = [view for view in views if view is not None and len(view) == _COLOURS]
    rows, columns = original.shape[:2]
    marked = [view for view in views_in(reads(_ramps(rows, columns))) if view is not None]
    if not pixels or [view.shape for view in marked] != [view.shape for view in pixels]:
        return unknown
    black, white = (_middle(reads(np.full((_PROBE, _PROBE, _COLOURS), c, np.uint8))) for c in (0, _WHITE))
    if black is None or white is None or not (white != black).all():
        return unknown
    fits = [_fit_view((view - black) / (white - black) * _WHITE, rows, columns) for view in marked]
    areas = tuple(None if fit is None else _area(fit, pixels[0].shape[1:]) for fit in fits)
    if len(pixels) > 1:
        return replace(unknown, areas=areas)
    seen = ((pixels[0] - black) / (white - black) * _WHITE).clip(0, _WHITE)
    image = np.round(seen).astype(np.uint8).transpose(1, 2, 0)
    if fits[0] is None:
        return Picture(image, original)
    (down, top), (across, left) = fits[0]
    return Picture(image, original, (down, across), (top, left), areas)


def _middle(inputs: Mapping[str, Any]) -> NDArray[np.floating] | None:
    """Return the colour in the middle of the first view [channel, 1, 1]: there may be padding around it."""
    view = next(iter(views_in(inputs)), None)
    return None if view is None else view[:, view.shape[1] // 2, view.shape[2] // 2, None, None]


def _fit_view(marked: NDArray[np.floating], rows: int, columns: int) -> tuple[Line, Line] | None:
    """Return scale and shift of a view down and across; None if too few of its pixels are of the picture."""
    down = _fit(marked[1], marked[2], rows, axis=0)
    across = _fit(marked[0], marked[2], columns, axis=1)
    return None if down is None or across is None else (down, across)


def _area(fit: tuple[Line, Line], size: tuple[int, ...]) -> Box:
    """Return the area of the given picture that a view of so many rows and columns of pixels shows."""
    (down, top), (across, left) = fit
    return top, left, top + down * size[0], left + across * size[1]


def _ramps(rows: int, columns: int) -> NDArray[np.uint8]:
    """Return a picture whose red rises with the column, green with the row, with all blue.

    Noise, which means take away, keeps the steps of 8-bit numbers from falling together with pixels.
    """
    image = np.full((rows, columns, _COLOURS), _WHITE, np.uint8)
    random = np.random.default_rng(0)
    for channel, count, axis in ((0, columns, 1), (1, rows, 0)):
        ramp = _LOW + (np.arange(count) + 0.5) / count * (_WHITE - 2 * _LOW)
        noise = random.uniform(-1, 1, (rows, columns)) * _LOW * min(1.0, count / _LARGE)
        image[..., channel] = np.round(np.expand_dims(ramp, 1 - axis) + noise)
    return image


def _fit(values: NDArray[np.floating], inside: NDArray[np.floating], count: int, axis: int) -> Line | None:
    """Return scale and shift of a side from the positions that pixels come from; None of too few pixels.

    Args:
        values: [row, column], positions as numbers of 0 to 255.
        inside: [row, column], 255 where the picture is, and other numbers in padding around it.
        count: Length of the side in pixels.
        axis: The side's axis.
    """
    whole = inside >= _LEAST * _WHITE
    inner = whole.sum(axis=1 - axis)
    numbers = np.flatnonzero((inner > 0) & (inner >= _LEAST * inner.max()))[_EDGE:-_EDGE]
    if len(numbers) < _EDGE:
        return None
    weights = np.where(whole, 1.0, 0.0)
    means = (values * weights).sum(axis=1 - axis) / inner.clip(1)
    positions = (means[numbers] - _LOW) / (_WHITE - 2 * _LOW) * count
    scale, shift = np.polyfit(numbers + 0.5, positions, 1)
    return float(scale), float(shift)


def as_given(image: Any) -> tuple[NDArray[np.uint8] | None, str]:
    """Return a picture as [row, column, channel] of 0 to 255, and the changes that were made, in words.

    None for pictures that only a processor can read.

    Args:
        image: A picture of Pillow, or numbers [row, column], [row, column, channel] or
            [channel, row, column]: whole numbers of 0 to 255, or floats of 0 to 1.

    Raises:
        ValueError: If it has no pixels, or holds NaN.
    """
    try:
        pixels = np.asarray(_plain_mode(image) if hasattr(image, "getbands") else image)
    except (TypeError, ValueError, RuntimeError):
        return None, ""
    if not pixels.size and pixels.ndim > 1:
        raise ValueError(f"image has no pixels: its shape is {pixels.shape}")
    if pixels.dtype.kind == "f":
        if np.isnan(pixels).any():
            raise ValueError("image holds NaN: its pixels must be numbers, 0 to 255 or 0 to 1")
        if pixels.min(initial=0) >= 0 and pixels.max(initial=0) <= 1:
            pixels = np.round(pixels * _WHITE).astype(np.uint8)
    if pixels.dtype != np.uint8 or pixels.ndim not in (2, _COLOURS):
        return None, ""
    pixels = pixels[..., None] if pixels.ndim < _COLOURS else pixels
    if pixels.shape[-1] not in _CHANNELS:
        pixels = pixels.transpose(1, 2, 0)
    if pixels.shape[-1] not in _CHANNELS:
        return None, ""
    pixels, warning = _on_white(pixels)
    return np.ascontiguousarray(np.broadcast_to(pixels, (*pixels.shape[:2], _COLOURS))), warning


def _plain_mode(image: Any) -> Any:
    """Return a picture of Pillow in bytes of red, green, blue and perhaps opacity, if it is of bytes."""
    if "A" in image.getbands() or "transparency" in image.info:
        return image.convert("RGBA")
    return image if image.mode[0] in "IF" else image.convert("RGB")


def _on_white(pixels: NDArray[np.uint8]) -> tuple[NDArray[np.uint8], str]:
    """Return pixels without opacity, as they are seen on white, and a warning if that changed any."""
    if pixels.shape[-1] <= _COLOURS:
        return pixels, ""
    opaque = pixels[..., _COLOURS:].astype(float) / _WHITE
    mixed = np.round(pixels[..., :_COLOURS] * opaque + _WHITE * (1 - opaque)).astype(np.uint8)
    changed = bool((opaque < 1).any())
    return mixed, "what is transparent in the picture is shown to the model as white" * changed


def know(trace: Trace) -> None:
    """Register a trace for `with_media` as long as it is in memory."""
    if trace.picture is not None or trace.sound is not None:
        _TRACES[trace.id] = trace


def with_media(trace_id: str) -> Trace | None:
    """Return the trace of this id if it has a picture or a sound, and is still in memory."""
    return _TRACES.get(trace_id)
