"""aw.concepts.directions: directions of states without labels, as the features of an SAE."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch

from attnwidgets._errors import not_installed, require_choice, suggests_keywords
from attnwidgets._gradients import no_grad
from attnwidgets._selecting import position
from attnwidgets._tensors import as_array
from attnwidgets.concepts.states_result import States
from attnwidgets.sae.sae import SAE

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Float = NDArray[np.float64]

Method = Literal["pca", "nmf", "kmeans"]
METHODS: tuple[Method, ...] = ("pca", "nmf", "kmeans")
_DIMS = 2


@suggests_keywords
def directions(
    states: Any,
    count: int = 20,
    *,
    method: Method = "nmf",
    layer: int | None = None,
    site: str | None = None,
    seed: int = 0,
) -> SAE:
    """Find directions of states without labels, as the features of an `SAE`.

    The result is used like any sparse autoencoder: `aw.sae_features(trace, sae)` says which directions are
    in which token, `aw.feature_stats` collects their texts, and `aw.FeatureTable` and `aw.FeaturePanel` show
    them.

        pca     principal components. Each gives two features, one for either side, so that activations are
                not negative. No library is needed.
        nmf     non-negative matrix factorisation of the parts above and below the mean, so that parts
                add up; activations are the non-negative part of the least-squares fit, an approximation to
                its codes.
        kmeans  clusters: one feature is active, that of the nearest centre; the larger, the nearer.

    Args:
        states: `aw.concepts.states(..., at="tokens")`, or of whole texts, or numbers [example, dim].
        count: Number of components, parts or clusters.
        method: "pca", "nmf" or "kmeans"; the last two need scikit-learn: `pip install attnwidgets[concepts]`.
        layer: Which layer of the states; needed if they have several.
        site: Hook point of states given as an array ("blocks.3.hook_resid_post").
        seed: Seed of the search.

    Returns:
        An `SAE` with `count` features (2 * `count` for "pca"). `.metadata["explained"]` is the share of the
        variance of the states that it reconstructs.

    Raises:
        ValueError: If there are fewer states than `count`, several layers and no `layer`, or states are not
            finite.
        IndexError: If the layer is out of range.
        ModuleNotFoundError: If scikit-learn is needed and not installed.

    Source: NMF of states as concepts: Zhang et al. 2021, Invertible Concept-based Explanations.

    Example:
        >>> model, tokenizer = aw.demo_model("classifier")
        >>> texts = [text.text for text in aw.demo_texts("train")[:20]]
        >>> states = aw.concepts.states(model, tokenizer, texts, layers=[3], at="tokens")
        >>> sae = aw.concepts.directions(states, 8, method="pca")
        >>> aw.sae_features(aw.trace(model, tokenizer, "A fine film."), sae).shape
        (6, 16)
    """
    require_choice("method", method, METHODS)
    values, number = _values(states, layer)
    if not isinstance(count, (int, np.integer)) or not 1 <= count <= min(values.shape):
        raise ValueError(
            f"count must be a whole number from 1 to {min(values.shape)}, the smaller of the numbers of "
            f"states and of dimensions, not {count!r}."
        )
    centre = values.mean(0)
    fitted = {"pca": _pca, "nmf": _nmf, "kmeans": _kmeans}[method](values - centre, int(count), seed)
    weights: dict[str, Any] = {
        name: torch.tensor(array, dtype=torch.float32) for name, array in fitted.items()
    }
    sae = SAE(
        **weights,
        b_dec=torch.tensor(centre, dtype=torch.float32),
        architecture="topk" if method == "kmeans" else "standard",
        k=1 if method == "kmeans" else None,
        site=site or _site(states, number),
        model_name=str(getattr(states, "model", "")),
        metadata={
            "method": method,
            "examples": len(values),
            "at": str(getattr(states, "at", "")),
            "seed": seed,
        },
        origin=f"{method} of {len(values):,} states",
    )
    with no_grad():
        errors = sae(torch.tensor(values, dtype=torch.float32)).double().numpy() - values
    explained = 1 - np.square(errors).sum() / max(float(np.square(values - centre).sum()), 1e-300)
    sae.metadata["explained"] = round(float(explained), 4)
    return sae


def _values(states: Any, layer: int | None) -> tuple[Float, int | None]:
    """Return the states of a layer [example, dim], and the layer's number (None for an array)."""
    number: int | None = None
    if isinstance(states, States):
        if layer is None and len(states.layers) > 1:
            raise ValueError(
                f"states has layers {', '.join(map(str, states.layers))}: choose one with layer=."
            )
        number = states.layers[0 if layer is None else position(layer, states.layers, "layer")]
        values = np.asarray(states.layer(number), dtype=np.float64)
    else:
        values = np.asarray(as_array(states), dtype=np.float64)
    if values.ndim != _DIMS or len(values) < _DIMS:
        raise ValueError(
            f"states has shape {values.shape}; it must be [example, dim] with two examples or more."
        )
    if not np.isfinite(values).all():
        raise ValueError("states hold NaN or infinite values.")
    return values, number


def _site(states: Any, layer: int | None) -> str:
    """Return the hook point of a layer: the input of a block is the output of the block before it."""
    if layer is None:
        return ""
    stack = states.stack if states.stack in ("encoder", "decoder") else "blocks"
    return f"{stack}.0.hook_resid_pre" if layer == 0 else f"{stack}.{layer - 1}.hook_resid_post"


def _pca(centred: Float, count: int, _: int) -> dict[str, Float]:
    components = np.linalg.svd(centred, full_matrices=False)[2][:count]
    # A component's sign is arbitrary: its largest entry is positive.
    components *= np.sign(components[np.arange(count), np.abs(components).argmax(1)])[:, None]
    both = np.concatenate([components, -components])
    return {"W_enc": both.T, "W_dec": both, "b_enc": np.zeros(len(both))}


def _nmf(centred: Float, count: int, seed: int) -> dict[str, Float]:
    try:
        from sklearn.decomposition import NMF
    except ModuleNotFoundError as error:
        raise _needs("nmf") from error
    above, below = np.maximum(centred, 0), np.maximum(-centred, 0)
    model = NMF(count, init="nndsvda", random_state=seed, max_iter=400, tol=1e-3)
    _quietly(model.fit, np.concatenate([above, below], axis=1))
    parts = model.components_
    width = centred.shape[1]
    result = parts[:, :width] - parts[:, width:]
    lengths = np.maximum(np.linalg.norm(result, axis=1, keepdims=True), 1e-12)
    result = result / lengths
    return {"W_enc": np.linalg.pinv(result), "W_dec": result, "b_enc": np.zeros(count)}


def _kmeans(centred: Float, count: int, seed: int) -> dict[str, Float]:
    try:
        from sklearn.cluster import KMeans
    except ModuleNotFoundError as error:
        raise _needs("kmeans") from error
    centres = KMeans(count, n_init=3, random_state=seed).fit(centred).cluster_centers_
    # The nearest centre has the largest x . c - |c|^2 / 2; a constant makes it positive for every state.
    near = centred @ centres.T - 0.5 * np.square(centres).sum(1)
    above = max(0.0, -float(near.max(1).min())) * 1.01 + 1e-3
    lengths = np.maximum(np.linalg.norm(centres, axis=1, keepdims=True), 1e-12)
    return {
        "W_enc": centres.T,
        "W_dec": centres / lengths,
        "b_enc": above - 0.5 * np.square(centres).sum(1),
    }


def _quietly(fit: Any, values: Float) -> None:
    """Fit without the warning that more steps would change the last digits."""
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fit(values)


def _needs(method: str) -> ModuleNotFoundError:
    instead = "pip install attnwidgets[concepts] brings it; method='pca' needs nothing."
    return not_installed(f"aw.concepts.directions(method={method!r})", "scikit-learn", instead)
