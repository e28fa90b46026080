"""How the instrumentations of agents record tool calls, models and agents: tables as data in
`tables/`, one YAML file for each family, and the readers that apply them.
"""

from __future__ import annotations

from otel_eval.conventions.message_formats import WRAPPERS
from otel_eval.conventions.snapshot import TABLES
from otel_eval.conventions.table import Convention, EventRow, Field, Mark, MessageRow, Rule, Side

__all__ = [
    "TABLES",
    "WRAPPERS",
    "Convention",
    "EventRow",
    "Field",
    "Mark",
    "MessageRow",
    "Rule",
    "Side",
]
