"""References: identifiers, anchors, pointers. What they mean is compared with `referencing`, which
jsonschema resolves with."""

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from jsonschema import Draft4Validator, Draft7Validator, Draft201909Validator, Draft202012Validator
from jsonschema.protocols import Validator
from referencing.exceptions import Unresolvable

from grammar.errors import UnsupportedConstraint
from grammar.schema.compiler import compile_schema
from grammar.schema.dialect import dialect_of
from grammar.schema.locations import Locations
from grammar.schema_document import child

URIS = {
    4: "http://json-schema.org/draft-04/schema#",
    7: "http://json-schema.org/draft-07/schema#",
    2019: "https://json-schema.org/draft/2019-09/schema",
    2020: "https://json-schema.org/draft/2020-12/schema",
}
VALIDATORS: dict[int, type[Validator]] = {
    4: Draft4Validator,
    7: Draft7Validator,
    2019: Draft201909Validator,
    2020: Draft202012Validator,
}


def locations(document: Any) -> Locations:
    return Locations(document, dialect_of(document))


@pytest.mark.parametrize(
    ("reference", "pointer"),
    [
        ("#", ""),
        ("", ""),
        ("#/$defs/a~1b", "/$defs/a~1b"),
        ("#/%24defs/a~1b", "/$defs/a~1b"),
        ("#/$defs/50%25", "/$defs/50%"),
        ("#/x-list/1", "/x-list/1"),
        ("#here", "/$defs/a~1b"),
        ("http://e.com/dir/root.json#here", "/$defs/a~1b"),
        ("root.json#/$defs/50%25", "/$defs/50%"),
        ("/dir/inner", "/$defs/inner"),
        ("inner#here", "/$defs/inner/items"),
        ("http://e.com/dir/inner#/items", "/$defs/inner/items"),
        ("urn:x:y", "/properties/$id"),
        ("inner#/items/properties/default", "/$defs/inner/items/properties/default"),
        ("deep", "/$defs/inner/items/properties/default"),
    ],
)
def test_a_reference_leads_to_its_place(reference: str, pointer: str) -> None:
    document = {
        "$id": "http://e.com/dir/root.json",
        "$defs": {
            "a/b": {"$anchor": "here"},
            "50%": {},
            "inner": {
                "$id": "inner",
                "items": {"$anchor": "here", "properties": {"default": {"$id": "deep"}}},
            },
        },
        "properties": {"$id": {"$id": "urn:x:y"}},
        "x-list": [{}, {}],
    }
    assert locations(document).resolve("$ref", reference, "/items") == pointer


@pytest.mark.parametrize(
    "reference",
    [
        "#/x-list/12",
        "#/x-list/01",
        "#/x-list/-1",
        "#/x-list/" + "9" * 5000,
        "#/x-list/٠",
        "#/x-list/0/a",
        "#/$defs/",
        "#/$defs/a/title/x",
        "#/$defs/a/title",
        "#nowhere",
        "#data",
        "#unknown",
        "http://e.com/data",
        "inner",
        "http://e.com/other",
    ],
)
def test_a_reference_that_leads_to_no_schema_is_refused(reference: str) -> None:
    document = {
        "$id": "http://e.com/root/",
        "$defs": {"a": {"title": "x"}},
        "x-list": [{}] * 12,
        "enum": [{"$anchor": "data", "$id": "http://e.com/data"}],
        "x-unknown": {"$anchor": "unknown", "$id": "inner"},
    }
    with pytest.raises(UnsupportedConstraint) as caught:
        locations(document).resolve("$ref", reference, "/items")
    assert (caught.value.pointer, caught.value.keyword) == ("/items/$ref", "$ref")


def test_a_reference_is_relative_to_the_resource_that_it_stands_in() -> None:
    part = {"$id": "sub/part", "$defs": {"x": {"$anchor": "a"}}}
    found = locations({"$id": "http://e.com/", "$defs": {"x": {"$anchor": "a"}, "part": part}})
    for reference in ("#a", "#/$defs/x"):
        assert found.resolve("$ref", reference, "/items") == "/$defs/x"
        assert found.resolve("$ref", reference, "/$defs/part/items") == "/$defs/part/$defs/x"
    assert found.resolve("$ref", "part", "/$defs/part/$defs/x") == "/$defs/part"


def test_beside_a_reference_of_draft_7_an_identifier_has_no_meaning() -> None:
    inner = {"$id": "http://e.com/inner", "$ref": "#/definitions/b"}
    document = {"definitions": {"a": inner, "b": {}}}
    found = locations({"$schema": URIS[7], **document})
    assert found.resolve("$ref", "#/definitions/b", "/definitions/a") == "/definitions/b"
    with pytest.raises(UnsupportedConstraint):
        locations({"$schema": URIS[2019], **document}).resolve(
            "$ref", "#/definitions/b", "/definitions/a"
        )


@pytest.mark.parametrize(("draft", "keyword"), [(4, "id"), (7, "$id")])
def test_older_drafts_write_an_anchor_as_an_identifier(draft: int, keyword: str) -> None:
    document = {"$schema": URIS[draft], "definitions": {"a": {keyword: "#here"}}}
    assert locations(document).resolve("$ref", "#here", "") == "/definitions/a"


def dynamic(root_name: str, other_name: str, root_id: str = "http://e.com/") -> Locations:
    other = {"$id": "http://e.com/b", "$dynamicAnchor": other_name}
    document = {
        "$defs": {"a": {"$dynamicAnchor": root_name}, "b": other},
        **({"$id": root_id} if root_id else {}),
    }
    return locations(document)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (dynamic("n", "n"), "/$defs/a"),  # everything is entered through the root
        (dynamic("n", "n", root_id=""), None),
        (dynamic("m", "n"), "/$defs/b"),
    ],
)
def test_a_dynamic_reference_takes_the_outermost_resource_with_the_anchor(
    found: Locations, expected: str | None
) -> None:
    assert found.resolve("$dynamicRef", "#n", "/$defs/b/items") == expected
    assert found.resolve("$ref", "#n", "/$defs/b/items") == "/$defs/b"
    assert found.resolve("$dynamicRef", "#", "/$defs/b/items") == "/$defs/b"


def recursive(root: bool, inner: bool) -> Locations:
    part = {"$id": "b", "$recursiveAnchor": inner}
    return locations({"$id": "http://e.com/", "$recursiveAnchor": root, "$defs": {"b": part}})


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (recursive(root=True, inner=False), "/$defs/b"),
        (recursive(root=False, inner=True), "/$defs/b"),
        (recursive(root=True, inner=True), None),
    ],
)
def test_a_recursive_reference_depends_on_the_caller_where_both_ends_allow_it(
    found: Locations, expected: str | None
) -> None:
    assert found.resolve("$recursiveRef", "#", "/$defs/b/items") == expected


SETTINGS = settings(
    max_examples=150,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.filter_too_much],
)
IDS = [None, None, "http://a/r", "http://a/s/", "t", "s/u", "/v", "urn:x:y", "../w"]
STEPS = ["a", "c/d", "e%f"]


@st.composite
def documents(draw: st.DrawFn) -> tuple[int, dict[str, Any]]:
    """Schemas in schemas, each with a constant of its own; identifiers and anchors occur once."""
    draft = draw(st.sampled_from([4, 7, 2019, 2020]))
    identifiers = iter(draw(st.permutations(IDS)))
    anchors = iter(draw(st.permutations([None, None, "p", "q"])))
    defs = "definitions" if draft < 2019 else "$defs"
    made: list[dict[str, Any]] = []
    targets = ["#"]

    def schema(pointer: str) -> dict[str, Any]:
        identifier, anchor = next(identifiers, None), next(anchors, None)
        one: dict[str, Any] = {"properties": {"k": {"const": len(made)}}}
        made.append(one)
        if draft < 2019 and identifier is None and anchor is not None:
            one["id" if draft == 4 else "$id"] = f"#{anchor}"
        elif identifier is not None:
            one["id" if draft == 4 else "$id"] = identifier
        if anchor is not None and draft >= 2019:
            one["$dynamicAnchor" if draft == 2020 and pointer else "$anchor"] = anchor
        targets.extend([identifier or "", f"#{anchor or ''}", f"{identifier}#{anchor}"])
        targets.append(f"#{pointer}".replace("%", "%25"))
        if pointer.count(defs) < 3:
            names = draw(st.lists(st.sampled_from(STEPS), unique=True, max_size=2))
            one[defs] = {name: schema(child(pointer, defs, name)) for name in names}
        return one

    root = schema("")
    for one in made:
        keyword = draw(st.sampled_from(["$ref", "$dynamicRef"])) if draft == 2020 else "$ref"
        one["properties"]["x"] = {keyword: draw(st.sampled_from(targets))}
    return draft, {**root, "$schema": URIS[draft]}


@SETTINGS
@given(drawn=documents())
def test_references_lead_where_jsonschema_follows_them(drawn: tuple[int, Any]) -> None:
    draft, document = drawn
    try:
        schema = compile_schema(json.dumps(document))
    except UnsupportedConstraint:
        assume(False)
        raise
    validator = VALIDATORS[draft](document)
    for number in range(10):
        for value in ({"k": number}, {"x": {"k": number}}, {"x": {"x": {"k": number}}}):
            try:
                expected = validator.is_valid(value)
            except Unresolvable:
                continue
            assert schema.allows(value) == expected or schema.gaps, value
