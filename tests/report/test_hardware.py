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
        ("Quadro RTX 6000", False, True, False),
        ("Quadro RTX 5000 with Max-Q Design", False, True, False),
        ("NVIDIA RTX 6000 Ada Generation", True, True, True),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", True, True, True),
        ("NVIDIA GeForce RTX 2050", True, True, True),
        ("NVIDIA GeForce RTX 2060 SUPER", False, True, False),
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
        ("NVIDIA B200", 2250.0, 2250.0, 1125.0, 7700),
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


def test_figures_of_a_platform_are_divided_by_its_devices():
    """NVIDIA's pages state sums with sparsity: HGX B200 of eight, GB200 NVL72 of 72 GPUs."""
    for name, devices, fp32, tf32, half, fp8 in (
        ("NVIDIA B200", 8, 600, 18_000, 36_000, 72_000),
        ("NVIDIA GB200", 72, 5_760, 180_000, 360_000, 720_000),
        ("NVIDIA B300 SXM6 AC", 8, 600, 18_000, 36_000, 72_000),
        ("NVIDIA GB300", 72, 5_760, 180_000, 360_000, 720_000),
    ):
        found = lookup(name)
        assert found.fp32_tflops == fp32 / devices
        dense = (found.tf32_tflops, found.half_tflops, found.fp8_tflops)
        assert dense == (tf32 / devices / 2, half / devices / 2, fp8 / devices / 2)


def test_rates_follow_the_clock():
    """An MI350X is an MI355X of 2.2 instead of 2.4 GHz; a P100 on a card is slower than one on a board."""
    slower, faster = lookup("AMD Instinct MI350X"), lookup("AMD Instinct MI355X")
    for rate in ("fp32_tflops", "half_tflops", "fp8_tflops"):
        assert getattr(slower, rate) == pytest.approx(getattr(faster, rate) * 2.2 / 2.4, rel=1e-3)
    assert lookup("Tesla P100-PCIE-16GB").fp32_tflops == 9.3
    assert lookup("Tesla P100-PCIE-12GB").bandwidth_gbs < lookup("Tesla P100-SXM2-16GB").bandwidth_gbs


def test_the_link_of_a_superchip_is_not_its_bus():
    assert lookup("NVIDIA GH200 480GB").bus_gbs == 450.0, "NVLink-C2C: 900 GB/s in both directions together"
    assert lookup("NVIDIA GB200").bus_gbs is None, "two devices share one link"
    assert lookup("NVIDIA GB300").bus_gbs is None


def test_what_only_shares_a_name_has_no_rates():
    names = ("NVIDIA GeForce RTX 4090 Laptop GPU", "NVIDIA GeForce RTX 4080 SUPER", "NVIDIA B100")
    more = (
        "NVIDIA GH200 144G HBM3e",
        "NVIDIA H800 PCIe",
        "NVIDIA A800 80GB PCIe",
        "NVIDIA A100-SXM-64GB",
        "NVIDIA A100X",
        "NVIDIA H20",
        "NVIDIA H20-3e",
        "NVIDIA A16",
        "NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition",
        "NVIDIA RTX PRO 6000 Blackwell Server Edition",
        "AMD Instinct MI308X",
    )
    for name in (*names, *more, "NVIDIA H100 80GB HBM2e", "AMD Instinct MI250X / MI250"):
        assert lookup(name).half_tflops is None
        assert lookup(name).bf16
    slow = lookup("Tesla V100-FHHL-16GB")
    assert (slow.half_tflops, slow.fp16, slow.bf16) == (None, True, False)


def test_a_longer_number_is_another_device():
    """Small cards whose names begin like those of large ones."""
    for name, capability in (("NVIDIA RTX A1000 Laptop GPU", (8, 6)), ("Quadro P1000", (6, 1))):
        found = lookup(name, capability)
        assert (found.fp32_tflops, found.bandwidth_gbs, found.model) == (None, None, "")
        assert found.bf16 == (capability >= (8, 0))
    assert lookup("H1000") is None


@pytest.mark.parametrize(
    ("name", "bf16"),
    [
        ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", True),
        ("NVIDIA H100 80GB HBM3 MIG 1c.3g.40gb", True),
        ("NVIDIA A40-48Q", True),
        ("GRID A100D-40C", True),
        ("GRID T4-8Q", False),
    ],
)
def test_a_part_of_a_device_has_its_formats_and_not_its_rates(name, bf16):
    found = lookup(name)
    assert (found.fp16, found.bf16) == (True, bf16)
    assert (found.fp32_tflops, found.bandwidth_gbs, found.bus_gbs, found.model) == (None, None, None, "")


# Multiprocessors, boost clock in MHz, fp32 units and dense fp16 products (fp32 sums) of a multiprocessor and clock: as
# NVIDIA's white papers of the architectures and the cards' pages state them.
@pytest.mark.parametrize(
    ("name", "multiprocessors", "mhz", "units", "products"),
    [
        ("Tesla V100-SXM2-16GB", 80, 1530, 64, 512),
        ("Tesla T4", 40, 1590, 64, 512),
        ("NVIDIA TITAN RTX", 72, 1770, 64, 512),
        ("NVIDIA GeForce RTX 2080 Ti", 68, 1545, 64, 256),
        ("NVIDIA A100-SXM4-40GB", 108, 1410, 64, 1024),
        ("NVIDIA A30", 56, 1440, 64, 1024),
        ("NVIDIA A40", 84, 1740, 128, 512),
        ("NVIDIA A10", 72, 1695, 128, 512),
        ("NVIDIA RTX A6000", 84, 1800, 128, 512),
        ("NVIDIA GeForce RTX 3090", 82, 1695, 128, 256),
        ("NVIDIA GeForce RTX 3080", 68, 1710, 128, 256),
        ("NVIDIA GeForce RTX 3070", 46, 1725, 128, 256),
        ("NVIDIA L4", 58, 2040, 128, 512),
        ("NVIDIA L40", 142, 2490, 128, 256),
        ("NVIDIA RTX 6000 Ada Generation", 142, 2505, 128, 512),
        ("NVIDIA GeForce RTX 4090", 128, 2520, 128, 256),
        ("NVIDIA GeForce RTX 4080", 76, 2505, 128, 256),
        ("NVIDIA GeForce RTX 4070 Ti", 60, 2610, 128, 256),
        ("NVIDIA GeForce RTX 5090", 170, 2407, 128, 256),
        ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", 188, 2617, 128, 512),
    ],
)
def test_rates_are_what_units_and_clock_make(name, multiprocessors, mhz, units, products):
    found = lookup(name)
    per_clock = 2 * multiprocessors * mhz * 1e6 / 1e12
    assert found.fp32_tflops == pytest.approx(per_clock * units, rel=0.01)
    assert found.half_tflops == pytest.approx(per_clock * products, rel=0.01)


def test_every_rate_has_a_source():
    for row in models():
        assert row.source, row
        assert row.fp32_tflops
        assert row.bandwidth_gbs
        assert row.bus_gbs in (15.75, 31.5, 63.0, 450.0) or row.model.startswith(("GB200", "GB300"))
        assert row.fp8_tflops is None or row.fp8_tflops == pytest.approx(2 * row.half_tflops, rel=0.03)


def test_the_page_shows_the_table():
    path = Path(__file__).parents[1] / "tools" / "hardware_page.py"
    spec = importlib.util.spec_from_file_location("hardware_page", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.PAGE.read_text("utf-8") == module.page(), "python tests/tools/hardware_page.py --renew"
