"""Head loadings: to gradients of models whose attention, norms and MLPs are fixed by hooks."""

from __future__ import annotations

import json
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
import transformers as hf
from transformers.masking_utils import eager_mask

import attnwidgets as aw
from tests.tracing.families import FAMILIES, IDS, MORE
from tests.zoo.made import made

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# Serial and parallel blocks, norms before and after, grouped queries, factors of the updates.
SEVERAL = ("Llama", "GPT-2", "GPT-NeoX", "Cohere", "Granite", "OLMo 2")
CLOSE = 2e-5  # single precision: recorded weights and values, through two layers and a head


@contextmanager
def frozen(model: Any, passes: Any = lambda layer, head: True) -> Iterator[None]:
    """Freeze all but the values, by plain code; heads that do not pass are constants, too."""
    called = iter(range(10**6))

    def attend(module: Any, query: Any, key: Any, value: Any, mask: Any, **given: Any) -> Any:
        layer, group = next(called), query.shape[1] // key.shape[1]
        key, value = (part.repeat_interleave(group, 1) for part in (key, value))
        scores = query @ key.transpose(2, 3) * given.get("scaling", query.shape[-1] ** -0.5)
        if given.get("softcap"):
            scores = torch.tanh(scores / given["softcap"]) * given["softcap"]
        weights = (scores if mask is None else scores + mask).softmax(-1).detach()
        mixed = weights @ value
        heads = [
            mixed[:, head] if passes(layer, head) else mixed[:, head].detach()
            for head in range(mixed.shape[1])
        ]
        return torch.stack(heads, 2), weights

    def norm(module: Any, args: Any, output: Any) -> Any:
        (x,) = args
        weight, plain = module.weight, x - x.mean(-1, keepdim=True)
        if getattr(module, "bias", None) is None and "RMS" in type(module).__name__:
            plain = x
        gain = 1 + weight if "Gemma" in type(module).__name__ else weight
        eps = next(getattr(module, name) for name in ("eps", "variance_epsilon") if hasattr(module, name))
        linear = gain * plain / (plain.square().mean(-1, keepdim=True) + eps).sqrt().detach()
        return linear + (output - linear).detach()

    hf.AttentionInterface.register("frozen", attend)
    hf.AttentionMaskInterface.register("frozen", eager_mask)
    before = model.config._attn_implementation
    model.set_attn_implementation("frozen")
    hooks = []
    for name, module in model.named_modules():
        if "norm" in type(module).__name__.lower():
            hooks.append(module.register_forward_hook(norm))
        if name.endswith(("mlp", ".intermediate")):
            hooks.append(module.register_forward_hook(lambda _, __, output: output.detach()))
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
        model.set_attn_implementation(before)


def slope(model: Any, blocks: Any, layer: int, of: Any, **how: Any) -> torch.Tensor:
    """The gradient of a number by a block's input [token, width]."""
    states: list[Any] = []

    def see(_: Any, args: Any, kwargs: Any) -> Any:
        x = (args[0] if args else kwargs["hidden_states"]).detach().requires_grad_()
        states.append(x)
        return ((x, *args[1:]), kwargs) if args else (args, kwargs | {"hidden_states": x})

    with frozen(model, **how):
        hook = blocks[layer].register_forward_pre_hook(see, with_kwargs=True)
        number = of(model(torch.tensor([IDS])))
        hook.remove()
    return torch.autograd.grad(number, states[-1], allow_unused=True)[0][0], states[-1][0].detach()


def blocks_of(model: Any) -> Any:
    return max((part for part in model.modules() if isinstance(part, torch.nn.ModuleList)), key=len)


@pytest.mark.parametrize("family", SEVERAL)
def test_an_edge_and_its_parts_are_those_of_a_model_that_is_held_fixed(family: str) -> None:
    model = (FAMILIES | MORE)[family].model()
    trace = aw.trace(model, None, input_ids=IDS)
    target = int(trace.logits[-1].argmax())
    foil = (target + 1) % len(trace.logits[-1])
    loadings = aw.circuits.head_loadings(trace, ("state", 0), target, foil=foil, token=2)

    def of(output: Any) -> Any:
        return output.logits[0, -1, target] - output.logits[0, -1, foil]

    def edge(passes: Any = lambda layer, head: True) -> float:
        gradient, states = slope(model, blocks_of(model), 0, of, passes=passes)
        return float((gradient * states)[2].sum())

    size = max(1.0, float(np.nansum(np.abs(loadings.values))))
    assert loadings.total == pytest.approx(edge(), abs=CLOSE * size)
    np.testing.assert_allclose(np.nansum(loadings.values, 1) + loadings.bypass, loadings.total, atol=1e-9)
    for layer, head in ((0, 0), (0, 3), (1, 1)):
        without = edge(lambda *at, cut=(layer, head): at != cut)
        assert loadings.values[layer, head] == pytest.approx(loadings.total - without, abs=CLOSE * size)
        alone = edge(lambda *at, only=(layer, head): at == only)
        assert loadings.direct[layer, head] == pytest.approx(alone - loadings.unread, abs=CLOSE * size)
    assert loadings.unread == pytest.approx(edge(lambda *_: False), abs=CLOSE * size)


@pytest.mark.parametrize("family", ["BERT", "Llama", "GPT-NeoX"])
def test_a_direction_before_a_feed_forward_layer_reads_as_in_the_model(family: str) -> None:
    model = FAMILIES[family].model()
    trace = aw.trace(model, None, input_ids=IDS)
    generator = torch.Generator().manual_seed(0)
    direction, vector = torch.randn(2, 32, generator=generator)
    reads = (1, 6, direction)
    loadings = (
        aw.circuits.head_loadings(trace, (0, vector), token=2, reads=reads) if family != "GPT-NeoX" else None
    )
    if loadings is None:
        # Its feed-forward layer reads beside the heads of its layer: those of layer 0 alone lie between.
        loadings = aw.circuits.head_loadings(trace, ("state", 0), token=2, reads=reads)
    seen: list[Any] = []
    block = blocks_of(model)[1]
    part = next(part for name, part in block.named_modules() if name in ("mlp", "intermediate"))
    hook = part.register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    first = 0 if family == "GPT-NeoX" else 1
    gradient, states = slope(model, blocks_of(model), first, lambda _: (seen[-1][0, 6] * direction).sum())
    hook.remove()
    expected = gradient[2] @ (states[2] if family == "GPT-NeoX" else vector)
    assert loadings.total == pytest.approx(float(expected), abs=1e-4)
    np.testing.assert_allclose(np.nansum(loadings.values, 1) + loadings.bypass, loadings.total, atol=1e-9)
    assert loadings.layers == ((0,) if family == "GPT-NeoX" else (1,))


@pytest.mark.slow
def test_france_reaches_paris_through_one_head(smollm2: Any) -> None:
    model, tokenizer = smollm2
    trace = aw.trace(model.float(), tokenizer, "The capital of France is")
    loadings = aw.circuits.head_loadings(trace, ("state", 1), " Paris", foil=" Rome", token="France")
    # Of paths through a single head; measured before by plain code.
    assert np.nansum(loadings.direct) == pytest.approx(1.54, abs=5e-3)
    largest = loadings.top(3, direct=True)
    assert [(head.layer, head.head) for head in largest] == [(23, 4), (23, 3), (24, 4)]
    assert [head.value for head in largest] == pytest.approx([1.66, -0.50, -0.21], abs=5e-3)
    np.testing.assert_allclose(np.nansum(loadings.values, 1) + loadings.bypass, loadings.total, atol=1e-9)


def test_the_induction_head_carries_the_letter_after() -> None:
    model, tokenizer = made("induction", letters="abcdefgh", length=16)
    trace = aw.trace(model, tokenizer, "fadebcfadeb")
    loadings = aw.circuits.head_loadings(trace, ("state", 1), "c", token=6)
    assert loadings.top(1)[0] == (1, 0, pytest.approx(1, abs=1e-4), pytest.approx(10, abs=1e-4))
    assert loadings.shares(1).tolist() == pytest.approx([1, 0], abs=1e-6)
    # Head 0.0 wrote where to look, and nothing that is copied.
    written = aw.circuits.head_loadings(trace, ("head", 0, 0), "c", token=6)
    assert written.total == pytest.approx(0, abs=1e-6)
    [row, _] = loadings.to_rows()
    assert row == {
        "layer": 1,
        "head": 0,
        "value": pytest.approx(10, abs=1e-4),
        "direct": pytest.approx(10, abs=1e-4),
    }


def test_a_component_of_a_circuit_is_a_sender() -> None:
    trace = FAMILIES["Llama"].traced()
    edges = aw.circuits.edge_attribution(trace, aw.trace(trace.model, None, input_ids=IDS[::-1]), 5)
    sender = next(edge.sender for edge in edges.top(None) if str(edge.sender) == "MLP 0")
    by_name = aw.circuits.head_loadings(trace, sender, 5, token=3)
    assert by_name.sender == "MLP 0"
    assert by_name.layers == (1,)


def test_shares_of_parts_that_cancel_are_refused() -> None:
    trace = FAMILIES["Llama"].traced()
    loadings = aw.circuits.head_loadings(trace, ("state", 0), 5, token=2)
    width = len(loadings.values[0])
    cancelling = type(loadings)(
        **{**vars(loadings), "total": 0.01, "values": np.array([[1.0, -0.995] + [0.0] * (width - 2)] * 2),
           "bypass": np.array([0.005, 0.005])}
    )  # fmt: skip
    with pytest.raises(ValueError, match=r"parts of layer 0 cancel.*Shares would be arbitrary"):
        cancelling.shares(0)
    assert np.isnan(cancelling.top(1)[0].share)


def test_edges_without_layers_between_are_refused() -> None:
    trace = FAMILIES["Llama"].traced()
    with pytest.raises(ValueError, match="no layer lies between MLP 1"):
        aw.circuits.head_loadings(trace, ("mlp", 1), 5, token=2)
    with pytest.raises(ValueError, match="sender is 'MLP 0'; a sender is"):
        aw.circuits.head_loadings(trace, "MLP 0", 5, token=2)
    with pytest.raises(ValueError, match=r"shape \(3,\); states have width 32"):
        aw.circuits.head_loadings(trace, (0, torch.zeros(3)), 5, token=2)
    with pytest.raises(ValueError, match="another reader than the target"):
        aw.circuits.head_loadings(trace, ("state", 0), 5, token=2, reads=(1, 3, torch.zeros(32)))
    with pytest.raises(ValueError, match="one edge"):
        aw.circuits.head_loadings(trace, ("state", 0), [5, 6], token=2)
    with pytest.raises(IndexError, match="layer 9 is out of range"):
        aw.circuits.head_loadings(trace, ("state", 9), 5, token=2)


def test_a_link_of_an_imported_graph_is_that_of_its_model(tmp_path: Path) -> None:
    model = FAMILIES["Llama"].model()
    trace = aw.trace(model, None, input_ids=IDS)

    def of(output: Any) -> Any:
        return output.logits[0, -1, 7] - output.logits[0, -1].mean()

    gradient, states = slope(model, blocks_of(model), 0, of)
    weight = float((gradient * states)[2].sum())
    nodes = [
        {"node_id": f"E_{IDS[2]}_2", "layer": "E", "ctx_idx": 2, "feature_type": "embedding"},
        {"node_id": "0_11_2", "layer": "0", "ctx_idx": 2, "feature_type": "cross layer transcoder"},
        {"node_id": "2_7_7", "layer": "2", "ctx_idx": 7, "feature_type": "logit"},
    ]
    links = [{"source": node["node_id"], "target": "2_7_7", "weight": weight} for node in nodes[:2]]
    metadata = {"prompt_tokens": [str(token) for token in IDS]}
    path = tmp_path / "graph.json"
    path.write_text(json.dumps({"metadata": metadata, "nodes": nodes, "links": links}))
    graph = aw.circuits.load_circuit_graph(path)
    loadings = graph.head_loadings(graph.links[0], trace)
    assert loadings.total == pytest.approx(weight, abs=1e-4)
    assert not loadings.warning
    wrong = graph.head_loadings(graph.links[0]._replace(weight=1.5 * weight), trace)
    assert f"gives this link {1.5 * weight:+.3g}" in wrong.warning
    with pytest.raises(ValueError, match="'0_11_2' is a cross layer transcoder, whose vector is not in"):
        graph.head_loadings(graph.links[1], trace)
    vector = torch.ones(32)
    given = graph.head_loadings(graph.links[1], trace, writes=vector)
    gradient, _ = slope(model, blocks_of(model), 1, of)
    assert given.total == pytest.approx(float(gradient[2] @ vector), abs=1e-4)
    with pytest.raises(ValueError, match="trace the prompt of the graph"):
        graph.head_loadings(graph.links[0], aw.trace(model, None, input_ids=IDS[:4]))
