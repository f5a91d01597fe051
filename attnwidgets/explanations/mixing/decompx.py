"""DecompX: every token's part of the hidden states, vector by vector, down to signed scores of a class.

Modarressi et al. 2023, DecompX: Explaining Transformers Decisions by Propagating Token Decomposition,
section 3.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np

from attnwidgets._errors import require_choice
from attnwidgets.explanations.mixing.block_maps import in_unit, own_stack
from attnwidgets.explanations.mixing.logit_targets import asked_logits
from attnwidgets.explanations.registry.memory_estimates import measured_on_blocks
from attnwidgets.explanations.registry.registry import method
from attnwidgets.explanations.results.attributions import Attributions
from attnwidgets.explanations.results.joint_units import unit_grid
from attnwidgets.explanations.results.mixing_map import MixingMap
from attnwidgets.explanations.results.trace_protocol import TraceLike, provenance_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from attnwidgets.explanations.mixing.logit_targets import Asked, Place
    from attnwidgets.explanations.results.joint_units import Grid
    from attnwidgets.tracing.algebra.propagation import Propagation
    from attnwidgets.tracing.text.units import Unit
    from attnwidgets.tracing.trace import Trace

    Float = NDArray[np.float64]

PAPER = (
    "Modarressi et al. 2023, DecompX: Explaining Transformers Decisions by Propagating Token Decomposition"
)

LIMIT = 2**32
"""Bytes of vectors held at once beyond which `force=True` is asked for."""

_BIASES = ("absdot", "abssim", "norm", "equal", "cls", "dot", None)
_ACTIVATIONS = ("zero_origin", "linear_approximation", "relu")


@method(
    "decompx",
    paper=PAPER,
    needs="own blocks",
    returns="Attributions [source] to a logit, with the lengths of every layer's vectors as .map; that map "
    "alone where nothing is predicted",
    cost="one more pass, then every block for every pair of tokens: tokens² * width numbers are held",
    takes=measured_on_blocks,
)
def decompx(
    trace: TraceLike,
    target: Any = None,
    foil: Any = None,
    *,
    bias: Literal["absdot", "abssim", "norm", "equal", "cls", "dot"] | None = "absdot",
    activation: Literal["zero_origin", "linear_approximation", "relu"] = "zero_origin",
    gate: Literal["half", "fixed"] = "half",
    ffn: bool = True,
    unit: str | Unit | None = None,
    stack: str | None = None,
    chunk_size: int | None = None,
    force: bool = False,
) -> Attributions | MixingMap:
    """Signed scores of the input's tokens that sum to a logit, by following vectors through the whole model.

    T[i, j] is a vector: what token j has become in the hidden state of token i, so that sum_j T[i, j] is that
    state, exactly, after every layer. Attention mixes them with the real weights, norms divide them by the
    real deviation, biases are shared out among them, activations become lines; at the end the head turns the
    vectors it reads into scores of a logit (equations 4 to 13).

    Published for BERT and RoBERTa. Beyond them, by the same rules: masked-language heads, blocks that norm
    first, RMSNorm, grouped queries, parallel blocks, norms behind attention, gated feed-forward layers
    (`gate`), a final soft cap (through the origin). Everything is read from the blocks' and the head's
    descriptions, which prove themselves on the numbers of the pass.

    Args:
        trace: What `aw.trace` returned.
        target: The logit: a class by its name or index, a token by its string or id (the next one, or the one
            at a mask), `aw.targets.token(token, position=...)`; by default what the model predicts. A list
            of them gives [target, source].
        foil: A class or token that the target is contrasted with: the scores of target - foil.
        bias: How a bias b is shared out among the vectors t_j of a token: by |t_j b| ("absdot", published),
            |cos(t_j, b)| ("abssim"), |t_j| ("norm"), t_j b ("dot", which may be negative), in equal parts to
            the vectors that are not zero ("equal"), or all to the first token ("cls"). None leaves biases
            out, and the scores do not sum to the logit.
        activation: "zero_origin" takes f(x) for f(x) / x times its parts (GeLU_ZO, published);
            "linear_approximation" for f'(x) times its parts with the rest as a bias (GeLU_LA); "relu" keeps
            the parts where x is positive, which does not sum to the logit unless the model's is a ReLU.
        gate: Gated feed-forward layers f(g(x)) u(x), which the paper has none of: "half" follows f(g) with u
            held fixed and u with f(g) held fixed, half of each, which is the Shapley value of the product;
            "fixed" holds f(g) fixed like attention weights.
        ffn: Whether vectors pass the feed-forward layers; without, they do not sum to the logit.
        unit: What is followed as one source: tokens by default; a unit's name ("word") or a Unit follows all
            tokens of an element jointly, which differs from `.to("word")` in how biases are shared out, and
            takes less work.
        stack: The stack that the head reads, or "encoder" of an encoder-decoder, which has a map only.
        chunk_size: How many sources are followed at a time. Only where no bias is to be shared out among all
            of them (a model without biases, or bias=None): by default all at once otherwise.
        force: Run it where more than 4 GB are held at once.

    Returns:
        Attributions [source] (or [target, source]) in logits, signed, that sum to the logit;
        `.residual` is what is missing (rounding, unless an option above leaves something out). `.map` is a
        lazy MixingMap [layer, query, key] of the vectors' lengths |T[i, j]| (the authors' `aggregated`; rows
        do not sum to one), each layer cumulative from the input; rows of a coarser unit are the mean over its
        tokens. That map alone is returned where no target is named and the model predicts nothing in
        particular: without a head, without a mask for a masked-language head, and for the encoder of an
        encoder-decoder; it is its own `.map`.

        Held at once are a vector and a value vector for every pair of token and source, 4 (width + width of
        the values) bytes each in float32 (8 in float64; half precision is computed in float32): 50 MB for 128
        tokens of MiniLM. Lengths of all layers are computed together when the first is asked for. The vectors
        themselves are had from `attnwidgets.tracing.algebra.propagation.Propagation`.

    Raises:
        ValueError: For an unknown option or unit, a chunk_size that cannot be kept, more than 4 GB without
            `force`; where a target is no single logit, or there is no head for one; where blocks or head are
            not described (`UnsupportedModelError`); for NaN inside the model (the message names the layer).
        IndexError: Where there is no such class, token or position.
        TypeError: Where `target` or `foil` is nothing that names a logit.
    """
    require_choice("bias", bias, _BIASES)
    require_choice("activation", activation, _ACTIVATIONS)
    require_choice("gate", gate, ("half", "fixed"))
    if chunk_size is not None and chunk_size < 1:
        raise ValueError(f"chunk_size must be at least 1, not {chunk_size}.")
    stack = own_stack(trace, stack, "decompx")
    grid = unit_grid(trace, stack, unit)
    asked = _asked(trace, target, foil, stack)

    from attnwidgets.tracing.algebra.decomposition import Rules
    from attnwidgets.tracing.algebra.propagation import Propagation

    rules = Rules(bias, activation, gate)
    spans = grid.key.units[grid.name].spans
    followed = Propagation(cast("Trace", trace), stack, "decompx", spans, rules, ffn=ffn)
    _require_memory(followed, chunk_size, force=force)
    options = {"bias": bias, "activation": activation, "gate": gate, "ffn": ffn, "unit": grid.name}
    notes = () if asked is None else asked.notes
    common = provenance_of(trace, stack, "decompx", paper=PAPER, options=options, notes=notes)
    common["provenance"]["title"] = "DecompX"
    lengths = _lengths(followed, grid, chunk_size, common)
    if asked is None:
        return lengths
    values = _scores(followed, asked, chunk_size)
    rest = np.asarray(asked.scores) - values.sum(-1)
    return Attributions(
        values if asked.several else values[0],
        axis=grid.key,
        target=asked.labels,
        foil=None if asked.foil is None else asked.foil.label,
        residual=asked.numbers(rest),
        map=lengths,
        unit=grid.name,
        **common,
    )


def _asked(trace: TraceLike, target: Any, foil: Any, stack: str) -> Asked | None:
    """Return the logits that are meant; None for the map alone, where no target is named nor predicted."""
    if target is None and foil is None and (not trace.predictions_title or "cross" in trace.stacks):
        return None
    return asked_logits(trace, target, foil, method="decompx", stack=stack)


def _require_memory(followed: Propagation, chunk_size: int | None, *, force: bool) -> None:
    """Raise ValueError where a chunk size cannot be kept, or too much would be held at once."""
    together = followed.needs_all()
    if chunk_size is not None and together:
        raise ValueError(
            f"chunk_size={chunk_size}: biases are shared out among all sources here, which must be followed "
            "together; leave it out, or leave biases out (bias=None). unit='word' takes less."
        )
    held = followed.held_bytes() if together else followed.held_bytes(1)
    if held > LIMIT and not force:
        raise ValueError(
            f"decompx holds a vector for every pair of tokens, {held / 2**30:.1f} GB for these "
            f"{followed.n_tokens} tokens; pass force=True to run it, follow words jointly (unit='word'), "
            "leave biases out (bias=None), or shorten the text."
        )


def _scores(followed: Propagation, asked: Asked, chunk_size: int | None) -> Float:
    """Return what every source gives to the targets, less what it gives to their foils [target, source]."""
    import torch

    from attnwidgets.tracing.algebra.output_heads import head_of
    from attnwidgets.tracing.algebra.propagation import through_head

    everything = [*asked.places, *asked.foils]
    heads = {
        position: head_of(followed.trace, followed.stack, "decompx", position)
        for position in dict.fromkeys(position for position, _ in everything)
    }
    rows = sorted({row for position, head in heads.items() for row in head.rows(position)})
    with torch.no_grad():
        vectors = followed.run(rows, chunk_size=chunk_size)
    found: dict[Place, Float] = {}
    for position, head in heads.items():
        indices = list(dict.fromkeys(index for other, index in everything if other == position))
        read = vectors[[rows.index(row) for row in head.rows(position)]]
        with torch.no_grad():
            given = through_head(head, position, indices, read, followed.rules)
        found |= {
            (position, index): given[:, place].cpu().double().numpy() for place, index in enumerate(indices)
        }
    scores = np.stack([found[place] for place in asked.places])
    for number, place in enumerate(asked.foils):
        scores[number] -= found[place]
    return scores


def _lengths(followed: Propagation, grid: Grid, chunk_size: int | None, common: dict[str, Any]) -> MixingMap:
    """Return the lengths of the vectors [layer, query, key]; those that a run to the head left are kept."""
    lock = threading.Lock()

    def layer_of(number: int) -> Any:
        import torch

        with lock, torch.no_grad():
            if number not in followed.lengths:
                followed.run(chunk_size=chunk_size)
        return in_unit(followed.lengths[number], grid)

    own = dict(common)
    own["provenance"] = {**common["provenance"], "title": "DecompX, lengths of the vectors"}
    return MixingMap.lazy(
        layer_of,
        query=grid.query,
        key=grid.key,
        layers=range(followed.n_layers),
        unit=grid.name,
        causal=grid.causal,
        stochastic=False,
        runs_model=True,
        **own,
    )
