"""Processes for the tests of the pool; here, so that a new process can import them."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from multiprocessing.connection import Connection


def serve(pipe: Connection, processes: int) -> None:
    """Answers `text` with `HELLO text PROCESSES`; sleeps at `sleep`, dies at `die`, and says more at `more`."""
    hello = pipe.recv_bytes()
    with suppress(EOFError, OSError):
        while True:
            request = pipe.recv_bytes()
            if request == b"sleep":
                time.sleep(600)
            if request == b"die":
                os._exit(3)
            if request == b"more":
                pipe.send_bytes(b"r1")
            pipe.send_bytes(b"d%s %s %d" % (hello, request, processes))
