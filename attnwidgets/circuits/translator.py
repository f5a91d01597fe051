"""Translator: affine maps that rewrite the states of every layer in the directions that the head reads."""

from __future__ import annotations

import hashlib
import json
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save

from attnwidgets._files import write_bytes
from attnwidgets._gradients import no_grad
from attnwidgets._progress import progress
from attnwidgets._selecting import position
from attnwidgets.explanations.targets.resolve import TOKENS
from attnwidgets.intervene.preview import pass_options
from attnwidgets.sae.formats.files import read_json, read_torch
from attnwidgets.tracing.anatomy.output_heads import head_of
from attnwidgets.tracing.block_replay import every_block, first_tensor
from attnwidgets.tracing.content import sampled_fingerprint_of
from attnwidgets.tracing.recording.borrow import borrowed, unwrap
from attnwidgets.tracing.recording.inputs import limit_of, text_tokenizer
from attnwidgets.tracing.recording.module_calls import is_hidden
from attnwidgets.tracing.recording.run import trace as record
from attnwidgets.tracing.text.given_texts import listed_texts
from attnwidgets.tracing.unsupported import UnsupportedModelError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from torch import Tensor, nn

    from attnwidgets.tracing.trace import Trace

_KEY = "attnwidgets"
_WHAT = "translator"
_PUBLISHED = ("config.json", "params.pt")

_NAME = "fit_translator"
_SKIPPED = 4  # tokens at the start of a window: attention sinks, whose states are hundreds of times larger


class TranslatorError(ValueError):
    """A file that holds no translator, is damaged, or belongs to another model."""


class Translator:
    """Affine maps h -> h M_l + b_l from the input of block l to the output of the last block.

    Made by `aw.circuits.fit_translator`, or opened with `Translator.load`.

    Args:
        matrices: [layer, width, width]: M_l, applied from the right.
        biases: [layer, width].
        belongs_to: Hash of some weights of the model; "" for any model.
        unembedding: SHA-256 of the model's output embedding, as the tuned-lens package writes it, or "".
        said: How it was made, in words.

    Raises:
        ValueError: If shapes do not match.
    """

    def __init__(
        self, matrices: Tensor, biases: Tensor, *, belongs_to: str = "", unembedding: str = "", said: str = ""
    ) -> None:
        n_layers, width = biases.shape
        if matrices.shape != (n_layers, width, width):
            raise ValueError(
                f"matrices has shape {list(matrices.shape)}; with biases {list(biases.shape)} it is "
                f"[{n_layers} layers, {width}, {width}]."
            )
        self.matrices, self.biases = matrices.float(), biases.float()
        self.belongs_to, self.unembedding, self.said = belongs_to, unembedding, said

    @property
    def n_layers(self) -> int:
        """Number of layers."""
        return len(self.biases)

    @property
    def width(self) -> int:
        """Width of the residual stream."""
        return int(self.biases.shape[1])

    def __repr__(self) -> str:
        return f"<Translator [layer {self.n_layers}, width {self.width}]; {self.said}>"

    def __call__(self, layer: int, states: Tensor) -> Tensor:
        """Return states [..., width] of a layer as the last block would write them, in their dtype.

        Args:
            layer: Number of the layer whose input the states are.
            states: [..., width].

        Raises:
            IndexError: If the layer is out of range.
        """
        layer = position(layer, range(self.n_layers), "layer")
        kind = states.dtype if states.dtype == torch.float64 else torch.float32
        matrix, bias = (
            part[layer].to(device=states.device, dtype=kind) for part in (self.matrices, self.biases)
        )
        return (states.to(kind) @ matrix + bias).to(states.dtype)

    def require_model(self, model: Any, n_layers: int, width: int) -> None:
        """Raise unless the translator belongs to a model.

        Raises:
            TranslatorError: If sizes or weights are others; the message says which.
        """
        if (n_layers, width) != (self.n_layers, self.width):
            raise TranslatorError(
                f"translator has {self.n_layers} layers of width {self.width}, and the model {n_layers} of "
                f"width {width}: it belongs to another model."
            )
        inner = unwrap(model)
        if self.belongs_to and self.belongs_to != sampled_fingerprint_of(inner):
            raise TranslatorError(
                "translator was fitted on other weights than this model's; fit one: "
                "aw.circuits.fit_translator(model, tokenizer, texts)."
            )
        if self.unembedding and self.unembedding not in _hashes_of_head(inner):
            raise TranslatorError(
                "translator names another output embedding than this model's; load the model that its "
                'config.json names ("base_model_name_or_path", "base_model_revision"), in the same precision.'
            )

    def save(self, path: str | Path) -> Path:
        """Write the translator and the hash of its model's weights as a safetensors file.

        Args:
            path: A name that ends in .safetensors.

        Raises:
            ValueError: If it ends otherwise.
        """
        path = Path(path)
        if path.suffix != ".safetensors":
            raise ValueError(f"path {str(path)!r} must end in .safetensors.")
        facts = {name: getattr(self, name) for name in ("belongs_to", "unembedding", "said")}
        tensors = {"matrices": self.matrices.contiguous(), "biases": self.biases.contiguous()}
        write_bytes(path, save(tensors, metadata={_KEY: json.dumps({"kind": _WHAT} | facts)}))
        return path

    @classmethod
    def load(cls, path: str | Path) -> Translator:
        """Open a translator that `.save` wrote, or a folder of the tuned-lens package; no code in it is run.

        A tuned lens is a folder with `config.json` and `params.pt` (Belrose et al. 2023). Its hash of the
        output embedding is checked when the translator is used.

        Args:
            path: A .safetensors file, or such a folder.

        Raises:
            FileNotFoundError: If the file does not exist.
            TranslatorError: If it holds no translator.
            SAEFormatError: If `params.pt` would have to be unpickled.
        """
        path = Path(path)
        if not path.exists():
            raise FileNotFoundError(f"path {str(path)!r} does not exist.")
        return _tuned_lens(path) if path.is_dir() else _own(path)


def _own(path: Path) -> Translator:
    try:
        with safe_open(path, "pt") as file:
            facts = json.loads((file.metadata() or {}).get(_KEY, "{}"))
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a mapping
    except (SafetensorError, OSError, ValueError) as error:
        raise TranslatorError(f"{str(path)!r} is not a saved translator ({error}).") from error
    if not isinstance(facts, dict) or facts.pop("kind", None) != _WHAT:
        raise TranslatorError(f"{str(path)!r} is not a translator; Translator.save(path) writes them.")
    try:
        return Translator(tensors["matrices"], tensors["biases"], **facts)
    except (KeyError, TypeError, ValueError) as error:
        raise TranslatorError(f"{str(path)!r} is damaged: {error}") from error


def _tuned_lens(folder: Path) -> Translator:
    """Return the translator in a folder of the tuned-lens package, whose maps are h + W_l h + b_l."""
    missing = [name for name in _PUBLISHED if not (folder / name).is_file()]
    if missing:
        raise TranslatorError(
            f"{str(folder)!r} is not a tuned lens: it lacks {' and '.join(missing)} (a tuned lens is a "
            "folder with config.json and params.pt)."
        )
    config, tensors = read_json(folder / _PUBLISHED[0]), read_torch(folder / _PUBLISHED[1])
    kind = config.get("lens_type", "linear_tuned_lens")
    try:
        width, n_layers = int(config["d_model"]), int(config["num_hidden_layers"])
        weights = torch.stack([tensors[f"{layer}.weight"] for layer in range(n_layers)]).float()
        none = torch.zeros(width)
        biases = torch.stack([tensors.get(f"{layer}.bias", none).float() for layer in range(n_layers)])
        matrices = weights.transpose(1, 2) + torch.eye(width)
        name = str(config.get("base_model_name_or_path", "an unnamed model"))
        said = f"tuned lens of {name}"
        result = Translator(matrices, biases, unembedding=str(config.get("unembed_hash") or ""), said=said)
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        raise TranslatorError(
            f"{str(folder)!r} is not a tuned lens of a known form: {error}. Its config.json names d_model "
            'and num_hidden_layers, and params.pt has "0.weight", "0.bias", "1.weight", ...'
        ) from error
    if kind != "linear_tuned_lens":
        raise TranslatorError(f"{str(folder)!r} has lens_type {kind!r}; 'linear_tuned_lens' is known here.")
    return result


def _hashes_of_head(model: Any) -> set[str]:
    """Return the hash that the tuned-lens package writes for an output embedding.

    It hashes the weight as numpy prints it with a decimal: its corners.
    """
    head = model.get_output_embeddings()
    if head is None:
        return set()
    weight = head.weight.detach().cpu()
    kinds = (torch.float32, torch.float16)
    printed = [np.array_str(weight.to(kind).numpy(), precision=1) for kind in kinds]
    return {hashlib.sha256(text.encode()).hexdigest() for text in printed}


def fit_translator(
    model: Any,
    tokenizer: Any,
    texts: str | Iterable[str],
    *,
    ridge: float = 0.03,
    window: int = 128,
) -> Translator:
    """Fit affine maps from every layer's states to the last layer's, by ridge regression in closed form.

        M_l = (X'X + lambda I)^-1 X'Y,   lambda = ridge * mean(diag(X'X))

    X and Y are the centred inputs of block l and outputs of the last block, over the tokens of all texts;
    their means make the bias. Texts are read in windows, without the first 4 tokens of each. The model runs
    once over the texts, and every layer solves a system of the model's width: seconds to minutes on a CPU.
    States are stored in float32, [token, layer, width].

    Args:
        model: A model that predicts tokens.
        tokenizer: Its tokenizer.
        texts: A text or several, with a few times more tokens than the model's width.
        ridge: Strength of the penalty, relative to the mean variance of a direction.
        window: Number of tokens that are read together.

    Returns:
        Translator: for `aw.circuits.lens(trace, translator=...)`; `.save(path)` writes safetensors, and it is
        refused on another model.

    Raises:
        ValueError: If `ridge` is negative, `window` too small, or the texts have too few tokens.
        UnsupportedModelError: If the model has no head that predicts tokens, or several stacks.

    Source: Belrose et al. 2023, Eliciting Latent Predictions with the Tuned Lens, section 3, whose maps are
    trained by gradient descent on KL; the closed form is this package's.

    Example:
        >>> model, tokenizer = aw.zoo.induction(letters="abcdefgh", length=16)
        >>> texts = ["fadebcfadebcga", "hgabhgabcdhgab", "cdcdabefabefcd"]
        >>> translator = aw.circuits.fit_translator(model, tokenizer, texts)
        >>> translator.n_layers, translator.width == model.config.hidden_size
        (2, True)
    """
    if not ridge >= 0:
        raise ValueError(f"ridge must be 0 or more, not {ridge}.")
    if window < _SKIPPED + 2:
        raise ValueError(f"window must be {_SKIPPED + 2} tokens or more, not {window}.")
    windows = _windows(model, tokenizer, listed_texts(texts), window)
    first = record(model, None, input_ids=windows[0])
    _require_head(first)
    states = _States(first)
    rows = [states.of(ids) for ids in progress(windows, "reading states")]
    states_of_layers = torch.cat(rows, dim=1)
    del rows
    n_layers, n_tokens, width = (
        states_of_layers.shape[0] - 1,
        states_of_layers.shape[1],
        states_of_layers.shape[2],
    )
    last = states_of_layers[-1].double()
    maps = [
        ridge_map(states_of_layers[layer].double(), last, ridge)
        for layer in progress(range(n_layers), "fitting")
    ]
    few = "" if n_tokens > width else f"; fewer tokens than the width {width}: it will fit them too well"
    return Translator(
        torch.stack([matrix.float() for matrix, _ in maps]),
        torch.stack([bias.float() for _, bias in maps]),
        belongs_to=sampled_fingerprint_of(model),
        said=f"ridge {ridge:g}, fitted on {n_tokens:,} tokens{few}",
    )


def ridge_map(x: Tensor, y: Tensor, ridge: float) -> tuple[Tensor, Tensor]:
    """Return the matrix [width, width] and bias [width] with which x M + b is nearest to y.

    Args:
        x: [token, width].
        y: [token, width].
        ridge: Penalty on M, relative to the mean of the diagonal of the centred X'X.
    """
    mean_x, mean_y = x.mean(0), y.mean(0)
    centred = x - mean_x
    gram = centred.T @ centred
    penalty = ridge * gram.diagonal().mean()
    eye = torch.eye(len(gram), dtype=x.dtype, device=x.device)
    # lstsq where nothing is penalised: the states may span fewer directions than the width.
    right = centred.T @ (y - mean_y)
    matrix = (
        torch.linalg.solve(gram + penalty * eye, right)
        if float(penalty) > 0
        else torch.linalg.pinv(centred) @ (y - mean_y)
    )
    return matrix, mean_y - mean_x @ matrix


def _windows(model: Any, tokenizer: Any, texts: Sequence[str], window: int) -> list[list[int]]:
    """Return the ids of texts, cut into windows; those too short to count are left out."""
    reader = text_tokenizer(tokenizer)
    if reader is None:
        raise TypeError(f"tokenizer is a {type(tokenizer).__name__}; pass the model's tokenizer.")
    limit = limit_of(unwrap(model), tokenizer)
    size = min(window, limit or window)
    windows = []
    for text in texts:
        # A long text is cut here, so that no warning of its length is due.
        ids = reader(text, add_special_tokens=False, verbose=False)["input_ids"]
        windows += [ids[start : start + size] for start in range(0, len(ids), size)]
    windows = [ids for ids in windows if len(ids) > _SKIPPED + 1]
    if not windows:
        raise ValueError(f"texts have no {_SKIPPED + 2} tokens in a row; pass longer ones (aw.demo_book()).")
    return windows


def _require_head(trace: Trace) -> None:
    if trace.stacks != ("self",):
        raise UnsupportedModelError(
            f"{_NAME} reads models with one stack, and this one has {', '.join(trace.stacks)}."
        )
    if trace.logits is None or trace.logits.dim() != TOKENS:
        raise UnsupportedModelError(
            f"{_NAME} needs a model that predicts tokens (AutoModelForCausalLM, AutoModelForMaskedLM); this "
            "one does not."
        )
    every_block(trace, "self", _NAME)
    head_of(trace, "self", _NAME, len(trace.tokens) - 1)


class _States:
    """Reads the inputs of all blocks and the output of the last block, by hooks.

    Args:
        trace: A trace of any text of the model.
    """

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._model = unwrap(trace.model)
        blocks = every_block(trace, "self", _NAME).layers
        self._names = [block.name for block in blocks.values()]

    def of(self, ids: list[int]) -> Tensor:
        """Return states [layer + 1, token, width] in float32 on the CPU, without the first tokens."""
        inputs: list[Tensor] = []
        outputs: list[Tensor] = []

        def before(_: nn.Module, args: Any, kwargs: Any) -> None:
            result = next(value for value in (*args, *kwargs.values()) if is_hidden(value))
            inputs.append(result[0, _SKIPPED:].detach().float().cpu())

        def after(_: nn.Module, __: Any, output: Any) -> None:
            outputs[:] = [first_tensor(output)[0, _SKIPPED:].detach().float().cpu()]

        device = next(self._model.parameters()).device
        with borrowed(self._model) as twin, no_grad(), ExitStack() as hooks:
            for name in dict.fromkeys(self._names):  # a block shared by several layers is hooked once
                module = twin.get_submodule(name)
                hooks.callback(module.register_forward_pre_hook(before, with_kwargs=True).remove)
            last = twin.get_submodule(self._names[-1])
            hooks.callback(last.register_forward_hook(after).remove)
            inputs_of_model = {"input_ids": torch.tensor([ids], device=device)}
            self._trace.call(twin, inputs_of_model, pass_options(twin, logits=False), {})
        if len(inputs) != len(self._names):
            raise UnsupportedModelError(
                f"{_NAME}: the model called {len(inputs)} blocks instead of {len(self._names)}."
            )
        return torch.stack([*inputs, *outputs])
