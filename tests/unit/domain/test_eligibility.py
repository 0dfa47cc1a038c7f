"""Who may be stopped, and how: one row a kind of instance."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from governor.domain.controls import Controls, Keep, Override
from governor.domain.decisions import StopMethod
from governor.domain.eligibility import Surroundings, groups_by_key, method_of, objection_to
from governor.domain.fleet import Group, Instance, InstanceKind, InstanceState, SpotKind, SpotRequest
from governor.domain.pause import Pause
from governor.domain.reasons import ReasonCode
from governor.domain.settings import BudgetSettings, GroupAction, Switch
from tests.builders import NOW, a_group, an_instance, some_settings

PERSISTENT = SpotRequest("sir-1", SpotKind.PERSISTENT, stoppable=True)
ONE_TIME = SpotRequest("sir-2", SpotKind.ONE_TIME)


def around(
    *members: Instance,
    settings: BudgetSettings | None = None,
    group: Group | None = None,
    controls: Controls | None = None,
    spent_usd: float | None = 900.0,
) -> Surroundings:
    return Surroundings(
        settings or some_settings(),
        controls or Controls(Pause(active=False)),
        NOW,
        spent_usd,
        groups_by_key([group] if group else []),
        {member.instance_id: member for member in members},
    )


def code_of(instance: Instance, surroundings: Surroundings | None = None) -> ReasonCode | None:
    reason = objection_to(instance, surroundings or around())
    return None if reason is None else reason.code


def a_member(instance_id: str = "i-0b", *, criticality: str = "standard", member_state: str = "InService") -> Instance:
    return an_instance(
        instance_id,
        criticality=criticality,
        kind=InstanceKind.GROUP_MEMBER,
        owner="workers",
        member_state=member_state,
    )


@pytest.mark.parametrize(
    ("instance", "code"),
    [
        (an_instance(), None),
        (an_instance(managed=None), ReasonCode.NOT_MANAGED),
        (an_instance(criticality="critical"), ReasonCode.CRITICAL),
        (an_instance(criticality=None), ReasonCode.CRITICAL),
        (an_instance(criticality="Standard"), ReasonCode.TAG_NOT_EXACT),
        (an_instance(state=InstanceState.STOPPED), ReasonCode.NOT_RUNNING),
        (an_instance(instance_type="g5.xlarge"), ReasonCode.OUT_OF_SCOPE_FAMILY),
        (an_instance(kind=InstanceKind.CLUSTER_MEMBER, owner="EKS node group a"), ReasonCode.OWNED_ELSEWHERE),
        (an_instance(kind=InstanceKind.CAPACITY_BLOCK), ReasonCode.SAVES_NOTHING),
        (an_instance(kind=InstanceKind.CAPACITY_RESERVATION, owner="cr-1"), ReasonCode.SAVES_NOTHING),
        (an_instance(kind=InstanceKind.DEDICATED), ReasonCode.SAVES_NOTHING),
        (an_instance(kind=InstanceKind.INSTANCE_STORE_ROOT), ReasonCode.CANNOT_STOP),
        (an_instance(kind=InstanceKind.UNKNOWN), ReasonCode.CANNOT_STOP),
        (an_instance(stop_protected=True), ReasonCode.STOP_PROTECTED),
        (an_instance(kind=InstanceKind.STOP_PROTECTED), ReasonCode.STOP_PROTECTED),
        (an_instance(kind=InstanceKind.SPOT), ReasonCode.SPOT_UNKNOWN),
        (an_instance(kind=InstanceKind.SPOT, spot=ONE_TIME), ReasonCode.SPOT_ONE_TIME),
        (an_instance(kind=InstanceKind.SPOT, spot=PERSISTENT), None),
        (
            an_instance(kind=InstanceKind.SPOT, spot=replace(PERSISTENT, stoppable=False)),
            ReasonCode.SPOT_UNKNOWN,
        ),
        (an_instance(launched_at=None), ReasonCode.NOT_RUNNING),
    ],
)
def test_each_kind_is_taken_or_left_for_its_reason(instance: Instance, code: ReasonCode | None) -> None:
    assert code_of(instance) is code


def test_a_plain_and_a_persistent_spot_instance_are_stopped() -> None:
    assert method_of(an_instance(), some_settings()) is StopMethod.STOP
    assert method_of(an_instance(kind=InstanceKind.SPOT, spot=PERSISTENT), some_settings()) is StopMethod.STOP


def test_one_time_spot_is_terminated_only_where_the_setting_says_so() -> None:
    spot = an_instance(kind=InstanceKind.SPOT, spot=ONE_TIME)
    allowed = some_settings(terminate_one_time_spot=Switch.ON)
    assert code_of(spot, around(settings=allowed)) is None
    assert method_of(spot, allowed) is StopMethod.CANCEL_AND_TERMINATE


def test_a_member_goes_through_standby_by_default() -> None:
    member = a_member()
    assert code_of(member, around(member, group=a_group(member))) is None
    assert method_of(member, some_settings()) is StopMethod.STANDBY_AND_STOP


def test_a_member_that_stands_in_standby_is_only_stopped() -> None:
    member = a_member(member_state="Standby")
    assert code_of(member, around(member, group=a_group(member))) is None
    assert method_of(member, some_settings()) is StopMethod.STOP


def test_lower_takes_members_out_and_report_leaves_them() -> None:
    member = a_member()
    lower, report = some_settings(group_action=GroupAction.LOWER), some_settings(group_action=GroupAction.REPORT)
    assert method_of(member, lower) is StopMethod.LOWER
    assert code_of(member, around(member, group=a_group(member), settings=report)) is ReasonCode.GROUP_REPORT


@pytest.mark.parametrize("criticality", ["critical", None])
def test_a_group_with_a_critical_member_is_critical(criticality: str | None) -> None:
    member = a_member()
    other = an_instance("i-0c", criticality=criticality, kind=InstanceKind.GROUP_MEMBER, owner="workers")
    assert code_of(member, around(member, other, group=a_group(member, other))) is ReasonCode.GROUP_CRITICAL


def test_a_group_with_a_member_of_which_nothing_is_known_is_critical() -> None:
    member, unseen = a_member(), a_member("i-0d")
    assert code_of(member, around(member, group=a_group(member, unseen))) is ReasonCode.GROUP_CRITICAL


def test_a_member_that_terminates_says_nothing_of_its_group() -> None:
    member, leaving = a_member(), a_member("i-0d", member_state="Terminating")
    assert code_of(member, around(member, group=a_group(member, leaving))) is None


@pytest.mark.parametrize("changes", [{"criticality": "critical"}, {"criticality": None}, {"managed": None}])
def test_a_group_whose_own_tags_iam_would_refuse_is_left(changes: dict[str, str | None]) -> None:
    member = a_member()
    group = a_group(member, **changes)  # type: ignore[arg-type]
    assert code_of(member, around(member, group=group)) is ReasonCode.GROUP_NOT_MANAGED


def test_a_group_that_scales_itself_is_left() -> None:
    member = a_member()
    group = a_group(member, scales_itself=("scaling policy cpu",))
    reason = objection_to(member, around(member, group=group))
    assert reason is not None
    assert reason.code is ReasonCode.GROUP_SCALES_ITSELF
    assert reason.fact("what") == "scaling policy cpu"


def test_a_group_that_could_not_be_read_is_left() -> None:
    assert code_of(a_member(), around()) is ReasonCode.GROUP_UNKNOWN


@pytest.mark.parametrize("state", ["Pending", "EnteringStandby", "Terminating:Wait", ""])
def test_a_member_on_its_way_is_looked_at_again(state: str) -> None:
    member = a_member(member_state=state)
    group = replace(a_group(member), members=((member.instance_id, state),))
    assert code_of(member, around(member, group=group)) is ReasonCode.MEMBER_NOT_IN_SERVICE


def test_a_spot_member_of_a_group_cannot_be_stopped_but_lowered() -> None:
    member = replace(a_member(), spot=ONE_TIME)
    group = a_group(member)
    assert code_of(member, around(member, group=group)) is ReasonCode.CANNOT_STOP
    lower = some_settings(group_action=GroupAction.LOWER)
    assert code_of(member, around(member, group=group, settings=lower)) is None


def test_tags_in_scope_leave_the_others() -> None:
    settings = some_settings(stop_tags=(("team", "render"), ("env", "dev")))
    plain = an_instance()
    tagged = replace(plain, tags=(*plain.tags, ("env", "dev")))
    assert code_of(plain, around(settings=settings)) is ReasonCode.OUT_OF_SCOPE_TAGS
    assert code_of(tagged, around(settings=settings)) is None


def test_a_keep_holds_until_its_time() -> None:
    kept = Controls(Pause(active=False), (Keep("i-0a", NOW + timedelta(minutes=1), "demo"),))
    over = Controls(Pause(active=False), (Keep("i-0a", NOW),))
    assert code_of(an_instance(), around(controls=kept)) is ReasonCode.KEPT
    assert code_of(an_instance(), around(controls=over)) is None


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("until 2026-11-20T12:01Z because demo", ReasonCode.KEPT),
        ("on", ReasonCode.KEPT),
        ("until 2026-11-20T12:00Z", None),
        ("", ReasonCode.KEEP_UNREADABLE),
        ("until tomorrow", ReasonCode.KEEP_UNREADABLE),
    ],
)
def test_a_keep_tag_holds_and_an_unreadable_one_too(text: str, code: ReasonCode | None) -> None:
    instance = an_instance(tags={"governor:managed": "test", "governor:criticality": "standard", "governor:keep": text})
    assert code_of(instance) is code


@pytest.mark.parametrize(
    ("override", "code"),
    [
        (Override("instance", "i-0a", until=NOW + timedelta(hours=1)), ReasonCode.OVERRIDDEN),
        (Override("instance", "i-0a", until=NOW), None),
        (Override("instance", "i-0a", up_to_usd=901), ReasonCode.OVERRIDDEN),
        (Override("instance", "i-0a", up_to_usd=900), None),
        (Override("project", "render", up_to_usd=1000), ReasonCode.OVERRIDDEN),
        (Override("project", "other", up_to_usd=1000), None),
        (Override("project", "", up_to_usd=1000), None),
    ],
)
def test_overrides_of_projects_and_instances_hold_until_their_end(override: Override, code: ReasonCode | None) -> None:
    tags = {"governor:managed": "test", "governor:criticality": "standard", "governor:project": "render"}
    controls = Controls(Pause(active=False), overrides=(override,))
    assert code_of(an_instance(tags=tags), around(controls=controls)) is code
