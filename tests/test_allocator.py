"""The caching allocator: what it hands out, keeps, joins and counts; also across threads, streams and devices."""

import gc
import os
import subprocess
import sys
import threading

import numpy as np
import pytest

import miniflow as flow
from miniflow.backends.cuda import streams
from miniflow.backends.cuda.allocator import LARGE_SEGMENT, MIB, SMALL_SEGMENT, Allocator, memory_limit, readable
from miniflow.errors import ArgumentError, OutOfMemoryError


@pytest.fixture
def allocator():
    return Allocator(0)


def current(allocator, *names):
    stats = allocator.stats()
    return tuple(stats[f"{name}.all.current"] for name in names)


IN_USE = ("allocation", "requested_bytes", "allocated_bytes", "reserved_bytes", "segment")


def test_sizes_are_rounded_and_counted(allocator):
    assert current(allocator, *IN_USE) == (0, 0, 0, 0, 0)
    a = allocator.allocate(1)
    b = allocator.allocate(513)
    assert a.memory.shape == (1,) and b.memory.shape == (513,) and a.memory.dtype == np.uint8
    assert current(allocator, *IN_USE) == (2, 514, 512 + 1024, SMALL_SEGMENT, 1)
    del a
    assert current(allocator, *IN_USE) == (1, 513, 1024, SMALL_SEGMENT, 1)
    del b
    assert current(allocator, *IN_USE) == (0, 0, 0, SMALL_SEGMENT, 1)
    stats = allocator.stats()
    assert stats["allocated_bytes.all.peak"] == 1536 and stats["allocation.all.peak"] == 2
    assert stats["allocated_bytes.all.allocated"] == stats["allocated_bytes.all.freed"] == 1536
    assert stats["allocation.all.allocated"] == stats["allocation.all.freed"] == 2
    assert stats["num_alloc_retries"] == stats["num_ooms"] == 0


def test_blocks_are_aligned_and_disjoint(allocator):
    blocks = [allocator.allocate(n) for n in (1, 700, 512, 3 * MIB, 40_000, 2 * MIB, 12 * MIB)]
    spans = sorted((block.address, block.address + block.memory.size) for block in blocks)
    assert all(start % 512 == 0 for start, _ in spans)
    assert all(end <= start for (_, end), (start, _) in zip(spans, spans[1:], strict=False))
    for value, block in enumerate(blocks):
        block.memory[:] = value
    assert all((block.memory == value).all() for value, block in enumerate(blocks))


def test_no_bytes_take_no_memory(allocator):
    block = allocator.allocate(0)
    assert block.memory.size == 0
    assert current(allocator, *IN_USE) == (0, 0, 0, 0, 0)


def test_memory_is_used_again(allocator):
    a = allocator.allocate(1000)
    address = a.address
    del a
    assert allocator.allocate(900).address == address
    assert current(allocator, "segment") == (1,)


def test_the_smallest_chunk_that_fits_is_taken(allocator):
    blocks = [allocator.allocate(n) for n in (4096, 512, 1024, 512, 2048, 512)]
    addresses = [block.address for block in blocks]
    del blocks[4], blocks[2], blocks[0]  # free: 4096, 1024, 2048 and the rest of the segment
    assert allocator.allocate(1024).address == addresses[2]
    kept = allocator.allocate(1500)
    assert kept.address == addresses[4]
    assert allocator.allocate(3000).address == addresses[0]


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1)])
def test_free_neighbours_join(allocator, order):
    blocks = dict(enumerate(allocator.allocate(SMALL_SEGMENT // 4) for _ in range(3)))
    rest = allocator.allocate(SMALL_SEGMENT // 4)
    first = blocks[0].address
    for index in order:
        del blocks[index]
    assert current(allocator, "segment", "allocation") == (1, 1)
    whole = allocator.allocate(MIB), allocator.allocate(SMALL_SEGMENT // 4)
    assert whole[0].address == first and current(allocator, "segment") == (1,)
    del whole, rest
    allocator.empty_cache()
    assert current(allocator, *IN_USE) == (0, 0, 0, 0, 0)


@pytest.mark.parametrize(
    "size, segment",
    [(1, SMALL_SEGMENT), (MIB, SMALL_SEGMENT), (MIB + 1, LARGE_SEGMENT), (10 * MIB - 512, LARGE_SEGMENT),
     (10 * MIB, 10 * MIB), (10 * MIB + 1, 12 * MIB), (33 * MIB, 34 * MIB)],
)  # fmt: skip
def test_segments(allocator, size, segment):
    block = allocator.allocate(size)
    assert current(allocator, "segment", "reserved_bytes") == (1, segment)
    assert block.memory.size == size


def test_small_and_large_requests_do_not_mix(allocator):
    large = allocator.allocate(2 * MIB)
    small = allocator.allocate(512)
    assert current(allocator, "segment", "reserved_bytes") == (2, LARGE_SEGMENT + SMALL_SEGMENT)
    del large, small


def test_a_large_chunk_keeps_a_rest_that_is_too_small_to_use(allocator):
    blocks = [allocator.allocate(10 * MIB - 512), allocator.allocate(9 * MIB + 512)]  # 1 MiB remains: not cut off
    assert current(allocator, "allocated_bytes") == (LARGE_SEGMENT,)
    assert [block.memory.size for block in blocks] == [10 * MIB - 512, 9 * MIB + 512]


def test_empty_cache_keeps_what_is_in_use(allocator):
    a, b = allocator.allocate(100), allocator.allocate(12 * MIB)
    del b
    allocator.empty_cache()
    assert current(allocator, *IN_USE) == (1, 100, 512, SMALL_SEGMENT, 1)
    a.memory[:] = 7
    assert (a.memory == 7).all()


def test_peaks_are_reset(allocator):
    a = allocator.allocate(5000)
    del a
    b = allocator.allocate(512)
    allocator.reset_peak()
    assert allocator.stats()["allocated_bytes.all.peak"] == 512
    c = allocator.allocate(512)
    assert allocator.stats()["allocated_bytes.all.peak"] == 1024
    del b, c


def test_out_of_memory():
    allocator = Allocator(0, limit=4 * MIB)
    a = allocator.allocate(MIB)
    b = allocator.allocate(512)
    with pytest.raises(OutOfMemoryError, match="cuda:0 is out of memory: got a request for 3.00 MiB") as caught:
        allocator.allocate(3 * MIB)
    message = str(caught.value)
    assert "tensors hold 1.00 MiB and 1023.50 KiB are cached of 4.00 MiB in all (MINIFLOW_DEVICE_MEMORY)" in message
    assert "smaller batch" in message and isinstance(caught.value, MemoryError)
    assert allocator.stats()["num_ooms"] == 1 and allocator.stats()["num_alloc_retries"] == 1
    del a, b
    assert allocator.allocate(3 * MIB).memory.size == 3 * MIB  # the cached segment was released for it
    assert current(allocator, "reserved_bytes") == (3 * MIB,)


def test_a_request_that_fills_the_device_exactly():
    allocator = Allocator(0, limit=3 * MIB)
    block = allocator.allocate(3 * MIB)
    assert current(allocator, *IN_USE) == (1, 3 * MIB, 3 * MIB, 3 * MIB, 1)
    del block


def test_the_memory_of_a_device_is_set_from_outside(monkeypatch):
    monkeypatch.setenv("MINIFLOW_DEVICE_MEMORY", "12345")
    assert memory_limit() == 12345
    monkeypatch.setenv("MINIFLOW_DEVICE_MEMORY", "12 GB")
    with pytest.raises(ArgumentError, match="MINIFLOW_DEVICE_MEMORY: got '12 GB'; expected a number of bytes"):
        memory_limit()
    monkeypatch.delenv("MINIFLOW_DEVICE_MEMORY")
    assert memory_limit() is None


def test_out_of_memory_as_a_program_meets_it():
    code = """
import miniflow as flow
x = flow.zeros(1000, device="cuda")
try:
    flow.empty(2**20, device="cuda")
except MemoryError as error:
    print(error)
print(flow.cuda.mem_get_info())
"""
    environment = {**os.environ, "MINIFLOW_DEVICE_MEMORY": str(3 * MIB), "MINIFLOW_CUDA": "host"}
    result = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert "got a request for 4.00 MiB; tensors hold 4.00 KiB" in result.stdout
    assert f"({MIB}, {3 * MIB})" in result.stdout


def test_each_stream_has_its_own_memory(allocator):
    a = allocator.allocate(1000)
    address = a.address
    del a
    side = streams.Stream(0)
    with streams.stream(side):
        b = allocator.allocate(1000)
    assert b.address != address and current(allocator, "segment") == (2,)
    assert allocator.allocate(1000).address == address


class _Gate:
    """A stream whose event is over when the test says so."""

    done = False

    def record_event(self):
        return self

    def query(self):
        return self.done


def test_memory_waits_for_the_other_streams_that_use_it(allocator):
    gate = _Gate()
    a = allocator.allocate(1000)
    address = a.address
    a.record_stream(gate)
    del a
    b = allocator.allocate(1000)
    assert b.address != address and current(allocator, "allocation") == (2,)
    gate.done = True
    assert allocator.allocate(1000).address == address
    assert current(allocator, "allocation") == (1,)


def test_threads(allocator):
    mistakes = []

    def work(seed):
        draw = np.random.default_rng(seed)
        held = []
        for step in range(300):
            block = allocator.allocate(int(draw.integers(1, 5000)))
            block.memory[:] = (seed + step) % 251
            held.append((block, (seed + step) % 251))
            if len(held) > 20 or draw.random() < 0.3:
                block, value = held.pop(int(draw.integers(len(held))))
                if not (block.memory == value).all():
                    mistakes.append((seed, step))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    gc.collect()
    assert mistakes == []
    assert current(allocator, "allocation", "allocated_bytes", "requested_bytes") == (0, 0, 0)
    assert allocator.stats()["allocation.all.allocated"] == 1800
    allocator.empty_cache()
    assert current(allocator, "reserved_bytes") == (0,)


@pytest.mark.few(3)
@pytest.mark.parametrize("seed", range(3))
def test_every_byte_is_accounted_for(allocator, seed):
    """The chunks of a segment tile it, no two free ones are neighbours, and the free ones are in their pool."""
    draw = np.random.default_rng(seed)
    held = []
    for _ in range(400):
        if held and draw.random() < 0.5:
            held.pop(int(draw.integers(len(held))))
        else:
            held.append(allocator.allocate(int(2 ** draw.uniform(0, 22))))
    allocator.stats()
    firsts = set()
    for chunk in [block.chunk for block in held] + [e[2] for pool in allocator.pools.values() for e in pool.free]:
        while chunk.before is not None:
            chunk = chunk.before
        firsts.add(chunk)
    total = in_use = 0
    for chunk in firsts:
        position = 0
        while chunk is not None:
            assert chunk.start == position
            assert not (chunk.free and chunk.after is not None and chunk.after.free)
            assert chunk.free == ((chunk.size, id(chunk), chunk) in chunk.pool.free)
            position += chunk.size
            in_use += 0 if chunk.free else chunk.size
            last, chunk = chunk, chunk.after
        assert position == last.segment.size
        total += position
    assert current(allocator, "reserved_bytes", "allocated_bytes") == (total, in_use)


def test_readable():
    sizes = 5, 1536, MIB * 3 // 2, 2 << 30
    assert [readable(n) for n in sizes] == ["5 bytes", "1.50 KiB", "1.50 MiB", "2.00 GiB"]


# as flow.cuda shows it


def test_tensors_hold_memory_until_their_last_view_is_gone():
    before = flow.cuda.memory_allocated()
    x = flow.from_numpy(np.arange(1000.0)).cuda()
    assert flow.cuda.memory_allocated() == before + 8192
    view = x[10:20]
    alias = x.detach()
    del x
    assert flow.cuda.memory_allocated() == before + 8192
    del alias
    assert view.tolist() == list(range(10, 20))
    del view
    assert flow.cuda.memory_allocated() == before


def test_the_peak():
    flow.cuda.reset_peak_memory_stats()
    before = flow.cuda.memory_allocated()
    assert flow.cuda.max_memory_allocated() == before
    for _ in range(3):
        flow.empty(1024, device="cuda")
    assert flow.cuda.max_memory_allocated() == before + 4096
    assert flow.cuda.max_memory_reserved() >= flow.cuda.memory_reserved() >= flow.cuda.memory_allocated() == before


def test_summary():
    kept = flow.empty(1024, device="cuda")
    lines = flow.cuda.memory_summary().splitlines()
    assert lines[0].startswith("cuda:0") and ("(emulated)" in lines[0]) == flow.cuda.is_emulated()
    assert [line.split("  ")[0] for line in lines[2:]] == [
        "allocated bytes", "requested bytes", "reserved bytes", "allocation", "segment"
    ]  # fmt: skip
    assert readable(flow.cuda.memory_allocated()) in lines[2]
    free, total = flow.cuda.mem_get_info()
    assert 0 < free < total
    del kept
