"""The package's statements about a tiny model, checked against plain passes of the model itself."""

from __future__ import annotations

import re
import sys
import tempfile
import traceback
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from transformers import AttentionInterface
from transformers.masking_utils import AttentionMaskInterface, eager_mask

import attnwidgets as aw
from attnwidgets.explanations.targets.named import embedding_norm, token
from attnwidgets.tracing.recording.borrow import implementation
from tests.models.build import NotBuiltError, build, model_class
from tests.models.feed import NotFedError, feed, parameters_of, tensors_of
from tests.models.shrink import MEDIA_IDS
from tests.tracing.test_families import eager

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.models.build import Kind

CHECKED, RAN, REFUSED, FAULT = "checked", "ran", "refused", "fault"
_ROUNDING = 1e-4  # of float32 over a few layers, relative to the largest number
_SMALL = 1e-3  # numbers of which rounding may leave nothing
_FEW = 4  # keys whose values are zeroed singly
_STEPS = 50
_DELTA = 0.05  # of the change, that so many steps of integrated gradients may miss
_EAGER = "recorded under eager attention, whose output differs"
_NAN = 1e9
_PACKAGE = str(Path(aw.__file__).parent)
# Differences between models in the same reasons: numbers, and lists of methods that still work.
_SAME = (
    (re.compile(r"^\w+ is not available: |^\w+: (?=\w+ )"), ""),
    (re.compile(r"\b(layer|block|token|place)s? \d+(( to |, )\d+)*"), r"\1 N"),
    (re.compile(r"\(\d+(( to |, )\d+)*\)"), "(N)"),
    (re.compile(r"-?\d[\d.]*e[+-]?\d+|-?\d+\.\d+"), "N"),
    (re.compile(r"\b\d+ (?=places|of|tokens|heads|queries|keys|inputs)"), "N "),
    (re.compile(r"stack '[\w.]+'"), "this stack"),
    (
        re.compile(
            r"(?<=[.;]) ((Methods|For maps|attention and|Its|Pass|with force|make a|If the model)\b.*)"
        ),
        "",
    ),
    (re.compile(r"; '\w+'.* need no attention$"), ""),
)


@dataclass
class Calls:
    """The attention calls of a pass by a model's eager function; they may be changed.

    Args:
        names: Names of modules by their ids.
        without_output: Index of the call that returns zeros.
        without_value: Index of a call, and the key whose values are zero in it.
    """

    names: dict[int, str]
    without_output: int | None = None
    without_value: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        self.made: list[tuple[str, torch.Tensor | None]] = []

    def attend(
        self, module: Any, query: Any, key: Any, value: Any, attention_mask: Any = None, **options: Any
    ) -> tuple[Any, Any]:
        """Compute attention as the module's file does under "eager"."""
        index = len(self.made)
        if self.without_value is not None and self.without_value[0] == index:
            value = value.clone()
            value[:, :, self.without_value[1]] = 0
        indices = options.get("indices")
        if indices is not None:
            # Models leave these to a function that is not named "eager"; their eager function ignores them.
            chosen = (indices[..., None] == torch.arange(key.shape[2])).any(2)[:, None]
            attention_mask = attention_mask.masked_fill(~chosen, torch.finfo(attention_mask.dtype).min)
        eager = sys.modules[type(module).__module__].eager_attention_forward
        output, weights = eager(module, query, key, value, attention_mask, **options)
        if weights is not None and not _gives(weights, value, output):
            # The applied weights are not the returned ones: unit vectors as values give them as the output.
            units = torch.eye(key.shape[2], dtype=value.dtype).expand(*key.shape[:2], -1, -1)
            weights = eager(module, query, key, units, attention_mask, **options)[0].transpose(1, 2)
        self.made.append((self.names[id(module)], weights))
        return (torch.zeros_like(output) if self.without_output == index else output), weights


def _gives(weights: torch.Tensor, value: torch.Tensor, output: torch.Tensor) -> bool:
    """Return whether an output [batch, query, head, dim] is weights times values, up to rounding."""
    repeats = weights.shape[1] // value.shape[1]
    mixed = (weights @ value.repeat_interleave(repeats, 1)).transpose(1, 2)
    return mixed.shape != output.shape or bool((mixed - output).abs().max() <= 1e-4 * output.abs().max())


@contextmanager
def attending(model: Any, calls: Calls) -> Iterator[None]:
    """Let a model compute attention through `calls`."""
    AttentionInterface.register("judged", calls.attend)
    AttentionMaskInterface.register("judged", eager_mask)
    with implementation(model, "judged"):
        yield


class Judge:
    """The verdicts on a traced model, by column."""

    def __init__(self, model: Any, trace: Any) -> None:
        self.model, self.trace = model, trace
        self.names = {id(module): name for name, module in model.named_modules()}
        # With a cache FSMT leaves out its causal mask.
        self.options = {"use_cache": False} if "use_cache" in parameters_of(model) else {}
        with torch.no_grad():
            once, again = (next(tensors_of(self._run())) for _ in range(2))
        self.is_random = not torch.equal(once, again)
        self.made: list[tuple[str, torch.Tensor | None]] = []
        try:
            with torch.no_grad(), attending(model, calls := Calls(self.names)):
                self._run()
            self.made = calls.made
        except Exception:  # noqa: BLE001 - there is nothing to compare with
            self.made = []
        self.target: dict[str, Any] = {}
        if trace.logits is not None and not trace.predictions(1):
            self.target = {"target": token(0, position=0)}  # no default if every token is predicted
        self.scored = {"target": embedding_norm()} if trace.logits is None else self.target

    def _run(self) -> Any:
        """Return the model's outputs for the inputs of the trace."""
        return self.model(**self.trace.inputs, **self.options)

    def verdicts(self) -> dict[str, str]:
        """Return a verdict for every column."""
        return {name: verdict(getattr(self, f"_{name}"), self.model) for name in COLUMNS}

    def _blocks(self) -> str:
        stacks = self.trace.anatomy.stacks
        lacking = dict(self.trace.anatomy.unrecorded)
        total = sum(map(len, stacks.values()))
        if not lacking:
            return str(total)
        kinds = {m.kind for blocks in lacking.values() for block in blocks for m in block.unrecorded}
        return f"{total}, {sum(map(len, lacking.values()))} with {', '.join(sorted(kinds))}"

    def _logits(self) -> str:
        if self.trace.logits is None:
            return "none"
        expected = self._plain()
        if self.is_random:
            return f"{RAN}: two plain passes differ"
        result = _equal(self.trace.logits, expected)
        said = "recorded under eager attention, whose output differs"
        return (
            f"{RAN}: the trace says that it is {said}"
            if result != CHECKED and said in self.trace.warning
            else result
        )

    def _plain(self) -> torch.Tensor:
        """Return logits of the model as it was loaded."""
        with torch.no_grad():
            return _logits_of(self._run(), self.trace.logits)

    def _call(self, stack: str, number: int) -> int | None:
        """Return the index of the eager call of a layer; None if it cannot be determined."""
        layers = [layer for s in self.trace.stack_table.values() for layer in s.layers]
        chosen = self.trace.stack_table[stack].layers[self.trace.layers(stack).index(number)]
        if not hasattr(chosen, "call"):
            return None
        name = chosen.call.name
        same = [layer for layer in layers if hasattr(layer, "call") and layer.call.name == name]
        made = [index for index, (called, _) in enumerate(self.made) if called == name]
        nth = next(index for index, layer in enumerate(same) if layer is chosen)
        return made[nth] if len(made) == len(same) else None

    def _attention(self) -> str:
        if self.trace.no_attention:
            return "none"
        returned: list[torch.Tensor] = []
        worst, unknown = 0.0, 0
        for stack in self.trace.stacks:
            for number in self.trace.layers(stack):
                seen = self.trace.attention_layer(number, stack)
                call = self._call(stack, number)
                if call is not None and self.made[call][1] is not None:
                    references = [self.made[call][1]]
                else:
                    references = returned = returned or self._returned()
                gaps = [
                    float((reference[0].float() - _as_returned(seen, reference)).abs().max())
                    for reference in references
                    if reference.shape[1:] == seen.shape
                ]
                worst, unknown = max(worst, min(gaps, default=0.0)), unknown + (not gaps)
        if self.is_random:
            return RAN
        if worst > 1e-5:
            return f"{FAULT}: differs by {worst:.0e}"
        return RAN if unknown else CHECKED

    def _returned(self) -> list[torch.Tensor]:
        """Return the maps [batch, head, query, key] that the model returns itself under eager attention."""
        try:
            outputs = eager(self.model, **self.trace.inputs, **self.options)
        except Exception:  # noqa: BLE001 - not every model can be asked for them
            return []
        sides = ("", "encoder_", "decoder_", "cross_")
        result = [getattr(outputs, f"{side}attentions", None) or () for side in sides]
        # ProphetNet returns its scores.
        return [
            each
            for maps in result
            for each in maps
            if isinstance(each, torch.Tensor) and each.dim() == 4 and not bool((each < 0).any())
        ]

    def _rollout(self) -> str:
        result = np.asarray(aw.rollout(self.trace).values)[-1]
        product = np.eye(result.shape[-1])
        stack = self.trace.stack_table[self.trace.default_stack]
        others = aw.attention_norm(self.trace, "res", layers=list(stack.mixing)) if stack.mixing else None
        for number in self.trace.mixing_layers():
            if others is not None and number in others.layers:
                norms = others.layer(number).astype(np.float64)
                product = norms / norms.sum(-1, keepdims=True) @ product
                continue
            mixed = self.trace.attention_layer(number).double().numpy().mean(0)
            mixed += np.eye(len(mixed))
            product = mixed / mixed.sum(-1, keepdims=True) @ product
        return _close(result, product)

    def _value_zeroing(self) -> str:
        trace = self.trace
        last = next(reversed(trace.layers()), None) if trace.stacks else None
        mixing = trace.stack_table[trace.default_stack].mixing if trace.stacks else {}
        # Values of kernels are zeroed in other tests.
        if mixing and (last is None or last in mixing):
            _ = aw.value_zeroing(trace).values
            return RAN
        zeroed = aw.value_zeroing(trace, distance="euclidean", normalize=False, layers=last).layer(last)
        stack = trace.default_stack
        path = next(block.path for block in trace.anatomy.stacks[stack] if block.number == last)
        call = self._call(stack, last)
        if call is None or not path:
            return RAN
        clean = self._block_output(path, None)
        if clean is None or len(clean) != len(zeroed):
            return RAN
        keys = range(min(_FEW, zeroed.shape[1]))
        moved = [(self._block_output(path, (call, key)) - clean).norm(dim=-1) for key in keys]
        return _close(zeroed[:, : len(keys)], torch.stack(moved, -1).numpy())

    def _block_output(self, path: str, without_value: tuple[int, int] | None) -> Any:
        """Return the states [token, width] that a block returns; None if it does not run once."""
        seen: list[torch.Tensor] = []

        def keep(_: Any, __: Any, output: Any) -> None:
            seen.append(output[0] if isinstance(output, tuple) else output)

        handle = self.model.get_submodule(path).register_forward_hook(keep)
        calls = Calls(self.names, without_value=without_value)
        try:
            with torch.no_grad(), attending(self.model, calls):
                self._run()
        finally:
            handle.remove()
        return seen[0][0] if len(seen) == 1 and seen[0].dim() == 3 and len(seen[0]) == 1 else None

    def _attention_norm(self) -> str:
        _ = aw.attention_norm(self.trace).values
        return RAN

    def _alti(self) -> str:
        _ = aw.alti(self.trace).values
        return RAN

    def _decompx(self) -> str:
        result: Any = aw.decompx(self.trace, **self.target)
        values = np.asarray(result.values)
        residual = getattr(result, "residual", None)
        if residual is None:
            return RAN
        if abs(residual) > _ROUNDING * max(1.0, np.abs(values).sum()):
            return f"{FAULT}: the sum misses the logit by {abs(residual):.0e}"
        return CHECKED

    def _integrated_gradients(self) -> str:
        result = aw.integrated_gradients(self.trace, **self.scored, steps=_STEPS)
        change = abs(result.provenance["change"])
        return CHECKED if abs(result.residual) <= _DELTA * change else RAN

    def _gradient_x_input(self) -> str:
        result = np.asarray(aw.input_x_gradient(self.trace, **self.scored).values)
        row = 0 if self.target else self.trace.answer.row
        if self.trace.logits is None or (self.trace.logits.dim() > 1 and row is None):
            return RAN
        leaves: list[torch.Tensor] = []
        with ExitStack() as exits:
            for handle in self._leaves(leaves):
                exits.callback(handle.remove)
            if _EAGER in self.trace.warning:
                exits.enter_context(implementation(self.model, "eager"))
            logits = _logits_of(self._run(), self.trace.logits)
        column = 0 if self.target else self.trace.predictions(1)[0].id
        (logits[column] if logits.dim() == 1 else logits[row, column]).backward()
        read = [leaf for leaf in leaves if leaf.shape[:2] == (1, len(result)) and leaf.grad is not None]
        if len(read) != 1:
            return RAN
        return _close(result, (read[0] * read[0].grad).sum(-1)[0].detach().numpy())

    def _leaves(self, leaves: list[torch.Tensor]) -> Iterator[Any]:
        """Hook states that become leaves: of words their embeddings, else the inputs of the first block."""

        def leaf(states: torch.Tensor) -> torch.Tensor:
            leaves.append(states.detach().requires_grad_())
            return leaves[-1].clone()

        def before(_: Any, args: Any, options: Any) -> Any:
            if args:
                return (leaf(args[0]), *args[1:]), options
            return args, options | {"hidden_states": leaf(options["hidden_states"])}

        trace = self.trace
        has_picture = any("pixel" in name or "patch" in name for name in trace.inputs)
        is_media = trace.input_ids is None or (has_picture and MEDIA_IDS["image"] in trace.input_ids)
        # A picture that the blocks of the text read by cross-attention leaves its embeddings as they are.
        first = {name: [b.path for b in stack.blocks[:1]] for name, stack in trace.stack_table.items()}
        is_media &= trace.input_ids is None or first.get("cross") != first.get(trace.default_stack)
        if is_media and trace.default_stack != "decoder":
            blocks = trace.anatomy.stacks[trace.default_stack] if trace.stacks else ()
            if blocks and blocks[0].path:
                module = self.model.get_submodule(blocks[0].path)
                yield module.register_forward_pre_hook(before, with_kwargs=True)
            return
        try:
            words = self.model.get_input_embeddings()
        except NotImplementedError:
            return
        size = getattr(words, "num_embeddings", -1)
        # Encoder and decoder may each have a table over the weights of a stack that never runs.
        runs: list[Any] = []
        handle = words.register_forward_hook(lambda *_: runs.append(words))
        with torch.no_grad():
            self._run()
        handle.remove()
        others = [m for m in self.model.modules() if getattr(m, "num_embeddings", 0) == size]
        for module in runs[:1] or others:
            yield module.register_forward_hook(lambda _, __, output: leaf(output))

    def _lrp(self) -> str:
        _ = aw.lrp(self.trace, **self.scored).values
        return CHECKED if aw.check_conservation(self.trace) else RAN

    def _ablation(self) -> str:
        said = RAN
        if self.trace.no_attention:
            changed = self.trace.rerun(aw.ablate_heads(self.trace, (0, 0)))
            same = torch.equal(changed.logits, self.trace.logits)
            return f"{FAULT}: no effect in layer 0" if same else RAN
        for stack in self.trace.stacks:
            numbers = self.trace.layers(stack)
            for number in sorted({numbers[0], numbers[-1]}):
                heads = range(self.trace.n_heads(stack, number))  # of attention: kernels count on from there
                changed = self.trace.rerun(aw.ablate_heads(self.trace, {number: heads}, stack=stack))
                if self.trace.logits is None:
                    continue
                said = self._ablated(stack, number, changed.logits)
                if said.startswith(FAULT):
                    return said
        return said

    def _ablated(self, stack: str, number: int, logits: torch.Tensor) -> str:
        """Return the verdict on logits without the heads of a layer."""
        call = self._call(stack, number)
        no_effect = f"{FAULT}: no effect in layer {number} of {stack}"
        if call is None:
            is_same = torch.equal(logits, self.trace.logits)
            return no_effect if is_same and self._matters(stack, number) else RAN
        calls = Calls(self.names, without_output=call)
        with torch.no_grad(), attending(self.model, calls):
            expected = _logits_of(self._run(), logits)
        result = _equal(logits, expected)
        if result != CHECKED and apart(logits, self.trace.logits) < _ROUNDING:
            return no_effect
        return result

    def _matters(self, stack: str, number: int) -> bool:
        """Return whether the logits change if a layer's attention module returns zeros."""
        name = self.trace.stack_table[stack].layers[self.trace.layers(stack).index(number)].call.name

        def zero(_: Any, __: Any, output: Any) -> Any:
            return (output[0] * 0, *output[1:]) if isinstance(output, tuple) else output * 0

        handle = self.model.get_submodule(name).register_forward_hook(zero)
        try:
            return apart(self._plain(), self.trace.logits) > _ROUNDING
        finally:
            handle.remove()

    def _explorer(self) -> str:
        with tempfile.TemporaryDirectory() as folder:
            page = aw.Explorer(self.trace).to_html(Path(folder) / "page.html")
            return RAN if page.stat().st_size else f"{FAULT}: an empty page"


COLUMNS = (
    "blocks", "logits", "attention", "rollout", "value_zeroing", "attention_norm", "alti", "decompx",
    "integrated_gradients", "gradient_x_input", "lrp", "ablation", "explorer",
)  # fmt: skip
METHODS = COLUMNS[3:]


def judge(kind: Kind) -> dict[str, str]:
    """Return the verdict of every column on a model type, or why there is none under "model"."""
    try:
        name = model_class(kind).__name__
        model = build(kind)
    except NotBuiltError as error:
        return {"model": f"not built: {error}"}
    try:
        given = feed(model, kind)
    except NotFedError as error:
        return {"model": f"not fed: {error}"}
    traced: list[Any] = []

    def run() -> str:
        traced.append(aw.trace(model, **given))
        return name

    said = verdict(run, model)
    return {"model": said} if not traced else {"model": name, **Judge(model, traced[0]).verdicts()}


def verdict(function: Callable[[], str], model: Any) -> str:
    """Return the result of a function, or a refusal of the package, or an error of any other kind."""
    try:
        return function()
    except Exception as error:  # noqa: BLE001 - errors are counted here
        frame = traceback.extract_tb(error.__traceback__)[-1]
        if isinstance(error, ValueError) and frame.filename.startswith(_PACKAGE):
            return f"{REFUSED}: {_unnamed(str(error), model)}"
        said = " ".join(str(error).split())[:160]
        return f"{FAULT}: {type(error).__name__} in {Path(frame.filename).name}: {said}"


def _unnamed(reason: str, model: Any) -> str:
    """Return a reason without names and numbers of single models, so that similar reasons are equal."""
    reason = re.sub(rf"\b{type(model).__name__}\b", "the model", " ".join(reason.split()))
    for name in {type(module).__name__ for module in model.modules()}:
        if not hasattr(torch.nn, name):
            reason = re.sub(rf"\b{name}\b", "a layer of it", reason)
    for pattern, same in _SAME:
        reason = pattern.sub(same, reason)
    return reason.rstrip(".; ")


def apart(ours: torch.Tensor, reference: torch.Tensor) -> float:
    """Return the largest difference, relative to the largest number; NaN equals NaN."""
    ours, reference = ours.nan_to_num(_NAN), reference.nan_to_num(_NAN)
    return float((ours - reference).abs().max()) / max(float(reference.abs().max()), 1e-6)


def _equal(ours: torch.Tensor, reference: torch.Tensor) -> str:
    if ours.shape != reference.shape:
        return f"{FAULT}: shape {list(ours.shape)}, not {list(reference.shape)}"
    gap = apart(ours, reference)
    return CHECKED if gap < _ROUNDING else f"{FAULT}: differs by {gap:.0e}"


def _as_returned(seen: torch.Tensor, reference: torch.Tensor) -> torch.Tensor:
    """Return maps [head, query, key], or their mean if a model returns a single map for all heads (WavLM)."""
    is_mean = bool((reference[0] == reference[0, :1]).all()) and len(seen) > 1
    return seen.mean(0, keepdim=True) if is_mean else seen


def _close(ours: Any, reference: Any) -> str:
    gap = float(np.abs(ours - reference).max()) / max(float(np.abs(reference).max()), _SMALL)
    return CHECKED if gap < 30 * _ROUNDING else f"{FAULT}: differs by {gap:.0e}"


def _logits_of(outputs: Any, like: torch.Tensor) -> torch.Tensor:
    """Return the logits of an input, in the shape in which a trace keeps them."""
    if getattr(outputs, "start_logits", None) is not None:
        return torch.stack([outputs.start_logits[0], outputs.end_logits[0]], -1)
    values = [getattr(outputs, "logits", None), *(outputs.values() if hasattr(outputs, "values") else ())]
    result = next(v for v in values if isinstance(v, torch.Tensor) and v.is_floating_point())
    return result[0].float() if result.dim() > like.dim() else result.float()
