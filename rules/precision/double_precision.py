"""Ops run in double precision.

## What it looks at
Time of matrix multiplications, convolutions and attention whose inputs are float64. On a CPU also that of all other ops
with an operand in float64 that is more than a number: one such tensor makes float64 of everything that it meets.

## Why it costs time
Double precision moves twice the bytes, and a CPU's vector units hold half as many numbers. Most GPUs have far fewer
units for it: consumer and inference GPUs reach between a 32nd and a 64th of their fp32 rate. NumPy arrays are float64
by default, so this often happens by accident: a buffer that `np.linspace` made is enough. Where it meets a tensor in
float32, that is converted first, into memory of its own.

## How to fix it
Convert where data enter: `torch.from_numpy(a).float()`, `np.float32` arrays, `torch.tensor(x,
dtype=torch.float32)`, `torch.linspace` instead of `np.linspace`. Remove `torch.set_default_dtype(torch.float64)` and
`model.double()`.

## When to leave it
Computations that need more than seven digits: solvers, physics, gradient checks. A step that factorizes matrices in
float64 (Cholesky, LU, QR, eigenvalues), as Gaussian processes do for their digits, is not reported, nor is a training
by L-BFGS.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from advisor.api import (
    Breakdown,
    Calibration,
    Category,
    Drawing,
    Ev,
    Example,
    Finding,
    Fix,
    Ints,
    Lines,
    Matmuls,
    RankRecord,
    Scale,
    StepOps,
    Treatment,
    alike,
    draw,
)

from ..shared._examples import STEPS_ON_CPU
from ..shared._places import first_line, longest, set_at
from ..shared._words import of_step, plural
from ._double_gains import given_back_us, numbers
from ._double_kernels import moving_doubles, on_a_device

CONFIRMED = "measured pair on a CPU: float64 as the default dtype against float32"

# Factorizations lose as many digits as the condition number of the matrix has.
_FACTORS = (
    "cholesky",
    "linalg_lu",
    "linalg_ldl",
    "linalg_qr",
    "linalg_eig",
    "linalg_svd",
    "linalg_solve",
    "linalg_inv",
)
# Quasi-Newton steps take curvature from differences of gradients, which float32 has few digits of; scripts that use
# them choose float64 for that.
_CURVATURE = "Optimizer.step#LBFGS"
_WITHOUT_THE_DEFAULT = Fix(
    "Use float32 for data and model",
    "numerics",
    "torch.set_default_dtype(torch.float64)",
    "",
    Treatment("calls", {"names": ["torch.set_default_dtype"]}),
)
_IN_FLOAT32 = Fix(
    "Use float32 for data and model",
    "numerics",
    "x = torch.from_numpy(array)",
    "x = torch.from_numpy(array).float()",
    edit=Treatment("in_float32"),
)


def check(
    recorded: StepOps,
    scale: Scale,
    breakdown: Breakdown,
    matmuls: Matmuls | None,
    lines: Lines | None,
    record: RankRecord | None,
    *,
    min_share: float = 0.05,  # of the step: rounding changes, so the gain has to justify checking the results
) -> Iterator[Finding]:
    steps = recorded.steps
    product_us = matmuls.by_precision["fp64"] if matmuls else 0.0
    rows = _doubles(recorded)
    moving = moving_doubles(recorded, rows) if breakdown.on_device else rows[:0]
    rows = rows[:0] if breakdown.on_device else rows
    double_us = max(product_us, steps.per_step_us(float(recorded.nesting.self_ns[rows].sum()))) + recorded.us(moving)
    if double_us < min_share * steps.step_us:
        return
    if breakdown.on_device:
        low_us, high_us = on_a_device(recorded, product_us, moving)
    else:
        ends = given_back_us(recorded.events, rows, recorded.nesting, Calibration.compute(record))
        low_us, high_us = ends[0] / steps.count, max(ends) / steps.count
    if high_us < min_share * steps.step_us or _factorizes(recorded) or recorded.events.named(_CURVATURE).any():
        return
    settings = record.settings if record else None
    default = settings.default_dtype if settings else None
    chosen = " (the default dtype was set to float64)" if default == "float64" else ""
    what = "Matrix multiplications" if product_us >= double_us / 2 else "Ops on tensors"
    held = _held(record) if not chosen else ""
    first = first_line(lines, _brings(recorded, rows)) if len(rows) and not chosen else None
    yield Finding(
        message=(f"{what} in float64 take {of_step(scale.scaled(double_us), scale)}{chosen}{held}."),
        saving=scale.saving(
            low_us,
            high_us,
            "products and convolutions faster by the ratio of fp32 to fp64, on a CPU as calibrated on this machine; "
            "half the bytes of all other ops, and on a CPU no casts between both",
            "assumed",
        ),
        where=set_at(settings, "default_dtype" if chosen else "double") + ((first,) if first else ()),
        facts={"fp64_us": double_us, "products_us": product_us, "default_dtype": default},
        fix=_WITHOUT_THE_DEFAULT if chosen else _IN_FLOAT32,
        claims=("compute",) if breakdown.on_device else ("forward", "backward", "other_ops"),
        # Nobody gets float64 by asking for speed, but some ask for digits.
        at_most="medium" if default == "float64" or product_us < double_us / 2 else "high",
    )


def _held(record: RankRecord | None) -> str:
    """'; modules hold `oscillator.multiples` in float64', empty where nothing of the kind was seen."""
    names = (record.model or {}).get("float64", []) if record else []
    rest = f" and {plural(len(names) - 1, 'other tensor')}" if len(names) > 1 else ""
    return f"; modules hold `{names[0]}`{rest} in float64" if names else ""


def _doubles(recorded: StepOps) -> Ints:
    """Ops of the profiled steps with an operand in float64 that is more than a number."""
    events = recorded.events
    ops = np.flatnonzero(
        events.of(Category.CPU_OP) & (events.dtypes >= 0) & (recorded.steps.step_of(events.start_ns) >= 0)
    )
    named = np.array(["double" in text for text in events.dtypes_table], bool)
    ops = ops[named[events.dtypes[ops]]] if len(named) else ops[:0]
    # What an op's operands are depends on two texts of the trace, and few pairs of them occur.
    which = alike((events.dims[ops], events.dtypes[ops]))
    firsts = np.zeros(which.max(initial=-1) + 1, np.int64)
    firsts[which] = ops
    holds = np.array([numbers(events, row).double > 0 for row in firsts.tolist()], bool)
    doubles: Ints = ops[holds[which]]
    return doubles


def _factorizes(recorded: StepOps) -> bool:
    """Whether a profiled step factorizes a matrix in float64."""
    events = recorded.events
    rows = np.flatnonzero(
        events.named(*_FACTORS) & (events.dtypes >= 0) & (recorded.steps.step_of(events.start_ns) >= 0)
    )
    return any(numbers(events, row).double for row in rows.tolist())


def _brings(recorded: StepOps, rows: Ints) -> Ints:
    """The first ops in which float64 meets float32, the largest first; where there are none, the largest of all."""
    events = recorded.events
    outer = np.unique(recorded.nesting.outer_op[rows])
    outer = outer[outer >= 0]
    mixed = np.array([row for row in outer.tolist() if all(numbers(events, row))], np.int64)
    most = mixed if len(mixed) else outer
    return longest(events, most)


_STEPS = "step [1        ][2        ]\ncpu  [F   ][B  ][F   ][B  ]"
_DOUBLE = Ev("aten::mm", dims=[[32, 512], [512, 512]], dtypes=["double", "double"])
_SINGLE = Ev("aten::mm", dims=[[32, 512], [512, 512]], dtypes=["float", "float"])

_GRID, _ROW = [4, 4096, 40], [40]
_SCALED = Ev("aten::mul", dims=[_GRID, []], dtypes=["float", "double"])
_MIXED = "step [1                  ][2                  ]\ncpu  [M    ][C][S   ][F ] [M    ][C][S   ][F ]"


def _elementwise(kind: str, shape: list[int]) -> Drawing:
    """A buffer of 40 numbers (M) that meets a tensor in float32, and what is computed from both (S)."""
    return draw(
        _MIXED,
        us=1000,
        M=Ev("aten::mul", dims=[shape, _ROW], dtypes=["float", kind]),
        C=Ev("aten::copy_", dims=[shape, shape], dtypes=[kind, "float"]),
        S=Ev("aten::sin", dims=[shape], dtypes=[kind]),
        F=_SINGLE,
    )


_ON_A_GPU = """
    step  [1              ][2              ]
    cpu   [F ][M ]         [F ][M ]
    gpu 7   [K   ][E      ]  [K   ][E      ]
    """

EXAMPLES = [
    Example(
        "a GPU computes and moves numbers in float64: half of the bytes take half of the time",
        draw(
            _ON_A_GPU,
            us=1000,
            device="A100",
            F=_DOUBLE,
            M=Ev("aten::mul", dims=[_GRID, _GRID], dtypes=["double", "double"]),
            K=Ev("void cutlass_80_tensorop_d884gemm_64x64_16x4_nn_align1", "kernel"),
        ),
        saves_us=(4_500, 8_000),  # 9 ms of the second kernel, 6 of the first
        says=("in float64",),
    ),
    Example(
        "inputs straight from NumPy",
        draw(_STEPS, us=1000, F=_DOUBLE, B=_DOUBLE),
        saves_us=(500, 10000),
        says=("float64",),
    ),
    Example(
        "convolutions of an unfolded form, on a machine that was calibrated",
        draw(
            "step [1              ][2              ]\n"
            "cpu  [F  ][C       ]  [F  ][C       ]\n"
            "cpu        [S ][S ]         [S ][S ]",
            us=1000,
            F=_SINGLE,
            C=Ev("aten::convolution", dims=[[8, 32, 64], [32, 32, 3]], dtypes=["double", "double"]),
            S=Ev("aten::copy_", dims=[[32, 64], [32, 64]], dtypes=["double", "double"]),
        ),
        facts={"calibration": {"threads": 1, "quantities": {"core_fp64_product_times": (2.1, 2.2, 2.3, 60)}}},
        saves_us=(2000, 8500),
    ),
    Example(
        "the default dtype was set",
        draw(_STEPS, us=1000, F=_DOUBLE, B=_DOUBLE),
        facts={"settings": {"default_dtype": "float64"}},
        saves_us=(500, 10000),
        says=("default dtype",),
    ),
    Example(
        "a metric in float64 that takes a hundredth of the step",
        draw(
            "step [1                       ][2                       ]\n"
            "cpu  [F                    ][M][F                    ][M]",
            us=1000,
            F=_SINGLE,
            M=Ev("aten::mm", dims=[[32, 512], [512, 512]], dtypes=["double", "double"], times=1, fill=0.1),
        ),
        near_miss=True,
    ),
    Example(
        "a training by L-BFGS, which takes curvature from small differences",
        draw(
            "step [1                       ][2                       ]\n"
            "cpu  [F            ][O        ][F            ][O        ]",
            us=1000,
            F=_DOUBLE,
            O=Ev("Optimizer.step#LBFGS.step", "user_annotation"),
        ),
        near_miss=True,
    ),
    Example(
        "a buffer from NumPy makes float64 of what it meets",
        _elementwise("double", _GRID),
        facts={"model": {"float64": ["oscillator.multiples"]}},
        # A cast of 3 ms goes; 7 + 6 ms of other ops become 1.2 to 2.5 times as fast, casts that the product makes among
        # them.
        saves_us=(4_000, 11_000),
        says=("Ops on tensors in float64", "hold `oscillator.multiples` in float64"),
    ),
    Example(
        "numbers of Python beside tensors in float32",
        draw(_MIXED, us=1000, M=_SCALED, C=_SCALED, S=_SCALED, F=_SCALED),
        near_miss=True,
    ),
    Example(
        "a Gaussian process, in float64 for the digits of its Cholesky factor",
        draw(
            "step [1            ][2            ]\ncpu  [F   ][C ][B  ][F   ][C ][B  ]",
            us=1000,
            F=_DOUBLE,
            B=_DOUBLE,
            C=Ev("aten::linalg_cholesky_ex", dims=[[512, 512]], dtypes=["double"]),
        ),
        near_miss=True,
    ),
    Example("the same buffer in float32", _elementwise("float", _GRID)),
    Example("float32", draw(_STEPS, us=1000, F=_SINGLE, B=_SINGLE)),
    Example("shapes and dtypes were not recorded", STEPS_ON_CPU),
]
