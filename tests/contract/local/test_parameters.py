"""Parameter Store: events, allowed patterns, empty pages, who wrote what."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from botocore.exceptions import ClientError

from tests.contract.local.conftest import Probe

NAME = "/probe/test/percent"


@pytest.fixture
def parameter(probe: Probe) -> Iterator[str]:
    probe.aws.client("ssm").put_parameter(Name=NAME, Value="80", Type="String", AllowedPattern="^[0-9]{1,3}$")
    probe.aws.settle()
    yield NAME
    probe.aws.client("ssm").delete_parameter(Name=NAME)


def test_change_reaches_the_function_without_value_and_version(probe: Probe, parameter: str) -> None:
    mark = probe.mark()
    probe.aws.client("ssm").put_parameter(Name=parameter, Value="90", Overwrite=True)
    probe.aws.settle()
    [record] = probe.since(mark, "rule")
    event = record.payload
    assert (event["source"], event["detail-type"]) == ("aws.ssm", "Parameter Store Change")
    assert event["detail"] == {"operation": "Update", "name": parameter, "type": "String"}
    assert event["resources"] == ["arn:aws:ssm:us-east-1:123456789012:parameter/probe/test/percent"]


def test_create_and_delete_are_events_too(probe: Probe) -> None:
    ssm, mark = probe.aws.client("ssm"), probe.mark()
    ssm.put_parameter(Name="/probe/test/gone", Value="x", Type="String", Description="to go")
    ssm.delete_parameters(Names=["/probe/test/gone"])
    probe.aws.settle()
    details = [one.payload["detail"] for one in probe.since(mark, "rule")]
    assert [one["operation"] for one in details] == ["Create", "Delete"]
    assert details[0]["description"] == "to go"


def test_value_against_its_allowed_pattern_is_refused_and_not_stored(probe: Probe, parameter: str) -> None:
    ssm, mark = probe.aws.client("ssm"), probe.mark()
    with pytest.raises(ClientError) as refused:
        ssm.put_parameter(Name=parameter, Value="ninety", Overwrite=True, AllowedPattern="^[0-9]{1,3}$")
    assert refused.value.response["Error"]["Code"] == "ParameterPatternMismatchException"
    assert ssm.get_parameter(Name=parameter)["Parameter"]["Value"] == "80"
    probe.aws.settle()
    assert probe.since(mark) == []


def test_history_says_who_wrote_each_version(probe: Probe, parameter: str) -> None:
    iam = probe.aws.client("iam")
    iam.create_user(UserName="anna")
    keys = iam.create_access_key(UserName="anna")["AccessKey"]
    anna = probe.aws.client("ssm", aws_access_key_id=keys["AccessKeyId"], aws_secret_access_key=keys["SecretAccessKey"])
    anna.put_parameter(Name=parameter, Value="85", Overwrite=True)
    history = probe.aws.client("ssm").get_parameter_history(Name=parameter)["Parameters"]
    assert [one["LastModifiedUser"] for one in history[-2:]] == [
        "arn:aws:iam::123456789012:root",
        "arn:aws:iam::123456789012:user/anna",
    ]
    assert [one["Value"] for one in history[-2:]] == ["80", "85"]


def test_first_page_may_be_empty_with_a_token(probe: Probe, parameter: str) -> None:
    probe.aws.set_empty_parameter_pages(True)
    ssm = probe.aws.client("ssm")
    first = ssm.get_parameters_by_path(Path="/probe/test", Recursive=True)
    assert first["Parameters"] == []
    second = ssm.get_parameters_by_path(Path="/probe/test", Recursive=True, NextToken=first["NextToken"])
    assert [one["Name"] for one in second["Parameters"]] == [parameter]


def test_deleting_one_parameter_is_an_event(probe: Probe) -> None:
    ssm = probe.aws.client("ssm")
    ssm.put_parameter(Name="/probe/test/control/keep/i-1", Value="on", Type="String")
    probe.aws.settle()
    mark = probe.mark()
    ssm.delete_parameter(Name="/probe/test/control/keep/i-1")
    probe.aws.settle()
    [record] = probe.since(mark, "rule")
    assert record.payload["detail"] == {
        "operation": "Delete",
        "name": "/probe/test/control/keep/i-1",
        "type": "String",
    }
