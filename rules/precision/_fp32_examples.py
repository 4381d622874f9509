"""Examples of matrix multiplications in fp32."""

from __future__ import annotations

from advisor.api import GEMM, SYNC, Drawing, Ev, Example, draw

from ._cpu_bf16_examples import ON_CPU
from ._partial_autocast import IN_PART

_LARGE = Ev("aten::mm", dims=[[512, 1024], [1024, 1024]], dtypes=["float", "float"])
_FP32 = {"dims": [[512, 1024], [1024, 1024]], "dtypes": ["float", "float"]}
_BF16 = {"dims": [[512, 1024], [1024, 1024]], "dtypes": ["c10::BFloat16", "c10::BFloat16"]}
_BF16_KERNEL = "ampere_bf16_s16816gemm_bf16_128x64_tn"
_STEPS = """
    step   [1                 ][2                 ]
    cpu    [F  ][B  ][S       ][F  ][B  ][S       ]
    gpu 7   [K       ][K      ] [K       ][K      ]
    """
_HOST_BOUND = """
    step   [1                          ][2                          ]
    cpu    [F  ][A                ][B  ][F  ][A                ][B  ]
    gpu 7   [K ]                    [K ] [K ]                    [K ]
    """


_FP32_CONVOLUTION = {"dims": [[32, 64, 56, 56], [64, 64, 3, 3]], "dtypes": ["float", "float"]}
_CONVOLUTION = Ev("cudnn_infer_ampere_scudnn_winograd_128x128_ldg1_ldg4_relu_tile148t_nt_v1", "kernel")
_FP32_ATTENTION = {"dims": [[8, 1024, 8, 64]] * 3, "dtypes": ["float"] * 3}
_FUSED = Ev("fmha_cutlassF_f32_aligned_64x64_rf_sm80(PyTorchMemEffAttention::AttentionKernel)", "kernel")


def _drawn(device: str, dtypes: dict[str, object], kernel: Ev, name: str = "aten::mm") -> Drawing:
    op = Ev(name, **dtypes)  # type: ignore[arg-type]
    return draw(_STEPS, us=1000, device=device, F=op, B=op, K=kernel, S=SYNC)


def _attention_beside_bf16(kernel: Ev, dtype: str) -> Drawing:
    """Attention of that format before products in bf16."""
    return draw(
        _STEPS.replace("K       ][K ", "L       ][K "),
        us=1000,
        device="A100",
        F=Ev("aten::_efficient_attention_forward", dims=[[8, 1024, 8, 64]] * 3, dtypes=[dtype] * 3),
        B=Ev("aten::mm", **_BF16),  # type: ignore[arg-type]
        L=kernel,
        K=Ev(_BF16_KERNEL, "kernel"),
        S=SYNC,
    )


def _beside_bf16(dims: list[list[int]]) -> Drawing:
    base = Ev("aten::mm", **_BF16)  # type: ignore[arg-type]
    few = Ev("aten::mm", dims=dims, dtypes=["float", "float"])
    narrow = Ev(_BF16_KERNEL, "kernel")
    steps = _STEPS.replace("K       ][K ", "L       ][K ")
    return draw(steps, us=1000, device="A100", F=few, B=base, S=SYNC, K=narrow, L=GEMM)


_TF32 = "sm80_xmma_fprop_implicit_gemm_tf32f32_tf32f32_f32_nhwckrsc_nchw_tilesize128x128x16"


def _vae_in_tf32(rest: str, **graph: object) -> Drawing:
    """Convolutions in TF32, and products of another format."""
    return draw(
        _STEPS.replace("K       ][K ", "L       ][K "),
        us=1000,
        device="A100",
        F=Ev("aten::convolution", args=graph, **_FP32_CONVOLUTION),  # type: ignore[arg-type]
        B=Ev("aten::mm", **_BF16),  # type: ignore[arg-type]
        L=Ev(_TF32, "kernel"),
        K=Ev(rest, "kernel"),
        S=SYNC,
    )


_CHOSEN = {"settings": {"matmul_precision": "highest", "matmul_precision_set": True}}
_DEFAULT = {"settings": {"matmul_precision": "highest", "matmul_precision_set": False, "tf32_matmul": False}}

IN_FP32 = [
    Example(
        "fp32 on an A100, nothing known about the run",
        _drawn("A100", _FP32, GEMM),
        saves_us=(2500, 16500),
        says=("TF32", "unless fp32 was chosen on purpose"),
    ),
    Example(
        "fp32 on an A100 by default",
        _drawn("A100", _FP32, GEMM),
        facts=_DEFAULT,
        saves_us=(2500, 16500),
        says=("TF32.",),
    ),
    Example(
        "fp32 on a V100: no TF32 there, but fp16",
        _drawn("V100", _FP32, Ev("volta_sgemm_128x64_nn", "kernel")),
        saves_us=(3500, 15500),
        says=("fp16",),
    ),
    Example(
        "fp32 on an MI300X, which says capability 9 as an H100 does",
        _drawn("MI300X", _FP32, Ev("Cijk_Ailk_Bljk_SB_MT128x64", "kernel")),
        saves_us=(3500, 15500),
        says=("bf16",),
    ),
    Example(
        "the same where Lightning turns the loop",
        _drawn("MI300X", _FP32, Ev("Cijk_Ailk_Bljk_SB_MT128x64", "kernel")),
        facts={"settings": {"framework": "lightning"}},
        saves_us=(3500, 15500),
        says=("bf16",),
    ),
    Example(
        "convolutions for which a script turned TF32 off",
        _drawn("A100", _FP32_CONVOLUTION, _CONVOLUTION, "aten::convolution"),
        facts={"settings": {"tf32_matmul": True, "tf32_cudnn": False}},
        saves_us=(2500, 16500),
        says=("Convolutions in fp32", "TF32"),
    ),
    Example(
        "convolutions that cuDNN runs in fp32 though TF32 is allowed, in a script that uses autocast",
        _drawn("A100", _FP32_CONVOLUTION, _CONVOLUTION, "aten::convolution"),
        facts={"settings": {"tf32_matmul": True, "tf32_cudnn": True, "autocast": True}},
        near_miss=True,
    ),
    Example(
        "fused attention in fp32, which no switch governs: mixed precision does",
        _drawn("A100", _FP32_ATTENTION, _FUSED, "aten::_efficient_attention_forward"),
        saves_us=(3500, 17000),
        says=("Attention in fp32", "bf16"),
    ),
    Example(
        "fp32 beside a host that the device waits for: faster products only wait longer",
        draw(_HOST_BOUND, us=1000, device="A100", F=_LARGE, B=_LARGE, A=Ev("aten::relu", launches="")),
        saves_us="unknown",
        says=("Alone this saves next to nothing", "once it does not"),
    ),
    Example(
        "convolutions of a VAE in fp32, beside a model in bf16",
        draw(
            _STEPS.replace("K       ][K ", "L       ][K "),
            us=1000,
            device="A100",
            F=Ev("aten::convolution", **_FP32_CONVOLUTION),  # type: ignore[arg-type]
            B=Ev("aten::mm", **_BF16),  # type: ignore[arg-type]
            L=_CONVOLUTION,
            K=Ev(_BF16_KERNEL, "kernel"),
            S=SYNC,
        ),
        saves_us=(0, 16500),
        says=("Convolutions in fp32", "beside a model in bf16"),
        fixes=("cudnn.allow_tf32",),
    ),
    Example(
        "a VAE in TF32, beside a model in bf16",
        _vae_in_tf32(_BF16_KERNEL),
        saves_us=(0, 9000),
        says=("in TF32", "beside a model in bf16"),
        fixes=("bfloat16",),
    ),
    Example(
        "filters that are trained in TF32, as Fourier transforms are in no smaller format",
        _vae_in_tf32(_BF16_KERNEL, **{"Sequence number": 7, "Fwd thread id": 0}),
        near_miss=True,
    ),
    Example(
        "attention in fp32 beside products in TF32, which the same autocast makes faster",
        draw(
            _STEPS.replace("K       ][K ", "L       ][K "),
            us=1000,
            device="A100",
            F=Ev("aten::_scaled_dot_product_efficient_attention", **_FP32_ATTENTION),  # type: ignore[arg-type]
            B=Ev("aten::mm", **_FP32),  # type: ignore[arg-type]
            L=_FUSED,
            K=Ev("ampere_sgemm_tf32_128x64_tn", "kernel"),
            S=SYNC,
        ),
        facts={"settings": {"tf32_matmul": True}},
        saves_us=(2_300, 12_600),
        says=("Attention in fp32",),
        fixes=("bfloat16",),
    ),
    Example(
        "attention in fp32 beside a model in bf16: something made its inputs fp32",
        _attention_beside_bf16(_FUSED, "float"),
        saves_us=(500, 9000),
        says=("Attention in fp32", "beside a model in bf16"),
        fixes=("cos.to(v.dtype)",),
    ),
    Example(
        "the same in bf16",
        _attention_beside_bf16(Ev("fmha_cutlassF_bf16_aligned_64x64_rf_sm80", "kernel"), "c10::BFloat16"),
        near_miss=True,
    ),
    Example("TF32 throughout: the whole model was left in fp32", _vae_in_tf32(_TF32), near_miss=True),
    Example(
        "adapters of rank 64 in fp32 beside a model in bf16: only these products are meant",
        _beside_bf16([[16384, 4096], [4096, 64]]),
        saves_us=(0, 16500),
        says=("(the largest aten::mm [16384, 4096] x [4096, 64]), beside a model in bf16,", "as for a router"),
    ),
    Example(
        "adapters of rank 4: memory moves their input for most of the time, whatever the format",
        _beside_bf16([[2_000_000, 4096], [4096, 4]]),
        near_miss=True,
    ),
    Example(
        "fp32 by the new API, on purpose",
        _drawn("A100", _FP32, GEMM),
        facts={"settings": {"matmul_precision_set": True, "tf32_matmul": False}},
        near_miss=True,
    ),
    Example("fp32 was chosen on purpose", _drawn("A100", _FP32, GEMM), facts=_CHOSEN, near_miss=True),
    Example("bf16 already", _drawn("A100", _BF16, Ev(_BF16_KERNEL, "kernel"))),
    *ON_CPU,
    *IN_PART,
]
