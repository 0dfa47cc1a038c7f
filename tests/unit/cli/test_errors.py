"""Every error is one sentence: what, where, what to do."""

from __future__ import annotations

import pytest
from botocore import exceptions as aws
from botocore.exceptions import ClientError
from botocore.parsers import ResponseParserError
from pydantic import TypeAdapter, ValidationError

from cli.errors import CliError, sentence_of
from governor.ports import UnreadableError


@pytest.fixture(autouse=True)
def _home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_REGION", "eu-west-1")


def refusal(code: str, message: str = "no") -> ClientError:
    return ClientError({"Error": {"Code": code, "Message": message}}, "GetThings")


DENIAL = "User: arn:aws:sts::1:assumed-role/x is not authorized to perform: ssm:PutParameter on resource: y"

SENTENCES = [
    (CliError("What, where, what to do."), "What, where, what to do."),
    (
        refusal("AccessDeniedException", DENIAL),
        "AWS denies ssm:PutParameter in eu-west-1; use credentials that may do it "
        "(the stage's Reader policy is enough to look, its Operator policy to change).",
    ),
    (
        refusal("UnauthorizedOperation", "You are not authorized to perform this operation."),
        "AWS denies GetThings in eu-west-1; use credentials that may do it "
        "(the stage's Reader policy is enough to look, its Operator policy to change).",
    ),
    (
        refusal("ExpiredToken"),
        "The AWS credentials have expired (ExpiredToken from GetThings in eu-west-1); sign in again.",
    ),
    (
        refusal("InvalidClientTokenId"),
        "AWS does not accept these credentials (InvalidClientTokenId from GetThings in eu-west-1); check AWS_PROFILE "
        "or the AWS_* keys, and that the Region is enabled in the account.",
    ),
    (
        refusal("ThrottlingException"),
        "AWS throttles GetThings in eu-west-1 (ThrottlingException); wait a minute and try again.",
    ),
    (
        refusal("OptInRequired"),
        "The Region eu-west-1 is not enabled in this account; enable it, or set AWS_REGION to another one.",
    ),
    (
        refusal("ValidationException", "The  value\nis odd"),
        "AWS refuses GetThings in eu-west-1 (ValidationException: The value is odd); correct that and try again.",
    ),
    (
        aws.NoCredentialsError(),
        "No AWS credentials were found on this machine; sign in, or set AWS_PROFILE, or AWS_ACCESS_KEY_ID and "
        "AWS_SECRET_ACCESS_KEY.",
    ),
    (
        aws.NoRegionError(),
        "No AWS Region is set on this machine; set AWS_REGION to the Region in which the Governor is deployed, or "
        "choose a profile that has one with AWS_PROFILE.",
    ),
    (
        aws.ProfileNotFound(profile="work"),
        "The config profile (work) could not be found; set AWS_PROFILE to one that is in the AWS configuration of "
        "this machine.",
    ),
    (
        aws.UnauthorizedSSOTokenError(),
        "The AWS credentials cannot be used (The SSO session associated with this profile has expired or is otherwise "
        "invalid. To refresh this SSO session run aws sso login with the corresponding profile); sign in again.",
    ),
    (
        aws.EndpointConnectionError(endpoint_url="http://127.0.0.1:1"),
        'AWS cannot be reached from here (Could not connect to the endpoint URL: "http://127.0.0.1:1"); check the '
        "network, AWS_REGION and AWS_ENDPOINT_URL.",
    ),
    (
        ResponseParserError("invalid XML received:  <html>"),
        "What answered in eu-west-1 is not AWS, or does not know the call (invalid XML received: <html>); check "
        "AWS_ENDPOINT_URL and proxies.",
    ),
    (
        aws.ParamValidationError(report="odd"),
        "The AWS library refuses the call (ParamValidationError: Parameter validation failed: odd); correct that and "
        "try again.",
    ),
    (
        UnreadableError("record a b has version 2, newer than 1"),
        "record a b has version 2, newer than 1; try again, or use the version of governor that is deployed.",
    ),
]


@pytest.mark.parametrize(("error", "sentence"), SENTENCES)
def test_error_has_its_sentence(error: Exception, sentence: str) -> None:
    assert sentence_of(error) == sentence


def test_unreadable_tree_says_what_aws_said() -> None:
    error = UnreadableError("/governor/dev cannot be read")
    error.__cause__ = refusal("ThrottlingException")
    assert sentence_of(error) == sentence_of(refusal("ThrottlingException"))


def test_unreadable_record_names_the_field() -> None:
    with pytest.raises(ValidationError) as caught:
        TypeAdapter(dict[str, int]).validate_python({"spent": "much"})
    sentence = sentence_of(caught.value)
    assert sentence is not None
    assert sentence.startswith("A record of the state table cannot be read (dict[str,int] spent: Input should be")
    assert sentence.endswith("use the version of governor that is deployed.")


def test_fault_of_the_program_has_no_sentence() -> None:
    assert sentence_of(KeyError("x")) is None
