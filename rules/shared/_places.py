"""Places in the user's code, as messages name them."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from advisor.api import (
    AUTOGRAD_NODE,
    CallSites,
    Category,
    CodePlace,
    Events,
    Ints,
    Lines,
    Loader,
    Optimizer,
    RankRecord,
    Settings,
    Source,
    Trace,
)

# Rows whose line is asked for; where these have none, neither have others.
TRIED = 8


def place(where: Source | None) -> str:
    """' at train.py:88'; where only the function is known ' in train(), from train.py:80'; nothing where unknown."""
    if where is None:
        return ""
    at = f"{where.file.rpartition('/')[2]}:{where.line}"
    if where.precision == "function" and where.function:
        return f" in {where.function}(), from {at}"
    return f" at {at}"


def made_at(made: Loader | Optimizer | CodePlace | None) -> tuple[Source, ...]:
    """Where a loader, an optimizer or what else has a place was made; empty where capture did not see it."""
    return (Source(made.file, made.line, made.function),) if made and made.file else ()


def asked_at(optimizer: Optimizer | None) -> tuple[Source, ...]:
    """Where an optimizer is asked for a loop over parameters (`foreach=False`), then where it is made, if known."""
    return first_of(made_at(optimizer.foreach_at if optimizer else None), made_at(optimizer))


def object_of(source: Source | None, record: RankRecord | None) -> tuple[Source, ...]:
    """Where the script makes the only object of the class that a line belongs to: there its arguments are chosen."""
    classes = record.classes.get(source.file, ()) if source and record else ()
    around = [one for one in classes if source and one.first <= source.line <= one.last]
    inmost = max(around, key=lambda one: one.first, default=None)
    return (Source(inmost.file, inmost.line),) if inmost else ()


def first_of(first: Iterable[Source], others: Iterable[Source]) -> tuple[Source, ...]:
    """These places and then the others, each line once."""
    lines: dict[tuple[str, int], Source] = {}
    for one in (*first, *others):
        lines.setdefault((one.file, one.line), one)
    return tuple(lines.values())


def batch_size_at(loader: Loader | None) -> tuple[Source, ...]:
    """The line that gives the batch size its number, then where the loader was made, as far as they are known."""
    return first_of(made_at(loader.batch_size_at if loader else None), made_at(loader))


def batch_of(samples: int, loader: Loader | None, settings: Settings | None) -> tuple[Source, ...]:
    """As `batch_size_at`; without a loader, the only line that gives a name such as `batch_size` this number."""
    return batch_size_at(loader) or set_at(settings, f"batch_size {samples}")


def workers_at(loader: Loader | None) -> tuple[Source, ...]:
    """Where the call is given the workers, where it begins, what it unpacks, and their number, as far as known."""
    others = (loader.options_at, loader.num_workers_at) if loader else ()
    passed = made_at(loader.workers_passed_at if loader else None)
    return first_of((*passed, *made_at(loader)), (one for other in others for one in made_at(other)))


def restarts_at(loader: Loader | None) -> tuple[Source, ...]:
    """Where a loader is told not to keep its workers, if it is, and where it is given them."""
    return first_of(made_at(loader.persistent_off_at if loader else None), workers_at(loader))


def set_at(settings: Settings | None, *names: str) -> tuple[Source, ...]:
    """Where the script set one of these, as `Settings.set_at` names them; empty where it did not, or nobody saw it.

    Where the value stands elsewhere, as the default of an option, that line comes first: there it is changed.
    """
    known = settings.set_at if settings else {}
    name = next((name for name in names if name in known), "")
    return first_of(made_at(known.get(f"{name} value")), made_at(known.get(name)))


def calls_collector(line: Source, record: RankRecord | None) -> bool:
    """Whether it is the only line of the script's text that calls `gc.collect()`."""
    called = set_at(record.settings, "gc.collect") if record else ()
    return any((line.file, line.line) == (at.file, at.line) for at in called)


def longest(events: Events, rows: Ints) -> Ints:
    """Those of these rows whose line is asked for, the longest first."""
    return rows[np.argsort(-events.dur_ns[rows], kind="stable")][:TRIED]


def first_line(lines: Lines | None, rows: Ints) -> Source | None:
    """The line of the first of these rows whose line is known."""
    return next((found for row in rows.tolist() if lines and (found := lines.where_op(row))), None)


def forward_rows(trace: Trace, nodes: Ints) -> Ints:
    """Rows of the forward ops that recorded these nodes of the backward pass: they share their sequence numbers.

    An op that records nothing carries the number that the next one gets: of each number the last op counts.
    """
    events = trace.events
    recorded = events.of(Category.CPU_OP) & (events.sequence >= 0) & (events.forward_thread <= 0)
    rows = np.flatnonzero(recorded & ~events.named(AUTOGRAD_NODE) & np.isin(events.sequence, events.sequence[nodes]))
    rows = rows[np.argsort(events.start_ns[rows], kind="stable")][::-1]
    return np.sort(rows[np.unique(events.sequence[rows], return_index=True)[1]])


def forward_lines(lines: Lines | None, trace: Trace, nodes: Ints) -> tuple[Source, ...]:
    """The line that calls the forward ops of these nodes and of no others, then the line of the first of them.

    What is recorded for other nodes must stay so: a line that calls both cannot be put under `torch.no_grad()`.
    """
    rows = forward_rows(trace, nodes)
    if lines is None or not len(rows):
        return ()
    first, every = first_line(lines, rows), np.flatnonzero(trace.events.named(AUTOGRAD_NODE))
    others = np.setdiff1d(forward_rows(trace, every), rows)
    called = CallSites.compute(trace, lines).of_rows(rows, without=others)
    return (*called, *((first,) if first else ()))


def called_at(called: tuple[Source, ...]) -> str:
    """' (called at train.py:85)'; nothing where the call is not known."""
    return f" (called{place(called[0])})" if called else ""
