"""Jobs of the seventeenth set whose fault is on the host: resampling, clips, tables one by one, weights one by one."""

from __future__ import annotations

from math import prod

from ..eleventh_set.language import fused_norm, llama
from ..eleventh_set.rows import COPY, foreach, kernel
from ..eleventh_set.small import encoder
from ..kineto import inputs
from ..layers import CAST, REDUCE, Card, Tape, back, dense, fused_adamw, norm
from ..runtime import COPIES
from ..seventh_set import BF16
from ..sixteenth_set.rows import without_graph
from ..tenth_set.jobs import FLASH, H100
from ..thirteenth_set.rows import Fresh
from ..twelfth_set.language import AMPERE
from ..twelfth_set.pictures import A100, XMMA, small
from ..twelfth_set.rows import Framed, loader
from .rows import linear_loss

L40S = Card(165, 720, BF16, AMPERE, FLASH)
CLIPS, SAMPLES, TOKENS = 16, 192_000, 599
SINC = [160, 1, 475]
MADE = (
    *(("arange", 40), ("arange", 18), ("neg", 22), ("div", 60), ("add", 190), ("mul", 170), ("clamp_", 160)),
    *(("mul", 130), ("div", 170), ("cos", 420), ("pow", 120), ("mul", 130), ("eq", 60), ("sin", 440), ("div", 150)),
    *(("where", 210), ("mul", 150), ("mul", 140), ("_to_copy", 110)),
)


def _on_host(rt: Framed, name: str, us: float, dims: list[int], kind: str = "float") -> None:
    """An op of tensors in the host's memory."""
    rt.host(9)
    with rt.span(name, us=us, **inputs((dims,), kind)):
        pass


def _resampled(rt: Framed) -> None:
    """`torchaudio.functional.resample(wave, 44_100, 16_000)`: the filter is made anew for each clip, in float64."""
    source = "torchaudio/functional/functional.py"
    with rt.frame("data/audio.py(61): to_16k", f"{source}(1539): resample"):
        with rt.frame(f"{source}(1396): _get_sinc_resample_kernel"):
            rt.host(60)
            for name, us in MADE:
                _on_host(rt, f"aten::{name}", us, SINC, "double")
        with rt.frame(f"{source}(1499): _apply_sinc_resample_kernel"):
            _on_host(rt, "aten::constant_pad_nd", 380, [1, 529_200])
            rt.host(20)
            given = inputs(([1, 1, 529_675], SINC), "float")
            with (rt.span("aten::conv1d", us=6, **given), rt.span("aten::convolution", us=5, **given),
                  rt.span("aten::_convolution", us=5, **given),
                  rt.span("aten::mkldnn_convolution", us=4_900, **given)):  # fmt: skip
                pass
            _on_host(rt, "aten::reshape", 230, [1, 1_201, 160])


def resampled(rt: Framed, fixed: bool) -> None:
    """wav2vec 2.0 with CTC, bf16 by autocast on an L40S: the loop resamples 16 clips of 12 s from 44.1 kHz one
    after another on the host (`data/audio.py`, 9 ms a clip, 3 ms of it a filter that is made anew), then copies them
    from memory that is not pinned, which waits for the step before; without: workers resample, batches are pinned.

    Of 155 ms a step 84: of the 150 ms on the host a part lies beside the step before, which the device works off.
    """
    tape, card, x = Tape(), L40S, [CLIPS, TOKENS, 768]
    loader(rt, 210)
    if fixed:
        with rt.span("aten::to"), rt.span("aten::_to_copy"), rt.span("aten::copy_"):
            rt.copy(CLIPS * SAMPLES * 4)
    else:
        for _ in range(CLIPS):
            _resampled(rt)
        with rt.frame("torch/nn/utils/rnn.py(416): pad_sequence"):
            _on_host(rt, "aten::pad_sequence", 1_400, [CLIPS, SAMPLES])
        rt.moved(CLIPS * SAMPLES * 4, 5.2, [CLIPS, SAMPLES])
    source = "transformers/models/wav2vec2/modeling_wav2vec2.py"
    with rt.frame(f"{source}(1674): forward", "nn.Module: Wav2Vec2FeatureEncoder_0"), without_graph(rt):
        length = SAMPLES // 5
        for place, side in enumerate((10, 3, 3, 3, 3, 2, 2)):
            cin, length = (512, length // 2) if place else (1, length)
            read, written = ([CLIPS, cin, 2 * length], [CLIPS, 512, length])
            us = max(2 * CLIPS * length * cin * 512 * side / card.tflops / 1e6, card.moves(2 * prod(written)))
            rt.op("aten::conv1d", "aten::convolution", "aten::_convolution", "aten::cudnn_convolution", gap=24,
                  kind=BF16, dims=(read, [512, cin, side]),
                  run=((XMMA.format("fprop", "bf16bf16_bf16f32_f32", 16), us),))  # fmt: skip
            if place == 0:
                rt.op("aten::group_norm", "aten::native_group_norm", run=((REDUCE, card.moves(2 * prod(written))), (
                    kernel("group_norm", 2), card.moves(4 * prod(written)))), dims=(written,), kind=BF16)  # fmt: skip
            rt.op("aten::gelu", run=((kernel("gelu", 2, BF16), card.moves(4 * prod(written))),), gap=10, kind=BF16,
                  dims=(written,))  # fmt: skip
    with rt.frame(f"{source}(1674): forward", "nn.Module: Wav2Vec2Encoder_0"):
        norm(rt, tape, card, [CLIPS, TOKENS, 512])
        dense(rt, tape, card, CLIPS, (CLIPS * TOKENS, 512, 768))
        for _ in range(12):
            for size in ([2_304, 768], [768, 768], [3_072, 768], [768, 3_072]):
                run = ((CAST, card.moves(6 * prod(size))),)
                rt.op("aten::to", "aten::_to_copy", "aten::copy_", run=run, dims=(size,), gap=3)
            with rt.frame("nn.Module: Wav2Vec2EncoderLayer_3"):
                encoder(rt, tape, card, (x[0], x[1], x[2]))
        dense(rt, tape, card, CLIPS, (CLIPS * TOKENS, 768, 32))
    small(rt, tape, ("_to_copy", "log_softmax", "transpose"), [TOKENS, CLIPS, 32], 5)
    name = "void at::native::(anonymous namespace)::ctc_loss_{}_gpu_kernel<float, long>(…)"
    number = rt.op("aten::ctc_loss", "aten::_ctc_loss", run=((name.format("log_alpha"), 1_150),), graph=True, us=30,
                   dims=([TOKENS, CLIPS, 32], [CLIPS, 140]))  # fmt: skip
    tape.append(lambda: rt.grad("CtcLossBackward0", number, "aten::_ctc_loss_backward", us=24, run=(
        (name.format("backward_log_beta"), 1_200), (name.format("backward_collect"), 260)),
        dims=([TOKENS, CLIPS, 32],)))  # fmt: skip
    with rt.frame("torch/_tensor.py(581): backward"):
        back(rt, tape)
    foreach(rt, "_foreach_norm", "LpNormFunctor", card.moves(4 * 90e6), 2)
    foreach(rt, "_foreach_mul_", "BinaryOpScalarTensorFunctor", card.moves(8 * 90e6), 2)
    fused_adamw(rt, card, 90e6)
    rt.host(320)


L4 = Card(50, 250, BF16, AMPERE, FLASH)
NPP = "void ForEachPixelByteQuad<unsigned char, 3, NV12ToRGBFunctor<unsigned char>>(Image<unsigned char>, …)"


def _decoded(rt: Framed) -> None:
    """`VideoDecoder(path, device="cuda").get_frames_at(...)`: one of the device's four decoders, and the host waits."""
    rt.host(600)
    for name, us in (("create_from_file", 1_700), ("scan_all_streams_to_update_metadata", 2_900),
                     ("add_video_stream", 3_600)):  # fmt: skip
        with rt.span(f"torchcodec_ns::{name}", us=us):
            pass
    with rt.span("torchcodec_ns::get_frames_at_indices", us=90):
        rt.op("aten::empty", us=4, gap=0)
        for _ in range(16):
            rt.now += rt.vary(2_450, 0.3)  # some six frames of 480 lines each
            rt.work("Memcpy DtoD (Device -> Device)", 5, stream=COPIES + 4, category="gpu_memcpy", bytes=615_000,
                    call="Memcpy2DAsync")  # fmt: skip
            rt.work(NPP, 9)
    rt.op("aten::permute", us=2)


def clips(rt: Fresh, fixed: bool) -> None:
    """A ViT-B of 16 frames on an L4: the loop itself decodes 8 clips by torchcodec on the GPU, one after another, 51 ms
    each, while the multiprocessors are done; without: a thread decodes a batch ahead.

    Of 399 ms a step 119. The window's first step is cold.
    """
    rt.cold, tape, x = rt.number == 0, Tape(), [8, 1_568, 768]
    if rt.cold:
        rt.library("aten::mm", 0.3)
    if fixed:
        rt.host(400)
        for _ in range(128):
            rt.work(NPP, 9)
    else:
        for _ in range(x[0]):
            _decoded(rt)
    rt.op("aten::stack", "aten::cat", run=((COPY, L4.moves(2 * 128 * 640 * 480 * 3)),), gap=30, kind="unsigned char",
          dims=([8, 16, 3, 480, 640],))  # fmt: skip
    name = "void at::native::(anonymous namespace)::upsample_gen2d_aa_out_frame<unsigned char, float>(…)"
    rt.op("aten::_upsample_bicubic2d_aa", run=((name, 5_200),), gap=40, dims=([128, 3, 480, 640],))
    small(rt, None, ("_to_copy", "sub", "div"), [128, 3, 224, 224], L4.moves(6 * 128 * 3 * 224**2))
    dense(rt, tape, L4, 8, (8 * 1_568, 1_536, 768))
    for _ in range(12):
        encoder(rt, tape, L4, (x[0], x[1], x[2]))
    norm(rt, tape, L4, x)
    dense(rt, tape, L4, 8, (8, 768, 400))
    small(rt, tape, ("log_softmax", "nll_loss"), [8, 400])
    back(rt, tape)
    foreach(rt, "_foreach_norm", "LpNormFunctor", L4.moves(4 * 86e6), 2)
    fused_adamw(rt, L4, 86e6)
    rt.host(260)


TABLES, IDS, WIDE, BATCH = 26, 81_920, 64, 16_384
RADIX = "void at_cuda_detail::cub::DeviceRadixSortOnesweepKernel<DeviceRadixSortPolicy<long, long, int>::Policy900, …>"
HKV = "void nv::merlin::{}<unsigned long, float, unsigned long, 128, (nv::merlin::EvictStrategyInternal)0>(…)"


def _unique(rt: Framed, ids: int) -> None:
    """`torch.unique(ids, return_inverse=True)`: the host waits for how many there are."""
    card = A100.card
    rt.host(24)
    with rt.span("aten::_unique2", us=16, **inputs(([ids],), "long int")):
        rt.op("aten::arange", run=((kernel("arange", 1, "long"), 2.6),), gap=2)
        for _ in range(8):
            rt.work(RADIX, max(5.5, card.moves(32 * ids)))
        rt.work("void at::native::(anonymous namespace)::adjacent_difference_kernel<long>(…)", card.moves(16 * ids))
        rt.work("void at_cuda_detail::cub::DeviceScanKernel<…>", max(4, card.moves(16 * ids)))
        rt.op("aten::index_put_", run=((kernel("index_put_", 3, "long"), card.moves(24 * ids)),), gap=2)
        rt.work("void at_cuda_detail::cub::DeviceSelectSweepKernel<…>", max(5, card.moves(18 * ids)))
        rt.copy(8, "DtoH", "Pageable", waits=True)


def _looked_up(rt: Framed, tape: Tape, ids: int, bags: int) -> None:
    """Rows of a table that grows: distinct keys are found or put in, rows are read and summed."""
    card, found = A100.card, round(0.72 * ids)
    row = 4 * WIDE
    _unique(rt, ids)
    rt.host(30)
    with rt.span("dynamicemb::find_or_insert", us=26, **inputs(([found],), "long int")):
        rt.work(HKV.format("find_or_insert_kernel_lock_key_hybrid"), max(9, card.moves(90 * found)))
        rt.work(HKV.format("read_or_write_kernel"), card.moves(2 * row * found) * 1.3)
    number = rt.op("dynamicemb::segment_sum", run=(("void gather_and_pool_kernel<float, float, long>(…)",
                   card.moves(row * (ids + bags)) * 1.2),), graph=True, gap=26, us=12,
                   dims=([found, WIDE], [ids], [bags]))  # fmt: skip

    def backward() -> None:
        rt.grad("SegmentSumBackward", number, "dynamicemb::reduce_grads", us=20, dims=([bags, WIDE], [ids]),
                run=((RADIX, max(5.5, card.moves(24 * ids))),) * 4 + ((
                    "void multi_to_one_reduce_kernel<float, float, long>(…)", card.moves(row * (ids + found)) * 1.3),
                ))  # fmt: skip
        rt.op("dynamicemb::adam_update", us=14, gap=16, dims=([found, WIDE],), run=((
            "void update_with_pointer_kernel<float, AdamVecOptimizer<float, float>>(…)",
            card.moves(7 * row * found) * 1.3),))  # fmt: skip

    tape.append(backward)


def uniqued(rt: Framed, fixed: bool) -> None:
    """A recommender with 26 hash tables on an A100, 82,000 keys each: distinct keys are looked for table by table, and
    the host waits for each count, so that queues run dry 26 times; without: one `unique` of keys with their table's
    number before them, one table of all, one wait.

    Of 17.3 ms a step 5.4. The one wait that is left is needed. Interaction and products in TF32 are right.
    """
    tape, card = Tape(), A100.card
    rt.batch(BATCH * 13 * 4, TABLES * IDS * 8, TABLES * BATCH * 8, BATCH * 4)
    if fixed:
        rt.op("aten::add_", run=((kernel("add_", 3, "long"), card.moves(24 * TABLES * IDS)),), gap=20)
        _looked_up(rt, tape, TABLES * IDS, TABLES * BATCH)
    else:
        for _ in range(TABLES):
            rt.op("aten::slice", us=3, gap=14)
            _looked_up(rt, tape, IDS, BATCH)
    for sizes in ((13, 512), (512, 256), (256, WIDE)):
        dense(rt, tape, card, 1, (BATCH, *sizes))
        small(rt, tape, ("relu",), [BATCH, sizes[1]], card.moves(8 * BATCH * sizes[1]))
    small(rt, tape, ("cat", "bmm", "index", "cat"), [BATCH, 27, WIDE], card.moves(8 * BATCH * 27 * WIDE))
    for sizes in ((416, 1_024), (1_024, 1_024), (1_024, 512), (512, 256), (256, 1)):
        dense(rt, tape, card, 1, (BATCH, *sizes))
        small(rt, tape, ("relu",), [BATCH, sizes[1]], card.moves(8 * BATCH * sizes[1]))
    small(rt, tape, ("binary_cross_entropy_with_logits",), [BATCH], 4)
    back(rt, tape)
    fused_adamw(rt, card, 2.6e6)
    rt.host(180)


LAYERS, SENT = 16, (128_256 * 2_048, *((2_048**2, 2_048 * 512, 2_048 * 512, 2_048**2, 2_048, 2_048,
                                        *(2_048 * 8_192,) * 3) * 16), 2_048)  # fmt: skip
BROADCAST = "ncclDevKernel_Broadcast_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
POSTED = ("requests/sessions.py(500): request", "urllib3/connectionpool.py(592): urlopen",
          "http/client.py(1411): getresponse", "socket.py(706): readinto",
          "<method 'recv_into' of '_socket.socket' objects>")  # fmt: skip


def _pushed(rt: Framed, sizes: tuple[int, ...]) -> None:
    """A parameter or several: a server is told by HTTP, then NCCL sends, called by ctypes, then both wait."""
    with rt.frame("rl/weights.py(88): push_weights", "trl/extras/vllm_client.py(289): update_named_param"):
        rt.host(260)
        with rt.frame(*POSTED):
            rt.now += rt.vary(5_300, 0.25)
        with rt.frame("vllm/distributed/device_communicators/pynccl.py(284): broadcast"):
            for size in sizes:
                rt.host(25)
                rt.work(BROADCAST, 12 + size * 2 / 280e3, call="LaunchKernelExC")
        with rt.frame("vllm/distributed/utils.py(366): barrier"):
            rt.now += rt.vary(900, 0.2)


def pushed(rt: Framed, fixed: bool) -> None:
    """GRPO of Llama-3.2-1B on an H100, rollouts of a step before come from vLLM on other GPUs; after each update 146
    parameters are sent to it one by one, each with a request and a barrier, 6.5 ms, of which NCCL takes 0.1; without:
    in four requests. Of 1,229 ms a step 611: the first are hidden by what is queued. Stacks show `rl/weights.py`.
    """
    rt.batch(32 * 1_024 * 8, 32 * 1_024 * 8, 32 * 4, 32 * 768 * 4, us=260)
    for _ in range(2):
        tape: Tape = []
        with rt.frame("rl/trainer.py(212): micro_step", "nn.Module: LlamaModel_0"):
            for _ in range(LAYERS):
                with rt.frame("nn.Module: LlamaDecoderLayer_5"):
                    llama(rt, tape, H100, (16, 1_024, 2_048, 8, 8_192), fused_norm)
            fused_norm(rt, tape, H100, [16, 1_024, 2_048])
        linear_loss(rt, tape, H100, "LigerFusedLinearGRPOFunction",
                    ("triton_red_fused__log_softmax_gather_exp_0", 1_240), (12_288, 2_048, 128_256), 2)  # fmt: skip
        with rt.frame("rl/trainer.py(231): micro_step", "torch/_tensor.py(581): backward"):
            back(rt, tape)
    foreach(rt, "_foreach_norm", "LpNormFunctor", H100.moves(2 * 1.24e9), 4)
    foreach(rt, "_foreach_mul_", "BinaryOpScalarTensorFunctor", H100.moves(4 * 1.24e9), 4)
    fused_adamw(rt, H100, 1.24e9 / 2)
    part = -(-len(SENT) // 4)
    for sizes in [SENT[at : at + part] for at in range(0, len(SENT), part)] if fixed else [(one,) for one in SENT]:
        _pushed(rt, sizes)
    rt.host(500)
