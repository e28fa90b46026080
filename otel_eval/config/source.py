"""A configuration from a file, a mapping or an object.

Knows files, YAML and the environment; what may be written in them is the business of the shapes.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from otel_eval.config.door import lines_of, present_keys
from otel_eval.config.expand import expand
from otel_eval.config.shapes import EvalConfig
from otel_eval.config.yaml12 import parse
from otel_eval.errors import ConfigError
from otel_eval.scorers.references import is_file

__all__ = ["load"]

_TEXT: Final = frozenset({"headers", "path", "name"})
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
