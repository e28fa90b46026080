"""The configuration: one YAML file, or the same as Python objects, validated once at the start.

>>> load({"traces": {"decision_wait": "250ms"}}).traces.decision_wait
0.25
"""

from __future__ import annotations

# Every part of the configuration is public.
from otel_eval.config.exporters import *  # noqa: F403
from otel_eval.config.exporters import client_tls
from otel_eval.config.loader import ConfigSource, exposed_credentials, load, refuse_credentials
from otel_eval.config.models import *  # noqa: F403
from otel_eval.config.receivers import *  # noqa: F403
from otel_eval.config.validation import Shape

__all__ = ["ConfigSource", "client_tls", "exposed_credentials", "load", "refuse_credentials"]
__all__ += [name for name, each in [*globals().items()] if isinstance(each, type) and issubclass(each, Shape)]
