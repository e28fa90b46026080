"""Have a judge answer for a node.

Knows what the judge is shown and in which form it has to answer; who it is and how it is reached is `scorers.judging`'s.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from otel_eval.model import UNRECORDED, Failed, Skipped, Trajectory
from otel_eval.scorers.asking import failed
from otel_eval.scorers.cel import REASONS
from otel_eval.scorers.dag.shapes import Node
from otel_eval.scorers.dag.walk import Answer
from otel_eval.scorers.judging import Judge, JudgeError, ask
from otel_eval.scorers.prompts import TooLong, calls_as_data, prompt_of

__all__ = ["answered", "instruction_of", "shown_of"]

_LONGEST: Final = 2000  # of a judge's reason
_TO_DO: Final = {
    "task": "You extract something from what an agent's run recorded, for others to judge by. Do this and nothing else:",
    "binary": "You decide one question about an agent's run, by these criteria alone:",
    "choice": "You decide one question about an agent's run, by these criteria alone:",
}
_AGAIN: Final = "Your answer before this one was not of the form that is asked for below."
_UNUSABLE: Final = ("judge_malformed", "judge_out_of_range")
_TEXTS: Final = {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}


def instruction_of(node: Node) -> str:
    """What the judge is asked to do."""
    return f"{_TO_DO[node.kind]}\n{node.asks}"


_NAMES: Final = {"input": "run.input", "output": "run.output"}


def shown_of(node: Node, trajectory: Trajectory, reference: Any, outputs: Mapping[str, Any]) -> dict[str, Any] | Skipped:
    """What the judge is shown: the parts of the run that the node reads, and the outputs of tasks.

    Args:
        node: who asks.
        trajectory: the run.
        reference: the run's own reference, or `UNRECORDED`, or a `Skipped` that says why there is none.
        outputs: of the tasks that lead to the node and that it reads, by label.
    """
    calls = calls_as_data(trajectory.calls) if not trajectory.calls_unknown else UNRECORDED
    there = {"input": trajectory.input, "output": trajectory.output, "calls": calls, "reference": reference}
    parts = {part: there[part] for part in sorted(node.reads) if part in there}
    for part, value in parts.items():
        if isinstance(value, Skipped):
            return Skipped(f"{node.name}: {value.why}", reason=value.reason)
        if value is UNRECORDED:
            return Skipped(f"{node.name}: {_NAMES.get(part, part)} not recorded", reason=REASONS.get(part, "not_recorded"))
    return parts | dict(sorted(outputs.items()))


async def answered(judge: Judge, node: Node, instruction: str, data: Mapping[str, Any]) -> Answer | Skipped | Failed:
    """The judge's answer; one that cannot be used is asked for once more.

    Args:
        judge: who is asked.
        node: what for.
        instruction: what to do.
        data: what it is shown.
    """
    schema, words = _form(node)
    try:
        try:
            reply = await ask(judge, prompt_of(instruction, data, words), schema)
        except JudgeError as error:
            if error.kind not in _UNUSABLE:
                raise
            reply = await ask(judge, prompt_of(f"{instruction}\n\n{_AGAIN}", data, words), schema)
        return _read(node, reply)
    except TooLong as error:
        return Skipped(f"{node.name}: {error}", reason="too_large")
    except Exception as error:  # noqa: BLE001 - a judge from Python may raise anything; that is an outcome
        said = failed(error)
        return replace(said, message=f"{node.name}: {said.message}")


def _form(node: Node) -> tuple[dict[str, Any], str]:
    """The schema of the answer, and the same in words."""
    if node.kind == "task":
        return {"properties": {"output": _TEXTS}}, '{"output": a text, or a list of texts}'
    reason = {"type": "string"}
    if node.kind == "binary":
        return _decision({"type": "boolean"}, reason), '{"verdict": true or false, "reason": "why, in a sentence or two"}'
    options = sorted(str(each.verdict) for each in node.verdicts)
    words = " or ".join(json.dumps(option, ensure_ascii=False) for option in options)
    return _decision(
        {"type": "string", "enum": options}, reason
    ), f'{{"verdict": {words}, "reason": "why, in a sentence or two"}}'


def _decision(verdict: dict[str, Any], reason: dict[str, Any]) -> dict[str, Any]:
    # The reason comes first for those that write in this order: it is thought before it is decided.
    return {"properties": {"reason": reason, "verdict": verdict}}


def _read(node: Node, reply: Mapping[str, Any]) -> Answer:
    if node.kind == "task":
        return Answer(reply["output"])
    return Answer(reply["verdict"], reply["reason"].strip()[:_LONGEST])
