"""Numbers and code lines as rules write them in messages and fixes."""

from __future__ import annotations

from advisor.api import Loader, Price, Ranks, Scale, duration

# Below it the nearest whole number of steps is two or more.
_ONCE_IN_TWO = 2 / 3


def percent(share: float) -> str:
    """A share: '44 %', '0.6 %'."""
    return f"{share * 100:.1f} %" if share < 0.0095 else f"{share * 100:.0f} %"


def each_step(of: Price | Ranks, us: float) -> str:
    """Recorded µs per step in time of the un-profiled one: '1.2 ms of each step (5 %)'."""
    return of_step(of.scale.scaled(us), of.scale)


def of_step(us: float, scale: Scale) -> str:
    """The same of µs of the un-profiled step."""
    return f"{duration(us)} of each step ({percent(us / scale.step_us)})"


def count(number: float) -> str:
    """A count per step: '3', '0.25', '2,020'."""
    return f"{number:,.0f}" if number == round(number) or number >= 10 else f"{number:.2g}"


def often(per_step: float) -> str:
    """'once a step', '2 times a step'; 'once in 5 steps' for what is rarer. per_step: above 0."""
    if per_step < _ONCE_IN_TWO:
        return f"once in {count(round(1 / per_step))} steps"
    return "once a step" if round(per_step, 1) == 1 else f"{count(per_step)} times a step"


def plural(number: float, noun: str) -> str:
    """'1 worker', '4 workers'."""
    return f"{count(number)} {noun}" if number == 1 else f"{count(number)} {noun}s"


def loader_call(loader: Loader | None, **changes: object) -> str:
    """The DataLoader line with the user's own values where they are known, and with `changes`."""
    known: dict[str, object] = {}
    if loader:
        known = {"batch_size": loader.batch_size, "num_workers": loader.num_workers, "pin_memory": loader.pin_memory}
        known = {name: value for name, value in known.items() if value not in (None, False)}
        if loader.shuffle:
            known["shuffle"] = True
    given = ", ".join(f"{name}={value!r}" for name, value in (known | changes).items())
    return f"DataLoader(dataset, {given})" if given else "DataLoader(dataset, ...)"
