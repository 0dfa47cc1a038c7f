"""Checks of `governor doctor`: may the functions do their work, and can every Region be seen?"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from cli.account import aws
from cli.findings import Check, Checkup, Finding, fail, is_denied, ok, unknown

INSTANCE, GROUP = "instance/*", "autoScalingGroup:*:autoScalingGroupName/*"
ACTIONS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "guard_budget": {
        INSTANCE: ("ec2:StopInstances",),
        GROUP: ("autoscaling:EnterStandby", "autoscaling:UpdateAutoScalingGroup"),
    },
    "confirm_actions": {
        INSTANCE: ("ec2:StartInstances",),
        GROUP: ("autoscaling:ExitStandby", "autoscaling:UpdateAutoScalingGroup"),
    },
}
"""What each function has to be able to do to a managed, non-critical instance or group."""

SAMPLES = {INSTANCE: "ec2:{region}:{account}:instance/i-00000000000000000"}
SAMPLES[GROUP] = (
    "autoscaling:{region}:{account}:autoScalingGroup:00000000-0000-0000-0000-000000000000:autoScalingGroupName/any"
)
"""The resource of which the simulation is asked."""

CLOSED_REGION = frozenset({"AuthFailure", "OptInRequired"})
"""What EC2 answers in a Region that is not enabled, while the same credentials work elsewhere."""

ORGANISATION = "service control policy"
SAMPLE_CRITICALITY = "standard"


def check_role(function: str, checkup: Checkup) -> Finding:
    """Would IAM and the organisation let the function do its work in every Region? Asked of the policy simulator."""
    denied: dict[tuple[str, str], list[str]] = {}
    arn = checkup.scope.function_roles.get(function)
    if arn is None:
        name = f"Governor-{checkup.stage.name}-Control"
        return unknown(
            f"the stack {name} does not say which role it has; deploy again: make deploy STAGE={checkup.stage.name}"
        )
    for region in checkup.scope.regions:
        for kind, actions in ACTIONS[function].items():
            for action, why in _refusals(checkup, arn, region, kind, actions):
                denied.setdefault((action, why), []).append(region)
    if not denied:
        names = sorted({action.partition(":")[2] for actions in ACTIONS[function].values() for action in actions})
        return ok(f"may {', '.join(names)} in {', '.join(checkup.scope.regions)}")
    said = "; ".join(f"{action} in {', '.join(regions)} ({why})" for (action, why), regions in denied.items())
    todo = "compare the role with docs/permissions.md, and ask whoever manages the organisation"
    return fail(f"may not {said}; {todo}")


def _refusals(
    checkup: Checkup, role_arn: str, region: str, kind: str, actions: tuple[str, ...]
) -> Iterable[tuple[str, str]]:
    """Actions that would be refused in a Region, and what refuses them."""
    stage, keys = checkup.stage, checkup.scope.keys
    sample = f"arn:{checkup.partition}:" + SAMPLES[kind].format(region=region, account=stage.account_id)
    context = {
        f"aws:ResourceTag/{keys.managed}": stage.name,
        f"aws:ResourceTag/{keys.criticality}": SAMPLE_CRITICALITY,
        "aws:RequestedRegion": region,
    }
    pages = aws("iam", stage.home_region).get_paginator("simulate_principal_policy")
    answers = pages.paginate(
        PolicySourceArn=role_arn,
        ActionNames=list(actions),
        ResourceArns=[sample],
        ContextEntries=[
            {"ContextKeyName": key, "ContextKeyValues": [value], "ContextKeyType": "string"}
            for key, value in context.items()
        ],
    )
    for result in (result for page in answers for result in page["EvaluationResults"]):
        why = _what_refuses(result)
        if why:
            yield str(result["EvalActionName"]), why


def _what_refuses(result: Mapping[str, Any]) -> str:
    if result.get("OrganizationsDecisionDetail", {}).get("AllowedByOrganizations") is False:
        return f"denied by a {ORGANISATION}"
    if result["EvalDecision"] == "allowed":
        return ""
    if result.get("PermissionsBoundaryDecisionDetail", {}).get("AllowedByPermissionsBoundary") is False:
        return "not within the permissions boundary of the role"
    return "denied by a policy of the role" if result["EvalDecision"] == "explicitDeny" else "not granted to the role"


def check_regions(checkup: Checkup) -> Finding:
    """Can every listed Region be read?"""
    from governor.aws.errors import AWS_ERRORS, error_code, error_sentence

    closed, unread = [], []
    for region in checkup.scope.regions:
        try:
            checkup.instances(region)
        except AWS_ERRORS as error:
            if error_code(error) in CLOSED_REGION or ORGANISATION in str(error):
                closed.append(f"{region} ({error_sentence(error)})")
            else:
                unread.append(f"{region} ({error_sentence(error)})")
    if closed:
        return fail(
            f"nothing is seen or stopped in {', '.join(closed)}; enable it, or take it out of the stage in cdk.json"
        )
    if unread:
        return unknown(f"you cannot read {', '.join(unread)}; try again with the Reader policy of the stage")
    return ok(
        f"{', '.join(checkup.scope.regions)} can be read; other Regions are not watched (governor scan shows them)"
    )


def check_stop(checkup: Checkup) -> Finding:
    """Does EC2 refuse a stop for a reason that would hold for the functions too? Tried with DryRun: nothing stops."""
    from governor.aws.errors import AWS_ERRORS

    stopped, refused, odd, open_regions, empty = [], [], [], [], []
    for region in checkup.scope.regions:
        try:
            instance_id = _candidate(checkup, region)
            if instance_id is None:
                empty.append(region)
                continue
            answer = _dry_run(region, instance_id)
        except AWS_ERRORS as error:
            odd.append(f"{region}: {_short(error)}")
            continue
        if answer is None:
            stopped.append(f"{instance_id} in {region}")
        elif ORGANISATION in str(answer):
            refused.append(f"{instance_id} in {region}")
        elif is_denied(answer) and _names_a_policy(answer):
            open_regions.append(f"{instance_id} in {region}")
        else:
            odd.append(f"{instance_id} in {region}: {_short(answer)}")
    return _judge_stops(checkup, stopped, refused, odd, open_regions, empty)


def _judge_stops(
    checkup: Checkup, stopped: list[str], refused: list[str], odd: list[str], others: list[str], empty: list[str]
) -> Finding:
    if refused:
        return fail(
            f"a {ORGANISATION} forbids to stop {', '.join(refused)}, most likely to guard_budget too; "
            "ask whoever manages the organisation"
        )
    if odd:
        return unknown(f"EC2 does not say whether it may be stopped: {'; '.join(odd)}")
    said = []
    if stopped:
        said.append(f"you may stop {', '.join(stopped)}")
    if others:
        said.append(
            f"you may not stop {', '.join(others)}, which is fine where the function may (above): no {ORGANISATION} is "
            "in the way"
        )
    if not said:
        keys = checkup.scope.keys
        return unknown(
            f"nothing to try with: no instance is tagged {keys.managed}={checkup.stage.name} and {keys.criticality}="
            "standard or preemptible"
        )
    if empty:
        said.append(f"nothing to try with in {', '.join(empty)}")
    return ok("; ".join(said))


def _candidate(checkup: Checkup, region: str) -> str | None:
    """An instance that the guard might stop, a running one first. Spot instances answer differently."""
    from governor.domain.tags import read_governance

    found = []
    for item in checkup.instances(region):
        tags = [(tag["Key"], tag["Value"]) for tag in item.get("Tags", ())]
        if read_governance(tags, checkup.scope.keys, checkup.stage.name).stoppable and "InstanceLifecycle" not in item:
            found.append((item["State"]["Name"] != "running", str(item["InstanceId"])))
    return min(found)[1] if found else None


def _dry_run(region: str, instance_id: str) -> Exception | None:
    """What EC2 says to a stop that it does not carry out; None where it would."""
    from botocore.exceptions import ClientError

    from governor.aws.errors import error_code

    try:
        aws("ec2", region).stop_instances(InstanceIds=[instance_id], DryRun=True)
    except ClientError as error:
        return None if error_code(error) == "DryRunOperation" else error
    raise ValueError(f"a dry run of StopInstances in {region} ended without an error")


def _names_a_policy(error: Exception) -> bool:
    """True where EC2 says which kind of policy refuses; without it, it could be the organisation."""
    return any(words in str(error) for words in ("identity-based policy", "permissions boundary", "session policy"))


def _short(error: Exception) -> str:
    from governor.aws.errors import error_sentence

    return error_sentence(error)


CHECKS: tuple[tuple[str, Check], ...] = (
    ("Regions", check_regions),
    *((f"role of {name}", partial(check_role, name)) for name in ACTIONS),
    ("stop, tried", check_stop),
)
