"""Cost by module: by hand on drawn traces, and on real ones against sums over the raw rows."""

import gzip
import json
import math
from pathlib import Path

import pytest

from advisor.analyses.module_calls import ModuleCalls
from advisor.api import Ev, LinesTrace, ModuleCost, RankRecord, StepTimes, draw
from advisor.computed import Computed, Missing
from advisor.module_tree import fold
from advisor.module_view import modules
from advisor.trace.load import load, read_bytes

TRACES = Path(__file__).parents[1].parent / "shared" / "traces"
HALF = "c10::BFloat16"
NET, INNER, LAYER = (
    Ev(f"advisor:module|{path}|{kind}", "user_annotation", launches="")
    for path, kind in (("Net", "Net"), ("embed", "Embedding"), ("layers.0", "Linear"))
)
MODEL = {
    "modules": [
        {"path": "Net", "kind": "Net", "parameters": 30, "parameter_bytes": 120, "root": True},
        {"path": "embed", "kind": "Embedding", "parameters": 10, "parameter_bytes": 40},
        {"path": "layers", "kind": "ModuleList", "parameters": 20, "parameter_bytes": 80},
        {"path": "layers.0", "kind": "Linear", "parameters": 20, "parameter_bytes": 80},
    ]
}


def lane(name, *boxes):
    """A lane of a drawing from (first column, end, word)."""
    text = ""
    for start, end, word in boxes:
        text = f"{text:{start}}[{word:{end - start - 2}}]"
        assert len(text) == end, "boxes overlap, or a word is longer than its box"
    return f"{name:8}{text}\n"


def op(name, number, **more):
    """A forward op that autograd gave this number."""
    return Ev(name, args={"Sequence number": number}, **more)


def node(name, number):
    """The node that goes back through the op of that number."""
    return Ev(f"autograd::engine::evaluate_function: {name}", args={"Sequence number": number, "Fwd thread id": 1})


# Columns of 10 µs. In the recorded step the modules begin and end a third and two thirds of the way between ops.
RECORDED = draw(
    lane("step", (0, 60, "1"))
    + lane("cpu", (2, 32, "N"), (34, 38, "x"), (38, 42, "y"), (42, 46, "z"))
    + lane("cpu", (4, 12, "E"), (14, 27, "L"))
    + lane("cpu", (6, 10, "a"), (16, 20, "b"), (21, 25, "c")),
    us=10,
    N=NET,
    E=INNER,
    L=LAYER,
    a="aten::embedding",
    b="aten::linear",
    c="aten::relu",
    x=node("ReluBackward0", 3),
    y=node("AddmmBackward0", 2),
    z=node("EmbeddingBackward0", 1),
)


def profiled(*lasts, gpu="", **more):
    """Steps of 70 columns; `lasts`: the columns that the last op of each takes, longer by what disturbed it."""
    step, forward, backward, words, at = [], [], [], {}, 0
    for index, last in enumerate(lasts):
        late = last - 4
        step.append((at, at + 70 + late, str(index)))
        names = [f"{letter}{index}" for letter in "abcxyzg"]
        forward += [(at + 9, at + 13, names[0]), (at + 19, at + 23, names[1]), (at + 25, at + 25 + last, names[2])]
        ends = [(47, 52), (52, 58), (60, 64), (64, 68)]
        backward += [(at + s + late, at + e + late, name) for (s, e), name in zip(ends, names[3:], strict=True)]
        number = 10 * index
        words |= {
            names[0]: op("aten::embedding", number + 1),
            names[1]: op("aten::linear", number + 2),
            names[2]: op("aten::relu", number + 3),
            names[3]: node("ReluBackward0", number + 3),
            names[4]: node("AddmmBackward0", number + 2),
            names[5]: node("EmbeddingBackward0", number + 1),
            names[6]: Ev("autograd::engine::evaluate_function: torch::autograd::AccumulateGrad"),
        }
        at += 70 + late
    on_loop = forward if gpu else sorted(forward + backward)
    text = lane("step", *step) + lane("cpu", *on_loop) + (lane("cpu 2", *backward) + gpu if gpu else "")
    return draw(text, us=10, **words | more)


def known(trace, recorded=RECORDED, record=None):
    def read(one):
        return read_bytes(json.dumps(one).encode(), "a.json")

    lines = LinesTrace(read(recorded)) if recorded else None
    return Computed(trace=read(trace), lines=lines, record=record or RankRecord(model=MODEL))


def table(trace, recorded=RECORDED, record=None):
    computed = known(trace, recorded, record)
    return modules(computed, 0, record or RankRecord(model=MODEL))


def by_path(found):
    assert found.why == ""
    return {row.path: row for row in found.rows}


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
    assert "other ops" in found.why
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
    assert "other ops" in table(draw(more, us=10, a="aten::relu"), recorded).why


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
    computed = Computed(trace=read_bytes(json.dumps(profiled(4, 4)).encode(), "a.json"))
    assert modules(computed, 0, None) is None
    with pytest.raises(Missing, match="advisor run"):
        computed.get(ModuleCalls)


def test_thousands_of_ranks_do_not_each_hold_a_table_of_the_same_model():
    computed, record = known(profiled(4, 4)), RankRecord(model=MODEL)
    assert [modules(computed, rank, record) is None for rank in (0, 7, 8, 4000)] == [False, False, True, True]


def test_modules_that_the_profiler_recorded_by_itself():
    text = lane("step", (0, 60, "1")) + lane("cpu", (2, 50, "N"))
    text += lane("cpu", (4, 20, "A"), (20, 32, "B"), (34, 40, "R"))
    text += lane("cpu", (6, 10, "a"), (22, 26, "b"), (35, 39, "c"))
    names = {"N": "Net_0", "A": "Linear_0", "B": "Linear_1", "R": "ReLU_0"}
    frames = {key: Ev(f"nn.Module: {name}", "python_function", launches="") for key, name in names.items()}
    trace = draw(text, us=10, **frames, a="aten::linear", b="aten::linear", c="aten::relu")
    computed = Computed(trace=read_bytes(json.dumps(trace).encode(), "a.json"))
    found = modules(computed, 0, None)
    rows = by_path(found)
    assert {path: row.forward_us for path, row in rows.items()} == {
        "Net": 480,
        "Net.Linear.0": 160,
        "Net.Linear.1": 120,
        "Net.ReLU": 60,
    }
    assert [(row.path, row.members, row.depth) for row in found.folded] == [
        ("Net", 1, 0),
        ("Net.Linear.0-1", 2, 1),
        ("Net.ReLU", 1, 1),
    ]


def cost(path, kind, share, **more):
    return ModuleCost(path, kind, calls=1, share=share, forward_us=share * 1000, **more)


def test_equal_neighbours_are_one_row():
    layers = [
        row
        for number in range(12)
        for row in (
            cost(f"encoder.layers.{number}", "Layer", 0.06, parameters=7),
            cost(f"encoder.layers.{number}.attn", "Attention", 0.04, parameters=4),
            ModuleCost(f"encoder.layers.{number}.attn.out", "Linear", parameters=1),
        )
    ]
    rows = [cost("Net", "Net", 0.8), ModuleCost("encoder", "Encoder"), *layers, cost("head", "Linear", 0.05)]
    found = [(row.path, row.members, row.depth, row.parameters) for row in fold(rows, alone=True)]
    assert found == [
        ("Net", 1, 0, None),
        ("encoder.layers.0-11", 12, 1, 84),
        ("encoder.layers.0-11.attn", 12, 2, 48),
        ("head", 1, 1, None),
    ]


def test_what_differs_stays_apart():
    rows = [
        cost("Net", "Net", 0.9),
        cost("0", "Block", 0.3),
        cost("0.down", "Conv2d", 0.1),
        cost("1", "Block", 0.2),
        cost("2", "Block", 0.2),
        cost("4", "Block", 0.1),
    ]
    found = [(row.path, row.members, row.share) for row in fold(rows, alone=True)]
    assert found == [
        ("Net", 1, 0.9),
        ("0", 1, 0.3),
        ("0.down", 1, 0.1),
        ("1-2", 2, 0.4),
        ("4", 1, 0.1),
    ]


def test_a_sum_of_what_is_known_in_part_is_not_known():
    rows = [cost("0", "Linear", 0.3, flops=5.0), cost("1", "Linear", 0.3)]
    [row] = fold(rows, alone=False)
    assert (row.path, row.flops, row.forward_us) == ("0-1", None, 600)


def test_many_modules_are_few_rows():
    rows = [cost(f"m{number}", f"Kind{number}", 0.1 / (number + 1)) for number in range(300)]
    found = fold(rows, alone=False)
    assert [row.path for row in found] == [f"m{number}" for number in range(len(found))]
    assert len(found) == 20


def test_a_report_holds_the_costliest_of_very_many():
    made = {f"w{number}": Ev(f"advisor:module|m{number}|K", "user_annotation", launches="") for number in range(450)}
    boxes = [(10 * number, 10 * number + 10, f"w{number}") for number in range(450)]
    inner = [(10 * number + 2, 10 * number + (9 if number >= 50 else 7), "a") for number in range(450)]
    lanes = lane("step", (0, 4500, "1")) + lane("cpu", *boxes) + lane("cpu", *inner)
    found = table(draw(lanes, us=10, a="aten::relu", **made), draw(lanes, us=10, a="aten::relu", **made), RankRecord())
    assert (len(found.rows), found.left_out) == (400, 50)
    assert [row.path for row in found.rows] == [row.path for row in sorted(found.rows, key=lambda r: int(r.path[1:]))]


@pytest.mark.parametrize(
    ("name", "root"),
    [("qwen_generation_h100", "Qwen2Model"), ("timesformer_inference_h100", "TimesformerForVideoClassification")],
)
def test_real_gpu_traces_against_their_raw_rows(name, root):
    """Host time, device time and products of each layer, from the rows of the file alone."""
    path = TRACES / f"{name}.json.gz"
    if not path.exists():
        pytest.skip(f"the recorded trace {path.name} is not beside this checkout")
    rows = [row for row in json.loads(gzip.decompress(path.read_bytes()))["traceEvents"] if row.get("ph") == "X"]
    calls = {
        row["args"]["correlation"]: row
        for row in rows
        if "correlation" in row.get("args", {}) and row["cat"] in ("cuda_runtime", "cuda_driver")
    }

    def inside(row, frame):
        return row["tid"] == frame["tid"] and frame["ts"] <= row["ts"] < frame["ts"] + frame["dur"]

    def raw(frame):
        kernels = (
            row["dur"]
            for row in rows
            if row["cat"] in ("kernel", "gpu_memcpy", "gpu_memset")
            and (call := calls.get(row["args"].get("correlation"))) is not None
            and inside(call, frame)
        )
        products = (
            2 * math.prod(row["args"]["Input Dims"][at]) * row["args"]["Input Dims"][at + 1][-1]
            for row in rows
            if row["name"] in ("aten::mm", "aten::bmm", "aten::addmm") and inside(row, frame)
            for at in [1 if row["name"] == "aten::addmm" else 0]
        )
        return frame["dur"], sum(kernels), sum(products)

    frames = {row["name"]: row for row in rows if row["name"].startswith("nn.Module: ")}
    found = by_path(modules(Computed(trace=load(path)), 0, None))
    host, device, flops = raw(frames[f"nn.Module: {root}_0"])
    assert found[root].forward_us == pytest.approx(host, rel=1e-6)
    assert found[root].device_us == pytest.approx(device, rel=1e-6)
    assert found[root].flops >= flops
    linears = [name for name in frames if name.startswith("nn.Module: Linear_")]
    total = [sum(column) for column in zip(*(raw(frames[name]) for name in linears[:8]), strict=True)]
    ours = sorted((row for row in found.values() if row.kind == "Linear"), key=lambda row: row.path)
    assert len(ours) == len(linears)
    assert total[2] > 0
    assert sum(row.flops for row in ours) == pytest.approx(sum(raw(frames[name])[2] for name in linears), rel=1e-9)
