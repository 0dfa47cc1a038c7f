"""The answer of a scan as tables that read well at 100 columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from cli.terminal import clock, console, count, table, text, usd

if TYPE_CHECKING:
    from rich.console import Console

MAX_NAMED_REGIONS = 5
REACH_STYLES = {"within-reach": "good", "missing-tag": "warn", "left-alone": ""}


def show_scan(answer: Mapping[str, Any]) -> None:
    """Print the answer of a scan."""
    screen = console()
    account = f"account {answer['account_id']}" if answer["account_id"] else "an account that may not be named"
    screen.print(
        f"GPU fleet of {account}: {count(len(answer['instances']))} in {count(len(answer['regions']), 'Region')}, "
        f"tags read for stage {answer['stage']}.",
        markup=False,
        style="strong",
    )
    _show_unknown(screen, answer)
    _show_instances(screen, answer)
    _show_others(screen, answer)
    _show_totals(screen, answer)
    _show_own_cost(screen, answer)


def _show_unknown(screen: Console, answer: Mapping[str, Any]) -> None:
    for unknown in answer["unknown_regions"]:
        screen.print(f"Unknown, not empty: {unknown['region']} ({unknown['why']})", style="warn", markup=False)
    by_call: dict[tuple[str, str], list[str]] = {}
    for call in answer["refused_calls"]:
        by_call.setdefault((call["call"], call["why"]), []).append(call["region"])
    for (call, why), regions in by_call.items():
        where = ", ".join(regions[:MAX_NAMED_REGIONS])
        if len(regions) > MAX_NAMED_REGIONS:
            where = f"{len(regions)} of {len(answer['regions'])} Regions"
        screen.print(f"Not answered: {call} in {where} ({why})", style="warn", markup=False)


def _show_instances(screen: Console, answer: Mapping[str, Any]) -> None:
    if not answer["instances"]:
        screen.print("\nNo GPU instances in the Regions that were read.", markup=False)
        return
    for region in [group["region"] for group in answer["by_region"]]:
        rows = [row for row in answer["instances"] if row["region"] == region]
        shown = table("instance", "type", "state", "$/h", "tags", "what the Governor could do", right=["$/h"])
        shown.title = region
        for row in rows:
            tags = row["criticality"] or "-"
            if row["project"]:
                tags += f"\n{row['project'][:16]}"
            shown.add_row(
                text(row["instance_id"] + (f"\n{row['name'][:19]}" if row["name"] else "")),
                row["instance_type"],
                row["state"],
                usd(row["usd_per_hour"]),
                text(tags),
                text(row["could"], REACH_STYLES[row["reach"]]),
            )
        screen.print()
        screen.print(shown)


def _show_others(screen: Console, answer: Mapping[str, Any]) -> None:
    if answer["groups"]:
        shown = table(
            "Auto Scaling group",
            "Region",
            "GPUs now",
            "desired",
            "max",
            "what the Governor could do",
            right=["GPUs now", "desired", "max"],
            title="Groups",
            wrap=["Auto Scaling group", "what the Governor could do"],
        )
        for row in answer["groups"]:
            shown.add_row(
                text(f"{row['name']} ({', '.join(row['gpu_types'])})"),
                row["region"],
                str(row["gpu_instances"]),
                str(row["desired"]),
                str(row["maximum"]),
                text(row["could"]),
            )
        screen.print()
        screen.print(shown)
    if answer["spot_requests"]:
        shown = table("spot request", "type", "Region", "state", "what the Governor could do", title="Spot requests")
        for row in answer["spot_requests"]:
            kind = "persistent" if row["persistent"] else "one-time"
            shown.add_row(
                row["request_id"], row["instance_type"], row["region"], f"{row['state']}, {kind}", text(row["could"])
            )
        screen.print()
        screen.print(shown)
    if answer["reservations"]:
        shown = table(
            "reservation",
            "Region",
            "unused",
            "$/h unused",
            "ends",
            "what the Governor could do",
            right=["unused", "$/h unused"],
            title="Capacity reservations",
        )
        for row in answer["reservations"]:
            shown.add_row(
                text(f"{row['reservation_id']}\n{row['instance_type']}"),
                row["region"],
                f"{row['unused']} of {row['total']}",
                usd(row["unused_usd_per_hour"]),
                clock(row["ends_at"]).replace(" UTC", "") if row["ends_at"] else "when cancelled",
                text(row["could"]),
            )
        screen.print()
        screen.print(shown)


def _show_totals(screen: Console, answer: Mapping[str, Any]) -> None:
    figures = ["instances", "running", "$/h", "within reach", "missing tag", "left alone"]
    shown = table("total by", "", *figures, right=figures, title="Cost per hour at list price")

    def add(label: str, name: str, sums: Mapping[str, Any], style: str = "") -> None:
        shown.add_row(
            label,
            text(name),
            str(sums["instances"]),
            str(sums["running"]),
            usd(sums["usd_per_hour"]),
            usd(sums["within_reach_usd_per_hour"]),
            usd(sums["missing_tag_usd_per_hour"]),
            usd(sums["left_alone_usd_per_hour"]),
            style=style,
        )

    for group in answer["by_region"]:
        add("Region", group["region"], group)
    for group in answer["by_family"]:
        add("family", group["family"], group)
    totals = answer["totals"]
    add("all", "", totals, "bold")
    screen.print()
    screen.print(shown)
    screen.print(
        f"That is {usd(totals['usd_per_month'])} in a month of 730 h. Prices: on-demand Linux, "
        f"{answer['prices']['region']}, {answer['prices']['dated']}; spot and committed instances cost less.",
        markup=False,
    )
    if totals["unused_reservations_usd_per_hour"]:
        screen.print(
            f"Unused reservations cost {usd(totals['unused_reservations_usd_per_hour'])}/h more.", style="warn"
        )
    if totals["unpriced_types"]:
        screen.print(f"Without a price, so not counted: {', '.join(totals['unpriced_types'])}.", style="warn")
    if totals["missing_tag_usd_per_hour"]:
        screen.print(
            f"Out of reach by a missing or inexact tag: {usd(totals['missing_tag_usd_per_hour'])}/h. "
            f"To bring an instance within reach, tag it governor:managed={answer['stage']} and "
            "governor:criticality=standard (or preemptible).",
            style="warn",
            markup=False,
        )


def _show_own_cost(screen: Console, answer: Mapping[str, Any]) -> None:
    cost = answer["own_cost"]
    figures = ["per month", "unit price", "$/month"]
    shown = table("the Governor itself", *figures, right=figures, wrap=["the Governor itself"])
    for item in cost["items"]:
        plural = "" if item["quantity"] == 1 or item["unit"] == "GB" else "s"
        shown.add_row(
            item["what"],
            f"{_quantity(item['quantity'])} {item['unit']}{plural}",
            _unit_price(item["unit_price_usd"]),
            usd(item["usd_per_month"]),
        )
    shown.add_row("all", "", "", usd(cost["usd_per_month"]), style="bold")
    screen.print()
    screen.print(shown)
    screen.print(f"Estimate: {cost['prices_source']}, {cost['prices_dated']}.", style="quiet", markup=False)


def _quantity(quantity: float) -> str:
    return f"{quantity:,.0f}" if quantity >= 10 else f"{quantity:.2f}".rstrip("0").rstrip(".")


def _unit_price(usd_per_unit: float) -> str:
    """At least two decimals, and as many as the price has."""
    whole, _, decimals = f"{usd_per_unit:.10f}".rstrip("0").partition(".")
    return f"${whole}.{decimals.ljust(2, '0')}"
