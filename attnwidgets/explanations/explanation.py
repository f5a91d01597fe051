"""Explanation, the base of all results: labelled, immutable numbers with provenance, shown in notebooks.

A constructor sets all attributes once (`_set_common`, `_set`). Every verb makes a new explanation from the
arguments that `_common` returns, with another step in the provenance. `to_description` and `from_description`
carry explanations into files and pickles; `restore` chooses the class by `kind`.
"""

from __future__ import annotations

import base64
import inspect
import uuid
import warnings
from abc import abstractmethod
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, NoReturn

from attnwidgets._errors import deprecated, quoted, require_choice
from attnwidgets._notebook import running_shell
from attnwidgets._tables import Table
from attnwidgets.explanations.results.description import frozen, plain
from attnwidgets.explanations.viewable import Viewable
from attnwidgets.tracing.prediction import Prediction

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from matplotlib.figure import Figure
    from typing_extensions import Self

    from attnwidgets.explanations.results.arrays import Array


class Outcomes(NamedTuple):
    """The model's predictions: a title ("next token", "class") and the items, most probable first."""

    title: str
    items: tuple[Prediction, ...]


class Explanation(Table, Viewable):
    """Numbers about a trace, with labels and provenance. Frozen: every verb returns a new explanation.

    Attributes:
        method: Name of the method in the registry.
        unit: Name of the unit of the axes.
        stack: "self", or "encoder", "decoder" or "cross".
        provenance: How the numbers were made: method, options, model, text, paper, `interventions` on the
            model if there were any, and `steps`, the later operations on them in words.
        trace_id: The trace that the numbers belong to; views of the same trace are linked.
        warning: A caution for readers ("512 of 734 tokens"), or "".
        predictions: The model's predictions, for the views.
        dtype: Type of the numbers: "float64" if a model computed in it or they were given in it (as Python's
            floats are), else "float32".
    """

    kind: ClassVar[str] = "Explanation"
    kinds: ClassVar[dict[str, type[Explanation]]] = {}

    __signature__: ClassVar[inspect.Signature]

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
            cls.__signature__ = _signature_of(cls)

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
        """Set the attributes that all explanations share."""
        require_choice("dtype", dtype, (None, "float32", "float64"))
        history = {"method": method, "options": {}, "steps": []} | plain(provenance or {})
        self._set(
            method=method,
            unit=unit,
            stack=stack,
            provenance=frozen(history),
            trace_id=trace_id
            or f"numbers-{uuid.uuid4().hex[:12]}",  # without a trace: linked to nothing else
            warning=warning,
            predictions=predictions or Outcomes("", ()),
            dtype=dtype or "float32",
        )

    def _common(self, step: str = "") -> dict[str, Any]:
        """Return the arguments of `_set_common` for an explanation derived from this by `step`."""
        history = plain(self.provenance)
        if step:
            history["steps"] = [*history["steps"], step]
        names = ("method", "unit", "stack", "trace_id", "warning", "predictions", "dtype")
        return {"provenance": history} | {name: getattr(self, name) for name in names}

    def _describe_common(self) -> dict[str, Any]:
        """Return the JSON-able part of `to_description` that all kinds share."""
        common = self._common()
        common["predictions"] = plain(self.predictions)
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

    # For each kind of explanation to define.

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]:
        """Sizes of the axes; computes nothing."""

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
        """Return a JSON-able description and its arrays; lazy layers are computed."""

    @classmethod
    @abstractmethod
    def from_description(cls, described: Mapping[str, Any], arrays: Mapping[str, Array]) -> Self:
        """Return the explanation that `to_description` described."""

    @abstractmethod
    def figure(self) -> Figure:
        """Return a matplotlib figure; the options depend on the kind."""

    # Shared by all kinds.

    def plot(self, *args: Any, **options: Any) -> Figure:
        """Deprecated name of `figure`."""
        deprecated(f"{self.kind}.plot() is called figure() now")
        return self.figure(*args, **options)

    @property
    def steps(self) -> tuple[str, ...]:
        """Operations on the method's numbers, in words and in order."""
        return tuple(self.provenance["steps"])

    @property
    def note(self) -> str:
        """Operations on the method's numbers, in a line for a caption."""
        return "; ".join(self.steps)

    @property
    def title(self) -> str:
        """The method and the operations on its numbers: the heading of a picture."""
        return ", ".join([str(self.provenance.get("title") or self.method), *self._short_steps()])

    def _short_steps(self) -> list[str]:
        """Return the parts that a title adds: the operations, and the interventions on the model."""
        return [*(step.split(" (")[0] for step in self.steps), *self.provenance.get("interventions", ())]

    def describe(self) -> str:
        """Return one or two sentences about the numbers, computed from them alone.

        They name the most relevant words with their share and the target; for a map of one layer, the token
        that is read most.

        Raises:
            TypeError: For tables (scores, statistics), which have no sentence.
        """
        from attnwidgets.explanations.results.verbalise import in_words

        return in_words(self)

    def diff(self, other: Self) -> Self:
        """Return these numbers less those of another text, by the columns in which the texts are aligned.

        Elements of two texts are aligned by edit distance; tokens of two models, by the characters that they
        spell. An element of a single text counts whole, so that the sum of the differences is the difference
        of the sums; the residual is the difference of both. Elements that differ are named by both, as in
        "keys − key".

        Args:
            other: An explanation of the other text, by the same method in the same unit: attributions of the
                same target, or a map of the same layers and heads.

        Raises:
            TypeError: It is of another kind, or this kind has no texts to align.
            ValueError: Method, unit, stack, target, layers or heads differ.

        Example:
            >>> model = aw.demo_model("classifier")
            >>> he, she = (aw.trace(*model, f"{name} was a brilliant nurse.") for name in ("He", "She"))
            >>> aw.attention(he).diff(aw.attention(she)).key_labels[:3]
            ('[CLS]', 'he − she', 'was')
        """
        from attnwidgets.explanations.results.aligned import Aligned

        if not hasattr(self, "available_units"):
            raise TypeError(f"{self.kind} has no texts to align; diff() is of maps and attributions.")
        difference: Self = Aligned(self, other).difference()
        return difference

    def save(self, path: str | Path) -> Path:
        """Write to `path`, for `aw.load`: a `.safetensors` file, or a folder for a path without suffix.

        Other suffixes give files for reading: `.html` the page of its view, `.pdf`, `.svg` and `.png` its
        picture, `.csv` its table.
        """
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
        """Return the last parts of `repr`."""
        return [self.warning] if self.warning else []

    def _repr_mimebundle_(self, **_: Any) -> dict[str, Any] | tuple[dict[str, Any], dict[str, Any]]:
        """Return the widget (if a kernel can show one), a PNG for viewers without widgets, and text."""
        data: dict[str, Any] = {"text/plain": repr(self)}
        shell = running_shell()
        if shell is not None and not hasattr(shell, "kernel"):  # IPython in a terminal shows text
            return data
        data |= self._attempt("picture", self._png)
        widget = {} if shell is None else self._attempt("widget", self._widget)
        return (data | widget["data"], widget["metadata"]) if widget else data

    def _attempt(self, part: str, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        try:
            return make()
        except Exception as error:  # noqa: BLE001 - a picture that fails must not hide the numbers
            warnings.warn(f"{self.kind} is shown without its {part}: {error}", RuntimeWarning, stacklevel=3)
            return {}

    def _png(self) -> dict[str, Any]:
        from attnwidgets.explanations.results.pictures import png

        return {"image/png": base64.b64encode(png(self)).decode("ascii")}

    def _widget(self) -> dict[str, Any]:
        # Views have the same picture: it is drawn once, above.
        data, metadata = self.view()._repr_mimebundle_(exclude={"image/png"})
        bundle = {mime: item for mime, item in data.items() if mime != "text/plain"}
        return {"data": bundle, "metadata": metadata}  # without which Colab draws no widget


def _signature_of(cls: type[Explanation]) -> inspect.Signature:
    """Return a constructor's signature with `**common` written out, as Shift-Tab shows it."""
    parameters = list(inspect.signature(cls.__init__).parameters.values())[1:]
    written = [parameter for parameter in parameters if parameter.kind is not parameter.VAR_KEYWORD]
    if len(written) < len(parameters):
        inherited = getattr(super(cls, cls), "__signature__", None) or inspect.signature(cls._set_common)
        names = {"self", *(parameter.name for parameter in written)}
        shared = (parameter for name, parameter in inherited.parameters.items() if name not in names)
        written += [parameter for parameter in shared if parameter.kind is parameter.KEYWORD_ONLY]
    return inspect.Signature(written)


# Modules of upper packages in which kinds of results are defined; imported to open a saved result.
_MODULES_BY_KIND = {
    "Scorecard": "attnwidgets.evaluate.scorecards.scorecard",
    "FeatureActivations": "attnwidgets.sae.feature_activations",
    "FeatureStats": "attnwidgets.sae.corpus_statistics.stats",
    "Agreement": "attnwidgets.evaluate.metrics.agreement_matrix",
    "HeadStatistics": "attnwidgets.statistics.table",
    "ClaimReport": "attnwidgets.circuits.claims.report",
    "Lens": "attnwidgets.circuits.lens_result",
    "Patching": "attnwidgets.circuits.patching",
    "Why": "attnwidgets.circuits.scores.result",
}


def restore(described: Mapping[str, Any], arrays: Mapping[str, Array]) -> Explanation:
    """Return the explanation that `Explanation.to_description` described (for archives and pickles).

    Pickles name this function by its module: it stays here.
    """
    kind = described["kind"]
    if kind not in Explanation.kinds and kind in _MODULES_BY_KIND:
        module = import_module(_MODULES_BY_KIND[kind])
        # `Why` has a table and a view, and not the axes of an explanation.
        if kind not in Explanation.kinds:
            restored: Explanation = getattr(module, kind).from_description(described, arrays)
            return restored
    if kind not in Explanation.kinds:
        raise ValueError(f"explanations of kind {kind!r} are unknown here; update attnwidgets.")
    return Explanation.kinds[kind].from_description(described, arrays)


def restore_common(described: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments that `Explanation._describe_common` described."""
    title, items = described["predictions"]
    names = ("method", "unit", "provenance", "trace_id", "warning")
    return {name: described[name] for name in names} | {
        "stack": described.get("stack") or described["stream"],  # files saved before 0.1.0 call it "stream"
        "dtype": described.get("dtype"),  # files saved before it was recorded are float32
        "predictions": Outcomes(title, tuple(Prediction(*item) for item in items)),
    }
