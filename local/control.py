"""The control endpoints of a local AWS, under /_local/ beside the AWS APIs."""

from __future__ import annotations

import asyncio
import json
import traceback
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime, timedelta
from typing import Any

from local.commands import Outcome
from local.faults import Fault
from local.fleet import create_sample_fleet, remove_instances
from local.pacing import start_pacing
from local.patching import patched_points
from local.starts import Start
from local.whole_fleet import create_whole_fleet
from local.world import World

PREFIX = "/_local/"

Body = Mapping[str, Any]
Asgi = Callable[[Any, Any, Any], Awaitable[None]]


class Control:
    """One method a path; each takes and gives plain JSON."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._paths: dict[str, Callable[[Body], Any]] = {
            "advance": self.advance,
            "budgets/refresh": self.refresh_budgets,
            "calls": self.calls,
            "clock": self.clock,
            "commands": self.commands,
            "commands/outcomes": self.command_outcomes,
            "commitments": self.commitments,
            "deliveries": self.deliveries,
            "emit": self.emit,
            "faults": self.faults,
            "fleet": self.fleet,
            "fleet/remove": self.remove_fleet,
            "hold": self.hold,
            "logs": self.logs,
            "mails": self.mails,
            "pace": self.pace,
            "parameters": self.parameters,
            "points": self.points,
            "roles": self.roles,
            "settle": self.settle,
            "spend": self.spend,
            "starts": self.starts,
            "stats": self.stats,
            "subscriptions": self.subscriptions,
        }

    def serve(self, path: str, body: Body) -> Any:
        """Answer one request. Raises KeyError for an unknown path."""
        return self._paths[path](body)

    def clock(self, body: Body) -> Any:
        """Read the clock, or jump to `now` (ISO with zone; no schedule fires for the time in between)."""
        if "now" in body:
            self._world.set_clock(datetime.fromisoformat(body["now"]))
        return {"now": self._world.clock.now().isoformat(), "is_virtual": self._world.clock.is_virtual}

    def advance(self, body: Body) -> Any:
        """Run the time up to `to`, or by `minutes`, minute by minute."""
        if "to" in body:
            moment = datetime.fromisoformat(body["to"])
        else:
            moment = self._world.clock.now() + timedelta(minutes=float(body["minutes"]))
        return {"runs": self._world.advance_to(moment), "now": self._world.clock.now().isoformat()}

    def pace(self, body: Body) -> Any:
        """Let the clock run by itself, one virtual minute every `minute_seconds` of real time."""
        start_pacing(self._world, float(body["minute_seconds"]))
        return {}

    def settle(self, body: Body) -> Any:
        """Wait until everything due now was delivered."""
        return {"runs": self._world.settle()}

    def hold(self, body: Body) -> Any:
        """Hold the background delivery (`on`), or let it go on."""
        self._world.deliveries.hold(bool(body["on"]))
        return {}

    def emit(self, body: Body) -> Any:
        """Put one event on the default bus, AWS's own sources included."""
        self._world.bus.put(
            source=body["source"],
            detail_type=body["detail_type"],
            detail=body["detail"],
            region=body.get("region") or self._world.options.region,
            resources=body.get("resources") or (),
        )
        return {}

    def roles(self, body: Body) -> Any:
        """Switch role enforcement on or off."""
        if "on" in body:
            self._world.roles.enforce(bool(body["on"]))
        return {"on": self._world.roles.are_enforced}

    def faults(self, body: Body) -> Any:
        """Replace the faults in force."""
        self._world.faults.set([Fault(**one) for one in body["faults"]])
        return {}

    def spend(self, body: Body) -> Any:
        """Read the true bill, or set it; budgets see it at their next refresh."""
        if "amount_usd" in body:
            self._world.budgets.set_spend(float(body["amount_usd"]), body.get("forecast_usd"))
        self._world.budgets.spend.accrue(self._world.clock.now())
        return {
            "month_to_date_usd": self._world.budgets.spend.month_to_date_usd(None),
            "run_rate_usd_per_hour": self._world.budgets.spend.run_rate_usd_per_hour(),
            "next_refresh": self._world.budgets.next_refreshes(),
        }

    def refresh_budgets(self, body: Body) -> Any:
        """Let every budget see the true bill now."""
        self._world.budgets.refresh_now()
        return {}

    def parameters(self, body: Body) -> Any:
        """Switch empty first pages of GetParametersByPath on or off."""
        self._world.parameters.empty_pages = bool(body["empty_pages"])
        return {}

    def fleet(self, body: Body) -> Any:
        """Create the sample fleet, or with `everything` the one of every kind."""
        world, stage = self._world, body["stage"]
        region = body.get("region") or world.options.region
        if body.get("everything"):
            created = create_whole_fleet(world.moto, world.commitments, region, stage=stage)
        else:
            created = create_sample_fleet(world.moto, region, stage=stage, group=bool(body.get("group", True)))
        return {"instances": [one.to_dict() for one in created]}

    def remove_fleet(self, body: Body) -> Any:
        """End every instance and group, and clear what was set for starts, commands and commitments."""
        world = self._world
        ended = remove_instances(world.moto)
        world.starts.set([])
        world.commands.set_outcomes([])
        world.commitments.clear()
        return {"ended": ended}

    def starts(self, body: Body) -> Any:
        """Replace what becomes of starts."""
        self._world.starts.set([Start(**one) for one in body["starts"]])
        return {}

    def commitments(self, body: Body) -> Any:
        """Replace the reserved instances or capacity reservations of a Region."""
        region = body.get("region") or self._world.options.region
        self._world.commitments.set(body["kind"], region, body["items"])
        return {}

    def command_outcomes(self, body: Body) -> Any:
        """Replace how commands sent from now on end."""
        self._world.commands.set_outcomes([Outcome(**one) for one in body["outcomes"]])
        return {}

    def commands(self, body: Body) -> Any:
        """Every command sent over Run Command."""
        return {"commands": [one.to_dict() for one in self._world.commands.all()]}

    def subscriptions(self, body: Body) -> Any:
        """Confirm e-mail subscriptions whose address matches, or let them wait for it."""
        count = self._world.subscriptions.set_confirmed(bool(body["confirmed"]), str(body["endpoint"]))
        return {"changed": count}

    def mails(self, body: Body) -> Any:
        """Everything sent to people and endpoints outside."""
        return {"mails": [mail.to_dict() for mail in self._world.mailbox.all()]}

    def deliveries(self, body: Body) -> Any:
        """What became of each delivery, skipping the first `after`."""
        records = self._world.deliveries.records(int(body.get("after", 0)))
        return {"deliveries": [record.to_dict() for record in records], "waiting": self._world.deliveries.waiting()}

    def calls(self, body: Body) -> Any:
        """Every AWS request seen, skipping the first `after`."""
        return {"calls": [call.to_dict() for call in self._world.calls.all(int(body.get("after", 0)))]}

    def points(self, body: Body) -> Any:
        """The functions of the emulator that were replaced or relied on."""
        return {"points": [{"owner": one.owner, "name": one.name} for one in patched_points()]}

    def logs(self, body: Body) -> Any:
        """All that a function wrote."""
        path = self._world.functions.log_path(body["function"])
        return {"log": path.read_text(errors="replace") if path.exists() else ""}

    def stats(self, body: Body) -> Any:
        """Figures of the run so far."""
        return {
            "now": self._world.clock.now().isoformat(),
            "minutes_run": self._world.minutes_run,
            "deliveries": len(self._world.deliveries.records()),
            "waiting": self._world.deliveries.waiting(),
            "calls": len(self._world.calls.all()),
            "cold_starts": self._world.functions.cold_starts,
            "function_processes": self._world.functions.process_ids(),
            "roles_enforced": self._world.roles.are_enforced,
        }


def with_control(application: Asgi, control: Control) -> Asgi:
    """The emulator's application with the control endpoints before it. Only errors of ours answer 4xx or 500 here."""

    async def serve(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http" or not scope["path"].startswith(PREFIX):
            await application(scope, receive, send)
            return
        body = json.loads(await _read(receive) or b"{}")
        status, answer = await asyncio.to_thread(_answer, control, scope["path"].removeprefix(PREFIX), body)
        content = json.dumps(answer).encode()
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(content)).encode())]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": content})

    return serve


def _answer(control: Control, path: str, body: Body) -> tuple[int, Any]:
    try:
        return 200, control.serve(path, body)
    except Exception as error:  # noqa: BLE001 - the caller raises it again, with this traceback
        return 500, {"error": f"{type(error).__name__}: {error}", "traceback": traceback.format_exc()}


async def _read(receive: Any) -> bytes:
    parts: list[bytes] = []
    while True:
        message = await receive()
        parts.append(message.get("body", b""))
        if not message.get("more_body"):
            return b"".join(parts)
