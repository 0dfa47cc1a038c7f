"""The company of the demo: its people, its limit, and the machines it has left running."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum

from governor.domain.reasons import ReasonCode

NAME = "Tern Audio"
LIMIT_USD = 30_000.0
"""The month's limit for GPU machines; the fleet below would cost about 56,000 in a whole month."""

MAIL_OF_TOPIC = {
    "PageTopicArn": "oncall@tern-audio.example",
    "WarnTopicArn": "platform@tern-audio.example",
    "InfoTopicArn": "platform-log@tern-audio.example",
}

OPS_LEAD = "maria.lopez"
ON_CALL = "priya.nair"
ENGINEER = "jonas.weber"

GROUP_NAME = "transcribe-workers"
GROUP_SIZES = (1, 2, 3)
"""MinSize, desired capacity and MaxSize of the Auto Scaling group."""


class Kind(StrEnum):
    """What an instance is beside its tags, as far as the Governor treats it in its own way."""

    PLAIN = "plain"
    GROUP_MEMBER = "group member"
    PERSISTENT_SPOT = "persistent spot"
    ONE_TIME_SPOT = "one-time spot"
    STOP_PROTECTED = "stop-protected"


@dataclass(frozen=True, slots=True)
class Machine:
    """One machine, launched so long before the story begins. `stays_because` None: to be stopped at 95 %.

    Members of the group are launched with it, in the order of `FLEET`.
    """

    name: str
    instance_type: str
    tags: tuple[tuple[str, str], ...]
    launched_before: timedelta
    stays_because: ReasonCode | None
    kind: Kind = Kind.PLAIN


def _tags(criticality: str, project: str, pool: str) -> tuple[tuple[str, str], ...]:
    return (
        ("governor:managed", "local"),
        ("governor:criticality", criticality),
        ("governor:project", project),
        ("governor:pool", pool),
    )


def _days(days: float) -> timedelta:
    return timedelta(days=days)


FLEET: tuple[Machine, ...] = (
    Machine("speech-pretrain-0", "p4d.24xlarge", _tags("standard", "speech-pretrain", "training"), _days(2.5), None),
    Machine("voice-sweep-3", "p4d.24xlarge", _tags("preemptible", "voice-clone", "training"), _days(0.4), None),
    Machine("voice-lm-serve", "p4d.24xlarge", _tags("critical", "voice-api", "inference"), _days(2.9),
            ReasonCode.CRITICAL),
    Machine("voice-api-gw-0", "g4dn.xlarge", _tags("critical", "voice-api", "inference"), _days(2.9),
            ReasonCode.CRITICAL),
    Machine("voice-api-gw-1", "g4dn.xlarge", _tags("critical", "voice-api", "inference"), _days(2.9),
            ReasonCode.CRITICAL),
    Machine("eval-nightly", "g4dn.12xlarge", _tags("preemptible", "evaluation", "training"), _days(0.2), None),
    Machine("denoise-train", "g4dn.8xlarge", _tags("standard", "denoise", "training"), _days(1.1), None),
    Machine("nb-jonas", "g4dn.xlarge", _tags("standard", "notebooks", "notebooks"), _days(1.6), None),
    Machine("nb-intern", "g4dn.2xlarge", _tags("preemptible", "notebooks", "notebooks"), _days(0.7), None),
    Machine("nb-chen", "g4dn.xlarge", _tags("Standard ", "notebooks", "notebooks"), _days(1.4),
            ReasonCode.TAG_NOT_EXACT),
    Machine("sales-demo", "g4dn.xlarge", (), _days(2.7), ReasonCode.NOT_MANAGED),
    Machine("avatar-render", "g5.2xlarge", _tags("standard", "avatar", "render"), _days(2.2),
            ReasonCode.OUT_OF_SCOPE_FAMILY),
    Machine("label-spot-7", "g4dn.xlarge", _tags("preemptible", "labelling", "batch"), _days(0.9), None,
            kind=Kind.PERSISTENT_SPOT),
    Machine("label-spot-8", "g4dn.xlarge", _tags("preemptible", "labelling", "batch"), _days(0.8),
            ReasonCode.SPOT_ONE_TIME, kind=Kind.ONE_TIME_SPOT),
    Machine("license-host", "g4dn.2xlarge", _tags("standard", "simulation", "batch"), _days(2.4),
            ReasonCode.STOP_PROTECTED, kind=Kind.STOP_PROTECTED),
    Machine("transcribe-1", "g4dn.xlarge", _tags("standard", "transcribe", "batch"), _days(1.9), None,
            kind=Kind.GROUP_MEMBER),
    Machine("transcribe-2", "g4dn.xlarge", _tags("standard", "transcribe", "batch"), _days(1.9), None,
            kind=Kind.GROUP_MEMBER),
)  # fmt: skip

RELEASE: tuple[Machine, ...] = (
    Machine("speech-pretrain-1", "p4d.24xlarge", _tags("standard", "speech-pretrain", "training"), _days(0), None),
    Machine("voice-sweep-4", "p4d.24xlarge", _tags("preemptible", "voice-clone", "training"), _days(0), None),
    Machine("denoise-train-2", "g4dn.8xlarge", _tags("standard", "denoise", "training"), _days(0), None),
)
"""Launched for a release above the stop level, under an override."""

LATECOMER = Machine(
    "customer-pilot", "g4dn.12xlarge", _tags("standard", "voice-clone", "training"), _days(0), None
)  # fmt: skip
"""Launched while the stop level is reached already."""

BOOT_MINUTES = {"p4d.24xlarge": 6, "g4dn.12xlarge": 3}
"""Made-up minutes from a start that EC2 accepted to `running`, by type; the emulator alone starts at once."""
OTHER_BOOT_MINUTES = 2
