"""Which call the lines of a finding are within, on stacks of lines written down by hand."""

import numpy as np
import pytest
from msgspec.structs import replace

from advisor.analyses.lines.call_sites import CallSites
from advisor.analyses.lines.lines import Lines
from advisor.api import Ev, Trace, draw
from advisor.engine.rule import Example
from advisor.model import Source
from advisor.rules.shared._places import forward_rows
from advisor.testing import computed

# Lines of a script: a network's forward (30), called for the batch (10) and for a fixed picture (12); a helper (40)
# that line 12 calls besides; the optimizer's step (14). All in train(), which line 90 calls.
NETWORK, BATCH, PICTURE, HELPER, STEP, RUNS = 30, 10, 12, 40, 14, 90
SOURCES = tuple(Source("train.py", line) for line in (NETWORK, BATCH, PICTURE, HELPER, STEP, RUNS))


def sites(*spans: tuple[tuple[int, ...], int]) -> CallSites:
    """From (stack by line numbers, the innermost first; µs), one after the other."""
    numbers = [source.line for source in SOURCES]
    stacks = [tuple(numbers.index(line) for line in stack) for stack, _ in spans]
    ends = np.cumsum([us * 1000 for _, us in spans])
    starts = ends - [us * 1000 for _, us in spans]
    trace = computed(Example("an empty trace", draw("cpu [F]"), None)).get(Trace)
    inner = np.array([stack[0] for stack in stacks])
    lines = Lines(
        available=True,
        sources=SOURCES,
        op_source=np.zeros(len(trace.events), np.int64),
        spans=np.column_stack((starts, ends)),
        span_source=inner,
        stacks=tuple(stacks),
        span_stack=np.arange(len(stacks)),
    )
    return CallSites.compute(trace, lines)


def lines_of(found: tuple[Source, ...]) -> list[int]:
    return [source.line for source in found]


STEPS = (
    ((NETWORK, BATCH, RUNS), 60),
    ((NETWORK, PICTURE, RUNS), 30),
    ((HELPER, PICTURE, RUNS), 10),
    ((STEP, RUNS), 20),
)


@pytest.mark.parametrize(
    ("where", "called"),
    [
        ([HELPER], []),  # a quarter of what line 12 is for
        ([NETWORK], [BATCH]),  # all of line 10, where it takes most of its time
        ([NETWORK, HELPER], [BATCH]),
        ([STEP], []),  # only the line that runs the training calls it
        ([77], []),  # no line that ran
    ],
)
def test_the_call_that_does_little_else(where: list[int], called: list[int]) -> None:
    assert lines_of(sites(*STEPS).of_lines([Source("train.py", line) for line in where])) == called


def test_the_innermost_and_the_outermost_such_call_and_a_line_once() -> None:
    """A comprehension is called by its own line; a line that does little but call another is passed on."""
    deep = sites(((HELPER, HELPER, NETWORK, BATCH, RUNS), 50), ((NETWORK, BATCH, RUNS), 5), ((STEP, RUNS), 40))
    assert lines_of(deep.of_lines([SOURCES[3]])) == [NETWORK, BATCH]
    assert lines_of(deep.of_lines([SOURCES[3], SOURCES[1]])) == [NETWORK]  # the other is named already


def test_without_recorded_lines_nothing_is_said() -> None:
    trace = computed(Example("an empty trace", draw("cpu [F]"), None)).get(Trace)
    assert CallSites.compute(trace, Lines(available=False)).of_lines([SOURCES[0]]) == ()


def test_the_op_that_recorded_a_node_is_the_last_of_its_number() -> None:
    """`detach` carries the number that the next recording op gets."""
    numbered = {"args": {"Sequence number": 5}}
    drawing = draw(
        "cpu   [D ][L   ]\ncpu 2           [B  ]",
        D=Ev("aten::detach", **numbered),
        L=Ev("aten::linear", **numbered),
        B=Ev("autograd::engine::evaluate_function: AddmmBackward0", args={"Sequence number": 5, "Fwd thread id": 1}),
    )
    trace = computed(Example("drawn", drawing, None)).get(Trace)
    names = [trace.events.text(row) for row in range(len(trace.events))]
    node = names.index("autograd::engine::evaluate_function: AddmmBackward0")
    assert [names[row] for row in forward_rows(trace, np.array([node]))] == ["aten::linear"]


def test_where_several_lines_call_the_same_code_the_one_that_did_is_named() -> None:
    """The network is called for the batch and for the picture; the picture's ops came by line 12."""
    found = sites(*STEPS)

    def by(stack: tuple[int, ...]) -> Source | None:
        places = tuple(("train.py", line) for line in stack)
        return replace(found, op_stack=lambda _: places, took_ns=lambda _: 1).where_apart(np.array([0]))

    assert by((NETWORK, PICTURE, RUNS)) == SOURCES[2]
    assert by((HELPER, PICTURE, RUNS)) is None  # one way alone leads there


@pytest.mark.parametrize(("other", "called"), [(10, [PICTURE]), (30, [])])
def test_a_line_that_does_more_than_a_fifth_besides_is_not_the_one_to_change(other: int, called: list[int]) -> None:
    """A loss that calls the teacher's network for two thirds of its time and the student's for the rest."""
    known = sites(((NETWORK, PICTURE, RUNS), 60), ((HELPER, PICTURE, RUNS), other), ((STEP, RUNS), 20))
    assert lines_of(known.of_lines([Source("train.py", NETWORK)])) == called


@pytest.mark.parametrize(("other", "called"), [((NETWORK, BATCH, RUNS), []), ((HELPER, PICTURE, RUNS), [BATCH])])
def test_a_line_that_also_runs_what_must_stay_is_not_named(other: tuple[int, ...], called: list[int]) -> None:
    """However little that takes: line 10 calls the network and nothing else, and one op of it must stay."""
    stacks = [tuple(("train.py", line) for line in stack) for stack in ((NETWORK, BATCH, RUNS), other)]
    known = replace(sites(*STEPS), op_stack=lambda row: stacks[row], took_ns=lambda _: 1)
    assert lines_of(known.of_rows(np.array([0]), without=np.array([1]))) == called
    assert lines_of(known.of_rows(np.array([0]))) == [BATCH]


@pytest.mark.parametrize(
    ("line", "called"),
    [
        (NETWORK, [BATCH]),  # not line 90: the optimizer's step is called from there as well
        (BATCH, []),
        (STEP, []),
        (99, []),  # was not recorded
    ],
)
def test_the_lines_that_lead_to_one_end_at_the_loop_over_steps(line: int, called: list[int]) -> None:
    assert lines_of(sites(*STEPS, ((RUNS,), 5)).leading_to(Source("train.py", line))) == called


def test_a_loop_that_runs_one_function_is_known_by_its_own_line() -> None:
    loop = sites(((NETWORK, BATCH, RUNS), 60), ((STEP, BATCH, RUNS), 20), ((PICTURE, RUNS), 1))
    assert lines_of(loop.leading_to(Source("train.py", NETWORK))) == [BATCH]


@pytest.mark.parametrize(
    ("stack", "line"),
    [
        ((NETWORK, BATCH, RUNS), BATCH),
        ((BATCH, RUNS), BATCH),
        ((STEP, RUNS), None),  # the line itself
        ((RUNS,), None),  # runs that line, and this event
        (None, None),  # no line was recorded
    ],
)
def test_the_line_beside_another_is_in_the_function_that_runs_it(
    stack: tuple[int, ...] | None, line: int | None
) -> None:
    places = stack and tuple(("train.py", number) for number in stack)
    known = replace(sites(*STEPS), op_stack=lambda _: places)
    beside = known.beside(0, Source("train.py", STEP))
    assert (beside and beside.line) == line


def test_a_line_of_a_helper_has_none_beside_it_in_the_loop() -> None:
    known = replace(sites(*STEPS), op_stack=lambda _: (("train.py", BATCH), ("train.py", RUNS)))
    assert known.beside(0, Source("train.py", NETWORK)) is None
