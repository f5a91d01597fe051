"""What a long text costs by sentences: `python benchmarks/bench_long.py [TOKENS]`, 8,000 by default.

The model is a random Llama of 2 layers x 16 heads with 8 dimensions per head, on one thread; a sentence has
20 words. Times are CPU seconds, also in forward passes without recording; memory is what a step adds to the
peak of the process (Linux).
"""

from __future__ import annotations

import resource
import sys
import time
from typing import TYPE_CHECKING, Any

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

import attnwidgets as aw

if TYPE_CHECKING:
    from collections.abc import Callable

WORDS = [f"w{number}" for number in range(400)]
SENTENCE = 20


def tokenizer() -> Any:
    """Return a tokenizer of words and full stops."""
    known = {name: number for number, name in enumerate(["[UNK]", ".", *WORDS])}
    whole = Tokenizer(models.WordLevel(known, unk_token="[UNK]"))
    whole.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=whole, unk_token="[UNK]")


def text_of(tokens: int) -> str:
    """Return a text of so many tokens, in sentences of 20 words and a full stop."""
    count = tokens // (SENTENCE + 1)
    words = [WORDS[(7 * at + at // 5) % len(WORDS)] for at in range(count * SENTENCE)]
    parts = [words[at : at + SENTENCE] for at in range(0, len(words), SENTENCE)]
    return " ".join(" ".join(part).capitalize() + "." for part in parts)


def small(tokens: int) -> Any:
    """Return the model, which reads so many tokens."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=500,
        hidden_size=128,
        intermediate_size=128,
        max_position_embeddings=tokens + 8,
        num_hidden_layers=2,
        num_attention_heads=16,
        num_key_value_heads=16,
    )
    return LlamaForCausalLM(config).eval()


def peak() -> float:
    """Return the most memory that this process has held, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def timed(name: str, step: Callable[[], Any], forward: float = 0.0) -> Any:
    """Run a step and print its time and the memory that it adds to the peak; return what it returns."""
    before, started = peak(), time.process_time()
    try:
        found, said = step(), ""
    except (MemoryError, ValueError) as error:
        found, said = None, f"refused: {error}"
    took = time.process_time() - started
    passes = f" ({took / forward:.1f} forwards)" if forward else ""
    print(f"{name}: {took:.1f} s{passes}, +{peak() - before:.0f} MB  {said}", flush=True)
    return found


def shown(trace: Any) -> Any:
    """Return an Explorer that is displayed."""
    view = aw.Explorer(trace)
    view._repr_mimebundle_()
    return view


def main() -> None:
    """Print the figures."""
    torch.set_num_threads(1)
    tokens = int(sys.argv[1]) if len(sys.argv) > 1 else 8000
    model, pieces = small(tokens), tokenizer()
    shown(aw.trace(model, pieces, text_of(100)))  # imports do not count
    text = text_of(tokens)
    ids = torch.tensor([pieces(text)["input_ids"]])
    started = time.process_time()
    with torch.inference_mode():
        model(ids, use_cache=False)
    forward = time.process_time() - started
    print(f"{ids.shape[1]:,} tokens; one forward pass: {forward:.1f} s")
    trace = timed("trace", lambda: aw.trace(model, pieces, text), forward)
    record = sum(sum(part.nbytes for part in trace.query_key(layer)) for layer in range(trace.n_layers()))
    print(f"  its queries and keys: {record / 2**20:.0f} MB")
    view = timed("Explorer, shown", lambda: shown(trace), forward)
    print(f"  it opens on: {view.selection.unit}")
    sums = aw.circuits.sentence_attribution(trace, "attention")
    timed("sums between sentences, all heads", lambda: [sums.layer(layer) for layer in sums.layers], forward)
    timed("SentenceView of them, shown", lambda: aw.views.SentenceView(sums)._repr_mimebundle_(), forward)
    timed("receiver heads", lambda: aw.circuits.receiver_heads(trace), forward)
    timed("one row of a head", lambda: trace.attention_rows(1, [0], [len(trace.tokens) - 1]))
    timed("rollout by tokens", lambda: aw.rollout(trace).layer(1))


if __name__ == "__main__":
    main()
