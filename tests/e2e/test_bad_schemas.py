"""Schemas that nobody should send: each is refused by name or gives an answer that fits it or is
cut, and whoever comes next is served as before."""

import json
import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import httpx2
import pytest

from tests.conformance.target import Target
from tests.constrained_model import assert_valid
from tests.e2e.server_process import greedy_text

# A schema may take two seconds of computing, in a child that gives way to all others.
pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]

CHAT = "/v1/chat/completions"
MAX_TOKENS = 40


def member(schema: Any, name: str = "a") -> dict[str, Any]:
    """An object that must have this member."""
    return {"type": "object", "properties": {name: schema}, "required": [name]}


def nested(depth: int, opening: str, closing: str) -> str:
    return opening * depth + "{}" + closing * depth


def deep_one_of(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "integer"}
    for _ in range(depth):
        schema = {"oneOf": [member(schema), {"type": "string"}, {"multipleOf": 2, "minimum": 3}]}
    return schema


# What is said of them: the place, unless it is the whole ("") that is at fault, and the reason.
REFUSED: dict[str, tuple[Any, str, str]] = {
    "no base case": (member({"$ref": "#"}), "", "no base case"),
    "a circle of references": ({"$ref": "#"}, "/$ref", "refers to itself"),
    "a reference to nowhere": (member({"$ref": "#/$defs/none"}), "/properties/a/$ref", "nothing"),
    "a file": (member({"$ref": "file:///etc/passwd"}), "/properties/a/$ref", "never fetched"),
    "a million items": ({"type": "array", "minItems": 10**6}, "/minItems", "65536"),
    "a million characters": (member({"minLength": 10**6}), "/properties/a/minLength", "65536"),
    "a million members": ({"type": "object", "minProperties": 10**6}, "/minProperties", "65536"),
    "a megabyte of values": (
        {"enum": [f"value {number:06} {'x' * 30}" for number in range(25_000)]},
        "",
        "1000000 characters",
    ),
    "many values": ({"enum": list(range(25_000))}, "/enum", "20000"),
    "a backreference": (
        member({"type": "string", "pattern": r"^(a|b)\1$"}, "a/b~c"),
        "/properties/a~1b~0c/pattern",
        "backreference",
    ),
    "no pattern": (member({"pattern": "["}), "/properties/a/pattern", "not closed"),
    "half a character": (
        {"type": "string", "pattern": r"^\ud83d$"},
        "/pattern",
        "lone surrogate",
    ),
    "nothing at all": ({"not": {}}, "/not", "no finite value"),
    "more than there may be": (
        member({"type": "string", "minLength": 5, "maxLength": 4}),
        "",
        "maxLength",
    ),
    "no value": (member({"enum": []}), "/properties/a/enum", "non-empty"),
    "more than there is": (
        {"type": "array", "items": {"enum": [1, 2]}, "uniqueItems": True, "minItems": 3},
        "",
        "no finite value",
    ),
    "no type": (member({"type": "strnig"}), "/properties/a/type", "strnig"),
    "no properties": ({"type": "object", "properties": []}, "/properties", "object"),
    "a bound beyond all numbers": ({"type": "number", "minimum": 10**400}, "", "out of range"),
}
# May be enforced, cut or too complex, depending on the machine, but never wrong.
ANSWERED: dict[str, Any] = {
    "oneOf 20 deep": deep_one_of(20),
    "up to a million items": {"type": "array", "items": {"type": "integer"}, "maxItems": 10**6},
    "up to a million characters": {"type": "string", "maxLength": 10**6},
    "up to a million members": {"type": "object", "maxProperties": 10**6},
    "a pattern that backtracks": {"type": "string", "pattern": "^(a+)+$"},
    "a pattern that backtracks to its end": {"type": "string", "pattern": "^((a|aa)+)+b{500}$"},
    "repeats of repeats": {"type": "string", "pattern": "^((a{1,99}){1,99}){1,99}$"},
    "look-ahead": member({"type": "string", "pattern": r"^(?=.*\d)[a-z\d]+$"}),
    "look-behind": {"type": "string", "pattern": "(?<=a)b"},
    "5,000 properties": {"properties": {f"p{number}": {"const": 1} for number in range(5_000)}},
    "5,000 alternatives": {"enum": [f"v{number}" for number in range(5_000)]},
    "a tree of a billion leaves": {
        "$ref": "#/$defs/d0",
        "$defs": {
            **{
                f"d{number}": {
                    "type": "array",
                    "prefixItems": [{"$ref": f"#/$defs/d{number + 1}"}] * 2,
                    "minItems": 2,
                }
                for number in range(30)
            },
            "d30": {"type": "null"},
        },
    },
    "overlapping patterns": {
        "allOf": [{"type": "string", "pattern": f"[{end}].{{20}}[{end}]"} for end in "abcdef"]
    },
}
# These must give their beginning: nothing else of them fits.
CUT: dict[str, Any] = {
    "a text of 9,000 characters": {"const": "word " * 1_800},
    "30,000 items": {"type": "array", "items": {"type": "null"}, "minItems": 30_000},
    "5,000 members": {
        "type": "object",
        "properties": {f"p{number}": {"type": "integer"} for number in range(2_000)},
        "required": [f"p{number}" for number in range(2_000)],
    },
}
# Texts that are no JSON, or more of it than anybody needs.
MALFORMED: dict[str, bytes] = {
    "deep": nested(1_000, '{"type":"array","minItems":1,"items":', "}").encode(),
    "deep alternatives": nested(1_000, '{"anyOf":[', "]}").encode(),
    "deep and open": b'{"not":' * 5_000,
    "half of a pair": rb'{"const":"\ud800"}',
    "half a key": rb'{"type":"object","properties":{"\udc00":{}},"required":["\udc00"]}',
    "no text": b'{"const":"\xff\xfe"}',
    "a long number": b'{"type":"integer","minimum":-1' + b"0" * 5_000 + b"}",
    "infinity": b'{"type":"number","maximum":1e400}',
    "no number": b'{"type":"number","maximum":NaN}',
    "nothing": b"",
    "two": b"{} {}",
}


@dataclass(frozen=True, slots=True)
class Server:
    """`usual` is what a plain request always gets."""

    target: Target
    client: httpx2.AsyncClient
    usual: str

    def body(self, **parameters: Any) -> dict[str, Any]:
        settled = {"temperature": 1, "seed": 5, "max_tokens": MAX_TOKENS, **parameters}
        return self.target.chat("Answer in JSON.", **settled)

    async def post(self, schema: Any, *, is_text: bool = False) -> httpx2.Response:
        form = {"name": "x", "strict": True, "schema": schema}
        parameters: dict[str, Any] = {
            "response_format": {"type": "json_schema", "json_schema": form}
        }
        if is_text:
            parameters = {"guided_json": json.dumps(schema)}
        return await self.client.post(CHAT, json=self.body(**parameters), timeout=170)

    async def post_raw(self, field: bytes, schema: bytes) -> httpx2.Response:
        body = json.dumps(self.body()).encode()[:-1] + b"," + field % schema + b"}"
        headers = {"content-type": "application/json"}
        return await self.client.post(CHAT, content=body, headers=headers, timeout=170)


@pytest.fixture
async def server(tiny_server: Target) -> AsyncIterator[Server]:
    """After each test somebody asks for something plain."""
    usual = await greedy_text(tiny_server)
    async with tiny_server.http() as client:
        yield Server(tiny_server, client, usual)
    assert await greedy_text(tiny_server) == usual


def refusal(response: httpx2.Response, *codes: str) -> str:
    error = response.json()["error"]
    assert (response.status_code, error["type"]) == (400, "invalid_request_error"), error
    assert error["code"] in codes
    message: str = error["message"]
    return message


def finished(response: httpx2.Response) -> tuple[str, str]:
    assert response.status_code == 200, response.text
    (choice,) = response.json()["choices"]
    return choice["message"]["content"], choice["finish_reason"]


@pytest.mark.parametrize("is_text", [False, True])
@pytest.mark.parametrize("name", REFUSED)
async def test_a_schema_at_fault_is_refused_with_place_and_reason(
    server: Server, name: str, is_text: bool
) -> None:
    schema, pointer, reason = REFUSED[name]
    response = await server.post(schema, is_text=is_text)
    message = refusal(response, "invalid_json_schema")
    assert not pointer or f" at '{pointer}'" in message
    assert reason in message


@pytest.mark.parametrize("name", ANSWERED)
async def test_a_strange_schema_is_kept_or_is_too_complex(server: Server, name: str) -> None:
    response = await server.post(ANSWERED[name])
    if response.status_code == 400:
        refusal(response, "schema_too_complex")
        return
    text, reason = finished(response)
    assert reason in ("stop", "length")
    if reason == "stop":
        assert_valid(ANSWERED[name], text)


@pytest.mark.parametrize("name", CUT)
async def test_an_answer_that_cannot_fit_is_cut(server: Server, name: str) -> None:
    text, reason = finished(await server.post(CUT[name]))
    assert reason == "length"
    assert text.startswith(('"word word', "[null,null", '{"p0":'))


@pytest.mark.parametrize(
    "field",
    [
        b'"response_format":{"type":"json_schema","json_schema":{"name":"x","schema":%s}}',
        b'"guided_json":%s',
    ],
    ids=["response_format", "guided_json"],
)
@pytest.mark.parametrize("name", MALFORMED)
async def test_what_is_no_json_is_refused(server: Server, name: str, field: bytes) -> None:
    refusal(await server.post_raw(field, MALFORMED[name]), "invalid_json")


@pytest.mark.parametrize("name", sorted(MALFORMED.keys() - {"no text"}))
async def test_a_text_that_is_no_json_is_refused(server: Server, name: str) -> None:
    text = json.dumps(MALFORMED[name].decode()).encode()
    response = await server.post_raw(b'"guided_json":%s', text)
    refusal(response, "invalid_json_schema")


async def test_thousands_of_references_in_a_row_end(server: Server) -> None:
    chain = {f"d{number}": {"$ref": f"#/$defs/d{number + 1}"} for number in range(3_000)}
    schema = {"$ref": "#/$defs/d0", "$defs": {**chain, "d3000": {"type": "null"}}}
    response = await server.post(schema)
    if response.status_code == 400:
        refusal(response, "schema_too_complex", "invalid_json_schema")
    else:
        assert finished(response) == ("null", "stop")


async def test_nothing_is_fetched(server: Server) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/schema.json"
        for schema in ({"$ref": url}, {"$schema": url, **member({"$ref": f"{url}#/a"})}):
            message = refusal(await server.post(schema), "invalid_json_schema")
            assert "never fetched" in message or "$schema" in message
        finished(await server.post({"$id": url, "type": "null"}))
        with pytest.raises(BlockingIOError):
            listener.accept()


async def test_other_kinds_of_constraint_are_refused_or_kept_as_well(server: Server) -> None:
    for parameters in (
        {"guided_regex": r"(a)\1"},
        {"guided_regex": "["},
        {"guided_grammar": 'root ::= "a" root'},
        {"guided_grammar": "root ::= nothing"},
        {"guided_grammar": "start: start"},
        {"guided_grammar": "not a grammar"},
    ):
        response = await server.client.post(CHAT, json=server.body(**parameters), timeout=170)
        if response.status_code == 400:
            assert next(iter(parameters)) in response.json()["error"]["message"]
        else:
            assert finished(response)[1] == "length"
