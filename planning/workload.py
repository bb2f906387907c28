"""What is asked of a server: the requests, how many there are, and how fast they must be."""

from dataclasses import dataclass

from planning.errors import PlanError
from planning.model_facts import ModelFacts


@dataclass(frozen=True, slots=True)
class Workload:
    """Every request alike. `prompt` tokens, of which the first `shared` are the same for all
    requests and found in the cache; `output` tokens. `chunk`: the most prompt tokens that a step
    computes."""

    prompt: int
    output: int
    shared: int = 0
    chunk: int = 2048

    @property
    def new(self) -> int:
        """Tokens of a prompt that are computed: the last one always is, for its logits."""
        return max(1, self.prompt - self.shared)

    @property
    def num_decode_steps(self) -> int:
        """The first token comes from the prefill; an answer of one is planned as one of two."""
        return max(1, self.output - 1)

    @property
    def mean_context(self) -> float:
        """Tokens behind a decoded one, on average over an answer."""
        return self.prompt + self.output / 2

    @property
    def longest(self) -> int:
        return self.prompt + self.output

    def check(self, model: ModelFacts) -> "Workload":
        """Itself. Raises: PlanError for what contradicts itself or the model."""
        if self.prompt < 1 or self.output < 1 or self.chunk < 1:
            raise PlanError("prompt, output and chunk must be at least 1 token")
        if not 0 <= self.shared <= self.prompt:
            raise PlanError(
                f"a shared prefix of {self.shared} tokens does not fit a prompt of {self.prompt}"
            )
        if self.longest > model.max_context:
            raise PlanError(
                f"{self.prompt} + {self.output} tokens exceed the {model.max_context} that"
                f" {model.name} can have"
            )
        return self


@dataclass(frozen=True, slots=True)
class Demand:
    """Either `users` that each send their next request when they have the answer, or `rate`
    requests a second at random times. Targets are means, in seconds; None = no target."""

    users: int | None = None
    rate: float | None = None
    ttft_s: float | None = None
    tpot_s: float | None = None

    def check(self) -> "Demand":
        """Itself. Raises: PlanError."""
        if (self.users is None) == (self.rate is None):
            raise PlanError("give either --users or --rate")
        if self.users is not None and self.users < 1:
            raise PlanError("there must be at least 1 user")
        if self.rate is not None and not 0 < self.rate < float("inf"):
            raise PlanError("the rate must be above 0")
        for name, target in (("TTFT", self.ttft_s), ("TPOT", self.tpot_s)):
            if target is not None and not 0 < target < float("inf"):
                raise PlanError(f"the {name} target must be above 0")
        return self
