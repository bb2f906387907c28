"""What a server would do with a schema, keyword by keyword. Behind `radixgate grammar explain`."""

from dataclasses import dataclass

from grammar.bench import BenchOptions, setup_of
from grammar.bench_child import BenchChild, ChildDied, DeadlinePassed
from grammar.bench_file import BenchCase
from grammar.bench_frames import KeywordNote, Treatment
from grammar.matcher import Vocabulary

HEAD = ("pointer", "keyword", "treatment", "reason")


@dataclass(frozen=True, slots=True)
class Explanation:
    """`engine` is empty where the schema is refused."""

    treatment: Treatment
    engine: str
    notes: tuple[KeywordNote, ...]


def explain(schema: str, vocabulary: Vocabulary, options: BenchOptions) -> Explanation:
    """Compiles the schema in a child under the options' deadline.

    Raises: GrammarError where the engine cannot be loaded.
    """
    child = BenchChild(setup_of(vocabulary, options))
    try:
        compiled = child.compile(BenchCase("", schema, ()), wants_notes=True)
        return Explanation(compiled.treatment, compiled.engine, child.walked().notes)
    except DeadlinePassed as error:
        return _refused(f"too complex: it takes {error} to compile")
    except ChildDied as error:
        return _refused(f"the engine crashed: {error}")
    finally:
        child.kill()


def explanation_table(explanation: Explanation) -> str:
    """Class, engine, and a line a keyword."""
    lines = [f"class: {explanation.treatment}"]
    if explanation.engine:
        lines.append(f"engine: {explanation.engine}")
    rows = [HEAD]
    rows += [(n.pointer or '""', n.keyword, n.treatment, n.reason) for n in explanation.notes]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEAD) - 1)]
    for *cells, reason in rows:
        padded = (f"{cell:<{width}}" for cell, width in zip(cells, widths, strict=True))
        lines.append("  ".join([*padded, reason]).rstrip())
    return "\n".join(lines)


def _refused(reason: str) -> Explanation:
    return Explanation("refused", "", (KeywordNote("", "", "refused", reason),))
