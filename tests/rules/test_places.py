"""Places beside a finding's own line."""

from __future__ import annotations

from advisor.capture.record import MadeClass, RankRecord
from advisor.model import Source
from advisor.rules.shared._places import object_of

RECORD = RankRecord(classes={"pace.py": [MadeClass(1, 30, "train.py", 81), MadeClass(10, 14, "train.py", 90)]})


def test_the_object_of_the_innermost_class_around_a_line():
    assert object_of(Source("pace.py", 20, "pause"), RECORD) == (Source("train.py", 81),)
    assert object_of(Source("pace.py", 12, "pause"), RECORD) == (Source("train.py", 90),)


def test_a_line_of_no_class_and_a_run_without_classes():
    assert object_of(Source("pace.py", 40, "pause"), RECORD) == ()
    assert object_of(Source("train.py", 20, "main"), RECORD) == ()
    assert object_of(Source("pace.py", 20, "pause"), RankRecord()) == ()
    assert object_of(None, RECORD) == ()
