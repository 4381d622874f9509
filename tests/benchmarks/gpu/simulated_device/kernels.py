"""The kernels that an op launches, timed by the roofline of the device.

A product: tiles of the output in waves over the multiprocessors, or its bytes, whichever takes longer. All else: bytes
over the memory's bandwidth. Each kernel has a floor, for the time in which a launch fills and drains the device. Names
are of the kind that the libraries have on that architecture; no result hangs on them but what a name says (`sgemm`,
`tf32`, `bf16`).
"""

from __future__ import annotations

import math
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .devices import Device
from .placement import SIZES
from .recording import Row

FLOOR_US = 1.5
_OPS = tomllib.loads(Path(__file__).with_name("ops.toml").read_text("utf-8"))
VIEWS, LEAVES = frozenset(_OPS["views"].split()), frozenset(_OPS["one_kernel"].split())
SEVERAL: dict[str, int] = _OPS["several_kernels"]
TILE = 64  # rows and columns of a tile of small products, which is what these scripts have

PRODUCTS = (
    "mm",
    "addmm",
    "bmm",
    "baddbmm",
    "addbmm",
    "mv",
    "addmv",
    "dot",
    "addr",
    "mkldnn_linear",
    "_addmm_activation",
)
ATTENTION = ("_scaled_dot_product_flash_attention_for_cpu", "_flash_attention_forward")
CONVOLUTIONS = ("mkldnn_convolution", "_slow_conv2d_forward", "slow_conv3d_forward", "thnn_conv2d")
# Ops whose result tells the host how large something is: it reads it back and waits.
ASKS_SIZE = (
    "nonzero",
    "_unique2",
    "unique_dim",
    "unique_consecutive",
    "masked_select",
    "bincount",
    "repeat_interleave",
)
TENSORS_PER_KERNEL = 36  # what multi_tensor_apply packs at a depth of four lists; fewer lists take more
ELEMENTS_PER_KERNEL = 320 * 65536


@dataclass(frozen=True)
class Kernel:
    """One kernel: its name, its time in µs, and how many blocks it has."""

    name: str
    us: float
    blocks: int


def short(name: str) -> str:
    """The op's name without its namespace, and without the underscore of the in-place form."""
    bare = name.removeprefix("aten::")
    return bare[:-1] if bare.endswith("_") and not bare.endswith("__") and not bare.startswith("_foreach") else bare


def is_view(row: Row) -> bool:
    """Whether the op computes nothing on the device."""
    bare = row.name.removeprefix("aten::")
    return not row.name.startswith("aten::") or bare in VIEWS


def kernels(row: Row, device: Device, tf32: tuple[bool, bool]) -> list[Kernel] | None:
    """The kernels of an op that runs on the device; None where the op is made of others, or computes nothing.

    tf32: of products and of convolutions.
    """
    name = short(row.name)
    if name in SEVERAL:
        return [_stream(row, device, name)] * SEVERAL[name]
    if name.startswith(("_foreach_", "_fused_", "_amp_foreach")):
        return multi_tensor(row, device)
    if name in PRODUCTS:
        return [_product(*_product_shape(row, name), _dtype(row), device, tf32[0])]
    if name in (*CONVOLUTIONS, "convolution_backward"):
        return _convolution(row, name, device, tf32[1])
    if name in ATTENTION or (name.startswith("_scaled_dot_product") and "backward" in name):
        return _attention(row, device, backward="backward" in name)
    known = name in LEAVES or not (is_view(row) or any(_computes(child) for child in row.children))
    return [_stream(row, device, name)] if known else None


def plain_copy(row: Row) -> int | None:
    """Bytes that a `copy_` moves as they are: same shape, dtype and order. PyTorch leaves that to cudaMemcpyAsync."""
    strides = row.args.get("Input Strides") or []
    if short(row.name) != "copy" or len(row.types) < 2 or row.types[0] != row.types[1] or len(strides) < 2:
        return None
    if row.dims[0] != row.dims[1] or strides[0] != strides[1]:
        return None
    return elements(row.dims[0]) * SIZES.get(row.types[0], 4)


def _computes(row: Row) -> bool:
    return row.is_op and (not is_view(row) or any(_computes(child) for child in row.children))


def _dtype(row: Row) -> str:
    return next((one for one in row.types if one in SIZES), "float")


def _tensor_shapes(row: Row) -> list[tuple[list[int], int]]:
    """(shape, bytes of an element) of each tensor that the op reads, those in lists as well."""
    found: list[tuple[list[int], int]] = []
    for dims, kind in zip(row.dims, row.types, strict=False):
        if kind in SIZES:
            found.append((dims, SIZES[kind]))
        elif kind == "TensorList":
            found += [(one, 4) for one in dims]
    return found


def elements(shape: list[int]) -> int:
    """Numbers in a tensor of that shape."""
    return math.prod(shape)


def _stream(row: Row, device: Device, name: str) -> Kernel:
    """A kernel that is bound by memory."""
    shapes = _tensor_shapes(row)
    sizes = [elements(shape) * size for shape, size in shapes]
    read = sum(sizes)
    if name in ("embedding", "index_select", "gather", "index") and len(shapes) > 1:
        width = elements(shapes[0][0][1:]) if name != "gather" else 1
        asked = max(elements(shape) for shape, _ in shapes[1:])
        read = asked * width * shapes[0][1]
        moved = 2 * read
    elif name in ("sum", "mean", "max", "min", "argmax", "linalg_vector_norm", "norm", "any", "all", "logsumexp"):
        moved = read
    else:
        moved = read + max(sizes, default=_asked(row))
    us = moved / (device.memory_gbs * device.share_of_memory) / 1e3
    return Kernel(_stream_name(name), FLOOR_US + us, max(1, moved // 4096))


def _asked(row: Row) -> int:
    """Bytes of a tensor that the op makes, by the sizes among its arguments."""
    first = row.values[0] if row.values else ""
    if first.startswith("["):
        return 4 * math.prod(int(one) for one in first.strip("[]").split(",") if one.strip())
    return 8 * int(float(first)) if first.replace(".", "").isdigit() else 4


_NAMES = (
    ("sum mean max min linalg_vector_norm norm any all std var argmax", "reduce_kernel<512, 1, {}_functor>"),
    ("_softmax _log_softmax", "(anonymous namespace)::softmax_warp_forward<float, float, float, 6, true, false>"),
    ("_softmax_backward_data _log_softmax_backward_data", "(anonymous namespace)::softmax_warp_backward<float, {}>"),
    ("index index_put gather index_select embedding", "vectorized_gather_kernel<16, long>({})"),
    ("cat _cat", "(anonymous namespace)::CatArrayBatchedCopy<unsigned int, 4, 64, 64>"),
    ("normal uniform bernoulli random", "(anonymous namespace)::distribution_elementwise_grid_stride_kernel<float, 4>"),
)


def _stream_name(name: str) -> str:
    plain = "(anonymous namespace)::{}_kernel<float>" if "norm" in name else "vectorized_elementwise_kernel<4, {}>"
    pattern = next((pattern for names, pattern in _NAMES if name in names.split()), plain)
    return "void at::native::" + pattern.format(name)


def _product_shape(row: Row, name: str) -> tuple[int, int, int, int]:
    """(batch, m, n, k)."""
    tensors = [dims for dims, kind in zip(row.dims, row.types, strict=False) if kind in SIZES]
    if name in ("addmm", "baddbmm", "addbmm", "addmv", "addr"):
        tensors = tensors[1:]
    left, right = tensors[0], tensors[1]
    if name == "mkldnn_linear":
        return 1, elements(left[:-1]), right[0], left[-1]
    if name in ("dot", "mv", "addmv", "addr") or len(left) < 2 or len(right) < 2:
        return 1, left[0] if left else 1, 1, left[-1] if left else 1
    batch = left[0] if len(left) == 3 else 1
    return batch, left[-2], right[-1], left[-1]


def _rate(dtype: str, device: Device, tf32: bool) -> tuple[float, str]:
    """(peak in 10^12 operations, what the kernel's name says)."""
    if dtype == "double":
        return device.fp64, "dgemm"
    if dtype == "c10::BFloat16":
        return (device.bf16, "bf16") if device.bf16 else (device.fp32, "sgemm_bf16")
    if dtype == "c10::Half":
        return device.half, "fp16"
    return (device.tf32, "tf32") if tf32 and device.tf32 else (device.fp32, "sgemm")


def _product(batch: int, m: int, n: int, k: int, dtype: str, device: Device, tf32: bool) -> Kernel:
    """A product: waves of tiles, or bytes. Long sums of small outputs are split over the multiprocessors."""
    peak, kind = _rate(dtype, device, tf32)
    tiles = batch * math.ceil(m / TILE) * math.ceil(n / TILE)
    split = max(1, min(math.ceil(k / 256), device.multiprocessors // max(1, tiles)))
    waves = math.ceil(tiles * split / device.multiprocessors)
    tile_us = 2 * TILE * TILE * (k / split) / (peak * device.share_of_peak / device.multiprocessors) / 1e6
    size = SIZES.get(dtype, 4)
    memory_us = batch * (m * k + k * n + m * n) * size / (device.memory_gbs * device.share_of_memory) / 1e3
    return Kernel(_product_name(kind, device), FLOOR_US + max(waves * tile_us, memory_us), tiles * split)


def _product_name(kind: str, device: Device) -> str:
    family = {7: "turing", 8: "ampere", 9: "sm90"}[device.capability[0]]
    if kind in ("sgemm", "dgemm", "sgemm_bf16"):
        return f"{'volta' if family == 'turing' else 'ampere'}_{kind.removesuffix('_bf16')}_64x64_tn"
    if kind == "tf32":
        return "sm80_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize64x64x32_stage4_warpsize2x2x1_tensor16x8x8_kernel"
    if family == "sm90":
        return f"nvjet_{'tst' if kind == 'bf16' else 'hsh'}_64x64_64x9_1x1_h_bz_TNT"
    return f"{family}_{kind}_s16816gemm_{kind}_64x64_sliced1x2_ldg8_f2f_stages_64x5_tn"


def _convolution(row: Row, name: str, device: Device, tf32: bool) -> list[Kernel]:
    """As a product of patches with the weights; its backward pass as two, and a sum where there is a bias."""
    tensors = [dims for dims, kind in zip(row.dims, row.types, strict=False) if kind in SIZES]
    backward = "backward" in name
    if backward:
        grad, source, weight = tensors[0], tensors[1], tensors[2]
        pixels = elements(grad[2:])
    else:
        source, weight = tensors[0], tensors[1]
        pixels = _pixels(row, source, weight)
    transposed = backward and len(grad) > 1 and grad[1] != weight[0]
    m, n, k = source[0] * pixels, weight[1] if transposed else weight[0], elements(weight[1:])
    dtype = _dtype(row)
    peak, kind = _rate(dtype, device, tf32)
    one = _product(1, m, n, k, dtype, device, tf32)
    size = SIZES.get(dtype, 4)
    memory_us = (
        (elements(source) + m * n + elements(weight)) * size / (device.memory_gbs * device.share_of_memory) / 1e3
    )
    flops_us = 2 * m * n * k / (peak * device.share_of_peak) / 1e6
    # Unlike a product, a convolution reads its input once, not once for each place of the filter.
    us = FLOOR_US + max(flops_us, memory_us, min(one.us, 1.5 * flops_us + 3))
    label = (
        "tf32f32_tf32f32_f32" if kind == "tf32" else "bf16bf16_bf16f32_f32" if kind == "bf16" else "f16f16_f16f16_f16"
    )
    if kind in ("sgemm", "dgemm", "sgemm_bf16"):
        forward = f"{'volta' if device.capability[0] < 8 else 'ampere'}_scudnn_128x64_relu_medium_nn_v1"
        data = "void cudnn::cnn::dgrad2d_alg1_1<float, 0, 6, 7, 5, 4, 5, 1, true>"
        weights = "void cudnn::cnn::wgrad_alg0_engine<float>"
    else:
        forward, data, weights = (
            f"sm80_xmma_{what}_implicit_gemm_{label}_nhwckrsc_nhwc_tilesize128x64x32_stage5_g1_tensor16x8x8_kernel_cudnn"
            for what in ("fprop", "dgrad", "wgrad")
        )
    if not backward:
        return [Kernel(forward, us, one.blocks)]
    mask = next((value for value in reversed(row.values) if value.startswith("[")), "")
    wanted = mask.lower().replace(" ", "").strip("[]").split(",")
    found = [Kernel(weights, us, one.blocks)]
    if wanted[:1] != ["false"]:
        found.append(Kernel(data, us, one.blocks))
    if wanted[-1:] == ["true"]:
        found.append(Kernel(_stream_name("sum"), FLOOR_US + memory_us / 2, 64))
    return found


def _pixels(row: Row, source: list[int], weight: list[int]) -> int:
    """Places of the output, from the padding, the stride and the dilation among the arguments."""
    lists = [
        [int(one) for one in value.strip("[]").split(",")]
        for value in row.values
        if value.startswith("[") and value.strip("[]").replace(",", "").replace(" ", "").replace("-", "").isdigit()
    ]
    spatial = source[2:]
    if len(lists) < 3:
        return elements(spatial)
    first, second, dilation = lists[0], lists[1], lists[2]
    padding, stride = (first, second) if row.name.endswith("mkldnn_convolution") else (second, first)
    count = 1
    for i, size in enumerate(spatial):
        pad, step, wide = (one[min(i, len(one) - 1)] for one in (padding, stride, dilation))
        count *= max(1, (size + 2 * pad - wide * (weight[2 + i] - 1) - 1) // max(1, step) + 1)
    return count


def _attention(row: Row, device: Device, *, backward: bool) -> list[Kernel]:
    """Fused attention: the operations of its two products, times 2.5 in the backward pass; bytes of what it reads."""
    shapes = [dims for dims, kind in zip(row.dims, row.types, strict=False) if kind in SIZES and len(dims) == 4]
    query = shapes[1] if backward and len(shapes) > 1 else shapes[0]
    keys = shapes[2] if backward and len(shapes) > 2 else shapes[min(1, len(shapes) - 1)]
    batch, heads, rows, width = query
    dtype = _dtype(row)
    peak, kind = _rate(dtype, device, False)
    flops = 4 * batch * heads * rows * keys[2] * width * (2.5 if backward else 1)
    size = SIZES.get(dtype, 4)
    moved = sum(elements(shape) for shape in shapes) * size + elements(query) * size
    us = FLOOR_US + max(flops / (peak * 0.5) / 1e6, moved / (device.memory_gbs * device.share_of_memory) / 1e3)
    name = f"fmha_cutlass{'B' if backward else 'F'}_f32_aligned_64x64"
    if kind in ("bf16", "fp16"):
        name = f"pytorch_flash::flash_{'bwd' if backward else 'fwd'}_kernel"
    return [Kernel(name, us, batch * heads * max(1, rows // 64))]


def multi_tensor(row: Row, device: Device) -> list[Kernel]:
    """Kernels over lists of tensors: as many as their number and their elements need."""
    lists: list[Any] = [dims for dims, kind in zip(row.dims, row.types, strict=False) if kind == "TensorList"]
    if not lists:
        return [_stream(row, device, short(row.name))]
    count, total = len(lists[0]), sum(elements(one) for one in lists[0])
    launches = max(1, math.ceil(count / TENSORS_PER_KERNEL), math.ceil(total / ELEMENTS_PER_KERNEL))
    moved = 4 * total * (len(lists) + 1)
    us = FLOOR_US + 1.5 + moved / launches / (device.memory_gbs * device.share_of_memory) / 1e3
    name = f"void at::native::(anonymous namespace)::multi_tensor_apply_kernel<{short(row.name)}>"
    return [Kernel(name, us, 320)] * launches
