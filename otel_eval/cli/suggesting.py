"""`otel-eval suggest`: writes a policy from observed runs as commented YAML."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import click

from otel_eval.app import stored_traces
from otel_eval.cli.exit_codes import NOTHING_FOUND
from otel_eval.cli.inputs import InputMessages, files_of
from otel_eval.cli.log_format import warn
from otel_eval.config import EvalConfig
from otel_eval.errors import InputError
from otel_eval.scorers.tool_names import plural
from otel_eval.suggestion import (
    FEWEST_RUNS,
    SuggestedPolicy,
    SuggestedRule,
    as_pattern,
    suggest_policies,
)


def write_suggestion(paths: Sequence[str], config: EvalConfig, output: str | None) -> int:
    """Write the suggestion to a new file, or to standard output.

    Returns:
        0; 2 if an input is invalid; 3 if there is no run whose calls are known.

    Raises:
        InputError: the output exists or cannot be written.
    """
    if output is not None and os.path.exists(output):
        raise InputError(f"{output}: exists already; name another file, nothing is overwritten")
    with InputMessages() as messages:
        observed = [
            (run, offered)
            for run, offered in stored_traces.understand_with_offers(
                files_of(paths),
                config,
                messages,
            )
            if run.outermost
        ]
    runs = [run for run, _ in observed]
    policies = suggest_policies(runs, frozenset[str]().union(*(names for _, names in observed)))
    if not any(policy.runs for policy in policies):
        warn(["no run whose calls are known; `otel-eval explain` with the same files shows why"])
        return messages.exit_code(NOTHING_FOUND)
    text = "\n".join(policy_lines(policies)) + "\n"
    if output is None:
        click.echo(text, nl=False)
    else:
        try:
            with open(output, "x", encoding="utf-8") as file:
                file.write(text)
        except OSError as error:
            raise InputError(f"{output}: {error.strerror or error}") from None
        click.echo(f"{output}: written; look at each rule, then: otel-eval check {output}")
    return messages.exit_code()


def policy_lines(policies: Sequence[SuggestedPolicy]) -> Iterator[str]:
    """The lines of a configuration file."""
    yield "# Suggested from observed runs, all of which pass the active rules. Read each rule: what"
    yield "# happened so far need not be what should happen. Rules that are commented out were seen"
    yield "# too rarely, or do not hold for all runs."
    yield "evaluations:"
    for policy in policies:
        yield from _evaluation_lines(policy)


def _evaluation_lines(policy: SuggestedPolicy) -> Iterator[str]:
    """The lines of one evaluation; without an active rule all are commented out."""
    agent = policy.agent or "(unnamed)"
    mark = "# " if all(rule.inactive for rule in policy.rules) else ""
    yield f"  {mark}- name: {_yaml(f'{agent} as observed')}"
    if policy.agent:
        yield f"    {mark}match: {{agent: {_yaml(as_pattern(policy.agent))}}}"
    if 0 < policy.runs < FEWEST_RUNS:
        yield f"    # Only {plural(policy.runs, 'run')}: a first sketch, not a policy."
    if policy.unknown:
        yield f"    # {plural(policy.unknown, 'further run')} left out: their calls are unknown."
    yield f"    {mark}scorers:"
    for rule, name in zip(policy.rules, _names(policy.rules), strict=True):
        mark, note = ("# ", f"; {rule.inactive}") if rule.inactive else ("", "")
        support = f"in {rule.runs} of {plural(policy.runs, 'run')}{note}"
        yield f"      {mark}- {_yaml({**rule.spec, 'name': name})} # {support}"


def _names(rules: Sequence[SuggestedRule]) -> list[str]:
    """A name for each scorer that says what it is about; no name occurs twice."""
    names: list[str] = []
    for rule in rules:
        name = _name_of(rule.spec)
        repeated = sum(other == name or other.startswith(f"{name} #") for other in names)
        names.append(f"{name} #{repeated + 1}" if repeated else name)
    return names


def _name_of(spec: Mapping[str, Any]) -> str:
    """A name that says what the scorer is about."""
    match spec["type"]:
        case "required_tools":
            return f"calls {spec['patterns'][0]}"
        case "forbidden_tools":
            return "only known tools" if spec["patterns"] == ["*"] else "tools never called"
        case "precedence":
            return str(spec["rules"][0])
        case "tool_call_count":
            return f"number of {next(iter(spec['criteria']))}"
        case kind:
            return str(kind)


def _yaml(value: Any) -> str:
    """The value in YAML's flow style, which JSON is a part of; plain words are not quoted."""
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{_yaml(key)}: {_yaml(item)}' for key, item in value.items())}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(_yaml, value))}]"
    if isinstance(value, str) and _PLAIN.fullmatch(value):
        return value
    return json.dumps(value, ensure_ascii=True)


_PLAIN: Final = re.compile(
    r"(?!(?:true|false|null|yes|no|on|off|y|n)\Z)[a-z][a-z0-9 _-]*(?<! )", re.ASCII | re.IGNORECASE
)
"""A text that YAML 1.1 and 1.2 read as this text without quotes."""
