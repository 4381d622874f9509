"""The split of a step into fixed and per-sample time, against work counted by hand."""

import json

import pytest
from msgspec.structs import replace

from advisor.analyses.base.scale import Scale
from advisor.analyses.costs.batch_split import BatchSplit
from advisor.analyses.costs.batch_work import batch_of_shapes
from advisor.analyses.work.op_work import flops, shapes, traffic
from advisor.api import Device, Ev, draw
from advisor.computed import Missing
from advisor.engine.rule import Example
from advisor.rules.batch._batch_size import target_size
from advisor.testing import computed
from advisor.trace.events import Category, Trace

# Where a run has no calibration.
_CORE_GFLOPS = (15.0, 130.0)

STEPS = """
    step   [1                         ][2                         ]
    cpu    [F        ]        [O     ] [F        ]        [O     ]
    cpu 2             [B     ]                    [B     ]
    """


def layer(batch, width):
    return Ev("aten::addmm", dims=[[width], [batch, width], [width, width]])


def gradient(batch, width):
    return Ev("aten::mm", dims=[[width, batch], [batch, width]])


def split_of(batch, width, us=100, **facts):
    drawing = draw(STEPS, us=us, F=layer(batch, width), B=gradient(batch, width), O="Optimizer.step#SGD.step")
    recorded = {"loaders": [{"batch_size": batch, "num_workers": 0}], "settings": {"cores": 1, "threads": 1}} | facts
    return computed(Example("drawn", drawing, None, facts=recorded))


@pytest.mark.parametrize(
    ("name", "inputs", "expected"),
    [
        ("aten::mm", [[2, 3], [3, 5]], 2 * 2 * 3 * 5),
        ("aten::addmm", [[5], [2, 3], [3, 5], [], []], 2 * 2 * 3 * 5),
        ("aten::bmm", [[7, 2, 3], [7, 3, 5]], 2 * 7 * 2 * 3 * 5),
        # LeNet's first layer on 4 pictures: 6 x 28 x 28 outputs of 3 x 5 x 5 products each; forward and two gradients.
        ("aten::convolution_backward", [[4, 6, 28, 28], [4, 3, 32, 32], [6, 3, 5, 5]], 3 * 2 * 4 * 6 * 28 * 28 * 75),
        ("aten::relu", [[4, 10]], 0),
    ],
)
def test_arithmetic_by_hand(name, inputs, expected):
    assert flops(name, inputs) == expected


def test_traffic_is_inputs_and_an_output_in_bytes():
    assert traffic("aten::add", [[4, 10], [4, 10]]) == 4 * (40 + 40 + 40)
    assert traffic("aten::view", [[4, 10]]) == 0
    assert traffic("aten::add", []) == 0


def test_inputs_that_are_no_single_tensor_have_no_shape():
    assert shapes(json.dumps([[2, 3], [], [[2, 3], [4]], "", 7])) == [[2, 3], [], []]
    assert shapes("") == []


def test_fixed_and_per_sample_time_make_up_the_present_step():
    known = split_of(4, 256, us=20)
    split, step_us = known.get(BatchSplit), known.get(Scale).step_us
    assert split.step_us(4) == pytest.approx((step_us, step_us))
    assert split.saving_us(4) == (0, 0)
    for batch in (8, 64, 1024):
        low, high = split.saving_us(batch)
        slow, fast = split.step_us(batch)[1], split.step_us(batch)[0]
        assert low == pytest.approx(step_us - slow * 4 / batch)
        assert high == pytest.approx(step_us - fast * 4 / batch)
        rates = split.samples_per_second(batch)
        assert rates == pytest.approx((batch / slow * 1e6, batch / fast * 1e6))


def test_work_per_sample_is_counted_from_the_shapes():
    split = split_of(8, 512).get(BatchSplit)
    by_hand = 2 * 512 * 512 + 2 * 512 * 512  # one product forward, one for the gradient of the weight
    slow, fast = (by_hand / rate / 1e3 for rate in _CORE_GFLOPS)
    python = 100 / 8  # between backward and optimizer 100 µs of Python, which may be a loop over the 8 samples
    assert split.per_sample_us == pytest.approx((fast, slow + python))


def test_loading_a_sample_counts_as_per_sample_time():
    without = split_of(8, 512).get(BatchSplit)
    loader = {"batch_size": 8, "num_workers": 0, "sample_us": 100.0}
    with_samples = split_of(8, 512, loaders=[loader]).get(BatchSplit)
    assert with_samples.per_sample_us[1] == pytest.approx(without.per_sample_us[1] + 100)


def test_the_samples_never_take_more_than_the_step():
    split = split_of(4, 8192).get(BatchSplit)
    # At the lowest rate the work would take longer than the two products took, which leaves the optimizer and what
    # calling them costs at least; at the highest, longer than the whole step.
    assert split.fixed_us == pytest.approx((800 + 2 * 15, 0))
    assert split.saving_us(64)[0] == pytest.approx(0)


def test_unknown_loading_cost_is_said():
    loader = {"batch_size": 8, "num_workers": 2}
    assert not split_of(8, 512, loaders=[loader]).get(BatchSplit).loader_known


def test_no_batch_is_suggested_whose_tensors_leave_the_caches():
    known = split_of(8, 512)
    split, device = replace(known.get(BatchSplit), per_sample_us=(1.0, 1.0)), known.get(Device)
    assert split.sample_bytes == 4 * 512
    assert target_size(split, None, device, None, 1) == 8 * 16
    half = replace(split, sample_bytes=4e6 / 64)
    assert target_size(half, None, device, None, 1) == 64
    assert target_size(replace(split, sample_bytes=4e6 / 8), None, device, None, 1) == 8


def test_a_script_without_a_loader_makes_its_batches_in_the_step():
    assert split_of(8, 512, loaders=[]).get(BatchSplit).loader_known
    drawing = draw(STEPS, F=layer(8, 512), B=gradient(8, 512), O="Optimizer.step#SGD.step")
    assert not computed(Example("a bare trace", drawing, None)).get(BatchSplit).loader_known


def test_a_search_between_the_steps_does_not_tell_their_batch_size():
    """Sixteen products of one row without autograd, as of a beam search, beside one that is trained on 32."""
    trained = Ev("aten::addmm", dims=layer(32, 512).dims, args={"Sequence number": 7})
    steps = STEPS.replace("[O     ]", "[O][S   ]")
    searched = Ev("aten::addmm", dims=layer(1, 512).dims, times=16)
    drawing = draw(steps, F=trained, B=gradient(32, 512), S=searched, O="Optimizer.step#SGD.step")
    assert computed(Example("a bare trace", drawing, None)).get(BatchSplit).batch_size == 32


def test_without_shapes_or_batch_size_there_is_no_split():
    bare = draw(STEPS, us=100, B="aten::mm", O="Optimizer.step#SGD.step")
    with pytest.raises(Missing):
        computed(Example("drawn", bare, None)).get(BatchSplit)


def test_on_a_device_kernels_grow_and_python_may():
    drawing = draw(
        """
        step   [1                 ][2                 ]
        cpu    [F   ]              [F   ]
        gpu 7   [K       ]          [K       ]
        """,
        us=100,
        F=layer(4, 256),
    )
    split = computed(Example("drawn", drawing, None, facts={"loaders": [{"batch_size": 4}]})).get(BatchSplit)
    # 1,000 µs of 2,000 are kernels; the gap of 900 µs is Python that may loop over samples: at worst both double.
    assert split.step_us(8)[1] == pytest.approx(2000 + 1000 + 900)
    assert split.step_us(8)[0] == pytest.approx(2000 + 1000)


@pytest.mark.parametrize(("pieces", "grows"), [(32, True), (30, False)])
def test_launches_of_a_loop_over_the_samples_may_grow_with_the_batch(pieces, grows):
    """Sixteen pictures, two short ops for each: 32 waits for launches that a batch of 32 has twice. Of 30 ops of a
    model with many layers nobody says that.
    """
    width = 8 * pieces + 2
    lanes = {
        "step": "".join(f"[{number}".ljust(width - 1) + "]" for number in (1, 2)),
        "cpu": 2 * ("[P]     " * pieces).ljust(width),
        "gpu 7": 2 * ("   [K]  " * pieces).ljust(width),
    }
    text = "\n".join(f"{lane:<6} {row}" for lane, row in lanes.items())
    drawing = draw(text, us=5, P=Ev("aten::mul", dims=[[3, 64, 64], [3, 64, 64]]), K=Ev("tiny", "kernel", fill=0.1))
    split = computed(Example("drawn", drawing, None, facts={"loaders": [{"batch_size": 16}]})).get(BatchSplit)
    assert (split.fixed_us[0] < 0.2 * 5 * width) is grows


def test_a_busy_machine_is_not_taken_for_fixed_cost():
    # 1.9 ms for products of 1 MFLOP: somebody else had the cores.
    with pytest.raises(Missing, match="busy with other work"):
        split_of(4, 256).get(BatchSplit)


def test_a_step_in_which_others_had_the_cores_does_not_decide():
    """Of three steps one has its layer take four times as long: what grows with the batch is that of the others."""
    even, held = "[F   ][G              ][O     ]", "[F              ][G   ][O     ]"
    facts = {"loaders": [{"batch_size": 4, "num_workers": 0}], "settings": {"cores": 1, "threads": 1}}

    def slowest(middle: str) -> float:
        steps = "".join(f"[{number}{' ' * (len(even) - 1)}]" for number in (1, 2, 3))
        lane = "".join(f"{ops:<{len(even) + 2}}" for ops in (even, middle, even))
        first, second = Ev("aten::relu", dims=[[4, 256, 256]]), Ev("aten::tanh", dims=[[512]])
        drawing = draw(f"step {steps}\ncpu  {lane}", us=100, F=first, G=second, O="Optimizer.step#SGD.step")
        return computed(Example("drawn", drawing, None, facts=facts)).get(BatchSplit).per_sample_us[1]

    assert slowest(held) == pytest.approx(slowest(even), rel=0.05)


def test_ops_that_run_once_per_sample_may_grow_with_the_batch():
    loop = Ev("aten::mul", times=8, dims=[[512], [512]])
    drawing = draw(
        """
        step   [1                         ][2                         ]
        cpu    [F        ][L    ] [O     ] [F        ][L    ] [O     ]
        """,
        us=100,
        F=layer(8, 512),
        L=loop,
        O="Optimizer.step#SGD.step",
    )
    facts = {"loaders": [{"batch_size": 8, "num_workers": 0}], "settings": {"cores": 1, "threads": 1}}
    split = computed(Example("drawn", drawing, None, facts=facts)).get(BatchSplit)
    work = 2 * 512 * 512 / _CORE_GFLOPS[0] / 1e3
    # 700 µs of the loop and 200 µs of Python between the ops are shared out among 8 samples.
    assert split.per_sample_us[1] == pytest.approx(work + (700 + 200) / 8)


def test_rates_are_those_of_the_machine_of_the_run():
    measured = {
        "core_small_gflops": (40.0, 50.0, 60.0, 60),
        "core_fp32_gflops": (85.0, 90.0, 95.0, 60),
        "core_memory_gbs": (30.0, 35.0, 40.0, 60),
    }
    split = split_of(8, 512, calibration={"quantities": measured}).get(BatchSplit)
    by_hand = 2 * 512 * 512 + 2 * 512 * 512
    assert split.per_sample_us == pytest.approx((by_hand / 95 / 1e3, by_hand / 40 / 1e3 + 100 / 8))
    assert "40 to 95 GFLOP/s" in split.how
    assert "15 to 130 GFLOP/s" in split_of(8, 512).get(BatchSplit).how


@pytest.mark.parametrize(
    ("shown", "sequences"),
    [
        (Ev("aten::embedding", dims=[[1000, 64], [8, 512]]), 8),
        (Ev("aten::scaled_dot_product_attention", dims=[[8, 4, 512, 16]] * 3), 8),
        (Ev("aten::embedding", dims=[[1000, 64], [8, 100]]), 4096),
        (Ev("aten::relu", dims=[[4096, 64]]), 4096),
    ],
)
def test_tokens_of_sequences_are_no_samples(shown: Ev, sequences: int) -> None:
    text = "step [1      ][2      ]\ncpu  [E ][F ] [E ][F ]"
    trace = computed(Example("drawn", draw(text, us=100, E=shown, F=layer(4096, 64)), None)).get(Trace)
    assert batch_of_shapes(trace, trace.events.of(Category.CPU_OP)) == sequences


@pytest.mark.parametrize(("times", "known"), [(1, True), (64, False)])
def test_layers_that_are_called_for_each_row_leave_the_batch_size_open(times, known):
    one_row = Ev("aten::addmm", dims=[[8], [1, 8], [8, 8]], times=times)
    stored = Ev("torch::autograd::AccumulateGrad", times=2)
    drawing = draw(STEPS, us=100, F=one_row, B=stored, O="Optimizer.step#SGD.step")
    of = computed(Example("drawn", drawing, None, facts={"settings": {"cores": 1, "threads": 1}}))
    with pytest.raises(Missing, match="as their work explains" if known else "again and again on one row"):
        of.get(BatchSplit)
