"""A preview equals the output of the whole model, running only the layers that an intervention reaches."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import attnwidgets as aw
from attnwidgets.intervene.preview import changed, preview
from attnwidgets.intervene.side_by_side import each_changed
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


@pytest.mark.parametrize("make", [lambda: text("GPT-2"), lambda: text("Llama"), t5, vit])
def test_interventions_side_by_side_have_the_effect_of_each_alone(
    make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace = make()
    stack = trace.stacks[-1]
    heads = [aw.ablate_heads(trace, (layer, head), stack=stack) for layer in (0, 1) for head in (0, 2)]
    rows = [aw.edit_attention(trace, (0, head), "one_hot", query=3, key=1, stack=stack) for head in (1, 2)]
    alone = [changed(trace, intervention) for intervention in (*heads, *rows)]
    calls, call = [], type(trace).call
    monkeypatch.setattr(type(trace), "call", lambda *given: calls.append(1) or call(*given))
    together = each_changed(trace, [*heads, *rows])
    assert len(calls) == 1
    for one, other in zip(alone, together, strict=True):
        torch.testing.assert_close(other.after, one.after, atol=1e-12, rtol=0)
        assert (other.kind, other.title) == (one.kind, one.title)
        assert other.distance == pytest.approx(one.distance, abs=1e-12)
    assert len({change.distance for change in together}) == len(together)


def test_a_model_that_takes_one_text_runs_once_for_each_intervention() -> None:
    trace = text("Llama")
    heads = [aw.ablate_heads(trace, (0, head)) for head in (0, 1)]
    alone = [changed(trace, intervention) for intervention in heads]
    forward = trace.model.forward

    def of_one(input_ids: Any, **options: Any) -> Any:
        if len(input_ids) > 1:
            raise ValueError("one text at a time")
        return forward(input_ids, **options)

    trace.model.forward = of_one
    trace = aw.trace(trace.model, None, trace.input_ids)
    together = each_changed(trace, [aw.ablate_heads(trace, (0, head)) for head in (0, 1)])
    assert [change.distance for change in together] == [change.distance for change in alone]
    ahead = aw.edit_attention(trace, (1, 0), torch.full((6, 6), 1 / 6))
    with pytest.raises(ValueError, match="read token 1"):
        each_changed(trace, [ahead, aw.ablate_heads(trace, (0, 0))])


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
