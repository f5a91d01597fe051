"""Value zeroing by brute force: plain hooks that zero values, whole model runs, hidden states as reported."""

from __future__ import annotations

import re
from contextlib import ExitStack

import numpy as np
import torch

from attnwidgets.tracing.recording.run import trace
from tests.tracing import tiny

IDS = [5, 17, 31, 9, 44, 8, 23, 60]


def apart(actual, expected):
    """Return the largest absolute difference."""
    return float(np.abs(actual - expected).max())


_VALUES = re.compile(r"(^|\.)(value|v_proj|v_lin|v|c_attn|query_key_value|Wqkv)$")
# Reported before a final norm: post-norm models have none, and ViT applies its norm afterwards.
NO_FINAL_NORM = (
    "BERT",
    "RoBERTa",
    "DistilBERT",
    "ELECTRA",
    "ALBERT",
    "Marian",
    "ViT",
    "wav2vec2",
    "BERT2BERT",
)


def _in_stack(name, stack):
    cross = "EncDec" in name or "encoder_attn" in name or "crossattention" in name
    if stack == "cross":
        return cross
    return stack == "self" or (not cross and ("decoder" in name) == (stack == "decoder"))


def _without_value(name, output, tokens, n_heads):
    output = output.clone()
    if name.endswith(("c_attn", "Wqkv")):
        output[:, tokens, 2 * output.shape[-1] // 3 :] = 0
    elif name.endswith("query_key_value"):
        parts = output.view(*output.shape[:2], n_heads, 3, -1)
        parts[:, tokens, :, 2] = 0
    else:
        output[:, tokens] = 0
    return output


def brute_force(trace, stack, layer, tokens, n_heads):
    """Return hidden states [layer, query, width] with the values of `tokens` zeroed in one layer."""
    calls = []

    def hook(name):
        def zero(_, __, output):
            calls.append(name)
            if tokens is not None and len(calls) == layer + 1:
                return _without_value(name, output, tokens, n_heads)
            return output

        return zero

    with ExitStack() as exits, torch.no_grad():
        for name, module in trace.model.named_modules():
            if _VALUES.search(name) and _in_stack(name, stack):
                exits.callback(module.register_forward_hook(hook(name)).remove)
        outputs = trace.model(**trace.inputs, output_hidden_states=True)
    assert len(calls) == trace.n_layers(stack)
    key = {"self": "hidden_states", "encoder": "encoder_hidden_states"}.get(stack, "decoder_hidden_states")
    return torch.cat(getattr(outputs, key)[1:])


def shares_by_brute_force(trace, stack, groups):
    layers = trace.n_layers(stack)
    n_heads = trace.n_heads(stack)
    plain = brute_force(trace, stack, 0, None, n_heads)
    rows = torch.zeros(layers, plain.shape[1], len(groups), dtype=torch.float64)
    for layer in range(layers):
        for column, tokens in enumerate(groups):
            states = brute_force(trace, stack, layer, list(tokens), n_heads)[layer]
            rows[layer, :, column] = 1 - torch.nn.functional.cosine_similarity(states, plain[layer], dim=-1)
    return (rows / rows.sum(-1, keepdim=True)).numpy()


def traced(family, dtype=torch.float64):
    """Return a trace of a tiny model of a family."""
    make, given = _MODELS.get(family, (tiny.TEXT.get(family), {"input_ids": IDS}))
    return trace(tiny.build(make).to(dtype), None, **given)


def _noise(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(1))


def _bert2bert():
    import transformers

    configs = [transformers.BertConfig(vocab_size=tiny.VOCAB, **tiny.SMALL) for _ in range(2)]
    config = transformers.EncoderDecoderConfig.from_encoder_decoder_configs(*configs)
    config.decoder_start_token_id = config.pad_token_id = 0
    return transformers.EncoderDecoderModel(config)


def _one_layer():
    return tiny._plain("Llama", "ForCausalLM", num_hidden_layers=1)


_WRITTEN = {"input_ids": IDS, "max_new_tokens": 4}
_MODELS = {
    **{family: (make, _WRITTEN) for family, make in tiny.SEQ2SEQ.items()},
    "BERT2BERT": (_bert2bert, _WRITTEN),
    "Whisper": (tiny.whisper, {"audio": _noise(1, 8, 40), "max_new_tokens": 3}),
    "wav2vec2": (tiny.wav2vec2, {"audio": _noise(300)}),
    "ViT": (tiny.IMAGE["ViT"], {"image": _noise(3, 24, 24)}),
    "DINOv2 with registers": (tiny.IMAGE["DINOv2 with registers"], {"image": _noise(3, 28, 28)}),
    "one layer": (_one_layer, {"input_ids": IDS}),
}
