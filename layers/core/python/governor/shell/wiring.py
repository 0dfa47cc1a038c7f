"""The one place where functions get their real dependencies."""

from __future__ import annotations

from datetime import UTC, datetime

from governor.aws.budgets import AwsBudgets
from governor.aws.catalogue import load_catalogue
from governor.aws.clients import client
from governor.aws.ec2_fleet import Ec2Fleet
from governor.aws.outbound import AwsOutbound
from governor.aws.parameter_store import PauseParameter
from governor.aws.state_table import DynamoDbStateTable
from governor.shell.budget_guard import GuardDeps
from governor.shell.environment import GuardBudgetEnvironment, SendMessagesEnvironment


def utc_now() -> datetime:
    """The wall clock, for events that carry no moment of their own."""
    return datetime.now(UTC)


def guard_deps(environment: GuardBudgetEnvironment) -> GuardDeps:
    """Dependencies of `guard_budget`."""
    return GuardDeps(
        stage=environment.stage,
        home_region=environment.home_region,
        account_id=environment.account_id,
        budget_name=environment.budget_name,
        store=DynamoDbStateTable(client("dynamodb"), environment.table_name),
        fleet=Ec2Fleet(
            environment.regions, lambda region: client("ec2", region), environment.tag_keys, environment.stage
        ),
        budgets=AwsBudgets(client("budgets"), environment.account_id, environment.budget_name),
        pause=PauseParameter(client("ssm"), environment.stage),
        prices=load_catalogue(),
        clock=utc_now,
        counted_families=frozenset(environment.budget_families),
    )


def outbound(environment: SendMessagesEnvironment) -> AwsOutbound:
    """Ways out of `send_messages`."""
    topics = {
        "page": environment.page_topic_arn,
        "warn": environment.warn_topic_arn,
        "info": environment.info_topic_arn,
    }
    return AwsOutbound(client("sns"), client("events"), topics, environment.slack_topic_arn, environment.bus_name)
