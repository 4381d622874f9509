"""`--to`: real packages where they are installed, a server that plays GitHub's REST API, and failures of one line."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from reports_fixtures import canonical, empty, hostile

from advisor import cli
from advisor.drawing.timeline import draw
from advisor.sinks import delivery, to_comment
from advisor.sinks.delivery import figures, rows, send

DRAWING = """
    step   [1     ][2     ]
    cpu    [F     ][F     ]
    """


def test_figures_are_those_of_the_report_and_nothing_unmeasured() -> None:
    report = canonical()
    found = figures(report)
    assert found["advisor/step_time_us"] == report.step_us
    parts = [value for name, value in found.items() if name.startswith("advisor/step_ms/")]
    assert sum(parts) == pytest.approx((report.step_us or 0.0) / 1e3)
    unmeasured = [one.id for one in report.metrics.values() if one.status == "not_measured"]
    assert unmeasured
    assert not {f"advisor/{id_}" for id_ in unmeasured} & set(found)
    assert len(rows(report)) == found["advisor/findings"] > 3


def test_wandb_offline_holds_the_figures_and_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("wandb")
    for name, value in (("WANDB_MODE", "offline"), ("WANDB_DIR", str(tmp_path)), ("WANDB_DATA_DIR", str(tmp_path))):
        monkeypatch.setenv(name, value)
    (said,) = send(canonical(), ["wandb"], {})
    assert said.startswith("wandb: logged to "), said
    (file,) = tmp_path.rglob("*.wandb")
    held = file.read_bytes()
    assert b"advisor/step_ms/compute" in held
    assert b"report.html" in held
    assert b"findings_table" in held


def test_mlflow_holds_the_figures_the_findings_and_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("mlflow")
    pytest.importorskip("sqlalchemy")
    from mlflow.tracking import MlflowClient

    monkeypatch.chdir(tmp_path)  # where artifacts of a local database go
    address = f"sqlite:///{tmp_path}/mlflow.db"
    for report in (canonical(), hostile(), empty()):
        (said,) = send(report, ["mlflow"], {"MLFLOW_TRACKING_URI": address})
        assert said.startswith("mlflow: logged as run "), said
        client = MlflowClient(tracking_uri=address)
        run = client.get_run(said.split()[4])
        assert run.info.status == "FINISHED"
        assert run.data.metrics == pytest.approx(figures(report))
        assert {one.path for one in client.list_artifacts(run.info.run_id)} == {
            "findings.json", "report.html", "report.json",
        }  # fmt: skip
    assert len(client.search_runs([run.info.experiment_id])) == 3


def test_tensorboard_reads_what_was_written(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    report = canonical()
    (said,) = send(report, ["tensorboard"], {"TENSORBOARD_LOGDIR": str(tmp_path)})
    assert said.startswith("tensorboard: written to "), said
    (folder,) = tmp_path.iterdir()
    read = EventAccumulator(str(folder))
    read.Reload()
    for tag, value in figures(report).items():
        assert read.Scalars(tag)[0].value == pytest.approx(value), tag
    text = read.Tensors("advisor/findings_table")[0].tensor_proto.string_val[0].decode()
    assert "| input-bound | high | 34 | 39 |" in text
    assert (folder / "report.html").read_text("utf-8").startswith("<!doctype html>")


@dataclass
class GitHub:
    """What the server holds and was asked."""

    address: str
    comments: list[dict[str, Any]] = field(default_factory=list)
    asked: list[tuple[str, str, str]] = field(default_factory=list)
    refuse: int = 0


@pytest.fixture
def github() -> Iterator[GitHub]:
    """The three documented endpoints, with pages of comments."""
    held = GitHub("")

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: Any) -> None:
            pass

        def answer(self) -> None:
            held.asked.append((self.command, self.path, self.headers["Authorization"]))
            size = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(size)) if size else {}
            status, said = (held.refuse, {}) if held.refuse else self.done(body)
            data = json.dumps(said).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def done(self, body: dict[str, Any]) -> tuple[int, Any]:
            listed = re.fullmatch(r"/repos/o/r/issues/7/comments(?:\?per_page=(\d+)&page=(\d+))?", self.path)
            one = re.fullmatch(r"/repos/o/r/issues/comments/(\d+)", self.path)
            if self.command == "GET" and listed:
                size, page = int(listed[1]), int(listed[2])
                return 200, held.comments[(page - 1) * size : page * size]
            if self.command == "POST" and listed:
                made = {"id": len(held.comments) + 1, "html_url": "https://example/c", **body}
                held.comments.append(made)
                return 201, made
            if self.command == "PATCH" and one:
                held.comments[int(one[1]) - 1].update(body)
                return 200, held.comments[int(one[1]) - 1]
            return 404, {}

        do_GET = do_POST = do_PATCH = answer  # noqa: N815 - names of the base class

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    held.address = f"http://127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield held
    server.shutdown()
    server.server_close()


def environment(github: GitHub, folder: Path, event: dict[str, Any] | None = None) -> dict[str, str]:
    path = folder / "event.json"
    path.write_text(json.dumps({"pull_request": {"number": 7}} if event is None else event))
    return {
        "GITHUB_TOKEN": "secret-token",
        "GITHUB_REPOSITORY": "o/r",
        "GITHUB_EVENT_PATH": str(path),
        "GITHUB_API_URL": github.address,
    }


def test_a_comment_is_renewed_and_not_repeated(github: GitHub, tmp_path: Path) -> None:
    github.comments = [{"id": n + 1, "body": f"<!-- other --> {n}"} for n in range(130)]
    variables = environment(github, tmp_path)
    assert send(canonical(), ["comment"], variables) == ["comment: created https://example/c"]
    assert send(canonical(), ["comment"], variables) == ["comment: renewed https://example/c"]
    assert len(github.comments) == 131
    assert "input-bound" in github.comments[-1]["body"]
    assert [method for method, _, _ in github.asked] == ["GET", "GET", "POST", "GET", "GET", "PATCH"]
    assert {token for _, _, token in github.asked} == {"Bearer secret-token"}


def test_scripts_have_comments_of_their_own(github: GitHub, tmp_path: Path) -> None:
    variables = environment(github, tmp_path)
    for report in (canonical(), empty(), canonical()):
        send(report, ["comment"], variables)
    assert len(github.comments) == 2
    assert len({one["body"].splitlines()[0] for one in github.comments}) == 2


def test_a_refusal_is_one_line_without_the_token(github: GitHub, tmp_path: Path) -> None:
    github.refuse = 403
    (said,) = send(canonical(), ["comment"], environment(github, tmp_path))
    assert said.startswith("comment: not sent: GitHub answered 403")
    assert "pull-requests: write" in said
    assert "secret-token" not in said
    assert "\n" not in said


@pytest.mark.parametrize("event", [None, {"ref": "refs/heads/main"}, {"issue": {"number": 3}}])
def test_outside_a_pull_request_the_markdown_is_printed(
    event: dict[str, Any] | None, github: GitHub, tmp_path: Path, capsys: Any
) -> None:
    variables = {} if event is None else environment(github, tmp_path, event)
    (said,) = send(canonical(), ["comment"], variables)
    assert said.startswith("comment: printed instead of sent: ")
    assert capsys.readouterr().out.startswith("## Torch Advisor")
    assert not github.asked


def test_a_comment_on_an_issue_that_is_a_pull_request(tmp_path: Path) -> None:
    path = tmp_path / "event.json"
    path.write_text(json.dumps({"issue": {"number": 9, "pull_request": {}}}))
    assert to_comment._pull_request(path) == 9


def test_a_sink_that_fails_fails_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def leave(_: Any) -> str:
        raise SystemExit("no account\nmore")

    def missing(_: Any) -> str:
        import no_such_tracker  # type: ignore[import-not-found]

        return str(no_such_tracker)

    sinks = {"wandb": leave, "mlflow": missing}
    load = delivery.registry.load_named
    monkeypatch.setattr(
        delivery.registry, "load_named", lambda group, name, what: sinks.get(name) or load(group, name, what)
    )
    assert send(canonical(), ["wandb", "mlflow"], {}) == [
        "wandb: not sent: SystemExit: no account more",
        "mlflow: not sent: the module no_such_tracker is missing; pip install 'torch-advisor[mlflow]'",
    ]


def test_the_command_knows_its_sinks_and_keeps_its_status(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    assert cli.main(["analyze", "x.json", "--to", "wanbd"]) == 2
    assert "wandb" in capsys.readouterr().err
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GITHUB_TOKEN", raising=False)
    trace = tmp_path / "step.pt.trace.json"
    trace.write_text(json.dumps(dict(draw(DRAWING, us=100))))
    assert cli.main(["analyze", str(trace), "--to", "comment", "-q", "-o", "r.json"]) == 0
    streams = capsys.readouterr()
    assert streams.out.startswith("## Torch Advisor")
    assert "advisor: comment: printed instead of sent: GITHUB_TOKEN" in streams.err
