"""Starts one local AWS in this process: `python -m local.launcher --options JSON`.

Prints one JSON line with the endpoint when it is ready, and ends on SIGTERM, on SIGINT, or when its standard input
closes, which happens when the process that started it is gone.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import socket
import sys
import threading
from typing import Any

from hypercorn.asyncio import serve
from hypercorn.config import Config

from local.control import Control, with_control
from local.emulator import load, prepare_environment
from local.options import LOOPBACK, Options
from local.world import World

SERVER_END_SECONDS = 3.0


def open_socket(port: int) -> socket.socket:
    """A listening socket on loopback; port 0 takes a free one."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((LOOPBACK, port))
    listener.listen(128)
    return listener


async def run(options: Options, listener: socket.socket) -> None:
    """Serve until told to end, then end everything that was started."""
    port = listener.getsockname()[1]
    endpoint_url = f"http://{LOOPBACK}:{port}"
    prepare_environment(options, port)
    world = World(load(), options, endpoint_url)
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for signal_number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(signal_number, stopping.set)
    threading.Thread(target=_stop_with_parent, args=(loop, stopping), name="parent-watch", daemon=True).start()
    config = Config()
    config.bind = [f"fd://{listener.detach()}"]  # the server closes it
    config.loglevel = "WARNING"
    config.graceful_timeout = 1.0
    config.keep_alive_timeout = 600.0
    application: Any = with_control(world.emulator.app.app, Control(world))
    world.start()
    server = asyncio.create_task(serve(application, config, shutdown_trigger=stopping.wait))
    await _until_answering(port)
    print(json.dumps({"url": endpoint_url, "port": port, "pid": os.getpid()}), flush=True)
    await asyncio.wait({server, asyncio.create_task(stopping.wait())}, return_when=asyncio.FIRST_COMPLETED)
    await asyncio.to_thread(world.end)
    await asyncio.wait({server}, timeout=SERVER_END_SECONDS)
    if server.done():
        server.result()


async def _until_answering(port: int) -> None:
    """Wait for the first answer; the socket already queues connections, so this needs no polling."""
    reader, writer = await asyncio.open_connection(LOOPBACK, port)
    writer.write(b"GET /_ministack/health HTTP/1.1\r\nHost: local\r\nConnection: close\r\n\r\n")
    await writer.drain()
    await reader.readline()
    writer.close()


def _stop_with_parent(loop: asyncio.AbstractEventLoop, stopping: asyncio.Event) -> None:
    while os.read(0, 1024):
        pass
    loop.call_soon_threadsafe(stopping.set)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description="Start one local AWS on loopback.")
    parser.add_argument("--options", required=True, help="the options as JSON (local.options.Options)")
    arguments = parser.parse_args()
    options = Options.from_json(arguments.options)
    loop = asyncio.new_event_loop()
    loop.run_until_complete(run(options, open_socket(options.port)))
    # Requests of the emulator may wait for ever (a deploy that was broken off), and nothing is left to wait for.
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
