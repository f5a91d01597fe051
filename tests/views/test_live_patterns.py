"""A live page names the patterns of heads of a typed text as Python does."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

import attnwidgets as aw
from attnwidgets.statistics.patterns import PATTERNS
from attnwidgets.views.heads.handlers import described_pattern

JS = Path(__file__).parents[2] / "js"
ESBUILD = JS / "node_modules/.bin/esbuild"
LABELS = ["[CLS]", "un", "##ha", "##ppy", "cat", ",", "the", "cat", "[SEP]"]

RUN = """
const {axes, offered, layers, isCausal, unit} = JSON.parse(require('fs').readFileSync(0, 'utf8'));
const matrices = async (layer) => layers[layer].map((rows) => Float32Array.from(rows.flat()));
const source = {layers: layers.map((_, i) => i)};
const shown = {shown: axes[unit], words: axes.word};
patternsOf(offered, source, shown, isCausal, matrices).then(([meta, values]) =>
  console.log(JSON.stringify({...meta, values: [...values].map((v) => Number.isNaN(v) ? null : v)})));
"""


def in_node(tmp_path, trace, unit, rows, *, causal):
    """Return a page's patterns of maps [layer, head, query, key] of a trace in a unit."""
    script = tmp_path / "patterns.cjs"
    built = [ESBUILD, JS / "src/live/patterns.ts", "--bundle", "--format=cjs", f"--outfile={script}"]
    subprocess.run(built, check=True)
    script.write_text(script.read_text(encoding="utf-8") + RUN, encoding="utf-8")
    given = {
        "axes": aw.Explorer(trace).store.header["axes"],
        "offered": [described_pattern(pattern) for pattern in PATTERNS],
        "layers": rows.tolist(),
        "isCausal": causal,
        "unit": unit,
    }
    out = subprocess.run(
        ["node", script], input=json.dumps(given), capture_output=True, text=True, check=True
    )
    return json.loads(out.stdout)


@pytest.mark.slow  # starts node
@pytest.mark.skipif(
    not ESBUILD.exists() or shutil.which("node") is None, reason="needs node and the packages of js/"
)
@pytest.mark.parametrize("unit", ["token", "word"])
@pytest.mark.parametrize("causal", [False, True])
def test_patterns_are_those_of_python(tmp_path, causal, unit):
    shares = np.random.default_rng(3).dirichlet(np.full(len(LABELS), 0.3), (2, 3, len(LABELS)))
    if causal:
        shares = np.tril(shares) + 1e-9 * np.tri(len(LABELS))
    trace = aw.from_attentions((shares / shares.sum(-1, keepdims=True)).astype(np.float32), LABELS)
    expected = aw.statistics.head_patterns(trace, unit=unit)
    result = in_node(tmp_path, trace, unit, aw.attention(trace).to(unit).values, causal=causal)
    computed = [entry["name"] for entry in result["patterns"] if not entry["refusal"]]
    assert computed == list(expected.names)
    assert len(computed) > 5
    assert result["own"] == expected.own
    values = np.array(result["values"], dtype=float).reshape(expected.values.shape)
    np.testing.assert_allclose(values, expected.values, atol=1e-6, equal_nan=True)
