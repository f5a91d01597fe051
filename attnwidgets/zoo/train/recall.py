"""Recall: repeat the digit that followed a letter earlier in the text, with a single block of Mamba-2.

Pairs such as `a3` come in any order and again; each text draws its own digits. The state of a recurrence has
a fixed size, into which all pairs must fit (Arora et al. 2024, "Zoology: Measuring and Improving Recall in
Efficient Language Models").
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attnwidgets._gradients import no_grad
from attnwidgets.zoo.train.recipe import Recipe, Schedule

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

KEYS, VALUES = "abcdefgh", "01234567"
LENGTH = 32
_BATCH = 64


def pairs(rng: random.Random, length: int = LENGTH) -> str:
    """Return a text of random letters, each with the digit that this text gives it; `length` is even."""
    digits = {key: rng.choice(VALUES) for key in KEYS}
    keys = rng.choices(KEYS, k=length // 2)
    return "".join(key + digits[key] for key in keys)


def recalled(text: str) -> list[int]:
    """Return the tokens (0 is `<s>`) of letters that occurred before: the next digit is determined."""
    return [i for i in range(1, len(text), 2) if text[i - 1] in text[: i - 1]]


def build(tokenizer: Any) -> Any:
    """Return an untrained Mamba-2 with a single block of four heads."""
    from transformers import Mamba2Config, Mamba2ForCausalLM

    config = Mamba2Config(
        vocab_size=len(tokenizer),
        hidden_size=32,
        num_hidden_layers=1,
        expand=2,
        num_heads=4,
        head_dim=16,
        n_groups=1,
        state_size=16,
        conv_kernel=4,
        chunk_size=LENGTH,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=None,
        pad_token_id=None,
        tie_word_embeddings=False,
    )
    return Mamba2ForCausalLM(config)


def loss(model: Any, tokenizer: Any, rng: random.Random) -> Callable[[], Any]:
    """Return the cross-entropy of the digits of letters that came before."""
    import torch

    def next_loss() -> Any:
        logits, digits = _outputs(model, tokenizer, [pairs(rng) for _ in range(_BATCH)])
        return torch.nn.functional.cross_entropy(logits, digits)

    return next_loss


def measure(model: Any, tokenizer: Any) -> dict[str, float]:
    """Return the share of digits of letters that came before that are right, in texts of two lengths."""
    return {f"accuracy, {length} tokens": _accuracy(model, tokenizer, length) for length in (LENGTH, 64)}


def heads(model: Any, tokenizer: Any) -> dict[tuple[int, int], str]:
    """Return the accuracy after the output of each head is set to zero, before the gated norm."""
    mixer, roles = model.backbone.layers[0].mixer, {}
    for head in range(mixer.num_heads):

        def without(_: Any, arguments: Any, head: int = head) -> Any:
            outputs, gate = arguments
            parts = outputs.unflatten(-1, (mixer.num_heads, mixer.head_dim)).clone()
            parts[..., head, :] = 0
            return parts.flatten(-2), gate

        handle = mixer.norm.register_forward_pre_hook(without)
        try:
            roles[0, head] = f"without it {_accuracy(model, tokenizer, LENGTH):.2f} of the digits are right"
        finally:
            handle.remove()
    return roles


def _accuracy(model: Any, tokenizer: Any, length: int) -> float:
    import random

    rng = random.Random(length)  # noqa: S311
    with no_grad():
        logits, digits = _outputs(model, tokenizer, [pairs(rng, length) for _ in range(256)])
    return float((logits.argmax(-1) == digits).float().mean())


def _outputs(model: Any, tokenizer: Any, texts: list[str]) -> tuple[Any, Any]:
    """Return the logits at letters that came before [letter, token], and the digits that follow [letter]."""
    import torch

    ids = tokenizer(texts, return_tensors="pt")["input_ids"]
    where = [(row, i) for row, text in enumerate(texts) for i in recalled(text)]
    rows, tokens = torch.tensor(where).T
    return model(input_ids=ids, use_cache=False).logits[rows, tokens], ids[rows, tokens + 1]


RECIPE = Recipe(
    name="recall",
    task="says which digit followed a letter before",
    tokenizer={"kind": "letters", "letters": KEYS + VALUES, "length": 64},
    build=build,
    loss=loss,
    measure=measure,
    heads=heads,
    schedule=Schedule(steps=400, rate=1e-2),
)
