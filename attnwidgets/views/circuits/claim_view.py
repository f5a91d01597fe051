"""The view of claims: the verdict on a sentence, its controls, and the texts that speak against it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets._errors import suggest
from attnwidgets._tables import csv_of
from attnwidgets.circuits.claims.report import ClaimReport, ClaimResult, ClaimText
from attnwidgets.views.base.expressions import listed
from attnwidgets.views.base.needs import Needs
from attnwidgets.views.base.standalone_view import TextsView
from attnwidgets.views.base.view import View
from attnwidgets.views.circuits.patch_view import PatchView
from attnwidgets.views.maps.heatmap import Heatmap
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
_MOST_PINS = 400  # of a selection
_FEW_PINS = 20  # that are written in a line of code


class ClaimView(TextsView):
    """Claims about heads: the verdict, the effect next to its controls, and the texts against it.

    A single claim is shown; chips with their verdicts choose among several. At the left is the mean of
    the head with its interval, above the means of the heads that it is compared with; in the middle how its
    effect is spread over texts, with the margin; below are the texts that speak most against the claim.

    **Open** shows such a text at the claim's head, with the cells of its roles pinned: below, as a map of the
    head, or as the patching of the pair of a causal claim, which takes the time of patching all heads; or in
    `linked` views. Without a kernel, or for a report that was read from a file, the line of
    Python that does so is copied.

    Args:
        shown: Result of `claim.check` or `aw.circuits.check_claims`.
        claim: Sentence of the claim that is shown at first; None: the first.
        linked: A view of a trace of the same model, such as `aw.Explorer(trace)`: a text that is opened is
            shown in it, and in the views that are linked with it. None: it is shown below.

    Raises:
        TypeError: `shown` is not a report of claims, or `linked` is not a view of a trace.
        ValueError: The claim is unknown, or `linked` shows another model.
    """

    _VIEW = "ClaimView"
    NEEDS = Needs(("claims",))
    _HEIGHT = 520

    def __init__(
        self, shown: Any, *, claim: str | None = None, linked: Any = None, **options: Unpack[TitleOptions]
    ) -> None:
        if not isinstance(shown, ClaimReport):
            raise TypeError(
                f"ClaimView() shows the result of claim.check or aw.circuits.check_claims, not "
                f"{type(shown).__name__}."
            )
        names = [result.claim for result in shown]
        if claim is not None and claim not in names:
            raise ValueError(f"claim={claim!r} is not one of {names}.{suggest(claim, names)}")
        self._report = shown
        self._claim = 0 if claim is None else names.index(claim)
        self._opened: View | None = None
        model = linked.trace.model_id if isinstance(linked, View) and linked.traces else ""
        if model and self._model and model != self._model:
            raise ValueError(
                f"linked= shows {model}, and the claims are about heads of {self._model}: give a view of a "
                "trace of that model."
            )
        super().__init__(linked, **options)

    def _own_options(self) -> dict[str, Any]:
        return {**super()._own_options(), "claim": self._claim, "opened": None, "inner": [], "why": self._why}

    def _opens_in(self) -> str:
        return super()._opens_in() or ("" if self._why else "below")

    @property
    def _why(self) -> str:
        """Why no text can be opened without linked views; "" if it can."""
        if self._report.model is not None:
            return ""
        return "the report was read from a file, which holds no model; linked=aw.Explorer(trace) opens texts"

    @property
    def opened(self) -> View | None:
        """The view in which a text was opened last: the linked view, or the view below; None: none yet.

        Views of `view.opened.trace` are linked with it: `aw.Explorer(view.opened.trace)`.
        """
        return self._opened

    def open_text(self, at: int = 0, *, claim: str | None = None) -> View:
        """Open a text that speaks against a claim, as the reader does by its button; return the view.

        Args:
            at: Its index among the worst: 0 is the text that speaks most against the claim.
            claim: The sentence; None: the claim that is shown.

        Raises:
            KeyError: The claim is unknown.
            IndexError: The index of the text is out of range.
            ValueError: The report was read from a file, and no view is linked.
        """
        position = self.options["claim"]
        if claim is not None:
            position = self._report.results.index(self._report[claim])
        self._open(at, position)
        return self._opened  # type: ignore[return-value] # it was opened now

    def _open(self, at: int, claim: int = 0) -> Answer:
        result = self.result(int(claim))
        worst = result.worst(_WORST)
        if not 0 <= int(at) < len(worst):
            raise IndexError(f"text {at} is out of range: texts 0 to {len(worst) - 1} are listed.")
        text = worst[int(at)]
        if self._linked is not None:
            self._linked.show_text(text.text)
            opened = self._linked
        elif self._why:
            raise ValueError(f"no text can be opened: {self._why}.")
        else:
            opened = self._shown_below(result, text)
        layer, head = result.head
        pins = _cells(text, causal=opened.trace.is_causal())
        opened.at(method="attention", unit="token", layer=layer, head=head, pins=pins)
        self._opened = opened
        self.inner = () if opened is self._linked else (opened,)
        for view in self.inner:
            view.stand_ready()
        self.add_options(opened=[int(claim), int(at)], inner=[view.inside() for view in self.inner])
        return {}, []

    def _shown_below(self, result: ClaimResult, text: ClaimText) -> View:
        """Return a view of a text: a map, which goes on to it with its linked views; or of a pair."""
        # These load torch, which reading a report does not need.
        from attnwidgets.circuits.patch import patch
        from attnwidgets.tracing.recording.run import trace as record

        model, tokenizer = self._report.model, self._report.tokenizer
        before = next(iter(self.inner), None)
        if not result.causal and isinstance(before, Heatmap) and before.comm is not None:
            before.show_text(text.text)
            return before
        if result.causal:
            target, foil = text.answers or (None, None)
            patching = patch(
                text.text, text.corrupt, target, foil=foil, sites="head", model=model, tokenizer=tokenizer
            )
            opened: View = PatchView(patching, cells=[("head", *result.head)])
        else:
            opened = Heatmap(record(model, tokenizer, text.text))
        if before is not None:
            before.close()
        return opened

    def close(self) -> None:
        """Remove this view, and the view below it, from the browser."""
        if self.comm is None:
            return
        for view in self.inner:
            view.close()
        self.inner, self._opened = (), None
        self.add_options(opened=None, inner=[])
        super().close()

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
        """Yield the paths to the mean effect of a claim, by its index."""
        yield self._report, f".results[{int(claim)}].mean"
        yield self, f".result({listed(int(claim))}).mean"

    def result(self, claim: int | None = None) -> ClaimResult:
        """Return the result of checking a claim.

        Args:
            claim: Its index; None: the claim that is shown.
        """
        return self._report.results[self.options["claim"] if claim is None else claim]

    def _expressions(self) -> Iterator[dict[str, Any]]:
        for index in range(len(self._report)):
            yield {"of": "claim", "claim": index}

    def describe(self) -> str:
        """Return the verdict with its numbers and limits in words."""
        return str(self._report)

    def _still(self, theme: Theme) -> Sheet:
        from attnwidgets.views.still.circuits import claim_sheet

        return claim_sheet(self, theme)

    def _table(self) -> str:
        rows = self._report.to_rows()
        return csv_of([*rows[:1], *(row.values() for row in rows)])

    def __repr__(self) -> str:
        return f"{self._VIEW}({self._report!r})"


def _cells(text: ClaimText, *, causal: bool = False) -> list[tuple[int, int]]:
    """Return the cells from the tokens of a claim to those that it says they attend to.

    A claim of moving names the tokens in the opposite order, since the later token reads the earlier. If
    there are more cells than can be pinned, none is returned.

    Args:
        text: The text.
        causal: Whether tokens see only earlier tokens.
    """
    queries, keys = (text.target, text.source) if text.corrupt else (text.source, text.target)
    cells = [(query, key) for query in queries for key in keys if query > key or (query < key and not causal)]
    return cells if len(cells) <= _MOST_PINS else []


def _code(result: ClaimResult, text: ClaimText) -> str:
    """Return the Python that opens a text, in the usual names."""
    layer, head = result.head
    if result.causal:
        target, foil = text.answers or (None, None)
        named = listed(text.text, text.corrupt, *([] if target is None else [target]), foil=foil)
        rest = f'sites="head", model=model, tokenizer=tokenizer).view(cells=[("head", {layer}, {head})])'
        return f"aw.circuits.patch({named}, {rest}"
    pins = _cells(text)
    arguments = listed(layer=layer, head=head, pins=pins if 0 < len(pins) <= _FEW_PINS else None)
    return f"aw.Heatmap(aw.trace(model, tokenizer, {text.text!r})).at({arguments})  # {result.claim}"


def described(result: ClaimResult, margin: float) -> dict[str, Any]:
    """Return a claim for the browser (`ShownClaim` of claims/claim.ts)."""
    return {
        "claim": result.claim,
        "head": "{}.{}".format(*result.head),
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
            [text.text, text.corrupt, _number(text.value), _number(text.control), _code(result, text)]
            for text in result.worst(_WORST)
        ],
        "given": result.given,
        "needed": result.needed,
        "leftOut": [list(item) for item in result.left_out],
    }


def _number(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
