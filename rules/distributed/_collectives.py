"""The lines that make the communication of data-parallel ranks shorter."""

from __future__ import annotations

from advisor.api import Fix, Library, RankRecord, Trace, Treatment

from ._libraries import data_fix

# From here on a step has more collectives than a large model has buckets of 25 MB (1.25 GB of gradients).
MANY = 50


def fewer_bytes(
    trace: Trace, record: RankRecord | None, library: Library, talk: tuple[float, float | None, float], on_device: bool
) -> Fix | None:
    """What makes the communication of this step shorter: fewer collectives, larger buckets, fewer bytes.

    talk: collectives per step, their bytes (None where not stated), the share of their time that computation covers
    """
    calls, bytes_, hidden = talk
    known = (record.settings.ddp if record else None) or {}
    bucket = float(known.get("bucket_cap_bytes") or _DEFAULT_BUCKET)
    if library.name == "ddp" and bytes_ is not None and bytes_ / max(calls, 1.0) < bucket / 2 and calls > 1:
        return Fix(
            "Set a larger `bucket_cap_mb`, for fewer and larger reductions",
            "numerics",
            "DistributedDataParallel(model)",
            f"DistributedDataParallel(model, bucket_cap_mb={bucket * 4 / 2**20:.0f}, gradient_as_bucket_view=True)",
            Treatment("ddp", {"bucket_cap_mb": round(bucket * 4 / 2**20), "gradient_as_bucket_view": True}),
        )
    return data_fix(trace, library, on_device, hidden, calls >= MANY)


# DistributedDataParallel's `bucket_cap_mb` is 25 unless it is given.
_DEFAULT_BUCKET = 25 << 20
