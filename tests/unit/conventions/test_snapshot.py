"""The snapshot that the package loads holds what the YAML files describe."""

from __future__ import annotations

from otel_eval.conventions import TABLES
from tests.support.table_snapshot import (
    REMEDY,
    SNAPSHOT,
    conventions,
    order,
    snapshot,
    written_tables,
)


def test_the_snapshot_is_made_from_the_files():
    """Nobody edits it, and no change of a file is forgotten."""
    assert SNAPSHOT.read_text(encoding="utf-8") == snapshot(), REMEDY


def test_the_tables_that_are_loaded_are_those_of_the_files():
    """Loading does without the validation of a configuration, and gives the same."""
    assert list(TABLES) == conventions(), REMEDY


def test_the_order_names_every_table_once():
    """A table without a place would never be tried."""
    assert sorted(order()) == sorted(written_tables()), "see tables/order.yaml"
