"""Run documents have the fields that their page describes."""

from __future__ import annotations

import re
from typing import Any

import jsonschema

from otel_eval.app.stored_traces import replay
from otel_eval.config import load
from otel_eval.exporters.run_documents import run_document
from otel_eval.sources.files import CollectedMessages
from tests.support.doc_pages import page
from tests.support.recorded_traces import FOLDER

TEXT = {"type": "string"}
NUMBER = {"type": ["number", "null"]}
COUNT = {"type": ["integer", "null"]}
CALL = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "name": TEXT,
        "start_ms": NUMBER,
        "duration_ms": NUMBER,
        "error": {"type": ["string", "null"]},
        "failure_unknown": {"type": "boolean"},
        "agent": TEXT,
        "span_id": TEXT,
        "enclosing": {"type": "array", "items": TEXT},
    },
}
RESULT = {
    "type": "object",
    "required": ["scorer", "type", "policy", "severity", "outcome", "value", "passed", "details"],
    "properties": {
        "outcome": {"enum": ["scored", "skipped", "failed"]},
        "severity": {"enum": ["error", "warn"]},
        "value": NUMBER,
        "explanation": TEXT,
        "details": {"type": "object"},
    },
}
SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["document", "trace_id", "span_id", "evaluation", "verdict", "calls", "results"],
    "properties": {
        "document": {"const": 1},
        "trace_id": {"type": "string", "pattern": "^[0-9a-f]{32}$"},
        "verdict": {"enum": ["pass", "not_passed", "not_evaluated", None]},
        "awaited": {"type": "integer"},
        "revision": {"type": "integer"},
        "model_calls": COUNT,
        "input_tokens": COUNT,
        "output_tokens": COUNT,
        "calls_unknown": TEXT,
        "calls": {"anyOf": [{"type": "null"}, {"type": "array", "items": CALL}]},
        "results": {"type": "array", "items": RESULT},
    },
}


def test_documents_of_recorded_traces_have_the_fields_of_the_page() -> None:
    files = [FOLDER / "langgraph_supervisor_openinference.json", FOLDER / "claude_code.json"]
    problems: list[str] = []
    documents = [
        run_document(report, content=False)
        for report in replay(files, load(None), listener=CollectedMessages(problems))
        if report.no_run is None
    ]
    assert documents
    assert problems == []
    described = set(re.findall(r"`(\w+)`", page("run-documents")))
    for document in documents:
        jsonschema.validate(document, SCHEMA)
        parts = [document, *(document["calls"] or ()), *document["results"]]
        assert {field for part in parts for field in part} <= described
