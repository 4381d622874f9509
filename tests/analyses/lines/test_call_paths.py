"""Which places a finding gets besides its own, on stacks of lines and blocks of a text written down by hand."""

import pytest

from advisor.analyses.lines.call_paths import MOST_PLACES, CallPaths
from advisor.analyses.lines.call_sites import CallSites, Place
from advisor.capture.record import TextBlock
from advisor.model import Source

FILE = "train.py"
# 3 `for box in boxes:` around 4, in paint(); 9 calls it, in loss(); 21 `if step % 10 == 0:` around 22 and 23, in the
# loop of line 20; 30 `with open(...) as file:`, whose name 32 reads; 90 runs the training.
LOOP, INNER, CALLS, STEPS, GUARD, GUARDED, LOSS, WITH, READS, RUNS = 3, 4, 9, 20, 21, 22, 23, 30, 32, 90
BLOCKS = {
    FILE: [
        TextBlock("loop", LOOP, INNER, 7),
        TextBlock("loop", STEPS, GUARD, 25),
        TextBlock("guard", GUARD, GUARDED, LOSS),
        TextBlock("with", WITH, READS, READS),
    ]
}
STACKS = {
    (INNER, CALLS, LOSS, RUNS): 50,
    (LOOP, CALLS, LOSS, RUNS): 5,
    (5, CALLS, LOSS, RUNS): 4,
    (6, CALLS, LOSS, RUNS): 3,
    (GUARDED, RUNS): 10,
    (GUARD, RUNS): 1,
    (STEPS, RUNS): 1,
    (WITH, RUNS): 2,
    (READS, RUNS): 20,
}
VISITS = {LOOP: 40.0, INNER: 39.0, STEPS: 1.0, GUARD: 1.0, WITH: 1.0}


def places(*where: int, blocks: dict[str, list[TextBlock]] = BLOCKS, precision: str = "call") -> list[int]:
    """The lines of a finding at these."""
    function = dict.fromkeys(range(LOOP, CALLS), "paint")

    def source(line: int) -> Source:
        return Source(FILE, line, function.get(line, "train"), precision)  # type: ignore[arg-type]

    sources: dict[Place, Source] = {(FILE, line): source(line) for stack in STACKS for line in stack}
    spent = {tuple((FILE, line) for line in stack): ns for stack, ns in STACKS.items()}
    sites = CallSites(sources, spent, lambda _: None, lambda _: 0)
    visits = {(FILE, line): often for line, often in VISITS.items()}
    return [one.line for one in CallPaths(sites, blocks, visits).of(tuple(source(line) for line in where))]


@pytest.mark.parametrize(
    ("where", "found"),
    [
        ([INNER], [INNER, LOOP, CALLS, LOSS]),  # what repeats it, what calls it, what the step calls
        ([GUARDED], [GUARDED, GUARD]),  # the loop around it is that of the training
        ([READS], [READS, WITH]),
        ([77], [77]),  # a setting: no recorded line leads there
        ([77, INNER], [77, INNER, LOOP, CALLS]),
    ],
)
def test_what_leads_to_a_place(where: list[int], found: list[int]) -> None:
    assert set(places(*where)) == set(found)
    assert places(*where)[0] == where[0]


def test_of_many_lines_the_loop_and_the_calls_are_kept_and_the_first_stays_first() -> None:
    assert places(INNER, 5, 6, LOOP, CALLS) == [INNER, LOOP, CALLS, LOSS]


def test_a_loop_keeps_the_line_of_its_body_that_the_rule_names_first() -> None:
    """Two lines that call it are known: the costly line of the body would be the fifth place."""
    assert places(LOOP, INNER, 50, 60) == [LOOP, INNER, 50, 60]
    assert places(LOOP, 5, 50, 60)[:2] == [LOOP, 5]


def test_a_call_that_the_rule_knows_goes_before_one_that_the_lines_suggest() -> None:
    """Line 4 is called for more than what a finding is about: the rule has seen which call it was."""
    assert places(INNER, 50, 60) == [INNER, 50, 60, LOOP]


def test_no_line_comes_twice_and_no_finding_has_more_than_the_limit() -> None:
    every = places(INNER, 5, 6, LOOP, CALLS, GUARDED, READS, 77)
    assert len(every) == len(set(every)) == MOST_PLACES


def test_without_the_text_the_calls_are_known_still() -> None:
    assert places(INNER, blocks={}) == [INNER, CALLS, LOSS]


def test_a_function_alone_is_no_line() -> None:
    assert places(INNER, precision="function") == [INNER]


def called_from(shares: dict[int, int]) -> list[int]:
    """Places of a finding at line 4, in a function that these lines call for such times; line 90 trains, 20 rests."""
    stacks = {(INNER, line, RUNS): ns for line, ns in shares.items()} | {(STEPS, RUNS): 100}
    sources = {
        (FILE, line): Source(FILE, line, "paint" if line < CALLS else "loss", "call") for s in stacks for line in s
    }
    spent = {tuple((FILE, line) for line in stack): ns for stack, ns in stacks.items()}
    paths = CallPaths(CallSites(sources, spent, lambda _: None, lambda _: 0), {}, {})
    return [one.line for one in paths.of((sources[FILE, INNER],))]


@pytest.mark.parametrize(
    ("shares", "found"),
    [
        ({9: 60, 12: 55}, [INNER, 9, 12]),
        ({9: 55, 12: 60, 14: 50}, [INNER, 12, 9, 14]),
        ({9: 90, 12: 20}, [INNER, 9]),  # less than a quarter
        ({9: 90}, [INNER, 9]),
    ],
)
def test_lines_that_call_the_same_for_much_of_it_are_all_places(shares: dict[int, int], found: list[int]) -> None:
    assert called_from(shares) == found


def test_functions_of_one_name_that_call_each_other_are_not_one() -> None:
    """`Compose.__call__` calls the `__call__` of three steps, each of which costs as much as its own line."""
    stacks = {(step, 45, 110, RUNS): 50 for step in (53, 92)} | {(45, 110, RUNS): 60, (46, 110, RUNS): 1, (7, RUNS): 99}
    sources = {(FILE, line): Source(FILE, line, "__call__", "call") for stack in stacks for line in stack}
    spent = {tuple((FILE, line) for line in stack): ns for stack, ns in stacks.items()}
    paths = CallPaths(CallSites(sources, spent, lambda _: None, lambda _: 0), {}, {})
    found = paths.of(tuple(sources[FILE, line] for line in (45, 53, 92, 46)))
    assert [one.line for one in found] == [45, 53, 92, 110]
