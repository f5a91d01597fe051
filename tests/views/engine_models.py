"""Small models of transformers with weights that Python and JavaScript make alike, and torch's results.

    python tests/views/engine_models.py

writes js/test/engine.json, which js/test/engine.test.ts compares with the engine of live pages. The file
holds no weights: the bits of every tensor come from a generator of random numbers, whose twin is
js/test/engineModels.ts.
"""

from __future__ import annotations

import contextlib
import json
import sys
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import transformers as tf

from attnwidgets.relevance.backward import single_activations
from attnwidgets.relevance.rules import Rules
from attnwidgets.views.page.live import weights

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

FILE = Path(__file__).parents[2] / "js/test/engine.json"
IDS = [3, 11, 0, 7, 7, 2, 9]
RULES = {"gradient": None, "lrp": "attnlrp", "cp_lrp": "cp_lrp"}


def random_bits(count: int, seed: int) -> np.ndarray:
    """Return whole numbers below 2**31 - 1 (Park and Miller 1988)."""
    state, out = (1_000_003 * (seed + 1)) % 2_147_483_647, np.empty(count, np.int64)
    for i in range(count):
        state = (state * 16_807) % 2_147_483_647
        out[i] = state
    return out


def halves(bits: np.ndarray) -> np.ndarray:
    return bits.astype("<u2").view("<f2").astype(np.float32)


def values_of(kind: str, to: int, from_: int, seed: int, offset: float, scale: float) -> np.ndarray:
    """Return the numbers of a random tensor that is packed as `kind`; see js/src/engine/kinds.ts."""
    bits, group_bits = random_bits(to * from_, seed), random_bits(to * from_ // 16 + 2, seed + 5_000)
    if kind == "f32":
        values = (offset + (bits / 2_147_483_647 - 0.5) * scale).astype(np.float32)
    elif kind == "f16":
        values = halves((bits & 1) << 15 | (10 + (bits >> 1) % 3) << 10 | (bits >> 8) & 1023)
    elif kind == "q8":
        scales = halves((5 + group_bits % 2) << 10 | (group_bits >> 8) & 1023)[: to * from_ // 32]
        values = (bits % 255 - 127).astype(np.float32).reshape(-1, 32) * scales[:, None]
    else:
        pairs = group_bits[: to * from_ // 16].reshape(-1, 2)
        scales = halves(9 << 10 | (pairs[:, 0] >> 8) & 1023)[:, None]
        least = halves(1 << 15 | 12 << 10 | (pairs[:, 1] >> 8) & 1023)[:, None]
        values = (bits >> 4 & 15).astype(np.float32).reshape(-1, 32) * scales + least
    return values.reshape(to, from_)


@dataclass(frozen=True)
class Case:
    """A model, the module of each layer that its heads write to, and how its matrices are packed.

    `kinds` names kinds by the end of a tensor's name; all others are float32.
    """

    make: Callable[[], Any]
    output: str
    row: int = -1
    kinds: Mapping[str, str] = field(default_factory=dict)


def _sizes(width: int, heads: int, inner: int, **more: Any) -> dict[str, Any]:
    return {
        "vocab_size": 13,
        "hidden_size": width,
        "num_attention_heads": heads,
        "num_hidden_layers": 2,
        "intermediate_size": inner,
        "max_position_embeddings": 9,
        "attn_implementation": "eager",
        **more,
    }


def _gpt2(**more: Any) -> Any:
    sizes = {"vocab_size": 13, "n_positions": 9, "n_embd": 18, "n_layer": 2, "n_head": 3, "n_inner": 27}
    none = {"bos_token_id": None, "eos_token_id": None}
    return tf.GPT2Config(
        **sizes, **none, attn_implementation="eager", scale_attn_by_inverse_layer_idx=True, **more
    )


BERT = "encoder.layer.{}.attention.output.dense"
GPT2 = "h.{}.attn.c_proj"
LLAMA = "layers.{}.self_attn.o_proj"
ROTARY = {"rope_parameters": {"rope_type": "default", "rope_theta": 500.0}}

CASES = {
    "bert": Case(
        lambda: tf.BertForSequenceClassification(tf.BertConfig(**_sizes(32, 4, 64, num_labels=3))),
        BERT,
        kinds={"token": "q8", "q": "q8", "v": "q4m", "up": "q8", "down": "q4m"},
    ),
    "masked": Case(
        lambda: tf.BertForMaskedLM(tf.BertConfig(**_sizes(20, 2, 23, hidden_act="relu"))), BERT, row=2
    ),
    "gpt2": Case(lambda: tf.GPT2LMHeadModel(_gpt2()), GPT2, kinds={"token": "f16", "up": "f16"}),
    "gpt2 classifier": Case(
        lambda: tf.GPT2ForSequenceClassification(_gpt2(num_labels=2, pad_token_id=IDS[-1])), GPT2
    ),
    "llama": Case(
        lambda: tf.LlamaForCausalLM(
            tf.LlamaConfig(**_sizes(32, 4, 64, num_key_value_heads=2, tie_word_embeddings=True), **ROTARY)
        ),
        LLAMA,
        kinds={"token": "q8", **dict.fromkeys(["q", "k", "v", "o", "up", "gate", "down"], "q4m")},
    ),
    "qwen2": Case(
        lambda: tf.Qwen2ForCausalLM(tf.Qwen2Config(**_sizes(24, 4, 30, num_key_value_heads=1), **ROTARY)),
        LLAMA,
        row=4,
    ),
    "qwen3": Case(
        lambda: tf.Qwen3ForCausalLM(
            tf.Qwen3Config(**_sizes(22, 4, 26, num_key_value_heads=2, head_dim=10), **ROTARY)
        ),
        LLAMA,
    ),
}


def filled(case: Case) -> tuple[Any, dict[str, Any], list[list[float]]]:
    """Return a model in float64 with random weights, its `PackedModel`, and how its tensors are made."""
    model = case.make().double().eval()
    shape, _, named = weights.named_weights(model)
    tensors, recipes = [], []
    for name, values in named.items():
        if name == "out" and values.data_ptr() == named["token"].data_ptr():
            continue  # the embeddings, once more
        short = name.rpartition(".")[2]
        is_matrix = values.dim() > 1
        kind = case.kinds.get(short, "f32") if is_matrix else "f32"
        to, from_ = values.shape if is_matrix else (1, len(values))
        is_gain = not is_matrix and short != "type" and not short.endswith("b")
        tensors.append([name, kind, to, from_])
        recipes.append([len(recipes), float(is_gain), 0.6])
        with torch.no_grad():
            numbers = values_of(kind, to, from_, *recipes[-1])
            values.copy_(torch.from_numpy(numbers).reshape(values.shape))
    return (
        model.requires_grad_(requires_grad=False),
        {"shape": shape, "layers": 2, "tensors": tensors},
        recipes,
    )


@contextlib.contextmanager
def edited(
    model: Any, case: Case, shape: Mapping[str, Any], edits: Mapping[str, Any], outputs: list[Any]
) -> Iterator[None]:
    """Set outputs of heads and rows of attention while the model runs; collects the outputs of heads."""
    size, module = shape["size"], sys.modules[type(model).__module__]
    hooks, eager = [], module.eager_attention_forward
    blocks = [model.base_model.get_submodule(case.output.format(layer)) for layer in range(2)]

    def write(layer: int, _: Any, args: tuple[Any, ...]) -> tuple[Any, ...]:
        z = args[0].clone()
        for (where, head), output in edits.get("outputs", {}).items():
            if where == layer:
                z[..., head * size : (head + 1) * size] = (
                    0 if output is None else torch.tensor(output).double()
                )
        outputs.append(z)
        return (z,)

    calls: list[None] = []

    def attend(_: Any, query: Any, key: Any, value: Any, mask: Any, scaling: Any, **__: Any) -> Any:
        layer = len(calls)
        calls.append(None)
        groups, n = query.shape[1] // key.shape[1], query.shape[2]
        key, value = (states.repeat_interleave(groups, 1) for states in (key, value))
        scores = torch.matmul(query, key.transpose(2, 3)) * scaling
        if shape["causal"]:
            scores = scores + torch.full((n, n), -torch.inf).double().triu(1)
        attention = torch.nn.functional.softmax(scores, dim=-1)
        keep, new = torch.ones_like(attention).detach(), torch.zeros_like(attention).detach()
        for (where, head, row), values in edits.get("rows", {}).items():
            if where == layer:
                keep[0, head, row], new[0, head, row] = 0, torch.tensor(values).double()
        attention = attention * keep + new
        return torch.matmul(attention, value).transpose(1, 2).contiguous(), attention

    module.eager_attention_forward = attend
    hooks = [block.register_forward_pre_hook(partial(write, layer)) for layer, block in enumerate(blocks)]
    try:
        yield
    finally:
        module.eager_attention_forward = eager
        for hook in hooks:
            hook.remove()


def computed(
    model: Any, case: Case, shape: Mapping[str, Any], edits: Mapping[str, Any], target: tuple[int, int]
) -> dict[str, Any]:
    """Return torch's results in float64: the pass, and the relevance of tokens and heads by rule."""
    out: dict[str, Any] = {}
    plus, minus = target
    for name, rule in RULES.items():
        words = model.get_input_embeddings()(torch.tensor([IDS])).detach().requires_grad_()
        heads: list[Any] = []
        with contextlib.ExitStack() as stack:
            hook = model.get_input_embeddings().register_forward_hook(lambda *_, words=words: words)
            stack.callback(hook.remove)
            stack.enter_context(edited(model, case, shape, edits, heads))
            if rule:
                stack.enter_context(single_activations(model))
                stack.enter_context(Rules(rule))
            inputs = {
                "input_ids": torch.tensor([IDS]),
                "output_attentions": True,
                "output_hidden_states": True,
            }
            passed = model(**inputs, use_cache=False) if shape["causal"] else model(**inputs)
            logits = passed.logits[0] if passed.logits.dim() > 2 else passed.logits
            value = logits[case.row, plus] - logits[case.row, minus]
            gradients = torch.autograd.grad(value, [words, *heads])
        size = shape["size"]
        out[name] = {
            "tokens": (words * gradients[0])[0].sum(-1),
            "heads": [
                (z * g)[0].unflatten(-1, (-1, size)).sum(-1).T
                for z, g in zip(heads, gradients[1:], strict=True)
            ],
        }
    out["value"], out["logits"] = value, logits
    out["attention"] = [layer[0] for layer in passed.attentions]
    out["states"] = passed.hidden_states[-1][0]
    return out


def references() -> dict[str, Any]:
    """Return the content of js/test/engine.json."""
    out: dict[str, Any] = {"ids": IDS, "models": {}}
    for name, case in CASES.items():
        model, packed, recipes = filled(case)
        shape = packed["shape"]
        row = np.linspace(1, 2, len(IDS)) * (np.arange(len(IDS)) <= 4)
        edits = {
            "outputs": {(0, 1): None, (1, 0): np.linspace(-0.5, 0.7, shape["size"]).round(4).tolist()},
            "rows": {(1, 1, 4): (row / row.sum()).round(4).tolist()},
        }
        keyed = {
            kind: [[".".join(map(str, at)), values] for at, values in of.items()]
            for kind, of in edits.items()
        }
        target = (1, 0)
        out["models"][name] = {
            "packed": packed,
            "recipes": recipes,
            "edits": keyed,
            "target": {"row": case.row, "plus": target[0], "minus": target[1]},
            "plain": computed(model, case, shape, {}, target),
            "edited": computed(model, case, shape, edits, target),
        }
    return out


def _rounded(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return [float(f"{number:.7g}") for number in value.detach().flatten().tolist()]
    raise TypeError(type(value))


def text() -> str:
    return json.dumps(references(), default=_rounded, separators=(",", ":")) + "\n"


if __name__ == "__main__":
    FILE.write_text(text(), encoding="utf-8")
