"""The configuration: one YAML file, or the same as Python objects, validated once at the start.

>>> load({"traces": {"decision_wait": "250ms"}}).traces.decision_wait
0.25
"""

from __future__ import annotations

# Every part of the configuration is public. Modules with parts have no `from __future__ import
# annotations`: pydantic would compile each annotation at the start.
from otel_eval.config.exporters import *  # noqa: F403
from otel_eval.config.loader import *  # noqa: F403
from otel_eval.config.models import *  # noqa: F403
from otel_eval.config.receivers import *  # noqa: F403
from otel_eval.config.ui import *  # noqa: F403
