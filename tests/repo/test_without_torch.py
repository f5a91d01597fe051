"""Where torch cannot be imported, arrays and files are computed with and shown all the same."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

import attnwidgets as aw
from tests.explanations.made import random_classifier
from tests.tracing import tiny
from tests.views.every import _claims, _lens, _masked, _patching, every_view

SCRIPT = Path(__file__).with_name("without_torch.py")
SAYS = re.compile(
    r"ModuleNotFoundError: (aw[\w.]*) needs (torch|transformers), which is not installed: "
    r"pip install torch transformers\."
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Archives of a trace, made with torch."""
    folder = tmp_path_factory.mktemp("archives")
    trace = aw.trace(random_classifier(), tiny.wordpiece(), "the new cat sat.")
    methods = "attention rollout value_zeroing contribution_graph saliency lrp decompx"
    for method in methods.split():
        getattr(aw, method)(trace).save(folder / f"{method}.saved")
    aw.sae_features(*_masked()).save(folder / "features.saved")
    aw.results.Scorecard([[[[1.0]]]], metrics=["m"], methods=["a"], x=[0]).save(folder / "scorecard.saved")
    for name, (made,) in {"patching": _patching(), "lens": _lens(), "claims": _claims()}.items():
        made.save(folder / f"{name}.saved")
    drawn = torch.randn(2, 2, 5, 5, generator=torch.Generator().manual_seed(0)).softmax(-1)
    layers = {"self.0": drawn[0].half(), "self.1": drawn[1].clone()}
    save_file(layers, folder / "weights.safetensors")
    return folder


def run(folder, *options):
    done = subprocess.run(
        [sys.executable, "-W", "error:::attnwidgets", SCRIPT, folder, *options],
        capture_output=True,
        text=True,
        env={**os.environ, "MPLBACKEND": "agg"},
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.fixture(scope="module")
def without(folder):
    run(folder, "blocked")
    return json.loads((folder / "told.json").read_text())


@pytest.mark.slow
def test_arrays_and_files_have_the_same_numbers_with_and_without(without, folder):
    """Bit by bit, but for matrix products: torch's library, where it is loaded, adds up in another order."""
    run(folder)
    here, there = (dict(np.load(folder / f"numbers-{blocked}.npz")) for blocked in (True, False))
    assert here.keys() == there.keys()
    assert {"rollout", "word", "moved", "qkv", "from file", "attention.saved rollout"} <= here.keys()
    for name, values in here.items():
        assert values.dtype == there[name].dtype
        if re.search(r"(^|[^.])rollout$|spans|difference", name):
            np.testing.assert_allclose(values, there[name], rtol=0, atol=1e-15, err_msg=name)
        else:
            np.testing.assert_array_equal(values, there[name], err_msg=name)


@pytest.mark.slow
def test_every_view_that_runs_no_model_is_drawn_and_saved(without):
    runs_one = {
        "AudioView",
        "ImageView",
        "RemovalView",
        "SteerView",
        "WhyView",
    }  # sounds and pictures are traced
    # Of results that are not saved.
    runs_one |= {"ConceptView", "InfluenceView", "RunView", "ShapeView", "SourcesView"}
    assert set(without["views"]) == set(every_view()) - runs_one
    assert without["loaded"] == []


def test_every_public_name_works_or_says_what_it_needs(without):
    """The names are called with nothing, a trace, a map and two words: also where they must refuse those."""
    told = without["outcomes"]
    raw = [f"{name}: {said}" for name, tried in told.items() for said in tried if "No module" in said]
    assert raw == []
    needs = {name: [said for said in tried if "ModuleNotFoundError" in said] for name, tried in told.items()}
    for name, said in needs.items():
        assert all(SAYS.fullmatch(line) and SAYS.fullmatch(line)[1].startswith(f"aw.{name}") for line in said)
    assert all(needs[name] for name in ("trace", "SAE", "evaluate.compare", "statistics.induction_score"))
    works = {name for name, tried in told.items() if "" in tried}
    assert {"rollout", "attention_flow", "explore", "methods", "demo_texts"} <= works
    assert "statistics.head_statistics" in works
    assert not works & {name for name, tried in told.items() if SAYS.match(tried[0])} - {"demo_model"}


@pytest.mark.slow
def test_torch_is_not_loaded_before_a_model_runs(folder):
    probe = (
        "import sys, attnwidgets as aw; from pathlib import Path; "
        "aw.load(Path(sys.argv[1]) / 'rollout.saved').view().to_html(Path(sys.argv[1]) / 'page.html'); "
        "print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", probe, folder], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
