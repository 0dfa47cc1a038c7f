"""Deployed functions run for real: code and layers unpacked, one warm process a function, logs kept."""

from __future__ import annotations

import hashlib
import io
import json
import shutil
import threading
import traceback
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from local.custom_resources import CustomResources
from local.emulator import Emulator
from local.metrics import FunctionMetrics
from local.options import Options
from local.patching import relied_on, replace
from local.runtime_api import FunctionFiles, FunctionProcess, FunctionSettings, Outcome


class LambdaRuntimeMissingError(RuntimeError):
    """The runtime interface client was not built for this interpreter."""


@dataclass(frozen=True, slots=True)
class FunctionIdentity:
    """Who a function's credentials say it is."""

    function: str
    session_arn: str


@dataclass(slots=True)
class _Warm:
    fingerprint: str
    process: FunctionProcess
    folder: Path


class Functions:
    """Executes every Python function of the emulator; one invocation of a function at a time."""

    def __init__(self, emulator: Emulator, options: Options, endpoint_url: str) -> None:
        self._root = options.work_path / "functions"
        self._lambda_runtime = Path(options.lambda_runtime_dir)
        if not (self._lambda_runtime / "awslambdaric").is_dir():
            raise LambdaRuntimeMissingError(f'no awslambdaric in {self._lambda_runtime}; run "make build STAGE=local"')
        self._endpoint_url = endpoint_url
        self._guard = threading.Lock()
        self._locks: dict[str, threading.Lock] = {}
        self._warm: dict[str, _Warm] = {}
        self._identities: dict[str, FunctionIdentity] = {}
        self._cold_starts = 0
        self._metrics = FunctionMetrics(emulator)
        self._custom_resources = CustomResources(emulator)
        self._layer_zip = relied_on(emulator.lambdas, "_resolve_layer_zip", ("attachment",))
        self._register_session = relied_on(emulator.sts, "register_session", ("access_key", "session"))
        replace(emulator.lambdas, "_execute_function_warm", ("func", "event", "request_id"), self._execute)
        replace(
            emulator.runtime, "invalidate_worker", ("func_name", "qualifier", "account", "region"), self._forget_by_name
        )

    @property
    def cold_starts(self) -> int:
        """How many function processes were started so far."""
        return self._cold_starts

    def process_ids(self) -> dict[str, int]:
        """Process id by function name, of those alive now."""
        with self._guard:
            return {_name_of(arn): warm.process.pid for arn, warm in self._warm.items() if warm.process.is_alive}

    def identity_of(self, session_token: str) -> FunctionIdentity | None:
        """The function whose credentials carry this session token, or None."""
        return self._identities.get(session_token)

    def crash(self, function_name: str) -> None:
        """Kill the running process of a function, as a crash in the middle of a run does."""
        with self._guard:
            for arn, warm in self._warm.items():
                if _name_of(arn) == function_name:
                    warm.process.kill()

    def log_path(self, function_name: str) -> Path:
        """The file that keeps every line a function wrote."""
        return self._root / f"{function_name}.log"

    def end(self) -> None:
        """End every function process."""
        with self._guard:
            warm, self._warm = list(self._warm.values()), {}
        for one in warm:
            one.process.end()
            shutil.rmtree(one.folder, ignore_errors=True)

    def _execute(self, func: Mapping[str, Any], event: Any, request_id: str) -> dict[str, Any]:
        """Stand in for the emulator's own executor; the answer has its form."""
        config = func.get("config") or func
        code_zip = func.get("code_zip")
        if not code_zip:
            raise RuntimeError(f"function {config.get('FunctionName')} has no code")
        with self._lock_of(config["FunctionArn"]):
            outcome = self._run(config, code_zip, event)
        if outcome.failed:
            self._custom_resources.report_failure(event, outcome.payload)
        self._metrics.publish(config["FunctionName"], outcome)
        return _emulator_answer(outcome)

    def _run(self, config: Mapping[str, Any], code_zip: bytes, event: Any) -> Outcome:
        """One invocation; what goes wrong before the handler runs is a failed one, as on Lambda."""
        try:
            return self._process_for(config, code_zip).invoke(event)
        except Exception as error:  # noqa: BLE001 - becomes the answer of the invocation, and its log
            payload = {"errorType": "Runtime.StartError", "errorMessage": f"{type(error).__name__}: {error}"}
            return Outcome(payload=payload, failed=True, log=traceback.format_exc(), started_cold=True)

    def _lock_of(self, arn: str) -> threading.Lock:
        with self._guard:
            return self._locks.setdefault(arn, threading.Lock())

    def _process_for(self, config: Mapping[str, Any], code_zip: bytes) -> FunctionProcess:
        arn = config["FunctionArn"]
        variables = self._variables(config)
        fingerprint = _fingerprint(config, code_zip, variables)
        with self._guard:
            warm = self._warm.get(arn)
        if warm is not None:
            if warm.fingerprint == fingerprint and warm.process.is_alive:
                return warm.process
            self._forget(arn)
        warm = self._start(config, code_zip, variables, fingerprint)
        with self._guard:
            self._warm[arn] = warm
        return warm.process

    def _start(
        self, config: Mapping[str, Any], code_zip: bytes, variables: Mapping[str, str], fingerprint: str
    ) -> _Warm:
        self._cold_starts += 1
        folder = self._root / f"{config['FunctionName']}-{self._cold_starts}"
        files = self._unpack(config, code_zip, folder)
        settings = FunctionSettings(
            name=config["FunctionName"],
            arn=config["FunctionArn"],
            handler=config["Handler"],
            runtime=config["Runtime"],
            region=config["FunctionArn"].split(":")[3],
            memory_mib=int(config.get("MemorySize") or 128),
            timeout_seconds=float(config.get("Timeout") or 3),
            log_group=(config.get("LoggingConfig") or {}).get("LogGroup") or f"/aws/lambda/{config['FunctionName']}",
        )
        process = FunctionProcess(settings, files, variables, self.log_path(settings.name))
        return _Warm(fingerprint, process, folder)

    def _unpack(self, config: Mapping[str, Any], code_zip: bytes, folder: Path) -> FunctionFiles:
        task, home = folder / "task", folder / "tmp"
        home.mkdir(parents=True)
        _extract(code_zip, task)
        layers: list[Path] = []
        for reference in config.get("Layers") or []:
            content = self._layer_zip(reference)
            if content is None:
                raise RuntimeError(f"function {config['FunctionName']}: layer {reference} has no content")
            layer = folder / f"layer-{len(layers)}"
            _extract(content, layer)
            layers.append(layer)
        return FunctionFiles(task=task, layers=layers, lambda_runtime=self._lambda_runtime, home=home)

    def _variables(self, config: Mapping[str, Any]) -> dict[str, str]:
        own = (config.get("Environment") or {}).get("Variables") or {}
        credentials = self._role_credentials(config)
        return {**own, **credentials, "AWS_ENDPOINT_URL": self._endpoint_url}

    def _role_credentials(self, config: Mapping[str, Any]) -> dict[str, str]:
        """Credentials of a session of the function's role, the same for every process of the function."""
        identity = _identity_of(config)
        digest = hashlib.sha256(f"{config['FunctionArn']} {config['Role']}".encode()).hexdigest()
        credentials = {
            "AWS_ACCESS_KEY_ID": f"ASIA{digest[:16].upper()}",
            "AWS_SECRET_ACCESS_KEY": hashlib.sha256(f"secret {digest}".encode()).hexdigest(),
            "AWS_SESSION_TOKEN": hashlib.sha256(f"token {digest}".encode()).hexdigest(),
        }
        session = {
            "Arn": identity.session_arn,
            "UserId": f"{config['Role'].split('/')[-1]}:{identity.function}",
            "SecretAccessKey": credentials["AWS_SECRET_ACCESS_KEY"],
            "SessionToken": credentials["AWS_SESSION_TOKEN"],
        }
        self._register_session(credentials["AWS_ACCESS_KEY_ID"], session)
        self._identities[credentials["AWS_SESSION_TOKEN"]] = identity
        return credentials

    def _forget(self, arn: str) -> None:
        with self._guard:
            warm = self._warm.pop(arn, None)
        if warm is not None:
            warm.process.end()
            shutil.rmtree(warm.folder, ignore_errors=True)

    def _forget_by_name(
        self, func_name: str, qualifier: str | None = None, account: str | None = None, region: str | None = None
    ) -> None:
        with self._guard:
            arns = [arn for arn in self._warm if _name_of(arn) == func_name]
        for arn in arns:
            with self._lock_of(arn):
                self._forget(arn)


def _extract(content: bytes, folder: Path) -> None:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        archive.extractall(folder)


def _name_of(arn: str) -> str:
    return arn.split(":")[6]


def _identity_of(config: Mapping[str, Any]) -> FunctionIdentity:
    name, account_id, role = config["FunctionName"], config["FunctionArn"].split(":")[4], config["Role"].split("/")[-1]
    return FunctionIdentity(name, f"arn:aws:sts::{account_id}:assumed-role/{role}/{name}")


def _fingerprint(config: Mapping[str, Any], code_zip: bytes, variables: Mapping[str, str]) -> str:
    layers = [layer if isinstance(layer, str) else layer["Arn"] for layer in config.get("Layers") or []]
    facts = [
        hashlib.sha256(code_zip).hexdigest(),
        config["Handler"],
        config.get("Timeout"),
        config.get("MemorySize"),
        layers,
        sorted(variables.items()),
    ]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()


def _emulator_answer(outcome: Outcome) -> dict[str, Any]:
    if outcome.failed:
        return {"body": outcome.payload, "error": True, "function_error": "Unhandled", "log": outcome.log}
    return {"body": outcome.payload, "log": outcome.log}
