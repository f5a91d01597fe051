from __future__ import annotations

import numpy as np
import pytest
import torch

from attnwidgets.explanations.mixing.attention_norm import attention_norm, globenc
from attnwidgets.explanations.mixing.rollout import rollout
from attnwidgets.tracing.recording.run import trace
from tests.tracing import tiny


def test_the_two_modes_are_different_measures() -> None:
    result = trace(tiny.build(tiny.TEXT["BERT"]), None, [5, 17, 31, 9])
    rows = globenc(result, "row")
    assert rows.stochastic
    assert np.allclose(rows.values.sum(-1), 1.0, atol=1e-6)
    assert np.allclose(
        rows.values, rollout(attention_norm(result, "enc", normalize="row"), residual=None).values, atol=1e-6
    )
    plain = globenc(result).values
    assert not np.allclose(plain / plain.sum(-1, keepdims=True), rows.values, atol=1e-6)
    with pytest.raises(ValueError, match="normalize 'rows' is not one of"):
        globenc(result, "rows")


@pytest.mark.parametrize(("dtype", "scale"), [("float32", 1e15), ("float64", 1e120)])
def test_a_product_beyond_the_precision_says_what_to_do(dtype: str, scale: float) -> None:
    model = tiny.build(lambda: tiny._plain("GPT2", "Model", num_hidden_layers=4)).to(getattr(torch, dtype))
    for block in model.h:
        block.attn.c_proj.weight.data *= scale
    result = trace(model, None, [5, 17, 31])
    with pytest.raises(ValueError, match=rf"beyond {dtype}; pass normalize='row'"):
        globenc(result).layer(3)
    assert np.isfinite(globenc(result, "row").values).all()
    assert not np.triu(globenc(result, "row").values, 1).any()
