"""The page's script without a browser."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import otel_eval.ui
from otel_eval.ui import script_json
from otel_eval.ui.packing import Packer

SCRIPTS = Path(otel_eval.ui.__file__).parent
VALUES = [
    {"name": "search", "error": None, "list": ["search", "~tilde", "a", 1, 2.5, True]},
    {"name": "search", "error": "~tilde", "list": []},
    {"other": {"name": "😀😀", "error": "😀😀", "list": ["a😀", "a😀", "a😀x", "a😀x"]}},
    {"__proto__": {"toString": "search"}, "name": "~"},
    ["other", {"name": "", "error": "", "list": [[], {}]}],
]


@pytest.mark.skipif(shutil.which("node") is None, reason="Node is not installed")
def test_the_pure_parts_of_the_script() -> None:
    packer = Packer()
    packed = script_json([packer.pack(value) for value in VALUES])
    environment = {
        "MODEL": str(SCRIPTS / "model.js"),
        "PACKED": packed,
        "UNPACKED": json.dumps(VALUES),
    }
    done = subprocess.run(
        ["node", "--test", str(Path(__file__).parent / "model_test.js")],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@given(st.text())
def test_no_text_ends_the_element_of_the_data(text: str) -> None:
    encoded = script_json({"text": text, text: 1})
    assert "<" not in encoded
    assert not {"\u2028", "\u2029", "\n"} & set(encoded)
    assert json.loads(encoded)["text"] == text or text == "text"
