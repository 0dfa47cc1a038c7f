"""What the operator's parameters of a stage start with."""

from __future__ import annotations

import re

from governor.domain.settings import SETTINGS, SPEC_BY_NAME, SettingSpec, ValueKind
from stacks.config import CDK_JSON, StageConfig, StageError


def initial_settings(stage: StageConfig) -> dict[str, str]:
    """Setting name -> text for what the stage decides; the rest starts with its default. Raises StageError."""
    values: dict[str, str] = {spec.name: stage.initial_mode for spec in SETTINGS if spec.name.endswith("/mode")}
    values["budget/limit-usd"] = f"{stage.budget.limit_usd:.4f}".rstrip("0").rstrip(".")
    values.update(stage.settings)
    where = f"{CDK_JSON.name}: context.stages.{stage.name}.settings"
    problems = []
    for name, value in values.items():
        spec = SPEC_BY_NAME.get(name)
        if spec is None:
            known = ", ".join(sorted(SPEC_BY_NAME))
            problems.append(f"{where}.{name} is not a known setting; remove it or write one of {known}.")
        elif not _fits(spec, value):
            problems.append(f'{where}.{name} is "{value}"; write {spec.rule}.')
    if problems:
        raise StageError(problems)
    return values


def _fits(spec: SettingSpec, value: str) -> bool:
    if re.fullmatch(spec.allowed_pattern.strip("^$"), value) is None:
        return False
    if spec.kind not in (ValueKind.NUMBER, ValueKind.INTEGER):
        return True
    number = float(value)
    return (spec.minimum is None or number >= spec.minimum) and (spec.maximum is None or number <= spec.maximum)
