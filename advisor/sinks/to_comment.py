"""A comment on a GitHub pull request that is renewed by each push, and not repeated.

Settings as GitHub Actions gives them: GITHUB_TOKEN, GITHUB_REPOSITORY, GITHUB_EVENT_PATH; GITHUB_API_URL for a server
of one's own. REST: "List issue comments", "Create an issue comment", "Update an issue comment".
"""

from __future__ import annotations

import json
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from advisor.errors import AdvisorError
from advisor.sinks.delivery import Delivery

_NEEDED = ("GITHUB_TOKEN", "GITHUB_REPOSITORY", "GITHUB_EVENT_PATH")
_TIMEOUT_S = 20
_PER_PAGE = 100
# A thousand comments; beyond them a new one is made.
_MOST_PAGES = 10


def send(delivery: Delivery) -> str:
    """Creates or renews the comment. Without the variables, or outside a pull request, prints the Markdown."""
    missing = [name for name in _NEEDED if not delivery.environment.get(name)]
    number = None if missing else _pull_request(Path(delivery.environment["GITHUB_EVENT_PATH"]))
    # One comment for each script of a workflow.
    marker = f"<!-- torch-advisor: {delivery.name.replace('--', '- -').replace('>', '')[:200]} -->"
    if missing or number is None:
        sys.stdout.write(delivery.markdown.rstrip("\n") + "\n")
        why = f"{', '.join(missing)} not set" if missing else "the event is not a pull request"
        return f"printed instead of sent: {why}"
    api = _Api(delivery.environment)
    path = f"/repos/{delivery.environment['GITHUB_REPOSITORY']}/issues"
    body = {"body": f"{marker}\n{delivery.markdown}"}
    for comment in _comments(api, f"{path}/{number}/comments"):
        if str(comment.get("body", "")).startswith(marker):
            done = api.call("PATCH", f"{path}/comments/{comment['id']}", body)
            return f"renewed {done.get('html_url', 'the comment')}"
    done = api.call("POST", f"{path}/{number}/comments", body)
    return f"created {done.get('html_url', 'the comment')}"


def _pull_request(event: Path) -> int | None:
    """The number of the event's pull request; None where it is of none."""
    try:
        document = json.loads(event.read_text("utf-8"))
    except (OSError, ValueError) as failure:
        raise AdvisorError(f"{event}: cannot read the event in GITHUB_EVENT_PATH ({failure})") from failure
    if not isinstance(document, dict):
        return None
    issue = document.get("issue")
    of_issue = issue if isinstance(issue, dict) and "pull_request" in issue else None
    found = document.get("pull_request") or of_issue
    number = found.get("number") if isinstance(found, dict) else None
    return number if isinstance(number, int) else None


def _comments(api: _Api, path: str) -> Iterator[dict[str, Any]]:
    for page in range(1, _MOST_PAGES + 1):
        found = api.call("GET", f"{path}?per_page={_PER_PAGE}&page={page}")
        yield from found
        if len(found) < _PER_PAGE:
            return


@dataclass(frozen=True, slots=True)
class _Api:
    """GitHub's REST API with a token."""

    environment: Mapping[str, str]

    def call(self, method: str, path: str, body: Mapping[str, str] | None = None) -> Any:
        """The decoded answer. Raises AdvisorError with GitHub's own reason; the token is in no message."""
        address = f"{self.environment.get('GITHUB_API_URL', 'https://api.github.com').rstrip('/')}{path}"
        headers = {
            "Accept": "application/vnd.github+json",
            "Authorization": f"Bearer {self.environment['GITHUB_TOKEN']}",
            "X-GitHub-Api-Version": "2022-11-28",
            "User-Agent": "torch-advisor",
        }
        data = json.dumps(body).encode() if body is not None else None
        request = urllib.request.Request(address, data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as failure:
            hint = "; the job needs `permissions: pull-requests: write`" if failure.code in (401, 403, 404) else ""
            raise AdvisorError(f"GitHub answered {failure.code} {failure.reason} to {method} {path}{hint}") from failure
        except (OSError, ValueError) as failure:
            raise AdvisorError(f"GitHub cannot be reached ({failure})") from failure
