"""Real servers of object stores on this machine, for tests: what they serve is gone with their directory.

S3: S3Proxy on its file system backend, one jar that Maven fetches (98 MB, some ten seconds). Its create-if-absent is
conditional as S3's own: a link to a complete file. Azure: Azurite, Microsoft's emulator, from npm (half a minute). Both
are kept in the cache of the tests.
"""

from __future__ import annotations

import shutil
import socket
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from tests.broker.rig.jars import cache_dir, locked
from tests.needs import need_command
from tests.waiting import wait_until

BUCKET = "kafka-fleet"
S3PROXY, AZURITE = "4.0.0", "3.35.0"
AZURITE_ACCOUNT = "devstoreaccount1"
# Not a secret: every Azurite has it, and its documentation prints it.
AZURITE_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
# No archive of an earlier Java, and little of a small machine's memory.
_JAVA = ["java", "-Xmx512m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def s3(root: Path, *, anonymous: bool = False) -> Iterator[dict[str, str]]:
    """A server with one empty bucket; what an agent's environment needs for it. `anonymous`: it checks no signature."""
    need_command("java", "mvn")
    jar = f"s3proxy-{S3PROXY}-jar-with-dependencies.jar"
    artifact = f"-Dartifact=org.gaul:s3proxy:{S3PROXY}:jar:jar-with-dependencies"
    plugin = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1"
    fetch = ["mvn", "--batch-mode", "--quiet", f"{plugin}:copy", artifact, "-DoutputDirectory=."]
    home = fetched(f"s3proxy-{S3PROXY}", fetch)
    (root / BUCKET).mkdir(parents=True)
    port = free_port()
    conf = {
        "s3proxy.endpoint": f"http://127.0.0.1:{port}",
        "s3proxy.authorization": "none" if anonymous else "aws-v2-or-v4",
        "s3proxy.identity": "logagent-tests",
        "s3proxy.credential": "only-for-tests",
        "jclouds.provider": "filesystem-nio2",
        "jclouds.filesystem.basedir": str(root),
    }
    properties = root.with_suffix(".properties")
    properties.write_text("".join(f"{key}={value}\n" for key, value in conf.items()))
    with _served([*_JAVA, "-jar", str(home / jar), "--properties", str(properties)], port, root.with_suffix(".log")):
        yield {
            "AWS_ACCESS_KEY_ID": conf["s3proxy.identity"],
            "AWS_SECRET_ACCESS_KEY": conf["s3proxy.credential"],
            "AWS_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": conf["s3proxy.endpoint"],
        }


@contextmanager
def unconditional(root: Path) -> Iterator[dict[str, str]]:
    """An S3 server that takes no notice of conditions, as older ones do: `If-None-Match` never reaches it."""
    with forwarded(root, [], "if-none-match") as environment:
        yield environment


@contextmanager
def forwarded(root: Path, seen: list[str], *without: str) -> Iterator[dict[str, str]]:
    """An S3 server that these headers never reach. `seen`: method and path of every request are added to it."""
    with s3(root, anonymous=True) as environment:
        port = int(environment["AWS_ENDPOINT_URL"].rpartition(":")[2])

        class Forward(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def forward(self) -> None:
                seen.append(f"{self.command} {self.path}")
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                left_out = (*without, "connection", "expect")
                headers = {k: v for k, v in self.headers.items() if k.lower() not in left_out}
                server = HTTPConnection("127.0.0.1", port, timeout=60)
                server.request(self.command, self.path, body, headers)
                answer = server.getresponse()
                content = answer.read()
                self.send_response(answer.status)
                for name, value in answer.getheaders():
                    if name.lower() not in ("transfer-encoding", "content-length", "connection", "date", "server"):
                        self.send_header(name, value)
                length = answer.getheader("Content-Length") if self.command == "HEAD" else None
                self.send_header("Content-Length", length or str(len(content)))
                self.end_headers()
                self.wfile.write(content)
                server.close()

            def log_message(self, *_: object) -> None:
                pass

        for method in ("GET", "HEAD", "PUT", "POST", "DELETE"):
            setattr(Forward, f"do_{method}", Forward.forward)
        with ThreadingHTTPServer(("127.0.0.1", 0), Forward) as proxy:
            thread = threading.Thread(target=proxy.serve_forever)
            thread.start()
            try:
                yield {**environment, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{proxy.server_port}"}
            finally:
                proxy.shutdown()
                thread.join()


@contextmanager
def azure(root: Path) -> Iterator[dict[str, str]]:
    """The same for Azure's blobs, with one empty container."""
    need_command("npm")
    fetch = ["npm", "install", "--prefix", ".", "--ignore-scripts", "--no-audit", "--no-fund", f"azurite@{AZURITE}"]
    home = fetched(f"azurite-{AZURITE}", fetch)
    root.mkdir(parents=True)
    port = free_port()
    command = [str(home / "node_modules/.bin/azurite-blob"), "--silent", "--skipApiVersionCheck"]
    command += ["--blobPort", str(port), "--location", str(root)]
    with _served(command, port, root.with_suffix(".log")):
        environment = {
            "AZURE_STORAGE_ACCOUNT_NAME": AZURITE_ACCOUNT,
            "AZURE_STORAGE_ACCOUNT_KEY": AZURITE_KEY,
            "AZURE_STORAGE_ENDPOINT": f"http://127.0.0.1:{port}/{AZURITE_ACCOUNT}",
            "AZURE_ALLOW_HTTP": "true",
        }
        _make_container(f"http://127.0.0.1:{port}/{AZURITE_ACCOUNT}/{BUCKET}")
        yield environment


def fetched(name: str, command: list[str]) -> Path:
    """What `command` puts into its working directory: complete in the cache, or an error that says why not."""
    home = cache_dir() / name
    with locked(cache_dir() / f"{name}.lock"):
        if not home.is_dir():
            partial = Path(tempfile.mkdtemp(prefix=f"{name}.", dir=home.parent))
            try:
                done = subprocess.run(command, cwd=partial, capture_output=True, text=True, timeout=600, check=False)
                assert done.returncode == 0, f"{' '.join(command)}: {(done.stdout + done.stderr)[-2000:]}"
                partial.rename(home)
            finally:
                shutil.rmtree(partial, ignore_errors=True)
    return home


def _make_container(url: str) -> None:
    """Made with the account's key: obstore itself only uses containers."""
    import base64
    import hashlib
    import hmac
    import urllib.request
    from datetime import UTC, datetime

    now = f"{datetime.now(UTC):%a, %d %b %Y %H:%M:%S GMT}"
    headers = {"x-ms-date": now, "x-ms-version": "2021-08-06"}
    canonical = "".join(f"{name}:{value}\n" for name, value in sorted(headers.items()))
    path = url.split("/", 3)[3]
    signed = "PUT\n" + "\n" * 11 + canonical + f"/{AZURITE_ACCOUNT}/{path}\nrestype:container"
    digest = hmac.new(base64.b64decode(AZURITE_KEY), signed.encode(), hashlib.sha256).digest()
    headers["Authorization"] = f"SharedKey {AZURITE_ACCOUNT}:{base64.b64encode(digest).decode()}"
    request = urllib.request.Request(f"{url}?restype=container", method="PUT", headers=headers)
    with urllib.request.urlopen(request, timeout=30) as answer:
        assert answer.status == 201


@contextmanager
def _served(command: list[str], port: int, log: Path) -> Iterator[None]:
    with log.open("wb") as said:
        process = subprocess.Popen(command, stdout=said, stderr=said)
        try:

            def answers() -> bool:
                with socket.socket() as probe:
                    return probe.connect_ex(("127.0.0.1", port)) == 0

            wait_until(lambda: answers() or process.poll() is not None, f"{command[0]} listens")
            assert process.poll() is None, f"{command[0]} ended: {log.read_text(errors='replace')[-2000:]}"
            yield
        finally:
            process.terminate()
            process.wait(timeout=60)
