"""Keys, tenants, browsers and proxies."""

import pytest

from tests.gateway_harness import CHAT, chat, error_of, in_process, make_gateway

KEYS = ("alpha-key", "beta-key")
SECRET = "a secret of the server"


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


@pytest.mark.parametrize("path", ["/v1/models", "/v1/nope", "/metrics", "/version", "/nope", "/"])
async def test_every_path_needs_a_key_unknown_ones_too(path: str) -> None:
    async with in_process(make_gateway(api_keys=KEYS)) as client:
        response = await client.get(path)
    assert (response.status_code, error_of(response)["code"]) == (401, "invalid_api_key")
    assert response.headers["www-authenticate"] == "Bearer"
    assert response.headers["x-request-id"]


@pytest.mark.parametrize("path", ["/health", "/ready"])
async def test_probes_need_no_key(path: str) -> None:
    async with in_process(make_gateway(api_keys=KEYS)) as client:
        assert (await client.get(path)).status_code == 200
        assert (await client.head(path)).status_code == 200


@pytest.mark.parametrize(
    "header", ["Bearer wrong", "Bearer ", "Basic alpha-key", "alpha-key", "Bearer alpha-key2"]
)
async def test_wrong_keys_are_refused_before_the_body_is_read(header: str) -> None:
    gateway = make_gateway(api_keys=KEYS)
    async with in_process(gateway) as client:
        response = await client.post(CHAT, content=b"{", headers={"authorization": header})
        metrics = (await client.get("/metrics", headers=bearer("alpha-key"))).text
    assert response.status_code == 401
    assert "alpha" not in response.text
    assert gateway.spans.get_finished_spans() == ()
    assert 'radixgate_rejected_total{reason="invalid_api_key"} 1.0' in metrics


async def test_each_key_is_a_tenant_of_its_own_even_with_one_salt() -> None:
    gateway = make_gateway(api_keys=KEYS, server_secret=SECRET)
    async with in_process(gateway) as client:
        for key in (*KEYS, KEYS[0]):
            body = chat(cache_salt="shared")
            assert (await client.post(CHAT, json=body, headers=bearer(key))).status_code == 200
    first, second, again = (submit.namespace for submit in gateway.engine.submitted)
    assert first != second
    assert first == again


async def test_salt_narrows_a_tenants_cache() -> None:
    gateway = make_gateway(server_secret=SECRET)
    async with in_process(gateway) as client:
        for salt in ({}, {"cache_salt": "a"}, {"extra_key": "a"}, {"cache_salt": "b"}):
            assert (await client.post(CHAT, json=chat(**salt))).status_code == 200
    none, salted, same, other = (submit.namespace for submit in gateway.engine.submitted)
    assert len({none, salted, other}) == 3
    assert salted == same


async def test_key_is_in_no_span() -> None:
    gateway = make_gateway(api_keys=KEYS)
    async with in_process(gateway) as client:
        await client.post(CHAT, json=chat(), headers=bearer("alpha-key"))
    spans = gateway.spans.get_finished_spans()
    assert any("radixgate.tenant" in (span.attributes or {}) for span in spans)
    assert not any("alpha" in str(span.attributes) for span in spans)


async def test_browser_of_an_allowed_origin_may_call() -> None:
    gateway = make_gateway(api_keys=KEYS, cors_origins=("https://app.example",))
    origin = {"origin": "https://app.example"}
    asked = {
        **origin,
        "access-control-request-method": "POST",
        "access-control-request-headers": "authorization,content-type,x-stainless-lang",
    }
    async with in_process(gateway) as client:
        preflight = await client.options(CHAT, headers=asked)
        answer = await client.post(CHAT, json=chat(), headers={**origin, **bearer("beta-key")})
        refused = await client.post(CHAT, json=chat(), headers=origin)
    assert preflight.status_code == 200
    assert "x-stainless-lang" in preflight.headers["access-control-allow-headers"]
    assert answer.headers["access-control-allow-origin"] == "https://app.example"
    assert "x-radixgate-ignored" in answer.headers["access-control-expose-headers"]
    # An error a browser may not read would look like a broken network.
    assert refused.status_code == 401
    assert refused.headers["access-control-allow-origin"] == "https://app.example"


async def test_browser_of_another_origin_is_refused_in_our_shape() -> None:
    gateway = make_gateway(cors_origins=("https://app.example",))
    headers = {"origin": "https://evil.example", "access-control-request-method": "POST"}
    async with in_process(gateway) as client:
        preflight = await client.options(CHAT, headers=headers)
    assert (preflight.status_code, error_of(preflight)["code"]) == (400, "cors_refused")
    assert "access-control-allow-origin" not in preflight.headers


async def test_without_the_setting_browsers_get_no_permission() -> None:
    async with in_process(make_gateway()) as client:
        answer = await client.post(CHAT, json=chat(), headers={"origin": "https://app.example"})
    assert not any(name.startswith("access-control") for name in answer.headers)


async def test_server_behind_a_path_prefix_answers_under_it() -> None:
    gateway = make_gateway(api_keys=KEYS, root_path="/llm")
    async with in_process(gateway) as client:
        health = await client.get("/llm/health")
        models = await client.get("/llm/v1/models", headers=bearer("alpha-key"))
        closed = await client.get("/llm/v1/models")
    assert [health.status_code, models.status_code, closed.status_code] == [200, 200, 401]


@pytest.mark.parametrize("offered", ["abc-123", "trace:7f.x_y"])
async def test_valid_request_id_of_the_client_is_kept(offered: str) -> None:
    async with in_process(make_gateway()) as client:
        response = await client.get("/health", headers={"x-request-id": offered})
    assert response.headers["x-request-id"] == offered


@pytest.mark.parametrize("offered", ["", "has space", "x" * 129, 'quote"', "caf\u00e9"])
async def test_other_request_ids_are_replaced(offered: str) -> None:
    async with in_process(make_gateway()) as client:
        response = await client.get("/health", headers=[(b"x-request-id", offered.encode())])
    assert response.headers["x-request-id"].startswith("req_")


async def test_model_ids_with_slashes_are_found_raw_and_encoded() -> None:
    gateway = make_gateway(name="org/model")
    async with in_process(gateway) as client:
        raw = await client.get("/v1/models/org/model")
        encoded = await client.get("/v1/models/org%2Fmodel")
    assert raw.json()["id"] == encoded.json()["id"] == "org/model"
    assert raw.json()["max_model_len"] == 128


async def test_model_says_how_long_its_context_is_once_the_engine_has_said_it() -> None:
    gateway = make_gateway()
    info, gateway.engine.info = gateway.engine.info, None
    async with in_process(gateway) as client:
        (early,) = (await client.get("/v1/models")).json()["data"]
        gateway.engine.info = info
        (late,) = (await client.get("/v1/models")).json()["data"]
    assert "max_model_len" not in early
    assert late == {**early, "max_model_len": 128}
