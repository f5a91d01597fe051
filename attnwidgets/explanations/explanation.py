"""What every explanation is: labelled, immutable numbers with provenance, which know how to be shown."""

from __future__ import annotations

import base64
import sys
import uuid
import warnings
from abc import abstractmethod
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, NoReturn

from attnwidgets._errors import quoted
from attnwidgets.explanations.results.description import frozen, plain
from attnwidgets.explanations.results.tables import Table
from attnwidgets.explanations.viewable import Viewable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    from matplotlib.figure import Figure
    from typing_extensions import Self

    from attnwidgets.explanations.results.arrays import Array


class Outcome(NamedTuple):
    """One outcome the model considered: its display string, probability and id."""

    label: str
    probability: float
    id: int


class Outcomes(NamedTuple):
    """What the model predicted: a title ("next token", "class") and the outcomes, most probable first."""

    title: str
    items: tuple[Outcome, ...]

    @staticmethod
    def of(title: str, items: Iterable[Any]) -> Outcomes:
        """Return predictions from anything with label, probability and id."""
        return Outcomes(title, tuple(Outcome(str(i.label), float(i.probability), int(i.id)) for i in items))


class Explanation(Table, Viewable):
    """Numbers about a trace, with labels and provenance. Frozen: every verb returns a new explanation.

    Attributes:
        method: Name of the method in the registry.
        unit: Name of the unit that the axes are read in.
        stack: "self", or "encoder", "decoder" or "cross".
        provenance: How the numbers came about: method, options, model, text, paper, and `steps`, what was
            done to them since, in words.
        trace_id: The trace that the numbers belong to; views of one trace are linked.
        warning: What a reader must know ("512 of 734 tokens"), or "".
        predictions: What the model predicted, for the views.
        dtype: What the numbers are kept in: "float64" where a model computed in it or they were given in it
            (as Python's own floats are), else "float32".
    """

    kind: ClassVar[str] = "Explanation"
    kinds: ClassVar[dict[str, type[Explanation]]] = {}

    method: str
    unit: str
    stack: str
    provenance: Mapping[str, Any]
    trace_id: str
    warning: str
    predictions: Outcomes
    dtype: str

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "kind" in vars(cls):
            Explanation.kinds[cls.kind] = cls

    def _set_common(
        self,
        *,
        method: str,
        unit: str,
        stack: str = "self",
        provenance: Mapping[str, Any] | None = None,
        trace_id: str = "",
        warning: str = "",
        predictions: Outcomes | None = None,
        dtype: str | None = None,
    ) -> None:
        """Fill in what all explanations share."""
        if dtype not in (None, "float32", "float64"):
            raise ValueError(f"dtype {dtype!r} is not taken; 'float32' or 'float64'.")
        history = {"method": method, "options": {}, "steps": []} | plain(provenance or {})
        self._set(
            method=method,
            unit=unit,
            stack=stack,
            provenance=frozen(history),
            trace_id=trace_id or f"numbers-{uuid.uuid4().hex[:12]}",  # nobody's trace: linked to nothing else
            warning=warning,
            predictions=predictions or Outcomes("", ()),
            dtype=dtype or "float32",
        )

    def _common(self, step: str = "") -> dict[str, Any]:
        """Return the arguments of `_set_common` for an explanation derived from this one by `step`."""
        history = plain(self.provenance)
        if step:
            history["steps"] = [*history["steps"], step]
        return {
            "method": self.method,
            "unit": self.unit,
            "stack": self.stack,
            "provenance": history,
            "trace_id": self.trace_id,
            "warning": self.warning,
            "predictions": self.predictions,
            "dtype": self.dtype,
        }

    def _describe_common(self) -> dict[str, Any]:
        """Return the JSON-able part of `to_description` that all kinds share."""
        common = self._common()
        common["predictions"] = [self.predictions.title, [list(p) for p in self.predictions.items]]
        return {"kind": self.kind} | common

    def _set(self, **attributes: Any) -> None:
        vars(self).update(attributes)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(
            f"{self.kind} is immutable: {name!r} cannot be set; .to, .select, .mean ... return new ones."
        )

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"{self.kind} is immutable: {name!r} cannot be deleted.")

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: object) -> Self:
        return self

    def __reduce__(self) -> tuple[Callable[..., Explanation], tuple[Any, ...]]:
        return restore, self.to_description()

    # What a kind of explanation fills in.

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]:
        """Sizes of the axes; nothing is computed for it."""

    @property
    @abstractmethod
    def axis_names(self) -> tuple[str, ...]:
        """Names of the axes of `.values`."""

    @property
    @abstractmethod
    def values(self) -> Array:
        """The numbers (read-only), float32 or float64: see `dtype`."""

    @abstractmethod
    def to_description(self) -> tuple[dict[str, Any], dict[str, Array]]:
        """Return a JSON-able description and the arrays that belong to it; what is lazy is computed."""

    @classmethod
    @abstractmethod
    def from_description(cls, described: Mapping[str, Any], arrays: Mapping[str, Array]) -> Self:
        """Return the explanation that `to_description` described."""

    # What they share.

    @property
    def steps(self) -> tuple[str, ...]:
        """What was done to the method's numbers, in words and in order."""
        return tuple(self.provenance["steps"])

    @property
    def note(self) -> str:
        """What was done to the method's numbers, as one line for a caption."""
        return "; ".join(self.steps)

    @property
    def title(self) -> str:
        """The method and what was done to its numbers: the heading of a picture."""
        return ", ".join([str(self.provenance.get("title") or self.method), *self._short_steps()])

    def _short_steps(self) -> list[str]:
        return [step.split(" (")[0] for step in self.steps]

    def describe(self) -> str:
        """Return one or two sentences that say what the numbers do, computed from them and nothing else.

        The most relevant words with their share and the target; of a map of one layer, what is read most.

        Raises:
            TypeError: For tables (scores, statistics), which have no sentence.
        """
        from attnwidgets.explanations.results.verbalise import in_words

        return in_words(self)

    def plot(self, **options: Any) -> Figure:
        """Return a matplotlib figure; `attnwidgets.explanations.results.pictures.plot` has the options."""
        from attnwidgets.explanations.results.pictures import plot

        return plot(self, **options)

    def save(self, path: str | Path) -> Path:
        """Write to `path`, for `aw.load`: a `.safetensors` file, or a folder where there is no suffix."""
        from attnwidgets.explanations.results.archive import save

        return save(self, path)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        import numpy as np

        return np.array(self.values, dtype=dtype) if copy else np.asarray(self.values, dtype=dtype)

    def __repr__(self) -> str:
        sizes = ", ".join(f"{name} {size}" for name, size in zip(self.axis_names, self.shape, strict=True))
        by = "" if f"by {self.unit}" in self.title else f" by {self.unit}"
        parts = [f"{self.kind} {self.title} [{sizes}]{by}"]
        if self.stack != "self":
            parts.append(f"stack {self.stack}")
        if self.provenance.get("model"):
            parts.append(str(self.provenance["model"]))
        if self.provenance.get("text"):
            parts.append(quoted(str(self.provenance["text"])))
        return f"<{'; '.join([*parts, *self._remarks()])}>"

    def _remarks(self) -> list[str]:
        """Return what `repr` says last."""
        return [self.warning] if self.warning else []

    def _repr_mimebundle_(self, **_: Any) -> dict[str, Any]:
        """Return the widget (where a kernel can show one), a PNG for viewers without widgets, and text."""
        bundle: dict[str, Any] = {"text/plain": repr(self)}
        shell = _ipython()
        if shell is not None and not hasattr(shell, "kernel"):  # IPython in a terminal shows text
            return bundle
        bundle |= self._attempt("picture", self._png)
        if shell is not None:
            bundle |= self._attempt("widget", self._widget)
        return bundle

    def _attempt(self, what: str, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        try:
            return make()
        except Exception as error:  # noqa: BLE001 - a picture that fails must not hide the numbers
            warnings.warn(f"{self.kind} is shown without its {what}: {error}", RuntimeWarning, stacklevel=3)
            return {}

    def _png(self) -> dict[str, Any]:
        from attnwidgets.explanations.results.pictures import png

        return {"image/png": base64.b64encode(png(self)).decode("ascii")}

    def _widget(self) -> dict[str, Any]:
        # Views bring the same picture for themselves; it is drawn once, above.
        found = self.view()._repr_mimebundle_(exclude={"image/png"})
        data = found[0] if isinstance(found, tuple) else found or {}
        return {mime: item for mime, item in data.items() if mime != "text/plain"}


# Kinds that register themselves outside this package.
_ELSEWHERE = {
    "Scorecard": "attnwidgets.evaluate.scorecards.scorecard",
    "FeatureActivations": "attnwidgets.sae.feature_activations",
    "FeatureStats": "attnwidgets.sae.corpus_statistics.stats",
    "Agreement": "attnwidgets.evaluate.metrics.agreement_matrix",
    "HeadStatistics": "attnwidgets.statistics.table",
}


def restore(described: Mapping[str, Any], arrays: Mapping[str, Array]) -> Explanation:
    """Return the explanation that `Explanation.to_description` described (for pickle and archives)."""
    kind = described["kind"]
    if kind not in Explanation.kinds and kind in _ELSEWHERE:
        import_module(_ELSEWHERE[kind])
    if kind not in Explanation.kinds:
        raise ValueError(f"explanations of kind {kind!r} are unknown here; update attnwidgets.")
    return Explanation.kinds[kind].from_description(described, arrays)


def restore_common(described: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments that `Explanation._describe_common` described."""
    title, items = described["predictions"]
    names = ("method", "unit", "provenance", "trace_id", "warning")
    return {name: described[name] for name in names} | {
        "stack": described.get("stack") or described["stream"],  # files saved before 0.1.0 call it "stream"
        "dtype": described.get("dtype"),  # what was saved before there was one is float32
        "predictions": Outcomes(title, tuple(Outcome(*item) for item in items)),
    }


def _ipython() -> Any:
    """Return the running IPython shell, without importing IPython for it."""
    module = sys.modules.get("IPython")
    return module.get_ipython() if module is not None and hasattr(module, "get_ipython") else None
