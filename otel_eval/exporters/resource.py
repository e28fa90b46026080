"""The resource of the telemetry that otel-eval sends by itself."""

from __future__ import annotations

from typing import Any

from opentelemetry.sdk.resources import OTELResourceDetector, Resource

__all__ = ["own_resource"]


def own_resource() -> Any:
    """`service.name` otel-eval, and what OTEL_RESOURCE_ATTRIBUTES and OTEL_SERVICE_NAME say."""
    return Resource.create({"service.name": "otel-eval"}).merge(OTELResourceDetector().detect())
