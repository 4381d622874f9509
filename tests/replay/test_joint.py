"""The joint saving where some fixes were replayed."""

from __future__ import annotations

from advisor.engine.joint import joint
from advisor.model import Finding, Saving

PARTS = {"idle_sync": 300.0, "idle_launch": 300.0, "compute": 400.0}


def finding(low: float, high: float, basis: str, claim: str) -> tuple[str, Finding]:
    """A rule's finding with a saving."""
    return claim, Finding("x", saving=Saving(low, high, basis, "how"), claims=(claim,))  # type: ignore[arg-type]


def test_what_was_replayed_together_takes_the_place_of_its_parts() -> None:
    # One by one 200 and 250, at once 260: not 450. The lower end stays that of the surest single fix.
    found = [finding(100, 200, "replayed", "idle_sync"), finding(50, 250, "replayed", "idle_launch")]
    together = joint(found, PARTS, 1000, Saving(240, 260, "replayed", "both"))
    assert together is not None
    assert (together.low_us, together.high_us, together.basis) == (100, 260, "replayed")
    assert together.step_us_after == 820


def test_fixes_that_were_not_replayed_are_added_within_their_own_parts() -> None:
    # 260 replayed and at most 400 of another part of the step: no replay knows both, so the whole is modelled.
    found = [finding(100, 260, "replayed", "idle_sync"), finding(0, 400, "modelled", "compute")]
    together = joint(found, PARTS, 1000, Saving(240, 260, "replayed", "one"))
    assert together is not None
    assert (together.high_us, together.basis) == (660, "modelled")
