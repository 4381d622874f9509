"""What shortens communication in the words of the library that does it: DDP, FSDP, DeepSpeed, Megatron, torchrec.

Where each line is documented:

- DDP: torch.nn.parallel.DistributedDataParallel (`bucket_cap_mb`), "DDP Communication Hooks"
  (`bf16_compress_hook`).
- DDP of compiled models: "TorchDynamo DDPOptimizer" in the notes on DistributedDataParallel
  (`torch._dynamo.config.optimize_ddp`, True by default: graphs are cut where buckets end, which regroups what a kernel
  fuses); torch/_dynamo/backends/distributed.py, DDPOptimizer, which older versions refuse for graphs with higher-order
  ops, such as activation checkpointing. torch.nn.Module.compile.
- fully_shard (FSDP2): torch.distributed.fsdp.fully_shard (`mp_policy`, `offload_policy`, `reshard_after_forward`,
  a mesh of two dimensions for HSDP), FSDPModule.set_modules_to_forward_prefetch and set_requires_gradient_sync.
- FullyShardedDataParallel (FSDP1): `auto_wrap_policy` (torch.distributed.fsdp.wrap.ModuleWrapPolicy),
  `mixed_precision`, `sharding_strategy`; the tutorial "Getting Started with Fully Sharded Data Parallel (FSDP2)" calls
  it deprecated and has the way to fully_shard.
- DeepSpeed: configuration JSON, "zero_optimization" (`overlap_comm`: where it is not set, on with ZeRO 3 and off
  otherwise, deepspeed/runtime/zero/config.py, overlap_comm_valid). Its engine's `no_sync()` raises an AssertionError
  with ZeRO 2 and 3, which partition gradients (documentation, "Training API"; deepspeed/runtime/engine.py, no_sync).
  `stage3_prefetch_bucket_size`: the elements gathered ahead, 5e7 by default (deepspeed/runtime/zero/config.py).
  `deepspeed.zero.GatheredParameters(params)` gathers partitioned parameters and partitions them again at its end;
  without gathers at each pass, generation is several times as fast (deepspeedai/DeepSpeed#5498, TRL's
  `ds3_gather_for_generation`).
- Megatron: DistributedDataParallelConfig (`overlap_grad_reduce`, `overlap_param_gather`), "Communication Overlap".
- torchrec: torchrec.distributed (`TrainPipelineSparseDist`), torchrec.distributed.fbgemm_qcomm_codec (`QCommsConfig`,
  `CommType`, `get_qcomm_codecs_registry`).
"""

from __future__ import annotations

import re
from typing import Any, Literal

from advisor.api import Fix, Library, RankRecord, Trace, Treatment

_SIXTEEN = ("bfloat16", "float16")
_SIXTEEN_IN_ROWS = ("bfloat16", "half", "bf16", "c10::bfloat16", "c10::half")

ACCUMULATE_DDP = Fix(
    "Accumulate gradients over two batches with `no_sync()`",
    "semantics",
    "loss.backward()\noptimizer.step()",
    "with model.no_sync() if step % 2 == 0 else nullcontext():\n    loss.backward()\n"
    "if step % 2 == 1:\n    optimizer.step()\n    optimizer.zero_grad()",
)
ACCUMULATE_FSDP2 = Fix(
    "Accumulate gradients over two batches with `set_requires_gradient_sync()`",
    "semantics",
    "loss.backward()\noptimizer.step()",
    "model.set_requires_gradient_sync(step % 2 == 1)\nloss.backward()\n"
    "if step % 2 == 1:\n    optimizer.step()\n    optimizer.zero_grad()",
)
BF16_HOOK = Fix(
    "Reduce gradients in bf16, which halves the bytes",
    "numerics",
    "model = DistributedDataParallel(model)",
    "from torch.distributed.algorithms.ddp_comm_hooks import default_hooks\n\n"
    "model = DistributedDataParallel(model)\nmodel.register_comm_hook(None, default_hooks.bf16_compress_hook)",
)
UNDIVIDED = Fix(
    "Let the compiler cut its graphs at the buckets of DistributedDataParallel (`optimize_ddp`), or compile each block",
    "numerics",
    "torch._dynamo.config.optimize_ddp = False\nmodel = torch.compile(DistributedDataParallel(model))",
    "torch._dynamo.config.optimize_ddp = True  # the default: gradients are reduced during the backward pass\n"
    "model = torch.compile(DistributedDataParallel(model))\n"
    "# where that raises an error, one graph for each block: for block in model.blocks: block.compile()\n"
    "# or half of the bytes: model.register_comm_hook(None, default_hooks.bf16_compress_hook)",
)
DEFAULT_BUCKETS = Fix(
    "Leave `bucket_cap_mb` at 25: of several buckets most are reduced during the backward pass",
    "numerics",
    "DistributedDataParallel(model, bucket_cap_mb=2000)",
    "DistributedDataParallel(model)  # `static_graph` and `find_unused_parameters` as before",
    Treatment("ddp", {"bucket_cap_mb": 25}),
)
USE_DDP = Fix(
    "Use DistributedDataParallel, which reduces gradients in buckets during the backward pass",
    "numerics",
    "for p in model.parameters():\n    dist.all_reduce(p.grad)",
    "model = DistributedDataParallel(model, gradient_as_bucket_view=True)  # averages gradients over the ranks",
)
BESIDE_BACKWARD = Fix(
    "Let reductions run beside the backward pass instead of waiting for each of them",
    "exact",
    "dist.all_reduce(bucket)",
    "works.append(dist.all_reduce(bucket, async_op=True))  # before optimizer.step(): for work in works: work.wait()\n"
    '# DeepSpeed, ZeRO 1 and 2: "overlap_comm": true;  Megatron: --overlap-grad-reduce',
)
KEEP_PARAMETERS = Fix(
    "Set `reshard_after_forward=False` to keep parameters for the backward pass",
    "exact",
    "fully_shard(layer)",
    "fully_shard(layer, reshard_after_forward=False)",
)
# torch.distributed.fsdp.ShardingStrategy: SHARD_GRAD_OP keeps parameters after the forward pass.
KEEP_FSDP1 = Fix(
    "Keep parameters for the backward pass with `ShardingStrategy.SHARD_GRAD_OP`, if memory allows",
    "exact",
    "FullyShardedDataParallel(model, sharding_strategy=ShardingStrategy.FULL_SHARD)",
    "FullyShardedDataParallel(model, sharding_strategy=ShardingStrategy.SHARD_GRAD_OP)\n"
    "# Accelerate: fsdp_sharding_strategy: SHARD_GRAD_OP;  fully_shard: reshard_after_forward=False",
)
PREFETCH_FORWARD = Fix(
    "Gather two layers ahead with `set_modules_to_forward_prefetch()`, if memory allows",
    "exact",
    "for layer in layers:\n    fully_shard(layer)",
    "for layer in layers:\n    fully_shard(layer)\nfor at, layer in enumerate(layers):\n"
    "    layer.set_modules_to_forward_prefetch(layers[at + 1 : at + 3])\n"
    "    layer.set_modules_to_backward_prefetch(layers[max(at - 2, 0) : at][::-1])",
)
_UNITS_FSDP2 = Fix(
    "Shard each block by itself, so that the next one is gathered while this one computes",
    "exact",
    "fully_shard(model)",
    "for block in model.blocks:\n    fully_shard(block)\nfully_shard(model)",
)
_UNITS_FSDP1 = Fix(
    "Wrap each block by itself, so that the next one is gathered while this one computes",
    "exact",
    "FullyShardedDataParallel(model)",
    "FullyShardedDataParallel(model, auto_wrap_policy=ModuleWrapPolicy({Block}))  # the class of the model's blocks",
)
_BF16_FSDP2 = Fix(
    "Gather and reduce shards in bf16",
    "numerics",
    "fully_shard(layer)",
    "fully_shard(layer, mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16))",
)
_BF16_FSDP1 = Fix(
    "Gather and reduce shards in bf16",
    "numerics",
    "FullyShardedDataParallel(model)",
    "FullyShardedDataParallel(\n    model, mixed_precision=MixedPrecision(param_dtype=torch.bfloat16, "
    "reduce_dtype=torch.bfloat16)\n)  # deprecated: fully_shard(model, mp_policy=...) replaces it",
)
_BF16_REDUCED = Fix(
    "Reduce gradients in bf16, too",
    "numerics",
    "MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)",
    "MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16)",
)
_NO_OFFLOAD = Fix(
    "Keep parameters on the device instead of in host memory, if they fit",
    "exact",
    "fully_shard(layer, offload_policy=CPUOffloadPolicy())",
    "fully_shard(layer)",
)
_HYBRID = Fix(
    "Shard within each node and replicate over the nodes (HSDP), if a node's memory allows",
    "numerics",
    "fully_shard(layer)",
    'mesh = init_device_mesh("cuda", (nodes, devices_of_a_node), mesh_dim_names=("dp_replicate", "dp_shard"))\n'
    "fully_shard(layer, mesh=mesh)",
)
_DEEPSPEED = Fix(
    "With ZeRO 1 or 2 set `overlap_comm` in DeepSpeed's configuration, to reduce during the backward pass",
    "exact",
    '"zero_optimization": {"stage": 2}',
    '"zero_optimization": {"stage": 2, "overlap_comm": true}  # the default of stage 3',
)
_ZERO_3 = Fix(
    "Gather parameters further ahead: raise `stage3_prefetch_bucket_size`, if memory allows",
    "exact",
    '"zero_optimization": {"stage": 3}',
    '"zero_optimization": {"stage": 3, "stage3_prefetch_bucket_size": 2e8}  # the default is 5e7 elements',
)
_GATHER_ONCE = Fix(
    "Gather the parameters once for all passes that need no gradients, if memory allows",
    "exact",
    "model.generate(**prompts)",
    "with deepspeed.zero.GatheredParameters(list(model.parameters())):  # TRL: ds3_gather_for_generation=True\n"
    "    model.generate(**prompts)  # without DeepSpeed's hooks, which gather again",
)
_MEGATRON = Fix(
    "Overlap data-parallel communication with `--overlap-grad-reduce` and `--overlap-param-gather`",
    "exact",
    "pretrain_gpt.py --use-distributed-optimizer",
    "pretrain_gpt.py --use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather",
)
_PIPELINE = Fix(
    "Exchange the next batch's indices while this one is computed",
    "exact",
    "for batch in loader:\n    loss, _ = model(batch)",
    "pipeline = TrainPipelineSparseDist(model, optimizer, device)\nbatches = iter(loader)\nwhile True:\n"
    "    pipeline.progress(batches)  # raises StopIteration at the end of the epoch",
)
_QUANTIZED = Fix(
    "Exchange embeddings and their gradients in 16 bits",
    "numerics",
    "EmbeddingBagCollectionSharder()",
    "EmbeddingBagCollectionSharder(\n    qcomm_codecs_registry=get_qcomm_codecs_registry(\n"
    "        QCommsConfig(forward_precision=CommType.FP16, backward_precision=CommType.BF16)\n    )\n)",
)


def data_fix(trace: Trace, library: Library, on_device: bool, hidden: float, kind: Kind) -> Fix | None:
    """What makes reductions of gradients shorter; None where nobody knows who does them.

    hidden: the share of their time that computation covers
    """
    if library.name == "deepspeed":
        return _GATHER_ONCE if _only_gathers(trace) else _DEEPSPEED
    if library.name == "megatron":
        return _MEGATRON
    if library.name != "ddp":
        if kind == "in backward" and hidden < HARDLY:
            return BESIDE_BACKWARD
        # Reductions after the backward pass, or one for each parameter, are a loop of the script.
        return USE_DDP if kind == "many" or hidden < HARDLY else None
    # Host-side backends do not all add up bf16.
    return ACCUMULATE_DDP if not on_device or in_16_bit(trace) else BF16_HOOK


# Computation covers so little of reductions that start when it is over, or that it waits for.
HARDLY = 0.05
# many: far more collectives than buckets;  in backward: some are launched while gradients are computed, by hooks
Kind = Literal["many", "in backward", "other"]


def sharded_fix(trace: Trace, library: Library, record: RankRecord | None, as_one: bool) -> tuple[Fix | None, float]:
    """(what makes gathers and reductions of shards shorter, the share of their time that goes at most).

    as_one: the whole model is gathered and reduced by one collective each
    """
    if as_one and library.name in ("fsdp1", "fsdp2"):
        return (_UNITS_FSDP2 if library.name == "fsdp2" else _UNITS_FSDP1), 1.0
    if library.name in ("fsdp1", "fsdp2"):
        known: dict[str, Any] = (record.settings.fsdp if record else None) or {}
        return _offloaded(known) or _narrowed(trace, library, known) or _kept(library, known, record)
    if library.name == "deepspeed" and _gathers_parameters(trace):
        return _ZERO_3, 1.0
    return _SHARDED_BY.get(library.name, (None, 0.0))


# What gathers parameters for a forward or backward pass, as a range or as a frame of Python: only stage 3 partitions
# them (deepspeed/runtime/zero/partitioned_param_coordinator.py and stage3.py).
_STAGE_3 = re.compile(r"partitioned_?param(eter)?_?coordinator|ZeroOptimizer_Stage3|zero/stage3\.py", re.IGNORECASE)


def _gathers_parameters(trace: Trace) -> bool:
    """Whether DeepSpeed shards the parameters as well (ZeRO 3)."""
    return bool(trace.events.names_where(_STAGE_3.search).any())


# A loss or the end of a text is reduced in passes without gradients, too: a few numbers beside the parameters.
_FEW_NUMBERS = 1000


def _only_gathers(trace: Trace) -> bool:
    """Whether parameters are gathered, but no gradients reduced and none computed: passes without a backward pass."""
    table = trace.events.collective_table
    gathered, reduced = (
        max((one.in_elements for one in table if word in one.name.lower()), default=0) for word in ("gather", "reduce")
    )
    return gathered > _FEW_NUMBERS >= reduced and not trace.events.named("autograd::engine").any()


_Change = tuple[Fix | None, float]
_SHARDED_BY: dict[str, _Change] = {"deepspeed": (_DEEPSPEED, 1.0), "megatron": (_MEGATRON, 1.0)}


def _offloaded(known: dict[str, Any]) -> _Change | None:
    # What the way over the host costs is not in the collectives.
    return (_NO_OFFLOAD, 0.0) if known.get("cpu_offload") else None


def _narrowed(trace: Trace, library: Library, known: dict[str, Any]) -> _Change | None:
    """Fewer bytes, where the recorded policy, else the numbers that travel, are in 32 bits."""
    if known:
        wide = [name for name in ("param_dtype", "reduce_dtype") if known.get(name) not in _SIXTEEN]
    else:
        wide = ["param_dtype", "reduce_dtype"] if in_32_bit(trace) else []
    if len(wide) == 2:
        return (_BF16_FSDP2 if library.name == "fsdp2" else _BF16_FSDP1), _HALF
    return (_BF16_REDUCED, _QUARTER) if wide == ["reduce_dtype"] else None


def _kept(library: Library, known: dict[str, Any], record: RankRecord | None) -> _Change:
    """Fewer or earlier gathers; those of FullyShardedDataParallel are another rule's."""
    if library.name == "fsdp1":
        return None, 0.0
    if known.get("reshard_after_forward") is True:
        return KEEP_PARAMETERS, _GATHERED_ONCE
    if record and record.local_world_size and record.world_size > record.local_world_size:
        return _HYBRID, _HALF
    return PREFETCH_FORWARD, 1.0


# Of the time that goes: half of the bytes; half of those of the reduction, which are half of all; one of three equal
# messages for each layer.
_HALF, _QUARTER, _GATHERED_ONCE = 1 / 2, 1 / 4, 1 / 3


def exchange_fix(library: Library) -> tuple[Fix | None, float]:
    """(what makes exchanges of embeddings shorter, the share of their time that goes at most)."""
    if not library.tables:
        return None, 0.0
    return (_QUANTIZED, _HALF) if library.pipelined else (_PIPELINE, 1.0)


# A node has eight GPUs at most, but for racks that are one: a larger group of experts sends tokens over the network.
# Megatron's own words: "DeepEP is optimized for large topk with cross-node EP(EP>8)" (NVIDIA/Megatron-LM#1456).
_OF_A_NODE = 8
_WITHIN_NODES = Fix(
    "Keep each group of experts within a node if memory allows, or send tokens by DeepEP",
    "numerics",
    "MoE(hidden, expert, num_experts=64, ep_size=16)",
    "MoE(hidden, expert, num_experts=64, ep_size=8)  # DeepSpeed: no more than the GPUs of a node\n"
    "# Megatron: --expert-model-parallel-size 8, or --moe-token-dispatcher-type flex --moe-enable-deepep",
)
_IN_CHUNKS = Fix(
    "Send tokens in parts, while experts compute on others",
    "numerics",
    "y = combine(experts(dispatch(x)))  # two exchanges, in line with the computation",
    "parts = x.chunk(2)  # exchanges of one beside the experts of the other, on streams of their own\n"
    "# Megatron: --overlap-moe-expert-parallel-comm; Tutel: a2a_ffn_overlap_degree=2",
)


def experts_fix(ranks: int | None) -> Fix:
    """What makes exchanges with experts shorter, or hides them; what it saves depends on the nodes."""
    return _WITHIN_NODES if ranks and ranks > _OF_A_NODE else _IN_CHUNKS


def in_16_bit(trace: Trace) -> bool:
    """Whether the largest reductions carry 16-bit numbers already."""
    return _of_largest(trace, "reduce") in _SIXTEEN_IN_ROWS


def in_32_bit(trace: Trace) -> bool:
    """Whether the largest gathers carry fp32 numbers."""
    return _of_largest(trace, "gather") in ("float", "float32")


def _of_largest(trace: Trace, word: str) -> str:
    found = [one for one in trace.events.collective_table if word in one.name.lower() and one.in_elements > 0]
    return max(found, key=lambda one: one.in_elements).dtype.lower() if found else ""
