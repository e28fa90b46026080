"""HTTP/1.1 as the receiver and the admin server speak it."""

from __future__ import annotations
