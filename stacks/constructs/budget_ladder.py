"""The AWS budget of a stage and the ladder of notices that it gives."""

from __future__ import annotations

from aws_cdk import Aws
from aws_cdk import aws_budgets as budgets
from aws_cdk import aws_sns as sns
from constructs import Construct

from stacks.sections import BudgetConfig


class BudgetLadder(Construct):
    """A monthly budget with ACTUAL steps and one FORECASTED, all to one topic.

    It has no name: a step that is edited replaces the budget, and the new one is made before the old one goes. Only
    the topic subscribes, since a changed subscriber replaces the budget as well; people subscribe to topics.
    """

    def __init__(self, scope: Construct, construct_id: str, *, config: BudgetConfig, topic: sns.ITopic) -> None:
        """Make the budget over the GPU families of this account, without what credits and refunds hide."""
        super().__init__(scope, construct_id)
        steps = [("ACTUAL", percent) for percent in config.threshold_percents]
        steps.append(("FORECASTED", config.forecast_percent))
        self.budget = budgets.CfnBudget(
            self,
            "Resource",
            budget=budgets.CfnBudget.BudgetDataProperty(
                budget_type="COST",
                time_unit="MONTHLY",
                budget_limit=budgets.CfnBudget.SpendProperty(amount=config.limit_usd, unit="USD"),
                metrics=["AmortizedCost"],
                filter_expression=budgets.CfnBudget.ExpressionProperty(
                    and_=[
                        _matches("INSTANCE_TYPE_FAMILY", list(config.families)),
                        _matches("LINKED_ACCOUNT", [Aws.ACCOUNT_ID]),
                        budgets.CfnBudget.ExpressionProperty(not_=_matches("RECORD_TYPE", ["Credit", "Refund"])),
                    ]
                ),
            ),
            notifications_with_subscribers=[
                budgets.CfnBudget.NotificationWithSubscribersProperty(
                    notification=budgets.CfnBudget.NotificationProperty(
                        notification_type=kind,
                        comparison_operator="GREATER_THAN",
                        threshold=percent,
                        threshold_type="PERCENTAGE",
                    ),
                    subscribers=[
                        budgets.CfnBudget.SubscriberProperty(subscription_type="SNS", address=topic.topic_arn)
                    ],
                )
                for kind, percent in steps
            ],
        )

    @property
    def name(self) -> str:
        """The name that CloudFormation gave it."""
        return self.budget.ref


def _matches(dimension: str, values: list[str]) -> budgets.CfnBudget.ExpressionProperty:
    return budgets.CfnBudget.ExpressionProperty(
        dimensions=budgets.CfnBudget.ExpressionDimensionValuesProperty(key=dimension, values=values)
    )
