"""Runs of two inputs from a block on, and over the tokens alone that can differ.

In a causal model, the states before the first different token are the same in both runs, and patches of later
tokens do not change them. Their keys and values are computed once, in the model's cache; a run then reads the
later tokens alone, from the first patched block on, in a copy for every patch. Whether this reproduces the
logits of the traces is checked as the two runs are recorded; if not, whole texts run instead.
"""

from __future__ import annotations

from collections import UserDict
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from attnwidgets._gradients import grad_mode, no_grad
from attnwidgets._tensors import is_half, widened
from attnwidgets.explanations.targets.resolve import TOKENS
from attnwidgets.intervene.activation_sites import (
    ActivationIntervention,
    Site,
    points_of,
    reading_activations,
)
from attnwidgets.intervene.preview import copies_of, returning
from attnwidgets.tracing.anatomy.block_names import block_names
from attnwidgets.tracing.anatomy.forward import forward_parameters, only_last_logits
from attnwidgets.tracing.gradients.differentiable import gradients
from attnwidgets.tracing.gradients.gradient_hooks import require_gradients
from attnwidgets.tracing.prediction import Prediction
from attnwidgets.tracing.predictions import label_of, logits_in, predicted_values
from attnwidgets.tracing.recording.borrow import borrowed, unwrap
from attnwidgets.tracing.recording.cache import cache_copies, cache_parameter, prefix_in
from attnwidgets.tracing.recording.recorder import recording
from attnwidgets.tracing.unsupported import UnsupportedModelError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from contextlib import AbstractContextManager

    from numpy.typing import NDArray
    from torch import Tensor, nn
    from typing_extensions import Self

    from attnwidgets.circuits.pair import Pair
    from attnwidgets.explanations.targets.target_set import TargetSet

# Inputs with an axis of tokens whose later part can be selected; any other input rules a cache out.
BY_TOKEN = frozenset({"input_ids", "position_ids", "token_type_ids"})
CUT = BY_TOKEN | {"attention_mask"}
_NAMED = 10  # outputs of a patched run
_ROUNDING = 32  # in units of the last place
_CLOSE, _CLOSE_IN_HALF = 1e-3, 5e-2  # relative difference of logits with and without a cache


class Cell(NamedTuple):
    """Activations that are patched: a site of a layer, at a token or at all, of a head or of all.

    Attributes:
        site: "state", "attention", "mlp" or "head".
        layer: Number of the layer.
        token: Position of the token; None for all.
        head: Number of the head, of site "head".
    """

    site: Site
    layer: int
    token: int | None = None
    head: int | None = None


@dataclass(frozen=True)
class Recorded:
    """An unchanged run, over the tokens from the first different token on.

    Attributes:
        score: The target, less its foil.
        blocks: Outputs of every block, returned again by blocks that need not run.
        activations: By site and layer, [1, token, width], of heads [1, head, token, dim].
    """

    score: float
    blocks: list[Any]
    activations: dict[tuple[Site, int], Tensor]


class SuffixRuns:
    """Context manager: runs of a pair, from a block and from the first different token on.

    The unchanged runs are recorded at the first entry and serve later entries, too.

    Args:
        pair: The pair.
        targets: The target, with its foil.
        sites: Sites whose activations are recorded.
        purpose: Name of the public function, for messages.
        slopes_of: Runs for which `gradients` is requested, 0 for the clean run, 1 for the corrupt run: they
            are differentiated as they are recorded.

    Attributes:
        first: Position of the first token that runs; 0 without a cache.
        recorded: The clean run and the corrupt run.
    """

    def __init__(
        self,
        pair: Pair,
        targets: TargetSet,
        sites: Iterable[Site],
        purpose: str,
        slopes_of: Iterable[int] = (),
    ) -> None:
        self._pair, self._targets, self._purpose = pair, targets, purpose
        self._model = unwrap(pair.clean.model)
        self._twin = self._model
        layers = pair.clean.layers(pair.stack)
        self._sites: list[tuple[Site, int]] = [(site, layer) for site in sites for layer in layers]
        # Gradients end at the first state.
        self._points = points_of(pair.clean, {("state", 0), *self._sites}, pair.stack)
        self._heads = [layer for site, layer in self._sites if site == "head"]
        self._slots = {site: _Slot() for site in self._sites}
        self._slopes: dict[int, dict[tuple[Site, int], Tensor] | None] = dict.fromkeys(slopes_of)
        if self._slopes:
            require_gradients(self._model, purpose)
        names = block_names(pair.clean, self._model).get(pair.stack, ())
        # A block shared by several layers counts its calls, and another stack runs in between.
        alone = len(pair.clean.stacks) == 1 and len(set(names)) == len(names)
        self._blocks = names if alone else ()
        self._stack = ExitStack()
        self._wide: dict[str, Tensor] = {}
        self._cache: Any = None
        self._must_run = False
        self._before: Tensor | None = None
        self.first = 0
        self.recorded: tuple[Recorded, ...] = ()  # until it is entered

    def __enter__(self) -> Self:
        with ExitStack() as exits:
            self._twin = exits.enter_context(borrowed(self._model))
            exits.enter_context(torch.inference_mode(mode=False))
            exits.enter_context(no_grad())
            self._widen(self._twin)
            if not self.recorded:
                self.recorded = self._record_both()
            exits.enter_context(self._slotted())
            self._stack = exits.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def scores(self, base: int, patches: Sequence[Sequence[Cell]], batch_size: int) -> NDArray[np.float64]:
        """Return the target of a run with cells of the other patched into it.

        Args:
            base: The run that is changed: 0 for the clean, 1 for the corrupt run.
            patches: Cells that are patched together, for every patch.
            batch_size: Number of patches in a call of the model.

        Returns:
            [patch].
        """
        scores = [
            self._score(self._patched(base, patches[start : start + batch_size])).double().cpu().numpy()
            for start in range(0, len(patches), batch_size)
        ]
        return np.concatenate(scores) if scores else np.zeros(0)

    def outcome(self, base: int, cells: Sequence[Cell]) -> tuple[float, tuple[Prediction, ...]]:
        """Return the target and the predictions of a run with cells of the other patched into it.

        Args:
            base: The run that is changed: 0 for the clean, 1 for the corrupt run.
            cells: Cells that are patched together.
        """
        outputs = self._patched(base, [cells])
        score = float(self._score(outputs).double()[0])
        logits = logits_in(outputs)
        trace = self._pair.sides[base]
        if logits is None or not trace.answer.is_distribution:
            return score, ()
        shares = predicted_values(trace, logits[0])
        best = shares.topk(min(_NAMED, len(shares)))
        items = zip(best.values.tolist(), best.indices.tolist(), strict=True)
        return score, tuple(Prediction(label_of(trace, index), share, index) for share, index in items)

    def gradients(self, base: int) -> dict[tuple[Site, int], Tensor]:
        """Return the target's gradient at the activations of a run, shaped as `Recorded.activations`.

        Args:
            base: A run of `slopes_of`.
        """
        result = self._slopes[base]
        if result is None:  # never: runs are recorded on entering
            raise AssertionError
        return result

    def equal(self, cell: Cell) -> bool:
        """Return whether a cell is equal in both runs, up to rounding if these read other lengths."""
        first, second = (self._at(run.activations[cell.site, cell.layer], cell) for run in self.recorded)
        allowed = _ROUNDING * torch.finfo(first.dtype).eps if len(self._slopes) == 1 else 0.0
        return bool((first - second).abs().max() <= allowed * first.abs().max())

    def _at(self, activations: Tensor, cell: Cell) -> Tensor:
        if cell.head is not None:
            activations = activations[:, cell.head]
        return activations if cell.token is None else activations[:, [cell.token - self.first]]

    def _reading(self, record: Any) -> AbstractContextManager[None]:
        pair = self._pair
        return reading_activations(self._twin, pair.clean, pair.stack, self._points, self._heads, record)

    def _slotted(self) -> ActivationIntervention:
        """Return an intervention that applies to every site the change in its slot, if it has any."""
        pair = self._pair
        return ActivationIntervention(
            pair.clean, self._purpose, "activations patched", pair.stack, self._slots, self._points
        )

    def _widen(self, model: nn.Module) -> None:
        """Let a model in half precision compute in float32: differences of runs are below its resolution."""
        tensors = [*model.named_parameters(), *model.named_buffers()]
        self._wide = {name: tensor.detach().float() for name, tensor in tensors if is_half(tensor)}

    def _can_cache(self) -> bool:
        takes = forward_parameters(self._model)
        inputs = self._pair.clean.inputs
        return (
            self._pair.first > 0
            and cache_parameter(takes) is not None
            and "use_cache" in takes
            and "input_ids" in inputs
            and set(inputs) <= CUT
            and not self._targets.reads
            and torch.equal(*(side.inputs.get("attention_mask", torch.ones(0)) for side in self._pair.sides))
        )

    def _read_prefix(self) -> None:
        """Compute keys and values of the tokens before the first different token, in the model's cache."""
        first = self._pair.first
        inputs = {name: value[:, :first] for name, value in self._pair.clean.inputs.items()}
        with recording(self._twin):
            outputs = self._pair.clean.call(
                self._twin, inputs, {"return_dict": True, "use_cache": True}, self._wide
            )
        self._store_prefix(outputs)

    def _record_both(self) -> tuple[Recorded, Recorded]:
        reuses = self._can_cache()
        runs = self._both(reuses=reuses)
        if runs is None and reuses:
            self.first, self._cache, self._before = 0, None, None
            runs = self._both(reuses=False)
        if runs is None:
            raise UnsupportedModelError(
                f"{self._purpose}: {type(self._model).__name__} run again returns other logits than it "
                "did when it was traced; trace the texts again."
            )
        return runs

    def _store_prefix(self, outputs: Any, behind: int = 0) -> None:
        """Let runs go on from the cache of a run, less the tokens that it read behind the prefix."""
        cache = prefix_in(outputs, self._pair.first, behind)
        if cache is not None:
            self.first, self._cache = self._pair.first, cache
            logits = getattr(outputs, "logits", None)
            self._before = None if logits is None or self._only_last else logits[:, : self.first]

    def _both(self, *, reuses: bool) -> tuple[Recorded, Recorded] | None:
        """Return both runs unchanged; None if their logits are not those of the traces.

        For an estimate, the run without gradients reads its whole text first and leaves its prefix to the
        other: two calls. Otherwise three, so that activations in both runs come from the same operations, and
        equal cells are equal to the bit.
        """
        if len(self._slopes) != 1:
            if reuses:
                self._read_prefix()
            runs = self._record(0), self._record(1)
        else:
            (base,) = self._slopes
            source = self._record(1 - base, leaves_prefix=reuses)
            ours = self._record(base)
            runs = (ours, source) if base == 0 else (source, ours)
        clean, corrupt = runs
        return None if clean is None or corrupt is None else (clean, corrupt)

    def _record(self, side: int, *, leaves_prefix: bool = False) -> Recorded | None:
        """Return a run unchanged; None if its logits are not those of its trace."""
        recorded: dict[tuple[Site, int], Tensor] = {}
        blocks: list[Any] = []
        is_differentiated = side in self._slopes

        def record(site: Site, layer: int, activations: Tensor) -> Tensor | None:
            if not is_differentiated:
                recorded[site, layer] = activations.detach().clone()
                return None
            if not activations.requires_grad:
                # Here gradients end.
                activations = activations.detach().clone().requires_grad_()
            recorded[site, layer] = activations
            # The model may write into its arguments.
            return activations.clone()

        def store(_: Any, args: Any, kwargs: Any, output: Any) -> None:
            blocks.append(copies_of(_detached(output), 1))
            # Gemma's later blocks read keys and values that earlier blocks write there.
            self._must_run |= any(
                isinstance(argument, (dict, UserDict)) for argument in (*args, *kwargs.values())
            )

        with ExitStack() as exits:
            for name in self._blocks:
                block = self._twin.get_submodule(name)
                exits.callback(block.register_forward_hook(store, with_kwargs=True).remove)
            exits.enter_context(self._reading(record))
            exits.enter_context(grad_mode(enabled=is_differentiated))
            outputs = self._call(side, 1, keeps_cache=leaves_prefix)
            if not self._as_traced(side, outputs):
                return None
            score = self._score(outputs)
            if is_differentiated:
                result = gradients(score, [recorded[point] for point in self._sites])
                self._slopes[side] = dict(zip(self._sites, result, strict=True))
        activations = {point: tensor.detach() for point, tensor in recorded.items()}
        if leaves_prefix:
            self._store_prefix(outputs, self._pair.n_tokens - self._pair.first)
            if not self.first:
                self._read_prefix()
            activations = {point: tensor[..., self.first :, :] for point, tensor in activations.items()}
            blocks = [_later(block, self.first, self._pair.n_tokens) for block in blocks]
        return Recorded(float(score.detach().double()[0]), blocks, activations)

    def _as_traced(self, side: int, outputs: Any) -> bool:
        """Return whether a run's logits are those of its trace."""
        trace = self._pair.sides[side]
        logits = getattr(outputs, "logits", None)
        if trace.logits is None or logits is None:
            return True
        result = widened(logits[0]).cpu()
        expected = widened(trace.logits)
        expected = expected[-len(result) :] if result.dim() > 1 else expected
        close = _CLOSE_IN_HALF if is_half(trace.logits) else _CLOSE
        return result.shape == expected.shape and bool(
            (result - expected).norm() <= close * expected.norm().clamp_min(1e-6)
        )

    def _patched(self, base: int, patches: Sequence[Sequence[Cell]]) -> Any:
        """Return the outputs of copies of a run with cells of the other patched into them."""
        source = self.recorded[1 - base].activations
        changes: dict[tuple[Site, int], _FromOther] = {}
        for copied, cells in enumerate(patches):
            for cell in cells:
                position = (cell.site, cell.layer)
                if position not in changes:
                    changes[position] = _FromOther(source[position], len(patches))
                changes[position].add(copied, cell, self.first)
        start = 0 if self._must_run else min((layer for _, layer in changes), default=0)
        names, outputs = self._blocks[:start], self.recorded[base].blocks
        try:
            for position, change in changes.items():
                self._slots[position].change = change
            with recording(self._twin), returning(self._twin, names, outputs, len(patches)):
                return self._call(base, len(patches))
        finally:
            for position in changes:
                self._slots[position].change = None

    def _call(self, side: int, copies: int, *, keeps_cache: bool = False) -> Any:
        """Return the outputs of a run over the tokens from the first different token on."""
        trace, takes = self._pair.sides[side], forward_parameters(self._model)
        inputs = {name: copies_of(self._cut(name, value), copies) for name, value in trace.inputs.items()}
        options: dict[str, Any] = {"return_dict": True}
        if "use_cache" in takes:
            options["use_cache"] = keeps_cache or self._cache is not None
        name = cache_parameter(takes)
        if self._cache is not None and name is not None:
            options[name] = cache_copies(self._cache, copies)
        options |= dict.fromkeys(self._targets.reads, True)
        if self._only_last:
            options |= only_last_logits(self._model)
        return trace.call(self._twin, inputs, options, self._wide)

    def _cut(self, name: str, value: Any) -> Any:
        if self._wide and isinstance(value, torch.Tensor):
            value = widened(value)
        return value[:, self.first :] if self.first and name in BY_TOKEN else value

    @property
    def _only_last(self) -> bool:
        """Whether the target is read from the last row of the logits alone."""
        members = (*self._targets.targets, *(self._targets.foils or ()))
        last = self._pair.n_tokens - 1
        return all(member.index is not None and member.position == last for member in members)

    def _score(self, outputs: Any) -> Tensor:
        """Return the target, less its foil [copy]."""
        logits = getattr(outputs, "logits", None)
        if isinstance(logits, torch.Tensor) and logits.dim() > TOKENS:
            missing = self._pair.n_tokens - logits.shape[1]
            if missing > 0 and self._only_last:
                return self._targets.scores(_LastRow(_Rows(logits, missing)))[0]
            if missing > 0 and self._before is not None:
                before = self._before.expand(len(logits), -1, -1)
                outputs["logits"] = torch.cat([before, logits], dim=1)
        return self._targets.scores(outputs)[0]


def _later(output: Any, first: int, count: int) -> Any:
    """Return a block's output for the tokens from `first` on; `count` is the length of its axis of tokens."""
    if isinstance(output, torch.Tensor):
        has_tokens = output.dim() > TOKENS and output.shape[1] == count
        return output[:, first:] if has_tokens else output
    if type(output) in (tuple, list):
        return type(output)(_later(item, first, count) for item in output)
    return output


def _detached(outputs: Any) -> Any:
    """Return a block's output without its graph."""
    if isinstance(outputs, torch.Tensor):
        return outputs.detach()
    return type(outputs)(map(_detached, outputs)) if type(outputs) in (tuple, list) else outputs


class _Slot:
    """The present change of a site of a layer; None changes nothing."""

    change: _FromOther | None = None

    def __call__(self, activations: Tensor, positions: Tensor) -> Tensor:
        return activations if self.change is None else self.change(activations, positions)


class _FromOther:
    """Replaces cells of copies of a run by those of the other run.

    Args:
        source: Activations of the other run, [1, token, width] or [1, head, token, dim].
        copies: Number of copies.
    """

    def __init__(self, source: Tensor, copies: int) -> None:
        self._source = source
        # [copy, token], of heads [copy, head, token].
        self._mask = torch.zeros((copies, *source.shape[1:-1]), dtype=torch.bool, device=source.device)

    def add(self, copied: int, cell: Cell, first: int) -> None:
        """Replace a cell of a copy."""
        mask = self._mask[copied]
        mask = mask if cell.head is None else mask[cell.head]
        if cell.token is None:
            mask[...] = True
        elif cell.token >= first:  # before that, both runs are the same
            mask[..., cell.token - first] = True

    def __call__(self, activations: Tensor, _: Tensor) -> Tensor:
        return torch.where(self._mask[..., None], self._source, activations)


@dataclass(frozen=True)
class _LastRow:
    """Outputs of which a target reads the last row of logits."""

    logits: _Rows


@dataclass(frozen=True)
class _Rows:
    """The last rows of logits, indexed as if those before them were there.

    Attributes:
        rows: [batch, token, vocabulary].
        missing: Number of rows before them.
    """

    rows: Tensor
    missing: int

    def __getitem__(self, key: tuple[Any, int, Any]) -> Tensor:
        batch, row, column = key
        return self.rows[batch, row - self.missing, column]
