"""The ranks of a job, each from its file, in this process or in several: the same results in the same order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Protocol

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from advisor.engine import reduced_form
from advisor.engine.rank_files import Asked, RankFile, Reducer, absolute
from advisor.engine.reduced_form import Reduced
from advisor.engine.rule import Rule
from advisor.engine.worker_count import text_bytes, worker_count
from advisor.errors import AdvisorError

if TYPE_CHECKING:
    from advisor.engine.worker_pool import Answer

# Reading and analysing 1 GB takes a few seconds; what takes so long hangs, on a file system that does not answer.
LIMIT_S = 600.0


class Watch(Protocol):
    """Told how far the files are, by their places."""

    def read(self, index: int, done: int) -> None:
        """So many bytes of a file are read."""

    def ended(self, index: int, *, failed: bool) -> None:
        """A file is done with."""


class How(Struct, frozen=True):
    """How ranks are read.

    analysing  a context for each file that is analysed in this process, which gives what is told the names of analyses
    workers    processes; 0: as many as `worker_count` says; 1: this one alone, without time limits
    limit_s    how long a file may take
    scheduler  address of the scheduler of dask whose workers read all traces; "": none
    """

    analysing: Callable[[RankFile], AbstractContextManager[Callable[[str], None] | None]]
    workers: int = 0
    limit_s: float = LIMIT_S
    scheduler: str = ""


def rank_results(
    files: Sequence[RankFile], asked: Asked, rules: Sequence[Rule], how: How, watch: Watch
) -> Iterator[tuple[int, Reduced | str]]:
    """(place of the file, the rank, or one line of why there is none), as they are done."""
    traces = [index for index, one in enumerate(files) if not one.reduced]
    workers = 1 if how.scheduler else how.workers or worker_count([text_bytes(files[at].path) for at in traces])
    elsewhere = traces if how.scheduler or workers > 1 else []
    alone = [index for index in range(len(files)) if not elsewhere or files[index].reduced]
    for index, found in _here(files, alone, Reducer(asked, rules), how, watch):
        watch.ended(index, failed=isinstance(found, str))
        yield index, found
    if elsewhere:
        for index, found in _elsewhere(files, elsewhere, asked, replace(how, workers=workers), watch):
            watch.ended(index, failed=isinstance(found, str))
            yield index, found


def _here(
    files: Sequence[RankFile], places: Sequence[int], reducer: Reducer, how: How, watch: Watch
) -> Iterator[tuple[int, Reduced | str]]:
    for index in places:

        def progress(done: int, _total: int, index: int = index) -> None:
            watch.read(index, done)

        try:
            with how.analysing(files[index]) as analysing:
                one = reducer.reduced(files[index], progress, analysing)
            found: Reduced | str = one if len(files) == 1 else one.with_result(reduced_form.packed(one.result))
        except Exception as failure:
            if len(files) == 1 and not isinstance(failure, AdvisorError):
                raise
            from advisor.engine.rank_process import why

            found = why(files[index], failure)
        yield index, found


def _elsewhere(
    files: Sequence[RankFile], places: Sequence[int], asked: Asked, how: How, watch: Watch
) -> Iterator[tuple[int, Reduced | str]]:
    from advisor.engine.rank_process import FAILED, READ

    # The largest first, so that none of them is left to a single process at the end.
    order = sorted(places, key=lambda place: -text_bytes(files[place].path))
    for answer in _answers([files[place] for place in order], asked, how):
        index, kind, data = order[answer.index], answer.data[:1], answer.data[1:]
        if answer.failed:
            yield index, f"{files[index].path.name}: {answer.failed}"
        elif kind == READ:
            watch.read(index, int(data))
        elif kind == FAILED:
            yield (
                index,
                data.decode("utf-8", "replace").replace(str(absolute(files[index]).path), str(files[index].path)),
            )
        else:
            yield index, reduced_form.decode(data, files[index].path)


def _answers(files: Sequence[RankFile], asked: Asked, how: How) -> Iterator[Answer]:
    """What workers of dask, or processes of our own, say of these files."""
    if how.scheduler:
        from advisor.engine import dask_workers

        requests = [msgspec.msgpack.encode(absolute(one)) for one in files]
        return dask_workers.answers(how.scheduler, asked, requests, how.limit_s)
    from advisor.engine import rank_process, worker_pool

    requests, times = [msgspec.msgpack.encode(one) for one in files], [how.limit_s] * len(files)
    return worker_pool.answers(rank_process.serve, msgspec.msgpack.encode(asked), requests, times, how.workers)
