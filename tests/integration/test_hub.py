"""Models from the hub: what is fetched, what the cache spares, interruptions, and refusals.

Each fetch is a process of its own, as the library reads its settings when it is imported.
"""

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from runtime.model_source import open_model
from runtime.weights import open_weights
from tests.fake_hub import COMMIT, FakeHub, serving_hub
from tests.model_file import ROOT
from tests.tiny_gguf import write_tiny_gguf
from tests.tiny_model import write_tiny_model
from tests.waiting import until

pytestmark = pytest.mark.timeout(60)

REPO = "org/tiny"
CHUNK_BYTES = 1 << 16
PROGRAM = f"""
import sys
from runtime.errors import ModelError
from runtime.model_source import locate_model
import huggingface_hub.constants
huggingface_hub.constants.DOWNLOAD_CHUNK_SIZE = {CHUNK_BYTES}
try:
    print(locate_model(sys.argv[1]))
except ModelError as error:
    sys.exit(f"radixgate: {{error}}")
"""
READ = {"config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors"}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    folder = write_tiny_model(tmp_path_factory.mktemp("model"))
    return {file.name: file.read_bytes() for file in folder.iterdir()}


@pytest.fixture
def hub(model: dict[str, bytes]) -> Iterator[FakeHub]:
    files = {**model, "pytorch_model.bin": b"never read", "README.md": b"# tiny"}
    with serving_hub(FakeHub(REPO, files)) as running:
        yield running


@dataclass(frozen=True, slots=True)
class Fetch:
    code: int
    path: Path
    complaint: str
    stderr: str


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


def environment(hub: FakeHub | None, home: Path, **variables: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
    url = hub.url if hub is not None else "http://127.0.0.1:9"
    return kept | {"HF_ENDPOINT": url, "HF_HOME": str(home), "NO_PROXY": "*"} | variables


def command(model: str) -> list[str]:
    return [sys.executable, "-c", PROGRAM, model]


def fetch(model: str, hub: FakeHub | None, home: Path, **variables: str) -> Fetch:
    done = subprocess.run(
        command(model),
        cwd=ROOT,
        env=environment(hub, home, **variables),
        capture_output=True,
        text=True,
        check=False,
    )
    assert "Traceback" not in done.stderr
    lines = done.stderr.splitlines()
    complaints = [line for line in lines if line.startswith("radixgate: ")]
    assert len(complaints) == (done.returncode != 0), done.stderr
    return Fetch(done.returncode, Path(done.stdout.strip()), "".join(complaints), done.stderr)


def test_the_files_that_are_read_are_fetched_and_no_others(hub: FakeHub, home: Path) -> None:
    fetched = fetch(REPO, hub, home)
    assert hub.fetched() == READ
    source = open_model(fetched.path)
    assert open_weights(source).read("model.norm.weight").shape == (64,)
    assert "fetching model.safetensors: " in fetched.stderr
    assert "(100 %)" in fetched.stderr


def test_what_is_in_the_cache_is_not_fetched_again(hub: FakeHub, home: Path) -> None:
    first = fetch(REPO, hub, home)
    hub.gets.clear()
    assert fetch(REPO, hub, home).path == first.path
    assert hub.gets == []


@pytest.mark.parametrize("variables", [{"HF_HUB_OFFLINE": "1"}, {}])
def test_the_cache_needs_no_network(hub: FakeHub, home: Path, variables: dict[str, str]) -> None:
    first = fetch(REPO, hub, home)
    hub.requests.clear()
    for name in (REPO, f"{REPO}@{COMMIT}"):
        assert fetch(name, None, home, **variables).path == first.path
    assert hub.requests == []


def test_a_pinned_commit_that_is_cached_is_not_even_asked_for(hub: FakeHub, home: Path) -> None:
    first = fetch(f"{REPO}@{COMMIT}", hub, home)
    hub.requests.clear()
    assert fetch(f"{REPO}@{COMMIT}", hub, home).path == first.path
    assert hub.requests == []


def test_a_revision_is_fetched_by_its_name(hub: FakeHub, home: Path) -> None:
    hub.revisions = ("v1", COMMIT)
    assert fetch(f"{REPO}@v1", hub, home).path.name == COMMIT
    assert f"GET /api/models/{REPO}/revision/v1" in hub.requests


def test_the_shards_of_the_index_are_fetched(hub: FakeHub, home: Path) -> None:
    whole = hub.files.pop("model.safetensors")
    shard = "model-00001-of-00001.safetensors"
    hub.files |= {
        shard: whole,
        "model.safetensors.index.json": b'{"weight_map": {"model.norm.weight": "%s"}}'
        % shard.encode(),
    }
    fetched = fetch(REPO, hub, home)
    assert "model.norm.weight" in open_weights(open_model(fetched.path)).shapes
    assert shard in hub.fetched()


def test_one_gguf_file_of_a_repository_can_be_chosen(
    hub: FakeHub, home: Path, tmp_path: Path
) -> None:
    content = write_tiny_gguf(tmp_path / "tiny.gguf").read_bytes()
    hub.files |= {"sub/tiny.gguf": content, "other.gguf": content}
    fetched = fetch(f"{REPO}/sub/tiny.gguf", hub, home)
    assert hub.fetched() == {"sub/tiny.gguf"}
    assert open_model(fetched.path).architecture == "llama"


async def test_a_download_that_was_killed_goes_on_where_it_ended(hub: FakeHub, home: Path) -> None:
    hub.troubled, hub.sends = "model.safetensors", 3 * CHUNK_BYTES + 1000
    hub.holds = threading.Event()
    process = await asyncio.create_subprocess_exec(
        *command(REPO), cwd=ROOT, env=environment(hub, home)
    )
    try:
        await until(lambda: part_bytes(home) == 3 * CHUNK_BYTES, timeout_s=30)
    finally:
        process.kill()
        await process.wait()
        hub.holds.set()
    hub.gets.clear()
    fetched = fetch(REPO, hub, home)
    assert hub.gets == [("model.safetensors", f"bytes={3 * CHUNK_BYTES}-")]
    content = (fetched.path / "model.safetensors").read_bytes()
    assert content == hub.files["model.safetensors"]


def part_bytes(home: Path) -> int:
    return sum(file.stat().st_size for file in home.rglob("*.part"))


def test_a_connection_that_is_cut_is_taken_up_again(hub: FakeHub, home: Path) -> None:
    hub.troubled, hub.sends = "model.safetensors", 2 * CHUNK_BYTES
    fetched = fetch(REPO, hub, home)
    asked = [wanted for name, wanted in hub.gets if name == "model.safetensors"]
    assert asked == [None, f"bytes={2 * CHUNK_BYTES}-"]
    content = (fetched.path / "model.safetensors").read_bytes()
    assert content == hub.files["model.safetensors"]


def test_a_file_of_another_size_than_announced_is_refused(hub: FakeHub, home: Path) -> None:
    hub.troubled = "model.safetensors"
    hub.announced = len(hub.files["model.safetensors"]) + 10
    failed = fetch(REPO, hub, home)
    assert failed.code == 1
    assert "the download failed" in failed.complaint
    assert not list(home.rglob("model.safetensors"))


def test_a_file_with_another_hash_is_refused_and_fetched_anew(hub: FakeHub, home: Path) -> None:
    hub.troubled, hub.tag = "model.safetensors", "0" * 64
    assert "model.safetensors arrived damaged" in fetch(REPO, hub, home).complaint
    assert not list(home.rglob("model.safetensors"))
    hub.troubled = None
    assert fetch(REPO, hub, home).code == 0


def test_an_entity_tag_is_no_way_out_of_the_cache(hub: FakeHub, home: Path) -> None:
    hub.troubled, hub.tag = "config.json", "../../../escaped"
    assert "entity tag of config.json is no plain name" in fetch(REPO, hub, home).complaint
    assert not list(home.rglob("escaped*"))


@pytest.mark.parametrize("name", ["../a.safetensors", "..", "a/b.safetensors", "a\\u0000", "a.bin"])
def test_an_index_names_files_beside_it_only(hub: FakeHub, home: Path, name: str) -> None:
    index = f'{{"weight_map": {{"model.norm.weight": "{name}"}}}}'
    hub.files["model.safetensors.index.json"] = index.encode()
    assert "does not say in which files the weights are" in fetch(REPO, hub, home).complaint


def test_the_token_goes_to_the_hub_and_not_to_its_storage(hub: FakeHub, home: Path) -> None:
    hub.is_elsewhere = True
    assert fetch(REPO, hub, home, HF_TOKEN="hf_secret").code == 0
    seen = dict(hub.tokens)
    assert seen["/elsewhere/model.safetensors"] is None
    assert seen[f"/{REPO}/resolve/{COMMIT}/model.safetensors"] == "Bearer hf_secret"


@pytest.mark.parametrize(
    ("refusal", "expected"),
    [
        ((404, "RepoNotFound"), "the hub has no such model"),
        ((401, "RepoNotFound"), "HF_TOKEN must be set"),
        ((403, "GatedRepo"), "is gated: accept its terms at http://127.0.0.1:"),
        ((418, "Teapot"), "answered 418"),
    ],
)
def test_a_refusal_of_the_hub_is_one_line(
    hub: FakeHub, home: Path, refusal: tuple[int, str], expected: str
) -> None:
    hub.refusal = refusal
    failed = fetch(REPO, hub, home)
    assert failed.code == 1
    assert failed.complaint.startswith(f"radixgate: {REPO}: ")
    assert expected in failed.complaint


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (f"{REPO}@v9", "not this revision"),
        (f"{REPO}/missing.gguf", "has no missing.gguf"),
        (f"{REPO}/a.gguf@v9", "not this revision"),
    ],
)
def test_what_the_repository_does_not_have_is_named(
    hub: FakeHub, home: Path, name: str, expected: str
) -> None:
    assert expected in fetch(name, hub, home).complaint


def test_a_repository_of_gguf_files_says_how_to_name_one(hub: FakeHub, home: Path) -> None:
    hub.files = {"README.md": b"", "a-q4.gguf": b"GGUF"}
    assert f"can be named: {REPO}/a-q4.gguf" in fetch(REPO, hub, home).complaint


def test_a_repository_without_safetensors_is_refused(hub: FakeHub, home: Path) -> None:
    del hub.files["model.safetensors"]
    assert "only models with safetensors or GGUF" in fetch(REPO, hub, home).complaint
    assert "pytorch_model.bin" not in hub.fetched()


@pytest.mark.parametrize("variables", [{"HF_HUB_OFFLINE": "1"}, {}])
def test_without_network_and_cache_it_says_so(home: Path, variables: dict[str, str]) -> None:
    failed = fetch(REPO, None, home, **variables)
    assert failed.code == 1
    assert "is not completely in the cache" in failed.complaint


def test_a_model_that_is_only_in_part_in_the_cache_says_so(hub: FakeHub, home: Path) -> None:
    hub.troubled, hub.tag = "model.safetensors", "0" * 64
    fetch(REPO, hub, home)
    assert "is not completely in the cache" in fetch(REPO, None, home).complaint


def test_a_path_that_exists_comes_before_a_hub_id(home: Path, tmp_path: Path) -> None:
    (tmp_path / REPO).mkdir(parents=True)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.replace("sys.argv[1]", f"{REPO!r}")],
        cwd=tmp_path,
        env=environment(None, home, PYTHONPATH=str(ROOT)),
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == REPO
