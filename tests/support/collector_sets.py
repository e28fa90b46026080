"""The configurations of collector_config on free ports, with their folders inside a folder of the
test.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tests.faults.fault_rig.service import free_port

__all__ = ["CollectorSet"]

FOLDER: Final = Path(__file__).parents[2] / "collector_config"
PORT: Final = re.compile(r'(?<=127\.0\.0\.1:)\d+|(?<=, port: ")\d+')


class CollectorSet:
    """One set of files.

    Args:
        name: its folder.
        folder: where copies are written, and what takes the place of /var/lib.

    Attributes:
        ports: the port in the set to the one in use.
    """

    def __init__(self, name: str, folder: Path) -> None:
        self._source, self.folder = FOLDER / name, folder
        self.ports: defaultdict[int, int] = defaultdict(free_port)

    def copy(
        self, name: str, folder: Path | None = None, instead: Mapping[str, str] | None = None
    ) -> Path:
        """Write a file of the set with the ports in use, and other texts `instead` of some."""
        text = (self._source / name).read_text(encoding="utf-8")
        for old, new in {"/var/lib": str(self.folder), **(instead or {})}.items():
            text = text.replace(old, new)
        copy = (folder or self.folder) / name
        copy.parent.mkdir(exist_ok=True)
        copy.write_text(
            PORT.sub(lambda found: str(self.ports[int(found[0])]), text), encoding="utf-8"
        )
        return copy
