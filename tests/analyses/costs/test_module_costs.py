"""Cost by module on drawn traces, worked out by hand."""

import json

import pytest
from module_drawings import INNER, LAYER, MODEL, NET, by_path, known, lane, op, profiled, table

from advisor.analyses.costs.module_calls import ModuleCalls
from advisor.api import Ev, ModuleCost, RankRecord, StepTimes, draw
from advisor.computed import Computed, Missing
from advisor.report.module_view import modules
from advisor.trace.read.load import read_bytes


def test_times_of_modules_by_hand():
    found = table(profiled(4, 4))
    rows = by_path(found)
    # Net from column 3 to 43, embed from 6 to 15, the layer from 17 to 33.
    assert (rows["Net"].forward_us, rows["Net"].forward_own_us) == (400, 400 - 90 - 160)
    assert (rows["embed"].forward_us, rows["embed"].forward_own_us) == (90, 90)
    assert rows["layers.0"].forward_us == 160
    # Nodes by the number of their op; the one that adds up a gradient is of no op.
    assert rows["embed"].backward_us == 40
    assert rows["layers.0"].backward_us == 50 + 60
    assert (rows["Net"].backward_us, rows["Net"].backward_own_us) == (150, None)
    assert rows["Net"].share == pytest.approx(550 / 700)
    assert rows["layers.0"].own_share == pytest.approx(270 / 700)
    assert (rows["layers.0"].kind, rows["layers.0"].parameters, rows["layers.0"].parameter_bytes) == ("Linear", 20, 80)
    assert (found.steps, rows["Net"].calls) == (2, 1)


def test_what_did_not_run_is_not_known():
    row = by_path(table(profiled(4, 4)))["layers"]
    assert row == ModuleCost("layers", "ModuleList", parameters=20, parameter_bytes=80)


def test_without_a_device_nothing_is_said_of_one():
    assert {row.device_us for row in table(profiled(4, 4)).rows} == {None}


def test_a_step_in_which_the_process_stood_still_is_not_the_typical_one():
    rows = by_path(table(profiled(4, 400, 4)))
    assert (rows["layers.0"].forward_us, rows["Net"].forward_us) == (160, 400)
    assert rows["Net"].share == pytest.approx(550 / 700)


def test_steps_with_other_ops_are_left_out():
    other = profiled(4, 4, 4, b1=op("aten::bilinear", 12))
    found = table(other)
    assert found.steps == 2
    assert by_path(found)["Net"].forward_us == 400


def test_where_no_step_is_like_the_recorded_one_nothing_is_known():
    found = table(profiled(4, 4, b0=op("aten::bilinear", 2), b1=op("aten::bilinear", 12)))
    assert "different ops" in found.why
    assert found.rows == found.folded == ()


def test_ops_before_the_forward_may_differ():
    """A loader that draws other augmentations in each step does not shift the model's ops."""
    text = lane("step", (0, 60, "1"), (60, 120, "2"))
    text += lane(
        "cpu", (2, 6, "b"), (9, 13, "a"), (19, 23, "b"), (25, 29, "c"), (69, 73, "a"), (79, 83, "b"), (85, 89, "c")
    )
    trace = draw(text, us=10, a="aten::embedding", b="aten::linear", c="aten::relu")
    found = table(trace)
    assert found.steps == 2
    # In the first step another op stands before the forward: what lies between them is not counted as the model's.
    assert by_path(found)["embed"].forward_us == pytest.approx((60 + 90) / 2)


@pytest.mark.parametrize(("other", "begins"), [([], 2 * 8 / 5), ([(1, 4, "b")], 8)])
def test_what_a_model_does_around_its_first_and_last_op(other, begins):
    """Rows that are no ops (DDP's forward) date it as ops do; nothing is said of what begins after another row."""
    forward = Ev("DistributedDataParallel.forward", "user_annotation", launches="")
    step = lane("step", (0, 60, "1"))
    ranges = lane("cpu", (2, 40, "N")) + lane("cpu", (5, 35, "D")) + lane("cpu", (10, 20, "a"))
    recorded = draw(step + ranges, us=10, N=NET, D=forward, a="aten::relu")
    rows = lane("cpu", *other, (8, 33, "D")) + lane("cpu", (16, 26, "a"))
    trace = draw(step + rows, us=10, D=forward, a="aten::relu", **{word: "aten::to" for _, _, word in other})
    ends = 33 + (60 - 33) * (40 - 35) / (60 - 35)
    assert by_path(table(trace, recorded))["Net"].forward_us == pytest.approx(10 * (ends - begins), rel=1e-5)


def test_a_model_that_is_called_twice():
    """Each call has its own place; a word that occurs more often than in the recorded step would be a guess."""
    text = (
        lane("step", (0, 60, "1")) + lane("cpu", (2, 12, "N"), (20, 30, "N")) + lane("cpu", (4, 10, "a"), (22, 28, "a"))
    )
    recorded = draw(text, us=10, N=NET, a="aten::relu")
    twice = lane("step", (0, 40, "1"), (40, 90, "2")) + lane(
        "cpu", (4, 10, "a"), (22, 30, "a"), (44, 50, "a"), (64, 72, "a")
    )
    more = lane("step", (0, 40, "1")) + lane("cpu", (4, 10, "a"), (12, 20, "a"), (22, 30, "a"))
    found = table(draw(twice, us=10, a="aten::relu"), recorded)
    assert (found.steps, by_path(found)["Net"].calls) == (2, 2)
    # From the step's start to the first op, between the ops, and from the last op to the step's end, as recorded.
    first = (10 - 2) + 2 + 2 + (30 - 22) + 10 * 2 / 32
    second = (50 - 42) + 14 * 2 / 12 + 14 * 2 / 12 + (72 - 64) + 18 * 2 / 32
    assert by_path(found)["Net"].forward_us == pytest.approx(10 * (first + second) / 2, rel=1e-5)
    assert "different ops" in table(draw(more, us=10, a="aten::relu"), recorded).why


def test_a_module_within_itself_counts_once():
    text = (
        lane("step", (0, 60, "1")) + lane("cpu", (2, 50, "N")) + lane("cpu", (12, 40, "N")) + lane("cpu", (20, 30, "a"))
    )
    drawing = {"us": 10, "N": NET, "a": "aten::relu"}
    trace = draw(lane("step", (0, 60, "1")) + lane("cpu", (20, 30, "a")), us=10, a="aten::relu")
    row = by_path(table(trace, draw(text, **drawing)))["Net"]
    assert (row.forward_us, row.forward_own_us, row.calls) == (480, 480, 2)


def test_device_work_belongs_to_the_module_that_started_it():
    kernels = [(10, 14, "K"), (20, 30, "K"), (30, 33, "K"), (50, 60, "K"), (60, 63, "K"), (63, 66, "K"), (66, 69, "K")]
    work = [(s + 70 * i, e + 70 * i, w) for i in range(2) for s, e, w in kernels]
    rows = by_path(table(profiled(4, 4, gpu=lane("gpu 7", *work), K=Ev("gemm", "kernel"))))
    assert rows["embed"].device_us == pytest.approx(40 + 30)
    assert rows["layers.0"].device_us == pytest.approx(100 + 30 + 100 + 30)
    assert rows["Net"].device_us == pytest.approx(330)
    assert rows["Net"].device_own_us == 0
    assert rows["Net"].device_share == pytest.approx(330 / 700)
    assert rows["layers.0"].backward_us == pytest.approx(110)


def shaped(name, dims, values=None):
    args = {"Concrete Inputs": values} if values else {}
    return Ev(name, dims=dims, dtypes=["float"] * len(dims), args=args)


def test_operations_by_hand():
    text = lane("step", (0, 60, "1"))
    text += lane("cpu", (2, 32, "N")) + lane("cpu", (4, 12, "E"), (14, 27, "L"))
    text += lane("cpu", (6, 10, "a"), (16, 20, "b"), (21, 25, "c"))
    product = shaped("aten::addmm", [[7], [5, 3], [3, 7]])
    attention = "aten::_scaled_dot_product_flash_attention_for_cpu"
    heads = shaped(attention, [[2, 4, 8, 16]] * 3 + [[], []], ["", "", "", "0.", "False"])
    turned = ["", "", "", "[2, 2]", "[0, 0]", "[1, 1]", "True", "[0, 0]", "1"]
    up = shaped("aten::convolution", [[2, 6, 5, 5], [6, 3, 2, 2], [3]], turned)
    ran = {"us": 10, "N": NET, "E": INNER, "L": LAYER, "a": product, "b": heads, "c": up}
    rows = by_path(table(draw(text, **ran), draw(text, **ran)))
    assert rows["embed"].flops == 2 * 5 * 3 * 7
    # Each number of the input meets the whole kernel of a transposed convolution.
    assert rows["layers.0"].flops == 2 * 2 * (2 * 4 * 8 * 8 * 16) + 2 * (2 * 6 * 5 * 5) * (3 * 2 * 2)
    assert rows["Net"].flops == rows["embed"].flops + rows["layers.0"].flops

    hidden = ran | {"b": shaped("aten::mkldnn_rnn_layer", [[2, 3, 4]])}
    rows = by_path(table(draw(text, **hidden), draw(text, **hidden)))
    assert (rows["embed"].flops, rows["layers.0"].flops, rows["Net"].flops) == (2 * 5 * 3 * 7, None, None)
    bare = {**ran, "a": "aten::addmm", "b": "aten::relu", "c": "aten::relu"}
    assert {row.flops for row in table(draw(text, **bare), draw(text, **bare)).rows} == {None}


def test_time_without_the_profiler():
    """Where every part of the step took half of its profiled time, so did the modules."""
    half = StepTimes(
        unprofiled_us=[350.0] * 30,
        profiled_us=[700.0] * 2,
        unprofiled_parts_us={
            "fetch": [0.0] * 30,
            "backward": [100.0] * 30,
            "optimizer": [0.0] * 30,
            "rest": [250.0] * 30,
        },
        profiled_parts_us={"fetch": [0.0] * 2, "backward": [200.0] * 2, "optimizer": [0.0] * 2, "rest": [500.0] * 2},
    )
    record = RankRecord(model=MODEL, steps=half)
    rows = by_path(table(profiled(4, 4), record=record))
    assert rows["layers.0"].low_us <= (160 + 110) / 2 <= rows["layers.0"].high_us
    assert rows["Net"].high_us <= 350
    rows = by_path(table(profiled(4, 4)))
    assert rows["Net"].low_us is None


def test_models_of_an_older_capture_that_share_their_paths_are_not_mixed():
    twice = RankRecord(model={"modules": [*MODEL["modules"], {"path": "layers.0", "kind": "Linear", "parameters": 5}]})
    assert "same path" in table(profiled(4, 4), record=twice).why


@pytest.mark.parametrize(
    "model",
    [
        None,
        {},
        {"modules": 3},
        {"modules": [7, {"path": 3}, {"kind": "x"}]},
        {"modules": [{"path": "Net", "parameters": "many"}]},
    ],
)
def test_a_damaged_record_costs_no_more_than_its_facts(model):
    rows = by_path(table(profiled(4, 4), record=RankRecord(model=model)))
    assert rows["Net"].forward_us == 400
    assert rows["Net"].parameters is None


def test_a_bare_trace_without_modules_says_nothing():
    computed = Computed(trace=read_bytes(json.dumps(dict(profiled(4, 4))).encode(), "a.json"))
    assert modules(computed, 0, None) is None
    with pytest.raises(Missing, match="advisor run"):
        computed.get(ModuleCalls)


def test_thousands_of_ranks_do_not_each_hold_a_table_of_the_same_model():
    computed, record = known(profiled(4, 4)), RankRecord(model=MODEL)
    assert [modules(computed, rank, record) is None for rank in (0, 7, 8, 4000)] == [False, False, True, True]
