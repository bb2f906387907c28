"""Every implemented parameter has a test of its effect, on every route that takes it."""

import pytest

from gateway.parameter_table import PARAMETERS, Action, Endpoint
from tests.named_tests import is_there
from tests.parameter_effects import EFFECTS, EFFECTS_ON, effects_of

IMPLEMENTED = [
    (row.name, endpoint)
    for row in PARAMETERS
    if row.action is Action.IMPLEMENTED
    for endpoint in sorted(row.endpoints)
]


def test_every_implemented_parameter_has_a_test_of_its_effect() -> None:
    assert len(IMPLEMENTED) > 150
    silent = [(name, endpoint) for name, endpoint in IMPLEMENTED if not effects_of(name, endpoint)]
    assert silent == []


def test_every_test_of_an_effect_exists() -> None:
    named = {test for name, endpoint in IMPLEMENTED for test in effects_of(name, endpoint)}
    assert sorted(test for test in named if not is_there(test)) == []


def test_no_effect_is_named_of_what_is_not_implemented() -> None:
    implemented = {name for name, _ in IMPLEMENTED}
    assert set(EFFECTS) - implemented == set()


@pytest.mark.parametrize("endpoint", EFFECTS_ON)
def test_a_route_has_all_the_effects_that_are_named_of_it(endpoint: Endpoint) -> None:
    assert set(EFFECTS_ON[endpoint]) - {n for n, place in IMPLEMENTED if place is endpoint} == set()
