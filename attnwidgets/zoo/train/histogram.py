"""Histogram: how often does every letter stand in the text? Solutions that training finds.

Counting can be done by looking at equal letters (the weight on them is the count), or by an average of all
letters whose feed-forward layer reads every count from it (Behrens et al. 2024, "Counting in small
transformers"). The seeds and widths that are shipped were trained to different solutions.
"""

from __future__ import annotations

import string
from typing import TYPE_CHECKING, Any

from attnwidgets._gradients import no_grad
from attnwidgets.zoo.train.recipe import Recipe, Schedule, giving_weights

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

LETTERS = string.ascii_lowercase[:8]
LENGTH, _BATCH = 10, 256
_START = "start"


def counts(text: str) -> list[int]:
    """Return how often each letter of a text stands in it."""
    return [text.count(letter) for letter in text]


def build(tokenizer: Any, width: int = 48, hidden: int = 96) -> Any:
    """Return an untrained BERT with a single layer and head, and a class for every count and for `<s>`."""
    from transformers import BertConfig, BertForTokenClassification

    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=width,
        num_hidden_layers=1,
        num_attention_heads=1,
        intermediate_size=hidden,
        max_position_embeddings=LENGTH + 1,
        type_vocab_size=1,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        id2label={0: _START, **{count: str(count) for count in range(1, LENGTH + 1)}},
        label2id={_START: 0, **{str(count): count for count in range(1, LENGTH + 1)}},
        initializer_range=0.1,
    )
    model = BertForTokenClassification(config)
    # A count does not depend on order. Positions would only be noise that training has to remove first.
    positions = model.bert.embeddings.position_embeddings.weight
    positions.data.zero_()
    positions.requires_grad = False
    return model


def counted(rng: random.Random) -> str:
    """Return ten random letters; most counts are then one to four."""
    return "".join(rng.choices(LETTERS, k=LENGTH))


def loss(model: Any, tokenizer: Any, rng: random.Random) -> Callable[[], Any]:
    """Return the cross-entropy of the count of every letter."""
    import torch

    def next_loss() -> Any:
        texts = [counted(rng) for _ in range(_BATCH)]
        logits = model(**tokenizer(texts, return_tensors="pt")).logits[:, 1:]
        labels = torch.tensor([counts(text) for text in texts])
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())

    return next_loss


def measure(model: Any, tokenizer: Any) -> dict[str, float]:
    """Return the accuracy, and how much the head attends to each kind of token.

    "on itself" and so on are mean weights on a token of that kind: a head that averages has 0.09 on each.
    """
    import random

    import torch

    rng = random.Random(13)  # noqa: S311
    texts = [counted(rng) for _ in range(1_000)]
    inputs = tokenizer(texts, return_tensors="pt")
    with no_grad(), giving_weights(model):
        output = model(**inputs, output_attentions=True)
    labels = torch.tensor([counts(text) for text in texts])
    ids = inputs["input_ids"]
    weights = output.attentions[0][:, 0, 1:]  # [text, letter, token]
    itself = torch.eye(LENGTH, LENGTH + 1, dtype=torch.bool).roll(1, 1)
    start = torch.zeros(LENGTH, LENGTH + 1, dtype=torch.bool)
    start[:, 0] = True
    equal = ids[:, 1:, None] == ids[:, None, :]
    kinds = {
        "itself": itself.expand_as(equal),
        "equal letters elsewhere": equal & ~itself,
        "other letters": ~equal & ~start,
        "<s>": start.expand_as(equal),
    }
    right = output.logits[:, 1:].argmax(-1) == labels
    measured = {"accuracy": float(right.float().mean())}
    return measured | {f"on {kind}": float(weights[where].mean()) for kind, where in kinds.items()}


def heads(model: Any, tokenizer: Any) -> dict[tuple[int, int], str]:
    """Return the mean weight of the head on a token of each kind."""
    measured = measure(model, tokenizer)
    kinds = [f"{value:.2f} {kind}" for kind, value in measured.items() if kind.startswith("on ")]
    return {(0, 0): f"mean weight on a token (evenly: {1 / (LENGTH + 1):.2f}): " + ", ".join(kinds)}


RECIPE = Recipe(
    name="histogram",
    task=f"counts how often each letter stands in a text of {LENGTH}",
    tokenizer={"kind": "letters", "letters": LETTERS, "length": LENGTH},
    build=build,
    loss=loss,
    measure=measure,
    heads=heads,
    schedule=Schedule(steps=1_600, rate=4e-3, decay=0.0),
    seeds=(0, 1, 2),
)
