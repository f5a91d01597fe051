"""Coder: the weights of a sparse autoencoder, and what they make of states."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor, nn
from torch.utils.weak import WeakTensorKeyDictionary

from attnwidgets._selecting import pick
from attnwidgets.sae.architecture import (
    ARCHITECTURES,
    WEIGHTS,
    Architecture,
    activate,
    own_weights,
    require_k,
    require_one_of,
    require_weights,
)
from attnwidgets.sae.normalisation import NORMALISATIONS, Normalisation, Undo, normalise

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

Activation = Literal["raw", "lecture"]
ACTIVATIONS: tuple[Activation, ...] = ("raw", "lecture")


class Coder(nn.Module):
    """What `attnwidgets.SAE` computes; its arguments are described there."""

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
        require_one_of("architecture", architecture, ARCHITECTURES)
        require_one_of("normalize_activations", normalize_activations, NORMALISATIONS)
        if isinstance(threshold, float | int) or (isinstance(threshold, Tensor) and threshold.dim() == 0):
            threshold = W_enc.new_full(W_enc.shape[-1:], float(threshold))
        given = (W_enc, W_dec, b_dec, b_enc, threshold, b_gate, b_mag, r_mag)
        weights: dict[str, Tensor | None] = dict(zip(WEIGHTS, given, strict=True))
        require_weights(architecture, weights)
        for name, tensor in weights.items():
            parameter = None if tensor is None else nn.Parameter(tensor.detach().clone(), requires_grad=False)
            self.register_parameter(name, parameter)
        require_k(architecture, k, self.d_sae)
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
        return self.W_dec / self.W_dec.norm(dim=-1, keepdim=True)

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
        require_one_of("activation", activation, ACTIVATIONS)
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
        found: dict[str, Tensor] = {name: getattr(self, name) for name in self._encoding}
        if features is not None:
            found = {name: weight[..., features] for name, weight in found.items()}
        norms = self.W_dec.norm(dim=-1) if self.rescale_acts_by_decoder_norm else None
        return activate(self.architecture, x, found, k=self.k, norms=norms)

    @property
    def _encoding(self) -> tuple[str, ...]:
        return ("W_enc", *own_weights(self.architecture))

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
