"""Blocks as linear maps of their input, for vectors that add up to it: no block needs a description.

Under the rules of relevance everything in a block that is not linear is a factor, held at its real value:
weights of attention, of kernels and of experts, deviations of norms, activations as f(x) / x, and half of a
product follows each factor. The rules propagate relevance by the transpose of a linear map, which is linear
in the relevance it starts from. Its own gradient by that is the map itself, and takes vectors forward.

The map of a state and the block's biases add up to the output of the block. A path that the rules miss would
count as a bias, so that the block also runs without its biases: the map alone has to return all of it.

Modarressi et al. 2023, DecompX, section 3, hold the same factors; Ali et al. 2022, section 4, for relevance.
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING

import torch
from torch.autograd import forward_ad

from attnwidgets._gradients import enable_grad
from attnwidgets._tensors import widened
from attnwidgets.relevance.affine import split
from attnwidgets.relevance.backward import single_activations
from attnwidgets.relevance.kernels import whole_kernels
from attnwidgets.relevance.rules import Rules as RelevanceRules
from attnwidgets.relevance.two_parts import TwoPartRules, activations_in_two_parts
from attnwidgets.tracing.algebra.block_runs import require_whole
from attnwidgets.tracing.algebra.blocks import tolerance
from attnwidgets.tracing.algebra.decomposed_layer import Chunk
from attnwidgets.tracing.algebra.decomposition import Vectors
from attnwidgets.tracing.algebra.propagation import DescribedLayers
from attnwidgets.tracing.algebra.two_parts import TwoParts
from attnwidgets.tracing.block_replay import captured, require_same
from attnwidgets.tracing.gradients.gradient_hooks import differentiable_model
from attnwidgets.tracing.mixers.runs import is_described
from attnwidgets.tracing.recording.borrow import borrowed
from attnwidgets.tracing.unsupported import UnsupportedModelError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from torch import Tensor, nn

    from attnwidgets.relevance.settings import Bias, Gate
    from attnwidgets.tracing.algebra.decomposed_layer import Sources
    from attnwidgets.tracing.algebra.decomposition import Rules
    from attnwidgets.tracing.block_replay import RecordedBlocks
    from attnwidgets.tracing.trace import Trace

_BYTES = 2**27  # of a block's activations held at once
_MISSED = 1e-4  # of a block's update that its map may miss: as LRP may of a score
_ROUNDING = {torch.float64: 1e-7, torch.float32: 1e-5}  # norms often compute in float32
_ROUNDINGS = 8


@dataclass(frozen=True)
class FrozenBlock:
    """A block of a recorded pass as the linear map of its rules.

    Args:
        blocks: The blocks of its stack.
        number: Its number among them.
        mixers: The modules in it that mix tokens, by their paths in it: their gates are constants.
        gate: How other gated products are treated; see `algebra.decomposition.Rules`.
        method: The method's name, for messages.
    """

    blocks: RecordedBlocks
    number: int
    mixers: tuple[str, ...]
    gate: Gate
    method: str

    @cached_property
    def hidden(self) -> Tensor:
        """The states that it reads [token, dim], in float32 or better."""
        return widened(self.blocks.layers[self.number].hidden)[0]

    @cached_property
    def _run(self) -> tuple[Tensor, Tensor]:
        """Its output, and the part of its biases in it [token, dim], once both are proved."""
        block = self.blocks.layers[self.number]
        output, mapped = self._mapped(self.hidden[None])
        require_same(block, output, self.method)
        alone, mapped_alone = self._mapped(self.hidden[None], bias="drop")
        error = self._error(alone[0], mapped_alone[0])
        if not error <= 1:
            raise UnsupportedModelError(
                f"{self.method} is not available: what {block.name} ({type(block.module).__name__}) returns "
                f"without its biases cannot be divided among what it reads: the parts miss it (error: "
                f"{error:.3g} times the tolerance). It reads other states as well, or does something that no "
                "factor stands for. Methods of single layers and gradients still work."
            )
        return output[0], (output - mapped)[0]

    def _error(self, output: Tensor, mapped: Tensor) -> float:
        """Return the error of a map's output [token, dim], in tolerances."""
        wrong, update, *sizes = (
            states.double().norm(dim=-1)
            for states in (mapped - output, output - self.hidden, output, self.hidden)
        )
        slack = _ROUNDINGS * torch.finfo(torch.float32).eps * sum(sizes)
        return float((wrong / (_MISSED * update + slack).clamp(min=1e-30)).nan_to_num(nan=torch.inf).max())

    def prove(self) -> None:
        """Raise an UnsupportedModelError unless its map and biases are all that it computes."""
        _ = self._run

    @property
    def output(self) -> Tensor:
        """The states that it returns [token, dim]."""
        return self._run[0]

    @property
    def biased(self) -> bool:
        """Whether its biases add more than rounding to its output."""
        output, constant = self._run
        return bool(constant.norm() > _ROUNDING[output.dtype] * output.norm())

    @property
    def bytes_a_pair(self) -> int:
        """Memory per source and row: its vector before and after the block."""
        return 2 * self.hidden.shape[1] * self.hidden.element_size()

    def start(self, sources: Sources) -> list[Chunk]:
        """Return the vectors of its input, where each token belongs to its own source."""
        rows = slice(sources.low, sources.n_tokens)
        base = self.hidden.new_zeros(sources.n_tokens, len(sources), self.hidden.shape[1])
        owners, tokens = (indices.to(base.device) for indices in sources.pairs)
        base[tokens, owners] = self.hidden[tokens]
        return [Chunk(rows, base[rows])]

    def advance(
        self,
        chunks: list[Chunk],
        sources: Sources,
        rules: Rules,
        *,
        first: bool,
        ffn: bool,
        only: Sequence[int] | None = None,
    ) -> list[Chunk]:
        """Return the vectors of its output; see `DecomposedLayer.advance`.

        The biases are distributed together, where the block returns.
        """
        del first, ffn  # a bias has no place of its own, and the feed-forward layer is in the map
        output, constant = self._run
        vectors = self.hidden.new_zeros(len(sources), *self.hidden.shape)
        while chunks:
            chunk = chunks.pop(0)
            vectors[: chunk.base.shape[1], chunk.rows] = chunk.base.transpose(0, 1)
        at_once = self.blocks.copies_within(self.number, _BYTES)
        for start in range(0, len(vectors), at_once):
            part = slice(start, start + at_once)
            vectors[part] = self._mapped(vectors[part])[1]
        rows = list(range(sources.low, sources.n_tokens)) if only is None else list(only)
        passed = Vectors(output[rows], vectors[:, rows].transpose(0, 1).contiguous())
        passed.add(constant[rows] if self.biased else None, rules)
        base = passed.whole()
        if only is None:
            return [Chunk(slice(sources.low, sources.n_tokens), base)]
        return [Chunk(slice(row, row + 1), base[[index]]) for index, row in enumerate(rows)]

    def in_two_parts(self, parts: TwoParts) -> TwoParts:
        """Return both parts of its output [copy, token, dim], given those of its input.

        Raises:
            UnsupportedModelError: If an operation has no rule for parts.
        """
        _ = self._carries_all
        at_once = self.blocks.copies_within(self.number, _BYTES)
        relevant = torch.cat([self._relevant(some) for some in parts.relevant.split(at_once)])
        return TwoParts(relevant, self.output - relevant)

    @cached_property
    def _carries_all(self) -> bool:
        """True, once all that it returns is shown to be relevant if all that it reads is."""
        error = self._error(self.output, self._relevant(self.hidden[None])[0])
        if not error <= 1:
            block = self.blocks.layers[self.number]
            raise UnsupportedModelError(
                f"{self.method} is not available: two parts cannot be carried through {block.name} "
                f"({type(block.module).__name__}): of what it returns, something does not depend on what it "
                f"reads (error: {error:.3g} times the tolerance)"
            )
        return True

    def _relevant(self, relevant: Tensor) -> Tensor:
        """Return the relevant part of its output, given that of its input [copy, token, dim]."""
        block = self.blocks.layers[self.number]
        rules = TwoPartRules(self.gate)
        with (
            borrowed(block.module) as module,
            self.blocks.ready(self.number) as run,
            activations_in_two_parts(module),
            whole_kernels(module, rules.settings),
            _fixed_gates(module, self.mixers, rules),
            enable_grad(),
            forward_ad.dual_level(),
        ):
            hidden = self.hidden.expand(relevant.shape).clone().requires_grad_()
            why = ""
            try:
                with rules:
                    output = run(len(relevant), None, forward_ad.make_dual(hidden, relevant))
                part = split(output)[1]
            except RuntimeError as error:
                part, why = torch.full_like(relevant, torch.nan), str(error)
        if bool(part.isnan().any()):
            why = why or f"no rule covers {', '.join(dict.fromkeys(rules.without_rule))}"
            raise UnsupportedModelError(
                f"{self.method} is not available: two parts cannot be carried through {block.name} "
                f"({type(block.module).__name__}): {why}"
            )
        return part

    def _mapped(self, vectors: Tensor, bias: Bias = "absorb") -> tuple[Tensor, Tensor]:
        """Return its output [1, token, dim], and vectors [source, token, dim] after its map."""
        block = self.blocks.layers[self.number]
        rules = RelevanceRules("frozen", bias, gate=self.gate)
        with (
            borrowed(block.module) as module,
            self.blocks.ready(self.number) as run,
            single_activations(module),
            whole_kernels(module, rules.settings),
            _fixed_gates(module, self.mixers, rules),
            enable_grad(),
        ):
            hidden = self.hidden.expand(vectors.shape).clone().requires_grad_()
            try:
                with rules:
                    output = run(len(vectors), None, hidden)
                start = torch.zeros_like(output).requires_grad_()
                (back,) = torch.autograd.grad(output, hidden, start, create_graph=True)
                (mapped,) = torch.autograd.grad(back, start, vectors.to(back))
            except (UnsupportedModelError, RuntimeError) as error:
                why = str(error).partition("; with force=True")[0]
                raise UnsupportedModelError(
                    f"{self.method} is not available: vectors cannot be followed through {block.name} "
                    f"({type(block.module).__name__}): {why}"
                ) from error
        return output.detach()[:1], mapped.detach()


@contextmanager
def _fixed_gates(module: nn.Module, mixers: Sequence[str], rules: RelevanceRules) -> Iterator[None]:
    """Hold all gates of some parts of a borrowed module, such as those behind a kernel."""
    around = rules.settings

    def enter(*_: object) -> None:
        rules.settings = replace(around, gate="fixed")

    def leave(*_: object) -> None:
        rules.settings = around

    with ExitStack() as exits:
        for path in mixers:
            mixer = module.get_submodule(path)
            exits.callback(mixer.register_forward_pre_hook(enter).remove)
            exits.callback(mixer.register_forward_hook(leave).remove)
        yield


@dataclass(frozen=True)
class FrozenBlocks:
    """All blocks of a stack, each of which reads the output of the block before."""

    blocks: tuple[FrozenBlock, ...]

    @property
    def numbers(self) -> tuple[int, ...]:
        """Their numbers in the model."""
        return tuple(block.number for block in self.blocks)

    @property
    def in_half_precision(self) -> bool:
        """Whether any of them computes in half precision in the model."""
        return any(block.blocks.layers[block.number].in_half_precision for block in self.blocks)

    def __len__(self) -> int:
        return len(self.blocks)

    def __getitem__(self, layer: int) -> FrozenBlock:
        return self.blocks[layer]


def blocks_in_parts(
    trace: Trace, stack: str, method: str, gate: Gate, option: str = ""
) -> DescribedLayers | FrozenBlocks:
    """Return all blocks of a stack: as descriptions say, or else each with its factors held.

    Args:
        trace: Trace returned by `aw.trace`.
        stack: A stack whose blocks only have self-attention.
        method: The method's name, for messages.
        gate: How gated products are treated in blocks without a description.
        option: An option of the method that needs descriptions, for messages; "" for none.

    Raises:
        UnsupportedModelError: If neither reproduces a block, or an option needs a description.
    """
    why = "its blocks mix tokens in ways that no description names"
    if is_described(trace, stack):
        try:
            return DescribedLayers(trace, stack, method).proved()
        except UnsupportedModelError as error:
            why = str(error).removeprefix(f"{method} is not available: ").rstrip(".")
    if option:
        raise UnsupportedModelError(
            f"{method} with {option} needs blocks that a description fits, and here {why}. Leave it out."
        )
    return frozen_blocks(trace, stack, method, gate)


def frozen_blocks(trace: Trace, stack: str, method: str, gate: Gate) -> FrozenBlocks:
    """Return all blocks of a stack, each of which reads the output of the block before.

    Raises:
        UnsupportedModelError: If blocks mix tokens by weights that were not recorded, cannot be called again,
            compute something else than their maps and biases, or something unknown lies between them.
        ValueError: If gradients are unavailable.
    """
    require_whole(trace, stack, method, attention=False)
    differentiable_model(trace, method)
    recorded = captured(trace, stack, method, mixing=True)
    table = trace.stack_table[stack]
    for block in table.blocks:
        if block.number not in recorded.layers:
            raise UnsupportedModelError(
                f"{method} is not available: it follows vectors through every block, and block "
                f"{block.number} ({block.description}) was not recorded. Methods of single layers and "
                "gradients still work."
            )
    for (lower, before), (upper, after) in pairwise(recorded.layers.items()):
        difference = (after.hidden - before.output).norm()
        if not difference <= tolerance(before.output.dtype) * before.output.norm():
            raise UnsupportedModelError(
                f"{method} is not available: layer {upper} does not read the output of layer {lower}; "
                "something unknown lies between them. Methods of single layers and gradients still work."
            )
    mixers: dict[int, set[str]] = {number: set() for number in recorded.layers}
    for block in table.blocks:
        mixers[block.number] |= {mixer.path for mixer in block.mixers}
    for number, run in table.mixing.items():
        mixers[number] |= {mix.path for mix in run.mixes}
    blocks = FrozenBlocks(
        tuple(
            FrozenBlock(recorded, number, _outermost(paths, recorded.layers[number].name), gate, method)
            for number, paths in mixers.items()
        )
    )
    for frozen in blocks.blocks:
        frozen.prove()
    return blocks


def _outermost(paths: Iterable[str], block: str) -> tuple[str, ...]:
    """Return the paths in a block of modules that lie in no other of them."""
    inside = sorted(path.removeprefix(f"{block}.") for path in paths if path.startswith(f"{block}."))
    return tuple(path for path in inside if not any(path.startswith(f"{other}.") for other in inside))
