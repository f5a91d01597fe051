"""Gradients of a traced model: the numbers autograd gives by hand, and a model that comes back as it was."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from attnwidgets.tracing import pass_memory as memory
from attnwidgets.tracing.from_attentions import from_attentions
from attnwidgets.tracing.gradients.differentiable import differentiable, gradients
from attnwidgets.tracing.pass_memory import graph_bytes
from attnwidgets.tracing.recording.run import trace
from attnwidgets.tracing.unsupported import UnsupportedModelError
from tests.tracing import tiny
from tests.tracing.test_borrow import mixed_model, state_of

IDS = [5, 17, 31, 9]


def by_hand(model: Any, embeddings: torch.Tensor) -> torch.Tensor:
    """Return the gradient of the last token's logit 7 at given embeddings, by autograd alone."""
    leaf = embeddings.detach().clone().requires_grad_()
    logits = model(inputs_embeds=leaf).logits
    return torch.autograd.grad(logits[:, -1, 7].sum(), leaf)[0]


@pytest.mark.parametrize(
    "family", ["BERT", "ALBERT", "GPT-2", "OPT", "GPT-NeoX", "Llama", "Gemma 2", "Gemma 3"]
)
def test_gradients_at_the_embeddings_are_autograds_own(family: str) -> None:
    model = tiny.build(tiny.TEXT[family])
    with differentiable(trace(model, None, IDS), "test") as run:
        graph = run()
        result = gradients(graph.outputs.logits[:, -1, 7], [graph.inputs["self"]])[0]
    expected = by_hand(model, graph.inputs["self"])
    assert torch.allclose(result, expected, atol=1e-6)
    assert result.abs().max() > 1e-6


def test_attention_weights_are_in_the_graph() -> None:
    model = tiny.build(tiny.TEXT["Llama"], implementation="eager")
    with differentiable(trace(model, None, IDS), "test") as run:
        graph = run(keep=("weights",))
        result = gradients(graph.outputs.logits[:, -1, 7], graph.weights["self"])
    outputs = model(torch.tensor([IDS]), output_attentions=True, use_cache=False)
    expected = torch.autograd.grad(outputs.logits[0, -1, 7], outputs.attentions)
    assert len(result) == len(expected) == 2
    assert all(torch.allclose(mine, theirs, atol=1e-6) for mine, theirs in zip(result, expected, strict=True))


def test_states_are_what_blocks_are_given() -> None:
    model = tiny.build(tiny.TEXT["GPT-2"])
    with differentiable(trace(model, None, IDS), "test") as run:
        states = run().states["self"]
    expected = model(torch.tensor([IDS]), output_hidden_states=True).hidden_states
    assert len(states) == len(expected) == 3
    assert all(torch.allclose(mine, theirs) for mine, theirs in zip(states[:-1], expected[:-1], strict=True))
    assert torch.allclose(model.transformer.ln_f(states[-1]), expected[-1], atol=1e-6)


def test_two_stacks_end_in_two_leaves_and_count_every_way() -> None:
    model = tiny.build(tiny.SEQ2SEQ["T5"])
    with differentiable(trace(model, None, IDS), "test") as run:
        graph = run()
        score = graph.outputs.logits[:, -1, 7]
        result = dict(zip(graph.inputs, gradients(score, list(graph.inputs.values())), strict=True))
    encoder = graph.inputs["encoder"].detach().clone().requires_grad_()
    decoder = graph.inputs["decoder"].detach().clone().requires_grad_()
    logits = model(inputs_embeds=encoder, decoder_inputs_embeds=decoder, use_cache=False).logits
    expected = torch.autograd.grad(logits[:, -1, 7].sum(), [encoder, decoder])
    assert torch.allclose(result["encoder"], expected[0], atol=1e-6)
    assert torch.allclose(result["decoder"], expected[1], atol=1e-6)


@pytest.mark.slow
def test_a_batch_of_other_embeddings_is_the_same_one_by_one() -> None:
    model = tiny.build(tiny.TEXT["BERT"])
    with differentiable(trace(model, None, IDS), "test") as run:
        given = run().inputs["self"].detach()
        batch = torch.cat([given * scale for scale in (0.0, 0.5, 1.0)])
        together = run({"self": batch})
        result = gradients(together.outputs.logits[:, -1, 7], [together.inputs["self"]])[0]
        for row in range(3):
            alone = run({"self": batch[row : row + 1]})
            expected = gradients(alone.outputs.logits[:, -1, 7], [alone.inputs["self"]])[0]
            assert torch.allclose(result[row], expected[0], atol=1e-6)


def test_pixels_can_be_where_gradients_end() -> None:
    model = tiny.build(tiny.IMAGE["ViT"])
    pixels = torch.randn(3, 24, 24, generator=torch.Generator().manual_seed(0))
    with differentiable(trace(model, None, image=pixels), "test", place="input") as run:
        graph = run()
        result = gradients(graph.outputs.logits[:, 1], [graph.inputs["pixel_values"]])[0]
    leaf = pixels[None].clone().requires_grad_()
    expected = torch.autograd.grad(model(leaf).logits[0, 1], leaf)[0]
    assert torch.allclose(result, expected, atol=1e-6)


def test_half_precision_is_computed_in_float32() -> None:
    model = tiny.build(tiny.TEXT["Llama"])
    exact = tiny.build(tiny.TEXT["Llama"]).bfloat16().float()
    with differentiable(trace(model.bfloat16(), None, IDS), "test") as run:
        graph = run()
        result = gradients(graph.outputs.logits[:, -1, 7], [graph.inputs["self"]])[0]
    assert result.dtype == torch.float32
    assert torch.allclose(result, by_hand(exact, graph.inputs["self"]), atol=1e-5)
    assert {p.dtype for p in model.parameters()} == {torch.bfloat16}
    with differentiable(trace(model, None, IDS), "test", precision="model") as run:
        assert run().outputs.logits.dtype == torch.bfloat16


def test_the_model_comes_back_as_it_was() -> None:
    model = mixed_model()
    model.transformer.h[1].mlp.c_fc.weight.grad = torch.ones_like(model.transformer.h[1].mlp.c_fc.weight)
    before = state_of(model)
    result = trace(model, None, IDS)
    with differentiable(result, "test") as run:
        graph = run(keep=("weights", "heads"))
        gradients(graph.outputs.logits[:, -1, 7], graph.heads["self"])
    assert state_of(model) == before

    def interrupt() -> Any:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), differentiable(result, "test") as run:
        run(during=interrupt)
    assert state_of(model) == before


def test_parameters_require_their_gradients_meanwhile() -> None:
    model = mixed_model()
    before = state_of(model)
    with differentiable(trace(model, None, IDS), "test") as run:
        run()
        assert state_of(model) == before
        assert not any(parameter.requires_grad for parameter in run.model.parameters())


def test_what_cannot_be_differentiated_is_refused_by_name() -> None:
    model = tiny.build(tiny.TEXT["Llama"])
    result = trace(model, None, IDS)
    with (
        torch.inference_mode(),
        pytest.raises(ValueError, match="inference_mode"),
        differentiable(result, "test"),
    ):
        pass
    model.lm_head.weight = nn.Parameter(torch.zeros(120, 32, dtype=torch.int8), requires_grad=False)
    with (
        pytest.raises(ValueError, match=r"quantised weights such as lm_head\.weight \(int8\)"),
        differentiable(result, "test"),
    ):
        pass
    given = from_attentions(torch.ones(1, 1, 1, 1), ["a"])
    with pytest.raises(UnsupportedModelError, match="has no model"), differentiable(given, "test"):
        pass


def test_a_text_too_long_for_the_memory_is_refused_before_it_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny.build(tiny.TEXT["Llama"])
    result = trace(model, None, IDS)
    need = graph_bytes(model, result)
    # Every token takes the same memory; pairs of tokens take little in so short a text.
    assert graph_bytes(model, trace(model, None, IDS * 2)) == pytest.approx(2 * need, rel=0.1)
    monkeypatch.setattr(memory, "free_bytes", lambda _: need // 2)
    passes: list[int] = []
    for block in model.model.layers:  # a hook on the model would be a change, for which it runs
        monkeypatch.setattr(type(block), "forward", lambda *_: passes.append(1))
    with (
        differentiable(result, "test") as run,
        pytest.raises(ValueError, match=r"over 4 tokens .* shorter text"),
    ):
        run()
    assert not passes


def test_running_out_of_memory_is_said_in_words() -> None:
    result = trace(tiny.build(tiny.TEXT["Llama"]), None, IDS)

    def burst(*_: Any) -> None:
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes")

    with differentiable(result, "test") as run:
        run.model.get_submodule("model.norm").register_forward_pre_hook(burst)
        with pytest.raises(ValueError, match="Take a shorter text"):
            run()
