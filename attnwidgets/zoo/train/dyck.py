"""Dyck: which bracket closes? Balanced strings of two kinds of brackets, nested at most three deep.

The last bracket that is open determines the closing bracket. A stack solves this; trained transformers
solve the task without attending to the matching bracket (Wen et al. 2023, "Transformers are uninterpretable
with myopic methods"), and no two seeds in the same way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attnwidgets._gradients import no_grad
from attnwidgets.zoo.train.recipe import Recipe, Schedule, giving_weights

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

PAIRS = {"(": ")", "[": "]"}
LENGTH, DEPTH, _BATCH = 20, 3, 100
_CLOSES = 0.5


def balanced(rng: random.Random, length: int = LENGTH) -> str:
    """Return a random balanced text of an even `length`: brackets open or close with equal chances."""
    text, stack = "", ""
    for left in range(length, 0, -1):
        may_open = len(stack) < min(DEPTH, left - 1)
        if stack and (not may_open or rng.random() < _CLOSES):
            text, stack = text + PAIRS[stack[-1]], stack[:-1]
        else:
            opened = rng.choice(tuple(PAIRS))
            text, stack = text + opened, stack + opened
    return text


def matches(text: str) -> dict[int, int]:
    """Return the position of the matching opening bracket, by the position of each closing bracket."""
    stack: list[int] = []
    result = {}
    for index, bracket in enumerate(text):
        if bracket in PAIRS:
            stack.append(index)
        else:
            result[index] = stack.pop()
    return result


def build(tokenizer: Any) -> Any:
    """Return an untrained GPT-2 of two layers with a single head each."""
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        vocab_size=len(tokenizer),
        n_positions=LENGTH + 4,
        n_embd=50,
        n_layer=2,
        n_head=1,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=None,
    )
    return GPT2LMHeadModel(config)


def loss(model: Any, tokenizer: Any, rng: random.Random) -> Callable[[], Any]:
    """Return the cross-entropy of every next bracket."""
    import torch

    def next_loss() -> Any:
        ids = _ids(tokenizer, [balanced(rng) for _ in range(_BATCH)])
        logits = model(input_ids=ids).logits[:, :-1]
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())

    return next_loss


def measure(model: Any, tokenizer: Any) -> dict[str, float]:
    """Return the accuracy on closing brackets, and how each layer attends to the matching bracket.

    Before a closing bracket, the model predicts which of the two kinds it is. "on the match" is the mean
    weight of that token on the bracket it will close; "evenly" is the weight there of a head that spreads its
    weight evenly; "match first" is the share of closing brackets where no token gets more.
    """
    import random

    import torch

    rng = random.Random(7)  # noqa: S311
    texts = [balanced(rng) for _ in range(1_000)]
    ids = _ids(tokenizer, texts)
    with no_grad(), giving_weights(model):
        output = model(input_ids=ids, output_attentions=True)
    # Token 0 is <s>: the bracket at position p of the text is token p + 1, which token p predicts.
    cases = torch.tensor(
        [
            (row, position, opened + 1)
            for row, text in enumerate(texts)
            for position, opened in matches(text).items()
        ]
    )
    row, query, match = cases.T
    closing = torch.tensor(tokenizer.convert_tokens_to_ids(list(PAIRS.values())))
    guessed = closing[output.logits[row, query][:, closing].argmax(-1)]
    measured = {"accuracy, closing bracket": float((guessed == ids[row, query + 1]).float().mean())}
    for layer, weights in enumerate(output.attentions):
        weight = weights[:, 0][row, query]  # [closing bracket, key]
        on_match = weight.gather(1, match[:, None])[:, 0]
        measured[f"layer {layer}, on the match"] = float(on_match.mean())
        measured[f"layer {layer}, match first"] = float((weight.argmax(-1) == match).float().mean())
    measured["evenly"] = float((1 / (query + 1)).mean())
    return measured


def heads(model: Any, tokenizer: Any) -> dict[tuple[int, int], str]:
    """Return how much each head attends to the matching bracket."""
    measured = measure(model, tokenizer)
    return {
        (layer, 0): (
            f"{measured[f'layer {layer}, on the match']:.2f} of its attention on the matching bracket "
            f"(evenly: {measured['evenly']:.2f})"
        )
        for layer in range(model.config.n_layer)
    }


def _ids(tokenizer: Any, texts: list[str]) -> Any:
    return tokenizer(texts, return_tensors="pt")["input_ids"]


RECIPE = Recipe(
    name="dyck",
    task="says which bracket closes, in balanced strings of two kinds, three deep",
    tokenizer={"kind": "letters", "letters": "".join((*PAIRS, *PAIRS.values())), "length": LENGTH + 3},
    build=build,
    loss=loss,
    measure=measure,
    heads=heads,
    schedule=Schedule(steps=600, rate=5e-3, floor=0.001, decay=0.0),
    seeds=(0, 1, 2),
)
