"""What the Dockerfile makes of the sources. The steps that fetch the dependencies and compile take
minutes: `make image-steps` does them, here the packages of this environment stand in."""

import subprocess
import sysconfig
from pathlib import Path

import pytest

from tests.dockerfile import ImageBuild, Stage
from tests.image_steps import container_environment, make_context
from tests.model_file import ROOT
from tests.unit.deploy.test_image import PACKAGES

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]

HERE = sysconfig.get_path("purelib")
SITE = "$(python -c 'import sysconfig; print(sysconfig.get_path(\"purelib\"))')"
REPLACED = {
    "-r requirements.lock": f"rm -r {SITE}/setuptools* && echo {HERE} > {SITE}/borrowed.pth",
    "requirements-torch.lock": "true",
    "deploy/build_libraries.py": "mkdir ${PREFIX}/native",
    "import torch": "cd / && python -c 'import gateway.serve'",
}


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Stage:
    folder = tmp_path_factory.mktemp("image")
    context = make_context(folder / "context")
    image = ImageBuild(
        ROOT / "Dockerfile", context, folder, arguments={"TORCH": "cpu"}, replaced=REPLACED
    )
    stage = image.run()
    assert [one.how for one in image.times].count("replaced") == len(REPLACED)
    return stage


def run(image: Stage, *words: str) -> subprocess.CompletedProcess[str]:
    programs = Path(image.environment["PREFIX"]) / "venv/bin"
    return subprocess.run(
        [str(programs / words[0]), *words[1:]],
        env=container_environment(image),
        cwd="/",
        capture_output=True,
        text=True,
    )


def test_every_package_is_installed_with_all_its_files(image: Stage) -> None:
    (site,) = (Path(image.environment["PREFIX"]) / "venv/lib").glob("python3*/site-packages")
    command = ["git", "ls-files", *(package.split(".")[0] for package in PACKAGES)]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    files = set(listed.splitlines())
    assert len(files) > 300
    assert {file for file in files if not (site / file).is_file()} == set()


def test_the_command_runs_without_the_sources(image: Stage) -> None:
    done = run(image, *image.words("ENTRYPOINT"), "serve", "--help")
    assert done.returncode == 0, done.stderr
    assert "--runtime-url" in done.stdout


def test_the_health_check_of_an_image_that_does_not_serve_fails(image: Stage) -> None:
    done = run(image, "radixgate", "health", "--url", "http://127.0.0.1:9")
    assert done.returncode == 1, done.stderr


def test_nothing_but_the_image_is_in_the_image(image: Stage) -> None:
    prefix = Path(image.environment["PREFIX"])
    assert {path.name for path in prefix.iterdir()} == {"venv", "native", "fetch_model.py"}
    assert {path.name for path in image.root.iterdir()} == {"opt", "var"}
