"""What every scorer that asks a judge shares: the judge, the sampled runs, and the outcome made of the answer.

A judge that is down, or whose answer has another form, gives an outcome of its own and never a score.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Final

from otel_eval.model import Failed, Outcome, Skipped, Trajectory
from otel_eval.scorers.judge import SCORE, Judge, JudgeError, PromptTooLong, ask, resolve_judge
from otel_eval.scorers.outcomes import failed_from
from otel_eval.scorers.spec.base_scorer import BaseScorer, Finding
from otel_eval.scorers.spec.functions import run_coroutine
from otel_eval.scorers.spec.parameters import STRING, flag, optional, reads, share, text, with_schema

__all__ = ["JudgeScorer", "evaluate_with_judge", "failed", "judge_score", "read_judge", "run_now"]

_LONGEST: Final = 2000  # characters of a judge's explanation

Opinion = Callable[[Trajectory], Awaitable[Finding | Outcome]]


@with_schema({"anyOf": [STRING, {"type": "object", "required": ["base_url", "model"]}]})
def read_judge(key: str, value: Any) -> Judge:
    """A judge's name, an endpoint or a coroutine function."""
    return resolve_judge(value, key)


def run_now(evaluate: Callable[[Trajectory], Any], trajectory: Trajectory) -> Outcome:
    """What `evaluate` gives, for a caller that does not wait."""
    try:
        outcome: Outcome = run_coroutine(evaluate(trajectory))
    except RuntimeError as error:
        return Failed("RuntimeError", str(error))
    return outcome


async def evaluate_with_judge(scorer: BaseScorer, trajectory: Trajectory, opinion: Opinion) -> Outcome:
    """The outcome for one run, in the frame of every built-in scorer."""
    skipped = scorer.skip_common(trajectory)
    if skipped is not None:
        return skipped
    try:
        return scorer.to_outcome(await opinion(scorer.select_calls(trajectory)))
    except PromptTooLong as error:
        return Skipped(str(error), reason="too_large")
    except Exception as error:  # noqa: BLE001 - a judge from Python may raise anything; that is an outcome
        return failed(error)


def failed(error: Exception, details: Mapping[str, Any] | None = None) -> Failed:
    """The outcome of a judge that failed; the HTTP status of a refusal is a detail, since it quotes nothing."""
    if not isinstance(error, JudgeError):
        return replace(failed_from(error), details=details or {})
    status = {} if error.status is None else {"http_status": error.status}
    return Failed(error.kind, str(error), {**(details or {}), **status})


async def judge_score(judge: Judge, prompt: str, *, include_content: bool) -> Finding:
    """The score that a judge gives; what it wrote counts as content.

    Raises:
        JudgeError: there is no answer, or none that can be used.
    """
    reply = await ask(judge, prompt, SCORE)
    score, said = float(reply["score"]) + 0.0, reply["explanation"].strip()[:_LONGEST]  # never -0.0
    if not include_content:
        return Finding(score, f"the judge gave {score:.3g}", {"score": score})
    return Finding(score, f"the judge gave {score:.3g}: {said}", {"score": score, "explanation": said})


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeScorer(BaseScorer):
    """Base of the scorers whose value is a judge's score.

    Attributes:
        judge: a name of `judges`, an endpoint, a coroutine function or its path ([judges.md](../how-to/judges.md)).
        prompt: replaces the instruction to the judge; what was recorded and the form of the answer are always added.
        sample: the share of traces that are scored, chosen by trace id; the others get no result.
        include_content: `true` lets what the judge wrote into explanation and details.
    """

    asynchronous: ClassVar[bool] = True

    judge: Judge = field(metadata=reads(read_judge))
    prompt: str | None = field(default=None, metadata=reads(optional(text)))
    sample: float = field(default=1.0, metadata=reads(share))
    include_content: bool = field(default=False, metadata=reads(flag))

    @property
    def default_threshold(self) -> float:
        """0.5: a judge's score is an estimate."""
        return 0.5

    def prompt_for(self, trajectory: Trajectory) -> str | Skipped | Failed:
        """The whole prompt about a run, or why there is nothing to ask.

        Raises:
            TooLong: it would be longer than a judge can be asked to read.
        """
        raise NotImplementedError

    async def opinion(self, trajectory: Trajectory) -> Finding | Outcome:
        """Ask."""
        prompt = self.prompt_for(trajectory)
        if not isinstance(prompt, str):
            return prompt
        return await judge_score(self.judge, prompt, include_content=self.include_content)

    async def evaluate(self, trajectory: Trajectory) -> Outcome:
        """The outcome for one run, once the judge has answered."""
        return await evaluate_with_judge(self, trajectory, self.opinion)

    def __call__(self, trajectory: Trajectory) -> Outcome:
        """The same for a caller that does not wait; in a running event loop await `evaluate` instead."""
        return run_now(self.evaluate, trajectory)
