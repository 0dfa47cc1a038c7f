"""One local AWS with the deployed app for all integration tests; each test begins in a month of its own."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import time_machine
from typer.testing import CliRunner, Result

from cli.main import app
from governor.aws.clients import client
from governor.domain.settings import SETTINGS
from local.answers import FleetInstance
from local.client import LocalAws, local_aws
from local.deploy import CdkApp, bootstrap, deploy, stack_outputs
from local.mail import Mail
from local.options import ACCESS_KEY_ID, SECRET_ACCESS_KEY

ROOT = Path(__file__).resolve().parents[2]
STAGE = "local"
TREE = f"/governor/{STAGE}"
RIGHT_ONES = frozenset({"big-standard", "big-preemptible", "small-standard", "small-preemptible", "group-member"})
"""What the sample fleet holds of managed, non-critical p4d and g4dn instances that would not come back."""


@dataclass
class Deployed:
    """The deployed app, and what a person or AWS does to it."""

    aws: LocalAws
    state: dict[str, str]
    control: dict[str, str]
    fleet: list[FleetInstance] = field(default_factory=list)
    first_mail: int = 0
    first_call: int = 0

    def put(self, name: str, value: str) -> None:
        """Edit one parameter, as ops do, and let what follows happen."""
        self.aws.client("ssm").put_parameter(Name=f"{TREE}/{name}", Value=value, Overwrite=True)
        self.aws.settle()

    def spend(self, amount_usd: float) -> None:
        """Let AWS Budgets report this month's spend now, with its notices."""
        self.aws.set_spend(amount_usd, refresh=True)
        self.aws.settle()

    def advance(self, minutes: int) -> None:
        """Let virtual time pass."""
        self.aws.advance(timedelta(minutes=minutes))

    def mails(self) -> list[Mail]:
        """E-mails of the Governor since the test began; those of CloudWatch alarms are left out."""
        return [mail for mail in self.aws.mails()[self.first_mail :] if mail.subject.startswith("[Governor")]

    def subjects(self) -> list[str]:
        """Subjects without their prefix."""
        return [mail.subject.partition("] ")[2] for mail in self.mails()]

    def states(self) -> dict[str, str]:
        """State of each instance of the fleet, by its role."""
        ids = [member.instance_id for member in self.fleet]
        answer = self.aws.client("ec2").describe_instances(InstanceIds=ids)
        seen = {i["InstanceId"]: i["State"]["Name"] for r in answer["Reservations"] for i in r["Instances"]}
        return {member.role: seen[member.instance_id] for member in self.fleet}

    def stopped(self) -> frozenset[str]:
        """Roles of the stopped instances."""
        return frozenset(role for role, state in self.states().items() if state == "stopped")

    def actions(self, function: str) -> set[str]:
        """IAM actions that a deployed function called since the test began."""
        name = self.control[f"{function}FunctionName"]
        return {call.action for call in self.aws.calls(after=self.first_call) if call.function == name}

    def invoke(self, function: str, event: Any) -> Any:
        """Invoke a deployed function and return its answer."""
        answer = self.aws.client("lambda").invoke(
            FunctionName=self.control[f"{function}FunctionName"], Payload=json.dumps(event).encode()
        )
        payload = json.loads(answer["Payload"].read())
        assert "FunctionError" not in answer, payload
        return payload

    def governor(self, *arguments: str) -> Result:
        """Run the command as a person at this moment would."""
        return run_governor(self.aws, *arguments)

    def begin(self, *, everything: bool = False) -> None:
        """A new month on its tenth day, a new fleet (or one of every kind), initial settings, nothing spent."""
        self.aws.set_faults()
        self.aws.enforce_roles(False)
        self.aws.remove_fleet()
        self.aws.settle()
        now = self.aws.now()
        month = (now.replace(day=1) + timedelta(days=32)).replace(day=10, hour=9, minute=0, second=0, microsecond=0)
        self.aws.set_clock(month)
        self.reset_settings()
        self.spend(0.0)
        self.advance(6)
        self.fleet = self.aws.create_fleet(STAGE, everything=everything)
        self.aws.settle()
        self.first_mail = len(self.aws.mails())
        calls = self.aws.calls()
        self.first_call = calls[-1].sequence if calls else 0

    def reset_settings(self) -> None:
        """Every parameter as the stage seeds it."""
        initial = {spec.name: spec.default for spec in SETTINGS}
        initial |= {"budget/mode": "enforce", "budget/grace-minutes": "0", "budget/confirm-minutes": "0"}
        ssm = self.aws.client("ssm")
        ssm.put_parameter(Name=f"{TREE}/control/pause", Value="off", Overwrite=True)
        for name, value in initial.items():
            ssm.put_parameter(Name=f"{TREE}/{name}", Value=value, Overwrite=True)
        self.aws.settle()


def run_governor(aws: LocalAws, *arguments: str, waits_pass_minutes: bool = False) -> Result:
    """Run the command against a local AWS, on its clock.

    The clock of the local AWS stands still meanwhile, or moves on by a minute whenever the command waits.
    """
    variables = {
        "AWS_ENDPOINT_URL": aws.endpoint.url,
        "AWS_REGION": aws.endpoint.region,
        "AWS_ACCESS_KEY_ID": ACCESS_KEY_ID,
        "AWS_SECRET_ACCESS_KEY": SECRET_ACCESS_KEY,
        "COLUMNS": "400",
    }
    before = {name: os.environ.get(name) for name in variables}
    client.cache_clear()
    os.environ.update(variables)
    try:
        with (
            time_machine.travel(aws.now(), tick=not waits_pass_minutes) as clock,
            pytest.MonkeyPatch.context() as patch,
        ):

            def pass_a_minute(seconds: float) -> None:
                aws.advance(timedelta(minutes=1))
                clock.shift(timedelta(minutes=1))

            if waits_pass_minutes:
                patch.setattr("time.sleep", pass_a_minute)
            return CliRunner().invoke(app, list(arguments), prog_name="governor")
    finally:
        client.cache_clear()
        _restore_environment(before)


def _restore_environment(before: Mapping[str, str | None]) -> None:
    for name, value in before.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


@pytest.fixture(scope="session")
def deployed() -> Iterator[Deployed]:
    """The real `cdk deploy` of stage local into a local AWS, once for all tests."""
    with local_aws(seed=11) as aws:
        bootstrap(aws, on_line=print)
        deploy(aws, CdkApp(ROOT, context={"stage": STAGE}), on_line=print)
        state = stack_outputs(aws, f"Governor-{STAGE}-State")
        for topic in ("Page", "Warn", "Info"):
            aws.client("sns").subscribe(
                TopicArn=state[f"{topic}TopicArn"], Protocol="email", Endpoint=f"{topic.lower()}@example.com"
            )
        yield Deployed(aws, state, stack_outputs(aws, f"Governor-{STAGE}-Control"))


@pytest.fixture
def world(deployed: Deployed) -> Deployed:
    """The deployed app at the beginning of a fresh month."""
    deployed.begin()
    return deployed
