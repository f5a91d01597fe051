"""Test-time registers: tokens without a patch, to which the activations of register neurons are moved.

Jiang et al. 2025, Vision Transformers Don't Need Trained Registers, section 4. Hooks widen the input of the
first block and the masks of all blocks (`_widened`), move activations in the MLPs (`_moved`), and remove the
new tokens before the first module after the last block (`_narrowed`).
"""

from __future__ import annotations

import threading
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from attnwidgets._selecting import position
from attnwidgets.explanations.attribution.grad_cam import picture_stack
from attnwidgets.explanations.results.trace_protocol import require_trace
from attnwidgets.tracing.interventions import Intervention
from attnwidgets.tracing.model_state import named_modules
from attnwidgets.tracing.unsupported import UnsupportedModelError
from attnwidgets.vision.token_norms import hidden_units

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from torch import Tensor, nn

    from attnwidgets.tracing.hooks.hook_point import HookPoint
    from attnwidgets.tracing.trace import Trace

# Families that add positions before their blocks, so that another token changes nothing else.
_ABSOLUTE = (
    "vit vit_msn deit dinov2 dinov2_with_registers ijepa clip_vision_model siglip_vision_model "
    "mlcd_vision_model chinese_clip_vision_model altclip_vision_model"
)
_MAPS, _STATES = 4, 3  # dimensions of a mask [batch, head, query, key], and of states [batch, token, width]


def test_time_registers(
    trace: Trace,
    neurons: Iterable[Any],
    *,
    count: int = 1,  # noqa: PT028
    scale: float = 1.0,  # noqa: PT028
) -> Intervention:
    """Move register neurons from the patches to additional tokens, while a `with` block runs.

        neurons = aw.vision.find_register_neurons(traces)
        with aw.vision.test_time_registers(trace, neurons):
            clean = trace.rerun()

    A token of zeros is appended before the first block and removed after the last. In the hidden units of
    the MLPs, each of `neurons` gets at the new tokens its strongest activation over all tokens (with its
    sign) times `scale`, and 0 at every patch. No weight changes, nor do activations at class and trained
    register tokens.

    Args:
        trace: A trace of a picture by the model.
        neurons: Units as `aw.vision.find_register_neurons` returns them, or pairs (layer, unit).
        count: Number of tokens to append.
        scale: Factor of the activations at the new tokens.

    Returns:
        A context manager. Traces that are made inside it have the new tokens, named "[REG0]", ..., at their
        end.

    Raises:
        ValueError: If neurons are empty, or count is below 1.
        IndexError: If a layer or unit does not exist.
        UnsupportedModelError: If the family adds positions inside its blocks (rotary or relative), which
            another token would lack.
        TypeError: If `trace` is not a trace.

    Source: Jiang et al. 2025, section 4 (the maximum there is that of the absolute value, in the authors'
    code).

    Example:
        >>> import torch, transformers
        >>> config = transformers.ViTConfig(num_hidden_layers=2, hidden_size=32, num_attention_heads=2,
        ...     intermediate_size=32, image_size=32, patch_size=8)
        >>> trace = aw.trace(transformers.ViTModel(config).eval(), None, image=torch.rand(3, 32, 32))
        >>> with aw.vision.test_time_registers(trace, [(0, 5)]):
        ...     print(trace.rerun().tokens[-2:])
        ('3,3', '[REG0]')
    """
    require_trace(trace, "vision.test_time_registers")
    by_layer: dict[int, list[int]] = {}
    for neuron in neurons:
        by_layer.setdefault(int(neuron[0]), []).append(int(neuron[1]))
    if not by_layer:
        raise ValueError("neurons is empty: name at least one, as (layer, unit).")
    if count < 1:
        raise ValueError(f"count must be at least 1, not {count}.")
    return _TestTimeRegisters(trace, by_layer, count, float(scale))


vars(test_time_registers)["__test__"] = False  # its name is the paper's, not a test's


class _TestTimeRegisters(Intervention):
    """See `test_time_registers`."""

    def __init__(self, trace: Trace, units: Mapping[int, list[int]], count: int, scale: float) -> None:
        stack = picture_stack(trace)
        if stack is None:
            raise ValueError(
                "test-time registers need a picture that is read by patches; this trace has none."
            )
        layers = trace.n_layers(stack)
        total = sum(map(len, units.values()))
        description = (
            f"{count} test-time register{'s' * (count > 1)} for {total} neuron{'s' * (total > 1)}"
            f"{'' if scale == 1 else f', scale {scale:g}'}"
        )
        super().__init__(
            trace,
            "vision.test_time_registers",
            description,
            frozenset((stack, layer) for layer in range(layers)),
        )
        _require_absolute(self._model, trace, stack)
        self.adds = count
        self._pass = threading.local()
        self._units: dict[int, list[int]] = {}
        self._scale = scale
        unit = trace.axes(stack)[0].units["patch"]
        self._patches = tuple(index for index, cell in enumerate(unit.cells or ()) if cell is not None)
        self._points = hidden_units(trace, self._model)
        for layer, numbers in units.items():
            number = position(layer, range(len(self._points)), "layer")
            hidden: Any = self._model.get_submodule(self._points[number].module)
            every = range(hidden.weight.shape[1])
            self._units.setdefault(number, []).extend(position(unit, every, "unit") for unit in numbers)
        self._blocks = _ends(trace, self._model, stack)

    @contextmanager
    def attach(self, model: nn.Module, own: Callable[[], bool]) -> Iterator[None]:
        """Hook a model, or a twin of it, for as long as the block runs."""
        from attnwidgets.tracing.hooks.hook import Hook

        with ExitStack() as undo:
            first, last, all_blocks = self._blocks
            for name in all_blocks:
                begin = partial(self._widened, own, name == first)
                handle = model.get_submodule(name).register_forward_pre_hook(begin, with_kwargs=True)
                undo.callback(handle.remove)
            undo.callback(model.get_submodule(last).register_forward_hook(partial(self._ended, own)).remove)
            for name, module in named_modules(model).items():
                if not any(f"{name}.".startswith(f"{block}.") for block in all_blocks):
                    after = partial(self._narrowed, own)
                    undo.callback(module.register_forward_pre_hook(after, with_kwargs=True).remove)
            for layer, numbers in self._units.items():
                point: HookPoint = self._points[layer]
                undo.callback(Hook(model, point, partial(self._moved, numbers), is_own=own).remove)
            yield

    def _widened(
        self, is_own: Callable[[], bool], first: bool, _: Any, args: Any, kwargs: dict[str, Any]
    ) -> Any:
        """Append tokens of zeros to the input of the first block, and room for them to masks: a pre-hook."""
        from torch import nn

        if not is_own():
            return None
        pad = (0, self.adds)
        states = args[0] if args else kwargs["hidden_states"]
        length = states.shape[1] + self.adds * first

        def room(value: Any) -> Any:
            if getattr(value, "dim", int)() != _MAPS or value.shape[-1] != length - self.adds:
                return value
            # A mask that is added to scores is 0 for the new tokens, a mask of readable tokens True.
            return nn.functional.pad(value, (*pad, *pad), value=float(not value.is_floating_point()))

        args = tuple(map(room, args))
        kwargs = {name: room(value) for name, value in kwargs.items()}
        if first:
            self._pass.length = None
            longer = nn.functional.pad(states, (0, 0, *pad))
            if args:
                args = (longer, *args[1:])
            else:
                kwargs["hidden_states"] = longer
        return args, kwargs

    def _ended(self, is_own: Callable[[], bool], _: Any, __: Any, output: Any) -> None:
        """Record the number of tokens that leave the last block: a forward hook."""
        if is_own():
            states = output[0] if isinstance(output, tuple) else output
            self._pass.length = states.shape[1]

    def _narrowed(self, is_own: Callable[[], bool], _: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """Remove the new tokens before the first module after the last block that reads all: a pre-hook."""
        length = getattr(self._pass, "length", None)
        if length is None or not is_own():
            return None
        for number, value in enumerate(args):
            if getattr(value, "dim", int)() == _STATES and value.shape[1] == length:
                self._pass.length = None
                return (*args[:number], value[:, : -self.adds], *args[number + 1 :]), kwargs
        return None

    def _moved(self, numbers: list[int], states: Tensor) -> Tensor:
        """Return activations [batch, token, unit] with those of register neurons moved to the new tokens."""
        import torch

        moved = states.clone()
        chosen = states[:, : -self.adds][..., numbers]
        at = chosen.abs().argmax(dim=1, keepdim=True)
        strongest = self._scale * chosen.gather(1, at)
        rows = torch.tensor(self._patches, device=states.device)
        columns = torch.tensor(numbers, device=states.device)
        moved[:, rows[:, None], columns] = 0
        new = torch.arange(states.shape[1] - self.adds, states.shape[1], device=states.device)
        moved[:, new[:, None], columns] = strongest.expand(-1, self.adds, -1)
        return moved


def _require_absolute(model: Any, trace: Trace, stack: str) -> None:
    from attnwidgets.tracing.anatomy.stack_axes import config_of_stack

    family = str(getattr(config_of_stack(trace, stack), "model_type", ""))
    if family not in _ABSOLUTE.split():
        name = f"{type(model).__name__} ({family or 'no family'})"
        raise UnsupportedModelError(
            f"test-time registers are not known to work in {name}: where positions are added inside the "
            "blocks, a new token has none."
        )


def _ends(trace: Trace, model: nn.Module, stack: str) -> tuple[str, str, tuple[str, ...]]:
    """Return the paths of the first block, of the last, and of all blocks."""
    from attnwidgets.tracing.anatomy.block_names import block_names

    names = block_names(trace, model)[stack]
    return names[0], names[-1], names
