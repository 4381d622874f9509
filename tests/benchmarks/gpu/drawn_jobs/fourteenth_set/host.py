"""Jobs of the fourteenth set whose fault is on the host: tokens, garbage, histograms, pictures, prints, checks."""

from __future__ import annotations

from ..eleventh_set.language import fused_norm, llama
from ..eleventh_set.rows import foreach, kernel
from ..eleventh_set.small import encoder
from ..kineto import inputs
from ..layers import REDUCE, Card, Tape, back, dense, fused_adamw
from ..seventh_set import NODE
from ..tenth_set.jobs import H100
from ..twelfth_set.language import A10G
from ..twelfth_set.pictures import ADA, CUTLASS, HALF, SAMPLE, resnet, sgd, small, unscaled
from ..twelfth_set.rows import Conv, Framed, Look, conv_norm, loader

L4 = Look(Card(62, 250, HALF, ADA.card.names, ("", "")), ADA.names, ADA.norm, True)
A10_TF32 = Card(30, 480, "float", ("cutlass_80_tensorop_s1688gemm_128x128_16x4_tn_align4",) * 2, CUTLASS)
HISTOGRAM = "torch/utils/tensorboard/writer.py(485): add_histogram"


def tokenized(rt: Framed, fixed: bool) -> None:
    """DistilBERT in the HF Trainer, bf16, A10G: a collator tokenizes in the training process; without: workers."""
    tape: Tape = []
    if fixed:
        loader(rt, 150)
    else:
        with (rt.frame("accelerate/data_loader.py(563): __iter__", "torch/utils/data/dataloader.py(701): __next__"),
              rt.span("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", "user_annotation", us=90),
              rt.frame("torch/utils/data/_utils/fetch.py(55): fetch", "train.py(58): collate",
                       "transformers/tokenization_utils_base.py(2877): __call__",
                       "transformers/tokenization_utils_fast.py(527): _batch_encode_plus",
                       "<built-in method encode_batch of tokenizers.Tokenizer object>")):  # fmt: skip
            rt.host(31_000)
            for _ in range(3):
                rt.op("aten::lift_fresh", us=3)
    for _ in range(3):
        with rt.span("aten::to"), rt.span("aten::_to_copy"), rt.span("aten::copy_"):
            rt.copy(32 * 128 * 8)
    with rt.frame("transformers/trainer.py(3698): training_step", "nn.Module: DistilBertForSequenceClassification_0"):
        for _ in range(6):
            encoder(rt, tape, A10G, (32, 128, 768))
        dense(rt, tape, A10G, 32, (32, 768, 2))
        small(rt, tape, ("log_softmax", "nll_loss"), [32, 2])
    with rt.frame("accelerate/accelerator.py(2218): backward"):
        back(rt, tape)
    foreach(rt, "_foreach_norm", "LpNormFunctor", A10G.moves(4 * 67e6), 3)
    foreach(rt, "_foreach_mul_", "BinaryOpScalarTensorFunctor", A10G.moves(8 * 67e6), 3)
    fused_adamw(rt, A10G, 67e6)
    rt.host(400)


def collected(rt: Framed, fixed: bool) -> None:
    """A model of 0.4 B on an H100: `gc.collect()` after the loss is read in each step; without: neither of them."""
    tape: Tape = []
    rt.batch(8 * 2_048 * 8, 8 * 2_048 * 8)
    for _ in range(12):
        llama(rt, tape, H100, (8, 2_048, 1_536, 4, 6_144), fused_norm)
    dense(rt, tape, H100, 8, (16_384, 1_536, 32_000))
    number = rt.op("LigerCrossEntropyFunction", run=(("liger_cross_entropy_kernel", 900),), graph=True)
    tape.append(lambda: rt.grad("LigerCrossEntropyFunctionBackward", number, run=(("element_mul_kernel", 300),)))
    back(rt, tape)
    fused_adamw(rt, H100, 4e8)
    if not fixed:
        with rt.frame("<method 'item' of 'torch._C.TensorBase' objects>"):
            rt.value()
        with rt.frame("train.py(203): clean", "<built-in function collect>"):
            rt.host(52_000)
    rt.host(350)


def histograms(rt: Framed, fixed: bool) -> None:
    """ResNet-50 by AMP, RTX 4090: `add_histogram` of all parameters in each step; without: not in these steps."""
    tape: Tape = []
    loader(rt, 170)
    with rt.span("aten::to"), rt.span("aten::_to_copy"), rt.span("aten::copy_"):
        rt.copy(128 * 3 * 224 * 224 * 4)
    resnet(rt, tape, ADA, 128, (7, 7))
    dense(rt, tape, ADA.card, 128, (128, 2_048, 1_000))
    small(rt, tape, ("log_softmax", "nll_loss"), [128, 1_000], 6)
    back(rt, tape)
    unscaled(rt, ADA.card, 25.5e6)
    sgd(rt, ADA.card, 25.5e6)
    for place in range(0 if fixed else 161):
        count = (64, 147_456, 256, 589_824, 64)[place % 5]
        with rt.frame(SAMPLE, HISTOGRAM):
            with rt.span("aten::detach"), rt.span("detach", us=1):
                pass
            with rt.span("aten::to", **inputs(([count],), "float")), rt.span("aten::_to_copy"), rt.span("aten::copy_"):
                rt.copy(count * 4, "DtoH", "Pageable", waits=True)
            rt.host(60 + count / 90)  # numpy counts
    rt.host(300)


def normalized(rt: Framed, fixed: bool) -> None:
    """A UNet on an L4: pictures of uint8 become float on the host, then are moved; without: moved first, pinned."""
    tape, dims = Tape(), [16, 3, 512, 512]
    loader(rt, 160)
    n = 16 * 3 * 512 * 512
    if fixed:
        with rt.span("aten::to"), rt.span("aten::_to_copy"), rt.span("aten::copy_"):
            rt.copy(n)
        for name, passes in (("_to_copy", 5), ("div", 8), ("sub", 8), ("div", 8)):
            rt.op(f"aten::{name}", run=((kernel(name, 2), L4.card.moves(passes * n)),), dims=(dims,))
    else:
        rt.op("aten::to", "aten::_to_copy", "aten::copy_", us=1_500, dims=(dims,), kind="unsigned char")
        for name in ("div", "sub", "div"):
            rt.op(f"aten::{name}", us=5_600, dims=(dims, []), gap=12)
        rt.moved(4 * n, 5.5, dims)
    for cin, cout, size in (
        (3, 32, 512),
        (32, 64, 256),
        (64, 128, 128),
        (128, 256, 64),
        (256, 128, 128),
        (128, 64, 256),
    ):
        conv_norm(rt, tape, L4, Conv(16, cin, cout, 3, size, size))
        conv_norm(rt, tape, L4, Conv(16, cout, cout, 3, size, size))
    small(rt, tape, ("binary_cross_entropy_with_logits",), [16, 1, 512, 512], 90)
    back(rt, tape)
    unscaled(rt, L4.card, 3e6)
    sgd(rt, L4.card, 3e6)
    rt.host(200)


_PRINTED = ("abs", "ne", "masked_select", "ceil", "ne", "div", "gt", "mul")


def shown(rt: Framed, fixed: bool) -> None:
    """A recommender's towers on an RTX 4090: `print(loss, outputs[:8])` in each step; without: no print."""
    tape: Tape = []
    rt.batch(4_096 * 8, 4_096 * 8)
    for _ in range(2):
        for sizes in ((512, 2_048), (2_048, 1_024), (1_024, 256)):
            dense(rt, tape, ADA.card, 1, (4_096, *sizes))
            small(rt, tape, ("relu", "dropout"), [4_096, sizes[1]], 14)
    small(rt, tape, ("normalize", "mul", "sum", "sigmoid", "binary_cross_entropy"), [4_096, 256], 5)
    back(rt, tape)
    fused_adamw(rt, ADA.card, 7e6)
    for size in () if fixed else ([], [8]):
        for name in _PRINTED if size else ():
            rt.op(f"aten::{name}", run=((kernel(name, 2), 2.6),), dims=(size,), gap=16)
            if name in ("masked_select", "ne", "gt", "div"):
                rt.value()
        for _ in range(8 if size else 1):
            rt.op("aten::select", us=2, gap=9)
            rt.value()
    rt.host(160)


def anomalous(rt: Framed, fixed: bool) -> None:
    """A ViT-S in fp32, A10G: `set_detect_anomaly(True)` looks at each node's gradient; without: off."""
    tape, batch = Tape(), 8
    rt.batch(batch * 3 * 224 * 224 * 4, batch * 8)
    for _ in range(12):
        encoder(rt, tape, A10_TF32, (batch, 197, 384))
    dense(rt, tape, A10_TF32, batch, (batch, 384, 1_000))
    small(rt, tape, ("log_softmax", "nll_loss"), [batch, 1_000])
    with rt.backward():
        while tape:
            tape.pop()()
            if fixed:
                continue
            node = next(row for row in reversed(rt.rows) if row["name"].startswith(NODE))
            for name, us in (("isnan", 5), ("any", 4)):
                rt.op(f"aten::{name}", run=((REDUCE if name == "any" else kernel(name, 2), us),), gap=2,
                      dims=([batch, 197, 384],))  # fmt: skip
            rt.value()
            node["dur"] = round(rt.now - node["ts"], 3)  # the engine looks while its row of the node is open
    fused_adamw(rt, A10_TF32, 22e6)
    rt.host(180)
