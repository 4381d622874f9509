"""Forward passes without gradients that compute what a trained one had computed: proven op by op, not by shapes."""

from __future__ import annotations

from collections import Counter

import numpy as np

from advisor.api import CallSites, Ints, Lines, Reused, Source, Trace, UnfollowedForwards, is_layer


def proven_again(trace: Trace, reused: Reused, forwards: UnfollowedForwards) -> tuple[Ints, Ints]:
    """Ops without a record that computed what recorded ones had, and for each that one; none without a network's op.

    Only where the trained pass came first: what is computed without gradients before it cannot be trained, and what
    autograd never records (indices, comparisons) tells nothing.
    """
    events = trace.events
    kept = (events.sequence[reused.again] < 0) & (events.sequence[reused.first] >= 0)
    # A record that no backward pass uses is a finding of its own.
    kept &= ~np.isin(reused.first, [row for run in forwards.runs for row in run.rows])
    again, first = reused.again[kept], reused.first[kept]
    if not any(is_layer(events, row) for row in again.tolist()):
        return again[:0], first[:0]
    return again, first


def asked(trace: Trace, lines: Lines | None, sites: CallSites, again: Ints, first: Ints) -> tuple[Source, ...]:
    """The statement of the training loop that makes such a pass, then the line below it that calls the network."""
    found = (_apart(sites, again, first), _called(trace, lines, again, first))
    return tuple(dict.fromkeys(one for one in found if one))


def _apart(sites: CallSites, again: Ints, first: Ints) -> Source | None:
    """Where the calls that lead to the ops of such a pass leave those that lead to the trained ones."""
    leave: Counter[tuple[str, int]] = Counter()
    for one, other in zip(again.tolist(), first.tolist(), strict=True):
        calls, others = (sites.op_stack(row) or () for row in (one, other))
        at = next(
            (mine for mine, theirs in zip(reversed(calls), reversed(others), strict=False) if mine != theirs), None
        )
        leave.update([at] if at is not None else [])
    return sites.sources.get(leave.most_common(1)[0][0]) if leave else None


def _called(trace: Trace, lines: Lines | None, again: Ints, first: Ints) -> Source | None:
    """The line that asked for such a pass: the last before it that is in no function that both passes go through."""
    if lines is None or not len(lines.spans) or not len(again):
        return None
    shared = set(lines.op_source[again].tolist()) & set(lines.op_source[first].tolist()) - {-1}
    within = {(lines.sources[one].file, lines.sources[one].function) for one in shared}
    often: dict[int, int] = {}
    for start in trace.events.start_ns[_begins(trace, again, first)].tolist():
        at = int(np.searchsorted(lines.spans[:, 0], start, side="right")) - 1
        before = (int(one) for one in lines.span_source[: at + 1][::-1])
        found = next(
            (one for one in before if (lines.sources[one].file, lines.sources[one].function) not in within), -1
        )
        often[found] = often.get(found, 0) + 1
    most = max(often, key=often.__getitem__)
    return lines.sources[most] if most >= 0 else None


def _begins(trace: Trace, again: Ints, first: Ints) -> Ints:
    """The first op of each pass: one that follows a trained op, or none."""
    starts = trace.events.start_ns
    trained = np.sort(starts[first])
    number = np.searchsorted(trained, starts[again])
    order = np.argsort(starts[again], kind="stable")
    new = np.diff(number[order], prepend=-1) > 0
    found: Ints = again[order[new]]
    return found
