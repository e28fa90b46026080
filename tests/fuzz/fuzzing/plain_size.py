"""The decoded size of a request by its definition, field by field, against which the shortcut for
usual fields is compared.
"""

from __future__ import annotations

from contextlib import suppress

from otel_eval.otlp import decoded_size as size
from otel_eval.wire import fields


def plain_size(body: bytes, signal: str, enough: int) -> int:
    """What the fields of a request cost, as deep as something costs, up to where the bytes are
    broken or it is enough.
    """
    rules: dict[tuple[int, int], tuple[int, int | None]] = {
        (0, 1): (size._GROUP, 1),
        (1, 1): (size._HEAD, 3),
        (1, 2): (size._SCOPE, 2),
        (2, 1): (size._HEAD, 3),
        (2, 2): (size._ITEM, 3 if signal == "logs" else None),
    }
    if signal == "metrics":
        rules = {(0, 1): (size._FIELD, None)}
    weight = 0

    def walk(at: int, end: int, level: int) -> None:
        nonlocal weight
        for each in fields(body, at, end):
            if weight > enough:
                return
            cost, inner = rules.get((level, each.number), (size._FIELD if level == 3 else 0, None))
            weight += cost
            if inner is not None:
                walk(each.content, each.stop, inner)

    with suppress(ValueError):
        walk(0, len(body), 0)
    return weight
