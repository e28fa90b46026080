"""Keys of the previous minor version: they work, with one warning each that names the new key."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from otel_eval.config import AsyncScoring, EvalConfig, Traces, load
from otel_eval.errors import ConfigError

OLD = {
    "traces": {"settle": "2s", "settle_partial": "7s", "settle_detached": "70s", "late": "20s"},
    "judging": {"function_timeout": "4s", "concurrency": 3},
}
NEW = {
    "traces": {
        "decision_wait": 2,
        "decision_wait_partial": 7,
        "decision_wait_detached": 70,
        "grace_period": 20,
    },
    "async_scoring": {"scorer_timeout": 4, "concurrency": 3},
}
PAIRS = [
    ("settle", "decision_wait"),
    ("settle_partial", "decision_wait_partial"),
    ("settle_detached", "decision_wait_detached"),
    ("late", "grace_period"),
    ("judging", "async_scoring"),
    ("function_timeout", "scorer_timeout"),
]


def warned(pairs: list[tuple[str, str]]) -> list[str]:
    """The warnings for these keys."""
    return [
        f"{old} is deprecated and will be removed in the next minor version; write {new}"
        for old, new in pairs
    ]


def test_deprecated_keys_of_a_file_mean_the_new_ones(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """One warning for each names the old key and the new one."""
    path = tmp_path / "eval.yaml"
    path.write_text(
        "traces: {settle: 2s, settle_partial: 7s, settle_detached: 70s, late: 20s}\n"
        "judging: {function_timeout: 4s, concurrency: 3}\n",
        encoding="utf-8",
    )
    with caplog.at_level(logging.WARNING, "otel_eval"):
        config = load(path)
    assert config == load(NEW)
    assert config.traces.model_fields_set == set(NEW["traces"])
    assert sorted(caplog.messages) == sorted(warned(PAIRS))


@pytest.mark.parametrize(
    "made", [lambda: load(OLD), lambda: EvalConfig(**OLD)], ids=["mapping", "keywords"]
)
def test_deprecated_keys_from_python_mean_the_new_ones(
    made: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """In mappings and as keyword arguments, each with one warning."""
    assert made() == load(NEW)
    assert sorted(caplog.messages) == sorted(warned(PAIRS))


def test_deprecated_keywords_of_a_part(caplog: pytest.LogCaptureFixture) -> None:
    """Parts that are built by themselves take them as well."""
    assert Traces(settle="2s") == Traces(decision_wait=2)
    assert AsyncScoring(function_timeout=4) == AsyncScoring(scorer_timeout=4)
    assert caplog.messages == warned(
        [("settle", "decision_wait"), ("function_timeout", "scorer_timeout")]
    )


def test_new_keys_cause_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    """Nor does anything else of a configuration that can be used."""
    load(NEW)
    assert caplog.messages == []


@pytest.mark.parametrize(
    "given", [{"settle": "2s", "decision_wait": "2s"}, {"decision_wait": "2s", "settle": "x"}]
)
def test_both_names_of_a_key_are_an_error_beside_all_others(given: dict[str, Any]) -> None:
    """Neither is preferred, even if they agree."""
    problem = (
        "traces.settle: is the deprecated name of decision_wait, which is given as well; leave"
        " settle out"
    )
    with pytest.raises(ConfigError) as caught:
        load({"traces": {**given, "max_age": "y"}})
    assert caught.value.problems[0] == problem
    assert [each.split(":")[0] for each in caught.value.problems[1:]] == ["traces.max_age"]
    with pytest.raises(ConfigError) as caught:
        Traces(**given, max_age="y")
    assert caught.value.problems[0] == problem.replace("traces.", "")
    assert [each.split(":")[0] for each in caught.value.problems[1:]] == ["max_age"]


def test_both_sections_are_an_error() -> None:
    """What the deprecated section holds is not used."""
    with pytest.raises(
        ConfigError,
        match=r"^judging: is the deprecated name of async_scoring, which is given as well",
    ):
        load({"judging": {"timeout": 3}, "async_scoring": {"concurrency": 3}})


def test_a_deprecated_key_may_name_a_variable_that_is_not_set() -> None:
    """The error names the key that was written."""
    with pytest.raises(
        ConfigError, match=r"^traces.settle: the environment variable NOT_SET_ANYWHERE is not set"
    ):
        load({"traces": {"settle": "${env:NOT_SET_ANYWHERE}"}})
