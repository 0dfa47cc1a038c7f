"""How errors of AWS calls are read."""

from __future__ import annotations

from botocore.exceptions import BotoCoreError, ClientError
from botocore.parsers import ResponseParserError

AWS_ERRORS = (ClientError, BotoCoreError, ResponseParserError)
"""Everything that a boto3 call raises when AWS or the network does not answer as hoped."""


def error_code(error: Exception) -> str:
    """The code of an AWS error, such as `UnauthorizedOperation`, or the class name of a network error."""
    if isinstance(error, ClientError):
        return str(error.response.get("Error", {}).get("Code", "Unknown"))
    return type(error).__name__


def error_sentence(error: Exception) -> str:
    """Code and message of an AWS error, on one line, without the encoded authorization message."""
    if isinstance(error, ClientError):
        message = str(error.response.get("Error", {}).get("Message", ""))
        message = message.split("Encoded authorization failure message")[0]
        return " ".join(f"{error_code(error)}: {message}".split())[:300]
    return " ".join(f"{type(error).__name__}: {error}".split())[:300]
