"""Processes that answer requests: each has its time, none outlives the pool, and one that dies takes no other along."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pool_servers
import pytest

from advisor.engine.worker_pool import MORE, Answer, answers

SUPPORT = Path(pool_servers.__file__).parent


def _asked(requests: list[bytes], workers: int = 2, limit_s: float = 60.0) -> list[Answer]:
    return list(answers(pool_servers.serve, b"hi", requests, [limit_s] * len(requests), workers))


def _children() -> set[str]:
    return set(Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split())


def test_every_request_is_answered_once_whatever_becomes_of_others() -> None:
    found = _asked([b"a", b"die", b"b", b"more", b"c"])
    last = {one.index: one for one in found if one.data[:1] != MORE}
    assert {index: one.data for index, one in last.items()} == {
        0: b"dhi a 2",
        1: b"",
        2: b"dhi b 2",
        3: b"dhi more 2",
        4: b"dhi c 2",
    }
    assert last[1].failed == "the process that read it ended (status 3)"
    assert [one.index for one in found if one.data[:1] == MORE] == [3]


def test_a_request_that_takes_too_long_is_ended_and_named() -> None:
    started = time.monotonic()
    found = {one.index: one for one in _asked([b"sleep", b"a"], limit_s=3.0)}
    assert (found[0].failed, found[1].data) == ("not read within 3 s; raise --timeout", b"dhi a 2")
    assert time.monotonic() - started < 20


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="needs /proc to see processes")
def test_whoever_stops_taking_answers_leaves_no_process() -> None:
    before = _children()
    some = answers(pool_servers.serve, b"hi", [b"a", b"sleep"], [60.0, 60.0], 2)
    assert next(iter(some)).index == 0
    during = _children() - before
    some.close()  # type: ignore[attr-defined]
    assert len(during) >= 2
    # Python keeps a helper of its own for all pools of a process.
    assert len(_children() & during) <= 1


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="needs /proc to see processes")
def test_ctrl_c_ends_everything_at_once_and_nothing_is_printed() -> None:
    code = (
        "import pool_servers\nfrom advisor.engine.worker_pool import answers\n"
        "if __name__ == '__main__':\n"
        "    try:\n"
        "        for one in answers(pool_servers.serve, b'hi', [b'a', b'b', b'sleep', b'sleep'], [60.0] * 4, 2):\n"
        "            print(one.index, flush=True)\n"
        "    except KeyboardInterrupt:\n"
        "        raise SystemExit(130)\n"
    )
    environment = os.environ | {"PYTHONPATH": str(SUPPORT)}
    command = [sys.executable, "-c", code]
    process = subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    assert process.stdout is not None
    assert {process.stdout.readline(), process.stdout.readline()} == {"0\n", "1\n"}
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to all of them
    _, said = process.communicate(timeout=10)
    assert (process.returncode, said) == (130, "")
    assert _gone_within(process.pid, 2.0)


def _gone_within(group: int, seconds: float) -> bool:
    """Whether no process of a group runs after so long: Python's own helper sees a moment later that it is alone."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if not _running(group):
            return True
        time.sleep(0.05)
    return False


def _running(group: int) -> list[str]:
    """Processes of a group that still run; what has ended and waits for its parent is none."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            state, _, of_group = stat.read_text().rpartition(")")[2].split()[:3]
            found += [stat.parent.name] if int(of_group) == group and state != "Z" else []
    return found
