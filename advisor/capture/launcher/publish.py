"""The report's folder while the script still runs: what ranks have finished is there already, whole, for `analyze`.

Ranks write to a local folder of their own. Who waits for the script copies from there, so that no rank ever waits for
the disk that the report's folder lies on. What is in the report's folder is whole at every moment: each file is written
aside and renamed, and run.json, which names the traces, comes last.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from advisor.capture.launcher import launch, run_file
from advisor.errors import AdvisorError
from advisor.inputs.output import release

# A script that ends this soon after its window gets its report at once; its folder does not change before that.
_WAIT_S: Final = 5.0

# A file may be replaced while it is copied, which fails once; a disk that is full fails again.
_MOST_FAILURES: Final = 3

# Size and time of change in ns: a file that is still the one that was copied.
_State = tuple[int, int]


class Publisher:
    """Keeps the report's folder up to date with what the ranks have left so far.

    claim makes the report's folder, once. said is called with it when the first trace is there. Nothing is raised:
    what cannot be written now is tried, and complained about, when the script has ended.
    """

    def __init__(
        self,
        folder: Path,
        header: dict[str, Any],
        claim: Callable[[], Path],
        said: Callable[[Path], None],
        wait_s: float = _WAIT_S,
    ) -> None:
        self.folder = folder
        self.header = header
        self.claim = claim
        self.said = said
        self.wait_s = wait_s
        self.first_seen = 0.0
        self.published: dict[str, _State] = {}
        self.failures = 0
        self._home: Path | None = None
        self._identity: tuple[int, int] | None = None

    def look(self) -> None:
        """Publishes what is new; called every now and then while the script runs."""
        if self.failures >= _MOST_FAILURES:
            return
        try:
            self._look()
        except (OSError, AdvisorError):
            self.failures += 1

    def home(self) -> Path | None:
        """The folder that was made, where it is now: another run may have moved it aside. None where there is none."""
        if self._home is None:
            return None
        places = (self._home, *sorted(self._home.parent.glob(f"{self._home.name}.*")))
        return next((place for place in places if _identity(place) == self._identity), None)

    def bring_home(self) -> Path:
        """Moves everything into the report's folder, when the script has ended; what was replaced since is removed."""
        home = self.home() or self._claimed()
        for name in self.published:
            if not (self.folder / name).exists():
                (home / name).unlink(missing_ok=True)
        for path in self.folder.iterdir():
            shutil.move(path, home / path.name)
        release(home)
        return home

    def withdraw(self) -> None:
        """Takes back what was published: in the end there was nothing to report on."""
        home = self.home()
        if home is not None:
            for name in (*self.published, "run.json"):
                (home / name).unlink(missing_ok=True)
            release(home)
            if not any(home.iterdir()):
                home.rmdir()

    def _look(self) -> None:
        parts = {path.name: _state(path) for path in self.folder.glob("*.part.json")}
        if not parts or all(self.published.get(name) == state for name, state in parts.items()):
            return
        now = time.monotonic()
        self.first_seen = self.first_seen or now
        if now - self.first_seen < self.wait_s:
            return
        record = launch.gather(self.folder, self.header)
        names = [file["path"] for rank in record["ranks"] for file in rank["files"]]
        if names:
            later = [window for rank in record["ranks"] for window in rank.get("later", ())]
            names += [file["path"] for window in later for file in window["files"]]
            observed = ((one.get("dataflow") or {}).get("file") for one in (*record["ranks"], *later))
            names += [name for name in observed if name]
            self._publish(record, names)
            self.published |= parts

    def _publish(self, record: dict[str, Any], names: list[str]) -> None:
        first = self._home is None
        home = self._claimed() if first else self.home()
        if home is None:
            raise FileNotFoundError("the report folder was deleted")
        for name in names:
            state = _state(self.folder / name)
            if self.published.get(name) != state:
                aside = home / f".{name}.tmp"
                shutil.copyfile(self.folder / name, aside)
                aside.replace(home / name)
                self.published[name] = state
        run_file.write(home, record)
        if first:
            self.said(home)

    def _claimed(self) -> Path:
        self._home = self.claim().absolute()
        self._identity = _identity(self._home)
        return self._home


def _state(path: Path) -> _State:
    found = path.stat()
    return found.st_size, found.st_mtime_ns


def _identity(path: Path) -> tuple[int, int] | None:
    """What stays the same when a folder is renamed; None where there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino
