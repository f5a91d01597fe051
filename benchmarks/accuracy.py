"""Measure how far results are from the authors' numbers, and write the table of docs/accuracy.md.

    python benchmarks/accuracy.py            # prints the table
    python benchmarks/accuracy.py --write    # puts it into docs/accuracy.md

It needs the folder of reference data beside the checkout, and says so where that is absent. The
Jacobians take some minutes.
"""

from __future__ import annotations

import argparse
import sys

from tested import ROOT, SHARED

from tests.explanations.mixing.comparing import HEADS, measured, row
from tests.explanations.mixing.comparisons import COMPARISONS

PAGE = ROOT / "docs" / "accuracy.md"
MARK = "| file | quantity |"


def main() -> int:
    """Print the table, or write it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--write", action="store_true", help="put the table into docs/accuracy.md")
    write = parser.parse_args().write
    if not (SHARED / "reference" / "mixing").is_dir():
        print(f"The reference data is not here: {SHARED.name}/reference/mixing beside the checkout.")
        return 1
    single, double = (list(measured(COMPARISONS, SHARED, dtype)) for dtype in ("float32", "float64"))
    lines = [
        "| " + " | ".join(HEADS) + " |",
        "|" + "---|" * len(HEADS),
        *(row(one, off, exact) for (one, off), (_, exact) in zip(single, double, strict=True)),
    ]
    wrong = [one for one, off in single if off > one.single] + [
        one for one, off in double if off > one.double
    ]
    for one in wrong:
        print(f"beyond its tolerance: {one.file} {one.quantity} {one.ours}")
    if write:
        page = PAGE.read_text(encoding="utf-8")
        PAGE.write_text(page[: page.index(MARK)] + "\n".join(lines) + "\n", encoding="utf-8")
    else:
        print("\n".join(lines))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
