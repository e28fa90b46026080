"""A configuration with several errors, at every command that reads one."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., "subprocess.CompletedProcess[str]"]

SLIPS = """
traces: {decision_wiat: 1s}
evaluations:
  - name: one
    scorers: [{type: tool_call_cuont}, {type: time_cost, max_ms: -1}]
  - name: one
    scorers: [{type: tool_call_count, criteria: {search: "=< 3"}}]
exporters: {otlp: {endpoint: "http://me:hunter2@", headers: [hunter2]}}
"""
TOLD = [
    "line 2: traces.decision_wiat: unknown key; did you mean 'decision_wait'?",
    (
        "line 5: evaluations[0].scorers[0].type: 'tool_call_cuont' is not a scorer; did you mean"
        " 'tool_call_count'?"
    ),
    "line 5: evaluations[0].scorers[1].max_ms: -1 is not a positive number",
    "line 7: evaluations[1].scorers[0].criteria.search: '=< 3' is not an operator",
    "line 8: exporters.otlp.endpoint: 'http://***@' is not a URL",
    "line 8: exporters.otlp.headers: the value is not a mapping; write keys with values",
]


@pytest.mark.parametrize(
    "words",
    [
        ["check"],
        ["dag"],
        ["serve", "--config"],
        ["replay", "recorded.json", "--config"],
        ["trajectory", "recorded.json", "--config"],
    ],
)
def test_each_error_is_reported_in_a_line_with_its_place_without_a_traceback(
    otel_eval: Run, recorded: Path, words: list[str]
) -> None:
    """Exit 2, nothing on stdout, no secret."""
    (recorded.parent / "eval.yaml").write_text(SLIPS, encoding="utf-8")
    done = otel_eval(*words, "eval.yaml")
    assert (done.returncode, done.stdout) == (2, "")
    lines = done.stderr.splitlines()
    assert len(lines) == len(TOLD)
    assert [
        said
        for said in TOLD
        if not any(line.startswith(f"otel-eval: eval.yaml {said}") for line in lines)
    ] == []
    assert "hunter2" not in done.stderr
    assert "Traceback" not in done.stderr


OUTSIDE = """
judges:
  main: {base_url: "http://models.example", model: m, api_key_env: NO_SUCH_KEY}
  other: {base_url: "http://models.example", model: m, api_key_file: nowhere}
receivers:
  otlp:
    protocols:
      grpc: {endpoint: "127.0.0.1:0", tls: {cert_file: no.pem, key_file: none.pem}}
      http: {endpoint: "127.0.0.1:0"}
    auth: {token_files: [no-tokens], token_env: [NO_SUCH_TOKEN]}
"""


@pytest.mark.parametrize("words", [["check"], ["serve", "--config"]])
def test_everything_missing_that_a_valid_file_names_is_reported_at_once(
    otel_eval: Run, tmp_path: Path, words: list[str]
) -> None:
    """Certificates, tokens and keys of judges."""
    (tmp_path / "eval.yaml").write_text(OUTSIDE, encoding="utf-8")
    done = otel_eval(*words, "eval.yaml")
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (2, "", 6)
    for message in (
        "eval.yaml line 8: receivers.otlp.protocols.grpc.tls.cert_file: 'no.pem' cannot be read",
        "eval.yaml line 8: receivers.otlp.protocols.grpc.tls.key_file: 'none.pem' cannot be read",
        "eval.yaml line 10: receivers.otlp.auth.token_env: the variable 'NO_SUCH_TOKEN' is unset",
        "eval.yaml line 10: receivers.otlp.auth.token_files: 'no-tokens' cannot be read",
        "eval.yaml line 3: judges.main.api_key_env: the environment variable 'NO_SUCH_KEY'",
        "eval.yaml line 4: judges.other.api_key_file: 'nowhere' cannot be read",
    ):
        assert message in done.stderr
