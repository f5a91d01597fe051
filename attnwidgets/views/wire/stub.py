"""The JavaScript module of one view: a stub that lets the Runtime render it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

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


def stub(view: str, parts: Sequence[str] = (), height: int = 0) -> str:
    """Return the module of a view: it lets the Runtime render the view of this name, with these parts.

    Args:
        view: Name of the view.
        parts: Names of the parts that it needs.
        height: CSS pixels that its content is likely to need, if it has no height of its own.
    """
    names = ",".join(f"'{name}'" for name in (view, *parts))
    return _STUB.replace("\n", "").replace("NAMES", names).replace("HEIGHT", str(height))
