"""What the hooks see pass by and run.json keeps: loaders, optimizers, garbage collections, fetch times."""

from __future__ import annotations

import os
import re
import statistics
import weakref
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from functools import partial
from typing import Any

from .facts import python_tracers
from .facts.data import dataset_digest, dataset_functions, sampler_time
from .facts.data.workers import Board
from .facts.gc_pauses import GcPauses
from .facts.source import secrets
from .facts.source.setting_lines import SettingLines
from .guards import hooks
from .guards.interrupts import let_through

_MOST_LOADERS = 8
# A loader whose batches so many backward passes follow is that of the training; one that gives a batch before fewer
# than one of them in ten is none of it.
_GOES_ON, _SELDOM = 3, 0.1
# Fewer steps than this tell nothing about a loop.
_FEW_STEPS = 10
# Warnings that matter come early; a script that warns in every step says the same.
_MOST_WARNINGS, _WARNING_CHARACTERS = 10, 300
# Those that speak of time are few: they are kept behind the first ten, too.
_SPEAKS_OF_TIME, _MOST_OF_TIME = re.compile("slow|perform|memory usage|fall back|fast path|bucket view|SMs"), 20


class Collector:
    """Facts gathered while the script runs. `timed` is on in the un-profiled phases only."""

    def __init__(self) -> None:
        self.optimizers: dict[int, Any] = {}
        self.parameters: dict[int, Any] = {}  # the first of each optimizer
        self.remade = 0  # optimizers whose parameters had one that is gone
        self.keys: dict[int, tuple[Any, int]] = {}  # id -> (the optimizer that has it, its key)
        self.earlier: list[Any] = []  # of loops that were left
        self.loaders: list[dict[str, Any]] = []
        self.pauses = GcPauses()
        self.autocast: set[str] = set()
        self.lengths: dict[int, int | None] = {}
        self.board = Board()
        self.draws = sampler_time.Draws()
        self.setting_lines = SettingLines()
        self.warnings: list[str] = []
        self.tracer = ""  # what watched Python in steps that were timed

    @property
    def timed(self) -> bool:
        """Whether what happens now happens in steps that are timed without the profiler."""
        return self.draws.timed

    @timed.setter
    def timed(self, on: bool) -> None:
        self.draws.timed = on
        self.pauses.listen(on)

    def install(self) -> list[hooks.Undo]:
        """Starts to listen to fetchers, autocast and warnings; what ends that."""
        return [
            *hooks.watch_fetchers(self.board.begun, self.board.fetched),
            *self.draws.install(),
            *hooks.watch_autocast(self._autocast),
            *hooks.watch_warnings(self._warned),
            self.board.pictures.leave,
        ]

    def in_child(self) -> None:
        """In a forked process: only the board goes on, where it is a loader worker."""
        self.timed = False
        self.board.in_child()

    def look_at_tracer(self) -> None:
        """The loop fetches a batch or begins a backward pass: a profiler that watches parts of a step may run now."""
        if self.timed and not self.tracer:
            self.tracer = python_tracers.running()

    def batch_ready(self) -> None:
        """A batch was delivered on the loop's thread."""
        self.board.delivered()

    def made(self, iterator: Any) -> None:
        """An iterator is being made; its workers are not there yet."""
        if self.board.memory is None:
            self.board.prepare()

    def loader(self, iterator: Any) -> None:
        """A new iterator of a DataLoader."""
        from .facts.probe import attempt, loader_facts

        serial = iterator.__dict__["_advisor"]
        self.lengths[serial] = _length(iterator)
        facts = loader_facts(iterator)
        facts |= attempt(lambda: sampler_time.facts(iterator)) or {}
        facts |= attempt(lambda: dataset_functions.facts(iterator, self.setting_lines.foreign)) or {}
        facts |= attempt(lambda: self.setting_lines.of_loader(iterator)) or {}
        facts |= attempt(lambda: dataset_digest.of_whole(iterator)) or {}
        drawn = sampler_time.of(iterator)
        for one in self.loaders:
            if one["facts"] == facts:
                one["serials"].add(serial)
                one["draws"].append(drawn)
                one["begun"] += self.timed
                return
        if len(self.loaders) < _MOST_LOADERS:
            self.loaders.append({"facts": facts, "serials": {serial}, "draws": [drawn], "begun": int(self.timed)})

    def optimizer(self, optimizer: Any) -> int:
        """The key of an optimizer that steps: its own, or of the one that it replaces, as where each step makes one."""
        known = self.keys.get(id(optimizer))
        if known is None or known[0]() is not optimizer:
            known = self.keys[id(optimizer)] = (weakref.ref(optimizer), self._replaced_by(optimizer))
        self.optimizers[known[1]] = known[0]
        return known[1]

    def _replaced_by(self, optimizer: Any) -> int:
        """The key of an optimizer of the same parameters that is gone; else a key of its own, as ids are used again."""
        first = next((one for group in optimizer.param_groups for one in group["params"]), None)
        for key, ref in self.optimizers.items():
            if ref() is None and key in self.parameters and self.parameters[key]() is first is not None:
                self.remade += 1
                return key
        key = id(optimizer)
        while key in self.optimizers:
            key += 1
        if first is not None:
            self.parameters[key] = weakref.ref(first)
        return key

    def notes(self, steps: int) -> list[str]:
        """What the report says of optimizers that most steps make anew. steps: of all optimizers"""
        if 2 * self.remade <= max(steps, _FEW_STEPS):
            return []
        return [
            f"the script made an optimizer for weights that had one {self.remade} times in {steps} steps: what the old "
            "one kept, such as Adam's averages, is lost each time; make it once, before the loop"
        ]

    def alive_optimizers(self) -> list[Any]:
        """Those that have stepped in this training loop and are still there."""
        return [one for one in (ref() for ref in self.optimizers.values()) if one is not None]

    def all_optimizers(self) -> list[Any]:
        """Those of earlier loops as well."""
        earlier = [one for one in (ref() for ref in self.earlier) if one is not None]
        now = self.alive_optimizers()
        return now + [one for one in earlier if all(one is not other for other in now)]

    def begin_again(self, optimizers: set[int]) -> None:
        """Training has moved to another loop; optimizers: the keys of those that had stepped before."""
        self.earlier += [self.optimizers.pop(key) for key in optimizers & self.optimizers.keys()]
        self.autocast.clear()
        self.board.begin_again()

    def _warned(self, warning: Any, _value: Any) -> None:
        """A warning is about to be shown; the first few different ones are kept, without what looks like a secret."""
        if len(self.warnings) < _MOST_OF_TIME:
            try:
                text = _warning_text(warning)
            except Exception as failure:
                let_through(failure)
                return  # a message that cannot be turned into text is the script's affair
            room = len(self.warnings) < _MOST_WARNINGS or _SPEAKS_OF_TIME.search(text)
            if room and text not in self.warnings:
                self.warnings.append(text)

    def _autocast(self, region: Any, _value: Any) -> None:
        if getattr(region, "_enabled", True):
            self.autocast.add(str(getattr(region, "fast_dtype", "")).removeprefix("torch."))

    def record(
        self, fed: Mapping[int, int], beside: Mapping[int, int], serial: int = 0, theirs: AbstractSet[int] = frozenset()
    ) -> dict[str, Any]:
        """The part of the rank's record that was gathered here.

        fed, beside: of `Tracker`, backward passes by the serials of iterators whose batches they follow. serial: of the
        last iterator before the training loop; theirs: of iterators that belong to the next one.
        """
        trained, used = {*fed, *beside}, self._feeding(fed, beside)
        mine = [one for one in self.loaders if any(each > serial and each not in theirs for each in one["serials"])]
        others = [one for one in mine if used and one not in used]
        used = used or mine
        times, alone = self.board.read(), len(used)
        return {
            "evaluation_loaders": [{**one["facts"], **self._numbers(one["facts"])} for one in others],
            "loaders": [
                {**one["facts"], **fetch_times(one["facts"], times, alone), **self._drawn(alone)}
                | {"iterators": len(one["serials"] & trained), **self._numbers(one["facts"])}
                | sampler_time.as_record(one["draws"], one["begun"])
                for one in used
            ],
            "gc_pauses_us": self.pauses.us(),
            "warnings": list(self.warnings),
        }

    def _feeding(self, fed: Mapping[int, int], beside: Mapping[int, int]) -> list[dict[str, Any]]:
        """The loaders of the training.

        One that gives a single batch before the first step, or before each epoch, as `next(iter(valid_loader))` does,
        is none beside one that goes on: to a backward pass they look like two that are read in turn.
        """
        most = max((_passes(one, fed) for one in self.loaders), default=0)
        least = max(2, _SELDOM * most) if most >= _GOES_ON else 1
        return [one for one in self.loaders if _passes(one, fed) or _passes(one, beside) >= least]

    def _numbers(self, loader: dict[str, Any]) -> dict[str, Any]:
        """Where the text gives its batch size and workers a number, makes its dataset and sampler, its options."""
        from .facts.probe import attempt

        options = attempt(partial(self.setting_lines.as_optioned, loader)) or {}
        lines = self.setting_lines
        made = {"dataset_at": lines.of_dataset, "options_at": lines.of_options, "sampler_at": lines.of_sampler}
        made |= {"workers_passed_at": lines.of_workers, "persistent_off_at": lines.of_kept_workers}
        known = {name: attempt(partial(of, loader)) or None for name, of in made.items()}
        return {**known, **options} | {
            f"{argument}_at": attempt(partial(self.setting_lines.of_number, loader, argument)) or None
            for argument in ("batch_size", "num_workers")
        }

    def _pictures(self) -> list[dict[str, Any]]:
        """The pictures that were decoded; what works on all of their pixels is where the script makes it."""
        every = self.board.pictures.record()
        made = ((one, self.setting_lines.text.called(one["large_by"])) for one in every)
        return [one | ({"large_at": at} if at else {}) for one, at in made]

    def _drawn(self, loaders: int) -> dict[str, Any]:
        """Whether samples are drawn anew with random numbers, where one loader alone was seen.

        And the mean times of its workers, each by itself, and the pictures that were decoded.
        """
        from .facts.probe import attempt

        found: dict[str, Any] = {}
        if loaders == 1:
            found = {"worker_us": self.board.per_worker(), "core_us": self.board.on_a_core()}
            found["pictures"] = attempt(self._pictures) or []
        return found | ({"random_samples": self.board.drawn} if loaders == 1 and self.board.drawn is not None else {})


def _passes(loader: dict[str, Any], of: Mapping[int, int]) -> int:
    """Backward passes that its iterators have in these counts."""
    return sum(of.get(serial, 0) for serial in loader["serials"])


def _warning_text(warning: Any) -> str:
    """`torch/optim/lr_scheduler.py:182: UserWarning: …`, on one line; a file by its place in its package."""
    path = str(warning.filename).replace(os.sep, "/")
    for part in ("/site-packages/", "/dist-packages/"):
        path = path.partition(part)[2] or path
    if path.startswith("/"):
        path = path.rpartition("/")[2]  # folders of the user's machine are nobody's business
    said = " ".join(str(warning.message).split())[:_WARNING_CHARACTERS]
    return secrets.cleaned(f"{path}:{warning.lineno}: {warning.category.__name__}: {said}")


def _length(iterator: Any) -> int | None:
    try:
        return len(iterator)
    except Exception as failure:
        let_through(failure)
        return None


def fetch_times(facts: dict[str, Any], times: list[tuple[float, float]], loaders: int) -> dict[str, Any]:
    """sample_us and collate_us of a loader, or why they are not known. times: (all samples, collate) of batches, µs."""
    if loaders > 1:
        return {"sample_why": "several DataLoaders feed this loop, and their workers cannot be distinguished"}
    if not times:
        context = facts.get("context")
        why = f"workers are started by {context}" if context in ("spawn", "forkserver") else "no batch was seen"
        return {"sample_why": why}
    batch = facts.get("batch_size") or 1
    return {
        "sample_us": median([samples / batch for samples, _ in times]),
        "collate_us": median([collate for _, collate in times]),
    }


def median(values: list[float]) -> float | None:
    """The median; None of nothing."""
    return statistics.median(values) if values else None
