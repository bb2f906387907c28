"""The arrangement of compose.yaml as processes of this machine: each service's own command,
environment, secrets and mounts, with this machine's ports and paths in the place of a container's.
"""

import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import httpx2

from runtime.cache_folder import cache_folder
from tests.compose_file import Service, health_command, load, services
from tests.e2e.server_process import environment as environment_without_settings
from tests.model_file import ROOT
from tests.stack_tools import TOOLS
from tests.valkey_server import valkey_binary

# Who listens where inside of the stack; each gets a port of this machine.
_LISTENERS = (
    *(("gateway", "8000"), ("runtime", "5700"), ("redis", "6379"), ("redis-cache", "6379")),
    ("prometheus", "9090"),
)
_NAMED = re.compile(r"(?<![\w.-])(gateway|runtime|redis|redis-cache|prometheus):(\d+)")
_OWN = re.compile(r"(?:0\.0\.0\.0|127\.0\.0\.1|localhost):(\d+)")
_PATH = re.compile(r"(?:^|(?<==))(/[\w./-]+)$")
_COLLECTOR = "http://otel-collector:4318"
_IMAGE = "/opt/radixgate"
_END_S = 60.0


class Stack:
    """`folder` gets secrets, volumes, configurations and logs. `variables`: those of compose.yaml
    that are set. `more`: settings beside those of the file, for services of our own image.
    `collector`: the endpoint of what stands in for the collector, which has no program here."""

    def __init__(
        self,
        folder: Path,
        *,
        collector: str,
        variables: Mapping[str, str],
        more: Mapping[str, str],
    ) -> None:
        self._folder = folder
        self._collector = collector
        self._services = services(variables)
        self._secret_files = {name: one["file"] for name, one in load()["secrets"].items()}
        self._more = more
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._ports = {listener: _free_port() for listener in _LISTENERS}
        self._make_secrets()
        self._make_model_cache()
        self._hasten_prometheus()

    @property
    def gateway_url(self) -> str:
        return f"http://{self._at('gateway', '8000')}"

    @property
    def prometheus_url(self) -> str:
        return f"http://{self._at('prometheus', '9090')}"

    def secret(self, name: str) -> str:
        return (self._folder / "deploy/secrets" / name).read_text().strip()

    def client(self) -> httpx2.AsyncClient:
        """With the key that was made for the operator."""
        headers = {"authorization": f"Bearer {self.secret('api_key.txt')}"}
        return httpx2.AsyncClient(base_url=self.gateway_url, headers=headers, timeout=30.0)

    def run(self, name: str) -> subprocess.CompletedProcess[str]:
        """A service that ends by itself."""
        return subprocess.run(
            self._command(self._services[name]),
            env=self._environment(self._services[name]),
            capture_output=True,
            text=True,
            timeout=_END_S,
        )

    def start(self, name: str) -> None:
        service = self._services[name]
        with (self._folder / f"{name}.log").open("ab") as log:
            self._processes[name] = subprocess.Popen(
                self._command(service), env=self._environment(service), stdout=log, stderr=log
            )

    def is_healthy(self, name: str) -> bool:
        """What the service's own health check says. Raises: RuntimeError for one that ended."""
        service = self._services[name]
        process = self._processes.get(name)
        if process is not None and process.poll() is not None:
            raise RuntimeError(f"{name} ended with exit code {process.returncode}")
        program, *words = health_command(service)
        done = subprocess.run(
            [_program(program), *(self._here(word, service) for word in words)],
            env=self._environment(service),
            capture_output=True,
            timeout=_END_S,
        )
        return done.returncode == 0

    def kill(self, name: str) -> None:
        """As the kernel does it when memory is short."""
        process = self._processes.pop(name)
        process.kill()
        process.wait(_END_S)

    def stop(self, name: str) -> int:
        """As an engine stops a container; returns the exit code."""
        process = self._processes.pop(name)
        process.terminate()
        return process.wait(_END_S)

    def close(self) -> None:
        for name in reversed(list(self._processes)):
            self.kill(name)

    def logs(self) -> str:
        return "\n".join(
            f"--- {file.name}\n{file.read_text(errors='replace')[-4000:]}"
            for file in sorted(self._folder.glob("*.log"))
        )

    def _at(self, name: str, port: str) -> str:
        return f"127.0.0.1:{self._ports[name, port]}"

    def _make_secrets(self) -> None:
        made = self._folder / "deploy"
        shutil.copytree(ROOT / "deploy", made, ignore=shutil.ignore_patterns("secrets"))
        subprocess.run(["sh", str(made / "make_secrets.sh")], check=True, capture_output=True)
        for name in ("redis_url.txt", "cache_redis_url.txt"):
            file = made / "secrets" / name
            file.write_text(_NAMED.sub(lambda found: self._at(*found.groups()), file.read_text()))

    def _make_model_cache(self) -> None:
        """The volume where programs look for it, with the native step in it, as in an image."""
        volume = self._source("model-cache")
        self._cache_home.mkdir()
        (self._cache_home / "radixgate").symlink_to(volume)
        if (cache_folder() / "native").is_dir():
            (volume / "native").symlink_to(cache_folder() / "native")

    @property
    def _cache_home(self) -> Path:
        return self._folder / "cache"

    def _hasten_prometheus(self) -> None:
        """What takes 15 seconds or minutes takes one; and a name that only a network of containers
        knows is an address."""
        folder = self._folder / "deploy/prometheus"
        for file in folder.glob("*.yml"):
            text = re.sub(r"((?:interval|_timeout|for): )\d+[sm]\b", r"\g<1>1s", file.read_text())
            file.write_text(text)
        config = folder / "prometheus.yml"
        target = f"static_configs: [{{targets: ['{self._at('gateway', '8000')}']}}]\n"
        text, number = re.subn(r"dns_sd_configs:\n(?: {6}.*\n)+", target, config.read_text())
        assert number == 1
        key = self._local("/run/secrets/metrics_key", self._services["prometheus"])
        text = text.replace("/run/secrets/metrics_key", str(key))
        config.write_text(text.replace("localhost:9090", self._at("prometheus", "9090")))

    def _command(self, service: Service) -> list[str]:
        if service.name.startswith("redis"):
            return self._redis_command(service)
        words = [*service.raw.get("entrypoint", ()), *service.command]
        if service.name == "prometheus":
            words.insert(0, "prometheus")  # that image's entrypoint
        elif "entrypoint" not in service.raw:
            words.insert(0, "radixgate")  # that of ours
        return [_program(words[0]), *(self._here(word, service) for word in words[1:])]

    def _redis_command(self, service: Service) -> list[str]:
        """With the service's configuration, in which paths are rewritten."""
        config = self._local(service.command[1], service).read_text()
        for path in re.findall(r"^(?:include|dir) (/\S+)", config, flags=re.M):
            here = self._local(path, service)
            if not path.startswith("/run/"):
                here.mkdir(parents=True, exist_ok=True)
            config = config.replace(f" {path}\n", f" {here}\n")
        written = self._folder / f"{service.name}.conf"
        written.write_text(config)
        port = str(self._ports[service.name, "6379"])
        return [str(valkey_binary()), str(written), "--port", port, "--bind", "127.0.0.1"]

    def _environment(self, service: Service) -> dict[str, str]:
        """That of the service, and nothing else that would configure a server."""
        values = {name: self._here(value, service) for name, value in service.environment.items()}
        values |= {"HOME": str(self._folder), "XDG_CACHE_HOME": str(self._cache_home)}
        if service.raw["image"].startswith("radixgate:"):
            values |= self._more
        if service.name == "gateway":
            values["RADIXGATE_HOST"] = "127.0.0.1"
            values["RADIXGATE_PORT"] = str(self._ports["gateway", "8000"])
        return {**environment_without_settings({}), **values}

    def _here(self, text: str, service: Service) -> str:
        """A word of a command or a variable's value, for this machine."""
        text = _NAMED.sub(lambda found: self._at(*found.groups()), text)
        text = _OWN.sub(lambda found: self._own(service, found), text)
        text = text.replace(_COLLECTOR, self._collector)
        return _PATH.sub(lambda found: str(self._local(found[1], service)), text)

    def _own(self, service: Service, found: re.Match[str]) -> str:
        is_mapped = (service.name, found[1]) not in self._ports
        return found[0] if is_mapped else self._at(service.name, found[1])

    def _local(self, path: str, service: Service) -> Path:
        """Where that path of the service's container is."""
        for mount in service.mounts:
            if path == mount.target or path.startswith(f"{mount.target}/"):
                return self._source(mount.source) / path[len(mount.target) :].lstrip("/")
        if path.startswith("/run/secrets/"):
            return self._folder / str(self._secret_files[path.removeprefix("/run/secrets/")])
        if path.startswith(_IMAGE):
            return ROOT / "deploy" / path.removeprefix(f"{_IMAGE}/")
        # What exists here already, such as the path of a model, is no path of a container.
        return Path(path) if Path(path).exists() else self._folder / service.name / path[1:]

    def _source(self, source: str) -> Path:
        """A volume, or a copy of what is mounted from the repository."""
        if source.startswith("."):
            return self._folder / source
        volume = self._folder / "volumes" / source
        volume.mkdir(parents=True, exist_ok=True)
        return volume


@contextmanager
def stack_in(
    folder: Path, *, collector: str, variables: Mapping[str, str], more: Mapping[str, str]
) -> Iterator[Stack]:
    """Nothing is started yet; nothing runs any more after the block."""
    stack = Stack(folder, collector=collector, variables=variables, more=more)
    try:
        yield stack
    finally:
        stack.close()


def _program(name: str) -> str:
    """Where what an image calls so is here."""
    if name == "python":
        return sys.executable
    if name == "prometheus":
        return str(TOOLS.prometheus)
    beside = Path(sys.executable).with_name(name)
    return str(beside) if beside.is_file() else name


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])
