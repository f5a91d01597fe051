"""Graphs of circuit-tracer are read and drawn; files that are none are refused."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import attnwidgets as aw


def node(name: str, kind: str = "cross layer transcoder", **more: Any) -> dict[str, Any]:
    layer, _, token = name.split("_")
    return {"node_id": name, "layer": layer, "ctx_idx": int(token), "feature_type": kind, **more}


def graph(**changes: Any) -> dict[str, Any]:
    nodes = [
        node("E_7_0", "embedding"),
        node("E_8_1", "embedding"),
        node("0_3_1", clerp="<b>capitals</b>"),
        node("2_1_2", "logit", token_prob=0.5),
    ]
    links = [
        {"source": "E_7_0", "target": "0_3_1", "weight": 3.0},
        {"source": "E_8_1", "target": "0_3_1", "weight": -1.0},
        {"source": "0_3_1", "target": "2_1_2", "weight": 0.5},
    ]
    metadata = {"prompt_tokens": ["The", " capital", " is"], "scan": "a-model"}
    return {"metadata": metadata, "qParams": {}, "nodes": nodes, "links": links} | changes


def written(folder: Any, given: Any) -> Any:
    path = folder / "graph.json"
    path.write_text(json.dumps(given))
    return path


def test_effects_are_drawn_where_they_arrive(tmp_path):
    result = aw.circuits.load_circuit_graph(written(tmp_path, graph()))
    assert [link.weight for link in result.top(2)] == [3.0, -1.0]
    assert result.nodes["0_3_1"].label == "<b>capitals</b>"
    assert "4 nodes and 3 links; a-model" in repr(result)
    flow = result.flow()
    assert flow.layers == (0, 1, 2)
    np.testing.assert_allclose(flow.values[0, 1], [0.75, 0.25, 0])
    np.testing.assert_allclose(flow.values[1], np.eye(3))
    np.testing.assert_allclose(flow.values[2, 2], [0, 1, 0])
    view = aw.FlowView(flow)
    assert view.share(2, 0) == pytest.approx(0.75)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"nodes": None}, "not a circuit-tracer graph"),
        ({"metadata": {}}, "'prompt_tokens' is missing"),
        ({"links": [{"source": "E_7_0", "target": "9_9_9", "weight": 1}]}, "'9_9_9', which is not a node"),
        (
            {"links": [{"source": "E_7_0", "target": "0_3_1", "weight": float("nan")}]},
            "weight of a link is nan",
        ),
        ({"nodes": [node("0_1_7")]}, "token 7 of layer 0"),
        ({"nodes": [node("x_1_0")]}, "not a circuit-tracer graph"),
        (
            {"nodes": [node("0_2_1"), {**node("0_2_1", "mlp reconstruction error"), "layer": "2"}]},
            "two nodes are named '0_2_1'.*layer 0 and mlp reconstruction error of layer 2",
        ),
    ],
)
def test_what_is_no_graph_is_said(tmp_path, changes, says):
    with pytest.raises(aw.circuits.CircuitGraphError, match=says):
        aw.circuits.load_circuit_graph(written(tmp_path, graph(**changes)))


def test_files_that_are_not_json_are_refused(tmp_path):
    (tmp_path / "graph.json").write_text("text")
    with pytest.raises(aw.circuits.CircuitGraphError, match="not a circuit-tracer graph"):
        aw.circuits.load_circuit_graph(tmp_path / "graph.json")
    with pytest.raises(FileNotFoundError, match="does not exist"):
        aw.circuits.load_circuit_graph(tmp_path / "none.json")
