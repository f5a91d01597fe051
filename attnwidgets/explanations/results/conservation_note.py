"""A note that compares the sum of attributions with the target, for methods that conserve the target."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from attnwidgets.explanations.results.attributions import Attributions

_COMPLETE = 1e-3
"""Share of the target below which a missing part counts as rounding."""


def sums_of(attributions: Attributions) -> list[str]:
    """Return a line for every target: sum + rest = target; [] if nothing is conserved."""
    totals, rests = _sums(attributions)
    lines = [
        _line(float(total), float(rest), other, attributions)
        for total, rest, other in zip(totals, rests, _other_stack(attributions, totals), strict=True)
    ]
    parts: Any = attributions.provenance.get("parts")
    if len(lines) == 1 and hasattr(parts, "items"):
        named = (f"{name} {_number(float(part))}" for name, part in parts.items() if name != "logit" and part)
        lines[0] += f"; the logit's parts: {', '.join(named)}"
    return lines


def accounts_of(attributions: Attributions) -> list[str]:
    """Return a sentence for every target on how much of it the elements have; [] without a residual."""
    totals, rests = _sums(attributions)
    others = _other_stack(attributions, totals)
    return [_account(*parts, attributions) for parts in zip(totals, rests, others, strict=True)]


def balance_of(attributions: Attributions) -> list[tuple[float, float]]:
    """Return for every target the sum over its tokens and the rest; [] if nothing is conserved."""
    return [(float(total), float(rest)) for total, rest in zip(*_sums(attributions), strict=True)]


def verdict_of(attributions: Attributions) -> str:
    """Return why no token has part of the relevance, and the verdict on the architecture, or ""."""
    conservation: Mapping[str, Any] = attributions.provenance.get("conservation") or {}
    verdict = str(conservation.get("verdict", ""))
    sinks = _other_sinks(attributions.provenance.get("options") or {})
    if not sinks or not conservation.get("conserved", True) or all(map(_complete, *_sums(attributions))):
        return verdict
    title = attributions.provenance.get("title") or attributions.method
    why = f"The part with no token is not an error: under {title} {sinks} receive relevance too."
    return f"{why} A separate check shows that nothing else is lost: {verdict}" if verdict else why


def _other_sinks(options: Mapping[str, Any]) -> str:
    """Return the sinks of relevance other than tokens under the options of `aw.lrp`, or ""."""
    some = " and ".join(name for name, receives in _optional_sinks(options) if receives)
    always = "the softmax of attention" if options.get("rule") == "attnlrp" else ""
    return ", and ".join(filter(None, (always, f"{some}, where a model has them," if some else "")))


def _optional_sinks(options: Mapping[str, Any]) -> list[tuple[str, bool]]:
    """Return parts that only some models have, and whether they receive relevance under these options."""
    return [
        ("biases", options.get("bias") == "absorb"),
        ("position embeddings", options.get("at") == "embedding"),
    ]


def _sums(attributions: Attributions) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the sum of every target's values and the rest of its score [target]; or empty."""
    if attributions.residual is None:
        return np.zeros(0), np.zeros(0)
    totals = np.atleast_2d(attributions.values).sum(-1, dtype=np.float64)
    return totals, np.broadcast_to(np.asarray(attributions.residual, dtype=np.float64), totals.shape)


def _other_stack(attributions: Attributions, totals: NDArray[np.float64]) -> list[float | None]:
    """Return the share of every target in the other stack of an encoder-decoder; None if unknown."""
    summed = (attributions.provenance.get("conservation") or {}).get("sum")
    if attributions.stack not in ("encoder", "decoder") or summed is None:
        return [0.0] * len(totals)
    if len(summed) != len(totals):  # some of the targets, or several explanations side by side
        return [None] * len(totals)
    return [float(whole - total) for whole, total in zip(summed, totals, strict=True)]


def _complete(total: float, rest: float) -> bool:
    return abs(rest) <= _COMPLETE * max(abs(total + rest), abs(total))


def _account(total: float, rest: float, other: float | None, attributions: Attributions) -> str:
    about = attributions.provenance
    score = f"{'a change of ' if 'change' in about else ''}{_number(total + (other or 0.0) + rest, 2)}"
    if other is None:
        return f"{_units(attributions).capitalize()} account for {_number(total, 2)}."
    begin = f"{_units(attributions).capitalize()} account for"
    if not other and _complete(total, rest):
        return f"{begin} all of {score}."
    elsewhere = f", the other stack's for {_number(other, 2)}" if other else ""
    options = about.get("options") or {}
    optional = [name for name, receives in _optional_sinks(options) if receives]
    sinks = [f"{' and '.join(optional)} (if any)"] * bool(optional)
    sinks += ["the softmax"] * (options.get("rule") == "attnlrp")
    if "conservation" not in about:
        why = "the rest is missing"
    else:
        keep = "keep" if optional else "keeps"
        why = f"{' and '.join(sinks)} {keep} the rest" if sinks else "the rest is with no token"
    return f"{begin} {_number(total, 2)} of {score}{elsewhere}; {why}."


def _line(total: float, rest: float, other: float | None, attributions: Attributions) -> str:
    about = attributions.provenance
    explained = "change from the baseline" if "change" in about else "target"
    # Relevance that no token has is in the model; other methods miss a part.
    lacking = "with no token" if "conservation" in about else "missing"
    tokens = f"sum of the {_units(attributions)}"
    if other is None:
        return f"{_number(total)} ({tokens}); {_number(rest)} ({lacking})"
    if not other and _complete(total, rest):
        return f"sums to the {explained}, {_number(total + rest)} (missing {_number(rest, 1)})"
    terms = [(total, tokens), (rest, lacking)]
    if other:
        terms.insert(1, (other, "the other stack's tokens"))
    written = f"{_number(total)} ({tokens})" + "".join(
        f" {'−' if value < 0 else '+'} {_number(abs(value))} ({name})" for value, name in terms[1:]
    )
    return f"{written} = {_number(total + other + rest)} ({explained})"


def _units(attributions: Attributions) -> str:
    unit = attributions.unit.replace("_", " ")
    return f"{unit}{'es' if unit.endswith('ch') else 's'}"


def _number(value: float, digits: int = 4) -> str:
    return f"{value:.{digits}g}".replace("-", "−")
