"""A preview equals the output of the whole model, running only the layers that an intervention reaches."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import attnwidgets as aw
from attnwidgets.intervene.preview import preview
from attnwidgets.tracing.rerun_trace import require_same_model
from tests.intervene.made import logits, t5, text, vit

LAYERS = {"BERT": "bert.encoder.layer", "GPT-2": "transformer.h", "Llama": "model.layers"}


def calls(trace: Any, blocks: Any, ablation: Any) -> list[int]:
    """Which attention modules run for a preview, by block."""
    seen: list[int] = []
    handles = [
        next(part for name, part in block.named_modules() if name.endswith(("query", "c_attn", "q_proj")))
        .register_forward_hook(lambda *_, at=at: seen.append(at))
        for at, block in enumerate(blocks)
    ]  # fmt: skip
    require_same_model(trace, "test")  # hooks are a change, for which the model runs
    seen.clear()
    preview(trace, ablation)
    for handle in handles:
        handle.remove()
    return seen


@pytest.mark.slow
@pytest.mark.parametrize("make", [*(lambda n=n: text(n) for n in (*LAYERS, "ALBERT", "Gemma 2")), t5, vit])
def test_a_preview_is_the_rerun(make: Any) -> None:
    trace = make()
    for stack in trace.stacks:
        for layer in range(trace.n_layers(stack)):
            ablation = aw.ablate_heads(trace, {layer: [0, 2]}, stack=stack)
            result, whole = preview(trace, ablation), trace.rerun(ablation)
            torch.testing.assert_close(result.logits, whole.logits, atol=1e-12, rtol=0)
            assert [p.id for p in result.after] == [p.id for p in whole.predictions(100)]
            assert result.before == trace.predictions(100)
    plain = logits(trace)
    both = (aw.ablate_heads(trace, (0, 1)), aw.ablate_heads(trace, (1, 1)))
    torch.testing.assert_close(preview(trace, *both).logits, trace.rerun(*both).logits, atol=1e-12, rtol=0)
    assert torch.equal(logits(trace), plain)
    assert all("forward" not in vars(module) for module in trace.model.modules())


@pytest.mark.parametrize("name", LAYERS)
def test_only_the_layers_from_the_changed_one_on_run(name: str) -> None:
    trace = text(name)
    blocks = trace.model.get_submodule(LAYERS[name])
    first, last = aw.ablate_heads(trace, (0, 1)), aw.ablate_heads(trace, (1, 2))
    assert calls(trace, blocks, last) == [0, 1], "the first pass keeps the states that later passes need"
    assert calls(trace, blocks, last) == [1]
    assert calls(trace, blocks, aw.ablate_heads(trace, (1, 1))) == [1]
    assert calls(trace, blocks, first) == [0, 1]


def test_what_goes_wrong_inside_leaves_the_blocks_alone() -> None:
    trace = text("GPT-2")
    ahead = aw.edit_attention(trace, (1, 0), torch.full((6, 6), 1 / 6))
    with pytest.raises(ValueError, match="read token 1"):
        preview(trace, ahead)
    assert all("forward" not in vars(module) for module in trace.model.modules())
    with aw.ablate_heads(trace, (0, 0)), pytest.raises(ValueError, match="recorded before"):
        preview(trace, aw.ablate_heads(trace, (1, 0)))
    with pytest.raises(ValueError, match="has no model"):
        preview(aw.from_attentions([torch.eye(2)[None]], ["a", "b"]))
