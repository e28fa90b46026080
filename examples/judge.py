"""Score an agent with an LLM judge: its result is asynchronous and arrives after the others.

    python -m pip install '.[judge]'
    python examples/judge.py

The judge here is a local script with the protocol of OpenAI-compatible endpoints, so that no key
and no model is needed. Set JUDGE_URL, JUDGE_MODEL and JUDGE_API_KEY to use a real one.
"""

from __future__ import annotations

import json
import os
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from opentelemetry.sdk.trace import TracerProvider

from otel_eval import EvalSpanProcessor


class ScriptedJudge(BaseHTTPRequestHandler):
    """Gives 1 to a run that called a tool, else 0."""

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        looked_up = '"tool"' in request["messages"][0]["content"]
        answer = json.dumps(
            {
                "score": int(looked_up),
                "explanation": "it called a tool" if looked_up else "it called none",
            }
        )
        body = json.dumps(
            {"choices": [{"message": {"role": "assistant", "content": answer}}]}
        ).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        return


def agent(provider: TracerProvider) -> None:
    """An agent that is traced like any other."""
    tracer = provider.get_tracer("examples.agent")
    run = {
        "gen_ai.operation.name": "invoke_agent",
        "input.value": "What is the rate?",
        "output.value": "4 %",
    }
    tool = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "search",
        "gen_ai.tool.call.result": "4 %",
    }
    with (
        tracer.start_as_current_span("invoke_agent", attributes=run),
        tracer.start_as_current_span("search", attributes=tool),
    ):
        pass


server = ThreadingHTTPServer(("127.0.0.1", 0), ScriptedJudge)
threading.Thread(target=server.serve_forever, daemon=True).start()
os.environ.setdefault("JUDGE_URL", f"http://127.0.0.1:{server.server_port}/v1")
os.environ.setdefault("JUDGE_API_KEY", "none-needed")

provider = TracerProvider()
provider.add_span_processor(EvalSpanProcessor(Path(__file__).with_name("judge.yaml")))
agent(provider)
provider.shutdown()  # waits for the judge
server.shutdown()
server.server_close()
