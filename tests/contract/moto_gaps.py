"""What EC2 and Auto Scaling answer and plain moto does not, for tests that run moto in their own process."""

from __future__ import annotations

import pytest
from moto.autoscaling.responses import AutoScalingResponse
from moto.core.responses import ActionResult
from moto.ec2.responses.reserved_instances import ReservedInstances

from local import wildcards


def fill_gaps(patch: pytest.MonkeyPatch) -> None:
    """Wildcards in filters, an account without Reserved Instances, and groups without refreshes."""
    patch.setattr("moto.ec2.utils.instance_value_in_filter_values", wildcards.matches)
    none_bought = ActionResult({"ReservedInstances": []})
    patch.setattr(ReservedInstances, "describe_reserved_instances", lambda _: none_bought)
    none_begun = ActionResult({"InstanceRefreshes": []})
    patch.setattr(AutoScalingResponse, "describe_instance_refreshes", lambda _: none_begun, raising=False)
