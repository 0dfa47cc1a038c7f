"""Keeps tests on this machine: no account of the person who runs them, no connection beyond loopback."""

import ipaddress
import os
import socket
import sys
from collections.abc import MutableMapping
from pathlib import Path
from typing import Any

# What could lead a test into somebody's account, or make it depend on who runs it.
LEAKING_PREFIXES = ("AWS_", "BOTO_", "CDK_", "GOVERNOR_", "POWERTOOLS_")
LOCAL_NAMES = frozenset({"", "localhost", "localhost.localdomain", "ip6-localhost"})


class NetworkUseError(Exception):
    """A test tried to leave this machine."""


def clear_environment(environment: MutableMapping[str, str]) -> None:
    """Remove every variable by which credentials, Regions, endpoints or a width leak in, and close the other ways."""
    for name in [name for name in environment if name.upper().startswith(LEAKING_PREFIXES)]:
        del environment[name]
    for name in ("COLUMNS", "LINES"):
        environment.pop(name, None)
    environment["AWS_CONFIG_FILE"] = os.devnull
    environment["AWS_SHARED_CREDENTIALS_FILE"] = os.devnull
    environment["AWS_EC2_METADATA_DISABLED"] = "true"
    environment["CDK_DISABLE_CLI_TELEMETRY"] = "true"
    environment["NO_PROXY"] = environment["no_proxy"] = "127.0.0.1,localhost,::1"
    # The Node of the environment, so that stacks synthesise on a machine without one.
    environment["JSII_NODE"] = str(Path(sys.prefix, "bin", "node"))


def is_on_this_machine(host: object) -> bool:
    """Whether a host as sockets take it (a name, a literal address, bytes, None for any) is this machine."""
    if host is None:
        return True
    name = host.decode("ascii", "replace") if isinstance(host, bytes) else str(host)
    if name.lower() in LOCAL_NAMES or name == socket.gethostname():
        return True
    try:
        address = ipaddress.ip_address(name.partition("%")[0])
    except ValueError:
        return False
    return address.is_loopback or address.is_unspecified


def refuse_remote(event: str, arguments: tuple[Any, ...]) -> None:
    """Audit hook: raise NetworkUseError before a name is looked up or a packet leaves for another machine."""
    if event in ("socket.getaddrinfo", "socket.gethostbyname", "socket.gethostbyaddr"):
        host = arguments[0]
    elif event in ("socket.connect", "socket.sendto", "socket.sendmsg"):
        sock, address = arguments[0], arguments[1]
        if address is None or sock.family not in (socket.AF_INET, socket.AF_INET6):
            return
        host = address[0]
    else:
        return
    if not is_on_this_machine(host):
        raise NetworkUseError(f"tests stay on this machine, but this one went for {host} ({event})")


def stay_on_this_machine() -> None:
    """Refuse connections to other machines from now on, in this process."""
    sys.addaudithook(refuse_remote)
