"""confirm_actions is cut off after the effect of every AWS call that changes something, and the event comes again.

Rule 10: at-least-once is assumed. The end state and the messages equal the life without a crash. What comes back: a
plain machine, a spot one, one whose key is refused at first, a group of two out of standby with its MinSize, and the
places of another group.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import boto3
import pytest
from botocore.config import Config

from governor.aws.ec2_actions import Ec2Actions
from governor.aws.ec2_fleet import Ec2Fleet
from governor.aws.parameter_store import ControlParameters
from governor.aws.state_table import DynamoDbStateTable
from governor.domain.groups import GroupHold
from governor.domain.ledger import StopEntry, StopStatus
from governor.domain.settings import Settings, as_texts
from governor.domain.tags import TagKeys
from governor.ports import Key, Record
from governor.shell import records
from governor.shell.confirm_actions import ConfirmDeps
from lambdas.confirm_actions.handler import handler
from local.client import LocalAws, local_aws
from local.options import ACCESS_KEY_ID, SECRET_ACCESS_KEY
from local.starts import key_denied
from stacks.permissions import handler_actions
from tests.builders import STAGE, some_settings
from tests.contract.crashing import Calls, Crash, crash_points
from tests.contract.fleet_worlds import REGION, LocalWorld

TABLE = "state"
FIRST = datetime(2027, 1, 20, 12, tzinfo=UTC)
STOPPED_AT = FIRST - timedelta(hours=3)
ALICE = "arn:aws:sts::123456789012:assumed-role/Operator/alice"
EVENTS = (FIRST, FIRST + timedelta(minutes=5), FIRST + timedelta(minutes=10))
_DIGEST = re.compile(r"#[0-9a-f]{12}\b")
"""End of a key that is made of instance ids, which are new in each life."""


class Stage:
    """A local AWS with a table, and watched clients for the function; each life begins anew."""

    def __init__(self, aws: LocalAws) -> None:
        self.aws = aws
        self.calls = Calls()
        self.table = aws.client("dynamodb")
        self.table.create_table(
            TableName=TABLE,
            KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}, {"AttributeName": "sk", "KeyType": "RANGE"}],
            AttributeDefinitions=[{"AttributeName": n, "AttributeType": "S"} for n in ("pk", "sk")],
            BillingMode="PAY_PER_REQUEST",
        )
        pause = f"/governor/{STAGE}/control/pause"
        aws.client("ssm").put_parameter(Name=pause, Value="off", Type="String")
        ec2, groups = self._watched("ec2"), self._watched("autoscaling")
        self.deps = ConfirmDeps(
            stage=STAGE,
            home_region=REGION,
            budget_name="gpu",
            store=DynamoDbStateTable(self._watched("dynamodb"), TABLE),
            fleet=Ec2Fleet([REGION], lambda region: ec2, lambda region: groups, TagKeys(), STAGE),
            actions=Ec2Actions(lambda region: ec2, lambda region: groups),
            controls=ControlParameters(self._watched("ssm"), STAGE),
            clock=lambda: FIRST,
            sleep=lambda seconds: None,
        )

    def _watched(self, service: str) -> Any:
        """A client of the function's own, apart from the test's."""
        client = boto3.client(
            service,
            endpoint_url=self.aws.endpoint.url,
            region_name=REGION,
            aws_access_key_id=ACCESS_KEY_ID,
            aws_secret_access_key=SECRET_ACCESS_KEY,
            config=Config(retries={"total_max_attempts": 1, "mode": "standard"}),
        )
        client.meta.events.register("before-call", lambda **event: self.calls.before(**event))
        return client

    def live(self, calls: Calls) -> Life:
        """Each event is delivered until it is through; the platform delivers it again after a crash."""
        self.calls = calls
        life = Life(self)
        for at in EVENTS:
            self.aws.set_clock(at)
            event = {"source": "governor.schedule", "time": at.isoformat()}
            calls.armed = True
            try:
                handler(event, None, self.deps)
                if at == EVENTS[-1]:
                    calls.die_if_due(ended=True)
            except Crash:
                handler(event, None, self.deps)
            calls.armed = False
            self.aws.advance(timedelta(minutes=2))
        return life


class Life:
    """A world in which everything was stopped and is asked for; its end, with ids replaced by what they are."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self._forget()
        self.world = LocalWorld(stage.aws)
        stage.aws.set_clock(STOPPED_AT)
        plain, spot, locked = self.world.launch(), self.world.launch(spot="persistent"), self.world.launch()
        self.key = self.world.encrypt(locked)
        first, second = self.world.launch_group("workers", (1, 2, 3))
        out, stays = self.world.launch_group("others", (1, 2, 3))
        self.roles = dict(zip((plain, spot, locked, first, second, out, stays), ROLES, strict=True))
        launched = {one: self.world.fleet.look_again(REGION, [one])[one].launched_at for one in self.roles}
        actions = self.world.actions
        stage.aws.set_clock(STOPPED_AT + timedelta(minutes=30))
        assert actions.set_group_size(REGION, "workers", min_size=0).accepted
        assert all(a.accepted for a in actions.enter_standby(REGION, "workers", [first, second]))
        assert all(a.accepted for a in actions.stop(REGION, [plain, spot, locked, first, second]))
        assert actions.lower(REGION, "others", out).accepted
        stage.aws.set_starts(key_denied(locked, count=1))
        store = DynamoDbStateTable(stage.table, TABLE)
        values = as_texts(Settings(budget=some_settings()))
        settings = {"version": 1, "read_at": FIRST.isoformat(), "schema": "", "values": values, "edits": {}}
        entries = []
        for one, group, method in (
            (plain, "", "stop"),
            (spot, "", "stop"),
            (locked, "", "stop"),
            (first, "workers", "standby-and-stop"),
            (second, "workers", "standby-and-stop"),
            (out, "others", "lower"),
        ):
            moment = launched[one]
            assert moment is not None
            entries.append(asked_for(one, moment, group, method))
        holds = (a_hold("workers", 1, 2, 0, 0), a_hold("others", 1, 2, 1, 1))
        store.put_all(
            [
                Record(Key("settings", "current"), settings),
                *(records.ledger_record(entry) for entry in entries),
                *(records.group_hold_record(hold) for hold in holds),
            ]
        )

    def _forget(self) -> None:
        """Empty the table but for the lease, whose fence may only rise."""
        for item in self.stage.table.scan(TableName=TABLE)["Items"]:
            self.stage.table.delete_item(TableName=TABLE, Key={name: item[name] for name in ("pk", "sk")})

    def end(self) -> dict[str, Any]:
        """Machines and groups by role, and every record but the lease."""
        ids = list(self.roles)
        seen = self.world.fleet.look_again(REGION, ids, protection=False)
        groups = self.world.fleet.look_at_groups(REGION, ["workers", "others"])
        machines = {self.roles[one]: (i.state.value, i.member_state) for one, i in seen.items()}
        sizes = {name: (g.min_size, g.desired, len(g.members)) for name, g in groups.items()}
        stored = {}
        for item in self.stage.table.scan(TableName=TABLE)["Items"]:
            pk, sk = item["pk"]["S"], item["sk"]["S"]
            if not pk.startswith("lease#"):
                stored[self._named(f"{pk} {sk}")] = without_moments(json.loads(self._named(item["body"]["S"])))
        return {"machines": machines, "groups": sizes, "records": dict(sorted(stored.items()))}

    def _named(self, text: str) -> str:
        for one, role in self.roles.items():
            text = text.replace(one, role)
        return _DIGEST.sub("#digest", text.replace(self.key, "the-key"))


ROLES = ("plain", "spot", "locked", "member-1", "member-2", "taken-out", "stays")


def asked_for(instance_id: str, launched_at: datetime, group: str, method: str) -> StopEntry:
    """A stop of ours that Alice wants back."""
    return StopEntry(
        instance_id=instance_id,
        region=REGION,
        reason="budget",
        launched_at=launched_at,
        rule="2027-01 stop at 95% of 1000",
        decided_at=STOPPED_AT,
        decision_id="guard_budget@stop",
        status=StopStatus.RESTORING,
        updated_at=FIRST,
        instance_type="g4dn.xlarge",
        usd_per_hour=0.526,
        accepted_at=STOPPED_AT,
        method=method,
        group=group,
        standby_by_us=method == "standby-and-stop",
        criticality="standard",
        restore_asked_at=FIRST - timedelta(minutes=1),
        restore_asked_by=ALICE,
        restore_decision_id="guard_budget@restore",
        next_start_at=FIRST - timedelta(minutes=1),
    )


def a_hold(name: str, min_before: int, desired_before: int, min_set: int, desired: int) -> GroupHold:
    """What we changed of a group when we stopped its members."""
    return GroupHold(
        name, REGION, min_before, desired_before, min_set, desired, STOPPED_AT, STOPPED_AT, "guard_budget@stop"
    )


def without_moments(body: Any) -> Any:
    """When an answer was noted or a machine was launched may differ by a run; that it was may not."""
    if isinstance(body, dict):
        for name in ("updated_at", "start_accepted_at", "start_tried_at", "restored_at", "restored_launched_at"):
            body.pop(name, None)
        if "subject" in body:
            body["body"] = sorted(
                body["body"].splitlines()
            )  # lists are in the order of ids, which are new in each life
        if "detail" in body and isinstance(body["detail"], dict):
            without_moments(body["detail"])
    return body


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    with local_aws(seed=20270120) as aws:
        yield Stage(aws)


@pytest.fixture(scope="module")
def unharmed(stage: Stage) -> tuple[dict[str, Any], list[str]]:
    calls = Calls()
    life = stage.live(calls)
    return life.end(), calls.made


def facts_told(end: dict[str, Any]) -> list[str]:
    mails = [key for key in end["records"] if key.startswith("message#") and key.endswith(" mail")]
    return sorted(key.split("#")[3] for key in mails)


def test_the_life_without_a_crash_brings_everything_back(unharmed: tuple[dict[str, Any], list[str]]) -> None:
    end, made = unharmed
    assert end["machines"] == {
        "plain": ("running", ""),
        "spot": ("running", ""),
        "locked": ("running", ""),
        "member-1": ("running", "InService"),
        "member-2": ("running", "InService"),
        "taken-out": ("terminated", ""),
        "stays": ("running", "InService"),
    }
    assert end["groups"] == {"workers": (1, 2, 2), "others": (1, 2, 2)}
    statuses = {
        body["instance_id"]: body["status"] for key, body in end["records"].items() if key.startswith("ledger ")
    }
    assert set(statuses.values()) == {"restored"}
    assert [body["open"] for key, body in end["records"].items() if key.startswith("ledger-group")] == [False, False]
    assert facts_told(end) == ["restores-seen", "start-refused"]
    refused = next(body for key, body in end["records"].items() if "#start-refused#" in key and key.endswith(" mail"))
    assert "  the-key" in refused["body"]
    assert {"ec2:StartInstances", "autoscaling:ExitStandby", "autoscaling:UpdateAutoScalingGroup"} <= set(made)


@pytest.mark.timeout(600)
def test_a_crash_at_any_call_and_a_retry_end_in_the_same_state_with_the_same_messages(
    stage: Stage, unharmed: tuple[dict[str, Any], list[str]]
) -> None:
    expected, made = unharmed
    points = crash_points(made)
    assert points[-1] == len(made) + 1, "the last call gives the lease back"
    assert {made[number - 2] for number in points[1:]} >= {
        "ec2:StartInstances",
        "autoscaling:ExitStandby",
        "autoscaling:UpdateAutoScalingGroup",
    }
    for number in points:
        end = stage.live(Calls(number)).end()
        where = f"before call {number} of {len(made)}, after {made[number - 2]}"
        assert end["machines"] == expected["machines"], where
        assert end["groups"] == expected["groups"], where
        assert list(end["records"]) == list(expected["records"]), where
        for key, body in expected["records"].items():
            assert end["records"][key] == body, f"{where}: {key}"


# What a call is to IAM where the name of the call is not the name of the action.
IAM_ACTIONS = {"dynamodb:TransactWriteItems": {"dynamodb:ConditionCheckItem", "dynamodb:PutItem"}}


def test_the_calls_that_confirm_actions_makes_are_exactly_what_its_role_grants(
    unharmed: tuple[dict[str, Any], list[str]],
) -> None:
    _, made = unharmed
    used = {action for call in made for action in IAM_ACTIONS.get(call, {call})}
    assert used == handler_actions("confirm_actions")
