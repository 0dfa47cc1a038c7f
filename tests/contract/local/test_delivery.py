"""Every asynchronous way to a function, and what AWS does when the function fails."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

from tests.contract.local.conftest import Probe


def queue_bodies(probe: Probe, name: str) -> list[dict[str, Any]]:
    """Empty one of the probe's queues; its messages' bodies and attributes."""
    sqs, url = probe.aws.client("sqs"), probe.outputs[name]
    found: list[dict[str, Any]] = []
    while messages := sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10, MessageAttributeNames=["All"]).get(
        "Messages"
    ):
        for message in messages:
            attributes = {key: value["StringValue"] for key, value in message.get("MessageAttributes", {}).items()}
            found.append({"body": json.loads(message["Body"]), "attributes": attributes})
            sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
    return found


def test_sns_reaches_the_function_in_lambdas_form(probe: Probe) -> None:
    mark = probe.mark()
    topic = probe.outputs["BudgetTopicArn"]
    message_id = probe.aws.client("sns").publish(TopicArn=topic, Subject="s", Message="hello")["MessageId"]
    probe.aws.settle()
    [record] = probe.since(mark, "sns")
    notification = record.payload["Records"][0]["Sns"]
    assert record.result == "done"
    assert (notification["Message"], notification["Subject"], notification["MessageId"]) == ("hello", "s", message_id)
    assert notification["TopicArn"] == topic
    assert notification["Timestamp"].startswith(probe.aws.now().strftime("%Y-%m-%dT%H:%M"))
    assert {"SigningCertUrl", "UnsubscribeUrl", "MessageAttributes"} <= set(notification)


def test_sns_mail_to_people_is_collected(probe: Probe) -> None:
    before = len(probe.aws.mails())
    topic = probe.outputs["BudgetTopicArn"]
    probe.aws.client("sns").publish(TopicArn=topic, Subject="Stopped", Message="three instances")
    [mail] = probe.aws.mails()[before:]
    assert (mail.protocol, mail.to, mail.subject, mail.body) == (
        "email",
        "finance@example.com",
        "Stopped",
        "three instances",
    )
    assert (mail.topic_arn, mail.at) == (topic, probe.aws.now().isoformat())


def test_rule_on_an_own_bus_reaches_the_function(probe: Probe) -> None:
    mark = probe.mark()
    probe.aws.client("events").put_events(
        Entries=[
            {"Source": "probe", "DetailType": "Hello", "Detail": '{"n": 1}', "EventBusName": probe.outputs["BusName"]}
        ]
    )
    probe.aws.settle()
    [record] = probe.since(mark, "rule")
    assert (record.payload["source"], record.payload["detail-type"], record.payload["detail"]) == (
        "probe",
        "Hello",
        {"n": 1},
    )
    assert record.payload["time"] == probe.aws.now().strftime("%Y-%m-%dT%H:%M:%SZ")


def test_failed_function_is_tried_after_one_and_two_minutes_then_goes_to_its_destination(probe: Probe) -> None:
    queue_bodies(probe, "DeadLettersUrl")
    mark, start = probe.mark(), probe.aws.now()
    event = json.dumps({"wish": "fail"})
    probe.aws.client("lambda").invoke(FunctionName=probe.function, InvocationType="Event", Payload=event)
    probe.aws.settle()
    probe.aws.advance(timedelta(minutes=4))
    attempts = probe.since(mark, "invoke")
    assert [(one.attempt, one.result) for one in attempts] == [(1, "will-retry"), (2, "will-retry"), (3, "failed")]
    assert [one.at for one in attempts] == [(start + timedelta(minutes=n)).isoformat() for n in (0, 1, 3)]
    [message] = queue_bodies(probe, "DeadLettersUrl")
    assert message["body"]["requestPayload"] == {"wish": "fail"}
    assert message["body"]["requestContext"]["condition"] == "RetriesExhausted"
    assert message["body"]["requestContext"]["approximateInvokeCount"] == 3
    assert message["body"]["responsePayload"]["errorMessage"] == "asked to fail"


def test_event_for_a_function_that_may_not_be_invoked_goes_to_the_rules_queue(probe: Probe) -> None:
    functions, events = probe.aws.client("lambda"), probe.aws.client("events")
    queue_bodies(probe, "RuleDeadLettersUrl")
    policy = json.loads(functions.get_policy(FunctionName=probe.function)["Policy"])
    of_rules = [one for one in policy["Statement"] if one["Principal"]["Service"] == "events.amazonaws.com"]
    entry = {"Source": "probe", "DetailType": "x", "Detail": "{}", "EventBusName": probe.outputs["BusName"]}
    mark = probe.mark()
    for statement in of_rules:
        functions.remove_permission(FunctionName=probe.function, StatementId=statement["Sid"])
    try:
        events.put_events(Entries=[entry])
        probe.aws.settle()
        [record] = probe.since(mark, "rule")
        assert record.result == "not-handed-over"
        [message] = queue_bodies(probe, "RuleDeadLettersUrl")
        assert message["attributes"]["ERROR_CODE"] == "NO_PERMISSIONS"
    finally:
        for statement in of_rules:
            functions.add_permission(
                FunctionName=probe.function,
                StatementId=statement["Sid"],
                Action="lambda:InvokeFunction",
                Principal="events.amazonaws.com",
                SourceArn=statement["Condition"]["ArnLike"]["AWS:SourceArn"],
            )


def test_held_deliveries_wait(probe: Probe) -> None:
    probe.aws.hold_deliveries(True)
    mark = probe.mark()
    probe.aws.client("lambda").invoke(FunctionName=probe.function, InvocationType="Event", Payload="{}")
    assert probe.since(mark) == []
    assert probe.aws.stats().waiting == 1
    probe.aws.settle()
    assert [one.result for one in probe.since(mark)] == ["done"]


def test_pending_address_gets_no_mail_until_it_is_confirmed(probe: Probe) -> None:
    sns = probe.aws.client("sns")
    topic = sns.create_topic(Name="confirmation")["TopicArn"]
    for address in ("finance@example.net", "ops@example.net"):
        sns.subscribe(TopicArn=topic, Protocol="email", Endpoint=address)

    def listed() -> dict[str, bool]:
        answer = sns.list_subscriptions_by_topic(TopicArn=topic)["Subscriptions"]
        return {one["Endpoint"]: one["SubscriptionArn"] != "PendingConfirmation" for one in answer}

    def receivers(subject: str) -> list[str]:
        sns.publish(TopicArn=topic, Subject=subject, Message="text")
        probe.aws.settle()
        return [one.to for one in probe.aws.mails() if one.subject == subject]

    assert listed() == {"finance@example.net": True, "ops@example.net": True}
    assert probe.aws.confirm_subscriptions(False, "ops@example.net") == 1
    assert listed() == {"finance@example.net": True, "ops@example.net": False}
    assert receivers("one waits") == ["finance@example.net"]
    counts = sns.get_topic_attributes(TopicArn=topic)["Attributes"]
    assert (counts["SubscriptionsConfirmed"], counts["SubscriptionsPending"]) == ("1", "1")
    assert probe.aws.confirm_subscriptions(True, "*@example.net") == 1
    assert receivers("none waits") == ["finance@example.net", "ops@example.net"]
    sns.delete_topic(TopicArn=topic)


def test_caller_from_outside_gets_its_answer_while_events_wait(probe: Probe) -> None:
    probe.aws.hold_deliveries(True)
    mark = probe.mark()
    probe.aws.client("sns").publish(TopicArn=probe.outputs["BudgetTopicArn"], Message="waits")
    answer = probe.aws.client("lambda").invoke(FunctionName=probe.function, Payload=b"{}")
    assert json.loads(answer["Payload"].read())["layer"]
    assert probe.since(mark) == []
    probe.aws.hold_deliveries(False)
    probe.aws.settle()
    assert [one.result for one in probe.since(mark, "sns")] == ["done"]
