"""What a person at 3 a.m. reads: what, why, how much, what is lost, how to undo, how to hold it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from governor.domain.budget import decide
from governor.domain.budget_messages import console_url, subject_of
from governor.domain.decisions import Message
from governor.domain.pause import parse_pause
from tests.builders import NOW, a_snapshot, an_instance, some_settings


def stopping() -> Message:
    fleet = [
        an_instance("i-0west", instance_type="p4d.24xlarge"),
        an_instance("i-0east", region="us-east-1"),
        an_instance("i-0critical", criticality="critical"),
    ]
    (message,) = decide(a_snapshot(*fleet, spent=960), some_settings(), NOW).decision.messages
    return message


@pytest.mark.parametrize(
    "needed",
    [
        "Stopping 2 instances now; that saves $22.48/h",
        "$960.00 of $1,000.00 = 96.0 %",
        "8 to 24 hours late",
        "p4d.24xlarge, eu-west-1",
        "Left running:",
        "critical: i-0critical",
        "local NVMe",
        "p4d is scarce: it may not come back",
        "governor restore --decision 'guard_budget@2026-11-20T12:00:00+00:00' --stage test",
        "governor restore i-0east --stage test",
        "governor keep INSTANCE --for 4h",
        "governor explain 'guard_budget@2026-11-20T12:00:00+00:00' --stage test",
        "%252Fgovernor%252Ftest%252Fcontrol%252Fpause/description?region=eu-west-1",
        "governor pause --because",
    ],
)
def test_a_stop_says_everything_that_a_tired_person_needs(needed: str) -> None:
    assert needed in stopping().body


def test_what_is_lost_is_named_only_for_what_is_stopped() -> None:
    fleet = [an_instance("i-0small"), an_instance("i-0big", instance_type="p4d.24xlarge", criticality="critical")]
    (message,) = decide(a_snapshot(*fleet, spent=960), some_settings(), NOW).decision.messages
    assert "local NVMe" in message.body
    assert "may not come back" not in message.body


def test_the_console_page_is_the_one_of_the_partition() -> None:
    assert console_url("cn-north-1", "/a/b").startswith("https://cn-north-1.console.amazonaws.cn/systems-manager/")
    assert "parameters/%252Fa%252Fb/description?region=cn-north-1" in console_url("cn-north-1", "/a/b")


@pytest.mark.parametrize("text", ["é" * 300, "a\nb\tc", "x" * 101, "", "日本"])
def test_subjects_are_what_sns_accepts(text: str) -> None:
    subject = subject_of("[Governor dev] " + text)
    assert subject.isascii()
    assert "\n" not in subject
    assert 0 < len(subject) <= 100


def test_a_pause_says_why_until_when_and_how_to_lift_it() -> None:
    pause = parse_pause("on until 2026-11-21T06:00Z because demo for the board", NOW)
    (message,) = decide(a_snapshot(an_instance(), spent=990, pause=pause), some_settings(), NOW).decision.messages
    assert "paused until 2026-11-21 06:00 UTC: demo for the board" in message.body
    assert "governor unpause" in message.body


def test_a_long_list_is_cut_and_says_so() -> None:
    fleet = [an_instance(f"i-{number:03}") for number in range(90)]
    snapshot = replace(a_snapshot(*fleet, spent=960))
    message = decide(snapshot, some_settings(), NOW).decision.messages[0]
    assert "... and 10 more" in message.body
    assert len(message.body.encode()) < 100_000
