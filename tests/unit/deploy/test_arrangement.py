"""compose.yaml as a whole: who listens where others ask, who may write what they are told to, who
waits for whom. Each of these is a stack that starts and does not work."""

import re
from collections.abc import Iterator
from pathlib import PurePosixPath
from urllib.parse import urlsplit

import pytest
import yaml

from gateway.settings import Settings
from tests.compose_file import COMPOSE_FILE, Mount, Service, health_command, services
from tests.model_file import ROOT

STACK = services()
RUNTIMES = ("runtime", "runtime-gpu")
SERVERS = ("gateway", *RUNTIMES)
SECRETS = "/run/secrets"
FOLDERS = re.compile(r"RADIXGATE_CACHE_DIR|TMPDIR|.*_CACHE_DIR")  # that are written to


def is_within(path: str, folder: str) -> bool:
    return PurePosixPath(path).is_relative_to(folder)


def mount_of(service: Service, path: str) -> Mount | None:
    """The innermost mount that has the path."""
    found = [mount for mount in service.mounts if is_within(path, mount.target)]
    return max(found, key=lambda mount: len(mount.target), default=None)


def in_memory(service: Service) -> list[str]:
    return [text.split(":")[0] for text in service.raw.get("tmpfs", ())]


def paths_of(service: Service) -> Iterator[str]:
    """Absolute paths in environment and command."""
    words = [*service.environment.values(), *(word.partition("=")[2] for word in service.command)]
    words += service.command
    yield from (word for word in words if word.startswith("/"))


def of_ours(name: str) -> Settings:
    ours = {
        key: value
        for key, value in STACK[name].environment.items()
        if key.startswith("RADIXGATE_") and not key.endswith("_FILE")
    }
    return Settings.load(ours, {})


def test_the_gateway_listens_where_its_port_is_published_and_where_it_is_asked() -> None:
    settings, service = of_ours("gateway"), STACK["gateway"]
    (published,) = service.raw["ports"]
    asked = urlsplit(health_command(service)[-1])
    assert settings.host == "0.0.0.0"
    assert {settings.port, int(published.rpartition(":")[2]), asked.port} == {8000}


@pytest.mark.parametrize("name", RUNTIMES)
def test_a_runtime_listens_to_other_containers_at_the_port_that_it_is_asked_at(name: str) -> None:
    listen = urlsplit(of_ours(name).runtime_listen)
    assert listen.hostname == "0.0.0.0"
    assert urlsplit(health_command(STACK[name])[-1]).port == listen.port


def test_no_dollar_is_left_that_compose_would_take_for_a_variable_of_its_own() -> None:
    filled = re.compile(r"\$\$|\$\{\w+(:-[^}]*)?\}")
    text = str(yaml.safe_load(COMPOSE_FILE.read_text()))
    assert len(filled.findall(text)) > 15
    assert "$" not in filled.sub("", text)


@pytest.mark.parametrize("service", STACK.values(), ids=STACK)
def test_what_a_service_is_told_of_files_is_there(service: Service) -> None:
    in_image = "/opt/radixgate"
    for path in paths_of(service):
        mount = mount_of(service, path)
        is_elsewhere = any(is_within(path, folder) for folder in (SECRETS, in_image))
        assert mount or is_elsewhere or path in in_memory(service), (service.name, path)
        if mount and mount.is_path:
            inside = PurePosixPath(path).relative_to(mount.target)
            exists = (ROOT / mount.source / inside).exists()
            assert exists or "secrets" in mount.source, (service.name, path)


@pytest.mark.parametrize("service", STACK.values(), ids=STACK)
def test_folders_to_write_to_are_volumes_that_may_be_written_to(service: Service) -> None:
    for name, path in service.environment.items():
        if FOLDERS.fullmatch(name):
            mount = mount_of(service, path)
            assert mount is not None, name
            assert not mount.is_path, name
            assert not mount.is_read_only, name


def test_a_package_with_the_model_is_unpacked_in_a_volume() -> None:
    """It is larger than what is in memory (64 MB)."""
    assert "TMPDIR" in STACK["model"].environment


def test_kernels_are_kept_where_they_may_be_loaded_from() -> None:
    assert {"TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR"} <= STACK[
        "runtime-gpu"
    ].environment.keys()


@pytest.mark.parametrize("name", SERVERS)
def test_who_has_no_way_out_asks_nobody_for_a_model_and_waits_until_it_is_there(name: str) -> None:
    assert STACK[name].environment["HF_HUB_OFFLINE"] == "1"
    waited = STACK[name].raw["depends_on"]["model"]
    assert waited == {"condition": "service_completed_successfully"}


def test_who_fetches_the_model_may_ask() -> None:
    assert "HF_HUB_OFFLINE" not in STACK["model"].environment


@pytest.mark.parametrize("name", SERVERS)
def test_a_first_process_that_passes_signals_on_is_there(name: str) -> None:
    assert STACK[name].raw["init"] is True


@pytest.mark.parametrize("name", RUNTIMES)
def test_a_model_may_take_minutes_to_be_packed_for_the_first_time(name: str) -> None:
    assert int(STACK[name].raw["healthcheck"]["start_period"].removesuffix("s")) >= 120


def test_metrics_come_to_prometheus_once_and_spans_to_the_collector_all() -> None:
    environment = STACK["gateway"].environment
    assert environment["OTEL_METRICS_EXPORTER"] == "none"
    assert environment["OTEL_TRACES_SAMPLER"] == "parentbased_always_on"


def test_prometheus_keeps_the_points_that_lead_to_traces_and_listens_to_grafana() -> None:
    command = STACK["prometheus"].command
    assert "--enable-feature=exemplar-storage" in command
    assert "--web.listen-address=0.0.0.0:9090" in command


def test_grafana_begins_with_a_dashboard_that_there_is() -> None:
    path = STACK["grafana"].environment["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    mount = mount_of(STACK["grafana"], path)
    assert mount is not None
    assert (ROOT / mount.source / PurePosixPath(path).name).is_file()


def test_jaeger_is_asked_at_the_path_that_its_extension_answers() -> None:
    http = yaml.safe_load((ROOT / "deploy/jaeger.yaml").read_text())["extensions"]["healthcheckv2"]
    assert http["use_v2"] is True
    asked = urlsplit(health_command(STACK["jaeger"])[-1])
    assert asked.path == http["http"].get("status", {}).get("path", "/status")
