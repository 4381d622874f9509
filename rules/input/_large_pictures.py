"""Pictures that are decoded at a far larger size than the one they are used at."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from advisor.api import Finding, Fix, Loader, Pictures, Saving, Source, constant, duration

from ..shared._places import first_of, made_at, place
from ..shared._words import count, percent
from . import _workers
from ._loader import Seen

# libjpeg decodes at these fractions of the size; other formats may be stored at any.
_SCALED = {
    8: constant("pictures.scaled_8_share").range,
    4: constant("pictures.scaled_4_share").range,
    2: constant("pictures.scaled_2_share").range,
}
_OF_BYTES = constant("pictures.scaled_byte_share").value
_JPEG = ("JPEG", "MPO")
# Workers that have the cores less often leave them to every part of the step.
_ALL_PARTS = ("input", "forward", "backward", "optimizer", "other_ops", "host")


class Oversized(Struct, frozen=True):
    """Pictures of one kind that could be decoded at 1/scale of their size.

    part   that decoding them takes of the time to read samples;  saved: what of that time goes, least and most, with
           what making them smaller takes
    """

    pictures: Pictures
    scale: int
    saved: tuple[float, float]

    @property
    def part(self) -> float:
        """Of the time to read samples."""
        return self.pictures.share

    @property
    def used(self) -> tuple[int, int]:
        """Width and height that are needed."""
        times = self.pictures.times_smaller
        return round(self.pictures.width / times), round(self.pictures.height / times)


def advice(seen: Seen, least: float) -> Finding | None:
    """Decoding at a smaller size, if that saves this share of the step; else None."""
    found = oversized(seen.facts)
    if seen.facts is None or not found:
        return None
    low, high = (min(sum(one.saved[end] for one in found), 1.0) for end in (0, 1))
    saving, claims = of_samples(seen, low, high, _HOW)
    if saving.high_us < least * seen.step_us:
        return None
    most = found[0]
    width, height = (count(round(size)) for size in (most.pictures.width, most.pictures.height))
    part, each = percent(sum(one.part for one in found)), duration(most.pictures.decode_us)
    said = (
        f": decoding {most.pictures.format} pictures of {width} x {height} takes {part} of the time to read samples "
        f"({each} each{_at(most)}), and afterwards they are made {count(most.pictures.times_smaller)} times smaller."
    )
    facts = {
        "decoded": [[one.pictures.width, one.pictures.height] for one in found],
        "used": [list(one.used) for one in found],
        "decode_us": [one.pictures.decode_us for one in found],
        "share_of_samples": [one.part for one in found],
    }
    finding = seen.finding(seen.waits_for_batches(said), saving, _fix(most), facts, claims)
    return replace(finding, where=first_of(_decoded_at(found) or made_at(seen.facts.dataset_at), finding.where))


def oversized(facts: Loader | None) -> tuple[Oversized, ...]:
    """Kinds of pictures of which nearly all are made at least twice as small, those that take most first."""
    found = [
        Oversized(one, scale, _saved(one, scale))
        for one in (facts.pictures if facts else ())
        if (scale := next((scale for scale in _SCALED if one.times_smaller >= scale), 0))
    ]
    return tuple(sorted(found, key=lambda one: -one.part))


def _saved(one: Pictures, scale: int) -> tuple[float, float]:
    """The share of the time to read samples that goes, least and most."""
    pixels = 1 / scale**2
    if one.format in _JPEG:
        of_bytes = _OF_BYTES * one.bytes / max(one.width * one.height, 1.0)
        left = [min(share + of_bytes, 1.0) for share in reversed(_SCALED[scale])]
    else:
        left = [min(2 * pixels, 1.0), pixels]  # a smaller copy has less to decode for each pixel, or more
    smaller = one.share * one.smaller_us / max(one.decode_us, 1.0) * (1 - pixels)
    return one.share * (1 - left[0]) + smaller, one.share * (1 - left[1]) + smaller


_HOW = "the measured times to decode and to make smaller, less what they take at the smaller size"


def of_samples(seen: Seen, low: float, high: float, how: str) -> tuple[Saving, tuple[str, ...]]:
    """The saving of these shares of the time to read samples, and the parts of the step that it is in."""
    made = seen.made
    if seen.workers == 0 and made is not None:
        us, how = made.sample_us, f"{how}; high: plus what loading evicts from the caches"
        return seen.price.of_us(low * us, high * us + seen.price.refill_us(us), how), ("input",)
    of_batch = made.sample_us / made.us if made is not None and made.us else 1.0
    wait = seen.share if seen.on_device else seen.waited[0]
    # Workers that are waited for all the time make steps shorter by as much as their batches get.
    most = min(wait, high * of_batch)
    how += "; low: waits shrink as batches do; high: as much of the step goes as of a batch, but not more than the wait"
    saving = seen.price.shares(low * of_batch * min(wait, _for_batches(seen)), most, how)
    return (saving, ("idle_input",)) if seen.on_device else (_with_cores(saving, seen, high), _ALL_PARTS)


def _for_batches(seen: Seen) -> float:
    """The share of the step that surely waits for batches, and not for workers that start as an epoch begins."""
    persistent = seen.facts is not None and seen.facts.persistent_workers
    return 1.0 if seen.uneven is None or persistent else seen.uneven.usual_us / seen.uneven.step_us


def _with_cores(saving: Saving, seen: Seen, high: float) -> Saving:
    """Workers leave no more of the cores to the loop than they no longer use, each core its part."""
    mean_us = seen.uneven.step_us if seen.uneven is not None else seen.step_us
    sample_us = seen.made.sample_us if seen.made is not None else 0.0
    cores = (seen.record.settings.cores if seen.record is not None else None) or 1
    freed_us = high * sample_us * seen.waits.fetches / mean_us * seen.step_us / cores
    found = _workers.with_cores(saving, seen.record, seen.price.scale)
    return replace(found, high_us=min(found.high_us, saving.high_us + freed_us))


def _fix(one: Oversized) -> Fix:
    size = f"({', '.join(map(str, one.used))})"
    if one.pictures.format in _JPEG:
        return Fix(
            "Have the JPEG decoder scale pictures down: call `draft` before their pixels are read",
            "semantics",
            'picture = Image.open(path).convert("RGB")',
            f'picture = Image.open(path)\npicture.draft("RGB", {size})  # decodes at 1/{one.scale} of the size\n'
            'picture = picture.convert("RGB")',
        )
    return Fix(
        "Store smaller copies of the pictures once, before the training",
        "semantics",
        'picture = Image.open(path).convert("RGB")',
        f"Image.open(path).resize({size}).save(smaller / path.name)  # once\n\n"
        'picture = Image.open(smaller / path.name).convert("RGB")',
    )


def _decoded_at(found: Sequence[Oversized]) -> tuple[Source, ...]:
    return tuple(at for one in found for at in made_at(one.pictures.place))


def _at(one: Oversized) -> str:
    return place(next(iter(_decoded_at([one])), None))
