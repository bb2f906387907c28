"""docs/parameters.md, written from the table of parameters: python -m gateway.parameter_document.

A test holds the file to what this gives.
"""

import sys
from collections.abc import Iterator

import msgspec

from gateway.parameter_table import PARAMETERS, Action, Endpoint, Parameter

_HEAD = """# Request parameters

Every name that an endpoint knows. *Implemented* ones do what OpenAI, vLLM, SGLang or llama.cpp
say they do; *ignored* ones are accepted without effect and named in the header `x-radixgate-
ignored`; *refused* ones are a 400 that names them, unless their value asks for nothing. A name
that is in no table is ignored, or refused with `RADIXGATE_STRICT_PARAMS=true`. Null always counts
as absent. A name with dots is a key inside an object; one that ends in `*` stands for all names
that begin so.

This page is written by `python -m gateway.parameter_document > docs/parameters.md`.
"""


def document() -> str:
    """The whole page."""
    return "\n".join((_HEAD, *(line for one in Endpoint for line in _part(one))))


def _part(endpoint: Endpoint) -> Iterator[str]:
    rows = [row for row in PARAMETERS if endpoint in row.endpoints]
    implemented = [f"`{row.name}`" for row in rows if row.action is Action.IMPLEMENTED]
    yield f"## POST {endpoint}\n"
    if implemented:
        yield f"Implemented: {', '.join(implemented)}.\n"
    yield "| name | what happens | why |"
    yield "| --- | --- | --- |"
    for row in rows:
        if row.action is not Action.IMPLEMENTED:
            yield f"| `{row.name}` | {row.action}{_exceptions(row)} | {row.reason} |"
    yield ""


def _exceptions(row: Parameter) -> str:
    allowed = [f"`{_as_json(value)}`" for value in row.harmless]
    if row.harmless_like is not None:
        allowed.append(f"the value of `{row.harmless_like}`")
    return f", but {' or '.join(allowed)} is accepted" if allowed else ""


def _as_json(value: object) -> str:
    return msgspec.json.encode(value).decode()


if __name__ == "__main__":
    sys.stdout.write(document())
