"""Who waits for whom, against what rows of the traces say one by one."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from advisor.api import GLOO, NEXT, Ranks, draw
from advisor.computed import Computed
from advisor.ranks.point_to_point import Passes
from advisor.ranks.rank_facts import RankFacts
from advisor.ranks.who_waits import who_waits
from advisor.trace.read.load import load, read_bytes

DLRM = Path(__file__).parents[2].parent / "shared" / "traces" / "dlrm_8ranks_v100"


def _ranks(*late: tuple[int, ...], ahead_us: float = 0.0, world_size: int = 0) -> Ranks:
    """Ranks that come so many ms late to the collective of each step, each by a clock of its own."""
    facts = []
    for rank, columns in enumerate(late):
        lanes = ["step   ", "cpu    ", "cpu 2  "]
        for number, column in enumerate(columns, 1):
            lanes[0] += f"[{number:<29}]"
            lanes[1] += f"[D{' ' * column}][F ][B ]".ljust(31)
            lanes[2] += f"[G ]{' ' * column}      [G{' ' * (14 - column)}]".ljust(31)
        text = "\n".join(f"    {lane}" for lane in lanes)
        drawn: dict[str, Any] = dict(draw(text, us=1000, world_size=world_size or len(late), D=NEXT, G=GLOO))
        rows = [row | {"ts": row["ts"] + rank * ahead_us} for row in drawn["traceEvents"]]
        drawn["traceEvents"] = rows
        facts.append(Computed(trace=read_bytes(json.dumps(drawn).encode(), f"{rank}.json")).get(RankFacts))
    return Ranks.of(range(len(facts)), facts, 0)


@pytest.mark.parametrize("ahead_us", [0.0, 250.0, -3_000_000.0])
def test_waiting_is_given_to_the_rank_that_comes_last(ahead_us: float) -> None:
    found = who_waits(_ranks((0, 0, 0), (8, 8, 2), (4, 4, 10), ahead_us=ahead_us))
    assert found
    # By hand, ms: rank 1 is last in two steps (by 8 and 4), rank 2 in the third (by 10 and 8). The backward pass
    # hides the first of these ms each time, so that does not count.
    assert found.waits_us == pytest.approx([1e3 * (7 + 7 + 9) / 3, 1e3 * 7 / 3, 1e3 * (3 + 3) / 3])
    assert found.longest_for.tolist() == [1, 2, 1]
    assert found.longest_us == pytest.approx([1e3 * 14 / 3, 1e3 * 7 / 3, 1e3 * 6 / 3])
    assert found.awaited_us == pytest.approx([0.0, 1e3 * 14 / 3, 1e3 * 9 / 3])
    # The collective at the start of each step is joined by all at once: the first rank counts as its last.
    assert found.last_share == pytest.approx([3 / 6, 2 / 6, 1 / 6])


def test_who_waits_is_not_known_where_a_rank_is_missing() -> None:
    assert who_waits(_ranks((0, 0, 0), (8, 8, 8), world_size=3)) is None


@pytest.mark.skipif(not DLRM.is_dir(), reason="the traces of others are not beside this checkout")
def test_who_is_last_on_eight_v100s_agrees_with_the_raw_rows() -> None:
    paths = sorted(DLRM.glob("*.json.gz"))
    ranks = Ranks.of(range(8), [Computed(trace=load(path)).get(RankFacts) for path in paths], 0)
    found = who_waits(ranks)
    assert found
    rows = []
    for path in paths:
        events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
        mine = [one for one in events if one.get("cat", "").lower() == "kernel" and "nccl" in one["name"].lower()]
        rows.append(sorted((float(one["ts"]), float(one["ts"]) + float(one["dur"])) for one in mine))
    assert len({len(mine) for mine in rows}) == 1
    # These clocks agree to some µs: the last to start is the last by the raw times, too.
    last = [max(range(8), key=lambda rank: rows[rank][k][0]) for k in range(len(rows[0]))]
    share = [last.count(rank) / len(last) for rank in range(8)]
    assert found.last_share == pytest.approx(share)


def test_waiting_for_messages_counts_to_who_sends_late() -> None:
    ranks = _ranks((0, 0, 0), (8, 8, 2), (4, 4, 10))
    none = np.empty(0, np.int64)
    # Rank 1 sends to rank 2 late, rank 2 to rank 0 a little.
    late = (Passes(1, 2, none, none, 5000.0, 0.0), Passes(2, 0, none, none, 300.0, 0.0))
    before, after = who_waits(ranks), who_waits(replace(ranks, passes=late))
    assert before
    assert after
    assert after.waits_us - before.waits_us == pytest.approx([300.0, 0.0, 5000.0])
    assert after.longest_us == pytest.approx([1e3 * 14 / 3, 1e3 * 7 / 3, 1e3 * 6 / 3 + 5000.0])
    assert after.awaited_us == pytest.approx([0.0, 1e3 * 6 / 3 + 5000.0, 1e3 * 9 / 3 + 300.0])
    # Stages that meet in no collective.
    alone = who_waits(replace(ranks, passes=late, waiting=None, why="no collective could be matched"))
    assert alone
    assert alone.waits_us == pytest.approx([300.0, 0.0, 5000.0])
    assert alone.longest_for.tolist() == [2, -1, 1]
    assert alone.last_share.tolist() == [0.0, 0.0, 0.0]
