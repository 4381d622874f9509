"""Jobs of the thirty-fifth set that wait for what comes: negatives that the main process draws one by one, photographs
that lie in the host's memory as floats.
"""

from __future__ import annotations

from math import prod

from ..eleventh_set.rows import COPY, FILL, Roofline, kernel, node
from ..layers import Tape, back
from ..sixteenth_set.rows import INDEX
from ..thirty_first_set.rows import Told, small
from ..twelfth_set.rows import Framed, loader
from ..twenty_fifth_set.rows import adam
from ..twenty_fourth_set.rows import acts, few

USERS, GOODS, LINKED, WIDE, PAIRS, HOPS = 52_643, 91_599, 4_761_460, 64, 131_072, 3
NODES = USERS + GOODS
RTX3060 = Roofline(8, 305, "float", ("", ""), ("", ""))
CSRMM = "void cusparse::csrmm_alg2_kernel<cusparse::CsrMMPolicy<256u, 32u, 8u, …>, false, long, long, float, …>(…)"
PARTS = "void cusparse::csrmm_alg2_partition_kernel<…>(…)"
SORT = "void at_cuda_detail::cub::DeviceRadixSortOnesweepKernel<at_cuda_detail::cub::…Policy800, …>(…)"
SPREAD = "void at::native::indexing_backward_kernel<float, 4>(long const*, long const*, float const*, float*, …)"
SOURCE = "torch/utils/data/dataloader.py"


def _drawn(rt: Framed) -> None:
    """RecBole's collator: pairs are picked, a negative is drawn for each, those that the user knows are drawn anew."""
    with (rt.frame(f"{SOURCE}(701): __next__"),
          rt.span("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", "user_annotation"),
          rt.frame(f"{SOURCE}(757): _next_data", "torch/utils/data/_utils/fetch.py(46): fetch",
                   "recbole/data/dataloader/general_dataloader.py(80): collate_fn")):  # fmt: skip
        rt.host(2_300)
        with rt.frame("recbole/data/dataloader/abstract_dataloader.py(191): _neg_sampling",
                      "recbole/sampler/sampler.py(342): sample_by_user_ids",
                      "recbole/sampler/sampler.py(121): sample_by_key_ids"):  # fmt: skip
            left = PAIRS
            while left > 8:
                with rt.frame("recbole/sampler/sampler.py(248): _uni_sampling"):
                    rt.host(40 + 0.011 * left)
                with rt.frame("recbole/sampler/sampler.py(150): <listcomp>"):
                    rt.host(60 + 0.27 * left)
                left = round(left * 0.004)
        rt.host(900)


def _spread(rt: Framed, tape: Tape) -> None:
    """`torch.sparse.mm(adjacency, embeddings)`."""
    us = RTX3060.moves(LINKED * (WIDE * 4 * 0.8 + 12) + 4 * NODES * WIDE)
    dims = ([NODES, NODES], [NODES, WIDE])
    run = ((FILL, RTX3060.moves(4 * NODES * WIDE)), (PARTS, 9.0), (CSRMM, us))
    number = rt.op("aten::_sparse_mm", "aten::_sparse_addmm", "aten::addmm", run=run, dims=dims, graph=True, gap=14,
                   us=9)  # fmt: skip
    tape.append(lambda: rt.grad("SparseAddmmBackward0", number, "aten::mm", run=run, dims=dims, us=11))


def _taken(rt: Framed, tape: Tape, rows: int) -> None:
    """`embeddings[users]`; behind, sums by a sort."""
    size, picked = [rows, WIDE], [PAIRS, WIDE]
    us = RTX3060.moves(8 * prod(picked))
    number = rt.op("aten::index", run=((INDEX, us),), dims=(size, [PAIRS]), graph=True, gap=8, us=8)

    def backward() -> None:
        with node(rt, "IndexBackward0", number):
            rt.op("aten::new_zeros", "aten::zero_", "aten::fill_", dims=(size,), gap=2, run=(
                (FILL, RTX3060.moves(4 * prod(size))),))  # fmt: skip
            rt.op("aten::_index_put_impl_", gap=3, us=22, dims=(size, [PAIRS], picked), run=(
                *((SORT, 11.0) for _ in range(3)), (SPREAD, 1.6 * us)))  # fmt: skip

    tape.append(backward)


def lightgcn(rt: Told, fixed: bool) -> None:
    """LightGCN learns from Amazon's books by RecBole on an RTX 3060, 131,072 pairs a batch: the loader has no workers
    (`worker: 0`, as RecBole's settings are by default), and its collator draws a negative for each pair and asks in a
    list comprehension whether the user knows it, some 50 ms, in most of which the GPU has nothing left to do;
    without: `worker: 4`. Batches are 3 MB that are not pinned, the trainer reads the loss and whether it is NaN behind
    each forward pass, Adam by lists. Shapes, stacks.

    First: what the main process draws between batches (workers, or negatives on the GPU). Not: precision, launches,
    the sparse product, the optimizer, a larger batch; pinned memory and the two reads at most beside it.
    """
    if fixed:
        loader(rt, 230)
    else:
        _drawn(rt)
    with rt.frame("recbole/trainer/trainer.py(196): _train_epoch"):
        for _ in range(3):
            with rt.frame("recbole/data/interaction.py(133): to", "<method 'to' of 'torch._C.TensorBase' objects>"):
                rt.moved(8 * PAIRS, 5.2, [PAIRS], "long int")
        tape, size = Tape(), [NODES, WIDE]
        with rt.frame("recbole/model/general_recommender/lightgcn.py(155): calculate_loss"):
            acts(rt, tape, RTX3060, "cat", size)
            for _ in range(HOPS):
                _spread(rt, tape)
            acts(rt, tape, RTX3060, "stack mean", [NODES, HOPS + 1, WIDE])
            few(rt, "slice slice", size)
            for rows in (USERS, GOODS, GOODS):
                _taken(rt, tape, rows)
            for _ in range(2):
                acts(rt, tape, RTX3060, "mul sum", [PAIRS, WIDE])
            small(rt, tape, RTX3060, "sub sigmoid add log neg mean", [PAIRS])
            for rows in (USERS, GOODS, GOODS):
                _taken(rt, tape, rows)
                small(rt, tape, RTX3060, "norm pow", [PAIRS, WIDE])
            small(rt, tape, RTX3060, "add add div mul add", [1])
        with rt.frame("<method 'item' of 'torch._C.TensorBase' objects>"):
            rt.value()
        with rt.frame("recbole/trainer/trainer.py(381): _check_nan"):
            few(rt, "isnan", [1])
            rt.value("aten::is_nonzero")
        with rt.frame("torch/_tensor.py(570): backward", "torch/autograd/__init__.py(254): backward"):
            back(rt, tape)
        adam(rt, RTX3060, NODES * WIDE, "Adam", 1)
    rt.host(160)


SPLATS, HIGH, BROAD, COPIES = 2_300_000, 2_667, 4_000, 27_000_000
A5000 = Roofline(20, 640, "float", ("", ""), ("", ""))
PHOTO = [3, HIGH, BROAD]
BLOCK = "void renderCUDA<3u>(uint2 const*, unsigned int const*, int, int, float2 const*, float const*, …)"
RADIX = "void cub::DeviceRadixSortOnesweepKernel<cub::DeviceRadixSortPolicy<unsigned long, unsigned int, …>, …>(…)"


def _raster(rt: Framed, tape: Tape) -> None:
    """`_RasterizeGaussians`, which reads how many copies of splats lie in tiles."""
    rt.sequence += 1
    number = rt.sequence
    rt.host(70)
    with rt.span("_RasterizeGaussians", us=60, **{"Sequence number": number, "Fwd thread id": 0}):
        rt.work("preprocessCUDA<3>(int, int, int, float const*, glm::vec<3, float> const*, float, …)", 1_350)
        rt.work("void cub::DeviceScanKernel<cub::DeviceScanPolicy<unsigned int>::Policy600, …>(…)", 64)
        place = len(rt.rows)
        end = rt.work("Memcpy DtoH (Device -> Pageable)", 1.6, category="gpu_memcpy", call="Memcpy", bytes=4)
        rt.now = end + 4
        rt.rows[place]["dur"] = round(rt.now - rt.rows[place]["ts"], 3)
        rt.op("aten::resize_", us=12, gap=6, dims=([COPIES * 24],), kind="unsigned char")
        rt.work("duplicateWithKeys(int, float2 const*, float const*, unsigned int const*, unsigned long*, …)", 1_750)
        for _ in range(6):
            rt.work(RADIX, 1_080)
        rt.work("identifyTileRanges(int, unsigned long*, uint2*)", 420)
        rt.work(BLOCK, 12_600)

    def backward() -> None:
        with node(rt, "_RasterizeGaussiansBackward", number):
            for size in ([SPLATS, 3], [SPLATS, 16, 3], [SPLATS, 4]):
                few(rt, "zeros_like", size, A5000.moves(4 * prod(size)), gap=3)
            rt.work(BLOCK.replace("<3u>", "<3u, true>"), 27_500)
            rt.work("computeCov2DCUDA(int, float3 const*, int const*, float const*, float, float, …)", 620)
            rt.work("void preprocessCUDA<3>(int, int, int, float3 const*, int const*, float const*, …)", 2_150)

    tape.append(backward)


def _seen(rt: Framed, fixed: bool) -> None:
    """`viewpoint_cam.original_image.cuda()`, or bytes that lie on the card."""
    if not fixed:
        rt.moved(4 * prod(PHOTO), 6.1, PHOTO)
        return
    for name, passes in (("to", 5), ("div", 8)):
        run = ((COPY if name == "to" else kernel("div", 2), A5000.moves(passes * prod(PHOTO))),)
        rt.op(f"aten::{name}", run=run, dims=(PHOTO,), gap=9, kind="unsigned char" if name == "to" else "float")


def roofs(rt: Told, fixed: bool) -> None:
    """A roof in 360 photographs of a drone becomes 2.3 million splats by INRIA's `train.py` on an RTX A5000:
    `--data_device cpu` came with the advice for cards of 8 GB, so that in each step a photograph of 4,000 x 2,667, 128
    MB of floats that are not pinned, is copied while the GPU waits, 21 ms; without: bytes on the card, 11 GB that have
    room, which become floats there. Splats are no longer added, Adam is fused, the loss is `fused_ssim`, the loop reads
    it for its bar and the rasterizer reads the number of copies of splats. Shapes, no rows of steps.

    First: the copy of the photograph (bytes, on the card or pinned and ahead). Not: a loader, launches, the two reads
    (a little at most), precision, the optimizer, the sort.
    """
    tape = Tape()
    rt.host(260)
    acts(rt, tape, A5000, "exp", [SPLATS, 3])
    acts(rt, tape, A5000, "sigmoid", [SPLATS, 1])
    acts(rt, tape, A5000, "div", [SPLATS, 4])
    acts(rt, tape, A5000, "cat", [SPLATS, 16, 3])
    _raster(rt, tape)
    _seen(rt, fixed)
    us = A5000.moves(4 * prod(PHOTO))
    acts(rt, tape, A5000, "sub abs mean", PHOTO)
    rt.sequence += 1
    number = rt.sequence
    with rt.span("FusedSSIMMap", us=30, **{"Sequence number": number, "Fwd thread id": 0}):
        rt.work("fusedssimCUDA(int, int, int, float, float, float*, float*, float*, float*, float*, float*)", 6.5 * us)
    tape.append(
        lambda: rt.grad(
            "FusedSSIMMapBackward",
            number,
            run=(("fusedssim_backwardCUDA(int, int, int, float, float, float*, float*, float*, float*, …)", 6 * us),),
        )
    )
    small(rt, tape, A5000, "mean rsub mul mul add", [1])
    back(rt, tape)
    few(rt, "mul add", [1])
    rt.value()
    few(rt, "max", [SPLATS], A5000.moves(8 * SPLATS))
    with rt.span("Optimizer.step#Adam.step", "user_annotation", us=160):
        for each in (3, 3, 45, 1, 3, 4):
            rt.op("aten::_fused_adam_", us=30, gap=20, run=((_ADAM, A5000.moves(28 * each * SPLATS)),))
    with rt.span("Optimizer.zero_grad#Adam.zero_grad", "user_annotation", us=40):
        pass
    rt.host(240)


_ADAM = (
    "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::(anonymous namespace)::"
    "FusedOptimizerTensorListMetadata<4>, FusedAdamMathFunctor<float, 4, ADAM_MODE::ORIGINAL, false>>"
)
