"""Maps and axes made by hand for the tests of this folder."""

from __future__ import annotations

import numpy as np

from attnwidgets.explanations import MixingMap
from attnwidgets.tracing.text.units import TokenAxis, Unit
from tests.tracing import tiny

TOKENS = ("[CLS]", "un", "##believ", "##able", "news", ".", "[SEP]")
WORDS = ((0,), (1, 2, 3), (4,), (5,), (6,))
SENTENCES = ((0, 1, 2, 3), (4, 5, 6))


def unit(name: str, spans, labels=None) -> Unit:
    spans = tuple(tuple(span) for span in spans)
    return Unit(
        name, tuple(labels or (f"{name}{i}" for i in range(len(spans)))), spans, (False,) * len(spans)
    )


def axis(tokens=TOKENS, words=WORDS, sentences=SENTENCES, text="unbelievable news.") -> TokenAxis:
    units = {"token": unit("token", [(i,) for i in range(len(tokens))], tokens)}
    if words:
        units["word"] = unit("word", words)
    if sentences:
        units["sentence"] = unit("sentence", sentences)
    return TokenAxis(tuple(tokens), units, text=text)


def shares(*shape: int, seed: int = 0, causal: bool = False) -> np.ndarray:
    """Random rows that sum to one, float32."""
    values = np.random.default_rng(seed).gamma(0.4, size=shape) + 1e-6
    if causal:
        values = np.tril(values)
    return (values / values.sum(-1, keepdims=True)).astype(np.float32)


def attention_map(
    layers: int = 3, heads: int = 2, *, causal: bool = False, seed: int = 0, **options
) -> MixingMap:
    n = len(TOKENS)
    return MixingMap(
        shares(layers, heads, n, n, seed=seed, causal=causal),
        query=axis(),
        method="attention",
        provenance={"model": "made", "text": "unbelievable news."},
        **options,
    )


def random_classifier(labels: int = 3):
    """Return a BERT with some classes whose random weights are large enough for every token to matter."""
    import transformers as hf

    sizes = {"vocab_size": 40, "hidden_size": 12, "intermediate_size": 8, "initializer_range": 0.6}
    config = hf.BertConfig(**sizes, num_hidden_layers=2, num_attention_heads=2, num_labels=labels)
    return tiny.build(lambda: hf.BertForSequenceClassification(config))
