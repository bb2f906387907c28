"""Which models answer to which names."""

from collections.abc import Mapping
from copy import copy

from gateway.accounts import ALL_MODELS, Account
from gateway.errors import NotFound
from gateway.generation import ServedModel

NO_NAMES: Mapping[str, str] = {}


class ModelRegistry:
    """Fixed at start; `created` is what /v1/models says of all of them, in Unix seconds.

    A model has one id, further names of its own, and aliases: names of other models for which it
    stands in. Answers to one of its own names have its id. Answers to an alias have the alias, as
    clients with a hard-coded name look it up in tables of their own.
    """

    def __init__(
        self,
        models: Mapping[str, ServedModel],
        *,
        created: int,
        names: Mapping[str, str] = NO_NAMES,
        aliases: Mapping[str, str] = NO_NAMES,
    ) -> None:
        """`names` and `aliases` lead to ids, which are the keys of `models`."""
        self._models = dict(models)
        self._ids = {**{model_id: model_id for model_id in models}, **names, **aliases}
        self._aliases = frozenset(aliases)
        self.created = created

    def open_to(self, account: Account) -> "ModelRegistry":
        """What a key may use of it, as if there were nothing else. A key that may use a model by
        its id may use it by all its names."""
        if account.models == ALL_MODELS:
            return self
        seen = copy(self)
        seen._ids = {
            name: model_id
            for name, model_id in self._ids.items()
            if account.may_use(name, model_id)
        }
        return seen

    @property
    def ids(self) -> list[str]:
        """Of the models that are served, whoever may use them."""
        return list(self._models)

    @property
    def names(self) -> list[str]:
        """All that a request may call a model: ids, then further names, then aliases."""
        return list(self._ids)

    def find(self, name: str) -> ServedModel:
        """Raises: NotFound that lists what is served."""
        return self._models[self.id_of(name)]

    def id_of(self, name: str) -> str:
        """The id of the model that answers to this name.

        Raises: NotFound that lists what is served.
        """
        model_id = self._ids.get(name)
        if model_id is None:
            served = ", ".join(f"'{known}'" for known in self._ids) or "nothing for this key"
            raise NotFound(
                f"The model '{name[:200]}' does not exist. Served here: {served}.",
                code="model_not_found",
                param="model",
            )
        return model_id

    def name_in_answers(self, name: str) -> str:
        """What answers call the model that was asked for by this name.

        Raises: NotFound that lists what is served.
        """
        return name if name in self._aliases else self.id_of(name)
