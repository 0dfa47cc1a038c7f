"""Every error as one sentence: what, where, what to do."""

from __future__ import annotations

import re
from typing import Any

DENIED = frozenset(
    {
        "AccessDenied",
        "AccessDeniedException",
        "AuthorizationError",
        "AuthorizationErrorException",
        "UnauthorizedOperation",
        "UnauthorizedException",
    }
)
EXPIRED = frozenset({"ExpiredToken", "ExpiredTokenException", "RequestExpired", "TokenRefreshRequired"})
NOT_ACCEPTED = frozenset(
    {
        "AuthFailure",
        "IncompleteSignature",
        "InvalidClientTokenId",
        "InvalidSignatureException",
        "SignatureDoesNotMatch",
        "UnrecognizedClientException",
    }
)
THROTTLED = frozenset(
    {
        "ProvisionedThroughputExceededException",
        "RequestLimitExceeded",
        "RequestThrottled",
        "RequestThrottledException",
        "SlowDown",
        "ThrottledException",
        "Throttling",
        "ThrottlingException",
        "TooManyRequestsException",
    }
)
_ACTION = re.compile(r"perform: ([A-Za-z0-9-]+:[A-Za-z0-9*]+)")


class CliError(Exception):
    """Something that a person can put right; its text is the sentence."""


def sentence_of(error: Exception) -> str | None:
    """The sentence of an error, or None for one that nobody foresaw."""
    if isinstance(error, CliError):
        return str(error)
    from botocore.exceptions import BotoCoreError, ClientError
    from botocore.parsers import ResponseParserError

    if isinstance(error, ResponseParserError):
        return (
            f"What answered in {_where()} is not AWS, or does not know the call ({_short(error)}); "
            "check AWS_ENDPOINT_URL and proxies."
        )
    if isinstance(error, ClientError):
        return _client_sentence(error)
    if isinstance(error, BotoCoreError):
        return _local_sentence(error)
    from pydantic import ValidationError

    from governor.ports import UnreadableError

    if isinstance(error, ValidationError):
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        return (
            f"A record of the state table cannot be read ({error.title} {where}: {first['msg']}); "
            "use the version of governor that is deployed."
        )
    if isinstance(error, UnreadableError):
        if isinstance(error.__cause__, ClientError | BotoCoreError):
            return sentence_of(error.__cause__)
        return f"{str(error).rstrip('.')}; try again, or use the version of governor that is deployed."
    return None


def _client_sentence(error: Any) -> str:
    from governor.aws.errors import error_code, error_sentence

    code = error_code(error)
    call = str(error.operation_name)
    where = _where()
    if code in DENIED:
        found = _ACTION.search(str(error))
        action = found[1] if found else call
        return (
            f"AWS denies {action} in {where}; use credentials that may do it "
            "(the stage's Reader policy is enough to look, its Operator policy to change)."
        )
    if code in EXPIRED:
        return f"The AWS credentials have expired ({code} from {call} in {where}); sign in again."
    if code in NOT_ACCEPTED:
        return (
            f"AWS does not accept these credentials ({code} from {call} in {where}); check AWS_PROFILE or the AWS_* "
            "keys, and that the Region is enabled in the account."
        )
    if code in THROTTLED:
        return f"AWS throttles {call} in {where} ({code}); wait a minute and try again."
    if code == "OptInRequired":
        return f"The Region {where} is not enabled in this account; enable it, or set AWS_REGION to another one."
    return f"AWS refuses {call} in {where} ({error_sentence(error)}); correct that and try again."


def _local_sentence(error: Any) -> str:
    name = type(error).__name__
    if name in ("NoCredentialsError", "PartialCredentialsError"):
        return (
            "No AWS credentials were found on this machine; sign in, or set AWS_PROFILE, "
            "or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY."
        )
    if name == "NoRegionError":
        return NO_REGION
    if name == "ProfileNotFound":
        return f"{str(error).rstrip('.')}; set AWS_PROFILE to one that is in the AWS configuration of this machine."
    if "SSO" in name or "Token" in name or name in ("LoginRefreshRequired", "CredentialRetrievalError"):
        return f"The AWS credentials cannot be used ({' '.join(str(error).split()).rstrip('.')}); sign in again."
    if name in ("EndpointConnectionError", "ConnectTimeoutError", "ReadTimeoutError", "ConnectionClosedError") or (
        "Connection" in name or "Proxy" in name or "SSL" in name
    ):
        what = " ".join(str(error).split()).rstrip(".")
        return f"AWS cannot be reached from here ({what}); check the network, AWS_REGION and AWS_ENDPOINT_URL."
    what = " ".join(str(error).split()).rstrip(".")
    return f"The AWS library refuses the call ({name}: {what}); correct that and try again."


NO_REGION = (
    "No AWS Region is set on this machine; set AWS_REGION to the Region in which the Governor is deployed, "
    "or choose a profile that has one with AWS_PROFILE."
)


def _short(error: Exception) -> str:
    text = " ".join(str(error).split())
    return text if len(text) <= 300 else text[:297] + "..."


def _where() -> str:
    from cli.account import region_or_none

    return region_or_none() or "an unknown Region"
