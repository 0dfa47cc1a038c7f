"""What the budget guard would decide at this moment: the same gather and decide as in the function, reading only."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from cli.account import aws
from cli.errors import CliError, sentence_of

if TYPE_CHECKING:
    from cli.stage import Scope, Stage
    from governor.domain.budget import GuardPlan
    from governor.domain.budget_snapshot import BudgetSnapshot
    from governor.domain.decisions import Decision, InstanceVerdict
    from governor.domain.settings import Mode
    from governor.shell.settings import SettingsSnapshot

NEXT_RUN = timedelta(minutes=5)
"""The guard runs at least this often."""


@dataclass(frozen=True, slots=True)
class Outlook:
    """What was seen, the settings in force, and what follows from both at `now`."""

    now: datetime
    snapshot: BudgetSnapshot
    settings: SettingsSnapshot
    plan: GuardPlan

    @property
    def decision(self) -> Decision:
        """The decision of the moment."""
        return self.plan.decision


@dataclass(frozen=True, slots=True)
class HeldBack:
    """The stops that only a pause keeps from happening; `unknown` says why they could not be worked out."""

    level: str | None
    instances: tuple[InstanceVerdict, ...]
    unknown: str | None = None

    @property
    def usd_per_hour(self) -> float:
        """What those instances cost."""
        return sum(verdict.usd_per_hour or 0.0 for verdict in self.instances)


def look_ahead(stage: Stage, scope: Scope, now: datetime) -> Outlook:
    """Look at everything the guard looks at, and decide. Raises CliError before the first snapshot of the settings."""
    from governor.aws.budgets import AwsBudgets
    from governor.aws.catalogue import load_catalogue
    from governor.aws.ec2_actions import Ec2Actions
    from governor.aws.ec2_fleet import Ec2Fleet
    from governor.aws.parameter_store import ControlParameters
    from governor.aws.run_command import RunCommand
    from governor.shell.budget_guard import GuardDeps, gather, load_state, look_and_decide
    from governor.shell.events import Trigger, moment_of_run
    from governor.shell.settings import load_snapshot

    home = stage.home_region
    store = stage.store()
    settings = load_snapshot(store)
    if settings is None:
        raise CliError(
            f"The stage {stage.name} has no snapshot of its settings yet; check_settings takes one within a minute "
            f"of the deploy, so wait, or see what is wrong with: governor settings validate --stage {stage.name}."
        )
    deps = GuardDeps(
        stage=stage.name,
        home_region=home,
        account_id=stage.account_id,
        budget_name=scope.budget_name,
        store=store,
        fleet=Ec2Fleet(scope.regions, _ec2, _auto_scaling, scope.keys, stage.name),
        actions=Ec2Actions(_ec2, _auto_scaling),  # looking ahead uses none of them
        commands=RunCommand(_ssm),
        budgets=AwsBudgets(aws("budgets", home), stage.account_id, scope.budget_name),
        controls=ControlParameters(aws("ssm", home), stage.name),
        prices=load_catalogue(),
        clock=lambda: now,
        counted_families=scope.counted_families,
        checkpoint_documents=scope.checkpoint_documents,
    )
    state = load_state(store)
    moment = moment_of_run(Trigger("governor", now), (state.decided_at, state.trigger) if state else None)
    snapshot, plan = look_and_decide(deps.fleet, gather(deps, settings, state, moment), settings, moment)
    return Outlook(moment, snapshot, settings, plan)


def _ec2(region: str) -> Any:
    return aws("ec2", region)


def _auto_scaling(region: str) -> Any:
    return aws("autoscaling", region)


def _ssm(region: str) -> Any:
    return aws("ssm", region)


def in_mode(outlook: Outlook, mode: Mode) -> tuple[Decision, Decision]:
    """What would follow in another mode: at once, and in the run after that."""
    from governor.domain.budget import decide

    settings = replace(outlook.settings.settings.budget, mode=mode)
    first = decide(outlook.snapshot, settings, outlook.now)
    later = replace(outlook.snapshot, state=first.state)
    return first.decision, decide(later, settings, outlook.now + NEXT_RUN).decision


def held_by_pause(stage: Stage, now: datetime) -> HeldBack:
    """The stops that would happen if nothing was paused. Whatever cannot be read is said, and stops no pause."""
    from botocore.exceptions import BotoCoreError, ClientError
    from pydantic import ValidationError

    from cli.stage import find_scope
    from governor.domain.budget import decide
    from governor.domain.budget_victims import OUT_OF_REACH_FOR_NOW
    from governor.domain.decisions import Verdict
    from governor.domain.pause import Pause
    from governor.domain.settings import Mode
    from governor.ports import UnreadableError

    try:
        outlook = look_ahead(stage, find_scope(stage), now)
    except (CliError, ClientError, BotoCoreError, UnreadableError, ValidationError) as error:
        return HeldBack(None, (), sentence_of(error))
    controls = replace(outlook.snapshot.controls, pause=Pause(active=False))
    free = replace(outlook.snapshot, controls=controls)
    decision = decide(free, outlook.settings.settings.budget, outlook.now).decision
    # Not the stops of this moment: after a pause each begins with a notice and its grace.
    armed = decision.level == "stop" and decision.mode is Mode.ENFORCE
    due = [v for v in decision.verdicts if v.verdict is Verdict.STOP or v.reason.code in OUT_OF_REACH_FOR_NOW]
    return HeldBack(decision.level, tuple(due) if armed else ())
