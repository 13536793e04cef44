"""Streams and events: all work is done at once, and events read a clock."""

import time

import numpy as np
import pytest

from miniflow.hostcuda import CudaDeviceError
from miniflow.hostcuda import host as cuda


def test_work_in_a_stream_is_done_in_order():
    stream = cuda.stream()
    with stream.auto_synchronize() as same:
        array = cuda.to_device(np.arange(3.0), stream=stream)
        array.copy_to_device(np.ones(3), stream=stream)
        found = array.copy_to_host(stream=stream)
    stream.synchronize()
    cuda.synchronize()
    assert same is stream and array.stream is stream
    np.testing.assert_array_equal(found, np.ones(3))


def test_default_streams_have_cudas_handles():
    assert [int(s()) for s in (cuda.default_stream, cuda.legacy_default_stream, cuda.per_thread_default_stream)] == [
        0,
        1,
        2,
    ]
    assert int(cuda.stream()) > 2 and cuda.stream().handle != cuda.default_stream().handle
    assert "Default stream of device 0" in repr(cuda.default_stream())


def test_events_measure_time():
    start, end = cuda.event(), cuda.event()
    start.record()
    time.sleep(0.02)
    end.record(cuda.stream())
    end.wait()
    end.synchronize()
    assert end.query()
    assert 20 <= cuda.event_elapsed_time(start, end) < 20_000
    assert start.elapsed_time(end) == -end.elapsed_time(start)


def test_events_without_a_time_are_refused():
    recorded = cuda.event()
    recorded.record()
    for start, end in ((recorded, cuda.event()), (cuda.event(), recorded)):
        with pytest.raises(CudaDeviceError, match="elapsed_time: an event was not recorded; call its record"):
            start.elapsed_time(end)


def test_cleanup_and_profiler_calls_are_accepted():
    with cuda.defer_cleanup(), cuda.profiling():
        array = cuda.to_device(np.ones(2))
        cuda.profile_start()
        cuda.profile_stop()
    np.testing.assert_array_equal(array.copy_to_host(), np.ones(2))
