"""What MLflow stored, over its REST API."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .rest import post


@dataclass(frozen=True)
class Experiment:
    """An experiment of a running MLflow."""

    url: str
    id: str

    @classmethod
    def create(cls, url: str, name: str) -> Experiment:
        """A new one with this name."""
        return cls(
            url, post(f"{url}/api/2.0/mlflow/experiments/create", {"name": name})["experiment_id"]
        )

    @property
    def traces_endpoint(self) -> str:
        """Where spans go; they need the header of `headers`."""
        return f"{self.url}/v1/traces"

    @property
    def headers(self) -> dict[str, str]:
        """What tells MLflow the experiment."""
        return {"x-mlflow-experiment-id": self.id}

    def traces(self, condition: str = "") -> list[dict[str, Any]]:
        """Traces that a filter leaves, such as `feedback.tool_errors < 0.9`, each with its
        assessments.
        """
        location = {"type": "MLFLOW_EXPERIMENT", "mlflow_experiment": {"experiment_id": self.id}}
        found: list[dict[str, Any]] = []
        token = None
        while True:
            page = {
                "locations": [location],
                "filter": condition,
                "max_results": 100,
                "page_token": token,
            }
            reply = post(
                f"{self.url}/api/3.0/mlflow/traces/search",
                {key: value for key, value in page.items() if value},
            )
            found += reply.get("traces", [])
            if not (token := reply.get("next_page_token")):
                return found

    def assessments(self) -> dict[str, list[dict[str, Any]]]:
        """By trace id in hex."""
        return {
            trace["trace_id"].removeprefix("tr-"): trace.get("assessments", [])
            for trace in self.traces()
        }
