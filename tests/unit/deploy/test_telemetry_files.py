"""The configurations of collector, Jaeger, Prometheus and the two Redis fit together and name what
exists. The programs themselves are not here, but for Prometheus and a Valkey (tests/e2e)."""

import re
from itertools import chain
from typing import Any

import pytest
import yaml

from telemetry import names
from telemetry.catalog import ROUTES
from tests.compose_file import services
from tests.model_file import ROOT

DEPLOY = ROOT / "deploy"
COLLECTOR: dict[str, Any] = yaml.safe_load((DEPLOY / "otel-collector.yaml").read_text())
JAEGER: dict[str, Any] = yaml.safe_load((DEPLOY / "jaeger.yaml").read_text())
PROMETHEUS: dict[str, Any] = yaml.safe_load((DEPLOY / "prometheus/prometheus.yml").read_text())
STACK = services()


@pytest.mark.parametrize("config", [COLLECTOR, JAEGER], ids=["collector", "jaeger"])
def test_pipelines_are_made_of_what_is_defined_and_leave_nothing_out(
    config: dict[str, Any],
) -> None:
    connectors = set(config.get("connectors", ()))
    for part in ("receivers", "processors", "exporters"):
        used = set(chain(*(pipe.get(part, ()) for pipe in config["service"]["pipelines"].values())))
        shared = connectors if part != "processors" else set()
        assert used == set(config[part]) | (used & shared)
    assert set(config["service"]["extensions"]) == set(config["extensions"])


def test_every_pipeline_begins_with_the_bound_on_memory_and_ends_with_batches() -> None:
    for pipeline in COLLECTOR["service"]["pipelines"].values():
        assert pipeline["processors"][0] == "memory_limiter"
        assert pipeline["processors"][-1] == "batch"


def test_rates_and_durations_are_of_all_spans_and_not_of_those_that_are_kept() -> None:
    pipelines = COLLECTOR["service"]["pipelines"]
    assert "tail_sampling" not in pipelines["traces/all"]["processors"]
    assert pipelines["traces/all"]["exporters"] == ["spanmetrics"]
    assert "tail_sampling" in pipelines["traces/kept"]["processors"]


def test_conditions_ask_for_attributes_and_names_that_spans_have() -> None:
    text = (DEPLOY / "otel-collector.yaml").read_text()
    known = {value for value in vars(names).values() if isinstance(value, str)}
    attributes = set(re.findall(r'attributes\["([^"]+)"\]', text))
    assert attributes == {names.ATTR_TTFT_MS, names.HTTP_ROUTE}
    assert set(re.findall(r'\bname == "([^"]+)"', text)) <= known


def test_what_is_filtered_out_is_no_route_that_answers() -> None:
    (condition,) = COLLECTOR["processors"]["filter/probes"]["trace_conditions"]
    pattern = condition.split('"')[-2]
    assert not any(re.search(pattern, route) for route in ROUTES)
    assert all(re.search(pattern, route) for route in ("/metrics", "/health", "/ready"))


def test_errors_slow_requests_and_a_tenth_of_the_rest_are_kept() -> None:
    policies = {p["name"]: p for p in COLLECTOR["processors"]["tail_sampling"]["policies"]}
    assert policies["errors"]["status_code"] == {"status_codes": ["ERROR"]}
    slow = policies["slow-first-token"]["ottl_condition"]["span"][0]
    limit_ms = float(STACK["gateway"].environment["RADIXGATE_SLO_TTFT_MS"])
    assert float(slow.rpartition(">")[2]) == limit_ms
    assert policies["a-tenth-of-the-rest"]["probabilistic"] == {"sampling_percentage": 10}


def port_of(endpoint: str) -> str:
    return endpoint.rpartition(":")[2]


def test_spans_go_from_gateway_to_collector_to_jaeger() -> None:
    http = COLLECTOR["receivers"]["otlp"]["protocols"]["http"]["endpoint"]
    sent_to = STACK["gateway"].environment["OTEL_EXPORTER_OTLP_ENDPOINT"]
    assert sent_to == f"http://otel-collector:{port_of(http)}"
    grpc = JAEGER["receivers"]["otlp"]["protocols"]["grpc"]["endpoint"]
    assert COLLECTOR["exporters"]["otlp_grpc/jaeger"]["endpoint"] == f"jaeger:{port_of(grpc)}"


def test_prometheus_scrapes_who_shows_something_where_it_is_shown() -> None:
    targets = {
        job["job_name"]: job["static_configs"][0]["targets"]
        for job in PROMETHEUS["scrape_configs"]
        if "static_configs" in job
    }
    spans = port_of(COLLECTOR["exporters"]["prometheus"]["endpoint"])
    assert targets == {
        "spanmetrics": [f"otel-collector:{spans}"],
        "otel-collector": [f"otel-collector:{own_metrics_port(COLLECTOR)}"],
        "jaeger": [f"jaeger:{own_metrics_port(JAEGER)}"],
        "prometheus": ["localhost:9090"],
    }


def own_metrics_port(config: dict[str, Any]) -> int:
    (reader,) = config["service"]["telemetry"]["metrics"]["readers"]
    return int(reader["pull"]["exporter"]["prometheus"]["port"])


def test_prometheus_finds_every_gateway_by_the_name_of_the_service() -> None:
    (job,) = [job for job in PROMETHEUS["scrape_configs"] if job["job_name"] == "gateway"]
    (discovery,) = job["dns_sd_configs"]
    assert discovery["names"] == ["gateway"]
    assert str(discovery["port"]) == STACK["gateway"].environment["RADIXGATE_PORT"]


def test_jaeger_reads_span_metrics_where_prometheus_has_them() -> None:
    backend = JAEGER["extensions"]["jaeger_storage"]["metric_backends"]["span_metrics"]
    assert backend["prometheus"]["endpoint"] == "http://prometheus:9090"
    assert "prometheus" in STACK


def test_jaeger_asks_storages_that_it_has_for_traces_and_for_metrics() -> None:
    storage = JAEGER["extensions"]["jaeger_storage"]
    asked = JAEGER["extensions"]["jaeger_query"]["storage"]
    assert asked["traces"] in storage["backends"]
    assert asked["metrics"] in storage["metric_backends"]
    written = JAEGER["exporters"]["jaeger_storage_exporter"]["trace_storage"]
    assert written == asked["traces"]


def test_who_is_sent_to_listens_to_others_and_speaks_without_tls_as_they_do() -> None:
    for config in (COLLECTOR, JAEGER):
        for protocol in config["receivers"]["otlp"]["protocols"].values():
            assert protocol["endpoint"].startswith("0.0.0.0:")
            assert "tls" not in protocol
        (reader,) = config["service"]["telemetry"]["metrics"]["readers"]
        assert reader["pull"]["exporter"]["prometheus"]["host"] == "0.0.0.0"
    assert COLLECTOR["exporters"]["prometheus"]["endpoint"].startswith("0.0.0.0:")
    assert COLLECTOR["exporters"]["otlp_grpc/jaeger"]["tls"] == {"insecure": True}


def test_a_trace_is_held_for_as_long_as_the_page_says() -> None:
    sampling = COLLECTOR["processors"]["tail_sampling"]
    page = (DEPLOY.parent / "docs/deploy.md").read_text()
    assert "holds each trace for a minute before it decides, 20,000 at most" in page
    assert (sampling["decision_wait"], sampling["num_traces"]) == ("60s", 20000)


@pytest.mark.parametrize("name", ["counters", "pages"])
def test_neither_redis_answers_without_a_password(name: str) -> None:
    assert "include /run/secrets/redis_auth" in (DEPLOY / f"redis/{name}.conf").read_text()


def test_jaeger_is_bounded() -> None:
    backends = JAEGER["extensions"]["jaeger_storage"]["backends"]
    assert backends["memory_store"]["memory"]["max_traces"] > 0


def test_health_checks_ask_at_ports_that_are_configured() -> None:
    asked = STACK["jaeger"].raw["healthcheck"]["test"][-1]
    configured = JAEGER["extensions"]["healthcheckv2"]["http"]["endpoint"]
    assert f":{port_of(configured)}/" in asked


@pytest.mark.parametrize(("name", "policy"), [("counters", "noeviction"), ("pages", "allkeys-lru")])
def test_each_redis_is_bounded_under_its_container_and_has_its_policy(
    name: str, policy: str
) -> None:
    text = (DEPLOY / f"redis/{name}.conf").read_text()
    assert f"maxmemory-policy {policy}" in text
    (service,) = [s for s in STACK.values() if any(f"{name}.conf" in m.source for m in s.mounts)]
    limit = service.raw["deploy"]["resources"]["limits"]["memory"]
    memory = re.search(r"^maxmemory (\d+)mb$", text, flags=re.M)
    assert memory is not None
    in_mb = int(limit[:-1]) * (1024 if limit.endswith("g") else 1)
    assert int(memory[1]) < 0.8 * in_mb


def test_only_the_redis_that_keeps_something_writes_it_down() -> None:
    counters, pages = (
        (DEPLOY / f"redis/{name}.conf").read_text() for name in ("counters", "pages")
    )
    assert "appendonly yes" in counters
    assert "appendonly no" in pages
    assert any(mount.target == "/data" for mount in STACK["redis"].mounts)
    assert not any(mount.target == "/data" for mount in STACK["redis-cache"].mounts)
