"""A headless Chromium for the page's tests, driven over its debugging pipe: no driver, no socket, no package."""

from __future__ import annotations

import base64
import contextlib
import itertools
import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
# A page of 300 kB renders in well under a second; this only keeps a hung browser from hanging the suite.
_PATIENCE_S = 40.0
_FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-extensions",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
)


def find() -> str | None:
    """The path of a Chromium on this machine, or None."""
    return next((path for path in map(shutil.which, _NAMES) if path), None)


class Browser:
    """One running browser with one page. `events` holds what the page reported since it was opened."""

    def __init__(self, process: subprocess.Popen[bytes], read: int, write: int) -> None:
        self._process, self._read, self._write = process, read, write
        self._ids, self._rest, self.events = itertools.count(1), b"", list[dict[str, Any]]()
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = ""
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """One command of the DevTools protocol; returns its result."""
        number = next(self._ids)
        message: dict[str, Any] = {"id": number, "method": method, "params": parameters}
        if getattr(self, "_session", ""):
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._message()
            if answer.get("id") == number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']['message']}")
                result: dict[str, Any] = answer["result"]
                return result
            self.events.append(answer)

    def open(self, page: Path, *, scripts: bool = True, width: int = 1280, dark: bool = False) -> None:
        """Loads a file and waits until it is loaded."""
        self.events.clear()
        self.call("Emulation.setScriptExecutionDisabled", value=not scripts)
        height = 900
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        motion = {"name": "prefers-reduced-motion", "value": "reduce"}
        self.call("Emulation.setEmulatedMedia", features=[scheme, motion])
        self.call("Page.navigate", url=page.absolute().as_uri())
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(self._message())

    def run(self, script: str) -> Any:
        """The value of a script's expression in the page."""
        result = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            raise RuntimeError(result["exceptionDetails"].get("exception", {}).get("description", "script failed"))
        return result["result"].get("value")

    def press(self, key: str, code: int, text: str = "") -> None:
        """Presses and releases one key; `text` is what it types."""
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code, text=text)

    def picture(self, **options: Any) -> bytes:
        """The page as PNG; options as Page.captureScreenshot takes them."""
        taken = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True, **options)
        return base64.b64decode(taken["data"])

    def requests(self) -> list[str]:
        """Addresses that the page asked for, its own file aside."""
        sent = [event["params"] for event in self.events if event.get("method") == "Network.requestWillBeSent"]
        return [item["request"]["url"] for item in sent if item["request"]["url"] != item["documentURL"]]

    def complaints(self) -> list[str]:
        """Errors, exceptions and policy violations that the page raised."""
        said = []
        for event in self.events:
            parameters = event.get("params", {})
            if event.get("method") == "Runtime.exceptionThrown":
                said.append(str(parameters["exceptionDetails"].get("text")))
            elif event.get("method") == "Log.entryAdded" and parameters["entry"]["level"] in ("error", "warning"):
                said.append(parameters["entry"]["text"])
            elif event.get("method") == "Runtime.consoleAPICalled" and parameters["type"] in ("error", "warning"):
                said.append(str(parameters["args"]))
        return said

    def _message(self) -> dict[str, Any]:
        deadline = time.monotonic() + _PATIENCE_S
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._read], [], [], max(0.0, deadline - time.monotonic()))
            chunk = os.read(self._read, 1 << 16) if ready else b""
            if not chunk:
                raise TimeoutError("the browser said nothing")
            self._rest += chunk
        first, _, self._rest = self._rest.partition(b"\0")
        message: dict[str, Any] = json.loads(first)
        return message


@contextlib.contextmanager
def browser(profile: Path) -> Iterator[Browser]:
    """A running browser with a profile folder of its own; ended with the block."""
    path = find()
    if path is None:
        raise FileNotFoundError("no Chromium on this machine")
    (to_read, to_write), (from_read, from_write) = os.pipe(), os.pipe()
    # The browser reads commands from file 3 and answers on file 4.
    shell = f'exec "$0" "$@" 3<&{to_read} 4>&{from_write}'
    command = ["bash", "-c", shell, path, *_FLAGS, f"--user-data-dir={profile}", "about:blank"]
    process = subprocess.Popen(
        command, pass_fds=(to_read, from_write), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    os.close(to_read)
    os.close(from_write)
    try:
        yield Browser(process, from_read, to_write)
    finally:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(10)
        process.kill()
        os.close(to_write)
        os.close(from_read)
