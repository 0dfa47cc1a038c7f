"""Saving the work before a stop: which document runs on an instance, and how far that has come."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from governor.domain.budget_snapshot import BudgetSnapshot, Checkpoint
from governor.domain.fleet import Instance
from governor.domain.reasons import Reason, ReasonCode, because
from governor.domain.settings import BudgetSettings

FRESH = timedelta(hours=2)
"""A checkpoint that is older than this saves too little, so it runs again."""


@dataclass(frozen=True, slots=True)
class CheckpointView:
    """What a checkpoint means for one instance now. At most one of the three flags is set."""

    document: str = ""
    to_run: bool = False
    running: bool = False
    failed: bool = False
    notes: tuple[Reason, ...] = ()


def document_of(instance: Instance, settings: BudgetSettings) -> str:
    """The document of an instance: its tag, else that of its pool; an empty text where there is none."""
    return instance.governance.checkpoint or dict(settings.checkpoint_documents).get(instance.governance.pool, "")


def view_checkpoint(
    instance: Instance, snapshot: BudgetSnapshot, settings: BudgetSettings, now: datetime
) -> CheckpointView:
    """How far the checkpoint of an instance has come. One that is not through within the grace has failed."""
    document = document_of(instance, settings)
    if not document:
        return CheckpointView()
    if settings.grace_minutes == 0:
        return CheckpointView(document, notes=(because(ReasonCode.CHECKPOINT_NO_GRACE, document=document),))
    if document not in snapshot.checkpoint_documents:
        why = "it does not stand in checkpoint_documents in cdk.json"
        return CheckpointView(
            document, failed=True, notes=(because(ReasonCode.CHECKPOINT_FAILED, document=document, why=why),)
        )
    found = _newest(snapshot, instance, now)
    if found is None:
        return CheckpointView(document, to_run=True, notes=(because(ReasonCode.CHECKPOINT_PLANNED, document=document),))
    if found.status == "success":
        return CheckpointView(document, notes=(because(ReasonCode.CHECKPOINT_DONE, document=document),))
    if found.status == "pending" and now < found.sent_at + timedelta(minutes=settings.grace_minutes):
        return CheckpointView(
            document, running=True, notes=(because(ReasonCode.CHECKPOINT_RUNNING, document=document),)
        )
    why = found.detail or "not through within the grace"
    return CheckpointView(
        document, failed=True, notes=(because(ReasonCode.CHECKPOINT_FAILED, document=document, why=why),)
    )


def _newest(snapshot: BudgetSnapshot, instance: Instance, now: datetime) -> Checkpoint | None:
    mine = [
        c
        for c in snapshot.checkpoints
        if c.instance_id == instance.instance_id
        and c.launched_at == instance.launched_at
        and timedelta(0) <= now - c.sent_at < FRESH
    ]
    return max(mine, key=lambda c: c.sent_at, default=None)


def answered(checkpoint: Checkpoint, status: str, detail: str) -> Checkpoint:
    """A checkpoint with what SSM says of it."""
    return replace(checkpoint, status=status, detail=detail)
