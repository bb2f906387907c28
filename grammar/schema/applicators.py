"""What keywords say that combine schemas, refer to them, or list values: as shapes and nodes.

The table is for SchemaModel. Schemas are well formed here (wellformed.py).
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import combinations
from typing import TYPE_CHECKING, Any

from grammar.schema.container_keywords import subschema
from grammar.schema.containers import ObjectCell
from grammar.schema.key_sets import Matching, Name
from grammar.schema.literal_shapes import literal_shape
from grammar.schema.nodes import ANY, NEVER, NodeId
from grammar.schema.shapes import ANY_SHAPE, Shape, any_but
from grammar.schema.text_sets import TextSet
from grammar.schema.unevaluated import unevaluated_items, unevaluated_properties
from grammar.schema_document import Json, child
from grammar.spec import Gap

if TYPE_CHECKING:
    from grammar.schema.model import SchemaModel


@dataclass(frozen=True, slots=True)
class Site:
    """One keyword of the schema at `pointer`."""

    schema: dict[str, Any]
    pointer: str
    keyword: str

    @property
    def value(self) -> Json:
        return self.schema[self.keyword]

    @property
    def place(self) -> str:
        return child(self.pointer, self.keyword)


Part = Shape | NodeId
Applicator = Callable[["SchemaModel", Site], Part]


def _branches(model: "SchemaModel", site: Site) -> list[NodeId]:
    places = (child(site.place, index) for index in range(len(site.value)))
    return [
        subschema(one, place, model.nodes) for one, place in zip(site.value, places, strict=True)
    ]


def _all_of(model: "SchemaModel", site: Site) -> Part:
    return model.nodes.every(*_branches(model, site))


def _any_of(model: "SchemaModel", site: Site) -> Part:
    return model.nodes.either(*_branches(model, site))


def _one_of(model: "SchemaModel", site: Site) -> Part:
    """Each branch without those of the others that it is not known to exclude. What stands beside
    oneOf counts: two branches often differ in a property that only the whole requires."""
    nodes = model.nodes
    branches = _branches(model, site)
    beside = nodes.place(site.pointer, without="oneOf") if len(site.schema) > 1 else ANY
    rivals: list[list[NodeId]] = [[] for _ in branches]
    for (i, one), (j, other) in combinations(enumerate(branches), 2):
        if not model.are_exclusive(one, other, within=beside):
            rivals[i].append(other)
            rivals[j].append(one)
    alone = (
        nodes.every(branch, *map(nodes.opposite, others))
        for branch, others in zip(branches, rivals, strict=True)
    )
    return nodes.either(*alone)


def _not(model: "SchemaModel", site: Site) -> Part:
    return model.nodes.opposite(subschema(site.value, site.place, model.nodes))


def _if(model: "SchemaModel", site: Site) -> Part:
    nodes = model.nodes
    condition, yes, no = (
        subschema(site.schema.get(keyword, True), child(site.pointer, keyword), nodes)
        for keyword in ("if", "then", "else")
    )
    opposite = nodes.opposite(condition)
    return nodes.every(nodes.either(opposite, yes), nodes.either(condition, no))


def _enum(model: "SchemaModel", site: Site) -> Part:
    words = tuple(one for one in site.value if isinstance(one, str))
    shapes = [literal_shape(one, model.nodes) for one in site.value if not isinstance(one, str)]
    numbers = tuple(dict.fromkeys(number for shape in shapes for number in shape.numbers))
    rest = [shape for shape in shapes if not shape.numbers]
    return model.algebra.unite([Shape(texts=TextSet.words(words), numbers=numbers), *rest])


def _const(model: "SchemaModel", site: Site) -> Part:
    return literal_shape(site.value, model.nodes)


def _property_names(model: "SchemaModel", site: Site) -> Part:
    shape = model.shape_of(subschema(site.value, site.place, model.nodes))
    cell = ObjectCell(rules=((Matching(shape.texts.complement()), NEVER),))
    gaps = frozenset(("object", gap) for _, gap in shape.gaps_of("string"))
    return replace(ANY_SHAPE, objects=(cell,), gaps=gaps)


def _dependencies(model: "SchemaModel", site: Site) -> Part:
    """`dependencies`, and the two keywords that it was split into."""
    every = ANY_SHAPE
    for name, wanted in site.value.items():
        absent = replace(ANY_SHAPE, objects=(ObjectCell(rules=((Name(name), NEVER),)),))
        present = Shape(objects=(ObjectCell(needs=((Name(name), ANY),)),))
        if isinstance(wanted, list | str):
            names = [wanted] if isinstance(wanted, str) else dict.fromkeys(wanted)
            needs = tuple((Name(one), ANY) for one in names)
            condition = replace(ANY_SHAPE, objects=(ObjectCell(needs=needs),))
        else:
            condition = model.shape_of(subschema(wanted, child(site.place, name), model.nodes))
        either = model.algebra.unite([absent, model.algebra.intersect(present, condition)])
        every = model.algebra.intersect(every, either)
    return every


def _reference(model: "SchemaModel", site: Site) -> Part:
    target = model.locations.resolve(site.keyword, site.value, site.pointer)
    if target is None:
        return any_but(Gap(site.place, site.keyword, "where it leads depends on who refers here"))
    return subschema(model.locations.schema_at(target), target, model.nodes)


def _unevaluated_properties(model: "SchemaModel", site: Site) -> Part:
    return unevaluated_properties(model, site.schema, site.pointer)


def _unevaluated_items(model: "SchemaModel", site: Site) -> Part:
    return unevaluated_items(model, site.schema, site.pointer)


APPLICATORS: dict[str, Applicator] = {
    "allOf": _all_of,
    "anyOf": _any_of,
    "oneOf": _one_of,
    "not": _not,
    "if": _if,
    "enum": _enum,
    "const": _const,
    "propertyNames": _property_names,
    "dependencies": _dependencies,
    "dependentRequired": _dependencies,
    "dependentSchemas": _dependencies,
    "$ref": _reference,
    "$dynamicRef": _reference,
    "$recursiveRef": _reference,
    "unevaluatedProperties": _unevaluated_properties,
    "unevaluatedItems": _unevaluated_items,
}
