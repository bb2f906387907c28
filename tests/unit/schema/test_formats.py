"""Formats: what the RFCs allow and what they do not."""

import random
import re

import pytest
from jsonschema import Draft202012Validator

from grammar.schema.formats import ASSERTED_FORMATS, format_regex
from grammar.schema.regex import Regex, matches
from grammar.schema.terminals import json_string
from tests.regex_walk import random_text

VALID = {
    "date": ["2024-02-29", "2000-02-29", "0001-01-01", "9999-12-31", "1999-04-30"],
    "date-time": ["2024-02-29T23:59:59Z", "1985-04-12t23:20:50.52z", "1996-12-19T16:39:57-08:00"],
    "duration": ["P4DT12H30M5S", "P1Y2M3D", "PT36H", "P2W", "P1M", "PT1M", "P01D", "PT1H2M3S"],
    "email": ["joe.bloggs@example.com", "~a+b@x.co", '"joe b"@x.org', "a@[127.0.0.1]", "a@io"],
    "hostname": ["www.example.com", "a", "xn--4gbwdl.xn--wgbh1c", "1.2", "A-b.C", "a" * 63],
    "ipv4": ["0.0.0.0", "255.255.255.255", "87.10.0.1"],
    "ipv6": ["::", "::1", "d6::", "1:2:3:4:5:6:7:8", "::ffff:1.2.3.4", "1::d6:192.168.0.1"],
    "iri": ["http://ex.org/é?日=1#ü", "urn:a:b"],
    "iri-reference": ["é/x", "//é", ""],
    "json-pointer": ["", "/", "/a~1b/~0/0", "//"],
    "relative-json-pointer": ["0", "1/a", "0#", "12/a~0", "120/foo/bar", "101#", "2000"],
    "time": ["00:00:00Z", "23:59:59.123456+23:59", "08:30:06z"],
    "uri": ["http://a.b/c?d=e#f", "mailto:a@b.c", "ldap://[2001:db8::7]/c", "file:///x", "a:"],
    "uri-reference": ["", "/abc", "//a.b/?c", "a%20b", "#x", "http://a"],
    "uri-template": ["http://e.com/{a:1}/{+b}{?c,d*}", "", "a'b"],
    "uuid": ["2EB8AA08-aa98-11EA-b4Aa-73B441D16380"],
}
INVALID = {
    "date": ["2023-02-29", "1900-02-29", "0000-01-01", "2024-13-01", "2024-04-31", "2024-1-1"],
    "date-time": ["2024-02-30T00:00:00Z", "2024-01-01 00:00:00Z", "2024-01-01T24:00:00Z"],
    "duration": ["P", "PT", "P1YT", "PT1D", "P1Y2D", "PT1H2S", "P1Y2W", "PT0.5S", "-P1D", "P1D\n"],
    "email": ["2962", "a..b@c.d", ".a@b.c", "a@-b.c", "a@b..c", "a b@c.d", "é@a.b", "a@[1.2.3]"],
    "hostname": ["", "-a", "a-", "a_b", "a..b", "a.", "a" * 64, ".".join(["a" * 63] * 4), "é.com"],
    "ipv4": ["256.1.1.1", "1.1.1", "01.1.1.1", "1.1.1.1.1", "1.1.1.1\n"],
    "ipv6": ["12345::", ":::", "1::2::3", "1:2:3:4:5:6:7", ":1:2:3:4:5:6:7:8", "fe80::a%eth1"],
    "iri": ["é/x", "http://a b", "a:\ufffe"],
    "iri-reference": ["a b", "\\"],
    "json-pointer": ["a", "/~", "/~2"],
    "relative-json-pointer": ["", "/a", "01", "00#", "-1", "0##", "1a", "0+1"],
    "time": ["24:00:00Z", "12:00:00", "12:00:60Z", "23:59:60Z", "8:00:00Z", "12:00Z"],
    "uri": ["//a.b", "/abc", "abc", "http:// a", "http://a/é", "http://a/%6G", "1a:b", "a:b|c"],
    "uri-reference": ["a b", "é", "\\\\a", "1:b^"],
    "uri-template": ["{", "{}", "a b", "{a,,b}", "{v:0}", "%4", "foo}bar"],
    "uuid": ["2eb8aa08aa9811eab4aa73b441d16380", "2eb8aa08-aa98-11ea-b4aa-73b441d1638"],
}


def language_of(name: str) -> Regex:
    language = format_regex(name)
    assert language is not None
    return language


@pytest.mark.parametrize("name", ASSERTED_FORMATS)
def test_a_format_has_what_its_rfc_has_and_nothing_else(name: str) -> None:
    language = language_of(name)
    assert [text for text in VALID[name] if not matches(language, text)] == []
    assert [text for text in INVALID[name] if matches(language, text)] == []


@pytest.mark.parametrize("name", ASSERTED_FORMATS)
def test_whatever_a_format_allows_the_checker_of_jsonschema_accepts(name: str) -> None:
    rng = random.Random(name)
    texts = [random_text(language_of(name), rng, max_chars=40) for _ in range(25)]
    checker = Draft202012Validator.FORMAT_CHECKER
    refused = [text for text in texts if text is not None and not checker.conforms(text, name)]
    if name == "relative-json-pointer":  # it takes a zero within a number for a leading one
        refused = [text for text in refused if not re.match("[1-9][0-9]*0[0-9]", text)]
    assert refused == []
    assert len({text for text in texts if text is not None}) > 10


def test_the_longest_hostname_has_253_characters() -> None:
    longest = ".".join(["a" * 63] * 3 + ["b" * 61])
    assert matches(language_of("hostname"), longest)
    assert not matches(language_of("hostname"), longest + "b")


@pytest.mark.parametrize(("narrow", "wide"), [("uri", "uri-reference"), ("iri", "iri-reference")])
def test_what_has_a_scheme_is_also_a_reference(narrow: str, wide: str) -> None:
    rng = random.Random(narrow)
    texts = [random_text(language_of(narrow), rng, max_chars=60) for _ in range(25)]
    assert [text for text in texts if text and not matches(language_of(wide), text)] == []


def test_unknown_formats_have_no_language() -> None:
    assert format_regex("color") is None
    assert format_regex("regex") is None
    assert sorted(ASSERTED_FORMATS) == list(ASSERTED_FORMATS)


@pytest.mark.parametrize("name", ASSERTED_FORMATS)
def test_a_format_is_a_terminal_of_bounded_size(name: str) -> None:
    assert len(json_string(language_of(name))) < 12_000
