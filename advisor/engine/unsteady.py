"""What may be said of a window in which nothing but start-up was recorded."""

from __future__ import annotations

from msgspec.structs import replace

from advisor.model import Finding, Outcome

_WHY = "the recorded window is start-up, whose waits do not recur in later steps; record steps after the first ones"


def without_promise(outcome: Outcome) -> Outcome:
    """The outcome without savings, and without findings that rest on idle time or on calls of the host.

    What kernels do is the same in later steps, so findings about them stand; what the host did is not.
    """
    if outcome.status != "found":
        return outcome
    kept = [
        f if f.run_us is not None else replace(f, saving=None, at_most="low")
        for f in outcome.findings
        if not _of_host(f)
    ]
    if kept:
        return replace(outcome, findings=tuple(kept))
    return replace(outcome, status="skipped", findings=(), reason=_WHY)


def _of_host(finding: Finding) -> bool:
    """Whether all of what it would shrink is idle time of the step, or it does not say what."""
    return finding.run_us is None and all(claim.startswith("idle_") for claim in finding.claims)
