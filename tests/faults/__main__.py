"""Do to the real receiver what happens to receivers, and print what came of it as a table in
Markdown.

    python -m tests.faults [--quick] [FAULT ...]

Each fault is a row: what was done and how often; results lost, written twice (two result ids for
one), different (from the reference, which is counted out by hand and by `otel-eval replay`). Exit 1
if one is not 0. Takes some minutes.
"""

from __future__ import annotations

import sys

if __name__ == "__main__":
    from tests.faults.fault_rig.table import main

    sys.exit(main())
