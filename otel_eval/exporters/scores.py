"""Converts results to scores for products: name, value, label and texts, checked before they are
sent.
"""

from __future__ import annotations

import re
from dataclasses import replace
from hashlib import sha256
from typing import Any, Final

from otel_eval.exporters import attributes as names
from otel_eval.exporters.result_rows import outcome_of
from otel_eval.model import (
    UNKNOWN_REASONS,
    Failed,
    Outcome,
    Report,
    Result,
    Scored,
    Skipped,
    Verdict,
)
from otel_eval.records import record

_LONGEST_NAME: Final = 200
_LONGEST_TEXT: Final = 4096  # bytes of an explanation
_TRACE_ID, _SPAN_ID = re.compile(r"[0-9a-f]{32}"), re.compile(r"[0-9a-f]{16}")

RESERVED: Final = "note"
"""The name of annotations that Phoenix reserves for users' notes and refuses for scores."""
VERDICT: Final = "#verdict"
"""The name of the score that is the verdict of a run. Products show scores in the order of their
names, by code points or by the alphabet: in both, `#` is before letters and digits.
"""
ScoreKey = tuple[str, str, str, str]
"""Trace id, span id, evaluation and scorer: a score replaces an earlier one with the same key."""


@record
class KnownScorers:
    """The scorers of the configuration, as far as products need them.

    Attributes:
        shared: names of scorers that several evaluations have: their scores are named
            `evaluation.scorer`.
        judges: the scorers that call a model, each as (evaluation, name).
        page: the address at which people reach the page with runs; "" if there is none.
    """

    shared: frozenset[str] = frozenset()
    judges: frozenset[tuple[str, str]] = frozenset()
    page: str = ""

    def name_of(self, result: Result) -> str:
        """The name under which a result's score is sent."""
        return (
            f"{result.evaluation}.{result.scorer}"
            if result.scorer in self.shared
            else result.scorer
        )


@record
class Score:
    """A result in the form that products receive; every text is valid UTF-8 without NUL.

    Attributes:
        place: the place of the result in the batch.
        report, result: the result and its report.
        name: the name of the score.
        value: a number in [0, 1]; None if there is none.
        label: pass, fail or not_evaluated; of a `label_distribution` the run's label; of a verdict
            the verdict.
        has_label: whether the label was recorded, so that there is something to show without a
            value.
        explanation: at most 4 KiB.
        by_judge: whether a judge (a model) computed it.
        page: the address of the run on the page; "" if there is none.
    """

    place: tuple[int, int]
    report: Report
    result: Result
    name: str
    value: float | None
    label: str
    has_label: bool
    explanation: str
    by_judge: bool
    page: str = ""

    @property
    def digest(self) -> str:
        """An id of the score of 32 hexadecimal digits, the same for each revision."""
        return sha256(
            "\0".join(key_of(self.report, self.result)).encode("utf-8", "replace")
        ).hexdigest()[:32]

    @property
    def metadata(self) -> dict[str, Any]:
        """Fields that describe the result, without content of spans."""
        result, outcome = self.result, self.result.outcome
        return {
            "evaluation": clean(result.evaluation),
            "scorer": clean(result.scorer),
            "type": clean(result.type),
            "version": clean(result.version),
            "outcome": outcome_of(result),
            **({"reason": outcome.reason} if isinstance(outcome, Skipped) else {}),
            "completeness": self.report.trajectory.completeness.value,
            "revision": result.revision,
            "result_id": result.result_id,
            **({"page": self.page} if self.page else {}),
        }


def score_of(
    scorers: KnownScorers, place: tuple[int, int], report: Report, result: Result
) -> Score:
    """Create the score of a result for which `problem_of` returned ""."""
    label = report.verdict or "" if is_verdict(result) else _label(result)
    return Score(
        place,
        report,
        result,
        name=clean(scorers.name_of(result)),
        value=float(result.outcome.value) if isinstance(result.outcome, Scored) else None,
        label=_short(label) if label else names.label_of(result),
        has_label=bool(label),
        explanation=_short(result.outcome.explanation),
        by_judge=(result.evaluation, result.scorer) in scorers.judges,
        page=names.page_of(scorers.page, report.trajectory),
    )


def shows_something(result: Result) -> bool:
    """Whether the result has a value, or a recorded label."""
    return isinstance(result.outcome, Scored) or bool(_label(result))


def is_verdict(result: Result) -> bool:
    """Whether the result is the verdict of a run, which `with_verdict` added."""
    return result.scorer == VERDICT


def _label(result: Result) -> str:
    """The label that a `label_distribution` recorded, or ""."""
    return (
        str(result.outcome.details.get("label", "")) if isinstance(result.outcome, Skipped) else ""
    )


def name_problem(name: str) -> str:
    """Why products would not show a score of this name unchanged; "" if they do."""
    return (
        ""
        if 0 < len(name) <= _LONGEST_NAME
        else f"the name has {len(name)} characters, not 1 to {_LONGEST_NAME}"
    )


def problem_of(report: Report, result: Result, name: str) -> str:
    """Why a result must not be sent, or "": some products store values that later break their own
    pages.
    """
    run = report.trajectory
    if not (_TRACE_ID.fullmatch(run.trace_id) and _SPAN_ID.fullmatch(run.span_id)):
        return "the run has no valid trace and span id"
    value = result.outcome.value if isinstance(result.outcome, Scored) else 0.0
    if not 0.0 <= value <= 1.0:  # NaN neither
        return "the score is not a number in [0, 1]"
    return name_problem(clean(name))


def clean(text: str) -> str:
    """The text as valid UTF-8 without NUL.

    >>> clean("a" + chr(0) + chr(0xDC00))
    'a?'
    """
    return names.sendable(text.replace("\0", ""))


def _short(text: str) -> str:
    """The text, truncated to 4 KiB of UTF-8."""
    data = clean(text).encode()
    return (
        data.decode()
        if len(data) <= _LONGEST_TEXT
        else data[: _LONGEST_TEXT - 3].decode("utf-8", "ignore") + "…"
    )


def key_of(report: Report, result: Result) -> ScoreKey:
    """The key of a score, the same for each revision."""
    return report.trajectory.trace_id, report.trajectory.span_id, result.evaluation, result.scorer


def with_verdict(report: Report) -> Report:
    """Return the report with its verdict as a further result, and the reasons of what did not pass;
    unchanged if it has none yet, or an earlier report of the revision had the same.
    """
    reasons = [text for result in report.results if (text := _reason(report.verdict, result))]
    if report.verdict is None or (
        report.late and report.verdict is Verdict.NOT_PASSED and not reasons
    ):
        return report
    text = "; ".join(reasons)
    match report.verdict:
        case Verdict.NOT_PASSED:
            outcome: Outcome = Scored(0.0, False, text)
        case Verdict.NOT_EVALUATED:
            outcome = Skipped(text or "no scorer evaluated the run", reason="not_recorded")
        case _:
            outcome = Scored(1.0, True, "every score passes")
    return replace(report, results=(*report.results, _verdict_result(report, outcome)))


def _reason(verdict: Verdict | None, result: Result) -> str:
    """What a result contributes to a verdict that is no pass; "" for nothing."""
    outcome = result.outcome
    match verdict:
        case Verdict.NOT_PASSED:
            counts = isinstance(outcome, Scored) and not outcome.passed
        case Verdict.NOT_EVALUATED:
            counts = isinstance(outcome, Failed) or (
                isinstance(outcome, Skipped) and outcome.reason in UNKNOWN_REASONS
            )
        case _:
            counts = False
    counts = counts and result.severity != "warn"
    return f"{result.scorer}: {outcome.explanation or outcome_of(result)}" if counts else ""


def _verdict_result(report: Report, outcome: Outcome) -> Result:
    # the same for every report of the revision: a late result may complete the verdict
    run = report.trajectory
    parts = (run.trace_id, run.span_id, report.evaluation, str(report.revision))
    result_id = sha256("\0".join(parts).encode("utf-8", "replace")).hexdigest()[:32]
    return Result(
        evaluation=report.evaluation,
        scorer=VERDICT,
        type="verdict",
        version="1",
        outcome=outcome,
        revision=report.revision,
        result_id=result_id,
    )
