"""Checks of `governor doctor`: do messages reach people?"""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING

from cli.account import aws
from cli.findings import Check, Checkup, Finding, fail, ok, warn

if TYPE_CHECKING:
    from cli.stage import Stage

TOPICS = {"page": "PageTopicArn", "warn": "WarnTopicArn", "info": "InfoTopicArn", "chat": "SlackTopicArn"}
CHAT = "chat"
LOOK_BACK = timedelta(days=1)

TEST_SUBJECT = "this is a test by governor doctor"
TEST_PARTITION = "message#test@"
"""Operators may write these messages into the outbox and no others."""


def check_topic(name: str, checkup: Checkup) -> Finding:
    """Has the topic a confirmed subscription? Chat is optional, for everything else nobody would hear."""
    confirmed, waiting = _subscriptions(checkup.stage, TOPICS[name])
    stage = checkup.stage.name
    if waiting:
        some = f"{confirmed} confirmed, " if confirmed else "nobody gets its messages, "
        words = f"{some}not yet confirmed: {', '.join(waiting)}; open the link in the mail of AWS Notifications"
        return fail(words) if name == "page" and not confirmed else warn(words)
    if confirmed:
        return ok(f"{confirmed} confirmed subscription{'' if confirmed == 1 else 's'}")
    if name == CHAT:
        return ok(
            "no chat is subscribed; for Slack or Teams let Amazon Q Developer in chat applications take this topic"
        )
    words = f"nobody gets its messages; add an address to subscribers.{name} of stage {stage} in cdk.json and deploy"
    return fail(words) if name == "page" else warn(words)


def _subscriptions(stage: Stage, output: str) -> tuple[int, list[str]]:
    """How many are confirmed, and the addresses that are not."""
    pages = aws("sns", stage.home_region).get_paginator("list_subscriptions_by_topic")
    found = [s for page in pages.paginate(TopicArn=stage.output(output)) for s in page["Subscriptions"]]
    confirmed = sum(str(one["SubscriptionArn"]).startswith("arn:") for one in found)
    waiting = [str(one.get("Endpoint", "?")) for one in found if one["SubscriptionArn"] == "PendingConfirmation"]
    return confirmed, sorted(waiting)


def check_deliveries(checkup: Checkup) -> Finding:
    """What SNS says of the deliveries of the last day, by its metrics."""
    sums = _count_deliveries(checkup)
    failed = {name: count for (name, metric), count in sums.items() if metric == "Failed" and count}
    delivered = sum(count for (_, metric), count in sums.items() if metric == "Delivered")
    if failed:
        listed = ", ".join(f"{count} of {name}" for name, count in failed.items())
        return warn(
            f"not delivered in the last 24 h: {listed}; look at the endpoints of the subscriptions, then try them with "
            f"governor doctor --send-test --stage {checkup.stage.name}"
        )
    if not delivered:
        return ok("nothing was delivered in the last 24 h, and nothing failed")
    return ok(f"{delivered} delivered in the last 24 h, none failed")


def _count_deliveries(checkup: Checkup) -> dict[tuple[str, str], int]:
    wanted = [(name, metric) for name in TOPICS for metric in ("Delivered", "Failed")]
    queries = [
        {
            "Id": f"m{number}",
            "MetricStat": {
                "Metric": {
                    "Namespace": "AWS/SNS",
                    "MetricName": f"NumberOfNotifications{metric}",
                    "Dimensions": [
                        {"Name": "TopicName", "Value": checkup.stage.output(TOPICS[name]).rpartition(":")[2]}
                    ],
                },
                "Period": 3600,
                "Stat": "Sum",
            },
        }
        for number, (name, metric) in enumerate(wanted)
    ]
    pages = aws("cloudwatch", checkup.stage.home_region).get_paginator("get_metric_data")
    request = {"MetricDataQueries": queries, "StartTime": checkup.now - LOOK_BACK, "EndTime": checkup.now}
    sums = dict.fromkeys(wanted, 0)
    for page in pages.paginate(**request):
        for result in page["MetricDataResults"]:
            sums[wanted[int(result["Id"].removeprefix("m"))]] += int(sum(result["Values"]))
    return sums


def send_test(checkup: Checkup) -> Finding:
    """Put one message for each topic into the outbox: `send_messages` alone may publish, so it is tried as well."""
    from governor.domain.decisions import Message, Severity
    from governor.ports import Write
    from governor.shell.records import message_records

    stage = checkup.stage
    writes: list[Write] = []
    for severity in Severity:
        message = Message(
            key=f"{TEST_PARTITION.removeprefix('message#')}{checkup.now.isoformat()}#{severity.value}",
            severity=severity,
            subject=f"GPU Governor {stage.name}: {TEST_SUBJECT}",
            body=f"Somebody ran governor doctor --send-test on stage {stage.name}. There is nothing to do.",
        )
        # No event: what others hang on the bus is not for tests. One note is enough for chat.
        ways = {"mail", "slack"} if severity is Severity.INFO else {"mail"}
        records = message_records(message, stage.name, checkup.now)
        writes += [Write(record, when="absent") for record in records if record.outbox in ways]
    stage.store().commit(writes)
    return ok(f"one message is on its way to each topic ({TEST_SUBJECT!r}); see that each arrives within five minutes")


CHECKS: tuple[tuple[str, Check], ...] = (
    *((f"topic {name}", partial(check_topic, name)) for name in TOPICS),
    ("deliveries", check_deliveries),
)


def question_before_test(stage: Stage) -> str:
    """What is asked before a test is sent."""
    topics = ", ".join(TOPICS)
    return f"Send one test message to each of the topics {topics} of stage {stage.name}? The page may wake somebody."
