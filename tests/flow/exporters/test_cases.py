"""Runs that become test cases: what is stored, and that it gives the outcome it had, or a skip."""

from __future__ import annotations

import json
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider

from otel_eval import EvalSpanProcessor
from otel_eval.app.stored_traces import replay, understand
from otel_eval.assembly import Limits, TraceBuffer
from otel_eval.config import load
from otel_eval.errors import ConfigError
from otel_eval.exporters.cases import CaseEncoder, case_of
from otel_eval.model import Outcome, Report, Scored, Skipped, Trajectory
from otel_eval.otlp.otlp_json import read_document
from otel_eval.sources.files.whole_traces import read_whole_traces
from otel_eval.trajectory.builder import build
from otel_eval.trajectory.classify import ALL_NEEDS, Plan
from tests.support.content_scorers import scorers_for
from tests.support.listeners import NO_PROBLEMS
from tests.support.recorded_traces import FILES, FOLDER, SIXTH_OF_FILES, traces

SECRET = "4929-0000-1111"
PLAN = Plan(needs=ALL_NEEDS)


def config_of(folder: Path, **cases: Any) -> dict[str, Any]:
    """Every run without a call is no pass; so is one in which a call failed."""
    return {
        "evaluations": [
            {
                "name": "all",
                "match": {"runs": "all"},
                "scorers": [{"type": "tool_call_count", "criteria": {"never_called": ">= 1"}}],
            }
        ],
        "exporters": {"cases": {"directory": str(folder), **cases}},
    }


def store(file: str | Path, folder: Path, **cases: Any) -> list[Report]:
    config = load(config_of(folder, **cases))
    return list(replay([FOLDER / file], config, export=True, listener=NO_PROBLEMS))


def trajectories_of(folder: Path) -> dict[tuple[str, str], Trajectory]:
    paths = sorted(folder.glob("*.json"))
    runs = understand(paths, load(None), listener=NO_PROBLEMS) if paths else ()
    return {(run.trace_id, run.span_id): run for run in runs}


def differs(was: Outcome, now: Outcome) -> bool:
    if isinstance(now, Skipped):
        return False
    return not (
        isinstance(was, Scored)
        and isinstance(now, Scored)
        and (was.value, was.passed) == (now.value, now.passed)
    )


def recorded_runs(file: str) -> Iterator[Trajectory]:
    for trace in traces(file):
        for run in build(trace, PLAN):
            yield run.trajectory


@pytest.mark.parametrize("file", SIXTH_OF_FILES)
def test_a_stored_case_gives_its_original_outcome_or_a_skip(file: str, tmp_path: Path) -> None:
    for content in (False, True):
        folder = tmp_path / f"content {content}"
        store(file, folder, content=content, when=["not_passed", "skipped", "failed"])
        stored = trajectories_of(folder)
        runs = list(recorded_runs(file))
        assert bool(stored) == bool(runs)
        for run in runs:
            again = stored.get((run.trace_id, run.span_id), run)
            if again == run:
                continue  # scorers read nothing else
            for scorer in scorers_for(run):
                was, now = scorer(run), scorer(again)
                assert not differs(was, now), f"{scorer.name} was {was} and is {now}"


def test_nearly_all_calls_that_were_known_are_known_without_content() -> None:
    """Skips everywhere would give no other score either."""
    encoder, kept = CaseEncoder(PLAN), {True: 0, False: 0}
    for file in FILES:
        for trace in read_whole_traces([FOLDER / file], Limits(), listener=NO_PROBLEMS):
            encoded = encoder.encode(trace, content=False)
            buffer = TraceBuffer()
            buffer.push_many(read_document(json.loads(encoded)).spans, 0.0)
            known = {
                run.span_id: run.trajectory.calls
                for again in buffer.drain(0.0)
                for run in build(again, PLAN)
                if not run.trajectory.calls_unknown
            }
            for run in build(trace, PLAN):
                if run.trajectory.calls_unknown or run.trajectory.waiting:
                    continue
                kept[run.span_id in known] += 1
                names = [call.name for call in run.trajectory.calls]
                assert [call.name for call in known.get(run.span_id, run.trajectory.calls)] == names
    assert kept[True] > 20 * kept[False]


class Shop:
    """A traced agent in this process, whose runs are evaluated as they end."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._provider = TracerProvider()
        self.processor = EvalSpanProcessor({**config, "traces": {"decision_wait": "0s"}})
        self._provider.add_span_processor(self.processor)
        self._tracer = self._provider.get_tracer("shop")

    def run(self, *tools: str, question: str = SECRET) -> str:
        """One run, with content in arguments, results, messages and an attribute of its own; the id
        of its trace.
        """
        agent = {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.agent.name": "clerk",
            "gen_ai.input.messages": json.dumps(
                [{"role": "user", "parts": [{"type": "text", "content": question}]}]
            ),
            "customer.card": question,
        }
        with self._tracer.start_as_current_span("invoke_agent clerk", attributes=agent) as run:
            for tool in tools:
                attributes = {
                    "gen_ai.operation.name": "execute_tool",
                    "gen_ai.tool.name": tool,
                    "gen_ai.tool.call.arguments": json.dumps({"card": question}),
                    "gen_ai.tool.call.result": question,
                }
                with self._tracer.start_as_current_span(
                    f"execute_tool {tool}", attributes=attributes
                ) as span:
                    span.add_event("note", {"text": question, "exception.message": question})
            assert isinstance(run, ReadableSpan)
            return f"{run.get_span_context().trace_id:032x}"

    def close(self) -> None:
        self._provider.shutdown()


SCORERS = [{"type": "required_tools", "patterns": ["lookup"]}]


def shop_config(folder: Path, **cases: Any) -> dict[str, Any]:
    return {
        "evaluations": [{"name": "shop", "scorers": SCORERS}],
        "exporters": {"cases": {"directory": str(folder), **cases}},
    }


def test_a_run_that_does_not_pass_becomes_a_case_for_its_owner_alone(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "cases"
    shop = Shop(shop_config(folder, sample=0.0))
    failed = shop.run("refund")
    shop.run("lookup", "refund")
    shop.close()
    names = sorted(path.name for path in folder.iterdir())
    assert len(names) == 2
    assert [Path(name).suffix for name in names] == [".case", ".json"]
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in folder.iterdir())
    record = json.loads((folder / names[0]).read_text())
    assert record == {
        "case": Path(names[0]).stem,
        "agent": "clerk",
        "verdict": "not_passed",
        "calls": [{"name": "refund"}],
        "expected": ["refund"],
    }
    (run,) = trajectories_of(folder).values()
    assert (run.trace_id, case_of(run)) == (failed, record["case"])
    assert SECRET not in "".join(path.read_text() for path in folder.iterdir())


def test_content_is_stored_where_it_is_asked_for(tmp_path: Path) -> None:
    shop = Shop(shop_config(tmp_path, content=True))
    shop.run("refund")
    shop.close()
    (record,) = [json.loads(path.read_text()) for path in tmp_path.glob("*.case")]
    assert record["calls"] == [{"name": "refund", "arguments": {"card": SECRET}}]
    assert record["input"] == SECRET
    (run,) = trajectories_of(tmp_path).values()
    assert run.calls[0].result == SECRET


def test_a_share_of_the_runs_that_pass_is_stored(tmp_path: Path) -> None:
    shop = Shop(shop_config(tmp_path, sample=0.5))
    for _ in range(40):
        shop.run("lookup")
    shop.close()
    assert 5 < len(list(tmp_path.glob("*.json"))) < 35


def test_the_oldest_cases_are_removed_with_their_records(tmp_path: Path) -> None:
    shop = Shop(shop_config(tmp_path, keep=3))
    ran = []
    for _ in range(6):
        ran.append(shop.run("refund"))
        assert shop.processor.force_flush(300_000)
    shop.close()
    assert {trace_id for trace_id, _ in trajectories_of(tmp_path)} == set(ran[-3:])
    assert len(list(tmp_path.glob("*.case"))) == 3


def test_a_run_is_written_once_and_an_edited_record_stays(tmp_path: Path) -> None:
    file = next(name for name in FILES if name.startswith("pydantic_ai_v5"))
    store(file, tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    record = next(tmp_path.glob("*.case"))
    record.write_text('{"case": "edited"}\n')
    store(file, tmp_path)
    after = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert before
    assert after == {**before, record.name: b'{"case": "edited"}\n'}


def test_a_changed_policy_is_tested_with_the_stored_cases(tmp_path: Path) -> None:
    shop = Shop(shop_config(tmp_path))
    shop.run("refund")
    shop.close()
    changed = {"evaluations": [{"scorers": [{"type": "required_tools", "patterns": ["refund"]}]}]}
    for config, passes in ((shop_config(tmp_path), False), (changed, True)):
        reports = list(replay(sorted(tmp_path.glob("*.json")), load(config), listener=NO_PROBLEMS))
        assert [result.outcome.passed for report in reports for result in report.results] == [
            passes
        ]


def test_a_run_whose_judge_answers_later_is_a_case_if_that_does_not_pass(tmp_path: Path) -> None:
    async def strict(prompt: str) -> str:
        return '{"score": 0, "explanation": "no"}'

    config = {
        "judges": {"strict": strict},
        "evaluations": [
            {
                "name": "shop",
                "scorers": [
                    {"type": "llm_judge", "name": "kind", "judge": "strict", "criteria": "Kind?"}
                ],
            }
        ],
        "exporters": {"cases": {"directory": str(tmp_path), "when": ["not_passed"], "sample": 0.0}},
    }
    shop = Shop(config)
    shop.run("refund")
    assert shop.processor.force_flush(300_000)
    shop.close()
    assert len(list(tmp_path.glob("*.json"))) == 1


def test_a_directory_that_is_a_file_is_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "cases").write_text("")
    with pytest.raises(ConfigError, match=r"^exporters.cases.directory: '.*': File exists$"):
        EvalSpanProcessor(shop_config(tmp_path / "cases"))
