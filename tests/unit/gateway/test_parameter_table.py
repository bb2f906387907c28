"""The table of parameters and how it is applied; every row meets a real request elsewhere."""

from typing import Any

import pytest
from pydantic import BaseModel

from gateway.errors import InvalidRequest
from gateway.parameter_table import PARAMETERS, Action, Endpoint
from gateway.parameters import MAX_NAME_LEN, MAX_NAMED, ParameterRules, ignored_header
from gateway.schemas.chat_request import ChatCompletionRequest
from gateway.schemas.completion_request import CompletionRequest
from gateway.schemas.embeddings_request import EmbeddingsRequest
from gateway.schemas.responses_request import ResponsesRequest
from gateway.schemas.tokenize_request import DetokenizeRequest, TokenizeRequest

MODELS: dict[Endpoint, type[BaseModel]] = {
    Endpoint.CHAT: ChatCompletionRequest,
    Endpoint.COMPLETIONS: CompletionRequest,
    Endpoint.RESPONSES: ResponsesRequest,
    Endpoint.EMBEDDINGS: EmbeddingsRequest,
    Endpoint.TOKENIZE: TokenizeRequest,
    Endpoint.DETOKENIZE: DetokenizeRequest,
}
GENERATING = (Endpoint.CHAT, Endpoint.COMPLETIONS, Endpoint.RESPONSES)


def test_no_endpoint_has_a_name_twice() -> None:
    for endpoint in Endpoint:
        names = [row.name for row in PARAMETERS if endpoint in row.endpoints]
        assert len(names) == len(set(names))


@pytest.mark.parametrize("endpoint", list(Endpoint))
def test_implemented_rows_are_fields_of_the_wire_model(endpoint: Endpoint) -> None:
    rows = {
        row.path[0]
        for row in PARAMETERS
        if endpoint in row.endpoints and row.action is Action.IMPLEMENTED
    }
    echoed = {"metadata", "service_tier"}
    # Fields of the shared base that an endpoint refuses before the model sees them.
    refused = {
        row.name for row in PARAMETERS if endpoint in row.endpoints and row.action is Action.REFUSED
    }
    assert rows - echoed == set(MODELS[endpoint].model_fields) - echoed - refused


def test_refused_and_ignored_rows_say_why() -> None:
    silent = [row for row in PARAMETERS if row.action is not Action.IMPLEMENTED and not row.reason]
    assert silent == []


@pytest.mark.parametrize(
    "name",
    ["guided_future", "grammar_triggers", "stop_regex", "structural_tag", "logit_processors"],
)
def test_constraints_of_other_servers_are_never_dropped(name: str) -> None:
    for endpoint in GENERATING:
        with pytest.raises(InvalidRequest) as caught:
            ParameterRules(endpoint).check({name: "x"})
        assert (caught.value.code, caught.value.param) == ("unsupported_parameter", name)


@pytest.mark.parametrize(
    ("body", "is_accepted"),
    [
        ({"use_beam_search": False}, True),
        ({"use_beam_search": 0}, False),
        ({"best_of": 1}, True),
        ({"best_of": 2}, False),
        ({"best_of": 2, "n": 2}, True),
        ({"suffix": ""}, True),
        ({"length_penalty": 1.0}, True),
        ({"use_beam_search": None}, True),
    ],
)
def test_values_that_ask_for_nothing(body: dict[str, Any], is_accepted: bool) -> None:
    rules = ParameterRules(Endpoint.COMPLETIONS)
    if is_accepted:
        assert rules.check(body) == []
    else:
        with pytest.raises(InvalidRequest):
            rules.check(body)


def test_parameters_inside_lists_are_found() -> None:
    tools = [{"type": "function", "name": "a"}, {"type": "function", "allowed_callers": ["b"]}]
    ignored = ParameterRules(Endpoint.RESPONSES).check({"tools": tools})
    assert ignored == ["tools.allowed_callers"]


def test_header_is_bounded_and_harmless() -> None:
    header = ignored_header(["a\r\nset-cookie: b", "caf\u00e9", "x" * 500, "a.b-c_d", "a.b-c_d"])
    assert header == f"a__set-cookie__b,caf_,{'x' * MAX_NAME_LEN},a.b-c_d"
    many = ignored_header([f"name{index}" for index in range(1000)])
    assert many.count(",") == MAX_NAMED
    assert many.endswith(",...")
