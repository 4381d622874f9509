"""What a treatment is called by a framework that owns the loop: arguments of its own class, not of torch's."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from msgspec import Struct, field

from advisor.model import Treatment

Given = Mapping[str, Any]
# Name of the edit that writes such a call; no treatment of a process.
EDIT = "framework_call"


class OwnCall(Struct, frozen=True):
    """Arguments of one class of the framework.

    names: of the class, and of those that extend it. packages: it is imported from one of them. around: the call that
    takes the class, `{}`. without: arguments that contradict the new ones. instead: argument -> the only values that
    the change may replace, where it has others that mean something else. undone: argument -> the value that the call
    must hold now, since the change only takes it back. renamed: words of torch -> words of the framework in a title;
    title: another one where that is not enough. treats: the treatment as far as the framework has it.
    """

    names: tuple[str, ...]
    packages: tuple[str, ...]
    arguments: Given
    around: str = "{}"
    without: tuple[str, ...] = ()
    instead: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    undone: Given = field(default_factory=dict)
    renamed: Mapping[str, str] = field(default_factory=dict)
    title: str = ""
    treats: Treatment | None = None

    @property
    def before(self) -> str:
        """The lines to look for."""
        return self.around.format(f"{self.names[0]}({', '.join(['...', *_words(self.undone)])})")

    @property
    def after(self) -> str:
        """What they become."""
        return self.around.format(f"{self.names[0]}({', '.join(['...', *_words(self.arguments)])})")

    @property
    def edit(self) -> Treatment:
        """The change as `advisor.fixing.edits` writes it."""
        arguments = {
            "names": list(self.names),
            "packages": list(self.packages),
            "arguments": dict(self.arguments),
            "without": list(self.without),
            "instead": {name: list(values) for name, values in self.instead.items()},
            "undone": dict(self.undone),
        }
        return Treatment(EDIT, arguments)


def _mixed(given: Given) -> tuple[str, str]:
    """The half-precision format, and the title of such a fix."""
    half = "fp16" if given.get("dtype") == "float16" else "bf16"
    return half, f"Train in mixed precision ({half})"


def _words(arguments: Given) -> list[str]:
    return [f"{name}={_literal(value)}" for name, value in arguments.items()]


def _literal(value: object) -> str:
    return f'"{value}"' if isinstance(value, str) else repr(value)


def of(framework: str | None, treatment: Treatment | None) -> OwnCall | None:
    """The framework's call for a treatment; None where it has none, or the treatment is torch's own there as well."""
    make = _CALLS.get((framework or "", treatment.name)) if treatment else None
    return make(treatment.arguments) if make and treatment else None


def of_all(treatment: Treatment) -> Iterator[OwnCall]:
    """The calls of all frameworks, for a script whose framework is not known."""
    frameworks = dict.fromkeys(framework for framework, _ in _CALLS)
    return filter(None, (of(framework, treatment) for framework in frameworks))


def _arguments_class(arguments: Given, **more: Any) -> OwnCall:
    return OwnCall(("TrainingArguments", "Seq2SeqTrainingArguments"), ("transformers",), arguments, **more)


def _trainer(arguments: Given, **more: Any) -> OwnCall:
    return OwnCall(("Trainer",), ("lightning", "pytorch_lightning"), arguments, **more)


# -- transformers: all in TrainingArguments

_LOADER = ("num_workers", "pin_memory", "persistent_workers", "prefetch_factor")


def _arguments_loader(given: Given) -> OwnCall | None:
    if not set(given) <= set(_LOADER):
        return None
    renamed = {f"{name}=": f"dataloader_{name}=" for name in given}
    without = () if given.get("num_workers", 1) else tuple(f"dataloader_{name}" for name in _LOADER[2:])
    arguments = {f"dataloader_{name}": value for name, value in given.items()}
    return _arguments_class(arguments, without=without, renamed=renamed)


def _arguments_batch(given: Given) -> OwnCall | None:
    size = given.get("size")
    return _arguments_class({"per_device_train_batch_size": size}) if size else None


def _arguments_optimizer(given: Given) -> OwnCall | None:
    if dict(given) != {"fused": True}:
        return None
    name = "adamw_torch_fused"  # the other optimizers of this argument have no fused update
    instead = {"optim": ("adamw_torch",)}
    return _arguments_class({"optim": name}, instead=instead, renamed={"fused=True": f'optim="{name}"'})


def _arguments_precision(given: Given) -> OwnCall | None:
    half, title = _mixed(given)
    return _arguments_class({half: True}, without=("bf16" if half == "fp16" else "fp16",), title=title)


def _arguments_compile(given: Given) -> OwnCall | None:
    mode = {"torch_compile_mode": given["mode"]} if "mode" in given else {}
    return _arguments_class({"torch_compile": True, **mode}) if set(given) <= {"mode"} else None


def _arguments_tf32(given: Given) -> OwnCall | None:
    return _arguments_class({"tf32": True}) if given.get("precision") == "high" else None


_PARALLEL = ("find_unused_parameters", "bucket_cap_mb", "broadcast_buffers", "static_graph")


def _arguments_parallel(given: Given) -> OwnCall | None:
    known = {name: value for name, value in given.items() if name in _PARALLEL}
    renamed = {f"{name}=": f"ddp_{name}=" for name in known}
    arguments = {f"ddp_{name}": value for name, value in known.items()}
    return _arguments_class(arguments, renamed=renamed, treats=Treatment("ddp", known)) if known else None


def _arguments_calls(given: Given) -> OwnCall | None:
    if "torch.use_deterministic_algorithms" not in given["names"]:
        return None
    return _arguments_class({"full_determinism": False}, undone={"full_determinism": True})


_OF_LOADER = {"batch_size": "per_device_train_batch_size"} | {name: f"dataloader_{name}" for name in _LOADER}


def loader_words(framework: str | None, text: str) -> str:
    """Lines that make a DataLoader as the framework has them; as they are where it makes none, or lacks an argument."""
    call = re.match(r"DataLoader\(dataset, (.*?)\)", text)
    given = re.findall(r"(\w+)=", call[1]) if call else []
    if framework != "transformers" or call is None or not set(given) <= set(_OF_LOADER):
        return text
    words = re.sub(r"(\w+)=", lambda name: f"{_OF_LOADER[name[1]]}=", call[1])
    return f"TrainingArguments(..., {words}){text[call.end() :]}"


def loader_title(framework: str | None, title: str) -> str:
    """A title that names arguments of a DataLoader, as the framework names them."""
    if framework != "transformers":
        return title
    return re.sub(r"`(\w+)=", lambda name: f"`{_OF_LOADER.get(name[1], name[1])}=", title)


# -- Lightning: loaders and optimizers are the script's own


def _trainer_precision(given: Given) -> OwnCall | None:
    half, title = _mixed(given)
    return _trainer({"precision": f"{half.removeprefix('fp')}-mixed"}, title=title)


def _trainer_parallel(given: Given) -> OwnCall | None:
    packages = ("lightning", "pytorch_lightning")
    return OwnCall(("DDPStrategy",), packages, given, around="Trainer(..., strategy={})")


def _trainer_calls(given: Given) -> OwnCall | None:
    options = {
        "torch.autograd.set_detect_anomaly": "detect_anomaly",
        "torch.use_deterministic_algorithms": "deterministic",
    }
    option = next((options[name] for name in given["names"] if name in options), None)
    return _trainer({option: False}, undone={option: True}) if option else None


# -- accelerate: the same, in Accelerator


def _accelerator_precision(given: Given) -> OwnCall | None:
    half, title = _mixed(given)
    return OwnCall(("Accelerator",), ("accelerate",), {"mixed_precision": half}, title=title)


def _accelerator_parallel(given: Given) -> OwnCall | None:
    around = "Accelerator(..., kwargs_handlers=[{}])"
    return OwnCall(("DistributedDataParallelKwargs",), ("accelerate",), given, around=around)


_CALLS: dict[tuple[str, str], Callable[[Given], OwnCall | None]] = {
    ("transformers", "autocast"): _arguments_precision,
    ("transformers", "batch"): _arguments_batch,
    ("transformers", "calls"): _arguments_calls,
    ("transformers", "compile"): _arguments_compile,
    ("transformers", "ddp"): _arguments_parallel,
    ("transformers", "loader"): _arguments_loader,
    ("transformers", "matmul_precision"): _arguments_tf32,
    ("transformers", "optimizer"): _arguments_optimizer,
    ("lightning", "autocast"): _trainer_precision,
    ("lightning", "calls"): _trainer_calls,
    ("lightning", "ddp"): _trainer_parallel,
    ("accelerate", "autocast"): _accelerator_precision,
    ("accelerate", "ddp"): _accelerator_parallel,
}
