"""The tests themselves cannot reach an account or another machine."""

import os
import socket
import subprocess
import sys

import botocore.session
import pytest

from tests.isolation import NetworkUseError, clear_environment, is_on_this_machine


def test_no_credentials_and_no_region_are_found() -> None:
    session = botocore.session.Session()
    assert session.get_credentials() is None
    assert session.get_config_variable("region") is None


def test_every_way_into_an_account_is_cleared() -> None:
    environment = {
        "AWS_ACCESS_KEY_ID": "x",
        "AWS_PROFILE": "work",
        "AWS_ENDPOINT_URL": "https://example.com",
        "aws_session_token": "x",
        "CDK_DEFAULT_ACCOUNT": "1",
        "GOVERNOR_STAGE": "prod",
        "HOME": "/home/me",
    }
    clear_environment(environment)
    assert environment.keys() & {"AWS_ACCESS_KEY_ID", "AWS_PROFILE", "AWS_ENDPOINT_URL", "aws_session_token"} == set()
    assert environment.keys() & {"CDK_DEFAULT_ACCOUNT", "GOVERNOR_STAGE"} == set()
    assert environment["AWS_CONFIG_FILE"] == os.devnull
    assert environment["HOME"] == "/home/me"


def test_a_name_of_another_machine_is_not_even_looked_up() -> None:
    with pytest.raises(NetworkUseError, match=r"governor\.invalid"):
        socket.create_connection(("governor.invalid", 443), timeout=1)


def test_loopback_works() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        assert client.getpeername() == server.getsockname()


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "0.0.0.0", "localhost", b"localhost", "", None])
def test_this_machine_is_recognised(host: object) -> None:
    assert is_on_this_machine(host)


@pytest.mark.parametrize("host", ["192.0.2.1", "10.0.0.1", "169.254.169.254", "2001:db8::1", "example.com", b"a.b"])
def test_other_machines_are_recognised(host: object) -> None:
    assert not is_on_this_machine(host)


def test_a_connection_to_a_literal_address_is_refused_before_it_starts() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as sock:
        sock.setblocking(False)
        with pytest.raises(NetworkUseError, match=r"192\.0\.2\.1"):
            sock.connect(("192.0.2.1", 443))


def test_a_process_started_by_a_test_inherits_the_clean_environment() -> None:
    code = "import os; print(sorted(n for n in os.environ if n.startswith('AWS_')))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['AWS_CONFIG_FILE', 'AWS_EC2_METADATA_DISABLED', 'AWS_SHARED_CREDENTIALS_FILE']"
