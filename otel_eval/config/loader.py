"""Loads a configuration from a file, a mapping or an object: variables of the environment, and
validation.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from otel_eval.config.exporters import ExportEndpoint
from otel_eval.config.models import EvalConfig
from otel_eval.errors import ConfigError, holds_credentials
from otel_eval.scorers.references import DatasetPath, is_file
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
    """The error with the lines of its problems, if these are found."""
    from otel_eval.config.yaml_text import lines_of_problems

    lines = lines_of_problems(text, error.problems)
    if lines is None:  # what this error is about
        return error
    return ConfigError(*error.problems, where=f"{path}: ", lines=lines)


def _validated(mapping: Mapping[str, Any], folder: Path | None = None) -> EvalConfig:
    """The configuration of a mapping with variables replaced; `folder` is where its file is."""
    unset: dict[str, str] = {}
    expanded = expand(mapping, os.environ, unset)
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


def _with_full_paths(folder: Path, value: object) -> Any:
    """The value with full paths of files of references, which are relative to the folder of the
    configuration file.
    """
    if isinstance(value, list):
        return [_with_full_paths(folder, item) for item in value]
    if not isinstance(value, Mapping):
        return value
    mapping = {key: _with_full_paths(folder, item) for key, item in value.items()}
    if "key" in mapping and is_file(mapping.get("dataset")):
        written_path = os.fspath(mapping["dataset"])
        mapping["dataset"] = DatasetPath(str(folder / written_path), written_path)
    return mapping


def _read(path: Path) -> str:
    raw = read_small_file(
        path, MAX_FILE_BYTES, lambda cause: ConfigError(f"{path}: {cause}; name a YAML file")
    )
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: is not UTF-8 text; save it as UTF-8") from None


def _parsed(path: Path, text: str) -> Mapping[str, Any]:
    from otel_eval.config.yaml_text import parse

    values = parse(text, where=str(path))
    if values is None:
        return {}
    if not isinstance(values, Mapping):
        raise ConfigError(
            f"{path}: is not a mapping of keys to values; begin with e.g. evaluations:"
        )
    return values


def expand(
    value: object,
    environment: Mapping[str, str],
    missing: dict[str, str],
    *,
    path: str = "",
    as_text: bool = False,
) -> Any:
    """The value with each `${env:NAME}` and `${env:NAME:-default}` (for unset or empty) in its
    texts replaced.

    A text that is one whole reference is typed as an unquoted scalar would be; `$${env:NAME}` stays
    as `${env:NAME}`.

    Args:
        value: plain YAML values.
        environment: the variables.
        missing: gets path → problem for each variable that is not set and has no default.
        path: where the value is.
        as_text: whether values stay text, so that an API key of digits keeps its leading zero, as
            they do below headers and other keys of texts.
    """
    if isinstance(value, Mapping):
        return {
            key: expand(
                inner,
                environment,
                missing,
                path=f"{path}.{key}" if path else str(key),
                as_text=as_text or key in _TEXT,
            )
            for key, inner in value.items()
        }
    if isinstance(value, list | tuple):
        return [
            expand(item, environment, missing, path=f"{path}[{index}]", as_text=as_text)
            for index, item in enumerate(value)
        ]
    if not isinstance(value, str):
        return value
    whole = _REFERENCE.fullmatch(value)
    text = _REFERENCE.sub(lambda match: _resolved(match, environment, missing, path), value)
    if not whole or whole[1] or as_text:
        return text
    from otel_eval.config.yaml_text import typed

    return typed(text)


def _resolved(
    match: re.Match[str], environment: Mapping[str, str], missing: dict[str, str], path: str
) -> str:
    """The text that replaces a reference; an unset variable without default is added to
    `missing`.
    """
    escaped, name, default = match.groups()
    if escaped:
        return match[0][1:]
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
    endpoints = {
        **config.exporters.otlp_endpoints,
        **{f"exporters.{name}": options for name, options in config.exporters.configured.items()},
        "telemetry.otlp": config.telemetry.otlp,
    }
    return [
        f"{key}.endpoint: the URL holds a user, a password or a query; {_USE_HEADERS}"
        for key, target in endpoints.items()
        if isinstance(target, ExportEndpoint) and holds_credentials(target.endpoint)
    ]


def refuse_credentials(config: EvalConfig) -> None:
    """Refuse credentials in URLs; for commands, where an operator can change the file. A program
    that scores itself only warns.

    Raises:
        ConfigError: a URL holds credentials.
    """
    if problems := exposed_credentials(config):
        raise ConfigError(*problems)
