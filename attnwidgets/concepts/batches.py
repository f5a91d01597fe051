"""Many inputs of one model, run in batches of similar length on a twin, with or without gradients.

Texts are encoded in advance, sorted by length and padded on the right, so that inputs of similar length
share a batch; the size of a batch follows from the memory that a pass of the first text takes. Inputs that
cannot be padded (pictures, sound, pairs, models that read more than ids) run singly, each from its trace. For
a backward pass, float32 copies replace parameters of half precision in the call; the model is unchanged.
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from math import ceil
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from attnwidgets._errors import quoted
from attnwidgets._gradients import grad_mode
from attnwidgets._progress import progress
from attnwidgets._tensors import is_half, widened
from attnwidgets.explanations.results.trace_protocol import is_trace
from attnwidgets.tracing.anatomy.forward import forward_parameters
from attnwidgets.tracing.gradients.gradient_hooks import differentiable_model, traced_model
from attnwidgets.tracing.pass_memory import room_for_pass, together
from attnwidgets.tracing.recording.batch import collate
from attnwidgets.tracing.recording.borrow import borrowed, unwrap
from attnwidgets.tracing.recording.inputs import encode, limit_of, text_tokenizer
from attnwidgets.tracing.recording.run import trace as run
from attnwidgets.tracing.rerun_trace import require_same_model
from attnwidgets.tracing.text.given_texts import listed_texts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from torch import Tensor

    from attnwidgets.tracing.recording.inputs import Sample
    from attnwidgets.tracing.trace import Trace

# Inputs that can be padded: the ids of a text, its mask and its token types.
_SIMPLE = frozenset({"input_ids", "attention_mask", "token_type_ids"})


@dataclass(frozen=True)
class Read:
    """An input as the model reads it.

    Attributes:
        index: Its number among the inputs.
        length: Number of its tokens in the stack that is read.
        sample: Its ids and their characters in the text; None if the input is a trace.
        trace: Its trace; None where texts share batches.
    """

    index: int
    length: int
    sample: Sample | None
    trace: Trace | None


@dataclass(frozen=True)
class Batch:
    """Inputs that run together.

    Attributes:
        reads: The inputs.
        inputs: The model's inputs, padded on the right.
        call: Runs the model on them and returns its outputs; options may be added.
    """

    reads: tuple[Read, ...]
    inputs: Mapping[str, Any]
    call: Callable[..., Any]


class Inputs:
    """Texts or traces that a model reads, in their order.

    Texts share batches where the model reads nothing but ids; others, and traces (of pictures, sound, pairs),
    run singly.

    Args:
        model: As `aw.trace` takes it; None for traces.
        tokenizer: Its tokenizer.
        texts: Strings, objects with `.text`, or traces of one model.
        purpose: The function, for messages.
        truncation: Whether texts that are too long are cut.

    Raises:
        ValueError: If inputs are empty, an input is empty, or traces are of several models.
        TypeError: If an input is neither a text nor a trace.

    Attributes:
        first: The trace of the first input.
        model: The model, unwrapped.
        names: The texts; for traces `trace.text`.
        reads: The inputs as the model reads them.
        stack: The stack whose tokens are counted; None: the default stack.
        batched: Whether inputs share batches.
    """

    def __init__(
        self, model: Any, tokenizer: Any, texts: Sequence[Any], purpose: str, *, truncation: bool = False
    ) -> None:
        sources = texts_of(texts, purpose)
        self.purpose = purpose
        self.stack: str | None = None
        if is_trace(sources[0]):
            _require_one_model(sources, purpose)
            self.first = sources[0]
        else:
            with _naming(purpose, 0, sources[0]):
                self.first = run(model, tokenizer, sources[0], truncation=truncation)
        self.model = unwrap(self.first.model)
        self.names = tuple(source.text if is_trace(source) else source for source in sources)
        inputs, takes = set(self.first.inputs), forward_parameters(self.model)
        simple = "input_ids" in inputs and inputs <= _SIMPLE and "attention_mask" in takes
        self.batched = simple and not is_trace(sources[0])
        if is_trace(sources[0]):
            lengths = [len(source.axes()[0]) for source in sources]
            self.reads = tuple(map(Read, range(len(sources)), lengths, [None] * len(sources), sources))
            return
        self.reads = self._encoded(truncation=truncation)
        if not self.batched:
            self.run_alone(truncation=truncation)

    def _encoded(self, *, truncation: bool) -> tuple[Read, ...]:
        reader = text_tokenizer(self.first.tokenizer)
        limit = limit_of(self.model, reader)
        reads = []
        for number, text in enumerate(self.names):
            with _naming(self.purpose, number, text):
                sample = encode(reader, text, limit=limit, truncation=truncation)
            reads.append(Read(number, len(sample.ids or ()), sample, None))
        return tuple(reads)

    def run_alone(self, *, truncation: bool = True) -> None:
        """Run every input by itself from now on: its targets are then those of its trace."""
        if self.reads[0].trace is not None:
            return
        reads = []
        for read in progress(self.reads, "tracing"):
            trace = self.first
            if read.index:
                text = self.names[read.index]
                trace = run(self.first.model, self.first.tokenizer, text, truncation=truncation)
            reads.append(replace(read, trace=trace))
        self.reads, self.batched = tuple(reads), False

    def read_in(self, stack: str) -> None:
        """Count the tokens of a stack from now on: those of a decoder are not those of the text."""
        self.stack = stack
        reads = []
        for read in self.reads:
            counted = read
            if read.trace is not None:
                sample = None if stack == "decoder" else read.sample
                counted = replace(read, length=len(read.trace.axes(stack)[0]), sample=sample)
            reads.append(counted)
        self.reads = tuple(reads)

    def trace_of(self, read: Read) -> Trace:
        """Return the trace of an input; for batched texts the first trace, whose target they share."""
        return read.trace or self.first

    @contextmanager
    def running(
        self, *, back: bool, batch_size: int, desc: str, parameters: Mapping[str, Tensor] | None = None
    ) -> Iterator[tuple[nn.Module, Iterator[Batch]]]:
        """Yield a twin of the model and the batches to run on it, the shortest texts first.

        Args:
            back: Whether the graph is recorded for a backward pass; half precision then runs in float32.
            batch_size: Most texts of a batch; fewer run together where memory is short.
            desc: Label of the progress bar.
            parameters: Parameters that replace the model's, by name.

        Raises:
            ValueError: If a model cannot be differentiated, or a pass does not fit in memory.
        """
        source = (differentiable_model if back else traced_model)(self.first, self.purpose)
        require_same_model(self.first, self.purpose)
        with ExitStack() as exits:
            twin = exits.enter_context(borrowed(source))
            exits.enter_context(torch.inference_mode(mode=False))
            exits.enter_context(grad_mode(enabled=back))
            wide = _widened(twin) if back else {}
            yield twin, self._batches(twin, wide | dict(parameters or {}), back, batch_size, desc)

    def _batches(
        self, twin: nn.Module, wide: Mapping[str, Tensor], back: bool, batch_size: int, desc: str
    ) -> Iterator[Batch]:
        options: dict[str, Any] = {"return_dict": True}
        if "use_cache" in forward_parameters(self.model):
            options["use_cache"] = False
        order = sorted(self.reads, key=lambda read: read.length)
        # Memory is estimated from the first text; the longest text in units of its length.
        longer = order[-1].length / len(self.first.axes(self.stack)[0])
        size = 1
        if self.batched:
            size = max(
                1, int(together(self.model, self.first, ceil(batch_size * longer), graph=back) / longer)
            )
        parts = [tuple(order[start : start + size]) for start in range(0, len(order), size)]
        for part in progress(parts, desc):
            inputs = self._inputs(part)
            if wide:
                inputs = {name: _wide(value) for name, value in inputs.items()}

            def call(inputs: Mapping[str, Any] = inputs, **more: Any) -> Any:
                return self.first.call(twin, inputs, options | more, wide)

            trace = self.trace_of(part[-1])
            alike = ceil(len(part) * part[-1].length / len(trace.axes(self.stack)[0]))
            with room_for_pass(self.model, trace, self.purpose, alike):
                yield Batch(part, inputs, call)

    def _inputs(self, part: Sequence[Read]) -> dict[str, Any]:
        if not self.batched and part[0].trace is not None:
            return dict(part[0].trace.inputs)
        samples = [read.sample for read in part if read.sample is not None]
        return collate(self.model, text_tokenizer(self.first.tokenizer), samples)


def texts_of(texts: Any, purpose: str, name: str = "texts") -> list[Any]:
    """Return inputs as a list of strings or traces.

    Raises:
        ValueError: If the list is empty.
        TypeError: If an input is neither a string, an object with `.text`, nor a trace.
    """
    sources = [
        source.text if isinstance(getattr(source, "text", None), str) and not is_trace(source) else source
        for source in ([texts] if is_trace(texts) else listed_texts(texts, name))
    ]
    if not sources:
        raise ValueError(f"{purpose}: {name} is empty; give at least one text.")
    kinds = {is_trace(source) for source in sources}
    wrong = [
        number
        for number, source in enumerate(sources)
        if not isinstance(source, str) and not is_trace(source)
    ]
    if wrong or len(kinds) > 1:
        kind = f"a {type(sources[wrong[0]]).__name__} at {wrong[0]}" if wrong else "both texts and traces"
        raise TypeError(
            f"{purpose}: {name} holds {kind}; give strings, objects with .text, or traces (of pictures, "
            "sound or pairs: aw.trace)."
        )
    return sources


@contextmanager
def _naming(purpose: str, number: int, text: str) -> Iterator[None]:
    """Name the text in an error about it; an error about the model (a subclass) stays as it is."""
    try:
        yield
    except ValueError as error:
        if type(error) is not ValueError:
            raise
        raise ValueError(f"{purpose}: texts[{number}], {quoted(text)}: {error}") from error


def _require_one_model(traces: Sequence[Trace], purpose: str) -> None:
    models = {id(traced_model(trace, purpose)) for trace in traces}
    if len(models) > 1:
        raise ValueError(f"{purpose}: the traces are of {len(models)} models; give those of one model.")


def _widened(twin: nn.Module) -> dict[str, Tensor]:
    """Return half-precision buffers and parameters of a model in float32, by name."""
    wide: dict[str, Tensor] = {n: t.float() for n, t in twin.named_buffers() if is_half(t)}
    return wide | {
        name: nn.Parameter(parameter.detach().float(), requires_grad=False)
        for name, parameter in twin.named_parameters()
        if is_half(parameter)
    }


def _wide(value: Any) -> Any:
    return widened(value) if isinstance(value, torch.Tensor) else value
