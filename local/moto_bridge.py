"""EC2 and Auto Scaling of moto inside the emulator's process."""

from __future__ import annotations

import asyncio
import io
import random
import sys
import threading
from collections.abc import Callable, Coroutine, Mapping
from typing import Any
from urllib.parse import urlencode

import moto.backends
from moto.moto_api._internal import mock_random
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app

from local.emulator import Emulator
from local.patching import relied_on

SERVICES = ("ec2", "autoscaling")
_SERVER_FAULT = b"<Code>InsufficientInstanceCapacity</Code>"

Answer = tuple[int, dict[str, str], bytes]
Handler = Callable[[str, str, dict[str, str], bytes, dict[str, Any]], Coroutine[Any, Any, Answer]]


class Moto:
    """Routes EC2 and Auto Scaling requests to moto and gives access to its backends. One request at a time."""

    def __init__(self, emulator: Emulator, account_id: str, seed: int) -> None:
        random.seed(seed)
        mock_random.seed(seed)
        self._account_id = account_id
        self._wsgi = DomainDispatcherApplication(create_backend_app)
        self._region = relied_on(emulator.responses, "get_region", ())
        self.lock = threading.RLock()
        for service in SERVICES:
            emulator.app.SERVICE_HANDLERS[service] = self._handler(service)

    def ec2(self, region: str) -> Any:
        """moto's EC2 backend of one Region."""
        return moto.backends.get_backend("ec2")[self._account_id][region]

    def autoscaling(self, region: str) -> Any:
        """moto's Auto Scaling backend of one Region."""
        return moto.backends.get_backend("autoscaling")[self._account_id][region]

    def used_regions(self) -> list[str]:
        """Regions that hold an instance or a group, sorted."""
        backends = moto.backends.get_backend("ec2")[self._account_id]
        return sorted(region for region in list(backends) if region != "aws")

    def _handler(self, service: str) -> Handler:
        async def handle(
            method: str, path: str, headers: dict[str, str], body: bytes, query_params: dict[str, Any]
        ) -> Answer:
            return await asyncio.to_thread(self._call, service, method, path, headers, body, query_params)

        return handle

    def _call(
        self, service: str, method: str, path: str, headers: Mapping[str, str], body: bytes, query: Mapping[str, Any]
    ) -> Answer:
        host = f"{service}.{self._region()}.amazonaws.com"
        environ: dict[str, Any] = {
            "REQUEST_METHOD": method,
            "PATH_INFO": path,
            "QUERY_STRING": urlencode(query, doseq=True),
            "SERVER_NAME": host,
            "SERVER_PORT": "80",
            "SERVER_PROTOCOL": "HTTP/1.1",
            "HTTP_HOST": host,
            "CONTENT_LENGTH": str(len(body or b"")),
            "CONTENT_TYPE": headers.get("content-type", ""),
            "wsgi.input": io.BytesIO(body or b""),
            "wsgi.errors": sys.stderr,
            "wsgi.url_scheme": "http",
            "wsgi.version": (1, 0),
            "wsgi.multithread": True,
            "wsgi.multiprocess": False,
            "wsgi.run_once": False,
        }
        for name, value in headers.items():
            if name.lower() not in ("content-type", "content-length", "host"):
                environ["HTTP_" + name.upper().replace("-", "_")] = value
        answer: dict[str, Any] = {}

        def start_response(status: str, response_headers: list[tuple[str, str]], exc_info: Any = None) -> None:
            answer["status"] = int(status.split()[0])
            answer["headers"] = {name: value for name, value in response_headers if name != "Content-Length"}

        with self.lock:
            content = b"".join(self._wsgi(environ, start_response))
        if answer["status"] == 400 and _SERVER_FAULT in content:
            answer["status"] = 500  # EC2 calls a shortage its own fault, moto every error the caller's
        return answer["status"], answer["headers"], content
