"""No vectors here: what is wrong with a request is said first, then that no model makes any."""

from typing import Any

import pytest

from tests.gateway_harness import error_of, in_process, make_gateway

WELL_FORMED: list[dict[str, Any]] = [
    {"input": "text"},
    {"input": ["one", "two"]},
    {"input": [1, 2, 3]},
    {"input": [[1], [2, 3]]},
    {"input": "text", "encoding_format": "base64", "dimensions": 256, "user": "u"},
    {"input": "text", "encoding_format": "float", "dimensions": None},
    {"input": ["x"] * 2048},
]
MALFORMED: list[tuple[dict[str, Any], str, str]] = [
    ({}, "missing_required_parameter", "input"),
    ({"input": None}, "missing_required_parameter", "input"),
    ({"input": ""}, "empty_string", "input"),
    ({"input": ["a", ""]}, "empty_string", "input[1]"),
    ({"input": []}, "empty_array", "input"),
    ({"input": [[]]}, "empty_array", "input[0]"),
    ({"input": 5}, "invalid_type", "input"),
    ({"input": ["a", 5]}, "invalid_type", "input[1]"),
    ({"input": [1, True]}, "invalid_type", "input[1]"),
    ({"input": [-1]}, "integer_below_min_value", "input[0]"),
    ({"input": ["x"] * 2049}, "array_above_max_length", "input"),
    ({"input": "x", "encoding_format": "int8"}, "invalid_value", "encoding_format"),
    ({"input": "x", "dimensions": 0}, "integer_below_min_value", "dimensions"),
    ({"input": "x", "dimensions": 1.5}, "invalid_type", "dimensions"),
    ({"input": "x", "model": None}, "missing_required_parameter", "model"),
    ({"input": "x", "model": 5}, "invalid_type", "model"),
]


async def post(body: dict[str, Any], **settings: Any) -> Any:
    async with in_process(make_gateway(aliases=["text-embedding-3-small"], **settings)) as client:
        return await client.post("/v1/embeddings", json={"model": "tiny", **body})


@pytest.mark.parametrize("body", WELL_FORMED)
@pytest.mark.parametrize("model", ["tiny", "text-embedding-3-small"])
async def test_a_good_request_hears_that_the_model_makes_no_vectors(
    body: dict[str, Any], model: str
) -> None:
    response = await post({**body, "model": model})
    error = error_of(response)
    assert (response.status_code, error["code"], error["param"]) == (
        400,
        "unsupported_value",
        "model",
    )
    assert f"'{model}' generates text: it is no embedding model" in error["message"]


@pytest.mark.parametrize(("body", "code", "param"), MALFORMED)
async def test_a_malformed_request_hears_of_that(
    body: dict[str, Any], code: str, param: str
) -> None:
    response = await post(body)
    error = error_of(response)
    assert (response.status_code, error["code"], error["param"]) == (400, code, param)


async def test_an_unknown_model_is_a_404() -> None:
    response = await post({"input": "x", "model": "bert"})
    assert (response.status_code, error_of(response)["code"]) == (404, "model_not_found")


async def test_names_without_effect_are_told() -> None:
    response = await post({"input": "x", "user": "u", "zebra": 1})
    assert response.headers["x-radixgate-ignored"] == "user,zebra"
