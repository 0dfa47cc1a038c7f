"""The stage the demo plays on: the deployed app, people with their own keys, the clock, and a true account of spend."""

from __future__ import annotations

import random
import shlex
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from pydantic import TypeAdapter

from demo.command_line import run_governor
from demo.company import (
    BOOT_MINUTES,
    GROUP_NAME,
    GROUP_SIZES,
    LIMIT_USD,
    MAIL_OF_TOPIC,
    OTHER_BOOT_MINUTES,
    Kind,
    Machine,
)
from demo.story import Check, Command, GroupMoment, Mark, MarkKind, Sample, Scene
from demo.terminal import Narrator
from governor.aws.catalogue import load_catalogue
from governor.aws.state_table import DynamoDbStateTable
from governor.domain.decisions import Decision
from governor.domain.ledger import StopEntry
from governor.domain.meter import period_start
from governor.ports import Key, Record
from governor.shell import records
from local.calls import Call
from local.client import REPOSITORY, LocalAws
from local.mail import Mail
from local.starts import boots_in

STAGE = "local"
LAG_HOURS = (8.0, 16.0)
"""AWS Budgets sees the bill 8 to 24 hours late; the demo draws from the better half, with a fixed seed."""

_DECISION: TypeAdapter[Decision] = TypeAdapter(Decision)
_EC2_POLICY = '{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":["ec2:*"],"Resource":"*"}]}'


@dataclass(frozen=True, slots=True)
class Deployed:
    """Outputs of the deployed stacks by their key."""

    outputs: Mapping[str, str]

    def __getitem__(self, key: str) -> str:
        return self.outputs[key]


@dataclass(slots=True)
class OpenScene:
    """A scene while it plays."""

    number: int
    title: str
    begins: datetime
    paragraphs: list[str] = field(default_factory=list)
    checks: list[Check] = field(default_factory=list)


class PlayError(RuntimeError):
    """The demo cannot go on; the text says what was missing."""


class Theatre:
    """Moves the clock, keeps the true bill, lets people act, and notes what is seen. All times are virtual, UTC."""

    def __init__(self, aws: LocalAws, deployed: Deployed, narrator: Narrator, seed: int = 15) -> None:
        self.aws = aws
        self.deployed = deployed
        self.narrator = narrator
        self.store = DynamoDbStateTable(aws.client("dynamodb"), deployed["TableName"])
        self.samples: list[Sample] = []
        self.marks: list[Mark] = []
        self.scenes: list[Scene] = []
        self.ids: dict[str, str] = {}
        self.edits: list[tuple[datetime, str, str, str]] = []
        self.true_usd = 0.0
        self.reported_usd: float | None = None
        self.month_ends: list[float] = []
        self._ec2 = aws.client("ec2")
        self._groups = aws.client("autoscaling")
        self._budgets = aws.client("budgets")
        self._prices = load_catalogue()
        self._random = random.Random(seed)
        self._people: dict[str, tuple[str, str]] = {}
        self._scene: OpenScene | None = None
        self._moment = aws.now()
        self._image = ""
        self._seen: dict[str, dict[str, Any]] | None = None
        self.acts: list[tuple[datetime, str, str]] = []
        self.group_moments: list[GroupMoment] = []
        self.ledger_seen: dict[tuple[str, datetime, str], StopEntry] = {}
        """Each stop in each status that was seen: instance, launch and status."""

    # scenes and checks

    def open_scene(self, number: int, title: str) -> None:
        """Begin a scene; the one before ends."""
        self.close_scene()
        self._scene = OpenScene(number, title, self._moment)
        self.narrator.scene(number, title, f"{self._moment:%a %d %b %Y %H:%M} UTC")

    def close_scene(self) -> None:
        """End the scene that plays."""
        if self._scene is not None:
            one = self._scene
            ends = self._moment
            self.scenes.append(Scene(one.number, one.title, one.begins, ends, tuple(one.paragraphs), tuple(one.checks)))
        self._scene = None

    def tell(self, text: str) -> None:
        """A sentence of the story, kept for the report."""
        self._current.paragraphs.append(text)
        self.narrator.tell(text)

    def check(self, what: str, expected: object, seen: object) -> None:
        """Something that must be so: `expected` equals `seen`."""
        self._note(Check(what, _shown(expected), _shown(seen), expected == seen))

    def check_that(self, what: str, holds: bool, expected: str, seen: str) -> None:
        """Something that must be so and is no plain equality."""
        self._note(Check(what, expected, seen, holds))

    def _note(self, check: Check) -> None:
        self._current.checks.append(check)
        self.narrator.checked(check)

    @property
    def _current(self) -> OpenScene:
        if self._scene is None:
            raise RuntimeError("no scene is open")
        return self._scene

    # people

    def hire(self, name: str, *policy_arns: str, may_use_ec2: bool = False) -> None:
        """An IAM user with its own keys, so that AWS knows who did what."""
        iam = self.aws.client("iam")
        iam.create_user(UserName=name)
        for arn in policy_arns:
            iam.attach_user_policy(UserName=name, PolicyArn=arn)
        if may_use_ec2:
            iam.put_user_policy(UserName=name, PolicyName="machines", PolicyDocument=_EC2_POLICY)
        key = iam.create_access_key(UserName=name)["AccessKey"]
        self._people[name] = (key["AccessKeyId"], key["SecretAccessKey"])

    def client_of(self, person: str, service: str) -> Any:
        """A client with a person's own keys."""
        key_id, secret = self._people[person]
        return self.aws.client(service, aws_access_key_id=key_id, aws_secret_access_key=secret)

    def subscribe_mail(self) -> None:
        """Put the company's addresses on the topics."""
        sns = self.aws.client("sns")
        for output, address in MAIL_OF_TOPIC.items():
            sns.subscribe(TopicArn=self.deployed[output], Protocol="email", Endpoint=address)

    def edit(self, person: str, name: str, value: str, *, settle: bool = True) -> None:
        """Write one parameter as that person; `name` without the stage's prefix."""
        ssm = self.client_of(person, "ssm")
        ssm.put_parameter(Name=f"/governor/{STAGE}/{name}", Value=value, Type="String", Overwrite=True)
        self.edits.append((self._moment, person, name, value))
        self.act(person, f"set {name} to {value}")
        if settle:
            self.aws.settle()
        self._seen = None

    def act(self, person: str, did: str) -> None:
        """Note what a person did, for the timeline."""
        self.acts.append((self._moment, person, did))

    def command(self, person: str, typed: str) -> Command:
        """Run a `governor` command as that person, in a process of its own; what follows from it is delivered."""
        began = time.monotonic()
        ended = run_governor(
            shlex.split(typed)[1:],
            moment=self._moment,
            url=self.aws.endpoint.url,
            region=self.aws.endpoint.region,
            keys=self._people[person],
            folder=REPOSITORY,
        )
        seconds = time.monotonic() - began
        self.act(person, f"ran {typed}")
        self.aws.settle()
        self._seen = None
        self.watch_ledger()
        return Command(self._moment, person, typed, ended.printed, ended.exit_code, seconds)

    def parameter(self, name: str) -> str:
        """The text of a parameter."""
        return str(self.aws.client("ssm").get_parameter(Name=f"/governor/{STAGE}/{name}")["Parameter"]["Value"])

    # machines

    def launch(self, person: str, machine: Machine) -> None:
        """Launch one machine as that person."""
        self._seen = None
        self.act(person, f"launched {machine.name} ({machine.instance_type})")
        tags = [{"Key": "Name", "Value": machine.name}, *({"Key": k, "Value": v} for k, v in machine.tags)]
        ec2 = self.client_of(person, "ec2")
        if machine.kind is Kind.GROUP_MEMBER:
            self.ids[machine.name] = self._next_member(machine)
            ec2.create_tags(Resources=[self.ids[machine.name]], Tags=tags)
            return
        request: dict[str, Any] = {
            "ImageId": self._image_id(),
            "InstanceType": machine.instance_type,
            "MinCount": 1,
            "MaxCount": 1,
            "TagSpecifications": [{"ResourceType": "instance", "Tags": tags}],
        }
        if machine.kind in (Kind.PERSISTENT_SPOT, Kind.ONE_TIME_SPOT):
            spot = {"SpotInstanceType": "persistent", "InstanceInterruptionBehavior": "stop"}
            one_time = {"SpotInstanceType": "one-time"}
            options = spot if machine.kind is Kind.PERSISTENT_SPOT else one_time
            request["InstanceMarketOptions"] = {"MarketType": "spot", "SpotOptions": options}
        if machine.kind is Kind.STOP_PROTECTED:
            request["DisableApiStop"] = True
        answer = ec2.run_instances(**request)
        self.ids[machine.name] = answer["Instances"][0]["InstanceId"]

    def _image_id(self) -> str:
        if self._image:
            return self._image
        filters = [{"Name": "root-device-type", "Values": ["ebs"]}, {"Name": "architecture", "Values": ["x86_64"]}]
        images = self._ec2.describe_images(Owners=["amazon"], Filters=filters)["Images"]
        self._image = str(min(image["ImageId"] for image in images))
        return self._image

    def _next_member(self, machine: Machine) -> str:
        """The next member of the group that has no name yet; the group is created with all of them."""
        found = self._group()
        if found is None:
            self._create_group(machine)
            found = self._group()
        members = sorted(member["InstanceId"] for member in (found or {"Instances": ()})["Instances"])
        return str(next(one for one in members if one not in self.ids.values()))

    def _create_group(self, machine: Machine) -> None:
        subnets = self._ec2.describe_subnets()["Subnets"]
        template = self._ec2.create_launch_template(
            LaunchTemplateName=GROUP_NAME,
            LaunchTemplateData={"ImageId": self._image_id(), "InstanceType": machine.instance_type},
        )["LaunchTemplate"]
        minimum, desired, maximum = GROUP_SIZES
        self._groups.create_auto_scaling_group(
            AutoScalingGroupName=GROUP_NAME,
            LaunchTemplate={"LaunchTemplateId": template["LaunchTemplateId"], "Version": "$Latest"},
            MinSize=minimum,
            MaxSize=maximum,
            DesiredCapacity=desired,
            VPCZoneIdentifier=min(subnet["SubnetId"] for subnet in subnets),
            Tags=[{"Key": k, "Value": v, "PropagateAtLaunch": True, "ResourceId": GROUP_NAME,
                   "ResourceType": "auto-scaling-group"} for k, v in (("Name", GROUP_NAME), *machine.tags)],
        )  # fmt: skip

    def _group(self) -> dict[str, Any] | None:
        found = self._groups.describe_auto_scaling_groups(AutoScalingGroupNames=[GROUP_NAME])["AutoScalingGroups"]
        return found[0] if found else None

    def look_at_group(self, what: str) -> GroupMoment:
        """The group as it is now, with a word for the report. Raises PlayError where it is gone."""
        group = self._group()
        if group is None:
            raise PlayError(f"the group {GROUP_NAME} is gone")
        members = tuple(sorted((self.name_of(m["InstanceId"]), m["LifecycleState"]) for m in group["Instances"]))
        sizes = group["MinSize"], group["DesiredCapacity"], group["MaxSize"]
        mark = {"Key": "aws:autoscaling:groupName", "Value": GROUP_NAME}
        launched = sum(mark in one.get("Tags", ()) for one in self.instances().values())
        return GroupMoment(self._moment, what, *sizes, members, launched)

    def note_group(self, what: str) -> GroupMoment:
        """The same, kept for the report."""
        moment = self.look_at_group(what)
        self.group_moments.append(moment)
        return moment

    def let_starts_take_time(self) -> None:
        """From now on a start takes some minutes, by type; the emulator alone starts at once."""
        self.aws.set_starts(
            *(
                boots_in(instance_id, minutes=boot_minutes(one["InstanceType"]))
                for instance_id, one in self.instances().items()
            )
        )

    def spot_state(self, name: str) -> str:
        """Type and state of the request behind a spot instance."""
        requests = self._ec2.describe_spot_instance_requests()["SpotInstanceRequests"]
        return next(
            (f"{one['Type']}, {one['State']}" for one in requests if one.get("InstanceId") == self.ids[name]), ""
        )

    def instances(self) -> dict[str, dict[str, Any]]:
        """Every instance that is not terminated, as EC2 describes it, by id. Read again after everything that acts."""
        if self._seen is not None:
            return self._seen
        pages = self._ec2.get_paginator("describe_instances").paginate()
        found = [one for page in pages for reservation in page["Reservations"] for one in reservation["Instances"]]
        self._seen = {one["InstanceId"]: one for one in found if one["State"]["Name"] != "terminated"}
        return self._seen

    def states(self) -> dict[str, str]:
        """State of every machine by its name."""
        by_id = self.instances()
        return {
            name: by_id[instance_id]["State"]["Name"] if instance_id in by_id else "terminated"
            for name, instance_id in self.ids.items()
        }

    def name_of(self, instance_id: str) -> str:
        """The name of a machine, or its id."""
        return next((name for name, one in self.ids.items() if one == instance_id), instance_id)

    # the clock and the bill

    def now(self) -> datetime:
        """The virtual time."""
        return self._moment

    def jump(self, moment: datetime) -> None:
        """Let the fleet run on until `moment`; no function runs in between. Charges every hour of it."""
        if period_start(moment) > self._moment:
            turn = period_start(moment)
            self._accrue(turn)
            self.sample()
            self.month_ends.append(self.true_usd)
            self.true_usd = 0.0
            self.sample()
        self._accrue(moment)
        self.aws.set_clock(moment)
        self.aws.set_spend(self.true_usd)
        self.sample()

    def begin(self, moment: datetime, true_usd: float) -> None:
        """Set the clock for the first time, with what the month has cost by then."""
        self.true_usd = true_usd
        self._moment = moment
        self.aws.set_clock(moment)
        self.aws.set_spend(true_usd)

    def run(self, minutes: int) -> None:
        """Run the time minute by minute: schedules, budgets, alarms and functions, all delivered."""
        until = self._moment + timedelta(minutes=minutes)
        while self._moment < until:
            step = min(until, self._moment + timedelta(minutes=5))
            rate = self.run_rate()
            self.aws.advance_to(step)
            self._seen = None
            self._charge(step, rate)
            self.sample()
            self.watch_ledger()

    def refresh_budget(self) -> None:
        """AWS Budgets sees the bill of this moment; its notices are delivered."""
        self.aws.refresh_budgets()
        self.aws.settle()
        self._seen = None
        self.reported_usd = self.read_budget()
        self.sample()

    def wait_for_refresh(self) -> None:
        """Let 8 to 16 hours pass, then let AWS Budgets see the bill."""
        self.jump(self._next_refresh())
        self.refresh_budget()

    def _next_refresh(self) -> datetime:
        minutes = round(self._random.uniform(*LAG_HOURS) * 60)
        return self._moment + timedelta(minutes=minutes)

    def wait_until_reported(self, percent: float, *, at_most: int = 60) -> bool:
        """Let refreshes pass until AWS Budgets reports `percent` of the limit; False when it does not come."""
        for _ in range(at_most):
            self.wait_for_refresh()
            if (self.reported_usd or 0.0) >= LIMIT_USD * percent / 100:
                return True
        return False

    def read_budget(self) -> float | None:
        """What AWS Budgets says now: USD of the month so far."""
        answer = self._budgets.describe_budget(
            AccountId=self.aws.endpoint.account_id, BudgetName=self.deployed["BudgetName"]
        )
        amount = answer["Budget"].get("CalculatedSpend", {}).get("ActualSpend", {}).get("Amount")
        return None if amount is None else float(amount)

    def set_budget_limit(self, limit_usd: float) -> None:
        """Give the AWS budget another limit, as in its console."""
        self._budgets.update_budget(
            AccountId=self.aws.endpoint.account_id,
            NewBudget={
                **self._described_budget(),
                "BudgetLimit": {"Amount": f"{limit_usd:.0f}", "Unit": "USD"},
            },
        )

    def _described_budget(self) -> dict[str, Any]:
        answer = self._budgets.describe_budget(
            AccountId=self.aws.endpoint.account_id, BudgetName=self.deployed["BudgetName"]
        )
        kept = ("BudgetName", "BudgetType", "TimeUnit", "FilterExpression", "Metrics")
        return {name: value for name, value in answer["Budget"].items() if name in kept}

    def run_rate(self) -> float:
        """USD per hour of everything that runs, at list price."""
        return sum(self._price(one) for one in self.instances().values() if _is_running(one))

    def _price(self, instance: Mapping[str, Any]) -> float:
        return self.price_of(instance["InstanceType"]) or 0.0

    def price_of(self, instance_type: str) -> float | None:
        """List price in USD per hour."""
        price = self._prices.price_of(instance_type)
        return None if price is None else price.usd_per_hour

    @property
    def prices_dated(self) -> str:
        """Where the prices are from."""
        return f"{self._prices.region}, {self._prices.dated}"

    def _accrue(self, moment: datetime) -> None:
        self._charge(moment, self.run_rate())

    def _charge(self, moment: datetime, rate_usd_per_hour: float) -> None:
        self.true_usd += rate_usd_per_hour * ((moment - self._moment) / timedelta(hours=1))
        self._moment = moment

    def sample(self) -> None:
        """Note spend and run rate of this moment for the charts."""
        self.samples.append(Sample(self._moment, self.true_usd, self.reported_usd, self.run_rate()))

    def mark(self, kind: MarkKind, label: str, at: datetime | None = None) -> None:
        """Note something to see on the charts."""
        self.marks.append(Mark(at or self._moment, kind, label))

    # what the Governor did

    def mails(self, after: int = 0) -> list[Mail]:
        """Mails of the Governor to people, skipping the first `after`."""
        return [mail for mail in self._all_mails() if mail.subject.startswith("[Governor ")][after:]

    def alarm_mails(self) -> list[Mail]:
        """Mails of CloudWatch alarms on the Governor itself."""
        return [mail for mail in self._all_mails() if not mail.subject.startswith("[Governor ")]

    def _all_mails(self) -> list[Mail]:
        return [mail for mail in self.aws.mails() if mail.protocol == "email"]

    def severity_of(self, mail: Mail) -> str:
        """page, warn or info: by the topic it came from."""
        names = {"PageTopicArn": "page", "WarnTopicArn": "warn", "InfoTopicArn": "info"}
        return next(word for output, word in names.items() if self.deployed[output] == mail.topic_arn)

    def stop_calls(self) -> list[Call]:
        """Every call of a function that would stop or change an instance, whatever the answer."""
        changing = ("ec2:StopInstances", "ec2:TerminateInstances", "ec2:ModifyInstanceAttribute")
        return [call for call in self.aws.calls() if call.function and call.action in changing]

    def start_calls(self) -> list[Call]:
        """Every call of a function that starts instances, whatever the answer."""
        return [call for call in self.aws.calls() if call.function and call.action == "ec2:StartInstances"]

    def guard_runs(self) -> int:
        """How often guard_budget has run so far."""
        name = self.deployed["GuardBudgetFunctionName"]
        return sum(one.function == name for one in self.aws.deliveries())

    def decisions(self, begin: datetime, end: datetime) -> list[Decision]:
        """Every recorded decision between two days, in order."""
        found: list[Decision] = []
        day = begin.replace(hour=0, minute=0, second=0, microsecond=0)
        while day <= end:
            for record in self.store.query(f"day#{day:%Y-%m-%d}"):
                found.append(_DECISION.validate_python({**record.body, "messages": []}))
            day += timedelta(days=1)
        return found

    def settings_history(self) -> list[Record]:
        """Every accepted version of the settings, in order."""
        return self.store.query("settings", "version#")

    def rejection(self) -> Record | None:
        """The last rejection of the settings."""
        return self.store.get(Key("settings", "rejection"))

    def ledger(self) -> list[StopEntry]:
        """The stop ledger."""
        return [records.entry_of(record) for record in self.store.query(records.LEDGER)]

    def watch_ledger(self) -> None:
        """Note the status of each stop when it is seen for the first time; the ledger itself keeps the last."""
        for entry in self.ledger():
            self.ledger_seen.setdefault((entry.instance_id, entry.launched_at, entry.status.value), entry)


def boot_minutes(instance_type: str) -> float:
    """How long a start of this type takes in the demo."""
    return BOOT_MINUTES.get(instance_type, OTHER_BOOT_MINUTES)


def first_of_month_after(moment: datetime, *, days_before: int) -> datetime:
    """The first day of a month that lies at least `days_before` days after `moment`."""
    first = period_start(moment)
    while first - moment < timedelta(days=days_before):
        first = period_start(first + timedelta(days=32))
    return first.astimezone(UTC)


def _is_running(instance: Mapping[str, Any]) -> bool:
    return bool(instance["State"]["Name"] == "running")


def _shown(value: object) -> str:
    if isinstance(value, (set, frozenset, list, tuple)):
        parts: Sequence[str] = sorted(str(one) for one in value) if isinstance(value, (set, frozenset)) else [
            str(one) for one in value
        ]  # fmt: skip
        return ", ".join(parts) if parts else "none"
    return str(value)
