"""SAE: a sparse autoencoder, whoever trained it, with the numbers its format defines."""

from __future__ import annotations

from types import MethodType
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.utils.weak import WeakTensorKeyDictionary

from attnwidgets._errors import refuse_unknown, suggest
from attnwidgets.explanations.selecting import listed, pick
from attnwidgets.sae.normalisation import NORMALISATIONS, Normalisation, Undo, normalise

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from attnwidgets.sae.check import SAECheck
    from attnwidgets.sae.forms import Lecture
    from attnwidgets.sae.history import History

Architecture = Literal["standard", "topk", "jumprelu", "gated"]
Activation = Literal["raw", "lecture"]
ARCHITECTURES: tuple[Architecture, ...] = ("standard", "topk", "jumprelu", "gated")
ACTIVATIONS: tuple[Activation, ...] = ("raw", "lecture")

# What an architecture has beside W_enc, W_dec and b_dec, each [d_sae].
_OWN: dict[str, tuple[str, ...]] = {
    "standard": ("b_enc",),
    "topk": ("b_enc",),
    "jumprelu": ("b_enc", "threshold"),
    "gated": ("b_gate", "b_mag", "r_mag"),
}


class _TrainOrMode:
    """`SAE.train(model, ...)` trains one; `sae.train()` sets the mode of a module, as in torch."""

    def __get__(self, instance: SAE | None, owner: type[SAE]) -> Callable[..., Any]:
        if instance is not None:
            return MethodType(nn.Module.train, instance)
        from attnwidgets.sae.train import train

        return train


class SAE(nn.Module):
    """A sparse autoencoder of the states at one place in a model.

    With x what `normalise` makes of the states h, less `b_dec` where `apply_b_dec_to_input`, and
    p = x W_enc + b_enc, the activations a are

        standard   ReLU(p)
        topk       ReLU of the k largest p of a token, 0 elsewhere
        jumprelu   ReLU(p) where p > threshold, 0 elsewhere
        gated      ReLU(x (W_enc exp(r_mag)) + b_mag) where x W_enc + b_gate > 0, 0 elsewhere

    and the reconstruction is a W_dec + b_dec, taken back through the normalisation.

    Args:
        W_enc: [d_in, d_sae].
        W_dec: [d_sae, d_in]: a feature's direction is a row.
        b_dec: [d_in].
        b_enc: [d_sae]; for all but gated SAEs.
        architecture: "standard", "topk", "jumprelu" or "gated".
        k: Features a token may have (topk).
        threshold: [d_sae], or one for all (jumprelu).
        b_gate, b_mag, r_mag: [d_sae] (gated).
        apply_b_dec_to_input: Whether `b_dec` is subtracted before encoding.
        normalize_activations: What is done to every token before: "none", "constant_norm_rescale" or
            "layer_norm" (SAELens).
        rescale_acts_by_decoder_norm: Whether pre-activations are multiplied by the norm of their feature's
            direction before the k largest are chosen, and activations divided by it in decoding (topk).
        centre: Whether every token's mean is subtracted before, and added after: for SAEs that were trained
            on a residual stream as TransformerLens centres it, read in the model as it is.
        site: Where its states are, by Hugging Face module or TransformerLens hook; see
            `attnwidgets.sae.site`. "" where that is not known.
        model_name: The model it was trained on, as far as that is known.
        metadata: What else its file says (JSON-able); kept and saved.
        origin: Where it comes from, in words.

    Attributes:
        maxima: [d_sae], the largest activation (raw) of every feature on a corpus, or None: the unit in which
            `aw.steer` counts.
        history: How it was trained, where that was here.

    Parameters require no gradient; `sae.requires_grad_()` makes them.

    Raises:
        ValueError: Where shapes do not agree, an option is unknown, or a weight is NaN or infinite.
    """

    W_enc: Tensor
    W_dec: Tensor
    b_dec: Tensor
    b_enc: Tensor | None
    threshold: Tensor | None
    b_gate: Tensor | None
    b_mag: Tensor | None
    r_mag: Tensor | None
    maxima: Tensor | None
    history: History | None = None
    train: ClassVar[Any] = _TrainOrMode()

    def __init__(
        self,
        W_enc: Tensor,
        W_dec: Tensor,
        b_dec: Tensor,
        b_enc: Tensor | None = None,
        *,
        architecture: Architecture = "standard",
        k: int | None = None,
        threshold: Tensor | float | None = None,
        b_gate: Tensor | None = None,
        b_mag: Tensor | None = None,
        r_mag: Tensor | None = None,
        apply_b_dec_to_input: bool = True,
        normalize_activations: Normalisation = "none",
        rescale_acts_by_decoder_norm: bool = False,
        centre: bool = False,
        site: str = "",
        model_name: str = "",
        metadata: Mapping[str, Any] | None = None,
        origin: str = "given",
    ) -> None:
        super().__init__()
        _require_one_of("architecture", architecture, ARCHITECTURES)
        _require_one_of("normalize_activations", normalize_activations, NORMALISATIONS)
        if W_enc.dim() != 2:  # noqa: PLR2004 - a matrix
            raise ValueError(f"W_enc has shape {tuple(W_enc.shape)}; it is a matrix [d_in, d_sae].")
        d_in, d_sae = W_enc.shape
        if isinstance(threshold, float | int) or (isinstance(threshold, Tensor) and threshold.dim() == 0):
            threshold = W_enc.new_full((d_sae,), float(threshold))
        given: dict[str, Tensor | None] = {
            "W_enc": W_enc,
            "W_dec": W_dec,
            "b_dec": b_dec,
            "b_enc": b_enc,
            "threshold": threshold,
            "b_gate": b_gate,
            "b_mag": b_mag,
            "r_mag": r_mag,
        }
        needed = ("W_enc", "W_dec", "b_dec", *_OWN[architecture])
        shapes = {"W_enc": (d_in, d_sae), "W_dec": (d_sae, d_in), "b_dec": (d_in,)}
        for name, tensor in given.items():
            if (tensor is not None) != (name in needed):
                what = "needs" if tensor is None else "has no"
                raise ValueError(f"{name}: a {architecture} SAE {what} one; it has {', '.join(needed)}.")
            if tensor is not None:
                _require_shape(name, tensor, shapes.get(name, (d_sae,)))
            parameter = None if tensor is None else nn.Parameter(tensor.detach().clone(), requires_grad=False)
            self.register_parameter(name, parameter)
        if (k is not None) != (architecture == "topk") or (k is not None and not 1 <= k <= d_sae):
            raise ValueError(f"k={k}: a topk SAE needs a k from 1 to {d_sae}, and others have none.")
        if rescale_acts_by_decoder_norm and architecture != "topk":
            raise ValueError("rescale_acts_by_decoder_norm: only topk SAEs can do so.")
        self.register_buffer("maxima", None, persistent=False)
        self.architecture: Architecture = architecture
        self.k = k
        self.apply_b_dec_to_input = bool(apply_b_dec_to_input)
        self.normalize_activations: Normalisation = normalize_activations
        self.rescale_acts_by_decoder_norm = bool(rescale_acts_by_decoder_norm)
        self.centre = bool(centre)
        self.site = site
        self.model_name = model_name
        self.metadata = dict(metadata or {})
        self.origin = origin
        self._undone: WeakTensorKeyDictionary = WeakTensorKeyDictionary()

    def __getstate__(self) -> dict[str, Any]:
        # What was normalised last belongs to tensors of this process.
        return {name: value for name, value in vars(self).items() if name != "_undone"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        nn.Module.__setstate__(self, state)
        self._undone = WeakTensorKeyDictionary()

    @property
    def d_in(self) -> int:
        """Width of the states it reads."""
        return int(self.W_enc.shape[0])

    @property
    def d_sae(self) -> int:
        """Number of features."""
        return int(self.W_enc.shape[1])

    @property
    def dtype(self) -> torch.dtype:
        """Precision of its weights, in which it computes."""
        return self.W_enc.dtype

    @property
    def device(self) -> torch.device:
        """Where its weights are."""
        return self.W_enc.device

    @property
    def directions(self) -> Tensor:
        """What one unit of every feature adds to the (normalised) reconstruction [d_sae, d_in]."""
        if not self.rescale_acts_by_decoder_norm:
            return self.W_dec
        unit: Tensor = self.W_dec / self.W_dec.norm(dim=-1, keepdim=True)
        return unit

    @property
    def per_token(self) -> bool:
        """Whether states are normalised token by token, so that decoding has to know them."""
        return self.normalize_activations != "none" or self.centre

    def extra_repr(self) -> str:
        """Return the line that is shown."""
        where = f", {self.site}" if self.site else ""
        of = f" of {self.model_name}" if self.model_name else ""
        k = f" k={self.k}" if self.k else ""
        return f"{self.architecture}{k}, {self.d_in} -> {self.d_sae}{where}{of}"

    def __repr__(self) -> str:
        return f"SAE({self.extra_repr()})"

    # What it computes.

    def encode(
        self,
        h: Tensor,
        *,
        activation: Activation = "raw",
        features: int | Iterable[int] | slice | None = None,
    ) -> Tensor:
        """Return activations [..., d_sae] of states, in the SAE's precision.

        Args:
            h: [..., d_in]; of an SAE of attention heads also [..., head, d_head].
            activation: "raw" for a_j, as the format defines it; "lecture" for a_j ||W_dec[j]||, the length
                of what the feature adds to the reconstruction.
            features: Only these [..., feature]. The k largest are always chosen among all.

        Raises:
            ValueError: If the states are of another width; the message names both.
            IndexError: If there is no such feature.
        """
        _require_one_of("activation", activation, ACTIVATIONS)
        chosen = None if features is None else list(pick(features, range(self.d_sae), "feature"))
        given = self._flat(h)
        x, undo = normalise(self.normalize_activations, given, centre=self.centre)
        if self.apply_b_dec_to_input:
            x = x - self.b_dec
        early = chosen if self.architecture != "topk" else None  # a choice among all cannot be made of some
        a = self._activate(x, early)
        if chosen is not None and early is None:
            a = a[..., chosen]
        if activation == "lecture":
            norms = self.directions.norm(dim=-1)
            a = a * (norms if chosen is None else norms[chosen])
        elif chosen is None and undo is not None:
            self._undone[a] = undo
        return a

    def _flat(self, h: Tensor) -> Tensor:
        """Return states in the SAE's precision, heads side by side."""
        width = h.shape[-1]
        if width != self.d_in and h.dim() > 1 and h.shape[-2] * width == self.d_in:
            h = h.flatten(-2)
        elif width != self.d_in:
            raise ValueError(f"h is {width} wide, and the SAE reads states of width {self.d_in}.")
        return h.to(device=self.device, dtype=self.dtype)

    def _activate(self, x: Tensor, features: list[int] | None) -> Tensor:
        def own(name: str) -> Tensor:
            weight: Tensor = getattr(self, name)
            return weight if features is None else weight[..., features]

        W_enc = own("W_enc")
        if self.architecture == "gated":
            gate = x @ W_enc + own("b_gate")
            magnitude = x @ (W_enc * own("r_mag").exp()) + own("b_mag")
            return (gate > 0).to(x.dtype) * magnitude.relu()
        p = x @ W_enc + own("b_enc")
        if self.architecture == "jumprelu":
            return p.relu() * (p > own("threshold")).to(p.dtype)
        if self.architecture == "topk":
            if self.rescale_acts_by_decoder_norm:
                p = p * self.W_dec.norm(dim=-1)
            best = p.topk(self.k or 1, dim=-1, sorted=False)
            return torch.zeros_like(p).scatter(-1, best.indices, best.values.relu())
        return p.relu()

    def decode(self, a: Tensor, h: Tensor | None = None) -> Tensor:
        """Return the reconstruction [..., d_in] of activations [..., d_sae] (raw).

        Args:
            a: Activations.
            h: The states they are of [..., d_in], where every token is normalised by itself. Not needed for
                the very tensor that `encode` returned.

        Raises:
            ValueError: If states are needed and not given, or the number of features is another.
        """
        if a.shape[-1] != self.d_sae:
            raise ValueError(f"a has {a.shape[-1]} features, and the SAE has {self.d_sae}.")
        undo = None
        if self.per_token:
            if h is not None:
                undo = normalise(self.normalize_activations, self._flat(h), centre=self.centre)[1]
            else:
                undo = self._undone.get(a)
            if undo is None:
                how = self.normalize_activations if self.normalize_activations != "none" else "centre"
                raise ValueError(
                    f"decode(a, h) needs the states h here: this SAE normalises every token ({how}), and a "
                    "is not the tensor that encode returned."
                )
        return self._restored(a.to(self.W_dec) @ self.directions + self.b_dec, undo)

    @staticmethod
    def _restored(reconstruction: Tensor, undo: Undo | None) -> Tensor:
        return reconstruction if undo is None else reconstruction * undo.multiply + undo.add

    def forward(self, h: Tensor) -> Tensor:
        """Return the reconstruction of states, in their shape and the SAE's precision."""
        return self.decode(self.encode(h), h).reshape(h.shape)

    def change(self, h: Tensor, features: Sequence[int], by: Tensor) -> Tensor:
        """Return what the reconstruction of states changes by when activations do [..., d_in].

        Args:
            h: [..., d_in].
            features: Which change.
            by: [..., feature], by how much (raw).
        """
        moved: Tensor = by.to(self.W_dec) @ self.directions[list(features)]
        undo = normalise(self.normalize_activations, self._flat(h), centre=self.centre)[1]
        return moved if undo is None else moved * undo.multiply

    # The same SAE, written otherwise.

    def lecture(self) -> Lecture:
        """Return the weights as lectures write them; see `attnwidgets.sae.forms.lecture`."""
        from attnwidgets.sae.forms import lecture

        return lecture(self)

    def fold_input_scale(self, scale: float) -> SAE:
        """Return the SAE of h that this one is of `scale` times h; see `attnwidgets.sae.forms`."""
        from attnwidgets.sae.forms import fold_input_scale

        return fold_input_scale(self, scale)

    def fold_decoder_norm(self) -> SAE:
        """Return the same SAE with directions of length one; see `attnwidgets.sae.forms`."""
        from attnwidgets.sae.forms import fold_decoder_norm

        return fold_decoder_norm(self)

    def replaced(self, **changes: Any) -> SAE:
        """Return a copy with other weights or options, named as in the constructor."""
        weights = ("W_enc", "W_dec", "b_dec", "b_enc", "threshold", "b_gate", "b_mag", "r_mag")
        made = SAE(**({name: getattr(self, name) for name in weights} | self.options() | changes))
        made.maxima, made.history = self.maxima, self.history
        return made

    def options(self) -> dict[str, Any]:
        """Return the arguments of the constructor that are no weights."""
        return {
            "architecture": self.architecture,
            "k": self.k,
            "apply_b_dec_to_input": self.apply_b_dec_to_input,
            "normalize_activations": self.normalize_activations,
            "rescale_acts_by_decoder_norm": self.rescale_acts_by_decoder_norm,
            "centre": self.centre,
            "site": self.site,
            "model_name": self.model_name,
            "metadata": dict(self.metadata),
            "origin": self.origin,
        }

    # Files.

    @classmethod
    def from_pretrained(
        cls,
        path: str | Path,
        sae_id: str = "",
        *,
        site: str | None = None,
        input_scale: float | None = None,
        centre: bool = False,
        device: str | torch.device | None = None,
        dtype: torch.dtype | None = None,
        revision: str | None = None,
        **unknown: object,
    ) -> SAE:
        """Open an SAE from a folder, or by its id from the model hub where one is reached.

        Read are the formats of SAELens (6 and older), Gemma Scope 1 and 2, Llama Scope, dictionary_learning
        and sparsify, with their own normalisations and biases. Nothing is unpickled.

        Args:
            path: A folder, or a hub id ("google/gemma-scope-2b-pt-res").
            sae_id: The folder in it, where it holds several SAEs ("layer_20/width_16k/average_l0_71").
            site: Where the states are, instead of what the files say; see `attnwidgets.sae.site`.
            input_scale: A scale that was applied to states in training and is not folded into the files yet
                (SAELens: "expected_average_only_in").
            centre: Subtract every token's mean before: see the class.
            device: Where the weights go.
            dtype: Of the weights; without one, half precision is widened to float32.
            revision: Of a hub repository.
            unknown: Refused, with the nearest keyword.

        Raises:
            FileNotFoundError: If nothing is there; what was looked for is listed.
            SAEFormatError: If the files are in no known format or hold something else than an SAE (a
                transcoder, ...), or would have to be unpickled (a ValueError).
        """
        from attnwidgets.sae.formats import read

        known = ("path", "sae_id", "site", "input_scale", "centre", "device", "dtype", "revision")
        refuse_unknown("SAE.from_pretrained", unknown, known)
        return read(
            path,
            sae_id,
            site=site,
            input_scale=input_scale,
            centre=centre,
            device=device,
            dtype=dtype,
            revision=revision,
        )

    @classmethod
    def from_object(cls, sae: Any) -> SAE:
        """Return a live `sae_lens.SAE` or dictionary_learning object as an SAE; one of ours as it is.

        Raises:
            TypeError: If it is none of them; a ValueError names what is not supported.
        """
        from attnwidgets.sae.formats.live import from_object

        return from_object(sae)

    def save_pretrained(self, path: str | Path) -> Path:
        """Write a folder in SAELens' format (cfg.json, sae_weights.safetensors), and return its path.

        What SAELens has no place for (maxima, how it was trained) goes into a file beside them.

        Raises:
            FileExistsError: Where a folder is there and holds something else.
            FileNotFoundError: Where the folder to write into does not exist.
        """
        from attnwidgets.sae.formats.saelens import write

        return write(self, path)

    # With a model.

    def check(
        self,
        model: Any,
        tokenizer: Any,
        texts: Sequence[str] | None = None,
        *,
        site: str | None = None,
        prepend_bos: bool | None = None,
    ) -> SAECheck:
        """Say on a few sentences whether this SAE fits the model; see `attnwidgets.sae.check.check`."""
        from attnwidgets.sae.check import check

        return check(self, model, tokenizer, texts, site=site, prepend_bos=prepend_bos)


def as_sae(sae: Any) -> SAE:
    """Return an SAE of this package, or a live object of another library as one."""
    return sae if isinstance(sae, SAE) else SAE.from_object(sae)


def _require_one_of(name: str, value: str, choices: Sequence[str]) -> None:
    if value not in choices:
        raise ValueError(
            f"{name} must be one of {listed(choices)}, not {value!r}.{suggest(str(value), choices)}"
        )


def _require_shape(name: str, tensor: Tensor, shape: tuple[int, ...]) -> None:
    if tuple(tensor.shape) != shape:
        raise ValueError(f"{name} has shape {tuple(tensor.shape)}; with this W_enc it must be {shape}.")
    if not bool(torch.isfinite(tensor).all()):
        raise ValueError(f"{name} holds NaN or infinite values; the file is damaged or training failed.")
