"""Paths, edges and circuits: planted ones exactly, and against patching, algebra and scipy."""

from __future__ import annotations

from math import comb
from typing import Any

import numpy as np
import pytest
import torch

import attnwidgets as aw
from tests.tracing import tiny

from .made import CLEAN, CORRUPT, pair, planted

FAMILIES = ["Llama", "GPT-2", "GPT-NeoX"]  # blocks of the last are parallel


def key_pair() -> tuple[Any, Any]:
    """Texts in which an earlier letter that was followed by c becomes another letter."""
    model, tokenizer = aw.zoo.induction(letters="abcdefgh", length=16)
    return tuple(aw.trace(model, tokenizer, text) for text in ("fadebcfadeb", "fadegcfadeb"))


@pytest.mark.parametrize(
    ("sender", "receiver", "share"),
    [
        (("head", 0, 0), ("head", 1, 0), 1),
        (("head", 0, 0), ("head", 1, 1), 0),
        (("head", 0, 1), ("head", 1, 0), 0),
        (("head", 0, 0), ("mlp", 1), 0),
        (("head", 0, 0), "output", 0),
        (("head", 1, 0), "output", 1),
    ],
)
def test_paths_of_a_known_circuit(sender, receiver, share):
    result = aw.circuits.path_patch(*key_pair(), sender, receiver, "c", foil="a")
    assert result.share == pytest.approx(share, abs=1e-6)


def test_a_planted_path(shared):
    module = planted(shared)
    model = module.planted()
    for name, share in (("value", 0), ("key", 1)):
        clean, corrupt, target, foil = module.PAIRS[name]
        traces = [aw.trace(model, None, input_ids=ids) for ids in (clean, corrupt)]
        for how in ("denoise", "noise"):
            result = aw.circuits.path_patch(
                *traces, ("head", 0, 0), ("head", 1, 1), target, foil=foil, how=how
            )
            assert result.share == pytest.approx(share, abs=1e-4)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_path_to_the_output_is_what_a_component_writes_there(family):
    clean, corrupt = pair(family)
    model = clean.model
    last = len(clean.tokens) - 1
    result = aw.circuits.path_patch(clean, corrupt, ("mlp", 0), "output", 5, foil=7, how="noise")
    assert torch.is_grad_enabled()  # as it was before
    wanted: dict[str, torch.Tensor] = {}
    head = model.get_output_embeddings()
    norm = next(
        module
        for name, module in model.named_modules()
        if name.endswith(("model.norm", "ln_f", "final_layer_norm"))
    )
    handle = norm.register_forward_pre_hook(lambda _, args: wanted.__setitem__("state", args[0]))
    with torch.no_grad():
        model(**clean.inputs)
        mlps = []
        for trace in (clean, corrupt):
            outputs: list[torch.Tensor] = []
            point = next(m for n, m in model.named_modules() if n.endswith(("layers.0.mlp", "h.0.mlp")))
            inner = point.register_forward_hook(lambda _, __, output, outputs=outputs: outputs.append(output))
            state = wanted["state"]
            model(**trace.inputs)
            wanted["state"] = state
            inner.remove()
            mlps.append(outputs[0])
        handle.remove()
        logits = head(norm(wanted["state"] + mlps[1] - mlps[0]))[0, last]
    assert result.after == pytest.approx(float(logits[5] - logits[7]), abs=1e-6)


@pytest.mark.parametrize("family", FAMILIES)
def test_edges_of_a_component_add_up_to_its_attribution(family):
    clean, corrupt = pair(family)
    edges = aw.circuits.edge_attribution(clean, corrupt, 5, foil=7, steps=1)
    estimate = aw.circuits.patch(clean, corrupt, 5, foil=7, sites=("head", "mlp"), estimate=True)
    sums = {str(part): np.nansum(row) for part, row in zip(edges.senders, edges.scores, strict=True)}
    scale = np.abs(edges.scores[~np.isnan(edges.scores)]).max()
    for (layer, head), value in np.ndenumerate(estimate.raw["head"]):
        assert sums[f"head {layer}.{head}"] == pytest.approx(-value, abs=1e-6 * scale + 1e-9)
    for layer, row in enumerate(estimate.raw["mlp"]):
        assert sums[f"MLP {layer}"] == pytest.approx(-row.sum(), abs=1e-6 * scale + 1e-9)


def test_an_edge_is_the_slope_of_its_path():
    # A corrupt text that differs a little: first order is then exact.
    clean, corrupt = pair("GPT-2")
    with torch.no_grad():
        rows = clean.model.transformer.wte.weight
        for before, after in zip(CLEAN, CORRUPT, strict=True):
            if before != after:
                rows[after] = rows[before] + 1e-4 * rows[after]
    clean, corrupt = clean.rerun(), corrupt.rerun()
    edges = aw.circuits.edge_attribution(clean, corrupt, 5, foil=7, steps=1)
    for sender, receiver in (
        (("head", 0, 1), ("head", 1, 2)),
        (("mlp", 0), ("head", 1, 0)),
        (("head", 0, 3), ("mlp", 1)),
    ):
        path = aw.circuits.path_patch(clean, corrupt, sender, receiver, 5, foil=7, how="noise")
        names = [
            ("MLP " if len(part) == 2 else "head ") + ".".join(map(str, part[1:]))
            for part in (sender, receiver)
        ]
        indices = [
            [str(part) for part in parts].index(name)
            for parts, name in zip((edges.senders, edges.receivers), names, strict=True)
        ]
        assert edges.scores[tuple(indices)] == pytest.approx(path.after - path.before, rel=2e-2)


def test_integrated_gradients_are_means_over_points_that_leave_the_clean_end_out():
    """The last MLP and the first to the output, by plain passes from embeddings between the runs."""
    clean, corrupt = pair("GPT-2")
    model, body = clean.model, clean.model.transformer
    written: list[list[torch.Tensor]] = []
    embedded: list[torch.Tensor] = []
    states: list[torch.Tensor] = []
    with torch.no_grad():
        for trace in (clean, corrupt):
            row: list[torch.Tensor] = []
            hooks = [
                block.mlp.register_forward_hook(lambda *given, row=row: row.append(given[2]))
                for block in body.h
            ]
            ids = trace.inputs["input_ids"]
            embedded.append(body.wte(ids))
            model(ids)
            written.append(row)
            for hook in hooks:
                hook.remove()

    def keep(_, given):
        states.append(given[0].detach().requires_grad_())
        return (states[-1],)

    hook = body.ln_f.register_forward_pre_hook(keep)
    slopes = []
    for step in range(3):
        point = embedded[1] + step / 3 * (embedded[0] - embedded[1])
        logits = model(inputs_embeds=point).logits[0, -1]
        slopes.append(torch.autograd.grad(logits[5] - logits[7], states[-1])[0])
    hook.remove()
    mean = torch.stack(slopes).mean(0)
    edges = aw.circuits.edge_attribution(clean, corrupt, 5, foil=7, steps=3)
    names = list(map(str, edges.senders))
    for layer in range(2):
        expected = float(((written[1][layer] - written[0][layer]) * mean).sum())
        assert edges.scores[names.index(f"MLP {layer}"), -1] == pytest.approx(expected, abs=1e-9)


def test_edges_of_a_known_circuit_make_the_circuit():
    clean, corrupt = key_pair()
    edges = aw.circuits.edge_attribution(clean, corrupt, "c", foil="a")
    names = {(str(edge.sender), str(edge.receiver)) for edge in edges.top(3)}
    assert ("head 0.0", "head 1.0") in names
    assert ("head 1.0", "output") in names
    circuit = edges.circuit(4)
    assert {str(part) for part in circuit} == {"head 0.0", "head 1.0"}
    assert aw.circuits.faithfulness(clean, corrupt, circuit, "c", foil="a").share == pytest.approx(
        1, abs=1e-4
    )
    assert "head 1.0 to output" in repr(edges)
    backwards = edges.scores[1 + list(map(str, edges.senders[1:])).index("head 1.0"), 0]
    assert np.isnan(backwards)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_whole_model_is_faithful_and_an_empty_circuit_keeps_the_embeddings(family):
    clean, corrupt = pair(family)
    model = clean.model
    every = [("head", layer, head) for layer in range(2) for head in range(4)]
    whole = aw.circuits.faithfulness(clean, corrupt, [*every, ("mlp", 0), ("mlp", 1)], 5, foil=7)
    assert whole.share == pytest.approx(1, abs=1e-6)
    assert (whole.size, whole.all) == (10, 10)
    rest = [(site, layer, None) for site in ("attention", "mlp") for layer in range(2)]
    expected = aw.circuits.patch_cells(clean, corrupt, rest, 5, foil=7, how="noise")
    none = aw.circuits.faithfulness(clean, corrupt, [], 5, foil=7)
    assert none.circuit == pytest.approx(expected.after, abs=1e-6)
    assert model is clean.model


def test_overlap_is_hypergeometric():
    rng = np.random.default_rng(0)
    first, second = rng.normal(size=(2, 30, 9))
    second[:2] = first[:2] = 10 * first[:2]
    result = aw.circuits.overlap(first, second, top=13)
    shared = len(result.shared)
    exact = sum(comb(13, k) * comb(257, 13 - k) for k in range(shared, 14)) / comb(270, 13)
    assert result.p == pytest.approx(exact)
    assert result.expected == pytest.approx(169 / 270)
    assert all(layer < 2 for layer, _ in result.shared[:5])
    assert aw.circuits.overlap(first, second).size == 5
    clean, corrupt = key_pair()
    patching = aw.circuits.patch(clean, corrupt, "c", foil="a", sites="head")
    assert set(aw.circuits.overlap(patching, patching, top=2).shared) == {(0, 0), (1, 0)}


def test_what_is_no_component_is_said():
    clean, corrupt = key_pair()
    with pytest.raises(ValueError, match="is not a component"):
        aw.circuits.path_patch(clean, corrupt, ("heads", 0, 0), "output")
    with pytest.raises(ValueError, match="is not a component"):
        aw.circuits.faithfulness(clean, corrupt, [("head", 0)])
    with pytest.raises(IndexError, match="heads 0 to 1"):
        aw.circuits.path_patch(clean, corrupt, ("head", 0, 5), "output")
    with pytest.raises(IndexError, match="layers 0 to 1"):
        aw.circuits.path_patch(clean, corrupt, ("mlp", 5), "output")
    with pytest.raises(ValueError, match="is not after it"):
        aw.circuits.path_patch(clean, corrupt, ("head", 1, 0), ("head", 0, 0))
    with pytest.raises(ValueError, match="steps must be"):
        aw.circuits.edge_attribution(clean, corrupt, steps=0)
    with pytest.raises(ValueError, match="not of one model"):
        aw.circuits.overlap(np.zeros((2, 2)), np.zeros((2, 3)))
    with pytest.raises(ValueError, match="a number of heads from 1 to 4"):
        aw.circuits.overlap(np.zeros((2, 2)), np.zeros((2, 2)), top=5)
    states = aw.circuits.patch(clean, corrupt, "c", foil="a", sites="state")
    with pytest.raises(ValueError, match="first has no heads"):
        aw.circuits.overlap(states, states)


@pytest.mark.extended
def test_smollm2_a_few_of_its_edges_keep_the_capital(smollm2):
    model = smollm2
    texts = [aw.trace(*model, f"The capital of {country} is") for country in ("France", "Italy")]
    edges = aw.circuits.edge_attribution(*texts, " Paris", foil=" Rome")
    circuit = edges.circuit(400)
    result = aw.circuits.faithfulness(*texts, circuit, " Paris", foil=" Rome")
    assert ("head", 23, 4) in circuit
    assert result.size < result.all
    assert result.share > 0.7


def test_numbers_that_break_are_named_by_their_layer_before_anything_is_patched() -> None:
    model = tiny.build(tiny.TEXT["Llama"]).double()
    with torch.no_grad():
        model.model.layers[1].mlp.down_proj.weight[0, 0] = float("nan")
    clean, corrupt = (aw.trace(model, None, input_ids=ids) for ids in (CLEAN, CORRUPT))
    with pytest.raises(
        ValueError, match=r"layer 1 \(model\.layers\.1\) of stack 'self' is the first to return NaN"
    ):
        aw.circuits.path_patch(clean, corrupt, ("head", 0, 0), ("head", 1, 0), 5, foil=7)


def test_layers_and_heads_of_components_count_from_the_end_too() -> None:
    clean, corrupt = pair("Llama")
    result, same = (
        aw.circuits.path_patch(clean, corrupt, ("head", 0, head), ("mlp", layer), 5, foil=7)
        for head, layer in ((3, 1), (-1, -1))
    )
    assert result.share == same.share
    with pytest.raises(IndexError, match=r"layer 1: head 4 is out of range: there are heads 0 to 3"):
        aw.circuits.path_patch(clean, corrupt, ("head", 0, 0), ("head", 1, 4), 5, foil=7)
