"""From pydantic's errors to OpenAI's, and what a body may be."""

from typing import Any

import msgspec
import pytest
from pydantic import ValidationError
from starlette.datastructures import Headers

from gateway.errors import InvalidRequest, UnsupportedMediaType
from gateway.json_text import MAX_DEPTH, MAX_PARTS
from gateway.schemas.chat_request import ChatCompletionRequest
from gateway.schemas.completion_request import CompletionRequest
from gateway.validation import check_content_type, decode_object, param_path, validate


def chat(**parameters: Any) -> ChatCompletionRequest:
    body = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
    return validate(ChatCompletionRequest, {**body, **parameters})


def refusal(**parameters: Any) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as caught:
        chat(**parameters)
    return caught.value


def test_path_is_written_as_clients_write_it() -> None:
    assert param_path(("messages", 0, "<list>", 2, "type")) == "messages[0][2].type"
    assert param_path(("prompt", "[1][2]")) == "prompt[1][2]"
    assert param_path(()) is None


def test_message_names_the_field_and_not_the_clients_value() -> None:
    error = refusal(temperature="secret words")
    assert "temperature" in error.message
    assert "secret" not in error.message


@pytest.mark.parametrize("name", ["messages", "stream_options", "response_format", "logit_bias"])
def test_what_is_no_object_is_called_so_and_by_no_name_of_ours(name: str) -> None:
    error = refusal(**{name: [5] if name == "messages" else 5})
    assert error.message.endswith(": it must be an object.")
    assert error.code == "invalid_type"


@pytest.mark.parametrize(
    "name", ["max_tokens", "max_completion_tokens", "n_predict", "min_tokens", "seed", "top_k"]
)
def test_integers_have_the_64_bits_that_a_trace_can_carry(name: str) -> None:
    assert refusal(**{name: 2**63}).code == "integer_above_max_value"
    assert getattr(chat(**{name: 2**63 - 1}), name) == 2**63 - 1


def test_missing_field_is_named() -> None:
    with pytest.raises(InvalidRequest) as caught:
        validate(ChatCompletionRequest, {"model": "m"})
    assert (caught.value.code, caught.value.param) == ("missing_required_parameter", "messages")
    assert caught.value.message == "Missing required parameter: 'messages'."


def test_braces_of_a_client_do_not_break_the_message() -> None:
    content = [{"type": "{evil}"}]
    error = refusal(messages=[{"role": "user", "content": content}])
    assert error.code == "unsupported_value"
    assert "{evil}" in error.message


@pytest.mark.parametrize("value", [float("nan"), float("inf"), "1", True])
def test_numbers_are_finite_numbers(value: Any) -> None:
    assert refusal(temperature=value).param == "temperature"


def test_integer_is_a_number_too() -> None:
    assert chat(temperature=1).temperature == 1


@pytest.mark.parametrize("kind", ["application/json", "application/json; charset=utf-8"])
def test_json_types_are_accepted(kind: str) -> None:
    check_content_type(Headers({"content-type": kind}))


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"content-type": "text/plain"},
        {"content-type": "application/json", "content-encoding": "gzip"},
    ],
)
def test_other_types_are_refused(headers: dict[str, str]) -> None:
    with pytest.raises(UnsupportedMediaType):
        check_content_type(Headers(headers))


@pytest.mark.parametrize(("opening", "closing"), [(b'{"a":', b"}"), (b'{"a":[', b"]}")])
def test_nesting_is_bounded_below_what_could_exhaust_the_stack(
    opening: bytes, closing: bytes
) -> None:
    fits = MAX_DEPTH // len(closing)
    assert decode_object(opening * fits + b"1" + closing * fits)
    with pytest.raises(InvalidRequest, match="nested too deeply"):
        decode_object(opening * (fits + 1) + b"1" + closing * (fits + 1))


def test_many_shallow_objects_are_fine() -> None:
    assert decode_object(b'{"a":[' + b"{}," * 5000 + b"{}]}")


MANY = MAX_PARTS + 1


@pytest.mark.parametrize(
    "body",
    [
        b'{"a":[' + b"[1]," * MANY + b"1]}",
        b'{"a":[' + b"{}," * MANY + b"1]}",
        b"{" + b'"a":1,' * MANY + b'"b":1}',
        b'{"a":["' + b'\\"' * 3 + b'",' + b'"[",[' * MANY,  # not even complete
    ],
)
def test_body_of_countless_parts_is_refused_before_it_is_decoded(
    body: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_body: bytes) -> None:
        pytest.fail("it was decoded")

    monkeypatch.setattr("msgspec.json.decode", fail)
    with pytest.raises(InvalidRequest, match=str(MAX_PARTS)) as caught:
        decode_object(body)
    assert caught.value.code == "invalid_json"


@pytest.mark.parametrize("text", ['[{"a": ["\\\\"]}, ', "[[[{{{", '{"\\'])
def test_brackets_in_a_text_do_not_count(text: str) -> None:
    prompt = text * MANY
    assert decode_object(msgspec.json.encode({"prompt": prompt, "n": [1]}))["prompt"] == prompt


@pytest.mark.parametrize(
    "wrong",
    [
        {"messages": [1] * 100},
        {"messages": [{"role": "user", "content": [1] * 100}]},
        {"messages": [{"role": "assistant", "tool_calls": [1] * 100}]},
        {"metadata": {str(n): 1 for n in range(100)}},
        {"modalities": [1] * 100},
        {"logit_bias": {str(n): "x" for n in range(100)}},
        {"stop": [1] * 64},
        {"stop_token_ids": ["x"] * 100},
        {"structured_outputs": {"choice": [1] * 100}},
    ],
)
def test_of_countless_wrong_items_only_the_first_is_looked_at(wrong: dict[str, Any]) -> None:
    body = {"model": "m", "messages": [{"role": "user", "content": "hi"}], **wrong}
    with pytest.raises(ValidationError) as caught:
        ChatCompletionRequest.model_validate(body)
    assert caught.value.error_count() == 1


def test_large_integers_and_key_order_survive_decoding() -> None:
    body = decode_object(b'{"b": 123456789012345678901234567890, "a": 1}')
    assert list(body) == ["b", "a"]
    assert body["b"] == 123456789012345678901234567890


@pytest.mark.parametrize("body", [b"", b"[]", b'"x"', b"{", b"[" * 100_000, b'{"a": "\\udc00"}'])
def test_what_is_no_object_is_refused(body: bytes) -> None:
    with pytest.raises(InvalidRequest):
        decode_object(body)


@pytest.mark.parametrize(
    ("prompt", "texts", "ids"),
    [
        ("hi", ["hi"], [None]),
        (["a", "b"], ["a", "b"], [None, None]),
        ([1, 2], [None], [(1, 2)]),
        ([[1], [2, 3]], [None, None], [(1,), (2, 3)]),
        (None, [""], [None]),
    ],
)
def test_prompts_in_every_shape(prompt: Any, texts: Any, ids: Any) -> None:
    body = {"model": "m"} if prompt is None else {"model": "m", "prompt": prompt}
    prompts = validate(CompletionRequest, body).prompts
    assert [p.text for p in prompts] == texts
    assert [p.token_ids for p in prompts] == ids


@pytest.mark.parametrize("prompt", ["a", [1]])
def test_too_many_prompts_are_refused_before_any_is_read(prompt: Any) -> None:
    with pytest.raises(InvalidRequest) as caught:
        validate(CompletionRequest, {"model": "m", "prompt": [prompt] * 128 + [None]})
    assert (caught.value.code, caught.value.param) == ("array_above_max_length", "prompt")


@pytest.mark.parametrize(
    "prompt", [5, {}, [], [[]], [[1], []], ["a", 1], [1, "a"], [[1], 2], [1.5], [-1]]
)
def test_prompts_that_are_none(prompt: Any) -> None:
    with pytest.raises(InvalidRequest) as caught:
        validate(CompletionRequest, {"model": "m", "prompt": prompt})
    assert (caught.value.param or "").startswith("prompt")
