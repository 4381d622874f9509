"""What `advisor tune` may turn: knobs with a few choices each, every choice a set of treatments."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from advisor.errors import UsageError
from advisor.model import Treatment
from advisor.trying.treatments import merged, parse

AS_IS = "as it is"
BATCH = "batch"
# Knob -> the choice that is taken; a knob that is not named stays as the script has it.
Setting = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Knob:
    """choices: label -> treatments. rounds: the losses are not bitwise those of the script, so they are looked at."""

    name: str
    choices: Mapping[str, tuple[Treatment, ...]]
    rounds: bool = False


def of_words(words: Iterable[str], cores: int, *, on_device: bool) -> list[Knob]:
    """The knobs that are named, or the usual ones without a name: `batch`, `workers`, or `loader:prefetch_factor=2|8`.

    Raises UsageError for what is none.
    """
    usual = _usual(cores, on_device=on_device)
    more = {"optimizer": Knob("optimizer", {"fused": (Treatment("optimizer", {"fused": True}),)}, rounds=True)}
    found = []
    for word in words:
        if "=" in word:
            found.append(_own(word))
        elif word in usual | more:
            found.append((usual | more)[word])
        else:
            raise UsageError(f"there is no knob '{word}'; known: {', '.join(usual | more)}, or write name:arg=a|b")
    return found or list(usual.values())


def _own(word: str) -> Knob:
    name, _, values = word.partition("=")
    if ":" not in name or "," in word:
        raise UsageError(f"knob '{word}': write name:argument=value|value, such as loader:prefetch_factor=2|8")
    return Knob(name, {value: (parse(f"{name}={value}"),) for value in values.split("|")}, rounds=True)


def _usual(cores: int, *, on_device: bool) -> dict[str, Knob]:
    workers = dict.fromkeys(count for count in (0, 1, 2, 4, 8, 16, cores) if count <= cores)
    threads = dict.fromkeys(count for count in (1, cores // 2, cores) if count)
    precision: dict[str, tuple[Treatment, ...]] = {"bf16": (Treatment("autocast", {"dtype": "bfloat16"}),)}
    if on_device:
        precision["tf32"] = (Treatment("matmul_precision", {"precision": "high"}),)
    knobs = [
        Knob(BATCH, {}),  # the ladder of sizes is found by measuring
        Knob("workers", {str(count): (_workers(count),) for count in workers}),
        Knob("prefetch", {str(count): (Treatment("loader", {"prefetch_factor": count}),) for count in (4, 8)}),
        Knob("threads", {str(count): (Treatment("threads", {"count": count}),) for count in threads}, rounds=True),
        Knob("precision", precision, rounds=True),
        Knob("layout", {"channels_last": (Treatment("channels_last"),)}, rounds=True),
        Knob("compile", {"default": (Treatment("compile"),)}, rounds=True),
    ]
    if on_device:
        knobs.append(Knob("pin_memory", {"True": (Treatment("loader", {"pin_memory": True}),)}))
    return {one.name: one for one in knobs}


def _workers(count: int) -> Treatment:
    return Treatment("loader", {"num_workers": count, "persistent_workers": True} if count else {"num_workers": 0})


def treatments_of(setting: Setting, knobs: Sequence[Knob]) -> tuple[Treatment, ...]:
    """What makes this setting."""
    parts = [one for knob in knobs if knob.name in setting for one in _choice(knob, setting[knob.name])]
    return merged(parts)


def _choice(knob: Knob, label: str) -> tuple[Treatment, ...]:
    return (Treatment("batch", {"scale": int(label)}),) if knob.name == BATCH else knob.choices[label]


def words_of(setting: Setting) -> str:
    """`batch x 8, workers 1`."""
    return ", ".join(f"{name} x {label}" if name == BATCH else f"{name} {label}" for name, label in setting.items())
