"""The chain behind the table of healthy jobs: simulated, judged, drawn as a row."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.gpu.test_simulated_device import op, recorded

BENCHMARKS = Path(__file__).parent


@pytest.mark.complete
@pytest.mark.parametrize(("count", "size", "waits"), [(5, 4096, False), (200, 64, True)])
def test_a_job_beside_a_simulated_device_is_judged(
    count: int, size: int, waits: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Large products fill the device, and nothing is said of launches; 200 small ones wait for the host, and it is."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import healthy_jobs

    rows = [op("aten::mm", 20 * i, 10, [size, size], [size, size]) for i in range(count)]
    row = healthy_jobs.judged(recorded(tmp_path / "job", rows, 20 * count), "A100", steady=False)
    assert not row.failed
    assert ("launch-bound" in {one["rule"] for one in row.findings}) == waits
    assert healthy_jobs.document([row]).splitlines()[-1].startswith("| job | A100 |")
