"""The way back: what may come back, what does by itself, in which order and how far, and what people are told of it."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from governor.domain.budget import GuardPlan, decide
from governor.domain.budget_snapshot import BudgetSnapshot, GuardState, RestoreRequest
from governor.domain.controls import Controls
from governor.domain.decisions import Message, Severity
from governor.domain.fleet import Group, Instance, InstanceKind, InstanceState
from governor.domain.groups import GroupHold, change_by_others, held_members, lowered_members
from governor.domain.ledger import StopEntry, StopStatus, follow_up, start_failed
from governor.domain.meter import hours_left
from governor.domain.outcomes import OutcomeScene, follow_ledger, tell_outcomes
from governor.domain.pause import Pause
from governor.domain.reasons import ReasonCode
from governor.domain.restorable import RestoreView, objection_to_restore, objection_to_start, order_of_return
from governor.domain.settings import BudgetSettings, Mode, RestoreAtPeriod, RestoreSettings
from governor.domain.start_messages import start_refused
from governor.domain.starts import StartScene, StartSteps, next_steps
from tests.builders import STAGE, a_group, a_snapshot, an_instance, some_settings

REGION = "eu-west-1"
ALICE = "arn:aws:sts::123456789012:assumed-role/Operator/alice"
AT = datetime(2026, 12, 27, 20, 0, tzinfo=UTC)
"""100 hours before the end of its month."""
LAUNCHED = datetime(2026, 11, 1, tzinfo=UTC)
MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
NOVEMBER = "2026-11 stop at 95% of 1000"
TODAY = "2026-12 stop at 95% of 1000"
LOWER_LIMIT = "2026-12 stop at 95% of 500"
BY_USER = "Client.UserInitiatedShutdown: User initiated shutdown"


def ours(
    instance_id: str,
    status: StopStatus = StopStatus.STOPPED,
    *,
    rule: str = NOVEMBER,
    rate: float | None = 1.0,
    criticality: str = "standard",
    instance_type: str = "g4dn.xlarge",
    launched_at: datetime = LAUNCHED,
    asked_by: str = "",
    asked_at: datetime | None = None,
    **changes: object,
) -> StopEntry:
    """What we stopped in November for the budget, unless said otherwise."""
    at = datetime(2026, 11, 20, tzinfo=UTC) if rule == NOVEMBER else AT - 5 * DAY
    entry = StopEntry(
        instance_id=instance_id,
        region=REGION,
        reason="budget",
        launched_at=launched_at,
        rule=rule,
        decided_at=at,
        decision_id=f"guard_budget@{at.isoformat()}",
        status=status,
        updated_at=at,
        instance_type=instance_type,
        usd_per_hour=rate,
        accepted_at=at,
        criticality=criticality,
        restore_asked_by=asked_by,
        restore_asked_at=asked_at or (AT - MINUTE if asked_by else None),
        restore_decision_id="earlier" if asked_by else "",
    )
    return replace(entry, **changes)  # type: ignore[arg-type]


def asleep(entry: StopEntry, **changes: object) -> Instance:
    """The machine of an entry as we left it."""
    instance = an_instance(
        entry.instance_id,
        criticality=entry.criticality,
        instance_type=entry.instance_type,
        state=InstanceState.STOPPED,
        launched_at=entry.launched_at,
    )
    return replace(instance, **changes)  # type: ignore[arg-type]


def snapshot_of(
    *ledger: StopEntry,
    fleet: tuple[Instance, ...] | None = None,
    spent: float | None = 100.0,
    most: int = 10,
    request: RestoreRequest | None = None,
    other_reasons: dict[str, frozenset[str]] | None = None,
    pause: Pause | None = None,
    state: GuardState | None = None,
) -> BudgetSnapshot:
    """The budget says `spent`; nothing runs, so that is the upper forecast as well."""
    return a_snapshot(
        *(tuple(asleep(entry) for entry in ledger) if fleet is None else fleet),
        spent=spent,
        ledger=ledger,
        restore_settings=RestoreSettings(max_starts_per_run=most),
        request=request,
        other_reasons=other_reasons or {},
        pause=pause,
        state=state,
    )


def policy(which: RestoreAtPeriod, **changes: object) -> BudgetSettings:
    return some_settings(restore_at_period=which, **changes)


ALL = policy(RestoreAtPeriod.ALL)
PROPOSE = policy(RestoreAtPeriod.PROPOSE)
FIRST = policy(RestoreAtPeriod.CRITICAL_FIRST)


def starting(plan: GuardPlan) -> list[str]:
    return [restore.instance_id for restore in plan.decision.restores]


def told(plan: GuardPlan, fact: str) -> list[Message]:
    """Messages of a kind of fact."""
    return [message for message in plan.decision.messages if fact in message.key.split("#")]


def proposal(plan: GuardPlan) -> Message:
    """The one message about what may come back."""
    (message,) = [m for m in plan.decision.messages if "#restore-proposed#" in m.key or "#restore-refused#" in m.key]
    return message


def why_not(plan: GuardPlan, instance_id: str) -> str:
    """The line about an instance that is not proposed."""
    (line,) = [x for x in proposal(plan).body.splitlines() if x.startswith(f"  {instance_id}") and "/h - " in x]
    return line.partition("/h - ")[2]


# --- The policy -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("rule", "asked_by"), [(NOVEMBER, "period 2026-12"), (LOWER_LIMIT, "limit")])
def test_all_starts_everything_in_a_new_month_and_at_a_raised_limit(rule: str, asked_by: str) -> None:
    ledger = (ours("i-0a", rule=rule), ours("i-0b", rule=rule, criticality="preemptible"))
    plan = decide(snapshot_of(*ledger), ALL, AT)
    assert starting(plan) == ["i-0a", "i-0b"]
    assert {restore.asked_by for restore in plan.decision.restores} == {asked_by}
    assert {(e.instance_id, e.status, e.restore_asked_by) for e in plan.ledger} == {
        ("i-0a", StopStatus.RESTORING, asked_by),
        ("i-0b", StopStatus.RESTORING, asked_by),
    }
    assert [m.severity for m in told(plan, "restoring")] == [Severity.INFO]
    assert told(plan, "restore-proposed") == []


@pytest.mark.parametrize("rule", [NOVEMBER, LOWER_LIMIT])
def test_critical_first_starts_the_standard_ones_and_proposes_the_others(rule: str) -> None:
    ledger = (ours("i-0a", rule=rule, criticality="preemptible"), ours("i-0b", rule=rule))
    plan = decide(snapshot_of(*ledger), FIRST, AT)
    assert starting(plan) == ["i-0b"]
    body = proposal(plan).body
    assert "  governor restore i-0a --stage test" in body.splitlines()
    assert "1 instance is started by the Governor. The others are not started unless you do it" in body


@pytest.mark.parametrize("rule", [NOVEMBER, LOWER_LIMIT])
def test_propose_starts_nothing_and_names_one_command_with_its_cost(rule: str) -> None:
    ledger = (ours("i-0a", rule=rule), ours("i-0b", rule=rule, rate=0.5))
    plan = decide(snapshot_of(*ledger), PROPOSE, AT)
    assert starting(plan) == []
    assert plan.ledger == ()
    message = proposal(plan)
    assert message.severity is Severity.WARN
    assert message.subject == "[Governor test] 2 instances can come back, $1.50/h"
    # 100 spent, and 1.50 an hour for the 100 hours that are left.
    assert "$1.50/h; the month would then end at $250.00 at most:" in message.body
    commands = [line.strip() for line in message.body.splitlines() if line.startswith("  governor restore")]
    assert commands == ["governor restore --all --stage test"]


def test_where_not_everything_fits_the_command_names_what_does_and_why_the_rest_does_not() -> None:
    ledger = (ours("i-0a", rate=8.0), ours("i-0b", rate=2.0, criticality="preemptible"))
    plan = decide(snapshot_of(*ledger), PROPOSE, AT)
    assert "  governor restore i-0a --stage test" in proposal(plan).body.splitlines()
    assert why_not(plan, "i-0b") == "with it the month would end at 1100.00 USD, above the limit of 1000 USD"


def test_the_proposal_is_one_fact_a_month_and_limit() -> None:
    snapshot = snapshot_of(ours("i-0a"))
    key = proposal(decide(snapshot, PROPOSE, AT)).key
    assert proposal(decide(snapshot, PROPOSE, AT + HOUR)).key == key
    assert proposal(decide(replace(snapshot, ledger=(ours("i-0a"), ours("i-0b"))), PROPOSE, AT)).key == key
    assert proposal(decide(snapshot, PROPOSE, AT + 10 * DAY)).key != key
    assert proposal(decide(snapshot, policy(RestoreAtPeriod.PROPOSE, limit_usd=2000.0), AT)).key != key


def test_a_figure_that_falls_below_the_level_of_the_same_month_and_limit_brings_nothing_back() -> None:
    plan = decide(snapshot_of(ours("i-0a", rule=TODAY)), ALL, AT)
    assert starting(plan) == []
    assert plan.decision.messages == ()


@pytest.mark.parametrize(
    ("settings_", "spent", "pause"),
    [
        (policy(RestoreAtPeriod.ALL, mode=Mode.OBSERVE), 100.0, None),
        (policy(RestoreAtPeriod.ALL, mode=Mode.OFF), 100.0, None),
        (ALL, 960.0, None),
        (ALL, None, None),
        (ALL, 100.0, Pause(active=True, reason="audit")),
        (ALL, 100.0, Pause(active=True, readable=False)),
    ],
)
def test_nothing_comes_back_by_itself_unarmed_paused_at_the_level_or_without_a_figure(
    settings_: BudgetSettings, spent: float | None, pause: Pause | None
) -> None:
    plan = decide(snapshot_of(ours("i-0a"), spent=spent, pause=pause), settings_, AT)
    assert starting(plan) == []
    assert told(plan, "restore-proposed") == told(plan, "restore-refused") == []


def test_what_does_not_fit_is_passed_over_for_its_equals_and_for_nobody_less_critical() -> None:
    ledger = (
        ours("i-0a", rate=9.5),
        ours("i-0b", rate=3.0),
        ours("i-0c", rate=0.5, criticality="preemptible"),
    )
    plan = decide(snapshot_of(*ledger), ALL, AT)
    assert starting(plan) == ["i-0b"]
    assert why_not(plan, "i-0a") == "with it the month would end at 1050.00 USD, above the limit of 1000 USD"
    assert why_not(plan, "i-0c") == "i-0a is more critical and does not fit under the limit yet"


def test_one_without_a_price_holds_up_nobody() -> None:
    ledger = (ours("i-0a", rate=None), ours("i-0b", criticality="preemptible"))
    assert starting(decide(snapshot_of(*ledger), ALL, AT)) == ["i-0b"]


@pytest.mark.parametrize(
    ("other", "command"),
    [
        (ours("i-0b", StopStatus.GAVE_UP), "i-0a"),
        (ours("i-0b", rule=TODAY), "i-0a"),
        (ours("i-0b", StopStatus.RESTORED), "--all"),
    ],
)
def test_the_command_says_all_only_where_that_starts_what_is_proposed_and_no_other(
    other: StopEntry, command: str
) -> None:
    plan = decide(snapshot_of(ours("i-0a"), other), PROPOSE, AT)
    assert f"  governor restore {command} --stage test" in proposal(plan).body.splitlines()
    asked = RestoreRequest(ALICE, everything=True)
    assert starting(decide(snapshot_of(ours("i-0a"), other, request=asked), PROPOSE, AT)) == (
        ["i-0a"] if command == "--all" else ["i-0a", "i-0b"]
    )


@pytest.mark.parametrize(("limit", "starts"), [(900.0, ["i-0c"]), (899.99, [])])
def test_it_stops_where_the_upper_forecast_would_pass_the_limit(limit: float, starts: list[str]) -> None:
    # 600 spent, 100 hours left, 2 USD/h on their way back already, and 1 USD/h for this one.
    ledger = (ours("i-0b", StopStatus.RESTORING, asked_by="limit", rate=2.0), ours("i-0c", rate=1.0))
    plan = decide(snapshot_of(*ledger, spent=600.0), policy(RestoreAtPeriod.ALL, limit_usd=limit), AT)
    assert starting(plan) == starts


def test_what_runs_counts_to_the_end_of_the_month_and_for_the_bill_that_is_late() -> None:
    entry = ours("i-0b", rate=1.0)
    busy = an_instance("i-0r", instance_type="g5.xlarge", launched_at=AT - HOUR)
    fleet = (busy, asleep(entry))
    # 100 + 24 * 1.006 + 100 * 1.006 + 100 * 1.
    for limit, starts in ((324.75, ["i-0b"]), (324.74, [])):
        plan = decide(snapshot_of(entry, fleet=fleet), policy(RestoreAtPeriod.ALL, limit_usd=limit), AT)
        assert starting(plan) == starts, limit


def test_what_has_no_price_does_not_come_back_by_itself() -> None:
    plan = decide(snapshot_of(ours("i-0a", rate=None)), ALL, AT)
    assert starting(plan) == []
    assert proposal(plan).key.startswith("gpu#2026-12#restore-refused#")
    assert "what the month would cost with it is unknown" in why_not(plan, "i-0a")


def test_it_goes_in_waves_the_most_critical_and_the_dearest_first() -> None:
    ledger = (
        ours("i-0a", rate=0.5),
        ours("i-0b", rate=3.0, criticality="preemptible"),
        ours("i-0c", rate=2.0),
        ours("i-0d", rate=1.0, instance_type="p4d.24xlarge"),
    )
    order = ["i-0d", "i-0c", "i-0a", "i-0b"]
    assert [e.instance_id for e in sorted(ledger, key=order_of_return)] == order
    for most in (1, 2, 3, 4):
        assert starting(decide(snapshot_of(*ledger, most=most), ALL, AT)) == order[:most]


def test_what_is_on_its_way_takes_a_place_of_the_wave() -> None:
    under_way = (ours("i-0x", StopStatus.RESTORING, asked_by=ALICE), ours("i-0y", StopStatus.STARTING, asked_by=ALICE))
    ledger = (*under_way, ours("i-0a"), ours("i-0b"))
    fleet = tuple(asleep(e, state=InstanceState.PENDING) if e.instance_id == "i-0y" else asleep(e) for e in ledger)
    assert starting(decide(snapshot_of(*ledger, fleet=fleet, most=3), ALL, AT)) == ["i-0a"]
    assert starting(decide(snapshot_of(*ledger, fleet=fleet, most=2), ALL, AT)) == []


@pytest.mark.parametrize(
    ("asked_by", "asked_at", "starts"),
    [
        ("limit", AT - 10 * DAY, False),
        ("period 2026-12", datetime(2026, 12, 1, tzinfo=UTC), False),
        ("limit", datetime(2026, 11, 30, 23, 59, tzinfo=UTC), True),
        (ALICE, AT - 10 * DAY, True),
        ("standby", AT - 10 * DAY, True),
    ],
)
def test_each_comes_back_by_itself_at_most_once_a_month(asked_by: str, asked_at: datetime, starts: bool) -> None:
    back = AT - 9 * DAY
    earlier = ours("i-0a", StopStatus.RESTORED, asked_by=asked_by, asked_at=asked_at, restored_at=back)
    later = ours("i-0a", rule=LOWER_LIMIT, launched_at=back)
    plan = decide(snapshot_of(earlier, later, fleet=(asleep(later),)), ALL, AT)
    assert (starting(plan) == ["i-0a"]) is starts
    if not starts:
        assert why_not(plan, "i-0a").startswith("was started again once this month already")


def test_who_gave_up_is_not_tried_again_by_itself_in_a_new_month() -> None:
    plan = decide(snapshot_of(ours("i-0a", StopStatus.GAVE_UP, asked_by="period 2026-11")), ALL, AT)
    assert starting(plan) == []


def test_a_retry_of_the_run_that_decided_it_says_the_same_again() -> None:
    snapshot = snapshot_of(ours("i-0a"), ours("i-0b"))
    first = decide(snapshot, ALL, AT)
    again = decide(replace(snapshot, ledger=first.ledger), ALL, AT)
    assert again.decision.restores == first.decision.restores
    assert [m.key for m in told(again, "restoring")] == [m.key for m in told(first, "restoring")]
    later = decide(replace(snapshot, ledger=first.ledger), ALL, AT + 5 * MINUTE)
    assert (starting(later), told(later, "restoring")) == ([], [])


@pytest.mark.parametrize(
    ("entry", "status"),
    [
        (ours("i-0a", StopStatus.RESTORING, asked_by="limit"), StopStatus.STOPPED),
        (ours("i-0a", StopStatus.RESTORING, asked_by="period 2026-12"), StopStatus.STOPPED),
        (ours("i-0a", StopStatus.RESTORING, asked_by=ALICE), StopStatus.RESTORING),
        (
            ours(
                "i-0a", StopStatus.RESTORING, asked_by="limit", start_tries=2, start_tried_at=AT - timedelta(seconds=30)
            ),
            StopStatus.RESTORING,
        ),
        (
            ours("i-0a", StopStatus.RESTORING, asked_by="limit", start_tries=2, start_tried_at=AT - 2 * MINUTE),
            StopStatus.STOPPED,
        ),
    ],
)
def test_at_the_stop_level_what_we_wanted_to_start_ourselves_is_taken_back(
    entry: StopEntry, status: StopStatus
) -> None:
    plan = decide(snapshot_of(entry, spent=960.0), ALL, AT)
    after = {e.instance_id: e for e in (entry, *plan.ledger)}["i-0a"]
    assert after.status is status
    if status is StopStatus.STOPPED:
        # It did not come back, so it may still do so by itself in this month.
        assert (after.restore_asked_at, after.restore_asked_by) == (None, "")


# --- Exactly what we stopped and nobody changed -----------------------------------------------------------------------


def the_view(*ledger: StopEntry, others: dict[str, frozenset[str]] | None = None) -> RestoreView:
    return RestoreView({}, (), ledger, others or {})


FRESH = ours("i-0a")
UNTOUCHED = asleep(FRESH)


@pytest.mark.parametrize(
    ("entry", "seen", "code"),
    [
        (FRESH, UNTOUCHED, None),
        (ours("i-0a", StopStatus.GAVE_UP), UNTOUCHED, None),
        (ours("i-0a", StopStatus.INTENDED), UNTOUCHED, ReasonCode.NOT_STOPPED_BY_US),
        (ours("i-0a", StopStatus.ACCEPTED), UNTOUCHED, ReasonCode.NOT_STOPPED_BY_US),
        (ours("i-0a", StopStatus.FAILED), UNTOUCHED, ReasonCode.NOT_STOPPED_BY_US),
        (ours("i-0a", StopStatus.WITHHELD), UNTOUCHED, ReasonCode.NOT_STOPPED_BY_US),
        (ours("i-0a", StopStatus.GONE), UNTOUCHED, ReasonCode.NOT_STOPPED_BY_US),
        (ours("i-0a", StopStatus.RESTARTED), UNTOUCHED, ReasonCode.NOT_STOPPED_BY_US),
        (ours("i-0a", StopStatus.RESTORED), UNTOUCHED, ReasonCode.NOT_STOPPED_BY_US),
        (ours("i-0a", StopStatus.RESTORING), UNTOUCHED, ReasonCode.RESTORE_UNDERWAY),
        (ours("i-0a", StopStatus.STARTING), UNTOUCHED, ReasonCode.RESTORE_UNDERWAY),
        (ours("i-0a", StopStatus.TERMINATED, method="cancel-and-terminate"), None, ReasonCode.WAS_TERMINATED),
        (FRESH, None, ReasonCode.FLEET_UNREADABLE),
        (FRESH, asleep(FRESH, launched_at=LAUNCHED + DAY, state_reason=BY_USER), ReasonCode.CHANGED_SINCE),
        (FRESH, asleep(FRESH, launched_at=None), ReasonCode.CHANGED_SINCE),
        (FRESH, asleep(FRESH, instance_type="g5.xlarge"), ReasonCode.CHANGED_SINCE),
        (FRESH, asleep(FRESH, state=InstanceState.RUNNING), ReasonCode.ALREADY_RUNNING),
        (FRESH, asleep(FRESH, state=InstanceState.STOPPING), ReasonCode.NOT_YET_STOPPED),
        (FRESH, asleep(FRESH, governance=an_instance(managed=None).governance), ReasonCode.NOT_MANAGED),
        (FRESH, asleep(FRESH, governance=an_instance(managed="other").governance), ReasonCode.NOT_MANAGED),
        (FRESH, asleep(FRESH, governance=an_instance(criticality="critical").governance), ReasonCode.TAG_NOT_EXACT),
        (FRESH, asleep(FRESH, governance=an_instance(criticality=None).governance), ReasonCode.TAG_NOT_EXACT),
        (FRESH, asleep(FRESH, governance=an_instance(criticality="Standard").governance), ReasonCode.TAG_NOT_EXACT),
    ],
)
def test_only_what_we_stopped_and_nobody_changed_may_come_back(
    entry: StopEntry, seen: Instance | None, code: ReasonCode | None
) -> None:
    reason = objection_to_restore(entry, seen, the_view(entry))
    assert (reason.code if reason else None) is code
    if not entry.open:  # an open one is seen stopped first, and may come back then
        plan = decide(snapshot_of(entry, fleet=() if seen is None else (seen,)), ALL, AT)
        assert (starting(plan) == ["i-0a"]) is (code is None and entry.status is StopStatus.STOPPED)


def test_a_start_of_ours_that_fell_back_is_not_taken_for_a_launch_of_somebody_else() -> None:
    tried = ours("i-0a", StopStatus.RESTORING, asked_by=ALICE, start_tries=1, start_tried_at=AT - HOUR)
    fell = asleep(tried, launched_at=AT - HOUR, state_reason="Server.InsufficientInstanceCapacity: no")
    theirs = replace(fell, state_reason=BY_USER)
    assert objection_to_start(tried, fell, the_view(tried)) is None
    reason = objection_to_start(tried, theirs, the_view(tried))
    assert reason is not None
    assert reason.code is ReasonCode.CHANGED_SINCE


def test_what_another_reason_keeps_stopped_comes_back_neither_by_itself_nor_on_request() -> None:
    others = {"i-0a": frozenset({"quota", "operator"})}
    ledger = (ours("i-0a"), ours("i-0b"))
    by_itself = decide(snapshot_of(*ledger, other_reasons=others), ALL, AT)
    assert starting(by_itself) == ["i-0b"]
    assert why_not(by_itself, "i-0a") == "is also stopped for another reason (operator, quota)"
    asked = decide(snapshot_of(*ledger, other_reasons=others, request=RestoreRequest(ALICE, everything=True)), ALL, AT)
    assert starting(asked) == ["i-0b"]
    assert [(v.instance_id, v.reason.code) for v in asked.refused] == [("i-0a", ReasonCode.OTHER_REASON_LEFT)]


def test_the_newest_stop_of_an_instance_counts_not_an_older_one() -> None:
    older = ours("i-0a")
    newer = ours("i-0a", StopStatus.RESTARTED, rule=LOWER_LIMIT, launched_at=LAUNCHED + 9 * DAY)
    for ledger in ((older, newer), (newer, older)):
        plan = decide(snapshot_of(*ledger, fleet=(asleep(older),)), ALL, AT)
        assert starting(plan) == []


# --- A person asks ----------------------------------------------------------------------------------------------------


def asked(*ledger: StopEntry, request: RestoreRequest, **changes: object) -> GuardPlan:
    return decide(snapshot_of(*ledger, request=request, **changes), PROPOSE, AT)  # type: ignore[arg-type]


def test_a_person_gets_exactly_the_named_ones_whatever_level_limit_and_month() -> None:
    ledger = (ours("i-0a", rule=TODAY, rate=900.0), ours("i-0b", rate=None), ours("i-0c"))
    plan = asked(*ledger, request=RestoreRequest(ALICE, ("i-0a", "i-0b", "i-0a")), spent=960.0)
    assert starting(plan) == ["i-0a", "i-0b"]
    assert {r.asked_by for r in plan.decision.restores} == {ALICE}
    assert "ABOVE THE LIMIT" in told(plan, "restoring")[0].body


def test_a_person_who_names_a_decision_gets_what_it_stopped_and_no_more() -> None:
    ledger = (ours("i-0a"), ours("i-0b", decision_id="guard_budget@other"), ours("i-0c", StopStatus.RESTORED))
    plan = asked(*ledger, request=RestoreRequest(ALICE, decision_id=ledger[0].decision_id))
    assert starting(plan) == ["i-0a"]
    assert [v.instance_id for v in plan.refused] == ["i-0c"]


@pytest.mark.parametrize("request_", [RestoreRequest(ALICE, ("i-0x",)), RestoreRequest(ALICE, decision_id="i-0x")])
def test_what_we_did_not_stop_is_refused_by_name(request_: RestoreRequest) -> None:
    plan = asked(ours("i-0a"), request=request_)
    assert starting(plan) == []
    assert [(v.instance_id, v.reason.code) for v in plan.refused] == [("i-0x", ReasonCode.NOT_STOPPED_BY_US)]


def test_a_request_for_nothing_starts_nothing() -> None:
    plan = asked(ours("i-0a"), request=RestoreRequest(ALICE))
    assert (starting(plan), plan.refused) == ([], ())


@pytest.mark.parametrize(
    ("pause", "code"),
    [
        (Pause(active=True, reason="audit"), ReasonCode.PAUSED),
        (Pause(active=True, readable=False), ReasonCode.PAUSE_UNREADABLE),
    ],
)
def test_a_pause_holds_even_a_persons_request(pause: Pause, code: ReasonCode) -> None:
    plan = asked(ours("i-0a"), request=RestoreRequest(ALICE, everything=True), pause=pause)
    assert starting(plan) == []
    assert [v.reason.code for v in plan.refused] == [code]


# --- Laws of the policy -----------------------------------------------------------------------------------------------

statuses = st.sampled_from([StopStatus.STOPPED] * 6 + list(StopStatus))
rates = st.none() | st.sampled_from([0.1, 0.5, 1.0, 2.5, 8.0])


@st.composite
def stopped_fleets(draw: st.DrawFn) -> tuple[tuple[StopEntry, ...], tuple[Instance, ...]]:
    """Entries in any state, and machines that somebody may have changed."""
    ledger: list[StopEntry] = []
    fleet: list[Instance] = []
    for number in range(draw(st.integers(1, 8))):
        entry = ours(
            f"i-{number}",
            draw(statuses),
            rule=draw(st.sampled_from([NOVEMBER, NOVEMBER, LOWER_LIMIT, TODAY])),
            rate=draw(rates),
            criticality=draw(st.sampled_from(["standard", "preemptible"])),
            asked_by=draw(st.sampled_from(["", "", "limit", "period 2026-12", ALICE])),
            asked_at=AT - draw(st.sampled_from([MINUTE, 30 * DAY])),
        )
        ledger.append(entry)
        untouched = asleep(entry)
        retyped, running = (
            replace(untouched, instance_type="g5.xlarge"),
            replace(untouched, state=InstanceState.RUNNING),
        )
        fleet += draw(st.sampled_from([[untouched], [untouched], [untouched], [retyped], [running], []]))
    return tuple(ledger), tuple(fleet)


@settings(max_examples=300)
@given(
    stopped_fleets(),
    st.sampled_from(RestoreAtPeriod),
    st.integers(1, 4),
    st.sampled_from([50.0, 100.0, 500.0, 900.0]),
    st.sets(st.sampled_from(["i-0", "i-1"])),
)
def test_what_comes_back_by_itself_is_ours_due_unchanged_within_wave_and_limit_and_in_order(
    found: tuple[tuple[StopEntry, ...], tuple[Instance, ...]],
    which: RestoreAtPeriod,
    most: int,
    spent: float,
    held: set[str],
) -> None:
    ledger, fleet = found
    others = {name: frozenset({"quota"}) for name in held}
    snapshot = snapshot_of(*ledger, fleet=fleet, most=most, spent=spent, other_reasons=others)
    plan = decide(snapshot, policy(which), AT)
    followed = follow_ledger(ledger, snapshot.fleet, snapshot.restore_settings, AT)
    before, seen = {e.instance_id: e for e in followed}, {i.instance_id: i for i in fleet}
    chosen = [before[name] for name in starting(plan)]
    assert which is not RestoreAtPeriod.PROPOSE or chosen == []
    assert chosen == sorted(chosen, key=order_of_return)
    assert len({e.instance_id for e in chosen}) == len(chosen)
    for entry in chosen:
        assert entry.status is StopStatus.STOPPED
        assert entry.rule != TODAY
        assert seen[entry.instance_id].state is InstanceState.STOPPED
        assert seen[entry.instance_id].instance_type == entry.instance_type
        assert entry.instance_id not in held
        assert which is RestoreAtPeriod.ALL or entry.criticality == "standard"
        assert not (entry.restore_asked_by.startswith(("limit", "period")) and entry.restore_asked_at == AT - MINUTE)
    changed = {e.instance_id: e for e in plan.ledger}
    after = [changed.get(e.instance_id, e) for e in ledger]
    under_way = [e for e in after if e.status in (StopStatus.RESTORING, StopStatus.STARTING)]
    assert len(chosen) <= max(0, most - (len(under_way) - len(chosen)))
    money = plan.decision.money
    assert money is not None
    if chosen:
        assert money.forecast_high_usd is not None
        end = money.forecast_high_usd + sum(e.usd_per_hour or 0.0 for e in under_way) * hours_left(AT)
        assert end <= 1000.0 + 1e-6


# --- The steps --------------------------------------------------------------------------------------------------------


def steps_of(
    *ledger: StopEntry,
    seen: tuple[Instance, ...] | None = None,
    most: int = 10,
    mode: Mode = Mode.ENFORCE,
    groups: tuple[Group, ...] = (),
    holds: tuple[GroupHold, ...] = (),
    unknown_regions: frozenset[str] = frozenset(),
    others: dict[str, frozenset[str]] | None = None,
    pause: Pause | None = None,
    now: datetime = AT,
) -> StartSteps:
    instances = tuple(asleep(entry) for entry in ledger) if seen is None else seen
    scene = StartScene(
        ledger,
        holds,
        {instance.instance_id: instance for instance in instances},
        {(group.region, group.name): group for group in groups},
        others or {},
        Controls(pause or Pause(active=False)),
        mode,
        RestoreSettings(max_starts_per_run=most),
        unknown_regions,
    )
    return next_steps(scene, now)


def wanted(instance_id: str, **changes: object) -> StopEntry:
    """One whose start is asked for."""
    return ours(instance_id, StopStatus.RESTORING, **{"asked_by": ALICE, **changes})  # type: ignore[arg-type]


def test_starts_go_by_the_moment_of_the_request_then_by_criticality_and_price_in_waves() -> None:
    ledger = (
        wanted("i-0a", criticality="preemptible", asked_at=AT - HOUR),
        wanted("i-0b", rate=1.0),
        wanted("i-0c", rate=2.0),
        wanted("i-0d", rate=9.0, criticality="preemptible"),
    )
    order = ["i-0a", "i-0c", "i-0b", "i-0d"]
    for most in range(1, 5):
        assert [e.instance_id for e in steps_of(*ledger, most=most).starts] == order[:most]


def test_a_start_that_ec2_accepted_takes_its_place_of_the_wave_until_it_is_seen() -> None:
    under_way = ours("i-0x", StopStatus.STARTING, asked_by=ALICE, start_tried_at=AT - MINUTE)
    ledger = (under_way, wanted("i-0a"), wanted("i-0b"))
    seen = (asleep(under_way, state=InstanceState.PENDING), asleep(ledger[1]), asleep(ledger[2]))
    assert [e.instance_id for e in steps_of(*ledger, seen=seen, most=2).starts] == ["i-0a"]
    assert steps_of(*ledger, seen=seen, most=1).starts == ()


@pytest.mark.parametrize(("due", "starts"), [(AT, 1), (AT + timedelta(seconds=1), 0), (None, 1)])
def test_a_try_that_failed_waits_for_its_time(due: datetime | None, starts: int) -> None:
    assert len(steps_of(wanted("i-0a", start_tries=1, next_start_at=due)).starts) == starts


def test_tries_wait_five_minutes_then_twice_as_long_up_to_an_hour() -> None:
    waits = []
    for tries in range(1, 9):
        failed = start_failed(wanted("i-0a", start_tries=tries), "InsufficientInstanceCapacity: no", AT)
        assert (failed.status, failed.next_start_at is not None) == (StopStatus.RESTORING, True)
        assert failed.next_start_at is not None
        waits.append((failed.next_start_at - AT) / MINUTE)
    assert waits == [5, 10, 20, 40, 60, 60, 60, 60]
    assert start_failed(wanted("i-0a", start_tries=10**6), "no", AT).next_start_at == AT + HOUR


@pytest.mark.parametrize(("hours", "status"), [(47.99, StopStatus.RESTORING), (48, StopStatus.GAVE_UP)])
def test_it_is_given_up_when_the_hours_since_the_request_are_over(hours: float, status: StopStatus) -> None:
    detail = "InsufficientInstanceCapacity: no"
    entry = wanted("i-0a", asked_at=AT - timedelta(hours=hours), start_tries=50, detail=detail, next_start_at=AT)
    after = follow_up(entry, asleep(entry), AT)
    assert after.status is status
    if status is StopStatus.GAVE_UP:
        assert after.detail == "not back within 48 h; last: InsufficientInstanceCapacity: no"
        assert steps_of(after).starts == ()
        assert follow_up(after, asleep(entry), AT + DAY) == after, "it is given up once"


def test_one_that_was_never_tried_says_so_when_it_is_given_up() -> None:
    entry = wanted("i-0a", asked_at=AT - 2 * DAY)
    assert "it was not tried, since the guard was paused" in follow_up(entry, asleep(entry), AT).detail


def test_while_paused_no_step_is_taken() -> None:
    assert steps_of(wanted("i-0a"), pause=Pause(active=True)) == StartSteps()


def test_a_region_that_cannot_be_read_has_no_steps_and_the_others_have() -> None:
    there = wanted("i-0b", region="us-east-1")
    steps = steps_of(wanted("i-0a"), there, unknown_regions=frozenset({REGION}))
    assert [e.instance_id for e in steps.starts] == ["i-0b"]
    assert steps.withdrawn == ()


@pytest.mark.parametrize(
    ("changes", "others", "mode", "code"),
    [
        ({"instance_type": "g5.xlarge"}, None, Mode.ENFORCE, ReasonCode.CHANGED_SINCE),
        ({"launched_at": LAUNCHED + DAY, "state_reason": BY_USER}, None, Mode.ENFORCE, ReasonCode.CHANGED_SINCE),
        ({}, {"i-0a": frozenset({"quota"})}, Mode.ENFORCE, ReasonCode.OTHER_REASON_LEFT),
        ({}, None, Mode.OFF, ReasonCode.MODE_OFF),
    ],
)
def test_what_changed_before_the_call_is_withdrawn_with_the_reason_and_is_stopped_as_before(
    changes: dict[str, object], others: dict[str, frozenset[str]] | None, mode: Mode, code: ReasonCode
) -> None:
    entry = wanted("i-0a")
    steps = steps_of(entry, seen=(asleep(entry, **changes),), others=others, mode=mode)
    assert steps.starts == ()
    ((after, reason),) = steps.withdrawn
    assert (after.status, reason.code) == (StopStatus.STOPPED, code)
    assert (after.restore_asked_at, after.next_start_at) == (None, None)


def test_a_call_whose_answer_was_lost_is_not_withdrawn_before_its_effect_can_be_seen() -> None:
    tried = wanted("i-0a", start_tries=1, start_tried_at=AT - timedelta(seconds=59))
    changed = (asleep(tried, instance_type="g5.xlarge"),)
    assert steps_of(tried, seen=changed).withdrawn == ()
    assert len(steps_of(tried, seen=changed, now=AT + timedelta(seconds=1)).withdrawn) == 1


# --- Groups -----------------------------------------------------------------------------------------------------------


def a_hold(*, min_before: int = 2, desired_before: int = 3, min_set: int = 0) -> GroupHold:
    return GroupHold(
        name="workers",
        region=REGION,
        min_before=min_before,
        desired_before=desired_before,
        min_set=min_set,
        desired_expected=desired_before,
        held_since=AT - 5 * DAY,
        updated_at=AT - 5 * DAY,
        decision_id="d",
    )


def a_member(instance_id: str, state: str = "InService") -> Instance:
    return an_instance(instance_id, kind=InstanceKind.GROUP_MEMBER, owner="workers", member_state=state)


@pytest.mark.parametrize(
    ("min_size", "desired", "held", "found"),
    [
        (0, 1, 2, ""),
        (1, 1, 2, ""),
        (2, 3, 0, ""),
        (3, 1, 2, "MinSize is 3, we left 0"),
        (0, 2, 2, "the desired capacity is 2, we left 1"),
        (0, 0, 2, "the desired capacity is 0, we left 1"),
        (3, 2, 2, "MinSize is 3, we left 0 and the desired capacity is 2, we left 1"),
    ],
)
def test_a_group_was_changed_by_others_where_a_size_is_not_what_we_left(
    min_size: int, desired: int, held: int, found: str
) -> None:
    group = a_group(min_size=min_size, desired=desired)
    assert change_by_others(a_hold(), group, held) == found


@pytest.mark.parametrize(
    ("changes", "state", "held"),
    [
        ({"standby_by_us": True}, "Standby", 1),
        ({"standby_by_us": True}, "EnteringStandby", 1),
        ({"standby_by_us": True}, "InService", 0),
        ({"standby_by_us": False}, "Standby", 0),
        ({"standby_by_us": True, "group": "others"}, "Standby", 0),
        ({"standby_by_us": True, "region": "us-east-1"}, "Standby", 0),
        ({"method": "lower", "status": StopStatus.TERMINATED}, "", 1),
        ({"method": "lower", "status": StopStatus.RESTORING}, "", 1),
        ({"method": "lower", "status": StopStatus.GAVE_UP}, "", 1),
        ({"method": "lower", "status": StopStatus.RESTORED}, "", 0),
        ({"method": "lower", "status": StopStatus.WITHHELD}, "", 0),
        ({"method": "lower", "status": StopStatus.TERMINATED}, "InService", 0),
        ({"method": "lower", "status": StopStatus.TERMINATED, "decided_at": AT - 6 * DAY}, "", 0),
    ],
)
def test_a_member_is_held_by_us_while_it_stands_by_or_its_place_is_out(
    changes: dict[str, object], state: str, held: int
) -> None:
    entry = ours("i-0a", rule=TODAY, **{"group": "workers", **changes})  # type: ignore[arg-type]
    group = a_group(*([a_member("i-0a", state)] if state else []))
    assert held_members((entry,), a_hold(), group) == held
    assert len(lowered_members((entry,), a_hold(), group)) == (held if entry.method == "lower" else 0)


def standing(instance_id: str, status: StopStatus = StopStatus.STOPPED) -> StopEntry:
    """A member that we stopped in standby."""
    by = ALICE if status is StopStatus.RESTORING else ""
    return ours(
        instance_id,
        status,
        rule=LOWER_LIMIT,
        group="workers",
        standby_by_us=True,
        method="standby-and-stop",
        asked_by=by,
    )


def member_of(entry: StopEntry, **changes: object) -> Instance:
    shape = {"kind": InstanceKind.GROUP_MEMBER, "owner": "workers", "member_state": "Standby"}
    return asleep(entry, **{**shape, **changes})


@pytest.mark.parametrize(
    ("group", "changes", "code"),
    [
        ({"desired": 2}, {}, None),
        ({"desired": 3}, {}, ReasonCode.GROUP_CHANGED),
        ({"desired": 2, "min_size": 3}, {}, ReasonCode.GROUP_CHANGED),
        (None, {}, ReasonCode.GROUP_UNKNOWN),
        ({"desired": 2}, {"owner": "others"}, ReasonCode.GROUP_UNKNOWN),
        ({"desired": 2}, {"member_state": "InService"}, ReasonCode.CHANGED_SINCE),
    ],
)
def test_a_member_comes_back_only_into_a_group_that_is_as_we_left_it(
    group: dict[str, int] | None, changes: dict[str, object], code: ReasonCode | None
) -> None:
    entry = standing("i-0a")
    seen = member_of(entry, **changes)
    groups = {} if group is None else {(REGION, "workers"): a_group(seen, **group)}  # type: ignore[arg-type]
    reason = objection_to_restore(entry, seen, RestoreView(groups, (a_hold(),), (entry,), {}))
    assert (reason.code if reason else None) is code


def test_a_member_of_a_group_that_somebody_changed_is_not_started_and_told() -> None:
    entry = standing("i-0a", StopStatus.RESTORING)
    seen = member_of(entry)
    steps = steps_of(entry, seen=(seen,), groups=(a_group(seen, desired=5),), holds=(a_hold(),))
    ((_, reason),) = steps.withdrawn
    assert reason.code is ReasonCode.GROUP_CHANGED
    assert reason.fact("what") == "the desired capacity is 5, we left 2"


def test_a_hold_of_a_group_that_is_gone_is_closed() -> None:
    steps = steps_of(holds=(a_hold(),))
    assert [(hold.name, hold.open) for hold in steps.closed] == [("workers", False)]


# --- What people are told ---------------------------------------------------------------------------------------------

SCENE = OutcomeScene(STAGE, REGION, "gpu", AT)
KEY_ARN = "arn:aws:kms:eu-west-1:123456789012:key/1"


def refused(detail: str, keys: tuple[str, ...] = ()) -> Message:
    return start_refused(SCENE, wanted("i-0a", detail=detail, start_tries=1, next_start_at=AT + 5 * MINUTE), keys)


@pytest.mark.parametrize(
    "detail",
    [
        "fell back to stopped: Client.InternalError: Client error on launch",
        "fell back to stopped: Client.InvalidKMSKey.InvalidState: The KMS key is pending deletion",
        "KMSAccessDeniedException: denied",
    ],
)
def test_a_start_that_fails_for_a_key_names_the_key_the_role_and_the_setting(detail: str) -> None:
    message = refused(detail, (KEY_ARN,))
    assert message.severity is Severity.WARN
    assert message.subject == "[Governor test] i-0a does not start again (key)"
    assert f"  {KEY_ARN}" in message.body.splitlines()
    for named in ("kms:CreateGrant", "the role of confirm_actions in stage test", "volume_key_arns", detail):
        assert named in message.body


def test_a_key_that_cannot_be_read_is_said_and_not_guessed() -> None:
    message = refused("KMSAccessDeniedException: denied")
    assert "(key)" in message.subject
    assert "(the keys of its volumes could not be read)" in message.body


@pytest.mark.parametrize(
    ("detail", "kind"),
    [
        ("InsufficientInstanceCapacity: no", "capacity"),
        ("InsufficientHostCapacity: no", "capacity"),
        ("fell back to stopped: Server.InsufficientInstanceCapacity: no", "capacity"),
        ("Client.InternalError: Client error on launch", "other"),
        ("UnauthorizedOperation: no", "other"),
        ("IncorrectInstanceState: no", "other"),
    ],
)
def test_every_other_failure_is_named_by_its_kind_and_when_it_is_tried_again(detail: str, kind: str) -> None:
    message = refused(detail)
    assert message.subject.endswith(f"({kind})")
    assert "It is tried again at 2026-12-27 20:05 UTC" in message.body
    assert "kms" not in message.body.lower()


def test_a_failure_is_told_once_a_kind_and_request() -> None:
    first = refused("InsufficientInstanceCapacity: no")
    assert refused("InsufficientInstanceCapacity: still no").key == first.key
    assert refused("UnauthorizedOperation: no").key != first.key
    again = wanted("i-0a", detail="InsufficientInstanceCapacity: no", asked_at=AT + HOUR)
    assert start_refused(SCENE, again, ()).key != first.key


def test_a_start_that_is_given_up_pages_once_with_tries_reason_and_command() -> None:
    before = wanted("i-0a", detail="InsufficientInstanceCapacity: no", start_tries=52, asked_at=AT - 2 * DAY)
    after = follow_up(before, asleep(before), AT)
    (message,) = tell_outcomes([before], [after], SCENE)
    assert message.severity is Severity.PAGE
    assert "Starts tried: 52." in message.body
    assert "InsufficientInstanceCapacity" in message.body
    assert "  governor restore i-0a --stage test" in message.body.splitlines()
    assert tell_outcomes([after], [after], SCENE) == ()


def test_the_end_of_a_restore_is_told_when_its_last_one_has_ended_and_names_who_did_not_come() -> None:
    decision = {"restore_decision_id": "d"}
    way = wanted("i-0a", **decision), wanted("i-0b", **decision), wanted("i-0c", **decision)
    back = replace(way[0], status=StopStatus.RESTORED, restored_at=AT)
    lost = replace(way[1], status=StopStatus.GAVE_UP, detail="no capacity")
    assert [m for m in tell_outcomes(way, (back, way[1], way[2]), SCENE) if "restores-seen" in m.key] == []
    gone = replace(way[2], status=StopStatus.GONE, detail="the instance no longer exists")
    (message,) = [m for m in tell_outcomes((back, *way[1:]), (back, lost, gone), SCENE) if "restores-seen" in m.key]
    assert message.subject == "[Governor test] 1 instance running again, $1.00/h more"
    assert "  i-0b: no capacity" in message.body.splitlines()
    assert "  i-0c: the instance no longer exists" in message.body.splitlines()
    assert tell_outcomes((back, lost, gone), (back, lost, gone), SCENE) == ()
