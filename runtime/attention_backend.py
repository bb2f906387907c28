"""What an attention backend is. Each owns the pages of keys and values and how a step is planned;
the executors and the decoder know none of them by name."""

from collections.abc import Iterable
from typing import Protocol, TypeVar

from torch import Tensor

from runtime.batch import PageCopy, ScheduledBatch
from runtime.page_io import PageIo

PlanT = TypeVar("PlanT")


class PageStore(Protocol):
    """Pages of keys and values of all layers."""

    @property
    def num_layers(self) -> int: ...

    def page_io(self) -> PageIo:
        """How whole pages leave as bytes and come back."""

    def copy_slots(self, copies: Iterable[PageCopy]) -> None:
        """Copies the first slots of pages in all layers, before the step that reads them."""

    def read_pages(self, layer: int, pages: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values of whole pages, [P, page_size, G, d] float32 each. pages: [P] long."""


class AttentionBackend(PageStore, Protocol[PlanT]):
    """Planned once a step, run once a layer."""

    def plan(self, batch: ScheduledBatch) -> PlanT:
        """Index tensors for the batch, whose tokens are laid out row after row."""

    def run(self, plan: PlanT, layer: int, *, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Writes k and v of the plan's tokens, attends. q: [M, H, d], k and v: [M, G, d], M at
        least the number of tokens: rows after them are padding, are not written and get 0.
        Returns [M, H * d]."""
