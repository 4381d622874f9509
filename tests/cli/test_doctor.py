"""Pre-flight: every cause of missing device events has its sentence, by injected facts; doctor runs on this machine."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from advisor import cli
from advisor.capture.inside.facts import cores
from advisor.capture.launcher import doctor, preflight
from advisor.capture.launcher.preflight import Probe, Signs, ask, diagnose, signs
from advisor.trace import read

GOOD = Probe(
    torch="2.15.0",
    built_for="cuda 13.2",
    available=True,
    name="NVIDIA H200",
    activities=("CPU", "CUDA"),
    kernels=2,
    packages="/env/site-packages",
    cupti=("/env/site-packages/nvidia/lib/libcupti.so.13",),
)
BAD = replace(GOOD, kernels=0)
NVIDIA = Signs(vendor="nvidia")


def verdict(seen: Signs, probe: Probe | None) -> tuple[str, str]:
    (check,) = diagnose(seen, probe).checks
    return check.status, check.message


def test_a_device_that_records() -> None:
    assert verdict(NVIDIA, GOOD) == ("ok", "device events can be recorded (NVIDIA H200)")
    assert diagnose(NVIDIA, GOOD).accelerator is True


@pytest.mark.parametrize(
    ("seen", "probe", "cause", "fix"),
    [
        (NVIDIA, replace(BAD, stderr="x CUPTI_ERROR_INSUFFICIENT_PRIVILEGES y"), "administrators", "NVreg_Restrict"),
        (replace(NVIDIA, admin_only=True), BAD, "administrators", "/etc/modprobe.d"),
        (replace(NVIDIA, admin_only=True, container=True), BAD, "container lacks", "--cap-add SYS_ADMIN"),
        (replace(NVIDIA, container=True), BAD, "capability", "--cap-add SYS_ADMIN"),
        (replace(NVIDIA, wsl=True), BAD, "WSL2", "GPU performance counters"),
        (NVIDIA, replace(BAD, cupti=("/usr/local/cuda-11/lib64/libcupti.so.11",)), "instead of", "LD_LIBRARY_PATH"),
        (NVIDIA, replace(BAD, activities=("CPU",)), "no device tracing", "install torch from PyPI"),
        (replace(NVIDIA, tool="Nsight Systems (nsys)"), BAD, "nsys", "run without it"),
        (NVIDIA, replace(BAD, stderr="CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED"), "another", "run without it"),
        (NVIDIA, replace(BAD, stderr="ERROR: CUPTI says 999"), "the profiler says", "999"),
        (NVIDIA, BAD, "no reason", "newer torch"),
        (Signs(vendor="amd", tool="rocprof"), BAD, "rocprof", "run without it"),
    ],
)
def test_every_cause_has_its_fix(seen: Signs, probe: Probe, cause: str, fix: str) -> None:
    status, message = verdict(seen, probe)
    assert status == "error"
    assert cause in message
    assert fix in message
    assert "\n" not in message
    assert diagnose(seen, probe).accelerator is True


def test_old_cuda_is_warned_about_graphs() -> None:
    checks = diagnose(NVIDIA, replace(GOOD, built_for="cuda 11.8")).checks
    assert [(check.id, check.status) for check in checks] == [("device", "ok"), ("graphs", "warning")]
    assert "CUDA 12" in checks[1].message


def test_devices_that_torch_cannot_use() -> None:
    blind = replace(GOOD, available=False, kernels=None, name="")
    assert "without support for the NVIDIA" in verdict(NVIDIA, replace(blind, built_for=""))[1]
    hidden = replace(NVIDIA, hidden="CUDA_VISIBLE_DEVICES")
    assert "CUDA_VISIBLE_DEVICES hides" in verdict(hidden, blind)[1]
    old = replace(blind, stderr="UserWarning: The NVIDIA driver on your system is too old (found version 11040)")
    assert "found version 11040" in verdict(NVIDIA, old)[1]
    assert diagnose(NVIDIA, old).accelerator is False


def test_no_device_at_all_and_apple() -> None:
    assert verdict(Signs(), None)[0] == "note"
    assert diagnose(Signs(), None).accelerator is False
    assert "--gpus all" in verdict(Signs(container=True), None)[1]
    status, message = verdict(Signs(vendor="apple"), None)
    assert status == "warning"
    assert "MPS" in message
    assert diagnose(Signs(vendor="apple"), None).accelerator is None


def test_a_failed_probe_is_unknown_not_off() -> None:
    found = diagnose(NVIDIA, Probe(failure="it did not answer within 120 s"))
    assert found.checks[0].status == "warning"
    assert found.accelerator is None
    assert "not known" in found.checks[0].message
    assert ask(str(Path("no") / "such" / "python"), {}).failure
    assert "status" in ask("false", {}).failure or ask("false", {}).failure


def test_signs_are_read_from_the_machine(tmp_path: Path) -> None:
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev" / "nvidiactl").touch()
    params = tmp_path / "proc" / "driver" / "nvidia" / "params"
    params.parent.mkdir(parents=True)
    params.write_text("ResmanDebugLevel: 4294967295\nRmProfilingAdminOnly: 1\n")
    kernel = tmp_path / "proc" / "sys" / "kernel" / "osrelease"
    kernel.parent.mkdir(parents=True)
    kernel.write_text("5.15.90.1-microsoft-standard-WSL2\n")
    (tmp_path / ".dockerenv").touch()
    if sys.platform != "linux":
        pytest.skip("devices are looked for where Linux has them")
    seen = signs({"CUDA_VISIBLE_DEVICES": "", "NSYS_PROFILING_SESSION_ID": "7"}, tmp_path)
    assert seen == Signs("nvidia", True, True, "CUDA_VISIBLE_DEVICES", "Nsight Systems (nsys)", True)
    assert signs({}, tmp_path / "nothing") == Signs()


def test_cores_of_affinity_and_quota(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tightest of all control groups above the process, of both versions."""
    monkeypatch.setattr("os.sched_getaffinity", lambda _process: {0, 1}, raising=False)
    (tmp_path / "proc" / "self").mkdir(parents=True)
    group = tmp_path / "proc" / "self" / "cgroup"
    group.write_text("0::/a/b\n")
    (tmp_path / "sys" / "fs" / "cgroup" / "a" / "b").mkdir(parents=True)
    here = 2
    assert cores.available(str(tmp_path))[0] == here
    (tmp_path / "sys" / "fs" / "cgroup" / "a" / "cpu.max").write_text("50000 100000\n")
    (tmp_path / "sys" / "fs" / "cgroup" / "a" / "b" / "cpu.max").write_text("max 100000\n")
    count, why = cores.available(str(tmp_path))
    assert count == 1
    assert "0.5" in why
    group.write_text("3:cpu,cpuacct:/c\n")
    old = tmp_path / "sys" / "fs" / "cgroup" / "cpu" / "c"
    old.mkdir(parents=True)
    (old / "cpu.cfs_quota_us").write_text("-1\n")
    (old / "cpu.cfs_period_us").write_text("100000\n")
    assert cores.available(str(tmp_path))[0] == here
    (old / "cpu.cfs_quota_us").write_text("100000\n")
    assert cores.available(str(tmp_path))[0] == 1


def test_periods_of_a_quota_and_those_in_which_it_was_used_up(tmp_path: Path) -> None:
    """Of the group above the process that most of them stopped; a group without a quota has no periods."""
    (tmp_path / "proc" / "self").mkdir(parents=True)
    (tmp_path / "proc" / "self" / "cgroup").write_text("0::/a/b\n")
    inner = tmp_path / "sys" / "fs" / "cgroup" / "a" / "b"
    inner.mkdir(parents=True)
    assert cores.quota_periods(str(tmp_path)) is None
    (inner / "cpu.stat").write_text("usage_usec 900\nnr_periods 0\nnr_throttled 0\nthrottled_usec 0\n")
    assert cores.quota_periods(str(tmp_path)) is None
    (inner.parent / "cpu.stat").write_text("usage_usec 900\nnr_periods 80\nnr_throttled 50\nthrottled_usec 3000000\n")
    assert cores.quota_periods(str(tmp_path)) == (80, 50)


def test_a_torch_older_than_any_tested_is_said() -> None:
    """By `doctor` and, from run.json's preflight, by every report."""
    assert doctor.too_old("2.1.2+cu121") is None
    assert doctor.too_old("2.15.0a0+git1") is None
    assert doctor.too_old("") is None
    said = doctor.too_old("1.13.1")
    assert said is not None
    assert (said.status, "1.13.1" in said.message, "upgrade" in said.message) == ("warning", True, True)


@pytest.mark.torch
def test_doctor_on_this_machine(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    assert cli.main(["doctor", "--json"]) == 0
    found = {one["id"]: one for one in json.loads(capsys.readouterr().out)}
    assert set(found) == {"torch", "capture", "device", "cores", "output", "reader"}
    assert found["torch"]["status"] == found["capture"]["status"] == "ok"
    # A machine that shows a device which torch does not have: the real probe answers, in a process of its own.
    monkeypatch.setattr(preflight, "signs", lambda _environment: NVIDIA)
    if found["device"]["status"] == "note":
        assert cli.main(["doctor"]) == 0
        line = next(line for line in capsys.readouterr().out.splitlines() if "device:" in line)
        assert line.startswith("warning")
        assert "torch" in line


def test_a_missing_extension_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "advisor.trace.read.native_columns", raising=False)
    monkeypatch.delattr(read, "_scan", raising=False)
    monkeypatch.setitem(sys.modules, "advisor.trace.read._scan", None)
    check = doctor._reader()
    assert check.status == "note"
    assert "C compiler" in check.message


def test_doctor_without_torch(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["doctor", "--python", "/bin/false"]) == 0
    assert "has no torch" in capsys.readouterr().out
