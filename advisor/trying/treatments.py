"""Treatments as the controller sees them: as words of a command line, several at once, as settings of a process."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from advisor.errors import UsageError
from advisor.gate.pairs import Side
from advisor.model import Treatment

# Known to the processes by `capture.inside.treatments.apply`; the environment is ours to set, and theirs to check. A
# `patch` is no word of a command line: its arguments are `diffs`, texts, and `names`, those of their files.
NAMES = (
    "attention", "autocast", "batch", "calls", "channels_last", "compile", "cudnn", "ddp", "environment", "gc",
    "interval", "loader", "matmul_precision", "no_sync", "non_blocking", "optimizer", "set_to_none", "threads",
)  # fmt: skip
# Losses that are kept of each process: more than the steps of a pair.
_LOSSES = 1000


def parse(text: str) -> Treatment:
    """`loader:num_workers=2,persistent_workers=True` as a treatment. Raises UsageError for what none is."""
    name, _, rest = text.partition(":")
    if name not in NAMES:
        raise UsageError(f"there is no treatment '{name}'; known: {', '.join(NAMES)}")
    arguments = {}
    for part in filter(None, rest.split(",")):
        key, equals, value = part.partition("=")
        if not equals:
            raise UsageError(f"treatment '{text}': '{part}' is not an argument; write name:argument=value,…")
        arguments[key] = _value(value, split=name == "calls")
    return Treatment(name, arguments)


def _value(text: str, *, split: bool) -> Any:
    if split:
        return text.split("+")
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def option(treatment: Treatment) -> str:
    """How `advisor try` is told of it."""
    if treatment.name == "patch":
        return " ".join(f"--patch {name}" for name in treatment.arguments["names"]) or "--report FOLDER"
    return f"--with {words(treatment)}"


def words(treatment: Treatment) -> str:
    """As `parse` reads it."""
    given = ((k, "+".join(v) if isinstance(v, list) else v) for k, v in treatment.arguments.items())
    shown = ",".join(f"{key}={value}" for key, value in given)
    return f"{treatment.name}:{shown}" if shown else treatment.name


def merged(treatments: Iterable[Treatment]) -> tuple[Treatment, ...]:
    """Several at once: arguments of one name joined; of two values for one argument the first."""
    found: dict[str, dict[str, Any]] = {}
    for one in treatments:
        known = found.setdefault(one.name, {})
        for key, value in one.arguments.items():
            if key in known and isinstance(value, list):
                known[key] = [*known[key], *(item for item in value if item not in known[key])]
            else:
                known.setdefault(key, value)
    return tuple(Treatment(name, arguments) for name, arguments in found.items())


def treated(side: Side, treatments: Sequence[Treatment], *, shift: int = 0) -> Side:
    """The side with treatments, its losses kept, and random numbers that start alike in all processes.

    shift: is added to every seed, so that the run is one of the same training with other random numbers.
    """
    seeds = Treatment("seeds", {"value": 0, "shift": shift})
    bare = applied(side, (seeds, *treatments))
    # Sets of strings are visited in the same order by both processes of a pair.
    env = {"PYTHONHASHSEED": "0", **bare.env}
    settings = {"losses": _LOSSES, "whole": True, "counts": True, "undo": "nothing"}
    return replace(bare, env=env, settings={**bare.settings, **settings})


def applied(side: Side, treatments: Sequence[Treatment]) -> Side:
    """The side with treatments, and nothing else of it changed."""
    inside = [{"name": one.name, "arguments": one.arguments} for one in treatments if one.name != "patch"]
    return replace(side, env=_with_environment(side.env, treatments), settings={"treatments": inside})


def _with_environment(env: Mapping[str, str], treatments: Iterable[Treatment]) -> dict[str, str]:
    changed = dict(env)
    for one in treatments:
        for name, value in one.arguments.items() if one.name == "environment" else ():
            if value is None:
                changed.pop(name, None)
            else:
                changed[name] = str(value)
    return changed
