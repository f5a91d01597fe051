from __future__ import annotations

from typing import Any

import pytest
import transformers as hf

from tests.tracing import tiny


@pytest.fixture(scope="module")
def model() -> Any:
    config = hf.LlamaConfig(
        vocab_size=400, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=37
    )
    return tiny.build(lambda: hf.LlamaForCausalLM(config))
