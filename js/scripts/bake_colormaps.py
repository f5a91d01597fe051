"""Write ``src/colormaps.ts`` from matplotlib's tables.

Each map is kept as 41 evenly spaced RGB triples (base64); the page interpolates between
them. That is within 2.5 of 255 of matplotlib's own table, which this script checks before it writes.

Run from anywhere: ``python js/scripts/bake_colormaps.py``.
"""

from __future__ import annotations

import base64
from pathlib import Path

import matplotlib as mpl
import numpy as np

MAPS = {
    "viridis": "viridis",
    "rdbu": "RdBu_r",  # red: positive
    "berlin": "berlin",  # the dark-centred twin of rdbu
}
KNOTS = 41  # RdBu has 11 anchors: 41 knots hit all of them
ALLOWED = 2.5  # levels of 255

HEAD = f"""\
/** Colour maps as {KNOTS} RGB triples in base64. Made by js/scripts/bake_colormaps.py; do not edit. */
export const COLORMAPS = {{
"""


def table(name: str) -> str:
    """Knots of the map ``name``, base64; raises ValueError where interpolation would show."""
    full = mpl.colormaps[name](np.arange(256) / 255)[:, :3] * 255
    places = np.linspace(0, 255, KNOTS)
    knots = np.round([[np.interp(at, np.arange(256), full[:, c]) for c in range(3)] for at in places])
    back = np.stack([np.interp(np.arange(256), places, knots[:, c]) for c in range(3)], axis=1)
    worst = float(np.abs(back - full).max())
    if worst > ALLOWED:
        message = f"{name}: {KNOTS} knots miss the table by {worst:.1f} levels; raise KNOTS"
        raise ValueError(message)
    return base64.b64encode(knots.astype(np.uint8).tobytes()).decode("ascii")


def main() -> None:
    """Write the TypeScript file."""
    target = Path(__file__).parents[1] / "src" / "colormaps.ts"
    rows = "".join(f'  {ours}: "{table(theirs)}",\n' for ours, theirs in MAPS.items())
    target.write_text(f"{HEAD}{rows}}} as const;\n", encoding="utf-8")


if __name__ == "__main__":
    main()
