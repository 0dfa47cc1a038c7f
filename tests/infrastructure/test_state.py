"""What is kept, how it is encrypted, and who may publish."""

from __future__ import annotations

import pytest

from tests.infrastructure.conftest import Synthesis
from tests.infrastructure.iam import Answer, Request, ask
from tests.infrastructure.templates import ACCOUNT, StageTemplates

# A changed id replaces the resource, and what was in it is gone.
STATEFUL_IDS = {
    "AWS::DynamoDB::Table": {"Table7ABB320E"},
    "AWS::Events::EventBus": {"BusEA82B648"},
    "AWS::KMS::Key": {"KeyE447D366"},
    "AWS::S3::Bucket": {"Snapshots80B40336"},
    "AWS::SNS::Topic": {
        "BudgetTopic4984E188",
        "InfoTopicC100E2F0",
        "PageTopicCFF748DC",
        "SlackTopicE6AE6DCA",
        "WarnTopic1F3A76B9",
    },
}
OUTPUTS = {
    "TableName",
    "BusName",
    "BudgetTopicArn",
    "PageTopicArn",
    "WarnTopicArn",
    "InfoTopicArn",
    "SlackTopicArn",
    "SnapshotBucketName",
    "KeyArn",
    "KeptOnDelete",
}
MESSAGE_TOPICS = ("PageTopicArn", "WarnTopicArn", "InfoTopicArn", "SlackTopicArn")
TOPICS = ("BudgetTopicArn", *MESSAGE_TOPICS)
STAGES = ("dev", "prod", "local", "china", "frankfurt", "tokyo")


@pytest.mark.parametrize("stage", STAGES)
def test_logical_ids_of_what_holds_state_never_change(synthesis: Synthesis, stage: str) -> None:
    templates = synthesis.templates[stage]
    found = {kind: {one.logical_id for one in templates.of(kind, "State")} for kind in STATEFUL_IDS}
    assert found == STATEFUL_IDS


def test_state_says_what_cli_and_tests_read(dev: StageTemplates) -> None:
    assert set(dev.outputs["State"]) == OUTPUTS


@pytest.mark.parametrize("kind", ["AWS::DynamoDB::Table", "AWS::S3::Bucket", "AWS::KMS::Key"])
@pytest.mark.parametrize(("stage", "policy"), [("prod", "Retain"), ("dev", "Delete"), ("local", "Delete")])
def test_table_bucket_and_key_stay_exactly_where_the_stage_keeps_state(
    synthesis: Synthesis, stage: str, policy: str, kind: str
) -> None:
    resource = synthesis.templates[stage].one(kind)
    assert resource.attributes["DeletionPolicy"] == policy
    assert resource.attributes["UpdateReplacePolicy"] == policy


def test_a_kept_stage_says_what_stays_and_why(prod: StageTemplates) -> None:
    kept = prod.outputs["State"]["KeptOnDelete"]
    for kind in ("AWS::DynamoDB::Table", "AWS::S3::Bucket", "AWS::KMS::Key"):
        assert prod.one(kind).ref in kept["Value"]
    assert "which instances were stopped" in kept["Description"]
    settings = prod.outputs["Control"]["KeptOnDelete"]
    assert settings["Value"] == "/governor/prod"
    assert "what operators decided" in settings["Description"]


def test_a_stage_that_keeps_nothing_says_so(dev: StageTemplates) -> None:
    kept = dev.outputs["State"]["KeptOnDelete"]
    assert kept["Value"] == "nothing"
    assert "keep_state is false" in kept["Description"]


@pytest.mark.parametrize(("stage", "protected"), [("prod", True), ("dev", False)])
def test_a_kept_table_cannot_be_deleted_by_hand(synthesis: Synthesis, stage: str, protected: bool) -> None:
    table = synthesis.templates[stage].one("AWS::DynamoDB::Table")
    assert table.properties["DeletionProtectionEnabled"] is protected


def test_the_table_is_what_the_functions_expect(dev: StageTemplates) -> None:
    properties = dev.one("AWS::DynamoDB::Table").properties
    assert properties["KeySchema"] == [
        {"AttributeName": "pk", "KeyType": "HASH"},
        {"AttributeName": "sk", "KeyType": "RANGE"},
    ]
    assert {one["AttributeType"] for one in properties["AttributeDefinitions"]} == {"S"}
    assert properties["BillingMode"] == "PAY_PER_REQUEST"
    assert properties["TimeToLiveSpecification"] == {"AttributeName": "expires_at", "Enabled": True}
    assert properties["StreamSpecification"] == {"StreamViewType": "NEW_IMAGE"}
    assert properties["PointInTimeRecoverySpecification"] == {"PointInTimeRecoveryEnabled": True}


@pytest.mark.parametrize("stage", STAGES)
def test_table_bucket_and_topics_are_encrypted_with_the_key_of_the_stage(synthesis: Synthesis, stage: str) -> None:
    templates = synthesis.templates[stage]
    key = templates.outputs["State"]["KeyArn"]["Value"]
    table = templates.one("AWS::DynamoDB::Table").properties["SSESpecification"]
    assert table == {"KMSMasterKeyId": key, "SSEEnabled": True, "SSEType": "KMS"}
    (rule,) = templates.one("AWS::S3::Bucket").properties["BucketEncryption"]["ServerSideEncryptionConfiguration"]
    assert rule["ServerSideEncryptionByDefault"] == {"KMSMasterKeyID": key, "SSEAlgorithm": "aws:kms"}
    topics = templates.of("AWS::SNS::Topic")
    assert [topic.properties["KmsMasterKeyId"] for topic in topics] == [key] * len(TOPICS)


@pytest.mark.parametrize("stage", STAGES)
def test_queues_are_encrypted_without_the_key_since_they_are_the_last_resort(synthesis: Synthesis, stage: str) -> None:
    for queue in synthesis.templates[stage].of("AWS::SQS::Queue"):
        assert queue.properties["SqsManagedSseEnabled"] is True
        assert "KmsMasterKeyId" not in queue.properties


def test_the_key_rotates(dev: StageTemplates) -> None:
    assert dev.one("AWS::KMS::Key").properties["EnableKeyRotation"] is True


@pytest.mark.parametrize("action", ["kms:Decrypt", "kms:GenerateDataKey"])
@pytest.mark.parametrize(
    ("service", "account", "answer"),
    [
        ("budgets.amazonaws.com", ACCOUNT, Answer.ALLOWED),
        ("budgets.amazonaws.com", "999999999999", Answer.NOT_ALLOWED),
        ("cloudwatch.amazonaws.com", ACCOUNT, Answer.ALLOWED),
        ("cloudwatch.amazonaws.com", "999999999999", Answer.NOT_ALLOWED),
        ("sns.amazonaws.com", ACCOUNT, Answer.NOT_ALLOWED),
    ],
)
def test_budgets_and_alarms_of_this_account_may_use_the_key(
    dev: StageTemplates, action: str, service: str, account: str, answer: Answer
) -> None:
    document = dev.one("AWS::KMS::Key").properties["KeyPolicy"]
    request = Request(action, "*", {"aws:SourceAccount": account}, service=service)
    assert ask([document], request) is answer


def test_the_bucket_is_private_versioned_and_empties_itself(dev: StageTemplates) -> None:
    properties = dev.one("AWS::S3::Bucket").properties
    assert set(properties["PublicAccessBlockConfiguration"].values()) == {True}
    assert properties["VersioningConfiguration"] == {"Status": "Enabled"}
    rules = {rule["Id"]: rule for rule in properties["LifecycleConfiguration"]["Rules"]}
    expiring = rules["expire-snapshots"]
    assert expiring["ExpirationInDays"] == 30
    assert expiring["NoncurrentVersionExpiration"] == {"NoncurrentDays": 7}
    assert expiring["AbortIncompleteMultipartUpload"] == {"DaysAfterInitiation": 1}


def test_nobody_reads_or_writes_the_bucket_without_tls(dev: StageTemplates) -> None:
    document = dev.one("AWS::S3::BucketPolicy").properties["PolicyDocument"]
    resource = dev.one("AWS::S3::Bucket").attribute("Arn") + "/snapshot"
    request = Request("s3:GetObject", resource, {"aws:SecureTransport": "false"}, principal="anybody")
    open_policy = {"Statement": [{"Effect": "Allow", "Action": "*", "Resource": "*"}]}
    encrypted_only = {"Statement": [one for one in document["Statement"] if "Bool" in one["Condition"]]}
    assert ask([encrypted_only, open_policy], request) is Answer.DENIED


# Who may publish ----------------------------------------------------------------------------------------------------

FROM_PERSON = {"aws:PrincipalIsAWSService": "false", "aws:SecureTransport": "true"}
FROM_SERVICE = {"aws:PrincipalIsAWSService": "true", "aws:SecureTransport": "true"}
ALLOW_ALL = {"Statement": [{"Effect": "Allow", "Action": "*", "Resource": "*"}]}


def publish(stage: StageTemplates, output: str, context: dict[str, str], service: str = "") -> Request:
    return Request(
        "sns:Publish",
        stage.outputs["State"][output]["Value"],
        context,
        service=service,
        principal=context.get("aws:PrincipalArn", ""),
    )


def from_budgets(account: str, partition: str = "aws") -> dict[str, str]:
    return {
        **FROM_SERVICE,
        "aws:SourceAccount": account,
        "aws:SourceArn": f"arn:{partition}:budgets::{account}:budget/any",
    }


def from_alarm(account: str, region: str = "us-east-1", partition: str = "aws") -> dict[str, str]:
    return {
        **FROM_SERVICE,
        "aws:SourceAccount": account,
        "aws:SourceArn": f"arn:{partition}:cloudwatch:{region}:{account}:alarm:any",
    }


def from_role(stage: StageTemplates, function: str) -> dict[str, str]:
    return {**FROM_PERSON, "aws:PrincipalArn": stage.functions()[function].properties["Role"]}


@pytest.mark.parametrize(("stage", "partition"), [("dev", "aws"), ("china", "aws-cn")])
def test_budgets_of_this_account_may_wake_the_guard(synthesis: Synthesis, stage: str, partition: str) -> None:
    templates = synthesis.templates[stage]
    request = publish(templates, "BudgetTopicArn", from_budgets(ACCOUNT, partition), "budgets.amazonaws.com")
    assert ask([templates.topic_document("BudgetTopicArn")], request) is Answer.ALLOWED


def test_budgets_of_another_account_may_not_wake_the_guard(dev: StageTemplates) -> None:
    request = publish(dev, "BudgetTopicArn", from_budgets("999999999999"), "budgets.amazonaws.com")
    assert ask([dev.topic_document("BudgetTopicArn")], request) is Answer.NOT_ALLOWED


@pytest.mark.parametrize("service", ["cloudwatch.amazonaws.com", "events.amazonaws.com", "s3.amazonaws.com"])
def test_no_other_service_may_wake_the_guard(dev: StageTemplates, service: str) -> None:
    request = publish(dev, "BudgetTopicArn", from_budgets(ACCOUNT), service)
    assert ask([dev.topic_document("BudgetTopicArn")], request) is Answer.NOT_ALLOWED


@pytest.mark.parametrize("output", TOPICS)
@pytest.mark.parametrize("person", ["role/admin", "user/ops", "root"])
def test_no_person_may_publish_to_any_topic_even_as_admin(dev: StageTemplates, output: str, person: str) -> None:
    context = {**FROM_PERSON, "aws:PrincipalArn": f"arn:aws:iam::{ACCOUNT}:{person}"}
    assert ask([dev.topic_document(output), ALLOW_ALL], publish(dev, output, context)) is Answer.DENIED


@pytest.mark.parametrize("output", TOPICS)
@pytest.mark.parametrize(
    "function", ["check_settings", "guard_budget", "confirm_actions", "seed_settings", "check_retired"]
)
def test_no_function_but_send_messages_may_publish_even_as_admin(
    dev: StageTemplates, output: str, function: str
) -> None:
    request = publish(dev, output, from_role(dev, function))
    assert ask([dev.topic_document(output), ALLOW_ALL], request) is Answer.DENIED


@pytest.mark.parametrize("output", MESSAGE_TOPICS)
def test_send_messages_publishes_to_the_message_topics(dev: StageTemplates, output: str) -> None:
    request = publish(dev, output, from_role(dev, "send_messages"))
    documents = [dev.topic_document(output), *dev.role_documents("send_messages")]
    assert ask(documents, request) is Answer.ALLOWED


def test_send_messages_may_not_wake_the_guard(dev: StageTemplates) -> None:
    request = publish(dev, "BudgetTopicArn", from_role(dev, "send_messages"))
    documents = [dev.topic_document("BudgetTopicArn"), *dev.role_documents("send_messages")]
    assert ask(documents, request) is Answer.DENIED


@pytest.mark.parametrize("output", ["PageTopicArn", "WarnTopicArn"])
def test_alarms_of_this_account_may_publish_and_others_not(dev: StageTemplates, output: str) -> None:
    document = dev.topic_document(output)
    service = "cloudwatch.amazonaws.com"
    assert ask([document], publish(dev, output, from_alarm(ACCOUNT), service)) is Answer.ALLOWED
    assert ask([document], publish(dev, output, from_alarm("999999999999"), service)) is Answer.NOT_ALLOWED


@pytest.mark.parametrize("output", MESSAGE_TOPICS)
def test_budgets_page_people_only_where_the_stage_has_a_brake(
    dev: StageTemplates, full: StageTemplates, output: str
) -> None:
    service = "budgets.amazonaws.com"
    request = publish(dev, output, from_budgets(ACCOUNT), service)
    assert ask([dev.topic_document(output)], request) is Answer.NOT_ALLOWED
    braked = publish(full, output, from_budgets(ACCOUNT), service)
    answer = Answer.ALLOWED if output == "PageTopicArn" else Answer.NOT_ALLOWED
    assert ask([full.topic_document(output)], braked) is answer
    foreign = publish(full, output, from_budgets("999999999999"), service)
    assert ask([full.topic_document(output)], foreign) is Answer.NOT_ALLOWED


@pytest.mark.parametrize("output", ["InfoTopicArn", "SlackTopicArn"])
def test_alarms_publish_to_no_topic_but_page_and_warn(dev: StageTemplates, output: str) -> None:
    request = publish(dev, output, from_alarm(ACCOUNT), "cloudwatch.amazonaws.com")
    assert ask([dev.topic_document(output)], request) is Answer.NOT_ALLOWED


@pytest.mark.parametrize("output", TOPICS)
def test_nobody_publishes_without_tls(dev: StageTemplates, output: str) -> None:
    context = {**from_role(dev, "send_messages"), "aws:SecureTransport": "false"}
    assert ask([dev.topic_document(output), ALLOW_ALL], publish(dev, output, context)) is Answer.DENIED


def test_people_get_mail_from_the_topic_that_the_stage_says(synthesis: Synthesis) -> None:
    templates = synthesis.templates["frankfurt"]
    found = {
        (one.properties["TopicArn"], one.properties["Endpoint"])
        for one in templates.of("AWS::SNS::Subscription")
        if one.properties["Protocol"] == "email"
    }
    topics = {key: output["Value"] for key, output in templates.outputs["State"].items()}
    assert found == {
        (topics["PageTopicArn"], "night@example.com"),
        (topics["WarnTopicArn"], "day@example.com"),
        (topics["WarnTopicArn"], "ops@example.com"),
    }
