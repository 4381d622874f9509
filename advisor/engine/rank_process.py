"""A process that reduces one rank after the other, as `worker_pool` starts it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING

from advisor.engine.startup_gc import for_good
from advisor.engine.worker_pool import MORE
from advisor.trace.read.allocator import import_numpy, keep_freed_memory, share_cores

if TYPE_CHECKING:
    from advisor.engine.rank_files import RankFile, Reducer

# What an answer begins with: bytes of the file so far, a reduced form, one line of why there is none.
READ, REDUCED, FAILED = MORE, b"d", b"f"
# So many bytes are read from one report of them to the next.
_REPORT_BYTES = 16 << 20


def serve(pipe: Connection, processes: int) -> None:
    """Reads `Asked`, then one `RankFile` after the other, as msgpack; ends when whoever asks has ended.

    processes: how many like this one there are
    """
    share_cores(processes)
    with for_good():
        import_numpy()  # before another import does
        import msgspec

        from advisor.engine.engine import rules_of_ranks
        from advisor.engine.rank_files import Asked, RankFile, Reducer
        from advisor.engine.registry import load_rules

        rules = load_rules()
    keep_freed_memory()
    with suppress(EOFError, BrokenPipeError, ConnectionResetError):
        asked = msgspec.msgpack.decode(pipe.recv_bytes(), type=Asked)
        reducer = Reducer(asked, rules_of_ranks(rules, asked.config))
        while True:
            one = msgspec.msgpack.decode(pipe.recv_bytes(), type=RankFile)
            pipe.send_bytes(answer(reducer, one, lambda done: pipe.send_bytes(READ + str(done).encode())))


def answer(reducer: Reducer, one: RankFile, tell: Callable[[int], None]) -> bytes:
    """The reduced form of a rank, or why there is none. tell: told now and then how many bytes of its file are read."""
    from advisor.engine import reduced_form

    reported = 0

    def progress(done: int, _total: int) -> None:
        nonlocal reported
        if done - reported >= _REPORT_BYTES:
            reported = done
            tell(done)

    try:
        found = reducer.reduced(one, progress)
        return REDUCED + reduced_form.encode(found.result, found.origin)
    except (BrokenPipeError, ConnectionResetError):
        raise
    except Exception as failure:
        return FAILED + why(one, failure).encode("utf-8", "replace")


def why(one: RankFile, failure: Exception) -> str:
    """One line of why a rank could not be read."""
    from advisor.errors import AdvisorError

    if isinstance(failure, MemoryError):
        return f"{one.path.name}: there is not enough memory for it; use fewer --workers"
    if isinstance(failure, AdvisorError):
        return str(failure).splitlines()[0]
    return f"{one.path.name}: {type(failure).__name__}: {failure}".splitlines()[0]
