"""Look for bytes that break a decoder, for as long as there is time.

    python -m tests.fuzz [--seconds 60] [--pure] [--cost] [--sanitized] [--folder .fuzz] [NAME ...]

Each target runs in a process of its own, so long. With atheris installed the coverage of the
package guides the search, and what it finds is kept in the folder for the next time; without it,
inputs are spoilt at random (--seed). `--pure` does without the extensions in C; `--cost` looks for
inputs of 1 MB and more that take more CPU time for each byte the greater they are; `--sanitized`
compiles them with the address and undefined-behaviour sanitizers and runs the inputs of the folder,
and spoilt ones, over that. Exit 1 if something broke; the input is in the folder.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from tests.fuzz.fuzzing.costing import Costly, search
from tests.fuzz.fuzzing.mutation import TOKENS, spoilt
from tests.fuzz.fuzzing.sanitized import build, environment

ROOT = Path(__file__).parents[2]
FLAGS = (
    "-timeout=25",
    "-rss_limit_mb=2500",
    "-max_len=20000",
    "-verbosity=0",
    "-print_final_stats=1",
)
MARGIN_S = 300


def main() -> int:
    options = _options()
    if options.one:
        return _one(options)
    failed = [target for target in options.targets or _names() if _child(target, options) != 0]
    print(f"broken: {', '.join(failed)}" if failed else "nothing broke")
    return 1 if failed else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("targets", nargs="*")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--folder", type=Path, default=Path(".fuzz"))
    parser.add_argument("--pure", action="store_true")
    parser.add_argument("--cost", action="store_true")
    parser.add_argument("--sanitized", action="store_true")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


def _names() -> list[str]:
    from tests.fuzz.fuzzing.targets import TARGETS

    return list(TARGETS)


def _child(target: str, options: argparse.Namespace) -> int:
    env = {**os.environ, "PYTHONPATH": str(ROOT)} | (
        {"OTEL_EVAL_PURE": "1"} if options.pure else {}
    )
    words = [
        sys.executable,
        __file__,
        target,
        "--one",
        "--seconds",
        str(options.seconds),
        "--seed",
        str(options.seed),
    ]
    words += ["--folder", str(options.folder), *(["--cost"] if options.cost else [])]
    # memory that is given back and asked for again takes time that grows with its amount
    if options.cost:
        env |= {
            "PYTHONMALLOC": "malloc",
            "MALLOC_TRIM_THRESHOLD_": str(2**32),
            "MALLOC_TOP_PAD_": str(2**26),
        }
    if options.sanitized:
        env |= environment(build(options.folder.absolute()))
        words.append("--sanitized")
    try:
        return subprocess.run(
            words, env=env, timeout=options.seconds + MARGIN_S, check=False
        ).returncode
    except subprocess.TimeoutExpired:
        print(f"{target}: did not end")
        return 1


def _one(options: argparse.Namespace) -> int:
    try:
        atheris: Any = None if options.sanitized or options.cost else __import__("atheris")
    except ImportError:
        atheris = None
    with atheris.instrument_imports(include=["otel_eval"]) if atheris else nullcontext():
        from tests.fuzz.fuzzing.seeds import seeds
        from tests.fuzz.fuzzing.targets import TARGETS, use_default_limits
    (name,) = options.targets
    corpus = options.folder / name
    corpus.mkdir(parents=True, exist_ok=True)
    if options.cost:
        use_default_limits()
        return _by_cost(name, TARGETS[name], [*seeds()[name], *_kept(corpus)], options)
    if atheris is None:
        return _at_random(name, TARGETS[name], [*seeds()[name], *_kept(corpus)], options)
    return _guided(atheris, name, TARGETS[name], seeds()[name], options)


def _kept(corpus: Path) -> list[bytes]:
    return [each.read_bytes() for each in sorted(corpus.iterdir()) if each.is_file()]


def _at_random(name: str, target: Any, given: list[bytes], options: argparse.Namespace) -> int:
    end, tries, slowest = time.monotonic() + options.seconds, 0, 0.0
    for data in spoilt(given, options.seed):
        began = time.monotonic()
        if tries >= len(given) and began > end:
            break
        try:
            target(data)
        except Exception:
            kept = options.folder / f"{name}-broken"
            kept.write_bytes(data)
            print(
                f"{name}: broke at try {tries} of seed {options.seed}; the input is in {kept}",
                flush=True,
            )
            raise
        tries, slowest = tries + 1, max(slowest, time.monotonic() - began)
    print(
        f"{name}: {tries} inputs, {len(given)} of them sound or kept; slowest"
        f" {slowest * 1000:.0f} ms",
        flush=True,
    )
    return 0


def _by_cost(name: str, target: Any, given: list[bytes], options: argparse.Namespace) -> int:
    found = []
    kept = options.folder / f"{name}-costly"

    def keeping(data: bytes) -> None:
        try:
            target(data)
        except Exception:
            kept.write_bytes(data)
            print(
                f"{name}: broke at an input of {len(data)} bytes of seed {options.seed}; it is in"
                f" {kept}",
                flush=True,
            )
            raise

    try:
        for _, grown in search(keeping, given, options.seed, options.seconds):
            found.append(grown)
    except Costly as error:
        why, data = error.args
        kept.write_bytes(data)
        print(f"{name}: {why}; seed {options.seed}; a smaller one is in {kept}", flush=True)
        return 1
    most = max(found, default=0.0)
    print(
        f"{name}: {len(found)} ways of growing to 4 MB; CPU time for each byte grew by a factor of"
        f" {most:.2f} at most",
        flush=True,
    )
    return 0


def _guided(
    atheris: Any, name: str, target: Any, given: list[bytes], options: argparse.Namespace
) -> int:
    corpus, sound, words = (
        options.folder / name,
        options.folder / f"{name}-sound",
        options.folder / "words",
    )
    sound.mkdir(exist_ok=True)
    for number, data in enumerate(given):
        (sound / str(number)).write_bytes(data)
    words.write_text(
        "".join(
            '"' + "".join(f"\\x{byte:02x}" for byte in token) + '"\n'
            for token in TOKENS
            if len(token) < 60
        )
    )
    prefix = f"-artifact_prefix={options.folder}/{name}-broken-"
    print(f"{name}:", flush=True)
    limits = (*FLAGS, f"-max_total_time={options.seconds:.0f}", f"-dict={words}", prefix)
    atheris.Setup([sys.argv[0], str(corpus), str(sound), *limits], target)
    atheris.Fuzz()
    return 0


if __name__ == "__main__":
    sys.exit(main())
