"""Dates: write a date as year-month-day, by an encoder and a decoder with cross-attention."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attnwidgets._gradients import no_grad
from attnwidgets.zoo.train.recipe import Recipe, Schedule, giving_weights

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

MONTHS = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)
_BATCH = 100
_LONGEST = 24
_ALPHABET = "".join(sorted({letter for month in MONTHS for letter in month} | set(" ,-/0123456789")))


def dated(rng: random.Random) -> tuple[str, str]:
    """Return a date in a format drawn from four, and as year-month-day."""
    year, month, day = rng.randint(1900, 2099), rng.randint(1, 12), rng.randint(1, 28)
    name = MONTHS[month - 1]
    ways = (
        f"{name} {day}, {year}",
        f"{day} {name} {year}",
        f"{name[:3]} {day} {year}",
        f"{day}/{month}/{year}",
    )
    return rng.choice(ways), f"{year}-{month:02d}-{day:02d}"


def build(tokenizer: Any) -> Any:
    """Return an untrained BART of two and two layers with four heads."""
    from transformers import BartConfig, BartForConditionalGeneration

    config = BartConfig(
        vocab_size=len(tokenizer),
        d_model=48,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=96,
        decoder_ffn_dim=96,
        max_position_embeddings=_LONGEST + 8,
        dropout=0.0,
        init_std=0.08,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        decoder_start_token_id=tokenizer.bos_token_id,
        forced_eos_token_id=None,
    )
    return BartForConditionalGeneration(config)


def loss(model: Any, tokenizer: Any, rng: random.Random) -> Callable[[], Any]:
    """Return the cross-entropy of every next character of the answer."""

    def next_loss() -> Any:
        questions, answers = zip(*(dated(rng) for _ in range(_BATCH)), strict=True)
        inputs = tokenizer(list(questions), return_tensors="pt", padding=True)
        labels = tokenizer(list(answers), return_tensors="pt")["input_ids"]
        return model(**inputs, labels=labels).loss

    return next_loss


def measure(model: Any, tokenizer: Any) -> dict[str, float]:
    """Return the share of dates that `generate` writes without a mistake, and how each head aligns the year.

    The latter is the share of the year's digits at which that head looks most at the same digit of the date
    as it was written.
    """
    import random

    rng = random.Random(11)  # noqa: S311
    dates = [dated(rng) for _ in range(300)]
    measured = {"exact": exact(model, tokenizer, dates)}
    scores = alignment(model, tokenizer, dates)
    best = max(scores, key=lambda head: scores[head])
    measured["year's digits, best head of cross-attention"] = scores[best]
    return measured


def exact(model: Any, tokenizer: Any, dates: list[tuple[str, str]]) -> float:
    """Return the share of dates that the model writes right from beginning to end."""
    inputs = tokenizer([question for question, _ in dates], return_tensors="pt", padding=True)
    with no_grad():
        written = model.generate(**inputs, do_sample=False, num_beams=1, max_new_tokens=11)
    guesses = tokenizer.batch_decode(written, skip_special_tokens=True)
    return sum(guess == answer for guess, (_, answer) in zip(guesses, dates, strict=True)) / len(dates)


def alignment(model: Any, tokenizer: Any, dates: list[tuple[str, str]]) -> dict[tuple[int, int], float]:
    """Return, for every head of cross-attention, the share of the year's digits that it aligns."""
    import torch

    inputs = tokenizer([question for question, _ in dates], return_tensors="pt", padding=True)
    labels = tokenizer([answer for _, answer in dates], return_tensors="pt")["input_ids"]
    with no_grad(), giving_weights(model):
        attentions = model(**inputs, labels=labels, output_attentions=True).cross_attentions
    first = torch.tensor(
        [len(question) - 4 for question, _ in dates]
    )  # every way of writing ends with the year
    digits = first[:, None] + torch.arange(4)
    return {
        (layer, head): float((weights[:, head, :4].argmax(-1) == digits).float().mean())
        for layer, weights in enumerate(attentions)
        for head in range(weights.shape[1])
    }


def heads(model: Any, tokenizer: Any) -> dict[tuple[int, int], str]:
    """Return, for every head of cross-attention, how it aligns the digits of the year."""
    import random

    rng = random.Random(11)  # noqa: S311
    scores = alignment(model, tokenizer, [dated(rng) for _ in range(300)])
    return {
        where: f"cross-attention: {score:.0%} of the year's digits aligned" for where, score in scores.items()
    }


RECIPE = Recipe(
    name="dates",
    task="writes a date as year-month-day",
    tokenizer={"kind": "characters", "alphabet": _ALPHABET, "length": _LONGEST, "ends": True},
    build=build,
    loss=loss,
    measure=measure,
    heads=heads,
    schedule=Schedule(steps=450, rate=3e-3),
)
