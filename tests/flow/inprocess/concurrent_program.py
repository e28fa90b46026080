"""A program with many processes, threads or loops that scores the runs of its agent into a file.

    python concurrent_program.py HOW RESULTS

HOW is a function below; each says with `agent(name)` which runs there were.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider

from otel_eval import EvalSpanProcessor

# a child is waited for so long, however busy the machine is
LIMIT_MS = 300_000


def traced(results: str) -> TracerProvider:
    """A provider that scores; the global one."""
    provider = TracerProvider()
    settings = {
        "evaluations": [{"name": "e", "scorers": [{"type": "tool_errors"}]}],
        "exporters": {"jsonl": {"path": results}},
    }
    provider.add_span_processor(EvalSpanProcessor(settings))
    trace.set_tracer_provider(provider)
    return provider


def tool() -> None:
    span_attributes = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "search"}
    with trace.get_tracer("agent").start_as_current_span(
        "execute_tool search", attributes=span_attributes
    ):
        time.sleep(0.001)


def run(name: str) -> Any:
    span_attributes = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": name}
    return trace.get_tracer("agent").start_as_current_span(
        f"invoke_agent {name}", attributes=span_attributes
    )


def agent(name: str) -> None:
    """A run with one call."""
    with run(name):
        tool()


def child(name: str, results: str, *, inherits: bool) -> None:
    """What a process of multiprocessing does; it ends by os._exit if it was forked, so it
    flushes.
    """
    provider = trace.get_tracer_provider() if inherits else traced(results)
    agent(name)
    assert isinstance(provider, TracerProvider)
    provider.force_flush()


def processes(method: str, results: str) -> None:
    """Before, in and after three processes at a time."""
    traced(results)
    agent("before")
    context: Any = multiprocessing.get_context(method)
    children = [
        context.Process(
            target=child, args=(f"child {n}", results), kwargs={"inherits": method == "fork"}
        )
        for n in range(3)
    ]
    for each in children:
        each.start()
    for each in children:
        each.join(300)
    agent("after")
    assert [each.exitcode for each in children] == [0, 0, 0]


def fork(results: str) -> None:
    processes("fork", results)


def imports(results: str) -> None:
    """Prints the modules that the first run's scoring loads: what forks meanwhile would have half
    of them.
    """
    provider = traced(results)
    before = set(sys.modules)
    agent("first")
    provider.force_flush()
    print(*sorted(set(sys.modules) - before), file=sys.stderr)


def spawn(results: str) -> None:
    processes("spawn", results)


def forkserver(results: str) -> None:
    processes("forkserver", results)


def prefork(results: str) -> None:
    """As servers do: all is set up in the parent, each worker serves in its turn and leaves by
    sys.exit.
    """
    traced(results)
    agent("before")
    workers = []
    for number in range(3):
        worker = os.fork()
        if worker == 0:
            for turn in range(4):
                agent(f"worker {number} turn {turn}")
            sys.exit(0)
        workers.append(worker)
    ended = [os.waitpid(worker, 0)[1] for worker in workers]
    assert ended == [0, 0, 0]
    agent("after")


def fork_inside(results: str) -> None:
    """A process that forks while a span is open: in the child that span never ends."""
    provider = traced(results)
    with trace.get_tracer("agent").start_as_current_span("main"):
        worker = os.fork()
        if worker == 0:
            agent("child")
            os._exit(0 if provider.force_flush() else 1)
        assert os.waitpid(worker, 0)[1] == 0


def fork_amid_change(results: str) -> None:
    """A process that forks while a file of references is being written."""
    cases = Path(results).with_name("cases.jsonl")
    cases.write_text(record := '{"id": "1", "expected": ["search"]}', encoding="utf-8")
    provider = TracerProvider()
    scorer = {
        "type": "tool_call_order",
        "reference": {"dataset": str(cases), "key": "case", "column": "id"},
    }
    settings = {
        "evaluations": [{"name": "e", "scorers": [scorer]}],
        "exporters": {"jsonl": {"path": results}},
    }
    processor = EvalSpanProcessor(settings)
    provider.add_span_processor(processor)
    trace.set_tracer_provider(provider)
    cases.write_text(record[:9], encoding="utf-8")
    with processor._core._lock:  # as a thread of the parent may hold it
        worker = os.fork()
        if worker == 0:
            with run("child") as span:
                span.set_attribute("case", "1")
                tool()
            os._exit(0 if provider.force_flush() else 1)
    assert os.waitpid(worker, 0)[1] == 0


def at_once(results: str) -> None:
    """The last run is not scored if the process ends by os._exit; one that was flushed is."""
    provider = traced(results)
    agent("flushed")
    provider.force_flush()
    with run("open"):
        agent("within")
        os._exit(7)


def raises(results: str) -> None:
    """The agent's error is its own."""
    traced(results)
    with run("fails"):
        tool()
        raise LookupError("the agent's own")


async def loop_and_threads() -> None:
    """Runs in a loop whose tools are in threads, and runs in threads that have loops of their
    own.
    """

    async def one(name: str) -> None:
        with run(name):
            await asyncio.gather(*(asyncio.to_thread(tool) for _ in range(5)))

    def in_a_thread(name: str) -> None:
        asyncio.run(one(name))

    loop = asyncio.get_running_loop()
    with ThreadPoolExecutor(4) as pool:
        others = [loop.run_in_executor(pool, in_a_thread, f"thread {n}") for n in range(10)]
        await asyncio.gather(*(one(f"loop {n}") for n in range(10)), *others)


def threads(results: str) -> None:
    """One loop and many threads."""
    traced(results)
    asyncio.run(loop_and_threads())


def uvloop(results: str) -> None:
    """The same in a loop that is not Python's."""
    import uvloop

    traced(results)
    uvloop.run(loop_and_threads())


def forked_amid_threads(results: str) -> None:
    """Threads run agents while the process forks: whatever lock is held then must not hang the
    child.
    """
    provider = traced(results)
    stop = threading.Event()

    def busy(number: int) -> None:
        while not stop.is_set():
            agent(f"busy {number}")

    pool = [threading.Thread(target=busy, args=(n,)) for n in range(3)]
    for each in pool:
        each.start()
    statuses = []
    for number in range(10):
        worker = os.fork()
        if worker == 0:
            agent(f"child {number}")
            os._exit(0 if provider.force_flush(LIMIT_MS) else 1)
        statuses.append(os.waitpid(worker, 0)[1])
    stop.set()
    for each in pool:
        each.join()
    assert statuses == [0] * 10, statuses


if __name__ == "__main__":
    globals()[sys.argv[1]](sys.argv[2])
