"""What the metrics of an app are told once, when it is built: whose figures to read, what counts
as good and what tokens cost.
"""

from pathlib import Path

from gateway.registry import ModelRegistry
from gateway.settings import Settings, SettingsError, variable_of
from runtime.messages import EngineStats
from runtime.token_engine import EngineState, TokenEngine
from telemetry.goodput import Slo
from telemetry.metrics import BuildInfo, Metrics
from telemetry.prices import ANY_MODEL, PriceFileError, PriceTable, read_price_file


def connect_metrics(
    metrics: Metrics,
    settings: Settings,
    *,
    models: ModelRegistry,
    engine: TokenEngine,
    version: str,
) -> None:
    """Raises: SettingsError for a price file that cannot be used."""
    metrics.set_engine_source(lambda: _stats_of(engine))
    metrics.set_build_source(lambda: _build_of(engine, models, version=version))
    metrics.set_slo(Slo.of_ms(ttft_ms=settings.slo_ttft_ms, tpot_ms=settings.slo_tpot_ms))
    if settings.price_file is not None:
        metrics.set_prices(_prices(Path(settings.price_file), models))


def _stats_of(engine: TokenEngine) -> EngineStats | None:
    """None while it takes no requests: its last gauges are then nobody's."""
    return engine.stats if engine.state is EngineState.READY else None


def _build_of(engine: TokenEngine, models: ModelRegistry, *, version: str) -> BuildInfo | None:
    info = engine.info
    if info is None:
        return None
    return BuildInfo(version, ",".join(models.ids), dtype=info.dtype, device=info.device)


def _prices(path: Path, models: ModelRegistry) -> PriceTable:
    """A model that is served for nothing has that price: one without a price is a mistake."""
    try:
        prices = read_price_file(path)
    except PriceFileError as error:
        raise SettingsError(f"{variable_of('price_file')}: {error}") from None
    for model_id in models.ids:
        if prices.of(model_id) is None:
            raise SettingsError(
                f"{variable_of('price_file')}: {path}: no price for the model {model_id!r} that is"
                f' served; add it, or "{ANY_MODEL}" for all'
            )
    return prices
