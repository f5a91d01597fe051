"""The Runtime and its parts: models that carry the scripts, so that a view costs a few hundred bytes."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from ipywidgets import Layout
from traitlets import Dict, Unicode

from attnwidgets._notebook import session
from attnwidgets.views.wire.widget import AnyWidget

if TYPE_CHECKING:
    from collections.abc import Sequence

STATIC = Path(__file__).parents[2] / "static"

COMMON_PARTS = ("tools",)
"""Parts that every view needs."""

# It draws an empty frame of the view's height, so that nothing below it moves later, and waits for the
# Runtime and its parts. A failure or a delay is reported, and a copy is requested from Python (the topic
# "page"); if the code arrives after all, it replaces the copy.
_STUB = """\
export default{async render(c){let{model:m,el:e,signal:s}=c,p=document.createElement('p'),
f=w=>{if(s.aborted||p.textContent)return;
p.textContent=`This view did not arrive: ${w}. Run the cell again, or end it with view.frame()`;
m.on('msg:custom',a=>{if(a.id=='page'&&a.meta){p.style='';p.innerHTML=a.meta}});
m.send({kind:'ask',id:'page',topic:'page',args:{why:''+w}})},
t=setTimeout(f,9e3,'no answer');
p.style=`margin:0;height:${m.get('options').height||HEIGHT}px;background:#8881`;e.append(p);
try{let d=await(await c.host.getWidget(m.get('runtime'))).exports.render(c,NAMES);p.remove();return d}
catch(x){f(x)}finally{clearTimeout(t)}}}"""


@cache
def bundle(name: str) -> str:
    """Return a built script in `attnwidgets/static`.

    Raises:
        FileNotFoundError: The installation lacks it.
    """
    path = STATIC / name
    if not path.is_file():
        raise FileNotFoundError(
            f"{name} is missing from attnwidgets/static: the installation is incomplete. "
            "Install the package again, or build it with `make js` in a checkout."
        )
    return path.read_text(encoding="utf-8")


class Runtime(AnyWidget):
    """Model-only widget whose module exports the renderers of every view."""

    _esm = Unicode().tag(sync=True)

    # As models: hosts that ask a view for those that it refers to find them (Panel, ipywidgets.embed).
    parts = Dict().tag(
        sync=True,
        to_json=lambda parts, _: {name: f"anywidget:{part.model_id}" for name, part in parts.items()},
    )

    _current: ClassVar[dict[int | str, Runtime]] = {}

    @classmethod
    def get(cls, parts: Sequence[str] = ()) -> Runtime:
        """Return this kernel's Runtime, made on first use and again after `Widget.close_all()`.

        Args:
            parts: Names of parts that it must have (files in `js/src/parts`); it keeps them.
        """
        self = cls._current.get(session())
        if self is None or self.comm is None:
            layout = Layout()
            models = {name: Part.get(name, layout) for name in parts}
            # With its parts at once: a later change would wait in the browser until this code is imported,
            # and JupyterLab handles no other message before, such as the one that displays a view.
            self = cls._current[session()] = Runtime(
                _esm=bundle("attnwidgets.js"), layout=layout, parts=models
            )
            return self
        models = {name: Part.get(name, self.layout) for name in parts}
        if not models.items() <= self.parts.items():
            self.parts = self.parts | models
        return self


class Part(AnyWidget):
    """Model-only widget with code that not every notebook needs: a file in `js/src/parts`."""

    _esm = Unicode().tag(sync=True)

    _current: ClassVar[dict[tuple[int | str, str], Part]] = {}

    @classmethod
    def get(cls, name: str, layout: Layout) -> Part:
        """Return this kernel's part of this name, made on first use and again after `Widget.close_all()`."""
        part = cls._current.get((session(), name))
        if part is None or part.comm is None:
            code = f"export default{{initialize:()=>({{code:{bundle(f'{name}.js').strip()}}})}}"
            part = cls._current[session(), name] = Part(_esm=code, layout=layout)
        return part


class SharedModel(AnyWidget):
    """A model without a view: shared by views, and closed with the last of them."""

    _esm = Unicode("export default{}").tag(sync=True)

    def __init__(self, **traits: object) -> None:
        self._users: set[str] = set()
        # Never drawn, so it needs no Layout.
        super().__init__(layout=Runtime.get().layout, **traits)

    def open(self) -> None:
        """Announce the model to the browser."""
        super().open()
        self._let_browser_choose_thread()

    def _send(self, msg: dict[str, object], buffers: list[bytes] | None = None) -> None:
        super()._send(msg, buffers)
        self._let_browser_choose_thread()

    def _let_browser_choose_thread(self) -> None:
        # ipykernel 7.4 hands messages to the thread that wrote last: after a cell wrote, requests would wait
        # for cells. Without this attribute they go to the thread that the browser names.
        if hasattr(self.comm, "_reply_subshell_id"):
            delattr(self.comm, "_reply_subshell_id")

    @property
    def is_open(self) -> bool:
        """Whether the browser may still know this model."""
        return self.comm is not None

    def acquire(self, holder: str) -> None:
        """Keep this model open for a view."""
        self._users.add(holder)

    def release(self, holder: str) -> None:
        """Stop keeping this model open for a view; the last view closes it."""
        self._users.discard(holder)
        if not self._users:
            self.close()


def stub(view: str, parts: Sequence[str] = (), height: int = 0) -> str:
    """Return the module of a view: it lets the Runtime render the view of this name, with these parts.

    Args:
        view: Name of the view.
        parts: Names of the parts that it needs.
        height: CSS pixels that its content is likely to need, if it sets no height.
    """
    names = ",".join(f"'{name}'" for name in (view, *parts))
    return _STUB.replace("\n", "").replace("NAMES", names).replace("HEIGHT", str(height))
