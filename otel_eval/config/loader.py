"""Loads a configuration from a file, a mapping or an object: YAML, variables of the environment, validation."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from otel_eval.config.models import EvalConfig
from otel_eval.config.validation import lines_of, present_keys
from otel_eval.config.yaml12 import parse, typed
from otel_eval.errors import ConfigError, holds_credentials
from otel_eval.scorers.references import is_file

__all__ = ["expand", "exposed_credentials", "load", "refuse_credentials"]

_REFERENCE: Final = re.compile(r"(\$?)\$\{env:([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")
_REMEDY: Final = "leave them out and write headers, e.g. headers: {authorization: '${env:OTLP_AUTHORIZATION}'}"
_TEXT: Final = frozenset({"headers", "path", "name", "sasl"})
MAX_FILE_BYTES: Final = 2**20


def load(source: str | os.PathLike[str] | Mapping[str, Any] | EvalConfig | None = None) -> EvalConfig:
    """The configuration of a YAML file, a mapping, an object, or the default evaluation if None.

    Raises:
        ConfigError: one line for each problem, joined by `; `: the path, the value received, what would be right.
    """
    if source is None:
        return EvalConfig()
    if isinstance(source, EvalConfig):
        return source
    if isinstance(source, Mapping):
        return _validated(source, "")
    if isinstance(source, str | os.PathLike):
        path = Path(source)
        return _validated(_read(path), f"{path}: ", path.absolute().parent)
    raise ConfigError(f"config: {type(source).__name__} is no configuration; give a path, a mapping or an EvalConfig")


def _validated(given: Mapping[str, Any], where: str, folder: Path | None = None) -> EvalConfig:
    unset: dict[str, str] = {}
    current = present_keys(EvalConfig, given, where=where)
    expanded = expand(current.values, os.environ, always_text=_TEXT, missing=unset)
    if folder is not None and "evaluations" in expanded:
        expanded = {**expanded, "evaluations": _beside(folder, expanded["evaluations"])}
    problems = [*current.problems, *unset.values()]
    blamed = tuple(path + end for path in unset for end in ":.[")
    try:
        config = EvalConfig.model_validate(expanded)
    except ValidationError as error:
        problems += [line for line in lines_of(error, EvalConfig) if not line.startswith(blamed)]
    if problems:
        raise ConfigError(*problems, where=where)
    return config


def _beside(folder: Path, value: Any) -> Any:
    """The value with the files of references, which stand relative to the configuration file, under their full paths."""
    if isinstance(value, list):
        return [_beside(folder, each) for each in value]
    if not isinstance(value, Mapping):
        return value
    found = {key: _beside(folder, each) for key, each in value.items()}
    if "key" in found and is_file(found.get("dataset")):
        found["dataset"] = str(folder / found["dataset"])
    return found


def _read(path: Path) -> Mapping[str, Any]:
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror}); name a YAML file") from None
    if len(raw) > MAX_FILE_BYTES:
        raise ConfigError(f"{path}: is larger than 1 MiB; this is no configuration")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: is not UTF-8 text; save it as UTF-8") from None
    given = parse(text, where=str(path))
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise ConfigError(f"{path}: holds a {type(given).__name__}, not a mapping; begin with e.g. evaluations:")
    return given


def expand(
    value: Any, environment: Mapping[str, str], *, always_text: Collection[str] = (), missing: dict[str, str] | None = None
) -> Any:
    """The value with each `${env:NAME}` and `${env:NAME:-default}` (for unset or empty) in its texts replaced.

    A text that is one whole reference is typed as an unquoted scalar would be; `$${env:NAME}` stays as `${env:NAME}`.

    Args:
        value: plain YAML values.
        environment: the variables.
        always_text: keys below which nothing is typed, so that a key of digits keeps its leading zero.
        missing: takes path → problem where a variable is not set and no default is given, instead of an error.

    Raises:
        ConfigError: some variable is not set; every such place is named.
    """
    unset: dict[str, str] = {} if missing is None else missing
    expanded = _Expansion(environment, always_text, unset).value(value, "", as_text=False)
    if unset and missing is None:
        raise ConfigError(*unset.values())
    return expanded


class _Expansion:
    def __init__(self, environment: Mapping[str, str], always_text: Collection[str], missing: dict[str, str]) -> None:
        self._environment, self._always_text, self._missing = environment, always_text, missing

    def value(self, value: Any, path: str, *, as_text: bool) -> Any:
        if isinstance(value, str):
            return self._text(value, path, as_text=as_text) if "${env:" in value else value
        if isinstance(value, Mapping):
            return {
                key: self.value(inner, f"{path}.{key}" if path else str(key), as_text=as_text or key in self._always_text)
                for key, inner in value.items()
            }
        if isinstance(value, list | tuple):
            return [self.value(item, f"{path}[{i}]", as_text=as_text) for i, item in enumerate(value)]
        return value

    def _text(self, text: str, path: str, *, as_text: bool) -> Any:
        whole = _REFERENCE.fullmatch(text)
        expanded = _REFERENCE.sub(lambda found: self._reference(found, path), text)
        return typed(expanded) if whole and not whole[1] and not as_text else expanded

    def _reference(self, found: re.Match[str], path: str) -> str:
        escaped, name, default = found.groups()
        if escaped:
            return found[0][1:]
        value = self._environment.get(name)
        if value or (value is not None and default is None):
            return value
        if default is None:
            remedy = f"set it or write ${{env:{name}:-default}}"
            self._missing[path] = f"{path or 'value'}: the environment variable {name} is not set; {remedy}"
        return default or ""


def exposed_credentials(config: EvalConfig) -> list[str]:
    """One line for each endpoint whose URL holds a user, a password or a query, without the URL.

    Judges' URLs are refused earlier, when the configuration is read.
    """
    given = {
        **config.exporters.otlp_endpoints,
        "exporters.forward": config.exporters.forward,
        "exporters.phoenix": config.exporters.phoenix,
        "exporters.mlflow": config.exporters.mlflow,
        "exporters.langfuse": config.exporters.langfuse,
        "exporters.langsmith": config.exporters.langsmith,
        "exporters.datadog": config.exporters.datadog,
        "telemetry.otlp": config.telemetry.otlp,
    }
    return [
        f"{key}.endpoint: the URL holds a user, a password or a query; {_REMEDY}"
        for key, each in given.items()
        if each is not None and holds_credentials(each.endpoint)
    ]


def refuse_credentials(config: EvalConfig) -> None:
    """For commands, whose configuration an operator can change; a program that scores itself is warned and runs on.

    Raises:
        ConfigError: a URL holds credentials.
    """
    if problems := exposed_credentials(config):
        raise ConfigError(*problems)
