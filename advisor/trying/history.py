"""What was promised and measured on this machine before: one line for each trial, in the user's data folder."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from advisor.calibration.machine import cpu
from advisor.model import Numbers, Report, Tried, TryVerdict

_FILE = "tried.jsonl"
# Trials that came to a figure, which a promise can be held against.
_MEASURED = ("faster", "slower", "not proven")


class Where(msgspec.Struct, frozen=True):
    """The machine as far as it is no secret: models and versions. device: the accelerator, or the CPU without one."""

    device: str
    versions: dict[str, str] = {}


class Record(msgspec.Struct, frozen=True):
    """One trial of a rule's fix. promised, measured: shares of the step; measured: gain, low, high."""

    rule: str
    verdict: TryVerdict
    where: Where
    treatments: tuple[str, ...] = ()
    promised: tuple[float, float] | None = None
    measured: tuple[float, float, float] | None = None
    numbers: Numbers = "not compared"
    pairs: int = 0
    mechanism: str = "unknown"


def where_of(report: Report | None, torch: str = "") -> Where:
    """Of the report's run; without one this machine, with the version of torch that is given."""
    from advisor import __version__

    devices = dict.fromkeys(report.run.devices if report else ())
    names = ("python", "torch", "cuda", "hip")
    known = report.run.versions if report else {"torch": torch}
    versions = {name: known[name] for name in names if known.get(name)}
    return Where(", ".join(devices) or cpu().partition(",")[0], {**versions, "torch-advisor": __version__})


def records_of(tried: Tried, where: Where) -> list[Record]:
    """One for each rule of each trial that was made; names and texts of the user's are in none of the fields."""
    found = []
    for trial in tried.trials:
        if trial.verdict == "not tried":
            continue
        low, high = trial.promised_low, trial.promised_high
        ends = (trial.gain, trial.low, trial.high)
        found += [
            Record(
                rule,
                trial.verdict,
                where,
                tuple(one.name for one in trial.treatments),
                None if low is None or high is None else (low, high),
                None if None in ends else ends,  # type: ignore[arg-type]
                trial.numbers,
                trial.pairs,
                trial.mechanism,
            )
            for rule in trial.rules or ("",)
        ]
    return found


def remember(home: Path, records: Iterable[Record]) -> bool:
    """Adds the records of rules; False where the folder cannot be written to, which ends nothing."""
    lines = b"".join(msgspec.json.encode(one) + b"\n" for one in records if one.rule)
    if lines:
        try:
            home.mkdir(parents=True, exist_ok=True)
            with (home / _FILE).open("ab") as file:
                file.write(lines)  # at once, so that two sessions that end together do not mix their lines
        except OSError:
            return False
    return True


def recall(home: Path, where: Where) -> list[Record]:
    """What was remembered of this device; a damaged line, or one of another version, is left out."""
    found = []
    with suppress(OSError):
        for line in (home / _FILE).read_bytes().splitlines():
            with suppress(msgspec.MsgspecError, UnicodeDecodeError):
                record = msgspec.json.decode(line, type=Record)
                if record.where.device == where.device:
                    found.append(record)
    return found


def held(records: Sequence[Record], rules: Iterable[str]) -> str:
    """How earlier predictions of these rules held, in a phrase; nothing without any.

    A prediction held if the measured interval and the predicted range overlap.
    """
    kept = more = less = 0
    wanted = set(rules)
    for one in records:
        if one.rule not in wanted or one.verdict not in _MEASURED or one.promised is None or one.measured is None:
            continue
        _, low, high = one.measured
        more += low > one.promised[1]
        less += high < one.promised[0]
        kept += low <= one.promised[1] and high >= one.promised[0]
    if not kept + more + less:
        return ""
    others = [f"{count} saved {word}" for count, word in ((less, "less"), (more, "more")) if count]
    return ", ".join([f"earlier on this machine: {kept} of {kept + more + less} predictions held", *others])


def card(tried: Tried, where: Where) -> bytes:
    """What can be sent in: no names of scripts, no paths, no code, no texts."""
    content = {
        "schema": "torch-advisor-card",
        "version": 1,
        "device": where.device,
        "versions": where.versions,
        "noise": tried.noise,
        "trials": [
            {name: value for name, value in msgspec.to_builtins(one).items() if name != "where"}
            for one in records_of(tried, where)
        ],
    }
    return msgspec.json.format(msgspec.json.encode(content), indent=2) + b"\n"
