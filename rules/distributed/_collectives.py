"""The lines that make the communication of data-parallel ranks shorter."""

from __future__ import annotations

from advisor.api import Fix, RankRecord, Trace

# From here on a step has more collectives than a large model has buckets of 25 MB (1.25 GB of gradients).
MANY = 50


def fewer_bytes(trace: Trace, record: RankRecord | None, calls: float, bytes_: float | None, on_device: bool) -> Fix:
    """What makes the communication of this step shorter: fewer collectives, larger buckets, fewer bytes."""
    known = record.settings.ddp if record else None
    wrapped = bool(known) or bool(trace.events.named("DistributedDataParallel.forward").any())
    if not wrapped and calls >= MANY:
        return Fix(
            "Use DistributedDataParallel, which reduces gradients in buckets during the backward pass",
            "exact",
            "for p in model.parameters():\n    dist.all_reduce(p.grad)",
            "model = DistributedDataParallel(model, gradient_as_bucket_view=True)",
        )
    bucket = float((known or {}).get("bucket_cap_mb") or 25)
    if wrapped and bytes_ is not None and bytes_ / max(calls, 1.0) < bucket * 0.5e6:
        return Fix(
            "Set a larger `bucket_cap_mb`, for fewer and larger reductions",
            "exact",
            "DistributedDataParallel(model)",
            f"DistributedDataParallel(model, bucket_cap_mb={bucket * 4:.0f}, gradient_as_bucket_view=True)",
        )
    # Host-side backends do not all add up bf16.
    if not on_device or _in_16_bit(trace):
        return Fix(
            "Accumulate gradients over two batches with `no_sync()`",
            "semantics",
            "loss.backward()\noptimizer.step()",
            "with model.no_sync() if step % 2 == 0 else nullcontext():\n    loss.backward()\n"
            "if step % 2 == 1:\n    optimizer.step()\n    optimizer.zero_grad()",
        )
    return Fix(
        "Reduce gradients in bf16, which halves the bytes",
        "numerics",
        "model = DistributedDataParallel(model)",
        "from torch.distributed.algorithms.ddp_comm_hooks import default_hooks\n\n"
        "model = DistributedDataParallel(model)\nmodel.register_comm_hook(None, default_hooks.bf16_compress_hook)",
    )


def _in_16_bit(trace: Trace) -> bool:
    """Whether the large collectives carry 16-bit numbers already."""
    sums = [one for one in trace.events.collective_table if "reduce" in one.name.lower() and one.in_elements > 0]
    return bool(sums) and max(sums, key=lambda one: one.in_elements).dtype in ("BFloat16", "Half")
