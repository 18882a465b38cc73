"""A listener with SASL, TLS or both beside a node's plain one, and the client properties that go with it.

Certificates are made with openssl when a test asks for them and trusted by nobody else. The plain listener stays for
the rig itself; its principal, `User:ANONYMOUS`, is a super user where `acl_properties` are in force.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.broker.rig.process import wait_until
from tests.needs import need_command

LOGIN_MODULES = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}


@dataclass(frozen=True)
class Certificates:
    """PEM files: an authority, a broker certificate for `localhost` and 127.0.0.1, and a client certificate."""

    authority: Path
    broker: Path
    client: Path

    @staticmethod
    def make(where: Path) -> Certificates:
        """Make all three below `where`; broker and client files hold key (PKCS#8, not encrypted) and certificate."""
        need_command("openssl")
        where.mkdir(parents=True, exist_ok=True)
        authority, key = where / "ca.pem", where / "ca.key"
        _openssl("req", "-x509", *NEW_KEY, "-keyout", key, "-out", authority, "-subj", "/CN=rig-ca", "-days", "2")
        made = []
        for name in ("broker", "client"):
            own_key, request, signed = (where / f"{name}.{end}" for end in ("key", "csr", "crt"))
            alternatives = where / f"{name}.ext"
            alternatives.write_text("subjectAltName=DNS:localhost,IP:127.0.0.1\n")
            _openssl("req", *NEW_KEY, "-keyout", own_key, "-out", request, "-subj", f"/CN={name}")
            _openssl(
                *("x509", "-req", "-in", request, "-CA", authority, "-CAkey", key, "-CAcreateserial"),
                *("-out", signed, "-days", "2", "-extfile", alternatives),
            )
            both = where / f"{name}.pem"
            both.write_text(own_key.read_text() + signed.read_text())
            made.append(both)
        return Certificates(authority, made[0], made[1])


NEW_KEY = ("-newkey", "rsa:2048", "-nodes")


def _openssl(*arguments: str | Path) -> None:
    done = subprocess.run(["openssl", *map(str, arguments)], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"openssl {arguments[0]} failed:\n{done.stderr}")


@dataclass(frozen=True)
class SecureListener:
    """`mechanism` None: no SASL. `certificates` None: no TLS. `users`: name to password (SCRAM users are not made
    here: `add_scram_user` does that on the running broker)."""

    mechanism: str | None = None
    users: Mapping[str, str] = field(default_factory=dict)
    certificates: Certificates | None = None
    client_auth: bool = False
    name: str = "SECURE"

    @property
    def protocol(self) -> str:
        if self.mechanism is None:
            return "SSL" if self.certificates else "PLAINTEXT"
        return "SASL_SSL" if self.certificates else "SASL_PLAINTEXT"

    def broker_properties(self) -> dict[str, str]:
        prefix = f"listener.name.{self.name.lower()}"
        settings: dict[str, str] = {}
        if self.mechanism is not None:
            users = "".join(f" user_{name}={_quoted(password)}" for name, password in self.users.items())
            jaas = f"{LOGIN_MODULES[self.mechanism]} required"
            settings[f"{prefix}.sasl.enabled.mechanisms"] = self.mechanism
            settings[f"{prefix}.{self.mechanism.lower()}.sasl.jaas.config"] = (
                f"{jaas}{users if self.mechanism == 'PLAIN' else ''};"
            )
        if self.certificates is not None:
            settings[f"{prefix}.ssl.keystore.type"] = "PEM"
            settings[f"{prefix}.ssl.keystore.location"] = str(self.certificates.broker)
            settings[f"{prefix}.ssl.truststore.type"] = "PEM"
            settings[f"{prefix}.ssl.truststore.location"] = str(self.certificates.authority)
            settings[f"{prefix}.ssl.client.auth"] = "required" if self.client_auth else "none"
        return settings

    def client_properties(self, user: str | None = None, password: str | None = None) -> str:
        """A Java client's properties file for this listener (`password`: the user's own unless given)."""
        lines = [f"security.protocol={self.protocol}"]
        if self.mechanism is not None:
            assert user is not None
            secret = self.users[user] if password is None else password
            lines.append(f"sasl.mechanism={self.mechanism}")
            login = f"{LOGIN_MODULES[self.mechanism]} required username={_quoted(user)} password={_quoted(secret)};"
            lines.append("sasl.jaas.config=" + login.replace("\\", "\\\\"))
        if self.certificates is not None:
            lines += ["ssl.truststore.type=PEM", f"ssl.truststore.location={self.certificates.authority}"]
            if self.client_auth:
                lines += ["ssl.keystore.type=PEM", f"ssl.keystore.location={self.certificates.client}"]
        return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    """`text` as a quoted word of a JAAS configuration."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def acl_properties(mode: str = "kraft") -> dict[str, str]:
    """Broker properties with which nobody but the rig may do anything that no ACL allows."""
    authorizer = {
        "kraft": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "zookeeper": "kafka.security.authorizer.AclAuthorizer",
    }[mode]
    return {"authorizer.class.name": authorizer, "super.users": "User:ANONYMOUS"}


def allow(client: Any, principal: str, operation: str, resource: str, name: str) -> None:
    """Allow `User:principal` one operation (`"DESCRIBE"`) on one resource (`"TOPIC"`, `"CLUSTER"`) by its name."""
    from kafka.admin import ACL, ACLOperation, ACLPermissionType, ResourcePattern, ResourceType

    acl = ACL(
        principal=f"User:{principal}",
        host="*",
        operation=ACLOperation[operation],
        permission_type=ACLPermissionType.ALLOW,
        resource_pattern=ResourcePattern(ResourceType[resource], name),
    )
    with client.admin() as admin:
        result = admin.create_acls([acl])
    assert not result.get("failed"), result


def add_scram_user(client: Any, user: str, password: str, mechanism: str = "SCRAM-SHA-256") -> None:
    """Make a SCRAM user on a running broker, through its plain listener, and wait until the broker knows it."""
    from kafka.admin import UserScramCredentialUpsertion

    with client.admin() as admin:
        result = admin.alter_user_scram_credentials([UserScramCredentialUpsertion(user, mechanism, password)])
        assert not any(result.values()), result
        wait_until(lambda: user in admin.describe_user_scram_credentials(), 30, f"the broker knows {user}")
