"""Ranks side by side: clocks laid over each other, waiting told from sending, who is late, and who owns the time."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from advisor.api import GLOO, NEXT, Ranks, draw
from advisor.computed import Computed, Missing
from advisor.engine import merge
from advisor.engine.config import Config
from advisor.engine.engine import RankInput, analyse
from advisor.engine.registry import Rules, load_rules
from advisor.engine.rule import Rule
from advisor.model import Finding, Fix, Outcome, Report, Saving, Source
from advisor.ranks import deduct_waiting
from advisor.ranks.matching import Meetings
from advisor.ranks.rank_facts import RankFacts
from advisor.ranks.ranks import _awaited_ns
from advisor.trace.events import Trace
from advisor.trace.read.load import load, read_bytes

DLRM = Path(__file__).parents[2].parent / "shared" / "traces" / "dlrm_8ranks_v100"

COMPARING = ("straggling-rank", "unequal-batches", "slow-collectives", "scattered-collections", "pipeline-bubbles")
FAST = """
    step   [1                             ][2                             ][3                             ]
    cpu    [D][F ][B ]                     [D][F ][B ]                     [D][F ][B ]
    cpu 2  [G ]       [G                 ] [G ]       [G                 ] [G ]       [G                 ]
    """
LATE = """
    step   [1                             ][2                             ][3                             ]
    cpu    [D        ][F ][B ]             [D        ][F ][B ]             [D        ][F ][B ]
    cpu 2  [G ]               [G         ] [G ]               [G         ] [G ]               [G         ]
    """


def drawn(text: str, world_size: int = 2) -> dict[str, Any]:
    drawing = draw(text, us=1000, world_size=world_size, D=NEXT, G=GLOO)
    return json.loads(json.dumps(dict(drawing)))  # type: ignore[no-any-return]


def read(drawing: dict[str, Any]) -> Trace:
    return read_bytes(json.dumps(dict(drawing)).encode(), "drawn.pt.trace.json")


def later(drawing: dict[str, Any], us: float) -> dict[str, Any]:
    """The same trace by a clock that is ahead."""
    rows = [row | {"ts": row["ts"] + us} for row in drawing["traceEvents"]]
    return drawing | {"traceEvents": rows}


def side_by_side(*drawings: dict[str, Any]) -> Ranks:
    facts = [Computed(trace=read(one)).get(RankFacts) for one in drawings]
    return Ranks.of(range(len(facts)), facts, 0)


def report(*traces: Trace) -> Report:
    inputs = [RankInput(rank, f"rank{rank}.json", trace) for rank, trace in enumerate(traces)]
    return analyse(inputs, load_rules(), Config())


def outcome(of: Report, rule: str) -> Any:
    return next(one for one in of.outcomes if one.rule == rule)


@pytest.mark.parametrize("ahead_us", [0.0, 250.0, -3_000_000.0])
def test_waiting_does_not_depend_on_the_clocks(ahead_us: float) -> None:
    ranks = side_by_side(drawn(FAST), later(drawn(LATE), ahead_us))
    waiting = ranks.known_waiting()
    # By hand: rank 0 enters the second collective 8 columns, 8 ms, before rank 1; the first one together.
    assert waiting.us == pytest.approx(np.array([[8000.0] * 3, [0.0] * 3]))
    assert waiting.uncertain_us == pytest.approx(0.0)


ONE_FAST = """
    step   [1                             ]
    cpu    [D][F ][B ]
    cpu 2             [G                ]
    """
ONE_LATE = """
    step   [1                             ]
    cpu    [D        ][F ][B ]
    cpu 2                     [G        ]
    """


@pytest.mark.parametrize(("ahead_us", "uncertain_us"), [(0.0, 0.0), (1500.0, 1500.0)])
def test_few_collectives_tell_who_waits_where_the_clocks_agree(ahead_us: float, uncertain_us: float) -> None:
    waiting = side_by_side(drawn(ONE_FAST), later(drawn(ONE_LATE), ahead_us)).known_waiting()
    assert waiting.us == pytest.approx(np.array([[8000.0 + ahead_us], [0.0]]))
    assert waiting.uncertain_us == pytest.approx(uncertain_us)


@pytest.mark.parametrize("ahead_us", [30_000.0, -3_000_000.0])
def test_few_collectives_of_clocks_apart_tell_nothing(ahead_us: float) -> None:
    ranks = side_by_side(drawn(ONE_FAST), later(drawn(ONE_LATE), ahead_us))
    with pytest.raises(Missing, match="too few collectives"):
        ranks.known_waiting()


def test_parts_add_up_to_the_step_on_every_rank() -> None:
    ranks = side_by_side(drawn(FAST), drawn(LATE))
    whole = np.sum(list(ranks.parts_us.values()), axis=0)
    assert whole == pytest.approx(np.full((2, 3), 32_000.0))
    assert ranks.more_us(1)["input"] == pytest.approx(8000.0)


def test_nobody_is_called_late_where_a_rank_is_missing() -> None:
    ranks = side_by_side(drawn(FAST, 3), drawn(LATE, 3))
    assert not ranks.whole
    with pytest.raises(Missing, match="all ranks"):
        ranks.known_waiting()


@pytest.mark.parametrize(
    ("kind", "left_us", "waited_us"),
    [
        ("all_reduce", (10, 10), 9),  # nobody leaves before the last one has come
        ("broadcast", (10, 10), 9),  # the first waited for the second
        ("broadcast", (2, 10), 0),  # the first had sent, and left before the second came
    ],
)
def test_who_sends_and_leaves_has_waited_for_nobody(kind: str, left_us: tuple[int, int], waited_us: int) -> None:
    came = np.array([[0, 9_000]])
    none = np.full((1, 2), -1)
    at = np.zeros(1, np.int64)
    ends = 1_000 * np.array([left_us])
    one = Meetings((0, 1), "", (kind,), at, at, came, ends, none, none, none[:, 0])
    awaited = _awaited_ns(one, came, np.zeros(2, np.int64))
    assert (awaited - came)[0, 0] == 1_000 * waited_us


def test_steps_whose_collectives_differ_are_left_out() -> None:
    other = drawn(LATE)
    rows = [row for row in other["traceEvents"] if row["name"] == GLOO.name]
    other["traceEvents"].remove(rows[-1])
    ranks = side_by_side(drawn(FAST), other)
    assert ranks.unmatched == 1
    assert ranks.known_waiting().us[0] == pytest.approx([8000.0, 8000.0, 0.0])


def test_ranks_without_a_common_step_or_kind_of_device_are_not_compared() -> None:
    elsewhere = drawn(LATE)
    for row in elsewhere["traceEvents"]:
        row["name"] = row["name"].replace("ProfilerStep#", "ProfilerStep#1")
    device = draw("step [1    ][2    ]\ncpu  [F ]   [F ]\ngpu 7 [K ]   [K ]", us=1000, world_size=2, K="gemm")
    for other, why in ((elsewhere, "no step in common"), (device, "some ranks have device events")):
        both = report(read(drawn(FAST)), read(other))
        compared = [one for one in both.outcomes if one.rule in COMPARING]
        assert {one.status for one in compared} <= {"clear", "skipped"}
        assert why in outcome(both, "straggling-rank").reason


def test_one_rank_has_nobody_to_compare_with() -> None:
    alone = report(read(draw("step [1    ][2    ]\ncpu  [F ]   [F ]", us=1000)))
    assert outcome(alone, "straggling-rank").status == "clear"
    one_of_two = report(read(drawn(FAST)))
    assert outcome(one_of_two, "straggling-rank").status == "skipped"
    assert "all ranks" in outcome(one_of_two, "straggling-rank").reason


def test_waiting_for_a_late_rank_is_promised_once() -> None:
    both = report(read(drawn(FAST)), read(drawn(LATE)))
    late = outcome(both, "straggling-rank").findings[0]
    assert late.ranks == (1,)
    assert late.saving.high_us == pytest.approx(8000.0)
    talk = outcome(both, "exposed-communication")
    known = sum(item.us for item in both.breakdown if item.id == "communication")
    for finding in talk.findings:
        assert finding.saving.high_us <= known - late.saving.high_us + 1e-6


def test_a_rank_waits_for_what_it_waits_itself() -> None:
    ranks = side_by_side(drawn(FAST), drawn(LATE))
    assert ranks.waits_us == pytest.approx(8000.0, abs=10)
    assert replace(ranks, reference=1).waits_us == pytest.approx(0.0, abs=10)


def test_a_slower_ranks_saving_is_the_same_share_of_the_jobs_step() -> None:
    found = Finding("slow", saving=Saving(6_000.0, 18_000.0, "modelled", ""))
    [brought] = merge.brought_to(10_000.0, (Outcome("host-work", "found", findings=(found, Finding("?"))),), 20_000.0)
    assert [one.saving and (one.saving.low_us, one.saving.high_us) for one in brought.findings] == [
        (3_000.0, 9_000.0),
        None,
    ]


def _batch(rank: int, size: int, line: int = 9, claims: tuple[str, ...] = ()) -> Finding:
    where = (Source("train.py", line), Source("train.py", 40 + rank))
    return Finding(
        "a small batch", None, where, fix=Fix(f"Use batch_size={size}", "semantics"), ranks=(rank,), claims=claims
    )


def test_what_ranks_say_of_one_line_with_other_numbers_is_one_finding() -> None:
    first, second = (
        Outcome("small-batch", "found", findings=(_batch(rank, size),)) for rank, size in ((0, 16), (1, 32))
    )
    [outcome] = merge.merged_outcomes([(first,), (second,)], (first,))
    assert [(one.fix.title, one.ranks) for one in outcome.findings if one.fix] == [("Use batch_size=16", (0, 1))]


def test_the_same_words_come_before_other_numbers() -> None:
    """Two findings at a line: each goes to its own, whatever the order."""
    mine, theirs = (
        (_batch(0, 16), _batch(0, 32)),
        (replace(_batch(0, 32), ranks=(1,)), replace(_batch(0, 16), ranks=(1,))),
    )
    first, second = (Outcome("small-batch", "found", findings=both) for both in (mine, theirs))
    [outcome] = merge.merged_outcomes([(first,), (second,)], (first,))
    assert sorted(one.fix.title for one in outcome.findings if one.fix) == ["Use batch_size=16", "Use batch_size=32"]
    assert all(one.ranks == (0, 1) for one in outcome.findings)


def test_other_lines_are_other_findings() -> None:
    first, second = (Outcome("small-batch", "found", findings=(_batch(rank, 16, line=9 + rank),)) for rank in (0, 1))
    [outcome] = merge.merged_outcomes([(first,), (second,)], (first,))
    assert [one.ranks for one in outcome.findings] == [(0,), (1,)]


def test_a_rank_whose_lines_were_not_recorded_says_the_same() -> None:
    mine, theirs = replace(_batch(0, 16), where=()), _batch(1, 32)
    first, second = (Outcome("small-batch", "found", findings=(one,)) for one in (mine, theirs))
    for reference in (first, second):
        [outcome] = merge.merged_outcomes([(first,), (second,)], (reference,))
        assert [(one.where, one.ranks) for one in outcome.findings] == [(theirs.where, (0, 1))]


def test_a_finding_without_a_line_beside_others_with_theirs_stays_by_itself() -> None:
    inside, own = replace(_batch(0, 16), where=()), _batch(0, 32)
    theirs = _batch(1, 64, line=99)
    first, second = (
        Outcome("small-batch", "found", findings=(inside, own)),
        Outcome("small-batch", "found", findings=(theirs,)),
    )
    [outcome] = merge.merged_outcomes([(first,), (second,)], (first,))
    assert sorted(one.ranks for one in outcome.findings) == [(0,), (0,), (1,)]


def test_communication_keeps_what_the_rank_itself_does_not_wait() -> None:
    """Of 10 ms in communication 7 are waiting, though the job would win only 2 from ending one cause of it."""
    talk = Finding("talks", claims=("communication",), saving=Saving(1_000.0, 9_000.0, "modelled", "half as often"))
    owner = Finding("is late", saving=Saving(0.0, 2_000.0, "modelled", ""))
    single = [Outcome("exposed-communication", "found", findings=(talk,))]
    of_job = [Outcome("straggling-rank", "found", findings=(owner,))]
    [settled] = deduct_waiting.without_waiting(single, of_job, {"communication": 10_000.0}, 7_000.0, 20_000.0)
    assert settled.findings[0].saving is not None
    assert settled.findings[0].saving.low_us == pytest.approx(300.0)
    assert settled.findings[0].saving.high_us == pytest.approx(2_700.0)


def test_a_rule_with_broken_annotations_is_one_error_row() -> None:
    def check(trace: Nowhere) -> None:  # type: ignore[name-defined]  # noqa: F821
        """Asks for a type that does not exist."""

    broken = Rule("broken", "Broken", "Broken.", check, (), "", "test")
    rules = Rules((*load_rules().rules, broken), ())
    inputs = [RankInput(rank, f"rank{rank}.json", read(drawn(text))) for rank, text in enumerate((FAST, LATE))]
    made = analyse(inputs, rules, Config())
    assert outcome(made, "broken").status == "error"
    assert outcome(made, "straggling-rank").status == "found"


def test_the_order_of_the_traces_does_not_matter() -> None:
    first, second = report(read(drawn(FAST)), read(drawn(LATE))), report(read(drawn(LATE)), read(drawn(FAST)))
    one, other = (outcome(of, "straggling-rank").findings[0] for of in (first, second))
    assert one.ranks == (1,)
    assert other.ranks == (0,)
    assert one.saving == other.saving


@pytest.mark.skipif(not DLRM.is_dir(), reason="the real traces are not beside this checkout")
def test_a_job_of_eight_ranks_agrees_with_its_raw_rows() -> None:
    """Who comes last, and who waits how long, worked out anew from the JSON of eight traces."""
    files = sorted(DLRM.iterdir())
    kernels = [[row for row in raw(path) if row.get("cat") == "kernel"] for path in files]
    talks = [[row for row in rows if "nccl" in row["name"]] for rows in kernels]
    came = np.array([[row["ts"] for row in rows] for rows in talks])
    left = np.array([[row["ts"] + row["dur"] for row in rows] for rows in talks])
    assert np.ptp(left, axis=0).max() <= 10  # one host, one clock: all ranks leave together, to 10 µs
    ranks = Ranks.of(range(8), [Computed(trace=load(path)).get(RankFacts) for path in files], 0)
    waiting = ranks.known_waiting()
    assert waiting.uncertain_us <= 5
    last = np.concatenate([late.argmax(axis=1) for late in waiting.late_us])
    assert last.tolist() == came.argmax(axis=0).tolist()
    assert (last == 7).sum() == 5
    for rank, rows in enumerate(kernels):
        # A field with a place for each microsecond: in a collective before its last rank came, and in no other kernel.
        origin = came.min()
        stood = np.zeros(int(left.max() - origin) + 1, bool)
        for start, end in zip(came[rank], came.max(axis=0), strict=True):
            stood[start - origin : end - origin] = True
        for row in rows:
            if "nccl" not in row["name"]:
                stood[max(0, row["ts"] - origin) : max(0, row["ts"] + row["dur"] - origin)] = False
        assert waiting.us[rank, 0] == pytest.approx(stood.sum(), abs=10 * came.shape[1])


def raw(path: Path) -> list[dict[str, Any]]:
    """The rows of a trace file with a duration, by start, without our reader."""
    text = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    rows = [row for row in json.loads(text)["traceEvents"] if row.get("ph") == "X"]
    return sorted(rows, key=lambda row: row["ts"])
