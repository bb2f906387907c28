"""What clients ask for as an object of a class, for environments that have pydantic."""

from typing import Literal

from pydantic import BaseModel, ConfigDict

PERSON_QUESTION = "Invent a person, as JSON."


class Person(BaseModel):
    """A person. Its values are of finite sets, so that a small model's answer ends."""

    model_config = ConfigDict(extra="forbid")

    name: Literal["Ada", "Grace", "Alan"]
    is_adult: bool
    level: Literal[1, 2, 3]
