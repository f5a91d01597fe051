"""Measure how close results are to the authors' numbers, and write the table of docs/accuracy.md.

    python benchmarks/accuracy.py            # prints the table
    python benchmarks/accuracy.py --write    # writes it into docs/accuracy.md

It needs the folder of reference data beside the checkout, and says so if that is missing. The Jacobians
take some minutes.
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
    parser.add_argument("--write", action="store_true", help="write the table into docs/accuracy.md")
    write = parser.parse_args().write
    if not (SHARED / "reference" / "mixing").is_dir():
        print(f"Reference data not found: {SHARED.name}/reference/mixing beside the checkout.")
        return 1
    single, double = (list(measured(COMPARISONS, SHARED, dtype)) for dtype in ("float32", "float64"))
    lines = [
        "| " + " | ".join(HEADS) + " |",
        "|" + "---|" * len(HEADS),
        *(row(comparison, off, exact) for (comparison, off), (_, exact) in zip(single, double, strict=True)),
    ]
    failed = [comparison for comparison, off in single if off > comparison.single]
    failed += [comparison for comparison, off in double if off > comparison.double]
    for comparison in failed:
        print(f"out of tolerance: {comparison.file} {comparison.quantity} {comparison.ours}")
    if write:
        page = PAGE.read_text(encoding="utf-8")
        PAGE.write_text(page[: page.index(MARK)] + "\n".join(lines) + "\n", encoding="utf-8")
    else:
        print("\n".join(lines))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
