"""Raw categories and names of every era and vendor, mapped to `Category`.

Kineto wrote `Operator`, `Kernel`, `Runtime` until torch 1.11 and lower-case names since; ROCm uses CUDA's categories
with `hip*` names; XPU, MTIA, HPU and PrivateUse1 devices bring their own prefixes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from advisor.trace.events import Category

_KNOWN = {
    "cpu_op": Category.CPU_OP,
    "operator": Category.CPU_OP,
    "user": Category.ANNOTATION,
    "user_annotation": Category.ANNOTATION,
    "python_function": Category.PYTHON,
    "runtime": Category.RUNTIME,
    "cuda_runtime": Category.RUNTIME,
    "cuda_driver": Category.RUNTIME,
    "hip_runtime": Category.RUNTIME,  # not written by Kineto; converters of rocprof files use it
    "xpu_runtime": Category.RUNTIME,
    "xpu_driver": Category.RUNTIME,
    "mtia_runtime": Category.RUNTIME,
    "glow_runtime": Category.RUNTIME,
    "privateuse1_runtime": Category.RUNTIME,
    "privateuse1_driver": Category.RUNTIME,
    "kernel": Category.KERNEL,
    "memcpy": Category.MEMCPY,
    "gpu_memcpy": Category.MEMCPY,
    "memset": Category.MEMSET,
    "gpu_memset": Category.MEMSET,
    "gpu_user_annotation": Category.DEVICE_ANNOTATION,
    "cuda_sync": Category.SYNC,
    "xpu_sync": Category.SYNC,
    "cuda_event": Category.SYNC,
    "overhead": Category.OVERHEAD,
    "cuda_profiler_range": Category.OTHER,
    "xpu_scope_profiler": Category.OTHER,
    # oneCCL's and XCCL's own rows: the kernels behind them are listed as `kernel`, so these would count twice.
    "collective_comm": Category.DEVICE_ANNOTATION,
    "mtia_ccp_events": Category.FOREIGN_DEVICE,
    "mtia_insight": Category.OTHER,
    "mtia_workloadd": Category.FOREIGN_DEVICE,
    "hpu_op": Category.FOREIGN_DEVICE,
}
# Prefixes of accelerators whose rows cannot be told apart into work and waiting, and what they are called.
_FOREIGN = {"mtia_": "Meta's MTIA", "hpu": "Intel's Gaudi (HPU)", "npu": "an NPU", "glow_": "Glow", "tpu": "a TPU"}

# Record functions that torch itself opens; before 1.12 they were written as operators.
_ANNOTATIONS = re.compile(r"(ProfilerStep[#*]|enumerate\(DataLoader\)#|Optimizer\.(step|zero_grad)#)")

# Until 1.11 those of scripts and libraries were operators, too. An operator has a namespace or is a name; none of them
# has a space, a number sign or a dot.
_OLD_ANNOTATIONS = re.compile(r"(?!.*::).*[\s#.]")

# What Intel's profiler calls copies: M is memory that was not allocated for devices, H is page-locked host memory.
# https://github.com/pytorch/kineto, libkineto/src/plugin/xpupti: "Memcpy M2D (MEMORY(Unknown) -> DEVICE)".
_XPU_COPY = re.compile(r"Memcpy (M2D|H2D|D2M|D2H)\b")
_COPIES = {
    "M2D": "Memcpy HtoD (Pageable -> Device)",
    "H2D": "Memcpy HtoD (Pinned -> Device)",
    "D2M": "Memcpy DtoH (Device -> Pageable)",
    "D2H": "Memcpy DtoH (Device -> Pinned)",
}


def category(raw: str) -> Category:
    """The category of a row by the text of its `cat`; OTHER for what is unknown, which never counts as work."""
    key = raw.lower()
    known = _KNOWN.get(key)
    if known is not None:
        return known
    return Category.FOREIGN_DEVICE if key.startswith(tuple(_FOREIGN)) else Category.OTHER


def accelerators(raws: Iterable[str | None]) -> tuple[str, ...]:
    """What the accelerators are called whose rows are among those of these `cat` texts, but cannot be told apart."""
    foreign = [raw.lower() for raw in raws if raw and category(raw) == Category.FOREIGN_DEVICE]
    return tuple(name for prefix, name in _FOREIGN.items() if any(raw.startswith(prefix) for raw in foreign))


def is_annotation(name: str, *, old: bool = False) -> bool:
    """Whether a CPU row of this name is one of torch's own record functions (a step, a fetch, an optimizer step).

    old: of a file that calls ops `Operator`; there those of scripts are, too.
    """
    return _ANNOTATIONS.match(name) is not None or (old and _OLD_ANNOTATIONS.match(name) is not None)


def is_old(raws: Iterable[object]) -> bool:
    """Whether a file with these texts as `cat` is of the time when annotations were written as operators."""
    known = set(raws)
    return "Operator" in known and not known & {"cpu_op", "user_annotation"}


def usual_name(name: str) -> str:
    """The name under which analyses know it: copies of an XPU have others than those of CUDA and ROCm."""
    found = _XPU_COPY.match(name) if name.startswith("Memcpy ") else None
    return _COPIES[found[1]] if found else name
