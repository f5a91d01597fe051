"""Coder: the weights of a sparse autoencoder of any architecture, normalising, encoding and decoding."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.weak import WeakTensorKeyDictionary

from attnwidgets._errors import require_choice
from attnwidgets._selecting import pick

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

Activation = Literal["raw", "lecture"]
ACTIVATIONS: tuple[Activation, ...] = ("raw", "lecture")

Architecture = Literal["standard", "topk", "jumprelu", "gated"]
ARCHITECTURES: tuple[Architecture, ...] = ("standard", "topk", "jumprelu", "gated")
WEIGHTS = ("W_enc", "W_dec", "b_dec", "b_enc", "threshold", "b_gate", "b_mag", "r_mag")
"""Names of all weights; the first three belong to every architecture."""

_COMMON = WEIGHTS[:3]
# Further weights by architecture, each [d_sae].
_FURTHER: Mapping[str, tuple[str, ...]] = {
    "standard": ("b_enc",),
    "topk": ("b_enc",),
    "jumprelu": ("b_enc", "threshold"),
    "gated": ("b_gate", "b_mag", "r_mag"),
}

Normalisation = Literal["none", "constant_norm_rescale", "layer_norm"]
NORMALISATIONS: tuple[Normalisation, ...] = ("none", "constant_norm_rescale", "layer_norm")
_EPS = 1e-5


class Coder(nn.Module):
    """The computations of `attnwidgets.SAE`, which documents the arguments."""

    W_enc: Tensor
    W_dec: Tensor
    b_dec: Tensor
    b_enc: Tensor | None
    threshold: Tensor | None
    b_gate: Tensor | None
    b_mag: Tensor | None
    r_mag: Tensor | None
    maxima: Tensor | None

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
        require_choice("architecture", architecture, ARCHITECTURES)
        require_choice("normalize_activations", normalize_activations, NORMALISATIONS)
        if isinstance(threshold, float | int) or (isinstance(threshold, Tensor) and threshold.dim() == 0):
            threshold = W_enc.new_full(W_enc.shape[-1:], float(threshold))
        tensors = (W_enc, W_dec, b_dec, b_enc, threshold, b_gate, b_mag, r_mag)
        weights: dict[str, Tensor | None] = dict(zip(WEIGHTS, tensors, strict=True))
        require_weights(architecture, weights)
        for name, tensor in weights.items():
            parameter = None if tensor is None else nn.Parameter(tensor.detach().clone(), requires_grad=False)
            self.register_parameter(name, parameter)
        require_k(architecture, k, self.d_sae)
        if rescale_acts_by_decoder_norm and architecture != "topk":
            raise ValueError("rescale_acts_by_decoder_norm is only available for topk SAEs.")
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
        # Statistics of normalised tokens belong to tensors of this process.
        return {name: value for name, value in vars(self).items() if name != "_undone"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        nn.Module.__setstate__(self, state)
        self._undone = WeakTensorKeyDictionary()

    @property
    def d_in(self) -> int:
        """Width of the states."""
        return int(self.W_enc.shape[0])

    @property
    def d_sae(self) -> int:
        """Number of features."""
        return int(self.W_enc.shape[1])

    @property
    def dtype(self) -> torch.dtype:
        """Precision of the weights and of all computations."""
        return self.W_enc.dtype

    @property
    def device(self) -> torch.device:
        """Device of the weights."""
        return self.W_enc.device

    @property
    def directions(self) -> Tensor:
        """Vectors that a unit of each feature adds to the (normalised) reconstruction [d_sae, d_in]."""
        if not self.rescale_acts_by_decoder_norm:
            return self.W_dec
        return self.W_dec / self.W_dec.norm(dim=-1, keepdim=True)

    @property
    def per_token(self) -> bool:
        """Whether each token is normalised by itself, so that decoding needs the states."""
        return self.normalize_activations != "none" or self.centre

    def extra_repr(self) -> str:
        """Return the summary shown in `repr`."""
        where = f", {self.site}" if self.site else ""
        of = f" of {self.model_name}" if self.model_name else ""
        k = f" k={self.k}" if self.k else ""
        return f"{self.architecture}{k}, {self.d_in} -> {self.d_sae}{where}{of}"

    def __repr__(self) -> str:
        return f"SAE({self.extra_repr()})"

    # Encoding and decoding.

    def encode(
        self,
        h: Tensor,
        *,
        activation: Activation = "raw",
        features: int | Iterable[int] | slice | None = None,
    ) -> Tensor:
        """Return the activations [..., d_sae] of states, in the SAE's precision.

        Args:
            h: States [..., d_in]; for an SAE of attention heads also [..., head, d_head].
            activation: "raw" for a_j, as the format defines it; "lecture" for a_j ||W_dec[j]||, the length
                of the vector the feature adds to the reconstruction.
            features: Return only these features [..., feature]. topk still chooses among all features.

        Raises:
            ValueError: If the states have another width than the SAE reads.
            IndexError: If the feature is out of range.
        """
        require_choice("activation", activation, ACTIVATIONS)
        chosen = None if features is None else list(pick(features, range(self.d_sae), "feature"))
        states = self._flat(h)
        x, undo = normalise(self.normalize_activations, states, centre=self.centre)
        if self.apply_b_dec_to_input:
            x = x - self.b_dec
        # topk compares all features, so that all are computed.
        encoded_features = chosen if self.architecture != "topk" else None
        a = self._activate(x, encoded_features)
        if chosen is not None and encoded_features is None:
            a = a[..., chosen]
        if activation == "lecture":
            norms = self.directions.norm(dim=-1)
            a = a * (norms if chosen is None else norms[chosen])
        elif chosen is None and undo is not None:
            self._undone[a] = undo
        return a

    def _flat(self, h: Tensor) -> Tensor:
        """Return states in the SAE's precision, heads concatenated."""
        width = h.shape[-1]
        if width != self.d_in and h.dim() > 1 and h.shape[-2] * width == self.d_in:
            h = h.flatten(-2)
        elif width != self.d_in:
            raise ValueError(f"h is {width} wide, but the SAE reads states of width {self.d_in}.")
        return h.to(device=self.device, dtype=self.dtype)

    def _activate(self, x: Tensor, features: list[int] | None) -> Tensor:
        chosen = slice(None) if features is None else features
        names = ("W_enc", *own_weights(self.architecture))
        weights = {name: getattr(self, name)[..., chosen] for name in names}
        norms = self.W_dec.norm(dim=-1) if self.rescale_acts_by_decoder_norm else None
        return activate(self.architecture, x, weights, k=self.k, norms=norms)

    def decode(self, a: Tensor, h: Tensor | None = None) -> Tensor:
        """Return the reconstruction [..., d_in] of activations [..., d_sae] (raw).

        Args:
            a: Raw activations [..., d_sae].
            h: The states they belong to [..., d_in]; needed if each token is normalised by itself, unless
                `a` is the very tensor that `encode` returned.

        Raises:
            ValueError: If `h` is needed and missing, or the number of features is wrong.
        """
        if a.shape[-1] != self.d_sae:
            raise ValueError(f"a has {a.shape[-1]} features, but the SAE has {self.d_sae}.")
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
        reconstruction: Tensor = a.to(self.W_dec) @ self.directions + self.b_dec
        return reconstruction if undo is None else reconstruction * undo.multiply + undo.add

    def forward(self, h: Tensor) -> Tensor:
        """Return the reconstruction of states, in their shape and the SAE's precision."""
        return self.decode(self.encode(h), h).reshape(h.shape)

    def change(self, h: Tensor, features: Sequence[int], by: Tensor) -> Tensor:
        """Return the change of the reconstruction [..., d_in] for a change of activations.

        Args:
            h: States [..., d_in].
            features: The features that change.
            by: The change of their raw activations [..., feature].
        """
        moved: Tensor = by.to(self.W_dec) @ self.directions[list(features)]
        undo = normalise(self.normalize_activations, self._flat(h), centre=self.centre)[1]
        return moved if undo is None else moved * undo.multiply

    def added(self, h: Tensor, a: Tensor, features: Sequence[int]) -> Tensor:
        """Return the terms of features and bias in the reconstruction [feature + 1, token, d_in].

        The last part is the decoder's bias, with the shift that undoes a normalisation of each token. Parts
        are float64 on the CPU, so that sums of many stay accurate.

        Args:
            h: States [token, d_in].
            a: Their raw activations [token, d_sae].
            features: The features; those left out have no part.
        """
        chosen = list(features)
        amounts, directions, bias = (
            tensor.detach().cpu().double() for tensor in (a[:, chosen], self.directions[chosen], self.b_dec)
        )
        added = torch.cat([amounts.T[..., None] * directions[:, None], bias.expand(1, len(amounts), -1)])
        undo = normalise(self.normalize_activations, self._flat(h), centre=self.centre)[1]
        if undo is None:
            return added
        added = added * undo.multiply.cpu().double()
        added[-1] += undo.add.cpu().double()
        return added


def activate(
    architecture: Architecture,
    x: Tensor,
    weights: Mapping[str, Tensor],
    *,
    k: int | None,
    norms: Tensor | None,
) -> Tensor:
    """Return the activations [..., feature] of normalised states.

    Args:
        architecture: The architecture; `SAE` has the formulas.
        x: [..., d_in].
        weights: "W_enc" [d_in, feature] and the architecture's further weights, each [feature].
        k: Largest number of active features per token (topk), chosen among those whose weights are given.
        norms: [feature], factors applied to pre-activations before the k largest are chosen (topk), or None.
    """
    W_enc = weights["W_enc"]
    if architecture == "gated":
        gate = x @ W_enc + weights["b_gate"]
        magnitude = x @ (W_enc * weights["r_mag"].exp()) + weights["b_mag"]
        return (gate > 0).to(x.dtype) * magnitude.relu()
    p = x @ W_enc + weights["b_enc"]
    if architecture == "jumprelu":
        return p.relu() * (p > weights["threshold"]).to(p.dtype)
    if architecture == "topk":
        if norms is not None:
            p = p * norms
        best = p.topk(k or 1, dim=-1, sorted=False)
        return torch.zeros_like(p).scatter(-1, best.indices, best.values.relu())
    return p.relu()


def own_weights(architecture: Architecture) -> tuple[str, ...]:
    """Return the names of the encoder weights other than W_enc."""
    return _FURTHER[architecture]


def require_weights(architecture: Architecture, weights: Mapping[str, Tensor | None]) -> None:
    """Raise ValueError unless all weights of an architecture are present, finite and of matching shapes."""
    W_enc = weights["W_enc"]
    if W_enc is None or W_enc.dim() != 2:  # noqa: PLR2004 - a matrix
        shape = None if W_enc is None else tuple(W_enc.shape)
        raise ValueError(f"W_enc has shape {shape}; it must be a matrix [d_in, d_sae].")
    d_in, d_sae = W_enc.shape
    needed = (*_COMMON, *_FURTHER[architecture])
    shapes = {"W_enc": (d_in, d_sae), "W_dec": (d_sae, d_in), "b_dec": (d_in,)}
    for name, tensor in weights.items():
        if (tensor is not None) != (name in needed):
            verb = "requires" if tensor is None else "has no"
            raise ValueError(
                f"{name}: a {architecture} SAE {verb} {name}; its weights are {', '.join(needed)}."
            )
        if tensor is not None:
            _require_shape(name, tensor, shapes.get(name, (d_sae,)))


def require_k(architecture: Architecture, k: int | None, d_sae: int) -> None:
    """Raise ValueError unless `k` is valid for a topk SAE, and None for any other."""
    if (k is not None) != (architecture == "topk") or (k is not None and not 1 <= k <= d_sae):
        raise ValueError(f"k={k}: a topk SAE needs k from 1 to {d_sae}; other architectures take none.")


def _require_shape(name: str, tensor: Tensor, shape: tuple[int, ...]) -> None:
    if tuple(tensor.shape) != shape:
        raise ValueError(f"{name} has shape {tuple(tensor.shape)}; with this W_enc it must be {shape}.")
    if not bool(torch.isfinite(tensor).all()):
        raise ValueError(f"{name} contains NaN or infinite values: the file is damaged, or training failed.")


class Undo(NamedTuple):
    """Inverse of a normalisation: multiply, then add (each [..., 1])."""

    multiply: Tensor
    add: Tensor


def normalise(kind: Normalisation, states: Tensor, *, centre: bool = False) -> tuple[Tensor, Undo | None]:
    """Return normalised states [..., width] and the inverse; None if there is nothing to undo.

    Args:
        kind: "constant_norm_rescale" scales every token to norm sqrt(width); "layer_norm" subtracts a token's
            mean and divides by its (unbiased) standard deviation plus 1e-5. Both as in SAELens.
        states: States [..., width].
        centre: Subtract every token's mean first. TransformerLens centres the residual stream of LayerNorm
            models in this way, by centring the weights that write to it.
    """
    if kind == "none" and not centre:
        return states, None
    mean = states.mean(dim=-1, keepdim=True)
    unit, zero = torch.ones_like(mean), torch.zeros_like(mean)
    shift = zero
    if centre:
        states, shift = states - mean, mean
    if kind == "constant_norm_rescale":
        # The clamp keeps a token of zeros as it is.
        norm = states.norm(dim=-1, keepdim=True).clamp_min(torch.finfo(states.dtype).tiny)
        coefficient = states.shape[-1] ** 0.5 / norm
        return states * coefficient, Undo(1 / coefficient, shift)
    if kind == "layer_norm":
        token_mean = states.mean(dim=-1, keepdim=True)
        states = states - token_mean
        deviation = states.std(dim=-1, keepdim=True)
        return states / (deviation + _EPS), Undo(deviation, token_mean + shift)
    return states, Undo(unit, shift)
