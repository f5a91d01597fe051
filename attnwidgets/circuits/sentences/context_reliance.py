"""aw.circuits.context_reliance: generated tokens that depend on the context, and their cues in it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from attnwidgets._errors import quoted, require_choice
from attnwidgets._progress import progress
from attnwidgets._tables import Table
from attnwidgets.circuits.sentences.suppression import kl_rows
from attnwidgets.explanations.registry.registry import methods
from attnwidgets.explanations.results.attributions import Attributions
from attnwidgets.explanations.results.description import TARGETS
from attnwidgets.explanations.results.mixing_map import MixingMap
from attnwidgets.explanations.results.trace_protocol import provenance_of
from attnwidgets.explanations.targets.named import token
from attnwidgets.explanations.targets.resolve import TOKENS, spell
from attnwidgets.tracing.recording.inputs import encode, text_tokenizer
from attnwidgets.tracing.recording.run import trace as record
from attnwidgets.tracing.text.units import TokenAxis
from attnwidgets.tracing.unsupported import UnsupportedModelError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from attnwidgets._tables import Columns
    from attnwidgets.tracing.trace import Trace

    Float = NDArray[np.float64]

Metric = Literal["kl", "pcxmi", "probability"]
METRICS: tuple[Metric, ...] = ("kl", "pcxmi", "probability")
PAPER = "Sarti et al. 2024, Quantifying the Plausibility of Context Reliance in Neural Machine Translation"
_NAMES = {
    "kl": "KL(with context || without), nats",
    "pcxmi": "log p with context - without",
    "probability": "p with context - without",
}
_ROUNDING, _NOTHING = 1e-6, 1e-9


@dataclass(frozen=True, repr=False)
class ContextReliance(Table):
    """The tokens of an output that depend on a context, and their cues in it.

    Attributes:
        output: How much every token of the output depends on the context: Attributions, `.view()` shows them.
        kept: Numbers of the output's tokens that depend on it.
        contrasts: The model's prediction there without the context, by number; the target of the cues
            is contrasted with it, unless it is the same token.
        cues: How much each of them depends on the context's tokens: a map [1, output token, context
            token]; None if no token depends on it.
        trace: The trace of context, current text and output.
    """

    output: Attributions
    kept: tuple[int, ...]
    contrasts: dict[int, str]
    cues: MixingMap | None
    trace: Any

    def _columns(self) -> Iterator[Columns]:
        """Yield token, value, kept, contrast ("" for tokens that do not depend on the context)."""
        numbers = range(len(self.output.labels))
        yield {
            "token": self.output.labels,
            "value": self.output.values,
            "kept": [number in self.kept for number in numbers],
            "contrast": [self.contrasts.get(number, "") for number in numbers],
        }

    def pairs(self, threshold: float = 1.0) -> list[tuple[str, str, float]]:
        """Return dependent tokens with those of the context: (output token, context token, value).

        Args:
            threshold: A token of the context counts if its value is above the mean by this many standard
                deviations, over the context.
        """
        if self.cues is None:
            return []
        result = []
        labels, keys = self.cues.query_labels, self.cues.key_labels
        for label, row in zip(labels, np.asarray(self.cues.values[0], dtype=np.float64), strict=True):
            least = max(float(row.mean() + threshold * row.std()), np.finfo(float).tiny)
            order = [at for at in np.argsort(-row, kind="stable") if row[at] >= least]
            result += [(label, keys[at], float(row[at])) for at in order]
        return result

    def __repr__(self) -> str:
        count = len(self.kept)
        count_of_tokens = f"{count} of {len(self.output.axis)} tokens depend on the context"
        shown = "; ".join(f"{token!r} on {cue!r}" for token, cue, _ in self.pairs()[:3])
        return f"<ContextReliance: {count_of_tokens}{f': {shown}' if shown else ''}>"


def context_reliance(
    model: Any,
    tokenizer: Any,
    context: str,
    current: str,
    output: str | None = None,
    *,
    metric: Metric = "kl",
    threshold: float = 1.0,
    method: str = "input_x_gradient",
    separator: str = " ",
    max_new_tokens: int = 20,
) -> ContextReliance:
    """Return the tokens of an output that depend on a context, and their cues in it (PECoRe).

    The same output is read after context and current text, and after the current text alone. A token depends
    on the context if the prediction differs more than others do: |score| >= mean + threshold * standard
    deviation over the output. For each of these, `method` attributes its logit, less that of the token that
    the model would have put there without the context, to the tokens of the context.

    Two passes, and an attribution for every token that depends on the context.

    Args:
        model: A model that continues texts.
        tokenizer: Its tokenizer.
        context: The text whose influence is measured.
        current: The text that follows it, and that the model would read alone.
        output: The text after both, with its leading space; by default the model generates it with the
            context.
        metric: "kl", KL(p with || p without) of the whole prediction; "pcxmi", the log probability of the
            token with less that without; "probability", the same of probabilities.
        threshold: Standard deviations above the mean from which a token depends on the context.
        method: Name of a method with a target and a foil, in `aw.methods()`. Gradients can mislead where a
            model is far from linear; compare "lrp".
        separator: Characters between context and current text.
        max_new_tokens: Tokens that are generated, without `output`.

    Returns:
        ContextReliance: `.output` and `.cues` open in views, `.pairs()` lists tokens with their cues.

    Raises:
        ValueError: If a text is empty, or the metric or method is unknown.
        UnsupportedModelError: If the model predicts no tokens, or reads the output by a separate decoder.

    Source: Sarti et al. 2024, PECoRe, section 3 (context-sensitive tokens, contextual cues). Tokens of the
    output are the same in both runs, also where context and current text would join into other tokens.

    Example:
        >>> model, tokenizer = aw.zoo.induction(letters="abcdefgh", length=16)
        >>> reliance = aw.circuits.context_reliance(model, tokenizer, "fadebc", "fade", "b", separator="")
        >>> reliance.kept, reliance.contrasts, [round(score, 1) for score in reliance.output.values.tolist()]
        ((0,), {0: 'a'}, [2.2])
    """
    require_choice("metric", metric, METRICS)
    if method not in methods():
        require_choice("method", method, methods().names)
    for name, text in (("context", context), ("current", current)):
        if not isinstance(text, str) or not text.strip():
            raise ValueError(f"{name} is {text!r}; it is a text of a word or more.")
    reader = text_tokenizer(tokenizer)
    whole = encode(reader, context + separator + current)
    ids = list(whole.ids or [])
    if output is None:
        generated = record(model, tokenizer, context + separator + current, max_new_tokens=max_new_tokens)
        _require_decoder(generated)
        new = [] if generated.input_ids is None else generated.input_ids.tolist()[len(ids) :]
    else:
        new = reader(output, add_special_tokens=False)["input_ids"]
    if not new:
        raise ValueError(f"output {quoted(output or '')} has no tokens.")
    alone = list(encode(reader, current).ids or [])
    both = record(model, tokenizer, input_ids=ids + new)
    without = record(model, tokenizer, input_ids=alone + new)
    _require_decoder(both)
    rows, contrasts, scores = _scores(both, without, new, metric)
    sizes = np.abs(scores)
    least = (sizes.mean() + threshold * sizes.std()) * (1 - _ROUNDING)  # of equal scores, all count
    dependent = [at for at, size in enumerate(sizes.tolist()) if size > _NOTHING and size >= least]
    shown = whole.text
    inside = [
        at
        for at, ((start, _), special) in enumerate(zip(shown.spans, shown.special, strict=True))
        if not special and start < len(context)
    ] if shown is not None else []  # fmt: skip
    cues = [
        _cues(both, method, new[at], contrasts[at], rows.start + at, inside)
        for at in progress(dependent, "attributing to the context")
    ]
    options = {"metric": metric, "threshold": threshold, "method": method}
    common = provenance_of(
        both, "self", "circuits.context_reliance", paper=PAPER, options=options, facts={"axes": TARGETS}
    )
    labels = [spell(both, index) for index in new]
    return ContextReliance(
        Attributions(scores, axis=TokenAxis.plain(labels), target=_NAMES[metric], **common),
        tuple(dependent),
        {at: spell(both, contrasts[at]) for at in dependent},
        MixingMap(
            np.array(cues),
            query=TokenAxis.plain([labels[at] for at in dependent]),
            key=TokenAxis.plain([both.tokens[at] for at in inside]),
            causal=False,
            stochastic=False,
            **common,
        )
        if dependent
        else None,
        both,
    )


def _require_decoder(trace: Trace) -> None:
    if trace.stacks != ("self",) or trace.logits is None or trace.logits.dim() != TOKENS:
        raise UnsupportedModelError(
            "context_reliance reads models that continue a text (decoders); this one does not, or reads its "
            "output by a decoder of its own."
        )
    if not trace.is_causal():
        raise UnsupportedModelError(
            "context_reliance reads models that continue a text; this one fills gaps."
        )


def _scores(both: Trace, without: Trace, new: list[int], metric: Metric) -> tuple[slice, list[int], Float]:
    """Return the rows that predict the output, the tokens predicted without context, and scores [token]."""
    if both.logits is None or without.logits is None:  # checked by the caller
        raise AssertionError
    count = len(new)
    rows = slice(len(both.logits) - count - 1, len(both.logits) - 1)
    first, second = both.logits[rows], without.logits[-count - 1 : -1]
    contrasts = second.argmax(-1).tolist()
    if metric == "kl":
        return rows, contrasts, kl_rows(first, second, 1.0)
    cells = np.arange(count), np.array(new)
    log_p = [logits.double().log_softmax(-1).numpy()[cells] for logits in (first, second)]
    if metric == "probability":
        log_p = [np.exp(values) for values in log_p]
    return rows, contrasts, log_p[0] - log_p[1]


def _cues(trace: Trace, method: str, index: int, contrast: int, row: int, inside: list[int]) -> Float:
    """Return the context tokens' contributions to a token's logit, less its contrast's [context token]."""
    foil = None if contrast == index else token(contrast, position=row)
    result = methods()[method].function(trace, target=token(index, position=row), foil=foil)
    return np.asarray(result.values, dtype=np.float64).reshape(-1)[inside]
