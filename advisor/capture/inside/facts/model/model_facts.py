"""What is alive in the script's process: the model by module, its wrappers, GradScalers, optimizers.

One walk over the objects that the garbage collector knows, when the window has closed. Types are compared, never
isinstance: proxies would be woken.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

from ..live_objects import live_objects

# Modules listed in run.json: the largest language models have some thousand.
_MOST_MODULES = 2_000
# Names of tensors in float64: one line makes them, or nobody reads them all.
_MOST_DOUBLES = 20
# Windows of fewer rows are as fast whole: `share.separable_window`. Of more filters one in many is looked at.
_WINDOW_ROWS = 11
_MOST_FILTERS = 16
# Of the largest number of a filter: a product of a row and a column in fp32 comes as near.
_ALIKE = 1e-4


@dataclass
class Live:
    """Objects found. wrappers: models wrapped for several ranks, as facts."""

    ddp: dict[str, Any] | None = None
    fsdp: dict[str, Any] | None = None
    optimizers: list[Any] = field(default_factory=list)
    modules: list[Any] = field(default_factory=list)
    scalars: list[Any] = field(default_factory=list)  # tensors of one number that have a graph


def find() -> Live:
    """The objects of interest that are alive."""
    bases = [(torch.optim.Optimizer, "optimizer")]
    distributed = sys.modules.get("torch.nn.parallel.distributed")
    sharded = sys.modules.get("torch.distributed.fsdp")
    bases += [(getattr(distributed, "DistributedDataParallel", None), "ddp")]
    bases += [(getattr(sharded, name, None), name) for name in ("FullyShardedDataParallel", "FSDPModule")]
    bases += [(torch.nn.Module, "module")]
    roles: dict[type, str] = {torch.Tensor: "tensor"}
    found = Live()
    for one in live_objects():
        kind = type(one)
        role = roles.get(kind)
        if role is None:
            role = roles[kind] = next((name for base, name in bases if base in kind.__mro__), "")
        if role:
            _take(found, one, role)
    return found


def scalars() -> list[Any]:
    """The tensors of one number that have a graph, of all that are alive."""
    return [one for one in live_objects() if type(one) is torch.Tensor and _is_scalar(one)]


def _is_scalar(tensor: torch.Tensor) -> bool:
    return not tensor.is_leaf and not tensor.dim()


def _take(found: Live, one: Any, role: str) -> None:
    if role == "tensor":
        if _is_scalar(one):
            found.scalars.append(one)
        return
    if role == "optimizer":
        if getattr(one, "param_groups", None):  # one that is being made has none yet
            found.optimizers.append(one)
        return
    found.modules.append(one)
    if role == "ddp":
        found.ddp = found.ddp or _ddp_facts(one)
    elif role == "FullyShardedDataParallel":
        found.fsdp = _fsdp_facts(one, found.fsdp)
    elif role == "FSDPModule":
        found.fsdp = _fully_facts(one, found.fsdp)


def _ddp_facts(model: Any) -> dict[str, Any]:
    names = ("find_unused_parameters", "gradient_as_bucket_view", "static_graph", "broadcast_buffers")
    facts = {name: getattr(model, name, None) for name in (*names, "forward_sync_buffers")}
    return {"kind": "DDP", **facts, "bucket_cap_bytes": getattr(model, "bucket_bytes_cap", None)}


def _fsdp_facts(model: Any, known: dict[str, Any] | None) -> dict[str, Any]:
    """Arguments of FullyShardedDataParallel, of the first of its units, and how many units there are."""
    if known is not None:
        return {**known, "units": known["units"] + 1}
    mixed = getattr(model, "mixed_precision", None)
    offload = getattr(getattr(model, "cpu_offload", None), "offload_params", None)
    return {
        "kind": "FSDP",
        "units": 1,
        "sharding_strategy": _name(getattr(model, "sharding_strategy", None)),
        "backward_prefetch": _name(getattr(model, "backward_prefetch", None)),
        "forward_prefetch": getattr(model, "forward_prefetch", None),
        "limit_all_gathers": getattr(model, "limit_all_gathers", None),
        "use_orig_params": getattr(model, "_use_orig_params", None),
        "cpu_offload": offload,
        "param_dtype": _dtype(getattr(mixed, "param_dtype", None)),
        "reduce_dtype": _dtype(getattr(mixed, "reduce_dtype", None)),
    }


def _fully_facts(model: Any, known: dict[str, Any] | None) -> dict[str, Any]:
    """Arguments of fully_shard, of the first module that has parameters of its own to shard."""
    if known is not None:
        return {**known, "units": known["units"] + 1}
    state = model._get_fsdp_state()
    group = getattr(state, "_fsdp_param_group", None)
    policy = getattr(state, "_mp_policy", None)
    post = getattr(group, "post_forward_mesh_info", None)
    return {
        "kind": "FSDP2",
        "units": 1,
        "reshard_after_forward": post is not None if group is not None else None,
        "cpu_offload": type(getattr(group, "offload_policy", None)).__name__ == "CPUOffloadPolicy" if group else None,
        "param_dtype": _dtype(getattr(policy, "param_dtype", None)),
        "reduce_dtype": _dtype(getattr(policy, "reduce_dtype", None)),
    }


def _name(value: Any) -> str | None:
    return str(getattr(value, "name", value)) if value is not None else None


def _dtype(value: Any) -> str | None:
    return str(value).removeprefix("torch.") if value is not None else None


def paths(modules: list[Any], params: list[Any]) -> dict[int, str]:
    """id of a module -> its path in the model that owns these parameters: `layer.0.conv`; the root by its class.

    Where several models own them (a generator and a discriminator), each path begins with the class of its model.
    """
    roots = _roots(modules, params)
    names = [dict(root.named_modules()) for root in roots]
    labels = _labels([type(root).__name__ for root in roots], set(names[0]) if len(names) == 1 else set())
    found: dict[int, str] = {}
    for label, inside in zip(labels, names, strict=True):
        before = f"{label}." if len(roots) > 1 else ""
        for name, module in inside.items():
            path = before + name if name else label
            # Half of a character would make a file that nothing reads.
            found.setdefault(id(module), path if path.isascii() else path.encode("utf-8", "backslashreplace").decode())
    return found


def trained(modules: list[Any], params: list[Any]) -> Any:
    """The module that most of these parameters belong to, without what wraps it (DDP, torch.compile); None if none."""
    sizes = {id(param): param.numel() for param in params}
    owners = _roots(modules, params)
    found = max(owners, key=lambda one: sum(sizes.get(id(param), 0) for param in one.parameters()), default=None)
    while (inside := _wrapped(found)) is not None:
        found = inside
    return found


def _wrapped(module: Any) -> Any:
    """The only module inside one that wraps it: named as DDP, FSDP and torch.compile name it; else None."""
    children = list(getattr(module, "_modules", {}).items())
    return children[0][1] if len(children) == 1 and children[0][0] in ("module", "_orig_mod") else None


def _roots(modules: list[Any], params: list[Any]) -> list[Any]:
    """The outermost modules that own these parameters, in the order of the parameters."""
    order = {id(param): at for at, param in reversed(list(enumerate(params)))}
    inner = {id(child) for one in modules for child in one.__dict__.get("_modules", {}).values()}
    found = []
    # A window before the first step may look while the script is making a model: its __init__ sets `_modules` last.
    for one in (one for one in modules if "_modules" in one.__dict__):
        places = [] if id(one) in inner else [order.get(id(param), len(order)) for param in one.parameters()]
        if places:
            found.append((min(places), one))
    # Sharded parameters are other objects while they are gathered: then any model with parameters is taken.
    owners = [pair for pair in found if pair[0] < len(order)] or found
    return [one for _, one in sorted(owners, key=lambda pair: pair[0])]


def _labels(kinds: list[str], taken: set[str]) -> list[str]:
    """A name for each model, no two alike and none that a module inside already has: Net, Net#2."""
    found: list[str] = []
    for kind in kinds:
        names = (kind if number == 1 else f"{kind}#{number}" for number in itertools.count(1))
        found.append(next(name for name in names if name not in taken and name not in found))
    return found


def model_facts(modules: list[Any], params: list[Any]) -> dict[str, Any] | None:
    """Parameters in all and by module. parameters of a module: its own and those of the modules inside it."""
    if not params:
        return None
    unique = list({id(param): param for param in params}.values())
    names = paths(modules, params)
    by_id = {id(one): one for one in modules}
    inside = [(path, by_id[key]) for key, path in names.items() if key in by_id]
    roots = {id(one) for one in _roots(modules, params)}
    everything = inside + _others(modules, names)
    rows = [_module_row(path, one, id(one) in roots) for path, one in inside[:_MOST_MODULES]]
    return {
        "parameters": sum(param.numel() for param in unique),
        "parameter_bytes": sum(param.numel() * param.element_size() for param in unique),
        "tensors": len(unique),
        "modules": rows,
        "modules_left_out": len(inside) - len(rows),
        "float64": list(itertools.islice(dict.fromkeys(_doubles(everything, unique)), _MOST_DOUBLES)),
        "separable": list(itertools.islice(_windows(everything), _MOST_DOUBLES)),
    }


def held(model: dict[str, Any] | None) -> dict[str, list[str]]:
    """The names of tensors by the setting that they make, as `SettingLines.record` takes them."""
    known = model or {}
    return {"double": known.get("float64", []), "window": [one["name"] for one in known.get("separable", [])]}


def _windows(modules: list[tuple[str, Any]]) -> Iterator[dict[str, Any]]:
    """Square filters of one channel each that are no weights, and products of a row and a column: name and shape."""
    for path, module in modules:
        tensors = {**vars(module), **vars(module).get("_buffers", {})}
        for name, one in tensors.items():
            if type(one) is torch.Tensor and _is_separable(one):
                yield {"name": f"{path}.{name}", "shape": list(one.shape)}


def _is_separable(filters: Any) -> bool:
    if filters.dim() != 4 or filters.requires_grad or not filters.is_floating_point():
        return False
    if filters.device.type != "cpu" or filters.layout is not torch.strided:
        return False  # another device would have to be waited for; other layouts lack these ops
    number, channels, rows, columns = filters.shape
    if channels != 1 or rows != columns or rows < _WINDOW_ROWS or not number:
        return False
    return all(_is_product(one[0]) for one in filters.detach()[:: max(number // _MOST_FILTERS, 1)])


def _is_product(one: Any) -> bool:
    """Whether a matrix is the product of a column and a row: those through its largest number give all others."""
    row, column = divmod(int(one.abs().argmax()), one.shape[1])
    largest = one[row, column]
    off = (one * largest - torch.outer(one[:, column], one[row])).abs().max()
    return bool(largest.abs() > 0 and off <= _ALIKE * largest**2)


def _others(modules: list[Any], names: dict[int, str]) -> list[tuple[str, Any]]:
    """(class, module) of those in no model that is trained, such as a loss or a transform."""
    return [(type(one).__name__, one) for one in modules if id(one) not in names]


def _doubles(modules: list[tuple[str, Any]], params: list[Any]) -> Iterator[str]:
    """Names of these modules' buffers and parameters in float64, where optimizers step parameters of other formats."""
    if all(param.dtype == torch.float64 for param in params):
        return
    for path, module in modules:
        held = {**module.__dict__.get("_parameters", {}), **module.__dict__.get("_buffers", {})}
        yield from (f"{path}.{name}" for name, one in held.items() if one is not None and one.dtype == torch.float64)


def _module_row(path: str, module: Any, root: bool) -> dict[str, Any]:
    inside = list(module.parameters())
    return {
        "path": path,
        "kind": type(module).__name__,
        "parameters": sum(param.numel() for param in inside),
        "parameter_bytes": sum(param.numel() * param.element_size() for param in inside),
        **({"root": True} if root else {}),
        **({"metric": True} if _is_metric(module) else {}),
    }


def _is_metric(module: Any) -> bool:
    """Whether it is a metric of torchmetrics, or a subclass of one: its call computes, its `update()` does not."""
    return any(base.__module__ == "torchmetrics.metric" for base in type(module).__mro__)
