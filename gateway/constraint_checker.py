"""What the gateway asks of the probe that tries constraints out."""

from typing import Protocol

from grammar.probe import ProbeReport
from grammar.spec import ConstraintSpec


class ConstraintChecker(Protocol):
    """grammar.probe.ConstraintProbe, as far as preparing a request needs it."""

    async def check(self, spec: ConstraintSpec) -> ProbeReport:
        """Raises: UnsupportedConstraint, ConstraintTooExpensive; GrammarError when it could not
        be tried out at all."""
