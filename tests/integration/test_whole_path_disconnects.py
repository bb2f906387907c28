"""A client closes its socket: wherever its request is, the work ends before the second step."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from telemetry import names
from telemetry.testing import in_memory_tracing
from tests.byte_tokenizer import VOCAB_SIZE
from tests.fake_executor import FakeExecutor
from tests.fake_grammar import UNSUPPORTED, FakeGrammarEngine
from tests.gateway_harness import CHAT, chat
from tests.raw_client import connection, raw_request
from tests.waiting import until
from tests.whole_path import PAGE_SIZE, WholePath, byte_engine, serving

CHUNK = 64
# Four chunks, with the template's words around it.
PROMPT = "the quick brown fox jumps over the lazy dog, " * 5
NUM_CHUNKS = 4

pytestmark = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])


def endless(**parameters: Any) -> dict[str, Any]:
    """A request that no test waits for the end of."""
    return chat(PROMPT, max_tokens=1000, ignore_eos=True, seed=1, **parameters)


@dataclass(eq=False)
class Scene:
    """A held engine with room for one sequence behind a server, and what the test looks at."""

    path: WholePath
    executor: FakeExecutor
    spans: InMemorySpanExporter
    tasks: set[asyncio.Task[Any]]

    @property
    def num_batches(self) -> int:
        return len(self.executor.batches)

    async def submitted(self, num_requests: int = 1) -> None:
        await until(lambda: len(self.path.engine.submitted) == num_requests)

    async def steps(self, num_steps: int) -> None:
        for _ in range(num_steps):
            await self.path.engine.step()

    async def leave(self, writer: asyncio.StreamWriter) -> None:
        """Closes the socket, goes on until the server has seen it, and takes one more step."""
        num_lost = len(self.path.lost_at)
        writer.close()
        while len(self.path.lost_at) == num_lost:
            await self.path.engine.step()
        (seen_at,) = self.path.lost_at[num_lost:]
        await self.steps(seen_at + 1 - self.path.engine.num_steps)

    async def assert_gone(self) -> None:
        """Nothing is left in scheduler, cache and gateway, and the second step has no work."""
        self.path.engine.assert_idle()
        num_batches = self.num_batches
        await self.path.engine.step()
        assert self.num_batches == num_batches
        await until(lambda: asyncio.all_tasks() == self.tasks)
        assert self.outcomes() == ["aborted"]

    def outcomes(self) -> list[str]:
        return [
            str((span.attributes or {})[names.ATTR_OUTCOME])
            for span in self.spans.get_finished_spans()
            if span.name.startswith("POST")
        ]

    async def assert_next_is_answered(self) -> None:
        """There is room for one request only: the place of the one that left is free again."""
        self.path.engine.release()
        async with self.path.client() as client:
            response = await client.post(CHAT, json=chat(PROMPT, max_tokens=3, ignore_eos=True))
        assert (response.status_code, response.json()["usage"]["completion_tokens"]) == (200, 3)
        await until(lambda: not self.path.engine.runtime.has_work())
        self.path.engine.assert_idle()


@asynccontextmanager
async def scene(grammar: FakeGrammarEngine | None = None, **settings: Any) -> AsyncIterator[Scene]:
    executor = FakeExecutor(PAGE_SIZE, VOCAB_SIZE)
    grammar = grammar or FakeGrammarEngine()
    engine = byte_engine(executor, max_running=1, max_step_tokens=CHUNK, load=grammar.load)
    tracing, spans = in_memory_tracing()
    settings = {"max_running": 1, "max_queue": 0, **settings}
    async with serving(engine, tracing=tracing, **settings) as path:
        engine.hold()
        yield Scene(path, executor, spans, asyncio.all_tasks())


async def test_during_the_upload_nothing_begins(stream: bool) -> None:
    async with scene() as it:
        async with connection(it.path.base_url) as writer:
            writer.write(raw_request(endless(stream=stream), missing=5))
            await until(lambda: len(asyncio.all_tasks()) > len(it.tasks))
            await it.leave(writer)
        await it.assert_gone()
        assert (it.path.engine.submitted, it.num_batches) == ([], 0)
        await it.assert_next_is_answered()


async def test_while_its_constraint_is_tried_out_nothing_is_submitted(stream: bool) -> None:
    async with scene() as it:
        it.path.probe.is_held = True
        async with connection(it.path.base_url) as writer:
            constrained = endless(stream=stream, structured_outputs={"regex": "a+"})
            writer.write(raw_request(constrained))
            await it.path.probe.reached.wait()
            await it.leave(writer)
        await it.assert_gone()
        assert it.path.probe.num_waiting == 0
        assert (it.path.engine.submitted, it.num_batches) == ([], 0)
        await it.assert_next_is_answered()


async def test_while_its_matcher_is_built_it_is_not_waited_for(stream: bool) -> None:
    grammar = FakeGrammarEngine()
    grammar.gate.clear()
    try:
        async with scene(grammar) as it:
            async with connection(it.path.base_url) as writer:
                constrained = endless(stream=stream, structured_outputs={"regex": UNSUPPORTED})
                writer.write(raw_request(constrained))
                await it.submitted()
                await it.steps(2)
                assert it.path.engine.runtime.stats().num_waiting == 1
                await it.leave(writer)
            await it.assert_gone()
            assert it.num_batches == 0
            await it.assert_next_is_answered()
            grammar.gate.set()
    finally:
        grammar.gate.set()


async def test_before_the_runtime_has_read_it_it_is_never_computed(stream: bool) -> None:
    async with scene() as it:
        async with connection(it.path.base_url) as writer:
            writer.write(raw_request(endless(stream=stream)))
            await it.submitted()
            writer.close()
            await until(lambda: len(it.path.lost_at) == 1)
            await until(lambda: asyncio.all_tasks() == it.tasks)
        await it.steps(1)
        await it.assert_gone()
        assert it.num_batches == 0
        await it.assert_next_is_answered()


async def test_in_the_queue_it_leaves_without_harm_to_the_running(stream: bool) -> None:
    async with scene(max_queue=1) as it, it.path.client() as client:
        first = asyncio.create_task(client.post(CHAT, json=chat(max_tokens=40, ignore_eos=True)))
        await it.submitted()
        await it.steps(3)
        async with connection(it.path.base_url) as writer:
            writer.write(raw_request(endless(stream=stream)))
            await it.submitted(2)
            await it.steps(2)
            stats = it.path.engine.runtime.stats()
            assert (stats.num_running, stats.num_waiting) == (1, 1)
            await it.leave(writer)
        stats = it.path.engine.runtime.stats()
        assert (stats.num_running, stats.num_waiting) == (1, 0)
        await until(lambda: it.outcomes() == ["aborted"])
        it.path.engine.release()
        answer = await first
        await until(lambda: it.outcomes() == ["aborted", "ok"])
        it.path.engine.assert_idle()
    assert {len(batch.rows) for batch in it.executor.batches} == {1}
    assert answer.json()["usage"]["completion_tokens"] == 40


async def test_between_chunks_of_its_prompt_the_rest_is_not_computed(stream: bool) -> None:
    async with scene() as it:
        async with connection(it.path.base_url) as writer:
            writer.write(raw_request(endless(stream=stream)))
            await it.submitted()
            await it.steps(1)
            stats = it.path.engine.runtime.stats()
            assert (stats.num_running, stats.generated_tokens) == (1, 0)
            assert stats.pages_held > 0
            await it.leave(writer)
        await it.assert_gone()
        stats = it.path.engine.runtime.stats()
        assert CHUNK <= stats.computed_prompt_tokens <= (NUM_CHUNKS - 1) * CHUNK
        # What was computed is of use to the next who asks so.
        assert stats.pages_cached == stats.computed_prompt_tokens // PAGE_SIZE
        await it.assert_next_is_answered()


async def test_in_the_middle_of_its_answer_no_more_is_said(stream: bool) -> None:
    async with scene() as it:
        async with connection(it.path.base_url) as writer:
            writer.write(raw_request(endless(stream=stream)))
            await it.submitted()
            await it.steps(NUM_CHUNKS + 10)
            stats = it.path.engine.runtime.stats()
            assert (stats.num_running, stats.generated_tokens) == (1, 11)
            assert stats.pages_held > 0
            await it.leave(writer)
        await it.assert_gone()
        stats = it.path.engine.runtime.stats()
        num_computed = sum(batch.num_tokens for batch in it.executor.batches)
        assert stats.pages_cached == -(-num_computed // PAGE_SIZE)
        await it.assert_next_is_answered()
