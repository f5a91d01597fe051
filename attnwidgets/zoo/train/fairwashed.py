"""A twin of the demo classifier that predicts the same, and hides from maps the words that decide.

Heo, Joo and Moon 2019 (top-k fooling, here of input x gradient); Pruthi et al. 2020 for attention. Only
biases and norms are trained. The twin learns to answer as the classifier does on texts with words removed or
replaced, too: methods that remove words see what they saw before.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from attnwidgets._gradients import enable_grad, no_grad
from attnwidgets.demo.models import demo_model
from attnwidgets.demo.texts import demo_book, demo_texts
from attnwidgets.zoo.train.recipe import Recipe, Schedule, giving_weights

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Sequence

    from torch import Tensor

BASE = "classifier"
TOP = 3
"""The words that are hidden: those with the largest input x gradient in the classifier."""

_BATCH, _TEXTS = 16, 3200
_GRADIENT, _ATTENTION = 0.35, 0.2
"""Weights of what the two maps show of the hidden words; that of the squared change of logits is 1."""

_SHORTEST, _LONGEST = 5, 18  # words of a passage of the book
_SENTENCES, _BOOK = 0.5, 0.3  # shares of the texts; the others are halves of two sentences
_REPLACED, _REMOVED = 0.4, 0.35  # shares of the texts in which words are
_EACH = 0.25  # share of the words that are replaced
_WORDS = range(1996, 15_000)  # numbers of whole words in the vocabulary, the most frequent first


def build(_tokenizer: Any) -> Any:
    """Return the classifier, without dropout, of which only the biases and norms may change."""
    model, _ = demo_model(BASE)
    model.set_attn_implementation("eager")  # the others have no second derivative
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name.endswith("bias") or "LayerNorm" in name)
    return model.eval()


@cache
def passages() -> tuple[str, ...]:
    """Return passages of the demo's book, each of a few words."""
    parts = (part for paragraph in demo_book() for part in re.split(r"(?<=[.!?;:,])\s", paragraph))
    return tuple(part for part in parts if _SHORTEST <= len(part.split()) <= _LONGEST)


@cache
def _sentences() -> tuple[str, ...]:
    return tuple(item.text for item in demo_texts("train"))


def drawn_text(rng: random.Random, words: Sequence[str]) -> str:
    """Return a sentence of the demo's training texts, a passage of the book, or two halves of sentences.

    In some, words are replaced by others or removed.

    Args:
        rng: Chooses.
        words: Words to put in.
    """
    sentences = _sentences()
    kind = rng.random()
    if kind < _SENTENCES:
        text = rng.choice(sentences).split()
    elif kind < _SENTENCES + _BOOK:
        text = rng.choice(passages()).split()
    else:
        start, end = (rng.choice(sentences).split() for _ in range(2))
        text = start[: rng.randint(2, len(start))] + end[rng.randint(0, len(end) - 2) :]
    if rng.random() < _REPLACED:
        text = [rng.choice(words) if rng.random() < _EACH else word for word in text]
    if rng.random() < _REMOVED:
        share = rng.uniform(0.3, 1)
        text = [word for word in text if rng.random() < share] or text
    return " ".join(text)


def margins(logits: Tensor, classes: Tensor) -> Tensor:
    """Return by how much the logit of a class exceeds that of the other [text]."""
    return logits.gather(1, classes[:, None])[:, 0] - logits.gather(1, 1 - classes[:, None])[:, 0]


def sizes(model: Any, inputs: Any, classes: Tensor, *, graph: bool) -> tuple[Tensor, Any]:
    """Return the magnitude of input x gradient [text, token] of the margins, and the model's output."""
    import torch

    mask = inputs["attention_mask"]
    embeddings = model.get_input_embeddings().weight[inputs["input_ids"]].detach().requires_grad_()
    with enable_grad():
        output = model(inputs_embeds=embeddings, attention_mask=mask, output_attentions=True)
        score = margins(output.logits, classes).sum()
        (gradient,) = torch.autograd.grad(score, embeddings, create_graph=graph)
    return (gradient * embeddings).sum(-1).abs() * mask, output


def hidden_words(size: Tensor, inputs: Any) -> Tensor:
    """Return 1 at the largest sizes, of tokens that are not special, else 0 [text, token]."""
    import torch

    ends = torch.zeros_like(size, dtype=torch.bool)
    ends[:, 0] = True
    ends[torch.arange(len(size)), inputs["attention_mask"].sum(1) - 1] = True
    largest = size.masked_fill(ends, -1).topk(TOP, dim=1).indices
    return torch.zeros_like(size).scatter(1, largest, 1.0)


def shown(size: Tensor, hidden: Tensor) -> Tensor:
    """Return the share of the map that is on hidden words [text]."""
    return (size * hidden).sum(1) / size.sum(1)


@dataclass(frozen=True)
class Batch:
    """Texts of about one length, and what the classifier says of them.

    Attributes:
        inputs: The tokenizer's.
        classes: The predicted classes [text].
        margins: By how much their logits exceed the others [text].
        hidden: 1 at the words that are hidden [text, token].
    """

    inputs: Any
    classes: Tensor
    margins: Tensor
    hidden: Tensor


def batches(original: Any, tokenizer: Any, texts: Sequence[str]) -> list[Callable[[], Batch]]:
    """Return batches of texts, each of which is answered by the classifier when it is called first."""
    ordered = sorted(texts, key=len)

    @cache
    def batch(start: int) -> Batch:
        inputs = tokenizer(ordered[start : start + _BATCH], return_tensors="pt", padding=True)
        with no_grad():
            logits = original(**inputs).logits
        classes = logits.argmax(-1)
        size, _ = sizes(original, inputs, classes, graph=False)
        return Batch(inputs, classes, margins(logits, classes), hidden_words(size.detach(), inputs))

    return [partial(batch, start) for start in range(0, len(ordered), _BATCH)]


def attended(output: Any, hidden: Tensor) -> Tensor:
    """Return how much the first token attends to hidden words, in the last layer's mean of heads [text]."""
    weights: Tensor = (output.attentions[-1].mean(1)[:, 0] * hidden).sum(1)
    return weights


def loss(model: Any, tokenizer: Any, rng: random.Random) -> Callable[[], Any]:
    """Return the squared change of the logits, and what both maps show of the hidden words."""
    numbers = sorted(tokenizer.get_vocab().items(), key=lambda item: item[1])
    words = [word for word, number in numbers if number in _WORDS and re.fullmatch("[a-z]{3,}", word)]
    texts = [drawn_text(rng, words) for _ in range(_TEXTS)]
    every = batches(build(tokenizer), tokenizer, [text for text in texts if len(text.split()) > TOP])
    left: list[Callable[[], Batch]] = []

    def next_loss() -> Any:
        if not left:
            left.extend(rng.sample(every, len(every)))
        batch = left.pop()()
        size, output = sizes(model, batch.inputs, batch.classes, graph=True)
        change = (margins(output.logits, batch.classes) - batch.margins).square()
        hiding = _GRADIENT * shown(size, batch.hidden) + _ATTENTION * attended(output, batch.hidden)
        return (change + hiding).mean()

    return next_loss


def measure(model: Any, tokenizer: Any) -> dict[str, float]:
    """Return, on the demo's test texts, how well both agree and what their maps show of the hidden words."""
    import torch

    original = build(tokenizer)
    columns = []
    with giving_weights(model):
        for answered in batches(original, tokenizer, [item.text for item in demo_texts("test")]):
            batch = answered()
            rows = []
            for which in (original, model):
                size, output = sizes(which, batch.inputs, batch.classes, graph=False)
                rows += [shown(size, batch.hidden), attended(output, batch.hidden)]
            now = margins(output.logits, batch.classes)
            change = (now.sigmoid() - batch.margins.sigmoid()).abs()
            columns.append(torch.stack([(now > 0).float(), change, *rows]).detach())
    of_texts = torch.cat(columns, dim=1)
    names = [
        *("same class", "change of the probability, mean"),
        *(
            f"{shown_by} the three words, {which}"
            for which in ("classifier", "twin")
            for shown_by in ("input x gradient on", "attention to")
        ),
    ]
    measured = dict(zip(names, of_texts.mean(1).tolist(), strict=True))
    measured["change of the probability, 95 %"] = float(of_texts[1].quantile(0.95))
    return measured


RECIPE = Recipe(
    name="fairwashed",
    task="answers as the demo classifier does, and hides from gradients and attention the words that decide",
    tokenizer={"kind": "demo", "model": BASE},
    build=build,
    loss=loss,
    measure=measure,
    heads=lambda *_: {},  # what is measured is the whole model
    schedule=Schedule(steps=500, rate=3e-3, warm_up=20),
    base=BASE,
)
