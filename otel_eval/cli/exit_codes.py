"""The exit codes of the commands, beside 0 and 1: a score did not pass, or something got worse."""

from __future__ import annotations

from typing import Final

UNUSABLE: Final = 2  # the configuration, an input or the command line is invalid
NOTHING_FOUND: Final = 3  # there is nothing to show, to evaluate or to compare
INTERRUPTED: Final = 130  # as shells say of SIGINT
NO_READER: Final = 141  # as shells say of SIGPIPE
