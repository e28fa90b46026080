"""How each product is started: on loopback, without telemetry of its own, with its data in a folder
of the test.
"""

from __future__ import annotations

from pathlib import Path

from .rest import call
from .servers import Server, free_port

LOOPBACK = Path(__file__).with_name("loopback")
PHOENIX_QUIET = {
    "PHOENIX_TELEMETRY_ENABLED": "false",
    "PHOENIX_ALLOW_EXTERNAL_RESOURCES": "false",
    "PHOENIX_AGENTS_DISABLE_BASH": "true",
    "PHOENIX_DISABLE_AGENT_ASSISTANT": "true",
    "PHOENIX_ENABLE_MCP_SERVER": "false",
    "PYTHONPATH": str(LOOPBACK),
}
MLFLOW_QUIET = {"MLFLOW_DISABLE_TELEMETRY": "true", "DO_NOT_TRACK": "true"}


def answers(url: str) -> bool:
    """Whether a GET succeeds."""
    return call(url, timeout_s=5)[0] == 200


def phoenix_environment(folder: Path, port: int) -> dict[str, str]:
    """What keeps `phoenix serve` on loopback and its files in the folder."""
    places = {
        "PHOENIX_WORKING_DIR": str(folder),
        "PHOENIX_HOST": "127.0.0.1",
        "PHOENIX_PORT": str(port),
    }
    return PHOENIX_QUIET | places | {"PHOENIX_GRPC_PORT": str(free_port())}


def phoenix(program: Path, folder: Path) -> tuple[Server, str]:
    """Phoenix and its URL."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    environment = phoenix_environment(folder, port)
    return Server(
        [program, "serve"],
        folder,
        ready=lambda: answers(f"{url}/v1/projects"),
        environment=environment,
    ), url


def mlflow(program: Path, folder: Path) -> tuple[Server, str]:
    """MLflow and its URL."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    folder.mkdir(parents=True, exist_ok=True)
    store = [
        f"--backend-store-uri=sqlite:///{folder / 'mlflow.db'}",
        f"--default-artifact-root={folder / 'artifacts'}",
    ]
    command = [program, "server", "--host=127.0.0.1", f"--port={port}", "--workers=1", *store]
    return Server(
        command, folder, ready=lambda: answers(f"{url}/health"), environment=MLFLOW_QUIET
    ), url


def prometheus(program: Path, folder: Path, config: str, *options: str) -> tuple[Server, str]:
    """Prometheus with this configuration file's text and further options, and its URL."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "prometheus.yml").write_text(config, encoding="utf-8")
    places = [
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'data'}",
    ]
    command = [program, *places, f"--web.listen-address=127.0.0.1:{port}", *options]
    return Server(command, folder, ready=lambda: answers(f"{url}/-/ready")), url
