"""Relevance rules by operation: a mode in which a model's forward pass builds the graph of AttnLRP or CP-LRP.

The model's code is neither changed nor known. While the mode is on, torch hands it every operation of this
thread; those that mix two tensors which both depend on the input, and those that are not linear, get the
gradient of their rule. What has no rule is let through, and refused by name if relevance comes back to it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import Tensor
from torch.overrides import TorchFunctionMode

from attnwidgets.relevance import affine, attention, elementwise, norms, operations, products
from attnwidgets.relevance.no_rule import unknown
from attnwidgets.relevance.settings import Settings, live

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from attnwidgets.relevance.settings import Bias, Rule

    # (settings, operation, its arguments, its keywords) -> what it returns
    Handler = Callable[[Settings, Callable[..., Any], tuple[Any, ...], dict[str, Any]], Any]


class Rules(TorchFunctionMode):
    """The rules, while they are on in this thread.

    Args:
        rule: See `Settings`.
        bias: The same.
        insist: The same.
    """

    def __init__(self, rule: Rule, bias: Bias = "absorb", *, insist: bool = False) -> None:
        super().__init__()
        self.settings = Settings(rule, bias, insist, mode=self)
        self._table = table(bias)
        self._known: dict[Any, Handler | None] = {}

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run one operation under its rule."""
        try:
            handler = self._known[func]
        except KeyError:
            handler = self._known[func] = self._handler(func)
        if handler is not None:
            return handler(self.settings, func, args, kwargs or {})
        return func(*args, **kwargs) if kwargs else func(*args)

    def _handler(self, func: Any) -> Handler | None:
        """Return what handles an operation; None where its own gradient is the rule."""
        name = getattr(func, "__name__", str(func))
        outer = out_of_place(name)
        handler = self._table.get(outer or name, unknown)
        return in_place(handler, str(outer)) if outer and handler is not None else handler


def out_of_place(name: str) -> str | None:
    """Return what an in-place operation is called where it is not, or None for an operation that is not."""
    if name in ("__imul__", "__iadd__", "__isub__", "__idiv__", "__itruediv__", "__imatmul__", "__ipow__"):
        return {"truediv": "div"}.get(name[3:-2], name[3:-2])
    return name[:-1] if name.endswith("_") and not name.endswith("__") else None


def in_place(handler: Handler, name: str) -> Handler:
    """Return the rule of an operation for its in-place form."""

    def handle(settings: Settings, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        outer = getattr(Tensor, name, None)
        if outer is None or not any(map(live, args)):
            return func(*args, **kwargs)
        # What the operation keeps for its gradient must not be written over.
        return args[0].copy_(handler(settings, outer, (args[0].clone(), *args[1:]), kwargs))

    return handle


def table(bias: Bias) -> Mapping[str, Handler | None]:
    """Return the rules by the names of operations; None where an operation's own gradient is the rule."""
    groups: list[tuple[frozenset[str], Handler | None]] = [
        (operations.LINEAR, None),
        (operations.SUMS, None if bias == "absorb" else affine.total),
        (operations.PRODUCTS, products.product),
        (operations.CONTRACTIONS, products.contraction),
        (operations.ADDED_PRODUCTS, products.added_product),
        (operations.QUOTIENTS, products.quotient),
        (operations.SIZES, products.size),
        (operations.SIZES_AND_MEANS, products.size_and_mean),
        (operations.ACTIVATIONS, elementwise.activation),
        (operations.OFFSET_ACTIVATIONS, elementwise.offset_activation),
        (operations.GATES, elementwise.gate),
        (operations.CLAMPS, elementwise.clamp),
        (operations.POWERS, elementwise.power),
        (operations.CONVOLUTIONS, affine.convolution),
    ]
    single: dict[str, Handler] = {
        "linear": affine.linear,
        "bilinear": products.bilinear,
        "glu": elementwise.glu,
        "layer_norm": norms.layer_norm,
        "group_norm": norms.group_norm,
        "instance_norm": norms.instance_norm,
        "rms_norm": norms.rms_norm,
        "batch_norm": norms.batch_norm,
        "normalize": norms.normalize,
        "softmax": attention.softmax,
        "scaled_dot_product_attention": attention.scaled_dot_product_attention,
        "multi_head_attention_forward": attention.multi_head_attention,
    }
    if bias == "drop":
        single["__getitem__"] = affine.part
    return {name: handler for names, handler in groups for name in names} | single
