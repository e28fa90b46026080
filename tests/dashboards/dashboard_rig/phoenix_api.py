"""What Phoenix stored, over its REST and GraphQL APIs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .rest import call, get, post


@dataclass(frozen=True)
class Project:
    """A project of a running Phoenix; empty until its first span arrived."""

    url: str
    name: str

    def query(self, fields: str) -> dict[str, Any]:
        """These fields of the project in GraphQL; an empty mapping if there is no such project."""
        reply = post(
            f"{self.url}/graphql",
            {"query": f"{{projects(first: 1000) {{edges {{node {{name {fields}}}}}}}}}"},
        )
        assert "errors" not in reply, reply
        nodes = [edge["node"] for edge in reply["data"]["projects"]["edges"]]
        return next((node for node in nodes if node["name"] == self.name), {})

    def trace_count(self) -> int:
        """Traces of the project."""
        return int(self.query("traceCount").get("traceCount", 0))

    def span_count(self) -> int:
        """Spans of the project."""
        return int(self.query("recordCount").get("recordCount", 0))

    def latency_ms(self, quantile: float = 0.5) -> float | None:
        """Quantile of the durations of its traces."""
        return self.query(f"latencyMsQuantile(probability: {quantile})").get("latencyMsQuantile")

    def span_ids(self, condition: str = "") -> set[str]:
        """Ids of the spans that a filter of the Spans page leaves, such as
        `annotations['tool_errors'].score < 0.9`.
        """
        argument = (
            f'(first: 1000, filterCondition: "{condition}")' if condition else "(first: 1000)"
        )
        found = self.query(f"spans{argument} {{edges {{node {{spanId}}}}}}")
        return {edge["node"]["spanId"] for edge in found.get("spans", {"edges": ()})["edges"]}

    def annotations(self, *span_ids: str) -> list[dict[str, Any]]:
        """Annotations of these spans, as they were posted, with their own ids."""
        if self.trace_count() == 0:
            return []
        found: list[dict[str, Any]] = []
        for first in range(0, len(span_ids), 50):  # the ids are part of the URL
            ids = "&".join(f"span_ids={each}" for each in span_ids[first : first + 50])
            found += get(f"{self.url}/v1/projects/{self.name}/span_annotations?limit=1000&{ids}")[
                "data"
            ]
        return found

    def mean_scores(self) -> dict[str, float | None]:
        """Mean by annotation name, as the side panel of the Spans page shows it."""
        names = self.query("spanAnnotationNames").get("spanAnnotationNames", [])
        return {
            name: self.query(f'spanAnnotationSummary(annotationName: "{name}") {{meanScore}}')[
                "spanAnnotationSummary"
            ]["meanScore"]
            for name in names
        }


def annotate(url: str, body: Any) -> tuple[int, Any]:
    """Post annotations as they are, for what only the product can tell."""
    return call(f"{url}/v1/span_annotations?sync=false", body)
