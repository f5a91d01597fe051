"""The view of claims: the verdict on a sentence, its controls, and the texts that speak against it."""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets._errors import suggest
from attnwidgets._tables import spreadsheet_label
from attnwidgets.circuits.claims.report import ClaimReport, ClaimResult
from attnwidgets.views.base.expressions import listed
from attnwidgets.views.base.standalone_view import StandaloneView
from attnwidgets.views.wire.handlers import Handler

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from typing_extensions import Unpack

    from attnwidgets.figures.sheet import Sheet
    from attnwidgets.figures.theme import Theme
    from attnwidgets.views.base.expressions import Kinds, Path
    from attnwidgets.views.base.options import TitleOptions
    from attnwidgets.views.wire.handlers import Answer

_WORST = 5


class ClaimView(StandaloneView):
    """Claims about heads: the verdict, the effect beside its controls, and the texts against it.

    One claim is shown at a time; chips with their verdicts choose among several. At the left is the mean of
    the head with its interval, above the means of the heads that it is compared with; in the middle how its
    effect is spread over texts, with the margin; below are the texts that speak most against the claim, each
    with the line of Python that opens it in another view. Everything is in the page: no kernel is needed.

    Args:
        shown: What `claim.check` or `aw.circuits.check_claims` returned.
        claim: Sentence of the claim that is shown at first; None: the first.

    Raises:
        TypeError: `shown` is no report of claims.
        ValueError: There is no such claim.
    """

    _VIEW = "ClaimView"
    PARTS = ("claims",)
    _HEIGHT = 520

    def __init__(self, shown: Any, *, claim: str | None = None, **options: Unpack[TitleOptions]) -> None:
        if not isinstance(shown, ClaimReport):
            raise TypeError(
                f"ClaimView() shows what claim.check or aw.circuits.check_claims returned, not "
                f"{type(shown).__name__}."
            )
        names = [result.claim for result in shown]
        if claim is not None and claim not in names:
            raise ValueError(f"claim={claim!r} is not one of {names}.{suggest(claim, names)}")
        self._report = shown
        self._claim = 0 if claim is None else names.index(claim)
        super().__init__(**options)

    def _own_options(self) -> dict[str, Any]:
        return {"claim": self._claim}

    def _handlers(self) -> Mapping[str, Handler]:
        return {**super()._handlers(), "claims": Handler(self._data)}

    def _data(self) -> Answer:
        """Answer with the claims, the margin, the confidence of intervals, and the model's name."""
        claims = [described(result, self._report.margin) for result in self._report]
        about = {"margin": self._report.margin, "level": self._report.level, "model": self._model}
        return {"claims": claims, **about}, []

    @property
    def _model(self) -> str:
        return str(self._report.provenance.get("model") or "")

    def _numbers(self) -> Kinds:
        return {"claim": self._claim_paths}

    def _claim_paths(self, claim: int) -> Iterator[Path]:
        """Yield the paths to the mean effect of a claim, by its place."""
        yield self._report, f".results[{int(claim)}].mean"
        yield self, f".result({listed(int(claim))}).mean"

    def result(self, claim: int | None = None) -> ClaimResult:
        """Return what was found about a claim.

        Args:
            claim: Its place; None: the one that is shown.
        """
        return self._report.results[self.options["claim"] if claim is None else claim]

    def _expressions(self) -> Iterator[dict[str, Any]]:
        for place in range(len(self._report)):
            yield {"of": "claim", "claim": place}

    def describe(self) -> str:
        """Return the verdict with its numbers and limits in words."""
        return str(self._report)

    def _still(self, theme: Theme) -> Sheet:
        from attnwidgets.views.still.claims import claim_sheet

        return claim_sheet(self, theme)

    def _table(self) -> str:
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        for number, row in enumerate(self._report.to_rows()):
            if number == 0:
                writer.writerow(row)
            writer.writerow(
                [spreadsheet_label(cell) if isinstance(cell, str) else cell for cell in row.values()]
            )
        return out.getvalue()

    def __repr__(self) -> str:
        return f"{self._VIEW}({self._report!r})"


def described(result: ClaimResult, margin: float) -> dict[str, Any]:
    """Return a claim for the browser (`ShownClaim` of claims/claim.ts)."""
    head = result.claim.removeprefix("head ").split(" ")[0]
    return {
        "claim": result.claim,
        "head": head,
        "causal": result.causal,
        "unit": result.unit,
        "verdict": result.verdict,
        "control": result.control,
        "mean": _number(result.mean),
        "interval": [_number(end) for end in result.interval],
        "difference": _number(result.difference),
        "differenceInterval": [_number(end) for end in result.difference_interval],
        "heads": [
            [name, [[layer, head, _number(mean)] for layer, head, mean in heads]]
            for name, heads in result.heads.items()
        ],
        "baselines": [
            [name, _number(value)] for name, value in result.baselines.items() if not np.isnan(value)
        ],
        "values": [_number(text.value) for text in result.texts],
        "beyond": [_number(text.value - text.control) for text in result.texts],
        "below": result.below(margin),
        "worst": [
            [text.text, text.corrupt, _number(text.value), _number(text.control)]
            for text in result.worst(_WORST)
        ],
        "given": result.given,
        "leftOut": [list(one) for one in result.left_out],
    }


def _number(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
