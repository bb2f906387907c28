"""How objects are generated: named properties in order, regions of keys, what has to be there."""

from grammar.schema.containers import ObjectCell
from grammar.schema.key_sets import EVERY_KEY, Matching, Name, Others
from grammar.schema.nodes import ANY, NEVER, NodeTable
from grammar.schema.plans import (
    MANY_NEEDS,
    MANY_PATTERNS,
    MAX_PATTERNS,
    REPEATED_KEYS,
    Member,
    ObjectPlan,
    object_plans,
)
from grammar.schema.regex import literal, union
from grammar.schema.text_sets import TextSet

NODES = NodeTable()
ONE, TWO, THREE = NODES.place("/1"), NODES.place("/2"), NODES.place("/3")
OTHERS = Others(frozenset({"b", "a"}), ())


def words(*texts: str) -> TextSet:
    return TextSet.words(texts)


def only_plan(cell: ObjectCell) -> ObjectPlan:
    (plan,) = object_plans(cell, NODES)
    return plan


def keys_of(plan: ObjectPlan, names: str) -> dict[str, int]:
    """Name by name the node of its region."""
    found = {}
    for name in names:
        nodes = [region.node for region in plan.regions if region.texts.surely_has(name)]
        assert len(nodes) <= 1, "regions overlap"
        found.update(dict.fromkeys([name] if nodes else [], nodes[0] if nodes else 0))
    return found


def test_named_properties_come_in_their_order_and_those_only_required_behind() -> None:
    rules = ((Name("z"), ONE), (Name("a"), TWO))
    plan = only_plan(ObjectCell(rules, needs=((Name("m"), ANY), (Name("a"), ANY))))
    assert plan.members == (
        Member("z", ONE, is_required=False),
        Member("a", TWO, is_required=True),
        Member("m", ANY, is_required=True),
    )
    assert keys_of(plan, "zamx") == {"x": ANY}


def test_a_closed_object_has_no_region_and_names_that_are_only_listed_are_members() -> None:
    plan = only_plan(ObjectCell(((Name("z"), ONE), (OTHERS, NEVER))))
    assert [member.name for member in plan.members] == ["z", "a", "b"]
    assert [member.node for member in plan.members] == [NEVER, ANY, ANY]
    assert plan.regions == ()


def test_keys_are_split_by_the_patterns_that_they_match() -> None:
    rules = (
        (Matching(words("a", "b")), ONE),
        (Matching(words("b", "c")), TWO),
        (Others(frozenset(), (words("a", "b"), words("b", "c"))), THREE),
    )
    plan = only_plan(ObjectCell(rules))
    both = NODES.every(ONE, TWO)
    assert keys_of(plan, "abcd") == {"a": ONE, "b": both, "c": TWO, "d": THREE}


def test_a_property_obeys_the_patterns_that_its_name_matches() -> None:
    plan = only_plan(ObjectCell(((Name("a"), ONE), (Matching(words("a", "b")), TWO))))
    assert plan.members == (Member("a", NODES.every(ONE, TWO), is_required=False),)
    assert keys_of(plan, "abc") == {"b": TWO, "c": ANY}


def test_keys_of_which_readings_differ_are_in_no_region() -> None:
    doubtful = TextSet(literal("a"), union(literal("a"), literal("b")))
    plan = only_plan(ObjectCell(((Matching(doubtful), ONE),)))
    assert keys_of(plan, "abc") == {"a": ONE, "c": ANY}


def test_too_many_patterns_allow_every_key_and_say_so() -> None:
    patterns = [words(chr(97 + number)) for number in range(MAX_PATTERNS + 1)]
    plan = only_plan(ObjectCell(tuple((Matching(texts), ONE) for texts in patterns)))
    assert plan.gaps == (MANY_PATTERNS,)
    assert keys_of(plan, "a") == {"a": ANY}


def test_a_need_is_met_by_a_named_property_or_by_another() -> None:
    cell = ObjectCell(((Name("a"), ONE),), needs=((EVERY_KEY, TWO),))
    by_name, by_other = object_plans(cell, NODES)
    assert by_name.members == (Member("a", NODES.every(ONE, TWO), is_required=True),)
    assert by_name.special is None
    assert by_other.members == (Member("a", ONE, is_required=False),)
    assert by_other.special is not None
    assert [region.node for region in by_other.special] == [TWO]
    assert not by_other.special[0].texts.may_have("a")


def test_a_second_need_of_unnamed_properties_is_a_gap() -> None:
    needs = ((Matching(words("a")), ONE), (Matching(words("b")), TWO))
    plan = only_plan(ObjectCell(needs=needs))
    assert (plan.special, plan.gaps) == (None, (MANY_NEEDS,))


def test_a_required_property_that_nothing_fits_makes_no_plan() -> None:
    assert object_plans(ObjectCell(((Name("a"), NEVER),), ((Name("a"), ANY),)), NODES) == ()
    assert len(object_plans(ObjectCell(((Name("a"), NEVER),)), NODES)) == 1


def test_counted_keys_that_could_be_repeated_are_a_gap() -> None:
    assert only_plan(ObjectCell(low=1)).gaps == ()
    assert only_plan(ObjectCell(low=2)).gaps == (REPEATED_KEYS,)
    assert only_plan(ObjectCell(needs=((Name("a"), ANY),), low=2)).gaps == ()
    closed = ObjectCell(((OTHERS, NEVER),), low=2, high=2)
    assert (only_plan(closed).gaps, only_plan(closed).low, only_plan(closed).high) == ((), 2, 2)
