"""Pictures that are transformed at full size, and of which a batch gets a few of their pixels."""

from __future__ import annotations

from msgspec.structs import replace

from advisor.api import Finding, Fix, Pictures, duration

from ..shared._places import first_of, made_at, place
from ..shared._words import count, percent
from ._large_pictures import of_samples
from ._loader import Seen


def advice(seen: Seen, least: float) -> Finding | None:
    """Making pictures smaller first, if that saves this share of the step; else None."""
    most = max(seen.facts.pictures if seen.facts else (), key=_saved, default=None)
    if most is None or _saved(most) <= 0:
        return None
    saved = min(_saved(most), 1.0)
    saving, claims = of_samples(seen, saved, saved, "the measured time of this work, less that of what is kept")
    if saving.high_us < least * seen.step_us:
        return None
    at = made_at(most.large_at)
    who = most.large_by or "the script"
    said = (
        f": {who} works on whole pictures of {count(round(most.width))} x {count(round(most.height))}"
        f"{place(next(iter(at), None))}, which takes {duration(most.large_us)} each, and of their pixels a batch gets "
        f"{percent(most.kept)}."
    )
    facts = {"size": [most.width, most.height], "kept": most.kept, "large_us": most.large_us, "share_of_samples": saved}
    finding = seen.finding(seen.waits_for_batches(said), saving, _fix(most), facts, claims)
    return replace(finding, where=first_of(at, finding.where))


def _saved(one: Pictures) -> float:
    """The share of the time to read samples that goes: what work on a pixel takes is the same for each."""
    return one.share * one.large_us / max(one.decode_us, 1.0) * (1 - one.kept)


def _fix(one: Pictures) -> Fix:
    transform = f"transforms.{one.large_by}(…)," if one.large_by else "picture = change(picture)"
    smaller = "transforms.RandomResizedCrop(…)," if one.large_by else "picture = crop(picture)"
    return Fix(
        "Crop or resize first, then transform what is left",
        "semantics",
        f"{transform}\n{smaller}",
        f"{smaller}\n{transform}  # the same for single pixels; contrast and blur look at others, too",
    )
