"""One deployed probe for the folder, and fresh local AWS processes for what needs its own."""

from __future__ import annotations

import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from local.client import LocalAws, local_aws
from local.deliveries import DeliveryRecord
from local.deploy import CdkApp, bootstrap, deploy, destroy, stack_outputs

APP = Path(__file__).parent / "app"
# What Lambda's own Python runtime brings: the runtime client, and boto3.
RUNTIME_PACKAGES = (
    "awslambdaric",
    "boto3",
    "botocore",
    "dateutil",
    "jmespath",
    "s3transfer",
    "simplejson",
    "six.py",
    "snapshot_restore_py.py",
    "urllib3",
)
START = datetime(2027, 1, 11, 6, 0, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Probe:
    """The deployed probe app and its local AWS."""

    aws: LocalAws
    outputs: dict[str, str]

    @property
    def function(self) -> str:
        return self.outputs["FunctionName"]

    def mark(self) -> int:
        """Where the log of deliveries stands now."""
        return len(self.aws.deliveries())

    def since(self, mark: int, source: str = "") -> list[DeliveryRecord]:
        """What was delivered to the probe since `mark`, of one kind of source."""
        return [one for one in self.aws.deliveries(mark) if one.function == self.function and source in one.source]


@pytest.fixture(scope="session")
def lambda_runtime_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What Lambda's runtime brings, without anything else of this environment."""
    folder = tmp_path_factory.mktemp("lambda-runtime")
    packages = Path(sysconfig.get_path("purelib"))
    extensions = [path.name for path in packages.glob("runtime_client*.so")]
    assert extensions, "awslambdaric's compiled client is not installed"
    for name in (*RUNTIME_PACKAGES, *extensions):
        (folder / name).symlink_to(packages / name)
    return folder


@pytest.fixture(scope="session")
def deployed(lambda_runtime_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Probe]:
    """The probe app, deployed once by the real CDK CLI."""
    work_dir = tmp_path_factory.mktemp("local-aws") / "world"
    with local_aws(work_dir=work_dir, lambda_runtime_dir=lambda_runtime_dir, seed=3) as aws:
        lines: list[str] = []
        bootstrap(aws, lines.append)
        deploy(aws, CdkApp(APP), lines.append)
        aws.set_clock(START)
        yield Probe(aws, stack_outputs(aws, "Probe"))
        aws.set_clock(datetime.now(UTC) + timedelta(minutes=1))  # the CLI waits for events later than its own start
        destroy(aws, CdkApp(APP), lines.append)
        stacks = aws.client("cloudformation").describe_stacks()["Stacks"]
        assert [one["StackName"] for one in stacks] == ["CDKToolkit"]


@pytest.fixture
def probe(deployed: Probe) -> Iterator[Probe]:
    """The deployed probe, with nothing waiting, no faults, no enforcement and a later hour for each test."""
    aws = deployed.aws
    aws.set_clock(aws.now().replace(second=0, microsecond=0) + timedelta(days=1))
    yield deployed
    aws.set_faults()
    aws.enforce_roles(False)
    aws.hold_deliveries(False)
    aws.set_empty_parameter_pages(False)
    aws.settle()


@pytest.fixture(scope="session")
def shared(lambda_runtime_dir: Path) -> Iterator[LocalAws]:
    """One local AWS with nothing deployed, for what only launches machines."""
    with local_aws(lambda_runtime_dir=lambda_runtime_dir, seed=11) as aws:
        yield aws


@pytest.fixture
def bare(shared: LocalAws) -> LocalAws:
    """The shared local AWS without any machine or group, on a later day for each test."""
    shared.remove_fleet()
    shared.set_starts()
    shared.set_faults()
    shared.set_clock(shared.now().replace(second=0, microsecond=0) + timedelta(days=1))
    shared.settle()
    return shared


@pytest.fixture
def fresh(lambda_runtime_dir: Path) -> Iterator[LocalAws]:
    """A local AWS of its own, with nothing deployed."""
    with local_aws(lambda_runtime_dir=lambda_runtime_dir, seed=11) as aws:
        yield aws
