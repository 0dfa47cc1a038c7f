"""What changes instances and groups in EC2 and Auto Scaling: one bad id costs one failure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from botocore.exceptions import ClientError

from governor.aws.errors import AWS_ERRORS, error_code, error_sentence
from governor.ports import CallAnswer, StopAnswer

IDS_PER_CALL = 50
"""EC2 accepts more; small calls keep one failure small (Amazon EC2 API Reference advises batches)."""

STANDBY_IDS_PER_CALL = 20
"""Limit of EnterStandby and ExitStandby (Amazon EC2 Auto Scaling API Reference)."""

_WHOLE_CALL_ERRORS = frozenset(
    {
        "AuthFailure",
        "InternalError",
        "InternalFailure",
        "RequestLimitExceeded",
        "ResourceContention",
        "ScalingActivityInProgress",
        "ServiceUnavailable",
        "Throttling",
        "ThrottlingException",
        "Unavailable",
    }
)
"""Errors that say nothing of a single id, so that trying one by one is of no use. A denial may be of one tag alone."""

_CANCELLED_ALREADY = frozenset({"cancelled", "closed", "completed", "failed"})


class Ec2Actions:
    """`FleetActions` and `StartActions`. Each client is given by Region."""

    def __init__(self, ec2_of: Callable[[str], Any], auto_scaling_of: Callable[[str], Any]) -> None:
        self._ec2_of = ec2_of
        self._auto_scaling_of = auto_scaling_of

    def stop(self, region: str, instance_ids: Sequence[str]) -> tuple[StopAnswer, ...]:
        """Stop instances. Hibernation is never asked for: no GPU type can (Amazon EC2 User Guide, "Hibernate")."""
        ec2 = self._ec2_of(region)
        return _in_parts(lambda ids: ec2.stop_instances(InstanceIds=ids, Hibernate=False), instance_ids, IDS_PER_CALL)

    def terminate(self, region: str, instance_ids: Sequence[str]) -> tuple[StopAnswer, ...]:
        """Terminate instances."""
        ec2 = self._ec2_of(region)
        return _in_parts(lambda ids: ec2.terminate_instances(InstanceIds=ids), instance_ids, IDS_PER_CALL)

    def start(self, region: str, instance_ids: Sequence[str]) -> tuple[StopAnswer, ...]:
        """Start instances. A lack of capacity may be of one type alone, so it is halved like a bad id."""
        ec2 = self._ec2_of(region)
        return _in_parts(lambda ids: ec2.start_instances(InstanceIds=ids), instance_ids, IDS_PER_CALL)

    def cancel_spot_request(self, region: str, request_id: str) -> CallAnswer:
        """Cancel a spot request; one that is over already counts as cancelled."""
        ec2 = self._ec2_of(region)
        try:
            answer = ec2.cancel_spot_instance_requests(SpotInstanceRequestIds=[request_id])
        except AWS_ERRORS as error:
            return CallAnswer(False, error_sentence(error))
        states = [r.get("State", "") for r in answer.get("CancelledSpotInstanceRequests", ())]
        if states and all(state in _CANCELLED_ALREADY for state in states):
            return CallAnswer(True)
        return CallAnswer(False, f"the request {request_id} is {', '.join(states) or 'unknown'} after the cancellation")

    def enter_standby(self, region: str, group: str, instance_ids: Sequence[str]) -> tuple[StopAnswer, ...]:
        """Put members into standby and lower the desired capacity by as many."""
        client = self._auto_scaling_of(region)
        return _in_parts(
            lambda ids: client.enter_standby(
                InstanceIds=ids, AutoScalingGroupName=group, ShouldDecrementDesiredCapacity=True
            ),
            instance_ids,
            STANDBY_IDS_PER_CALL,
        )

    def exit_standby(self, region: str, group: str, instance_ids: Sequence[str]) -> tuple[StopAnswer, ...]:
        """Bring members back from standby, which raises the desired capacity by as many."""
        client = self._auto_scaling_of(region)
        return _in_parts(
            lambda ids: client.exit_standby(InstanceIds=ids, AutoScalingGroupName=group),
            instance_ids,
            STANDBY_IDS_PER_CALL,
        )

    def lower(self, region: str, group: str, instance_id: str) -> StopAnswer:
        """Terminate exactly this member and lower the desired capacity by one. The group is the instance's own."""
        client = self._auto_scaling_of(region)
        (answer,) = _in_parts(
            lambda ids: client.terminate_instance_in_auto_scaling_group(
                InstanceId=ids[0], ShouldDecrementDesiredCapacity=True
            ),
            [instance_id],
            1,
        )
        return answer

    def set_group_size(
        self, region: str, group: str, *, min_size: int | None = None, desired: int | None = None
    ) -> CallAnswer:
        """Set MinSize, the desired capacity, or both; what is None stays."""
        sizes = {"MinSize": min_size, "DesiredCapacity": desired}
        request = {name: size for name, size in sizes.items() if size is not None}
        try:
            self._auto_scaling_of(region).update_auto_scaling_group(AutoScalingGroupName=group, **request)
        except AWS_ERRORS as error:
            return CallAnswer(False, error_sentence(error))
        return CallAnswer(True)

    def volume_keys(self, region: str, instance_id: str) -> tuple[str, ...]:
        """ARNs of the KMS keys of its volumes; empty where none is encrypted or they cannot be read."""
        filters = [{"Name": "attachment.instance-id", "Values": [instance_id]}]
        try:
            answer = self._ec2_of(region).describe_volumes(Filters=filters)
        except AWS_ERRORS:
            return ()
        return tuple(sorted({str(v["KmsKeyId"]) for v in answer.get("Volumes", ()) if v.get("KmsKeyId")}))


def _in_parts(call: Callable[[list[str]], Any], instance_ids: Sequence[str], size: int) -> tuple[StopAnswer, ...]:
    """One answer an id, in order. AWS refuses a whole call for one bad id: it is halved until that id is alone."""
    answers: list[StopAnswer] = []
    for start in range(0, len(instance_ids), size):
        answers.extend(_try(call, list(instance_ids[start : start + size])))
    return tuple(answers)


def _try(call: Callable[[list[str]], Any], instance_ids: list[str]) -> list[StopAnswer]:
    try:
        call(instance_ids)
    except AWS_ERRORS as error:
        of_the_call = not isinstance(error, ClientError) or error_code(error) in _WHOLE_CALL_ERRORS
        if len(instance_ids) == 1 or of_the_call:
            return [StopAnswer(instance_id, False, error_sentence(error)) for instance_id in instance_ids]
        middle = len(instance_ids) // 2
        return [*_try(call, instance_ids[:middle]), *_try(call, instance_ids[middle:])]
    return [StopAnswer(instance_id, True) for instance_id in instance_ids]
