"""Every function of the emulator that `local` replaces or calls is where the pinned version has it."""

from __future__ import annotations

from importlib.metadata import version
from types import SimpleNamespace

import pytest

from local.client import LocalAws
from local.emulator import PINNED
from local.patching import PatchedPointMovedError, add, relied_on, replace


@pytest.mark.parametrize(("package", "pinned"), PINNED.items())
def test_version_is_the_one_that_was_measured(package: str, pinned: str) -> None:
    assert version(package) == pinned


def test_launcher_checked_every_point_it_touches(fresh: LocalAws) -> None:
    points = {(one["owner"], one["name"]) for one in fresh.control("points")["points"]}
    expected_owners = {
        "AutoScalingBackend",
        "AutoScalingResponse",
        "EC2Response",
        "FakeAutoScalingGroup",
        "Instance",
        "InstanceBackend",
        "ReservedInstances",
        "SpotInstanceRequest",
        "SpotRequestBackend",
        "ministack.app",
        "ministack.core.iam_actions",
        "ministack.core.iam_evaluator",
        "ministack.core.lambda_runtime",
        "ministack.core.responses",
        "ministack.core.router",
        "ministack.core.sigv4",
        "ministack.services.budgets",
        "ministack.services.cloudformation.custom_resource",
        "ministack.services.cloudformation.handlers",
        "ministack.services.cloudformation.provisioners",
        "ministack.services.cloudformation.stacks",
        "ministack.services.cloudwatch",
        "ministack.services.dynamodb",
        "ministack.services.eventbridge",
        "ministack.services.iam",
        "ministack.services.kms",
        "ministack.services.lambda_svc",
        "ministack.services.scheduler",
        "ministack.services.sns",
        "ministack.services.sqs",
        "ministack.services.ssm",
        "ministack.services.sts",
        "moto.ec2.utils",
    }
    assert {owner for owner, _ in points} == expected_owners
    assert len(points) >= 110


def test_point_that_is_gone_is_an_error() -> None:
    with pytest.raises(PatchedPointMovedError, match="gone"):
        relied_on(SimpleNamespace(), "missing", ())


def test_point_with_other_parameters_is_an_error_and_stays() -> None:
    def original(a: int, b: int) -> int:
        return a + b

    owner = SimpleNamespace(original=original)
    with pytest.raises(PatchedPointMovedError, match=r"\('a', 'b'\)"):
        replace(owner, "original", ("a",), lambda a: a)
    assert owner.original is original


def test_replaced_point_gives_the_original_back() -> None:
    owner = SimpleNamespace(double=lambda number: 2 * number)
    original = replace(owner, "double", ("number",), lambda number: original(number) + 1)
    assert owner.double(2) == 5


def test_operation_that_the_emulator_has_by_now_is_an_error() -> None:
    owner = SimpleNamespace(describe=lambda self: "theirs")
    with pytest.raises(PatchedPointMovedError, match="exists by now"):
        add(owner, "describe", lambda self: "ours")
    add(owner, "cancel", lambda self: "ours")
    assert owner.cancel(owner) == "ours"
