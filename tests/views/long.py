"""A long text read by a tiny model, and how many of its attention weights are computed."""

from __future__ import annotations

import torch
from transformers import LlamaConfig, LlamaForCausalLM

import attnwidgets as aw
from attnwidgets.tracing.recording import attention_function
from tests.tracing import tiny

LAYERS, HEADS = 2, 4
WORDS = ("the", "cat", "sat", "a", "b", "c", "new", "york")


def text_of(words, sentence=20):
    """Sentences of so many words; None: a single sentence."""
    drawn = [WORDS[(7 * at + at // 5) % len(WORDS)] for at in range(words)]
    if sentence is None:
        return " ".join(drawn)
    parts = [drawn[at : at + sentence] for at in range(0, words, sentence)]
    return " ".join(" ".join(part).capitalize() + "." for part in parts)


def traced(words, sentence=20):
    """Trace a text by a random Llama of 2 layers x 4 heads, every time the same."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=40,
        hidden_size=16,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        num_key_value_heads=2,
        intermediate_size=32,
        max_position_embeddings=8192,
        initializer_range=0.5,
    )
    return aw.trace(LlamaForCausalLM(config).eval(), tiny.wordpiece(), text_of(words, sentence))


class Counted:
    """Counts the attention weights that are computed while it is in force."""

    def __init__(self, monkeypatch):
        self.weights = 0
        compute = attention_function.attention_weights

        def counting(query, key, **settings):
            self.weights += query.shape[1] * query.shape[2] * key.shape[2]
            return compute(query, key, **settings)

        monkeypatch.setattr(attention_function, "attention_weights", counting)

    def of(self, function):
        """Return the result of a function, and how many weights were computed for it."""
        before = self.weights
        result = function()
        return result, self.weights - before
