"""aw.circuits.faithfulness: the share of an answer that a circuit retains, the rest ablated."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from attnwidgets.circuits.components import Component, component_of, components
from attnwidgets.circuits.pair import pair_of
from attnwidgets.circuits.patching import share_unit
from attnwidgets.circuits.suffix_runs import Cell, SuffixRuns
from attnwidgets.explanations.targets.target_set import resolve_target_set

if TYPE_CHECKING:
    from collections.abc import Iterable


class Faithfulness(NamedTuple):
    """The share of the target that a circuit retains.

    Attributes:
        share: (m(circuit) - m(corrupt)) / (m(clean) - m(corrupt)): 1 keeps the answer, 0 loses it; NaN if the
            runs do not differ.
        circuit: The target, less its foil, with the rest from the corrupt run.
        clean: The same in the clean run.
        corrupt: The same in the corrupt run.
        size: Number of components of the circuit.
        all: Number of components of the model.
    """

    share: float
    circuit: float
    clean: float
    corrupt: float
    size: int
    all: int


def faithfulness(
    clean: Any,
    corrupt: Any,
    circuit: Iterable[Any],
    target: Any = None,
    *,
    foil: Any = None,
    model: Any = None,
    tokenizer: Any = None,
    stack: str | None = None,
) -> Faithfulness:
    """Return the share of an answer that a circuit keeps with every other head and MLP of the corrupt run.

        share = (m(circuit) - m(corrupt)) / (m(clean) - m(corrupt))

    The embeddings stay those of the clean text. This is ablation in a forward pass, not an estimate.

    Args:
        clean: A trace, or a text (then `model` and `tokenizer`).
        corrupt: The same, with the same number of tokens.
        circuit: Components: ("head", layer, head), ("mlp", layer).
        target: A target as for every method; by default the model's prediction for the clean text.
        foil: Contrasting target.
        model: The model of texts.
        tokenizer: Its tokenizer.
        stack: Which blocks, in models with several stacks ("encoder", "decoder").

    Raises:
        ValueError: If a component has another form; see `patch`.
        IndexError: If the layer or head is out of range.

    Source: Hanna et al. 2024, Have Faith in Faithfulness, section 3 (of edges; here of components).

    Example:
        >>> model, tokenizer = aw.zoo.induction(letters="abcdefgh", length=16)
        >>> texts = [aw.trace(model, tokenizer, text) for text in ("fadebcfadeb", "fadebafadeb")]
        >>> round(aw.circuits.faithfulness(*texts, [("head", 1, 0)], "c", foil="a").share, 3)
        1.0
    """
    pair = pair_of(clean, corrupt, stack, "faithfulness", model, tokenizer)
    targets = resolve_target_set(pair.clean, target, foil, "faithfulness").single("faithfulness")
    in_circuit = {component_of(part, pair.clean, pair.stack) for part in circuit if not _is_end(part)}
    every = components(pair.clean, pair.stack)
    with SuffixRuns(pair, targets, ("head", "mlp"), "circuits.faithfulness") as runs:
        patches = [[_cell(part) for part in every if part not in in_circuit]]
        score = float(runs.scores(0, patches, 1)[0])
        whole, none = (recorded.score for recorded in runs.recorded)
    return Faithfulness(
        (score - none) / share_unit(none, whole), score, whole, none, len(in_circuit), len(every)
    )


def _is_end(part: Any) -> bool:
    return isinstance(part, Component) and part.kind in ("input", "output")


def _cell(part: Component) -> Cell:
    return Cell("head" if part.kind == "head" else "mlp", part.layer, None, part.head)
