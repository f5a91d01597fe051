"""Training again with checkpoints, and their reading: the ends, the files, and refusals."""

from __future__ import annotations

import dataclasses
import gc
import random
import shutil
import weakref
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import attnwidgets as aw
from attnwidgets.training.curve import Curve
from attnwidgets.training.measures import Look
from attnwidgets.zoo.train import induction as task
from attnwidgets.zoo.train.recipe import fit
from attnwidgets.zoo.train.recipes import RECIPES
from attnwidgets.zoo.trained_models import save

from . import made


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A folder with the checkpoints of six steps of training."""
    path = tmp_path_factory.mktemp("run")
    aw.zoo.train.run("induction", seed=3, keep=6, steps=6, folder=path)
    return path


def noisy(model: Any, tokenizer: Any, rng: random.Random) -> Any:
    """A loss that draws torch's random numbers where the model is in training, as dropout does."""
    next_loss = made.TINY.loss(model, tokenizer, rng)
    return lambda: next_loss() * (torch.rand(()) if model.training else 1)


def test_looks_change_no_bit_of_the_training() -> None:
    recipe = dataclasses.replace(made.TINY, loss=noisy)
    plain = fit(recipe, made.tokenizer(), 0)
    seen = []

    def look(step: int, model: Any) -> None:
        seen.append((step, model.training))
        model(torch.tensor([[1, 2, 3]]))
        torch.rand(7)

    looked = fit(recipe, made.tokenizer(), 0, keep=(0, 2, 6), on_step=look)
    assert seen == [(0, False), (2, False), (6, False)]
    pairs = zip(plain.state_dict().values(), looked.state_dict().values(), strict=True)
    assert all(torch.equal(a, b) for a, b in pairs)


def test_both_ends_are_exact(folder: Any) -> None:
    run = aw.checkpoints(folder)
    assert run.steps == (0, 1, 2, 3, 4, 5, 6)
    tokenizer = run.tokenizer
    ends = {0: made.model(3), 6: fit(made.TINY, tokenizer, 3, 6)}
    for step, expected in ends.items():
        state = run.model(step).state_dict()
        for name, value in expected.state_dict().items():
            assert torch.equal(state[name], value.half().float()), (step, name)
        half = {name: value.half().float() for name, value in expected.state_dict().items()}
        expected.load_state_dict(half)
        trace = aw.trace(expected, tokenizer, "abcabc")
        assert torch.equal(run.trace("abcabc", step).attention_layer(1), trace.attention_layer(1))


def test_a_folder_that_holds_the_run_is_read_and_not_trained_again(folder: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr("attnwidgets.zoo.train.runs.fit", None)
    run = aw.zoo.train.run("induction", seed=3, keep=[0, 6], steps=6, folder=folder)
    assert run.steps == (0, 6)
    with pytest.raises(ValueError, match=r"another training, step-000000.safetensors: its seed is 3, not 4"):
        aw.zoo.train.run("induction", seed=4, keep=[0, 6], steps=6, folder=folder)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"keep": 0}, "keep must be a number of at least 1"),
        ({"keep": [7], "steps": 6}, "keep must be steps from 0 to 6"),
        ({"steps": 0}, "steps must be a whole number of at least 1"),
    ],
)
def test_numbers_out_of_range_are_refused(options: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        aw.zoo.train.run("induction", **options)
    with pytest.raises(ValueError, match="Did you mean 'induction'"):
        aw.zoo.train.run("inducton")


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({}, ValueError, "checkpoints is empty"),
        ({500: "b", 100: "a"}, ValueError, "must ascend: 100 comes after 500"),
        ({"100": "a"}, TypeError, "a step of checkpoints is '100'"),
        ([1, 2], TypeError, "must be a mapping of steps to models, or a folder, not list"),
        ({1: 5}, TypeError, "the checkpoint of step 1 is a int"),
        ({1: "/nowhere"}, FileNotFoundError, "does not exist"),
    ],
)
def test_steps_and_forms_are_checked(given: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        aw.checkpoints(given)


def test_steps_that_a_folder_holds_twice_are_named(folder: Any, tmp_path: Any) -> None:
    shutil.copytree(folder, tmp_path / "run")
    shutil.copy(folder / "step-000002.safetensors", tmp_path / "run" / "step-2.safetensors")
    with pytest.raises(ValueError, match="distinct: 2 is there twice"):
        aw.checkpoints(tmp_path / "run")


def test_models_of_other_shapes_are_refused_by_the_first_parameter() -> None:
    wide = RECIPES["induction"].build(made.tokenizer(), layers=1)
    with pytest.raises(
        ValueError,
        match=r"'model.layers.1.self_attn.q_proj.weight' is absent at step 5, and of shape \[64, 64\] at",
    ):
        aw.checkpoints({0: made.model(), 5: wide}, made.tokenizer())
    # The model of a function is there only when it is loaded.
    run = aw.checkpoints({0: made.model(), 5: lambda: wide}, made.tokenizer())
    with pytest.raises(ValueError, match="are of different models"):
        run.model(5)


def test_weights_that_are_not_finite_are_a_gap() -> None:
    broken = made.model(1)
    broken.model.norm.weight.data[3] = float("nan")
    run = aw.checkpoints({0: made.model(0), 10: broken, 20: made.model(2)}, made.tokenizer())
    curve = run.curve("previous")
    assert np.isnan(curve.values).all(axis=(1, 2)).tolist() == [False, True, False]
    assert run.gaps == {10: "model.norm.weight"}
    assert "step 10 is a gap: 'model.norm.weight' is not finite" in repr(run)
    with pytest.raises(ValueError, match=r"step 10 are not finite, first 'model.norm.weight'"):
        run.trace("abab", 10)


def test_the_users_models_are_left_alone_and_one_model_holds_the_weights() -> None:
    models = {0: made.model(0), 10: made.model(1)}
    before = {step: [value.clone() for value in model.parameters()] for step, model in models.items()}
    run = aw.checkpoints(models, made.tokenizer())
    first = run.model(0)
    assert run.model(10) is first
    assert first is not models[0]
    for step, model in models.items():
        assert all(torch.equal(a, b) for a, b in zip(before[step], model.parameters(), strict=True))


def test_models_of_functions_are_let_go() -> None:
    alive: list[weakref.ref[Any]] = []

    def load(seed: int) -> Any:
        loaded = made.model(seed)
        alive.append(weakref.ref(loaded))
        return loaded

    run = aw.checkpoints({step: lambda step=step: load(step) for step in range(4)}, made.tokenizer())
    run.curve(lambda model: model.lm_head.weight[0, 0].item(), name="a weight")
    gc.collect()
    assert len(alive) >= 4
    assert not any(reference() for reference in alive)


def test_numbers_are_cached_by_the_content_of_the_weights(monkeypatch: Any) -> None:
    looks: list[Any] = []

    def counted(*args: Any) -> Look:
        looks.append(args)
        return Look(*args)

    monkeypatch.setattr("attnwidgets.training.run.Look", counted)
    same = made.model(1)
    run = aw.checkpoints({0: made.model(0), 1: same, 2: made.between(same, same, 0.5)}, made.tokenizer())
    values = run.curve("previous").values
    assert len(looks) == 2  # the last two checkpoints have the same weights
    assert np.array_equal(values[1], values[2])
    assert not np.array_equal(values[0], values[1])
    run.curve("previous")
    assert len(looks) == 2


def test_a_trace_keeps_its_numbers_and_is_not_explained_by_other_weights() -> None:
    run = aw.checkpoints({0: made.model(0), 1: made.model(1)}, made.tokenizer())
    first = run.trace("abcabc", 0)
    weights = first.attention_layer(1).clone()
    second = run.trace("abcabc", 1)
    assert not torch.equal(weights, second.attention_layer(1))
    assert torch.equal(first.attention_layer(1), weights)
    with pytest.raises(ValueError, match="changed after this trace was made"):
        aw.input_x_gradient(first)
    aw.input_x_gradient(run.trace("abcabc", 0))  # which loads its step again


def test_only_safetensors_of_transformers_are_read(tmp_path: Any) -> None:
    model, tokenizer = aw.zoo.trained("dyck")
    for step in (0, 500):
        model.save_pretrained(tmp_path / f"checkpoint-{step}")
        tokenizer.save_pretrained(tmp_path / f"checkpoint-{step}")
        model.transformer.h[0].attn.c_attn.weight.data.mul_(0.5)
    (tmp_path / "logs").mkdir()
    run = aw.checkpoints(tmp_path, tokenizer)
    assert run.steps == (0, 500)
    # The tied embedding is stored once.
    assert "lm_head.weight" not in load_file(tmp_path / "checkpoint-500" / "model.safetensors")
    halved = run.model(500).transformer.h[0].attn.c_attn.weight
    assert torch.equal(2 * halved, aw.zoo.trained("dyck")[0].transformer.h[0].attn.c_attn.weight)
    (tmp_path / "checkpoint-500" / "model.safetensors").rename(tmp_path / "pytorch_model.bin")
    with pytest.raises(ValueError, match="pickled weights are not read"):
        aw.checkpoints(tmp_path, tokenizer)


def test_other_vocabularies_and_a_missing_tokenizer_are_refused(tmp_path: Any) -> None:
    models = {0: made.model(), 1: made.model(1)}
    with pytest.raises(ValueError, match="tokenizer is missing"):
        aw.checkpoints(models)
    files = {}
    for step, letters in ((0, "ab("), (1, "ab[")):
        files[step] = tmp_path / f"step-{step}.safetensors"
        says = {"name": "x", "seed": 0, "does": "", "heads": {}, "measured": {}}
        save(files[step], made.model(), {"kind": "letters", "letters": letters, "length": 8}, says)
    with pytest.raises(ValueError, match="the tokenizer of step 1 differs from that of step 0"):
        aw.checkpoints(files)


def test_a_file_that_was_cut_off_is_named(folder: Any, tmp_path: Any) -> None:
    path = tmp_path / "step-1.safetensors"
    path.write_bytes((folder / "step-000001.safetensors").read_bytes()[:-50])
    with pytest.raises(ValueError, match=r"step-1.safetensors is damaged"):
        aw.checkpoints({1: path})
    save_file({"a": torch.ones(1)}, path)
    with pytest.raises(ValueError, match=r"does not hold a model of aw.zoo.trained"):
        aw.checkpoints({1: path})


@pytest.mark.slow
def test_the_shipped_model_has_the_reference_of_the_last_step(shared: Any) -> None:
    reference = np.load(shared / "reference" / "training" / "training-induction-seed0.npz")
    rng = random.Random(99)
    texts = [task.repeating(rng, 16) for _ in range(256)]
    run = aw.checkpoints({1200: aw.zoo.trained("induction")[0]}, made.tokenizer())
    curves = run.curves(["previous", "induction", "behaviour"], texts=texts)
    # The reference leaves out every 16th query, and is of weights in single precision.
    assert np.abs(curves["induction"].values[0].ravel() - reference["induction"][-1]).max() < 0.01
    assert np.abs(curves["previous"].values[0].ravel() - reference["previous"][-1]).max() < 0.03
    assert abs(curves["behaviour"].values[0] - reference["accuracy"][-1, 2]) < 0.01


@pytest.mark.parametrize(("seed", "induction"), [(0, (840, 600, 1200)), (1, (420, 300, 600))])
def test_the_packaged_checkpoints_end_at_the_shipped_model_and_are_read_without_training(
    monkeypatch: Any, seed: int, induction: Any
) -> None:
    monkeypatch.setattr("attnwidgets.zoo.train.runs.fit", None)
    run = aw.zoo.train.run("induction", seed, keep=aw.zoo.train.PACKAGED)
    assert run.steps == aw.zoo.train.PACKAGED
    untrained = made.model(seed).state_dict()
    first = {name: value.clone() for name, value in run.model(0).state_dict().items()}
    assert all(torch.equal(first[name], untrained[name].half().float()) for name in first)
    shipped = aw.zoo.trained("induction", seed)[0].state_dict()
    for name, value in run.model(1200).state_dict().items():
        # Sums are rounded otherwise on another machine: at most the last of the eleven digits of a half.
        assert (value - shipped[name]).abs().max() <= 2**-10 * shipped[name].abs().max()
    curves = run.curves(["behaviour", "induction"])
    assert curves["behaviour"].appeared == (300, 240, 420)
    assert curves["induction"].at(1, 1).appeared == induction


def test_composition_is_of_pairs_of_heads_and_has_the_reference_at_every_packaged_step(shared: Any) -> None:
    reference = np.load(shared / "reference" / "training" / "training-induction-seed0.npz")
    run = aw.zoo.train.run("induction", keep=[0, 600, 1200])
    curve = run.curve("key composition")
    expected = reference["composition"][np.isin(reference["step"], run.steps)]  # [step, earlier head, head]
    np.testing.assert_allclose(curve.values[:, 1, :, 0], expected.transpose(0, 2, 1), atol=1e-3)
    assert np.isnan(curve.values[:, 0]).all()
    assert np.isnan(curve.values[:, 1, :, 1]).all()
    pair = curve.at(1, 1, 0, 0)
    assert pair.name == "key composition, head 1.1 after 0.0"
    np.testing.assert_array_equal(pair.values, curve.values[:, 1, 1, 0, 0])


@pytest.mark.parametrize(
    ("values", "appeared"),
    [
        ([0, 0.1, 0.6, 0.5, 1], (20, 10, 30)),
        ([1, 0.9, 0.4, 0.5, 0], (20, 10, 30)),
        ([0, 0.1, 0.6, 0.5, 0.05], None),  # it comes back
        ([0, 0, 0, 0, 0], None),
        ([0, 0.6, 0.7, 1], None),  # too few
    ],
)
def test_a_curve_appears_half_way_unless_it_comes_back(values: Any, appeared: Any) -> None:
    curve = Curve("cause", tuple(range(0, 10 * len(values), 10)), np.array(values, dtype=float))
    assert curve.appeared == appeared
    assert ("ends about where it began" in curve.describe()) == (values[-1] == 0.05)
