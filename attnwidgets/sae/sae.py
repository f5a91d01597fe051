"""SAE: a sparse autoencoder of any origin, computed as its format defines."""

from __future__ import annotations

from types import MethodType
from typing import TYPE_CHECKING, Any, ClassVar

from torch import nn

from attnwidgets._errors import suggests_keywords
from attnwidgets.sae import conversions
from attnwidgets.sae.check import check
from attnwidgets.sae.coder import WEIGHTS, Coder

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import torch

    from attnwidgets.sae.training.history import History


class _TrainOrMode:
    """`SAE.train(model, ...)` trains an SAE; `sae.train()` sets the module's mode, as in torch."""

    def __get__(self, instance: SAE | None, owner: type[SAE]) -> Callable[..., Any]:
        if instance is not None:
            return MethodType(nn.Module.train, instance)
        from attnwidgets.sae.training.train import train

        return train


class SAE(Coder):
    """A sparse autoencoder of the states at a hook point of a model.

    With x the normalised states, minus `b_dec` if `apply_b_dec_to_input`, and p = x W_enc + b_enc, the
    activations a are

        standard   ReLU(p)
        topk       ReLU of the k largest p of a token, 0 elsewhere
        jumprelu   ReLU(p) where p > threshold, 0 elsewhere
        gated      ReLU(x (W_enc exp(r_mag)) + b_mag) where x W_enc + b_gate > 0, 0 elsewhere

    and the reconstruction is a W_dec + b_dec, with the normalisation undone.

    Args:
        W_enc: Encoder [d_in, d_sae].
        W_dec: Decoder [d_sae, d_in]; each row is the direction of a feature.
        b_dec: Decoder bias [d_in].
        b_enc: Encoder bias [d_sae]; for all architectures except gated.
        architecture: "standard", "topk", "jumprelu" or "gated".
        k: Number of active features per token (topk).
        threshold: Thresholds [d_sae], or one for all features (jumprelu).
        b_gate: Bias of the gate [d_sae] (gated).
        b_mag: Bias of the magnitude [d_sae] (gated).
        r_mag: Logarithm of the scale of the magnitude's encoder [d_sae] (gated).
        apply_b_dec_to_input: Whether `b_dec` is subtracted before encoding.
        normalize_activations: Normalisation of every token before encoding: "none", "constant_norm_rescale"
            or "layer_norm" (as in SAELens).
        rescale_acts_by_decoder_norm: Whether pre-activations are multiplied by the norm of their feature's
            direction before the k largest are chosen, and activations divided by it in decoding (topk).
        centre: Whether the mean of every token is subtracted before encoding and added after decoding: for
            SAEs trained on TransformerLens' centred residual stream, applied to the model as it is.
        site: Hook point of the states: a Hugging Face module or a TransformerLens hook, see
            `attnwidgets.tracing.hooks.hook_point`. "" if unknown.
        model_name: Name of the model it was trained on, if known.
        metadata: Further information from its files (JSON-able); saved with it.
        origin: Where the SAE comes from, in words.

    Attributes:
        maxima: Largest raw activation of every feature on a corpus [d_sae], or None: the unit of `aw.steer`.
        history: Measurements of its training, if `SAE.train` trained it.

    Parameters do not require gradients; call `sae.requires_grad_()` to change that.

    Raises:
        ValueError: If shapes do not match, an option is unknown, or a weight is NaN or infinite.
    """

    history: History | None = None
    train: ClassVar[Any] = _TrainOrMode()

    # Equivalent forms, and comparison with a model.

    lecture = conversions.lecture
    fold_input_scale = conversions.fold_input_scale
    fold_decoder_norm = conversions.fold_decoder_norm
    check = check

    def replaced(self, **changes: Any) -> SAE:
        """Return a copy with some weights or options replaced, named as in the constructor."""
        weights = {name: getattr(self, name) for name in WEIGHTS}
        copy = SAE(**(weights | self.options() | changes))
        copy.maxima, copy.history = self.maxima, self.history
        return copy

    def options(self) -> dict[str, Any]:
        """Return the arguments of the constructor other than weights."""
        return {name: getattr(self, name) for name in _OPTIONS} | {"metadata": dict(self.metadata)}

    # Files.

    @classmethod
    @suggests_keywords
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
    ) -> SAE:
        """Open an SAE from a folder or, if the model hub can be reached, by its hub id.

        The formats are those of SAELens (6 and older), Gemma Scope 1 and 2, Llama Scope, dictionary_learning
        and sparsify, with the normalisations and biases of each. Nothing is unpickled.

        Args:
            path: A folder, or a hub id ("google/gemma-scope-2b-pt-res").
            sae_id: Folder within it, if it contains several SAEs ("layer_20/width_16k/average_l0_71").
            site: Hook point of the states, if the files do not name it: a module's path, or a TransformerLens
                hook.
            input_scale: Scale applied to states in training that is not folded into the files yet (SAELens:
                "expected_average_only_in").
            centre: Subtract the mean of every token before encoding; see the class.
            device: Device of the weights.
            dtype: Precision of the weights; by default half precision is widened to float32.
            revision: Revision of a hub repository.

        Raises:
            FileNotFoundError: If the folder or repository does not exist or contains no such SAE; the message
                lists its SAEs.
            SAEFormatError: If the files are in no format that is read, are not an SAE (a transcoder, ...), or
                would have to be unpickled (a ValueError).
        """
        from attnwidgets.sae.formats import open_sae
        from attnwidgets.sae.formats.saelens import fold

        sae, folder = open_sae(path, sae_id, revision)
        sae = fold(sae, input_scale, repr(str(folder)), "Pass it as input_scale=", stacklevel=2)
        if site is not None:
            sae.site = site
            for name in ("hf_hook_name", "hook_name"):
                sae.metadata.pop(name, None)
        sae.centre = sae.centre or centre
        return sae.to(device=device, dtype=dtype or sae.dtype)

    @classmethod
    def from_object(cls, sae: Any) -> SAE:
        """Return a live `sae_lens.SAE` or dictionary_learning object as an SAE; an SAE is returned unchanged.

        Args:
            sae: The object.

        Raises:
            TypeError: If `sae` has another type.
            ValueError: If it is of a kind that is not supported.
        """
        from attnwidgets.sae.formats.live import from_object

        return from_object(sae)

    def save_pretrained(self, path: str | Path) -> Path:
        """Write a folder in SAELens' format (cfg.json, sae_weights.safetensors) and return its path.

        Attributes that SAELens does not have (maxima, training history) are stored where it ignores them.

        Args:
            path: The folder to write.

        Raises:
            FileExistsError: If the folder exists and contains something else.
            FileNotFoundError: If its parent folder does not exist.
        """
        from attnwidgets.sae.formats.saelens import write

        return write(self, path)


_OPTIONS = (
    *("architecture", "k", "apply_b_dec_to_input", "normalize_activations", "rescale_acts_by_decoder_norm"),
    *("centre", "site", "model_name", "metadata", "origin"),
)


def as_sae(sae: Any) -> SAE:
    """Return `sae` as an SAE: unchanged, or converted from an object of another library."""
    return sae if isinstance(sae, SAE) else SAE.from_object(sae)
