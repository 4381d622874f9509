"""Calibration: measured on this machine, kept for it, and never in the way of a run."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import msgspec
import numpy as np
import pytest

from advisor import cli
from advisor.calibration import cache, machine, measure, on_device, on_host, process, table
from advisor.calibration.calibration import Calibration
from advisor.calibration.machine import Machine
from advisor.capture.record import Measured
from advisor.errors import AdvisorError

HERE = Machine(cpu="Some CPU", cores=4, affinity=[0, 1], python="/env/bin/python", torch="2.14.1", threads=2)
QUIET = Measured(
    torch="2.14.1",
    threads=2,
    waited=0.01,
    seconds=1.8,
    quantities={
        "op_call_us": (0.9, 1.0, 1.2, 60),
        "profiler_row_us": (-0.1, 0.3, 0.5, 60),
        "core_memory_gbs": (10.0, 11.0, 12.0, 60),
        "memory_gbs": (18.0, 19.0, 20.0, 50),
        "thread_wake_us": (3.0, 5.0, 9.0, 20),
    },
)
# As a GPU of this kind would answer: no machine with one is needed to see what becomes of it.
DEVICE = msgspec.structs.replace(
    QUIET,
    device="NVIDIA H100 80GB HBM3",
    quantities={
        **QUIET.quantities,
        "launch_us": (2.1, 2.3, 2.8, 60),
        "h2d_pageable_gbs": (8.0, 9.0, 9.5, 40),
        "h2d_pinned_gbs": (52.0, 54.0, 55.0, 60),
        "device_bf16_tflops": (610.0, 640.0, 660.0, 60),
        "profiler_device_op_us": (3.1, 3.9, 5.2, 30),
    },
)


@pytest.fixture(scope="module")
def real() -> Measured:
    """This machine with one thread; a calibration that other work starved shows nothing."""
    pytest.importorskip("torch")
    here = machine.here(sys.executable, "", 1, "", os.environ)
    measured = process.measure(sys.executable, here, os.environ)
    if (measured.waited or 0.0) > 0.5:
        pytest.skip(f"other work had the cores {measured.waited:.0%} of the time")
    return measured


@pytest.mark.torch
def test_it_takes_two_seconds_and_measures_all_of_the_host(real: Measured) -> None:
    assert real.seconds < 3  # 2, and what its last sample and other work may take beyond
    assert real.threads == 1
    # Where the CPU has no instructions for bf16, a product takes a tenth of the time that there is for everything, and
    # what they gain is not asked; what is prepared last has none where another test runs beside this one.
    optional = {
        "core_bf16_gflops",
        "core_bf16_product_times",
        "core_bf16_large_product_times",
        "core_bf16_convolution_times",
        "all_cores_product_times",
        "all_cores_copy_times",
        "last_cache_mb",  # where the system says
    }
    assert set(real.failed) <= optional
    assert set(real.quantities) - optional == {
        "op_call_us",
        "op_call_cold_us",
        "product_call_us",
        "profiler_row_us",
        "profiler_row_cold_us",
        "core_cache_gbs",
        "core_memory_gbs",
        "core_small_gflops",
        "core_convolution_gflops",
        "core_fp32_gflops",
        "core_fp64_product_times",
    }
    for name, (low, middle, high, samples) in real.quantities.items():
        assert low <= middle <= high, name
        assert samples >= measure.FEWEST, name


@pytest.mark.torch
def test_rates_are_work_over_the_clocks_time() -> None:
    """By a clock on which each call takes a millisecond: a copy reads and writes, a product multiplies and adds."""
    torch = pytest.importorskip("torch")
    ticks = iter(range(1_000))

    def clock() -> float:
        return next(ticks) / 1_000

    copied = on_host.copying(torch, clock, 1 << 20, 1 << 18, 5)()
    assert copied == pytest.approx(2 * (1 << 18) * 5 / 1e-3 / 1e9)
    assert on_host.product(torch, clock, torch.float32)() == pytest.approx(2 * 512**3 / 1e-3 / 1e9)


@pytest.mark.torch
def test_gains_are_of_the_same_work_in_both_formats() -> None:
    """By a clock on which fp32 takes three milliseconds and bf16 one: three times as fast."""
    torch = pytest.importorskip("torch")
    ticks = iter([0.0, 3.0, 4.0])
    sample = on_host.in_bf16(torch, lambda: next(ticks) / 1_000, on_host.product_of, 8)
    ticks_read = sample()
    assert ticks_read == pytest.approx(3.0)
    product = on_host.product_of(torch, 8)
    assert product(torch.bfloat16)().dtype == torch.float32
    ticks = iter([0.0, 3.0, 4.0])
    double = on_host.in_double(torch, lambda: next(ticks) / 1_000)
    assert double() == pytest.approx(3.0)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("processor : 0\nflags\t\t: fpu avx512f avx512_bf16\n", True),
        ("Features\t: fp asimd bf16\n", True),
        ("flags : fpu avx2\n", False),
        ("", False),
    ],
)
def test_instructions_for_bf16_are_what_the_system_lists(tmp_path: Path, text: str, *, expected: bool) -> None:
    path = tmp_path / "cpuinfo"
    path.write_text(text, "utf-8")
    assert on_host.multiplies_bf16(path) is expected
    assert not on_host.multiplies_bf16(tmp_path / "none")


@pytest.mark.torch
@pytest.mark.filterwarnings("ignore:The cpu is not a valid device option")
def test_what_a_device_is_asked_runs_on_any_device() -> None:
    torch = pytest.importorskip("torch")
    failed: dict[str, str] = {}
    found = measure.sampled(on_device.device_samples(torch, "cpu", lambda: None, size=64), 20, failed)
    expected = set(Calibration.__struct_fields__) & (set(found) | set(failed))
    assert expected == set(found) | set(failed)  # each has its place among the quantities
    # Pinned memory, and a profiler of a device, need one.
    assert {name for name in failed if "pinned" not in name} <= {"profiler_device_op_us"}
    assert found["launch_us"][1] > 0
    assert found["device_bf16_tflops"][1] > 0
    assert torch.get_float32_matmul_precision() == "highest"


def test_each_quantity_gets_its_share_of_the_time() -> None:
    calls = {"quick": 0, "slow": 0}

    def make(name: str, seconds: float) -> measure.Sample:
        def sample() -> float:
            calls[name] += 1
            ends = time.perf_counter() + seconds
            while time.perf_counter() < ends:
                pass
            return float(calls[name])

        return sample

    def broken() -> measure.Sample:
        raise RuntimeError("no such unit\nat line 3")

    failed: dict[str, str] = {}
    makers = {"quick": lambda: make("quick", 0.001), "slow": lambda: make("slow", 0.01), "broken": broken}
    found = measure.sampled(makers, 0.15, failed)
    assert calls["quick"] > 3 * calls["slow"]
    assert found["quick"][3] == calls["quick"] - 1  # the first call is no sample
    assert failed == {"broken": "RuntimeError: no such unit"}


def test_what_is_prepared_slowly_leaves_time_for_samples() -> None:
    def slow() -> measure.Sample:
        time.sleep(0.2)
        return lambda: 1.0

    failed: dict[str, str] = {}
    found = measure.sampled(dict.fromkeys(("first", "second", "third"), slow), 0.5, failed)
    assert list(found) == ["first", "second"]
    assert list(failed) == ["third"]


def test_the_quantiles_are_those_of_numpy() -> None:
    values = np.random.default_rng(0).exponential(size=37).tolist()
    assert measure.summed_up(values) == pytest.approx([*np.quantile(values, [0.1, 0.5, 0.9]), 37])


def test_what_was_measured_is_kept_for_that_machine_alone(tmp_path: Path) -> None:
    assert cache.load(tmp_path, HERE) is None
    assert cache.store(tmp_path, HERE, QUIET)
    assert cache.load(tmp_path, HERE) == QUIET
    others = {"cpu": "another", "cores": 8, "affinity": [0], "torch": "2.15.0", "threads": 4, "device": "H100"}
    for name, value in {**others, "python": "/other", "switches": {"OMP_WAIT_POLICY": "active"}}.items():
        assert cache.load(tmp_path, msgspec.structs.replace(HERE, **{name: value})) is None, name


@pytest.mark.parametrize("damage", [b"", b"{", b"\xff\xfe", b'{"version": 1}', b"[]"])
def test_a_damaged_file_is_measured_again(tmp_path: Path, damage: bytes) -> None:
    cache.store(tmp_path, HERE, QUIET)
    (path,) = tmp_path.iterdir()
    path.write_bytes(damage)
    assert cache.load(tmp_path, HERE) is None
    assert cache.store(tmp_path, HERE, DEVICE)
    assert cache.load(tmp_path, HERE) == DEVICE
    assert [one.name for one in tmp_path.iterdir()] == [path.name]  # nothing is left aside


def test_a_file_of_another_version_is_measured_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache.store(tmp_path, HERE, QUIET)
    monkeypatch.setattr(cache, "VERSION", cache.VERSION + 1)
    assert cache.load(tmp_path, HERE) is None


def test_a_folder_that_cannot_be_written_to_is_no_failure(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.touch()
    assert not cache.store(blocked / "cache", HERE, QUIET)


def answering(tmp_path: Path, body: str) -> str:
    """An interpreter that answers in place of the script's."""
    path = tmp_path / "python"
    path.write_text(f"#!{sys.executable}\nimport json, os, sys, time\n{body}\n", "utf-8")
    path.chmod(0o755)
    return str(path)


def test_it_is_measured_once_and_again_on_demand(tmp_path: Path) -> None:
    text = msgspec.json.encode(QUIET).decode()
    python = answering(
        tmp_path, f"open({str(tmp_path / 'asked')!r}, 'a').write('x')\nprint('chatter')\nprint({text!r})"
    )
    home = tmp_path / "cache"
    assert process.obtain(python, HERE, home=home) == (QUIET, False)
    assert process.obtain(python, HERE, home=home) == (QUIET, True)
    assert process.obtain(python, HERE, home=home, again=True) == (QUIET, False)
    assert (tmp_path / "asked").read_text() == "xx"


def test_what_was_measured_on_a_busy_machine_counts_for_an_hour(tmp_path: Path) -> None:
    cache.store(tmp_path, HERE, QUIET)
    (path,) = tmp_path.iterdir()
    os.utime(path, (time.time() - 7200,) * 2)
    assert cache.load(tmp_path, HERE) == QUIET
    disturbed = msgspec.structs.replace(QUIET, waited=0.4)
    cache.store(tmp_path, HERE, disturbed)
    assert cache.load(tmp_path, HERE) == disturbed
    os.utime(path, (time.time() - 7200,) * 2)
    assert cache.load(tmp_path, HERE) is None


def test_where_nothing_was_measured_nothing_is_kept(tmp_path: Path) -> None:
    python = answering(tmp_path, "print('{}')")
    assert process.obtain(python, HERE, home=tmp_path / "cache") == (Measured(), False)
    assert not (tmp_path / "cache").exists()


def test_the_process_has_the_scripts_threads_and_variables_but_no_capture(tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    python = answering(tmp_path, f"json.dump([sys.argv[2], dict(os.environ)], open({str(seen)!r}, 'w')); print('{{}}')")
    here = msgspec.structs.replace(HERE, switches={"OMP_WAIT_POLICY": "passive"})
    process.measure(python, here, {"TORCH_ADVISOR_CAPTURE": "{}", "HOME": "/home/me", "OMP_WAIT_POLICY": "active"})
    wanted, environment = json.loads(seen.read_text())
    assert json.loads(wanted) == {"threads": 2, "seconds": process.HOST_S, "device_seconds": 0.0}
    assert environment["OMP_NUM_THREADS"] == "2"
    assert environment["OMP_WAIT_POLICY"] == "passive"
    assert environment["HOME"] == "/home/me"
    assert "TORCH_ADVISOR_CAPTURE" not in environment


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("raise ImportError('no torch here')", "no torch here"),
        ("sys.exit(3)", "it ended with status 3"),
        ("print('not JSON')", "it ended with status 0"),
        ("os.kill(os.getpid(), 9)", "it ended with status -9"),
        ("time.sleep(30)", "not finished within 0.5 s"),
    ],
)
def test_a_failure_is_one_line(tmp_path: Path, body: str, says: str) -> None:
    began = time.monotonic()
    with pytest.raises(AdvisorError) as failure:
        process.measure(answering(tmp_path, body), HERE, os.environ, limit_s=0.5 if "sleep" in body else 20)
    assert says in str(failure.value)
    assert "\n" not in str(failure.value)
    assert time.monotonic() - began < 20


def test_an_interpreter_that_is_gone_is_one_line() -> None:
    with pytest.raises(AdvisorError, match="cannot be started"):
        process.measure("/no/such/python", HERE, os.environ)


def test_measured_goes_before_the_table() -> None:
    found = Calibration.of(QUIET)
    assert found.op_call_us.range == (0.9, 1.2)
    assert found.op_call_us.source == "measured on the machine of the run, n = 60"
    assert found.op_call_us.middle == 1.0
    assert found.profiler_row_us.low == 0.0  # nothing takes less than no time
    assert found.memory_gbs is not None
    assert found.memory_gbs.range == (18.0, 20.0)
    assert found.core_fp32_gflops.source.startswith("table: ")
    assert found.device_bf16_tflops is None


def test_without_a_calibration_the_table_stands() -> None:
    found = Calibration.of(None)
    assert found.core_memory_gbs.range == (4.0, 20.0)
    assert not any(one.measured for _, one in found.items())
    assert found.thread_wake_us is None  # nobody has measured it elsewhere


def test_while_other_work_has_the_cores_threads_are_not_measured_together() -> None:
    found = Calibration.of(msgspec.structs.replace(QUIET, waited=0.4))
    assert found.memory_gbs is not None
    assert found.memory_gbs.range == (10.0, 24.0)  # as much as one thread, to as much as two of them
    assert "other work had the cores" in found.memory_gbs.source
    assert found.thread_wake_us is None
    assert found.op_call_us.range == (0.9, 1.2)  # CPU time: no other process stretches it


def test_what_more_cores_would_give_is_not_known_while_other_work_has_them() -> None:
    quantities = {**QUIET.quantities, "all_cores_copy_times": (1.2, 1.3, 1.4, 20)}
    found = Calibration.of(msgspec.structs.replace(QUIET, threads=1, quantities=quantities)).all_cores_copy_times
    assert found is not None
    assert found.range == (1.2, 1.4)
    busy = msgspec.structs.replace(QUIET, threads=1, quantities=quantities, waited=0.4)
    assert Calibration.of(busy).all_cores_copy_times is None


def test_one_thread_is_all_threads() -> None:
    found = Calibration.of(msgspec.structs.replace(QUIET, threads=1))
    assert found.memory_gbs is not None
    assert found.memory_gbs.range == found.core_memory_gbs.range
    assert found.thread_wake_us is not None
    assert found.thread_wake_us.range == (0.0, 0.0)


def test_a_device() -> None:
    found = Calibration.of(DEVICE)
    assert found.launch_us.range == (2.1, 2.8)
    assert found.h2d_pinned_gbs is not None
    assert (found.h2d_pinned_gbs.unit, found.h2d_pinned_gbs.range) == ("GB/s", (52.0, 55.0))
    assert found.profiler_device_op_us is not None
    text = "\n".join(table.lines(DEVICE))
    assert "NVIDIA H100 80GB HBM3" in text
    assert "610 … 660 TFLOP/s" in text.replace("   ", " ").replace("  ", " ")


def test_what_could_not_be_measured_is_said() -> None:
    measured = msgspec.structs.replace(QUIET, failed={"core_bf16_gflops": "RuntimeError: not implemented"})
    assert "core_bf16_gflops" in list(table.lines(measured))[-1]
    assert "not implemented" in list(table.lines(measured))[-1]
    assert not any("launch_us" in line for line in table.lines(measured))


@pytest.mark.torch
def test_doctor_measures_and_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("torch")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cli.main(["doctor", "--calibrate", "--json"]) == 0
    found = msgspec.json.decode(capsys.readouterr().out, type=Measured)
    assert found.torch
    assert all(samples >= measure.FEWEST for *_, samples in found.quantities.values())
    assert len(list(tmp_path.glob("torch-advisor/calibration-*.json"))) == 1
