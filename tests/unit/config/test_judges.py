"""Judges in a configuration: who may be named, by whom, and what is never shown."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from otel_eval.app.build import build_engine
from otel_eval.app.judge_clients import build_judges
from otel_eval.cli import main
from otel_eval.config import EvalConfig, Evaluation, JudgeEndpoint, load
from otel_eval.errors import ConfigError
from otel_eval.judges.client import JudgeClient

ROOT = Path(__file__).parents[3]
MAIN = {"base_url": "http://127.0.0.1:9/v1", "model": "m"}
POLITE = {"type": "llm_judge", "judge": "main", "criteria": "It is polite."}


async def judge(prompt: str) -> str:
    return prompt


def config_of(**keys: Any) -> dict[str, Any]:
    return {"judges": {"main": MAIN}, "evaluations": [{"name": "e", "scorers": [POLITE]}], **keys}


def said(**keys: Any) -> str:
    with pytest.raises(ConfigError) as refused:
        load(config_of(**keys))
    return str(refused.value)


def test_a_scorer_asks_the_judge_that_it_names():
    """One of that name is made, however many scorers ask it."""
    scorers = [POLITE, {"type": "answer_accuracy", "judge": "main"}]
    engine = build_engine(
        load(config_of(evaluations=[{"name": n, "scorers": scorers} for n in "ef"]))
    )
    asked = {id(scorer.judge) for evaluation in engine.evaluations for scorer in evaluation.scorers}  # type: ignore[attr-defined]
    assert len(asked) == 1


def test_a_coroutine_function_may_be_named_from_python():
    """As mapping or as objects, in either order."""
    evaluation = Evaluation(name="e", scorers=[POLITE])
    for config in (
        load(config_of(judges={"main": judge})),
        EvalConfig(judges={"main": judge}, evaluations=[evaluation]),
    ):
        assert build_engine(config).evaluations[0].scorers[0].judge is judge  # type: ignore[attr-defined]


def test_a_coroutine_function_may_be_named_by_its_path(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    """So that YAML can do what Python can: in the scorer or among the judges."""
    (tmp_path / "judged_by_path.py").write_text(
        "async def judge(prompt): return prompt\ndef other(prompt): ...\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    path = "judged_by_path:judge"
    inline = [{"name": "e", "scorers": [{**POLITE, "judge": path}]}]
    for config in (
        load(config_of(judges={"main": path})),
        load(config_of(judges={}, evaluations=inline)),
    ):
        assert build_engine(config).evaluations[0].scorers[0].judge.__name__ == "judge"  # type: ignore[attr-defined]
    assert "is not a coroutine function" in said(judges={"main": "judged_by_path:other"})
    assert said(judges={"main": "no:judge"}).startswith(
        "judges.main: 'no:judge' cannot be imported (ModuleNotFoundError: "
    )
    wrong = [{"name": "e", "scorers": [{**POLITE, "judge": "no_such_module:judge"}]}]
    assert "evaluations[0].scorers[0].judge: 'no_such_module:judge' cannot be imported" in said(
        evaluations=wrong
    )


def test_an_endpoint_may_be_an_object_or_stand_in_the_scorer():
    """What can be written in YAML can be written in Python, and the reverse."""
    named = EvalConfig(
        judges={"main": JudgeEndpoint(**MAIN)}, evaluations=[Evaluation(name="e", scorers=[POLITE])]
    )
    inline = load(
        config_of(judges={}, evaluations=[{"name": "e", "scorers": [{**POLITE, "judge": MAIN}]}])
    )
    for config in (named, inline):
        assert isinstance(build_engine(config).evaluations[0].scorers[0].judge, JudgeClient)  # type: ignore[attr-defined]


@pytest.mark.parametrize("made_before", [False, True])
def test_a_name_that_does_not_exist_is_refused_with_its_place(made_before: bool):
    """Also where the evaluation was an object before the configuration was."""
    spec = {**POLITE, "judge": "mian"}
    evaluation = (
        Evaluation(name="e", scorers=[spec]) if made_before else {"name": "e", "scorers": [spec]}
    )
    assert (
        said(evaluations=[evaluation])
        == "evaluations[0].scorers[0].judge: 'mian' is not one of the judges; did you mean 'main'?"
    )
    assert "write judges: {mian: {base_url:" in said(evaluations=[evaluation], judges={})


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"main": 3}, "judges.main: 3 is not a mapping; its keys are api_key_env, "),
        (
            {"main": len},
            "judges.main: <built-in function len> is not a coroutine function; write async def",
        ),
        ({"main": {**MAIN, "modle": "x"}}, "judges.main.modle: unknown key; did you mean 'model'?"),
        (
            {"main": {"base_url": "ftp://x", "model": ""}},
            "judges.main.base_url: 'ftp://x' is not a URL",
        ),
        (
            {"main": {**MAIN, "api_key_env": "A", "api_key_file": "b"}},
            "judges.main.api_key_file: is given beside api_key_env",
        ),
        (
            {"main": {**MAIN, "base_url": "http://x/v1\n"}},
            "judges.main.base_url: 'http://x/v1\\n' is not a URL",
        ),
        (
            {"main": {**MAIN, "base_url": "http://x y/v1"}},
            "judges.main.base_url: 'http://x y/v1' is not a URL",
        ),
        (
            {"main": {**MAIN, "parameters": {"n": 2}}},
            "judges.main.parameters.n: is set by otel-eval",
        ),
        (
            {"main": {**MAIN, "parameters": {"seed": float("nan")}}},
            "judges.main.parameters.seed: is not JSON",
        ),
        (
            {"main": {**MAIN, "parameters": {"stop": {1, 2}}}},
            "judges.main.parameters.stop: is not JSON",
        ),
        ("main", "judges: 'main' is not a mapping; write keys with values, e.g. {key: value}"),
    ],
)
def test_a_judge_that_cannot_be_used_is_refused(given: Any, words: str):
    """With the path to it."""
    assert words in said(judges=given)


@pytest.mark.parametrize(
    ("key", "value"), [("max_queue", 0), ("concurrency", 0), ("timeout", 0), ("timeout", "x")]
)
def test_limits_that_leave_no_room_are_refused(key: str, value: Any):
    """Each by its name."""
    assert said(async_scoring={key: value}).startswith(f"async_scoring.{key}: {value!r}")


SECRET = "sk-0123456789abcdef"


@pytest.mark.parametrize(
    "endpoint",
    [
        {**MAIN, "api_key_env": SECRET},
        {**MAIN, "api_key": SECRET},
        {**MAIN, "base_url": f"http://user:{SECRET}@127.0.0.1/v1"},
        {**MAIN, "base_url": f"http://127.0.0.1/v1?key={SECRET}"},
        {**MAIN, "base_url": f"http://user:{SECRET}@127.0.0.1:99999/v1"},
    ],
)
def test_a_key_in_the_wrong_place_is_not_repeated(endpoint: dict[str, Any]):
    """People put it there; the error says where it belongs."""
    message = said(judges={"main": endpoint})
    assert SECRET not in message
    assert "judges.main." in message


def test_check_says_whether_there_is_a_key_and_never_which(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    """From the environment or a file."""
    path = tmp_path / "eval.yaml"
    path.write_text(
        json.dumps(config_of(judges={"main": {**MAIN, "api_key_env": "JUDGE_API_KEY"}})),
        encoding="utf-8",
    )
    monkeypatch.delenv("JUDGE_API_KEY", raising=False)
    assert main(["check", str(path)]) == 2
    assert (
        "judges.main.api_key_env: the environment variable 'JUDGE_API_KEY' is unset or empty;"
        " set it" in capsys.readouterr().err
    )
    monkeypatch.setenv("JUDGE_API_KEY", SECRET)
    assert main(["check", str(path)]) == 0
    assert SECRET not in "".join(capsys.readouterr())


@pytest.mark.parametrize("content", [b"", b"  \n", b"two\nlines", b"\xff\xfe", b"x" * 20_000])
def test_a_file_without_a_key_is_refused(tmp_path: Path, content: bytes):
    """Nothing of it is shown."""
    path = tmp_path / "key"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=r"judges\.main\.api_key_file: .* holds") as refused:
        build_judges(load(config_of(judges={"main": {**MAIN, "api_key_file": str(path)}})))
    assert "two" not in str(refused.value)


def test_a_configuration_shows_no_key(monkeypatch: pytest.MonkeyPatch):
    """Nor does what is made of it."""
    monkeypatch.setenv("JUDGE_API_KEY", SECRET)
    config = load(config_of(judges={"main": {**MAIN, "api_key_env": "JUDGE_API_KEY"}}))
    evaluations = build_engine(config).evaluations
    shown = f"{config!r} {config.model_dump()} {build_judges(config)!r} {evaluations!r}"
    assert SECRET not in shown


def program(text: str) -> str:
    """What a program prints."""
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, cwd=ROOT)
    assert done.stderr == ""
    return done.stdout.strip()


def test_endpoints_need_the_extra_and_say_so():
    """Named or inline; everything else works without it."""
    endpoint = "{'base_url': 'http://127.0.0.1:9/v1', 'model': 'm'}"
    printed = program(
        "import sys; sys.modules['openai'] = None\nfrom otel_eval import create_scorer; from"
        " otel_eval.config import load\nfor build in (lambda: load({'judges': {'main':"
        f" {endpoint}}}}}),\n              lambda: create_scorer({{'type': 'llm_judge', 'criteria':"
        f" 'x', 'judge': {endpoint}}})):\n    try: build()\n    except ValueError as error:"
        " print(error)\nload({}); create_scorer({'type': 'tool_errors'})\n"
    )
    remedy = "an endpoint needs the package openai; install it with pip install 'otel-eval[judge]'"
    assert printed.splitlines() == [f"judges.main: {remedy}", f"judge: {remedy}"]


def test_no_http_client_is_loaded_before_a_judge_is_asked():
    """No client; where there is one, none before the first question."""
    assert program(
        # old ones depend on what loads asyncio
        "import sys; from opentelemetry import trace; before = {*sys.modules}\nfrom otel_eval"
        " import create_scorer; from otel_eval.app.build import build_engine\n"
        "from otel_eval.config import load\ndef loaded():"
        " print(sorted({'asyncio', 'openai', 'otel_eval.judges.client'} & {*sys.modules} -"
        " before))\ncreate_scorer({'type': 'tool_errors'}); loaded()\nbuild_engine(load({'judges':"
        " {'main': {'base_url': 'http://127.0.0.1:9', 'model': 'm'}}}))\nprint('openai' in"
        " sys.modules)"
    ).splitlines() == ["[]", "False"]
