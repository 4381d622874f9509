"""A web server of one folder, with ranges and ETags, that can be told to fail."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


class Server(ThreadingHTTPServer):
    """fault: `` | `403` | `404` | `slow` | `cut` (always) | `cut once` | `no ranges` | `grows` (after the first block).

    only: the fault is of files whose name contains this; late: it begins with so many requests for their content
    """

    daemon_threads = True

    def __init__(self, folder: Path) -> None:
        self.folder, self.fault, self.only, self.late = folder, "", "", 0
        self.sent = self.gets = self.cuts = 0
        self.asked: list[str] = []
        super().__init__(("127.0.0.1", 0), _Handler)

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def handle_error(self, request: object, client_address: object) -> None:
        """Clients that give up are part of the tests."""


class _Handler(BaseHTTPRequestHandler):
    server: Server
    protocol_version = "HTTP/1.1"

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def do_GET(self) -> None:
        self._answer(body=True)

    def log_message(self, *_args: object) -> None:
        """Silent."""

    def _answer(self, body: bool) -> None:
        self.server.asked.append(self.path)
        at = self.server.folder / self.path.partition("?")[0].strip("/")
        fault = self._fault()
        if fault in ("403", "404"):
            self._head(int(fault), 0)
        elif at.is_dir():
            names = [f"{one.name}{'/' * one.is_dir()}" for one in sorted(at.iterdir())]
            self._send(200, "".join(f'<a href="{name}">{name}</a>\n' for name in names).encode(), body, "text/html")
        elif not at.is_file():
            self._head(404, 0)
        else:
            self._file(at, body)

    def _fault(self) -> str:
        struck = self.server.only in self.path and self.server.gets >= self.server.late
        return self.server.fault if struck else ""

    def _file(self, path: Path, body: bool) -> None:
        size = path.stat().st_size
        asked = re.match(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        fault = self._fault()
        if body and self.server.only in self.path:
            self.server.gets += 1
        if body and fault == "grows" and self.server.gets > 1:
            path.write_bytes(path.read_bytes() + b"\n")
        if body and fault == "slow":
            time.sleep(3)
        if asked is None or fault == "no ranges":
            self._send(200, path.read_bytes() if body else b"", body, size=size)
            return
        start, end = int(asked[1]), min(int(asked[2] or size) + 1, size)
        with path.open("rb") as file:
            file.seek(start)
            self._send(206, file.read(end - start), body, extra=f"bytes {start}-{end - 1}/{size}")

    def _send(
        self, status: int, data: bytes, body: bool, kind: str = "application/gzip", extra: str = "", size: int = -1
    ) -> None:
        self._head(status, len(data) if size < 0 else size, kind, extra)
        fault = self._fault()
        cut = fault == "cut" or (fault == "cut once" and not self.server.cuts)
        if body and cut and self.server.gets > 1:
            self.server.cuts += 1
            self.wfile.write(data[: len(data) // 2])
            self.wfile.flush()
            self.close_connection = True
            self.connection.close()
        elif body:
            self.server.sent += len(data)
            self.wfile.write(data)

    def _head(self, status: int, length: int, kind: str = "text/plain", extra: str = "") -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(length))
        self.send_header("Content-Type", kind)
        at = self.server.folder / self.path.partition("?")[0].strip("/")
        if at.is_file():
            self.send_header("ETag", f'"{at.stat().st_size}-{at.stat().st_mtime_ns}"')
        if extra:
            self.send_header("Content-Range", extra)
        self.end_headers()


@contextmanager
def serving(folder: Path) -> Iterator[Server]:
    """The server, in a thread."""
    with Server(folder) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()
