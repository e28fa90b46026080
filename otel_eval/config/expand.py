"""`${env:NAME}` in the values of a configuration.

Knows the spelling of a reference and an environment handed in; knows no key of the configuration.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any, Final

from otel_eval.config.yaml12 import typed
from otel_eval.errors import ConfigError

__all__ = ["expand"]

_REFERENCE: Final = re.compile(r"(\$?)\$\{env:([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")


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
    expanded = _Walk(environment, always_text, unset).value(value, "", as_text=False)
    if unset and missing is None:
        raise ConfigError(*unset.values())
    return expanded


class _Walk:
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
