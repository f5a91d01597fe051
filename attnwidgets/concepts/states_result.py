"""States: the states of many inputs at some layers, with gradients; their tokens and their targets.

`States` is the result. The functions below it serve `states.py`: `rows_of` and `tokens_at` turn `at` into the
tokens that are averaged in each input, counted in the stack that is read; `TextTargets` resolves the target
for every input. Where the target is the same number in the outputs of every input, as a class is, texts share
batches; otherwise every input has a trace, and a target of that trace.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets._errors import quoted, suggest
from attnwidgets._gradients import enable_grad, no_grad
from attnwidgets._selecting import pick, position
from attnwidgets._tables import Table
from attnwidgets.explanations.targets.target_set import resolve_target_set

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray
    from torch import Tensor

    from attnwidgets._tables import Columns
    from attnwidgets.concepts.batches import Batch, Inputs, Read
    from attnwidgets.explanations.targets.target_set import TargetSet

    Float = NDArray[np.floating]
    At = str | int | Sequence[Any]

NAMED = ("cls", "mean", "last", "mask", "tokens")


@dataclass(frozen=True, eq=False)
class States(Table):
    """States of texts [text, layer, dim]. Made by `aw.concepts.states`.

    Attributes:
        values: [text, layer, dim] in float32 (read-only); in a file where memory is short. Layer l is the
            input of block l, the last layer the output of the last block.
        layers: Numbers of the layers.
        texts: The texts; for pictures and sound `trace.text`.
        at: Token whose state was read: "cls", "mean", "last", "mask", "token 3", "given places"; or "tokens",
            where a row is a token and no longer a text, and `texts`, `scores` and `lengths` repeat those of
            its text.
        positions: Number of the (first) token that was read [text].
        lengths: Number of tokens [text].
        gradients: Gradient of the target by the state [text, layer, dim]; None if not requested. For the
            mean over tokens, and any other several, the same vector is added to each of them: their gradients
            are summed.
        scores: The target's value [text]; None without a target.
        target: Name of the target, or "".
        model: The model's id.
        stack: The stack whose tokens were read.
        notes: Caveats.
    """

    values: Float
    layers: tuple[int, ...]
    texts: tuple[str, ...]
    at: str
    positions: NDArray[np.int64]
    lengths: NDArray[np.int64]
    gradients: Float | None = None
    scores: Float | None = None
    target: str = ""
    model: str = ""
    stack: str = "self"
    notes: tuple[str, ...] = ()
    _folder: Any = field(default=None, repr=False)  # deletes the file of values with this object

    def __post_init__(self) -> None:
        if self.values.ndim != 3 or self.values.shape[:2] != (len(self.texts), len(self.layers)):  # noqa: PLR2004
            raise ValueError(
                f"values has shape {self.values.shape}; it must be [text, layer, dim] of {len(self.texts)} "
                f"texts and {len(self.layers)} layers."
            )

    @property
    def shape(self) -> tuple[int, ...]:
        """Numbers of texts, layers and dimensions."""
        return tuple(self.values.shape)

    @property
    def on_disk(self) -> bool:
        """Whether the values are read from a temporary file, which goes with this object."""
        return isinstance(self.values, np.memmap)

    def __len__(self) -> int:
        return len(self.texts)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return np.array(self.values, dtype=dtype) if copy else np.asarray(self.values, dtype=dtype)

    def layer(self, layer: int) -> Float:
        """Return the states of a layer [text, dim].

        Args:
            layer: Its number; negative ones count from the last.

        Raises:
            IndexError: If it was not recorded.
        """
        return self.values[:, position(layer, self.layers, "layer")]

    def gradient(self, layer: int) -> Float:
        """Return the gradients at a layer [text, dim].

        Raises:
            IndexError: If the layer was not recorded.
            ValueError: If gradients were not requested.
        """
        if self.gradients is None:
            raise ValueError(
                "these states have no gradients; aw.concepts.states(..., target=...) takes them."
            )
        return self.gradients[:, position(layer, self.layers, "layer")]

    def select(self, texts: Any = None, *, layers: int | Iterable[int] | slice | None = None) -> States:
        """Return some texts and layers.

        Args:
            texts: Their numbers, a slice, or booleans; all by default.
            layers: Numbers of layers; all by default.

        Raises:
            IndexError: If the text or layer is out of range.
        """
        rows = np.arange(len(self.texts))[slice(None) if texts is None else texts]
        rows = np.atleast_1d(rows)
        chosen = self.layers if layers is None else pick(layers, self.layers, "layer")
        columns = [self.layers.index(layer) for layer in chosen]

        def part(values: Float | None) -> Any:
            return None if values is None else _frozen(np.asarray(values[rows][:, columns]))

        return replace(
            self,
            values=part(self.values),
            gradients=part(self.gradients),
            layers=tuple(chosen),
            texts=tuple(self.texts[row] for row in rows),
            positions=self.positions[rows],
            lengths=self.lengths[rows],
            scores=None if self.scores is None else self.scores[rows],
            _folder=None,
        )

    def features(self, sae: Any, *, layer: int | None = None) -> States:
        """Return the activations of a sparse autoencoder's features in place of the states.

        Gradients become those by the activations: how the target changes when a feature is turned up, which
        moves the state along its decoder direction. The error of the reconstruction stays as it is.

        Args:
            sae: The autoencoder, or any object with its arrays: `aw.load_sae`, `aw.SAE`.
            layer: The layer that it reads (layer l is the input of block l); None if states have only that.

        Returns:
            `States` [text, 1, feature], raw activations. Of a state that is a mean over tokens they are the
            features of the mean; `aw.concepts.states(..., at="tokens")` has the states of single tokens.

        Raises:
            ValueError: If there are several layers and none is chosen, or states have another width than
                the autoencoder reads.
            IndexError: If the layer is out of range.

        Example:
            >>> model, tokenizer = aw.demo_model("classifier")
            >>> texts = [text.text for text in aw.demo_texts("train")[:20]]
            >>> states = aw.concepts.states(model, tokenizer, texts, layers=[3], at="cls")
            >>> states.features(aw.concepts.directions(states, 8, method="pca")).shape
            (20, 1, 16)
        """
        import torch

        from attnwidgets.sae.sae import as_sae

        if layer is None and len(self.layers) > 1:
            layers = ", ".join(map(str, self.layers))
            raise ValueError(f"states has layers {layers}: choose the one that the SAE reads with layer=.")
        number = self.layers[position(self.layers[0] if layer is None else layer, self.layers, "layer")]
        coder = as_sae(sae)
        h = torch.tensor(np.asarray(self.layer(number))).to(coder.W_enc)
        with no_grad():
            active = coder.encode(h)
        slopes = None
        if self.gradients is not None:
            back = torch.tensor(np.asarray(self.gradient(number))).to(coder.W_enc)
            with enable_grad():
                moved = active.clone().requires_grad_()
                (slopes,) = torch.autograd.grad(coder.decode(moved, h), moved, back)

        def with_layer_axis(values: Any) -> Float:
            return _frozen(values.float().cpu().numpy()[:, None])

        several = self.at in ("mean", "given places")
        note = "features are those of the mean state, not the mean of the tokens' features"
        return replace(
            self,
            values=with_layer_axis(active),
            gradients=None if slopes is None else with_layer_axis(slopes),
            layers=(number,),
            notes=(*self.notes, *[note] * several),
            _folder=None,
        )

    def _columns(self) -> Iterator[Columns]:
        """Yield text, its number, layer, length of the state, of the gradient, and the target's value."""
        number, layer = (index.reshape(-1) for index in np.indices(self.shape[:2]))
        columns: dict[str, Any] = {
            "text": [self.texts[at] for at in number],
            "number": number,
            "layer": np.asarray(self.layers)[layer],
            "norm": np.linalg.norm(self.values, axis=-1).reshape(-1),
        }
        if self.gradients is not None and self.scores is not None:
            columns["gradient_norm"] = np.linalg.norm(self.gradients, axis=-1).reshape(-1)
            columns["score"] = self.scores[number]
        yield columns

    def __repr__(self) -> str:
        layers = ", ".join(map(str, self.layers))
        parts = [f"States [text {self.shape[0]}, layer {self.shape[1]}, dim {self.shape[2]}] at {self.at}"]
        parts += [f"layer{'s' * (len(self.layers) > 1)} {layers}", self.model]
        parts += [f"gradients of {self.target}"] * (self.gradients is not None)
        parts += ["on disk"] * self.on_disk
        return f"<{'; '.join(filter(None, [*parts, *self.notes]))}>"


def _frozen(values: Float) -> Float:
    values.flags.writeable = False
    return values


def stacked(parts: Sequence[States]) -> Float:
    """Return the concatenated states of several results [text, layer, dim]."""
    return np.concatenate([part.values for part in parts])


def rows_of(inputs: Inputs, at: At) -> list[list[tuple[int, ...]]]:
    """Return the rows of states of every input: for each row, the tokens whose states are averaged.

    Every text has a single row, and for "tokens" a row for each of its tokens that is not special.
    """
    if isinstance(at, str) and at == "tokens":
        return [[(number,) for number in _ordinary(inputs, read)] for read in inputs.reads]
    return [[tokens] for tokens in tokens_at(inputs, at)]


def _ordinary(inputs: Inputs, read: Read) -> list[int]:
    if read.sample is not None and read.sample.text is not None:
        special = read.sample.text.special
    else:
        special = inputs.trace_of(read).axes(inputs.stack)[0].units["token"].special
    return [number for number, is_special in enumerate(special) if not is_special]


def tokens_at(inputs: Inputs, at: At) -> list[tuple[int, ...]]:
    """Return the tokens whose states are averaged, for every input.

    Args:
        inputs: The inputs.
        at: "cls", "mean", "last", "mask", the number of a token, or an entry for every input: the number of
            a token, a word, or characters (start, stop) of the text.

    Raises:
        ValueError: If `at` is unknown, has another number of entries, or names a word that a text lacks.
        IndexError: If a token is out of range.
    """
    if isinstance(at, str):
        if at not in NAMED:
            raise ValueError(
                f"at {at!r} is not {', '.join(map(repr, NAMED))} or the number of a "
                f"token.{suggest(at, NAMED)} Words are given one for every text: at=['keys', 'door', ...]."
            )
        return [_named(inputs, read, at) for read in inputs.reads]
    if isinstance(at, Sequence):
        if len(at) != len(inputs.reads):
            raise ValueError(f"at has {len(at)} entries, and there are {len(inputs.reads)} texts.")
        return [_tokens_of_entry(inputs, read, entry) for read, entry in zip(inputs.reads, at, strict=True)]
    return [(_index(inputs, read, at),) for read in inputs.reads]


def _named(inputs: Inputs, read: Read, at: str) -> tuple[int, ...]:
    if at == "mean":
        return tuple(range(read.length))
    if at == "mask":
        return (_mask(inputs, read),)
    return (0,) if at == "cls" else (read.length - 1,)


def _tokens_of_entry(inputs: Inputs, read: Read, entry: Any) -> tuple[int, ...]:
    if isinstance(entry, str):
        text = inputs.names[read.index]
        start = text.find(entry)
        if start < 0 or not entry:
            raise ValueError(f"at[{read.index}] is {quoted(entry)}, which is not in {quoted(text)}.")
        return _covering(inputs, read, start, start + len(entry))
    if isinstance(entry, Sequence):
        start, stop = entry
        return _covering(inputs, read, int(start), int(stop))
    return (_index(inputs, read, entry),)


def _index(inputs: Inputs, read: Read, number: Any) -> int:
    try:
        return position(number, range(read.length), "token")
    except IndexError as error:
        raise IndexError(f"at, texts[{read.index}] {quoted(inputs.names[read.index])}: {error}") from error


def _covering(inputs: Inputs, read: Read, start: int, stop: int) -> tuple[int, ...]:
    """Return the tokens that share characters with a span."""
    spans = _spans(inputs, read)
    result = tuple(i for i, (begin, end) in enumerate(spans) if begin < stop and end > start and end > begin)
    if not result:
        where = quoted(inputs.names[read.index])
        raise ValueError(f"at[{read.index}]: characters {start} to {stop} hold no token of {where}.")
    return result


def _spans(inputs: Inputs, read: Read) -> tuple[tuple[int, int], ...]:
    if read.sample is None or read.sample.text is None:
        raise ValueError(
            f"at[{read.index}]: words and characters are found in texts, and {inputs.names[read.index]!r} "
            "was given as a trace, or is not what this stack reads; give the number of a token."
        )
    return read.sample.text.spans


def _mask(inputs: Inputs, read: Read) -> int:
    mask = getattr(inputs.first.tokenizer, "mask_token_id", None)
    recorded = None if read.trace is None else read.trace.input_ids
    ids = (
        list(read.sample.ids or ())
        if read.sample is not None
        else []
        if recorded is None
        else recorded.tolist()
    )
    if mask is None or mask not in ids:
        why = "the tokenizer has no mask token" if mask is None else "it holds no mask token"
        raise ValueError(f"at 'mask', texts[{read.index}] {quoted(inputs.names[read.index])}: {why}.")
    return ids.index(mask)


class TextTargets:
    """The target of every input, and its value in a batch's outputs.

    Args:
        inputs: The inputs.
        target: The target, as every method takes it; None for the model's prediction for the first input.
        foil: Contrasting target, or None.

    Attributes:
        label: Name of the target.
        reads: What it reads of the outputs besides logits; see `Target`.
        shared: Whether it is the same number in every input's outputs, as a class is; a token's row is not.
    """

    def __init__(self, inputs: Inputs, target: Any, foil: Any) -> None:
        self._inputs, self._named = inputs, (target, foil)
        self._first = self._of(inputs.first)
        names = self._first.names()
        self.label = str(names["target"]) + (f" rather than {names['foil']}" if names["foil"] else "")
        self.reads = self._first.reads
        members = (*self._first.targets, *(self._first.foils or ()))
        self.shared = all(member.index is not None and member.position is None for member in members)

    def _of(self, trace: Any) -> TargetSet:
        return resolve_target_set(trace, *self._named, self._inputs.purpose).single(self._inputs.purpose)

    def scores(self, outputs: Any, batch: Batch) -> Tensor:
        """Return the value of every input of a batch [text]."""
        trace = batch.reads[0].trace
        return (self._first if trace is None else self._of(trace)).scores(outputs)[0]
