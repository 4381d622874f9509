"""What the name of a kernel says of its work and of its number format.

Evidence, never a verdict by absence: a name that states nothing is unknown. Names of cuBLAS, cuDNN, CUTLASS, nvjet
(nvjet_tst_… on Hopper, nvjet_sm100_tst_… on Blackwell; the letters are the formats of inputs, sums and outputs),
rocBLAS (Tensile), MIOpen, Composable Kernel, FlashAttention and Triton templates.
"""

from __future__ import annotations

import re
from typing import Literal

Precision = Literal["fp32", "tf32", "fp16", "bf16", "fp64", "other", "unknown"]
PRECISIONS: tuple[Precision, ...] = ("fp32", "tf32", "fp16", "bf16", "fp64", "other", "unknown")

# Texts in small letters: looking for each takes a thirtieth of what one pattern in any case takes.
_MATRIX_WORK = (
    *("gemv", "wgrad", "dgrad", "fprop", "winograd", "xmma", "nvjet", "flash_fwd", "flash_bwd", "flash_attn", "fmha"),
    # FlashAttention 3: cutlass::device_kernel<flash::enable_sm90_or_later<flash::FlashAttnFwdSm90<…>>>.
    *("flashattnfwd", "flashattnbwd", "attention", "scudnn", "fft2d_", "triton_tem_", "matmul", "wgmma"),
    "fused_moe_kernel",
)
# Texts that count where they are not a part of the second one: fbgemm is a library, "conv" stands in "convert", too.
_UNLESS = (("gemm", "fbgemm"), ("conv", "convert"))
_TENSILE = re.compile(r"\bcijk_")
# Helpers that run beside matrix work and move or prepare data only; and "conv" in words that are not convolutions.
_HELPERS = (
    *("nchwtonhwc", "nhwctonchw", "offsetkernel", "offsetskernel", "transpose", "im2col", "col2im", "subtensorop"),
    *("scalepackedtensor", "bn_fw", "bn_bw", "batchnorm", "batch_norm", "epilogue::", "catarray"),
    *("vectorized_elementwise", "unrolled_elementwise", "elementwise_kernel", "reduce_kernel", "softmax"),
    # Beside FlashAttention 3: what joins its splits, plans its blocks, and prepares and converts its gradients.
    *("flashattnfwdcombine", "flashattnbwdpreprocess", "flashattnbwdpostprocess", "prepare_varlen_num_blocks"),
)

# Words in small letters, to be sought in names that were made so (a pattern in any case takes four times as long), and
# symbols in their own case (Tensile's type letters, mangled names). In this order: a name that holds several formats
# (inputs, accumulator, outputs) states the narrower one for its inputs.
_STATED: tuple[tuple[Precision, str, str], ...] = (
    (
        "other",
        r"int8|i8816|i16832|imma|e[45]m[32]|e2m[13]|fp8|i8gemm|nvjet_(?:sm\d+_)?[qo]",
        r"\bf8|_f8|Cijk_[A-Za-z]+_[A-Za-z]+_[FI]8",
    ),
    ("fp64", r"dgemm|d884|f64f64|\bdouble\b|_fp64", r"Cijk_[A-Za-z]+_[A-Za-z]+_D"),
    ("tf32", r"tf32|xf32", r"(?!)"),
    ("bf16", r"bf16|bfloat16|nvjet_(?:sm\d+_)?t", r"Cijk_[A-Za-z]+_[A-Za-z]+_B|_ZN2ck\w*?(?:ILi\d+E|shuffleI)t"),
    (
        "fp16",
        r"hgemm|[sh]884|h1688|h16816|f16f16|fp16|\bhalf\b|half_t|__half|_f16_|turing_s1688|hmma|nvjet_(?:sm\d+_)?h",
        r"Cijk_[A-Za-z]+_[A-Za-z]+_H|_ZN2ck\w*?(?:ILi\d+E|shuffleI)DF16_",
    ),
    # 16x8x8 with fp32 accumulation is TF32's shape on Ampere and later; fp16 uses 16x8x16 there.
    ("tf32", r"s1688", r"(?!)"),
    # SIMT kernels run on fp32 units, whatever the switches say.
    (
        "fp32",
        r"sgemm|scudnn|cgemm|f32f32_f32f32|simt_|fmha_cutlass[fb]_f32|_fp32|engine_float_"
        r"|(?:engine|convolve_sgemm|gemv\w*|gemmsn_\w+|winograd\w+|gemmk1_kernel|kernel_val|conv_depthwise\w+|fft2d_\w+)"
        r"<(?:int, )*float",
        r"Cijk_[A-Za-z]+_[A-Za-z]+_S|_ZN2ck\w*?(?:ILi\d+E|shuffleI)f",
    ),
)
_COMPILED = tuple((precision, re.compile(words), re.compile(symbols)) for precision, words, symbols in _STATED)


def is_matrix_work(name: str) -> bool:
    """Whether a kernel of this name is a matrix product, a convolution or attention."""
    small = name.lower()
    return _says_matrix_work(small) and not any(text in small for text in _HELPERS)


def _says_matrix_work(small: str) -> bool:
    if any(text in small for text in _MATRIX_WORK):
        return True
    if any(small.count(text) > small.count(unless) for text, unless in _UNLESS):
        return True
    return "cijk_" in small and _TENSILE.search(small) is not None


def is_helper(name: str) -> bool:
    """Whether a kernel of this name only moves or prepares data for matrix work, or is an elementwise kernel."""
    if "at::native::" in name:
        return True
    small = name.lower()
    return any(text in small for text in _HELPERS)


def stated(name: str) -> Precision:
    """The number format that the name of a matrix kernel states; "unknown" where it states none."""
    small = name.lower()
    return next(
        (precision for precision, words, symbols in _COMPILED if words.search(small) or symbols.search(name)), "unknown"
    )


# Ops whose kernels are matrix work.
_MATRIX_OP = re.compile(
    r"(?:aten::(?:mm|addmm|bmm|baddbmm|addbmm|addmv|mv|dot|vdot|linear|matmul|einsum|tensordot|_addmm_activation"
    r"|_(?:scaled|grouped|scaled_grouped)_mm(?:_v2)?|_int_mm|_?convolution|conv(?:_transpose)?[123]d|convolution_backward|convolution_overrideable"
    r"|(?:cudnn|miopen|mkldnn)_(?:depthwise_)?convolution\w*|mkldnn_linear|thnn_conv2d|_slow_conv2d\w*|slow_conv\w*"
    r"|_?conv_depthwise[23]d|_?scaled_dot_product\w*|_flash_attention\w*|_efficient_attention\w*|_cudnn_attention\w*)"
    # Names that the flash-attn packages register: 2 by torch.library, 3 by its extension.
    r"|flash_attn_3::_?(?:fwd|bwd|flash_attn\w*)|flash_attn::_flash_attn\w*)$"
)
_ELEMENT: dict[str, Precision] = {"float": "fp32", "c10::Half": "fp16", "c10::BFloat16": "bf16", "double": "fp64"}


def is_matrix_op(name: str) -> bool:
    """Whether an op of this name is a matrix product, a convolution or attention."""
    return _MATRIX_OP.match(name) is not None


def of_inputs(dtypes: str) -> Precision:
    """The number format of an op by the JSON text of its `Input type`: that of the first floating-point tensor."""
    for element in re.findall(r'"([^"]*)"', dtypes):
        if element in _ELEMENT:
            return _ELEMENT[element]
        if element.startswith(("c10::Float8", "signed char", "c10::qint")):
            return "other"
    return "unknown"
