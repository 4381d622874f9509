"""Steps that optimizers tell, one after another or by turns."""

from __future__ import annotations

from advisor.capture.inside.steps.tracker import Tracker


def tracked(*phases: tuple[tuple[int, ...], int]) -> tuple[Tracker, list[tuple[bool, bool]]]:
    """After phases of so many rounds, each with a backward pass and a step of these optimizers; and all boundaries."""
    boundaries: list[tuple[bool, bool]] = []
    tracker = Tracker(lambda _now, trained, clean: boundaries.append((trained, clean)))
    for optimizers, rounds in phases:
        for _ in range(rounds):
            for one in optimizers:
                tracker.backward()
                tracker.stepping_begins()
                tracker.stepped(one)
    return tracker, boundaries


def test_the_optimizer_of_the_next_fold_takes_over() -> None:
    """Its first ten steps are one segment, which is no clean step; all are counted."""
    tracker, boundaries = tracked(((1,), 30), ((2,), 40), ((3,), 5))
    assert tracker.source == "optimizer"
    assert tracker.count == 70
    unclean = [at for at, (trained, clean) in enumerate(boundaries) if trained and not clean]
    # Steps 4 to 30 of the first are clean; the eleventh backward pass of the second closes what lies between.
    assert len(unclean) == 1
    assert len([one for one in boundaries if one == (True, True)]) == 27 + 30


def test_optimizers_that_take_turns_leave_the_lead_where_it_is() -> None:
    for turns in ((1, 2), (1, 2, 2, 2), (2, 1, 1)):
        tracker, boundaries = tracked((turns, 30))
        lead = max(set(turns), key=turns.count)
        assert tracker.lead == lead
        assert all(clean for trained, clean in boundaries if trained), turns


def test_fewer_steps_than_ten_take_nothing_over() -> None:
    tracker, boundaries = tracked(((1,), 30), ((2,), 9), ((1,), 10))
    assert tracker.lead == 1
    assert tracker.count == 40
    assert (True, False) not in boundaries
