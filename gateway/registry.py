"""Which generators answer to which model names."""

from collections.abc import Mapping

from gateway.errors import NotFound
from gateway.generation import Generator


class ModelRegistry:
    """Fixed at start; `created` is what /v1/models says of all of them, in Unix seconds."""

    def __init__(self, generators: Mapping[str, Generator], *, created: int) -> None:
        self._generators = dict(generators)
        self.created = created

    @property
    def names(self) -> list[str]:
        return list(self._generators)

    def find(self, name: str) -> Generator:
        """Raises: NotFound that lists what is served."""
        generator = self._generators.get(name)
        if generator is None:
            served = ", ".join(f"'{known}'" for known in self._generators)
            raise NotFound(
                f"The model '{name[:200]}' does not exist. Served here: {served}.",
                code="model_not_found",
                param="model",
            )
        return generator
