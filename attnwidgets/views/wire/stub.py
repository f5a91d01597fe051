"""The JavaScript of one view: a stub that has the Runtime render it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

COMMON_PARTS = ("tools",)
"""Parts that every view needs."""


# It waits for the Runtime and what that waits for. What of it fails, or is late, is told, and the Python twin
# is asked for a copy (the topic "page"); what arrives after all takes its place.
_STUB = """\
export default{async render(c){let{model:m,el:e,signal:s}=c,p=document.createElement('p'),
f=w=>{if(s.aborted||p.parentNode)return;
p.textContent=`This view did not arrive: ${w}. Run the cell again, or end it with view.frame()`;e.append(p);
m.on('msg:custom',a=>{if(a.id=='page'&&a.meta)p.innerHTML=a.meta});
m.send({kind:'ask',id:'page',topic:'page',args:{why:''+w}})},
t=setTimeout(f,9e3,'no answer');
try{let d=await(await c.host.getWidget(m.get('runtime'))).exports.render(c,NAMES);p.remove();return d}
catch(x){f(x)}finally{clearTimeout(t)}}}"""


def stub(view: str, parts: Sequence[str] = ()) -> str:
    """Return a view's whole module: it has the Runtime render the view of this name, with these parts."""
    names = ",".join(f"'{name}'" for name in (view, *parts))
    return _STUB.replace("\n", "").replace("NAMES", names)
