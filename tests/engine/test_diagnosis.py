"""What a finding has measured, and what it may promise where the replay or the window cannot be trusted."""

from __future__ import annotations

from advisor.engine import diagnosis, unsteady
from advisor.model import Finding, Outcome, Saving

KNOWN = {"idle_launch": 50.0, "idle_unknown": 30.0, "compute": 20.0}
SAVING = Saving(0, 40, "modelled", "")


def found(*findings: Finding) -> Outcome:
    return Outcome("rule", "found", findings)


def test_what_was_measured_is_the_wait_and_not_the_saving() -> None:
    idle = Finding("m", SAVING, facts={"idle_launch_us": 22.0}, claims=("idle_launch",))
    [finding] = diagnosis.measured(found(idle), KNOWN, 2.0).findings
    assert finding.measured_us == 44
    assert finding.saving == SAVING
    # Never more than the part of the step that it names; without a fact what the fix may give back at most.
    [finding] = diagnosis.measured(found(idle), KNOWN, 3.0).findings
    assert finding.measured_us == 50
    [finding] = diagnosis.measured(found(Finding("m", SAVING, claims=("idle_launch",))), KNOWN, 2.0).findings
    assert finding.measured_us == 40


def test_unexplained_idle_time_and_work_are_no_measured_wait() -> None:
    for claims in ((), ("compute",), ("idle_launch", "compute"), ("idle_unknown",)):
        [finding] = diagnosis.measured(found(Finding("m", SAVING, claims=claims)), KNOWN, 1.0).findings
        assert finding.measured_us is None


def test_a_wait_that_was_measured_stays_one_where_other_time_goes_with_it() -> None:
    """Gaps around reductions go with them; what is measured is the wait, no more of it than the part holds."""
    for claims, measured_us in ((("idle_launch", "idle_unknown"), 50), (("idle_unknown", "idle_launch"), None)):
        wait = Finding("m", SAVING, facts={"idle_us": 60.0}, claims=claims)
        [finding] = diagnosis.measured(found(wait), KNOWN, 1.0).findings
        assert finding.measured_us == measured_us


def test_a_model_gives_no_number_where_the_replay_is_wrong() -> None:
    kept = [Finding("m", Saving(0, 40, basis, ""), severity="high") for basis in ("modelled", "assumed", "replayed")]
    outcome = diagnosis.without_models(found(*kept))
    assert [one.saving is None for one in outcome.findings] == [True, False, False]
    assert {one.severity for one in outcome.findings} == {"high"}


def test_a_window_of_start_up_promises_nothing() -> None:
    idle, kernels = Finding("i", SAVING, claims=("idle_launch",)), Finding("k", SAVING, claims=("compute",))
    assert unsteady.without_promise(found(idle)).status == "skipped"
    outcome = unsteady.without_promise(found(idle, kernels))
    assert [(one.message, one.saving, one.at_most) for one in outcome.findings] == [("k", None, "low")]
    clear = Outcome("rule", "clear")
    assert unsteady.without_promise(clear) is clear
