"""/metrics as numbers, and waiting for one of them."""

import asyncio

import httpx2
from prometheus_client.parser import text_string_to_metric_families

from tests.e2e.server_process import POLL_S


async def scrape(client: httpx2.AsyncClient) -> dict[str, float]:
    """Samples without labels by name, those of kv_pages by name and state."""
    text = (await client.get("/metrics")).text
    samples = [s for family in text_string_to_metric_families(text) for s in family.samples]
    return {
        "/".join((sample.name, *sample.labels.values())): sample.value
        for sample in samples
        if set(sample.labels) <= {"state"}
    }


async def until_running(
    client: httpx2.AsyncClient, num_requests: int, *, timeout_s: float = 30.0
) -> None:
    """Returns once the engine runs so many requests. Raises: TimeoutError."""
    async with asyncio.timeout(timeout_s):
        while (await scrape(client))["radixgate_requests_running"] != num_requests:  # noqa: ASYNC110
            await asyncio.sleep(POLL_S)
