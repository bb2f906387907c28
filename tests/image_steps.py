"""`make image-steps`: the Dockerfile's steps in a clean folder, then a server from what they leave.

No engine for images is needed. The steps are those of the file, in its order; those that change
the operating system (packages, users) are left out and listed. The server is the image's entrypoint
with nothing else on its path, so that it cannot use a compiler or a package of this machine.
"""

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.dockerfile import ImageBuild, Stage, StepError, StepTime, context_files
from tests.model_file import ROOT

_START_S = 180
_PROBE_S = 1.0
_MODEL = "smollm2-135m-instruct"


def make_context(folder: Path) -> Path:
    """What an engine would be sent: files that git knows or would add, less .dockerignore's."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in context_files(ROOT, listed.splitlines()):
        if (ROOT / name).is_file():
            target = folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes((ROOT / name).read_bytes())
    return folder


def build(folder: Path) -> tuple[Stage, list[StepTime]]:
    """The final stage. Raises: StepError."""
    context = make_context(folder / "context")
    # Without one pip looks where it always does: some registries have torch's CPU build.
    index = os.environ.get("TORCH_INDEX", "")
    image = ImageBuild(
        ROOT / "Dockerfile", context, folder, arguments={"TORCH": "cpu", "TORCH_INDEX": index}
    )
    return image.run(), image.times


def container_environment(image: Stage) -> dict[str, str]:
    """That of the image, with a path on which only its own programs are."""
    prefix = image.environment["PREFIX"]
    kept = {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
    return {**kept, **image.environment, "PATH": f"{prefix}/venv/bin"}


@contextmanager
def served(image: Stage) -> Iterator[str]:
    """The URL of a server that says it is well, by the image's own health check."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = str(listener.getsockname()[1])
    environment = {**container_environment(image), "RADIXGATE_PORT": port}
    environment["RADIXGATE_HOST"] = "127.0.0.1"
    programs = Path(environment["PATH"])
    command = [*image.words("ENTRYPOINT"), *image.words("CMD")]
    server = subprocess.Popen(
        [str(programs / command[0]), *command[1:]], env=environment, cwd=image.workdir
    )
    url = f"http://127.0.0.1:{port}"
    try:
        health = [str(programs / "radixgate"), "health", "--url", url, "--timeout-s", "5"]
        for _ in range(int(_START_S / _PROBE_S)):
            if server.poll() is not None:
                raise StepError(f"the server ended with exit code {server.returncode}")
            if subprocess.run(health, env=environment, capture_output=True).returncode == 0:
                break
            with_bound(server)
        else:
            raise StepError("the server is not well in time")
        yield url
    finally:
        server.terminate()
        server.wait(60)


def with_bound(server: "subprocess.Popen[bytes]") -> None:
    """Waits a moment, or less where the server ends."""
    try:
        server.wait(_PROBE_S)
    except subprocess.TimeoutExpired:
        return


def ask(url: str) -> str:
    messages = [{"role": "user", "content": "Say hello."}]
    body = {"model": _MODEL, "max_tokens": 16, "temperature": 0, "messages": messages}
    request = urllib.request.Request(
        f"{url}/v1/chat/completions",
        json.dumps(body).encode(),
        {"content-type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=120) as answer:
        text: str = json.load(answer)["choices"][0]["message"]["content"]
    return text


def size_mb(path: Path) -> int:
    return sum(f.stat().st_size for f in path.rglob("*") if not f.is_symlink()) // 1_000_000


def main(arguments: Sequence[str]) -> int:
    """Exit code 0 once a server of the image has answered."""
    parser = argparse.ArgumentParser(prog="python -m tests.image_steps")
    parser.add_argument("--folder", type=Path, help="an empty folder (default: a temporary one)")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        try:
            image, times = build(folder)
            print_steps(times)
            print_image(image)
            fetch_model(image)
            with served(image) as url:
                print(f"answer: {ask(url)!r}")  # noqa: T201
            check_native_step(image)
        except StepError as error:
            sys.stderr.write(f"{error}\n")
            return 1
    return 0


def print_steps(times: Sequence[StepTime]) -> None:
    for one in times:
        done = f"{one.seconds:6.1f} s" if one.how == "done" else one.how
        print(f"{one.stage:8} {done:>9}  {one.step[:90]}")  # noqa: T201
    print(f"{'all':8} {sum(one.seconds for one in times):7.1f} s")  # noqa: T201


def print_image(image: Stage) -> None:
    prefix = Path(image.environment["PREFIX"])
    for name in ("venv", "native"):
        print(f"{name}: {size_mb(prefix / name)} MB")  # noqa: T201


def fetch_model(image: Stage) -> None:
    """As the service `model` does. Raises: StepError."""
    environment = container_environment(image)
    program = Path(image.environment["PREFIX"]) / "fetch_model.py"
    done = subprocess.run(
        [f"{environment['PATH']}/python", str(program)],
        env={**environment, "TMPDIR": f"{environment['XDG_CACHE_HOME']}/radixgate"},
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise StepError(done.stderr)
    print(done.stdout.strip())  # noqa: T201


def check_native_step(image: Stage) -> None:
    """Weights are packed by the native step alone, which was there before. Raises: StepError."""
    cache = Path(image.environment["XDG_CACHE_HOME"]) / "radixgate"
    if not list((cache / "weights").glob("*")):
        raise StepError("the server did not use the native step that is in the image")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
