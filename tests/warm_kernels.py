"""Kernels forked from a warm process: the imports of every notebook (torch, transformers) are made once.

Jupyter starts the stub below like any kernel. The stub hands its environment, its folder and its output to
the server, which forks; the child becomes an ordinary ipykernel. Our package is not imported beforehand:
each kernel imports it by itself, as a user's does.

    python warm_kernels.py serve SOCKET OWNER          the server; it ends with the process OWNER
    python warm_kernels.py SOCKET -f CONNECTION_FILE   the stub of a kernel
"""

import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from uuid import uuid4

LIBRARIES = (
    "ipykernel.kernelapp",
    "ipykernel.ipkernel",
    "matplotlib_inline.backend_inline",
    "anywidget",
    "transformers.models.bert.modeling_bert",
    "transformers.models.llama.modeling_llama",
    "pandas",
    "scipy.stats",
)
LENGTH = struct.Struct("!I")


@cache
def warm_kernels():
    """Start the server; return the folder for JUPYTER_PATH whose "python3" is the stub.

    Processes of pytest-xdist, which have one parent, share the server of the first that needs it.
    """
    from filelock import FileLock  # a stub, which has no packages, does without it

    run = os.environ.get("PYTEST_XDIST_TESTRUNUID")
    owner = os.getppid() if run else os.getpid()
    folder = Path(tempfile.gettempdir()) / f"warm-kernels-{run[:8] if run else owner}"
    spec = folder / "kernels" / "python3" / "kernel.json"
    spec.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(folder / "lock"):
        if not spec.exists():
            start(folder, spec, owner)
    return folder


# Jupyter chooses TCP ports long before a kernel listens, among those that systems give to connections: now
# and then one was taken. Sockets in files are not; on other systems temporary folders have too long names.
TRANSPORT = "ipc" if sys.platform == "linux" else "tcp"


def runtime_folder():
    """Return the folder for JUPYTER_RUNTIME_DIR, whose name leaves room for those of sockets."""
    folder = warm_kernels() / "runtime"
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder


def connection():
    """Return options of a KernelManager of Jupyter: its transport, and a file of its own."""
    return {"transport": TRANSPORT, "connection_file": str(runtime_folder() / f"kernel-{uuid4()}.json")}


def start(folder, spec, owner):
    """Start a server that ends with the process `owner`, and write the spec of its kernels."""
    address = str(folder / "socket")
    server = subprocess.Popen(
        [sys.executable, __file__, "serve", address, str(owner)],
        env=os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert server.stdout.readline() == "warm\n", "the server of kernels did not start"
    argv = [sys.executable, "-I", "-S", __file__, address, "-f", "{connection_file}"]
    spec.write_text(json.dumps({"argv": argv, "display_name": "Python 3", "language": "python"}))


def is_alive(process):
    """Return whether there is a process of this number."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


def receive(wire, count):
    """Return exactly `count` bytes of a socket; fewer if the other side has gone."""
    data = b""
    while len(data) < count and (more := wire.recv(count - len(data))):
        data += more
    return data


def stub(address, *arguments):
    """Ask for a kernel and stand for it: pass signals on, end when it ends; it ends with this process."""
    wire = socket.socket(socket.AF_UNIX)
    wire.connect(address)
    asked = {"arguments": arguments, "folder": str(Path.cwd()), "environment": dict(os.environ)}
    told = json.dumps(asked).encode()
    socket.send_fds(wire, [LENGTH.pack(len(told))], [0, 1, 2])
    wire.sendall(told)
    (kernel,) = LENGTH.unpack(receive(wire, LENGTH.size))

    def forward(number, _):
        try:
            os.kill(kernel, number)
        except ProcessLookupError:
            sys.exit(1)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, forward)
    wire.recv(1)  # nothing comes: this returns when the kernel has ended


def serve(address, owner):
    """Import the libraries, say so, and fork a kernel for every stub as long as the process `owner` lives."""
    import gc
    import importlib
    import select

    del sys.path[0]  # the folder of this file
    for name in LIBRARIES:
        importlib.import_module(name)
    if (threads := len([*Path("/proc/self/task").iterdir()])) > 1:
        sys.exit(f"{threads} threads run after the imports: a process with threads must not fork")
    gc.collect()
    gc.freeze()  # no kernel looks for garbage among the libraries, and copies their pages by doing so
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for kernels: they leave no zombies
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(address)
    listener.listen()
    sys.stdout.write("warm\n")
    sys.stdout.flush()
    while is_alive(owner):
        if not select.select([listener], [], [], 1)[0]:
            continue
        wire, _ = listener.accept()
        if os.fork() == 0:
            listener.close()
            become_kernel(wire)
        wire.close()
    shutil.rmtree(Path(address).parent, ignore_errors=True)


def become_kernel(wire):
    """Take over a stub's environment, folder and output, and run ipykernel; never returns."""
    import threading

    head, files, _, _ = socket.recv_fds(wire, LENGTH.size, 3)
    asked = json.loads(receive(wire, LENGTH.unpack(head)[0]))
    os.setsid()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for target, source in enumerate(files):
        os.dup2(source, target)
        os.close(source)
    environment = asked["environment"]
    environment["JPY_PARENT_PID"] = str(os.getppid())  # ipykernel ends with its parent, which is the server
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(asked["folder"])
    sys.path[:0] = [
        folder
        for folder in environment.get("PYTHONPATH", "").split(os.pathsep)
        if folder and folder not in sys.path
    ]
    reread_environment(environment)

    def end_with_stub():
        wire.recv(1)
        os._exit(1)

    wire.sendall(LENGTH.pack(os.getpid()))
    threading.Thread(target=end_with_stub, daemon=True).start()
    delay_messages(float(environment.get("AW_MESSAGE_DELAY", 0)))
    from ipykernel.kernelapp import launch_new_instance

    sys.argv = ["ipykernel_launcher.py", *asked["arguments"]]
    launch_new_instance()
    os._exit(0)


def delay_messages(seconds):
    """Handle messages of widgets late, where they have a thread of their own, so that cells overtake them."""
    import threading
    import time

    from comm.base_comm import BaseComm

    handle_at_once = BaseComm.handle_msg

    def handle_late(comm, message):
        if threading.current_thread() is not threading.main_thread():
            time.sleep(seconds)
        handle_at_once(comm, message)

    if seconds:
        BaseComm.handle_msg = handle_late


def reread_environment(environment):
    """Apply the variables that the libraries read when they were imported."""
    import matplotlib as mpl
    from transformers.utils import logging

    if backend := environment.get("MPLBACKEND"):
        mpl.rcParams["backend"] = backend
    if level := environment.get("TRANSFORMERS_VERBOSITY"):
        logging.set_verbosity(getattr(logging, level.upper()))


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve(sys.argv[2], int(sys.argv[3]))
    else:
        stub(*sys.argv[1:])
