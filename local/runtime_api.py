"""The Lambda runtime API for one warm function process, and that process.

The process is AWS's own runtime interface client (`awslambdaric`) on the deployed files. Only what Lambda provides is
on its path, so a dependency that no layer brings fails here as it fails there.
"""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from local.clock import wall_time_seconds
from local.options import LOOPBACK

_VERSION_PATH = "/2018-06-01/runtime"
_LAMBDA_PATH = "/usr/local/bin:/usr/bin:/bin:/opt/bin"


@dataclass(frozen=True, slots=True)
class FunctionFiles:
    """The unpacked deployment package: the task folder, one folder a layer (in layer order), the runtime client."""

    task: Path
    layers: Sequence[Path]
    lambda_runtime: Path
    home: Path

    def python_path(self) -> str:
        """PYTHONPATH as Lambda orders it: the function, then its layers, then what the runtime brings."""
        return os.pathsep.join(
            [str(self.task), *(str(layer / "python") for layer in self.layers), str(self.lambda_runtime)]
        )


@dataclass(frozen=True, slots=True)
class FunctionSettings:
    """The configuration of a function. `timeout_seconds` counts on the machine's clock."""

    name: str
    arn: str
    handler: str
    runtime: str
    region: str
    memory_mib: int
    timeout_seconds: float
    log_group: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one invocation gave: the returned value, or an error in Lambda's form; and the lines it logged."""

    payload: Any
    failed: bool
    log: str
    started_cold: bool


def lambda_environment(
    settings: FunctionSettings, files: FunctionFiles, runtime_api: str, variables: Mapping[str, str]
) -> dict[str, str]:
    """The environment of a function process: what Lambda sets, then the function's own variables."""
    return {
        "PATH": _LAMBDA_PATH,
        "LANG": "en_US.UTF-8",
        "TZ": ":UTC",
        "HOME": str(files.home),
        "TMPDIR": str(files.home),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONPATH": files.python_path(),
        "AWS_EXECUTION_ENV": f"AWS_Lambda_{settings.runtime}",
        "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": str(settings.memory_mib),
        "AWS_LAMBDA_FUNCTION_NAME": settings.name,
        "AWS_LAMBDA_FUNCTION_VERSION": "$LATEST",
        "AWS_LAMBDA_INITIALIZATION_TYPE": "on-demand",
        "AWS_LAMBDA_LOG_GROUP_NAME": settings.log_group,
        "AWS_LAMBDA_LOG_STREAM_NAME": "local",
        "AWS_LAMBDA_RUNTIME_API": runtime_api,
        "AWS_DEFAULT_REGION": settings.region,
        "AWS_REGION": settings.region,
        "LAMBDA_TASK_ROOT": str(files.task),
        "LAMBDA_RUNTIME_DIR": str(files.lambda_runtime),
        "_HANDLER": settings.handler,
        **variables,
    }


class _RuntimeServer(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, function_arn: str) -> None:
        super().__init__((LOOPBACK, 0), _RuntimeRequests)
        self.function_arn = function_arn
        self.invocations: queue.SimpleQueue[tuple[str, bytes, int] | None] = queue.SimpleQueue()
        self.answers: queue.SimpleQueue[tuple[str, bytes]] = queue.SimpleQueue()


class _RuntimeRequests(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = 1 << 16
    server: _RuntimeServer

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing: the function's own log is what counts."""

    def do_GET(self) -> None:
        """Hand out the next invocation; waits until there is one."""
        invocation = self.server.invocations.get()
        if invocation is None:
            self._answer(410, b"", {})
            return
        request_id, body, deadline_ms = invocation
        self._answer(
            200,
            body,
            {
                "Content-Type": "application/json",
                "Lambda-Runtime-Aws-Request-Id": request_id,
                "Lambda-Runtime-Deadline-Ms": str(deadline_ms),
                "Lambda-Runtime-Invoked-Function-Arn": self.server.function_arn,
                "Lambda-Runtime-Trace-Id": "Root=1-00000000-000000000000000000000000;Sampled=0",
            },
        )

    def do_POST(self) -> None:
        """Take a response or an error."""
        body = self._read_body()
        if self.path.startswith(f"{_VERSION_PATH}/init/error"):
            kind = "init-error"
        else:
            kind = "error" if self.path.endswith("/error") else "response"
        self._answer(202, b"", {})
        self.server.answers.put((kind, body))

    def _read_body(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        parts: list[bytes] = []
        while size := int(self.rfile.readline(), 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(parts)

    def _answer(self, status: int, body: bytes, headers: Mapping[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        self.wfile.flush()


class FunctionProcess:
    """One warm execution environment. One invocation at a time; not for use from several threads."""

    def __init__(
        self, settings: FunctionSettings, files: FunctionFiles, variables: Mapping[str, str], log_path: Path
    ) -> None:
        self._settings = settings
        self._log_path = log_path
        self._server = _RuntimeServer(settings.arn)
        threading.Thread(target=self._server.serve_forever, name=f"runtime-api-{settings.name}", daemon=True).start()
        address = f"{LOOPBACK}:{self._server.server_port}"
        log_path.parent.mkdir(parents=True, exist_ok=True)
        with log_path.open("ab") as log:
            self._log_offset = log.tell()
            self._process = subprocess.Popen(
                [base_interpreter(), "-S", "-m", "awslambdaric", settings.handler],
                cwd=files.task,
                env=lambda_environment(settings, files, address, variables),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        self._has_run = False
        threading.Thread(target=self._watch, name=f"watch-{settings.name}", daemon=True).start()

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        """True while another invocation can be sent."""
        return self._process.poll() is None

    def invoke(self, event: Any) -> Outcome:
        """Run the handler once. An error, a timeout or the end of the process comes back as a failed Outcome."""
        started_cold, self._has_run = not self._has_run, True
        request_id = str(uuid.uuid4())
        deadline_ms = int((wall_time_seconds() + self._settings.timeout_seconds) * 1000)
        self._server.invocations.put((request_id, json.dumps(event).encode(), deadline_ms))
        try:
            kind, body = self._server.answers.get(timeout=self._settings.timeout_seconds)
        except queue.Empty:
            self.end()
            kind, body = "timeout", b""
        return Outcome(
            payload=self._payload(kind, body, request_id),
            failed=kind != "response",
            log=self._read_log(),
            started_cold=started_cold,
        )

    def end(self) -> None:
        """End the process by its id and close its runtime API. Safe to call twice."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        self._server.invocations.put(None)
        self._server.shutdown()
        self._server.server_close()

    def kill(self) -> None:
        """End the process at once, as a crash in the middle of a run does."""
        self._process.kill()

    def _watch(self) -> None:
        code = self._process.wait()
        self._server.answers.put(("exit", str(code).encode()))

    def _payload(self, kind: str, body: bytes, request_id: str) -> Any:
        if kind == "timeout":
            seconds = self._settings.timeout_seconds
            return {
                "errorType": "Sandbox.Timedout",
                "errorMessage": f"RequestId: {request_id} Error: Task timed out after {seconds:.2f} seconds",
            }
        if kind == "exit":
            return {
                "errorType": "Runtime.ExitError",
                "errorMessage": f"RequestId: {request_id} Error: Runtime exited with status {body.decode()}",
            }
        return json.loads(body or b"null")

    def _read_log(self) -> str:
        with self._log_path.open("rb") as log:
            log.seek(self._log_offset)
            text = log.read()
            self._log_offset = log.tell()
        return text.decode(errors="replace")


def base_interpreter() -> str:
    """The interpreter below the virtual environment, whose own packages are then kept away with -S."""
    return str(getattr(sys, "_base_executable", sys.executable))
