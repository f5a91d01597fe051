"""A model that another thread runs and trains meanwhile: exact numbers on both sides, whatever we do."""

from __future__ import annotations

import functools
import inspect
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

import attnwidgets as aw
from attnwidgets.explanations.registry.registry import methods
from tests.sae import made
from tests.tracing import tiny
from tests.tracing.test_borrow import state_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

IDS = list(range(3, 20))
OTHER = torch.tensor([[9, 31, 4, 77, 5]])
LEAST, LONGEST = 2, 0.25
"""How often, at least, and for how many seconds everything is done beside another thread."""


class Beside:
    """A thread that runs a model all the time and compares; in turn without gradients and training."""

    def __init__(self, model: Any) -> None:
        self.model, self.passes, self.wrong = model, 0, []
        self._stop = threading.Event()
        self.expected = self._pass()
        self._gradients = self._train()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _pass(self) -> torch.Tensor:
        with torch.no_grad():
            return self.model(OTHER).logits

    def _train(self) -> list[torch.Tensor]:
        loss = self.model(OTHER).logits.logsumexp(-1).sum()
        return list(torch.autograd.grad(loss, list(self.model.parameters()), allow_unused=True))

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                if not torch.equal(self._pass(), self.expected):
                    self.wrong.append("other logits")
                pairs = zip(self._train(), self._gradients, strict=True)
                if not all(now is before or torch.equal(now, before) for now, before in pairs):
                    self.wrong.append("other gradients")
            except Exception as error:  # noqa: BLE001 - whatever it is, it is ours
                self.wrong.append(repr(error))
            self.passes += 1

    @contextmanager
    def running(self) -> Iterator[None]:
        self._thread.start()
        try:
            yield
        finally:
            self._stop.set()
            self._thread.join()


def numbers(result: Any) -> list[np.ndarray]:
    """Return every number that a result is made of."""
    if isinstance(result, (list, tuple)):
        return [array for item in result for array in numbers(item)]
    if isinstance(result, aw.results.Trace):
        return [result.logits.numpy(), *(result.attention_layer(i).numpy() for i in range(result.n_layers()))]
    if isinstance(result, np.ndarray):
        return [result]
    values = result.values
    return [np.asarray(values.toarray() if hasattr(values, "toarray") else values)]


def same(actual: np.ndarray, expected: np.ndarray) -> bool:
    """Return whether two arrays hold the same bits; a share that is not defined is NaN."""
    return np.array_equal(actual, expected, equal_nan=True)


def build(family: str) -> Any:
    # Without dropout, so that a training pass can be compared.
    model = tiny.build(tiny.TEXT[family])
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    return model


def everything(model: Any) -> dict[str, Callable[[], Any]]:
    """Return all that runs a model, by name; each on a new trace, which has stored nothing yet."""

    def fresh() -> Any:
        return aw.trace(model, None, IDS)

    def explained(method: Any) -> Any:
        takes_target = "target" in inspect.signature(method.function).parameters
        return aw.explain(fresh(), method.name, **({"target": target} if takes_target else {}))

    def ablated() -> Any:
        with aw.ablate_heads(model, (1, 1)):
            return [model(OTHER).logits.detach().numpy(), fresh()]

    def steered() -> Any:
        with aw.steer(model, sae, 3, 2.0, maximum=4.0):
            return [model(OTHER).logits.detach().numpy(), fresh()]

    target = aw.targets.token(7, position=2)
    masked = model.config.model_type == "bert"
    sae = made.sae(d_in=32, site="encoder.layer.1" if masked else "model.layers.1")
    table = methods(fresh())
    result: dict[str, Callable[[], Any]] = {
        method.name: functools.partial(explained, method)
        for method in table
        if method.function.__module__.startswith("attnwidgets.") and not table.refusals[method.name]
    }
    result |= {
        "trace": fresh,
        "rerun": lambda: fresh().rerun(aw.ablate_heads(model, {1: [0]})),
        "ablate_heads": ablated,
        "steer": steered,
        "sae_features": lambda: aw.sae_features(fresh(), sae),
        "faithfulness": lambda: aw.evaluate.faithfulness(
            fresh(), ["saliency"], operator="attention_mask", target=target
        ),
    }
    if not masked:
        result["generation"] = lambda: aw.trace(model, None, IDS, max_new_tokens=3)
        result["steered generation"] = lambda: _generated(model, sae)
    return result


def _generated(model: Any, sae: Any) -> Any:
    with aw.steer(model, sae, 3, 2.0, maximum=4.0, positions="generated"):
        return model.generate(OTHER, max_new_tokens=3, do_sample=False).numpy()


@pytest.mark.slow
@pytest.mark.parametrize("family", ["Llama", "BERT"])
def test_numbers_are_exact_beside_another_thread(family: str) -> None:
    model = build(family).train()
    before = state_of(model)
    things = everything(model)
    expected = {name: numbers(thing()) for name, thing in things.items()}
    other = Beside(model)
    wrong = []
    with other.running():
        for name, thing in things.items():
            passes, end = other.passes, time.monotonic() + LONGEST
            times = 0
            while times < LEAST or (time.monotonic() < end and other.passes - passes < LEAST):
                result = numbers(thing())
                times += 1
                if len(result) != len(expected[name]) or not all(map(same, result, expected[name])):
                    wrong.append(name)
    assert not wrong
    assert not other.wrong
    assert other.passes > len(things)
    assert state_of(model) == before


@pytest.mark.slow
def test_a_tokenizer_is_used_by_two_threads_with_options_of_their_own() -> None:
    tokenizer = tiny.wordpiece()
    # As checkpoints of sentence encoders come.
    tokenizer.backend_tokenizer.enable_padding(length=24, pad_token="[PAD]")
    tokenizer.backend_tokenizer.enable_truncation(9)
    before = tokenizer.backend_tokenizer.to_str()
    model = build("BERT")
    text = "the cat sat . the cat sat . the cat sat"
    expected = aw.trace(model, tokenizer, text)
    assert len(expected.tokens) > 9
    assert tokenizer.backend_tokenizer.to_str() == before
    theirs = tokenizer(["a b", text], padding=True, truncation=True, max_length=7)["input_ids"]
    wrong: list[Any] = []
    stop = threading.Event()

    def other() -> None:
        while not stop.is_set():
            try:
                outcome = tokenizer(["a b", text], padding=True, truncation=True, max_length=7)["input_ids"]
                if outcome != theirs:
                    wrong.append(outcome)
            except Exception as error:  # noqa: BLE001, PERF203 - whatever it is, it is ours
                wrong.append(error)

    thread = threading.Thread(target=other)
    thread.start()
    for _ in range(60):
        result = aw.trace(model, tokenizer, text)
        if result.tokens != expected.tokens or not torch.equal(result.logits, expected.logits):
            wrong.append(result)
    stop.set()
    thread.join()
    assert not wrong
