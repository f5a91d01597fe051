"""Activations set from outside: against hooks written by hand, in families, in generate(), with others."""

from __future__ import annotations

from contextlib import contextmanager
from typing import Any

import pytest
import torch

import attnwidgets as aw
from tests.intervene.made import IDS, logits, t5, text
from tests.tracing import tiny

OTHER = [3, 17, 7, 8, 99, 6]

# Of a block of layer 1: the module whose input is the state, and those that write attention and MLP.
PATHS = {
    "GPT-2": ("transformer.h.1", "transformer.h.1.attn.c_proj", "transformer.h.1.mlp.c_proj"),
    "Llama": ("model.layers.1", "model.layers.1.self_attn.o_proj", "model.layers.1.mlp"),
    "Gemma 2": (
        "model.layers.1",
        "model.layers.1.post_attention_layernorm",
        "model.layers.1.post_feedforward_layernorm",
    ),
    "BERT": (
        "bert.encoder.layer.1",
        "bert.encoder.layer.1.attention.output.dense",
        "bert.encoder.layer.1.output.dense",
    ),
}
SITES = ("state", "attention", "mlp")


@contextmanager
def by_hand(model: Any, path: str, site: str, change: Any) -> Any:
    module = model.get_submodule(path)
    if site == "state":
        handle = module.register_forward_pre_hook(lambda _, args: (change(args[0]), *args[1:]))
    else:
        handle = module.register_forward_hook(lambda _, args, output: change(output))
    try:
        yield
    finally:
        handle.remove()


@pytest.mark.parametrize("name", PATHS)
@pytest.mark.parametrize("site", SITES)
def test_a_trace_gives_what_a_hook_by_hand_copies(name: str, site: str) -> None:
    trace = text(name)
    other = aw.trace(trace.model, None, input_ids=OTHER)
    path = PATHS[name][SITES.index(site)]
    read: list[torch.Tensor] = []
    with by_hand(trace.model, path, site, lambda x: (read.append(x), x)[1]):
        logits(other)

    def copied(x: torch.Tensor) -> torch.Tensor:
        x = x.clone()
        x[:, [2, 5]] = read[0][:, [2, 5]]
        return x

    with by_hand(trace.model, path, site, copied):
        expected = logits(trace)
    plain = logits(trace)
    with aw.circuits.set_activations(trace, site, 1, other, tokens=[2, -1]):
        result = logits(trace)
    tolerance = 1e-6 if name == "Gemma 2" else 1e-12  # its attention sums its scores in float32
    torch.testing.assert_close(result, expected, atol=tolerance, rtol=0)
    assert float((result - plain).abs().max()) > 1e-4
    assert torch.equal(logits(trace), plain), "the model is as it was"


def test_single_positions_of_a_head() -> None:
    trace = text("Llama")
    projection = trace.model.get_submodule("model.layers.1.self_attn.o_proj")

    def nothing(_: Any, args: tuple[torch.Tensor]) -> tuple[torch.Tensor]:
        parts = args[0].unflatten(-1, (4, -1)).clone()
        parts[:, 3, 2] = 0
        return (parts.flatten(-2),)

    handle = projection.register_forward_pre_hook(nothing)
    expected = logits(trace)
    handle.remove()
    with aw.circuits.set_activations(trace, "head", 1, 0, tokens=3, heads=2):
        torch.testing.assert_close(logits(trace), expected, atol=1e-12, rtol=0)


def test_all_states_of_another_text_are_that_text() -> None:
    trace = text("GPT-2")
    other = aw.trace(trace.model, None, input_ids=OTHER)
    for layer in (0, 1):
        with aw.circuits.set_activations(trace, "state", layer, other):
            torch.testing.assert_close(logits(trace), logits(other), atol=1e-12, rtol=0)


def test_all_heads_together_are_the_attention_output() -> None:
    trace = text("GPT-2")
    other = aw.trace(trace.model, None, input_ids=OTHER)
    with aw.circuits.set_activations(trace, "attention", [0, 1], other):
        whole = logits(trace)
    with aw.circuits.set_activations(trace, "head", [0, 1], other):
        torch.testing.assert_close(logits(trace), whole, atol=1e-12, rtol=0)


def test_given_numbers_are_in_the_order_of_the_tokens() -> None:
    trace = text("GPT-2")
    rows = torch.randn(2, 32, dtype=torch.float64)
    changed = []
    for tokens, numbers in (([4, 1], rows), ([1, 4], rows.flip(0))):
        with aw.circuits.set_activations(trace, "mlp", 0, numbers, tokens=tokens):
            changed.append(logits(trace))
    assert torch.equal(*changed)
    by_head = torch.randn(4, 6, 8, dtype=torch.float64)
    with aw.circuits.set_activations(trace, "head", 1, by_head):
        together = logits(trace)
    flat = by_head.transpose(0, 1).flatten(1)
    with aw.circuits.set_activations(
        trace, "head", 1, lambda z: flat.unflatten(-1, (4, 8)).transpose(0, 1)[None]
    ):
        assert torch.equal(logits(trace), together)


def test_the_last_one_entered_has_the_last_word_and_others_compose() -> None:
    trace = text("GPT-2")
    zero = aw.circuits.set_activations(trace, "mlp", 0, 0.0)
    ones = aw.circuits.set_activations(trace, "mlp", 0, 1.0)
    double = aw.circuits.set_activations(trace, "mlp", 0, lambda x: 2 * x)
    with ones:
        expected = logits(trace)
    with zero, ones:
        assert torch.equal(logits(trace), expected)
    with zero, double:
        doubled = logits(trace)
    with zero:
        assert torch.equal(logits(trace), doubled)
    ablated = aw.ablate_heads(trace, (1, 2))
    with ablated, aw.circuits.set_activations(trace, "head", 1, lambda z: z + 1.0, heads=2):
        over = logits(trace)
    with aw.circuits.set_activations(trace, "head", 1, 1.0, heads=2):
        assert torch.equal(logits(trace), over)
    with zero, ablated:
        both = aw.trace(trace.model, None, input_ids=IDS)
    assert both.interventions == (zero.said, ablated.said)
    torch.testing.assert_close(trace.rerun(ablated, zero).logits, both.logits)


@pytest.mark.parametrize("site", ["state", "attention", "mlp", "head"])
def test_generation_sees_it_with_and_without_a_cache(site: str) -> None:
    model = tiny.build(tiny.TEXT["Llama"]).double()
    ids = torch.tensor([IDS])
    options = {"max_new_tokens": 4, "do_sample": False, "pad_token_id": 0, "output_logits": True,
               "return_dict_in_generate": True}  # fmt: skip
    plain = model.generate(ids, **options)
    width = 8 if site == "head" else 32
    number = torch.linspace(-3, 3, width, dtype=torch.float64)
    # Position 7 is the second generated token.
    with aw.circuits.set_activations(model, site, 1, number, tokens=[7]):
        cached = model.generate(ids, **options)
        whole = model.generate(ids, **options, use_cache=False)
        again = model(cached.sequences).logits[0, 5:-1]
    generated = torch.cat(cached.logits)  # generate() keeps float32
    torch.testing.assert_close(generated, torch.cat(whole.logits), atol=1e-6, rtol=0)
    torch.testing.assert_close(generated, again.float(), atol=1e-6, rtol=0)
    untouched = torch.cat(plain.logits)
    torch.testing.assert_close(generated[:2], untouched[:2], atol=1e-6, rtol=0)
    assert float((generated[2] - untouched[2]).abs().max()) > 1e-4


def test_positions_are_counted_without_padding_on_the_left() -> None:
    model = tiny.build(tiny.TEXT["Llama"]).double()
    padded = torch.tensor([[0, 0, *IDS], [5, 6, *IDS]])
    mask = torch.tensor([[0, 0, 1, 1, 1, 1, 1, 1], [1] * 8])
    positions = (mask.cumsum(-1) - 1).clamp_min(0)
    with aw.circuits.set_activations(model, "state", 1, 1.0, tokens=[0]):
        both = model(padded, attention_mask=mask, position_ids=positions).logits[0, 2:]
        alone = model(torch.tensor([IDS])).logits[0]
    torch.testing.assert_close(both, alone, atol=1e-12, rtol=0)


def test_encoders_and_decoders_and_blocks_that_are_shared() -> None:
    trace = t5()
    plain = logits(trace)
    for stack in ("encoder", "decoder"):
        with aw.circuits.set_activations(trace, "state", 1, 0.0, stack=stack):
            assert float((logits(trace) - plain).abs().max()) > 1e-6
    with pytest.raises(ValueError, match="cross"):
        aw.circuits.set_activations(trace, "mlp", 0, 0.0, stack="cross")
    albert = text("ALBERT")
    differences = []
    for layer in range(3):
        with aw.circuits.set_activations(albert, "state", layer, 0.5, tokens=[1]):
            differences.append(logits(albert))
    assert float((differences[0] - differences[1]).abs().max()) > 1e-6, "a module of three layers"


def test_other_threads_see_the_model_as_it_was() -> None:
    from threading import Thread

    trace = text("GPT-2")
    plain, seen = logits(trace), []
    with aw.circuits.set_activations(trace, "mlp", 0, 5.0):
        thread = Thread(target=lambda: seen.append(logits(trace)))
        thread.start()
        thread.join()
        assert float((logits(trace) - plain).abs().max()) > 1e-4
    assert torch.equal(seen[0], plain)


def test_what_cannot_be_set_is_refused() -> None:
    trace = text("GPT-2")
    set_activations = aw.circuits.set_activations
    with pytest.raises(ValueError, match="Did you mean 'state'"):
        set_activations(trace, "states", 0, 0.0)
    with pytest.raises(IndexError, match="layer 2"):
        set_activations(trace, "mlp", 2, 0.0)
    with pytest.raises(ValueError, match="position 6; allowed are 0 to 5"):
        set_activations(trace, "mlp", 0, 0.0, tokens=6)
    with pytest.raises(ValueError, match="heads is for site 'head'"):
        set_activations(trace, "mlp", 0, 0.0, heads=1)
    with pytest.raises(ValueError, match="not a trace by this model"):
        set_activations(trace, "mlp", 0, text("GPT-2"))
    with pytest.raises(TypeError, match="not str"):
        set_activations(trace, "mlp", 0, "zero")
    for to, why in ((torch.zeros(5), "shape"), (lambda x: x[..., :3], "returned")):
        with set_activations(trace, "mlp", 0, to), pytest.raises(ValueError, match=why):
            logits(trace)
    with (
        set_activations(trace, "mlp", 0, torch.zeros(3, 32), tokens=[1, 2]),
        pytest.raises(ValueError, match="3 tok"),
    ):
        logits(trace)
    assert aw.interventions() == ()
    unknown = aw.trace(tiny.build(tiny.UNFOLLOWED["GPT-Neo with sums"]), None, input_ids=IDS)
    with pytest.raises(ValueError, match="attention cannot be changed here"):
        set_activations(unknown, "mlp", 0, 0.0)
