"""The configuration: one YAML file, or the same as Python objects, validated once at the start.

>>> load({"traces": {"decision_wait": "250ms"}}).traces.decision_wait
0.25
"""

from __future__ import annotations

from otel_eval.config import exporters, models, receivers
from otel_eval.config.exporters import *  # noqa: F403 - each public name stands once, in its module's `__all__`
from otel_eval.config.loader import exposed_credentials, load, refuse_credentials
from otel_eval.config.models import *  # noqa: F403
from otel_eval.config.receivers import *  # noqa: F403
from otel_eval.config.units import TlsFiles

__all__ = ["TlsFiles", "exposed_credentials", "load", "refuse_credentials"]
__all__ += exporters.__all__
__all__ += models.__all__
__all__ += receivers.__all__
