"""Write ``src/colormaps.ts`` from our own ramps and matplotlib's tables.

Each map is kept as evenly spaced RGB triples (base64); the page interpolates between them. That is within
a few of 255 levels of the full table, which this script checks before it writes.

Run from anywhere: ``python js/scripts/bake_colormaps.py``.
"""

from __future__ import annotations

import base64
from pathlib import Path
from typing import TYPE_CHECKING

import matplotlib as mpl
import numpy as np

from attnwidgets.figures.palettes import RAMPS, ramp

if TYPE_CHECKING:
    from numpy.typing import NDArray

# Our name: matplotlib's, triples, and levels of 255 that they may miss its table by.
MAPS = {
    "viridis": ("viridis", 41, 2.5),
    "rdbu": ("RdBu_r", 11, 1),  # red: positive; it has 11 anchors
    "berlin": ("berlin", 41, 1),  # the dark-centred twin of rdbu
    "cividis": ("cividis", 21, 7.5),  # one corner, in its darkest blue
    "puor": ("PuOr_r", 11, 1),  # orange: positive
    "managua": ("managua_r", 21, 1.1),  # its dark-centred twin
}
# Of each arm of our ramps, and the levels that they may miss by.
TRIPLES, ALLOWED = 17, 1.5

HEAD = """\
/** Colour maps as RGB triples in base64. Made by js/scripts/bake_colormaps.py; do not edit. */
export const COLORMAPS = {
"""


def baked(name: str, full: NDArray[np.float64], triples: int, allowed: float) -> str:
    """Return triples of a table [place, 3], base64; raises ValueError where interpolation would show."""
    at = np.arange(len(full))
    places = np.linspace(0, at[-1], triples)
    kept = np.round(np.stack([np.interp(places, at, full[:, c] * 255) for c in range(3)], axis=1))
    back = np.stack([np.interp(at, places, kept[:, c]) for c in range(3)], axis=1)
    worst = float(np.abs(back - full * 255).max())
    if worst > allowed:
        message = f"{name}: {triples} triples miss the table by {worst:.1f} levels; take more"
        raise ValueError(message)
    return base64.b64encode(kept.astype(np.uint8).tobytes()).decode("ascii")


def main() -> None:
    """Write the TypeScript file."""
    target = Path(__file__).parents[1] / "src" / "colormaps.ts"
    tables = {
        name: baked(name, ramp(name, 257), len(arms) * (TRIPLES - 1) + 1, ALLOWED)
        for name, arms in RAMPS.items()
    }
    for ours, (theirs, triples, allowed) in MAPS.items():
        tables[ours] = baked(ours, mpl.colormaps[theirs](np.arange(256) / 255)[:, :3], triples, allowed)
    # White to black, and black to white for dark pages: two triples each.
    tables |= {"greys": "////AAAA", "ink": "AAAA////"}
    rows = "".join(f'  {name}: "{knots}",\n' for name, knots in tables.items())
    target.write_text(f"{HEAD}{rows}}} as const;\n", encoding="utf-8")


if __name__ == "__main__":
    main()
