"""How Tempo, and protobuf's own JSON printer, differ from OTLP/JSON: ids in base64, scopes under an older name.

Knows these two differences. An id is told apart by its length: 32 or 16 hexadecimal digits, or 24 or 12 characters of
base64 (22 or 11 without padding).
"""

from __future__ import annotations

from base64 import b64decode
from typing import Any, Final

__all__ = ["MEMBERS", "SCOPES", "hex_of", "with_hex_ids"]

_IDS: Final = ("traceId", "spanId", "parentSpanId", "trace_id", "span_id", "parent_span_id")
_BASE64_LENGTHS: Final = frozenset({24, 22, 12, 11})
SCOPES: Final = ("scopeSpans", "scope_spans", "scopeLogs", "scope_logs", "instrumentationLibrarySpans")
MEMBERS: Final = ("spans", "logRecords", "log_records")


def with_hex_ids(group: Any) -> Any:
    """The group of spans or logs as OTLP/JSON would have it. What is not understood is left for others to refuse."""
    if not isinstance(group, dict):
        return group
    changed = dict(group)
    for key in SCOPES:
        if isinstance(group.get(key), list):
            changed[key] = [_scope(scope) for scope in group[key]]
    older = changed.pop("instrumentationLibrarySpans", None)
    if isinstance(older, list) and not changed.get("scopeSpans"):
        changed["scopeSpans"] = older
    return changed


def _scope(scope: Any) -> Any:
    if not isinstance(scope, dict):
        return scope
    changed = dict(scope)
    if "instrumentationLibrary" in changed and "scope" not in changed:
        changed["scope"] = changed["instrumentationLibrary"]
    for key in MEMBERS:
        if isinstance(scope.get(key), list):
            changed[key] = [_member(member) for member in scope[key]]
    return changed


def _member(member: Any) -> Any:
    if not isinstance(member, dict):
        return member
    changed = {key: hex_of(member[key]) for key in _IDS if key in member}
    if isinstance(member.get("links"), list):
        changed["links"] = [_member(link) for link in member["links"]]
    return member | changed


def hex_of(value: Any) -> Any:
    """An id in hexadecimal; what is not base64 of an id stays as it is."""
    if not isinstance(value, str) or len(value) not in _BASE64_LENGTHS:
        return value
    try:
        return b64decode(value + "=" * (-len(value) % 4), altchars=b"-_" if "-" in value or "_" in value else None).hex()
    except ValueError:
        return value
