"""The custom resource that refuses to go before the stage was given back."""

from __future__ import annotations

from aws_cdk import CustomResource, Duration, RemovalPolicy
from aws_cdk import aws_lambda as lambda_
from constructs import Construct


class RetiredCheck(Construct):
    """Deleting it fails with one sentence while machines may still be stopped by the Governor.

    It has no properties: once a deletion was refused, CloudFormation updates its stack no more, so whatever may change
    the answer lies with the function, which is in another stack.
    """

    def __init__(self, scope: Construct, construct_id: str, *, function: lambda_.IFunction) -> None:
        """Make the resource."""
        super().__init__(scope, construct_id)
        self.resource = CustomResource(
            self,
            "Resource",
            resource_type="Custom::RetiredCheck",
            service_token=function.function_arn,
            service_timeout=Duration.minutes(10),
            removal_policy=RemovalPolicy.DESTROY,
        )

    def go_last(self, stack: Construct) -> None:
        """Let everything else in `stack` exist before it, so that it is deleted before everything else."""
        for child in stack.node.children:
            if child is not self:
                self.resource.node.add_dependency(child)
