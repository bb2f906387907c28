"""Which engine takes a constraint that names none, for who compiles it (grammar.probe_worker).

Soundness comes first: an engine that enforces everything goes before one whose answers have to be
checked. Speed only decides among equals.
"""

from collections.abc import Callable
from typing import assert_never

from grammar.errors import UnsatisfiableConstraint, UnsupportedConstraint
from grammar.matcher import GrammarEngine
from grammar.spec import ConstraintSpec, EngineName, PreparedConstraint

EngineSource = Callable[[EngineName], GrammarEngine]

# Of 60 schemas of MaskBench, SmolLM2's vocabulary, one core, beside other work (30 Nov 2026):
#              enforced   compile p50 / p99     mask p50 / p99
#   llguidance    59         2.8 / 153 ms         6.6 / 315 us
#   xgrammar      43         5.1 /  26 ms         5.5 /  33 us    and 2 s once, for its import
#   outlines      11        14.4 / 185 ms         8.2 /  76 us
# radixgate grammar bench FILE --limit 60 --no-allow-checked --engine NAME
ORDER: tuple[EngineName, ...] = ("llguidance", "xgrammar", "outlines")


def prepare_with(engines: EngineSource, spec: ConstraintSpec) -> PreparedConstraint:
    """The constraint in the notation of the engine that `spec` names, or of the best one. Asks
    `engines` for no other engine than the first of all and the one named.

    Raises: UnsupportedConstraint, with the reason of the first engine where all refuse.
    """
    if spec.engine != "auto":
        return engines(spec.engine).prepare(spec)
    refusals: list[UnsupportedConstraint] = []
    checked: list[PreparedConstraint] = []
    for name in ORDER:
        try:
            prepared = _prepare(engines, name, spec)
        except UnsatisfiableConstraint:
            raise  # another engine would only need longer to find that out, or would not
        except UnsupportedConstraint as error:
            refusals.append(error)
            continue
        if prepared.enforcement == "enforced":
            return prepared
        checked.append(prepared)
    if not checked:
        raise refusals[0]
    return checked[0]


def _prepare(engines: EngineSource, name: EngineName, spec: ConstraintSpec) -> PreparedConstraint:
    """Without the library where it costs seconds to import: what it would be given shows already
    whether it enforces the constraint."""
    match name:
        case "llguidance":
            return engines(name).prepare(spec)
        case "outlines":
            from grammar.outlines_notation import prepare_for_outlines

            return prepare_for_outlines(spec)
        case "xgrammar":
            from grammar.xgrammar_notation import prepare_for_xgrammar

            return prepare_for_xgrammar(spec)
    assert_never(name)
