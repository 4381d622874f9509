"""One millisecond, one owner: promises about communication, without the waiting that another rank causes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from msgspec.structs import replace

from advisor.model import Finding, Outcome, finding_order

# Parts of the breakdown in which a rank waits for others.
WAITING = frozenset(("exposed_communication", "communication"))
# What is left of a finding below this share of the step is not worth a change of how ranks communicate.
_LEAST = 0.05


def without_waiting(
    single: Sequence[Outcome], of_job: Sequence[Outcome], known_us: Mapping[str, float], waits_us: float, step_us: float
) -> Iterator[Outcome]:
    """The outcomes of single ranks, where rules of the whole job have found who causes their waiting.

    known_us: breakdown id -> µs on the scale of `step_us`, of the rank that stands for the job. waits_us: how long it
    waits itself, which may be more than what ending one cause gives the job.
    """
    owned = [finding for outcome in of_job for finding in outcome.findings if finding.saving]
    waited_us = max((finding.saving.high_us for finding in owned if finding.saving), default=0.0)
    if not waited_us:
        yield from single
        return
    owner = next(o.rule for o in of_job for f in o.findings if f.saving and f.saving.high_us == waited_us)
    talk_us = sum(known_us.get(part, 0.0) for part in WAITING)
    left_us = max(0.0, talk_us - max(waited_us, waits_us))
    for outcome in single:
        if not any(_talks(finding) for finding in outcome.findings):
            yield outcome
            continue
        kept = [
            _without_waiting(f, left_us / talk_us) if _talks(f) else f
            for f in outcome.findings
            if not _talks(f) or (talk_us and left_us >= _LEAST * step_us)
        ]
        if kept:
            yield replace(outcome, findings=tuple(sorted(kept, key=lambda f: finding_order(outcome.rule, f))))
        else:
            why = f"the time in communication is mostly waiting for another rank: see {owner}"
            yield replace(outcome, status="clear", findings=(), reason=why)


def _talks(finding: Finding) -> bool:
    return bool(finding.claims) and WAITING.issuperset(finding.claims)


def _without_waiting(finding: Finding, share: float) -> Finding:
    """The finding with that share of its saving: what it says of all communication holds for what is no waiting."""
    saving = finding.saving
    if saving is None:
        return finding
    how = f"{saving.how}; without the time in which ranks wait for a late rank"
    return replace(
        finding, saving=replace(saving, low_us=saving.low_us * share, high_us=saving.high_us * share, how=how)
    )
