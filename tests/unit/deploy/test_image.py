"""The Dockerfile without an engine: what gets into it, and what it says. `make image-steps` does
its steps."""

import re
import tomllib
from pathlib import Path

import pytest

from tests.compose_file import services
from tests.dockerfile import ImageBuild, Instruction, StepError, context_files, read
from tests.model_file import ROOT

DOCKERFILE = read((ROOT / "Dockerfile").read_text())
FINAL = DOCKERFILE[max(i for i, one in enumerate(DOCKERFILE) if one.word == "FROM") :]
PACKAGES: list[str] = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"][
    "packages"
]


def texts(word: str, instructions: list[Instruction] = FINAL) -> list[str]:
    return [one.text for one in instructions if one.word == word]


def test_every_package_gets_into_the_image() -> None:
    files = [f"{package.replace('.', '/')}/__init__.py" for package in PACKAGES]
    assert list(context_files(ROOT, files)) == files


def test_native_sources_and_data_get_into_the_image() -> None:
    files = ["runtime/native/step.cpp", "runtime/native/simd.h", "gateway/ui/index.html"]
    assert list(context_files(ROOT, files)) == files


@pytest.mark.parametrize(
    "file",
    [
        *("deploy/secrets/api_key.txt", "deploy/secrets/keys/keys.yaml", ".env", ".git/config"),
        *("tests/conftest.py", ".cache/models/a.gguf", ".venv/bin/python", "compose.yaml"),
        *("gateway/__pycache__/cli.cpython-311.pyc", "docs/deploy.md", "deploy/dashboards.py"),
    ],
)
def test_what_is_no_part_of_the_image_does_not_get_near_it(file: str) -> None:
    assert list(context_files(ROOT, [file])) == []


def test_what_is_copied_from_the_context_exists_and_is_let_through() -> None:
    copied = [
        word
        for text in texts("COPY", DOCKERFILE)
        if "--from" not in text
        for word in text.split()[:-1]
        if word != "."
    ]
    assert len(copied) > 3
    assert list(context_files(ROOT, copied)) == copied
    assert all((ROOT / name).is_file() for name in copied)


def test_all_stages_are_of_one_pinned_base() -> None:
    (argument,) = [text for text in texts("ARG", DOCKERFILE) if text.startswith("PYTHON_IMAGE")]
    assert re.fullmatch(r"PYTHON_IMAGE=python:3\.11\.\d+-slim-\w+", argument)
    assert [text.split()[0] for text in texts("FROM", DOCKERFILE)] == ["${PYTHON_IMAGE}"] * 2


def test_the_image_runs_as_a_user_without_rights_and_says_how_it_is() -> None:
    (user,) = texts("USER")
    assert user == STACK_USER
    (check,) = texts("HEALTHCHECK")
    assert check.endswith('CMD ["radixgate", "health"]')


STACK_USER = services()["gateway"].raw["user"]


def test_services_of_the_image_are_started_as_it_starts_them() -> None:
    assert texts("ENTRYPOINT") == ['["radixgate"]']
    program = services()["model"].raw["entrypoint"][1]
    (prefix,) = [text.removeprefix("PREFIX=${ROOT}") for text in texts("ENV") if "PREFIX=" in text]
    (copied,) = [text for text in texts("COPY") if "--from" not in text]
    assert program == f"{prefix}/{Path(copied.split()[0]).name}"


def test_volumes_are_mounted_where_the_image_looks() -> None:
    (variables,) = [text for text in texts("ENV") if "XDG_CACHE_HOME" in text]
    assert "XDG_CACHE_HOME=${ROOT}/var/cache " in variables
    targets = {m.target for m in services()["runtime"].mounts}
    assert targets == {"/var/cache/radixgate", "/var/lib/radixgate/kv"}
    (made,) = [text for text in texts("RUN") if "mkdir" in text]
    folders, _, owned = made.partition("chown")
    for target in targets:
        assert f"${{ROOT}}{target}" in folders
        owner = [path for path in owned.split() if f"${{ROOT}}{target}/".startswith(f"{path}/")]
        assert owner, target


def test_what_is_fetched_is_kept_in_the_volume() -> None:
    (variables,) = [text for text in texts("ENV") if "HF_HOME" in text]
    assert "HF_HOME=${ROOT}/var/cache/radixgate/" in variables


def test_a_container_of_its_own_can_be_reached_and_ends_by_the_signal_that_drains() -> None:
    assert any("RADIXGATE_HOST=0.0.0.0" in text for text in texts("ENV"))
    assert texts("STOPSIGNAL") == ["SIGTERM"]


def test_a_secret_is_no_argument_of_the_build() -> None:
    names = {text.partition("=")[0] for text in texts("ARG", DOCKERFILE)}
    assert names == {"PYTHON_IMAGE", "ROOT", "TORCH", "TORCH_INDEX"}


def test_comments_and_continued_lines_are_read_as_an_engine_reads_them() -> None:
    text = "# syntax=x\nFROM a AS b\n\nRUN one && \\\n    # why\n    two\nrun three\n"
    assert read(text) == [
        Instruction("FROM", "a AS b"),
        Instruction("RUN", "one &&      two"),
        Instruction("RUN", "three"),
    ]


def build(tmp_path: Path, dockerfile: str, **arguments: str) -> ImageBuild:
    (tmp_path / "context").mkdir()
    (tmp_path / "context/here.txt").write_text("here")
    (tmp_path / "Dockerfile").write_text(dockerfile)
    folder = tmp_path / "build"
    return ImageBuild(
        tmp_path / "Dockerfile", tmp_path / "context", folder, arguments=dict(arguments)
    )


TWO_STAGES = """
ARG BASE=base
FROM ${BASE} AS first
ARG ROOT=
ARG WORD=default
ENV PLACE=${ROOT}/opt TEXT="two words"
WORKDIR ${ROOT}/work
RUN apt-get install nothing
COPY here.txt ./
RUN mkdir ${PLACE} && echo "${TEXT} ${WORD}" > ${PLACE}/text && touch ${PLACE}/left
FROM ${BASE} AS last
ARG ROOT=
COPY --from=first ${ROOT}/opt/text ${ROOT}/etc/
CMD ["cat", "text"]
"""


def test_a_later_stage_has_what_it_copies_and_nothing_else(tmp_path: Path) -> None:
    image = build(tmp_path, TWO_STAGES, WORD="given")
    last = image.run()
    files = [str(f.relative_to(last.root)) for f in last.root.rglob("*") if f.is_file()]
    assert files == ["etc/text"]
    assert (last.root / "etc/text").read_text() == "two words given\n"
    assert last.words("CMD") == ["cat", "text"]
    assert [one.how for one in image.times] == ["left out", "done", "done", "done"]


def test_a_step_that_fails_ends_the_build_with_what_it_said(tmp_path: Path) -> None:
    image = build(tmp_path, "FROM a AS b\nRUN echo why >&2; exit 3\n")
    with pytest.raises(StepError, match="why"):
        image.run()


def test_a_build_inherits_no_setting_of_the_one_who_runs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RADIXGATE_MODEL", "mine")
    image = build(tmp_path, "FROM a AS b\nARG ROOT=\nRUN env > ${ROOT}/env\n")
    assert "RADIXGATE" not in (image.run().root / "env").read_text()
