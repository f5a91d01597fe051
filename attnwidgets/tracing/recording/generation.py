"""Generation by the model alone, without the additions of a checkpoint's `generation_config`."""

from __future__ import annotations

import copy
from typing import Any, cast

# Options of a model's task: where its texts begin and end, and ids that it never writes.
_OF_THE_MODEL = frozenset(
    [
        "pad_token_id",
        "bos_token_id",
        "eos_token_id",
        "decoder_start_token_id",
        "forced_bos_token_id",
        "forced_eos_token_id",
        "suppress_tokens",
        "begin_suppress_tokens",
        "bad_words_ids",
    ]
)


def greedy(model: Any, new: int) -> Any:
    """Return options for `generate` to take the most probable token `new` times, and nothing else.

    Of the model's own options, only those are kept that say where a text begins and ends and which ids it
    never holds, and those of its family (the languages and tasks of Whisper). Beams, penalties, stop strings
    and leftovers from other work are dropped.
    """
    from transformers import GenerationConfig

    class Alone(GenerationConfig):
        def update(self, *flags: Any, allow_custom_entries: bool = False, **values: Any) -> Any:
            # With this flag, `generate` fills unset options from the model's own.
            return values if allow_custom_entries else cast("Any", super()).update(*flags, **values)

    # Whisper's own `generate` omits the decoder's first tokens, except in this mode.
    options = cast("Any", Alone)(max_new_tokens=new, force_unique_generate_call=True)
    for name, value in vars(model.generation_config).items():
        if name in _OF_THE_MODEL or not hasattr(options, name):
            setattr(options, name, copy.deepcopy(value))
    if options.pad_token_id is None:
        ends = options.eos_token_id
        options.pad_token_id = ends[0] if isinstance(ends, list) else ends if ends is not None else 0
    return options
