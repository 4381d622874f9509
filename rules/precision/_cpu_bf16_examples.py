"""Examples of products on CPUs that have instructions for bf16, or none."""

from __future__ import annotations

from msgspec.structs import replace

from advisor.api import Ev, Example, draw

_LARGE = Ev("aten::mm", dims=[[512, 1024], [1024, 1024]], dtypes=["float", "float"])
_FEW_ROWS = Ev("aten::mm", dims=[[16, 4096], [4096, 4096]], dtypes=["float", "float"])
_SMALL = Ev("aten::mm", dims=[[4, 400], [400, 120]], dtypes=["float", "float"])
_ON_CPU = "step [1        ][2        ]\ncpu  [F  ][B  ] [F  ][B  ]"
_ON_CPU_TOO = "step [1           ][2           ]\ncpu  [F  ][B  ][A] [F  ][B  ][A]"
_HEADS = [32, 4, 16, 64]
_ATTENTION = Ev("aten::_scaled_dot_product_flash_attention_for_cpu_backward", dims=[_HEADS] * 5, dtypes=["float"] * 5)

_SETTINGS = {"settings": {"cpu_bf16": True, "matmul_precision_set": False}}
_GAINS = {
    "core_fp32_gflops": (90.0, 95.0, 100.0, 60),
    "core_bf16_gflops": (350.0, 380.0, 400.0, 60),
    "core_bf16_product_times": (1.8, 2.4, 3.1, 60),
    "core_bf16_large_product_times": (2.9, 3.2, 3.5, 60),
    "core_bf16_convolution_times": (1.2, 1.3, 2.0, 60),
}
_NO_GAINS = {name: (0.9, 1.0, 1.1, 60) if "times" in name else (90.0, 95.0, 98.0, 60) for name in _GAINS}
_ON_BF16 = {**_SETTINGS, "calibration": {"threads": 1, "quantities": _GAINS}}

ON_CPU = [
    Example(
        "fp32 on a CPU without bf16 instructions",
        draw(_ON_CPU, us=1000, F=_LARGE, B=_LARGE),
        facts={"settings": {"cpu_bf16": False, "matmul_precision_set": False}},
        near_miss=True,
    ),
    Example(
        "large fp32 products on a CPU with bf16 instructions",
        draw(_ON_CPU, us=1000, F=_LARGE, B=_LARGE),
        facts=_ON_BF16,
        saves_us=(6500, 7800),
        says=("the CPU has instructions for bf16",),
    ),
    Example(
        "the same on a machine whose calibration did not measure bf16",
        draw(_ON_CPU, us=1000, F=_LARGE, B=_LARGE),
        facts=_SETTINGS,
        skipped="was not measured",
    ),
    Example(
        "the same on a machine that converts for as long as it gains",
        draw(_ON_CPU, us=1000, F=_LARGE, B=_LARGE),
        facts={**_SETTINGS, "calibration": {"threads": 1, "quantities": _NO_GAINS}},
        near_miss=True,
    ),
    Example(
        "the same beside attention of 16 tokens, which bf16 makes slower",
        draw(_ON_CPU_TOO, us=1000, F=_LARGE, B=_LARGE, A=_ATTENTION),
        facts=_ON_BF16,
        near_miss=True,
    ),
    Example(
        "a little of such attention",
        draw(_ON_CPU_TOO, us=1000, F=_LARGE, B=_LARGE, A=replace(_ATTENTION, fill=0.1)),
        facts=_ON_BF16,
        saves_us=(0, 7000),
        says=("the CPU has instructions for bf16",),
    ),
    Example(
        "the same, where the environment forbids these instructions",
        draw(_ON_CPU, us=1000, F=_LARGE, B=_LARGE),
        facts={**_ON_BF16, "environment": {"ONEDNN_MAX_CPU_ISA": "AVX2"}},
        near_miss=True,
    ),
    Example(
        "16 rows against a large weight: converting the weight costs more than the product",
        draw(_ON_CPU, us=1000, F=_FEW_ROWS, B=_FEW_ROWS),
        facts=_ON_BF16,
        near_miss=True,
    ),
    Example(
        "small products on the same CPU: converting them would cost more",
        draw(_ON_CPU, us=1000, F=_SMALL, B=_SMALL),
        facts=_ON_BF16,
        near_miss=True,
    ),
]
