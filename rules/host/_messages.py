"""Python time of the loop that passes in messages to processes of the script's own."""

from __future__ import annotations

from msgspec.structs import replace

from advisor.api import Block, Finding, Fix, Price, RankRecord, Source, duration

from ..shared._words import count

_PACKAGE = "multiprocessing"
_FIX = Fix(
    "Run what is cheap in this process, or give each process more to do for each message",
    "exact",
    "envs = SubprocVecEnv(makers)  # a process each",
    "envs = DummyVecEnv(makers)  # one after the other, in this process",
)


def as_messages(found: Finding, place: Block, price: Price, record: RankRecord | None) -> Finding:
    """The finding on a place, with what is known of the messages that its lines send and wait for; else as it is."""
    asks = _asking(record)
    if record is None or not any(line.source.place in asks for line in place.lines):
        return found
    made = tuple(_made(record))
    where = tuple(dict.fromkeys((*found.where[:1], *made, *found.where[1:])))
    message = f"{found.message.rstrip('.')}, in messages to other processes (`{_PACKAGE}`)"
    vitals = record.vitals
    if vitals is None or not vitals.children or not vitals.timed_steps or vitals.children_cpu_us is None:
        return replace(found, message=f"{message}.", where=where, fix=_FIX)
    work_us = vitals.children_cpu_us / vitals.timed_steps
    step_us = price.scale.step_us
    whole = price.deprofiled.share(place.whole(price.deprofiled))
    # What the processes do, messages included, takes no longer here.
    low_us, high_us = max(whole[0] * step_us - work_us, 0.0), found.saving.high_us if found.saving else 0.0
    saving = price.of_us(
        min(low_us, high_us),
        high_us,
        "low: these lines less all CPU time of the other processes, which would be spent here; high: all of these "
        "lines and what they evict from the caches",
    )
    return replace(
        found,
        message=f"{message}: {count(vitals.children)} of them use {duration(work_us)} of CPU time in total meanwhile.",
        saving=saving,
        where=where,
        facts={**found.facts, "children": vitals.children, "children_us": work_us},
        fix=_FIX,
    )


def _asking(record: RankRecord | None) -> set[tuple[str, int]]:
    """Lines of ordinary steps at which code of multiprocessing ran."""
    samples = record.run.samples if record and record.run else []
    here = (one for one in samples if one.kind == "step" and one.package == _PACKAGE)
    return {(one.inner[0], one.inner[1]) if one.inner[0] else (one.file, one.line) for one in here}


def _made(record: RankRecord) -> list[Source]:
    """The lines before the first step at which it ran too: those that start the processes."""
    samples = record.run.samples if record.run else []
    here = (one for one in samples if one.kind == "start" and one.package == _PACKAGE)
    return [Source(one.file, one.line, one.function) for one in here]
