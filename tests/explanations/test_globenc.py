from __future__ import annotations

import numpy as np
import pytest

from attnwidgets.explanations.attention_norm import attention_norm
from attnwidgets.explanations.globenc import globenc
from attnwidgets.explanations.rollout import rollout
from attnwidgets.tracing.run import trace
from tests.tracing import tiny


def test_the_two_modes_are_different_measures() -> None:
    found = trace(tiny.build(tiny.TEXT["BERT"]), None, [5, 17, 31, 9])
    rows = globenc(found, "row")
    assert rows.stochastic
    assert np.allclose(rows.values.sum(-1), 1.0, atol=1e-6)
    assert np.allclose(
        rows.values, rollout(attention_norm(found, "enc", normalize="row"), residual=None).values, atol=1e-6
    )
    plain = globenc(found).values
    assert not np.allclose(plain / plain.sum(-1, keepdims=True), rows.values, atol=1e-6)
    with pytest.raises(ValueError, match="normalize 'rows' is not one of"):
        globenc(found, "rows")


def test_a_product_beyond_float32_says_what_to_do() -> None:
    model = tiny.build(tiny.TEXT["GPT-2"]).double()
    for block in model.transformer.h:
        block.attn.c_proj.weight.data *= 1e24
    found = trace(model, None, [5, 17, 31])
    with pytest.raises(ValueError, match=r"beyond float32; normalise rows"):
        globenc(found).layer(1)
    assert np.isfinite(globenc(found, "row").values).all()
    assert not np.triu(globenc(found, "row").values, 1).any()
