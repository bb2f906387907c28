"""The Dockerfile read into stages, and its steps done in a folder by ordinary processes.

Everything that the image adds lies under $ROOT, an argument of the Dockerfile: here a folder. Each
stage has that folder for itself while it runs, and is moved away after it, so that a later stage
has of it what it copies and nothing else. What changes the operating system is left out and named.
"""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

# What a base image would be changed by: here such programs must be there already.
SYSTEM_COMMANDS = ("apt-get", "groupadd", "useradd")
_CONTINUED = re.compile(r"\\\n(?:[ \t]*#.*\n)*")
_VARIABLE = re.compile(r"\$\{(\w+)(?::-([^}]*))?\}|\$(\w+)")
_KEPT = ("LANG", "TMPDIR", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE")
_STEP_S = 1800.0

How = Literal["done", "left out", "replaced"]


class StepError(Exception):
    """A step failed; the message has its output's end."""


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction: `text` is all behind its word, on one line."""

    word: str
    text: str


@dataclass(slots=True)
class Stage:
    """What a stage has become: its variables, and where its files are."""

    name: str
    root: Path
    variables: dict[str, str] = field(default_factory=dict)
    exported: set[str] = field(default_factory=set)
    workdir: str = "/"
    settled: dict[str, str] = field(default_factory=dict)

    def words(self, word: str) -> list[str]:
        """Of CMD or ENTRYPOINT in its JSON form."""
        return list(json.loads(self.settled[word]))

    @property
    def environment(self) -> dict[str, str]:
        """What ENV has set: a container's environment."""
        return {name: self.variables[name] for name in self.exported}


@dataclass(frozen=True, slots=True)
class StepTime:
    stage: str
    step: str
    seconds: float
    how: How


def read(text: str) -> list[Instruction]:
    """Comments and continued lines are gone."""
    joined = _CONTINUED.sub(" ", text)
    lines = [line.strip() for line in joined.splitlines()]
    return [
        Instruction(word.upper(), rest.strip())
        for line in lines
        if line and not line.startswith("#")
        for word, _, rest in [line.partition(" ")]
    ]


class ImageBuild:
    """Does the steps of `dockerfile` under `folder`. `arguments` are build arguments. `replaced`: a
    text that is in a RUN, and the command that is run instead of it."""

    def __init__(
        self,
        dockerfile: Path,
        context: Path,
        folder: Path,
        *,
        arguments: Mapping[str, str],
        replaced: Mapping[str, str] | None = None,
    ) -> None:
        self._instructions = read(dockerfile.read_text())
        self._context = context
        self._folder = folder
        self._root = folder / "root"
        self._arguments = {**arguments, "ROOT": str(self._root)}
        self._replaced = dict(replaced or {})
        self._stages: dict[str, Stage] = {}
        self._globals: dict[str, str] = {}
        self.times: list[StepTime] = []

    def run(self) -> Stage:
        """The last stage. Raises: StepError."""
        stage: Stage | None = None
        for instruction in self._instructions:
            if instruction.word == "FROM":
                self._put_away(stage)
                stage = self._begin(instruction.text)
            elif stage is None:
                assert instruction.word == "ARG", instruction
                self._declare(instruction.text, self._globals)
            else:
                started = time.monotonic()
                how = self._step(instruction, stage)
                seconds = time.monotonic() - started
                if instruction.word in ("RUN", "COPY"):
                    shown = f"{instruction.word} {instruction.text}"
                    self.times.append(StepTime(stage.name, shown, seconds, how))
        assert stage is not None
        return stage

    def _begin(self, text: str) -> Stage:
        name = text.rpartition(" ")[2]
        self._root.mkdir(parents=True)
        path = f"{self._base_programs()}:/usr/local/bin:/usr/bin:/bin"
        return Stage(name, self._root, {"PATH": path, "HOME": "/root"}, {"PATH"})

    def _put_away(self, stage: Stage | None) -> None:
        if stage is not None:
            stage.root = self._folder / "stages" / stage.name
            stage.root.parent.mkdir(exist_ok=True)
            self._root.rename(stage.root)
            self._stages[stage.name] = stage

    def _base_programs(self) -> Path:
        """What the base image has: Python under its plain name; a chown that may fail elsewhere."""
        folder = self._folder / "base"
        if not folder.is_dir():
            folder.mkdir(parents=True)
            (folder / "python").symlink_to(Path(sys.base_prefix) / "bin/python3")
            if os.geteuid() != 0:
                (folder / "chown").write_text("#!/bin/sh\n")
                (folder / "chown").chmod(0o755)
        return folder

    def _step(self, instruction: Instruction, stage: Stage) -> How:
        word, text = instruction.word, instruction.text
        if word == "RUN":
            return self._do_run(text, stage)
        if word == "COPY":
            self._do_copy(text, stage)
        elif word == "ARG":
            self._declare(text, stage.variables)
        elif word == "ENV":
            for name, value in _pairs(text):
                stage.variables[name] = _expanded(value, stage.variables)
                stage.exported.add(name)
        elif word == "WORKDIR":
            stage.workdir = _expanded(text, stage.variables)
            Path(stage.workdir).mkdir(parents=True, exist_ok=True)
        else:
            stage.settled[word] = text
        return "done"

    def _declare(self, text: str, variables: dict[str, str]) -> None:
        name, _, default = text.partition("=")
        variables[name] = self._arguments.get(name, self._globals.get(name, default))

    def _do_run(self, text: str, stage: Stage) -> How:
        instead = [command for part, command in self._replaced.items() if part in text]
        command = instead[0] if instead else re.sub(r"^(?:--\w+=\S+\s+)+", "", text)
        if command.split()[0] in SYSTEM_COMMANDS:
            return "left out"
        kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
        pip = {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
        done = subprocess.run(
            ["/bin/sh", "-c", command],
            cwd=stage.workdir,
            env={**kept, **pip, **stage.variables},
            capture_output=True,
            text=True,
            timeout=_STEP_S,
        )
        if done.returncode:
            raise StepError(f"{stage.name}: RUN {command}\n{(done.stdout + done.stderr)[-3000:]}")
        return "replaced" if instead else "done"

    def _do_copy(self, text: str, stage: Stage) -> None:
        words = shlex.split(_expanded(text, stage.variables))
        flags = dict(word[2:].split("=", 1) for word in words if word.startswith("--"))
        *sources, target = [word for word in words if not word.startswith("--")]
        origin = self._stages[flags["from"]].root if "from" in flags else self._context
        place = Path(stage.workdir, target)
        for source in sources:
            found = origin / Path(source).relative_to(self._root) if "from" in flags else None
            _copy(found or origin / source, place, into=target.endswith("/") or len(sources) > 1)


def context_files(root: Path, files: list[str]) -> Iterator[str]:
    """Those files of a folder that its .dockerignore lets through; the last rule that fits wins."""
    rules = [
        (line.startswith("!"), _rule(line.lstrip("!")))
        for line in (root / ".dockerignore").read_text().splitlines()
        if line and not line.startswith("#")
    ]
    for file in files:
        is_in = True
        for lets_in, rule in rules:
            if any(rule.fullmatch(part) for part in _with_parents(file)):
                is_in = lets_in
        if is_in:
            yield file


def _with_parents(file: str) -> list[str]:
    path = Path(file)
    return [str(path), *(str(parent) for parent in path.parents if str(parent) != ".")]


def _rule(pattern: str) -> re.Pattern[str]:
    text = re.escape(pattern).replace(r"\*\*/", "(?:.*/)?").replace(r"\*", "[^/]*")
    return re.compile(text)


def _pairs(text: str) -> list[tuple[str, str]]:
    return [(name, value) for word in shlex.split(text) for name, _, value in [word.partition("=")]]


def _expanded(text: str, variables: dict[str, str]) -> str:
    return _VARIABLE.sub(lambda found: variables.get(found[1] or found[3]) or found[2] or "", text)


def _copy(source: Path, place: Path, *, into: bool) -> None:
    """As COPY does: of a folder its contents, of a file the file."""
    if source.is_dir():
        shutil.copytree(source, place, symlinks=True, dirs_exist_ok=True)
        return
    target = place / source.name if into else place
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(source, target)
