"""What accelerators can do: which number formats run on matrix units, and how fast at best.

Looked up by vendor and name, never by the compute major alone: an AMD MI300X reports 9, as an NVIDIA H100 does.
Rates are dense peaks of the vendors' own papers, named in the rows; rates that a paper quotes "with sparsity" are
halved here, GeForce rates are those with fp32 accumulation, which is what PyTorch uses. What no paper states is None.
Figures of a whole platform (HGX B200, GB200 NVL72) are divided by its number of GPUs. fp32 is the rate of matrix
products without TF32: of the matrix cores where AMD's have that format, else of the ordinary units.
Nothing here was measured. A device is what PyTorch calls one: half of the card in the case of an MI250X.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from msgspec import Struct


class Hardware(Struct, frozen=True):
    """One kind of accelerator.

    tf32, fp16, bf16     PyTorch can run matmuls of that format on matrix units (tensor cores) of this device
    *_tflops             dense peak in 10^12 operations per second; None where unknown. `half`: fp16, and bf16 where it
                         has that format (the MI100's bf16 runs at half of it)
    bandwidth_gbs        peak memory bandwidth in 10^9 bytes per second; None where unknown
    bus_gbs              peak of the link to the host in one direction, 10^9 bytes per second: the device's own side
    peer_gbs             peak of the links to other devices, both directions together (NVLink, Infinity Fabric)
    model, source        name of the device, and the vendor's paper with its figures; "" if unknown
    """

    vendor: str
    tf32: bool
    fp16: bool
    bf16: bool
    fp32_tflops: float | None = None
    tf32_tflops: float | None = None
    half_tflops: float | None = None
    bandwidth_gbs: float | None = None
    fp8_tflops: float | None = None
    bus_gbs: float | None = None
    peer_gbs: float | None = None
    model: str = ""
    source: str = ""

    def tflops(self, wanted: str) -> float | None:
        """Dense peak of matrix work in a format; without matrix units for it, that of fp32. None if unknown."""
        if wanted == "fp8":
            return self.fp8_tflops
        if wanted == "tf32":
            return self.tf32_tflops if self.tf32 else self.fp32_tflops
        if wanted in ("fp16", "bf16"):
            has = self.fp16 if wanted == "fp16" else self.bf16
            rate = self.half_tflops if has else self.fp32_tflops
            return rate / 2 if rate and wanted == "bf16" and self.model == "MI100" else rate
        return self.fp32_tflops if wanted == "fp32" else None


# The link to the host, 10^9 bytes per second in one direction. PCIe by its generation: 16 lanes after line coding
# (PCI-SIG). NVLink-C2C carries 900 GB/s in both directions together (NVIDIA GH200 data sheet); in a GB200 one Grace
# shares as much with two GPUs, and no paper divides it between them. B200s take PCIe 6 too; their hosts have PCIe 5
# (NVIDIA DGX B200 data sheet), and a link that the host lacks would make every copy look slow.
_BUS: dict[int | str, float | None] = {3: 15.75, 4: 31.5, 5: 63.0, "C2C": 450.0, "C2C of two": None}

# The vendors' papers.
_P100 = "NVIDIA Tesla P100 data sheet"
_VOLTA = "NVIDIA V100 Tensor Core GPU data sheet (2020)"
_TURING = "NVIDIA Turing GPU architecture white paper"
_A100 = "NVIDIA A100 Tensor Core GPU data sheet"
_GA102 = "NVIDIA Ampere GA102 GPU architecture white paper"
_ADA = "NVIDIA Ada GPU architecture white paper"
_H100 = "NVIDIA H100 Tensor Core GPU data sheet"
_GH200 = "NVIDIA GH200 Grace Hopper Superchip data sheet"
_H200 = "NVIDIA H200 Tensor Core GPU data sheet"
_HGX = "NVIDIA HGX platform page (HGX B200, eight GPUs)"
_NVL72 = "NVIDIA GB200 NVL72 page (72 GPUs)"
# As other pages quote NVIDIA's, which could not be opened; for the B300's memory the lower of 7.7 and 8 TB/s.
_HGX_B300 = "NVIDIA HGX platform page (HGX B300, eight GPUs), as others quote it"
_NVL72_ULTRA = "NVIDIA GB300 NVL72 page (72 GPUs), as others quote it"
_RTX_BLACKWELL = "NVIDIA RTX Blackwell GPU architecture white paper"
_RTX_PRO = (
    "NVIDIA RTX PRO 6000 Blackwell Workstation Edition data sheet, as others quote it; tensor rates: units x clock"
)

# What NVIDIA sells under export rules: the rates of the chip that it is, links as the trade press states them.
_NO_PAPER = "no paper of its own was found"

# pattern of the name, model, formats, fp32, tf32, half, fp8 (10^12 per second), memory (GB/s), host link, peers (GB/s),
# paper.
# The first pattern that occurs in the name wins, so longer names stand before those that they contain. An RTX A1000 is
# no A100, nor a Quadro P1000 a P100.
_Row = tuple[
    str, str, str, float | None, float | None, float | None, float | None, float | None, int | str, float | None, str
]
_ROWS: tuple[_Row, ...] = (
    (r"\bMI355X", "MI355X", "amd", 157.3, None, 2516.6, 5033.2, 8000, 5, 1075, "AMD Instinct MI355X data sheet"),
    (r"\bMI350X", "MI350X", "amd", 144.2, None, 2306.9, 4613.7, 8000, 5, 1075, "AMD Instinct MI350X data sheet"),
    (r"\bMI325X", "MI325X", "amd", 163.4, None, 1307.4, 2614.9, 6000, 5, 896, "AMD Instinct MI325X data sheet"),
    (r"\bMI300X", "MI300X", "amd", 163.4, None, 1307.4, 2614.9, 5300, 5, 896, "AMD Instinct MI300X data sheet"),
    (r"\bMI300A", "MI300A", "amd", 122.6, None, 980.6, 1961.2, 5300, 5, None, "AMD Instinct MI300A data sheet"),
    # A card of the MI250 series is two devices: figures of one. Drivers call both kinds by one name; only the memory
    # and the link are the same.
    (r"\bMI250X */ *MI250", "", "amd", None, None, None, None, 1638, 4, None, ""),
    (
        r"\bMI250X",
        "MI250X (one of two)",
        "amd",
        47.9,
        None,
        191.5,
        None,
        1638,
        4,
        None,
        "AMD Instinct MI250X data sheet",
    ),
    (r"\bMI250", "MI250 (one of two)", "amd", 45.3, None, 181.0, None, 1638, 4, None, "AMD Instinct MI250 data sheet"),
    (r"\bMI210", "MI210", "amd", 45.3, None, 181.0, None, 1638, 4, 300, "AMD Instinct MI210 data sheet"),
    (r"\bMI100", "MI100", "amd", 46.1, None, 184.6, None, 1229, 4, 276, "AMD Instinct MI100 data sheet"),
    (r"\bGB200", "GB200 (one GPU)", "all", 80.0, 1250.0, 2500.0, 5000.0, 8000, "C2C of two", 1800, _NVL72),
    (r"(?<!G)\bB200", "B200", "all", 75.0, 1125.0, 2250.0, 4500.0, 7700, 5, 1800, _HGX),
    (r"\bGB300", "GB300 (one GPU)", "all", 80.0, 1250.0, 2500.0, 5000.0, 8000, "C2C of two", 1800, _NVL72_ULTRA),
    (r"(?<!G)\bB300", "B300", "all", 75.0, 1125.0, 2250.0, 4500.0, 7700, 5, 1800, _HGX_B300),
    (r"\bB100", "", "all", None, None, None, None, None, 5, None, ""),
    # Sold under export rules: resellers state rates, no paper of NVIDIA's or AMD's was found.
    (r"\bH20\b", "", "all", None, None, None, None, None, 5, None, ""),
    (r"\bMI308X", "", "amd", None, None, None, None, None, 5, None, ""),
    (r"\bGH200 144G", "", "all", None, None, None, None, None, "C2C", None, ""),
    (r"\bGH200", "GH200 96 GB", "all", 67.0, 494.7, 989.4, 1978.9, 4000, "C2C", 900, _GH200),
    (r"\bH200 NVL", "H200 NVL", "all", 60.0, 417.5, 835.5, 1670.5, 4800, 5, 900, _H200),
    (r"\bH200", "H200 SXM", "all", 67.0, 494.7, 989.4, 1978.9, 4800, 5, 900, _H200),
    (r"\bH100 PCIe", "H100 PCIe", "all", 51.0, 378.0, 756.0, 1513.0, 2000, 5, 600, _H100),
    (r"\bH100 NVL", "H100 NVL", "all", 60.0, 417.5, 835.5, 1670.5, 3900, 5, 600, _H100),
    (r"\bH100.*HBM2e", "", "all", None, None, None, None, None, 5, None, ""),
    (r"\bH800 PCIe", "", "all", None, None, None, None, None, 5, None, ""),
    (r"\bH800", "H800 SXM", "all", 67.0, 494.7, 989.4, 1978.9, 3350, 5, 400, f"{_H100}; {_NO_PAPER}"),
    (r"\bH100(?!\d)", "H100 SXM", "all", 67.0, 494.7, 989.4, 1978.9, 3350, 5, 900, _H100),
    (r"\bL40S", "L40S", "all", 91.6, 183.0, 362.0, 733.0, 864, 4, None, "NVIDIA L40S data sheet"),
    (r"\bL40\b", "L40", "all", 90.5, 90.5, 181.0, 362.0, 864, 4, None, "NVIDIA L40 data sheet"),
    (r"\bL4\b", "L4", "all", 30.3, 60.0, 121.0, 242.5, 300, 4, None, "NVIDIA L4 data sheet"),
    (r"\bA100.*PCIe.*80GB|\bA100 80GB PCIe", "A100 PCIe 80 GB", "all", 19.5, 156.0, 312.0, None, 1935, 4, 600, _A100),
    (r"\bA100X|\bA100.*64GB", "", "all", None, None, None, None, None, 4, None, ""),
    (r"\bA800.*(PCIe|40GB)", "", "all", None, None, None, None, None, 4, None, ""),
    (r"\bA800", "A800 SXM 80 GB", "all", 19.5, 156.0, 312.0, None, 2039, 4, 400, f"{_A100}; {_NO_PAPER}"),
    (r"\bA100.*80GB", "A100 SXM 80 GB", "all", 19.5, 156.0, 312.0, None, 2039, 4, 600, _A100),
    (r"\bA100(?!\d)", "A100 40 GB", "all", 19.5, 156.0, 312.0, None, 1555, 4, 600, _A100),
    (r"\bA30\b", "A30", "all", 10.3, 82.0, 165.0, None, 933, 4, 200, "NVIDIA A30 data sheet"),
    (r"\bA40\b", "A40", "all", 37.4, 74.8, 149.7, None, 696, 4, 112.5, "NVIDIA A40 data sheet"),
    (r"\bA10G\b", "A10G", "all", 31.5, 35.0, 70.0, None, 600, 4, None, "NVIDIA A10G data sheet, as others quote it"),
    (r"\bA10\b", "A10", "all", 31.2, 62.5, 125.0, None, 600, 4, None, "NVIDIA A10 data sheet"),
    (r"\bRTX A6000", "RTX A6000", "all", 38.7, 77.4, 154.8, None, 768, 4, 112.5, _GA102),
    (r"\bRTX 6000 Ada", "RTX 6000 Ada", "all", 91.1, 182.1, 364.2, 728.5, 960, 4, None, _ADA),
    (r"\bRTX 5090$", "RTX 5090", "all", 104.8, 104.8, 209.5, 419.0, 1792, 5, None, _RTX_BLACKWELL),
    (r"\bRTX 5080$", "RTX 5080", "all", 56.3, 56.3, 112.6, 225.1, 960, 5, None, _RTX_BLACKWELL),
    (r"\bRTX 5070 Ti$", "RTX 5070 Ti", "all", 43.9, 43.9, 87.9, 175.8, 896, 5, None, _RTX_BLACKWELL),
    (r"\bRTX 5070$", "RTX 5070", "all", 30.9, 30.9, 61.7, 123.5, 672, 5, None, _RTX_BLACKWELL),
    (r"\bRTX 4090$", "RTX 4090", "all", 82.6, 82.6, 165.2, 330.3, 1008, 4, None, _ADA),
    (r"\bRTX 4080$", "RTX 4080", "all", 48.7, 48.7, 97.5, 194.9, 717, 4, None, _ADA),
    (r"\bRTX 4070 Ti$", "RTX 4070 Ti", "all", 40.1, 40.1, 80.2, 160.4, 504, 4, None, _ADA),
    (r"\bRTX 3090 Ti$", "RTX 3090 Ti", "all", 40.0, 40.0, 80.0, None, 1008, 4, 112.5, _GA102),
    (r"\bRTX 3090$", "RTX 3090", "all", 35.6, 35.6, 71.0, None, 936, 4, 112.5, _GA102),
    (r"\bRTX 3080$", "RTX 3080 10 GB", "all", 29.8, 29.8, 59.5, None, 760, 4, None, _GA102),
    (r"\bRTX 3070$", "RTX 3070", "all", 20.3, 20.3, 40.6, None, 448, 4, None, _GA102),
    (r"\bQuadro RTX \d", "", "fp16", None, None, None, None, None, 3, None, ""),
    # The Max-Q and the Server Edition have other clocks, and the latter slower memory.
    (
        r"\bRTX PRO 6000 Blackwell Workstation",
        *("RTX PRO 6000 Blackwell Workstation", "all", 126.0, 251.9, 503.8, 1007.6, 1792, 5, None, _RTX_PRO),
    ),
    (r"\bRTX PRO \d", "", "all", None, None, None, None, None, 5, None, ""),
    (
        # The RTX 2050 is an Ampere device among Turing's names.
        r"\bA16\b|\bA2\b|\bRTX A\d|\bRTX 2050|\bRTX [3456]0\d0|\bRTX \w+ Ada",
        *("", "all", None, None, None, None, None, 4, None, ""),
    ),
    (r"\bV100-FHHL", "", "fp16", None, None, None, None, None, 3, None, ""),
    (r"\bV100S", "V100S PCIe", "fp16", 16.4, None, 130.0, None, 1134, 3, None, _VOLTA),
    (r"\bV100.*PCIE", "V100 PCIe", "fp16", 14.0, None, 112.0, None, 900, 3, None, _VOLTA),
    (r"\bV100", "V100 SXM", "fp16", 15.7, None, 125.0, None, 900, 3, 300, _VOLTA),
    (r"\bTitan V", "", "fp16", None, None, None, None, None, 3, None, ""),
    (r"\bTitan RTX", "Titan RTX", "fp16", 16.3, None, 130.5, None, 672, 3, 100, _TURING),
    (r"\bT4\b", "T4", "fp16", 8.1, None, 65.0, None, 320, 3, None, "NVIDIA T4 data sheet; memory: product brief"),
    (r"\bRTX 2080 Ti$", "RTX 2080 Ti", "fp16", 13.4, None, 53.8, None, 616, 3, 100, _TURING),
    (r"\bRTX 20\d0", "", "fp16", None, None, None, None, None, 3, None, ""),
    # The GTX 16 series is Turing (7.5) without tensor cores.
    (r"\bGTX 16\d0|\bGTX 10\d0|\bGTX 9\d0|\bTitan X", "", "none", None, None, None, None, None, 3, None, ""),
    (r"\bP100.*PCIE.*12GB", "P100 PCIe 12 GB", "none", 9.3, None, None, None, 549, 3, None, _P100),
    (r"\bP100.*PCIE", "P100 PCIe 16 GB", "none", 9.3, None, None, None, 732, 3, None, _P100),
    (r"\bP100(?!\d)", "P100 SXM2", "none", 10.6, None, None, None, 732, 3, 160, _P100),
    (r"\bP40\b|\bP4\b|\bK80\b|\bM60\b|\bM40\b", "", "none", None, None, None, None, None, 3, None, ""),
)
# TF32, fp16, bf16 on matrix units. PyTorch on ROCm offers TF32 only behind an experimental switch of hipBLASLt, so it
# is not counted as there.
_FORMATS = {
    "amd": ("AMD", False, True, True),
    "all": ("NVIDIA", True, True, True),  # Ampere and later
    "fp16": ("NVIDIA", False, True, False),  # Volta and Turing
    "none": ("NVIDIA", False, False, False),
}


def _hardware(row: _Row) -> Hardware:
    _, model, formats, fp32, tf32, half, fp8, memory, bus, peers, source = row
    return Hardware(*_FORMATS[formats], fp32, tf32, half, memory, fp8, _BUS[bus], peers, model, source)


# A part of a device: an instance ("MIG 1g.5gb", NVIDIA's MIG user guide) or a virtual GPU ("T4-8Q", "A100D-40C").
_PART = re.compile(r"\bMIG \d|-\d{1,3}[ABCQ]\b")
_NVIDIA_NAME = re.compile(r"nvidia|tesla|geforce|quadro|\bgtx\b|\brtx\b|\btitan\b", re.IGNORECASE)


def lookup(name: str, capability: tuple[int, int] | None = None) -> Hardware | None:
    """Peak rates of the accelerator of that name; None if unknown.

    The capability decides only for a name that is NVIDIA's own and not in the table: it is a fact of that vendor alone.
    A part of a device has its formats, and no paper states what rates the part has.
    """
    if not name.strip():
        return None
    for row in _ROWS:
        # Compiled when a device is looked up: a trace of a CPU needs none of the 65.
        if re.search(row[0], name.strip(), re.IGNORECASE):
            return _formats_alone(_hardware(row)) if _PART.search(name) else _hardware(row)
    if capability is None or not _NVIDIA_NAME.search(name):
        return None
    if capability >= (8, 0):
        return Hardware(*_FORMATS["all"])
    # 7.0 and 7.2 are Volta; 7.5 may be a GTX 16 without tensor cores, so it stays unknown.
    if capability < (7, 0):
        return Hardware(*_FORMATS["none"])
    return Hardware(*_FORMATS["fp16"]) if capability < (7, 5) else None


def _formats_alone(hardware: Hardware) -> Hardware:
    return Hardware(hardware.vendor, hardware.tf32, hardware.fp16, hardware.bf16)


def models() -> Iterator[Hardware]:
    """Every accelerator whose rates are known, as the table lists them."""
    return (hardware for hardware in map(_hardware, _ROWS) if hardware.model)
