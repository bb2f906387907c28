"""A runtime that keeps its pages on disk and is killed at random moments while it writes them: what
it says after a start is what it says without any cache."""

import asyncio
import os
import random
import signal
from dataclasses import dataclass, field
from pathlib import Path

from runtime.config import RuntimeConfig, TierConfig
from runtime.messages import Sampling, Submit, TokenEvent
from runtime.supervisor import EngineSupervisor, SupervisorPolicy
from tests.tiny_model import write_tiny_model
from tests.waiting import until

START_S = 60.0
PREFIX_LEN, NUM_TURNS = 320, 3
# The folder has room for some of what is computed.
DISK_BYTES = 600 * 1024
LONGEST_LIFE_S = 0.05
GREEDY = Sampling(max_tokens=8, temperature=0.0, ignore_eos=True)


@dataclass
class RuntimeKillReport:
    """`wrong` are the prompts, by kill, whose answers were not those of no cache."""

    num_kills: int = 0
    num_answers: int = 0
    restored_tokens: int = 0
    rejected: int = 0
    failures: int = 0
    most_bytes: int = 0
    wrong: list[int] = field(default_factory=list)


class RuntimeKills:
    """One runtime after the other, over the same folder."""

    def __init__(self, folder: Path, *, seed: int, num_prefixes: int = 4) -> None:
        self._rng = random.Random(seed)
        self._config = RuntimeConfig(
            model=str(write_tiny_model(folder / "tiny")),
            dtype="float32",
            device="cpu",
            kv_memory_bytes=16 * 1024 * 1024,
            num_threads=1,
            tiers=TierConfig(disk_dir=str(folder / "cache"), disk_bytes=DISK_BYTES),
        )
        self._pages = folder / "cache"
        self._prefixes = [self._tokens(PREFIX_LEN) for _ in range(num_prefixes)]
        self._num_requests = 0
        self.report = RuntimeKillReport()

    async def play(self, num_kills: int) -> RuntimeKillReport:
        policy = SupervisorPolicy(
            max_restarts=2 * num_kills + 10, first_backoff_s=0.01, max_backoff_s=0.02
        )
        engine = EngineSupervisor(self._config, policy=policy)
        await engine.start()
        try:
            await engine.wait_ready(START_S)
            for _ in range(num_kills):
                await self._talk(engine)
                # Pages are written once nobody waits for an answer: on a busy machine, later.
                await until(lambda: self._disk_bytes() > 0)
                await asyncio.sleep(self._rng.uniform(0, LONGEST_LIFE_S))
                self._look(engine)
                await self._kill(engine)
            await self._talk(engine)
        finally:
            await engine.stop()
        return self.report

    async def _kill(self, engine: EngineSupervisor) -> None:
        """Returns when another one serves."""
        killed_pid = engine.child_pid
        assert killed_pid is not None
        os.kill(killed_pid, signal.SIGKILL)
        self.report.num_kills += 1
        self.report.most_bytes = max(self.report.most_bytes, self._disk_bytes())
        await until(lambda: engine.child_pid not in (None, killed_pid))
        await engine.wait_ready(START_S)

    async def _talk(self, engine: EngineSupervisor) -> None:
        """Some turns behind a prefix that an earlier runtime may have known."""
        prompt = list(self._rng.choice(self._prefixes))
        for _ in range(NUM_TURNS):
            cached = await self._ask(engine, prompt, use_cache=True)
            whole = await self._ask(engine, prompt, use_cache=False)
            self.report.num_answers += 1
            if cached != whole:
                self.report.wrong.append(self.report.num_kills)
            prompt += [*whole, *self._tokens(40)]

    async def _ask(
        self, engine: EngineSupervisor, prompt: list[int], *, use_cache: bool
    ) -> list[int]:
        self._num_requests += 1
        name = f"request {self._num_requests}"
        answer: list[int] = []
        last: TokenEvent | None = None
        async for event in engine.submit(Submit(name, prompt, GREEDY, use_cache=use_cache)):
            answer += event.token_ids
            last = event
        assert last is not None
        assert last.error is None, last.error
        if last.usage is not None:
            self.report.restored_tokens += sum(last.usage.tier_tokens.values())
        return answer

    def _look(self, engine: EngineSupervisor) -> None:
        for tier in engine.stats.tiers:
            self.report.rejected += sum(tier.num_rejected.values())
            self.report.failures += tier.num_failures

    def _disk_bytes(self) -> int:
        return sum(path.stat().st_size for path in self._pages.glob("*/??/*"))

    def _tokens(self, num_tokens: int) -> list[int]:
        return [self._rng.randrange(3, 500) for _ in range(num_tokens)]
