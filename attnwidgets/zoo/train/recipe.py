"""The options of a recipe, and the training loop that all recipes share."""

from __future__ import annotations

import math
import random
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from attnwidgets._progress import progress

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping


@dataclass(frozen=True)
class Schedule:
    """How the learning rate moves: up over `warm_up` steps, then, after `hold`, down along a cosine.

    Args:
        steps: Number of steps of AdamW.
        rate: The highest learning rate.
        warm_up: Steps until it is reached.
        hold: Steps before it falls.
        floor: The last learning rate, as a share of the highest.
        decay: Weight decay of matrices; vectors (norms, biases) have none.
    """

    steps: int
    rate: float
    warm_up: int = 50
    hold: int = 0
    floor: float = 0.02
    decay: float = 0.01

    def of(self, steps: int) -> Schedule:
        """Return the same schedule in fewer or more steps."""
        return replace(self, steps=steps, hold=self.hold * steps // self.steps)

    def at(self, step: int) -> float:
        """Return the learning rate at a step, counted from 0."""
        rising = min(1.0, (step + 1) / self.warm_up)
        fallen = max(0, step - self.hold) / max(1, self.steps - self.hold)
        falling = 0.5 * (1 + math.cos(math.pi * min(1.0, fallen)))
        return self.rate * rising * (self.floor + (1 - self.floor) * falling)


@dataclass(frozen=True)
class Recipe:
    """The training of a model of the zoo, and its measurements.

    Args:
        name: Its name in `aw.zoo.trained`.
        task: The task that the model learns, in a sentence.
        tokenizer: The options of its tokenizer (`attnwidgets.zoo.trained_models.make_tokenizer`).
        build: Returns a new model for a tokenizer, in the mode in which it is trained; torch's random numbers
            are seeded when it is called.
        loss: Returns, for a model, a tokenizer and a random generator, the function that returns the loss on
            the next batch.
        measure: Returns the measurements of a trained model: name -> number.
        heads: Returns the measured roles: (layer, head) -> role in words.
        schedule: The steps and their learning rate.
        seeds: The seeds whose weights are shipped.
        base: The demo model that `build` changes; its file holds only the weights that are trained.
    """

    name: str
    task: str
    tokenizer: Mapping[str, Any]
    build: Callable[[Any], Any]
    loss: Callable[[Any, Any, random.Random], Callable[[], Any]]
    measure: Callable[[Any, Any], dict[str, float]]
    heads: Callable[[Any, Any], dict[tuple[int, int], str]]
    schedule: Schedule
    seeds: tuple[int, ...] = (0,)
    base: str = ""


def fit(
    recipe: Recipe,
    tokenizer: Any,
    seed: int,
    steps: int | None = None,
    *,
    keep: Collection[int] = (),
    on_step: Callable[[int, Any], None] | None = None,
) -> Any:
    """Return a model trained by a recipe, in evaluation mode.

    torch runs on one thread meanwhile, so that the same seed gives the same weights on the same machine with
    the same versions of its libraries. torch's random numbers and number of threads are then restored.

    Args:
        recipe: The recipe.
        tokenizer: Its tokenizer.
        seed: Seeds the first weights, the dropout and the data.
        steps: Fewer (or more) steps than the recipe's.
        keep: The steps at which `on_step` is called; 0 is the untrained model.
        on_step: Takes the number of steps so far and the model in evaluation mode. It may run the model and
            draw torch's random numbers: the last weights are the same, bit for bit, with and without it.
    """
    import torch

    def look(step: int) -> None:
        if on_step is not None and step in keep:
            with torch.random.fork_rng(devices=[]):
                on_step(step, model.eval())
            model.train()

    schedule = recipe.schedule if steps is None else recipe.schedule.of(steps)
    with _alone(seed):
        model = recipe.build(tokenizer)
        next_loss = recipe.loss(model, tokenizer, random.Random(seed))  # noqa: S311 - no secrets here
        trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
        groups = [
            {"params": [p for p in trained if p.ndim > 1], "weight_decay": schedule.decay},
            {"params": [p for p in trained if p.ndim <= 1], "weight_decay": 0.0},
        ]
        optimizer = torch.optim.AdamW(groups, lr=schedule.rate, betas=(0.9, 0.98))
        look(0)
        for step in progress(range(schedule.steps), f"training {recipe.name}, seed {seed}"):
            for group in optimizer.param_groups:
                group["lr"] = schedule.at(step)
            optimizer.zero_grad()
            next_loss().backward()
            torch.nn.utils.clip_grad_norm_(trained, 1.0)
            optimizer.step()
            look(step + 1)
    return model.eval()


@contextmanager
def _alone(seed: int) -> Iterator[None]:
    """Seed torch and limit it to a single thread; restore both."""
    import torch

    threads = torch.get_num_threads()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        torch.set_num_threads(1)
        try:
            yield
        finally:
            torch.set_num_threads(threads)


def round_to_half(model: Any) -> None:
    """Round trained weights to half precision, as their file holds them; they stay in single precision."""
    for parameter in (parameter for parameter in model.parameters() if parameter.requires_grad):
        parameter.data.copy_(parameter.data.half().float())


@contextmanager
def giving_weights(model: Any) -> Iterator[None]:
    """Let a model compute attention so that it can return its weights; restore how it did before."""
    before = model.config._attn_implementation  # noqa: SLF001 - transformers has no public name for it
    model.set_attn_implementation("eager")
    try:
        yield
    finally:
        model.set_attn_implementation(before)
