"""/metrics as numbers."""

import httpx2
from prometheus_client.parser import text_string_to_metric_families


async def scrape(client: httpx2.AsyncClient) -> dict[str, float]:
    """Samples without labels by name, those of kv_pages by name and state."""
    text = (await client.get("/metrics")).text
    samples = [s for family in text_string_to_metric_families(text) for s in family.samples]
    return {
        "/".join((sample.name, *sample.labels.values())): sample.value
        for sample in samples
        if set(sample.labels) <= {"state"}
    }
