"""Nothing is overwritten or lost: what another run left is moved aside, and files appear whole."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from advisor.errors import AdvisorError, UsageError
from advisor.inputs.output import claim_folder, release, write_file


def filled(folder: Path, mark: str) -> Path:
    folder.mkdir(parents=True)
    (folder / "report.json").write_text(mark)
    (folder / "trace-rank0-1.pt.trace.json.gz").write_text(mark)
    return folder


def test_the_newest_run_keeps_the_name(tmp_path: Path) -> None:
    home = tmp_path / "advisor-report"
    for mark in ("first", "second"):
        claim_folder(home)
        (home / "report.json").write_text(mark)
    release(claim_folder(home))
    assert not any(home.iterdir())
    assert (tmp_path / "advisor-report.1" / "report.json").read_text() == "first"
    assert (tmp_path / "advisor-report.2" / "report.json").read_text() == "second"


def test_two_runs_that_meet_in_an_empty_folder_get_one_each(tmp_path: Path) -> None:
    """The second comes before the first has written anything: it takes the name, as it does from any earlier run."""
    home = tmp_path / "advisor-report"
    home.mkdir()
    claim_folder(home)
    claim_folder(home)
    (home / "report.json").write_text("second")
    aside = tmp_path / "advisor-report.1"
    assert [path.name for path in aside.iterdir()] == [".taken"]
    release(aside)
    release(home)
    assert [path.name for path in home.iterdir()] == ["report.json"]


def test_two_runs_do_not_meet_among_files_of_the_user(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    claim_folder(tmp_path)
    with pytest.raises(UsageError, match=r"another run writes to .*; name another folder with --output, or remove"):
        claim_folder(tmp_path)
    release(tmp_path)
    claim_folder(tmp_path)


def test_all_that_a_run_leaves_is_ours(tmp_path: Path) -> None:
    """Traces, what ops read, the record and the report: the folder is moved aside as a whole."""
    home = filled(tmp_path / "advisor-report", "first")
    for name in ("run.json", "lines-rank0-1.pt.trace.json.gz", "dataflow-rank0-1.gz", "report.html"):
        (home / name).write_text("first")
    release(claim_folder(home))
    assert not any(home.iterdir())
    assert (tmp_path / "advisor-report.1" / "dataflow-rank0-1.gz").read_text() == "first"


def test_eight_runs_at_once_all_get_their_folder_and_lose_nothing(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        for number in range(100):  # threads met so that one of them failed in 2 of 100 such rounds
            home = filled(tmp_path / str(number) / "advisor-report", "old")
            list(pool.map(claim_folder, [home] * 8))
            assert len(list((tmp_path / str(number)).rglob("report.json"))) == 1
            assert len(list((tmp_path / str(number)).rglob(".taken"))) == 8


def test_a_dangling_link_in_the_way_is_said(tmp_path: Path) -> None:
    (tmp_path / "advisor-report").symlink_to(tmp_path / "gone")
    with pytest.raises(AdvisorError, match="File exists; name another folder"):
        claim_folder(tmp_path / "advisor-report")


def test_a_folder_of_the_user_stays_where_it_is(tmp_path: Path) -> None:
    home = tmp_path / "results"
    home.mkdir()
    (home / "thesis.tex").write_text("years of work")
    assert claim_folder(home) == home
    assert (home / "thesis.tex").read_text() == "years of work"
    (home / "report.json").write_text("{}")
    with pytest.raises(UsageError, match="contains other files in addition to a report"):
        claim_folder(home)


def test_a_file_in_the_way_is_said(tmp_path: Path) -> None:
    (tmp_path / "advisor-report").write_text("mine")
    with pytest.raises(UsageError, match="is a file"):
        claim_folder(tmp_path / "advisor-report")


def test_an_older_file_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    write_file(path, "one", replace=False)
    assert write_file(path, "two", replace=False) == tmp_path / "page.html.1"
    assert path.read_text() == "two"
    assert (tmp_path / "page.html.1").read_text() == "one"
    write_file(path, "three", replace=True)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["page.html", "page.html.1"]


def test_a_failed_write_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "blocker").write_text("")
    with pytest.raises(AdvisorError, match="cannot write"):
        write_file(tmp_path / "blocker" / "page.html", "x", replace=False)
    assert [entry.name for entry in tmp_path.iterdir()] == ["blocker"]
