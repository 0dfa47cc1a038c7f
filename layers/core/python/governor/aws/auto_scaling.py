"""Auto Scaling groups: their sizes, members and tags, and what would change their size by itself."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from governor.domain.fleet import Group
from governor.domain.tags import TagKeys, read_governance

NAMES_PER_CALL = 50
"""DescribeAutoScalingGroups takes at most 50 names with paging (Amazon EC2 Auto Scaling API Reference)."""

REFRESHING = frozenset({"Pending", "InProgress", "Baking", "Cancelling", "RollbackInProgress"})
"""States of an instance refresh in which it still replaces members."""

REFRESH_WORDS = "instance refresh in progress"


def read_groups(client: Any, region: str, names: Sequence[str], keys: TagKeys, stage: str) -> dict[str, Group]:
    """Groups by name; missing ones are left out. Raises botocore's errors."""
    items: dict[str, Mapping[str, Any]] = {}
    for start in range(0, len(names), NAMES_PER_CALL):
        pages = client.get_paginator("describe_auto_scaling_groups").paginate(
            AutoScalingGroupNames=list(names[start : start + NAMES_PER_CALL])
        )
        items.update({item["AutoScalingGroupName"]: item for page in pages for item in page["AutoScalingGroups"]})
    return {name: _read_group(client, item, region, keys, stage) for name, item in sorted(items.items())}


def _read_group(client: Any, item: Mapping[str, Any], region: str, keys: TagKeys, stage: str) -> Group:
    name = str(item["AutoScalingGroupName"])
    tags = [(str(tag.get("Key", "")), str(tag.get("Value", ""))) for tag in item.get("Tags") or ()]
    members = [(str(m["InstanceId"]), str(m.get("LifecycleState", ""))) for m in item.get("Instances") or ()]
    return Group(
        name=name,
        region=region,
        min_size=int(item["MinSize"]),
        max_size=int(item["MaxSize"]),
        desired=int(item["DesiredCapacity"]),
        governance=read_governance(tags, keys, stage),
        members=tuple(sorted(members)),
        scales_itself=tuple(what_scales(client, name, item)),
    )


def what_scales(client: Any, name: str, item: Mapping[str, Any]) -> Iterator[str]:
    """What changes the size of a group by itself, in words. Raises botocore's errors."""
    suspended = {str(process.get("ProcessName")) for process in item.get("SuspendedProcesses") or ()}
    for page in client.get_paginator("describe_policies").paginate(AutoScalingGroupName=name):
        acting = [policy for policy in page["ScalingPolicies"] if _acts(policy, suspended)]
        yield from (f"scaling policy {policy['PolicyName']}" for policy in acting)
    if "ScheduledActions" not in suspended:
        pages = client.get_paginator("describe_scheduled_actions").paginate(AutoScalingGroupName=name)
        for page in pages:
            yield from (f"scheduled action {a['ScheduledActionName']}" for a in page["ScheduledUpdateGroupActions"])
    refreshes = client.describe_instance_refreshes(AutoScalingGroupName=name).get("InstanceRefreshes", ())
    if any(refresh.get("Status") in REFRESHING for refresh in refreshes):
        yield REFRESH_WORDS


def _acts(policy: Mapping[str, Any], suspended: Collection[str]) -> bool:
    """True for an enabled policy that changes the size.

    Suspending AlarmNotification halts target tracking, step and simple scaling, and no predictive policy
    (Amazon EC2 Auto Scaling User Guide, "Considerations for suspending processes"); that one only forecasts or acts.
    """
    if policy.get("Enabled") is False:
        return False
    if policy.get("PolicyType") != "PredictiveScaling":
        return "AlarmNotification" not in suspended
    return (policy.get("PredictiveScalingConfiguration") or {}).get("Mode") == "ForecastAndScale"
