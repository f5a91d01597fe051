"""The numbers a model returns that can be explained: a class, a token, a span, an embedding."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from attnwidgets._errors import suggest
from attnwidgets.tracing.text.display import well_formed

if TYPE_CHECKING:
    from torch import Tensor

    from attnwidgets.tracing.trace import Trace

TOKENS, CLASSES = 2, 1
"""Dimensions of logits [token, vocabulary] and [class]."""

FAR = 10
"""How many times as probable another spelling of a named token must be for a note to name it."""

_SHOWN = 12  # class names an error lists


@dataclass(frozen=True)
class Target:
    """One number a model returns for an input.

    Attributes:
        label: What it is called: "positive", " Paris".
        title: What kind of thing that is: "class", "next token", "[MASK] at 6", "span", "embedding".
        score: Takes the model's outputs for a batch and returns the number of each input [batch],
            differentiably.
        position: Row of logits [token, vocabulary]; None for [class], and where no logit is meant.
        index: Column of the logits; None where the number is not one logit.
        hidden_states: Whether `score` reads the outputs' last hidden state.
        note: What a reader should know of how it was named, or "".
    """

    label: str
    title: str
    score: Callable[[Any], Tensor]
    position: int | None = None
    index: int | None = None
    hidden_states: bool = False
    note: str = ""


def logits_of(trace: Trace, name: str, method: str) -> Tensor:
    """Return a trace's logits; ValueError, with what can be named instead, where it has none."""
    if trace.logits is None and trace.model is None:
        raise ValueError(
            f"{method} needs a {name}, and these numbers were given without a model, so that nothing was "
            "predicted; aw.trace(model, tokenizer, text) records one."
        )
    if trace.logits is None:
        raise ValueError(
            f"{method} needs a {name}, and {trace.model_id or 'this model'} returns no logits: it has no "
            "head. Name a number of its last hidden state, as aw.targets.embedding_norm(position), "
            "aw.targets.embedding_dot(vector, position) or a function of the outputs, or load the model with "
            "a head (AutoModelForSequenceClassification, AutoModelForCausalLM, ...)."
        )
    return trace.logits


def predicted(trace: Trace, name: str, method: str) -> Target:
    """Return what the model predicts: the most probable class, next token, or token at the first mask."""
    logits = logits_of(trace, name, method)
    best = trace.predictions(1)
    if logits.dim() == CLASSES:
        return class_target(trace, int(logits.argmax()) if not best else best[0].id, name, method)
    if not best:
        raise ValueError(
            f"{name} must be named: this model predicts a token at every position, and there is no mask "
            f"among them; {name}=aw.targets.token(token, position=...), positions 0 to {len(logits) - 1}."
        )
    return token_target(trace, best[0].id, None, name, method)


def class_target(trace: Trace, value: str | int, name: str, method: str) -> Target:
    """Return the logit of a class, by name or index."""
    logits = logits_of(trace, name, method)
    if logits.dim() != CLASSES:
        raise ValueError(f"{name}: this model predicts tokens, not classes; use aw.targets.token(...).")
    labels = class_names(trace)
    if isinstance(value, str):
        folded = [known.casefold() for known in labels]
        matches = [i for i, known in enumerate(labels) if known == value] or [
            i for i, known in enumerate(folded) if known == value.casefold()
        ]
        if len(matches) != 1:
            listed = ", ".join(repr(known) for known in labels[:_SHOWN])
            more = "" if len(labels) <= _SHOWN else f", ... ({len(labels)} in all)"
            raise ValueError(
                f"{name} {value!r} is not a class; there is {listed}{more}.{suggest(value, labels)}"
            )
        value = matches[0]
    if not 0 <= value < len(labels):
        raise IndexError(f"{name} {value} is out of range: the classes are 0 to {len(labels) - 1}.")
    index = value

    def score(outputs: Any) -> Tensor:
        return outputs.logits[:, index]

    return Target(labels[index], "class", score, None, index)


def class_names(trace: Trace) -> tuple[str, ...]:
    """Return the names of the classes of a model that classifies, by index; () of another."""
    logits = trace.logits
    if logits is None or logits.dim() != CLASSES:
        return ()
    names = getattr(getattr(trace.model, "config", None), "id2label", None) or {}
    given: tuple[str, ...] = getattr(trace, "output_names", ())
    return given or tuple(str(names.get(index, index)) for index in range(len(logits)))


def token_target(trace: Trace, value: str | int, position: int | None, name: str, method: str) -> Target:
    """Return the logit of a token, by string or id, in the row `position` or the usual one."""
    logits = logits_of(trace, name, method)
    if logits.dim() != TOKENS:
        raise ValueError(f"{name}: this model predicts classes, not tokens; use aw.targets.label(...).")
    n_rows, n_words = logits.shape
    index = token_id(trace, value, name) if isinstance(value, str) else value
    if not 0 <= index < n_words:
        raise IndexError(f"{name} {index} is out of range: the token ids are 0 to {n_words - 1}.")
    title = trace.predictions_title
    if position is None:
        row = _usual_row(trace, n_rows, name)
    elif -n_rows <= position < n_rows:
        row = position % n_rows
        if row != _usual_row(trace, n_rows, None):
            title = f"token at {row}"
    else:
        raise IndexError(f"{name}: position {position} is out of range: the positions are 0 to {n_rows - 1}.")

    def score(outputs: Any) -> Tensor:
        # A model may be asked for its last rows only, or pad: rows are counted from the start of the input.
        return outputs.logits[:, row, index]

    note = _spelling_note(trace, value, index, row, name) if isinstance(value, str) else ""
    return Target(spell(trace, index), title or f"token at {row}", score, row, index, note=note)


def _spelling_note(trace: Trace, text: str, index: int, row: int, name: str) -> str:
    """Return what to say where a token is far likelier with, or without, a space before it than as named."""
    other = text[1:] if text.startswith(" ") else f" {text}"
    ids = _ids(tokenizer_of(trace), other)
    if len(ids) != 1 or ids[0] == index or trace.logits is None:
        return ""
    given, twin = trace.logits[row].double().softmax(-1)[[index, ids[0]]].tolist()
    if not twin >= FAR * given:
        return ""
    how = "without" if text.startswith(" ") else "with"
    return (
        f"{name} {text!r} has probability {given:.2g}, and {other!r}, {how} the space before it, {twin:.2g}: "
        f"name {other!r} if you mean that token"
    )


def _usual_row(trace: Trace, n_rows: int, name: str | None) -> int:
    """Return the row of the logits that the trace's predictions are about."""
    if trace.predictions_title == "next token":
        return n_rows - 1
    mask = getattr(tokenizer_of(trace), "mask_token_id", None)
    ids = trace.input_ids
    if isinstance(mask, int) and ids is not None and len(ids) == n_rows and bool((ids == mask).any()):
        return int((ids == mask).nonzero()[0])
    if name is None:
        return -1
    raise ValueError(
        f"{name}: which position? This model predicts a token at every one, and there is no mask among them; "
        "aw.targets.token(token, position=...)."
    )


def tokenizer_of(trace: Trace) -> Any:
    """Return the tokenizer of a trace, its processor's where it has one; None without."""
    from attnwidgets.tracing.recording.inputs import text_tokenizer

    return text_tokenizer(trace.tokenizer)


def token_id(trace: Trace, text: str, name: str) -> int:
    """Return the id of a string that is one token, at the start of a word where it has no leading space."""
    from attnwidgets.tracing.recording.inputs import display_tokens

    tokenizer = tokenizer_of(trace)
    if tokenizer is None:
        raise ValueError(f"{name} {text!r}: this trace has no tokenizer; name the token by its id.")
    known = (
        tokenizer.convert_tokens_to_ids(text)
        if text in getattr(tokenizer, "all_special_tokens", ())
        else None
    )
    if isinstance(known, int):
        return known
    ids = _ids(tokenizer, text)
    if len(ids) == 1 and ids[0] != getattr(tokenizer, "unk_token_id", None):
        return ids[0]
    if len(ids) == 1:
        raise ValueError(
            f"{name} {text!r} is not in this model's vocabulary: its tokenizer reads it as "
            f"{tokenizer.unk_token!r}; name another token, or that one."
        )
    if not ids:
        raise ValueError(f"{name} {text!r} is no token at all; name one by its string or id.")
    pieces = " + ".join(repr(piece) for piece in display_tokens(tokenizer, ids))
    raise ValueError(
        f"{name} {text!r} is {len(ids)} tokens for this model, {pieces}, and a target is one; name one of "
        f"them, as {name}={ids[0]}. Words inside a text often begin with a space."
    )


def _ids(tokenizer: Any, text: str) -> list[int]:
    """Return the ids of a text as it stands, without special tokens around it."""
    from attnwidgets.tracing.recording.borrow import own_tokenizer

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
            f"{name}: a span's probability is that of a language model that predicts the next token."
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

        from attnwidgets.tracing.precision import widened

        log_p = torch.log_softmax(widened(outputs.logits[:, start - 1 : stop - 1]), dim=-1)
        index = torch.tensor(chosen, device=log_p.device).expand(len(log_p), -1).unsqueeze(-1)
        return log_p.gather(-1, index).squeeze(-1).sum(-1)

    text = "".join(spell(trace, one) for one in chosen)
    return Target(f"log p({text})", f"span {start} to {stop - 1}", score)


def embedding_target(trace: Trace, vector: Sequence[float] | None, position: int | None, name: str) -> Target:
    """Return the length of a last hidden state, or its dot product with `vector`, at a token or averaged."""
    n_tokens = len(trace.axes(_last_stack(trace))[0])
    if position is not None and not -n_tokens <= position < n_tokens:
        raise IndexError(f"{name}: position {position} is out of range: the tokens are 0 to {n_tokens - 1}.")
    row = None if position is None else position % n_tokens

    def state(outputs: Any) -> Tensor:
        found: Tensor = last_hidden_state(outputs)
        return found.mean(dim=1) if row is None else found[:, row]

    where = "the mean over tokens" if row is None else f"token {row}"
    if vector is None:
        return Target(
            f"length of {where}", "embedding", lambda out: state(out).norm(dim=-1), hidden_states=True
        )
    direction = [float(number) for number in vector]

    def dot(outputs: Any) -> Tensor:
        found = state(outputs)
        if found.shape[-1] != len(direction):
            raise ValueError(
                f"{name}: the vector has {len(direction)} numbers, the states {found.shape[-1]}."
            )
        return found @ found.new_tensor(direction)

    return Target(f"dot product with {where}", "embedding", dot, hidden_states=True)


def function_target(score: Callable[[Any], Tensor], label: str, name: str) -> Target:
    """Return a user's function of the outputs as a target; what it returns is checked."""

    def checked(outputs: Any) -> Tensor:
        from torch import Tensor

        from attnwidgets.tracing.recording.recorder import main_output

        found = score(outputs)
        wanted = (
            "a target's function takes the model's outputs and returns a tensor with one number for every "
            "input of a batch, [batch], as in lambda outputs: outputs.logits[:, -1, 7]."
        )
        if not isinstance(found, Tensor) or not found.is_floating_point():
            what = f"{found.dtype} numbers" if isinstance(found, Tensor) else f"a {type(found).__name__}"
            raise TypeError(f"{name} {label!r} returned {what}; {wanted}")
        main = main_output(outputs)
        count = found.numel() if main is None else len(main)
        if found.numel() != count:
            raise ValueError(
                f"{name} {label!r} returned {list(found.shape)} for a batch of {count}; {wanted}"
            )
        return found.reshape(count)

    return Target(label, "function", checked)


def _last_stack(trace: Trace) -> str:
    return "decoder" if "decoder" in trace.stacks else trace.default_stack


def last_hidden_state(outputs: Any) -> Tensor:
    """Return the last hidden state [batch, token, dim] of a model's outputs, its decoder's where it has one.

    Raises:
        ValueError: Where the outputs hold none.
    """
    for attribute in ("last_hidden_state", "decoder_hidden_states", "hidden_states"):
        found = getattr(outputs, attribute, None)
        if found is not None:
            return found[-1] if isinstance(found, Sequence) else found
    raise ValueError("the model's outputs hold no hidden states; run it with output_hidden_states=True.")
