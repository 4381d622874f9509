"""Of a long window twenty steps in a row are replayed; what not every step does is worth what it is in the window."""

from __future__ import annotations

import numpy as np
from replay_drawings import about, host, replayed

from advisor.api import Ev, draw
from advisor.replay.edits import remove, scale

STEPS = 60
# Within the first step of every twenty: 400 µs that other steps do not have, and with them the host's other work.
RARE = Ev("aten::sort", launches="")


def _steps(rare: set[int]) -> dict[str, object]:
    """Steps of 1,000 µs, a column being 100 µs: two ops of 500, one of which makes way for a sort of 400 in some."""
    lanes = ["step   ", "cpu    ", "gpu 7  "]
    for number in range(1, STEPS + 1):
        lanes[0] += f"[{number:<8}]"
        lanes[1] += "[S ][F   ]" if number in rare else "[F  ][F  ]"
        lanes[2] += "    [K]   " if number in rare else "[K]  [K]  "
    names = {"S": RARE} if rare else {}
    return draw("\n".join(f"    {lane}" for lane in lanes), **names)


def test_twenty_steps_say_what_sixty_say() -> None:
    trace, replay = replayed(_steps(set()))
    assert replay.steps == 20
    assert replay.step_us == about(1000)
    assert replay.step_after_us(scale(host(trace, "aten::linear"), 0.7)) == about(700)


def test_what_the_replayed_steps_hold_more_of_is_worth_no_more() -> None:
    # Three sorts, all of them in the middle of the window: 3 x 400 µs / 60 steps, not 3 x 400 / 20.
    trace, replay = replayed(_steps({29, 30, 31}))
    sorts = remove(host(trace, "aten::sort"))
    inside = sum(replay.part.replayed[0] <= trace.events.start_ns[row] < replay.part.replayed[1] for row in sorts.rows)
    assert inside == 3
    assert replay.saving(sorts, how="").high_us == about(20, by=2)


def test_what_the_replayed_steps_hold_nothing_of_is_not_replayed() -> None:
    trace, replay = replayed(_steps({1, 60}))
    sorts = host(trace, "aten::sort")
    assert len(sorts) == 2
    assert not replay.part.holds([remove(sorts)])
    assert replay.part.holds([remove(host(trace, "aten::linear"))])
    assert replay.part.holds([remove(np.empty(0, np.int64))])
