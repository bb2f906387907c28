"""How a model of the Hugging Face hub is written: `org/name`, `org/name/file.gguf`, and either
with `@revision` (a branch, a tag or a commit). Imports nothing of the hub."""

import re
from dataclasses import dataclass

_WRITTEN = re.compile(
    r"(?P<repo>[\w-][\w.-]*/[\w-][\w.-]*)(?:/(?P<file>[^@]+\.gguf))?(?:@(?P<revision>[\w./-]+))?",
    re.ASCII,
)


@dataclass(frozen=True, slots=True)
class HubReference:
    """`file` is the one GGUF file that is wanted, else None; `revision` None is the default
    branch."""

    repo: str
    file: str | None
    revision: str | None

    def __str__(self) -> str:
        place = self.repo if self.file is None else f"{self.repo}/{self.file}"
        return place if self.revision is None else f"{place}@{self.revision}"


def parse_hub_reference(text: str) -> HubReference | None:
    """None for what can only be a path. `models/a.gguf` is one: a hub repository of such a name
    would have to be asked for with its file. So is what has a `..`: file and revision become paths
    in the cache, which nothing may leave."""
    written = _WRITTEN.fullmatch(text)
    if written is None or (written["file"] is None and written["repo"].endswith(".gguf")):
        return None
    if ".." in re.split("[/@]", text):
        return None
    return HubReference(written["repo"], written["file"], written["revision"])
