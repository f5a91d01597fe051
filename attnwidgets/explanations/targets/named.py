"""Targets by name: the functions of `aw.targets`.

A class by its name or index, the next token by its string or id, a masked token, the probability of a span,
an embedding, or any function of the model's outputs. Every method that explains a number accepts any of them
as `target` and as `foil`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from attnwidgets.explanations.targets.attention_target import Weight, attention_target
from attnwidgets.explanations.targets.resolve import (
    CLASSES,
    Target,
    answer_target,
    class_target,
    embedding_target,
    function_target,
    logits_of,
    predicted_target,
    span_target,
    token_target,
)
from attnwidgets.tracing.anatomy.answer import ANSWER_SPAN

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from attnwidgets.tracing.trace import Trace


_BY_VALUE: dict[str, Callable[[Trace, Any, str, str], Target]] = {
    "answer": answer_target,
    "span": span_target,
    "attention": attention_target,
}


@dataclass(frozen=True)
class NamedTarget:
    """A target named before the trace is given, as `token`, `label`, `span` ... return it."""

    kind: Literal["token", "label", "span", "answer", "norm", "dot", "attention", "function"]
    value: Any = None
    position: int | None = None
    name: str = ""


def token(token: str | int, *, position: int | None = None) -> NamedTarget:
    """Return the logit of a token, as a target.

    Args:
        token: Its string, which must be a single token, or its id. A leading space is part of a token, so
            that " Paris" and "Paris" differ; if the other spelling is at least ten times as probable there,
            the result's `warning` names it, with both probabilities.
        position: Row of the logits to read; by default the last (the next token), or the first mask.

    Example:
        >>> trace = aw.trace(*aw.demo_model("decoder"), "The capital of France is")
        >>> aw.saliency(trace, aw.targets.token(" Paris")).target.strip("␣ ")
        'Paris'
    """
    return NamedTarget("token", token, position)


def label(name: str | int, *, position: int | None = None) -> NamedTarget:
    """Return the logit of a class, as a target.

    Args:
        name: Its name in the model's `id2label`, or its index.
        position: Number of the token, for a model that classifies every token; by default the token that is
            most probably of this class, which the result's `warning` names.

    Example:
        >>> trace = aw.trace(*aw.demo_model("classifier"), "The film was a pleasure.")
        >>> aw.saliency(trace, aw.targets.label("negative")).target
        'negative'
    """
    return NamedTarget("label", name, position)


def span(start: int, stop: int) -> NamedTarget:
    """Return the log-probability of the tokens from `start` to `stop`, the latter not included, as a target.

    That is the sum over the span of log p(token | tokens before it), for a language model that predicts the
    next token, or for the decoder of an encoder-decoder, whose tokens are then counted.

    Args:
        start: First token of the span; 1 or later, as the first token of a text has nothing before it.
        stop: One past its last token.

    Example:
        >>> trace = aw.trace(*aw.demo_model("decoder"), "The capital of France is Paris.")
        >>> aw.saliency(trace, aw.targets.span(1, 4)).shape == (len(trace.tokens),)
        True
    """
    return NamedTarget("span", (start, stop))


def answer(start: int, stop: int) -> NamedTarget:
    """Return the score of an extractive answer, as a target: its start's logit and its end's, added.

    Args:
        start: The answer's first token.
        stop: One past its last token.

    Example:
        >>> trace = aw.trace(model, tokenizer, question, text_pair=text)  # doctest: +SKIP
        >>> aw.saliency(trace, aw.targets.answer(6, 8))  # doctest: +SKIP
    """
    return NamedTarget("answer", (start, stop))


def embedding_norm(position: int | None = None) -> NamedTarget:
    """Return the length of a token's last hidden state, as a target.

    Args:
        position: Number of the token; by default the mean over tokens is used.

    Example:
        >>> trace = aw.trace(*aw.demo_model("encoder"), "The cat sat on the mat.")
        >>> aw.saliency(trace, aw.targets.embedding_norm(2)).target
        'length of token 2'
    """
    return NamedTarget("norm", None, position)


def embedding_dot(vector: Any, position: int | None = None) -> NamedTarget:
    """Return the dot product of a token's last hidden state with `vector` [dim], as a target.

    Args:
        vector: Numbers [dim].
        position: Number of the token; by default the mean over tokens is used.

    Example:
        >>> trace = aw.trace(*aw.demo_model("encoder"), "The cat sat on the mat.")
        >>> aw.saliency(trace, aw.targets.embedding_dot(np.ones(384))).target
        'dot product with the mean over tokens'
    """
    return NamedTarget("dot", vector, position)


def attention(
    layer: int,
    head: int,
    query: int | str,
    key: int | str,
    *,
    of: Literal["log-odds", "log", "weight"] = "log-odds",
    stack: str | None = None,
) -> NamedTarget:
    """Return a weight of attention, as a target: which inputs make this head look there.

    `aw.why` takes the score behind the weight apart within its head; this follows it to the model's input.

    Args:
        layer: Number of the layer.
        head: Number of the head.
        query: The token that reads: its number, or its label if no other has it.
        key: The token that is read.
        of: "log-odds", the logarithm of the weight over that of all other keys, whose gradient does not
            vanish as the weight comes near 1; "log", the logarithm, so that a foil of the same query gives
            the difference of two scores; or "weight", the weight itself.
        stack: Stack of a model that has several.

    Example:
        >>> trace = aw.trace(*aw.demo_model("encoder"), "The cat sat on the mat.")
        >>> aw.saliency(trace, aw.targets.attention(3, 1, "sat", "cat")).target
        "log-odds of attention of 'sat' (token 3) to 'cat' (token 2) in head 3.1"
    """
    return NamedTarget("attention", Weight(layer, head, query, key, of, stack))


def function(score: Callable[[Any], Tensor], name: str = "") -> NamedTarget:
    """Return any function of the model's outputs, as a target.

    Args:
        score: Takes the outputs of a batch and returns a number for each input, [batch], differentiably.
            Wherever a target is accepted, a plain function is as well.
        name: Its label; by default the function's name.

    Example:
        >>> margin = aw.targets.function(lambda out: out.logits[:, 1] - out.logits[:, 0], "margin")
        >>> trace = aw.trace(*aw.demo_model("classifier"), "The film was a pleasure.")
        >>> aw.saliency(trace, margin).target
        'margin'
    """
    return NamedTarget("function", score, None, name or getattr(score, "__name__", "function"))


def generated(trace: Trace) -> list[NamedTarget]:
    """Return the logits of the generated tokens, each at the position that predicted it, as targets.

    They give a row for every token of the answer: `aw.lrp(trace, target=aw.targets.generated(trace))` is
    [target, source].

    Args:
        trace: A trace with generated tokens, from `aw.trace(..., max_new_tokens=...)`, or of an
            encoder-decoder.

    Raises:
        ValueError: If nothing was generated, or the model has no logits for tokens.

    Example:
        >>> trace = aw.trace(*aw.demo_model("decoder"), "The capital of France is", max_new_tokens=2)
        >>> len(aw.targets.generated(trace))
        2
    """
    logits = logits_of(trace, "target", "generated()")
    start = trace.boundary
    decoder = trace.inputs.get("decoder_input_ids")
    ids = trace.input_ids if decoder is None else decoder[0]
    if start is None or ids is None or logits.dim() == CLASSES:
        raise ValueError(
            "generated() finds no generated tokens in this trace; aw.trace(..., max_new_tokens=...) lets a "
            "model generate some."
        )
    stack = "decoder" if decoder is not None else trace.default_stack
    count = len(trace.axes(stack)[0]) - start
    # Counted from the end: pictures and soundtracks may precede the tokens.
    return [token(int(ids[-back]), position=len(logits) - back - 1) for back in range(count, 0, -1)]


def resolve_targets(
    trace: Trace, target: Any, *, method: str, name: str = "target", logit: bool = False
) -> tuple[Target, ...]:
    """Return the targets that `target` names: a single target, or several for a list or tuple.

    Raises:
        ValueError, TypeError: See `resolve_target`; also for an empty list.
    """
    if not isinstance(target, (list, tuple)):
        return (resolve_target(trace, target, method=method, name=name, logit=logit),)
    if not target:
        raise ValueError(
            f"{name} is an empty list; name one target or more, or leave it out for the prediction."
        )
    return tuple(resolve_target(trace, item, method=method, name=name, logit=logit) for item in target)


def resolve_target(
    trace: Trace,
    target: Any,
    *,
    method: str,
    name: str = "target",
    logit: bool = False,
    like: Target | None = None,
) -> Target:
    """Return the target that `target` names.

    Args:
        trace: Trace returned by `aw.trace`.
        target: None for the model's prediction (the class, the next token, the first mask's token); a string
            or number for a class or a token, whichever the model has; a result of a function of `aw.targets`;
            or a function of the model's outputs.
        method: Name of the method, for messages.
        name: Name of the argument, for messages.
        logit: Whether the method explains single logits only.
        like: The target of this foil: a token is read at the same position.

    Raises:
        ValueError: If the model does not predict such an outcome, a string is not a class or not a single
            token, or the number is not a logit and `logit` is set. The message names the nearest and the
            choices.
        TypeError: If `target` cannot name a target.
        IndexError: If the class, token or position does not exist.
    """
    if isinstance(target, str) or (hasattr(target, "__index__") and not isinstance(target, bool)):
        value = target if isinstance(target, str) else int(target)
        target = _by_value(trace, value, name, method)
    elif callable(target):
        target = function(target)
    if target is None:
        resolved = predicted_target(trace, name, method)
    elif isinstance(target, NamedTarget):
        resolved = _resolve_named(trace, target, name, method, like)
    elif isinstance(target, Target):
        resolved = target
    else:
        raise TypeError(
            f"{name} is a {type(target).__name__}; name a class or a token by its string or number, use one "
            "of aw.targets (token, label, span, attention, embedding_norm, embedding_dot), or a function of "
            "the outputs."
        )
    if logit and resolved.index is None:
        raise ValueError(
            f"{name} {resolved.label!r} is not a single logit, which {method} needs; name a class or a "
            "token. Relevance and gradients explain any number."
        )
    return resolved


def _position(named: NamedTarget, like: Target | None) -> int | None:
    """Return the row that a target names; by default, for a foil, that of its target."""
    return like.position if named.position is None and like is not None else named.position


def _by_value(trace: Trace, value: str | int, name: str, method: str) -> NamedTarget:
    """Return the target that a string or number names: a class, a token, or a predicted answer."""
    logits = logits_of(trace, name, method)
    if trace.answer.title == ANSWER_SPAN and isinstance(value, int):
        first, last = divmod(value, len(logits))
        return answer(first, last + 1)
    return label(value) if logits.dim() == CLASSES or trace.answer.names else token(value)


def _resolve_named(trace: Trace, named: NamedTarget, name: str, method: str, like: Target | None) -> Target:
    if named.kind == "label":
        return class_target(trace, named.value, name, method, position=_position(named, like))
    if named.kind == "token":
        return token_target(trace, named.value, _position(named, like), name, method)
    if named.kind in _BY_VALUE:
        return _BY_VALUE[named.kind](trace, named.value, name, method)
    if named.kind == "function":
        return function_target(named.value, named.name, name)
    return embedding_target(trace, named.value, named.position, name)
