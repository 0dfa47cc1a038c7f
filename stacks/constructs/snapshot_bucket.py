"""The bucket for large snapshots."""

from __future__ import annotations

from aws_cdk import Duration, RemovalPolicy
from aws_cdk import aws_kms as kms
from aws_cdk import aws_s3 as s3
from constructs import Construct

from stacks.constructs.acknowledged import acknowledge


class SnapshotBucket(Construct):
    """Holds snapshots that are too large for the table; the newest complete one counts, old ones expire."""

    def __init__(self, scope: Construct, construct_id: str, *, key: kms.IKey, removal_policy: RemovalPolicy) -> None:
        """Make the bucket: encrypted, private, versioned, TLS only."""
        super().__init__(scope, construct_id)
        self.bucket = s3.Bucket(
            self,
            "Resource",
            encryption=s3.BucketEncryption.KMS,
            encryption_key=key,
            bucket_key_enabled=True,
            block_public_access=s3.BlockPublicAccess.BLOCK_ALL,
            object_ownership=s3.ObjectOwnership.BUCKET_OWNER_ENFORCED,
            enforce_ssl=True,
            minimum_tls_version=1.2,
            versioned=True,
            lifecycle_rules=[
                s3.LifecycleRule(
                    id="expire-snapshots",
                    expiration=Duration.days(30),
                    noncurrent_version_expiration=Duration.days(7),
                    abort_incomplete_multipart_upload_after=Duration.days(1),
                ),
                s3.LifecycleRule(id="expire-delete-markers", expired_object_delete_marker=True),
            ],
            removal_policy=removal_policy,
        )
        acknowledge(
            self.bucket,
            "AwsSolutions-S1",
            "Machines write snapshots that expire after a month; who reads them is seen in CloudTrail data events.",
        )
