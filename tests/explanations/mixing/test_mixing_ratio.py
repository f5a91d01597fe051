from __future__ import annotations

import numpy as np
import pytest

from attnwidgets.explanations.mixing.attention_norm import mixing_ratio
from attnwidgets.tracing.recording.run import trace
from tests.tracing import tiny


def test_a_token_that_reads_itself_alone_mixes_nothing() -> None:
    result = trace(tiny.build(tiny.TEXT["GPT-2"]), None, [5, 17, 31])
    ratio = mixing_ratio(result, "res")
    assert ratio.targets == ("layer 0", "layer 1")
    assert np.allclose(ratio.values[:, 0], 0.0, atol=1e-6)
    assert ((ratio.values >= 0) & (ratio.values <= 1)).all()
    assert mixing_ratio(result, "res", layers=1).targets == ("layer 1",)
    assert "no norm after" in mixing_ratio(result).warning


def test_wrong_options_name_what_is_taken() -> None:
    result = trace(tiny.build(tiny.TEXT["BERT"]), None, [5, 17, 31])
    with pytest.raises(ValueError, match="variant 'ln' is not one of"):
        mixing_ratio(result, "ln")
    with pytest.raises(IndexError, match="layer 9"):
        mixing_ratio(result, layers=9)
