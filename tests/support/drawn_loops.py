"""Loops of `host_and_device` as reports: with the fault, and without it."""

from __future__ import annotations

from collections.abc import Callable

from host_and_device import Machine

from advisor.engine.config import Config
from advisor.engine.engine import RankInput, analyse
from advisor.engine.registry import load_rules
from advisor.model import Finding, Report
from advisor.trace.read.load import read_bytes

Loop = Callable[[Machine, bool], None]


def run(loop: Loop, *, fixed: bool = False, steps: int = 5) -> Machine:
    """Some steps of a loop."""
    machine = Machine()
    for _ in range(steps):
        with machine.step():
            loop(machine, fixed)
    return machine


def report(trace: bytes) -> Report:
    """What `advisor analyze` says."""
    return analyse([RankInput(0, "made", read_bytes(trace, "made"))], load_rules(), Config())


def found(told: Report, rule: str) -> list[Finding]:
    """The findings of a rule."""
    return [finding for outcome, finding in told.findings() if outcome.rule == rule]
