"""The view of a training: a head's map at a step; behaviour, pattern and cause over the steps."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets._errors import require_choice
from attnwidgets._selecting import position
from attnwidgets._tables import csv_of
from attnwidgets.training.curve import ClaimsByStep, Curve
from attnwidgets.training.measures import OFFSETS
from attnwidgets.training.run import TrainingRun
from attnwidgets.views.base.needs import Needs
from attnwidgets.views.base.standalone_view import StandaloneView, cut, numbers
from attnwidgets.views.wire.handlers import Handler
from attnwidgets.views.wire.thumbnails import GAMMA, encode

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from typing_extensions import Unpack

    from attnwidgets.figures.sheet import Sheet
    from attnwidgets.figures.theme import Theme
    from attnwidgets.tracing.trace import Trace
    from attnwidgets.views.base.expressions import Kinds, Path
    from attnwidgets.views.base.options import TitleOptions
    from attnwidgets.views.wire.handlers import Answer

PATTERNS = ("previous", *(f"{offset:+d}" for offset in OFFSETS))
"""Where a head looks: at the token before, or so far after the earlier copy of the query's token."""

_MAPS = 10  # steps of which a page holds the maps
_LARGEST = 65_534  # of two bytes; the number above it stands for a gap


class RunView(StandaloneView):
    """A model over its training: a head's map at a step, and what the model does, step by step.

    The slider goes from checkpoint to checkpoint: there is nothing between them, and the curves are points
    that lines only join. At the right are three curves with the same axis: behaviour (the share of the
    second copy of a text that the model continues), the pattern of the head (its attention to the token
    before, or at an offset from the earlier copy), and cause (the behaviour that is lost without the head).
    Each has a ring where it is first half way from its first to its last value. A click in the curves, or on
    a square of a claim, moves the slider. The view opens at the steepest rise.

    Maps come from the kernel as they are looked at. A page holds all curves, and the maps of ten steps.

    Args:
        shown: A run of `aw.checkpoints` or `aw.zoo.train.run`.
        text: The text of the map, or a row of token ids; None: the first text on which the curves are
            measured.
        claims: Claims to show below the curves: the result of `run.claims(...)`.
        step: The step at which the view opens; None: that of the steepest rise.
        layer: The layer at first; None: that of the head that attends most to the token after the copy.
        head: The head at first; None: the one that attends most to the token after the copy.

    Raises:
        TypeError: `shown` is not a run, or `claims` not the result of `run.claims`.
        IndexError: The step, layer or head is out of range.
        ValueError: The claims are of other steps.

    Example:
        >>> (first, tokenizer), (last, _) = aw.zoo.trained("induction", 0), aw.zoo.trained("induction", 1)
        >>> view = aw.checkpoints({0: first, 100: last}, tokenizer).view(step=100)
        >>> view.step
        100
    """

    _VIEW = "RunView"
    NEEDS = Needs(("training",))
    _HEIGHT = 520

    def __init__(
        self,
        shown: Any,
        *,
        text: Any = None,
        claims: Any = None,
        step: int | None = None,
        layer: int | None = None,
        head: int | None = None,
        **options: Unpack[TitleOptions],
    ) -> None:
        if not isinstance(shown, TrainingRun):
            raise TypeError(f"RunView() shows the result of aw.checkpoints, not {type(shown).__name__}.")
        if claims is not None and not isinstance(claims, ClaimsByStep):
            raise TypeError(f"claims must be the result of run.claims, not {type(claims).__name__}.")
        if claims is not None and claims.steps != shown.steps:
            raise ValueError("claims are of other steps than the run.")
        self._run, self._claims = shown, claims
        self._text = shown.texts().ids[0].tolist() if text is None else text
        self._curves, self._why = _measured(shown)
        heads = self._curves["induction"]
        best = heads.strongest
        layer = (best[0] if head is None else 0) if layer is None else layer
        layer = position(layer, heads.axes["layer"], "layer")
        if head is None:
            last = heads.values[[step not in shown.gaps for step in shown.steps]][-1]
            head = int(np.nanargmax(last[layer]))
        head = position(head, heads.axes["head"], "head")
        leading = self._curves.get("behaviour", heads.at(layer, head))
        opened = leading.steepest if step is None else step
        self._start_at: dict[str, Any] = {
            "step": position(opened, shown.steps, "step"),
            "layer": layer,
            "head": head,
            "pattern": "+1",
        }
        self._trace(self._start_at["step"])  # what a view opens with needs no model later
        super().__init__(**options)

    def _own_options(self) -> dict[str, Any]:
        return {**super()._own_options(), **self._start_at}

    @property
    def step(self) -> int:
        """The step that is shown."""
        return self._run.steps[int(self.options["step"])]

    @property
    def run(self) -> TrainingRun:
        """The run that is shown."""
        return self._run

    def curve(self, of: str) -> Curve:
        """Return a curve of the shown head.

        Args:
            of: "behaviour", "pattern" or "cause".

        Raises:
            ValueError: For another curve; without next-token predictions, only "pattern" is one.
        """
        choices = ["pattern", *(name for name in ("behaviour", "cause") if name in self._curves)]
        require_choice("of", of, choices)
        if of == "behaviour":
            return self._curves[of]
        layer, head, pattern = (self.options[name] for name in ("layer", "head", "pattern"))
        if of == "cause":
            return self._curves[of].at(layer, head)
        if pattern == "previous":
            return self._curves["previous"].at(layer, head)
        return self._curves["offset"].at(layer, head, int(pattern))

    def _handlers(self) -> Mapping[str, Handler]:
        maps = Handler(
            self._map, runs_model=True, for_page=self._page_maps, prefetched=lambda: (self._shown_map(),)
        )
        return {**super()._handlers(), "run": Handler(self._data), "map": maps}

    def _data(self) -> Answer:
        """Answer with the steps, all curves and the claims (`Run` of training/run.ts)."""
        run, curves = self._run, self._curves
        axis = self._trace(self._held()[0]).axes()[0]
        meta = {
            "steps": list(run.steps),
            "gaps": [run.gaps.get(step, "") for step in run.steps],
            "ended": run.ended,
            "heads": np.isfinite(self._patterns()[..., 0]).any(0).sum(-1).tolist(),
            "labels": [cut(label) for label in axis.tokens],
            "special": [int(special) for special in axis.units["token"].special],
            "held": self._held(),
            "why": self._why,
            "behaviour": numbers(curves["behaviour"].values) if "behaviour" in curves else None,
            "loss": numbers(curves["in-context loss"].values) if "behaviour" in curves else None,
            "claims": _described(self._claims),
        }
        patterns = np.where(np.isfinite(self._patterns()), np.rint(_LARGEST * self._patterns()), _LARGEST + 1)
        cause = curves["cause"].values if "cause" in curves else np.zeros(0)
        return meta, [patterns.astype("<u2").tobytes(), cause.astype("<f4").tobytes()]

    def _patterns(self) -> Any:
        """Return the share of attention that goes to each of `PATTERNS` [step, layer, head, pattern]."""
        return np.concatenate(
            [self._curves["previous"].values[..., None], self._curves["offset"].values], axis=-1
        )

    def _trace(self, step: int) -> Trace:
        return self._run.trace(self._text, self._run.steps[step])

    def _map(self, step: int, layer: int, head: int) -> Answer:
        """Answer with the map of a head at a step, by its index (`TileMeta` of wire.ts)."""
        layer, head = int(layer), int(head)
        trace = self._trace(range(len(self._run.steps))[int(step)])
        weights = np.asarray(trace.attention_rows(layer, [head], None), dtype=np.float32)[0]
        data, codec = encode(weights, scale=1.0, causal=trace.is_causal())
        rows, cols = weights.shape
        meta = {"source": "", "layer": layer, "head": head, "rows": rows, "cols": cols, "codec": codec}
        return {**meta, "gamma": GAMMA, "scale": 1.0}, [data]

    def _shown_map(self) -> dict[str, int]:
        return {name: int(self.options[name]) for name in ("step", "layer", "head")}

    def _held(self) -> list[int]:
        """Return the steps whose maps a page holds, by index: ten at most, the shown one among them."""
        finite = [at for at, step in enumerate(self._run.steps) if step not in self._run.gaps]
        even = {finite[round(at)] for at in np.linspace(0, len(finite) - 1, min(_MAPS, len(finite)))}
        shown = int((vars(self).get("options") or self._start_at)["step"])
        if shown in finite and shown not in even:
            even.remove(min(sorted(even)[1:-1] or even, key=lambda at: abs(at - shown)))
            even.add(shown)
        return sorted(even)

    def _page_maps(self) -> Iterator[dict[str, int]]:
        curve = self._curves["induction"]
        for step, layer, head in product(self._held(), curve.axes["layer"], curve.axes["head"]):
            if np.isfinite(curve.values[step, layer, head]):
                yield {"step": step, "layer": layer, "head": head}

    def _numbers(self) -> Kinds:
        return {"pattern": self._pattern_paths}

    def _pattern_paths(self, step: int, layer: int, head: int, pattern: str) -> Iterator[Path]:
        """Yield the paths to the attention of a head to a pattern, at a step by its index."""
        require_choice("pattern", pattern, PATTERNS)
        at = f"{int(layer)}, {int(head)}"
        curve = f".curve('offset').at({at}, {int(pattern)})" if pattern != PATTERNS[0] else ""
        path = f"{curve or f'.curve({pattern!r}).at({at})'}.values[{int(step)}].item()"
        yield self._run, path
        yield self, f".run{path}"

    def _expressions(self) -> Iterator[dict[str, Any]]:
        shown = {name: self.options[name] for name in ("layer", "head", "pattern")}
        for step in range(len(self._run.steps)):
            yield {"of": "pattern", "step": step, **shown}

    def describe(self) -> str:
        """Return when each of the curves of the shown head is half way, in words."""
        others = [name for name in ("behaviour", "cause") if name in self._curves]
        names = [*others[:1], "pattern", *others[1:]]
        said = [f"{self._run!r}.", *(self.curve(name).describe() for name in names)]
        if self._claims is not None:
            said += [f"{name}: {self._claims.when(name)}." for name in self._claims.verdicts]
        return " ".join(said)

    def _still(self, theme: Theme) -> Sheet:
        from attnwidgets.views.still.training import run_sheet

        return run_sheet(self, theme)

    def _table(self) -> str:
        columns = ("curve", "step", "layer", "head", "offset", "value")
        rows = [{"curve": name, **row} for name, curve in self._curves.items() for row in curve.to_rows()]
        return csv_of([columns, *([row.get(column, "") for column in columns] for row in rows)])

    def __repr__(self) -> str:
        return f"{self._VIEW}({self._run!r})"


def _described(claims: ClaimsByStep | None) -> list[list[str]]:
    """Return every claim, when it holds, and the first letters of its verdicts."""
    if claims is None:
        return []
    return [
        [claim, claims.when(claim), "".join(verdict[0] for verdict in verdicts)]
        for claim, verdicts in claims.verdicts.items()
    ]


def _measured(run: TrainingRun) -> tuple[dict[str, Curve], str]:
    """Return the curves of a run by name, and why there are none of its behaviour; "" if there are."""
    patterns = ["previous", "induction", "offset"]
    try:
        return run.curves([*patterns, "behaviour", "in-context loss", "cause"]), ""
    except ValueError as error:
        # A model that does not predict the next token still attends; any other error is raised again here.
        return run.curves(patterns), str(error)
