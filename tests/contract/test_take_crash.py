"""Taking in and giving back is cut off after every AWS call that changes something, and the command is given again.

The end state equals that of the run without a crash. A command that dies after a read leaves behind what one that died
before it does, so each stretch of reads is cut once. What AWS and our functions do for a call is not cut off.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from governor.aws.clients import client
from governor.domain.taken import TAG_WHY, adopt_why
from governor.ports import Key
from governor.shell.records import LEDGER, entry_of
from governor.shell.taken import load_taken
from tests.unit.cli.world import HOME, TABLE, World, a_world

MANAGED, POOL = "governor:managed", "governor:pool"
ADOPT = ("adopt", "workers", "--pool", "research", "--suspend", "--yes")
UNADOPT = ("unadopt", "workers", "--yes")
RETIRE = ("retire", "--apply", "--yes")
READS = ("BatchGet", "Describe", "Get", "List", "Query")
SERVED = ("lambda.Invoke", "ssm.PutParameter")
"""What AWS answers by running our functions."""


class Crash(BaseException):
    """The process died here."""


class Calls(list[str]):
    """The calls of one command; dies before one of them: after the effect of the one before."""

    def __init__(self) -> None:
        super().__init__()
        self.armed = False
        self.die_at: int | None = None

    def append(self, call: str) -> None:
        """Note a call of the command."""
        if not self.armed:
            return
        super().append(call)
        if self.die_at == len(self):
            self.armed, self.die_at = False, None
            raise Crash(call)


@dataclass
class Stage:
    """A deployed stage with machines, a group, a file of tags for more places than one batch takes, and a small one."""

    world: World
    calls: Calls
    file: str
    small_file: str
    plain: str

    def run(self, *arguments: str, die_at: int | None = None) -> list[str]:
        """Give a command, again after a crash. The calls of the first try."""
        self.calls.clear()
        self.calls.armed, self.calls.die_at = True, die_at
        try:
            self._give(arguments)
            assert die_at is None, f"it made {len(self.calls)} calls"
            return list(self.calls)
        except Crash:
            self._give(arguments)
        finally:
            self.calls.armed, self.calls.die_at = False, None
        return []

    def _give(self, arguments: Sequence[str]) -> None:
        result = self.world.governor(*arguments)
        assert result.exit_code == 0, result.output

    def state(self) -> dict[str, Any]:
        """Tags, processes and sizes by resource, what is recorded, parameters, and whether the stage is retired."""
        found: dict[str, Any] = {}
        for reservation in client("ec2", HOME).describe_instances()["Reservations"]:
            for item in reservation["Instances"]:
                tags = {tag["Key"]: tag["Value"] for tag in item.get("Tags", [])}
                if item["State"]["Name"] != "terminated":
                    found[item["InstanceId"]] = (tags, item["State"]["Name"])
        (group,) = client("autoscaling", HOME).describe_auto_scaling_groups()["AutoScalingGroups"]
        found["tags"] = {tag["Key"]: (tag["Value"], tag["PropagateAtLaunch"]) for tag in group["Tags"]}
        found["processes"] = sorted(process["ProcessName"] for process in group["SuspendedProcesses"])
        found["sizes"] = (group["MinSize"], group["DesiredCapacity"], group["MaxSize"])
        found["members"] = {one["InstanceId"]: one["LifecycleState"] for one in group["Instances"]}
        found["taken"] = {
            place: [(one.before, one.after, one.why, one.propagated, one.members) for one in taken.layers]
            for place, taken in load_taken(self.world.store()).items()
            if taken.layers
        }
        entries = [entry_of(record) for record in self.world.store().query(LEDGER)]
        found["ledger"] = sorted((entry.instance_id, entry.status.value) for entry in entries)
        pages = client("ssm", HOME).get_paginator("get_parameters_by_path").paginate(Path="/", Recursive=True)
        found["parameters"] = sorted((one["Name"], one["Value"]) for page in pages for one in page["Parameters"])
        found["retired"] = self.world.store().get(Key("retired", "retired")) is not None
        return found

    def begin(self) -> None:
        """The stage as it was deployed: no records, parameters as seeded, everything runs and is as it was."""
        table = client("dynamodb", HOME)
        for item in table.scan(TableName=TABLE)["Items"]:
            table.delete_item(TableName=TABLE, Key={key: item[key] for key in ("pk", "sk")})
        ssm = client("ssm", HOME)
        pages = ssm.get_paginator("describe_parameters").paginate()
        for name in [one["Name"] for page in pages for one in page["Parameters"]]:
            ssm.delete_parameter(Name=name)
        follow = self.world.answers.pop("ssm.PutParameter")
        self.world.seed(mode="enforce")
        self.world.answers["ssm.PutParameter"] = follow
        self.world.check()
        self.world.spend(0.0)

    def take_in(self) -> None:
        """A tagged machine and an adopted group, an edited setting, and all of it stopped by the guard."""
        self.begin()
        for arguments in (("tag", "--plan", self.small_file, "--apply", "--yes"), ADOPT):
            self._give(arguments)
        self._give(("settings", "set", "budget/warn-percent", "60"))
        self.world.spend(960.0)
        self.world.guard()
        self.world.confirm()


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with a_world() as world, pytest.MonkeyPatch.context() as patch:
        patch.setattr("cli.returning.POLL_SECONDS", 0.01)
        world.deploy(mode="enforce")
        world.connect_functions()
        world.calls = calls = Calls()
        follow_edits(world)
        keep_functions_whole(world, calls)
        machines = [world.launch("t3.micro", None, None) for _ in range(8)]
        plain = world.launch(managed=None)
        world.launch_group(size=1, tags={"team": ("vision", True), POOL: ("old", False)})
        folder = tmp_path_factory.mktemp("crash")
        for name, ids in (("all", [*machines, plain]), ("small", [plain])):
            (folder / name).write_text(a_table(ids), encoding="utf-8")
        yield Stage(world, calls, str(folder / "all"), str(folder / "small"), plain)


def a_table(ids: Sequence[str]) -> str:
    rows = [f"{one},{HOME},{key}" for one in ids for key in (f"{MANAGED},dev", f"{POOL},a", "governor:project,b")]
    return "\n".join(["resource,region,key,value", *rows, ""])


def follow_edits(world: World) -> None:
    """Every edit of a parameter wakes check_settings, as the event bus does."""

    def put(region: str, params: Any) -> Any:
        mine = world.answers.pop("ssm.PutParameter")
        try:
            answer = client("ssm", region).put_parameter(**params)
            world.check()
        finally:
            world.answers["ssm.PutParameter"] = mine
        return answer

    world.answers["ssm.PutParameter"] = put


def keep_functions_whole(world: World, calls: Calls) -> None:
    """The calls of our functions are not those of the command."""

    def wrap(served: Any) -> Any:
        def serve(region: str, params: Any) -> Any:
            armed, calls.armed = calls.armed, False
            try:
                return served(region, params)
            finally:
                calls.armed = armed

        return serve

    for name in SERVED:
        world.answers[name] = wrap(world.answers[name])


def crash_points(made: Sequence[str]) -> list[int]:
    """Numbers of the calls that follow a change; one that changes something last is repeated whole."""
    changes = [number for number, call in enumerate(made, 1) if not call.partition(".")[2].startswith(READS)]
    return [number + 1 for number in changes if number < len(made)]


def changes(made: Sequence[str]) -> list[str]:
    return [call for call in made if not call.partition(".")[2].startswith(READS)]


def test_tags_that_are_set_and_put_back_with_a_crash_at_any_call_end_as_without_one(stage: Stage) -> None:
    stage.begin()
    apply = ("tag", "--plan", stage.file, "--apply", "--yes")
    revert = ("tag", "--revert", "--yes")
    before = stage.state()
    set_calls = stage.run(*apply)
    assert changes(set_calls).count("dynamodb.TransactWriteItems") == 2, "two batches"
    tagged = stage.state()
    assert {layer[2] for layers in tagged["taken"].values() for layer in layers} == {TAG_WHY}
    back_calls = stage.run(*revert)
    assert stage.state() == before
    for point in crash_points(set_calls):
        stage.run(*apply, die_at=point)
        assert stage.state() == tagged, f"set, call {point}, {set_calls[point - 1]}"
        stage.run(*revert)
        assert stage.state() == before, f"put back after call {point}, {set_calls[point - 1]}"
    for point in crash_points(back_calls):
        stage.run(*apply)
        stage.run(*revert, die_at=point)
        assert stage.state() == before, f"put back, call {point}, {back_calls[point - 1]}"


def test_tags_that_were_cut_off_halfway_can_be_put_back_at_once(stage: Stage) -> None:
    stage.begin()
    apply = ("tag", "--plan", stage.file, "--apply", "--yes")
    before = stage.state()
    made = stage.run(*apply)
    stage.run("tag", "--revert", "--yes")
    for point in crash_points(made):
        stage.calls.clear()
        stage.calls.armed, stage.calls.die_at = True, point
        with pytest.raises(Crash):
            stage.world.governor(*apply)
        stage.run("tag", "--revert", "--yes")
        assert stage.state() == before, f"call {point}, {made[point - 1]}"


def test_an_adoption_with_a_crash_at_any_call_and_its_way_back_end_as_without_one(stage: Stage) -> None:
    stage.begin()
    before = stage.state()
    made = stage.run(*ADOPT)
    assert len(changes(made)) == 4, changes(made)
    adopted = stage.state()
    assert {layer[2] for layers in adopted["taken"].values() for layer in layers} == {adopt_why(HOME, "workers")}
    stage.run(*UNADOPT)
    assert stage.state() == before
    for point in crash_points(made):
        stage.run(*ADOPT, die_at=point)
        assert stage.state() == adopted, f"call {point}, {made[point - 1]}"
        stage.run(*UNADOPT)
        assert stage.state() == before, f"back after call {point}, {made[point - 1]}"


def test_a_way_back_of_a_group_with_a_crash_at_any_call_ends_as_without_one_for_a_later_member_too(
    stage: Stage,
) -> None:
    stage.begin()
    before = stage.state()
    made: list[str] = []
    for point in (None, *range(100)):
        if point is not None and point not in crash_points(made):
            continue
        late = adopt_and_grow(stage)
        calls = stage.run(*UNADOPT, die_at=point)
        made = made or calls
        where = f"call {point}, {made[point - 1]}" if point else "no crash"
        after = stage.state()
        tags, _ = after[late]
        assert {key: value for key, value in tags.items() if not key.startswith("aws:")} == {"team": "vision"}, where
        assert after["taken"] == {}, where
        shrink(late)
        assert stage.state() == before, where
    assert len(crash_points(made)) >= 4, changes(made)


def adopt_and_grow(stage: Stage) -> str:
    """Adopt the group, and let it launch one more member; its id."""
    old = set(stage.world.members())
    stage.run(*ADOPT)
    client("autoscaling", HOME).set_desired_capacity(AutoScalingGroupName="workers", DesiredCapacity=len(old) + 1)
    (late,) = set(stage.world.members()) - old
    return late


def shrink(member: str) -> None:
    client("autoscaling", HOME).terminate_instance_in_auto_scaling_group(
        InstanceId=member, ShouldDecrementDesiredCapacity=True
    )


def test_a_retirement_with_a_crash_at_any_call_ends_as_without_one(stage: Stage) -> None:
    stage.begin()
    before = stage.state()
    stage.take_in()
    stopped = stage.state()
    away = [stage.plain, *stage.world.members()]
    assert {stopped[one][1] for one in away} == {status for _, status in stopped["ledger"]} == {"stopped"}
    assert set(stopped["members"].values()) == {"Standby"}
    made = stage.run(*RETIRE)
    retired = stage.state()
    untouched = {key: value for key, value in before.items() if key not in ("ledger", "parameters", "retired")}
    assert {key: retired[key] for key in untouched} == untouched
    assert (retired["parameters"], retired["retired"]) == ([], True)
    assert {status for _, status in retired["ledger"]} == {"restored"}
    points = crash_points(made)
    assert {made[point - 2] for point in points} >= {*SERVED, "autoscaling.ResumeProcesses", "ssm.DeleteParameters"}
    for point in points:
        stage.take_in()
        stage.run(*RETIRE, die_at=point)
        assert stage.state() == retired, f"call {point}, {made[point - 1]}"
    stage.run(*RETIRE)
    assert stage.state() == retired, "given once more"
