"""A storage directory serves one number of workers until what it holds was scored and delivered."""

from __future__ import annotations

from pathlib import Path

import pytest

from otel_eval.errors import ConfigError
from otel_eval.storage.directory import claim_split, directories_of, release_split, worker_directory


def test_another_number_of_workers_is_refused(tmp_path: Path):
    """The error names the number of workers of the directory, and a remedy."""
    claim_split(tmp_path, 3)
    claim_split(tmp_path, 3)
    for other in (1, 2):
        with pytest.raises(
            ConfigError,
            match=f"workers: {other}, but .* holds traces of 3; run `otel-eval serve --drain` once",
        ):
            claim_split(tmp_path, other)


def test_a_directory_of_one_process_is_refused_to_several(tmp_path: Path):
    """One process leaves no file with the number of workers, only its journal."""
    claim_split(tmp_path, 1)
    (tmp_path / "0000000001.journal").touch()
    claim_split(tmp_path, 1)
    with pytest.raises(ConfigError, match="holds traces of 1"):
        claim_split(tmp_path, 2)


def test_a_drained_directory_is_free(tmp_path: Path):
    """Any number of workers can use it next."""
    claim_split(tmp_path, 3)
    (tmp_path / "0000000001.journal").touch()
    assert directories_of(tmp_path) == [worker_directory(tmp_path, number) for number in (1, 2, 3)]
    release_split(tmp_path)
    claim_split(tmp_path, 1)
    assert directories_of(tmp_path) == [tmp_path]
    with pytest.raises(ConfigError, match="holds traces of 1"):
        claim_split(tmp_path, 2)


def test_a_directory_that_cannot_be_written_is_named(tmp_path: Path):
    """The path is that of a file."""
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=r"storage\.directory: .*file.* cannot be written"):
        claim_split(tmp_path / "file", 2)
