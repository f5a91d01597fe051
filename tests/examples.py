"""How many examples property tests and fuzzers try: a quarter in an everyday run, all in `make test-all`."""

from __future__ import annotations

import os

ALL_EXAMPLES = bool(os.environ.get("AW_ALL_EXAMPLES"))


def examples(count: int) -> int:
    """Return the number of examples of this run, of `count` in a whole run."""
    return count if ALL_EXAMPLES else max(1, count // 4)
