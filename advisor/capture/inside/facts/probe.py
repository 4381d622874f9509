"""Settings that no trace holds, read from torch and from the system; unknown is None, never "off"."""

from __future__ import annotations

import platform
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from ..guards import frameworks
from ..guards.interrupts import let_through
from . import blas_threads, compiler, cores
from .model import attention, model_facts

# Entries of a group of parameters that say which parameters these are.
_NO_SETTINGS = ("params", "param_names", "name")
# torch.cuda.memory_stats has some hundred entries; these say what a reader wants to know.
_MEMORY = {
    "allocated_bytes.all.peak": "peak_allocated_bytes",
    "reserved_bytes.all.peak": "peak_reserved_bytes",
    "num_alloc_retries": "alloc_retries",
    "num_ooms": "ooms",
    "num_device_alloc": "device_allocs",
    "num_device_free": "device_frees",
}


def attempt(call: Callable[[], Any]) -> Any:
    """The value, or None where this torch or this machine cannot tell."""
    try:
        return call()
    except Exception as failure:
        let_through(failure)
        return None


def versions() -> dict[str, str]:
    """Versions of what decides speed."""
    found = {"python": platform.python_version(), "torch": str(torch.__version__)}
    for name in ("cuda", "hip", "xpu"):
        value = getattr(torch.version, name, None)
        if value:
            found[name] = str(value)
    return found


def switches() -> dict[str, Any]:
    """Switches of numerics and determinism as they stand now."""
    backends = torch.backends
    return {
        "matmul_precision": attempt(torch.get_float32_matmul_precision),
        "tf32_matmul": _tf32(lambda: backends.cuda.matmul),
        "tf32_cudnn": _tf32(lambda: backends.cudnn.conv, lambda: backends.cudnn),
        "cudnn_benchmark": attempt(lambda: bool(backends.cudnn.benchmark)),
        "cudnn_deterministic": attempt(lambda: bool(backends.cudnn.deterministic)),
        "onednn_enabled": attempt(_onednn),
        "deterministic": attempt(torch.are_deterministic_algorithms_enabled),
        "default_dtype": attempt(lambda: str(torch.get_default_dtype()).removeprefix("torch.")),
        "anomaly_detection": attempt(torch.is_anomaly_enabled),
        "flash_sdp": attempt(lambda: bool(backends.cuda.flash_sdp_enabled())),
        "traced_frames": attempt(_traced_frames),
    }


def _traced_frames() -> int:
    """Frames that tracemalloc keeps for each allocation, 0 where it does not run; it is not imported for that."""
    tracing = sys.modules.get("tracemalloc")
    return int(tracing.get_traceback_limit()) if tracing is not None and tracing.is_tracing() else 0


def _onednn() -> bool | None:
    """Whether ops of a CPU may use oneDNN; None where torch has none."""
    mkldnn = torch.backends.mkldnn
    return bool(mkldnn.enabled) if mkldnn.is_available() else None


def _tf32(place: Callable[[], Any], legacy: Callable[[], Any] | None = None) -> bool | None:
    """Whether fp32 work may run in TF32, by either API: the older switch raises once a script has used the newer one.

    place: what has the newer setting, `fp32_precision` (torch 2.9);  legacy: what has `allow_tf32`, where another.
    """
    precision = attempt(lambda: place().fp32_precision)
    if precision in ("tf32", "ieee"):
        return bool(precision == "tf32")
    allowed: bool | None = attempt(lambda: bool((legacy or place)().allow_tf32))
    return allowed


def look(initial: dict[str, Any], collector: Any, alive: model_facts.Live | None) -> dict[str, Any]:
    """The facts of the window: settings, optimizers, devices, memory, compilation, the model."""
    # Those that torch.compile traced away are known by being there.
    optimizers = collector.alive_optimizers() or (alive.optimizers if alive else [])
    params = attempt(lambda: parameters_of(optimizers)) or []
    autocast = sorted(collector.autocast)
    now = switches()
    modules = alive.modules if alive else []
    model = attempt(lambda: model_facts.model_facts(modules, params))
    trained = attempt(lambda: model_facts.trained(modules, params))
    settings = {
        **now,
        "matmul_precision_set": collector.setting_lines.precision_chosen
        or any(now[key] != initial[key] for key in ("matmul_precision", "tf32_matmul")),
        "python_tracer": collector.tracer,
        "autocast": bool(autocast),
        "autocast_dtype": autocast[-1] if autocast else None,
        "threads": attempt(torch.get_num_threads),
        "numpy_threads": attempt(blas_threads.count),
        "cores": attempt(lambda: cores.available()[0]),
        "cpu_bf16": attempt(cpu_bf16),
        "model_device": device_of(params),
        "accelerator_available": True if torch.cuda.is_initialized() else None,
        "accelerator_name": attempt(torch.cuda.get_device_name) if torch.cuda.is_initialized() else None,
        "compiled": bool(compiler.graphs()),
        "ddp": alive.ddp if alive else None,
        "fsdp": alive.fsdp if alive else None,
        "framework": attempt(frameworks.of_the_loop),
        "attention": attempt(lambda: attention.of_transformers(modules)),
        "set_at": attempt(lambda: collector.setting_lines.record(model_facts.held(model), trained)) or {},
    }
    return {
        "settings": settings,
        "optimizers": [
            facts | _made(collector.setting_lines, _place_of(one, collector.setting_lines))
            for one in optimizers
            if (facts := attempt(partial(optimizer_facts, one)))
        ],
        "devices": attempt(_devices) or [],
        "memory": attempt(_memory),
        "compile": attempt(compiler.facts),
        "model": model,
    }


def _place_of(optimizer: Any, lines: Any) -> dict[str, Any]:
    """Where it was made; by the script's text, once a loop ran, as only what is made before that is noted."""
    return lines.of_optimizer(optimizer) or attempt(lambda: lines.text.called(type(optimizer).__name__)) or {}


def _made(lines: Any, place: dict[str, Any]) -> dict[str, Any]:
    loop = attempt(lambda: lines.of_loop(place))
    return place | (attempt(lambda: lines.as_optioned(place)) or {}) | ({"foreach_at": loop} if loop else {})


def hidden_optimizer(collector: Any, alive: model_facts.Live | None) -> str:
    """A sentence for run.json where an optimizer is there that was never seen to step, and torch.compile is why."""
    if collector.optimizers or alive is None or not alive.optimizers:
        return ""
    if compiler.unhooks_optimizers():
        return (
            "torch before 2.3 does not record optimizer steps once torch.compile is used: they are neither counted "
            "nor in the trace, and without a DataLoader to mark steps, the window covers a fixed time; torch 2.3 "
            "records them"
        )
    if not compiler.graphs():
        return ""
    return (
        "the optimizer steps inside a compiled function, where its steps are not visible: they are not counted, and "
        "without a DataLoader to mark steps, the window covers a fixed time"
    )


def parameters_of(optimizers: list[Any]) -> list[Any]:
    """The parameters that these optimizers step."""
    return [param for one in optimizers for group in one.param_groups for param in group["params"]]


def optimizer_facts(optimizer: Any) -> dict[str, Any]:
    """An optimizer's class, its implementation switches and what it steps."""
    group = optimizer.param_groups[0]
    params = parameters_of([optimizer])
    state = [one for held in optimizer.state.values() for one in _tensors(held)]
    return {
        "state_bytes": sum(one.numel() * one.element_size() for one in state) if state else None,
        "state_dtypes": sorted({str(one.dtype).removeprefix("torch.") for one in state if one.dim()}),
        "dtypes": sorted({str(param.dtype).removeprefix("torch.") for param in params}),
        "name": type(optimizer).__name__,
        "foreach": group.get("foreach"),
        "fused": group.get("fused"),
        "capturable": group.get("capturable"),
        "tensors": sum(1 for param in params if param.requires_grad),
        "groups": len(optimizer.param_groups),
        "settings": len({_settings(one) for one in optimizer.param_groups}),
        "device": device_of(params) or "",
    }


def _settings(group: dict[str, Any]) -> tuple[str, ...]:
    """What a group of parameters is stepped with, as text.

    Of what is no plain number or text only the identity: a tensor may lie on a device, and is not read.
    """
    kept = ((key, value) for key, value in sorted(group.items()) if key not in _NO_SETTINGS)
    return tuple(f"{key}={value!r}" if _is_plain(value) else f"{key}@{id(value)}" for key, value in kept)


def _is_plain(value: object) -> bool:
    if isinstance(value, tuple):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, bool | int | float | str)


def _tensors(held: Any) -> list[Any]:
    """The tensors of one parameter's state; of a sharded one the part that lies here."""
    found = [one for one in held.values() if isinstance(one, torch.Tensor)] if isinstance(held, dict) else []
    return [one.to_local() if hasattr(one, "to_local") else one for one in found]


def loader_facts(iterator: Any) -> dict[str, Any]:
    """The arguments of a DataLoader, read from its iterator (which is what the loop has)."""
    sampler = iterator._index_sampler
    dataset = iterator._dataset
    workers = iterator._num_workers
    inner = getattr(sampler, "sampler", sampler)
    iterable = iterator._dataset_kind != 0
    return {
        "batch_size": attempt(lambda: int(sampler.batch_size)),
        "num_workers": workers,
        "pin_memory": getattr(iterator, "_pin_memory", None),
        "persistent_workers": getattr(iterator, "_persistent_workers", None),
        "prefetch_factor": getattr(iterator, "_prefetch_factor", None) if workers else None,
        "context": _context(iterator) if workers else None,
        "drop_last": getattr(sampler, "drop_last", None),
        "shuffle": None if iterable else type(inner).__name__ == "RandomSampler",
        "dataset": type(dataset).__name__,
        "dataset_size": None if iterable else attempt(lambda: len(dataset)),
        "collate": getattr(iterator._collate_fn, "__name__", type(iterator._collate_fn).__name__),
        "iterable": iterable,
    }


def _context(iterator: Any) -> str | None:
    """How the workers were started. Asking the default context for its method would fix it, so it is only read."""
    started = iterator._workers
    method = getattr(started[0], "_start_method", None) if started else None
    if method is None:
        import multiprocessing

        method = multiprocessing.get_start_method(allow_none=True)
    if method is None:
        default_fork = sys.platform.startswith("linux") and sys.version_info < (3, 14)
        method = "fork" if default_fork else None
    return method


def cpu_bf16() -> bool | None:
    """Whether this CPU multiplies bf16 in hardware; None where the system does not say."""
    with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as lines:
        flags = next((line for line in lines if line.startswith(("flags", "Features"))), "")
    return any(flag in flags.split() for flag in ("amx_bf16", "avx512_bf16", "bf16")) if flags else None


def device_of(params: list[Any]) -> str | None:
    """Device type of the parameters, those with gradients first."""
    with_grad = [param for param in params if param.grad is not None] or params
    return str(with_grad[0].device.type) if with_grad else None


def _devices() -> list[dict[str, Any]]:
    """Properties of the devices that the script brought up."""
    if not torch.cuda.is_initialized():
        return []
    found = []
    for index in range(torch.cuda.device_count()):
        properties = torch.cuda.get_device_properties(index)
        found.append(
            {
                "index": index,
                "name": properties.name,
                "capability": [properties.major, properties.minor],
                "multiprocessors": properties.multi_processor_count,
                "memory_bytes": properties.total_memory,
            }
        )
    return found


def _memory() -> dict[str, int] | None:
    if not torch.cuda.is_initialized():
        return None
    stats = torch.cuda.memory_stats()
    return {name: int(stats[key]) for key, name in _MEMORY.items() if key in stats}
