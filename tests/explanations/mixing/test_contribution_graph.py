from __future__ import annotations

import copy
import json
import pickle

import numpy as np
import pytest
import torch

from attnwidgets.explanations import ContributionGraph, MixingMap
from attnwidgets.explanations.mixing.contribution_graph import contribution_graph
from attnwidgets.explanations.registry.registry import methods
from attnwidgets.explanations.results.archive import load
from attnwidgets.tracing.algebra.block_runs import block_of
from attnwidgets.tracing.algebra.contributions import parts_of
from attnwidgets.tracing.recording.run import trace
from attnwidgets.tracing.text.units import Unit
from tests.explanations.made import axis, unit
from tests.explanations.mixing.against_authors import decoder_traces, numbers
from tests.tracing import tiny
from tests.tracing.families import FAMILIES

IDS = [5, 17, 31, 9, 44, 8, 23, 60, 11]
SIDES = {"residual": "attn_residual", "mlp": "mlp", "mlp_residual": "mlp_residual"}


def _totals(graph: ContributionGraph) -> np.ndarray:
    return np.stack([graph.values.sum((1, 3)) + graph.residual, graph.mlp + graph.mlp_residual])


def _random(seed: int = 0, layers: int = 3, heads: int = 2, tokens: int = 7, **options) -> ContributionGraph:
    """Sparse random sums over the tokens of `made.axis`."""
    rng = np.random.default_rng(seed)
    parts = np.tril(rng.gamma(0.3, size=(layers, heads, tokens, tokens)))
    residual = rng.gamma(1.0, size=(layers, tokens)) + 1e-3
    total = parts.sum((1, 3)) + residual
    mlp = rng.uniform(size=(layers, tokens))
    return ContributionGraph(
        parts / total[:, None, :, None],
        residual=residual / total,
        mlp=mlp,
        mlp_residual=1 - mlp,
        query=axis(),
        **options,
    )


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_shares_are_the_authors(shared, dtype) -> None:
    expected = numbers(shared, "tiny_gpt2_llmtt_contributions")
    # Where a token is not read the authors give it the least share, and we none: 2e-6 in all.
    for compat, tolerance in ((None, 5e-6), ("authors", 1e-6 if dtype == "float32" else 1e-9)):
        for name, traced in decoder_traces(shared, "tiny_gpt2", dtype).items():
            graph = contribution_graph(traced, compat=compat)
            for number in graph.layers:
                heads = expected[f"{name}/l{number}/attn"].transpose(2, 0, 1)
                assert np.abs(graph.layer(number) - heads).max() < tolerance
                for ours, theirs in SIDES.items():
                    off = getattr(graph, ours)[number] - expected[f"{name}/l{number}/{theirs}"]
                    assert np.abs(off).max() < tolerance


@pytest.mark.parametrize(
    ("family", "distance"), [*((family, "l1") for family in FAMILIES), ("Llama", "l2"), ("BERT", "l2")]
)
def test_every_sum_is_one_in_every_family(family, distance) -> None:
    traced = FAMILIES[family].traced()
    graph = contribution_graph(traced, distance)
    assert np.allclose(_totals(graph), 1.0, atol=1e-5)
    assert all((part >= 0).all() for part in (graph.values, graph.residual, graph.mlp, graph.mlp_residual))
    assert graph.parallel == (family in ("GPT-NeoX", "Cohere"))
    for number in graph.layers:
        unread = traced.attention_layer(number, graph.stack).numpy() == 0
        assert not graph.layer(number)[unread].any()
        assert (graph.layer(number)[~unread] > 0).all()


@pytest.mark.parametrize("family", ["GPT-2", "Gemma 2", "GPT-NeoX", "BERT"])
def test_shares_are_those_of_the_vectors_themselves(family) -> None:
    """Every vector is made, and compared with the model's states."""
    traced = trace(tiny.build(tiny.TEXT[family]).double(), None, IDS)
    graph = contribution_graph(traced)
    block = block_of(traced, 1, "self", "test")
    parts = parts_of(block, "res_ln")
    vectors = torch.einsum("hij,hjv,hvd,i->hijd", parts.weights, parts.values, parts.matrix, parts.row)
    whole = block.middle if family != "BERT" else block.norm1(block.middle)
    size = whole.abs().sum(-1)
    near = (size[:, None] - (vectors - whole[:, None]).abs().sum(-1)).clamp(min=1e-5)
    near[parts.weights == 0] = 0
    residual = (size - (parts.residual - whole).abs().sum(-1)).clamp(min=1e-5)
    total = near.sum((0, 2)) + residual
    assert np.allclose(graph.layer(1), near / total[:, None], atol=1e-6)
    assert np.allclose(graph.residual[1], residual / total, atol=1e-6)
    if family != "BERT":
        output = block.output
        size = output.abs().sum(-1)
        both = [(size - (x - output).abs().sum(-1)).clamp(min=1e-5) for x in (output - whole, whole)]
        assert np.allclose(graph.mlp[1], both[0] / sum(both), atol=1e-6)


@pytest.mark.parametrize("family", ["GPT-2", "Llama"])
def test_neither_batch_padding_nor_chunks_change_anything(family) -> None:
    model = tiny.build(tiny.TEXT[family])
    graph = contribution_graph(trace(model, None, IDS))
    ids = torch.tensor([[*IDS[:5], 0, 0, 0, 0], IDS])
    mask = torch.tensor([[1] * 5 + [0] * 4, [1] * 9])
    short, long = trace(model, None, {"input_ids": ids, "attention_mask": mask})
    assert np.allclose(contribution_graph(long).values, graph.values, atol=1e-6)
    alone = contribution_graph(trace(model, None, IDS[:5]))
    assert np.allclose(contribution_graph(short).values, alone.values, atol=1e-6)
    assert np.allclose(contribution_graph(short).residual, alone.residual, atol=1e-6)
    chunked = contribution_graph(long, chunk_size=2)
    assert np.allclose(chunked.values, graph.values, atol=1e-6)
    only = contribution_graph(long, layers=1)
    assert only.layers == (1,)
    assert np.array_equal(only.residual[0], contribution_graph(long).residual[1])


def test_half_precision_agrees_with_single() -> None:
    model = tiny.build(tiny.TEXT["Llama"])
    single = contribution_graph(trace(model, None, IDS))
    half = contribution_graph(trace(copy.deepcopy(model).bfloat16(), None, IDS))
    assert np.allclose(_totals(half), 1.0, atol=1e-5)
    assert np.abs(half.values - single.values).max() < 2e-2


def test_it_is_a_map_that_leaves_and_comes_back(tmp_path) -> None:
    graph = contribution_graph(trace(tiny.build(tiny.TEXT["GPT-2"]), None, IDS))
    assert isinstance(graph, MixingMap)
    assert "contribution_graph" in methods()
    assert "routes" in methods()["contribution_graph"].returns
    for back in (load(graph.save(tmp_path / "graph.safetensors")), pickle.loads(pickle.dumps(graph))):
        assert isinstance(back, ContributionGraph)
        assert np.array_equal(back.values, graph.values)
        assert np.array_equal(back.mlp, graph.mlp)
        assert back.routes(-1).edges == graph.routes(-1).edges
        assert back.provenance == graph.provenance
    assert json.dumps(graph.to_description()[0])


def test_only_what_is_looked_at_is_computed() -> None:
    graph = contribution_graph(trace(tiny.build(tiny.TEXT["GPT-2"]), None, IDS))
    layers: list[int] = []
    lazy = ContributionGraph.lazy(
        lambda number: (
            layers.append(number)
            or type("Shares", (), {
                "attention": graph.layer(number), "residual": graph.residual[number],
                "mlp": graph.mlp[number], "mlp_residual": graph.mlp_residual[number], "parallel": False,
            })()
        ),
        query=graph.query, layers=graph.layers, heads=graph.heads, method="mine",
    )  # fmt: skip
    assert layers == []
    assert np.array_equal(lazy.others(1)[0], graph.residual[1])
    assert layers == [1]
    lazy.routes(layer=0)
    assert layers == [1, 0]


def test_words_keep_every_sum_at_one() -> None:
    graph = _random()
    words = graph.to("word")
    assert isinstance(words, ContributionGraph)
    assert words.shape == (3, 2, 5, 5)
    assert np.allclose(_totals(words), 1.0, atol=1e-6)
    assert np.allclose(words.residual[:, 1], graph.residual[:, 1:4].mean(1), atol=1e-6)
    assert np.allclose(words.matrix(2, 1), MixingMap(graph.values, query=axis()).to("word").matrix(2, 1))
    single = Unit("single", graph.query_labels, tuple((i,) for i in range(7)), (False,) * 7)
    assert np.allclose(graph.to(single).residual, graph.residual)
    assert words.routes("un##believ##able" if "un##believ##able" in words.query_labels else 1).labels == (
        words.query_labels
    )


def test_some_layers_stay_a_graph_and_some_heads_a_map() -> None:
    graph = _random()
    later = graph.select(layer=[1, 2])
    assert isinstance(later, ContributionGraph)
    assert np.array_equal(later.residual, graph.residual[1:])
    assert {node.layer for node in later.routes(threshold=0).nodes if node.stage == "input"} == {1}
    assert not isinstance(graph.select(head=0), ContributionGraph)
    assert np.allclose(graph.sum("head").values, graph.values.sum(1), atol=1e-6)


def _by_hand(graph, token, threshold, *, renormalize, per_head) -> dict[tuple, float]:
    """List every edge of the whole graph, then keep those that reach the target: from the definition."""
    stack = [("out", 2, token)]
    result, seen = {}, set()
    while stack:
        state = stack.pop()
        if state in seen or state[1] < 0:
            continue
        seen.add(state)
        parts = _parts_by_hand(graph, *state)
        if renormalize:
            left = {name: part for name, part in parts.items() if part > threshold}
            parts = {name: part / sum(left.values()) for name, part in left.items()}
        edges: dict[tuple, float] = {}
        for (kind, source, head), part in parts.items():
            name = (kind, state, source, head if per_head else None)
            edges[name] = edges.get(name, 0.0) + part
        for name, weight in edges.items():
            if weight > (0.0 if renormalize else threshold):
                result[name] = weight
                stack.append(name[2])
    return {(k, *state[1:], source[2], head): w for (k, state, source, head), w in result.items()}


def _parts_by_hand(graph, stage, layer, token) -> dict[tuple, float]:
    below = ("out", layer - 1)
    if stage == "out":
        middle = ("middle", layer, token)
        fed = (*below, token) if graph.parallel else middle
        return {
            ("mlp", fed, None): graph.mlp[layer, token],
            ("mlp_residual", middle, None): graph.mlp_residual[layer, token],
        }
    parts = {
        ("attention", (*below, key), head): graph.values[layer, head, token, key]
        for head in range(2)
        for key in range(7)
    }
    return parts | {("residual", (*below, token), None): graph.residual[layer, token]}


@pytest.mark.parametrize("renormalize", [True, False])
@pytest.mark.parametrize("per_head", [True, False])
@pytest.mark.parametrize("parallel", [True, False])
def test_routes_are_the_edges_that_reach_the_target(renormalize, per_head, parallel) -> None:
    for seed in range(4):
        graph = _random(seed, parallel=parallel)
        routes = graph.routes(5, 0.15, renormalize=renormalize, per_head=per_head)
        expected = _by_hand(graph, 5, 0.15, renormalize=renormalize, per_head=per_head)
        edges = {
            (e.kind, e.target.layer, e.target.token, e.source.token, e.head): e.weight for e in routes.edges
        }
        assert len(edges) == len(routes)
        assert edges.keys() == expected.keys()
        assert all(np.isclose(edges[name], expected[name], atol=1e-5) for name in edges)
        table = routes.to_dataframe()
        assert len(table) == len(edges)
        assert set(table["source"]) <= set(graph.query_labels)
        # Every edge leads to a state from which the target is reached.
        assert {edge.target for edge in routes.edges} <= set(routes.nodes)


def test_with_renormalised_parts_every_state_on_the_way_is_made_of_the_whole() -> None:
    routes = _random(1).routes(6, 0.1)
    for node in routes.nodes:
        parts = [edge.weight for edge in routes.edges if edge.target == node]
        assert node.stage == "input" or np.isclose(sum(parts), 1.0, atol=1e-6)


def test_a_threshold_above_everything_leaves_the_target_alone() -> None:
    routes = _random().routes(0, 0.999)
    assert routes.edges == () or {edge.weight for edge in routes.edges} == {1.0}
    assert routes.nodes[0] == routes.target


def test_wrong_requests_name_what_is_taken() -> None:
    traced = trace(tiny.build(tiny.TEXT["GPT-2"]), None, IDS)
    with pytest.raises(ValueError, match=r"distance 'l3' is not one of"):
        contribution_graph(traced, "l3")
    with pytest.raises(ValueError, match="chunk_size must be at least 1"):
        contribution_graph(traced, chunk_size=0)
    graph = _random()
    with pytest.raises(IndexError, match="token 7 is out of range"):
        graph.routes(7)
    with pytest.raises(ValueError, match="token 'nothing' is neither a label of this text nor"):
        graph.routes("nothing")
    with pytest.raises(ValueError, match="threshold must be a share"):
        graph.routes(0, 1.5)
    with pytest.raises(ValueError, match="routes need consecutive layers, not 0, 2"):
        graph.select(layer=[0, 2]).routes()
    with pytest.raises(ValueError, match=r"residual has shape \(2, 7\)"):
        ContributionGraph(
            graph.values,
            residual=graph.residual[:2],
            mlp=graph.mlp,
            mlp_residual=graph.mlp_residual,
            query=axis(),
        )
    with pytest.raises(ValueError, match="a graph needs"):
        ContributionGraph(
            graph.values[:, 0],
            residual=graph.residual,
            mlp=graph.mlp,
            mlp_residual=graph.mlp_residual,
            query=axis(),
        )


def test_a_label_that_one_token_has_names_it() -> None:
    graph = _random()
    assert graph.routes("news").target.token == 4
    twice = ContributionGraph(
        graph.values, residual=graph.residual, mlp=graph.mlp, mlp_residual=graph.mlp_residual,
        query=["a", "b", "a", "c", "d", "e", "f"],
    )  # fmt: skip
    with pytest.raises(ValueError, match=r"token 'a' is at 0, 2; give one of these numbers"):
        twice.routes("a")
    assert unit("x", [(0,)]).labels == ("x0",)
