"""Former faults in the table of model types, and everything else of the same mechanism."""

from __future__ import annotations

from typing import Any

import pytest

import attnwidgets as aw
from tests.models.build import Kind, build
from tests.models.feed import feed
from tests.models.judge import CHECKED, Judge


def judged(name: str, task: str) -> tuple[Any, Judge]:
    kind = Kind(name, task)
    model = build(kind)
    result = aw.trace(model, **feed(model, kind))
    return result, Judge(model, result)


@pytest.mark.parametrize(("name", "task"), [("granitemoehybrid", "causal"), ("qwen3_5", "image and text")])
def test_a_block_is_called_again_beside_a_cache_of_blocks_without_keys(name: str, task: str) -> None:
    _, judge = judged(name, task)
    assert judge._value_zeroing() == CHECKED


def test_a_feed_forward_layer_that_gates_by_its_shape_is_followed_without_its_description() -> None:
    _, judge = judged("moshi", "causal")
    assert judge._value_zeroing() == CHECKED
    assert judge._decompx() == CHECKED


@pytest.mark.parametrize(("name", "task"), [("wavlm", "CTC"), ("clip_vision_model", "base")])
def test_a_table_of_positions_is_no_baseline_for_what_is_no_text(name: str, task: str) -> None:
    trace, judge = judged(name, task)
    result = aw.integrated_gradients(trace, **judge.scored)
    assert result.provenance["options"]["baseline"] == "mean"
    with pytest.raises(ValueError, match="this model reads no tokens"):
        aw.integrated_gradients(trace, **judge.scored, baseline=0)


def test_a_config_that_names_no_number_of_blocks_is_read() -> None:
    trace, _ = judged("nemotron_asr_streaming", "base")
    assert trace.n_layers() == 3
