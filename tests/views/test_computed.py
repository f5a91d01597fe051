"""Matrices that a page computes: its own script gives every number within what it states."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess

import numpy as np
import pytest

import attnwidgets as aw
from attnwidgets.views.page.score_factors import factors, weights_of

from .live_pages import JS, parts_of
from .long import traced

# The tiles of a page as its script answers requests for them.
DRIVER = """
const {computedCodes} = require(process.argv[2]);
const {entries, blob, header} = JSON.parse(require('fs').readFileSync(0, 'utf8'));
const bytes = Buffer.from(blob, 'base64');
const read = async ({offset, length}) =>
  new Uint8Array(require('zlib').inflateSync(bytes.subarray(offset, offset + length)));
(async () => {
  const codes = computedCodes(entries, read, () => header);
  const all = [];
  for (const entry of entries) all.push(Buffer.from(await codes(entry)).toString('base64'));
  console.log(JSON.stringify(all));
})();
"""


SHARPEST = 30


@pytest.fixture(scope="module")
def codes_of(tmp_path_factory):
    """A function that gives the entries of a page's store, and their code bytes in a browser's script."""
    tool = JS / "node_modules/.bin/esbuild"
    if shutil.which("node") is None or not tool.exists():
        pytest.skip("needs Node.js and js/node_modules (make js)")
    folder = tmp_path_factory.mktemp("computed")
    out, driver = folder / "computed.cjs", folder / "driver.cjs"
    command = [
        tool,
        "src/host/computed.ts",
        "--bundle",
        "--platform=node",
        "--format=cjs",
        f"--outfile={out}",
    ]
    subprocess.run(command, cwd=JS, check=True, capture_output=True)
    driver.write_text(DRIVER, encoding="utf-8")

    def codes(path):
        state, blobs = parts_of(path)
        entries, header = state["archive"]["store0"], state["models"]["store0"]["state"]["header"]
        given = {"entries": entries, "blob": blobs["aw-tiles-store0"], "header": header}
        command = ["node", driver, out]
        done = subprocess.run(command, input=json.dumps(given), capture_output=True, text=True, check=True)
        return entries, [base64.b64decode(text) for text in json.loads(done.stdout)]

    return codes


def assert_within_what_is_stated(entries, codes, maps):
    """Assert that codes of computed matrices differ from those of the maps by no more than their slack."""
    for entry, data in zip(entries, codes, strict=True):
        if "from" not in entry:
            continue
        method, unit, _ = entry["source"].split("/")
        head = None if entry["head"] == "-" else entry["head"]
        true = maps[method].to(unit).matrix(entry["layer"], head)
        values = np.frombuffer(data, np.uint8).reshape(true.shape)
        off = np.abs(values - 255 * np.sqrt(true)).max()
        assert off <= 0.5 + entry["slack"] + 1e-3, entry


def page_of(trace, folder, units=("token",), **options):
    """A page of a trace's attention and rollout."""
    views = [aw.Heatmap(explained, units=units) for explained in (trace, aw.rollout(trace))]
    return aw.to_html(views, folder / "page.html", **options)


def recipes(entries):
    return {(entry["source"], entry.get("from", "codes")) for entry in entries}


@pytest.mark.slow
def test_a_long_text_of_a_trained_model(minilm, codes_of, tmp_path):
    text = " ".join(f"Film number {at} was uninspiringly predictable, the critics wrote." for at in range(18))
    trace = aw.trace(*minilm, text)
    maps = {"attention": aw.attention(trace), "rollout": aw.rollout(trace)}
    path = page_of(trace, tmp_path, units=["word", "token"])
    entries, codes = codes_of(path)
    assert recipes(entries) == {
        ("attention/token/self", "factors"),
        ("attention/token/self", "heads"),
        ("attention/word/self", "unit"),
        ("attention/word/self", "heads"),
        ("rollout/token/self", "layers"),
        ("rollout/word/self", "unit"),
    }
    assert_within_what_is_stated(entries, codes, maps)
    assert "All" in path.read_text().split("<footer>")[1]
    # Half a code each: a matrix takes a quarter of the bytes of its codes.
    tokens = len(trace.tokens)
    heads = [entry for entry in entries if entry.get("from") == "factors"]
    assert len(heads) == 6 * 12
    assert all(entry["slack"] <= 0.51 for entry in heads)
    assert sum(entry["length"] for entry in heads) < 72 * tokens**2 * 0.25


@pytest.mark.slow
def test_a_causal_text(codes_of, tmp_path):
    trace = traced(300)
    maps = {"attention": aw.attention(trace), "rollout": aw.rollout(trace)}
    entries, codes = codes_of(page_of(trace, tmp_path))
    assert ("attention/token/self", "factors") in recipes(entries)
    assert_within_what_is_stated(entries, codes, maps)
    later = np.triu_indices(len(trace.tokens), 1)
    for entry, data in zip(entries, codes, strict=True):
        if entry["codec"] == "u8":
            shape = entry["rows"], entry["cols"]
            assert not np.frombuffer(data, np.uint8).reshape(shape)[later].any()


@pytest.mark.slow
def test_weights_without_queries_and_keys_are_held_as_codes(given, codes_of, tmp_path):
    trace = given(n=220, layers=2, heads=3)
    maps = {"attention": aw.attention(trace)}
    entries, codes = codes_of(aw.Heatmap(trace, units=["token"]).to_html(tmp_path / "page.html"))
    assert recipes(entries) == {("attention/token/self", "codes"), ("attention/token/self", "heads")}
    assert_within_what_is_stated(entries, codes, maps)


@pytest.mark.slow
def test_words_of_two_texts_are_not_computed_from_tokens(softmax, codes_of, tmp_path):
    sides = [[f"{'##' * (at % 10 == 9)}t{at}" for at in range(count)] for count in (220, 240)]
    trace = aw.from_attentions(softmax((2, 3, 220, 240)), query_tokens=sides[0], key_tokens=sides[1])
    view = aw.Heatmap(trace, units=["token", "word"])
    entries, codes = codes_of(view.to_html(tmp_path / "page.html"))
    stack = view.store.sources()[0].stack
    assert recipes(entries) >= {(f"attention/token/{stack}", "heads"), (f"attention/word/{stack}", "codes")}
    assert not any(how == "unit" for _, how in recipes(entries))
    assert_within_what_is_stated(entries, codes, {"attention": aw.attention(trace)})


@pytest.mark.slow
def test_short_texts_and_a_choice_of_heads_hold_every_matrix_itself(given, codes_of, tmp_path):
    entries, _ = codes_of(aw.Heatmap(given(n=90), units=["token"]).to_html(tmp_path / "page.html"))
    assert recipes(entries) == {("attention/token/self", "codes")}
    # Of three heads of four, no mean can be computed.
    page = aw.Heatmap(given(n=220), units=["token"]).to_html(tmp_path / "page.html", heads=[0, 1, 2, "mean"])
    entries, _ = codes_of(page)
    assert recipes(entries) == {("attention/token/self", "codes")}


@pytest.mark.slow
def test_a_page_that_is_too_small_holds_what_fits(codes_of, tmp_path):
    trace = traced(300)
    whole = page_of(trace, tmp_path).stat().st_size
    path = page_of(trace, tmp_path, budget=whole - 20_000)
    assert path.stat().st_size <= whole - 20_000
    note = path.read_text().split("<footer>")[1]
    assert "were left out for its size" in note
    entries, codes = codes_of(path)
    maps = {"attention": aw.attention(trace), "rollout": aw.rollout(trace)}
    assert_within_what_is_stated(entries, codes, maps)


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("size", [0.3, 3, SHARPEST])
def test_factors_of_flat_and_of_sharp_weights(size, is_causal):
    rng = np.random.default_rng(0)
    query, key = (rng.normal(size=(150, 8)) * np.sqrt(size) for _ in range(2))
    scores = query @ key.T
    if is_causal:
        scores[np.triu_indices(150, 1)] = -np.inf
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    weights = (weights / weights.sum(axis=1, keepdims=True)).astype(np.float32)
    rounded = factors(query, key, weights, causal=is_causal)
    if size == SHARPEST and rounded is None:  # the scores exceed 300, and float32 ends
        return
    data, error = rounded
    off = np.abs(np.sqrt(weights_of(data, 8, 150, 150, causal=is_causal)) - np.sqrt(weights)).max() * 255
    assert off == pytest.approx(error, abs=1e-3)
    assert error <= 0.51


def test_weights_that_are_not_the_softmax_of_products_have_no_factors(softmax):
    rng = np.random.default_rng(0)
    weights = softmax((1, 1, 100, 100))[0, 0]
    assert factors(rng.normal(size=(100, 8)), rng.normal(size=(100, 8)), weights, causal=False) is None
