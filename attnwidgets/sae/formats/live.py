"""Conversion of live SAE objects of other libraries, which are recognised by their attributes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from attnwidgets.sae.formats import dictionary_learning, saelens
from attnwidgets.sae.formats.files import widened
from attnwidgets.sae.sae import SAE

_HERE = Path("live object")


def from_object(sae: Any) -> SAE:
    """Return a live `sae_lens.SAE` or dictionary_learning object as an SAE; an SAE is returned unchanged.

    Raises:
        TypeError: If `sae` has another type.
        SAEFormatError: If its class is not supported (a ValueError).
    """
    if isinstance(sae, SAE):
        return sae
    kind, home = type(sae).__name__, type(sae).__module__.split(".")[0]
    if hasattr(sae, "cfg") and hasattr(sae, "W_enc") and hasattr(sae, "state_dict"):
        config, metadata = saelens.modern(_config(sae.cfg))
        opened = saelens.from_parts(config, metadata, sae.state_dict(), path=_HERE, origin=f"{home}.{kind}")
        return saelens.fold(opened, None, kind, "Fold it in: sae.fold_input_scale(constant)", stacklevel=3)
    if hasattr(sae, "dict_size") and hasattr(sae, "activation_dim") and hasattr(sae, "state_dict"):
        opened = dictionary_learning.from_weights(kind, widened(sae.state_dict()), {}, _HERE)
        if getattr(sae, "apply_b_dec_to_input", False):  # a JumpReLU SAE converted from SAELens
            opened.apply_b_dec_to_input = True
        return opened
    raise TypeError(
        f"sae must be an attnwidgets.SAE, a sae_lens.SAE or a dictionary of dictionary_learning, not {kind}; "
        "folders and hub ids are opened with aw.SAE.from_pretrained(path)."
    )


def _config(config: Any) -> dict[str, Any]:
    """Return a configuration object as a dictionary, with its metadata as one."""
    plain: dict[str, Any] = dict(config.to_dict() if hasattr(config, "to_dict") else vars(config))
    architecture = getattr(config, "architecture", None)
    if "architecture" not in plain and architecture is not None:
        plain["architecture"] = architecture() if callable(architecture) else architecture
    metadata = plain.get("metadata")
    if metadata is not None and not isinstance(metadata, dict):
        plain["metadata"] = metadata.to_dict() if hasattr(metadata, "to_dict") else vars(metadata)
    return plain
