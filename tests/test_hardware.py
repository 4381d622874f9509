"""What accelerators can do, by vendor and name."""

import importlib.util
from pathlib import Path

import pytest

from advisor.api import lookup
from advisor.hardware import models


@pytest.mark.parametrize(
    ("name", "tf32", "fp16", "bf16"),
    [
        ("Tesla V100-SXM2-32GB", False, True, False),
        ("Tesla V100-DGXS-32GB", False, True, False),
        ("Tesla T4", False, True, False),
        ("NVIDIA GeForce RTX 2080 Ti", False, True, False),
        ("NVIDIA GeForce GTX 1660 Ti", False, False, False),
        ("NVIDIA GeForce GTX 1080", False, False, False),
        ("Tesla P100-SXM2-16GB", False, False, False),
        ("NVIDIA A100-SXM4-80GB", True, True, True),
        ("NVIDIA A10G", True, True, True),
        ("NVIDIA GeForce RTX 4090", True, True, True),
        ("NVIDIA RTX A6000", True, True, True),
        ("NVIDIA H100 80GB HBM3", True, True, True),
        ("NVIDIA H200", True, True, True),
        ("NVIDIA GB200", True, True, True),
        ("AMD Instinct MI300X", False, True, True),
        ("AMD Instinct MI250X", False, True, True),
    ],
)
def test_formats_of_known_devices(name, tf32, fp16, bf16):
    found = lookup(name)
    assert (found.tf32, found.fp16, found.bf16) == (tf32, fp16, bf16)


def test_variants_of_one_name_are_told_apart():
    assert lookup("NVIDIA A100-SXM4-80GB").bandwidth_gbs > lookup("NVIDIA A100-SXM4-40GB").bandwidth_gbs
    assert lookup("NVIDIA H100 PCIe").fp32_tflops < lookup("NVIDIA H100 80GB HBM3").fp32_tflops
    assert lookup("NVIDIA L40S").tf32_tflops > lookup("NVIDIA L40").tf32_tflops
    assert lookup("NVIDIA L4").fp32_tflops < lookup("NVIDIA L40").fp32_tflops
    assert lookup("NVIDIA A10").fp32_tflops == 31.2


def test_the_capability_speaks_for_nvidia_alone():
    assert lookup("NVIDIA Something New", (12, 0)).tf32
    assert not lookup("NVIDIA Something Old", (6, 1)).fp16
    assert lookup("NVIDIA Something Turing", (7, 5)) is None, "a GTX 16 has no tensor cores, other Turing devices have"
    assert lookup("AMD Instinct MI999", (9, 4)) is None
    assert lookup("Unknown Accelerator", (9, 0)) is None
    assert lookup("", (9, 0)) is None


def test_peaks_are_plausible():
    for name in ("V100", "T4", "A100", "A30", "A40", "L4", "L40S", "H100", "H200", "MI300X", "MI250X"):
        found = lookup(name)
        assert found.half_tflops > found.fp32_tflops
        if found.tf32_tflops:
            assert found.half_tflops == pytest.approx(2 * found.tf32_tflops, rel=0.03)


@pytest.mark.parametrize(
    ("name", "fp16", "bf16", "tf32", "memory"),
    [
        # Straight from the data sheets, by name as the driver gives it.
        ("Tesla V100-PCIE-16GB", 112.0, 14.0, 14.0, 900),
        ("NVIDIA A100 80GB PCIe", 312.0, 312.0, 156.0, 1935),
        ("NVIDIA A100-SXM4-40GB", 312.0, 312.0, 156.0, 1555),
        ("NVIDIA GeForce RTX 3090", 71.0, 71.0, 35.6, 936),
        ("NVIDIA GeForce RTX 4090", 165.2, 165.2, 82.6, 1008),
        ("NVIDIA H100 NVL", 835.5, 835.5, 417.5, 3900),
        ("NVIDIA B200", 2250.0, 2250.0, 1100.0, 8000),
        ("NVIDIA GB200", 2500.0, 2500.0, 1250.0, 8000),
        ("AMD Instinct MI100", 184.6, 92.3, 46.1, 1229),
        ("AMD Instinct MI250X", 191.5, 191.5, 47.9, 1638),
        ("AMD Instinct MI325X", 1307.4, 1307.4, 163.4, 6000),
    ],
)
def test_peaks_by_format(name, fp16, bf16, tf32, memory):
    found = lookup(name)
    assert (found.tflops("fp16"), found.tflops("bf16"), found.tflops("tf32")) == (fp16, bf16, tf32)
    assert found.bandwidth_gbs == memory


def test_what_only_shares_a_name_has_no_rates():
    for name in ("NVIDIA GeForce RTX 4090 Laptop GPU", "NVIDIA GeForce RTX 4080 SUPER", "NVIDIA B300"):
        assert lookup(name).half_tflops is None
        assert lookup(name).bf16


def test_every_rate_has_a_source():
    for row in models():
        assert row.source, row
        assert row.fp32_tflops
        assert row.bandwidth_gbs
        assert row.bus_gbs in (15.75, 31.5, 63.0)
        assert row.fp8_tflops is None or row.fp8_tflops == pytest.approx(2 * row.half_tflops, rel=0.03)


def test_the_page_shows_the_table():
    path = Path(__file__).with_name("hardware_page.py")
    spec = importlib.util.spec_from_file_location("hardware_page", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.PAGE.read_text("utf-8") == module.page(), "python tests/hardware_page.py --renew"
