"""A real Kafka node on a real disk: `KraftNode`, `ZooKeeperNode` and the `ZooKeeper` that the latter needs.

A node is a directory (`root`) with `server.properties`, the log dirs and `node.log`; it is formatted once and may then
be started, stopped, killed and started again, also with another version of Kafka.
"""

from __future__ import annotations

import base64
import socket
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol, Self

from tests.broker.rig.client import KafkaClient, LogDirState
from tests.broker.rig.jars import Jars, kafka_jars
from tests.broker.rig.ports import Ports
from tests.broker.rig.process import ServerProcess, wait_until

# Small numbers where the default only costs time or memory. What logagent acts on (deletion delay, flush and
# checkpoint intervals, segment sizes) is left as Kafka has it; a test that needs other values says so.
COMMON_PROPERTIES = {
    "auto.create.topics.enable": "false",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    "num.network.threads": "2",
    "num.io.threads": "4",
    "log.cleaner.dedupe.buffer.size": "2097152",
    "controlled.shutdown.max.retries": "1",
}
# How soon the cluster notices that a node was killed. A restart after SIGKILL has to wait for it, so one node alone
# gets a short time; the nodes of a cluster get a longer one, so that a busy machine does not make them lose each other.
KRAFT_SESSION = {"broker.session.timeout.ms": "1500", "broker.heartbeat.interval.ms": "300"}
ZOOKEEPER_SESSION_MS = 3000

META_PROPERTIES = "meta.properties"
# Settings by which a format writes something else.
_READ_BY_THE_TOOL = ("unstable.", "inter.broker.protocol.")
# What the tool wrote into a log dir (False) and where the metadata log is (True), by kind of node.
_FORMATTED: dict[tuple[str, str, bool, bool], dict[bool, dict[Path, tuple[int, bytes]]]] = {}


class Listener(Protocol):
    """One more listener of a broker, beside the plain one (see security.py)."""

    name: str
    protocol: str

    def broker_properties(self) -> Mapping[str, str]: ...


def random_cluster_id() -> str:
    """A new cluster id in Kafka's form: 22 characters of url-safe base64, not beginning with a dash."""
    while (text := base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")).startswith("-"):
        pass
    return text


class KafkaNode(ServerProcess, KafkaClient):
    """What both modes share. `start`, `stop` and the like are `ServerProcess`'s, topics and records `KafkaClient`'s."""

    def __init__(
        self,
        root: Path,
        version: str,
        ports: Ports,
        *,
        node_id: int = 1,
        log_dirs: int | Sequence[Path] = 2,
        props: Mapping[str, str] | None = None,
        listener: Listener | None = None,
    ) -> None:
        root.mkdir(parents=True, exist_ok=True)
        self.root = root
        self.node_id = node_id
        self.jars: Jars = kafka_jars(version)
        self.port = ports.take()
        ServerProcess.__init__(self, f"kafka {version} node {node_id}", root / "node.log")
        KafkaClient.__init__(self, f"127.0.0.1:{self.port}")
        self.log_dirs = (
            [root / f"d{i}" for i in range(1, log_dirs + 1)] if isinstance(log_dirs, int) else list(log_dirs)
        )
        for log_dir in self.log_dirs:
            log_dir.mkdir(parents=True, exist_ok=True)
        self.config = root / "server.properties"
        self.jvm_flags: tuple[str, ...] = ()
        self.properties = {
            **COMMON_PROPERTIES,
            "log.dirs": ",".join(str(log_dir) for log_dir in self.log_dirs),
            "listeners": f"PLAINTEXT://{self.bootstrap}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT",
            "inter.broker.listener.name": "PLAINTEXT",
        }
        self.secure_bootstrap: str | None = None
        if listener is not None:
            self.secure_bootstrap = f"localhost:{ports.take()}"
            self._add_listener(listener.name, self.secure_bootstrap, listener.protocol)
            self.properties.update(listener.broker_properties())
        self._wanted = dict(props or {})

    def _add_listener(self, name: str, address: str, protocol: str) -> None:
        self.properties["listeners"] += f",{name}://{address}"
        self.properties["listener.security.protocol.map"] += f",{name}:{protocol}"

    @property
    def version(self) -> str:
        return self.jars.version

    def use_version(self, version: str) -> Self:
        """Another Kafka on the same disk, from the next start on."""
        self.jars = kafka_jars(version)
        self.name = f"kafka {version} node {self.node_id}"
        return self

    def configure(self, changes: Mapping[str, str | None]) -> Self:
        """Change `server.properties` (None removes a key); takes effect at the next start."""
        for key, value in changes.items():
            if value is None:
                self.properties.pop(key, None)
            else:
                self.properties[key] = value
        lines = (f"{key}={value}\n" for key, value in self.properties.items())
        self.config.write_text("".join(lines).replace("\\", "\\\\"))
        return self

    def _command(self) -> list[str]:
        return self.jars.command("kafka.Kafka", str(self.config), flags=self.jvm_flags)

    def _environment(self) -> dict[str, str]:
        return self.jars.environment()

    def restart(self) -> Self:
        """Stop cleanly, start, wait until it serves."""
        self.stop()
        self.start()
        return self

    def describe_log_dirs(self) -> dict[str, LogDirState]:
        """Its own answer about its log dirs, by path."""
        return self.log_dirs_of(self.node_id)

    def offline_dirs(self) -> list[str]:
        """The log dirs that the running broker calls offline."""
        states = self.describe_log_dirs()
        return sorted(path for path, state in states.items() if state.error != 0)

    def dir_names(self) -> list[str]:
        """Names of all directories in its log dirs, sorted, the metadata log left out."""
        found = (entry for log_dir in self.log_dirs for entry in log_dir.iterdir() if entry.is_dir())
        return sorted(entry.name for entry in found if not entry.name.startswith("__cluster_metadata-"))

    @property
    def cluster_id(self) -> str:
        """From the disk (a ZooKeeper-mode broker has one only after its first start)."""
        lines = (self.log_dirs[0] / "meta.properties").read_text().splitlines()
        return next(line.partition("=")[2] for line in lines if line.startswith("cluster.id="))


class KraftNode(KafkaNode):
    """A node of a KRaft cluster: `process.roles` as given, one controller (`controller_id`, at `controller_port`).
    `dynamic`: its voters are in its metadata log, not in its configuration (KIP-853, from 3.9 on)."""

    ready_line = r"Kafka Server started \("

    def __init__(
        self,
        root: Path,
        version: str,
        ports: Ports,
        *,
        node_id: int = 1,
        roles: str = "broker,controller",
        controller: tuple[int, int] | None = None,
        cluster_id: str | None = None,
        log_dirs: int | Sequence[Path] = 2,
        metadata_dir: bool = True,
        props: Mapping[str, str] | None = None,
        listener: Listener | None = None,
        dynamic: bool = False,
    ) -> None:
        super().__init__(root, version, ports, node_id=node_id, log_dirs=log_dirs, props=props, listener=listener)
        self.dynamic = dynamic
        self.roles = roles
        self.controller = controller or (node_id, ports.take())
        self.metadata_dir = root / "meta" if metadata_dir else self.log_dirs[0]
        self.format_id = cluster_id or random_cluster_id()
        settings: dict[str, str] = {
            "process.roles": roles,
            "node.id": str(node_id),
            **self._quorum(),
            "controller.listener.names": "CONTROLLER",
            **KRAFT_SESSION,
        }
        if "controller" in roles:
            # Kafka 3.x refuses a controller listener among the advertised ones and so needs them spelt out.
            settings["advertised.listeners"] = self.properties["listeners"]
            self._add_listener("CONTROLLER", f"127.0.0.1:{self.controller[1]}", "PLAINTEXT")
        else:
            self.properties["listener.security.protocol.map"] += ",CONTROLLER:PLAINTEXT"
        if metadata_dir:
            settings["metadata.log.dir"] = str(self.metadata_dir)
        self.configure({**settings, **self._wanted})

    def _quorum(self) -> dict[str, str]:
        place = f"127.0.0.1:{self.controller[1]}"
        if self.dynamic:
            return {"controller.quorum.bootstrap.servers": place}
        return {"controller.quorum.voters": f"{self.controller[0]}@{place}"}

    def format(self, *, ignore_formatted: bool = False) -> Self:
        """Formatted as by Kafka's own `StorageTool`, which is run for the first node of a kind only: it takes as long
        as the start of a broker. What it wrote is the same for every other one but for its ids and the time."""
        directories = list(dict.fromkeys([*self.log_dirs, self.metadata_dir]))
        known = not ignore_formatted and not self.dynamic
        known &= not any(key.startswith(_READ_BY_THE_TOOL) for key in self._wanted)
        known &= not any(entry for d in directories if d.is_dir() for entry in d.iterdir())
        if not known:
            return self.format_with_tool(*["--ignore-formatted"] * ignore_formatted)
        kind = (self.version, self.roles, self.metadata_dir in self.log_dirs, len(directories) > 1)
        if kind not in _FORMATTED:
            self.format_with_tool()
            _FORMATTED[kind] = {d == self.metadata_dir: _files(d) for d in directories}
        else:
            for d in directories:
                self._format_alike(d, _FORMATTED[kind][d == self.metadata_dir])
        return self

    def format_with_tool(self, *options: str) -> Self:
        """The same by the tool itself; it refuses log dirs that are formatted already."""
        options += ("--standalone",) if self.dynamic else ()
        self.jars.run("kafka.tools.StorageTool", "format", "-t", self.format_id, "-c", str(self.config), *options)
        return self

    def _format_alike(self, directory: Path, files: Mapping[Path, tuple[int, bytes]]) -> None:
        ids = {"cluster.id": self.format_id, "node.id": str(self.node_id), "directory.id": random_cluster_id()}
        for relative, (mode, content) in files.items():
            path = directory / relative
            path.parent.mkdir(parents=True, exist_ok=True)
            if path.name == META_PROPERTIES:
                keys = (line.partition("=") for line in content.decode().splitlines(keepends=True))
                lines = (f"{key}={ids[key]}\n" if key in ids else f"{key}{sign}{value}" for key, sign, value in keys)
                content = "".join(lines).encode()
            path.write_bytes(content)
            path.chmod(mode)


def _files(directory: Path) -> dict[Path, tuple[int, bytes]]:
    """Mode and content of every file below it, by its path there."""
    files = (path for path in directory.rglob("*") if path.is_file())
    return {path.relative_to(directory): (path.stat().st_mode & 0o777, path.read_bytes()) for path in files}


class ZooKeeper(ServerProcess):
    """A ZooKeeper server from the jars that come with Kafka up to 3.9."""

    def __init__(self, root: Path, version: str, ports: Ports) -> None:
        root.mkdir(parents=True, exist_ok=True)
        super().__init__(f"zookeeper of kafka {version}", root / "zookeeper.log")
        self.jars = kafka_jars(version)
        self.port = ports.take()
        self.config = root / "zookeeper.properties"
        settings = {
            "dataDir": root / "zookeeper",
            "clientPort": self.port,
            "clientPortAddress": "127.0.0.1",
            "tickTime": 200,
            "maxSessionTimeout": 60_000,
            "maxClientCnxns": 0,
            "admin.enableServer": "false",
            "4lw.commands.whitelist": "*",
        }
        self.config.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))

    def _command(self) -> list[str]:
        return self.jars.command("org.apache.zookeeper.server.ZooKeeperServerMain", str(self.config))

    def _environment(self) -> dict[str, str]:
        return self.jars.environment()

    def wait_ready(self, timeout: float = 60) -> Self:
        wait_until(lambda: not self.alive or self.ask("ruok") == "imok", timeout, f"{self.name} answers")
        assert self.alive, f"{self.name} exited {self.exit_status}\n{self.log_tail()}"
        return self

    def ask(self, command: str) -> str:
        """The answer to one of ZooKeeper's four-letter commands, empty if nobody answers."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=5) as connection:
                connection.sendall(command.encode())
                connection.shutdown(socket.SHUT_WR)
                return b"".join(iter(lambda: connection.recv(65536), b"")).decode()
        except OSError:
            return ""


class ZooKeeperNode(KafkaNode):
    """A ZooKeeper-mode broker with a ZooKeeper of its own, or with one that others use too."""

    ready_line = r"\[KafkaServer id=\d+\] started \("
    metadata_dir: Path | None = None

    def __init__(
        self,
        root: Path,
        version: str,
        ports: Ports,
        *,
        zookeeper: ZooKeeper,
        node_id: int = 1,
        log_dirs: int | Sequence[Path] = 2,
        props: Mapping[str, str] | None = None,
        listener: Listener | None = None,
    ) -> None:
        super().__init__(root, version, ports, node_id=node_id, log_dirs=log_dirs, props=props, listener=listener)
        self.zookeeper = zookeeper
        settings = {
            "broker.id": str(node_id),
            "zookeeper.connect": f"127.0.0.1:{zookeeper.port}",
            "zookeeper.session.timeout.ms": str(ZOOKEEPER_SESSION_MS),
        }
        self.configure({**settings, **self._wanted})

    def start_async(self) -> Self:
        """Start it and return at once. ZooKeeper has to be there, and has to have noticed that a killed one is gone:
        a broker whose id is still registered refuses to start."""
        if not self.zookeeper.alive:
            self.zookeeper.start()
        registered = f"/brokers/ids/{self.node_id}\n"
        wait_until(lambda: registered not in self.zookeeper.ask("dump"), 30, f"{self.name} is unregistered")
        super().start_async()
        return self

    def close(self) -> None:
        super().close()
        self.zookeeper.close()
