"""Minimal edits: every change of a single word, ranked by its effect on the answer and on the language.

Ross et al. 2021, Explaining NLP Models via Minimal Contrastive Editing (MiCE), for the question; the search
here is exhaustive over candidate words, and edits a single word at a time.
"""

from __future__ import annotations

import html
import re
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from attnwidgets._errors import require_choice
from attnwidgets._gradients import no_grad
from attnwidgets._progress import progress
from attnwidgets._tables import Table
from attnwidgets.explanations.targets.resolve import head_of
from attnwidgets.figures.html_tables import cell, table
from attnwidgets.tracing.anatomy.answer import Answer, answer_of
from attnwidgets.tracing.text.given_texts import listed_texts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from torch import nn

    from attnwidgets._tables import Columns
    from attnwidgets.evaluate.arrays import Float

PAPER = "Ross et al. 2021, Explaining NLP Models via Minimal Contrastive Editing (MiCE)"
_TAIL = re.compile(r"[.,:;!?]*$")
_CLASSES = 2  # dimensions of a classifier's logits [text, class]

_SHOWN = 10


def minimal_edits(
    model: Any,
    tokenizer: Any,
    text: str,
    candidates: Iterable[str] | Callable[[Sequence[str], int], Iterable[str]],
    *,
    fluency: tuple[Any, Any] | None = None,
    by: Literal["surprisal", "margin"] | None = None,
    batch_size: int = 64,
) -> MinimalEdits:
    """Try every change of a single word of a text, and rank the changes of the class.

    Word p of `text.split(" ")` is replaced by every candidate; the punctuation that ends the word stays, and
    the first word is capitalised. With z the logits of an edited text and c the class of the original,

        margin      max over other classes of z - z_c: above 0, the edit flips the class
        surprisal   -log p(edited text) + log p(text), by a language model, in nats

    Flips come first: by `by`, the least surprising or the largest margin; then all others by margin.

    **Interpretation.** Almost every text has a single-word edit that flips a classifier, and most of these
    are not English; whether an edit is an explanation depends on its fluency. `surprisal` is a language
    model's opinion of that (low or negative: as likely as the original), no more: it also prefers frequent
    words, and says nothing of whether the new text makes sense or whether its true class is another.
    Without `fluency`, edits are ranked by the classifier alone, and the result says so. Only the candidates
    that you give are tried, such as the words of rationales or a model's vocabulary.

    Args:
        model: A model that classifies whole texts.
        tokenizer: Its tokenizer.
        text: The text; its words are separated by single spaces.
        candidates: Words to put in; or a function of the words and an index that returns the words to put
            at this index (a masked language model's proposals, say).
        fluency: A language model and its tokenizer, for the surprisal of flips: a causal model (SmolLM2: all
            tokens after the start), or a masked model (each token from all others, many passes).
        by: How flips are ranked: "surprisal" (the default if `fluency` is given) or "margin".
        batch_size: Number of texts per forward pass; texts with equally many tokens run together.

    Returns:
        A `MinimalEdits`: a row for every edit, best first.

    Raises:
        ValueError: If the text has no words, the candidates are empty or the words themselves, a candidate is
            empty or has spaces, the model returns no classes, or `by` is "surprisal" without `fluency`.
        TypeError: If text is not a string, or the candidates are a string.

    Source: Ross et al. 2021 for the question; their search edits several words with a fine-tuned T5, and
    this search is exhaustive over single words.

    Example:
        >>> model, tokenizer = aw.demo_model("classifier")
        >>> edits = aw.evaluate.minimal_edits(model, tokenizer, "A fine film.", ["dull", "long", "good"])
        >>> edits.flips[0].text, edits.flips[0].new
        ('A dull film.', 'dull')
    """
    if not isinstance(text, str):
        raise TypeError(f"text must be a string, not {type(text).__name__}.")
    if by is not None:
        require_choice("by", by, ("surprisal", "margin"))
    if by == "surprisal" and fluency is None:
        raise ValueError("by='surprisal' needs fluency=(language model, its tokenizer).")
    if batch_size < 1:
        raise ValueError(f"batch_size must be at least 1, not {batch_size}.")
    words = text.split(" ")
    edits = single_edits(words, candidates)
    texts = [text, *(edited for _, _, edited in edits)]
    names, logits = _logits(model, tokenizer, texts, batch_size)
    original = int(logits[0].argmax())
    foils = np.delete(logits, original, axis=1)
    margins = foils.max(axis=1) - logits[:, original]
    classes = logits.argmax(axis=1)
    flips = [number for number in range(1, len(texts)) if margins[number] > 0]
    surprisals = np.full(len(texts), np.nan)
    if fluency is not None and flips:
        result = text_surprisals(*fluency, [text, *(texts[number] for number in flips)], batch_size)
        surprisals[flips] = result[1:] - result[0]
    ranked = by or ("margin" if fluency is None else "surprisal")
    scores = surprisals if ranked == "surprisal" else -margins
    order = sorted(flips, key=lambda number: (scores[number], -margins[number]))
    rest = sorted(set(range(1, len(texts))) - set(flips), key=lambda number: -margins[number])
    return MinimalEdits.of(
        text=text,
        edits=[(*edits[number - 1], margins[number], surprisals[number]) for number in (*order, *rest)],
        classes=[int(classes[number]) for number in (*order, *rest)],
        original=original,
        margin=float(margins[0]),
        labels=names,
        by=ranked,
        judge="" if fluency is None else type(fluency[0]).__name__,
    )


def single_edits(
    words: Sequence[str], candidates: Any, name: str = "candidates"
) -> list[tuple[int, str, str]]:
    """Return the word's index, the new word and the text of every edit.

    Args:
        words: The words of a text.
        candidates: Words to put in; or a function of the words and an index that returns them.
        name: The argument that holds them, for messages.

    Raises:
        TypeError: If the candidates are a single text.
        ValueError: If there is nothing to edit.
    """
    if not any(words):
        raise ValueError("text has no words to edit.")
    if isinstance(candidates, str):
        raise TypeError(f"{name}={candidates!r} is one text; give a list of words: [{candidates!r}].")
    fixed = None if callable(candidates) else list(dict.fromkeys(listed_texts(candidates, name)))
    edits = []
    for index, word in enumerate(words):
        tail = _TAIL.search(word)
        end = tail.group() if tail else ""
        if not word[: len(word) - len(end)]:
            continue
        offered = list(dict.fromkeys(candidates(words, index))) if fixed is None else fixed
        for candidate in offered:
            if not isinstance(candidate, str) or not candidate or " " in candidate:
                raise ValueError(f"{name} must be single words, without spaces; one is {candidate!r}.")
            new = (candidate.capitalize() if index == 0 else candidate) + end
            if new != word:
                edits.append((index, candidate, " ".join([*words[:index], new, *words[index + 1 :]])))
    if not edits:
        raise ValueError(f"{name} is empty, or contains only the original words.")
    return edits


def _batches(
    tokenizer: Any, texts: Sequence[str], batch_size: int
) -> list[tuple[list[int], list[list[int]]]]:
    """Return numbers and ids of texts that run together: equally many tokens, so that nothing is padding."""
    ids = [list(tokenizer(text)["input_ids"]) for text in texts]
    order = sorted(range(len(texts)), key=lambda number: len(ids[number]))
    batches = []
    for _, alike in groupby(order, key=lambda number: len(ids[number])):
        numbers = list(alike)
        for start in range(0, len(numbers), batch_size):
            part = numbers[start : start + batch_size]
            batches.append((part, [ids[number] for number in part]))
    return batches


def _logits(
    model: Any, tokenizer: Any, texts: Sequence[str], batch_size: int
) -> tuple[tuple[str, ...], Float]:
    """Return the names of the classes, and the logits of every text [text, class].

    Raises:
        ValueError: If the model does not classify whole texts.
    """
    import torch

    from attnwidgets.tracing.recording.borrow import borrowed, unwrap

    inner = unwrap(model)
    rows: dict[int, Float] = {}
    answer = Answer()
    with borrowed(inner) as twin, no_grad():
        for numbers, ids in progress(_batches(tokenizer, texts, batch_size), "editing"):
            outputs = twin(input_ids=torch.tensor(ids, device=_device(inner)), return_dict=True)
            logits = head_of(outputs) if getattr(outputs, "logits", None) is not None else None
            if logits is not None and logits.dim() == _CLASSES:
                answer = answer_of(inner, logits[0], None, None, generates=False)
            if logits is None or answer.reading != "softmax" or len(answer.names) < _CLASSES:
                raise ValueError(
                    "minimal_edits needs a model that gives a whole text one of several classes, which "
                    f"exclude each other; {type(inner).__name__} does not."
                )
            rows |= dict(zip(numbers, logits.double().cpu().numpy(), strict=True))
    return answer.names, np.stack([rows[number] for number in range(len(texts))])


def text_surprisals(model: Any, tokenizer: Any, texts: Sequence[str], batch_size: int) -> Float:
    """Return -log p of whole texts by a language model, in nats [text].

    A causal model predicts all tokens after its start token, or all but the first if it has no start token. A
    masked model predicts each token from all others (the pseudo-log-likelihood).
    """
    import torch

    from attnwidgets.tracing.anatomy.forward import can_generate
    from attnwidgets.tracing.recording.borrow import borrowed, unwrap

    inner = unwrap(model)
    if not can_generate(inner):
        from attnwidgets.explanations.attribution.surprisal import surprisal
        from attnwidgets.tracing.recording.run import trace

        return np.array(
            [
                float(surprisal(trace(model, tokenizer, text), measure="nats", pseudo=True).values.sum())
                for text in progress(texts, "surprisal")
            ]
        )
    start = getattr(tokenizer, "bos_token_id", None)
    result = np.zeros(len(texts))
    with borrowed(inner) as twin, no_grad():
        for numbers, ids in progress(_batches(tokenizer, texts, batch_size), "surprisal"):
            led = [row if start is None or row[:1] == [start] else [start, *row] for row in ids]
            tokens = torch.tensor(led, device=_device(inner))
            log_p = twin(input_ids=tokens, return_dict=True).logits[:, :-1].double().log_softmax(-1)
            result[numbers] = -log_p.gather(-1, tokens[:, 1:, None])[..., 0].sum(-1).cpu().numpy()
    return result


def _device(model: nn.Module) -> Any:
    from attnwidgets.tracing.pass_memory import device_of

    return device_of(model)


@dataclass(frozen=True)
class Edit:
    """The replacement of a word.

    Attributes:
        place: Number of the word that is replaced.
        old: The word, with its punctuation.
        new: The replacement.
        text: The edited text.
        label: The class of the edited text.
        margin: The best other logit less that of the original class; above 0, the class flips.
        surprisal: Change of the text's surprisal in nats; NaN without a language model.
    """

    place: int
    old: str
    new: str
    text: str
    label: str
    margin: float
    surprisal: float

    @property
    def flips(self) -> bool:
        """Whether the class is another."""
        return self.margin > 0


@dataclass(frozen=True, repr=False)
class MinimalEdits(Table):
    """Every tried edit of a single word, best first; iterates over `Edit`s.

    Attributes:
        text: The original text.
        label: Its class.
        margin: Its best other logit less that of its class; below 0.
        edits: The edits: flips first, in the order of `by`, then the others by margin.
        by: How flips are ranked: "surprisal" or "margin".
        judge: The language model that gave the surprisals; "" if none did.
    """

    text: str
    label: str
    margin: float
    edits: tuple[Edit, ...]
    by: str
    judge: str

    @classmethod
    def of(
        cls,
        *,
        text: str,
        edits: Sequence[tuple[int, str, str, float, float]],
        classes: Sequence[int],
        original: int,
        margin: float,
        labels: Sequence[str],
        by: str,
        judge: str,
    ) -> MinimalEdits:
        """Return the result of edits (index, new word, text, margin, surprisal) in order."""
        words = text.split(" ")
        rows = tuple(
            Edit(index, words[index], new, edited, labels[label], float(gap), float(nats))
            for (index, new, edited, gap, nats), label in zip(edits, classes, strict=True)
        )
        return cls(text, labels[original], margin, rows, by, judge)

    @property
    def flips(self) -> tuple[Edit, ...]:
        """The edits that change the class, best first."""
        return tuple(edit for edit in self.edits if edit.flips)

    @property
    def caveat(self) -> str:
        """The limits of the ranking, in a sentence."""
        if not self.judge:
            return (
                "Ranked by the classifier's margin alone: no language model judged whether these texts are "
                "English, and most are not (fluency=(model, tokenizer))."
            )
        return (
            f"Surprisal by {self.judge}: how likely it finds the text, not whether the text makes sense or "
            "what its true class is."
        )

    def __len__(self) -> int:
        return len(self.edits)

    def __iter__(self) -> Iterator[Edit]:
        return iter(self.edits)

    def __getitem__(self, number: int) -> Edit:
        return self.edits[number]

    def _columns(self) -> Iterator[Columns]:
        names = ("place", "old", "new", "text", "label", "margin", "surprisal")
        columns: dict[str, Any] = {name: [getattr(edit, name) for edit in self.edits] for name in names}
        yield columns | {"flips": [edit.flips for edit in self.edits]}

    @property
    def _summary(self) -> str:
        return (
            f"{len(self.flips)} of {len(self.edits)} edits of one word turn {self.label!r} into another class"
        )

    def __repr__(self) -> str:
        lines = [f"{self._summary}.", *(_line(edit) for edit in self.flips[:_SHOWN]), self.caveat]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        rows = (
            (
                f"<td>{_marked(edit)}</td>",
                cell(edit.label, left=True),
                cell(f"{edit.margin:+.2f}"),
                cell(_nats(edit)),
            )
            for edit in self.flips[:_SHOWN]
        )
        head = ("edited text", "class", "margin", "surprisal, nats")
        return table(head, rows, [f"{self._summary}.", self.caveat], left=(0, 1))


def _nats(edit: Edit) -> str:
    return "" if np.isnan(edit.surprisal) else f"{edit.surprisal:+.1f}"


def _line(edit: Edit) -> str:
    nats = f", surprisal {_nats(edit)}" if _nats(edit) else ""
    return f"  {edit.text!r}: {edit.label} (margin {edit.margin:+.2f}{nats})"


def _marked(edit: Edit) -> str:
    """Return an edited text as HTML, with the new word underlined."""
    words = [html.escape(word) for word in edit.text.split(" ")]
    words[edit.place] = f"<u>{words[edit.place]}</u>"
    return " ".join(words)
