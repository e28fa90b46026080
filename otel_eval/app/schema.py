"""The JSON Schema of a configuration, with every built-in scorer and its parameters."""

from __future__ import annotations

from typing import Any, Final

from otel_eval.config import EvalConfig
from otel_eval.scorers.spec.build import scorer_schema

__all__ = ["config_schema"]

_DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
_ID: Final = "urn:otel-eval:configuration"


def config_schema() -> dict[str, Any]:
    """The schema as JSON values; editors that know it complete and validate configuration files."""
    schema = EvalConfig.model_json_schema()
    specification, definitions = scorer_schema()
    schema["$defs"]["Scorer"] = specification
    schema["$defs"] |= definitions
    schema["$defs"]["Evaluation"]["properties"]["scorers"]["items"] = {"$ref": "#/$defs/Scorer"}
    return {"$schema": _DIALECT, "$id": _ID, **schema}
