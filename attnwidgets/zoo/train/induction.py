"""Induction: continue a string of letters that repeats with the letter after the previous occurrence.

Two layers of attention, no feed-forward layers: a head that attends to the previous token, and a head that
attends to the token after an earlier copy of the current token (Olsson et al. 2022, "In-context Learning and
Induction Heads").
"""

from __future__ import annotations

import string
from typing import TYPE_CHECKING, Any

from attnwidgets._gradients import no_grad
from attnwidgets.zoo.train.recipe import Recipe, Schedule, giving_weights

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

LETTERS = string.ascii_lowercase + "012345"
PERIODS = (6, 10, 16)
_LENGTH, _BATCH = 32, 64


def repeating(rng: random.Random, period: int, length: int = _LENGTH, letters: str = LETTERS) -> str:
    """Return a text of random letters that repeats after `period` of them."""
    once = "".join(rng.choices(letters, k=period))
    return (once * (length // period + 1))[:length]


def build(tokenizer: Any, layers: int = 2) -> Any:
    """Return an untrained Llama of attention alone: its feed-forward layers are zero and stay so."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=64,
        intermediate_size=1,
        num_hidden_layers=layers,
        num_attention_heads=2,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=64,
        rope_parameters={"rope_type": "default", "rope_theta": 100.0},
        tie_word_embeddings=False,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=None,
        pad_token_id=None,
        initializer_range=0.1,
    )
    model = LlamaForCausalLM(config)
    for layer in model.model.layers:
        for parameter in layer.mlp.parameters():
            parameter.data.zero_()
            parameter.requires_grad_(requires_grad=False)
    return model


def loss(model: Any, tokenizer: Any, rng: random.Random) -> Callable[[], Any]:
    """Return the cross-entropy of the letters that the letters before them determine."""
    import torch

    def next_loss() -> Any:
        period = rng.randint(PERIODS[0], PERIODS[-1])
        ids = _ids(tokenizer, [repeating(rng, period) for _ in range(_BATCH)])
        logits = model(input_ids=ids).logits[:, period + 1 : -1]
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, period + 2 :].flatten())

    return next_loss


def measure(model: Any, tokenizer: Any) -> dict[str, float]:
    """Return accuracies on the predictable letters, by period, and each layer's best scores of a head."""
    measured = {f"accuracy, period {period}": _accuracy(model, tokenizer, period) for period in PERIODS}
    scores = head_scores(model, tokenizer)
    for layer in range(model.config.num_hidden_layers):
        for role in ("previous token", "induction"):
            best = max(score[role] for (at, _), score in scores.items() if at == layer)
            measured[f"layer {layer}, best head: {role}"] = best
    return measured


def head_scores(model: Any, tokenizer: Any) -> dict[tuple[int, int], dict[str, float]]:
    """Return, for every (layer, head), its mean weight on the previous token and where induction looks.

    The texts are 256 of 32 random letters, of those that the tokenizer knows, that repeat after 16.
    """
    import random

    rng = random.Random(99)  # noqa: S311
    period = PERIODS[-1]
    vocabulary = tokenizer.get_vocab()
    letters = "".join(letter for letter in LETTERS if letter in vocabulary)
    ids = _ids(tokenizer, [repeating(rng, period, letters=letters) for _ in range(256)])
    with no_grad(), giving_weights(model):
        attentions = model(input_ids=ids, output_attentions=True).attentions
    scores = {}
    for layer, weights in enumerate(attentions):
        previous = weights.diagonal(-1, 2, 3)[..., 5:].mean((0, 2))
        induction = weights.diagonal(1 - period, 2, 3)[..., 3:].mean((0, 2))
        for head in range(weights.shape[1]):
            scores[layer, head] = {
                "previous token": float(previous[head]),
                "induction": float(induction[head]),
            }
    return scores


def heads(model: Any, tokenizer: Any) -> dict[tuple[int, int], str]:
    """Return the role on which each head puts most weight, with that weight."""
    roles = {}
    for where, scores in head_scores(model, tokenizer).items():
        role = max(scores, key=lambda name: scores[name])
        roles[where] = f"{role} ({scores[role]:.2f} of its attention)"
    return roles


def _accuracy(model: Any, tokenizer: Any, period: int) -> float:
    import random

    rng = random.Random(period)  # noqa: S311
    ids = _ids(tokenizer, [repeating(rng, period, 2 * period) for _ in range(256)])
    with no_grad():
        guessed = model(input_ids=ids).logits[:, period + 1 : -1].argmax(-1)
    return float((guessed == ids[:, period + 2 :]).float().mean())


def _ids(tokenizer: Any, texts: list[str]) -> Any:
    return tokenizer(texts, return_tensors="pt")["input_ids"]


RECIPE = Recipe(
    name="induction",
    task="continues a string of letters that repeats",
    tokenizer={"kind": "letters", "letters": LETTERS, "length": 63},
    build=build,
    loss=loss,
    measure=measure,
    heads=heads,
    schedule=Schedule(steps=1_200, rate=4e-3),
    seeds=(0, 1),
)
