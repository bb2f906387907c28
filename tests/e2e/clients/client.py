"""The clients that are run, what each is written for, and the features that they may show."""

from dataclasses import dataclass
from enum import Enum
from pathlib import Path

HERE = Path(__file__).resolve().parent


class Platform(Enum):
    """What a client's check runs on; `check` and `lock` are files of its folder."""

    PYTHON = "Python"
    NODE = "Node"

    @property
    def check(self) -> str:
        return "check.py" if self is Platform.PYTHON else "check.mjs"

    @property
    def locks(self) -> tuple[str, ...]:
        if self is Platform.PYTHON:
            return ("requirements.lock",)
        return ("package-lock.json", "package.json")


@dataclass(frozen=True, slots=True)
class Client:
    """`name` is its folder's. A wide one is run by `make e2e-all` only. `borrowed` are modules of
    the environment that runs the tests, linked rather than installed once more."""

    name: str
    title: str
    platform: Platform = Platform.PYTHON
    is_wide: bool = False
    borrowed: tuple[str, ...] = ()

    @property
    def folder(self) -> Path:
        return HERE / self.name


# guidellm reads its prompts through torch's loader, whose build differs from machine to machine and
# takes the space of all other clients together.
TORCH = ("torch", "torchgen", "functorch", "sympy", "mpmath", "networkx")

CLIENTS = (
    Client("openai_python_3", "openai 3"),
    Client("openai_python_2", "openai 2"),
    Client("openai_node", "openai (npm)", Platform.NODE),
    Client("ai_sdk", "AI SDK", Platform.NODE),
    Client("pydantic_ai", "pydantic-ai"),
    Client("langchain", "langchain"),
    Client("instructor", "instructor"),
    Client("openai_agents", "openai-agents"),
    Client("llm", "llm"),
    Client("guidellm", "guidellm", borrowed=TORCH),
    Client("outlines", "outlines", is_wide=True),
    Client("dspy", "dspy", is_wide=True),
    Client("smolagents", "smolagents", is_wide=True),
)

# No client, and yet installed as they are: it makes requests up (tests/e2e/fuzzing.py).
FUZZER = Client("schemathesis", "schemathesis")

# In the order of the table.
FEATURES = {
    "chat": "an answer, its usage and, where the client keeps one, a conversation",
    "stream": "deltas that add up to the same answer, and usage where the client shows it",
    "stream helper": "the client's own accumulator, as the text grows",
    "async": "the client's asynchronous half, several requests at once",
    "choices": "`n`, sampled and streamed",
    "stop": "stop strings",
    "logprobs": "scores and bytes of each token, and of the alternatives",
    "completions": "`/v1/completions`",
    "structured output": "an object of the client's own class",
    "partial output": "that object as it grows",
    "tools": "a call that fits its schema; its result and an answer, where the client has the loop",
    "tool stream": "arguments that come in fragments",
    "tool parse": "arguments that the client has parsed",
    "tool choice": "a named tool, none, some, one that is not there",
    "parallel tools": (
        "two calls in one answer, whole and merged from a stream, that the model chose to make"
    ),
    "tool loop": "the client runs the tool that the model chose, and asks on",
    "responses": "`/v1/responses`",
    "responses stream": "its events, in the order and with the fields that the client needs",
    "responses structured": "an object of the client's own class",
    "responses tools": (
        "a call that fits its schema; its output and an answer, where the client has the loop"
    ),
    "responses kept": "`previous_response_id`, reading and deleting",
    "models": "the list, one model, one that is not there",
    "embeddings refused": "400, as the served model is none for embeddings",
    "errors": "the client's own exceptions, with code and parameter",
}
