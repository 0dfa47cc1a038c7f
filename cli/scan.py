"""`governor scan`: everything with GPUs in every enabled Region, before anything is deployed. Reads only."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from cli.options import JsonOption, StageOption

if TYPE_CHECKING:
    from cli.inventory import Inventory, RefusedCall
    from governor.domain.decisions import Decision, InstanceVerdict
    from governor.domain.fleet import FleetSnapshot, Instance
    from governor.domain.prices import PriceCatalogue
    from governor.domain.tags import Governance, TagKeys

DEFAULT_STAGE = "dev"


@dataclass(frozen=True, slots=True)
class Scan:
    """What was found, and what the Governor could do with it with its default settings, everything armed."""

    stage: str
    scanned_at: datetime
    inventory: Inventory
    decision: Decision
    prices: PriceCatalogue


def scan(stage: StageOption = None, as_json: JsonOption = False) -> None:
    """Show every GPU instance, group, spot request and reservation in every enabled Region. Reads only.

    For each: its cost per hour at list price, and what the Governor could do with it. Then the totals, what is out of
    reach by a missing tag, and what the Governor itself would cost. Needs no deploy; calls that are not permitted are
    named, and their part is unknown.

    **Examples:**

    - `governor scan`
    - `governor scan --stage prod --json > scan.json`
    """
    from cli.scan_view import show_scan
    from cli.terminal import print_json

    answer = describe(scan_account(stage))
    if as_json:
        print_json(answer)
    else:
        show_scan(answer)


def scan_account(stage: str | None) -> Scan:
    """Look at every enabled Region, with progress on stderr."""
    from cli.account import home_region
    from cli.inventory import take_inventory
    from cli.terminal import current_time
    from governor.aws.catalogue import load_catalogue

    home = home_region()
    refused: list[RefusedCall] = []
    name, keys = _stage_and_keys(stage, refused)
    now = current_time()
    with _progress() as progress:
        inventory = take_inventory(home, keys, name, progress, refused)
    prices = load_catalogue()
    return Scan(name, now, inventory, _judge(inventory, prices, name, home, now), prices)


def _stage_and_keys(stage: str | None, refused: list[RefusedCall]) -> tuple[str, TagKeys]:
    """Stage and tag keys by which to read the tags: those deployed, else the default keys (a scan comes first)."""
    from botocore.exceptions import ClientError

    from cli.account import home_region
    from cli.errors import DENIED, CliError
    from cli.inventory import RefusedCall
    from cli.stage import find_scope, seek_stage
    from governor.aws.errors import error_code, error_sentence
    from governor.domain.tags import TagKeys

    try:
        found = seek_stage(stage)
        if found is not None:
            return found.name, find_scope(found).keys
    except (CliError, ClientError) as error:
        refusal = error if isinstance(error, ClientError) else error.__cause__
        if not isinstance(refusal, ClientError) or error_code(refusal) not in DENIED:
            raise
        refused.append(RefusedCall(home_region(), f"the tag keys ({refusal.operation_name})", error_sentence(refusal)))
    return stage or DEFAULT_STAGE, TagKeys()


@contextmanager
def _progress() -> Iterator[Callable[[int, int, str], None]]:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    from cli.terminal import console

    screen = console(errors=True)
    columns = (TextColumn("Regions"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[region]}"))
    with Progress(*columns, console=screen, transient=True, disable=not screen.is_terminal) as shown:
        task = shown.add_task("Regions", total=None, region="")

        def report(done: int, total: int, region: str) -> None:
            shown.update(task, completed=done, total=total, region=region)

        yield report


def _judge(inventory: Inventory, prices: PriceCatalogue, stage: str, home: str, now: datetime) -> Decision:
    from governor.domain.fleet import FleetSnapshot

    fleet = FleetSnapshot(
        inventory.instances,
        inventory.unknown_regions,
        groups=tuple(group for region in inventory.regions for group in region.watched_groups),
        reserved=tuple(one for region in inventory.regions for one in region.reserved),
    )
    return judge_fleet(fleet, prices, stage, home, now)


def judge_fleet(fleet: FleetSnapshot, prices: PriceCatalogue, stage: str, home: str, now: datetime) -> Decision:
    """What the budget guard would say of each instance, armed, at its stop level, with default settings."""
    from governor.domain.budget import decide
    from governor.domain.budget_snapshot import BudgetReading, BudgetSnapshot
    from governor.domain.controls import Controls
    from governor.domain.pause import Pause
    from governor.domain.settings import BudgetSettings, Mode

    settings = BudgetSettings(
        mode=Mode.ENFORCE,
        grace_minutes=0,
        confirm_minutes=0,
        min_saving_usd=0.0,
        max_stops_per_run=max(1, len(fleet.instances)),
    )
    spent = settings.limit_usd * settings.stop_percent / 100
    snapshot = BudgetSnapshot(
        stage=stage,
        home_region=home,
        fleet=fleet,
        budget=BudgetReading("scan", spent, settings.limit_usd),
        prices=prices,
        controls=Controls(Pause(active=False)),
        settings_version=0,
    )
    # An instance may have been launched a moment after `now` by a clock that is a little ahead of ours.
    launched = [instance.launched_at for instance in fleet.instances if instance.launched_at is not None]
    return decide(snapshot, settings, max(now, *launched) if launched else now).decision


def run_rate_usd_per_hour(found: Scan) -> float:
    """What the running GPU instances cost per hour at list price."""
    assert found.decision.money is not None
    return found.decision.money.run_rate_usd_per_hour


def describe(found: Scan) -> dict[str, Any]:
    """The answer as JSON."""
    from cli.own_cost import PRICES_DATED, PRICES_SOURCE, estimate_own_cost
    from cli.terminal import HOURS_PER_MONTH, iso

    instances = {i.instance_id: i for i in found.inventory.instances}
    rows = [_instance_row(v, instances[v.instance_id]) for v in found.decision.verdicts]
    reservations = [_reservation_row(found, r) for region in found.inventory.regions for r in region.reservations]
    unused = sum(r["unused_usd_per_hour"] or 0.0 for r in reservations)
    watched = {row["region"] for row in rows}
    items = estimate_own_cost(max(1, len(watched)))
    totals = _sums(rows)
    watched_groups = {(g.region, g.name): g for region in found.inventory.regions for g in region.watched_groups}
    return {
        "stage": found.stage,
        "account_id": found.inventory.account_id,
        "scanned_at": iso(found.scanned_at),
        "regions": [region.region for region in found.inventory.regions],
        "unknown_regions": [{"region": u.region, "why": u.why} for u in found.inventory.unknown_regions],
        "refused_calls": [{"region": c.region, "call": c.call, "why": c.why} for c in found.inventory.refused_calls],
        "instances": rows,
        "groups": [_group_row(g, watched_groups) for region in found.inventory.regions for g in region.groups],
        "spot_requests": [_spot_row(s) for region in found.inventory.regions for s in region.spot_requests],
        "reservations": reservations,
        "totals": {
            **totals,
            "usd_per_month": totals["usd_per_hour"] * HOURS_PER_MONTH,
            "unused_reservations_usd_per_hour": unused,
            "unpriced_types": sorted({r["instance_type"] for r in rows if r["usd_per_hour"] is None}),
        },
        "by_region": _grouped(rows, "region"),
        "by_family": _grouped(rows, "family"),
        "prices": {"region": found.prices.region, "dated": found.prices.dated.isoformat()},
        "own_cost": {
            "usd_per_month": sum(item.usd_per_month for item in items),
            "prices_dated": PRICES_DATED.isoformat(),
            "prices_source": PRICES_SOURCE,
            "items": [
                {
                    "what": item.what,
                    "quantity": item.quantity,
                    "unit": item.unit,
                    "unit_price_usd": item.unit_price_usd,
                    "usd_per_month": item.usd_per_month,
                }
                for item in items
            ],
        },
    }


def _tags(governance: Governance) -> dict[str, Any]:
    return {
        "managed": governance.managed,
        "criticality": governance.criticality.value if governance.managed else None,
        "project": governance.project,
        "tag_findings": [finding.value for finding in governance.findings],
    }


def _instance_row(verdict: InstanceVerdict, instance: Instance) -> dict[str, Any]:
    from governor.domain.decisions import Verdict
    from governor.domain.reasons import ReasonCode, words

    within = verdict.verdict is Verdict.STOP
    missing = verdict.reason.code in (ReasonCode.NOT_MANAGED, ReasonCode.TAG_NOT_EXACT)
    return {
        "instance_id": instance.instance_id,
        "name": instance.name,
        "region": instance.region,
        "instance_type": instance.instance_type,
        "family": instance.family,
        "state": instance.state.value,
        "kind": instance.kind.value,
        "owner": instance.owner,
        **_tags(instance.governance),
        "usd_per_hour": verdict.usd_per_hour,
        "reach": "within-reach" if within else "missing-tag" if missing else "left-alone",
        "code": verdict.reason.code.value,
        "could": f"{verdict.method}: {words(verdict.reason)}" if within else words(verdict.reason),
    }


def _group_row(group: Any, watched: Mapping[tuple[str, str], Any]) -> dict[str, Any]:
    return {
        "name": group.name,
        "region": group.region,
        "gpu_types": list(group.gpu_types),
        "gpu_instances": group.gpu_instances,
        "desired": group.desired,
        "maximum": group.maximum,
        **_tags(group.governance),
        **_could_group(group, watched),
    }


def _could_group(group: Any, watched: Mapping[tuple[str, str], Any]) -> dict[str, str]:
    """What the budget guard could do with the members of a group, as far as the group itself decides it."""
    from governor.domain.reasons import ReasonCode, because, words

    seen = watched.get((group.region, group.name))
    if not group.governance.stoppable:
        reason = because(ReasonCode.GROUP_NOT_MANAGED, group=group.name)
    elif seen is not None and seen.scales_itself:
        reason = because(ReasonCode.GROUP_SCALES_ITSELF, group=group.name, what=", ".join(seen.scales_itself))
    else:
        return {"code": "within-reach", "could": "standby-and-stop: its members, one by one"}
    return {"code": reason.code.value, "could": words(reason)}


def _spot_row(request: Any) -> dict[str, Any]:
    return {
        "request_id": request.request_id,
        "region": request.region,
        "instance_type": request.instance_type,
        "state": request.state,
        "persistent": request.persistent,
        "instance_id": request.instance_id,
        **_tags(request.governance),
        "code": "persistent" if request.persistent else "one-time",
        "could": (
            "stop: its instance, by the tags of the instance"
            if request.persistent
            else "nothing, unless budget/terminate-one-time-spot is on"
        ),
    }


def _reservation_row(found: Scan, reservation: Any) -> dict[str, Any]:
    from cli.terminal import iso
    from governor.domain.reasons import ReasonCode, because, words

    price = found.prices.price_of(reservation.instance_type)
    billed = reservation.state == "active" and not reservation.capacity_block
    usd = price.usd_per_hour if price else None
    why = "it is paid in advance" if reservation.capacity_block else "it is billed whether it is used or not"
    reason = because(ReasonCode.SAVES_NOTHING, why=why)
    return {
        "reservation_id": reservation.reservation_id,
        "region": reservation.region,
        "instance_type": reservation.instance_type,
        "state": reservation.state,
        "capacity_block": reservation.capacity_block,
        "total": reservation.total,
        "unused": reservation.unused,
        "ends_at": iso(reservation.ends_at),
        "unused_usd_per_hour": (usd * reservation.unused if usd is not None else None) if billed else 0.0,
        "code": reason.code.value,
        "could": words(reason),
    }


def _sums(rows: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    rows = list(rows)

    def rate(reach: str | None = None) -> float:
        return sum(row["usd_per_hour"] or 0.0 for row in rows if reach is None or row["reach"] == reach)

    return {
        "instances": len(rows),
        "running": sum(row["state"] == "running" for row in rows),
        "usd_per_hour": rate(),
        "within_reach_usd_per_hour": rate("within-reach"),
        "missing_tag_usd_per_hour": rate("missing-tag"),
        "left_alone_usd_per_hour": rate("left-alone"),
    }


def _grouped(rows: list[dict[str, Any]], key: str) -> list[dict[str, Any]]:
    names = sorted({row[key] for row in rows})
    grouped = [{key: name, **_sums(row for row in rows if row[key] == name)} for name in names]
    return sorted(grouped, key=lambda group: -group["usd_per_hour"])
