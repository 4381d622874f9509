"""Modules as a table shows them: equal neighbours in one row, the costliest of very many."""

from module_drawings import lane, table

from advisor.api import Ev, ModuleCost, RankRecord, draw
from advisor.report.module_tree import fold


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
