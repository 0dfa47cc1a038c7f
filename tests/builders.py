"""Small builders: a test names only what matters to it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta

from governor.domain.budget_snapshot import BudgetReading, BudgetSnapshot, GuardState, ThresholdEdit, UnknownBudget
from governor.domain.controls import Controls, Keep, Override
from governor.domain.fleet import (
    FleetSnapshot,
    Group,
    Instance,
    InstanceKind,
    InstanceState,
    ReservedInstances,
    SpotRequest,
    UnknownRegion,
)
from governor.domain.ledger import StopEntry, StopStatus
from governor.domain.pause import Pause
from governor.domain.prices import PriceCatalogue
from governor.domain.settings import BudgetSettings, Mode
from governor.domain.tags import TagKeys, read_governance

STAGE = "test"
KEYS = TagKeys()
NOW = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
PRICES = PriceCatalogue(
    "us-east-1", date(2026, 7, 20), {"p4d.24xlarge": 21.957642, "g4dn.xlarge": 0.526, "g5.xlarge": 1.006}
)


def tags_of(criticality: str | None = "standard", managed: str | None = STAGE, **more: str) -> dict[str, str]:
    """Tags of an instance; None leaves a tag out."""
    tags = dict(more)
    if managed is not None:
        tags[KEYS.managed] = managed
    if criticality is not None:
        tags[KEYS.criticality] = criticality
    return tags


def an_instance(
    instance_id: str = "i-0a",
    *,
    tags: Mapping[str, str] | None = None,
    criticality: str | None = "standard",
    managed: str | None = STAGE,
    instance_type: str = "g4dn.xlarge",
    state: InstanceState = InstanceState.RUNNING,
    launched_at: datetime | None = NOW - timedelta(days=2),
    kind: InstanceKind = InstanceKind.PLAIN,
    region: str = "eu-west-1",
    owner: str = "",
    member_state: str = "",
    spot: SpotRequest | None = None,
    stop_protected: bool | None = False,
) -> Instance:
    """A running, managed, standard g4dn.xlarge unless said otherwise."""
    pairs = tags_of(criticality, managed) if tags is None else tags
    return Instance(
        instance_id=instance_id,
        region=region,
        instance_type=instance_type,
        state=state,
        launched_at=launched_at,
        kind=kind,
        governance=read_governance(pairs.items(), KEYS, STAGE),
        owner=owner,
        tags=tuple(sorted(pairs.items())),
        member_state=member_state,
        spot=spot,
        stop_protected=stop_protected,
    )


def a_group(
    *members: Instance,
    name: str = "workers",
    min_size: int = 0,
    max_size: int = 10,
    desired: int | None = None,
    criticality: str | None = "standard",
    managed: str | None = STAGE,
    scales_itself: tuple[str, ...] = (),
    region: str = "eu-west-1",
) -> Group:
    """An Auto Scaling group that is tagged like its members and holds them in service unless said otherwise."""
    states = tuple(sorted((m.instance_id, m.member_state or "InService") for m in members))
    counted = sum(state != "Standby" for _, state in states)
    return Group(
        name=name,
        region=region,
        min_size=min_size,
        max_size=max_size,
        desired=counted if desired is None else desired,
        governance=read_governance(tags_of(criticality, managed).items(), KEYS, STAGE),
        members=states,
        scales_itself=scales_itself,
    )


def some_settings(**changes: object) -> BudgetSettings:
    """Armed, 1000 USD, no grace and no confirmation, unless said otherwise."""
    values: dict[str, object] = {"mode": Mode.ENFORCE, "grace_minutes": 0, "confirm_minutes": 0, **changes}
    return BudgetSettings(**values)  # type: ignore[arg-type]


def a_snapshot(
    *instances: Instance,
    spent: float | None = 0.0,
    aws_limit_usd: float | None = 1000.0,
    ledger: tuple[StopEntry, ...] = (),
    state: GuardState | None = None,
    pause: Pause | None = None,
    keeps: tuple[Keep, ...] = (),
    overrides: tuple[Override, ...] = (),
    groups: tuple[Group, ...] = (),
    reserved: tuple[ReservedInstances, ...] = (),
    edits: tuple[ThresholdEdit, ...] = (),
    unknown_regions: tuple[UnknownRegion, ...] = (),
    **more: object,
) -> BudgetSnapshot:
    """A snapshot in which AWS Budgets reports `spent` USD (None: cannot be read)."""
    budget = UnknownBudget("gpu", "denied") if spent is None else BudgetReading("gpu", spent, aws_limit_usd)
    return BudgetSnapshot(
        stage=STAGE,
        home_region="eu-west-1",
        fleet=FleetSnapshot(tuple(instances), unknown_regions, groups=groups, reserved=reserved),
        budget=budget,
        prices=PRICES,
        controls=Controls(pause or Pause(active=False), keeps, overrides),
        settings_version=7,
        ledger=ledger,
        state=state,
        edits=edits,
        **more,  # type: ignore[arg-type]
    )


def an_entry(
    instance: Instance, status: StopStatus, *, decided_at: datetime = NOW, updated_at: datetime | None = None
) -> StopEntry:
    """A ledger entry for a stop of `instance` as it was launched then."""
    assert instance.launched_at is not None
    return StopEntry(
        instance_id=instance.instance_id,
        region=instance.region,
        reason="budget",
        launched_at=instance.launched_at,
        rule="2026-11 stop at 95% of 1000",
        decided_at=decided_at,
        decision_id=f"guard_budget@{decided_at.isoformat()}",
        status=status,
        updated_at=updated_at or decided_at,
        instance_type=instance.instance_type,
        usd_per_hour=0.526,
    )
