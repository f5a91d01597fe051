"""aw.from_attentions: attention weights from any source as a trace for every view and most methods.

`stacks_of` (`attention_sources.py`) or `read_attention` (`attention_files.py`) returns the weights of each
stack, `_read` their layers [head, query, key], and `_axis` labels queries and keys.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets._errors import suggests_keywords
from attnwidgets._tensors import as_array, as_tensor, is_tensor, kept_dtype
from attnwidgets.tracing.attention_files import FileLayer, read_attention
from attnwidgets.tracing.attention_sources import OUTPUTS, stacks_of
from attnwidgets.tracing.free_memory import byte_budget
from attnwidgets.tracing.layers import GivenLayer, Stack
from attnwidgets.tracing.recording.inputs import id_rows, text_tokenizer
from attnwidgets.tracing.recording.loading import own_tokenizer
from attnwidgets.tracing.text.axes import Text, numbered
from attnwidgets.tracing.text.display import display, pieces_of, reassemble, scheme_of, well_formed
from attnwidgets.tracing.text.units import TokenAxis, Unit
from attnwidgets.tracing.text.words import STANDARD, require_rule, unit_from_ids
from attnwidgets.tracing.trace import Trace

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from attnwidgets.tracing.layers import Layer
    from attnwidgets.tracing.rerun_trace import GivenModel, Rerun

# Dimensions of (query, key), (head, query, key), (layer or 1, head, query, key), (layer, 1, head, query,
# key).
MATRIX, LAYER, LAYERS, BATCHED = 2, 3, 4, 5
SHAPES = (
    "(layer, head, query, key), (layer, 1, head, query, key), (head, query, key), (query, key), (key,), "
    "a list or tuple with one array per layer, "
    "or what generate(..., return_dict_in_generate=True) returned"
)
_SDPA = (
    "The model was loaded with sdpa attention, which returns no weights. Let aw.trace(model, tokenizer, text)"
    ' record them (it works with any loading), or load the model with attn_implementation="eager".'
)
_LAST = (
    "If it is outputs[-1]: in transformers 5 that is cross_attentions, which most models do not have; "
    "pass outputs.attentions. Otherwise:"
)
_SPECIAL = frozenset(["[CLS]", "[SEP]", "[PAD]", "<s>", "</s>", "<pad>", "<bos>", "<eos>"])  # and "<|...|>"


class GivenTrace(Trace):
    """A trace of given numbers, without a model; methods that need one say so.

    Attributes:
        reruns: The user's model as a function, if `rerun=` was given.
        output_names: Names of its classes.
    """

    reruns: GivenModel | None = None
    output_names: tuple[str, ...] = ()

    def is_signed(self, stack: str | None = None) -> bool:
        """Return whether any weight is negative."""
        return any(bool((self.layer_array(layer, stack) < 0).any()) for layer in self.layers(stack))


@suggests_keywords
def from_attentions(
    attentions: Any,
    tokens: Sequence[str] | None = None,
    *,
    query_tokens: Sequence[str] | None = None,
    key_tokens: Sequence[str] | None = None,
    words: str | Sequence[int | None] | Sequence[Sequence[int]] | None = None,
    boundary: int | None = None,
    second_text: int | None = None,
    model_id: str = "",
    memory: str | int = "1GB",
    rerun: Rerun | None = None,
    classes: Sequence[str] | None = None,
) -> GivenTrace:
    """Return given attention weights as a trace.

    Args:
        attentions: (layer, head, query, key), (layer, 1, head, query, key), (head, query, key), a matrix
            (query, key), a vector (key,); torch, numpy or lists; a tuple with one array per layer; a model's
            output object; a mapping of stacks ("encoder", "decoder", "cross") to any of these; a
            TransformerLens cache, whose `hook_pattern`s are read layer by layer and whose other hooks are
            ignored; an nnsight cache of modules, run with eager attention; the nested tuples of `generate()`,
            whose steps are joined; or the path of saved attention, safetensors and JSON, whose layers are
            read when they are needed (docs/file_layout.md). Numbers in float64, as Python's floats are, stay
            in it; all others become float32.
        tokens: Labels of both sides. Saved attention has labels, which these replace.
        query_tokens: Labels of the rows, if they differ from the columns' (an output sentence).
        key_tokens: Labels of the columns (an input sentence).
        words: The word of each token, as in `encoding.word_ids()` (None stands alone), or a list of lists of
            token indices. Or the rule that splits the text into words; see `aw.trace`.
        boundary: Index of the first generated token.
        second_text: Index of the first token of the second text of a pair.
        model_id: A name to show.
        memory: Bytes of attention weights that the trace may keep; see `aw.trace`.
        rerun: A function that runs your model on this input again, `rerun(weights, kept)`, and returns its
            logits as a torch tensor, [class] or [token, vocabulary]. `weights` is a tensor like the given
            attention [layer, head, query, key], to be used instead of the model's, or None; `kept` is a
            tensor [key], 1 for tokens that stay and 0 for those to be removed, or None. With it metrics
            of `aw.evaluate` that permute attention or remove tokens work on any model. Multiply embeddings by
            `kept` as well, and gradients reach the tokens.
        classes: Names of the classes whose logits `rerun` returns.

    Raises:
        ValueError: For an unsupported shape (the message lists the supported ones), empty or missing weights
            (says why), NaN or infinity (says where), a number of tokens that does not fit, a mapping with an
            unknown name, a cache or file without some layer (named), or a damaged file. If `rerun` gives
            other logits with the given attention than with the model's, or attention of several stacks.
        FileNotFoundError: If the file or folder does not exist.
        TypeError: For an unknown keyword (names the nearest), labels that are not a list, or a `rerun` that
            is not a function or does not return a tensor.

    Example:
        >>> weights = np.tril(np.ones((2, 4, 3, 3)))  # layer, head, query, key
        >>> trace = aw.from_attentions(weights / weights.sum(-1, keepdims=True), ["The", "cat", "sat"])
        >>> trace
        <GivenTrace [layer 2, head 4] of 3 tokens; 'The cat sat'>
        >>> aw.rollout(trace).shape
        (2, 3, 3)
    """
    if classes is not None and rerun is None:
        raise ValueError("classes name the logits that rerun returns; give rerun, or leave them out.")
    if isinstance(words, str):
        require_rule(words)
    trace = _without_rerun(
        attentions,
        tokens,
        query_tokens=query_tokens,
        key_tokens=key_tokens,
        words=words,
        boundary=boundary,
        second_text=second_text,
        model_id=model_id,
        memory=memory,
    )
    if rerun is None:
        return trace
    from attnwidgets.tracing.rerun_trace import with_rerun

    return with_rerun(trace, rerun, classes)


def _without_rerun(
    attentions: Any,
    tokens: Sequence[str] | None,
    *,
    query_tokens: Sequence[str] | None,
    key_tokens: Sequence[str] | None,
    words: Any,
    boundary: int | None,
    second_text: int | None,
    model_id: str,
    memory: str | int,
) -> GivenTrace:
    """Return given attention, from any source, as a trace."""
    if isinstance(attentions, (str, Path)):
        user_labels: dict[str, Any] = {
            "tokens": tokens,
            "query_tokens": query_tokens,
            "key_tokens": key_tokens,
            "words": words,
        }
        user_labels |= {"boundary": boundary, "second_text": second_text, "model_id": model_id or None}
        return _from_file(Path(attentions), {n: v for n, v in user_labels.items() if v is not None}, memory)
    sources = stacks_of(attentions, _SDPA)
    _require_lists(tokens=tokens, query_tokens=query_tokens, key_tokens=key_tokens)
    first, second = query_tokens or tokens, key_tokens or tokens
    table = {}
    warning = ""
    for stack, values in sources.items():
        read = _read(values, OUTPUTS[stack])
        row_labels, column_labels = {"encoder": (second, second), "decoder": (first, first)}.get(
            stack, (first, second)
        )
        (queries, keys), *others = {layer.shape[1:]: None for layer in read.layers}
        if others:
            raise ValueError(
                f"{OUTPUTS[stack]} differ in size from layer to layer: {queries} queries and {keys} keys, "
                f"then {others[0][0]} and {others[0][1]}"
            )
        if read.steps and row_labels is not None and len(row_labels) == queries + 1:
            warning = "the last generated token was never read by the model, so it has no row"
            row_labels = row_labels[:-1]
            column_labels = row_labels if column_labels is first and keys == queries else column_labels
        start = read.boundary if boundary is None else boundary
        argument = "query_tokens" if query_tokens else "tokens"
        key = query = _axis(row_labels, queries, argument, words, start, second_text)
        alike = row_labels is column_labels or list(row_labels or ()) == list(column_labels or ())
        if keys != queries or not alike:
            vector = queries == 1 and row_labels is tokens and query_tokens is None
            argument = "key_tokens" if key_tokens and not vector else "tokens"
            key = _axis(column_labels, keys, argument, words, start, second_text)
        table[stack] = Stack(tuple(read.layers), query, key)
    longest = max((len(stack.query) for stack in table.values()), default=0)
    if boundary is not None and not _is_index(boundary, longest + 1):
        raise ValueError(f"boundary is {boundary!r}; the first generated token is at 0 to {longest}")
    return GivenTrace(table, model_id=well_formed(str(model_id)), warning=warning, memory=byte_budget(memory))


def _from_file(path: Path, user_labels: dict[str, Any], memory: str | int) -> GivenTrace:
    """Return saved attention as a trace; the user's labels replace the saved labels."""
    saved = read_attention(path)
    labels = {name: value for name, value in saved.labels.items() if name not in ("about", "input_ids")}
    tokens = ("tokens", "query_tokens", "key_tokens")
    if any(name in user_labels for name in tokens):
        labels = {name: value for name, value in labels.items() if name not in tokens}
    trace = from_attentions(saved.stacks, **{**labels, **user_labels}, memory=memory)
    ids = saved.labels.get("input_ids")
    if ids is not None:
        side = trace.axes("cross")[1] if "cross" in trace.stacks else trace.axes()[0]
        if len(ids) != len(side):
            raise ValueError(
                f"input_ids in {str(path)!r} has {len(ids)} entries, and the attention {len(side)}"
            )
        trace.input_ids = as_tensor(np.array(ids, dtype=np.int64))
    return trace


def labels_of(tokenizer: Any, text: Any) -> list[str] | None:
    """Return labels for given attention: a text's tokens, ids as tokens, or a list of strings as it is.

    Raises:
        ValueError: If a text or ids are passed without a tokenizer.
    """
    is_text = isinstance(text, str)
    if text is None or not (is_text or _is_ids(text)):
        return text if text is None else list(text)
    reader = own_tokenizer(text_tokenizer(tokenizer))
    if reader is None:
        raise ValueError(
            "a text or ids label given attention by their tokenizer: give it, or the labels as tokens=[...]"
        )
    rows, _ = id_rows(reader(text)["input_ids"] if is_text else text)
    return [str(token) for token in reader.convert_ids_to_tokens(rows[0])]


def _is_ids(text: Any) -> bool:
    return not isinstance(text, Sequence) or (len(text) > 0 and not isinstance(text[0], str))


def _require_lists(**arguments: Any) -> None:
    """Raise a TypeError for labels that are not a list."""
    for name, labels in arguments.items():
        if labels is not None and (isinstance(labels, str) or not isinstance(labels, Iterable)):
            raise TypeError(f"{name} must be a list of strings, one for each token, not {labels!r:.80}")


@dataclass
class _Read:
    """Layers [head, query, key], whether they came as generation steps, and the index of the first step."""

    layers: Sequence[Layer]
    steps: bool = False
    boundary: int | None = None


def _floats(value: Any, where: str) -> NDArray[np.floating]:
    """Return anything array-like as an array: float64 if it is in it, else float32."""
    if value is None:
        raise ValueError(f"{where} is None. {_SDPA}")
    if getattr(value, "is_meta", False):
        raise ValueError(f"{where} is on the meta device, which keeps shapes but no numbers")
    try:
        if is_tensor(value):
            array = as_array(value)
            return _real(array).astype(kept_dtype(array.dtype), copy=False)
        # A copy, so that later changes to the user's array do not show.
        array = np.asarray(value.numpy() if hasattr(value, "numpy") else value)
        return np.array(_real(array), dtype=kept_dtype(array.dtype))
    except (TypeError, ValueError, RuntimeError) as error:
        raise ValueError(f"{where} is not a numeric array ({error}); accepted: {SHAPES}") from error


def _real(values: NDArray[Any]) -> NDArray[Any]:
    if values.dtype.kind in "cmM":
        raise ValueError(f"{values.dtype} numbers cannot be weights")
    return values


def _is_index(value: Any, count: int) -> bool:
    return isinstance(value, (int, np.integer)) and 0 <= int(value) < count


def _is_list(value: object) -> bool:
    return isinstance(value, (tuple, list))


def _is_array(value: object) -> bool:
    return hasattr(value, "shape") and hasattr(value, "__array__")


def _refuse_missing(values: Any, where: str) -> None:
    """Raise a helpful error for missing weights: (), (None, ...) or either as the first entry."""
    for at, part in ((where, values), *([(f"{where}[0]", values[0])] if _is_list(values) and values else ())):
        if _is_list(part) and not part:
            raise ValueError(f"{at} is empty: (). {_LAST} {_SDPA}")
        if _is_list(part) and any(entry is None for entry in part):
            raise ValueError(f"{at} holds None. {_SDPA}")


def _read(values: Any, where: str) -> _Read:
    """Return the layers of a stack."""
    _refuse_missing(values, where)
    if _is_list(values):
        first = values[0]
        if isinstance(first, FileLayer):
            return _Read(list(values))
        if _is_list(first) and _is_array(first[0]):
            return _stitch(values, where)
        if _is_array(first):
            parts = [_floats(value, f"{where}[{i}]") for i, value in enumerate(values)]
            if {part.ndim for part in parts} in ({MATRIX}, {LAYER}, {LAYERS}):
                return _Read([_layer(part, f"{where}[{i}]", i) for i, part in enumerate(parts)])
    return _Read([_layer(layer, where, i) for i, layer in enumerate(_whole(_floats(values, where), where))])


def _whole(weights: NDArray[np.floating], where: str) -> NDArray[np.floating]:
    """Return an array as [layer, head, query, key]."""
    shape = tuple(weights.shape)
    if not weights.size:
        raise ValueError(f"{where} has shape {shape}: it is empty")
    if weights.ndim == 1:
        return weights.reshape(1, 1, 1, -1)
    if weights.ndim in (MATRIX, LAYER):
        return weights.reshape(1, -1, *shape[-2:])
    if weights.ndim == BATCHED:
        if shape[1] != 1:
            raise ValueError(
                f"{where} has shape {shape}: a batch of {shape[1]}. Pass one text, as attentions[:, i]"
            )
        weights = weights[:, 0]
    if weights.ndim != LAYERS:
        raise ValueError(f"{where} has shape {shape}; accepted: {SHAPES}")
    return weights


def _layer(weights: NDArray[np.floating], where: str, number: int) -> GivenLayer:
    """Return a checked layer of weights (1, head, query, key), (head, query, key) or (query, key)."""
    shape = tuple(weights.shape)
    if weights.ndim == LAYERS:
        if shape[0] != 1:
            raise ValueError(
                f"{where} has shape {shape}: a batch of {shape[0]}. Pass one text, as layer[i:i+1]"
            )
        weights = weights[0]
    elif weights.ndim == MATRIX:
        weights = weights[None]
    if weights.ndim != LAYER or not weights.size:
        raise ValueError(f"{where} has shape {shape}; accepted: {SHAPES}")
    bad = ~np.isfinite(weights)
    if bad.any():
        head, row, column = (int(i) for i in np.argwhere(bad)[0])
        value = float(weights[head, row, column])
        raise ValueError(
            f"attentions hold {value} at layer {number}, head {head}, query {row}, key {column} "
            f"({int(bad.sum())} such values in this layer); give finite numbers (a fully masked row is 0/0)"
        )
    return GivenLayer(weights)


def _stitch(steps: Sequence[Sequence[Any]], where: str) -> _Read:
    """Return the steps of a generation (step, layer, (batch, head, query, key)) as one matrix per layer."""
    count = len(steps[0])
    layers = []
    for number in range(count):
        rows = []
        for at, step in enumerate(steps):
            if len(step) != count:
                raise ValueError(f"{where}[{at}] has {len(step)} layers, and {where}[0] has {count}")
            part = _floats(step[number], f"{where}[{at}][{number}]")
            if part.ndim != LAYERS or part.shape[0] != 1:
                raise ValueError(
                    f"{where}[{at}][{number}] has shape {tuple(part.shape)}; a generation step must be "
                    "(1, head, query, key): one text, no beams"
                )
            rows.append(part[0])
        keys = max(part.shape[-1] for part in rows)
        padded = [np.pad(part, ((0, 0), (0, 0), (0, keys - part.shape[-1]))) for part in rows]
        whole = np.concatenate(padded, axis=1)
        layers.append(_layer(whole, where, number))
    several, prompt = len(steps) > 1, steps[0][0].shape[-2]
    return _Read(layers, steps=several, boundary=int(prompt) if several and prompt > 1 else None)


def _axis(
    labels: Sequence[str] | None,
    n: int,
    argument: str,
    words: Any,
    boundary: int | None,
    second: int | None = None,
) -> TokenAxis:
    """Return the axis of labels; words come from `words`, or else from the marks in tokens."""
    if labels is None:
        if words is None and second is None:
            return numbered(n)
        labels = numbered(n).tokens
    tokens = [str(label) for label in labels]
    if n == 1 and len(tokens) != 1:
        return TokenAxis.plain(["attention"])
    if len(tokens) != n:
        raise ValueError(f"{argument} has {len(tokens)} entries, and the attention has {n}")
    apart = tuple(t in _SPECIAL or (t.startswith("<|") and t.endswith("|>")) for t in tokens)
    scheme = scheme_of(None, [t for t, a in zip(tokens, apart, strict=True) if not a])
    pieces = pieces_of(tokens, apart, scheme)
    shown = display(pieces, scheme)
    if second is not None and not (_is_index(second, n) and second > 0):
        raise ValueError(f"second_text is {second!r}; the second text of {n} tokens begins at 1 to {n - 1}")
    segment = tuple(int(second is not None and i >= second) for i in range(n))
    if words is None or isinstance(words, str):
        parts = [pieces] if second is None else [pieces[:second], pieces[second:]]
        texts, spans = zip(*(reassemble(part) for part in parts), strict=True)
        flat = tuple(span for part in spans for span in part)
        return Text(shown, flat, apart, segment, texts, (None,) * len(texts), boundary).axis(
            words or STANDARD
        )
    ids = _word_ids(words, n)
    units = {
        "token": Unit("token", shown, tuple((i,) for i in range(n)), apart),
        "word": unit_from_ids("word", ids, tokens, apart),
    }
    return TokenAxis(shown, units, segment, boundary, " ".join(units["word"].labels))


def axis_of_tokens(tokens: Sequence[str]) -> TokenAxis:
    """Return the axis of tokens as a vocabulary spells them, with their words and sentences."""
    return _axis(tokens, len(tokens), "tokens", None, None)


def _word_ids(value: Any, n: int) -> list[int | None]:
    """Return the word of every token."""
    expected = "word numbers (encoding.word_ids()) or lists of token indices"
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise TypeError(f"words must be {expected}, not {value!r:.80}")
    words: list[Any] = [*value]
    if all(w is None or isinstance(w, (int, np.integer)) for w in words):
        if len(words) != n:
            raise ValueError(f"words has {len(words)} entries, and there are {n} tokens")
        return words
    ids: list[int | None] = [None] * n
    for number, span in enumerate(words):
        if isinstance(span, (str, bytes)) or not isinstance(span, Iterable):
            raise TypeError(f"words must be {expected}; words[{number}] is {span!r:.80}")
        for token in span:
            if not _is_index(token, n):
                raise ValueError(f"words[{number}] holds token {token!r}; tokens are 0 to {n - 1}")
            if ids[token] is not None:
                raise ValueError(
                    f"words[{number}] holds token {token}, which words[{ids[token]}] already holds"
                )
            ids[token] = number
        if not span:
            raise ValueError(f"words[{number}] is empty: leave it out")
    return ids
