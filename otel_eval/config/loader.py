"""Loads a configuration from a file, a mapping or an object: YAML, variables of the environment,
validation.

PyYAML reads YAML 1.1, where `no` is false, `1:30` is ninety and `2026-11-20` is a date. Verdicts,
tools and operators look like that, so `parse` resolves the scalars of the YAML 1.2 core schema
(https://yaml.org/spec/1.2.2/#103-core-schema): `yes`, `on`, `no` and `=` are text. Nothing builds
Python objects.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Final

import yaml
from pydantic import ValidationError

from otel_eval.config.exporters import ExportEndpoint, Exporters
from otel_eval.config.lines import lines_of_problems
from otel_eval.config.models import EvalConfig
from otel_eval.errors import ConfigError, holds_credentials
from otel_eval.scorers.values import DatasetPath, is_file
from otel_eval.validation import lines_of
from otel_eval.watched_files import read_small_file

_REFERENCE: Final = re.compile(r"(\$?)\$\{env:([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")
_USE_HEADERS: Final = (
    "leave them out and write headers, e.g. headers: {authorization: '${env:OTLP_AUTHORIZATION}'}"
)
_TEXT: Final = frozenset({"headers", "path", "name", "sasl"})
MAX_FILE_BYTES: Final = 2**20


ConfigSource = str | os.PathLike[str] | Mapping[str, Any] | EvalConfig | None


def load(source: ConfigSource = None) -> EvalConfig:
    """The configuration of a YAML file, a mapping, an object, or the default evaluation if None.

    Raises:
        ConfigError: one line for each problem, joined by `; `: the path, the value received, what
            would be right.
    """
    if source is None:
        return EvalConfig()
    if isinstance(source, EvalConfig):
        return source
    if isinstance(source, Mapping):
        return _validated(source)
    if isinstance(source, str | os.PathLike):
        path = Path(source)
        text = _read(path)
        values = _parsed(path, text)
        try:
            return _validated(values, path.absolute().parent)
        except ConfigError as error:
            raise _located(error, path, text) from None
    raise ConfigError(
        f"config: {type(source).__name__} is no configuration; give a path, a mapping or an"
        " EvalConfig"
    )


def located(error: ConfigError, source: str | os.PathLike[str]) -> ConfigError:
    """The error with the file's name and the lines of its problems, if they are not known yet and
    the file can be read again.
    """
    path = Path(source)
    if error.is_located or not path.is_file():
        return error
    try:
        return _located(error, path, _read(path))
    except ConfigError:  # changed since
        return error


def _located(error: ConfigError, path: Path, text: str) -> ConfigError:
    try:
        root = _Loader(text).get_single_node()
    except yaml.YAMLError:  # what this error is about
        return error
    lines = lines_of_problems(root, error.problems)
    return ConfigError(*error.problems, where=f"{path}: ", lines=lines)


def _validated(given: Mapping[str, Any], folder: Path | None = None) -> EvalConfig:
    unset: dict[str, str] = {}
    expanded = expand(given, os.environ, unset, always_text=_TEXT)
    if folder is not None and "evaluations" in expanded:
        expanded = {**expanded, "evaluations": _with_full_paths(folder, expanded["evaluations"])}
    problems = [*unset.values()]
    reported = tuple(path + end for path in unset for end in ":.[")
    try:
        config = EvalConfig.model_validate(expanded)
    except ValidationError as error:
        problems += [line for line in lines_of(error) if not line.startswith(reported)]
    if problems:
        raise ConfigError(*problems)
    return config


def _with_full_paths(folder: Path, value: Any) -> Any:
    """The value with full paths of files of references, which are relative to the folder of the
    configuration file.
    """
    if isinstance(value, list):
        return [_with_full_paths(folder, each) for each in value]
    if not isinstance(value, Mapping):
        return value
    found = {key: _with_full_paths(folder, each) for key, each in value.items()}
    if "key" in found and is_file(found.get("dataset")):
        written = os.fspath(found["dataset"])
        found["dataset"] = DatasetPath(str(folder / written), written)
    return found


def _read(path: Path) -> str:
    raw = read_small_file(
        path, MAX_FILE_BYTES, lambda why: ConfigError(f"{path}: {why}; name a YAML file")
    )
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: is not UTF-8 text; save it as UTF-8") from None


def _parsed(path: Path, text: str) -> Mapping[str, Any]:
    given = parse(text, where=str(path))
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise ConfigError(
            f"{path}: is not a mapping of keys to values; begin with e.g. evaluations:"
        )
    return given


def expand(
    value: Any,
    environment: Mapping[str, str],
    missing: dict[str, str],
    *,
    always_text: Collection[str] = (),
) -> Any:
    """The value with each `${env:NAME}` and `${env:NAME:-default}` (for unset or empty) in its
    texts replaced.

    A text that is one whole reference is typed as an unquoted scalar would be; `$${env:NAME}` stays
    as `${env:NAME}`.

    Args:
        value: plain YAML values.
        environment: the variables.
        missing: gets path → problem for each variable that is not set and has no default.
        always_text: keys below which values stay text, so that an API key of digits keeps its
            leading zero.
    """

    def expanded(value: Any, path: str, as_text: bool) -> Any:
        if isinstance(value, Mapping):
            return {
                key: expanded(
                    inner, f"{path}.{key}" if path else str(key), as_text or key in always_text
                )
                for key, inner in value.items()
            }
        if isinstance(value, list | tuple):
            return [expanded(item, f"{path}[{i}]", as_text) for i, item in enumerate(value)]
        if not isinstance(value, str):
            return value
        whole = _REFERENCE.fullmatch(value)
        text = _REFERENCE.sub(lambda found: _resolved(found, environment, missing, path), value)
        return typed(text) if whole and not whole[1] and not as_text else text

    return expanded(value, "", False)


def _resolved(
    found: re.Match[str], environment: Mapping[str, str], missing: dict[str, str], path: str
) -> str:
    """The text that replaces a reference; an unset variable without default is added to
    `missing`.
    """
    escaped, name, default = found.groups()
    if escaped:
        return found[0][1:]
    value = environment.get(name)
    if value or (value is not None and default is None):
        return value
    if default is None:
        remedy = f"set it or write ${{env:{name}:-default}}"
        missing[path] = f"{path or 'value'}: the environment variable {name} is not set; {remedy}"
    return default or ""


def exposed_credentials(config: EvalConfig) -> list[str]:
    """One line for each endpoint whose URL holds a user, a password or a query, without the URL.

    Judges' URLs are refused earlier, when the configuration is read.
    """
    named = {
        f"exporters.{name}": getattr(config.exporters, name) for name in Exporters.model_fields
    }
    given = {**config.exporters.otlp_endpoints, **named, "telemetry.otlp": config.telemetry.otlp}
    return [
        f"{key}.endpoint: the URL holds a user, a password or a query; {_USE_HEADERS}"
        for key, each in given.items()
        if isinstance(each, ExportEndpoint) and holds_credentials(each.endpoint)
    ]


def refuse_credentials(config: EvalConfig) -> None:
    """Refuse credentials in URLs; for commands, where an operator can change the file. A program
    that scores itself only warns.

    Raises:
        ConfigError: a URL holds credentials.
    """
    if problems := exposed_credentials(config):
        raise ConfigError(*problems)


MAX_DEPTH: Final = 50
MAX_DIGITS: Final = 1000
_REMEDY: Final = (
    "see that lines of one level begin below one another, indented by blanks, that a blank follows"
    " each colon, that brackets and quotes close, and that special characters are quoted"
)
# What to do about the mistakes that are made most often, by words of PyYAML's description of the
# problem.
_QUOTE_ALIAS: Final = 'a value that begins with * or & needs quotes, e.g. "*"'
_REMEDIES: Final = {
    "found character '\\t'": "indent with blanks instead of tabs",
    "cannot start any token": "put the value in quotes",
    "expected alphabetic or numeric character": _QUOTE_ALIAS,
    "found undefined alias": _QUOTE_ALIAS,
    "expected <block end>": "begin the lines of one level in the same column",
    "mapping values are not allowed here": (
        "indent the keys of one level alike, and put a value that contains a colon in quotes"
    ),
    "could not find expected ':'": "write a colon and a blank after each key",
}
# An operator that YAML takes for a folded text (`>`) or a tag (`!`): the value has to be quoted.
_UNQUOTED: Final = re.compile(r"(?:^|[:\-,\[{])\s*(>=|>|!=)\s*[0-9,\]}]?")


def parse(text: str, *, where: str) -> Any:
    """The plain Python value of a YAML document; `where` names it in errors.

    Raises:
        ConfigError: it is no YAML, repeats a key, is nested too deeply, or leaves an operator
            unquoted.
    """
    try:
        loader = _Loader(text)
        try:
            return loader.get_single_data()
        finally:
            loader.dispose()
    except yaml.YAMLError as error:
        raise ConfigError(_yaml_problem(error, text, where)) from None
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{where}: {error}; check the numbers and the nesting") from None


def typed(text: str) -> Any:
    """What an unquoted scalar of this text would be: `typed("3")` is 3, `typed("on")` is text."""
    loader = _Loader("")
    tag = loader.resolve(yaml.ScalarNode, text, (True, False))  # type: ignore[no-untyped-call]
    try:
        return loader.construct_object(yaml.ScalarNode(tag, text))
    except ValueError:  # a number of too many digits
        return text


class _Loader(yaml.SafeLoader):
    """PyYAML's safe loader with the scalars of YAML 1.2 and a limit of depth."""

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012 - filled below

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.deep_construct = True  # refuses a value that contains itself
        self._depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        self._depth += 1
        mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
        if self._depth > MAX_DEPTH:
            raise yaml.MarkedYAMLError(
                problem=f"nested deeper than {MAX_DEPTH} levels; flatten it", problem_mark=mark
            )
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Build a mapping; refuse duplicate keys, and merging by `<<`, which YAML 1.2 does not
        have.
        """
        seen: set[str] = set()
        for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode)):
            if key.value == "<<" and key.style is None:
                problem = (
                    "YAML 1.2 merges nothing by <<; write the keys out, or let an alias stand for a"
                    " whole value"
                )
                raise yaml.MarkedYAMLError(problem=problem, problem_mark=key.start_mark)
            if key.value in seen:
                raise yaml.MarkedYAMLError(
                    problem=f"the key {key.value!r} is there twice; keep one",
                    problem_mark=key.start_mark,
                )
            seen.add(key.value)
        return super().construct_mapping(node, deep)


def _int(loader: _Loader, node: yaml.ScalarNode) -> int:
    text = node.value
    if len(text) > MAX_DIGITS:
        raise ValueError(f"a number of more than {MAX_DIGITS} digits")
    return int(text, 0) if text[:2] in ("0o", "0x") else int(text)


def _text(loader: _Loader, node: yaml.ScalarNode) -> str:
    if node.style == ">" and not node.value.strip():
        raise yaml.MarkedYAMLError(
            problem="a folded text without any text", problem_mark=node.start_mark
        )
    return str(loader.construct_scalar(node))


# \Z because PyYAML only asks for a match; `_first` are the first characters
for _kind, _pattern, _first in (
    ("null", r"(?:~|null|Null|NULL|)\Z", ["~", "n", "N", ""]),
    ("bool", r"(?:true|True|TRUE|false|False|FALSE)\Z", "tTfF"),
    ("int", r"(?:[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+)\Z", "-+0123456789"),
    ("float", r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?\Z", "-+.0123456789"),
    ("float", r"(?:[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))\Z", "-+."),
):
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_kind}", re.compile(_pattern), list(_first))
_Loader.add_constructor("tag:yaml.org,2002:int", _int)
_Loader.add_constructor("tag:yaml.org,2002:str", _text)


def _yaml_problem(error: yaml.YAMLError, text: str, where: str) -> str:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or " ".join(str(error).split())
    if mark is None:
        return f"{where}: {problem}; write plain YAML"
    for line in {mark.line, mark.line - 1}:  # PyYAML may report a folded text on the line after it
        hint = _operator_hint(text, line)
        if hint:
            return f"{where} line {line + 1}: {hint}"
    problem = " ".join(problem.split())
    hint = next((remedy for words, remedy in _REMEDIES.items() if words in problem), _REMEDY)
    remedy = "" if "; " in problem else f"; {hint}"
    return f"{where} line {mark.line + 1}, column {mark.column + 1}: {problem}{remedy}"


def _operator_hint(text: str, line: int) -> str:
    lines = text.splitlines()
    found = _UNQUOTED.search(lines[line]) if 0 <= line < len(lines) else None
    if not found:
        return ""
    operator = found[1]
    return (
        f'an unquoted {operator} means something else in YAML; quote it, e.g. "{operator} 3" or'
        f' ["{operator}", 3]'
    )
