"""`governor plan`: what the budget guard would do at this moment."""

from __future__ import annotations

from cli.options import JsonOption, StageOption


def plan(stage: StageOption = None, as_json: JsonOption = False) -> None:
    """Show what the budget guard would do at this moment, for each instance with its reason and cost. Reads only.

    It looks at the same things and decides by the same code as the deployed function, but changes and records nothing.

    **Examples:**

    - `governor plan`
    - `governor plan --stage prod --json`
    """
    from cli.decision_view import describe_decision, show_conclusion, show_decision
    from cli.outlook import look_ahead
    from cli.override import read_brake
    from cli.stage import find_scope, find_stage
    from cli.terminal import clock, console, current_time, print_json

    found = find_stage(stage)
    outlook = look_ahead(found, find_scope(found), current_time())
    decision, unknown = outlook.decision, outlook.snapshot.fleet.unknown_regions
    brake = read_brake(found)
    if as_json:
        messages = [{"severity": m.severity.value, "subject": m.subject, "key": m.key} for m in decision.messages]
        print_json(
            {
                "stage": found.name,
                **describe_decision(decision),
                "messages": messages,
                "native_brake": brake,
                "unknown_regions": [{"region": u.region, "why": u.why} for u in unknown],
            }
        )
        return
    screen = console()
    screen.print(
        f"What guard_budget of stage {found.name} would do at {clock(outlook.now)}:", style="strong", markup=False
    )
    show_decision(screen, decision)
    for region in unknown:
        screen.print(f"Unknown, not empty: {region.region} ({region.why})", style="warn", markup=False)
    for message in decision.messages:
        screen.print(f"Message ({message.severity.value}), unless sent before: {message.subject}", markup=False)
    if brake is not None:
        screen.print(f"Native brake (denies launches of GPU types): {brake['outcome']}", style="warn", markup=False)
    show_conclusion(screen, decision)
