"""Jobs of the eighteenth set without a fault: rollouts by graphs, buckets of speech, inputs away, experts, rows."""

from __future__ import annotations

from math import prod

from ..eighth_set.ranks import groups
from ..eleventh_set.language import fused_norm, llama
from ..eleventh_set.rows import elementwise, foreach, kernel, linear, node
from ..fifteenth_set.rows import B200
from ..layers import Card, Tape, back, dense, fused_adamw
from ..runtime import COPIES, LINKS, MAIN
from ..seventeenth_set.rows import linear_loss, triton, triton_loss
from ..seventh_set import BF16
from ..sixteenth_set.rows import beside, without_graph
from ..tenth_set.jobs import FLASH, H100, SCATTER
from ..twelfth_set.language import A10G, AMPERE
from ..twelfth_set.pictures import A100, small
from ..twelfth_set.rows import Framed, loader
from .rows import Remembered, casts, conformer, ctc, graphed, pinned

SEQUENCES, PROMPT, TOKENS, QWEN = 96, 184, 48, (28, 1_536, 8_960, 151_936)
SPLIT = "void flash::prepare_varlen_num_blocks_kernel<1, true>(int, int, int, int const*, …)"
PAGED = "void cutlass::device_kernel<flash::enable_sm90_or_later<flash::FlashAttnFwdSm90<…>>>(…)"
STORE = "void vllm::reshape_and_cache_flash_kernel<__nv_bfloat16, __nv_bfloat16, (vllm::Fp8KVCacheDataType)0>(…)"
TOKEN = "nvjet_tst_64x8_64x16_2x1_v_bz_splitK_TNT"


def _token(place: int) -> list[tuple[str, float]]:
    """Kernels of a token of all sequences: weights and keys are read once."""
    deep, width, hidden, classes = QWEN
    weight = [H100.moves(2 * m * width) for m in (width + 512, width, 2 * hidden, hidden)]
    keys = H100.moves(SEQUENCES * (PROMPT + place) * 2 * 2 * 128 * 2)
    layer = [("triton_red_fused_add_rms_norm_0", 3.4), (TOKEN, weight[0]), ("triton_poi_fused_rotary_embedding_1", 2.7),
             (STORE, 2.6), (SPLIT, 1.9), (PAGED, 6 + keys), (TOKEN, weight[1]),
             ("triton_red_fused_add_rms_norm_2", 3.4), (TOKEN, weight[2]),
             ("triton_poi_fused_mul_silu_3", 3.1), (TOKEN, weight[3])]  # fmt: skip
    return layer * deep + [("triton_red_fused_add_rms_norm_4", 3.4), (TOKEN, H100.moves(2 * classes * width))]


def _rolled(rt: Framed) -> None:
    """vLLM in the process, with its scheduler a token ahead: what was chosen is fetched while the next token runs."""
    sent = 0.0
    for place in range(TOKENS):
        rt.host(340)
        for nbytes in (SEQUENCES * 8, SEQUENCES * 4, SEQUENCES * 64):
            with rt.span("aten::copy_", us=4):
                rt.copy(nbytes)
        graphed(rt, _token(place), 1 + SEQUENCES)
        for name, us in (("div_", 14), ("softmax", 16), ("exponential_", 12), ("div_", 14), ("argmax", 19)):
            rt.op(f"aten::{name}", run=((kernel(name, 2), us),), gap=7, us=5)
        rt.waits(COPIES, rt.free[MAIN])
        before = sent
        with rt.span("aten::to"), rt.span("aten::_to_copy"), rt.span("aten::copy_"):
            sent = rt.copy(SEQUENCES * 4, "DtoH", "Pinned", stream=COPIES)
        rt.call("EventSynchronize", 3, until=before)


def colocated(rt: Framed, fixed: bool) -> None:
    """Nothing to change: GRPO of Qwen2.5-1.5B with adapters on an H100 in which vLLM lies too: 48 tokens of 96 answers,
    a graph each, then a pass with gradients over all of them; merged weights are written in place. That a token waits
    for the one before it is of the method. No shapes, no rows of steps.
    """
    deep, width, hidden, classes = QWEN
    made, length = SEQUENCES, PROMPT + TOKENS
    x, tape = [made // 2, length, width], Tape()
    _rolled(rt)
    rt.host(1_900)
    for nbytes in (made * length * 8, made * length * 8, made * 4):
        pinned(rt, nbytes, [made, length], "long int")
    for part in range(2):
        tape = []
        for _ in range(deep):
            llama(rt, tape, H100, (x[0], length, width, 4, hidden), fused_norm)
        fused_norm(rt, tape, H100, x)
        linear_loss(rt, tape, H100, "LigerFusedLinearGRPOFunction",
                    ("triton_red_fused_exp_gather_logsumexp_mul_sub_0", 3 * H100.moves(2 * x[0] * length * classes)),
                    (x[0] * length, width, classes), 1)  # fmt: skip
        back(rt, tape)
        rt.host(200 + 40 * part)
    foreach(rt, "_foreach_norm", "LpNormFunctor", 40, 2)
    fused_adamw(rt, H100, 18e6)
    for _ in range(2 * deep):
        rt.op("aten::addmm_", run=((H100.names[0], H100.moves(6 * width * width)),), gap=9, us=6)
    rt.host(700)


VOICES = ((24, 1_480), (46, 760), (34, 1_040), (20, 1_750), (60, 590), (28, 1_260), (40, 880))  # of alike lengths


def _heard(rt: Framed, tape: Tape, batch: int, frames: int) -> None:
    """A Conformer of 16 layers of a batch of features."""
    x = [batch, frames // 4, 384]
    casts(rt, A10G, [384, 5_120], [1_024, 384])
    linear(rt, tape, A10G, [batch, frames // 4, 5_120], 384)
    for _ in range(16):
        conformer(rt, tape, A10G, x)
    linear(rt, tape, A10G, x, 1_024)
    ctc(rt, tape, A10G, (x[1], batch, 1_024), frames // 22)


def bucketed(rt: Remembered, fixed: bool) -> None:
    """Nothing to change: a Conformer with CTC on an A10G; batches are of speech of like length, 35,000 frames each, so
    that steps differ a little; workers are ahead, losses are added up on the device. Two batches are validated in one
    of the steps and their sum is read. With rows of memory.
    """
    tape: Tape = []
    batch, frames = VOICES[rt.number % len(VOICES)]
    loader(rt, 170)
    for nbytes, dims, kind in ((batch * frames * 160, [batch, frames, 80], "c10::Half"),
                               (batch * 640, [batch, 80], "int"),
                               (batch * 8, [batch], "long int")):  # fmt: skip
        pinned(rt, nbytes, dims, kind)
    small(rt, None, ("masked_fill_",) * 4, [batch, frames, 80], A10G.moves(2 * batch * frames * 80))
    _heard(rt, tape, batch, frames)
    small(rt, None, ("detach", "add_"), [], 2.2)
    back(rt, tape)
    rt.freed(len(rt.taken))
    foreach(rt, "_foreach_norm", "LpNormFunctor", A10G.moves(4 * 60e6), 2)
    foreach(rt, "_foreach_mul_", "BinaryOpScalarTensorFunctor", A10G.moves(8 * 60e6), 2)
    fused_adamw(rt, A10G, 60e6)
    if rt.number == 4:
        with rt.span("validate", "user_annotation", us=40), without_graph(rt):
            for size in VOICES[:2]:
                loader(rt, 170)
                pinned(rt, size[0] * size[1] * 160, [*size, 80], "c10::Half")
                _heard(rt, [], *size)
                rt.freed(len(rt.taken))
            rt.value()
    rt.host(260)


RTX4090 = Card(140, 850, BF16, AMPERE, FLASH)
LAYERS, SHAPE, CLASSES = 16, (3, 4_096, 2_048, 8, 8_192), 128_256
AWAY, HOME = COPIES + 3, COPIES + 4
LAYER = "torch/utils/checkpoint.py(264): forward"


def _away(rt: Framed) -> None:
    """A layer's input goes to pinned memory beside the products."""
    with rt.frame("torchtune/training/_activation_offloading.py(128): pack_tensor"):
        rt.waits(AWAY, rt.free[MAIN])
        with rt.span("aten::copy_", us=6):
            rt.copy(prod(SHAPE[:3]) * 2, "DtoH", "Pinned", stream=AWAY)


def _home(rt: Framed) -> float:
    """It comes back before it is needed."""
    with (rt.frame("torchtune/training/_activation_offloading.py(203): unpack_tensor_with_streams"),
          rt.span("aten::to"), rt.span("aten::_to_copy"), rt.span("aten::copy_")):  # fmt: skip
        return rt.copy(prod(SHAPE[:3]) * 2, stream=HOME)


def spilled(rt: Framed, fixed: bool) -> None:
    """Nothing to change: Llama-3.2-1B by torchtune on an RTX 4090, texts of 4,096 tokens: layers are computed again, as
    memory needs it, and their inputs lie in the host's pinned memory meanwhile, by streams of their own, beside
    products that take eight times as long; the optimizer has 8 bits. Stacks.
    """
    x, last, numbers = list(SHAPE[:3]), Tape(), list[int]()
    loader(rt, 140)
    for _ in range(2):
        pinned(rt, prod(SHAPE[:2]) * 8, list(SHAPE[:2]), "long int")
    with rt.frame("torchtune/modules/transformer.py(602): forward", "nn.Module: TransformerDecoder_0"):
        for _ in range(LAYERS):
            with rt.frame("nn.Module: TransformerSelfAttentionLayer_3", LAYER):
                rt.sequence += 1
                numbers.append(rt.sequence)
                args = {"Sequence number": rt.sequence, "Fwd thread id": 0}
                with rt.span("CheckpointFunction", us=40, **args), without_graph(rt):
                    _away(rt)
                    llama(rt, [], RTX4090, SHAPE, fused_norm)
        fused_norm(rt, last, RTX4090, x)
        linear_loss(rt, last, RTX4090, "LigerFusedLinearCrossEntropyFunction",
                    ("liger_cross_entropy_kernel", 4 * RTX4090.moves(prod(SHAPE[:2]) * CLASSES)),
                    (prod(SHAPE[:2]), SHAPE[2], CLASSES), 2)  # fmt: skip
    with rt.frame("torch/_tensor.py(581): backward", "torch/autograd/__init__.py(243): backward"), rt.backward():
        ready = _home(rt)
        while last:
            last.pop()()
        for place, number in enumerate(reversed(numbers)):
            with node(rt, "CheckpointFunctionBackward", number):
                rt.waits(MAIN, ready)
                rt.free[HOME] = max(rt.free[HOME], rt.free[AWAY])
                ready = _home(rt) if place < LAYERS - 1 else 0.0
                tape: Tape = []
                llama(rt, tape, RTX4090, SHAPE, fused_norm)
                while tape:
                    tape.pop()()
    with (rt.frame("torch/optim/optimizer.py(478): wrapper", "bitsandbytes/optim/optimizer.py(266): step"),
          rt.span("Optimizer.step#AdamW8bit.step", "user_annotation", us=300)):  # fmt: skip
        for _ in range(LAYERS * 7 + 1):
            rt.op("bitsandbytes::optimizer_update_8bit_blockwise", gap=16, us=12, run=((
                "void kOptimizerStatic8bit2StateBlockwise<__nv_bfloat16, 0, 256, 1>(…)",
                RTX4090.moves(8 * 1.24e9 / (LAYERS * 7 + 1))),))  # fmt: skip
    rt.host(260)


EXPERTS = {"dispatch": "void deep_ep::intranode::dispatch<8, 768, 8192>(int4*, float*, long*, float*, int*, …)",
           "combine": "void deep_ep::intranode::combine<__nv_bfloat16, 8, 768, 4096>(__nv_bfloat16*, float*, …)",
           }  # fmt: skip
GROUPED = "void deep_gemm::sm100_bf16_gemm_impl<(cute::UMMA::Major)0, (cute::UMMA::Major)0, 0u, 4096u, 2048u, 128u, …>"
DEEP, TEXT, WIDE, INNER, TOP = 8, (2, 4_096), 2_048, 1_024, 8
LINK = LINKS + 12


def _spread(rt: Framed, way: str, behind: float) -> float:
    """Tokens go to their experts or come back, beside the other half's work;  behind: what they wait for."""
    nbytes = prod(TEXT) * TOP * 0.6 * WIDE * 2  # a rank gets a token once
    rt.free[LINK] = max(rt.free.get(LINK, 0), behind)
    with rt.span(f"deep_ep::intranode_{way}", us=34):
        if way == "dispatch":
            rt.work("void deep_ep::intranode::notify_dispatch<8>(int const*, int*, int const*, …)", 9, stream=LINK)
        return rt.work(EXPERTS[way], 18 + nbytes / 520e3, stream=LINK, call="LaunchKernelExC")


def _attended(rt: Framed, tape: Tape) -> None:
    """Attention and the router of one half."""
    x = [*TEXT, WIDE]
    fused_norm(rt, tape, B200, x)
    for out in (4_096, 512, 512):
        linear(rt, tape, B200, x, out)
    us = B200.product(prod(TEXT) * 32, TEXT[1], 2 * 128) / 1.2
    number = rt.op("aten::scaled_dot_product_attention", "aten::_scaled_dot_product_cudnn_attention", gap=14,
                   graph=True, run=((B200.attention[0], us),), kind=BF16)  # fmt: skip
    tape.append(lambda: rt.grad("ScaledDotProductCudnnAttentionBackward0", number, run=((B200.attention[1], 2.4 * us),),
                                us=10))  # fmt: skip
    linear(rt, tape, B200, [*TEXT, 4_096], WIDE)
    elementwise(rt, tape, B200, "add", x, 2)
    fused_norm(rt, tape, B200, x)
    linear(rt, tape, B200, x, 128)
    rt.host(10)
    triton(rt, "fused_topk_with_score_function_kernel", 14)


def _worked(rt: Framed, tape: Tape) -> None:
    """Grouped products of the experts that are here."""
    rows = prod(TEXT) * TOP
    rt.sequence += 1
    number, args = rt.sequence, {"Sequence number": rt.sequence, "Fwd thread id": 0}
    sizes = ((2 * INNER, WIDE), (WIDE, INNER))
    with rt.span("GroupedMLP", us=40, **args):
        triton(rt, "permute_kernel", B200.moves(4 * rows * WIDE))
        for place, (out, wide) in enumerate(sizes):
            rt.work(GROUPED, B200.product(rows, out, wide), call="LaunchKernelExC")
            triton(rt, "triton_poi_fused_mul_silu_0" if place == 0 else "unpermute_kernel", B200.moves(4 * rows * out))

    def backward() -> None:
        with node(rt, "GroupedMLPBackward", number):
            for out, wide in reversed(sizes):
                triton(rt, "triton_poi_fused_mul_silu_backward_1", B200.moves(5 * rows * out))
                for _ in range(2):
                    rt.work(GROUPED, B200.product(rows, out, wide), call="LaunchKernelExC")
        rt.accumulated()

    tape.append(backward)


def deepened(rt: Framed, fixed: bool) -> None:
    """Nothing to change: a mixture of 128 experts on 8 B200 by DeepEP, two halves of a batch in turns: while tokens of
    one go to their experts, the other attends. No counts are read. No shapes.
    """
    groups(rt, 8, default_pg=list(range(8)))
    rt.head["distributedInfo"]["rank"] = 3
    parts: list[tuple[Tape, Tape, Tape, Tape]] = []
    rt.batch(2 * prod(TEXT) * 8, 2 * prod(TEXT) * 8)
    come = 0.0
    for _ in range(DEEP):
        tapes = (Tape(), Tape(), Tape(), Tape())
        _attended(rt, tapes[0])
        sent = _spread(rt, "dispatch", rt.free[MAIN])
        rt.waits(MAIN, come)
        _attended(rt, tapes[1])
        other = _spread(rt, "dispatch", rt.free[MAIN])
        rt.waits(MAIN, sent)
        _worked(rt, tapes[2])
        back_first = _spread(rt, "combine", rt.free[MAIN])
        rt.waits(MAIN, other)
        _worked(rt, tapes[3])
        come = _spread(rt, "combine", rt.free[MAIN])
        rt.waits(MAIN, back_first)
        parts.append(tapes)
    rt.waits(MAIN, come)
    last: Tape = []
    linear(rt, last, B200, [2 * TEXT[0], TEXT[1], WIDE], 64_000)
    triton_loss(rt, last, B200, 2 * prod(TEXT), 64_000)
    with rt.backward():
        while last:
            last.pop()()
        come = rt.free[MAIN]
        for tapes in reversed(parts):
            order = (2, "combine"), (3, "combine"), (0, "dispatch"), (1, "dispatch")
            ends = {-1: come, -2: come}
            for place, (which, way) in enumerate(order):
                rt.waits(MAIN, ends[place - 2] if place > 1 else come)
                while tapes[which]:
                    tapes[which].pop()()
                ends[place] = _spread(rt, way, rt.free[MAIN])
            come = ends[2]
            end = rt.collective("_reduce_scatter_base", 190, (21_000_000, 2_625_000))
    rt.waits(MAIN, max(end, ends[3]))
    foreach(rt, "_foreach_norm", "LpNormFunctor", B200.moves(2 * 1.1e9), 2)
    fused_adamw(rt, B200, 0.55e9)
    rt.host(340)


SEEDS, HOPS, FEATURES = 2_048, (26_000, 280_000), 256
SAMPLER, ROWS, THREAD = 24, 25, 6


class Ahead(Remembered):
    """ready: when the rows of the next step are there."""

    ready = 0.0


def _sampled(rt: Ahead, start: float) -> float:
    """DGL's sampler on the device and its reads of pinned features, by a thread and streams of its own, for the next
    step; returns when rows are there.
    """
    with beside(rt, THREAD, start):
        for count in HOPS:
            with rt.span("dgl::sampling::SampleNeighbors", us=70):
                for name, us in (("_CSRRowWiseSampleUniformKernel<long, 4>", 60), ("cub::DeviceScanKernel<…>", 6),
                                 ("_GenerateHashMapHashesUnique<long, 256, 1024>", 44)):  # fmt: skip
                    rt.work(f"void dgl::aten::impl::{name}(…)", us * (0.4 + count / 2e5), stream=SAMPLER)
                rt.copy(8, "DtoH", "Pinned", stream=SAMPLER)
                rt.call("StreamSynchronize", 3, until=rt.free[SAMPLER] + 4)
                rt.host(180)
        rt.free[ROWS] = max(rt.free.get(ROWS, 0), rt.free[SAMPLER])
        with rt.span("dgl::IndexSelectCPUFromGPU", us=30):
            rt.work("void dgl::runtime::cuda::IndexSelectMultiKernelAligned<float, long>(float const*, long, …)",
                    sum(HOPS) * FEATURES * 4 / 21e3, stream=ROWS)  # fmt: skip
    return rt.free[ROWS]


def hotrows(rt: Ahead, fixed: bool) -> None:
    """Nothing to change: a GAT of papers on an A100 by DGL: neighbours are sampled on the device and features are read
    over PCIe by kernels of another thread, while the step before runs; what waits is that thread. The loss is read in
    one of 9 steps. With rows of memory, without rows of steps.
    """
    tape, card = Tape(), A100.card
    rt.host(320)
    rt.waits(MAIN, rt.ready)
    rt.ready = _sampled(rt, rt.now + 90)
    for place, (rows, edges) in enumerate(((HOPS[1], 1_900_000), (HOPS[0], 210_000))):
        wide = FEATURES if place == 0 else 1_024
        linear(rt, tape, card, [rows, wide], 1_024)
        for name, passes in (("edge_softmax", 0.05), ("u_mul_e_sum", edges / rows * 0.6)):
            us = card.moves(4 * rows * 1_024 * max(passes, 0.05))
            number = rt.op("GSpMM" if "sum" in name else "EdgeSoftmax", gap=60, us=18, graph=True, run=((
                f"void dgl::aten::cuda::SpMMCsrKernel<int, float, dgl::aten::cuda::binary::{name}<float>>(…)", us),),
                dims=([rows, 8, 128], [edges, 8]))  # fmt: skip
            tape.append(lambda number=number, us=us: rt.grad("GSpMMBackward", number, us=18, run=(
                ("void dgl::aten::cuda::SDDMMCooTreeReduceKernel<int, float>(…)", 1.2 * us), (SCATTER, 0.9 * us),
            )))  # fmt: skip
        elementwise(rt, tape, card, "elu", [rows // 8, 1_024], back=(("elu_backward", 3),))
    dense(rt, tape, card, 1, (SEEDS, 1_024, 172))
    small(rt, tape, ("log_softmax", "nll_loss"), [SEEDS, 172], 5)
    back(rt, tape)
    rt.freed(len(rt.taken))
    fused_adamw(rt, card, 1.8e6)
    if rt.number == 5:
        rt.value()
    rt.host(200)
