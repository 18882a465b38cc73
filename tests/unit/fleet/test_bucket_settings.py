"""How executors reach a bucket as the session's S3A does."""

from __future__ import annotations

import pytest

from logagent.fleet.spark_session import cause
from logagent.fleet.tables.files import BucketFiles, s3_settings

KEYS = {"fs.s3a.access.key": "id", "fs.s3a.secret.key": "hush"}
DEFAULT = {  # as core-default.xml of Hadoop 3.5 has it
    "fs.s3a.aws.credentials.provider": """
      org.apache.hadoop.fs.s3a.TemporaryAWSCredentialsProvider,
      org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider,
      software.amazon.awssdk.auth.credentials.EnvironmentVariableCredentialsProvider,
      org.apache.hadoop.fs.s3a.auth.IAMInstanceCredentialsProvider
    """,
    "fs.s3a.connection.ssl.enabled": "true",
}


@pytest.mark.parametrize("said, settings", [
    ({}, {}),
    (DEFAULT, {}),
    (KEYS, {"access_key_id": "id", "secret_access_key": "hush"}),
    (KEYS | {"fs.s3a.session.token": "t"}, {"access_key_id": "id", "secret_access_key": "hush", "session_token": "t"}),
    ({"fs.s3a.endpoint": "s3.eu-west-1.amazonaws.com"}, {"region": "eu-west-1"}),
    ({"fs.s3a.endpoint": "https://s3.amazonaws.com", "fs.s3a.endpoint.region": "us-west-2"}, {"region": "us-west-2"}),
    ({"fs.s3a.endpoint": "s3.amazonaws.com"}, {}),
    ({"fs.s3a.endpoint": "minio:9000"}, {"endpoint": "https://minio:9000"}),
    ({"fs.s3a.endpoint": "minio:9000", "fs.s3a.connection.ssl.enabled": "false"}, {"endpoint": "http://minio:9000"}),
    ({"fs.s3a.endpoint": "http://127.0.0.1:9"}, {"endpoint": "http://127.0.0.1:9"}),
])  # fmt: skip
def test_the_same_bucket_as_the_same_user(said: dict[str, str], settings: dict[str, object]) -> None:
    assert s3_settings(said.get) == settings


@pytest.mark.parametrize("said", [
    {"fs.s3a.aws.credentials.provider": "org.apache.hadoop.fs.s3a.auth.AssumedRoleCredentialProvider"},
    {"fs.s3a.aws.credentials.provider": "org.apache.hadoop.fs.s3a.AnonymousAWSCredentialsProvider"},
    {"fs.s3a.aws.credentials.provider": "com.example.Ours,org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider"},
    {"fs.s3a.encryption.algorithm": "SSE-KMS"},
    {"fs.s3a.server-side-encryption-algorithm": "AES256"},
    {"fs.s3a.acl.default": "BucketOwnerFullControl"},
    {"fs.s3a.proxy.host": "proxy"},
    {"fs.s3a.delegation.token.binding": "org.apache.hadoop.fs.s3a.auth.delegation.SessionTokenBinding"},
])  # fmt: skip
def test_where_s3a_has_a_way_of_its_own_the_driver_reads(said: dict[str, str]) -> None:
    """Another identity, or a copy that is not encrypted as all else, would be worse than slow."""
    assert s3_settings((KEYS | said).get) is None


def test_keys_are_not_printed() -> None:
    assert "hush" not in repr(BucketFiles("s3a://b", {"secret_access_key": "hush"}))


def test_an_executor_without_obstore_is_said_in_its_own_words() -> None:
    """As Spark hands on what a task of Python raised."""
    python = 'Traceback (most recent call last):\n  File "worker.py", line 1, in main\n    process()\n'
    python += "logagent.base.errors.ConfigError: the fleet store s3a://b needs obstore\n"
    java = "An error occurred while calling o1.collect.\n: org.apache.spark.SparkException: Job aborted\n"
    java += f"Caused by: org.apache.spark.api.python.PythonException: {python}\n\tat org.apache.spark.Task.run\n"
    assert cause(RuntimeError(java)) == "the fleet store s3a://b needs obstore"
    assert cause(RuntimeError("a: b\nCaused by: java.io.IOException: no\n\tat x")) == "no"
