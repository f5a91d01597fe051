"""The meaning of a model's outputs: their rows, their columns, and how a probability comes about."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from attnwidgets._selecting import listed
from attnwidgets.tracing.recording.wrappers import is_a

if TYPE_CHECKING:
    from torch import Tensor

    from attnwidgets.tracing.text.axes import Text

Reading = Literal["softmax", "sigmoid", "none"]
ANSWER_SPAN = "answer"
"""Title of an extractive answer: a start and an end among the tokens."""

_PREDICTED = (("logits_per_image",), ("start_logits", "end_logits"), ("logits",), ("prediction_logits",))
"""Names of the outputs in which a prediction is read; the first that are present."""

_TOKENS = 2  # dimensions of logits [token, column]
_WHOLE = 1  # and of [class]


@dataclass(frozen=True)
class Answer:
    """The meaning of a model's logits.

    Attributes:
        title: Kind of the prediction: "class", "next token", "[MASK] at 6", "number", "score" (of a choice),
            "answer"; "" if there is none unless a row is named.
        names: Names of the columns: classes, "start" and "end" of an answer; () for a vocabulary.
        reading: How a probability comes about: "softmax" over the columns of a row, "sigmoid" of each logit
            alone, or "none": logits are numbers, or only decide together with other rows.
        row: The row that is predicted, -1 for the last; None without rows, or if none is predicted.
        rows: Kind of the rows: "token", "frame", "detection token"; "" if there are none.
        candidates: Rows among which an extractive answer is sought.
        compared: Further rows that take part of the probability of a start and an end.
    """

    title: str = ""
    names: tuple[str, ...] = ()
    reading: Reading = "softmax"
    row: int | None = None
    rows: str = ""
    candidates: tuple[int, ...] = ()
    compared: tuple[int, ...] = ()

    @property
    def is_distribution(self) -> bool:
        """Whether outcomes with probabilities are predicted, of one row."""
        return bool(self.title) and self.reading != "none"

    @property
    def is_numbers(self) -> bool:
        """Whether numbers without probabilities are predicted, as by a regression."""
        return bool(self.title) and self.reading == "none" and self.title != ANSWER_SPAN

    @property
    def predicts(self) -> bool:
        """Whether outcomes with probabilities, or numbers, are predicted, of one row."""
        return self.is_distribution or self.is_numbers

    @property
    def several(self) -> bool:
        """Whether several outcomes may be true at once, so that probabilities need not sum to one."""
        return self.reading == "sigmoid"

    def probabilities(self, logits: Tensor) -> Tensor:
        """Return the probabilities [..., outcome] of rows of logits [..., outcome]."""
        return logits.sigmoid() if self.several else logits.softmax(-1)

    def values(self, logits: Tensor) -> Tensor:
        """Return the probabilities of rows of logits [..., outcome], or the logits where they are numbers."""
        return logits if self.is_numbers else self.probabilities(logits)

    def log_probabilities(self, logits: Tensor) -> Tensor:
        """Return the log probabilities [..., outcome] of rows of logits [..., outcome]."""
        import torch

        return torch.nn.functional.logsigmoid(logits) if self.several else logits.log_softmax(-1)


def read_fields(outputs: Any) -> tuple[str, ...]:
    """Return the names of the outputs in which a model's prediction is read; () without a head."""
    for names in _PREDICTED:
        if all(getattr(outputs, name, None) is not None for name in names):
            return names
    return ()


def other_heads(outputs: Any) -> str:
    """Return a sentence on the heads whose logits a model returns in addition to those of its prediction."""
    from torch import is_floating_point, is_tensor

    read = read_fields(outputs)
    others = {
        name: value
        for name, value in (outputs.items() if read and isinstance(outputs, Mapping) else ())
        if name.endswith("_logits") and name not in read and is_tensor(value) and is_floating_point(value)
    }
    if not others:
        return ""
    first, value = next(iter(others.items()))
    column = f"[:{', 0' * (value.dim() - 1)}]" if value.dim() > 1 else ""
    return (
        f"predictions are read in {listed(read)}; {listed(others)} of the model's outputs can be explained "
        f"as a function of them, target=lambda outputs: outputs.{first}{column}"
    )


def answer_of(
    model: Any,
    logits: Tensor | None,
    tokenizer: Any,
    ids: Tensor | None,
    *,
    generates: bool,
    text: Text | None = None,
    others: Mapping[str, Any] | None = None,
) -> Answer:
    """Return the meaning of a model's logits for an input.

    Args:
        model: The model, without wrappers; or anything with its `config`.
        logits: [class], [token, vocabulary], or [token, 2] of an extractive answer; None without a head.
        tokenizer: Its tokenizer, or None.
        ids: [token] input ids, to find a mask among them.
        generates: Whether the last row predicts the next token.
        text: The tokens of the text, of which an extractive answer is part.
        others: The model's other inputs (pixel_values, input_features, ...).
    """
    if logits is None or not logits.numel():
        return Answer()
    config = getattr(model, "config", None)
    if logits.dim() == _WHOLE:
        return _of_whole(model, config, len(logits))
    count = logits.shape[-1]
    if is_a(model, "ForQuestionAnswering", "ForQuestionAnsweringSimple") and count == _TOKENS:
        candidates, compared = _candidates(text, tokenizer, ids, len(logits))
        return Answer(ANSWER_SPAN, ("start", "end"), "none", None, "token", candidates, compared)
    if generates:
        return Answer("next token", row=-1, rows="token")
    return _of_classes(model, config, logits, ids, others or {}) or _of_masked(tokenizer, logits, ids)


def _of_classes(
    model: Any, config: Any, logits: Tensor, ids: Tensor | None, others: Mapping[str, Any]
) -> Answer | None:
    """Return the meaning of logits [row, class]; None if their columns are a vocabulary."""
    count = logits.shape[-1]
    if is_a(model, "ForTokenClassification"):
        reading: Reading = "sigmoid" if _problem(config) == "multi_label_classification" else "softmax"
        return Answer("", names_of(config, count), reading, None, "token")
    if is_a(model, "ForPreTraining") and count == 1:
        return Answer("", ("replaced",), "sigmoid", None, "token")
    if ids is None and "pixel_values" in others:
        # A detector's last class, which has no name, is that there is nothing.
        names = getattr(config, "id2label", None) or {}
        result = tuple(str(names.get(i, "nothing" if i == count - 1 else i)) for i in range(count))
        return Answer("", result, rows="detection token")
    return None


def _of_masked(tokenizer: Any, logits: Tensor, ids: Tensor | None) -> Answer:
    """Return the meaning of logits [row, vocabulary] where a mask is predicted, not the next token."""
    mask = getattr(tokenizer, "mask_token_id", None)
    is_known = ids is not None and isinstance(mask, int) and logits.shape[-1] > mask
    if ids is None or not is_known or len(ids) > len(logits):
        return Answer(rows="frame" if ids is None else "token")
    masked = [index for index, token in enumerate(ids.tolist()) if token == mask]
    if not masked:
        return Answer(rows="token")
    # A soft prompt, or a picture, may stand before the tokens.
    row = len(logits) - len(ids) + masked[0]
    return Answer(f"{tokenizer.mask_token} at {row}", row=row, rows="token")


def _of_whole(model: Any, config: Any, count: int) -> Answer:
    """Return the meaning of logits [class], as pipelines of transformers read them."""
    problem = _problem(config)
    if is_a(model, "ForNextSentencePrediction"):
        return Answer("class", ("next sentence", "another sentence"))
    if is_a(model, "ForMultipleChoice"):
        return Answer("score", ("choice",), "none")
    if problem == "regression":
        title = "number" if count == 1 else "numbers"
        return Answer(title, names_of(config, count, "number"), "none")
    multiple = problem == "multi_label_classification" or (count == 1 and is_a(model, "Classification"))
    if count == 1 and not multiple:
        return Answer("", names_of(config, count), "none")
    return Answer("class", names_of(config, count), "sigmoid" if multiple else "softmax")


def _problem(config: Any) -> str | None:
    return getattr(config, "problem_type", None)


def names_of(config: Any, count: int, default: str = "") -> tuple[str, ...]:
    """Return the names of columns: those of a config, or numbers with `default` before them."""
    names = getattr(config, "id2label", None) or {}
    labels = [str(names.get(number, number)) for number in range(count)]
    if default and labels == [f"LABEL_{number}" for number in range(count)]:
        return (default,) if count == 1 else tuple(f"{default} {number}" for number in range(count))
    return tuple(labels)


def _candidates(
    text: Text | None, tokenizer: Any, ids: Tensor | None, count: int
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the tokens among which an answer is sought, and those that take part of its probability.

    These are the tokens of the second text of a pair, and [CLS], which stands for no answer
    (Devlin et al. 2019, section 4.3); of a single text, all that are not special.
    """
    if text is None or len(text.tokens) != count:
        return tuple(range(count)), ()
    last = max(text.segment)
    rows = zip(text.special, text.segment, strict=True)
    candidates = tuple(row for row, (special, segment) in enumerate(rows) if not special and segment == last)
    start = getattr(tokenizer, "cls_token_id", None)
    tokens = [] if ids is None or start is None else ids.tolist()
    return candidates, tuple(index for index, token in enumerate(tokens) if token == start)
