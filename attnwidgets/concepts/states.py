"""aw.concepts.states: the states of many texts at some layers, and gradients of a target by them.

Batches of texts run on a twin of the model, with hooks on its blocks (`run_blocks`): layer l is the input of
block l, the last layer the output of the last block. With a target, a backward pass through the same graph
gives its gradients by these states. The states of the tokens that `at` names are averaged (their gradients
summed) and written to arrays in memory, or to a temporary file where `memory` is exceeded (`_Collected`).
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from attnwidgets._errors import suggests_keywords
from attnwidgets._former import former_keywords
from attnwidgets._gradients import no_grad
from attnwidgets._selecting import pick
from attnwidgets.concepts.batches import Inputs
from attnwidgets.concepts.states_result import States, TextTargets, rows_of
from attnwidgets.explanations.results.trace_protocol import resolve_stack
from attnwidgets.tracing.anatomy.block_names import block_names, recorded
from attnwidgets.tracing.free_memory import byte_budget, forced, spoken_bytes
from attnwidgets.tracing.gradients.differentiable import Graph, gradients
from attnwidgets.tracing.gradients.gradient_hooks import BlockHooks
from attnwidgets.tracing.recording.recorder import recording
from attnwidgets.tracing.unsupported import UnsupportedModelError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from numpy.typing import NDArray
    from torch import Tensor, nn

    from attnwidgets.concepts.batches import Batch
    from attnwidgets.concepts.states_result import At

PURPOSE = "concepts.states"
BATCH = 32
"""Texts that run together by default."""


@dataclass(frozen=True, kw_only=True)
class Batches:
    """How the texts of `states` run through the model, and where their states are kept.

    Args:
        batch_size: Most texts of a batch; fewer run together where memory is short.
        truncation: Cut texts that are too long instead of raising an error.
        memory: Bytes that states and gradients may take; beyond it they are written to a temporary file.

    Example:
        >>> model, tokenizer = aw.demo_model("classifier")
        >>> one_by_one = aw.concepts.Batches(batch_size=1)
        >>> aw.concepts.states(model, tokenizer, ["A fine film.", "A dull one."], batches=one_by_one).shape
        (2, 7, 384)
    """

    batch_size: int = BATCH
    truncation: bool = False
    memory: str | int = "2GB"


_DEFAULT = Batches()


@former_keywords([option.name for option in fields(Batches)], "batches", "aw.concepts.Batches(...)", Batches)
@suggests_keywords
def states(
    model: Any,
    tokenizer: Any = None,
    texts: Sequence[Any] | None = None,
    *,
    layers: int | Iterable[int] | slice | None = None,
    at: At = "mean",
    target: Any = None,
    foil: Any = None,
    stack: str | None = None,
    batches: Batches = _DEFAULT,
    force: bool = False,
) -> States:
    """Return the states of many texts, a vector for each text and layer.

    With `target`, also its gradient by every state. Where the state is a mean over several tokens, moving it
    moves each of them by the same vector, so that the gradient is the sum over these tokens.

    Args:
        model: As `aw.trace` takes it; or a list of traces of the same model (of pictures, of sound, of
            pairs), which is read instead of texts.
        tokenizer: Its tokenizer.
        texts: Strings, or objects with `.text`.
        layers: Numbers of layers: l is the input of block l, whether or not it attends, and the last, -1, the
            output of the last block. All by default.
        at: Tokens whose state is read: "cls" (its first token), "mean" (over all tokens, special ones
            included), "last" (token), "mask" (the first mask token), the number of a token; "tokens" for a
            row of states for each token that is not special, instead of for each text; or a list with an
            entry for every text: the number of a token, a word, or characters (start, stop), of whose tokens
            the mean is computed.
        target: The differentiated target, as every method takes it: a class by name or index,
            `aw.targets.token(...)`, ... None takes no gradients.
        foil: Contrasting target.
        stack: The stack whose tokens are read, in models with several.
        batches: How many texts run together, whether they are cut, and the memory that their states may take:
            an `aw.concepts.Batches`.
        force: Run even if this needs more memory than is free.

    Returns:
        `States` [text, layer, dim] in float32.

    Raises:
        ValueError: If texts are empty, a text is too long, `at` names a token that a text lacks, or a model
            cannot be differentiated.
        IndexError: If the layer or token is out of range.
        TypeError: If an input is neither a text nor a trace, or `batches` is not a Batches.
        UnsupportedModelError: If the model's blocks cannot be located (a ValueError).

    Example:
        >>> model, tokenizer = aw.demo_model("classifier")
        >>> texts = ["A fine film.", "The soup was cold and dull."]
        >>> states = aw.concepts.states(model, tokenizer, texts, layers=[2, 4], at="cls", target="negative")
        >>> states.shape, states.gradients.shape
        ((2, 2, 384), (2, 2, 384))
    """
    if not isinstance(batches, Batches):
        raise TypeError(f"batches takes an aw.concepts.Batches, not {batches!r:.60}.")
    if texts is None:
        inputs = Inputs(None, None, model, PURPOSE, truncation=batches.truncation)
    else:
        inputs = Inputs(model, tokenizer, texts, PURPOSE, truncation=batches.truncation)
    return states_of(
        inputs,
        layers=layers,
        at=at,
        target=target,
        foil=foil,
        stack=stack,
        batch_size=batches.batch_size,
        memory=batches.memory,
        force=force,
    )


def states_of(
    inputs: Inputs,
    *,
    layers: int | Iterable[int] | slice | None = None,
    at: At = "mean",
    target: Any = None,
    foil: Any = None,
    stack: str | None = None,
    batch_size: int = BATCH,
    memory: str | int = "2GB",
    force: bool = False,
) -> States:
    """Return the states of inputs that are already read; see `states`."""
    name = resolve_stack(inputs.first, stack)
    blocks = block_names(inputs.first, inputs.model).get(name, ())
    if not blocks:
        raise UnsupportedModelError(
            f"{inputs.purpose} reads the states between blocks, and the blocks of "
            f"{type(inputs.model).__name__} are not found."
        )
    chosen = tuple(range(len(blocks) + 1))
    chosen = chosen if layers is None else pick(layers, chosen, "layer")
    back = target is not None or foil is not None
    targets = TextTargets(inputs, target, foil) if back else None
    if targets is not None and not targets.shared:
        inputs.run_alone()
    inputs.read_in(name)
    rows = rows_of(inputs, at)
    first = np.cumsum([0, *map(len, rows)])
    collected = _Collected(int(first[-1]), chosen, byte_budget(memory), back=back)
    with forced(force), inputs.running(back=back, batch_size=batch_size, desc="states") as (twin, batches):
        for batch in batches:
            more = () if targets is None else targets.reads
            graph = run_blocks(inputs, twin, batch, name, blocks, reads=more)
            layer_states = [graph.states[name][layer] for layer in chosen]
            slopes: list[Tensor] | None = None
            if targets is not None:
                score = targets.scores(graph.outputs, batch)
                slopes = gradients(score, layer_states)
                for read, number in zip(batch.reads, score.detach().double().cpu().tolist(), strict=True):
                    collected.scores[first[read.index] : first[read.index + 1]] = number
            for row, read in enumerate(batch.reads):
                for number, tokens in enumerate(rows[read.index], int(first[read.index])):
                    collected.put(number, row, tokens, layer_states, slopes)
    reads = [read for read in inputs.reads for _ in rows[read.index]]
    return States(
        collected.values,
        chosen,
        tuple(inputs.names[read.index] for read in reads),
        _name_of(at),
        np.array([tokens[0] for rows_of_text in rows for tokens in rows_of_text]),
        np.array([read.length for read in reads]),
        collected.slopes,
        collected.scores if back else None,
        targets.label if targets is not None else "",
        inputs.first.model_id,
        name,
        (*collected.notes, *_notes(inputs, at, name)),
        collected.folder,
    )


def run_blocks(
    inputs: Inputs,
    twin: nn.Module,
    batch: Batch,
    stack: str,
    blocks: Sequence[str],
    *,
    reads: Collection[str] = (),
) -> Graph:
    """Run a model on a batch and return its graph with a stack's states: inputs of blocks, last output."""
    graph = Graph()
    graph.states[stack], graph.other_inputs[stack] = [], []
    hooks = BlockHooks(graph, stack, len(blocks), None, ends=True)
    handles = []
    for module in dict.fromkeys(twin.get_submodule(block) for block in blocks):
        handles.append(module.register_forward_pre_hook(hooks.before, with_kwargs=True))
        handles.append(module.register_forward_hook(hooks.after, prepend=True))
    try:
        options = dict.fromkeys(reads, True)
        if recorded(inputs.first) and not inputs.batched:
            with recording(twin):
                graph.outputs = batch.call(**options)
        else:
            graph.outputs = batch.call(**options)
    finally:
        for handle in handles:
            handle.remove()
    return graph


class _Collected:
    """The states and gradients of all inputs, in memory or in a file."""

    def __init__(self, count: int, layers: tuple[int, ...], budget: int, *, back: bool) -> None:
        self._size, self._budget, self._back = (count, len(layers)), budget, back
        self.scores = np.zeros(count)
        self.values: NDArray[np.float32] = np.zeros((0, 0, 0), np.float32)
        self.slopes: NDArray[np.float32] | None = None
        self.folder: TemporaryDirectory[str] | None = None
        self.notes: tuple[str, ...] = ()

    def put(
        self,
        index: int,
        row: int,
        tokens: tuple[int, ...],
        states: Sequence[Tensor],
        slopes: Sequence[Tensor] | None,
    ) -> None:
        """Write a row: the mean of the states of its tokens, and the sum of their gradients."""
        if not self.values.size:
            self._make(states[0].shape[-1])
        at = list(tokens)
        with no_grad():
            self.values[index] = (
                torch.stack([layer[row, at].float().mean(0) for layer in states]).cpu().numpy()
            )
            if slopes is not None and self.slopes is not None:
                self.slopes[index] = (
                    torch.stack([layer[row, at].float().sum(0) for layer in slopes]).cpu().numpy()
                )

    def _make(self, width: int) -> None:
        shape = (*self._size, width)
        need = 4 * int(np.prod(shape)) * (1 + self._back)
        if need <= self._budget:
            self.values = np.zeros(shape, np.float32)
            self.slopes = np.zeros(shape, np.float32) if self._back else None
            return
        self.folder = TemporaryDirectory(prefix="attnwidgets-states-", ignore_cleanup_errors=True)
        self.notes = (
            f"{spoken_bytes(need)} of states are in a temporary file (memory={self._budget:,} bytes)",
        )
        self.values = self._file("states", shape)
        self.slopes = self._file("gradients", shape) if self._back else None

    def _file(self, name: str, shape: tuple[int, ...]) -> Any:
        path = Path(self.folder.name) / f"{name}.npy"  # type: ignore[union-attr]
        return np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=shape)


def _notes(inputs: Inputs, at: At, stack: str) -> tuple[str, ...]:
    notes = {read.sample.warning for read in inputs.reads if read.sample is not None}
    if isinstance(at, str) and at == "cls" and inputs.first.is_causal(stack):
        notes.add("the first token of a causal model sees nothing of the text: at='last' or 'mean' does")
    return tuple(sorted(filter(None, notes)))


def _name_of(at: At) -> str:
    if isinstance(at, str):
        return at
    return f"token {at}" if isinstance(at, (int, np.integer)) else "given places"
