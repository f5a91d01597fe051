"""SAE: a sparse autoencoder, whoever trained it, with the numbers its format defines."""

from __future__ import annotations

from types import MethodType
from typing import TYPE_CHECKING, Any, ClassVar

from torch import nn

from attnwidgets._errors import refuse_unknown
from attnwidgets.sae.architecture import WEIGHTS
from attnwidgets.sae.coder import Coder

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    import torch

    from attnwidgets.sae.check import SAECheck
    from attnwidgets.sae.conversions import Lecture
    from attnwidgets.sae.training.history import History


class _TrainOrMode:
    """`SAE.train(model, ...)` trains one; `sae.train()` sets the mode of a module, as in torch."""

    def __get__(self, instance: SAE | None, owner: type[SAE]) -> Callable[..., Any]:
        if instance is not None:
            return MethodType(nn.Module.train, instance)
        from attnwidgets.sae.training.train import train

        return train


class SAE(Coder):
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
            `attnwidgets.tracing.hooks.hook_point`. "" where that is not known.
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

    history: History | None = None
    train: ClassVar[Any] = _TrainOrMode()

    # The same SAE, written otherwise.

    def lecture(self) -> Lecture:
        """Return the weights as lectures write them; see `attnwidgets.sae.conversions.lecture`."""
        from attnwidgets.sae.conversions import lecture

        return lecture(self)

    def fold_input_scale(self, scale: float) -> SAE:
        """Return the SAE of h that this one is of `scale` times h; see `attnwidgets.sae.conversions`."""
        from attnwidgets.sae.conversions import fold_input_scale

        return fold_input_scale(self, scale)

    def fold_decoder_norm(self) -> SAE:
        """Return the same SAE with directions of length one; see `attnwidgets.sae.conversions`."""
        from attnwidgets.sae.conversions import fold_decoder_norm

        return fold_decoder_norm(self)

    def replaced(self, **changes: Any) -> SAE:
        """Return a copy with other weights or options, named as in the constructor."""
        weights = {name: getattr(self, name) for name in WEIGHTS}
        made = SAE(**(weights | self.options() | changes))
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
            site: Where the states are, if the files do not say: a module's path, or a TransformerLens hook.
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
