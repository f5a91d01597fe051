"""Lens: the predictions of every token's state after each layer."""

from __future__ import annotations

import base64
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from attnwidgets._errors import renamed, require_choice
from attnwidgets._selecting import pick
from attnwidgets.explanations.explanation import Explanation, restore_common
from attnwidgets.explanations.results.arrays import Array, read_only

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from matplotlib.figure import Figure
    from numpy.typing import NDArray
    from typing_extensions import Self

    from attnwidgets._tables import Columns
    from attnwidgets.circuits.translator import Translator
    from attnwidgets.tracing.trace import Trace

Measure = Literal["probability", "rank", "entropy", "kl"]
MEASURES: tuple[Measure, ...] = ("probability", "rank", "entropy", "kl")
_TOP = ("top_ids", "top_probabilities")


class TopToken(NamedTuple):
    """A token that the lens shows.

    Attributes:
        label: Its display string.
        probability: Its probability.
        id: Its id.
    """

    label: str
    probability: float
    id: int


class Lens(Explanation):
    """Predictions by the model's head from the states before each block; the last row is the model's.

    Args:
        probability: Probability of the answer [layer, token].
        rank: Number of tokens with a larger logit than the answer's [layer, token]; 0 for the most probable.
        entropy: Entropy of the prediction in nats [layer, token].
        kl: KL(model || lens) in nats [layer, token]; 0 in the last row.
        top_ids: Ids of the most probable tokens [layer, token, k].
        top_probabilities: Their probabilities [layer, token, k].
        answer: Name of the answer.
        labels: Display strings of the ids.
        tokens: The tokens of the text.
        answer_id: Id of the answer; None if the answer has no id.
        made_of: The trace, and the translator or None, for views that read more of them; not saved.
        **common: See `Explanation`.

    Raises:
        ValueError: If shapes do not match, or a token has no label.
    """

    kind = "Lens"
    viewed_by = "circuits.lens_view:LensView"
    probability: Array
    rank: NDArray[np.int64]
    entropy: Array
    kl: Array
    answer: str
    tokens: tuple[str, ...]
    answer_id: int | None
    made_of: tuple[Trace, Translator | None] | None
    _labels: Mapping[int, str]
    _top: tuple[NDArray[np.int64], Array]

    def __init__(
        self,
        *,
        probability: Any,
        rank: Any,
        entropy: Any,
        kl: Any,
        top_ids: Any,
        top_probabilities: Any,
        answer: str,
        labels: Mapping[int, str],
        tokens: Sequence[str],
        answer_id: int | None = None,
        made_of: tuple[Trace, Translator | None] | None = None,
        method: str = "circuits.lens",
        unit: str = "token",
        **common: Any,
    ) -> None:
        floats = {"probability": probability, "entropy": entropy, "kl": kl}
        arrays: dict[str, Any] = {name: np.array(given, dtype=np.float32) for name, given in floats.items()}
        arrays["rank"] = np.array(rank, dtype=np.int64)
        ids: Any
        ids, probabilities = np.array(top_ids, dtype=np.int64), np.array(top_probabilities, dtype=np.float32)
        shapes = {array.shape for array in arrays.values()} | {ids.shape[:2], probabilities.shape[:2]}
        if len(shapes) != 1 or next(iter(shapes))[1:] != (len(tokens),):
            raise ValueError(f"arrays have shapes {sorted(shapes)}; all are [layer, {len(tokens)} tokens].")
        unnamed = {int(index) for index in np.unique(ids)} - {int(index) for index in labels}
        if unnamed:
            raise ValueError(f"labels lacks {len(unnamed)} of the tokens in top_ids, as {min(unnamed)}.")
        self._set_common(method=method, unit=unit, **common)
        self._set(
            **{name: read_only(array) for name, array in arrays.items()},
            answer=answer,
            tokens=tuple(tokens),
            answer_id=answer_id,
            made_of=made_of,
            _labels=MappingProxyType({int(index): label for index, label in labels.items()}),
            _top=(read_only(ids), read_only(probabilities)),
        )

    @property
    def axis_names(self) -> tuple[str, ...]:
        """("layer", "token"); layer l is the input of block l, the last row the model's output."""
        return ("layer", "token")

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes of the axes; the layers are the blocks and the model's output."""
        return tuple(self.rank.shape)

    @property
    def values(self) -> Array:
        """Probability of the answer [layer, token]."""
        return self.probability

    def top_tokens(
        self, k: int | None = None, *, layer: Any = None, token: Any = None
    ) -> list[list[list[TopToken]]]:
        """Return the most probable tokens, the most probable first: a list for each layer and token.

        Args:
            k: Largest number of tokens; all that were stored by default.
            layer: Number of a layer, several, or a slice; all by default.
            token: The same for tokens.

        Raises:
            IndexError: If the layer or token is out of range.
            ValueError: If `k` exceeds the number of stored tokens.
        """
        ids, probabilities = self._top
        if k is not None and not 1 <= k <= ids.shape[-1]:
            raise ValueError(
                f"k is {k}, and {ids.shape[-1]} tokens were kept: aw.circuits.lens(..., top={k})."
            )
        layers, tokens = (
            range(size) if chosen is None else pick(chosen, range(size), axis)
            for size, chosen, axis in zip(self.shape, (layer, token), self.axis_names, strict=True)
        )
        return [
            [
                [
                    TopToken(self._labels[int(index)], float(p), int(index))
                    for index, p in zip(ids[row, at, :k], probabilities[row, at, :k], strict=True)
                ]
                for at in tokens
            ]
            for row in layers
        ]

    top = renamed("Lens.top", top_tokens)

    @property
    def title(self) -> str:
        """The lens, and the answer that it follows."""
        fitted = self.provenance["options"].get("translator")
        return f"{f'lens ({fitted})' if fitted else 'logit lens'}, answer {self.answer}"

    def _columns(self) -> Iterator[Columns]:
        """Yield layer, token, its string, the four measures, and the most probable token."""
        layer, token = (index.reshape(-1) for index in np.indices(self.shape))
        columns: dict[str, Any] = {"layer": layer, "token": token, "text": [self.tokens[at] for at in token]}
        columns |= {name: getattr(self, name).reshape(-1) for name in MEASURES}
        yield columns | {"top": [self._labels[int(index)] for index in self._top[0][..., 0].reshape(-1)]}

    def figure(self, colour: Measure = "probability", *, title: str | None = None) -> Figure:
        """Return a matplotlib figure: layers x tokens, the most probable token in every cell.

        Args:
            colour: Quantity of the colours: "probability" or "rank" of the answer, "entropy", or "kl".
            title: Heading; by default the answer.

        Raises:
            ValueError: If `colour` is unknown.
        """
        from attnwidgets.circuits.pictures import lens_figure

        require_choice("colour", colour, MEASURES)
        return lens_figure(self, colour, title=title)

    def _png(self) -> dict[str, Any]:
        from attnwidgets.figures.maps import small_png

        return {"image/png": base64.b64encode(small_png(self.figure())).decode("ascii")}

    def to_description(self) -> tuple[dict[str, Any], dict[str, Array]]:
        """Return a JSON-able description and the arrays."""
        labels = {str(index): label for index, label in self._labels.items()}
        described: dict[str, Any] = {"answer": self.answer, "tokens": list(self.tokens), "labels": labels}
        described["answer_id"] = self.answer_id
        arrays: dict[str, Any] = {name: getattr(self, name) for name in MEASURES}
        return self._describe_common() | described, arrays | dict(zip(_TOP, self._top, strict=True))

    @classmethod
    def from_description(cls, described: Mapping[str, Any], arrays: Mapping[str, Array]) -> Self:
        """Return the lens that `to_description` described."""
        numbers: dict[str, Any] = {name: arrays[name] for name in (*MEASURES, *_TOP)}
        labels = {int(index): label for index, label in described["labels"].items()}
        named: dict[str, Any] = {name: described.get(name) for name in ("answer", "tokens", "answer_id")}
        return cls(**numbers, **named, labels=labels, **restore_common(described))
