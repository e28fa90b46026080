"""`${env:NAME}` in the values of a configuration.

Knows the spelling of a reference and an environment handed in; knows no key of the configuration.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from otel_eval.config.yaml12 import typed
from otel_eval.errors import ConfigError

__all__ = ["expand"]

_REFERENCE: Final = re.compile(r"(\$?)\$\{env:([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")


def expand(value: Any, environment: Mapping[str, str]) -> Any:
    """The value with each `${env:NAME}` and `${env:NAME:-default}` (for unset or empty) in its texts replaced.

    A text that is one whole reference is typed as an unquoted scalar would be; `$${env:NAME}` stays as `${env:NAME}`.

    Raises:
        ConfigError: a variable is not set and no default is given; every such place is named.
    """
    missing: list[str] = []
    expanded = _walk(value, environment, "", missing)
    if missing:
        raise ConfigError("; ".join(missing))
    return expanded


def _walk(value: Any, environment: Mapping[str, str], path: str, missing: list[str]) -> Any:
    if isinstance(value, str):
        return _text(value, environment, path, missing) if "${env:" in value else value
    if isinstance(value, Mapping):
        return {k: _walk(v, environment, f"{path}.{k}" if path else str(k), missing) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_walk(item, environment, f"{path}[{i}]", missing) for i, item in enumerate(value)]
    return value


def _text(text: str, environment: Mapping[str, str], path: str, missing: list[str]) -> Any:
    def replace(found: re.Match[str]) -> str:
        escaped, name, default = found.groups()
        if escaped:
            return found[0][1:]
        value = environment.get(name)
        if value or (value is not None and default is None):
            return value
        if default is None:
            missing.append(
                f"{path or 'value'}: the environment variable {name} is not set; set it or write ${{env:{name}:-default}}"
            )
        return default or ""

    whole = _REFERENCE.fullmatch(text)
    expanded = _REFERENCE.sub(replace, text)
    return typed(expanded) if whole and not whole[1] else expanded
