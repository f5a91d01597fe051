"""Write ``src/colormaps.ts`` from matplotlib's tables.

Each map is kept as evenly spaced RGB triples (base64); the page interpolates between them. That is within
a few of 255 levels of matplotlib's own table, which this script checks before it writes.

Run from anywhere: ``python js/scripts/bake_colormaps.py``.
"""

from __future__ import annotations

import base64
from pathlib import Path

import matplotlib as mpl
import numpy as np

# Our name: matplotlib's, triples, and levels of 255 that they may miss its table by.
MAPS = {
    "viridis": ("viridis", 41, 2.5),
    "rdbu": ("RdBu_r", 11, 1),  # red: positive; it has 11 anchors
    "berlin": ("berlin", 41, 1),  # the dark-centred twin of rdbu
    "cividis": ("cividis", 21, 7.5),  # one corner, in its darkest blue
    "puor": ("PuOr_r", 11, 1),  # orange: positive
    "managua": ("managua_r", 21, 1.1),  # its dark-centred twin
}

HEAD = """\
/** Colour maps as RGB triples in base64. Made by js/scripts/bake_colormaps.py; do not edit. */
export const COLORMAPS = {
"""


def table(name: str, knots: int, allowed: float) -> str:
    """Triples of matplotlib's map ``name``, base64; raises ValueError where interpolation would show."""
    full = mpl.colormaps[name](np.arange(256) / 255)[:, :3] * 255
    places = np.linspace(0, 255, knots)
    kept = np.round([[np.interp(at, np.arange(256), full[:, c]) for c in range(3)] for at in places])
    back = np.stack([np.interp(np.arange(256), places, kept[:, c]) for c in range(3)], axis=1)
    worst = float(np.abs(back - full).max())
    if worst > allowed:
        message = f"{name}: {knots} triples miss the table by {worst:.1f} levels; take more"
        raise ValueError(message)
    return base64.b64encode(kept.astype(np.uint8).tobytes()).decode("ascii")


def main() -> None:
    """Write the TypeScript file."""
    target = Path(__file__).parents[1] / "src" / "colormaps.ts"
    tables = {ours: table(*theirs) for ours, theirs in MAPS.items()}
    # White to black, and black to white for dark pages: two triples each.
    tables |= {"greys": "////AAAA", "ink": "AAAA////"}
    rows = "".join(f'  {name}: "{knots}",\n' for name, knots in tables.items())
    target.write_text(f"{HEAD}{rows}}} as const;\n", encoding="utf-8")


if __name__ == "__main__":
    main()
