"""What attributions sum to, in words and numbers, where their method is meant to conserve the target."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from attnwidgets.explanations import Attributions

_COMPLETE = 1e-3
"""Share of the target below which what is missing is called rounding."""


def sums_of(attributions: Attributions) -> list[str]:
    """Return a line for every target: sum, target, and what is missing; [] where nothing is conserved."""
    if attributions.residual is None:
        return []
    sums = np.atleast_2d(attributions.values).sum(-1, dtype=np.float64)
    missing = np.broadcast_to(np.asarray(attributions.residual, dtype=np.float64), sums.shape)
    about = attributions.provenance
    what = "change from the baseline" if "change" in about else "target"
    lines = [_line(float(total), float(rest), what) for total, rest in zip(sums, missing, strict=True)]
    parts: Any = about.get("parts")
    if len(lines) == 1 and hasattr(parts, "items"):
        named = (f"{name} {_number(float(part))}" for name, part in parts.items() if name != "logit" and part)
        lines[0] += f"; the logit's parts: {', '.join(named)}"
    return lines


def verdict_of(attributions: Attributions) -> str:
    """Return what a method found about conservation in this architecture, or ""."""
    return str((attributions.provenance.get("conservation") or {}).get("verdict", ""))


def _line(total: float, rest: float, what: str) -> str:
    target = total + rest
    if abs(rest) <= _COMPLETE * max(abs(target), abs(total)):
        return f"sums to the {what}, {_number(target)} (missing {_number(rest, 1)})"
    return f"sum {_number(total)} of the {what}'s {_number(target)}: {_number(rest, 3)} is missing"


def _number(value: float, digits: int = 4) -> str:
    return f"{value:.{digits}g}".replace("-", "−")
