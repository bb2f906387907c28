"""compose.yaml without an engine to run it: its schema, its settings, its walls."""

import re
from collections.abc import Iterator
from pathlib import Path

import check_jsonschema
import pytest
import yaml
from click.testing import CliRunner

from gateway.runtime_settings import warn_of_unused
from gateway.settings import Settings, describe_settings
from telemetry.prices import read_price_file
from tests.compose_file import COMPOSE_FILE, Service, dotenv, load, services
from tests.model_file import ROOT

STACK = services()
RUNTIMES = ("runtime", "runtime-gpu")
OURS = ("gateway", *RUNTIMES, "model")
MADE = "deploy/secrets/"  # by deploy/make_secrets.sh, whose test knows what
SECONDS = re.compile(r"(\d+)s")


def settings_of(name: str, tmp_path: Path) -> Settings:
    """What the service's program makes of its environment, with secrets of our own."""
    environment = dict(STACK[name].environment)
    for key in [key for key in environment if key.endswith("_FILE") and "PRICE" not in key]:
        secret = tmp_path / key.lower()
        secret.write_text("redis://:word@redis:6379/0\n")
        environment[key] = str(secret)
    return Settings.load(environment, {})


def networks() -> dict[str, dict[str, bool]]:
    found: dict[str, dict[str, bool]] = load()["networks"]
    return found


def schema_check(file: Path) -> int:
    """The exit code of check-jsonschema with the schema of the compose specification."""
    arguments = ["--builtin-schema", "vendor.compose-spec", str(file)]
    return CliRunner().invoke(check_jsonschema.main, arguments).exit_code


def test_the_file_fits_the_schema_of_the_compose_specification() -> None:
    assert schema_check(COMPOSE_FILE) == 0


def test_that_schema_notices_a_key_that_compose_does_not_know(tmp_path: Path) -> None:
    (tmp_path / "compose.yaml").write_text("services: {a: {image: b, restarts: always}}\n")
    assert schema_check(tmp_path / "compose.yaml") == 1


def test_it_names_no_version_which_the_specification_has_given_up() -> None:
    assert "version" not in load()


@pytest.mark.parametrize("name", ["gateway", *RUNTIMES])
def test_the_environment_is_settings_that_can_be_read(name: str, tmp_path: Path) -> None:
    settings = settings_of(name, tmp_path)
    assert settings.server_secret == "redis://:word@redis:6379/0"
    assert len(settings.model_fields_set) > 5


def test_every_variable_of_ours_is_a_documented_setting() -> None:
    documented = {info.variable for info in describe_settings()}
    documented |= {f"{info.variable}_FILE" for info in describe_settings() if info.is_secret}
    texts = (COMPOSE_FILE.read_text(), (ROOT / "Dockerfile").read_text())
    used = set(re.findall(r"\bRADIXGATE_[A-Z_]+", "".join(texts)))
    assert len(used) > 15
    assert used <= documented


def test_every_variable_of_opentelemetry_is_documented() -> None:
    used = set(re.findall(r"\bOTEL_[A-Z_]+", COMPOSE_FILE.read_text()))
    page = (ROOT / "docs/observability.md").read_text()
    assert len(used) > 4
    assert {name for name in used if name not in page} == set()


def test_the_gateway_sets_nothing_that_only_its_runtime_reads(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    warn_of_unused(settings_of("gateway", tmp_path))
    assert caplog.messages == []


@pytest.mark.parametrize("name", RUNTIMES)
def test_gateway_and_runtime_agree_about_what_both_must_know(name: str, tmp_path: Path) -> None:
    gateway, runtime = settings_of("gateway", tmp_path), settings_of(name, tmp_path)
    for both in ("model", "served_model_name", "max_running", "server_secret"):
        assert getattr(gateway, both) == getattr(runtime, both)
    listen, url = runtime.runtime_listen.rsplit(":", 1), str(gateway.runtime_url).rsplit(":", 1)
    assert (listen[1], url[0]) == (url[1], "tcp://runtime")


def test_the_runtime_uses_as_many_threads_as_it_has_processors() -> None:
    for number in ("1", "6"):
        runtime = services({"RUNTIME_CPUS": number})["runtime"]
        assert runtime.environment["RADIXGATE_NUM_THREADS"] == number
        assert runtime.raw["deploy"]["resources"]["limits"]["cpus"] == number


@pytest.mark.parametrize("service", STACK.values(), ids=STACK)
def test_a_service_has_no_more_rights_than_it_needs(service: Service) -> None:
    raw = service.raw
    assert raw["read_only"] is True
    assert raw["cap_drop"] == ["ALL"]
    assert "cap_add" not in raw
    assert "privileged" not in raw
    assert raw["security_opt"] == ["no-new-privileges:true"]
    user = str(raw["user"]).split(":")[0]
    assert int(user) > 0


@pytest.mark.parametrize("service", STACK.values(), ids=STACK)
def test_a_service_has_limits_for_processor_memory_processes_and_logs(service: Service) -> None:
    limits = service.raw["deploy"]["resources"]["limits"]
    assert limits.keys() == {"cpus", "memory", "pids"}
    assert set(service.raw["logging"]["options"]) == {"max-size", "max-file"}


def test_a_small_machine_has_the_processors_that_are_asked_for() -> None:
    """An engine refuses a container a limit above what the machine has."""
    for service in STACK.values():
        assert float(service.raw["deploy"]["resources"]["limits"]["cpus"]) <= 2


@pytest.mark.parametrize("service", STACK.values(), ids=STACK)
def test_an_image_is_pinned_to_a_version(service: Service) -> None:
    image = service.raw["image"]
    if image.startswith("radixgate:"):
        assert service.raw["build"]["args"]["TORCH"] == image.removeprefix("radixgate:")
    else:
        assert re.fullmatch(r"[\w./-]+:v?\d+\.\d+[\w.-]*", image)


def test_only_what_cannot_be_asked_has_no_health_check() -> None:
    def is_asked(service: Service) -> bool:
        check = service.raw.get("healthcheck", {})
        return not check.get("disable") and "test" in check

    assert {name for name, service in STACK.items() if not is_asked(service)} == {
        "model",  # ends
        "otel-collector",  # its image has no program to ask with
    }


def test_a_service_waits_for_healthy_ones_only_where_they_can_be_asked() -> None:
    for service in STACK.values():
        for name, how in service.raw.get("depends_on", {}).items():
            if how["condition"] == "service_healthy":
                assert "test" in STACK[name].raw["healthcheck"], (service.name, name)


def published() -> Iterator[tuple[str, str, int]]:
    for name, service in STACK.items():
        for port in service.raw.get("ports", ()):
            *host, _, inner = port.split(":")
            yield name, "".join(host), int(inner)


def test_one_port_is_open_to_others_and_the_rest_to_this_machine() -> None:
    assert sorted(published()) == [
        ("gateway", "", 8000),
        ("grafana", "127.0.0.1", 3000),
        ("jaeger", "127.0.0.1", 16686),
        ("prometheus", "127.0.0.1", 9090),
    ]


def test_no_two_services_publish_one_port() -> None:
    outer = [port.split(":")[-2] for s in STACK.values() for port in s.raw.get("ports", ())]
    assert len(set(outer)) == len(outer)


def test_who_publishes_nothing_and_fetches_nothing_is_on_internal_networks_only() -> None:
    open_networks = {name for name, options in networks().items() if not options.get("internal")}
    outside = {name for name, service in STACK.items() if service.networks & open_networks}
    assert outside == {name for name, _, _ in published()} | {"model"}


def test_messages_without_a_password_are_seen_by_who_has_to_do_with_them_only() -> None:
    on_engine = {name for name, service in STACK.items() if "engine" in service.networks}
    assert on_engine == {"gateway", *RUNTIMES, "redis", "redis-cache"}


def test_prometheus_finds_a_gateway_on_one_network_only() -> None:
    assert STACK["prometheus"].networks & STACK["gateway"].networks == {"telemetry"}


def test_every_variable_that_compose_fills_in_is_documented_with_its_default() -> None:
    filled = re.findall(r"\$\{(\w+)(?::-([^}]*))?\}", COMPOSE_FILE.read_text())
    table = (ROOT / "docs/deploy.md").read_text().split("## Settings")[1].split("\n## ")[0]
    assert len(filled) > 15
    for name, default in filled:
        (row,) = [line for line in table.splitlines() if f"`{name}`" in line.partition(" | ")[0]]
        assert not default or f"`{default}`" in row, (name, default)


def test_each_profile_has_one_runtime_and_the_default_is_the_processor() -> None:
    with_profiles = {name: service.profiles for name, service in STACK.items() if service.profiles}
    assert with_profiles == {"runtime": ("cpu",), "runtime-gpu": ("gpu",)}
    assert dotenv() == {"COMPOSE_PROFILES": "cpu"}


def test_the_runtime_on_a_gpu_has_the_other_ones_name_and_a_device() -> None:
    service = STACK["runtime-gpu"].raw
    assert service["networks"]["engine"]["aliases"] == ["runtime"]
    (device,) = service["deploy"]["resources"]["reservations"]["devices"]
    assert device == {"driver": "nvidia", "count": 1, "capabilities": ["gpu"]}


def test_the_gateway_starts_with_either_runtime() -> None:
    wanted = STACK["gateway"].raw["depends_on"]
    assert all(wanted[name]["required"] is False for name in RUNTIMES)


def test_a_gateway_has_the_time_to_drain() -> None:
    found = SECONDS.fullmatch(STACK["gateway"].raw["stop_grace_period"])
    assert found is not None
    drain = float(STACK["gateway"].environment["RADIXGATE_DRAIN_TIMEOUT_S"])
    assert int(found[1]) > drain + 5


@pytest.mark.parametrize("service", STACK.values(), ids=STACK)
def test_what_is_mounted_exists_and_is_read_only(service: Service) -> None:
    declared = set(load()["volumes"])
    for mount in service.mounts:
        if not mount.is_path:
            assert mount.source in declared
            continue
        assert mount.is_read_only, mount
        if not mount.source.startswith(f"./{MADE}"):
            assert (ROOT / mount.source).exists(), mount


def test_only_who_fills_the_model_cache_may_write_there() -> None:
    writers = {
        name
        for name in OURS
        for mount in STACK[name].mounts
        if mount.source == "model-cache" and not mount.is_read_only
    }
    assert writers == {"model", "runtime"}


def test_every_secret_is_a_file_of_the_folder_that_is_never_committed() -> None:
    files = {name: secret["file"] for name, secret in load()["secrets"].items()}
    assert all(file.startswith(f"./{MADE}") for file in files.values())
    used = {name for service in STACK.values() for name in service.raw.get("secrets", ())}
    assert used == files.keys()
    assert (ROOT / MADE / ".gitignore").read_text().splitlines()[-2:] == ["*", "!.gitignore"]


def test_a_service_reads_only_secrets_that_it_is_given() -> None:
    for service in STACK.values():
        texts = [*service.environment.values(), str(service.raw.get("healthcheck", ""))]
        texts += [
            path.read_text()
            for mount in service.mounts
            if mount.is_path and not mount.source.startswith(f"./{MADE}")
            for path in files_of(ROOT / mount.source)
        ]
        read = set(re.findall(r"/run/secrets/(\w+)", "\n".join(texts)))
        assert read == set(service.raw.get("secrets", ())), service.name


def files_of(path: Path) -> list[Path]:
    return [one for one in path.rglob("*") if one.is_file()] if path.is_dir() else [path]


def test_nothing_secret_is_written_down() -> None:
    words = ("password", "secret", "token", "api_key")
    for service in STACK.values():
        for name, value in service.environment.items():
            if any(word in name.lower() for word in words) and "TOKENS" not in name:
                assert value.startswith("/run/secrets/"), name


def test_the_price_file_can_be_read() -> None:
    assert read_price_file(ROOT / "deploy/prices.yaml").of("any") is not None


def test_merged_keys_are_no_services_of_their_own() -> None:
    raw = yaml.safe_load(COMPOSE_FILE.read_text())
    assert {key for key in raw if not key.startswith("x-")} == {
        *("name", "services", "networks", "volumes", "secrets"),
    }
