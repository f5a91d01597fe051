"""Output heads: how logits are computed from the last block, by model family.

A layout names modules by their path in the model, with `{base}` for the model below the head. It is verified
by computing the logits of the trace again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import torch

from attnwidgets.tracing.algebra.block_runs import block_of, require_every_block
from attnwidgets.tracing.algebra.blocks import tail_dtype, tolerance
from attnwidgets.tracing.algebra.steps import FUNCTIONS, Pointwise, Scale, Step, apply_steps, read_steps
from attnwidgets.tracing.block_replay import captured
from attnwidgets.tracing.mixers.runs import is_described, mixed_block
from attnwidgets.tracing.recording.borrow import borrowed, unwrap
from attnwidgets.tracing.recording.wrappers import unpeft
from attnwidgets.tracing.unsupported import UnsupportedModelError

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor, nn

    from attnwidgets.tracing.trace import Trace

_TOKENS = 2  # dimensions of logits [token, vocabulary], as opposed to [class]


@dataclass(frozen=True)
class HeadLayout:
    """The modules of an output head, by their task.

    Args:
        family: Readable name.
        reads: The states of the last block that it reads: "each" token's, for logits by token, or a single
            vector for the whole input: that of the "first" or the "last" token, or the "mean" over tokens.
        steps: The steps applied to them, in order: paths of modules, or "=" and the name of a function.
        before: Steps applied to each token's state before the mean is computed.
        scaled: Whether the model's config may scale or cap the logits afterwards.
    """

    family: str
    reads: Literal["each", "first", "last", "mean"]
    steps: tuple[str, ...]
    before: tuple[str, ...] = ()
    scaled: bool = False


# Names of the final norm in decoders.
_FINAL = (
    *("norm", "final_layer_norm", "final_layernorm", "ln_f", "decoder.final_layer_norm", "final_norm"),
    *("norm_f", "embedding_norm", "out_norm"),  # of Mamba, LFM2 and xLSTM
)
# Names of the number at which a config caps logits.
_CAPS = ("final_logit_softcapping", "logits_soft_cap", "output_logit_soft_cap")
_ROBERTA = ("lm_head.dense", "=gelu", "lm_head.layer_norm", "lm_head.decoder")
_MODERNBERT = ("head.dense", "head.act", "head.norm")

HEADS: tuple[HeadLayout, ...] = (
    # Classes of a whole input.
    HeadLayout("BERT", "first", ("{base}.pooler.dense", "{base}.pooler.activation", "classifier")),
    HeadLayout("ALBERT", "first", ("{base}.pooler", "{base}.pooler_activation", "classifier")),
    HeadLayout("ELECTRA", "first", ("classifier.dense", "classifier.activation", "classifier.out_proj")),
    HeadLayout("RoBERTa", "first", ("classifier.dense", "=tanh", "classifier.out_proj")),
    HeadLayout("DistilBERT", "first", ("pre_classifier", "=relu", "classifier")),
    HeadLayout("ModernBERT", "first", ("{base}.final_norm", *_MODERNBERT, "classifier")),
    HeadLayout("ModernBERT", "mean", (*_MODERNBERT, "classifier"), before=("{base}.final_norm",)),
    *(HeadLayout("decoders that classify", "last", (f"{{base}}.{norm}", "score")) for norm in _FINAL),
    HeadLayout("ViT", "first", ("{base}.layernorm", "classifier")),
    # Tokens: masked tokens, next tokens, or classes of tokens.
    HeadLayout(
        "BERT",
        "each",
        (
            "cls.predictions.transform.dense",
            "cls.predictions.transform.transform_act_fn",
            "cls.predictions.transform.LayerNorm",
            "cls.predictions.decoder",
        ),
    ),
    HeadLayout("RoBERTa", "each", _ROBERTA),
    HeadLayout("RoBERTa-PreLayerNorm", "each", ("{base}.LayerNorm", *_ROBERTA)),
    HeadLayout("XLM-RoBERTa-XL", "each", ("{base}.encoder.LayerNorm", *_ROBERTA)),
    HeadLayout(
        "DistilBERT", "each", ("vocab_transform", "activation", "vocab_layer_norm", "vocab_projector")
    ),
    HeadLayout(
        "ALBERT",
        "each",
        ("predictions.dense", "predictions.activation", "predictions.LayerNorm", "predictions.decoder"),
    ),
    HeadLayout(
        "ELECTRA",
        "each",
        (
            "generator_predictions.dense",
            "generator_predictions.activation",
            "generator_predictions.LayerNorm",
            "generator_lm_head",
        ),
    ),
    HeadLayout("ModernBERT", "each", ("{base}.final_norm", *_MODERNBERT, "decoder")),
    HeadLayout(
        "ModernBERT decoder",
        "each",
        ("{base}.final_norm", "lm_head.dense", "lm_head.act", "lm_head.norm", "decoder"),
    ),
    HeadLayout("RWKV", "each", ("{base}.ln_out", "head")),
    HeadLayout("BioGPT", "each", ("{base}.layer_norm", "output_projection")),
    *(HeadLayout("decoders", "each", (f"{{base}}.{norm}", "lm_head"), scaled=True) for norm in _FINAL),
    # Decoders inside a model that reads pictures or sound, too.
    *(
        HeadLayout(
            "decoders of pictures and text", "each", (f"{{base}}.{inner}.norm", "lm_head"), scaled=True
        )
        for inner in ("language_model", "text_model")
    ),
    *(
        HeadLayout("Llama 4", "each", (f"{path}model.norm", f"{path}lm_head"), scaled=True)
        for path in ("", "language_model.")  # its base_model_prefix is not that of its modules
    ),
    HeadLayout("decoders without a final norm", "each", ("lm_head",)),
    HeadLayout("ModernBERT that tags", "each", ("{base}.final_norm", *_MODERNBERT, "classifier")),
    *(
        HeadLayout("decoders that tag", "each", (f"{{base}}.{norm}", last))
        for norm in _FINAL
        for last in ("score", "classifier")
    ),
    HeadLayout("encoders that tag", "each", ("classifier",)),
)


@dataclass(frozen=True)
class Head:
    """A model's output head in a recorded pass. Tensors are in `tail_dtype`, on the model's device.

    Args:
        layout: Its layout.
        before: Steps applied to each state it reads.
        steps: Steps applied to their mean (most heads read a single state), in order.
        hidden: Output of the last block [token, dim].
        logits: The model's logits [token, vocabulary] or [class], on the CPU.
    """

    layout: HeadLayout
    before: tuple[Step, ...]
    steps: tuple[Step, ...]
    hidden: Tensor
    logits: Tensor

    def rows(self, position: int | None) -> list[int]:
        """Return the tokens whose states are averaged for a row of logits.

        Args:
            position: Row of logits [token, vocabulary]; None for [class].
        """
        count = len(self.hidden)
        if self.layout.reads == "mean":
            return list(range(count))
        row = {"first": 0, "last": count - 1}.get(self.layout.reads, position)
        if row is None:
            raise ValueError("`position` is required: this head returns logits for each token.")
        return [row]

    def recomputed(self, position: int | None) -> Tensor:
        """Return a row of logits [class], computed by the layout."""
        state = self.hidden[self.rows(position)]
        state = apply_steps(self.before, state).mean(dim=0, keepdim=True)
        return apply_steps(self.steps, state)[0]


def head_of(trace: Trace, stack: str, method: str, position: int | None) -> Head:
    """Return the output head that reads a stack, verified on the logits of a position.

    Args:
        trace: Trace returned by `aw.trace`, with logits.
        stack: The stack whose last block it reads.
        method: The method's name, for messages.
        position: Row of logits [token, vocabulary]; None for [class].

    Raises:
        UnsupportedModelError: If no layout gives the model's logits; the message names the model's class.
    """
    if trace.logits is None:
        raise UnsupportedModelError(
            f"{method} needs a model with an output head, and this one returns no logits."
        )
    model = unwrap(trace.model)
    hidden, precision = _last_states(trace, stack, method)
    whole = trace.logits.dim() < _TOKENS
    row = trace.logits if whole else trace.logits[position or 0]
    expected = row.to(hidden)
    bound = tolerance(precision) * expected.norm()
    with borrowed(model) as twin:
        for layout in HEADS:
            parts = [_modules(unpeft(twin), paths) for paths in (layout.before, layout.steps)]
            if (layout.reads == "each") == whole or None in parts:
                continue
            try:
                before, steps = (read_steps(part or (), hidden.shape[-1], hidden) for part in parts)
                after = _after(model.config, expected) if layout.scaled else []
                head = Head(layout, before, (*steps, *after), hidden, trace.logits)
                logits = head.recomputed(position)
            except (RuntimeError, TypeError, AttributeError, UnsupportedModelError):
                # Modules with these names that take other arguments or shapes.
                continue
            if logits.shape == expected.shape and (logits - expected).norm() <= bound:
                return head
    raise UnsupportedModelError(
        f"{method} is not available: no description of a head gives the logits of {type(model).__name__}. "
        "For maps, trace the model without its head: aw.trace(model.base_model, ...)."
    )


def _last_states(trace: Trace, stack: str, method: str) -> tuple[Tensor, torch.dtype]:
    """Return the output of a stack's last block [token, dim] in `tail_dtype`, and the model's precision."""
    try:
        if is_described(trace, stack):
            require_every_block(trace, stack, method)
            last = block_of(trace, trace.layers(stack)[-1], stack, method)
            return last.output, last.call.dtype
        require_every_block(trace, stack, method, attention=False)
        mixed = mixed_block(trace, trace.mixing_layers(stack)[-1], stack, method)
        return mixed.output[0].to(tail_dtype(mixed.output.dtype)), mixed.precision
    except UnsupportedModelError:
        # The output of the last block was recorded, whatever its operations.
        layers = captured(trace, stack, method, mixing=True).layers
        block = layers.get(max(block.number for block in trace.anatomy.stacks[stack]))
        if block is None:
            raise
    precision = torch.bfloat16 if block.in_half_precision else block.output.dtype
    return block.output[0].to(tail_dtype(block.output.dtype)), precision


def _modules(model: nn.Module, paths: tuple[str, ...]) -> list[nn.Module | Callable[[Tensor], Tensor]] | None:
    """Return the modules and functions of a head in order; None if any is missing."""
    base = getattr(model, "base_model_prefix", "") or "model"
    modules: list[nn.Module | Callable[[Tensor], Tensor]] = []
    for step in paths:
        if step.startswith("="):
            modules.append(FUNCTIONS[step[1:]])
            continue
        try:
            modules.append(model.get_submodule(step.format(base=base)))
        except AttributeError:
            return None
    return modules


def _after(config: Any, like: Tensor) -> list[Step]:
    """Return the steps of some decoders after logits: Cohere and Granite scale them, Gemma caps them."""
    steps: list[Step] = []
    config = getattr(config, "text_config", None) or config
    scale = getattr(config, "logit_scale", None) or 1 / (getattr(config, "logits_scaling", None) or 1)
    if isinstance(scale, float | int) and scale != 1:
        steps.append(Scale(like.new_tensor(scale)))
    cap = next(filter(None, (getattr(config, name, None) for name in _CAPS)), None)
    if cap:
        steps.append(Pointwise(lambda logits: cap * torch.tanh(logits / cap)))
    return steps
