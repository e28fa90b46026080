"""An exporter of another package: posts results as JSON to an HTTP service. Nothing in it knows
that it is tested.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from urllib.error import HTTPError
from urllib.request import ProxyHandler, Request, build_opener

from otel_eval.exporters import Exporter, ExportResult, rows_of
from otel_eval.model import Report


class PoliteHttp(Exporter):
    """Posts a JSON array of results for each batch.

    Args:
        url: of the service.
        timeout: seconds for a request.
        tenant: sent as a header.
    """

    def __init__(self, *, url: str, timeout: float = 5.0, tenant: str = "") -> None:
        self._url, self._timeout, self._headers = (
            url,
            timeout,
            {"Content-Type": "application/json", "X-Tenant": tenant},
        )
        self._opener = build_opener(ProxyHandler({}))

    def export(self, batch: Sequence[Report]) -> ExportResult:
        """Post the batch. The service answers 207 with the places of those reports that it
        refuses.
        """
        body = json.dumps([list(rows_of(report)) for report in batch]).encode()
        try:
            with self._opener.open(
                Request(self._url, body, self._headers), timeout=self._timeout
            ) as response:
                refused = json.load(response)["refused"] if response.status == 207 else []
                return ExportResult.partial(refused, "the service refused them")
        except HTTPError as error:
            with error:
                if error.code in (429, 503):
                    return ExportResult.retryable(
                        str(error.code), float(error.headers.get("Retry-After", 0))
                    )
                return ExportResult.permanent(str(error.code))


class NoExporter:
    """Not a subclass of Exporter."""
