"""What each engine makes of each keyword, found out by running it on grammar.keyword_cases.

`python -m grammar.coverage_table` writes the findings to coverage_table.json beside this module
and into docs/structured_output.md; a test repeats the run and compares.
"""

import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Literal, get_args

from grammar.bench import BenchOptions, setup_of
from grammar.bench_file import BenchCase, Instance
from grammar.bench_worker import BenchWorker
from grammar.keyword_cases import CASES, KeywordCase
from grammar.matcher import Vocabulary
from grammar.schema.formats import ASSERTED_FORMATS
from grammar.spec import EngineName
from grammar.token_bytes import BYTES_OF_CHARACTERS

# From best to worst: exactly the instances; fewer than those; more, and the text is checked;
# a 400; more, and nobody would notice.
Coverage = Literal["enforced", "narrowed", "checked", "refused", "unsound"]
WORSE = get_args(Coverage)
PACKAGE_OF: dict[EngineName, str] = {
    "llguidance": "llguidance",
    "xgrammar": "xgrammar",
    "outlines": "outlines-core",
}
STORED = Path(__file__).with_name("coverage_table.json")
DOCUMENT = Path(__file__).resolve().parent.parent / "docs" / "structured_output.md"
# Ends this process: no case comes near it.
TIME_LIMIT_S = 60.0
MEANING = {"enforced": "yes", "narrowed": "yes, narrower", "checked": "checked", "refused": "400"}


@dataclass(frozen=True, slots=True)
class CoverageTable:
    """`versions` by engine; `rows` by the name of the case, then by engine."""

    versions: dict[EngineName, str]
    rows: dict[str, dict[EngineName, Coverage]]

    def as_json(self) -> str:
        value = {"versions": self.versions, "rows": self.rows}
        return json.dumps(value, ensure_ascii=False, indent=1) + "\n"

    def as_markdown(self) -> str:
        """A table with a row a case and a column an engine."""
        head = ["keyword", *(f"{name} {self.versions[name]}" for name in self.versions)]
        lines = [_line(head), _line(["---"] * len(head))]
        for name, row in self.rows.items():
            cells = [MEANING.get(row[engine], row[engine]) for engine in self.versions]
            lines.append(_line([_code(name), *cells]))
        return "\n".join(lines)


def of(engine: EngineName, keyword: str) -> Coverage | None:
    """The worst that the engine makes of any case of the keyword; None where there is none."""
    rows = [row for name, row in stored().rows.items() if _keyword(name) == keyword]
    found = [row[engine] for row in rows if engine in row]
    return max(found, key=WORSE.index, default=None)


@cache
def stored() -> CoverageTable:
    """The table as it was last written."""
    value = json.loads(STORED.read_text(encoding="utf-8"))
    return CoverageTable(value["versions"], value["rows"])


def measured(engines: Iterable[EngineName] = tuple(PACKAGE_OF)) -> CoverageTable:
    """Runs all cases through the engines as the server would run them.

    Raises: GrammarError, ImportError where an engine cannot be loaded.
    """
    workers = {engine: _worker(engine) for engine in engines}
    return CoverageTable(
        {engine: version(PACKAGE_OF[engine]) for engine in workers},
        {
            case.name: {engine: _coverage(case, worker) for engine, worker in workers.items()}
            for case in CASES
        },
    )


def byte_vocabulary() -> Vocabulary:
    """A token for each byte and one that ends the text: enough to ask a mask about any text."""
    vocab = dict(BYTES_OF_CHARACTERS)
    vocab["<end>"] = len(vocab)
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
    document = {
        "version": "1.0",
        "added_tokens": [
            {
                "id": vocab["<end>"], "content": "<end>", "single_word": False, "lstrip": False,
                "rstrip": False, "normalized": False, "special": True,
            }
        ],
        "pre_tokenizer": {**byte_level, "use_regex": False},
        "decoder": {**byte_level, "use_regex": True},
        "model": {"type": "BPE", "vocab": vocab, "merges": []},
    }  # fmt: skip
    return Vocabulary(json.dumps(document), len(vocab), (vocab["<end>"],))


def document_with(table: CoverageTable, text: str) -> str:
    """The document with the table, and the list of formats, between their marks."""
    formats = ", ".join(f"`{name}`" for name in ASSERTED_FORMATS)
    return _between("formats", formats, _between("keyword table", table.as_markdown(), text))


def _between(name: str, content: str, text: str) -> str:
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    before, rest = text.split(begin, 1)
    _, after = rest.split(end, 1)
    return f"{before}{begin}\n{content}\n{end}{after}"


def main() -> None:
    """Measures and stores."""
    table = measured()
    STORED.write_text(table.as_json(), encoding="utf-8")
    text = DOCUMENT.read_text(encoding="utf-8")
    DOCUMENT.write_text(document_with(table, text), encoding="utf-8")
    counts = {
        engine: {c: n for c in WORSE if (n := [r[engine] for r in table.rows.values()].count(c))}
        for engine in table.versions
    }
    sys.stdout.write("".join(f"{engine}: {found}\n" for engine, found in counts.items()))


def _worker(engine: EngineName) -> BenchWorker:
    options = BenchOptions(engine, allows_checked=True, time_limit_s=TIME_LIMIT_S)
    return BenchWorker(setup_of(byte_vocabulary(), options))


def _coverage(case: KeywordCase, worker: BenchWorker) -> Coverage:
    labelled = [(value, True) for value in case.valid] + [(value, False) for value in case.invalid]
    instances = tuple(Instance(json.dumps(value), is_valid) for value, is_valid in labelled)
    bench_case = BenchCase(case.name, json.dumps(case.schema), instances)
    compiled, prepared = worker.compile(bench_case.schema)
    if prepared is None:
        return "refused"
    outcomes = worker.walk(bench_case, prepared).outcomes
    judged = [
        (o.is_accepted, is_valid) for o, (_, is_valid) in zip(outcomes, labelled, strict=True)
    ]
    if not labelled or (True, False) in judged:
        return "unsound"
    if compiled.treatment == "checked":
        return "checked"
    return "narrowed" if (False, True) in judged else "enforced"


def _keyword(name: str) -> str:
    return name.split(" ", 1)[0].rstrip(",:")


def _code(name: str) -> str:
    keyword = _keyword(name)
    return f"`{keyword}`{name[len(keyword) :]}"


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    main()
