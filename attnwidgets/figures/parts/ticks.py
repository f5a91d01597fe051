"""Round numbers along an axis."""

from __future__ import annotations

import math
from itertools import pairwise

_STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)
_PLACES, _NOTHING = 6, 1e-6
_LARGE, _SMALL = 1e6, 1e-4  # from and below which numbers are written with a power of ten


def ticks(low: float, high: float, most: int, *, whole: bool = False) -> list[float]:
    """Return round numbers from `low` to `high`, in equal steps.

    Args:
        low: The lower end.
        high: The upper end.
        most: The largest number of steps between both ends.
        whole: Whether only whole numbers are meant.
    """
    reach = high - low
    if not reach > 0 or not math.isfinite(reach):
        return [low]
    power = 10.0 ** math.floor(math.log10(reach / most))
    steps = [size * power for size in _STEPS if not whole or _is_whole(size * power)]
    step = next((size for size in steps if size * most >= reach * (1 - 1e-9)), 10 * power)
    step = max(step, 1.0) if whole else step
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [number * step for number in range(first, last + 1)]


def tick_words(numbers: list[float]) -> list[str]:
    """Return numbers in words, all to the same place."""
    step = min((second - first for first, second in pairwise(numbers)), default=1.0)
    largest = max(map(abs, numbers), default=0.0)
    if largest >= _LARGE or 0 < step < _SMALL:
        return [f"{number:.3g}".replace("-", "−") for number in numbers]
    places = next(
        places for places in range(_PLACES + 1) if places == _PLACES or _is_whole(step * 10**places)
    )
    return [f"{number:.{places}f}".replace("-", "−") for number in numbers]


def _is_whole(number: float) -> bool:
    return abs(number - round(number)) < _NOTHING
