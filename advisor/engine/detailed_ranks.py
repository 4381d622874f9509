"""Which ranks of a job are shown in full, besides the one that stands for it, and what is shown of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from msgspec.structs import replace

from advisor.engine.rank_result import RankDetail, RankResult
from advisor.engine.reduced_form import detail_of
from advisor.model import ComparedRank, ComparedRanks, DetailedRank, ModuleTable, RankGroup

# Rows of a table: what the page shows.
_ROWS = 20
# Late ranks beyond the first ones are late by less.
_MOST_LATE = 3
# Places that have other work than their neighbours by design.
_OTHER_WORK = ("stages", "experts")


def detailed(
    compared: ComparedRanks | None,
    results: Sequence[RankResult],
    reference: RankResult,
    asked: Sequence[int] = (),
    *,
    all_up_to: int = 8,  # a node of eight: all its timelines fit a page of 1 MB
    most: int = 16,  # 20 to 60 KB of page each; ranks that were asked for come on top
    late_share: float = 0.05,  # ranks of equal work differ by less than 5 % of the step (rule straggling-rank)
) -> tuple[DetailedRank, ...]:
    """The ranks in full, by number. Of a large job: late ones, the fastest, and one of each place with other work."""
    own = reference.summary.rank
    whys: dict[int, list[str]] = {rank: ["asked for"] for rank in asked}
    if len(results) <= all_up_to:
        whys = {result.summary.rank: whys.get(result.summary.rank, []) for result in results}
    if compared is not None:
        for rank, why in _chosen(compared, own, late_share * compared.step_us):
            if rank in whys or sum(one not in asked for one in whys) < most:
                whys.setdefault(rank, []).append(why)
    return tuple(
        _of(result.summary.rank, tuple(whys[result.summary.rank]), detail_of(result))
        for result in sorted(results, key=lambda result: result.summary.rank)
        if result.summary.rank in whys and result.summary.rank != own
    )


def _chosen(compared: ComparedRanks, reference: int, late_us: float) -> Iterator[tuple[int, str]]:
    """(rank, why) of those that tell most, the ones that others wait for first."""
    ranks = compared.ranks
    late = [one for one in ranks if (one.awaited_us or 0.0) >= late_us]
    late = sorted(late, key=lambda one: (-(one.awaited_us or 0.0), one.rank))[:_MOST_LATE]
    fastest = min(ranks, key=lambda one: (one.own_us, one.rank))
    yield from ((one.rank, "others wait for it") for one in late)
    if not late:
        slowest = max(ranks, key=lambda one: (one.own_us, -one.rank))
        late = [slowest]
        yield slowest.rank, "most own work"
    yield fastest.rank, "least own work"
    seen = {reference, fastest.rank, *(one.rank for one in late)}
    by_rank = {one.rank: one for one in ranks}
    for group in compared.groups:
        if group.stands_out or (group.kind in _OTHER_WORK and seen.isdisjoint(group.ranks)):
            rank = _middle(group, by_rank)
            seen.add(rank)
            yield rank, f"{group.kind}:{group.index}"


def _middle(group: RankGroup, by_rank: Mapping[int, ComparedRank]) -> int:
    """The rank of median own work."""
    ordered = sorted(group.ranks, key=lambda rank: (by_rank[rank].own_us, rank))
    return ordered[(len(ordered) - 1) // 2]


def _of(rank: int, why: tuple[str, ...], detail: RankDetail) -> DetailedRank:
    return DetailedRank(
        rank=rank,
        why=why,
        timeline=detail.timeline,
        kernels=detail.kernels[:_ROWS],
        ops=detail.ops[:_ROWS],
        lines=detail.counts.lines[:_ROWS] if detail.counts else (),
        modules=_folded(detail.modules),
    )


def _folded(modules: ModuleTable | None) -> ModuleTable | None:
    """The tree of modules alone: every single one stands in the table of the rank that stands for the job."""
    if modules is None:
        return None
    return replace(modules, rows=(), left_out=modules.left_out + len(modules.rows))
