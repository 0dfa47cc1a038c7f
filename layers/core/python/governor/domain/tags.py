"""What the tags of a resource say: may it be acted on, how critical is it, whose is it.

People write tags by hand, so keys and values are compared after normalisation (Unicode NFKC, invisible characters
and surrounding white space removed, case folded). Reading is generous, acting is strict: the IAM policy of the
functions compares exactly, so a tag that is readable but not exact leaves the instance out of reach.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum


class Criticality(StrEnum):
    """How much an instance matters; only `standard` and `preemptible` may ever be stopped."""

    CRITICAL = "critical"
    STANDARD = "standard"
    PREEMPTIBLE = "preemptible"


class TagFinding(StrEnum):
    """Why the tags of an instance could not be taken at their word."""

    MANAGED_CONFLICT = "managed-conflict"
    MANAGED_NOT_EXACT = "managed-not-exact"
    CRITICALITY_MISSING = "criticality-missing"
    CRITICALITY_UNREADABLE = "criticality-unreadable"
    CRITICALITY_CONFLICT = "criticality-conflict"
    CRITICALITY_NOT_EXACT = "criticality-not-exact"


@dataclass(frozen=True, slots=True)
class TagKeys:
    """The tag keys in use; configurable per stage."""

    managed: str = "governor:managed"
    criticality: str = "governor:criticality"
    project: str = "governor:project"
    pool: str = "governor:pool"
    keep: str = "governor:keep"
    checkpoint: str = "governor:checkpoint"


@dataclass(frozen=True, slots=True)
class Governance:
    """Tags as the Governor reads them. `exact` is False where IAM would refuse to act on what we can read."""

    managed: bool = False
    criticality: Criticality = Criticality.CRITICAL
    exact: bool = False
    project: str = ""
    pool: str = ""
    findings: tuple[TagFinding, ...] = ()
    keep: str | None = None
    """Text of the keep tag, None where there is none."""
    checkpoint: str = ""
    """Name of the SSM document that saves the work before a stop."""

    @property
    def stoppable(self) -> bool:
        """True where both we and IAM agree that the instance is managed and not critical."""
        return self.managed and self.exact and self.criticality is not Criticality.CRITICAL


def normalise(text: str) -> str:
    """Fold compatibility forms, case, invisible characters and surrounding white space."""
    folded = unicodedata.normalize("NFKC", text)
    visible = "".join(c for c in folded if unicodedata.category(c) not in ("Cf", "Cc", "Cs"))
    return unicodedata.normalize("NFKC", visible.strip().casefold())


def read_governance(tags: Iterable[tuple[str, str]], keys: TagKeys, stage: str) -> Governance:
    """What `tags` (key, value pairs; keys may repeat in variants) mean for `stage`. Total; odd input is never managed.

    Managed without a readable criticality, or with conflicting variants, is critical.
    """
    pairs = [(key, value) for key, value in tags]
    by_key: dict[str, list[tuple[str, str]]] = {}
    for key, value in pairs:
        by_key.setdefault(normalise(key), []).append((key, value))

    def variants(key: str) -> list[tuple[str, str]]:
        return by_key.get(normalise(key), [])

    findings: list[TagFinding] = []
    managed_tags = variants(keys.managed)
    says_managed = [normalise(value) == normalise(stage) for _, value in managed_tags]
    managed = bool(says_managed) and all(says_managed)
    if any(says_managed) and not managed:
        findings.append(TagFinding.MANAGED_CONFLICT)
    exact = managed and (keys.managed, stage) in managed_tags
    if managed and not exact:
        findings.append(TagFinding.MANAGED_NOT_EXACT)

    criticality = Criticality.CRITICAL
    written = variants(keys.criticality)
    meanings = {normalise(value) for _, value in written}
    if not meanings or meanings == {""}:
        if managed:
            findings.append(TagFinding.CRITICALITY_MISSING)
    elif len(meanings) > 1:
        findings.append(TagFinding.CRITICALITY_CONFLICT)
    else:
        try:
            criticality = Criticality(meanings.pop())
        except ValueError:
            findings.append(TagFinding.CRITICALITY_UNREADABLE)
    if criticality is not Criticality.CRITICAL and (keys.criticality, criticality.value) not in written:
        findings.append(TagFinding.CRITICALITY_NOT_EXACT)
        exact = False

    def first(key: str) -> str:
        exactly = [value for name, value in pairs if name == key]
        folded = [value for _, value in variants(key)]
        return (exactly or folded or [""])[0].strip()

    return Governance(
        managed,
        criticality,
        exact,
        first(keys.project),
        first(keys.pool),
        tuple(findings),
        keep=first(keys.keep) if variants(keys.keep) else None,
        checkpoint=first(keys.checkpoint),
    )
