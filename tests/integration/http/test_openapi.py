"""The OpenAPI document is true: it has every route, and its schemas are those of real requests and
answers."""

import re
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from starlette.exceptions import HTTPException

from gateway.api_operations import OPERATIONS
from gateway.app import package_version
from gateway.errors import GatewayError
from gateway.openapi_document import openapi_document
from gateway.parameter_table import PARAMETERS, Action, Endpoint
from gateway.routing_errors import RoutingErrors
from tests.gateway_harness import (
    CHAT,
    COMPLETIONS,
    chat,
    completion,
    error_of,
    in_process,
    make_gateway,
)
from tests.integration.http.test_parameter_table import VALUES

DOCUMENT = openapi_document(version="1", needs_key=False, is_strict=False)
STRICT = openapi_document(version="1", needs_key=True, is_strict=True)
MODELS = {CHAT: "ChatCompletionRequest", COMPLETIONS: "CompletionRequest"}


def fits(name: str, value: Any, document: dict[str, Any] = DOCUMENT) -> bool:
    schema = {"$ref": f"#/components/schemas/{name}", "components": document["components"]}
    return bool(Draft202012Validator(schema).is_valid(value))


def references(value: Any) -> set[str]:
    if isinstance(value, dict):
        own = {value["$ref"]} if isinstance(value.get("$ref"), str) else set()
        return own.union(*map(references, value.values()))
    return set().union(*map(references, value)) if isinstance(value, list) else set()


async def get_document(**settings: Any) -> Any:
    async with in_process(make_gateway(**settings)) as client:
        return (await client.get("/openapi.json")).json()


def test_every_route_of_the_app_is_an_operation_and_no_other() -> None:
    handler: Any = make_gateway().app.exception_handlers[HTTPException]
    assert isinstance(handler, RoutingErrors)
    routes = {
        (method.lower(), re.sub(r":\w+}", "}", route.path))
        for route in handler.routes
        for method in route.methods or ()
    }
    documented = {
        (method, path) for path, methods in DOCUMENT["paths"].items() for method in methods
    }
    assert {route for route in routes if route[0] != "head"} == documented
    assert len(OPERATIONS) == len(documented)


def test_every_reference_leads_somewhere_and_every_schema_is_one() -> None:
    for reference in references(DOCUMENT):
        place: Any = DOCUMENT
        for step in reference.removeprefix("#/").split("/"):
            place = place[step]
        assert isinstance(place, dict)
    for schema in DOCUMENT["components"]["schemas"].values():
        Draft202012Validator.check_schema(schema)
    ids = [op["operationId"] for path in DOCUMENT["paths"].values() for op in path.values()]
    assert len(ids) == len(set(ids))


@pytest.mark.parametrize(("endpoint", "base"), [(CHAT, chat()), (COMPLETIONS, completion())])
def test_every_parameter_of_the_table_is_in_the_schema_as_it_is_treated(
    endpoint: str, base: dict[str, Any]
) -> None:
    name = MODELS[endpoint]
    for row in PARAMETERS:
        if Endpoint(endpoint) not in row.endpoints or row.is_nested:
            continue
        key = row.name.replace("*", "x")
        if row.action is Action.IMPLEMENTED and key in VALUES and key != "logprobs":
            assert fits(name, base | VALUES[key]), key
        if row.action is not Action.REFUSED or row.harmless_like is not None:
            continue
        assert not fits(name, base | {key: {"some": "thing"}}), key
        assert all(fits(name, base | {key: value}) for value in (None, *row.harmless)), key


@pytest.mark.parametrize(
    "wrong",
    [
        {"messages": []},
        {"messages": None},
        {"model": 5},
        {"temperature": 3},
        {"n": 0},
        {"stop": [""]},
        {"max_tokens": 2**63},
        {"response_format": {"type": "xml"}},
        {"audio": {}},
        {"guided_new": "x"},
    ],
)
async def test_what_the_schema_does_not_allow_the_server_refuses(wrong: dict[str, Any]) -> None:
    body = chat() | wrong
    assert not fits("ChatCompletionRequest", body)
    async with in_process(make_gateway()) as client:
        assert (await client.post(CHAT, json=body)).status_code == 400


@pytest.mark.parametrize("prompt", [5, [], [[]], [1.5], [-1], {"a": 1}, [["a"]]])
def test_prompts_that_are_none_do_not_fit(prompt: Any) -> None:
    assert not fits("CompletionRequest", completion(prompt))
    assert not fits("EmbeddingsRequest", {"model": "m", "input": prompt})


@pytest.mark.parametrize("prompt", ["a", ["a", "b"], [1, 2], [[1], [2, 3]]])
def test_prompts_of_every_shape_fit(prompt: Any) -> None:
    assert fits("CompletionRequest", completion(prompt))
    assert fits("EmbeddingsRequest", {"model": "m", "input": prompt})


def test_unknown_parameters_fit_unless_the_server_is_strict() -> None:
    assert fits("ChatCompletionRequest", chat(zebra=1))
    assert not fits("ChatCompletionRequest", chat(zebra=1), STRICT)
    assert fits("ChatCompletionRequest", chat(user="u"), STRICT)


async def test_answers_fit_their_schemas() -> None:
    async with in_process(make_gateway()) as client:
        rich = {"logprobs": True, "top_logprobs": 2, "n": 2, "metadata": {"a": "b"}}
        asked = [
            ("ChatCompletion", await client.post(CHAT, json=chat(**rich))),
            ("Completion", await client.post(COMPLETIONS, json=completion(logprobs=2))),
            (
                "ResponseBody",
                await client.post("/v1/responses", json={"model": "tiny", "input": "hi"}),
            ),
            ("Tokenized", await client.post("/tokenize", json={"prompt": "hi"})),
            ("Detokenized", await client.post("/detokenize", json={"tokens": [104]})),
            ("Rendered", await client.post("/apply-template", json=chat())),
            ("CacheExplanation", await client.post("/v1/cache/explain", json=chat())),
            (
                "CacheExplanations",
                await client.post("/v1/cache/explain", json=completion(["a", "b"])),
            ),
            ("CacheState", await client.get("/v1/cache")),
            ("CacheFlush", await client.delete("/v1/cache")),
            ("ModelList", await client.get("/v1/models")),
            ("ModelCard", await client.get("/v1/models/tiny")),
        ]
    for name, response in asked:
        assert response.status_code == 200, response.text
        assert fits(name, response.json()), name
        assert not fits(name, {}), name


def test_every_status_of_an_error_is_documented_in_the_error_shape() -> None:
    chat_errors = set(DOCUMENT["paths"][CHAT]["post"]["responses"])
    assert {"400", "401", "404", "408", "413", "415", "429", "500", "503"} <= chat_errors
    assert "422" not in chat_errors
    assert set(DOCUMENT["paths"]["/ready"]["get"]["responses"]) == {"200", "500", "503"}
    assert fits("Error", GatewayError("x").body())
    assert not fits("Error", {"error": {"message": "x", "type": "y", "param": None}})
    assert not fits("Error", {"error": {**GatewayError("x").body()["error"], "detail": "y"}})


async def test_it_is_served_with_the_version_and_says_which_routes_need_a_key() -> None:
    served = await get_document()
    assert served["info"]["version"] == package_version()
    assert "security" not in served["paths"][CHAT]["post"]
    async with in_process(make_gateway(api_keys=("key",), root_path="/llm")) as client:
        refused = await client.get("/llm/openapi.json")
        headers = {"authorization": "Bearer key"}
        guarded = (await client.get("/llm/openapi.json", headers=headers)).json()
    assert (refused.status_code, error_of(refused)["code"]) == (401, "invalid_api_key")
    assert guarded["paths"][CHAT]["post"]["security"] == [{"bearer": []}]
    assert "security" not in guarded["paths"]["/health"]["get"]
    assert guarded["servers"] == [{"url": "/llm"}]


async def test_there_are_no_other_pages_of_documentation() -> None:
    async with in_process(make_gateway()) as client:
        for path in ("/docs", "/redoc", "/docs/oauth2-redirect", "/v1/openapi.json"):
            assert (await client.get(path)).status_code == 404


@pytest.mark.parametrize(
    ("message", "is_whole"),
    [
        ({"role": "user", "content": "a"}, True),
        ({"role": "user"}, False),
        ({"role": "user", "content": None}, False),
        ({"role": "assistant", "content": None, "tool_calls": []}, True),
        ({"role": "tool", "tool_call_id": "1", "content": "a"}, True),
        ({"role": "tool", "content": "a"}, False),
        ({"role": "user", "content": "a", "audio": {"id": "x"}}, False),
    ],
)
def test_messages_fit_when_they_are_whole(message: dict[str, Any], is_whole: bool) -> None:
    assert fits("ChatCompletionRequest", chat() | {"messages": [message]}) is is_whole
    assert fits("TokenizeRequest", {"messages": [message]}) is is_whole
