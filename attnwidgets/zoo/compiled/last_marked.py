"""The letter before the last marker: a gated delta rule whose alpha and contributions differ."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np
from transformers import Qwen3NextConfig, Qwen3NextForCausalLM

from attnwidgets.zoo.compiled.circuit import LOGIT, Residual, empty, first, named
from attnwidgets.zoo.compiled.recurrence import (
    LEAD,
    STEEP,
    decays,
    leader,
    rate,
    require_share,
    shares,
    tokens_of,
)
from attnwidgets.zoo.tokenizers import letter_tokenizer, require_alphabet, require_length
from attnwidgets.zoo.truth import Expected, Mixing, Truth, all_equal

KEYS = 4
"""The size of a key: d of the formula."""
_LOUD = 16.0
"""Length of the block's output; the embedding has two coordinates of 1."""
_SURE = 64.0
"""A number whose sigmoid is 1 in every precision."""
_LEAST_BETA = 0.1


def last_marked(
    letters: str = "abcdefgh",
    length: int = 24,
    *,
    marker: str = "#",
    beta: float = 1.0,
    decay: float = 1.0,
) -> tuple[Any, Any]:
    """Return (model, tokenizer) of a Qwen3-Next that says, at every token, the letter before the last marker.

    One block with a gated delta rule of one head, and no attention. The short convolution hands the value of
    every letter on to the token after it. Only markers have a key, so that a marker stores the letter before
    it; every token has the query that reads it. By default (`beta` is 1) storing erases the old state, and
    a marker without a letter before it leaves nothing.

    **Closed forms.** With d = 4, the size of a key, and over the markers up to token i,

        alpha[i, marker] = beta (1 - beta)^(later markers up to i) decay^(i - marker) / sqrt(d)

    and alpha is 0 at all other tokens: it names the marker. The contribution F_ij of a token, which includes
    the convolution, has the same length up to a factor that is equal for the whole row, but at the letter
    *before* the marker. `model.truth.mixing(text)` returns both. With w [letter] the sums of alpha over the
    markers behind each letter, the logits of letters are 10 w / |w|, and 0 where nothing is stored. The gated
    norm makes that division: with a single letter stored, no small change of it matters, and gradients are 0.

    Args:
        letters: The alphabet without the marker: 1 to 63 different visible characters.
        length: The most letters and markers of a text, 1 to 64.
        marker: The marker, a character that is not among the letters.
        beta: How much of the state a marker overwrites, 0.1 to 1. Below 1 earlier letters remain in part, and
            the answer is the letter with the largest sum.
        decay: The factor of the state after every token, 0.5 to 1.

    Returns:
        A `Qwen3NextForCausalLM` with `.truth`, in single precision, and a tokenizer of letters that begins
        every text with `<s>`. `truth.answer` is None where no sum leads by more than 1e-6: all logits are
        0 there by default, and with a `beta` or `decay` below 1 the norm may enlarge a rounding. The model
        runs without a cache, because that of transformers needs a block that attends.

    Raises:
        ValueError: If `letters` and `marker` are not an alphabet, or a number is out of range.
        TypeError: If they are of other types.

    Source: Yang et al. 2024, Gated Delta Networks; Zimerman et al. 2024, A Unified Implicit
    Attention Formulation for Gated-Linear Recurrent Sequence Models (alpha, and the parts it leaves out).

    Example:
        >>> model, tokenizer = aw.zoo.last_marked()
        >>> aw.trace(model, tokenizer, "cf#bd#aheg").predictions(1)[0].label
        'd'
        >>> list(model.truth.evidence("cf#bd#aheg"))
        [5, 6]
    """
    require_alphabet(letters)
    if not isinstance(marker, str) or len(marker) != 1 or marker in letters:
        raise ValueError(f"marker must be a character that is not one of the letters, not {marker!r}.")
    require_alphabet(letters + marker)
    require_length(length)
    beta, decay = require_share(beta, "beta", _LEAST_BETA), require_share(decay, "decay")
    residual = Residual(token=len(letters) + 2, always=1, out=len(letters))
    model = empty(Qwen3NextForCausalLM, _config(residual, len(letters)))
    _write(model, residual, len(letters), beta, decay)
    model = named(model, "last_marked", letters=letters, length=length, marker=marker, beta=beta, decay=decay)
    model.truth = truth(letters, length, marker, beta, decay)
    return model, letter_tokenizer(letters + marker, length)


def _config(residual: Residual, letters: int) -> Any:
    return Qwen3NextConfig(
        vocab_size=letters + 2,
        # Two ones among twice a power of four: the root mean square is a power of two, exactly undone.
        hidden_size=2 * 4 ** math.ceil(math.log(residual.size / 2, 4)),
        num_hidden_layers=1,
        layer_types=["linear_attention"],
        mlp_only_layers=[0],
        intermediate_size=1,
        num_attention_heads=1,
        num_key_value_heads=1,
        head_dim=2,
        linear_num_key_heads=1,
        linear_num_value_heads=1,
        linear_key_head_dim=KEYS,
        linear_value_head_dim=letters,
        linear_conv_kernel_dim=2,
        num_experts=1,
        num_experts_per_tok=1,
        moe_intermediate_size=1,
        shared_expert_intermediate_size=1,
        rms_norm_eps=1e-18,  # far below the square of the least weight that is told from none
        bos_token_id=letters + 1,
        eos_token_id=None,
        pad_token_id=None,
        use_cache=False,  # transformers' cache of this class needs a block that attends
        tie_word_embeddings=False,
    )


def _write(model: Any, residual: Residual, letters: int, beta: float, decay: float) -> None:
    """Write the weights; norms (whose gain is 1 + weight) return their input wherever it matters."""
    block, width = model.model.layers[0], model.config.hidden_size
    mixer = block.linear_attn
    token, always, out = (first(residual.read(name), width) for name in ("token", "always", "out"))
    always = always[:, 0]
    model.model.embed_tokens.weight.data[:] = token.T + always
    # The embedding has two coordinates of 1, the block's output is of length _LOUD.
    block.input_layernorm.weight.data.fill_(math.sqrt(2 / width) - 1)
    model.model.norm.weight.data.fill_(math.sqrt((2 + _LOUD**2) / width) - 1)

    query, key, value, gate = mixer.in_proj_qkvz.weight.data.split([KEYS, KEYS, letters, letters])
    query[0] = gate[:] = STEEP * always
    # Without a marker this is so far below 0 that the silu returns 0, also of a mean of all embeddings.
    key[0] = STEEP * (4 * token[:, letters] - 3 * always)
    value[:] = STEEP * token[:, :letters].T
    earlier, current = mixer.conv1d.weight.data[:, 0].unbind(1)
    current[: 2 * KEYS] = 1
    earlier[2 * KEYS :] = 1
    mixer.in_proj_ba.weight.data[0] = always * (_SURE if beta == 1 else math.log(beta / (1 - beta)))
    a_log, dt_bias = rate(decay)
    mixer.A_log.data.fill_(a_log)
    mixer.dt_bias.data.fill_(dt_bias)
    # A norm of `letters` values makes them as long as sqrt(letters), and the gate is open by STEEP.
    mixer.norm.weight.data.fill_(_LOUD / (STEEP * math.sqrt(letters)))
    mixer.out_proj.weight.data[:] = out
    model.lm_head.weight.data[:letters] = LOGIT / _LOUD * out.T


def truth(letters: str, length: int, marker: str, beta: float, decay: float) -> Truth:
    """Return the `Truth` of the model."""
    mixer = partial(_mixing, marker, beta, decay)
    return Truth(
        name="last_marked",
        does=f"answers every token with the letter before the last {marker!r}"
        + (f", of which each overwrites {beta:g} of what was stored" * (beta < 1))
        + (f"; {decay:g} of it is left after every token" * (decay < 1)),
        letters=letters + marker,
        length=length,
        heads={
            (0, 0): f"gated delta rule: every {marker!r} stores the letter before it, every token reads it"
        },
        ablations={(0, 0): all_equal(len(letters) + 2)},
        rule=partial(_expected, marker, mixer),
        mixer=mixer,
    )


def _mixing(marker: str, beta: float, decay: float, text: str) -> Mixing:
    tokens = tokens_of(text)
    marks = tokens == marker
    markers = marks.cumsum()
    # Above the diagonal, where decays() is 0, the count of later markers would be negative.
    later = np.maximum(np.subtract.outer(markers, markers), 0)
    alpha = marks * beta * (1 - beta) ** later * decays(decay, len(tokens)) / math.sqrt(KEYS)
    lengths = np.zeros_like(alpha)
    lengths[:, :-1] = alpha[:, 1:]
    lengths[:, marks] = 0
    lengths[:, 0] = 0
    return Mixing(alpha[None], shares(lengths))


def _expected(marker: str, mixer: partial[Mixing], text: str, at: int) -> Expected:
    weights = mixer(text).alpha[0, at] * math.sqrt(KEYS)
    stored = {i - 1: weights[i] for i in range(2, at + 1) if weights[i] > LEAD and text[i - 2] != marker}
    totals: dict[str, float] = {}
    for i, weight in stored.items():
        totals[text[i - 1]] = totals.get(text[i - 1], 0.0) + float(weight)
    answer = leader(totals)
    why: dict[int, str] = {}
    for i in stored:
        if text[i - 1] == answer:
            why |= {i: "the letter before a marker, which is stored", i + 1: "the marker, which stores it"}
    return Expected(answer, why)
