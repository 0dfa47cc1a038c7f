"""How queued deliveries reach the emulator's functions and queues."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from local.deliveries import DEFAULT_MAX_AGE, DEFAULT_RETRIES, Delivery, FunctionRun, Refusal, RetryPolicy
from local.emulator import Emulator
from local.patching import relied_on

_PRINCIPALS = {"rule": "events.amazonaws.com", "sns": "sns.amazonaws.com"}


class DeadLetterError(RuntimeError):
    """A failure destination does not exist or is of a kind that is not simulated."""


class EmulatorInvoker:
    """The Invoker of the delivery queue on the emulator's stores."""

    def __init__(self, emulator: Emulator, account_id: str) -> None:
        self._emulator = emulator
        self._account_id = account_id
        self._find = relied_on(emulator.lambdas, "_get_func_record_for_ref", ("function_ref",))
        self._record = relied_on(emulator.lambdas, "_execution_record_for_config", ("func", "config"))
        self._run = relied_on(emulator.lambdas, "_execute_function_with_config_scope", ("func", "event"))
        self._queue = relied_on(emulator.sqs, "_queue_by_arn", ("arn",))
        self._fill_message = relied_on(emulator.sqs, "_ensure_msg_fields", ("m",))
        self._evaluate_policy = relied_on(
            emulator.iam_evaluator, "evaluate_resource_policy", ("doc", "ctx", "service", "named_only", "direct_only")
        )
        self._scope = relied_on(emulator.responses, "request_scope", ("account_id", "region"))

    def refusal(self, delivery: Delivery) -> Refusal | None:
        """Why the function cannot be given this event: it is not there, or its policy does not let the source in."""
        function = self._function(delivery.function_arn)
        if function is None:
            return Refusal("RESOURCE_NOT_FOUND", f"the function {delivery.function_arn} does not exist")
        kind, _, source_arn = delivery.source.partition(" ")
        principal = _PRINCIPALS.get(kind)
        if principal is not None and not self._lets_in(function, principal, source_arn):
            message = f"the policy of {delivery.function_arn} does not let {principal} invoke it for {source_arn}"
            return Refusal("NO_PERMISSIONS", message)
        return None

    def policy(self, function_arn: str) -> RetryPolicy:
        """The function's asynchronous invoke configuration; its own dead-letter queue if that names no destination."""
        function = self._function(function_arn)
        if function is None:
            return RetryPolicy()
        config = (
            function.get("event_invoke_config") or (function.get("event_invoke_configs") or {}).get("$LATEST") or {}
        )
        retries, max_age = config.get("MaximumRetryAttempts"), config.get("MaximumEventAgeInSeconds")
        destination = ((config.get("DestinationConfig") or {}).get("OnFailure") or {}).get("Destination")
        return RetryPolicy(
            retries=DEFAULT_RETRIES if retries is None else int(retries),
            max_age=DEFAULT_MAX_AGE if max_age is None else timedelta(seconds=int(max_age)),
            on_failure_arn=destination or (function["config"].get("DeadLetterConfig") or {}).get("TargetArn") or "",
        )

    def run(self, function_arn: str, payload: Any) -> FunctionRun:
        """Run the function once, and wait for it."""
        function = self._function(function_arn)
        if function is None:
            raise DeadLetterError(f"the function {function_arn} went away before it ran")
        result = self._run(function, payload)
        if not result.get("error"):
            return FunctionRun(error=None)
        return FunctionRun(error=result.get("body") or {}, was_throttled=bool(result.get("throttle")))

    def send_on_failure(self, delivery: Delivery, target_arn: str, error: Mapping[str, Any], condition: str) -> None:
        """Send the record of an exhausted event in the form of a Lambda destination. Raises DeadLetterError."""
        record = {
            "version": "1.0",
            "timestamp": _stamp(datetime.now(UTC)),
            "requestContext": {
                "requestId": str(uuid.uuid4()),
                "functionArn": f"{delivery.function_arn}:$LATEST",
                "condition": condition,
                "approximateInvokeCount": delivery.attempt,
            },
            "requestPayload": delivery.payload,
            "responseContext": {"statusCode": 200, "executedVersion": "$LATEST", "functionError": "Unhandled"},
            "responsePayload": dict(error),
        }
        self.send_to_queue(target_arn, json.dumps(record), {})

    def send_to_rule_queue(self, delivery: Delivery, refusal: Refusal) -> None:
        """Send an event that could not be handed over to the dead-letter queue of its rule or schedule, if any."""
        if not delivery.dead_letter_arn:
            return
        attributes = {
            "ERROR_CODE": refusal.code,
            "ERROR_MESSAGE": refusal.message,
            "RULE_ARN": delivery.source.partition(" ")[2],
            "TARGET_ARN": delivery.function_arn,
        }
        self.send_to_queue(delivery.dead_letter_arn, json.dumps(delivery.payload), attributes)

    def send_to_queue(self, queue_arn: str, body: str, attributes: Mapping[str, str]) -> None:
        """Put one message into a queue. Raises DeadLetterError when there is no such queue."""
        with self._scope(self._account_id, queue_arn.split(":")[3]):
            queue = self._queue(queue_arn)
            if queue is None:
                raise DeadLetterError(f"there is no queue {queue_arn}")
            message = {
                "id": str(uuid.uuid4()),
                "body": body,
                "message_attributes": {
                    name: {"DataType": "String", "StringValue": value} for name, value in attributes.items()
                },
            }
            self._fill_message(message)
            queue["messages"].append(message)
        self._emulator.concurrency.esm_wake.set()

    def _lets_in(self, function: Mapping[str, Any], principal: str, source_arn: str) -> bool:
        arn = function["config"]["FunctionArn"]
        context = self._emulator.iam_evaluator.EvalContext(
            principal_arn="*",
            principal_type="Service",
            principal_account="",
            action="lambda:InvokeFunction",
            resource_arn=arn,
            region=arn.split(":")[3],
            secure_transport=True,
            service_context={"aws:sourcearn": source_arn, "aws:sourceaccount": self._account_id},
        )
        return bool(self._evaluate_policy(function["policy"], context, service=principal).decision == "Allow")

    def _function(self, function_arn: str) -> dict[str, Any] | None:
        with self._scope(self._account_id, function_arn.split(":")[3]):
            function, config, _ = self._find(function_arn)
            if not function or not config:
                return None
            record: dict[str, Any] = self._record(function, config)
            return record


def _stamp(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"
