"""Other users of the host: what the job's JVM offers them."""

from __future__ import annotations

import os
import socket
import stat
import struct

from pyspark.sql import SparkSession


def test_results_come_through_a_socket_that_is_nobody_elses(spark: SparkSession) -> None:
    """Through a port, the first connection gets them (or nothing, if it never says its password): anybody's."""
    path, password = spark.range(3)._jdf.collectToPython()[0:2]
    try:
        assert isinstance(path, str) and password is None
        found = os.stat(path)
        assert stat.S_ISSOCK(found.st_mode) and not found.st_mode & 0o022 and found.st_uid == os.geteuid()
    finally:
        with socket.socket(socket.AF_UNIX) as reader:
            reader.connect(path)
            while reader.recv(1 << 16):
                pass


def test_the_driver_listens_to_nobody_without_its_secret(spark: SparkSession) -> None:
    """Unauthenticated, any local user could tell the executor to stop (`StopExecutor`: the report hung for minutes)."""
    port = int(spark.sparkContext.getConf().get("spark.driver.port") or 0)
    # An RpcRequest: the frame's length, its type, the request's number, the length of its body, the body.
    body = b"stop"
    request = struct.pack(">qbqi", 21 + len(body), 3, 1, len(body)) + body
    with socket.create_connection(("127.0.0.1", port), timeout=30) as stranger:
        stranger.sendall(request)
        assert b"Expected SaslMessage" in stranger.recv(1 << 16)
