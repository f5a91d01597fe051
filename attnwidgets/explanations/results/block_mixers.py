"""The token mixers behind a map's layers and heads, in models whose blocks do not all use attention."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from attnwidgets.tracing.anatomy.blocks import ATTENTION, DIFFERENTIAL, reach_words

if TYPE_CHECKING:
    from collections.abc import Mapping

    from attnwidgets.explanations.results.trace_protocol import TraceLike
    from attnwidgets.tracing.anatomy.blocks import Block, Mixer

    Group = tuple[str, int, int, str]

ALL_CHANNELS = "all channels"
"""Label of a mixer without heads, which has a single matrix in a map."""

_FORGETTING = "forgetting by tokens in between is part of each value"
_VALUES = {
    "share": "share of the length of what each token adds to the output of this block",
    "norm": "length of what each token adds to the output of this block",
    "signed": "signed share of what each token adds to the output of this block",
    "kernel": "kernel of this block, by position after its convolution",
}
_DIFFERENCE = "weight of one softmax less a multiple of that of another; a row does not sum to one"


@dataclass(frozen=True)
class HeadGroup:
    """Heads of a block that mix tokens alike, or a mixer without heads.

    Attributes:
        kind: How they mix tokens: "attention", "gated delta rule", ...
        heads: Number of heads; 0 for a mixer without heads, which has a single matrix.
        reach: How many tokens back a convolution reads; 0 for any other mixer.
        fixed: Why single heads cannot be ablated by their numbers in the map, or "".
    """

    kind: str
    heads: int
    reach: int
    fixed: str = ""

    @property
    def name(self) -> str:
        """The kind, and the reach of a convolution, in words."""
        return f"{self.kind}, {reach_words(self.reach)}" if self.reach else self.kind

    @property
    def attends(self) -> bool:
        """Whether they are attention."""
        return self.kind in (ATTENTION, DIFFERENTIAL)


@dataclass(frozen=True)
class BlockMixers:
    """The heads of a block, in the order of its maps. Its twin is js/src/views/base/mixers.ts."""

    groups: tuple[HeadGroup, ...]

    @property
    def n_heads(self) -> int:
        """Number of matrices: a mixer without heads has one."""
        return sum(max(group.heads, 1) for group in self.groups)

    def _of(self, head: int | str) -> tuple[HeadGroup, ...]:
        """Return the group of a head; all of them for a reduction over heads, or "-"."""
        if not isinstance(head, int):
            return self.groups
        owners = [group for group in self.groups for _ in range(max(group.heads, 1))]
        return (owners[head],) if head < len(owners) else self.groups

    def kind(self, head: int | str) -> str:
        """Return how a head mixes tokens, in words; of a reduction over heads, how the block does."""
        return " and ".join(dict.fromkeys(group.name for group in self._of(head)))

    def is_headless(self, head: int | str) -> bool:
        """Return whether a matrix of the block belongs to a mixer without heads."""
        return all(not group.heads for group in self._of(head))

    def fixed(self, head: int) -> str:
        """Return why a head cannot be ablated, or ""."""
        return self._of(head)[0].fixed

    def attends(self, head: int) -> bool:
        """Return whether a head is an attention head."""
        return self._of(head)[0].attends

    def words(self, head: int | str, base: int = 0) -> str:
        """Return "head 3", or the label of a mixer without heads; "" for "-"."""
        return ALL_CHANNELS if head != "-" and self.is_headless(head) else head_words(head, base)

    def meaning(self, head: int | str, measure: str) -> str:
        """Return the meaning of a value of `mixing`; "" for attention weights, which are shares of a row.

        Args:
            head: The head, or a reduction over heads.
            measure: The measure of `mixing`; "" for maps by other methods.
        """
        groups = self._of(head)
        attends = all(group.kind == ATTENTION for group in groups)
        # In a block of attention alone, shares are its weights.
        is_alone = all(group.kind == ATTENTION for group in self.groups)
        if measure not in _VALUES or (attends and (measure == "kernel" or (measure == "share" and is_alone))):
            return ""
        if measure == "kernel" and all(group.kind == DIFFERENTIAL for group in groups):
            return _DIFFERENCE
        forgets = not all(group.attends or group.reach for group in groups)
        return f"{_VALUES[measure]}; {_FORGETTING}" if forgets else _VALUES[measure]


def head_words(head: int | str, base: int = 0) -> str:
    """Return "head 3", counted from `base`, or the name of a reduction over heads; "" for "-"."""
    if isinstance(head, str):
        return "" if head == "-" else f"{head} over heads"
    return f"head {head + base}"


def mixers_in(trace: TraceLike, stack: str, *, attention: bool) -> dict[str, list[Group]]:
    """Return the fields of the `HeadGroup`s of every block of a stack, by its number.

    {} for a stack in which attention alone was recorded. With `attention`, heads are those of its maps.
    """
    recorded: Any = trace
    table = getattr(recorded, "stack_table", {}).get(stack)
    if table is None or not table.mixing:
        return {}
    return {str(block.number): _groups(block, stack, attention) for block in recorded.anatomy.stacks[stack]}


def _groups(block: Block, stack: str, attention: bool) -> list[Group]:
    groups: list[Group] = []
    is_shifted = False
    for mixer in block.mapped:
        heads = mixer.heads if attention else mixer.mixing_heads
        is_shifted |= heads != mixer.heads
        groups.append((mixer.kind, heads, mixer.reach, _fixed(mixer, stack, is_shifted)))
    return groups


def _fixed(mixer: Mixer, stack: str, is_shifted: bool) -> str:
    """Return why the heads of a mixer cannot be ablated by their numbers in a map, or ""."""
    if is_shifted:
        return "it is the difference of two heads, which can be knocked out one by one in a map of attention"
    if not mixer.heads:
        article = "an" if mixer.kind[0] in "aeiou" else "a"
        return f"{article} {mixer.kind} has channels and not heads"
    if mixer.stack not in ("", stack):
        return f"it belongs to the stack {mixer.stack!r}, in whose maps it can be knocked out"
    return ""


def mixers_of(explanation: Any) -> dict[int, BlockMixers]:
    """Return the mixers of every layer of a map, by the layer's number; {} if all are attention."""
    described: Mapping[str, Any] = getattr(explanation, "provenance", {}).get("mixers") or {}
    return {
        int(number): BlockMixers(tuple(HeadGroup(*group) for group in groups))
        for number, groups in described.items()
    }


def measure_of(explanation: Any) -> str:
    """Return the measure of a map by `mixing`; "" for any other."""
    if getattr(explanation, "method", "") != "mixing":
        return ""
    return str(explanation.provenance.get("options", {}).get("measure", ""))
