"""Write ``src/colormaps.ts`` from matplotlib's tables: 256 RGB triples each, as base64.

Run from anywhere: ``python js/scripts/bake_colormaps.py``.
"""

from __future__ import annotations

import base64
from pathlib import Path

import matplotlib as mpl
import numpy as np

MAPS = {
    "viridis": "viridis",
    "cividis": "cividis",
    "blues": "Blues",
    "rdbu": "RdBu_r",  # red: positive
    "berlin": "berlin",  # the dark-centred twin of rdbu
}

HEAD = """/** Colour tables, 256 RGB triples each in base64. Made by js/scripts/bake_colormaps.py; do not edit. */
export const COLORMAPS = {
"""


def table(name: str) -> str:
    """256 x 3 bytes of the map ``name``, base64."""
    rgb = mpl.colormaps[name](np.arange(256) / 255)[:, :3]
    return base64.b64encode(np.round(rgb * 255).astype(np.uint8).tobytes()).decode("ascii")


def main() -> None:
    """Write the TypeScript file."""
    target = Path(__file__).parents[1] / "src" / "colormaps.ts"
    rows = "".join(f'  {ours}: "{table(theirs)}",\n' for ours, theirs in MAPS.items())
    target.write_text(f"{HEAD}{rows}}} as const;\n", encoding="utf-8")


if __name__ == "__main__":
    main()
