"""The caching allocator: what it hands out, keeps, releases and counts; also across threads, streams and devices."""

import gc
import os
import subprocess
import sys
import threading

import numpy as np
import pytest

import miniflow as flow
from miniflow.backends.cuda import streams
from miniflow.backends.cuda.allocator import MIB, Allocator, memory_limit, readable, rounded
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
    assert current(allocator, *IN_USE) == (2, 514, 512 + 1024, 1536, 2)
    del a
    assert current(allocator, *IN_USE) == (1, 513, 1024, 1536, 2)
    del b
    assert current(allocator, *IN_USE) == (0, 0, 0, 1536, 2)
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
    again = allocator.allocate(900)
    assert again.address == address and again.memory.shape == (900,)
    assert current(allocator, "segment", "requested_bytes") == (1, 900)
    assert allocator.allocate(1000).address != address


def test_sizes_have_four_significant_bits():
    sizes = {n: rounded(n) for n in (*range(1, 20_000, 7), 3 * MIB, 3 * MIB + 1, 100 * MIB + 1)}
    for n, size in sizes.items():
        assert n <= size < n * 9 / 8 + 512 and size % 512 == 0
        assert size % (1 << (size.bit_length() - 4)) == 0 or size < 8192
    assert sizes[3 * MIB] == 3 * MIB and len({size for size in sizes.values() if 8192 < size <= 16384}) == 8


def test_empty_cache_keeps_what_is_in_use(allocator):
    a, b = allocator.allocate(100), allocator.allocate(12 * MIB)
    del b
    allocator.empty_cache()
    assert current(allocator, *IN_USE) == (1, 100, 512, 512, 1)
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
    assert "tensors hold 1.00 MiB and 0 bytes are cached of 4.00 MiB in all (MINIFLOW_DEVICE_MEMORY)" in message
    assert "smaller batch" in message and isinstance(caught.value, MemoryError)
    assert allocator.stats()["num_ooms"] == 1 and allocator.stats()["num_alloc_retries"] == 1
    del a, b
    assert allocator.allocate(3 * MIB).memory.size == 3 * MIB  # what was cached was released for it
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
    assert f"({3 * MIB - 4096}, {3 * MIB})" in result.stdout


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


def test_every_byte_is_accounted_for(allocator):
    draw = np.random.default_rng(0)
    held = []
    for _ in range(400):
        if held and draw.random() < 0.5:
            held.pop(int(draw.integers(len(held))))
        else:
            held.append(allocator.allocate(int(2 ** draw.uniform(0, 22))))
    in_use = sum(rounded(block.memory.size) for block in held)
    requested = sum(block.memory.size for block in held)
    assert current(allocator, "allocation", "requested_bytes", "allocated_bytes") == (len(held), requested, in_use)
    cached = [chunk.memory.size for chunks in allocator.cached.values() for chunk in chunks]
    assert cached and current(allocator, "segment", "reserved_bytes") == (len(held) + len(cached), in_use + sum(cached))
    allocator.empty_cache()
    assert current(allocator, "segment", "reserved_bytes") == (len(held), in_use)


def test_withdrawn_memory_is_not_handed_out(allocator):
    side = streams.Stream(0)
    with streams.stream(side):
        address = allocator.allocate(1000).address
        kept = allocator.withdraw(side)
        assert [chunk.memory.ctypes.data for chunk in kept] == [address]
        assert allocator.allocate(1000).address != address
    assert current(allocator, *IN_USE) == (0, 0, 0, 1024, 1)


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
