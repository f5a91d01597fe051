"""Targets: the number an explanation is about, named the way people name it.

A class by its name or index, the next token by its string or id, a masked token, the probability of a span,
an embedding, or any function of the model's outputs. Every method that explains a number takes any of them
as `target`, and as `foil` what it is contrasted with.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from attnwidgets.explanations.targets.resolve import (
    CLASSES,
    Target,
    class_target,
    embedding_target,
    function_target,
    logits_of,
    predicted,
    span_target,
    token_target,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from attnwidgets.tracing.trace import Trace


@dataclass(frozen=True)
class NamedTarget:
    """A target that is named before the trace is known: what `token`, `label`, `span` ... return."""

    kind: Literal["token", "label", "span", "norm", "dot", "function"]
    value: Any = None
    position: int | None = None
    name: str = ""


def token(token: str | int, *, position: int | None = None) -> NamedTarget:
    """Return the logit of a token, as a target.

    Args:
        token: Its string, which must be one token, or its id. A leading space is part of a token, so that
            " Paris" and "Paris" are two; where the other one is at least ten times as probable there, the
            result's `warning` names it, with both probabilities.
        position: Row of the logits that is read; by default the last one (the next token), or the first mask.
    """
    return NamedTarget("token", token, position)


def label(name: str | int) -> NamedTarget:
    """Return the logit of a class, by its name in the model's `id2label` or by its index, as a target."""
    return NamedTarget("label", name)


def span(start: int, stop: int) -> NamedTarget:
    """Return the log-probability of the tokens from `start` up to, not with, `stop`, as a target.

    That is the sum over the span of log p(token | tokens before it): of a language model that predicts the
    next token, or of the decoder of an encoder-decoder, whose tokens are then counted.
    """
    return NamedTarget("span", (start, stop))


def embedding_norm(position: int | None = None) -> NamedTarget:
    """Return the length of a token's last hidden state, as a target; None: of the mean over tokens."""
    return NamedTarget("norm", None, position)


def embedding_dot(vector: Any, position: int | None = None) -> NamedTarget:
    """Return the dot product of a token's last hidden state with `vector` [dim], as a target.

    Args:
        vector: [dim], of numbers.
        position: Which token; None: the mean over tokens.
    """
    return NamedTarget("dot", vector, position)


def function(score: Callable[[Any], Tensor], name: str = "") -> NamedTarget:
    """Return any function of the model's outputs, as a target.

    Args:
        score: Takes the outputs of a batch and returns one number for each input, [batch], differentiably. A
            function alone may be passed wherever a target is taken.
        name: What to call it.
    """
    return NamedTarget("function", score, None, name or getattr(score, "__name__", "function"))


def generated(trace: Trace) -> list[NamedTarget]:
    """Return the logits of the generated tokens, each at the position that predicted it, as targets.

    One row for every token of the answer: `aw.lrp(trace, target=aw.targets.generated(trace))` is [target,
    source].

    Args:
        trace: Of a model that generates: `aw.trace(..., max_new_tokens=...)`, or an encoder-decoder's.

    Raises:
        ValueError: Where nothing was generated, or the model has no logits for tokens.
    """
    logits = logits_of(trace, "target", "generated()")
    start = trace.boundary
    decoder = trace.inputs.get("decoder_input_ids")
    ids = trace.input_ids if decoder is None else decoder[0]
    if start is None or ids is None or logits.dim() == CLASSES:
        raise ValueError(
            "generated() has nothing to name: this trace holds no generated tokens; "
            "aw.trace(..., max_new_tokens=...) lets a model that generates go on."
        )
    stack = "decoder" if decoder is not None else trace.default_stack
    count = len(trace.axes(stack)[0]) - start
    # Counted from the end: pictures and soundtracks may stand before the tokens.
    return [token(int(ids[-back]), position=len(logits) - back - 1) for back in range(count, 0, -1)]


def resolve_targets(
    trace: Trace, target: Any, *, method: str, name: str = "target", logit: bool = False
) -> tuple[Target, ...]:
    """Return the targets that are meant: one, or several where a list or tuple names them.

    Raises:
        ValueError, TypeError: see `resolve_target`; also for an empty list.
    """
    if not isinstance(target, (list, tuple)):
        return (resolve_target(trace, target, method=method, name=name, logit=logit),)
    if not target:
        raise ValueError(
            f"{name} is an empty list; name one target or more, or leave it out for the prediction."
        )
    return tuple(resolve_target(trace, one, method=method, name=name, logit=logit) for one in target)


def resolve_target(
    trace: Trace,
    target: Any,
    *,
    method: str,
    name: str = "target",
    logit: bool = False,
    like: Target | None = None,
) -> Target:
    """Return the target that is meant.

    Args:
        trace: What `aw.trace` returned.
        target: None for what the model predicts (the class, the next token, the first mask's token); a string
            or number for a class or a token, whichever the model has; what a function of `aw.targets`
            returned; or a function of the model's outputs.
        method: Name of the method, for messages.
        name: Name of the argument, for messages.
        logit: Whether the method explains single logits only.
        like: The target that this one is a foil of: a token is read at the same position.

    Raises:
        ValueError: Where the model does not predict such a thing, a string is no class or not one token, or
            the number is no logit and `logit` asks for one. The message names the nearest and the choices.
        TypeError: Where `target` is nothing that names a target.
        IndexError: Where there is no such class, token or position.
    """
    if isinstance(target, Target):
        found = target
    elif target is None or isinstance(target, NamedTarget):
        found = _of_request(trace, target, name, method, like)
    elif isinstance(target, str) or (hasattr(target, "__index__") and not isinstance(target, bool)):
        value = target if isinstance(target, str) else int(target)
        kind: Literal["label", "token"] = (
            "label" if logits_of(trace, name, method).dim() == CLASSES else "token"
        )
        found = _of_request(trace, NamedTarget(kind, value), name, method, like)
    elif callable(target):
        found = _of_request(trace, function(target), name, method, like)
    else:
        raise TypeError(
            f"{name} is a {type(target).__name__}; name a class or a token by its string or number, use one "
            "of aw.targets (token, label, span, embedding_norm, embedding_dot), or a function of the outputs."
        )
    if logit and found.index is None:
        raise ValueError(
            f"{name} {found.label!r} is not one logit, which is what {method} takes apart; name a class or a "
            "token. Relevance and gradients explain any number."
        )
    return found


def _of_request(
    trace: Trace, request: NamedTarget | None, name: str, method: str, like: Target | None
) -> Target:
    if request is None:
        return predicted(trace, name, method)
    if request.kind == "label":
        return class_target(trace, request.value, name, method)
    if request.kind == "token":
        position = request.position
        if position is None and like is not None:
            position = like.position
        return token_target(trace, request.value, position, name, method)
    if request.kind == "span":
        return span_target(trace, request.value, name, method)
    if request.kind == "function":
        return function_target(request.value, request.name, name)
    vector = request.value if request.kind == "dot" else None
    return embedding_target(trace, vector, request.position, name)
