"""Blocks, numbered as in the model, and the mixers of each.

An `Anatomy` has the blocks of every stack. `left_out` and `caveats` put into words which mixers the maps of a
trace do not show.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from attnwidgets._selecting import spoken_range

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

ATTENTION = "attention"
DIFFERENTIAL = "differential attention"
"""The kind of a block that subtracts the maps of half its heads from those of the others."""

SUBTRACTED = (
    "every head is a softmax of its own, and the model subtracts those of one half of the heads from those "
    "of the other (differential attention, whose differences aw.mixing shows)"
)
"""A warning to readers of attention; maps of all mixers are of the differences."""

UNKNOWN = "unknown"
_PLURALS = {
    "token": "tokens",
    "special": "special tokens",
    "soft prompt": "soft prompt",
    "patch": "patches",
    "frame": "frames",
    "padding": "padding",
    "query": "learned queries",
}
NO_MIXING = "no mixing"
"""The kind of a block that works on every token alone: a feed-forward network, experts."""


@dataclass(frozen=True)
class Mixer:
    """An operation by which a block mixes tokens.

    Attributes:
        kind: "attention", "differential attention", "state space", "gated delta rule", "linear attention",
            "recurrence", "convolution", "pooling", "Fourier transform", "token shift" or "unknown".
        path: Its module in the model; "" if unknown.
        stack: The stack whose maps it makes; "" if it was not recorded.
        heads: Number of query heads; 0 if it was not recorded.
        key_heads: Number of key-value heads, which groups of query heads share.
        is_measured: Whether the vectors that it adds from token to token were recorded, without attention
            (`aw.attention_norm`).
        reach: How many tokens back it reads at most, if it is a convolution only; 0 for any.
    """

    kind: str
    path: str = ""
    stack: str = ""
    heads: int = 0
    key_heads: int = 0
    is_measured: bool = False
    reach: int = 0

    @property
    def mixing_heads(self) -> int:
        """Number of heads of its maps by `aw.mixing`: of differential attention, pairs of query heads."""
        return self.heads // 2 if self.kind == DIFFERENTIAL else self.heads

    @property
    def description(self) -> str:
        """The kind and the number of heads or the reach, in words."""
        if self.reach:
            return f"{self.kind} ({reach_words(self.reach)})"
        if not self.heads:
            return self.kind
        heads = f"{self.heads} head{'s' if self.heads > 1 else ''}"
        shared = f" on {self.key_heads} of keys" if self.key_heads not in (0, self.heads) else ""
        where = "cross-attention" if self.stack == "cross" else self.kind
        return f"{where} ({heads}{shared})"


@dataclass(frozen=True)
class Block:
    """A block of a stack.

    Attributes:
        number: Its number in the model. A list of blocks that runs several times counts on.
        path: Its module in the model; "" if unknown.
        mixers: Its operations that mix tokens, in the order of its modules.
        is_recorded: Whether the stack has a layer of attention of this block.
    """

    number: int
    path: str
    mixers: tuple[Mixer, ...]
    is_recorded: bool = True

    @property
    def unrecorded(self) -> tuple[Mixer, ...]:
        """Its mixers without a recorded map."""
        return tuple(mixer for mixer in self.without_attention if not mixer.is_measured)

    @property
    def without_attention(self) -> tuple[Mixer, ...]:
        """Its mixers whose attention, if they attend, was not recorded."""
        return tuple(mixer for mixer in self.mixers if not mixer.stack)

    @property
    def mapped(self) -> tuple[Mixer, ...]:
        """Its mixers with recorded maps, or all of them if there are none; attention first.

        So a head of attention has the same number in maps of attention and in maps of all mixers.
        """
        with_maps = (mixer for mixer in self.mixers if mixer.stack or mixer.is_measured)
        return tuple(sorted(with_maps, key=lambda mixer: not mixer.stack)) or self.mixers

    @property
    def kinds(self) -> str:
        """The kinds of its mixers, in words."""
        return " and ".join(dict.fromkeys(mixer.kind for mixer in self.mixers)) or NO_MIXING

    @property
    def description(self) -> str:
        """Its mixers, in words, with their numbers of heads."""
        return " and ".join(dict.fromkeys(mixer.description for mixer in self.mixers)) or NO_MIXING


def attention_blocks(heads: Sequence[int], stack: str) -> tuple[Block, ...]:
    """Return a block of attention for every layer, by its number of heads."""
    return tuple(
        Block(number, "", (Mixer(ATTENTION, "", stack, count, count),)) for number, count in enumerate(heads)
    )


@dataclass(frozen=True)
class Anatomy:
    """The blocks and positions of every stack of a traced model, as `trace.anatomy` prints them.

    Attributes:
        stacks: By name, the blocks in the order in which they ran.
        positions: By name of a recorded stack, the kind of every position [key]: "token", "special",
            "soft prompt", "patch", "frame", "padding" of a sound or "query" (it reads a picture).
    """

    stacks: Mapping[str, tuple[Block, ...]]
    positions: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def unrecorded(self) -> dict[str, tuple[Block, ...]]:
        """By stack, the blocks with a mixer that no map shows; stacks without such blocks are left out."""
        lacking = {
            name: tuple(block for block in blocks if block.unrecorded) for name, blocks in self.stacks.items()
        }
        return {name: blocks for name, blocks in lacking.items() if blocks}

    def __repr__(self) -> str:
        return "\n".join(self._lines()) or "without attention"

    def _lines(self) -> Iterable[str]:
        for name, blocks in self.stacks.items():
            count = f"{len(blocks)} block{'' if len(blocks) == 1 else 's'}"
            mixing = _by_kind((block.number, block.description) for block in blocks)
            parts = (f"{spoken_range(numbers)} {description}" for description, numbers in mixing.items())
            yield f"{name}: {count}: {'; '.join(parts)}"
            if self.positions.get(name):
                kinds = _by_kind(enumerate(self.positions[name]))
                parts = (f"{_PLURALS[kind]} {spoken_range(indices)}" for kind, indices in kinds.items())
                yield f"  positions: {'; '.join(parts)}"


def _by_kind(kinds: Iterable[tuple[int, str]]) -> dict[str, list[int]]:
    """Return the numbers of each kind."""
    numbers: dict[str, list[int]] = {}
    for number, kind in kinds:
        numbers.setdefault(kind, []).append(number)
    return numbers


def left_out(blocks: Sequence[Block], stack: str, *, attention: bool = True) -> str:
    """Return a clause on the blocks with mixers that maps of a stack leave out; "" if there are none.

    Args:
        blocks: The blocks of the stack.
        stack: Its name.
        attention: Whether the maps are those of attention; otherwise they show all measured mixers.
    """
    unknown = _named(blocks, stack, lambda block: block.unrecorded)
    measured = _named(
        blocks, stack, lambda block: [m for m in block.without_attention if attention and m.is_measured]
    )
    clauses = [
        f"how {unknown} tokens is not recorded" if unknown else "",
        f"{measured} tokens without attention (aw.attention_norm measures it)" if measured else "",
    ]
    return ", and ".join(filter(None, clauses))


def _named(blocks: Sequence[Block], stack: str, chosen: Callable[[Block], Sequence[Mixer]]) -> str:
    """Return the blocks with chosen mixers, and their kinds, with a verb; "" if there are none."""
    kinds: dict[str, list[int]] = {}
    for block in blocks:
        for kind in dict.fromkeys(mixer.kind for mixer in chosen(block)):
            suffix = " next to attention" if block.is_recorded else ""
            kinds.setdefault(f"{kind}{suffix}", []).append(block.number)
    if not kinds:
        return ""
    where = "" if stack == "self" else f" of {stack!r}"
    parts = [
        f"block{'s' * (len(numbers) > 1)} {spoken_range(numbers)} ({kind})" for kind, numbers in kinds.items()
    ]
    verb = "mixes" if sum(map(len, kinds.values())) == 1 else "mix"
    return f"{', '.join(parts)}{where} {verb}"


def reach_words(reach: int) -> str:
    """Return how far back a convolution reads, in words."""
    return f"reaches back {reach} token{'s' * (reach > 1)}"


def overlap(path: str, other: str) -> bool:
    """Return whether two modules are the same, or either is inside the other."""
    return f"{path}.".startswith(f"{other}.") or other.startswith(f"{path}.")


def with_measured(blocks: Sequence[Block], measured: Mapping[str, tuple[int, int]]) -> tuple[Block, ...]:
    """Return blocks whose mixers are marked as measured, with their numbers of heads.

    Mixers that were measured together, such as a convolution in front of a recurrence, are joined.

    Args:
        blocks: The blocks.
        measured: By path of the measured modules, their number of heads, or 1, and their reach, or 0.
    """

    def marked(block: Block) -> Block:
        mixers: dict[str, Mixer] = {}
        for mixer in block.mixers:
            path = "" if mixer.stack else next((name for name in measured if overlap(mixer.path, name)), "")
            if not path:
                mixers[mixer.path] = mixer
                continue
            heads, reach = measured[path]
            kind = f"{mixers[path].kind} and {mixer.kind}" if path in mixers else mixer.kind
            mixers[path] = replace(
                mixer, kind=kind, is_measured=True, heads=heads if heads > 1 else 0, reach=reach
            )
        return replace(block, mixers=tuple(mixers.values()))

    return tuple(map(marked, blocks))


def caveats(stacks: Mapping[str, Sequence[Block]]) -> list[str]:
    """Return warnings for readers of maps about the blocks that made them."""
    clauses = [left_out(blocks, name) for name, blocks in stacks.items()]
    kinds = {mixer.kind for blocks in stacks.values() for block in blocks for mixer in block.mixers}
    if DIFFERENTIAL in kinds:
        clauses.append(SUBTRACTED)
    return [clause for clause in clauses if clause]
