"""What the cost of the HTTP layer is made of: arrivals, emissions, looks at the clocks."""

import os
import socket
import threading
import time

import pytest

from runtime.messages import Sampling, Submit
from tests.bench.http_layer import Look, Watch, chat_request, evaluate, process_seconds
from tests.bench.stream_recorder import Arrivals, BadStream, Recording, record_streams
from tests.bench.token_source import Emissions, TokenSource

MS = 1_000_000
HEAD = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
ROLE = b'data: {"choices":[{"delta":{"role":"assistant","content":""}}]}\n\n'
WORD = b'data: {"choices":[{"index":0,"delta":{"content":"word"}}]}\n\n'
DONE = b"data: [DONE]\n\n"
END = b"0\r\n\r\n"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def recording(*pieces: tuple[int, bytes]) -> Recording:
    return Recording([at_ms * MS for at_ms, _ in pieces], [data for _, data in pieces])


WHOLE = ((0, HEAD + chunk(ROLE)), (7, chunk(WORD)), (12, chunk(WORD)), (13, chunk(DONE) + END))


def test_a_token_is_there_with_the_last_byte_of_its_frame() -> None:
    word = chunk(WORD)
    pieces = (0, HEAD + chunk(ROLE) + word[:40]), (5, word[40:] + word + word[:9]), (9, word[9:])
    found = recording(*pieces, (11, chunk(DONE) + END)).read(["word"])
    assert found == Arrivals([5 * MS, 5 * MS, 9 * MS], 3)


def test_tokens_that_came_in_one_chunk_are_told_apart_by_their_texts() -> None:
    pieces = (0, HEAD + chunk(ROLE)), (3, chunk(WORD.replace(b"word", b'a \\"')))
    later = (4, chunk(WORD.replace(b"word", b"ca"))), (5, chunk(DONE) + END)
    found = recording(*pieces, *later).read(["a", ' "', "c"])
    assert found == Arrivals([3 * MS, 3 * MS, 4 * MS, 4 * MS], 2)
    with pytest.raises(BadStream, match="after 2 tokens"):
        recording(*pieces, *later).read(["a", ' "', "d"])


@pytest.mark.parametrize(
    "pieces",
    [
        [(0, b"HTTP/1.1 400 Bad Request\r\n\r\n" + chunk(DONE) + END)],
        [(0, HEAD + chunk(WORD) + chunk(DONE))],
        [(0, HEAD + chunk(WORD) + END)],
        [(0, HEAD + chunk(DONE) + chunk(DONE) + END)],
    ],
)
def test_an_answer_that_is_not_whole_measures_nothing(pieces: list[tuple[int, bytes]]) -> None:
    with pytest.raises(BadStream):
        recording(*pieces).read(["word"])


def watch(*looks: Look) -> Watch:
    made = Watch(gateway=0, source=0)
    made.looks.extend(looks)
    return made


def test_cost_is_of_the_time_after_the_warm_up() -> None:
    three = recording(*WHOLE[:2], (12, chunk(WORD)), (19, chunk(WORD) + chunk(DONE) + END))
    emissions = Emissions([4 * MS, 10 * MS, 18 * MS], [4 * MS, 9 * MS, 17 * MS], ["word"])
    looks = watch(
        Look(0, 1.0, 1.0, 2.0, 8.0),
        Look(8 * MS, 5.0, 1.0, 2.0, 8.0),
        Look(18 * MS, 5.005, 1.001, 2.002, 8.01),
        Look(99 * MS, 9.0, 9.0, 9.0, 99.0),
    )
    cost = evaluate([three], emissions, looks, num_warm=1)
    assert (cost.num_expected, cost.num_delivered, cost.num_chunks) == (3, 3, 3)
    assert (cost.added_p50_ms, cost.added_p99_ms, cost.late_p99_ms) == (1.5, 2, 1)
    assert cost.gateway_us_a_token == pytest.approx(5_000)
    shares = (cost.gateway_share, cost.source_share, cost.client_share, cost.other_share)
    assert shares == pytest.approx((0.5, 0.1, 0.2, 0.2))


@pytest.mark.parametrize(
    ("emitted_ms", "gateway_s", "is_met"),
    [
        ([4, 10], 0.006, True),
        ([4, 10, 11], 0.006, False),  # one did not come
        ([4, 10], 0.009, False),
        ([-2, 10], 0.006, False),  # 9 ms late
    ],
)
def test_targets_are_all_tokens_in_time_and_cheap(
    emitted_ms: list[int], gateway_s: float, is_met: bool
) -> None:
    looks = watch(Look(-5 * MS, 0, 0, 0, 0), Look(8 * MS, gateway_s * 1.3, 0, 0, 0))
    emissions = Emissions([at * MS for at in emitted_ms], [0] * len(emitted_ms), ["word"])
    cost = evaluate([recording(*WHOLE)], emissions, looks, num_warm=0)
    assert cost.is_within_target is is_met


def test_the_clock_of_a_process_is_read_by_its_id() -> None:
    before = time.process_time()
    assert before <= process_seconds(os.getpid()) <= time.process_time()


def test_the_recorder_reads_all_streams_to_their_ends() -> None:
    answer = b"".join(data for _, data in WHOLE)
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer_all() -> None:
            connections = [listener.accept()[0] for _ in range(3)]
            for connection in connections:
                connection.recv(65536)
                connection.sendall(answer)
            for connection in connections:
                connection.close()

        server = threading.Thread(target=answer_all)
        server.start()
        looks: list[int] = []
        requests = [chat_request(number, 2) for number in range(3)]
        address = ("127.0.0.1", listener.getsockname()[1])
        found = record_streams(address, requests, timeout_s=5, look=lambda: looks.append(1))
        server.join()
    assert [len(each.read(["word"]).tokens_ns) for each in found] == [2, 2, 2]
    assert looks


def test_the_source_gives_each_stream_one_token_a_step_and_then_an_end() -> None:
    source = TokenSource([11, 12], num_streams=2, num_tokens=3, rate=1e6)
    for name in ("a", "b"):
        assert source.next_deadline_ns() is None
        source.submit(b"gateway", Submit(name, [1], Sampling(max_tokens=3)))
    assert [event.admitted for event in source.step()[b"gateway"]] == [True, True]
    assert not source.has_work()
    assert source.step() == {}
    source._first_due_ns = 0
    steps = [source.step()[b"gateway"] for _ in range(3)]
    assert [[event.token_ids for event in step] for step in steps] == [
        [[11]] * 2,
        [[12]] * 2,
        [[11]] * 2,
    ]
    assert [event.seq for step in steps for event in step] == [1, 1, 2, 2, 3, 3]
    assert [event.is_last for event in steps[-1]] == [True, True]
    assert source.is_over
    assert len(source.emitted_ns) == len(source.due_ns) == 3
