"""Serves the stand-in, and passes messages between its page and a kernel.

`server.py PORT CONNECTION PYTHON SCRIPTS`; CONNECTION: options of the kernel's manager, as JSON.
"""

from __future__ import annotations

import asyncio
import base64
import json
import sys
from pathlib import Path

import tornado.web
import tornado.websocket
from jupyter_client.kernelspec import KernelSpec
from jupyter_client.manager import AsyncKernelManager

HERE = Path(__file__).parent


class Kernel(AsyncKernelManager):
    """A kernel of the given Python, whose process ends with this server."""

    def __init__(self, connection, python):
        super().__init__(**connection)
        argv = [python, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
        self._kernel_spec = KernelSpec(argv=argv, display_name="stand-in", language="python")


class Socket(tornado.websocket.WebSocketHandler):
    def initialize(self, kernel, client, pages):
        self.kernel, self.client, self.pages = kernel, client, pages

    def open(self):
        self.pages.add(self)

    def on_close(self):
        self.pages.discard(self)

    async def on_message(self, text):
        sent = json.loads(text)
        if sent["type"] == "interrupt":
            await self.kernel.interrupt_kernel()
            return
        message = self.client.session.msg(sent["type"], sent["content"])
        message["header"]["msg_id"] = message["msg_id"] = sent["id"]
        self.client.shell_channel.send(message)


class Page(tornado.web.RequestHandler):
    def initialize(self, path):
        self.path = path

    def get(self):
        kind = "text/javascript" if self.path.suffix == ".js" else "text/html"
        self.set_header("Content-Type", f"{kind}; charset=utf-8")
        self.write(self.path.read_text(encoding="utf-8"))


async def pump(receive, pages):
    while True:
        message = await receive()
        text = json.dumps(
            {
                "type": message["header"]["msg_type"],
                "parent": (message.get("parent_header") or {}).get("msg_id"),
                "content": message["content"],
                "buffers": [base64.b64encode(bytes(part)).decode() for part in message.get("buffers", ())],
            },
            default=str,
        )
        for page in list(pages):
            page.write_message(text)


async def main(port, connection, python, scripts):
    kernel, pages = Kernel(connection, python), set()
    await kernel.start_kernel()
    try:
        client = kernel.client()
        client.start_channels()
        await client.wait_for_ready(timeout=120)
        served = {
            "/": HERE / "notebook.html",
            "/output": HERE / "output.html",
            "/manager.js": scripts / "manager.js",
            "/anywidget.js": scripts / "anywidget.js",
        }
        routes = [(path, Page, {"path": file}) for path, file in served.items()]
        socket = ("/socket", Socket, {"kernel": kernel, "client": client, "pages": pages})
        tornado.web.Application([*routes, socket]).listen(port, address="127.0.0.1")
        await asyncio.gather(pump(client.get_iopub_msg, pages), pump(client.get_shell_msg, pages))
    finally:
        await kernel.shutdown_kernel(now=True)


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), json.loads(sys.argv[2]), sys.argv[3], Path(sys.argv[4])))
