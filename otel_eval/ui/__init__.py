"""A page that shows runs, their calls and why they did not pass: live, of stored files, or as a
report in one file.

The same classic scripts, style sheet and HTML serve all three; they load nothing and are part of
the page, so a report also works from a file. The data is in a block of JSON that is not executed,
and the scripts set every value of it as text.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterable, Mapping
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import Any, Final

from otel_eval.exporters.result_rows import compact_json, escape_unsafe
from otel_eval.ui.packing import Packer

_DATA: Final = "{{data}}"


@cache
def _file(name: str) -> str:
    return files(__name__).joinpath(name).read_text(encoding="utf-8")


def _source(text: str) -> str:
    """A source of a content security policy that allows this script or style sheet only."""
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"


@cache
def policy(*, live: bool) -> str:
    """The content security policy of the page: its own scripts and style sheet, nothing else."""
    scripts = " ".join(_source(_file(name)) for name in ("model.js", "page.js"))
    connects = " connect-src 'self';" if live else ""
    return (
        f"default-src 'none'; script-src {scripts}; style-src {_source(_file('page.css'))};"
        f"{connects} img-src data:; base-uri 'none'; form-action 'none'"
    )


@cache
def _parts(*, live: bool) -> tuple[str, str]:
    """The page before and after its data."""
    page = _file("page.html").replace("{{policy}}", policy(live=live))
    before, _, after = page.partition(_DATA)
    before = before.replace("{{style}}", _file("page.css"))
    model, page_script = _file("model.js"), _file("page.js")
    return before, after.replace("{{model}}", model).replace("{{page}}", page_script)


def script_json(value: Any) -> str:
    """JSON that cannot end the element of a script: without `<`, and without characters that end
    lines or change the direction of text.
    """
    return escape_unsafe(compact_json(value)).replace("<", "\\u003c")


def live_page(settings: Mapping[str, Any]) -> str:
    """The page that gets its runs from the server that serves it.

    Args:
        settings: `trace_url`, and the `addresses` of the receivers by protocol.
    """
    before, after = _parts(live=True)
    return before + script_json({"mode": "live", "settings": settings}) + after


class ReportPage:
    """The page with the runs in it, as text that is written piece by piece.

    Args:
        title: shown at the top, such as the names of the files.
        settings: `trace_url`.
        max_runs: after this many runs, calls are included only of runs that did not pass.
    """

    def __init__(self, *, title: str, settings: Mapping[str, Any], max_runs: int = 10_000) -> None:
        self._before, self._after = _parts(live=False)
        self._head: Final = {"mode": "report", "title": title, "settings": settings}
        self._max_runs: Final = max_runs
        self._packer: Final = Packer()
        self._runs = self._without_calls = 0

    def begin(self) -> str:
        """The page up to the first run."""
        return f'{self._before}{script_json(self._head)[:-1]},"runs":['

    def run(self, document: Mapping[str, Any]) -> str:
        """The text of one more run document in the page."""
        self._runs += 1
        if (
            self._runs > self._max_runs
            and document["verdict"] != "not_passed"
            and document["calls"]
        ):
            self._without_calls += 1
            document = {**document, "calls": None, "calls_left_out": True}
        comma = "," if self._runs > 1 else ""
        return comma + script_json(self._packer.pack(document))

    def end(self, notices: Iterable[str] = ()) -> str:
        """The rest of the page; the notices are shown above the runs."""
        shown = list(notices)
        if self._without_calls:
            shown.append(
                f"The calls of {self._without_calls} runs that pass were left out, beyond the first"
                f" {self._max_runs} runs; --max-runs includes more."
            )
        return f'],"notices":{script_json(shown)}}}{self._after}'


def documents_of_rows(rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Run documents from rows of results, which have no calls: of each run and evaluation the
    highest revision. Rows of traces without a run are left out; run documents stay as they are.
    """
    documents: dict[tuple[str, str, str], dict[str, Any]] = {}
    for row in rows:
        if "document" not in row and row["outcome"] == "no_run":
            continue
        key = row["trace_id"], row["span_id"], row["evaluation"]
        document = documents.get(key)
        if "document" in row:
            if document is None or document["revision"] <= row["revision"]:
                documents[key] = dict(row)
            continue
        if document is None or document["revision"] < row["revision"]:
            document = documents[key] = {
                **{name: value for name, value in row.items() if name not in _OF_RESULT},
                "calls": None,
                "calls_unknown": "",
                "results": [],
            }
        if document["revision"] == row["revision"]:
            document["verdict"] = row["verdict"] or document["verdict"]
            document["results"] = [
                *(result for result in document["results"] if result["scorer"] != row["scorer"]),
                {name: row[name] for name in _OF_RESULT},
            ]
    return list(documents.values())


_OF_RESULT: Final = (
    "scorer",
    "type",
    "version",
    "policy",
    "severity",
    "outcome",
    "value",
    "passed",
    "explanation",
    "reason",
    "error_type",
    "details",
    "threshold",
    "result_id",
)


def event(name: str, data: bytes | Mapping[str, Any]) -> bytes:
    """A server-sent event; its data is JSON on one line."""
    if not isinstance(data, bytes):
        data = json.dumps(data, separators=(",", ":")).encode()
    return b"event: %s\ndata: %s\n\n" % (name.encode(), data)
