"""The engine of live pages computes the same as torch: small models of all families, and the demo models."""

from __future__ import annotations

import json
import shutil
import subprocess
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
import torch

import attnwidgets as aw
from attnwidgets.views.page.live.weights import layout_of

from . import engine_models

WORKER = Path(aw.__file__).parent / "static/engine.js"
RULES = {"gradient": "gradient", "attnlrp": "lrp", "cp_lrp": "cp_lrp"}

# The worker's script in node: its global object is the port.
DRIVER = """
const {readFileSync} = require('fs');
const {worker, packed, weights, calls} = JSON.parse(readFileSync(0, 'utf8'));
const answers = [];
let settle;
globalThis.postMessage = (message) => settle(message);
(0, eval)(readFileSync(worker, 'utf8'));
const ask = (call) => new Promise((resolve, reject) => {
  settle = ({value, error}) => error ? reject(new Error(error)) : resolve(value);
  globalThis.onmessage({data: {id: 1, call}});
});
(async () => {
  answers.push(await ask({name: 'open', packed}));
  await ask({name: 'load', at: 0, bytes: new Uint8Array(readFileSync(weights))});
  for (const {edits, only, ...call} of calls) {
    const outputs = new Map(edits.outputs.map(([at, output]) => [at, output && Float32Array.from(output)]));
    const rows = new Map(edits.rows.map(([at, row]) => [at, Float32Array.from(row)]));
    const before = process.cpuUsage();
    const answer = await ask({...call, edits: {outputs, rows}});
    const chosen = only ? {[only]: answer[only]} : answer;
    answers.push({...chosen, ms: process.cpuUsage(before).user / 1000});
  }
  const plain = (_, value) => ArrayBuffer.isView(value) ? Array.from(value) : value;
  console.log(JSON.stringify(answers, plain));
})();
"""


def answers(folder, layout, calls):
    """The answers of the worker's committed script: about the engine, then to every call."""
    if shutil.which("node") is None:
        pytest.skip("needs Node.js")
    weights, driver = folder / "weights.bin", folder / "driver.cjs"
    weights.write_bytes(layout.data())
    driver.write_text(DRIVER, encoding="utf-8")
    given = {"worker": str(WORKER), "packed": layout.described(), "weights": str(weights), "calls": calls}
    done = subprocess.run(
        ["node", driver], input=json.dumps(given), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def assert_near(values, expected, share):
    expected = np.asarray(expected, np.float64).ravel()
    distance = np.abs(np.asarray(values, np.float64).ravel() - expected).max()
    assert distance <= share * np.abs(expected).max(), distance


def edits_of(reference, n, kind):
    if kind == "plain":
        return {"outputs": [], "rows": []}
    layer, head, other_layer, other_head, row_layer, row_head, query = reference[f"{n}/where"].tolist()
    return {
        "outputs": [
            [f"{layer}.{head}", None],
            [f"{other_layer}.{other_head}", reference[f"{n}/vec"].tolist()],
        ],
        "rows": [[f"{row_layer}.{row_head}.{query}", reference[f"{n}/row"].tolist()]],
    }


CASES = [(16, "plain"), (16, "edited"), (40, "edited")]


def pass_of(reference, n, kind):
    ids, edits = reference[f"{n}/ids"].tolist(), edits_of(reference, n, kind)
    return {"name": "pass", "ids": ids, "edits": edits, "outputs": {"logits": "last", "heads": False}}


def attention_of(answer, reference, n, kind):
    return np.concatenate([answer["attention"][layer] for layer in reference[f"{n}/{kind}/layers"]])


def flat(value):
    if isinstance(value, dict):
        return {f"{key}/{name}": leaf for key, part in value.items() for name, leaf in flat(part).items()}
    if isinstance(value, list) and value and isinstance(value[0], list):
        return flat(dict(enumerate(value)))
    return {"": value}


@pytest.mark.slow
def test_the_references_of_the_javascript_tests_are_current():
    written, made = (
        flat(json.loads(text)) for text in (engine_models.FILE.read_text(), engine_models.text())
    )
    assert written.keys() == made.keys()
    for key, value in made.items():
        if isinstance(value, list) and all(isinstance(number, float) for number in value):
            np.testing.assert_allclose(written[key], value, rtol=1e-4, atol=1e-6, err_msg=key)
        else:
            assert written[key] == value, key


@pytest.mark.slow
def test_minilm_attends_as_in_torch(shared, tmp_path):
    model, _ = aw.demo_model("encoder")
    reference = np.load(shared / "reference/page/encoder.npz")
    about, *passes = answers(
        tmp_path, layout_of(model, "exact"), [pass_of(reference, *case) for case in CASES]
    )
    assert about["backend"] in {"simd", "fused"}
    for (n, kind), answer in zip(CASES, passes, strict=True):
        assert_near(attention_of(answer, reference, n, kind), reference[f"{n}/{kind}/attention"], 1e-5)
        assert_near(answer["states"], reference[f"{n}/{kind}/states"], 1e-5)


@pytest.mark.slow
def test_smollm2_is_computed_and_explained_as_in_torch(shared, smollm2, tmp_path):
    reference = np.load(shared / "reference/page/decoder.npz")
    calls = []
    for n, kind in CASES:
        first = pass_of(reference, n, kind)
        target = {"row": -1, "plus": int(reference[f"{n}/{kind}/target"][0]), "minus": None}
        call = {"name": "relevance", "ids": first["ids"], "edits": first["edits"], "target": target}
        calls += [first, *({**call, "rule": rule} for rule in RULES.values())]
    layout = layout_of(smollm2[0])
    assert layout.rounded == ""
    _, *all_answers = answers(tmp_path, layout, calls)
    for number, (n, kind) in enumerate(CASES):
        passed, *relevances = all_answers[4 * number : 4 * number + 4]
        at = f"{n}/{kind}"
        assert_near(attention_of(passed, reference, n, kind), reference[f"{at}/attention"], 1e-5)
        logits = np.asarray(passed["logits"])
        assert_near(logits[reference[f"{at}/top"]], reference[f"{at}/logits"], 1e-5)
        for name, relevance in zip(RULES, relevances, strict=True):
            assert_near(relevance["tokens"], reference[f"{at}/{name}"], 2e-5)
    cp_lrp = all_answers[3]
    assert_near([sum(cp_lrp["tokens"])], [cp_lrp["value"]], 1e-4)


@pytest.mark.slow
def test_a_class_is_explained_as_by_the_methods_of_the_package(tmp_path):
    model, tokenizer = aw.demo_model("classifier")
    trace = aw.trace(model, tokenizer, "A slow film, but the last scene is a pleasure.")
    expected = {
        "lrp": aw.lrp(trace, 1),
        "cp_lrp": aw.lrp(trace, 1, rule="cp_lrp"),
        "gradient": aw.input_x_gradient(trace, 1),
    }
    heads = aw.lrp(trace, 1, of="heads").map
    ids = [int(token) for token in trace.input_ids]
    call = {"name": "relevance", "ids": ids, "edits": {"outputs": [], "rows": []}}
    target = {"row": -1, "plus": 1, "minus": None}
    calls = [{**call, "rule": rule, "target": target} for rule in expected]
    _, *relevances = answers(tmp_path, layout_of(model, "exact"), calls)
    for attributions, relevance in zip(expected.values(), relevances, strict=True):
        assert_near(relevance["tokens"], attributions.values, 1e-4)
    assert_near(np.concatenate(relevances[0]["heads"]), heads.values, 1e-4)


@pytest.mark.slow
def test_two_hundred_sentences_have_the_logits_of_torch_with_and_without_a_head(tmp_path):
    model, tokenizer = aw.demo_model("classifier")
    calls, expected = [], []
    for number, item in enumerate(aw.demo_texts()[:200]):
        head = (number % 6, number // 6 % 12) if number % 2 else None
        inputs = tokenizer(item.text, return_tensors="pt")
        with torch.no_grad(), aw.ablate_heads(model, head) if head else nullcontext():
            expected.append(model(**inputs).logits[0].numpy())
        edits = {"outputs": [[f"{head[0]}.{head[1]}", None]] if head else [], "rows": []}
        call = {"name": "pass", "outputs": {"logits": "last", "heads": False}, "only": "logits"}
        calls.append({**call, "ids": inputs["input_ids"][0].tolist(), "edits": edits})
    _, *passes = answers(tmp_path, layout_of(model, "exact"), calls)
    np.testing.assert_allclose([each["logits"] for each in passes], expected, rtol=0, atol=2e-5)
