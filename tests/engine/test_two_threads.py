"""Two threads share a trace's rules out: the same report, each analysis once, and no fault of one lost in the other."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest
from benchmarks.reading import made_traces

from advisor.computed import Computed, Missing
from advisor.engine import two_threads
from advisor.engine.ask_rules import apply
from advisor.engine.config import Config
from advisor.engine.engine import RankInput, analyse
from advisor.engine.registry import load_rules
from advisor.engine.rule import Rule
from advisor.model import Outcome
from advisor.report.report_file import encode
from advisor.trace.read.load import load

TRACES = Path(__file__).parents[2].parent / "shared" / "traces"


@pytest.fixture(params=[5e-3, 1e-5], ids=["ordinary", "hasty"])
def switching(request: pytest.FixtureRequest) -> Any:
    """How often threads take turns: as always, and as often as Python can, which brings races out."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(request.param)
    yield
    sys.setswitchinterval(before)


def reported(path: Path, monkeypatch: pytest.MonkeyPatch, threads: int) -> bytes:
    monkeypatch.setattr(two_threads, "is_worth_it", lambda events: threads == 2)
    return encode(analyse([RankInput(0, path.name, load(path))], load_rules(), Config(), gpus=["H100"]))


@pytest.mark.variants(6)
@pytest.mark.parametrize("path", sorted(TRACES.glob("*.gz")), ids=lambda path: path.name)
def test_the_report_of_a_real_trace_is_the_same(path: Path, monkeypatch: pytest.MonkeyPatch, switching: None) -> None:
    assert reported(path, monkeypatch, 2) == reported(path, monkeypatch, 1)


def test_the_report_of_a_large_trace_is_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, switching: None
) -> None:
    made_traces.write(tmp_path / "trace.json", 4)
    assert reported(tmp_path / "trace.json", monkeypatch, 2) == reported(tmp_path / "trace.json", monkeypatch, 1)


def test_small_traces_and_single_cores_get_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(two_threads, "cores", lambda: 2)
    assert two_threads.is_worth_it(1_000_000)
    assert not two_threads.is_worth_it(1_000)
    monkeypatch.setattr(two_threads, "cores", lambda: 1)
    assert not two_threads.is_worth_it(1_000_000)


@dataclass(frozen=True)
class Slow:
    made: ClassVar[list[int]] = []

    @classmethod
    def compute(cls) -> Slow:
        cls.made.append(threading.get_ident())
        time.sleep(0.05)
        return cls()


@dataclass(frozen=True)
class Failing:
    made: ClassVar[list[int]] = []

    @classmethod
    def compute(cls, slow: Slow) -> Failing:
        cls.made.append(threading.get_ident())
        raise Missing("no such thing; record one")


@dataclass(frozen=True)
class Circle:
    @classmethod
    def compute(cls, other: Arc) -> Circle:
        return cls()


@dataclass(frozen=True)
class Arc:
    @classmethod
    def compute(cls, circle: Circle) -> Arc:
        return cls()


def together(count: int, work: Callable[[], object]) -> list[object]:
    """What `work` gives, or raises, in each of several threads that begin at once."""
    seen: list[object] = []
    gate = threading.Barrier(count)

    def run() -> None:
        gate.wait()
        try:
            seen.append(work())
        except Exception as failure:
            seen.append(str(failure))

    threads = [threading.Thread(target=run) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    return seen


def test_what_two_threads_ask_for_is_computed_once_failures_included(switching: None) -> None:
    Slow.made.clear()
    Failing.made.clear()
    computed = Computed()
    assert together(8, lambda: computed.get(Failing)) == ["no such thing; record one"] * 8
    assert len(Slow.made) == len(Failing.made) == 1
    assert len({id(one) for one in together(8, lambda: computed.get(Slow))}) == 1


def test_an_analysis_that_needs_itself_is_told_and_waits_for_nobody() -> None:
    computed = Computed()
    assert together(1, lambda: computed.get(Circle)) == ["Circle needs itself"]


def test_an_analysis_that_was_interrupted_is_made_when_it_is_asked_for_again() -> None:
    interrupted = [True]

    @dataclass(frozen=True)
    class Stopped:
        @classmethod
        def compute(cls) -> Stopped:
            if interrupted.pop() if interrupted else False:
                raise KeyboardInterrupt
            return cls()

    computed = Computed()
    with pytest.raises(KeyboardInterrupt):
        computed.get(Stopped)
    assert computed.get(Stopped) == Stopped()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")  # it is what the test does
def test_answers_come_in_the_order_of_the_rules_and_none_is_lost(tmp_path: Path, switching: None) -> None:
    """Also where a rule ends the thread that asks it, as `sys.exit` does: it is asked again, by the caller's thread."""
    rules = load_rules().rules
    main, fatal = threading.get_ident(), rules[7]
    made_traces.write(tmp_path / "trace.json", 0.5)
    computed = Computed(trace=load(tmp_path / "trace.json"))

    def ask(rule: Rule) -> Outcome:
        if rule is fatal and threading.get_ident() != main:
            sys.exit("not here")
        time.sleep(0.0002)  # so that both threads get some
        return apply(rule, computed, {})

    assert [one.rule for one in two_threads.of_two_threads(rules, computed, ask)] == [rule.id for rule in rules]
