"""What accelerators can do: which number formats run on matrix units, and how fast at best.

Looked up by vendor and name, never by the compute major alone: an AMD MI300X reports 9, as an NVIDIA H100 does.
Rates are dense peaks of the vendors' data sheets (NVIDIA P100, V100, T4, A100, A10, A30, A40, RTX A6000, L4, L40, L40S,
H100, H200; AMD Instinct MI100, MI210, MI250X, MI300X, MI300A, MI325X). Rates that a sheet quotes "with sparsity" are
halved here; what a sheet does not state is None. Nothing here was measured.
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Hardware:
    """One kind of accelerator.

    tf32, fp16, bf16     PyTorch can run matmuls of that format on matrix units (tensor cores) of this device
    *_tflops             dense peak in 10^12 operations per second; None where unknown
    bandwidth_gbs        peak memory bandwidth in 10^9 bytes per second; None where unknown
    """

    vendor: str
    tf32: bool
    fp16: bool
    bf16: bool
    fp32_tflops: float | None = None
    tf32_tflops: float | None = None
    half_tflops: float | None = None
    bandwidth_gbs: float | None = None


def _nvidia(*, tf32: bool, fp16: bool, bf16: bool, rates: tuple[float | None, ...] = (None,) * 4) -> Hardware:
    return Hardware("NVIDIA", tf32, fp16, bf16, *rates)


def _amd(*rates: float | None) -> Hardware:
    # PyTorch on ROCm offers TF32 only behind an experimental switch of hipBLASLt, so it is not counted as there.
    return Hardware("AMD", False, True, True, rates[0], None, rates[1], rates[2])


def _ampere(fp32: float, tf32: float, half: float, bandwidth: float) -> Hardware:
    """NVIDIA Ampere and later: TF32, fp16 and bf16 tensor cores."""
    return _nvidia(tf32=True, fp16=True, bf16=True, rates=(fp32, tf32, half, bandwidth))


def _volta(fp32: float, half: float, bandwidth: float) -> Hardware:
    """NVIDIA Volta and Turing: fp16 tensor cores only."""
    return _nvidia(tf32=False, fp16=True, bf16=False, rates=(fp32, None, half, bandwidth))


_NO_MATRIX_UNITS = _nvidia(tf32=False, fp16=False, bf16=False)
_FP16_ONLY = _nvidia(tf32=False, fp16=True, bf16=False)
_ALL_FORMATS = _nvidia(tf32=True, fp16=True, bf16=True)

# The first pattern that occurs in the name wins, so longer names stand before those that they contain.
_BY_NAME: tuple[tuple[str, Hardware], ...] = (
    (r"\bMI325X", _amd(163.4, 1307.4, 6000)),
    (r"\bMI300X", _amd(163.4, 1307.4, 5300)),
    (r"\bMI300A", _amd(122.6, 980.6, 5300)),
    (r"\bMI250X?", _amd(95.7, 383.0, 3277)),
    (r"\bMI210", _amd(45.3, 181.0, 1638)),
    (r"\bMI100", _amd(46.1, 184.6, 1229)),
    (r"\bMI350X|\bMI355X", Hardware("AMD", False, True, True)),
    (r"\bH200", _ampere(67.0, 494.7, 989.4, 4800)),
    (r"\bH100 PCIe", _ampere(51.0, 378.0, 756.0, 2000)),
    (r"\bH100|\bH800", _ampere(67.0, 494.7, 989.4, 3350)),
    (r"\bGH200", _ampere(67.0, 494.7, 989.4, 4000)),
    (r"\bG?B200|\bG?B300|\bB100", _ALL_FORMATS),
    (r"\bL40S", _ampere(91.6, 183.0, 362.0, 864)),
    (r"\bL40\b", _ampere(90.5, 90.5, 181.0, 864)),
    (r"\bL4\b", _ampere(30.3, 60.0, 121.0, 300)),
    (r"\bA100.*80GB|\bA800", _ampere(19.5, 156.0, 312.0, 2039)),
    (r"\bA100", _ampere(19.5, 156.0, 312.0, 1555)),
    (r"\bA30\b", _ampere(10.3, 82.0, 165.0, 933)),
    (r"\bA40\b", _ampere(37.4, 74.8, 149.7, 696)),
    (r"\bA10\b", _ampere(31.2, 62.5, 125.0, 600)),
    (r"\bRTX A6000", _ampere(38.7, 77.4, 154.8, 768)),
    (r"\bA10G|\bA16\b|\bA2\b|\bRTX A\d|\bRTX [3456]0\d0|\bRTX \w+ Ada", _ALL_FORMATS),
    (r"\bV100.*PCIE", _volta(14.0, 112.0, 900)),
    (r"\bV100", _volta(15.7, 125.0, 900)),
    (r"\bTitan V", _FP16_ONLY),
    (r"\bTitan RTX", _FP16_ONLY),
    (r"\bT4\b", _volta(8.1, 65.0, 320)),
    (r"\bRTX 20\d0|\bQuadro RTX", _FP16_ONLY),
    # The GTX 16 series is Turing (7.5) without tensor cores.
    (r"\bGTX 16\d0|\bGTX 10\d0|\bGTX 9\d0|\bTitan X", _NO_MATRIX_UNITS),
    (r"\bP100", _nvidia(tf32=False, fp16=False, bf16=False, rates=(10.6, None, None, 732))),
    (r"\bP40\b|\bP4\b|\bK80\b|\bM60\b|\bM40\b", _NO_MATRIX_UNITS),
)
_NVIDIA_NAME = re.compile(r"nvidia|tesla|geforce|quadro|\bgtx\b|\brtx\b|\btitan\b", re.IGNORECASE)


def lookup(name: str, capability: tuple[int, int] | None = None) -> Hardware | None:
    """What the accelerator of that name can do; None where it is unknown.

    The capability decides only for a name that is NVIDIA's own and not in the table: it is a fact of that vendor alone.
    """
    for pattern, hardware in _BY_NAME:
        if re.search(pattern, name, re.IGNORECASE):
            return hardware
    if capability is None or not _NVIDIA_NAME.search(name):
        return None
    if capability >= (8, 0):
        return _ALL_FORMATS
    # 7.0 and 7.2 are Volta; 7.5 may be a GTX 16 without tensor cores, so it stays unknown.
    return _NO_MATRIX_UNITS if capability < (7, 0) else _FP16_ONLY if capability < (7, 5) else None
