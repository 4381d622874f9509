"""Ranks as files: a trace is read and reduced, a reduced form is read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
from msgspec.structs import replace

from advisor.capture.record import RankRecord, RunRecord
from advisor.computed import Missing
from advisor.engine import reduced_form
from advisor.engine.config import Config
from advisor.engine.engine import RankInput, reduce
from advisor.engine.rank_result import RankResult
from advisor.engine.reduced_form import Origin, Reduced
from advisor.engine.rule import Rule
from advisor.errors import InputError
from advisor.model import Outcome
from advisor.places.place import Place, place
from advisor.trace.events import Trace
from advisor.trace.read.load import load

if TYPE_CHECKING:
    from advisor.trace.read.source import Progress

# Rows at time 0 stand in some traces: the window of a trace lies between these shares of its rows.
_EDGES = (0.01, 0.99)
_NOT_ASKED = "this rank was reduced without this rule; reduce its trace again"


class RankFile(msgspec.Struct, frozen=True):
    """A rank to be read: its trace and what capture recorded of it, or its reduced form.

    rank      where the trace does not say it itself
    reduced   path of its reduced form; then the trace is only named
    later     windows after the first, with at and why as in `advisor.inputs.jobs.RankTrace`
    """

    rank: int
    profile: str
    lines: str = ""
    reduced: str = ""
    record: RankRecord | None = None
    run: RunRecord | None = None
    later: tuple[RankFile, ...] = ()
    at: int = 0
    why: str = ""

    @property
    def path(self) -> Place:
        """The file that is read."""
        return place(self.reduced or self.profile)


def absolute(one: RankFile) -> RankFile:
    """The same files, named so that a process in another folder, on another machine, finds them."""
    later = tuple(msgspec.structs.replace(w, profile=_absolute(w.profile), lines=_absolute(w.lines)) for w in one.later)
    return msgspec.structs.replace(one, profile=_absolute(one.profile), lines=_absolute(one.lines), later=later)


def _absolute(where: str) -> str:
    """An address, also of an archive's member, is that already."""
    return where if not where or "://" in where else str(Path(where).absolute())


class Asked(msgspec.Struct, frozen=True):
    """What is asked of each rank: the configuration of rules, and GPUs that are asked about."""

    select: tuple[str, ...] = ()
    ignore: dict[str, str] = {}
    thresholds: dict[str, dict[str, Any]] = {}
    gpus: tuple[str, ...] = ()

    @classmethod
    def of(cls, config: Config, gpus: Sequence[str] = ()) -> Asked:
        """The parts of a configuration that a rank's findings depend on."""
        thresholds = {rule: dict(table) for rule, table in config.thresholds.items()}
        return cls(config.select, dict(config.ignore), thresholds, tuple(gpus))

    @property
    def config(self) -> Config:
        """As a configuration again."""
        return Config(self.select, self.ignore, self.thresholds)

    @property
    def rules_text(self) -> str:
        """The configuration of rules as text: equal where equal rules are asked alike."""
        chosen = (sorted(self.select), sorted(self.ignore), self.thresholds)
        return msgspec.json.encode(chosen, order="sorted").decode()


class Reducer:
    """Reads and reduces one rank after the other with the same rules."""

    def __init__(self, asked: Asked, rules: Sequence[Rule]) -> None:
        self.asked, self.rules = asked, rules

    def reduced(
        self, one: RankFile, progress: Progress | None = None, watch: Callable[[str], None] | None = None
    ) -> Reduced:
        """A rank from its file. Raises InputError, one line, for a file that cannot be used."""
        if one.reduced:
            data = _bytes(one.path)
            if progress is not None:
                progress(len(data), len(data))
            return reduced_form.decode(data, str(one.path))
        lines = load(one.lines) if one.lines else None
        trace = load(one.profile, progress)
        rank = one.rank if one.record or trace.meta.rank is None else trace.meta.rank
        name = place(one.profile).name
        read = RankInput(rank, name, trace, one.record, lines, watch, _later(one, rank, watch))
        try:
            result = reduce(read, self.rules, self.asked.config, self.asked.gpus)
        except Missing as reason:
            raise InputError(f"{one.profile}: {reason}") from reason
        return Reduced(self._origin(one, rank, trace), result)

    def _origin(self, one: RankFile, rank: int, trace: Trace) -> Origin:
        starts = trace.events.start_ns
        low, high = np.quantile(starts, _EDGES, method="nearest").tolist() if len(starts) else (None, None)
        world = one.record.world_size if one.record else trace.meta.world_size
        name = place(one.profile).name
        return Origin(rank, name, world, low, high, self.asked.rules_text, _of_job(one, world))


def _later(one: RankFile, rank: int, watch: Callable[[str], None] | None) -> Iterator[RankInput]:
    """The later windows, each read when its turn comes."""
    for window in one.later:
        lines = load(window.lines) if window.lines else None
        trace, name = load(window.profile), place(window.profile).name
        yield RankInput(rank, name, trace, window.record, lines, watch, at=window.at, why=window.why)


def _of_job(one: RankFile, world_size: int | None) -> RunRecord | None:
    """What is known of the job as a whole, and of this rank its number and the digests of the script's files."""
    if one.run is None:
        return None
    digests = one.record.file_digests if one.record else {}
    mine = RankRecord(rank=one.rank, world_size=world_size or 1, file_digests=digests)
    return msgspec.structs.replace(one.run, ranks=[mine])


def _bytes(path: Place) -> bytes:
    try:
        return path.read_bytes()
    except OSError as failure:
        raise InputError(f"{path}: cannot be read ({failure.strerror}); check the file") from failure


def aligned(result: RankResult, rules: Sequence[Rule]) -> RankResult:
    """The rank with one outcome for each of these rules, in their order: what is joined with other ranks."""
    known = {outcome.rule: outcome for outcome in result.outcomes}
    return replace(result, outcomes=tuple(_of_rule(rule, known.get(rule.id)) for rule in rules))


def _of_rule(rule: Rule, known: Outcome | None) -> Outcome:
    """What the rule said, with the texts that a reduced form leaves out."""
    if known is None:
        return Outcome(rule.id, "skipped", (), _NOT_ASKED, rule.title, bool(rule.confirmed), rule.page)
    if known.title:
        return known
    return Outcome(rule.id, known.status, known.findings, known.reason, rule.title, known.confirmed, rule.page)
