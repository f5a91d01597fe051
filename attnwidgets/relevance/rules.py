"""A mode in which a model's forward pass builds the graph of AttnLRP or CP-LRP, with a rule per operation.

It neither changes nor knows the model's code. While the mode is on, torch passes it every operation of this
thread. Operations that are nonlinear, or that mix two tensors which both depend on the input, get the
gradient of their rule. An operation without a rule runs, and raises if relevance reaches it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import Tensor
from torch.overrides import TorchFunctionMode

from attnwidgets.relevance import affine, attention, elementwise, norms, operations, products
from attnwidgets.relevance.no_rule import run_without_rule
from attnwidgets.relevance.settings import Settings, live

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from attnwidgets.relevance.settings import Bias, Rule

    # (settings, operation, its arguments, its keywords) -> what it returns
    Handler = Callable[[Settings, Callable[..., Any], tuple[Any, ...], dict[str, Any]], Any]


class Rules(TorchFunctionMode):
    """A context in which the rules apply to this thread.

    Args:
        rule: See `Settings`.
        bias: See `Settings`.
        insist: See `Settings`.
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
        """Return the handler of an operation; None if its own gradient is the rule."""
        name = getattr(func, "__name__", str(func))
        outer = out_of_place(name)
        handler = self._table.get(outer or name, run_without_rule)
        return in_place(handler, str(outer)) if outer and handler is not None else handler


def out_of_place(name: str) -> str | None:
    """Return the out-of-place name of an in-place operation; None for other operations."""
    if name in ("__imul__", "__iadd__", "__isub__", "__idiv__", "__itruediv__", "__imatmul__", "__ipow__"):
        return {"truediv": "div"}.get(name[3:-2], name[3:-2])
    return name[:-1] if name.endswith("_") and not name.endswith("__") else None


def in_place(handler: Handler, name: str) -> Handler:
    """Return a handler for the in-place form of an operation."""

    def handle(settings: Settings, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        outer = getattr(Tensor, name, None)
        if outer is None or not any(map(live, args)):
            return func(*args, **kwargs)
        # A copy, so that tensors saved for the gradient are not overwritten.
        return args[0].copy_(handler(settings, outer, (args[0].clone(), *args[1:]), kwargs))

    return handle


def table(bias: Bias) -> Mapping[str, Handler | None]:
    """Return the handlers by name of operation; None if an operation's own gradient is the rule."""
    groups: list[tuple[frozenset[str], Handler | None]] = [
        (operations.LINEAR, None),
        (operations.SUMS, None if bias == "absorb" else affine.add),
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
        single["__getitem__"] = affine.getitem
    return {name: handler for names, handler in groups for name in names} | single
