"""Texts of different length are patched column by column."""

from __future__ import annotations

import numpy as np
import pytest

import attnwidgets as aw

from .made import induction, pair

CLEAN, CORRUPT = "fadebcfadeb", "fadebagfadeb"


def unequal() -> list[aw.results.Trace]:
    model, tokenizer = aw.zoo.induction(letters="abcdefgh", length=16)
    return [aw.trace(model, tokenizer, text) for text in (CLEAN, CORRUPT)]


def test_texts_of_equal_length_need_no_columns():
    clean, corrupt = induction()
    plain, aligned = (
        aw.circuits.patch(clean, corrupt, "c", foil="a", sweep=aw.circuits.Sweep(align=align))
        for align in (False, True)
    )
    for site in plain.sites:
        np.testing.assert_array_equal(aligned.raw[site], plain.raw[site])


def test_columns_stand_beside_each_other():
    clean, corrupt = unequal()
    result = aw.circuits.patch(clean, corrupt, "c", foil="a", sweep=aw.circuits.Sweep(align=True))
    assert result.clean_tokens[5:9] == ("b", "", "c", "f")
    assert result.corrupt_tokens[5:9] == ("b", "a", "g", "f")
    assert result.differs == (6, 7)
    state = result.values["state"]
    assert np.isnan(state[:, 6]).all()
    assert not state[:, :6].any()
    assert result.heads[1, 0] == pytest.approx(1, abs=1e-6)
    assert result.heads[1, 1] == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("how", ["denoise", "noise"])
def test_a_column_is_a_token_set_to_its_counterpart(how):
    clean, corrupt = unequal()
    result = aw.circuits.patch(
        clean, corrupt, "c", foil="a", sweep=aw.circuits.Sweep(align=True), how=how, sites="mlp"
    )
    base, other = (corrupt, clean) if how == "denoise" else (clean, corrupt)
    columns = {8: (7, 8), 12: (11, 12)}  # column: token of the clean text, of the corrupt text
    ids = [base.tokenizer.convert_tokens_to_ids(name) for name in "ca"]
    for column, tokens in columns.items():
        target, from_ = tokens if how == "noise" else tokens[::-1]
        outputs = []
        with aw.circuits.set_activations(
            other, "mlp", 1, lambda output, outputs=outputs: outputs.append(output) or output
        ):
            other.rerun()
        changed = base.rerun(
            aw.circuits.set_activations(base, "mlp", 1, outputs[-1][0, [from_]], tokens=[target])
        )
        first, last = (trace.logits[-1, ids[0]] - trace.logits[-1, ids[1]] for trace in (base, changed))
        assert result.raw["mlp"][1, column] == pytest.approx(float(last - first), abs=1e-5)


def test_both_ways_are_saved_and_drawn(tmp_path):
    clean, corrupt = unequal()
    both = aw.circuits.patch(
        clean,
        corrupt,
        "c",
        foil="a",
        sweep=aw.circuits.Sweep(align=True),
        how="both",
        sites=("state", "head"),
    )
    again = aw.load(both.noise.save(tmp_path / "noise.safetensors"))
    np.testing.assert_array_equal(again.raw["state"], both.noise.raw["state"])
    assert both.denoise.figure()
    assert both.denoise.top(1)[0].head == 0


def test_what_cannot_be_aligned_is_said():
    clean, corrupt = unequal()
    with pytest.raises(ValueError, match="align=True"):
        aw.circuits.patch(clean, corrupt, "c", foil="a")
    with pytest.raises(ValueError, match="estimate needs texts"):
        aw.circuits.patch(clean, corrupt, "c", foil="a", sweep=aw.circuits.Sweep(align=True), estimate=True)
    with pytest.raises(ValueError, match="names a position"):
        aw.circuits.patch(
            clean, corrupt, aw.targets.token("c", position=5), foil="a", sweep=aw.circuits.Sweep(align=True)
        )
    clean, corrupt = pair("GPT-2")
    with pytest.raises(ValueError, match="same input"):
        aw.circuits.patch(clean, clean, 5, sweep=aw.circuits.Sweep(align=True))
