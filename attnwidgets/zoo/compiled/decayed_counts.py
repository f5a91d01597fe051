"""Counts that fade: a state space with a closed form for every contribution."""

from __future__ import annotations

from functools import partial
from typing import Any

from transformers import Mamba2Config, Mamba2ForCausalLM

from attnwidgets.zoo.compiled.circuit import EPSILON, GAIN, Residual, empty, named
from attnwidgets.zoo.compiled.recurrence import STEEP, decays, leader, rate, require_share, shares, tokens_of
from attnwidgets.zoo.tokenizers import START, letter_tokenizer, require_alphabet, require_length
from attnwidgets.zoo.truth import Expected, Mixing, Truth, all_equal

OPEN = 1.2784645427610738
"""silu(OPEN) is 1."""
STEP = 1 / STEEP
"""The step of the state space, which undoes the height of the values."""


def decayed_counts(letters: str = "abcdefgh", length: int = 24, *, decay: float = 0.9) -> tuple[Any, Any]:
    """Return (model, tokenizer) of a Mamba-2 that counts letters, with smaller weights for earlier letters.

    One block with a state space of one head. The convolution passes tokens on unmixed, the input and output
    matrices B and C and the gate come from biases alone, and nothing is selected. At every token i,

        logit[letter] = sum over the tokens j up to i that are this letter of decay^(i - j)

    so that the most frequent letter among the latest is the answer. This is linear in the embeddings of the
    letters: each occurrence contributes decay^(i - j) to the logit of its letter and nothing to any other,
    and every method that shares out a logit must say so.

    **Closed forms.** alpha[i, j] = decay^(i - j) / 32 for all j up to i (1/32 is the step), also at `<s>`,
    which has no value; |F_ij| is proportional to decay^(i - j) at letters and 0 at `<s>`. Column j is token j
    in both, unlike in `last_marked`. `model.truth.mixing(text)` returns them.

    Args:
        letters: The alphabet: 1 to 64 different visible characters.
        length: The most letters of a text, 1 to 64.
        decay: The factor of a count after every token, 0.5 to 1.

    Returns:
        A `Mamba2ForCausalLM` with `.truth`, in single precision, and a tokenizer of letters that begins every
        text with `<s>`. `truth.answer` is None where no count leads by more than 1e-6.

    Raises:
        ValueError: If `letters` is not an alphabet, or a number is out of range.
        TypeError: If they are of other types.

    Source: Dao and Gu 2024, Transformers are SSMs; Ali et al. 2024, The Hidden Attention of Mamba Models.

    Example:
        >>> model, tokenizer = aw.zoo.decayed_counts(letters="ab", decay=0.5)
        >>> logits = aw.trace(model, tokenizer, "aaab").logits[-1]
        >>> [round(float(logit), 3) for logit in logits]  # 1/8 + 1/4 + 1/2; 1; nothing for <s>
        [0.875, 1.0, 0.0]
    """
    require_alphabet(letters)
    require_length(length)
    decay = require_share(decay, "decay")
    residual = Residual(token=len(letters) + 1, out=len(letters))
    model = empty(Mamba2ForCausalLM, _config(residual, len(letters)))
    _write(model, residual, len(letters), decay)
    model = named(model, "decayed_counts", letters=letters, length=length, decay=decay)
    model.truth = truth(letters, length, decay)
    return model, letter_tokenizer(letters, length)


def _config(residual: Residual, letters: int) -> Any:
    return Mamba2Config(
        vocab_size=letters + 1,
        hidden_size=residual.size,
        num_hidden_layers=1,
        expand=1,
        num_heads=1,
        head_dim=residual.size,
        n_groups=1,
        state_size=1,
        conv_kernel=2,
        use_bias=True,
        layer_norm_epsilon=EPSILON,
        bos_token_id=letters,
        eos_token_id=None,
        pad_token_id=None,
        tie_word_embeddings=False,
    )


def _write(model: Any, residual: Residual, letters: int, decay: float) -> None:
    block = model.backbone.layers[0]
    mixer = block.mixer
    model.backbone.embeddings.weight.data[:] = residual.write("token")
    for norm in (block.norm, mixer.norm, model.backbone.norm_f):
        norm.weight.data.fill_(GAIN)

    sizes = [residual.size, residual.size, 2, 1]  # gate, values, B and C, step
    mixer.in_proj.bias.data.split(sizes)[0].fill_(OPEN)
    values = mixer.in_proj.weight.data.split(sizes)[1]
    values[:letters] = STEEP * residual.write("token")[:letters]
    mixer.conv1d.weight.data[: residual.size, 0, -1] = 1
    mixer.conv1d.bias.data[residual.size :] = OPEN
    a_log, dt_bias = rate(decay, STEP)
    mixer.A_log.data.fill_(a_log)
    mixer.dt_bias.data.fill_(dt_bias)
    mixer.out_proj.weight.data[:, :letters] = residual.read("out")
    model.lm_head.weight.data[:letters] = residual.write("out")


def truth(letters: str, length: int, decay: float) -> Truth:
    """Return the `Truth` of the model."""
    return Truth(
        name="decayed_counts",
        does=f"counts letters, each times {decay:g} for every token that has come since",
        letters=letters,
        length=length,
        heads={(0, 0): "state space: adds up the letters, and forgets all at the same rate"},
        ablations={(0, 0): all_equal(len(letters) + 1)},
        rule=partial(_expected, decay),
        mixer=partial(_mixing, decay),
    )


def _mixing(decay: float, text: str) -> Mixing:
    tokens = tokens_of(text)
    weights = decays(decay, len(tokens))
    return Mixing(STEP * weights[None], shares(weights * (tokens != START)))


def _expected(decay: float, text: str, at: int) -> Expected:
    amounts = {i: decay ** (at - i) for i in range(1, at + 1)}
    totals: dict[str, float] = {}
    for i, amount in amounts.items():
        totals[text[i - 1]] = totals.get(text[i - 1], 0.0) + amount
    answer = leader(totals)
    why = {i: f"counts {amount:.3g}" for i, amount in amounts.items() if text[i - 1] == answer}
    return Expected(answer, why)
