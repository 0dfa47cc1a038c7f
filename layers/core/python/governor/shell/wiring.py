"""The one place where functions get their real dependencies."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from governor.aws.budgets import AwsBudgets
from governor.aws.catalogue import load_catalogue
from governor.aws.clients import client
from governor.aws.ec2_actions import Ec2Actions
from governor.aws.ec2_fleet import Ec2Fleet
from governor.aws.outbound import AwsOutbound
from governor.aws.parameter_store import ControlParameters
from governor.aws.run_command import RunCommand
from governor.aws.state_table import DynamoDbStateTable
from governor.shell.budget_guard import GuardDeps
from governor.shell.confirm_actions import ConfirmDeps
from governor.shell.environment import (
    ConfirmActionsEnvironment,
    Environment,
    GuardBudgetEnvironment,
    SendMessagesEnvironment,
)


def utc_now() -> datetime:
    """The wall clock, for events that carry no moment of their own."""
    return datetime.now(UTC)


def _ec2(region: str) -> Any:
    return client("ec2", region)


def _auto_scaling(region: str) -> Any:
    return client("autoscaling", region)


def _ssm(region: str) -> Any:
    return client("ssm", region)


def _fleet(environment: Environment) -> Ec2Fleet:
    return Ec2Fleet(environment.regions, _ec2, _auto_scaling, environment.tag_keys, environment.stage)


def guard_deps(environment: GuardBudgetEnvironment) -> GuardDeps:
    """Dependencies of `guard_budget`."""
    return GuardDeps(
        stage=environment.stage,
        home_region=environment.home_region,
        account_id=environment.account_id,
        budget_name=environment.budget_name,
        store=DynamoDbStateTable(client("dynamodb"), environment.table_name),
        fleet=_fleet(environment),
        actions=Ec2Actions(_ec2, _auto_scaling),
        commands=RunCommand(_ssm),
        budgets=AwsBudgets(client("budgets"), environment.account_id, environment.budget_name),
        controls=ControlParameters(client("ssm"), environment.stage),
        prices=load_catalogue(),
        clock=utc_now,
        counted_families=frozenset(environment.budget_families),
        checkpoint_documents=frozenset(environment.checkpoint_documents),
    )


def confirm_deps(environment: ConfirmActionsEnvironment) -> ConfirmDeps:
    """Dependencies of `confirm_actions`."""
    return ConfirmDeps(
        stage=environment.stage,
        home_region=environment.home_region,
        budget_name=environment.budget_name,
        store=DynamoDbStateTable(client("dynamodb"), environment.table_name),
        fleet=_fleet(environment),
        actions=Ec2Actions(_ec2, _auto_scaling),
        controls=ControlParameters(client("ssm"), environment.stage),
        clock=utc_now,
    )


def outbound(environment: SendMessagesEnvironment) -> AwsOutbound:
    """Ways out of `send_messages`."""
    topics = {
        "page": environment.page_topic_arn,
        "warn": environment.warn_topic_arn,
        "info": environment.info_topic_arn,
    }
    return AwsOutbound(client("sns"), client("events"), topics, environment.slack_topic_arn, environment.bus_name)
