"""Which files are still what they were when the report was made."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from advisor.model import Report


@dataclass(frozen=True, slots=True)
class ProfiledFiles:
    """digests: path -> SHA-256 of the file when it was profiled. made_s: when the report was made, as files have it."""

    digests: dict[Path, str] = field(default_factory=dict)
    made_s: float = math.inf

    @classmethod
    def of(cls, report: Report, root: Path, made_s: float = math.inf) -> ProfiledFiles:
        """Those of a report whose command ran in `root`."""
        return cls({(root / name).resolve(): digest for name, digest in report.run.sources.items()}, made_s)

    @classmethod
    def now(cls, paths: Iterable[str]) -> ProfiledFiles:
        """Files as they are at this moment."""
        files = (Path(path).resolve() for path in paths)
        return cls({file: _digest(file) for file in files if file.is_file()})

    def first_changed(self) -> Path | None:
        """One of the files that is changed or gone; None if none is."""
        return next((path for path in self.digests if self.is_changed(path)), None)

    def is_changed(self, path: Path) -> bool:
        """Whether the file differs; of one without a digest, whether it was written after the report."""
        path = path.resolve()
        known = self.digests.get(path)
        try:
            if known is None:
                return path.stat().st_mtime > self.made_s
            return _digest(path) != known
        except OSError:
            return True


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
