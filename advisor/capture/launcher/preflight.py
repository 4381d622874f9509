"""Can this machine record what an accelerator does, and if not, why: one cause, one fix.

`signs` looks at the machine without torch. Where it shows an accelerator, `ask` starts a short process of its own that
runs one kernel under the profiler: the script's process is never touched. `diagnose` turns facts into sentences and is
pure, so that causes which need hardware are tested by injected facts.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

# Importing torch and bringing up a device may take long on network file systems; a hang must not be ours.
_LIMIT_S = 120

# Tools that own the profiling interface of the device, by what they leave in the environment of what they start.
_TOOLS = {
    "NSYS_PROFILING_SESSION_ID": "Nsight Systems (nsys)",
    "NV_NSIGHT_INJECTION_TRANSPORT_TYPE": "Nsight Compute (ncu)",
    "CUDA_INJECTION64_PATH": "a tool injected by CUDA_INJECTION64_PATH",
    "NV_SANITIZER_INJECTION_PORT_BASE": "compute-sanitizer",
    "ROCP_TOOL_LIB": "rocprof",
    "HSA_TOOLS_LIB": "a tool loaded by HSA_TOOLS_LIB",
    "ROCPROFILER_REGISTER_LIBRARY": "rocprofv3",
}


@dataclass(frozen=True, slots=True)
class Check:
    """One statement: what was found and, where something is wrong, what to do."""

    id: str
    status: Literal["ok", "note", "warning", "error"]
    message: str


@dataclass(frozen=True, slots=True)
class Signs:
    """What the machine shows without torch. vendor: nvidia | amd | intel | apple | "" (none seen)."""

    vendor: str = ""
    wsl: bool = False
    container: bool = False
    hidden: str = ""  # the variable that hides every device
    tool: str = ""  # another profiler at work
    admin_only: bool = False  # the driver keeps profiling to administrators


@dataclass(frozen=True, slots=True)
class Probe:
    """What the short process saw. All unknown by default."""

    torch: str = ""
    built_for: str = ""  # cuda 12.4 | hip 6.2 | xpu | ""
    available: bool | None = None
    name: str = ""
    activities: tuple[str, ...] = ()
    kernels: int | None = None  # device kernels in the trace of a process that ran at least one
    stderr: str = ""
    cupti: tuple[str, ...] = ()  # libcupti files that the process loaded
    packages: str = ""  # folder of the interpreter's packages
    failure: str = ""


@dataclass(frozen=True, slots=True)
class Preflight:
    """The verdict. accelerator: usable by torch (None: not known)."""

    checks: tuple[Check, ...]
    accelerator: bool | None = None
    name: str = ""
    versions: dict[str, str] = field(default_factory=dict)


def signs(environment: Mapping[str, str], root: Path = Path("/")) -> Signs:
    """Looks for devices, a container, WSL2, hidden devices and other profilers. root: where /dev and /proc are."""
    vendor = ""
    if platform.system() == "Darwin":
        vendor = "apple" if platform.machine() == "arm64" else ""
    elif any((root / "dev" / name).exists() for name in ("nvidiactl", "nvidia0", "dxg")):
        vendor = "nvidia"
    elif (root / "dev" / "kfd").exists():
        vendor = "amd"
    elif _intel(root):
        vendor = "intel"
    container = (root / ".dockerenv").exists() or (root / "run" / ".containerenv").exists()
    hiding = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")
    hidden = next((name for name in hiding if environment.get(name, "0").strip() in ("", "-1")), "")
    tool = next((text for name, text in _TOOLS.items() if environment.get(name)), "")
    return Signs(
        vendor,
        wsl="microsoft" in _text(root / "proc" / "sys" / "kernel" / "osrelease").lower(),
        container=container or "KUBERNETES_SERVICE_HOST" in environment,
        hidden=hidden,
        tool=tool,
        admin_only="RmProfilingAdminOnly: 1" in _text(root / "proc" / "driver" / "nvidia" / "params"),
    )


def _intel(root: Path) -> bool:
    """A render node of an Intel device that is more than a display adapter's: the xe driver or a data-centre i915."""
    nodes = (root / "sys" / "class" / "drm").glob("renderD*/device/driver")
    return any(os.path.realpath(node).endswith("/xe") for node in nodes)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def check(python: str, environment: Mapping[str, str]) -> Preflight:
    """The verdict for this machine and that interpreter; a process is started only where a device may be."""
    seen = signs(environment)
    if not seen.vendor:
        return diagnose(seen, None)
    return diagnose(seen, ask(python, environment))


def ask(python: str, environment: Mapping[str, str]) -> Probe:
    """Runs one kernel under the profiler in a process of its own and reads what it says."""
    script = Path(__file__).with_name("one_kernel.py")
    clean = {name: value for name, value in environment.items() if name != "TORCH_ADVISOR_CAPTURE"}
    try:
        done = subprocess.run(
            [python, str(script)], env=clean, capture_output=True, text=True, timeout=_LIMIT_S, check=False
        )
    except subprocess.TimeoutExpired:
        return Probe(failure=f"it did not answer within {_LIMIT_S} s")
    except OSError as failure:
        return Probe(failure=str(failure))
    try:
        found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    except (IndexError, ValueError):
        last = (done.stderr.strip().splitlines() or [f"it ended with status {done.returncode}"])[-1]
        return Probe(stderr=done.stderr, failure=last)
    known: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in found.items()}
    return Probe(**known, stderr=done.stderr)


def diagnose(seen: Signs, probe: Probe | None) -> Preflight:
    """What the signs and the probe mean. probe None: no sign of a device, so none was asked for."""
    if seen.vendor == "apple":
        text = (
            "torch.profiler cannot record Apple GPUs (it has no MPS activity): CPU time and the input pipeline are "
            "measured, GPU time is not"
        )
        return Preflight((Check("device", "warning", text),), None, "Apple GPU")
    if probe is None:
        return Preflight((Check("device", "note", _none(seen)),), accelerator=False)
    versions = {"torch": probe.torch} if probe.torch else {}
    if probe.failure:
        text = f"the pre-flight process failed: {probe.failure}; it is not known whether device events can be recorded"
        return Preflight((Check("device", "warning", text),), probe.available, probe.name, versions)
    if not probe.available:
        return Preflight((Check("device", "warning", _unusable(seen, probe)),), False, "", versions)
    if probe.kernels:
        text = f"device events can be recorded ({probe.name})"
        return Preflight((Check("device", "ok", text), *_graphs(probe)), True, probe.name, versions)
    cause = Check("device", "error", f"device events cannot be recorded on {probe.name}: {_unrecorded(seen, probe)}")
    return Preflight((cause,), True, probe.name, versions)


def _graphs(probe: Probe) -> tuple[Check, ...]:
    """A warning where CUDA graphs and the profiler do not go together."""
    if not probe.built_for.startswith("cuda 11"):
        return ()
    text = (
        f"torch {probe.torch} is built for {probe.built_for}, whose profiler may crash or hang on CUDA graphs: if "
        'the script uses them (or torch.compile(mode="reduce-overhead")), install a torch built for CUDA 12 or newer'
    )
    return (Check("graphs", "warning", text),)


def _none(seen: Signs) -> str:
    hint = "; in a container the device must be passed in (docker run --gpus all)" if seen.container else ""
    return f"no accelerator is visible on this machine: the CPU is profiled{hint}"


def _unusable(seen: Signs, probe: Probe) -> str:
    """Why torch cannot use a device that the machine shows."""
    if seen.hidden:
        return f"{seen.hidden} hides all devices: unset it to use and profile them"
    if not probe.built_for:
        return (
            f"torch {probe.torch} is built without support for the {seen.vendor.upper()} device that this machine has: "
            "install the build for it (pytorch.org/get-started picks the command)"
        )
    last = next((line for line in reversed(probe.stderr.splitlines()) if "driver" in line.lower()), "")
    detail = f" ({last.strip()[:200]})" if last else ""
    return (
        f"torch {probe.torch} ({probe.built_for}) finds no usable device{detail}: update the driver, "
        "or install a torch built for the driver's version (nvidia-smi shows it)"
    )


def _unrecorded(seen: Signs, probe: Probe) -> str:
    """Why a kernel ran and the profiler saw none: the most certain cause."""
    said = probe.stderr
    stray = [path for path in probe.cupti if probe.packages and not path.startswith(probe.packages)]
    lines = [line.strip()[:200] for line in said.splitlines() if "CUPTI" in line or "ERROR" in line]
    causes = (
        (
            bool(seen.tool) or "MULTIPLE_SUBSCRIBERS" in said,
            f"{seen.tool or 'another profiler'} is attached and occupies the profiling interface: run without it",
        ),
        (
            not set(probe.activities) & {"CUDA", "XPU", "HPU", "PrivateUse1"},
            "this build of torch has no device tracing (supported_activities() contains only CPU, as in some "
            "conda-forge builds): install torch from PyPI or pytorch.org",
        ),
        ("INSUFFICIENT_PRIVILEGES" in said or seen.admin_only, _privileges(seen)),
        (
            bool(stray),
            f"another {''.join(stray[:1])} was loaded instead of the libcupti that torch {probe.torch} was built "
            "with: remove its folder from LD_LIBRARY_PATH",
        ),
        (
            seen.wsl,
            "WSL2 delivers no device events: update the Windows driver, and allow all users access to the GPU "
            "performance counters in the NVIDIA Control Panel (Enable Developer Settings)",
        ),
        (seen.container, f"the container may lack the capability: {_DOCKER}"),
        (bool(lines), f"the profiler says: {''.join(lines[-1:])}"),
    )
    return next((text for holds, text in causes if holds), "the profiler gives no reason; try a newer torch")


_DOCKER = (
    "start it with `docker run --cap-add SYS_ADMIN …` (in Kubernetes: securityContext.capabilities.add: [SYS_ADMIN])"
)


def _privileges(seen: Signs) -> str:
    if seen.container:
        return f"profiling needs a capability that this container lacks: {_DOCKER}"
    return (
        "the driver restricts profiling to administrators: put `options nvidia "
        "NVreg_RestrictProfilingToAdminUsers=0` into /etc/modprobe.d/nvidia-profiling.conf and reboot, or run as root"
    )
