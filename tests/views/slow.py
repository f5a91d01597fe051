"""A method that takes its time: the layers it computed, and events while it computes."""

from __future__ import annotations

import threading

import numpy as np

from attnwidgets._progress import progress
from attnwidgets.explanations import MixingMap
from attnwidgets.explanations.registry.registry import Method

STEPS = 3


class Slow:
    """Computes layer n as rows that sum to one, in a few steps of progress; runs "the model".

    Attributes:
        layers: The layers that were computed, in order.
        threads: The threads they were computed in.
        at_step: Called with the layer and the step, in the midst of computing.
    """

    def __init__(self):
        self.layers = []
        self.threads = []
        self.at_step = lambda layer, step: None

    def values(self, n, layer):
        numbers = np.random.default_rng(layer).random((n, n)) + 0.1
        return (numbers / numbers.sum(-1, keepdims=True)).astype(np.float32)

    def __call__(self, trace):
        """Slow numbers."""
        query, _ = trace.axes(trace.default_stack)

        def layer_of(layer):
            for step in progress(range(STEPS), f"slow, layer {layer}"):
                self.at_step(layer, step)
            self.layers.append(layer)
            self.threads.append(threading.current_thread())
            return self.values(len(query), layer)

        return MixingMap.lazy(
            layer_of,
            query=query,
            layers=range(trace.n_layers(trace.default_stack)),
            stochastic=True,
            runs_model=True,
            method="slow",
            trace_id=trace.id,
            provenance={"method": "slow"},
        )

    def method(self, name="slow", function=None, **changes):
        described = {"paper": "", "needs": "", "returns": "MixingMap [layer, query, key]", "cost": "a while"}
        return Method(name, function or self, **(described | {"by_user": True} | changes))


class Front:
    """A page that sends requests to a store and collects the replies."""

    def __init__(self, store, monkeypatch):
        self.store = store
        self.replies = []
        self.number = 100
        monkeypatch.setattr(store, "send", lambda reply, buffers=(): self.replies.append((reply, buffers)))

    def ask(self, **request):
        """Send a request, as the browser does; returns its number."""
        self.number = number = self.number + 1
        content = {"id": number, **request}
        message = {"content": {"data": {"method": "custom", "content": content}}, "buffers": []}
        self.store._handle_msg(message)
        return number

    def choose(self, source, layer=0):
        return self.ask(kind="method", source=source, layer=layer)

    def tile(self, layer, source="slow/token/self", head="-"):
        return self.ask(kind="tile", source=source, layer=layer, head=head)

    def of(self, number):
        """The replies to a request, as words: "waits", "progress", or their kind."""
        told = [reply for reply, _ in self.replies if reply["id"] == number]
        return ["waits" if reply.get("done", 0) is None else reply["kind"] for reply in told]

    def last(self, number):
        return next(reply for reply, _ in reversed(self.replies) if reply["id"] == number)
