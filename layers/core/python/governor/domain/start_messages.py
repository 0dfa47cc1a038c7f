"""What people are told when the way back is blocked: no capacity, an unusable key, a group that was changed."""

from __future__ import annotations

from governor.domain.budget_messages import console_url, subject_of, usd_text
from governor.domain.decisions import Message, Severity
from governor.domain.groups import GroupHold
from governor.domain.ledger import NOT_OUT_OF_STANDBY, StopEntry
from governor.domain.meter import period_of
from governor.domain.outcomes import OutcomeScene
from governor.domain.reasons import Reason, words

_CAPACITY = (
    "InsufficientInstanceCapacity",
    "InsufficientHostCapacity",
    "InsufficientReservedInstanceCapacity",
    "UnfulfillableCapacity",
    "SpotMaxPriceTooLow",
)
_KEY = ("client.internalerror", "kms")
"""A start that lacks a grant on a volume's key is accepted and falls back with Client.InternalError, or names KMS."""


def may_be_key(detail: str) -> bool:
    """True for a failure that most often is about the key of a volume."""
    return any(word in detail.lower() for word in _KEY)


def start_refused(scene: OutcomeScene, entry: StopEntry, volume_keys: tuple[str, ...]) -> Message:
    """A start failed: which kind of failure it is, what is tried by itself, and what a person can do."""
    named = f"{entry.instance_id} ({entry.instance_type}, {entry.region})"
    first = f"{named} does not start again: {entry.detail}."
    subject = "does not start again"
    if entry.detail.startswith(NOT_OUT_OF_STANDBY):
        kind, subject, first = "standby", NOT_OUT_OF_STANDBY, f"{named} runs, but {entry.detail}."
        lines = _standby_lines(entry)
    elif any(code in entry.detail for code in _CAPACITY):
        kind, lines = "capacity", _capacity_lines(entry)
    elif "kms" in entry.detail.lower() or (may_be_key(entry.detail) and volume_keys):
        kind, lines = "key", _key_lines(scene, volume_keys)
    else:
        kind, lines = "other", ["EC2 refused it or took it back for the reason above; that may be permanent."]
    again = []
    if entry.next_start_at is not None:
        again = [
            f"It is tried again at {entry.next_start_at:%Y-%m-%d %H:%M} UTC, then at longer intervals up to an hour, "
            "until restore/give-up-hours."
        ]
    body = [
        first,
        *lines,
        *again,
        "",
        f"What it costs when it runs: {usd_text(entry.usd_per_hour)}/h. Its volumes are as they were.",
        f"Asked for by: {entry.restore_asked_by or 'its group'}.",
        *_hold_lines(scene, entry),
    ]
    moment = entry.restore_asked_at.isoformat() if entry.restore_asked_at else ""
    key = scene.key("start-refused", kind, entry.instance_id, moment)
    return _message(scene, Severity.WARN, key, f"{entry.instance_id} {subject} ({kind})", body)


def start_withheld(scene: OutcomeScene, entry: StopEntry, why: Reason) -> Message:
    """A start that was announced is not made, because something changed before the call. `entry` is as it was."""
    body = [
        f"{entry.instance_id} ({entry.instance_type}, {entry.region}) is not started after all: it {words(why)}.",
        f"It was asked for by {entry.restore_asked_by}; nothing was changed. Once the reason is gone:",
        f"  governor restore {entry.instance_id} --stage {scene.stage}",
        *_hold_lines(scene, entry),
    ]
    moment = entry.restore_asked_at.isoformat() if entry.restore_asked_at else ""
    key = scene.key("start-withheld", why.code.value, entry.instance_id, moment)
    return _message(scene, Severity.WARN, key, f"{entry.instance_id} is not started after all", body)


def _hold_lines(scene: OutcomeScene, entry: StopEntry) -> list[str]:
    return [
        f"Why: governor explain {entry.instance_id} --stage {scene.stage}",
        "Hold everything: set the pause parameter to 'on': "
        + console_url(scene.home_region, f"/governor/{scene.stage}/control/pause"),
        f"  or: governor pause --because '...' --stage {scene.stage}",
    ]


def _standby_lines(entry: StopEntry) -> list[str]:
    return [
        f"It is billed and gets no work from the Auto Scaling group {entry.group} until it is back in service:",
        f"  aws autoscaling exit-standby --region {entry.region} --auto-scaling-group-name {entry.group} "
        f"--instance-ids {entry.instance_id}",
    ]


def _capacity_lines(entry: StopEntry) -> list[str]:
    family = entry.instance_type.partition(".")[0]
    return [
        f"AWS has no {family} capacity in its zone now. What can be done meanwhile: another zone from an image of its "
        "volumes, another type, or a capacity reservation."
    ]


def _key_lines(scene: OutcomeScene, volume_keys: tuple[str, ...]) -> list[str]:
    named = [f"  {key}" for key in volume_keys] or ["  (the keys of its volumes could not be read)"]
    return [
        "Its volumes are encrypted, and a start that ends like this most often lacks kms:CreateGrant on the key:",
        *named,
        f"for the role of confirm_actions in stage {scene.stage} (stack Governor-{scene.stage}-Control).",
        "Add the key to volume_key_arns of the stage in cdk.json and deploy; the key's own policy has to allow it too.",
    ]


def sizes_not_put_back(scene: OutcomeScene, hold: GroupHold, what: str) -> Message:
    """A group's sizes were changed by somebody else, or AWS refused: they are left as they are."""
    body = [
        f"MinSize of the Auto Scaling group {hold.name} in {hold.region} was not put back to {hold.min_before}: "
        f"{what}.",
        "The Governor does not fight over it. Set it by hand if it is to be as before:",
        f"  aws autoscaling update-auto-scaling-group --region {hold.region} "
        f"--auto-scaling-group-name {hold.name} --min-size {hold.min_before}",
        "Its machines run as before; the Governor closes the matter once MinSize is back.",
    ]
    key = scene.key("sizes-not-put-back", hold.region, hold.name, hold.held_since.isoformat())
    return _message(scene, Severity.WARN, key, f"sizes of group {hold.name} were not put back", body)


def _message(scene: OutcomeScene, severity: Severity, key: str, subject: str, lines: list[str]) -> Message:
    return Message(
        key=key,
        severity=severity,
        subject=subject_of(f"[Governor {scene.stage}] {subject}"),
        body="\n".join(lines) + "\n",
        facts=(("budget", scene.budget_name), ("period", period_of(scene.now))),
    )
