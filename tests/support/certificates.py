"""Certificates for tests, from an authority of their own."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import trustme


class Authority:
    """Issues certificates into a directory."""

    def __init__(self, directory: Path) -> None:
        self._directory, self._ca = directory, trustme.CA()
        self.file = str(directory / f"ca-{id(self._ca)}.pem")
        self._ca.cert_pem.write_to_path(self.file)
        self.pem = self._ca.cert_pem.bytes()

    def issue(self, name: str, since_s: float = -3600, until_s: float = 3600) -> dict[str, str]:
        """The files of a certificate for this machine, valid from and to so many seconds from now;
        replaced if they are there.
        """
        now = datetime.now(UTC)
        first, last = (now + timedelta(seconds=each) for each in (since_s, until_s))
        issued = self._ca.issue_cert("127.0.0.1", "localhost", not_before=first, not_after=last)
        chain = b"".join(each.bytes() for each in issued.cert_chain_pems)
        for file, content in (
            (f"{name}.pem", chain),
            (f"{name}.key", issued.private_key_pem.bytes()),
        ):
            (self._directory / f"{file}.new").write_bytes(content)
            os.replace(self._directory / f"{file}.new", self._directory / file)
        return {
            "cert_file": str(self._directory / f"{name}.pem"),
            "key_file": str(self._directory / f"{name}.key"),
        }
