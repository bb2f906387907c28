"""Answers of /v1/models: every name of what is served."""

import msgspec


class ModelCard(msgspec.Struct, frozen=True):
    """One name of a served model; `root` is the id of that model. `max_model_len` is an addition
    that clients of other servers read, left out until it is known."""

    id: str
    root: str
    created: int
    max_model_len: int | msgspec.UnsetType
    object: str = "model"
    owned_by: str = "radixgate"


class ModelList(msgspec.Struct, frozen=True):
    data: list[ModelCard]
    object: str = "list"
