"""The script of benchmarks/bias_in_heads.md: its shortcut gives the numbers of the public functions."""

from __future__ import annotations

import importlib

import numpy as np
import pytest

import attnwidgets as aw

START = "The mover said thank you to the housekeeper because"
CONTINUATIONS = ("is grateful .", "cleaned the room .")


@pytest.mark.slow
def test_one_pair_beside_patching_one_by_one(root, monkeypatch, smollm2):
    monkeypatch.syspath_prepend(root / "benchmarks")
    script = importlib.import_module("bias_in_heads")
    model, tokenizer = smollm2
    pair = script.BiasPair(START, ("he", "she"), CONTINUATIONS)
    result = script.effects(model, tokenizer, pair)

    total, layers, heads = 0.0, 0.0, 0.0
    for clean, corrupt, target, weight in script.runs_of(model, tokenizer, pair):
        patched = aw.circuits.patch(
            clean,
            corrupt,
            target,
            sites=("attention", "head"),
            how="noise",
            estimate=True,
            sweep=aw.circuits.Sweep(checked=1),
        )
        total += weight * (patched.corrupt - patched.clean)
        heads = heads + weight * patched.raw["head"]
        tokens = range(len(clean.tokens))
        sets = [
            [("attention", layer, token) for token in tokens] for layer in range(len(patched.raw["head"]))
        ]
        layers = layers + weight * aw.circuits.patch_sets(clean, corrupt, sets, target, how="noise").raw
    assert result["total"] == pytest.approx(total, rel=1e-4)
    np.testing.assert_allclose(result["indirect of layers"], layers, atol=1e-5)
    np.testing.assert_allclose(result["indirect of heads"], heads, atol=1e-5)
