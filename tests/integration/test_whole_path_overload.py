"""Four times as many requests as there is room for: each is answered or told to come back."""

import asyncio
from typing import Any

import httpx2

from tests.byte_tokenizer import VOCAB_SIZE
from tests.fake_executor import FakeExecutor
from tests.gateway_harness import CHAT, chat, error_of
from tests.sse_machine import check_chat_stream
from tests.waiting import until
from tests.whole_path import PAGE_SIZE, WholePath, byte_engine, serving

MAX_RUNNING, MAX_QUEUE = 8, 32
NUM_ACCEPTED = MAX_RUNNING + MAX_QUEUE
NUM_REQUESTS = 64
NUM_PROMPTS = 8
MAX_TOKENS = 24
# A token a character: the vocabulary's merges are not in it.
PREFIX = "Some words for everybody, so many as to take a few pages of KV memory: "


def body(number: int) -> dict[str, Any]:
    """Each prompt is sent streamed and whole; all have the same length."""
    return chat(
        f"{PREFIX}{number // 2 % NUM_PROMPTS}",
        stream=number % 2 == 0,
        max_tokens=MAX_TOKENS,
        ignore_eos=True,
        seed=7,
    )


def prompt_len() -> int:
    return len(f"{PREFIX}0") + len("user\n\nassistant\n") + 3  # the three special tokens


def text_of(number: int, response: httpx2.Response) -> str:
    if body(number)["stream"]:
        return check_chat_stream(response.content, num_choices=1).texts[0]
    answer = response.json()
    usage = answer["usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"]) == (prompt_len(), MAX_TOKENS)
    text: str = answer["choices"][0]["message"]["content"]
    return text


def check_refusal(response: httpx2.Response) -> None:
    assert response.status_code == 503
    assert int(response.headers["retry-after"]) >= 1
    error = error_of(response)
    assert (error["type"], error["code"]) == ("server_error", "server_is_overloaded")


async def send_64(path: WholePath) -> dict[int, httpx2.Response]:
    """Sends all while the engine is held, releases it when it is clear who is refused; gives the
    answers of the accepted ones."""
    num_before = len(path.engine.submitted)
    path.engine.hold()
    async with path.client() as client:
        requests = [
            asyncio.create_task(client.post(CHAT, json=body(number)))
            for number in range(NUM_REQUESTS)
        ]
        await until(lambda: sum(one.done() for one in requests) == NUM_REQUESTS - NUM_ACCEPTED)
        await until(lambda: len(path.engine.submitted) == num_before + NUM_ACCEPTED)
        refused = {number for number, one in enumerate(requests) if one.done()}
        path.engine.release()
        responses = dict(enumerate(await asyncio.gather(*requests)))
    for number in refused:
        check_refusal(responses[number])
    return {number: one for number, one in responses.items() if number not in refused}


async def test_of_64_requests_24_are_refused_and_the_others_finish_and_leave_nothing_behind() -> (
    None
):
    executor = FakeExecutor(PAGE_SIZE, VOCAB_SIZE)
    engine = byte_engine(executor, max_running=MAX_RUNNING)
    async with serving(
        engine,
        max_running=MAX_RUNNING,
        max_queue=MAX_QUEUE,
        max_queue_tokens=NUM_ACCEPTED * prompt_len(),
    ) as path:
        tasks = asyncio.all_tasks()
        # A place or a prompt token that the first round did not give back is missing in the next.
        for _ in range(2):
            answers = await send_64(path)
            assert [one.status_code for one in answers.values()] == [200] * NUM_ACCEPTED
            await until(lambda: asyncio.all_tasks() == tasks)
            engine.assert_idle()

    texts = {(number // 2 % NUM_PROMPTS, text_of(number, one)) for number, one in answers.items()}
    assert len(texts) == len({prompt for prompt, _ in texts}) == len({text for _, text in texts})
    assert max(len(batch.rows) for batch in executor.batches) == MAX_RUNNING
    counts = engine.cache.counts()
    assert counts.cached > len(PREFIX) // PAGE_SIZE
    assert engine.cache.flush() == counts.cached
    assert engine.cache.counts().free == counts.total
