"""Score the format of a meeting summary with a decision tree and a judge of your own.

    python examples/meeting_summary.py

The tree is that of meeting_summary_judged.yaml. The judge here answers by rule, so that the example
needs no model; any coroutine function that takes a prompt and returns JSON works.
"""

from __future__ import annotations

import asyncio
import json
import re

from otel_eval import Scored, create_scorer
from otel_eval.scorers.dag import Dag
from otel_eval.testing import trajectory

HEADINGS = ["intro", "body", "conclusion"]


async def judge(prompt: str) -> str:
    """Answer the prompt for a model by rule."""
    shown = json.loads(
        re.findall(r"^<data>\n(.*?)\n</data>$", prompt, re.DOTALL | re.MULTILINE)[-1]
    )
    if "List the headings" in prompt:
        lines = [line.strip().lower() for line in shown["output"].splitlines()]
        return json.dumps({"output": [line for line in lines if line in HEADINGS]})
    found = shown["headings"]
    if "all there" in prompt:
        missing = [heading for heading in HEADINGS if heading not in found]
        return json.dumps(
            {"verdict": not missing, "reason": f"missing: {', '.join(missing) or 'nothing'}"}
        )
    misplaced = sum(one != other for one, other in zip(found, HEADINGS, strict=False))
    verdict = {0: "in order", 2: "two out of order"}.get(misplaced, "all out of order")
    return json.dumps({"verdict": verdict, "reason": f"headings out of place: {misplaced}"})


TREE = {
    "extract": {
        "type": "task",
        "instructions": "List the headings of the summary, in the order in which they come.",
        "reads": ["output"],
        "output_label": "headings",
        "children": ["all_present", "order"],
    },
    "all_present": {
        "type": "binary",
        "criteria": 'Are the headings "intro", "body" and "conclusion" all there?',
        "children": [{"verdict": True, "then": "order"}, {"verdict": False, "score": 0}],
    },
    "order": {
        "type": "choice",
        "criteria": 'How many of the headings stand in the order "intro", "body", "conclusion"?',
        "children": [
            {"verdict": "in order", "score": 10},
            {"verdict": "two out of order", "score": 4},
            {"verdict": "all out of order", "score": 2},
        ],
    },
}
SUMMARIES = (
    "Intro\nWe met.\nBody\nWe talked.\nConclusion\nWe meet again.",
    "Body\nWe talked.\nIntro\nWe met.\nConclusion\nWe meet again.",
    "Intro\nWe met.\nBody\nWe talked.",
)


async def main() -> None:
    spec = {
        "type": "dag",
        "name": "format-correctness",
        "judge": judge,
        "include_content": True,
        "root": "extract",
        "nodes": TREE,
    }
    scorer = create_scorer(spec)
    assert isinstance(scorer, Dag)
    for outcome in await asyncio.gather(
        *(scorer.evaluate(trajectory(output=summary)) for summary in SUMMARIES)
    ):
        assert isinstance(outcome, Scored)
        print(f"{outcome.value:.1f}  {outcome.explanation}")


if __name__ == "__main__":
    asyncio.run(main())
