"""Single cells and sets of cells: patched alone, together, and with a pair of runs that is kept."""

from __future__ import annotations

import numpy as np
import pytest

import attnwidgets as aw

from .made import pair
from .test_patch import difference


@pytest.mark.parametrize("name", ["GPT-2", "Llama"])
def test_patching_everything_is_exactly_one_and_nothing_before_the_difference_counts(name: str) -> None:
    clean, corrupt = pair(name)
    for layer in range(2):
        everything = [("state", layer, None)]
        each = [("state", layer, token) for token in range(7)]
        before = [("state", layer, token) for token in range(4)]
        for how in ("denoise", "noise"):
            assert aw.circuits.patch_cells(clean, corrupt, everything, 7, foil=9, how=how).share == 1
            assert aw.circuits.patch_cells(clean, corrupt, each, 7, foil=9, how=how).share == 1
            assert aw.circuits.patch_cells(clean, corrupt, before, 7, foil=9, how=how).share == 0
    result = aw.circuits.patch(clean, corrupt, 7, foil=9)
    assert all(not result.raw[site][:, :4].any() for site in ("state", "attention", "mlp"))


def test_several_cells_at_once_and_single_positions_of_heads() -> None:
    clean, corrupt = pair("Llama")
    cells = [("head", 1, 2, 4), ("mlp", 0, 5), ("attention", 1, -1)]
    result = aw.circuits.patch_cells(clean, corrupt, cells, 7, foil=9)
    sets = [
        aw.circuits.set_activations(corrupt, "head", 1, clean, heads=2, tokens=4),
        aw.circuits.set_activations(corrupt, "mlp", 0, clean, tokens=5),
        aw.circuits.set_activations(corrupt, "attention", 1, clean, tokens=6),
    ]
    # States copied from another run are those of that run without patches.
    with sets[0], sets[1], sets[2]:
        expected = difference(corrupt)
    assert result.after == pytest.approx(expected, abs=1e-9)
    assert result.before == pytest.approx(difference(corrupt), abs=1e-9)


def test_many_sets_at_once_are_each_as_alone() -> None:
    clean, corrupt = pair("Llama")
    sets = [[("mlp", 1, 5)], [("attention", 0, None), ("head", 1, 2)], [("state", 1, None)]]
    for how in ("denoise", "noise"):
        result = aw.circuits.patch_sets(clean, corrupt, sets, 7, foil=9, how=how, batch_size=2)
        alone = [aw.circuits.patch_cells(clean, corrupt, cells, 7, foil=9, how=how) for cells in sets]
        np.testing.assert_allclose(result.shares, [each.share for each in alone], atol=1e-9)
        np.testing.assert_allclose(result.raw, [each.after - each.before for each in alone], atol=1e-9)
        assert (result.before, result.source) == (alone[0].before, alone[0].source)
        assert result.shares[2] == pytest.approx(1)


def test_a_pair_that_is_kept_answers_as_single_calls_do() -> None:
    clean, corrupt = pair("Llama")
    sets = [[("mlp", 1, 5)], [("head", 1, 2)]]
    runs = aw.circuits.paired(clean, corrupt, 7, foil=9, estimate=["noise"])
    for how in ("denoise", "noise"):
        alone = aw.circuits.patch_sets(clean, corrupt, sets, 7, foil=9, how=how)
        result = runs.patch_sets(sets, how)
        np.testing.assert_allclose(result.raw, alone.raw, atol=1e-9)
        assert {runs.clean, runs.corrupt} == {result.before, result.source}
    for site in ("head", "state"):
        options = {"sites": site, "how": "noise", "estimate": True, "sweep": aw.circuits.Sweep(checked=1)}
        estimated = aw.circuits.patch(clean, corrupt, 7, foil=9, **options).raw[site]
        np.testing.assert_allclose(runs.estimates(site, "noise"), estimated, atol=1e-9)
    with pytest.raises(ValueError, match=r"estimate=\('denoise',\)"):
        runs.estimates("head")
    few = aw.circuits.paired(clean, corrupt, 7, sites="head")
    with pytest.raises(ValueError, match="'mlp' was not recorded"):
        few.patch_sets(sets)
    assert few.patch_sets(sets[1:]).raw.shape == (1,)
    with pytest.raises(ValueError, match="now changed"), aw.ablate_heads(clean.model, (0, 1)):
        few.patch_sets(sets[1:])
    with pytest.raises(ValueError, match="estimate 'nose' is not one of"):
        aw.circuits.paired(clean, corrupt, 7, estimate=["nose"])


def test_sets_that_are_empty_are_refused() -> None:
    clean, corrupt = pair("Llama")
    for sets, said in (([], "sets is empty"), ([[("state", 0, 1)], []], r"sets\[1\] is empty")):
        with pytest.raises(ValueError, match=said):
            aw.circuits.patch_sets(clean, corrupt, sets, 7)
    with pytest.raises(ValueError, match="batch_size"):
        aw.circuits.patch_sets(clean, corrupt, [[("state", 0, 1)]], 7, batch_size=0)
