"""Eleven jobs of kinds that the sets before had not; each without its fault is its truth.

Drawn 26 November 2026, before any rule was read for them, after how such jobs are recorded: HF `generate`, 1F1B of
Megatron, tensor and expert parallelism of torchtitan (pytorch/torchtitan#1968), QLoRA of PEFT, Transformer Engine,
on-demand traces of dynolog, a GPU that two processes share. What must not be said stands with each as `silent`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ..recorded import Recorded
from ..runtime import A100, COPIES, H100, MAIN, MI300
from ..seventh_set import BF16, NODE, Job, adamw, block
from .ranks import accumulated, experts, pipelined, ring, tensor_parallel

CUBLAS = "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn"
SMALL = (
    "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<c10::BFloat16, float>",
    "std::enable_if<!(false), void>::type internal::gemvx::kernel<int, int, __nv_bfloat16, __nv_bfloat16>",
    "void at::native::(anonymous namespace)::CatArrayBatchedCopy<at::native::(anonymous namespace)::OpaqueType<2u>>",
    "void at::native::vectorized_elementwise_kernel<4, at::native::BinaryFunctor<c10::BFloat16, MulFunctor<float>>>",
)


@dataclass(frozen=True)
class Recording(Job):
    """silent: what must not be said;  marked: whether the file has rows of steps."""

    silent: tuple[str, ...] = field(default=())
    marked: bool = True


def generated(rt: Recorded, fixed: bool) -> None:
    """HF `generate` of one sequence, eager: 450 launches of 4 µs of work a token; without: one graph a token."""
    with rt.span("aten::embedding"):
        rt.work("void at::native::(anonymous namespace)::indexSelectSmallIndex<c10::BFloat16, long>", 3)
    if fixed:
        rt.call("GraphLaunch", 90)
        rt.now += 20
        for _ in range(448):
            rt.now = rt.free[MAIN] = rt.free[MAIN] + 4.9
    else:
        for _ in range(32):
            for part in range(14):
                rt.host(4)
                kind = (0, 1, 1, 1, 3, 3, 2, 2, 1, 3, 0, 1, 1, 3)[part]
                op = ("aten::native_layer_norm", "aten::linear", "aten::cat", "aten::mul")[kind]
                with rt.span(op, us=6):
                    rt.work(SMALL[kind], 6 if kind == 1 else 2.5)
    with rt.span("aten::argmax"):
        rt.work("void at::native::reduce_kernel<512, 1, at::native::ReduceOp<c10::BFloat16, ArgMaxOps>>", 12)
    rt.read("aten::is_nonzero")
    rt.host(60)


def broken(rt: Recorded, fixed: bool) -> None:
    """A compiled model whose 24 layers each break the graph: guards and Python between regions; without: one region."""
    regions = 1 if fixed else 24
    for region in range(regions):
        with rt.span("TorchDynamo Cache Lookup", us=25):
            pass
        with (
            rt.span(f"Torch-Compiled Region: {region}/0", us=60),
            rt.span("CompiledFunction", **{"Sequence number": rt.number * 100 + region}),
            rt.span(f"## Call CompiledFxGraph f{region:02}xk7gp2q ##", "user_annotation", us=20),
        ):
            for _ in range(24 // regions):
                for kernel in ("triton_red_fused_native_layer_norm_0", CUBLAS, "triton_poi_fused_gelu_1"):
                    rt.work(kernel, 22, call="LaunchKernel")
        rt.host(10 if fixed else 110)
    with rt.backward():
        for region in reversed(range(regions)):
            node = {"Sequence number": rt.number * 100 + region, "Fwd thread id": 1}
            with rt.span(NODE + "CompiledFunctionBackward", us=30, **node), rt.span("CompiledFunctionBackward", **node):
                for _ in range(24 // regions):
                    for kernel in ("triton_red_fused_native_layer_norm_backward_3", CUBLAS, CUBLAS):
                        rt.work(kernel, 44)
    adamw(rt, 300)
    rt.read()


def adapted(rt: Recorded, fixed: bool) -> None:
    """QLoRA: adapters in fp32, for which each layer casts the same activation three times; without: in bf16."""
    x, narrow, wide = [1, 4096, 4096], [16, 4096], [4096, 16]
    for number in range(16):
        with rt.span("aten::native_layer_norm", **{"Input Dims": [x], "Input type": [BF16]}):
            rt.work("void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<c10::BFloat16, float>", 45)
        for part in range(3):
            linear(rt, x, 6 * number + part)
            to, kind, us = ([], BF16, 25) if fixed else (["float"], "float", 60)
            for _ in to:
                with rt.span("aten::to", **{"Input Dims": [x, [], [], [], []], "Input type": [BF16]}):
                    convert(rt, x, BF16, 62)
            for shapes in ([x, narrow], [[1, 4096, 16], wide]):
                with rt.span("aten::linear", **{"Input Dims": shapes, "Input type": [kind, kind]}):
                    rt.work("ampere_sgemm_128x64_tn" if to else CUBLAS, us)
            with rt.span("aten::add", **{"Input Dims": [x, x, []], "Input type": [BF16, kind, "Scalar"]}):
                rt.work("void at::native::unrolled_elementwise_kernel<at::native::CUDAFunctor_add<float>>", 80)
    with rt.backward():
        for number in reversed(range(16)):
            for part in reversed(range(3)):
                node = {"Sequence number": 6 * number + part, "Fwd thread id": 1}
                with rt.span(NODE + "MatMul4BitBackward", **node), rt.span("MatMul4BitBackward", **node):
                    rt.work("void kDequantizeBlockwise<__nv_bfloat16, 512, 64, 8, (DataType_t)2>", 70)
                    rt.work(CUBLAS, 620)
    with rt.span("Optimizer.step#PagedAdamW8bit.step", "user_annotation", us=400):
        for _ in range(12):
            rt.host(30)
            rt.work("void kOptimizerStatic8bit2StateBlockwise<float, 0, 256, 1>", 15)


def linear(rt: Recorded, x: list[int], number: int) -> None:
    """A frozen product with weights of 4 bits."""
    shapes = {"Input Dims": [x, [8388608, 1]], "Input type": [BF16, "unsigned char"], "Sequence number": number}
    with rt.span("MatMul4Bit", **shapes):
        rt.work("void kDequantizeBlockwise<__nv_bfloat16, 512, 64, 8, (DataType_t)2>", 70)
        with rt.span("aten::linear", **{"Input Dims": [x, [4096, 4096]], "Input type": [BF16, BF16]}):
            rt.work(CUBLAS, 620)


def convert(rt: Recorded, x: list[int], kind: str, us: float) -> None:
    """`aten::_to_copy` below `aten::to`."""
    made = {"Input Dims": [x, x], "Input type": ["float", kind]}
    with rt.span("aten::_to_copy", **{"Input Dims": [x], "Input type": [kind]}), rt.span("aten::copy_", **made):
        rt.work("void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda>", us)


def shared(rt: Recorded, fixed: bool) -> None:
    """Another process has the GPU for each second 2 ms; the host is ahead, and queued kernels wait."""
    for number in range(12):
        block(rt, number, 1_600)
        sliced(rt, fixed)
    with rt.backward():
        for number in reversed(range(12)):
            for part in (2, 1, 0):
                node = {"Sequence number": 4 * number + part, "Fwd thread id": 1}
                with rt.span(NODE + "AddmmBackward0", **node), rt.span("AddmmBackward0", **node):
                    rt.work(CUBLAS, 1_000)
                sliced(rt, fixed)
    adamw(rt, 900)


def sliced(rt: Recorded, fixed: bool) -> None:
    """The other process's slices, which fell due since the last look."""
    used = rt.free[MAIN] - rt.head.setdefault("slice", rt.free[MAIN])
    if used > 2_000 and not fixed:
        rt.free[MAIN] += rt.vary(2_000, 0.2)
    if used > 2_000:
        rt.head["slice"] = rt.free[MAIN]


def on_demand(rt: Recorded, fixed: bool) -> None:
    """A GPU-bound job, whose file begins and ends within steps and lost records of the device."""
    start = rt.now
    rt.host(150)
    rt.row("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", "user_annotation", start, rt.now)
    with rt.span("aten::to"), rt.span("aten::_to_copy"), rt.span("aten::copy_"):
        end = rt.copy(38 << 20, stream=COPIES)
    rt.waits(MAIN, end)
    with rt.span("Optimizer.zero_grad#AdamW.zero_grad", "user_annotation", us=60):
        pass
    for number in range(10):
        block(rt, number, 2_400)
        if rt.number == 8 and number == 5 and not fixed:
            return
    with rt.backward():
        for number in reversed(range(10)):
            for part in (2, 1, 0):
                node = {"Sequence number": 4 * number + part, "Fwd thread id": 1}
                with rt.span(NODE + "AddmmBackward0", **node), rt.span("AddmmBackward0", **node):
                    rt.work(CUBLAS, 1_600)
    adamw(rt, 1_200)
    rt.now = max(rt.now, rt.free[MAIN] - 60_000)
    if rt.number == 5 and not fixed:
        rt.opens, last = rt.ends[0] + 20_000, rt.free[MAIN]
        rt.lost = [(rt.ends[0] + at, rt.ends[0] + at + 33_000) for at in (130_000, 301_000)]
        rt.row("Buffer Flush", "overhead", last, last + 900, -1)


def scored(rt: Recorded, fixed: bool) -> None:
    """A loop without gradients: each batch's outputs go to the host, whose metrics the GPU waits for."""
    start = rt.now
    rt.host(180)
    rt.row("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", "user_annotation", start, rt.now)
    with rt.span("aten::to"), rt.span("aten::_to_copy"), rt.span("aten::copy_"):
        rt.copy(19 << 20)
    for number in range(12):
        block(rt, number, 1_300)
    with rt.span("aten::linear"), rt.span("aten::addmm"):
        rt.work(CUBLAS, 400)
    if not fixed:
        with rt.span("aten::to"), rt.span("aten::_to_copy"), rt.span("aten::copy_"):
            rt.copy(256_000, "DtoH", "Pageable")
        rt.host(9_000)


_DP = ("no-sync", "gradient buckets", "bf16 gradients")

JOBS = (
    Recording("generated", A100, generated, "450 launches a token", ("launch-bound",), 12, False, marked=False),
    Recording("broken", A100, broken, "24 graph breaks", ("graph-breaks", "launch-bound")),
    Recording("adapted", A100, adapted, "adapters in fp32: casts and products", ("repeated-casts", "fp32-matmul")),
    Recording("shared", A100, shared, "nothing in the script: another process has the GPU", silent=("launch-bound",)),
    Recording("on_demand", A100, on_demand, "nothing: records were lost", (), 9, False, marked=False),
    Recording("scored", A100, scored, "metrics on the host", ("sync-in-loop", "idle-gpu"), 10, marked=False),
    Recording("pipelined", H100, pipelined, "stages wait for each other", ("pipeline-bubble",), silent=_DP),
    Recording("tensor_parallel", MI300, tensor_parallel, "exposed activations", (), 6, False, True, silent=_DP),
    Recording("experts", H100, experts, "tokens are exchanged", ("exposed-communication",), silent=_DP),
    Recording("accumulated", A100, accumulated, "gradients reduced in each micro-batch", ("accumulation",)),
    Recording("ring", H100, ring, "nothing: all is hidden", silent=_DP),
)


def run(job: Recording, *, fixed: bool = False) -> Recorded:
    """Some steps of a job."""
    rt = Recorded(job.device, shapes=job.shapes, rocm=job.rocm, steps=job.marked)
    for _ in range(job.steps):
        with rt.step():
            job.step(rt, fixed)
    rt.head.pop("slice", None)
    return rt
