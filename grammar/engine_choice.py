"""Which engine takes a constraint that names none, for the probe's child.

Soundness comes first: an engine that enforces goes before one that has to be checked. Speed only
decides among equals.
"""

from collections.abc import Callable

from grammar.matcher import GrammarEngine
from grammar.spec import ConstraintSpec, EngineName, PreparedConstraint

EngineSource = Callable[[EngineName], GrammarEngine]


def prepare_with(engines: EngineSource, spec: ConstraintSpec) -> PreparedConstraint:
    """The constraint in the notation of the engine that `spec` names, or of the best one.

    Raises: UnsupportedConstraint, with the reason of the first engine where all refuse.
    """
    if spec.engine != "auto":
        return engines(spec.engine).prepare(spec)
    return engines("llguidance").prepare(spec)
