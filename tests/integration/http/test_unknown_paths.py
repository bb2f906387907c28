"""Paths that nothing answers to, and methods that belong to none or to another route."""

import asyncio
import json

import httpx2
import pytest

from tests.gateway_harness import CHAT, error_of, in_process, listening, make_gateway


async def ask(method: str, path: str) -> httpx2.Response:
    async with in_process(make_gateway(name="org/model")) as client:
        return await client.request(method, path)


@pytest.mark.parametrize(
    "path",
    ["/", "/v1", "/v1/", "/nope", "/v1/nope", "/v1/chat", "/v2/models", "/docs", "/redoc", "/%00"],
)
@pytest.mark.parametrize("method", ["GET", "POST", "DELETE", "HEAD", "OPTIONS", "PUT", "WIZARDRY"])
async def test_unknown_path_is_a_404_in_the_error_shape_for_every_method(
    method: str, path: str
) -> None:
    response = await ask(method, path)
    assert response.status_code == 404
    assert method == "HEAD" or error_of(response)["code"] == "unknown_url"
    assert response.headers["content-type"] == "application/json"
    assert response.headers["x-request-id"]


@pytest.mark.parametrize(
    ("path", "meant"),
    [
        (CHAT + "/", CHAT),
        ("//v1//chat///completions", CHAT),
        ("/chat/completions", CHAT),
        ("/v1/v1/chat/completions", CHAT),
        ("/v1/models/", "/v1/models"),
        ("/v1/health", "/health"),
        ("/metrics/", "/metrics"),
    ],
)
async def test_path_that_was_nearly_right_is_told_the_right_one(path: str, meant: str) -> None:
    response = await ask("GET", path)
    assert response.status_code == 404
    assert error_of(response)["message"].endswith(f"Did you mean {meant}?")


@pytest.mark.parametrize(
    "path",
    ["/v1/assistants", "/v1/files/abc/content", "/v1/audio/speech", "/images", "/api/chat",
     "/v1/batches", "/v1/messages", "/v1/fine_tuning/jobs", "/invocations"],
)  # fmt: skip
async def test_families_of_the_api_that_are_not_served_are_called_so(path: str) -> None:
    message = error_of(await ask("POST", path))["message"]
    family = path.removeprefix("/v1").split("/")[1]
    assert f"'{family}' are not served here" in message


async def test_long_path_is_not_repeated_in_full_nor_compared() -> None:
    response = await ask("GET", "/v1/" + "models/" * 2_000)
    assert response.status_code == 404
    response = await ask("GET", "/" + "a/" * 20_000)
    assert (response.status_code, error_of(response)["code"]) == (404, "unknown_url")
    assert len(response.text) < 500


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("GET", CHAT, "POST"),
        ("HEAD", CHAT, "POST"),
        ("OPTIONS", CHAT, "POST"),
        ("PATCH", "/v1/completions", "POST"),
        ("POST", "/v1/models", "GET, HEAD"),
        ("DELETE", "/v1/models/org/model", "GET, HEAD"),
        ("OPTIONS", "/v1/models", "GET, HEAD"),
        ("POST", "/health", "GET, HEAD"),
        ("WIZARDRY", "/metrics", "GET, HEAD"),
        ("PUT", "/v1/responses/resp_1", "DELETE, GET, HEAD"),
        ("PUT", "/v1/responses/input_tokens", "DELETE, GET, HEAD, POST"),
    ],
)
async def test_wrong_method_is_a_405_that_says_which_ones_there_are(
    method: str, path: str, allowed: str
) -> None:
    response = await ask(method, path)
    assert (response.status_code, response.headers["allow"]) == (405, allowed)
    assert response.headers["content-type"] == "application/json"
    if method != "HEAD":
        assert error_of(response)["code"] == "method_not_allowed"
        assert allowed in error_of(response)["message"]


@pytest.mark.parametrize("path", ["/health", "/version", "/metrics", "/v1/models"])
async def test_what_can_be_read_can_be_asked_after(path: str) -> None:
    response = await ask("HEAD", path)
    assert response.status_code == 200
    assert int(response.headers["content-length"]) > 0


async def test_under_a_prefix_the_same_is_said_of_the_rest() -> None:
    async with in_process(make_gateway(root_path="/llm")) as client:
        hinted = await client.post("/llm/chat/completions")
        wrong = await client.get("/llm/v1/completions")
    assert error_of(hinted)["message"].endswith(f"Did you mean {CHAT}?")
    assert wrong.headers["allow"] == "POST"


@pytest.mark.parametrize(
    "target", [b"/caf\xc3\xa9", b"*", b"/v1/models/%ff%fe", b"http://x:99999/", b"/a?b=\xff", b"//"]
)
async def test_targets_that_are_no_paths_are_refused_in_the_error_shape(target: bytes) -> None:
    async with listening(make_gateway()) as base_url:
        host, port = base_url.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"GET " + target + b" HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
        head, _, body = (await reader.read()).partition(b"\r\n\r\n")
        writer.close()
    assert head.split()[1] in (b"400", b"404")
    assert set(json.loads(body)["error"]) == {"message", "type", "param", "code"}
    assert b"x-request-id: req_" in head
