"""ControlStack: the budget, the functions, what wakes them, and what they may do."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from aws_cdk import Aws, CfnOutput, Stack
from aws_cdk import aws_events as events
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_scheduler as scheduler
from constructs import Construct

from stacks.artifacts import Artifacts
from stacks.config import StageConfig
from stacks.constructs.budget_ladder import BudgetLadder
from stacks.constructs.governor_function import GovernorFunction
from stacks.constructs.managed_policies import ManagedPolicies
from stacks.constructs.native_brake import NativeBrake
from stacks.constructs.settings_seeder import SettingsSeeder
from stacks.constructs.topic import TopicPublishers
from stacks.environment import stack_options
from stacks.state import StateStack
from stacks.statements import Scope

# Records of the outbox: what is to be sent, and the heartbeat of a run, which shows that sending works.
OUTBOX_FILTERS: tuple[Mapping[str, object], ...] = (
    {"eventName": ["INSERT"], "dynamodb": {"NewImage": {"outbox": {"S": ["mail", "slack", "event"]}}}},
    {"dynamodb": {"NewImage": {"outbox": {"S": ["run"]}}}},
)
CHECK_SETTINGS_MINUTES = 1
GUARD_BUDGET_MINUTES = 5
CONFIRM_ACTIONS_MINUTES = 5
# What can be the final state of a stop or a start, or the first sign of one that somebody else made.
WATCHED_STATES = ("running", "stopped", "terminated", "shutting-down")


class ControlStack(Stack):
    """Budget, layers, functions, rules, schedules, the settings seeder and the policies for people."""

    def __init__(
        self,
        scope: Construct,
        stage: StageConfig,
        *,
        state: StateStack,
        artifacts: Artifacts,
        schema_hash: str,
        initial_settings: Mapping[str, str],
        force_destroy: bool,
    ) -> None:
        """Make the stack of a stage in its home Region; `force_destroy` lets a stage go that was not retired."""
        super().__init__(
            scope,
            f"{stage.stack_prefix}-Control",
            **stack_options(stage, stage.home_region, "functions, what wakes them, and the budget"),
        )
        self._stage = stage
        self._state = state
        self._artifacts = artifacts
        self._layers = self._make_layers()
        # Here and not with the topics: an edited step gives the budget a new name, and another stack that uses the name
        # would either block the change (export) or miss it (the CLI skips a stack whose template is the same).
        self.budget = BudgetLadder(self, "Budget", config=stage.budget, topic=state.budget_topic)
        self._permission_scope = self._make_permission_scope()

        self.check_settings = self._make_function(
            "CheckSettings",
            "Validates the tree of settings and stores one snapshot that all others read",
            timeout_seconds=60,
        )
        self.guard_budget = self._make_function(
            "GuardBudget",
            "Warns and stops non-critical GPU instances when the budget is used up",
            {
                "BUDGET_NAME": self.budget.name,
                "BUDGET_FAMILIES": ",".join(stage.budget.families),
                # An empty variable would name one document without a name.
                **_unless_empty("CHECKPOINT_DOCUMENTS", stage.checkpoint_documents),
            },
            timeout_seconds=300,
            memory_mib=1024,
        )
        self.confirm_actions = self._make_function(
            "ConfirmActions",
            "Sees what became of each stop and start, and starts again what is to be restored",
            {"BUDGET_NAME": self.budget.name},
            timeout_seconds=300,
        )
        self.send_messages = self._make_function(
            "SendMessages",
            "Sends what the others wrote into the outbox",
            {
                "BUS_NAME": state.bus.event_bus_name,
                "PAGE_TOPIC_ARN": state.page_topic.topic_arn,
                "WARN_TOPIC_ARN": state.warn_topic.topic_arn,
                "INFO_TOPIC_ARN": state.info_topic.topic_arn,
                "SLACK_TOPIC_ARN": state.slack_topic.topic_arn,
            },
            timeout_seconds=60,
        )
        self.seed_settings = self._make_function(
            "SeedSettings",
            "Creates the parameters that are missing; never overwrites or deletes one",
            {"INITIAL_SETTINGS": json.dumps(dict(initial_settings), sort_keys=True)},
            timeout_seconds=300,
        )
        # Here and not beside its custom resource in the Watch stack: CloudFormation never updates a stack again whose
        # deletion was refused, and people may then still deploy this one with another answer.
        self.check_retired = self._make_function(
            "CheckRetired",
            "Keeps the stacks from being deleted before the stage was given back",
            {"FORCE_DESTROY": "true" if force_destroy else "false"},
            timeout_seconds=60,
        )
        self.functions = (
            self.check_settings,
            self.guard_budget,
            self.confirm_actions,
            self.send_messages,
            self.seed_settings,
            self.check_retired,
        )
        self.brake = self._make_brake()
        self._allow_publishing()
        seeder = SettingsSeeder(
            self,
            "Settings",
            function=self.seed_settings.function,
            schema_hash=schema_hash,
            initial_settings=initial_settings,
        )
        self.triggers = self._wire()
        for trigger in self.triggers:
            # Nothing runs before the parameters exist: an empty tree would be reported as an error.
            trigger.node.add_dependency(seeder)
        self.policies = ManagedPolicies(self, "People", permission_scope=self._people_scope()).policies
        self._say_outputs()

    def _make_layers(self) -> list[lambda_.ILayerVersion]:
        folders = {"Core": self._artifacts.core_layer, "Dependencies": self._artifacts.dependency_layer}
        return [
            lambda_.LayerVersion(
                self,
                f"{name}Layer",
                code=lambda_.Code.from_asset(str(folder), exclude=["**/__pycache__", "**/*.pyc"]),
                description=f"GPU Governor {self._stage.name}: {name.lower()}",
            )
            for name, folder in folders.items()
        ]

    def _make_permission_scope(self) -> Scope:
        stage, state = self._stage, self._state
        return {
            "partition": stage.partition,
            "account": Aws.ACCOUNT_ID,
            "home": stage.home_region,
            "region": stage.regions,
            "regions": stage.regions,
            "dns_suffixes": _dns_suffixes(stage.partition),
            "stage": stage.name,
            "managed_key": stage.tag_keys.managed,
            "criticality_key": stage.tag_keys.criticality,
            "tag_keys": tuple(stage.tag_keys.model_dump().values()),
            "checkpoint_documents": stage.checkpoint_documents,
            "volume_key_arns": stage.volume_key_arns,
            "budget_name": self.budget.name,
            "table_arn": state.table.table_arn,
            "stream_arn": state.table.table_stream_arn or "",
            "key_arn": state.key.key_arn,
            "bus_arn": state.bus.event_bus_arn,
            "page_topic_arn": state.page_topic.topic_arn,
            "warn_topic_arn": state.warn_topic.topic_arn,
            "info_topic_arn": state.info_topic.topic_arn,
            "slack_topic_arn": state.slack_topic.topic_arn,
        }

    def _people_scope(self) -> Scope:
        return {
            **self._permission_scope,
            "log_group_arns": [one.log_group.log_group_arn for one in self.functions],
            "function_role_arns": [one.role.role_arn for one in self.functions],
            "guard_function_arn": self.guard_budget.function.function_arn,
            "brake_action_id": "" if self.brake is None else self.brake.action_id,
        }

    def _make_brake(self) -> NativeBrake | None:
        if self._stage.native_brake is None:
            return None
        return NativeBrake(
            self,
            "NativeBrake",
            stage=self._stage,
            config=self._stage.native_brake,
            budget_name=self.budget.name,
            topic=self._state.page_topic,
            permission_scope=self._permission_scope,
        )

    def _make_function(
        self,
        construct_id: str,
        description: str,
        environment: Mapping[str, str] | None = None,
        *,
        timeout_seconds: int,
        memory_mib: int = 512,
    ) -> GovernorFunction:
        name = _snake_case(construct_id)
        stage = self._stage
        return GovernorFunction(
            self,
            construct_id,
            name=name,
            code=self._artifacts.functions[name],
            stage=stage,
            layers=self._layers,
            environment={
                "GOVERNOR_STAGE": stage.name,
                "TABLE_NAME": self._state.table.table_name,
                "GOVERNOR_REGIONS": ",".join(stage.regions),
                "ACCOUNT_ID": Aws.ACCOUNT_ID,
                "TAG_KEYS": json.dumps(stage.tag_keys.model_dump(), sort_keys=True),
                "POWERTOOLS_SERVICE_NAME": name,
                "POWERTOOLS_METRICS_NAMESPACE": "GpuGovernor",
                "POWERTOOLS_LOG_LEVEL": "INFO",
                **(environment or {}),
            },
            permission_scope=self._permission_scope,
            # What send_messages cannot send may be a page, so its queues page.
            alarm_topic=self._state.page_topic if name == "send_messages" else self._state.warn_topic,
            description=f"GPU Governor {stage.name}: {description}",
            timeout_seconds=timeout_seconds,
            memory_mib=memory_mib,
        )

    def _allow_publishing(self) -> None:
        """Only send_messages publishes; alarms do so where they tell people directly."""
        topics = {
            "PagePublishers": (self._state.page_topic, True),
            "WarnPublishers": (self._state.warn_topic, True),
            "InfoPublishers": (self._state.info_topic, False),
            "SlackPublishers": (self._state.slack_topic, False),
        }
        for construct_id, (topic, alarms) in topics.items():
            publishers = TopicPublishers(
                self,
                construct_id,
                topic=topic,
                publisher=self.send_messages.role,
                alarms=alarms,
                budgets=self.brake is not None and topic is self._state.page_topic,
            )
            if self.brake is not None:
                # AWS Budgets tries its topic when the action is made.
                self.brake.action.node.add_dependency(publishers)

    def _wire(self) -> list[Construct]:
        """Say what wakes which function; returns what has to wait for the settings."""
        stage, state = self._stage, self._state
        parameter_changed = events.Rule(
            self,
            "ParameterChanged",
            description=f"A parameter of GPU Governor {stage.name} was changed",
            event_pattern=events.EventPattern(
                source=["aws.ssm"],
                detail_type=["Parameter Store Change"],
                detail={"name": [{"prefix": f"/governor/{stage.name}/"}]},
            ),
        )
        self.check_settings.wake_on(parameter_changed)
        settings_changed = events.Rule(
            self,
            "SettingsChanged",
            description=f"GPU Governor {stage.name} has new settings",
            event_bus=state.bus,
            event_pattern=events.EventPattern(source=["governor"], detail_type=["Settings Changed"]),
        )
        self.guard_budget.wake_on(settings_changed)
        instance_changed = events.Rule(
            self,
            "InstanceChanged",
            description=f"An instance that GPU Governor {stage.name} may have stopped or started has a new state",
            event_pattern=events.EventPattern(
                source=["aws.ec2"],
                detail_type=["EC2 Instance State-change Notification"],
                detail={"state": list(WATCHED_STATES)},
            ),
        )
        self.confirm_actions.wake_on(instance_changed)
        restore_decided = events.Rule(
            self,
            "RestoreDecided",
            description=f"GPU Governor {stage.name} has decided to start something again",
            event_bus=state.bus,
            event_pattern=events.EventPattern(
                source=["governor"],
                detail_type=["Governor Decision"],
                detail={"restore_count": [{"numeric": [">", 0]}]},
            ),
        )
        self.confirm_actions.wake_on(restore_decided)
        subscription = self.guard_budget.wake_by(state.budget_topic)
        self.send_messages.read_stream(state.table, OUTBOX_FILTERS)
        group = scheduler.CfnScheduleGroup(self, "Schedules")
        return [
            parameter_changed,
            settings_changed,
            instance_changed,
            restore_decided,
            subscription,
            self.check_settings.wake_every(CHECK_SETTINGS_MINUTES, group),
            self.guard_budget.wake_every(GUARD_BUDGET_MINUTES, group),
            self.confirm_actions.wake_every(CONFIRM_ACTIONS_MINUTES, group),
        ]

    def _say_outputs(self) -> None:
        CfnOutput(self, "BudgetName", value=self.budget.name)
        CfnOutput(self, "BudgetFamilies", value=",".join(self._stage.budget.families))
        CfnOutput(self, "Regions", value=",".join(self._stage.regions))
        CfnOutput(self, "TagKeys", value=json.dumps(self._stage.tag_keys.model_dump(), sort_keys=True))
        if self._stage.checkpoint_documents:
            CfnOutput(self, "CheckpointDocuments", value=",".join(self._stage.checkpoint_documents))
        if self.brake is not None:
            CfnOutput(self, "NativeBrakeActionId", value=self.brake.action_id)
        for one in self.functions:
            CfnOutput(self, f"{_pascal_case(one.name)}FunctionName", value=one.function.function_name)
        # Those that act on machines: `governor doctor` asks IAM what they may do.
        for one in (self.guard_budget, self.confirm_actions):
            CfnOutput(self, f"{_pascal_case(one.name)}RoleArn", value=one.role.role_arn)
        for name, policy in self.policies.items():
            CfnOutput(self, f"{name}PolicyArn", value=policy.managed_policy_arn)
        CfnOutput(
            self,
            "KeptOnDelete",
            value=f"/governor/{self._stage.name}",
            description=(
                "The parameters below this path stay when this stack is deleted: they hold what operators decided, "
                "and a new deploy takes them up again. Instances that were stopped stay stopped."
            ),
        )


def _unless_empty(name: str, values: Sequence[str]) -> dict[str, str]:
    """One variable with `values` and commas, or none."""
    return {name: ",".join(values)} if values else {}


def _dns_suffixes(partition: str) -> tuple[str, ...]:
    """What ends the name of a service in kms:ViaService; in China both forms occur."""
    return ("amazonaws.com.cn", "amazonaws.com") if partition == "aws-cn" else ("amazonaws.com",)


def _snake_case(pascal: str) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in pascal).lstrip("_")


def _pascal_case(snake: str) -> str:
    return "".join(word.capitalize() for word in snake.split("_"))
