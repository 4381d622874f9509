"""What stands out among the ranks of a job, in sentences."""

from __future__ import annotations

from collections.abc import Iterator

from advisor.api import ComparedRank, ComparedRanks, RankGroup, RankLinks, SlowLinks

from . import _labels, _words

_MOST_SAID = 3
# Ranks of equal work differ by less (rule straggling-rank).
_LATE_SHARE = 0.05
# A part that differs by less than this share of the step is no cause.
_WORTH_SAYING = 0.01


def said(job: ComparedRanks) -> Iterator[str]:
    """The ranks that others wait for, the groups that take longer, and the links that are slow, one sentence each."""
    least_us = max(_LATE_SHARE * job.step_us, job.uncertain_us or 0.0)
    late = [one for one in job.ranks if (one.awaited_us or 0.0) >= least_us]
    for one in sorted(late, key=lambda one: (-(one.awaited_us or 0.0), one.rank))[:_MOST_SAID]:
        yield (
            f"Rank {one.rank}{_where(one)}{_last(one)} makes other ranks wait, the longest of them "
            f"{_words.time(one.awaited_us or 0.0)} of each step.{_because(job, one)}"
        )
    if len(late) > _MOST_SAID:
        yield f"{_words.plural(len(late) - _MOST_SAID, 'more rank')} make other ranks wait; sort by “Others wait”."
    for group in sorted((one for one in job.groups if one.stands_out), key=lambda one: -one.more_us)[:_MOST_SAID]:
        yield (
            f"{_labels.dimension(group.kind).name} {group.index} (ranks {_words.numbers(group.ranks)}) takes "
            f"{_words.time(group.more_us)} more per step than the median of the others{_most_in(group)}."
        )

    slow = [(of, one) for of in job.links for one in of.slow]
    for of, one_set in sorted(slow, key=lambda both: -both[1].more_us)[:_MOST_SAID]:
        yield (
            f"{_links(of, one_set)} send for {_words.time(one_set.sent_us)} per step, "
            f"{_words.time(one_set.more_us)} longer than the median of the {of.sets - 1} other sets with equal "
            "messages."
        )


def _links(of: RankLinks, one: SlowLinks) -> str:
    ranks = f"ranks {_words.numbers(one.ranks)}"
    if of.within is None:
        return ranks.capitalize()
    return f"Within node {one.nodes[0]}, {ranks}" if of.within else f"Between nodes, {ranks}"


def _where(one: ComparedRank) -> str:
    return f" on node {one.node}" if one.node is not None else ""


def _because(job: ComparedRanks, one: ComparedRank) -> str:
    if one.more_us < _WORTH_SAYING * job.step_us:
        return ""
    return f" Most above the median rank: {_labels.part(one.more).name}, by {_words.time(one.more_us)}."


def _most_in(group: RankGroup) -> str:
    return f", most of it in: {_labels.part(group.more).name}" if group.more else ""


def _last(one: ComparedRank) -> str:
    return f", last at {_words.share(one.last_share)} of the collectives," if one.last_share else ""
