"""Ports of servers that nothing else takes before they listen."""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from itertools import count

# Below those that systems give to connections, which may take one between the choice and the server's start.
_FIRST, _COUNT = 20_000, 12_000
_numbers = count(os.getpid() * 31)  # tests of several processes begin apart


def free_port() -> int:
    """Return a free port."""
    for number in _numbers:
        port = _FIRST + number % _COUNT
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise AssertionError
