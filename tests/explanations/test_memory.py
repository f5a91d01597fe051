"""Peak memory: no vector for every pair of tokens, and no more than a chunk where a size is set."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from attnwidgets.explanations.mixing.alti import alti
from attnwidgets.explanations.mixing.attention_norm import attention_norm, globenc, mixing_ratio
from attnwidgets.explanations.mixing.contribution_graph import contribution_graph
from attnwidgets.explanations.mixing.hidden_token_attribution import hidden_token_attribution
from attnwidgets.explanations.mixing.value_zeroing import value_zeroing
from attnwidgets.tracing.recording.run import trace
from attnwidgets.tracing.text.units import Unit
from tests.tracing import tiny

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

TOKENS, DIM, HEADS, HIDDEN = 192, 48, 4, 64
# A float64 for every head and pair, and a vector of float32 for every pair.
ATTENTION, PAIRS = 8 * HEADS * TOKENS**2, 4 * DIM * TOKENS**2
NORMS = {
    **{
        name: lambda trace, name=name: attention_norm(trace, name)
        for name in ("attn", "res", "res_ln", "enc")
    },
    "per head": lambda trace: attention_norm(trace, per_head=True),
    "globenc": globenc,
    "in pairs": lambda trace: attention_norm(trace, "res_ln", unit=pairs(len(trace.tokens))),
}


@pytest.fixture
def peak(root: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], Any]], int]:
    """Return a function that measures the peak of torch's bytes, as the figures do."""
    monkeypatch.syspath_prepend(root / "benchmarks")
    result: Callable[[Callable[[], Any]], int] = importlib.import_module("allocated").peak
    return result


class Largest(TorchDispatchMode):
    """Remembers the largest tensor that any operation made, in bytes."""

    def __init__(self) -> None:
        super().__init__()
        self.size = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        for item in made if isinstance(made, (tuple, list)) else (made,):
            if isinstance(item, torch.Tensor) and item.layout == torch.strided:
                self.size = max(self.size, item.untyped_storage().nbytes())
        return made


def pairs(tokens: int) -> Unit:
    spans = tuple((first, first + 1) for first in range(0, tokens, 2))
    return Unit("pair", tuple(map(str, range(len(spans)))), spans, (False,) * len(spans))


def largest(measure: Callable[[Any], Any], family: str, tokens: int = TOKENS) -> int:
    """Return the largest tensor made for a measure of a new trace, the pass through the model included."""
    sizes = {"hidden_size": DIM, "num_attention_heads": HEADS, "intermediate_size": HIDDEN}
    options = {"num_hidden_layers": 2, "max_position_embeddings": tokens, **sizes}
    result = trace(tiny.build(lambda: tiny._plain(family, "Model", **options)), None, [7] * tokens)
    with Largest() as seen:
        values = measure(result).values
    assert values.any()
    return seen.size


@pytest.mark.parametrize("name", NORMS)
def test_lengths_take_no_more_than_attention_does(name: str) -> None:
    assert 0 < largest(NORMS[name], "Bert") <= ATTENTION < PAIRS


@pytest.mark.slow
@pytest.mark.parametrize("name", [*NORMS, "mixing ratio"])
@pytest.mark.parametrize("tokens", [192, 384])
def test_lengths_hold_some_times_the_attention_and_the_states(
    name: str, tokens: int, peak: Callable[[Callable[[], Any]], int]
) -> None:
    width = 256
    sizes = {"hidden_size": width, "num_attention_heads": HEADS, "intermediate_size": HIDDEN}
    options = {"num_hidden_layers": 2, "max_position_embeddings": tokens, **sizes}
    result = trace(tiny.build(lambda: tiny._plain("Bert", "Model", **options)), None, [7] * tokens)
    measure = NORMS.get(name, mixing_ratio)
    bound = 8 * 4 * (HEADS * tokens**2 + 2 * tokens * width) + 2**22  # the last term is a chunk
    assert 0 < peak(lambda: measure(result).values) <= bound < 4 * width * tokens**2


@pytest.mark.slow
@pytest.mark.parametrize(
    ("measure", "tokens", "few"),
    [
        *((measure, TOKENS, 2) for measure in (alti, value_zeroing, contribution_graph)),
        (hidden_token_attribution, 4, 16),
    ],
)
@pytest.mark.parametrize("family", ["Bert", "Llama"])
def test_chunks_bound_what_is_held(measure: Any, tokens: int, few: int, family: str) -> None:
    small, whole = (
        largest(lambda trace, n=n: measure(trace, chunk_size=n), family, tokens) for n in (few, TOKENS)
    )
    assert 0 < small <= max(8 * HEADS * tokens**2, 8 * few * tokens * HIDDEN)
    assert whole > small
