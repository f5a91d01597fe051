"""Targets in a model's outputs: the score of a class, a token, a span, an embedding, or a function.

Each function `..._target` takes a trace and the name of a target and returns a `Target`: a function of the
outputs of a batch, with row and column if it is a single logit. `named.py` chooses the function by the kind
of target. Errors name the classes, tokens or positions that the model has.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

from attnwidgets._errors import suggest
from attnwidgets._selecting import listed
from attnwidgets.tracing.anatomy.answer import ANSWER_SPAN
from attnwidgets.tracing.text.display import well_formed

if TYPE_CHECKING:
    from torch import Tensor

    from attnwidgets.tracing.anatomy.answer import Reading
    from attnwidgets.tracing.trace import Trace

TOKENS, CLASSES = 2, 1
"""Dimensions of logits [token, vocabulary] and [class]."""

HIDDEN_STATES, ATTENTIONS = "output_hidden_states", "output_attentions"
"""The options by which a model's outputs hold its states, and its weights of attention."""

FAR = 10
"""How many times as probable another spelling of a token must be for a note to name it."""

_SHOWN = 12  # class names an error lists


@dataclass(frozen=True)
class Target:
    """A number that a model returns for an input.

    Attributes:
        label: Its name: "positive", " Paris". Where it is also the name of another class or answer, or of the
            masked token, a number follows: "positive (2)", "Paris (token 7)", "Paris at 3".
        title: The kind of target: "class", "next token", "[MASK] at 6", "answer", "span", "embedding".
        score: Takes the model's outputs for a batch and returns the number of each input [batch],
            differentiably.
        position: Row of logits [token, vocabulary]; None for [class], and for other numbers.
        index: Column of the logits; None if the number is not a single logit.
        reads: Options of a call that make the model return the tensors that `score` reads besides logits:
            "output_hidden_states", "output_attentions".
        note: A remark on how the target was named, or "".
        reading: How a single logit becomes a probability: "softmax" over its row, "sigmoid" of it alone, or
            "none".
    """

    label: str
    title: str
    score: Callable[[Any], Tensor]
    position: int | None = None
    index: int | None = None
    reads: tuple[str, ...] = ()
    note: str = ""
    reading: Reading = "softmax"


def logits_of(trace: Trace, name: str, method: str) -> Tensor:
    """Return a trace's logits; raise ValueError with alternatives if it has none."""
    if trace.logits is None and trace.model is None:
        raise ValueError(
            f"{method} needs a {name}, and these numbers were given without a model, so that nothing was "
            "predicted; aw.trace(model, tokenizer, text) records one."
        )
    if trace.logits is None:
        raise ValueError(
            f"{method} needs a {name}, and {trace.model_id or 'this model'} returns no logits of classes or "
            "tokens: it has no head, or a head with other outputs. Name a number of its last hidden "
            "state, as aw.targets.embedding_norm(position), aw.targets.embedding_dot(vector, position) or a "
            "function of the outputs, or load the model with a head (AutoModelForSequenceClassification, "
            "AutoModelForCausalLM, ...)."
        )
    return trace.logits


def predicted_target(trace: Trace, name: str, method: str) -> Target:
    """Return the model's prediction: the most probable class, next token, or token at the first mask."""
    logits = logits_of(trace, name, method)
    best = trace.predictions(1)
    if best and trace.answer.title == ANSWER_SPAN:
        first, last = divmod(best[0].id, len(logits))
        return answer_target(trace, (first, last + 1), name, method)
    if logits.dim() == CLASSES:
        return class_target(trace, int(logits.argmax()) if not best else best[0].id, name, method)
    if not best:
        predicted, row = _rows_of(trace)
        masked = " and no position is masked;" if (predicted, row) == ("a token", "position") else ""
        raise ValueError(
            f"{name} must be named: this model predicts {predicted} at every {row},{masked} "
            f"{name}=aw.targets.token({predicted.split()[1]}, position=...), positions 0 to "
            f"{len(logits) - 1}."
        )
    return token_target(trace, best[0].id, None, name, method)


def class_target(
    trace: Trace, value: str | int, name: str, method: str, *, position: int | None = None
) -> Target:
    """Return the logit of a class, by name or index; by default at the token where it is most probable."""
    logits = logits_of(trace, name, method)
    if logits.dim() != CLASSES and trace.answer.names:
        if position is not None:
            return token_target(trace, value, position, name, method)
        return _where_most_probable(trace, value, name, method)
    if position is not None:
        raise ValueError(
            f"{name}: this model classifies a whole input, so that its classes have no position."
        )
    if logits.dim() != CLASSES:
        raise ValueError(f"{name}: this model predicts tokens, not classes; use aw.targets.token(...).")
    labels = class_names(trace)
    if isinstance(value, str):
        value = _numbered(value, labels, name)
    if not 0 <= value < len(labels):
        raise IndexError(f"{name} {value} is out of range: the classes are 0 to {len(labels) - 1}.")
    title = "similarity" if compares(trace) else trace.answer.title or "class"
    reading = trace.answer.reading
    label = _told_apart(trace, labels[value], value, str(value))
    return Target(label, title, lambda outputs: head_of(outputs)[:, value], None, value, reading=reading)


def _where_most_probable(trace: Trace, value: str | int, name: str, method: str) -> Target:
    """Return the logit of a class at the token that is most probably of this class."""
    logits, column = logits_of(trace, name, method), _column(trace, value, name)
    units = trace.axes("decoder" if "decoder" in trace.stacks else None)[0].units
    special = next(iter(units.values())).special
    is_text = trace.answer.rows == "token" and len(special) == len(logits)
    rows = [row for row in range(len(logits)) if not (is_text and special[row])]
    shares = trace.answer.probabilities(logits.double())[:, column]
    row = max(rows, key=lambda row: float(shares[row]), default=0)
    target = token_target(trace, column, row, name, method)
    return replace(
        target, note=f"{target.label} at {row}, where it is most probable ({float(shares[row]):.2g})"
    )


def _numbered(value: str, labels: Sequence[str], name: str) -> int:
    """Return the number of a class that is named; case counts only where names differ by nothing else."""
    folded = [label.casefold() for label in labels]
    if labels.count(value) == 1:
        return labels.index(value)
    if value not in labels and folded.count(value.casefold()) == 1:
        return folded.index(value.casefold())
    more = "" if len(labels) <= _SHOWN else f", ... ({len(labels)} in all)"
    raise ValueError(
        f"{name} {value!r} is not a class; the classes are {listed(labels[:_SHOWN])}{more}."
        f"{suggest(value, labels)}"
    )


def class_names(trace: Trace) -> tuple[str, ...]:
    """Return the names of a classifier's classes, by index; () for another model."""
    if trace.logits is None or trace.logits.dim() != CLASSES:
        return ()
    return (trace.axes("text")[0].text,) if compares(trace) else trace.answer.names


def compares(trace: Trace) -> bool:
    """Return whether a model compares a picture with a caption, as CLIP does."""
    return trace.logits is not None and len(trace.logits) == 1 and {"text", "vision"} <= set(trace.stacks)


def head_of(outputs: Any) -> Tensor:
    """Return the logits of a batch, of a model whose trace has some."""
    from attnwidgets.tracing.predictions import logits_in

    return cast("Tensor", logits_in(outputs))


def _rows_of(trace: Trace) -> tuple[str, str]:
    """Return the kind of answer of a row of the logits, and the name of a row: "a token", "position"."""
    rows = 0 if trace.logits is None else len(trace.logits)
    predicted = "a class" if trace.answer.names else "a token"
    for stack in trace.stacks:
        axis = trace.axes(stack)[0]
        if "frame" in axis.units and len(axis) == rows:
            return predicted, "frame"
    return predicted, "detection token" if trace.answer.rows == "detection token" else "position"


def token_target(trace: Trace, value: str | int, position: int | None, name: str, method: str) -> Target:
    """Return the logit of a token, by string or id, in the row `position` or that of the prediction."""
    logits = logits_of(trace, name, method)
    if logits.dim() != TOKENS:
        raise ValueError(f"{name}: this model predicts classes, not tokens; use aw.targets.label(...).")
    n_rows, n_words = logits.shape
    names = trace.answer.names
    index = _column(trace, value, name)
    if not 0 <= index < n_words:
        indexed = "classes" if names else "token ids"
        raise IndexError(f"{name} {index} is out of range: the {indexed} are 0 to {n_words - 1}.")
    title = trace.predictions_title
    if position is None:
        row = _predicted_row(trace, n_rows, name)
    elif -n_rows <= position < n_rows:
        row = position % n_rows
        if row != _predicted_row(trace, n_rows, None):
            title = f"{'class' if names else 'token'} at {row}"
    else:
        raise IndexError(f"{name}: position {position} is out of range: the positions are 0 to {n_rows - 1}.")

    note = _spelling_note(trace, value, index, row, name) if isinstance(value, str) and not names else ""
    title = title or f"{'class' if names else 'token'} at {row}"
    label = names[index] if names else spell(trace, index)
    predicted = _predicted_row(trace, n_rows, None)
    if row == predicted:
        label = _told_apart(trace, label, index, str(index))
    elif predicted >= 0 and trace.predictions_title != "next token":  # those follow each other in a text
        label = f"{label} at {row}"
    reading = trace.answer.reading
    return Target(
        label, title, lambda outputs: head_of(outputs)[:, row, index], row, index, note=note, reading=reading
    )


def _column(trace: Trace, value: str | int, name: str) -> int:
    """Return the number of a class or the id of a token that is named."""
    if isinstance(value, int):
        return value
    names = trace.answer.names
    return _numbered(value, names, name) if names else token_id(trace, value, name)


def _spelling_note(trace: Trace, text: str, index: int, row: int, name: str) -> str:
    """Return a note if a token is far more probable with, or without, a space before it; else ""."""
    respelled = text[1:] if text.startswith(" ") else f" {text}"
    ids = _ids(tokenizer_of(trace), respelled)
    if len(ids) != 1 or ids[0] == index or trace.logits is None:
        return ""
    share, other_share = trace.logits[row].double().softmax(-1)[[index, ids[0]]].tolist()
    if not other_share >= FAR * share:
        return ""
    how = "without" if text.startswith(" ") else "with"
    return (
        f"{name} {text!r} has probability {share:.2g}, and {respelled!r}, {how} the space before it, "
        f"{other_share:.2g}: "
        f"name {respelled!r} if you mean that token"
    )


def _predicted_row(trace: Trace, n_rows: int, name: str | None) -> int:
    """Return the row of the logits that the trace's predictions come from; -1 if unknown and unnamed."""
    if trace.answer.row is not None:
        return trace.answer.row % n_rows
    if name is None:
        return -1
    predicted, row = _rows_of(trace)
    masked = (predicted, row) == ("a token", "position")
    rows = "every one, and none is masked" if masked else f"every {row}"
    raise ValueError(
        f"{name}: which position? This model predicts {predicted} at {rows}; "
        f"aw.targets.token({predicted.split()[1]}, position=...)."
    )


def tokenizer_of(trace: Trace) -> Any:
    """Return the tokenizer of a trace (or of its processor); None if there is none."""
    from attnwidgets.tracing.recording.inputs import text_tokenizer

    return text_tokenizer(trace.tokenizer)


def token_id(trace: Trace, text: str, name: str) -> int:
    """Return the id of a string that is a single token; at the start of a word without a leading space."""
    from attnwidgets.tracing.recording.inputs import display_tokens

    tokenizer = tokenizer_of(trace)
    if tokenizer is None:
        raise ValueError(f"{name} {text!r}: this trace has no tokenizer; name the token by its id.")
    if text in getattr(tokenizer, "all_special_tokens", ()):
        special = tokenizer.convert_tokens_to_ids(text)
        if isinstance(special, int):
            return special
    ids = _ids(tokenizer, text)
    if len(ids) == 1 and ids[0] != getattr(tokenizer, "unk_token_id", None):
        return ids[0]
    if len(ids) == 1:
        raise ValueError(
            f"{name} {text!r} is not in this model's vocabulary: its tokenizer reads it as "
            f"{tokenizer.unk_token!r}; name another token, or that one."
        )
    if not ids:
        raise ValueError(f"{name} {text!r} is not a token; name one by its string or id.")
    pieces = " + ".join(repr(piece) for piece in display_tokens(tokenizer, ids))
    raise ValueError(
        f"{name} {text!r} is {len(ids)} tokens for this model, {pieces}, and a target is one; name one of "
        f"them, as {name}={ids[0]}. Words inside a text often begin with a space."
    )


def _ids(tokenizer: Any, text: str) -> list[int]:
    """Return the ids of a text, without special tokens around it."""
    from attnwidgets.tracing.recording.loading import own_tokenizer

    ids = own_tokenizer(tokenizer)(well_formed(text), add_special_tokens=False)["input_ids"]
    return [int(i) for i in ids]


def spell(trace: Trace, index: int) -> str:
    """Return the display string of a token id."""
    from attnwidgets.tracing.predictions import spelled

    return spelled(tokenizer_of(trace), index)


def span_target(trace: Trace, bounds: tuple[int, int], name: str, method: str) -> Target:
    """Return the log-probability of the tokens from bounds[0] up to bounds[1]."""
    start, stop = bounds
    logits = logits_of(trace, name, method)
    generates = trace.predictions_title == "next token"
    if logits.dim() != TOKENS or not generates:
        raise ValueError(
            f"{name}: spans have a probability only in language models that predict the next token."
        )
    ids = trace.inputs.get("decoder_input_ids")
    ids = trace.input_ids if ids is None else ids[0]
    count = 0 if ids is None else len(ids)
    if ids is None or not 1 <= start < stop <= count:
        raise IndexError(
            f"{name}: span({start}, {stop}) is not in the text: a span starts at 1 or later (token 0 has "
            f"nothing before it), stops at {count} or earlier, and holds a token."
        )
    chosen = ids[start:stop].tolist()

    def score(outputs: Any) -> Tensor:
        import torch

        from attnwidgets._tensors import widened

        log_p = torch.log_softmax(widened(head_of(outputs)[:, start - 1 : stop - 1]), dim=-1)
        index = torch.tensor(chosen, device=log_p.device).expand(len(log_p), -1).unsqueeze(-1)
        return log_p.gather(-1, index).squeeze(-1).sum(-1)

    text = "".join(spell(trace, token) for token in chosen)
    return Target(f"log p({text})", f"span {start} to {stop - 1}", score)


def answer_target(trace: Trace, bounds: tuple[int, int], name: str, method: str) -> Target:
    """Return the sum of the logits of an extractive answer: of its first token as start, its last as end."""
    start, stop = bounds
    logits = logits_of(trace, name, method)
    if trace.answer.title != ANSWER_SPAN:
        predicted = trace.predictions_title or " at every ".join(_rows_of(trace))
        raise ValueError(f"{name}: this model finds no answers in a text; it predicts {predicted}.")
    if not 0 <= start < stop <= len(logits):
        raise IndexError(
            f"{name}: answer({start}, {stop}) is not in the text of {len(logits)} tokens, counted from 0, "
            "where the stop is one past the answer's last token."
        )

    def score(outputs: Any) -> Tensor:
        span_logits = head_of(outputs)
        return span_logits[:, start, 0] + span_logits[:, stop - 1, 1]

    from attnwidgets.tracing.predictions import spelled_span

    label = spelled_span(tokenizer_of(trace), trace.input_ids, start, stop - 1)
    where = f"token {start}" if stop == start + 1 else f"tokens {start} to {stop - 1}"
    label = _told_apart(trace, label, start * len(logits) + stop - 1, where)
    return Target(label, ANSWER_SPAN, score)


def _told_apart(trace: Trace, label: str, outcome: int, number: str) -> str:
    """Return an outcome's label, with its number if a more probable outcome has the same label."""
    from attnwidgets.tracing.predictions import MOST

    same = [prediction.id for prediction in trace.predictions(MOST) if prediction.name == label]
    return f"{label} ({number})" if same and same[0] != outcome else label


def embedding_target(trace: Trace, vector: Sequence[float] | None, position: int | None, name: str) -> Target:
    """Return the length of a last hidden state, or its dot product with `vector`, at a token or averaged."""
    last_stack = "decoder" if "decoder" in trace.stacks else trace.default_stack
    n_tokens = len(trace.axes(last_stack)[0])
    if position is not None and not -n_tokens <= position < n_tokens:
        raise IndexError(f"{name}: position {position} is out of range: the tokens are 0 to {n_tokens - 1}.")
    row = None if position is None else position % n_tokens

    def state(outputs: Any) -> Tensor:
        states: Tensor = last_hidden_state(outputs)
        return states.mean(dim=1) if row is None else states[:, row]

    where = "the mean over tokens" if row is None else f"token {row}"
    if vector is None:
        return Target(
            f"length of {where}", "embedding", lambda out: state(out).norm(dim=-1), reads=(HIDDEN_STATES,)
        )
    direction = [float(number) for number in vector]

    def dot(outputs: Any) -> Tensor:
        states = state(outputs)
        if states.shape[-1] != len(direction):
            raise ValueError(
                f"{name}: the vector has {len(direction)} numbers, the states {states.shape[-1]}."
            )
        return states @ states.new_tensor(direction)

    return Target(f"dot product with {where}", "embedding", dot, reads=(HIDDEN_STATES,))


def function_target(score: Callable[[Any], Tensor], label: str, name: str) -> Target:
    """Return a user's function of the outputs as a target; its results are checked."""

    def checked(outputs: Any) -> Tensor:
        from torch import Tensor

        from attnwidgets.tracing.recording.returned import main_output

        scores = score(outputs)
        rule = (
            "a target's function takes the model's outputs and returns a tensor with one number for every "
            "input of a batch, [batch], as in lambda outputs: outputs.logits[:, -1, 7]."
        )
        if not isinstance(scores, Tensor) or not scores.is_floating_point():
            returned = (
                f"{scores.dtype} numbers" if isinstance(scores, Tensor) else f"a {type(scores).__name__}"
            )
            raise TypeError(f"{name} {label!r} returned {returned}; {rule}")
        main = main_output(outputs)
        count = scores.numel() if main is None else len(main)
        if scores.numel() != count:
            raise ValueError(f"{name} {label!r} returned {list(scores.shape)} for a batch of {count}; {rule}")
        return scores.reshape(count)

    return Target(label, "function", checked)


def last_hidden_state(outputs: Any) -> Tensor:
    """Return the last hidden state [batch, token, dim] of a model's outputs, or of its decoder's.

    Raises:
        ValueError: If the outputs hold none.
    """
    for attribute in ("last_hidden_state", "decoder_hidden_states", "hidden_states"):
        states = getattr(outputs, attribute, None)
        if states is not None:
            return states[-1] if isinstance(states, Sequence) else states
    raise ValueError("the model's outputs hold no hidden states; run it with output_hidden_states=True.")
