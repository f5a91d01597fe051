"""Chat templates of eight formats, and chats that trouble them: thoughts, tools, blanks, words of templates.

The templates are written from the public descriptions of the formats and shorter than the released ones.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.tracing import tiny

FOLDER = Path(__file__).parent
TEMPLATES = {path.stem: path.read_text() for path in sorted(FOLDER.glob("*.jinja"))}
CHATS: dict[str, dict[str, Any]] = json.loads((FOLDER / "chats.json").read_text())
SPECIAL = [
    "<|im_start|>",
    "<|im_end|>",
    "<|begin_of_text|>",
    "<|start_header_id|>",
    "<|end_header_id|>",
    "<|eot_id|>",
    "<bos>",
    "<start_of_turn>",
    "<end_of_turn>",
    "<start_of_image>",
    "<s>",
    "</s>",
    "[INST]",
    "[/INST]",
    "[AVAILABLE_TOOLS]",
    "[/AVAILABLE_TOOLS]",
    "[TOOL_CALLS]",
    "[TOOL_RESULTS]",
    "[/TOOL_RESULTS]",
    "<|user|>",
    "<|assistant|>",
    "<|system|>",
    "<|tool|>",
    "<|start|>",
    "<|message|>",
    "<|channel|>",
    "<|call|>",
    "<|return|>",
    "<|bos|>",
    "<|eos|>",
    "<|User|>",
    "<|Assistant|>",
    "<|tool_call|>",
    "<|tool_output|>",
    "<|tool_end|>",
]


def tokenizer(template: str) -> Any:
    """Return a byte-level tokenizer with a template of `TEMPLATES`."""
    result = tiny.byte_level(("Ġ t", "h e", "Ġt he", "t e", "te a", ". '", '" :'))
    result.add_special_tokens({"additional_special_tokens": SPECIAL})
    result.chat_template = TEMPLATES[template]
    return result


def model() -> Any:
    """Return a tiny model that reads these tokenizers' ids."""
    import transformers as hf

    config = hf.GPT2Config(
        vocab_size=400, n_embd=16, n_layer=2, n_head=2, n_positions=1_000, bos_token_id=0, eos_token_id=0
    )
    return tiny.build(lambda: hf.GPT2LMHeadModel(config))
