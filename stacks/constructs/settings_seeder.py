"""The custom resource that creates the operator's parameters."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping

from aws_cdk import CustomResource, Duration, RemovalPolicy
from aws_cdk import aws_lambda as lambda_
from constructs import Construct


class SettingsSeeder(Construct):
    """Calls the seeding function on the first deploy and whenever the schema or the initial values change.

    The function answers CloudFormation itself and creates only what is missing. Deleting the stack leaves all
    parameters, since they hold what operators decided.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        function: lambda_.IFunction,
        schema_hash: str,
        initial_settings: Mapping[str, str],
    ) -> None:
        """Make the resource; it changes with `schema_hash` and with the initial values."""
        super().__init__(scope, construct_id)
        self.resource = CustomResource(
            self,
            "Resource",
            resource_type="Custom::SettingsSeed",
            service_token=function.function_arn,
            service_timeout=Duration.minutes(10),
            removal_policy=RemovalPolicy.DESTROY,
            properties={
                "SchemaHash": schema_hash,
                "InitialSettingsHash": hashlib.sha256(
                    json.dumps(dict(initial_settings), sort_keys=True).encode()
                ).hexdigest(),
            },
        )
