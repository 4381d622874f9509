"""Pictures that are decoded and made smaller in the same way in each epoch, and whose small copies fit in memory."""

from __future__ import annotations

from msgspec.structs import replace

from advisor.api import Finding, Fix, Loader, Pictures, data_size, duration

from ..shared._places import first_of, made_at
from ..shared._words import count, percent
from ._large_pictures import of_samples
from ._loader import Seen

# Chosen, not measured: what a machine that trains has to spare. Forked workers share what was read before them.
_FITS_BYTES = 1 << 30
# Samples that take less than this part of it are not decoded each time: the script keeps them already.
_EACH_TIME = 0.5

_KEEP = Fix(
    "Decode and shrink each picture once, and keep the small ones in memory",
    "exact",
    "def __getitem__(self, index):\n    picture = self.load(self.paths[index])\n    return self.augment(picture)",
    "def __init__(self, ...):\n    self.pictures = [self.load(path) for path in self.paths]  # once\n\n"
    "def __getitem__(self, index):\n    return self.augment(self.pictures[index])  # what is drawn by lot stays here",
)


def advice(seen: Seen, least: float) -> Finding | None:
    """Keeping the small pictures, if that saves this share of the step; else None."""
    loader = seen.facts
    known = [one for one in loader.pictures if _read_again(one, loader)] if loader is not None else []
    if not known or loader is None or loader.dataset_size is None:
        return None
    held = sum(one.small_bytes for one in known) * loader.dataset_size
    if held > _FITS_BYTES:
        return None
    part = min(sum(one.share * one.small_us / max(one.decode_us, 1.0) for one in known), 1.0)
    saving, claims = of_samples(seen, part, part, "the measured time until pictures are decoded and made smaller")
    if saving.high_us < least * seen.step_us:
        return None
    most = max(known, key=lambda one: one.small_us)
    said = (
        f": pictures of {count(round(most.width))} x {count(round(most.height))} are decoded and made "
        f"{count(most.times_smaller)} times smaller in each epoch ({duration(most.small_us)} each, {percent(part)} of "
        f"the time to read samples), and all {count(loader.dataset_size)} small ones take {data_size(held)}."
    )
    facts: dict[str, object] = {"small_us": most.small_us, "held_bytes": held, "share_of_samples": part}
    finding = seen.finding(seen.waits_for_batches(said), saving, _KEEP, facts, claims)
    places = [at for one in known for at in (*made_at(one.asked), *made_at(one.place))]
    return replace(finding, where=first_of(tuple(dict.fromkeys(places)), finding.where))


def _read_again(one: Pictures, loader: Loader) -> bool:
    """Whether its pictures are decoded in each of several epochs."""
    return (
        (loader.iterators or 0) > 1 and one.small_bytes > 0 and (loader.sample_us or 0.0) >= _EACH_TIME * one.small_us
    )
