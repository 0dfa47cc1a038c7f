"""A stack whose custom resource refuses its delete until a parameter allows it."""

from __future__ import annotations

from aws_cdk import (
    App,
    CfnOutput,
    CustomResource,
    DefaultStackSynthesizer,
    Duration,
    Environment,
    Stack,
    aws_iam,
    aws_lambda,
    aws_sns,
    aws_ssm,
)

CODE = """
import json, urllib.request, boto3

SENTENCE = "Instances are still stopped: run `governor retire --apply` first."


def handler(event, context):
    name = event["ResourceProperties"]["Parameter"]
    allowed = boto3.client("ssm").get_parameter(Name=name)["Parameter"]["Value"] == "yes"
    refused = event["RequestType"] == "Delete" and not allowed
    answer = {
        "Status": "FAILED" if refused else "SUCCESS",
        "Reason": SENTENCE if refused else "",
        "PhysicalResourceId": "held",
        **{key: event[key] for key in ("StackId", "RequestId", "LogicalResourceId")},
    }
    body = json.dumps(answer).encode()
    urllib.request.urlopen(urllib.request.Request(event["ResponseURL"], body, method="PUT"), timeout=10).read()
"""


class HeldStack(Stack):
    """The function, its parameter and role, and a topic that nothing depends on."""

    def __init__(self, app: App) -> None:
        super().__init__(
            app,
            "Held",
            env=Environment(account="123456789012", region="us-east-1"),
            synthesizer=DefaultStackSynthesizer(),
        )
        parameter = aws_ssm.StringParameter(self, "Allowed", string_value="no")
        function = aws_lambda.Function(
            self,
            "Function",
            runtime=aws_lambda.Runtime.PYTHON_3_13,
            handler="index.handler",
            code=aws_lambda.Code.from_inline(CODE),
            timeout=Duration.seconds(20),
        )
        function.add_to_role_policy(aws_iam.PolicyStatement(actions=["ssm:GetParameter"], resources=["*"]))
        CustomResource(
            self,
            "Held",
            service_token=function.function_arn,
            properties={"Parameter": parameter.parameter_name},
        )
        aws_sns.Topic(self, "Loose")
        CfnOutput(self, "Parameter", value=parameter.parameter_name)


app = App()
HeldStack(app)
app.synth()
