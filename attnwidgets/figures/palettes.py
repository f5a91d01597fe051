"""Colours of figures, as in the browser's light theme (`colour.ts`), and ramps of colours.

Ramps are curves in OKLab, spaced evenly in lightness (L* of CIELAB).

`js/scripts/bake_colormaps.py` writes the same colours for the page.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Float = NDArray[np.float64]

SCALE = "linear"
"""The scale of every view and figure where none was chosen."""

DECADES = 4
"""Decades that a logarithmic scale shows below its top."""

# By name: our ramps or matplotlib's map, first the default, of amounts and of signed values.
_AMOUNTS = {"paper": "paper", "viridis": "viridis", "cividis": "cividis", "greys": "greys"}
_SIGNED = {"orange-violet": "sides", "red-blue": "RdBu_r", "orange-purple": "PuOr_r"}
_BAR = 0.7  # how far along a ramp the colours of lines are
_EQUAL_CONTRAST = 0.179  # luminance on which black and white are read equally well
LEFT_OUT = (0.9, 0.9, 0.9, 1.0)
"""Background of NaN."""

WHITE, NIGHT = (255, 255, 255), (17, 17, 17)
"""The pages on which zero vanishes, in light and in dark themes."""


@dataclass(frozen=True, eq=False)
class Ramp:
    """The colours of a palette, by positions on it from 0 to 1.

    Attributes:
        table: [step, channel], 0 to 1.
        name: Its name.
    """

    table: Float
    name: str

    def __call__(self, share: Any) -> Any:
        """Return the colours of positions, with their opacity as the last channel: NaN is transparent."""
        shares = np.asarray(share, dtype=float)
        is_number = ~np.isnan(shares)
        steps = np.clip(np.where(is_number, shares, 0.0) * len(self.table), 0, len(self.table) - 1)
        return (
            np.concatenate([self.table, np.ones((len(self.table), 1))], axis=1)[steps.astype(int)]
            * (is_number[..., None])
        )

    def reversed(self) -> Ramp:
        """Return the colours from the last to the first."""
        return Ramp(self.table[::-1], f"{self.name}_r")


@dataclass(frozen=True)
class Span:
    """The range of a ramp, in which zero is the middle of signed values.

    Attributes:
        vmin: The value at position 0.
        vmax: The value at position 1.
        scale: "linear", "sqrt" or "log" (four decades below `vmax`), the same on both sides of zero.
    """

    vmin: float
    vmax: float
    scale: str = SCALE

    def __call__(self, value: Any) -> Any:
        """Return the positions of values."""
        low, high = float(self.forward(self.vmin)), float(self.forward(self.vmax))
        positions = (self.forward(value) - low) / ((high - low) or np.inf)
        return positions if np.ndim(value) else float(positions)

    def forward(self, value: Any) -> Any:
        """Return values on the scale."""
        values = np.asarray(value, dtype=float)
        if self.scale == "linear":
            return values
        size = np.abs(values)
        return np.sign(values) * (
            np.sqrt(size) if self.scale == "sqrt" else np.log10(np.maximum(size, self._least) / self._least)
        )

    def back(self, scaled: Any) -> Any:
        """Return the values that `forward` gives these numbers."""
        sizes = np.abs(np.asarray(scaled, dtype=float))
        size = {"linear": lambda: sizes, "sqrt": lambda: np.square(sizes)}.get(
            self.scale, lambda: self._least * 10.0**sizes
        )()
        return np.sign(scaled) * size

    @property
    def _least(self) -> float:
        return self.vmax * 10.0**-DECADES


def span_of(
    values: Any, *, signed: bool, vmin: float | None = None, vmax: float | None = None, scale: str = SCALE
) -> Span:
    """Return the range of values: from zero for shares, centred on zero for signed values."""
    numbers = np.asarray(values)
    finite = numbers[np.isfinite(numbers)]
    largest = float(np.abs(finite).max()) if finite.size else 0.0
    top = vmax if vmax is not None else largest or 1.0
    return Span(vmin if vmin is not None else (-top if signed else 0.0), top, scale)


def heat_map(palette: str, *, signed: bool, dark: bool = False) -> Ramp:
    """Return the colours of a palette; of the default palette if the palette does not suit the sign.

    Args:
        palette: Its name.
        signed: Whether values have a sign.
        dark: Whether the page is dark; ramps then begin at its colour.
    """
    palettes = _SIGNED if signed else _AMOUNTS
    name = palettes.get(palette, next(iter(palettes.values())))
    return _colours(f"{name}Night" if dark and name in RAMPS else name)


@cache
def _colours(name: str) -> Ramp:
    if name in RAMPS:
        return Ramp(ramp(name, 257), f"aw-{name}")
    if name == "greys":
        return Ramp(np.repeat(np.linspace(1.0, 0.0, 256)[:, None], 3, axis=1), name)
    from matplotlib import colormaps

    return Ramp(np.asarray(colormaps[name](np.arange(256)))[:, :3], name)


def ink_on(colour: Any) -> str:
    """Return black or white, whichever contrasts more with `colour` (relative luminance, WCAG 2)."""
    return inks_on([colour])[0]


def inks_on(colours: Any) -> list[str]:
    """Return the ink of each of several colours; see `ink_on`."""
    light = luminance(np.array([colour[:3] for colour in colours], dtype=float).reshape(-1, 3))
    return ["black" if is_light else "white" for is_light in (light > _EQUAL_CONTRAST).tolist()]


def channels_of(colour: str) -> tuple[float, float, float]:
    """Return the channels of "#rrggbb", 0 to 1."""
    red, green, blue = (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
    return red, green, blue


def to_hex(colour: Any) -> str:
    """Return channels from 0 to 1 as "#rrggbb"."""
    return "#" + "".join(f"{round(255 * float(channel)):02x}" for channel in colour[:3])


def place(value: Float, scale: str) -> Float:
    """Return positions, 0 to 1, of sizes from 0 to 1 on a scale."""
    shares = np.clip(value, 0.0, 1.0)
    if scale == "sqrt":
        return np.asarray(np.sqrt(shares))
    if scale == "log":
        least = 10.0**-DECADES
        return np.asarray(1 + np.log10(np.maximum(shares, least)) / DECADES)
    return np.asarray(shares)


def amount_colour(palette: str, *, dark: bool = False) -> str:
    """Return the colour of lines and bars of a head: the twin of `barColours` in js/src/colour.ts."""
    return to_hex(heat_map(palette, signed=False, dark=dark)(_BAR))


def sign_colours(palette: str) -> tuple[str, str]:
    """Return the colours of negative and positive lines."""
    colours = heat_map(palette, signed=True)
    return to_hex(colours((1 - _BAR) / 2)), to_hex(colours((1 + _BAR) / 2))


def round_up(value: float) -> float:
    """Return the smallest of 1, 1.5, 2, 3, 5, 7 times a power of ten that is not below a value."""
    if not value > 0 or not math.isfinite(value):
        return 0.0
    power = 10.0 ** math.floor(math.log10(value))
    steps = (1, 1.5, 2, 3, 5, 7, 10)
    return float(f"{next(step for step in steps if step * power >= value * (1 - 1e-9)) * power:.2g}")


class Arm(NamedTuple):
    """A curve from a page by `bend` to `end`: lightness (0 to 1), chroma and hue (degrees) in OKLab."""

    page: tuple[int, int, int]
    bend: tuple[float, float, float]
    end: tuple[float, float, float]
    last: float
    """L* of the last colour."""


_SIDES = {"day": 38.0, "night": 79.0}  # L* of both ends of a diverging ramp
_PAPER = {
    "day": Arm(WHITE, (0.66, 0.183, 247), (0.32, 0.112, 258), 21.0),
    "night": Arm(NIGHT, (0.48, 0.185, 252), (0.94, 0.032, 235), 92.5),
}
_FOR = {
    "day": Arm(WHITE, (0.77, 0.155, 62), (0.46, 0.118, 52), _SIDES["day"]),
    "night": Arm(NIGHT, (0.50, 0.125, 50), (0.83, 0.115, 62), _SIDES["night"]),
}
_AGAINST = {
    "day": Arm(WHITE, (0.72, 0.158, 294), (0.452, 0.150, 292), _SIDES["day"]),
    "night": Arm(NIGHT, (0.46, 0.190, 290), (0.83, 0.085, 298), _SIDES["night"]),
}
RAMPS: dict[str, tuple[Arm, ...]] = {
    "paper": (_PAPER["day"],),
    "paperNight": (_PAPER["night"],),
    "sides": (_AGAINST["day"], _FOR["day"]),
    "sidesNight": (_AGAINST["night"], _FOR["night"]),
}
"""By name in `js/src/colormaps.ts`: the arm of amounts, or those of negative and positive values."""

_FINE = 4001
_OUTSIDE = 0.003  # by how much a channel may leave sRGB: less than a level of 255

# Ottosson 2020, "A perceptual color space for image processing".
_CONES = np.array(
    [
        [0.4122214708, 0.5363325363, 0.0514459929],
        [0.2119034982, 0.6806995451, 0.1073969566],
        [0.0883024619, 0.2817188376, 0.6299787005],
    ]
)
_OKLAB = np.array(
    [
        [0.2104542553, 0.7936177850, -0.0040720468],
        [1.9779984951, -2.4285922050, 0.4505937099],
        [0.0259040371, 0.7827717662, -0.8086757660],
    ]
)
_KNEE = 0.04045  # below it sRGB is linear
_LUMINANCE = np.array([0.2126, 0.7152, 0.0722])


def ramp(name: str, steps: int = 256) -> Float:
    """Return the colours of a ramp [step, channel], 0 to 1; of a diverging one from -1 to 1."""
    arms = RAMPS[name]
    t = np.linspace(-1.0 if len(arms) > 1 else 0.0, 1.0, steps)
    return np.where((t < 0)[:, None], _along(arms[0], -t), _along(arms[-1], t))


def linear(colour: Float) -> Float:
    """Return the light of sRGB channels, both from 0 to 1."""
    return np.asarray(np.where(colour <= _KNEE, colour / 12.92, ((colour + 0.055) / 1.055) ** 2.4))


def encoded(light: Float) -> Float:
    """Return sRGB channels of light: the inverse of `linear`."""
    return np.asarray(
        np.where(light <= _KNEE / 12.92, 12.92 * light, 1.055 * np.maximum(light, 0.0) ** (1 / 2.4) - 0.055)
    )


def luminance(colour: Float) -> Float:
    """Return the relative luminance (0 to 1) of sRGB channels."""
    return np.asarray(linear(colour) @ _LUMINANCE)


def lightness(colour: Float) -> Float:
    """Return L* (0 to 100) of sRGB channels."""
    y = luminance(colour)
    return np.asarray(np.where(y > (6 / 29) ** 3, 116 * np.cbrt(y) - 16, y * (29 / 3) ** 3))


def _along(arm: Arm, t: Float) -> Float:
    """Return colours at positions from 0, the page, to 1, the end."""
    colours, light = _curve(arm)
    wanted = light[0] + np.clip(t, 0.0, 1.0) * (arm.last - light[0])
    rising = slice(None) if light[-1] > light[0] else slice(None, None, -1)
    columns = [np.interp(wanted, light[rising], colours[rising, channel]) for channel in range(3)]
    return np.stack(columns, axis=1)


@cache
def _curve(arm: Arm) -> tuple[Float, Float]:
    """Return many colours along an arm, and their lightness."""
    page = np.cbrt(linear(np.array(arm.page) / 255) @ _CONES.T) @ _OKLAB.T
    (bend, end) = (
        np.array([light, chroma * np.cos(np.deg2rad(hue)), chroma * np.sin(np.deg2rad(hue))])
        for light, chroma, hue in (arm.bend, arm.end)
    )
    u = np.linspace(0.0, 1.0, _FINE)[:, None]
    lab = (1 - u) ** 2 * page + 2 * u * (1 - u) * bend + u**2 * end
    colours = encoded((lab @ np.linalg.inv(_OKLAB).T) ** 3 @ np.linalg.inv(_CONES).T)
    if colours.min() < -_OUTSIDE or colours.max() > 1 + _OUTSIDE:
        message = f"{arm} leaves sRGB: between {colours.min():.4f} and {colours.max():.4f}; take less chroma"
        raise ValueError(message)
    colours = np.clip(colours, 0.0, 1.0)
    return colours, lightness(colours)
