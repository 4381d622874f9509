"""What one rank gains alone, the next collective takes."""

from __future__ import annotations

from advisor.engine.waiting_ranks import bounded
from advisor.model import Finding, Outcome, Saving

SURE = Saving(100.0, 200.0, "modelled", "high: all of it")


def low_and_how(
    here: int, world: int, ranks: tuple[int, ...], meet: bool = True, claims: tuple[str, ...] = ("compute",)
):
    finding = Finding(message="x", saving=SURE, claims=claims, ranks=ranks)
    (outcome,) = bounded([Outcome("a-rule", "found", (finding,))], here, world, meet)
    saving = outcome.findings[0].saving
    assert saving.high_us == SURE.high_us
    return saving.low_us, saving.how


def test_what_all_ranks_have_is_saved_by_all() -> None:
    assert low_and_how(4, 4, (0, 1, 2, 3)) == (100.0, SURE.how)


def test_one_trace_of_a_job_says_nothing_of_the_other_ranks() -> None:
    low, how = low_and_how(1, 8, (3,))
    assert low == 0
    assert "if the other ranks do not gain as much" in how


def test_some_of_the_ranks_here_are_told() -> None:
    low, how = low_and_how(4, 8, (2,))
    assert low == 0
    assert "only 1 of 4 ranks" in how


def test_communication_itself_is_shorter_for_all() -> None:
    assert low_and_how(1, 8, (3,), claims=("exposed_communication",)) == (100.0, SURE.how)


def test_ranks_that_never_meet_do_not_wait() -> None:
    assert low_and_how(1, 8, (3,), meet=False) == (100.0, SURE.how)
    assert low_and_how(1, 1, (0,)) == (100.0, SURE.how)
