"""The resource of the telemetry that otel-eval sends by itself."""

from __future__ import annotations

from typing import Any

from opentelemetry.sdk.resources import OTELResourceDetector, Resource

__all__ = ["own_resource"]


def own_resource(instance_id: str | None = None) -> Any:
    """`service.name` otel-eval, what OTEL_RESOURCE_ATTRIBUTES and OTEL_SERVICE_NAME contain, and an id if one is given."""
    resource = Resource.create({"service.name": "otel-eval"}).merge(OTELResourceDetector().detect())
    return resource.merge(Resource({"service.instance.id": instance_id})) if instance_id else resource
