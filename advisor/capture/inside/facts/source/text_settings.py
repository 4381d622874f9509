"""Settings that only the script's text tells: what a node of its syntax tree sets or mentions."""

from __future__ import annotations

import ast
import os
from collections.abc import Callable, Iterator

from .syntax import given, is_true, last_name

# One of these stands in a file that sets something.
WORDS = (
    "set_num_threads",
    "double",
    "float64",
    "checkpoint",
    "cudnn",
    "mkldnn",
    "environ",
    "putenv",
    "tracemalloc",
    "Profile",
    "profiler",
    "settrace",
    "setprofile",
    "requires_grad",
    "collect",
    "vectorize",
    "max_length",
    "autocast",
    "detect_anomaly",
    "attn_implementation",
    "compute_metrics",
    "precision",
    "bf16",
    "fp16",
    "skip_memory_metrics",
    "reload_dataloaders",
    "bucket_cap_mb",
    "fully_shard",
    "max_norm",
    "vocab_size",
    "HistogramObserver",
    "sparse",
    "dense",
    "toarray",
    "train_sampling_strategy",
    "group_by_length",
)
_SETTINGS = (
    "threads",
    "tracemalloc",
    "python_tracer",
    "gc.collect",
    "padding",
    "double",
    "checkpointing",
    "autocast",
    "detect_anomaly",
    "attn_implementation",
    "compute_metrics",
    "requires_grad",
    "cudnn_benchmark",
    "cudnn_deterministic",
    "onednn_enabled",
    "memory_metrics",
    "reloaded_loaders",
    "bucket_cap_mb",
    "fully_shard",
    "max_norm",
    "vocab_size",
    "histogram_observer",
    "dense_gradients",
    "to_dense",
    "random_batches",
)
# Calls of which there may be several, one for each kind of module: the first stands for them all.
FIRST_COUNTS = ("fully_shard",)
# What says more than another mention of a setting -> the setting.
FIRST_OF = {".double()": "double", "precision=64": "double", "checkpointing=True": "checkpointing"}
_SWITCHES = {
    "cudnn_benchmark": ("cudnn", "benchmark"),
    "cudnn_deterministic": ("cudnn", "deterministic"),
    "onednn_enabled": ("mkldnn", "enabled"),
}
# Calls that make or start one: cProfile's and Lightning's profilers of Python's calls, and Python's own hooks.
_TRACERS = ("Profile", "AdvancedProfiler", "settrace", "setprofile")
# Of torch, and of SciPy's sparse matrices and arrays.
_DENSE = ("to_dense", "todense", "toarray")
_CHECKPOINTS = ("checkpoint", "checkpoint_sequential", "checkpoint_wrapper", "gradient_checkpointing_enable")
# Arguments that are a setting whatever they are given, but None; what skips something counts where it is False.
_GIVEN = {
    "skip_memory_metrics": "memory_metrics",
    "reload_dataloaders_every_n_epochs": "reloaded_loaders",
    "bucket_cap_mb": "bucket_cap_mb",
}
# Arguments and fields that make a setting by what they are given, a name's value as well as a constant.
ARGUMENTS = (
    *_GIVEN,
    "detect_anomaly",
    "attn_implementation",
    "gradient_checkpointing",
    "precision",
    "mixed_precision",
    "bf16",
    "fp16",
    "profiler",
    "sparse",
    "train_sampling_strategy",
    "group_by_length",
)
# Settings that a call or an assignment makes -> the functions that are called, and which values make the setting.
VALUES: dict[str, tuple[tuple[str, ...], Callable[[object], bool]]] = {
    "threads": (("set_num_threads",), bool),
    "anomaly_detection": (("set_detect_anomaly", "detect_anomaly"), bool),
    "deterministic": (("use_deterministic_algorithms", "set_deterministic_debug_mode"), bool),
    "cudnn_deterministic": ((), bool),
    "default_dtype": (("set_default_dtype",), bool),
    "matmul_precision": (("set_float32_matmul_precision",), lambda value: value is not None),
    "flash_sdp": (("enable_flash_sdp",), lambda value: value is False),
    "onednn_enabled": (("set_flags", "flags"), lambda value: value is False),
    "cudnn_benchmark": ((), lambda value: value is not None),
}
_VECTORIZE = "vectorize"
_SETS_VARIABLE = ("setdefault", "putenv")


def settings_of(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """The settings that a node sets or mentions, and where; those that only stand for another, by `FIRST_OF`'s names.

    What is given by name, in a call of many lines perhaps, stands where its value does.
    """
    yield from ((name, node) for name in _of_node(node))
    yield from ((name, at) for given_to, value, at in given(node) if (name := _of_name(given_to, value)))
    if isinstance(node, ast.Call):
        of = ("max_norm",) if "embedding" in last_name(node.func).lower() else ("vocab_size",)
        yield from ((one.arg, one.value) for one in node.keywords if one.arg in of)


def _of_name(name: str, value: ast.expr) -> str:
    """The setting that a name is of with what it is given; empty where of none."""
    return of_value(name, value.value if isinstance(value, ast.Constant) else None)


# "padding": samples as long as the longest that are allowed, as a tokenizer or a collator is asked for.
_EXACTLY = (
    ("padding", "max_length", "padding"),
    ("pad_to_max_length", True, "padding"),
    ("detect_anomaly", True, "detect_anomaly"),
    ("profiler", "advanced", "python_tracer"),
    ("sparse", False, "dense_gradients"),
    ("train_sampling_strategy", "random", "random_batches"),
    ("group_by_length", False, "random_batches"),
)


def of_value(name: str, given_it: object) -> str:
    """The setting that a name is of with that value, as an argument of a framework is; empty where of none.

    Sources: Lightning's `Trainer` (detect_anomaly, precision, profiler, reload_dataloaders_every_n_epochs),
    Transformers' `TrainingArguments` (bf16, fp16, gradient_checkpointing, skip_memory_metrics; group_by_length, and
    train_sampling_strategy since version 5) and configurations of models (attn_implementation), Accelerate's
    `mixed_precision`, DistributedDataParallel (bucket_cap_mb), embeddings (sparse).
    """
    counts = given_it is False if name == "skip_memory_metrics" else bool(given_it)
    if counts and name in _GIVEN:
        return _GIVEN[name]
    if given_it is True and "checkpoint" in name:
        return "checkpointing=True"
    if exactly := next((said for one, value, said in _EXACTLY if (one, value) == (name, given_it)), ""):
        return exactly
    if name == "compute_metrics" or (name == "attn_implementation" and given_it == "eager"):
        return name
    if name == "precision" and str(given_it) in ("64", "64-true"):
        return "precision=64"
    narrow = name in ("precision", "mixed_precision") and "16" in str(given_it)
    return "autocast" if narrow or (given_it is True and name in ("bf16", "fp16")) else ""


def _of_node(node: ast.AST) -> Iterator[str]:
    called = last_name(node.func) if isinstance(node, ast.Call) else ""
    if called == "set_num_threads":
        yield "threads"
    owner = last_name(getattr(node.func, "value", node)) if isinstance(node, ast.Call) else ""
    if (owner, called) == ("tracemalloc", "start"):
        yield "tracemalloc"
    if called in _TRACERS:
        yield "python_tracer"
    if (owner, called) == ("gc", "collect"):
        yield "gc.collect"
    if called == "double":
        yield ".double()"
    if called in _DENSE:
        yield "to_dense"
    if _mentions_double(node):
        yield "double"
    if called in _CHECKPOINTS:
        yield "checkpointing"
    if called in ("autocast", "fully_shard"):
        yield called
    if isinstance(node, (ast.Name, ast.Attribute)) and last_name(node) == "HistogramObserver":
        yield "histogram_observer"
    if _wants_gradient(node):
        yield "requires_grad"
    if name := _vectorizes(node):
        yield f"{_VECTORIZE} {name}"
    yield from (name for name, (backend, switch) in _SWITCHES.items() if _switches(backend, switch, node))
    yield from _variables(node)


def is_set(name: str) -> bool:
    """A variable of the environment counts where it is set: the text of a branch that did not run tells nothing."""
    return name in _SETTINGS or name in os.environ or name.startswith(f"{_VECTORIZE} ")


def _switches(backend: str, switch: str, node: ast.AST) -> bool:
    """Whether it is `torch.backends.<backend>.<switch> = …`, or a call of its `flags` or `set_flags`."""
    if isinstance(node, ast.Call):
        within = node.func.value if isinstance(node.func, ast.Attribute) else None
        named = backend == "mkldnn" and within is not None and last_name(within) == backend
        return named and last_name(node.func) in ("flags", "set_flags")
    return isinstance(node, ast.Assign) and any(
        isinstance(target, ast.Attribute) and target.attr == switch and last_name(target.value) == backend
        for target in node.targets
    )


def _vectorizes(node: ast.AST) -> str:
    """The function of Python that it hands to `np.vectorize`, as an argument or by decoration; empty where none."""
    if isinstance(node, ast.Call) and last_name(node.func) == _VECTORIZE and node.args:
        return last_name(node.args[0])
    if isinstance(node, ast.FunctionDef):
        by = (one.func if isinstance(one, ast.Call) else one for one in node.decorator_list)
        return node.name if any(last_name(one) == _VECTORIZE for one in by) else ""
    return ""


def _variables(node: ast.AST) -> list[str]:
    """The variables of the environment that a statement or a call sets."""
    if isinstance(node, ast.Assign):
        kept = [one for one in node.targets if isinstance(one, ast.Subscript) and last_name(one.value) == "environ"]
        return [last_name(one) for one in kept]
    if isinstance(node, ast.Call) and last_name(node.func) in _SETS_VARIABLE and node.args:
        first = node.args[0]
        return [first.value] if isinstance(first, ast.Constant) and isinstance(first.value, str) else []
    return []


def _wants_gradient(node: ast.AST) -> bool:
    """Whether it is `x.requires_grad_()`, `x.requires_grad = True`, or `requires_grad=True` of all but a Parameter."""
    if isinstance(node, ast.Assign):
        return is_true(node.value) and any(last_name(target) == "requires_grad" for target in node.targets)
    if not isinstance(node, ast.Call) or last_name(node.func) == "Parameter":
        return False
    given = [*node.args[:1], *(one.value for one in node.keywords if one.arg == "requires_grad")]
    if last_name(node.func) == "requires_grad_":
        return all(map(is_true, given))
    return any(one.arg == "requires_grad" and is_true(one.value) for one in node.keywords)


def _mentions_double(node: ast.AST) -> bool:
    if isinstance(node, ast.Attribute):
        return node.attr in ("float64", "double")
    return isinstance(node, ast.Constant) and node.value == "float64"
