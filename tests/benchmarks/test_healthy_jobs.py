"""The chain behind the table of healthy jobs, on one of them: recorded, simulated, judged."""

from __future__ import annotations

from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parent


@pytest.mark.complete
def test_a_healthy_job_beside_a_simulated_device_is_judged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import healthy_jobs

    profile = healthy_jobs.recorded(BENCHMARKS / "healthy_jobs" / "gpt.py", tmp_path)
    row = healthy_jobs.judged(profile, "A100", steady=False)
    assert not row.failed
    assert row.truth.busy > 0.5, "the device waits for the host: the job is not at a load that people run"
    assert row.findings == []
    assert healthy_jobs.document([row]).splitlines()[-1].startswith("| gpt | A100 |")
