"""How many examples property tests and fuzzers try: a quarter in an everyday run, all in `make test-all`.

The time of an example decides nothing: on a busy machine any of them may take long.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

settings.register_profile("any load", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any load")

ALL_EXAMPLES = bool(os.environ.get("AW_ALL_EXAMPLES"))


def examples(count: int) -> int:
    """Return the number of examples of this run, of `count` in a whole run."""
    return count if ALL_EXAMPLES else max(1, count // 4)
