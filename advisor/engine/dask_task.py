"""What a worker of dask does for `dask_workers`: one rank read and reduced, bytes in and bytes out.

The process is somebody else's: no setting of it is changed, and nothing is kept but the rules.
"""

from __future__ import annotations

import platform
import zlib
from collections.abc import Callable
from functools import lru_cache
from importlib.metadata import version

import msgspec

from advisor import __version__
from advisor.engine import rank_process
from advisor.engine.engine import rules_of_ranks
from advisor.engine.rank_files import Asked, RankFile, Reducer
from advisor.engine.rank_process import FAILED
from advisor.engine.registry import Rules, load_rules

# Begins an answer in place of a rank: the client is of other versions.
OTHER_VERSIONS = b"v"


class Hello(msgspec.Struct, frozen=True):
    """What is the same for all ranks. versions: of the client; topic: where progress is told."""

    asked: Asked
    versions: dict[str, str]
    topic: str


def answer(hello: bytes, request: bytes) -> bytes:
    """The answer of `rank_process` to a `RankFile`, or OTHER_VERSIONS with those of this worker."""
    said = msgspec.msgpack.decode(hello, type=Hello)
    here = versions()
    if here != said.versions:
        return OTHER_VERSIONS + msgspec.msgpack.encode(here)
    tell = _teller(said.topic)
    tell(0)
    one = msgspec.msgpack.decode(request, type=RankFile)
    try:
        return rank_process.answer(Reducer(said.asked, rules_of_ranks(_rules(), said.asked.config)), one, tell)
    except Exception as failure:
        return FAILED + rank_process.why(one, failure).encode("utf-8", "replace")


def versions() -> dict[str, str]:
    """What a report depends on besides its traces: where all of it is the same, so is the report."""
    packages = {name: version(name) for name in ("numpy", "msgspec", "dask", "distributed")}
    python = ".".join(platform.python_version_tuple()[:2])
    return {"torch-advisor": __version__, "Python": python, **packages, "rules": _digest(_rules())}


def _digest(rules: Rules) -> str:
    """Packs of rules have no version: their names and whether they load tell most of them apart."""
    names = [f"{rule.pack} {rule.id}" for rule in rules.rules] + [f"broken {one.rule}" for one in rules.broken]
    return f"{len(rules.rules)}, checksum {zlib.crc32(chr(10).join(names).encode()):08x}"


@lru_cache(maxsize=1)
def _rules() -> Rules:
    return load_rules()


def _teller(topic: str) -> Callable[[int], None]:
    """Tells the client which task is read here, and how far it is."""
    from distributed import get_worker

    worker = get_worker()
    key = worker.get_current_task()

    def tell(done: int) -> None:
        worker.log_event(topic, {"key": key, "worker": worker.address, "read": done})

    return tell
