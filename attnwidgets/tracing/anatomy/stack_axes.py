"""The axes of every stack: the tokens, patches or frames at its positions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from attnwidgets.tracing.interventions import added_to
from attnwidgets.tracing.layers import ModelLayer
from attnwidgets.tracing.media.patches import layout_of, patch_axis
from attnwidgets.tracing.media.picture_tokens import holds_picture, on_picture, picture_in, read_across
from attnwidgets.tracing.media.sound import frame_axis
from attnwidgets.tracing.recording.borrow import unwrap
from attnwidgets.tracing.text.axes import appended, numbered, prefixed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import nn

    from attnwidgets.tracing.media.patches import Layout
    from attnwidgets.tracing.recording.inputs import Sample
    from attnwidgets.tracing.text.units import TokenAxis
    from attnwidgets.tracing.trace import Trace

_TOWERS = ("encoder", "vision", "audio")


class StackAxes:
    """The axes of a sample, by stack and length.

    Args:
        model: The model that ran.
        stacks: By name, the calls of a pass, or the weights that the model returned itself.
        sample: The input that it read.
        inputs: The inputs of the pass.
    """

    def __init__(
        self, model: nn.Module, stacks: Mapping[str, Sequence[Any]], sample: Sample, inputs: dict[str, Any]
    ) -> None:
        self._model = model
        self.sample, self.inputs = sample, inputs
        self.config: Any = getattr(model, "config", None)
        self.configs = {name: _config_of(model, calls[0]) for name, calls in stacks.items()}
        adapters = getattr(model, "peft_config", None) or {}
        # Only adapters have soft prompts and prefixes; other surplus positions stay numbered.
        self._prefixes = any(getattr(adapter, "is_prompt_learning", False) for adapter in adapters.values())
        self.text = None if sample.text is None else sample.text.axis(sample.rule)
        self._unplaced = False
        if sample.text is not None and sample.ids is not None:
            inside = picture_in(sample.text, sample.ids, self.config, inputs, sample.picture)
            if inside is not None:
                text, arranged, positions = inside
                self.text = on_picture(text.axis(sample.rule), arranged, positions)
            self._unplaced = inside is None and holds_picture(sample.ids, self.config, inputs)
        shown = sample.decoder_text
        self.decoder = None if shown is None else shown.axis(sample.rule)
        self._unknown: dict[str, tuple[str, str]] = {}
        self._seen: set[str] = set()

    def sides(self, stack: str) -> tuple[str, str]:
        """Return the sides of a model to which the queries and the keys of a stack belong."""
        if stack != "cross":
            return stack, stack
        if "decoder" in self.configs or "encoder" in self.configs:
            return "decoder", "encoder"
        return "cross", next((tower for tower in _TOWERS if tower in self.configs), "encoder")

    def of(self, side: str, n: int) -> TokenAxis:
        """Return the axis of `n` positions of a stack, or of a side of the stack "cross"."""
        added = added_to(self._model, side)
        return with_registers(self._of(side, n - added), added) if added else self._of(side, n)

    def _of(self, side: str, n: int) -> TokenAxis:
        """Return the axis of `n` positions of the model, without tokens that interventions append."""
        config = self.configs.get(side, self.config)
        layout = self._layout(side)
        if layout is not None:
            axis = patch_axis(layout, config, self.inputs, n)
            return self._numbered(side, n) if axis is None else axis
        if side == "encoder" and side not in self.configs:  # a picture's states, which no stack reads alone
            across = read_across(self.config, self.inputs, self.sample.picture, n)
            if across is not None:
                return across
        text = self.decoder if side == "decoder" else self.text
        extra = -1 if text is None or not self.reads_text(side) else n - len(text)
        if text is not None and (extra == 0 or (extra > 0 and self._prefixes)):
            self._seen.add("decoder" if side == "decoder" else "text")
            return prefixed(text, extra) if extra else text
        if text is not None and side == "decoder" and self.text is not None and extra == len(self.text):
            # A decoder that reads its tokens and the encoder's in the same attention.
            return appended(text, self.text.tokens)
        if extra > 0 and not self.sample.others:
            self._unknown[side] = f"{n} places", "which of them are tokens of the text"
        if self.sample.sound is not None and side != "decoder":
            frames = frame_axis(config, self.sample.sound, self.inputs, n)
            return self._numbered(side, n) if frames is None else frames
        return self._numbered(side, n)

    def reads_text(self, side: str) -> bool:
        """Return whether the positions of a stack are tokens of a text, not of a picture or a sound."""
        if side in ("vision", "audio") or self._layout(side) is not None:
            return False
        stack_config = self.configs.get(side)
        # An adapter pools the patches of each token that it gives the language model.
        towers = (getattr(self.config, f"{kind}_config", None) for kind in ("vision", "audio", "adapter"))
        return stack_config is None or all(stack_config is not tower for tower in towers)

    def _layout(self, side: str) -> Layout | None:
        """Return the layout of a stack's patches; None if it reads no picture, or for unknown families."""
        layout = layout_of(self.configs.get(side, self.config), side)
        return None if self.inputs.get("pixel_values") is None else layout

    def _numbered(self, side: str, n: int) -> TokenAxis:
        """Return an axis of numbers, and note it for `warning` if there is a picture or a sound."""
        if self.inputs.get("pixel_values") is not None:
            self._unknown[side] = f"{n} places", "which of them are patches of the picture, and where,"
        elif self.sample.sound is not None:
            self._unknown[side] = f"{n} places", "when they are in the sound"
        return numbered(n)

    def warning(self) -> str:
        """Return a warning about positions without names; "" if all have one."""
        clauses = [
            f"the {positions} of stack {side!r} are numbered: {missing} is not known for "
            f"{getattr(self.configs.get(side, self.config), 'model_type', '?')!r}"
            for side, (positions, missing) in self._unknown.items()
        ]
        queries = any(layout.queries for side in self.configs if (layout := self._layout(side)) is not None)
        if self._unplaced and not queries:
            family = getattr(self.config, "model_type", "?")
            clauses.append(f"where the picture's tokens lie on it is not known for {family!r}")
        ids_by_side = {"text": self.sample.ids, "decoder": self.sample.decoder_ids}
        lacking = [name for name, ids in ids_by_side.items() if ids is not None and name not in self._seen]
        if lacking and not clauses:
            clauses = [f"attention over the {' and the '.join(lacking)}'s tokens was not recorded"]
        return "; ".join(clauses)


def with_registers(axis: TokenAxis, count: int) -> TokenAxis:
    """Return an axis with register tokens after it, numbered on from those of the axis."""
    present = sum(label.startswith("[REG") for label in axis.tokens)
    return appended(axis, [f"[REG{present + i}]" for i in range(count)])


def config_of_stack(trace: Trace, stack: str) -> Any:
    """Return the config of the modules that attend in a stack of a trace whose attention was recorded."""
    model = unwrap(trace.model)
    calls = [layer.call for layer in trace.stack_table[stack].layers if isinstance(layer, ModelLayer)]
    return _config_of(model, calls[0]) if calls else getattr(model, "config", None)


def _config_of(model: nn.Module, call: Any) -> Any:
    """Return the config of the modules that made a call, or that of the tower which returned its weights."""
    config: Any = getattr(model, "config", None)
    if isinstance(call, torch.Tensor):
        return getattr(config, "vision_config", None) or config
    module: Any = model
    for name in call.name.split("."):
        module = getattr(module, name, None)
        config = getattr(module, "config", None) or config
    return config
