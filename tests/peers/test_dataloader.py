"""The same loaders here and in torch give the same batches."""

import numpy as np
import pytest

import miniflow as flow

torch = pytest.importorskip("torch", reason="torch is not installed: pip install torch==2.13.0")


def stream_of(library):
    class Stream(library.utils.data.IterableDataset):
        def __iter__(self):
            worker = library.utils.data.get_worker_info()
            first, step = (0, 1) if worker is None else (worker.id, worker.num_workers)
            return iter(range(first, 19, step))

    return Stream()


CASES = {
    "in order": lambda library: dict(dataset=range(11), batch_size=4),
    "drop last": lambda library: dict(dataset=range(11), batch_size=4, drop_last=True),
    "single": lambda library: dict(dataset=[1.5, 2.5]),
    "unbatched": lambda library: dict(dataset=[np.arange(2), "a", 3, None], batch_size=None),
    "batch sampler": lambda library: dict(dataset=range(9), batch_sampler=[[3, 1], [8]]),
    "sampler": lambda library: dict(dataset=range(9), sampler=[3, 1, 8], batch_size=2),
    "structure": lambda library: dict(dataset=[{"a": (i, [float(i), str(i)])} for i in range(5)], batch_size=2),
    "stream": lambda library: dict(dataset=stream_of(library), batch_size=3),
    "stream, drop last": lambda library: dict(dataset=stream_of(library), batch_size=4, drop_last=True),
    "stream, unbatched": lambda library: dict(dataset=stream_of(library), batch_size=None),
}


def plain(batch):
    """A batch as Python values, with the type and dtype of every part."""
    if hasattr(batch, "tolist"):
        return str(batch.dtype).split(".")[-1], tuple(batch.shape), batch.tolist()
    if isinstance(batch, dict):
        return {key: plain(value) for key, value in batch.items()}
    if isinstance(batch, list | tuple) and batch and not isinstance(batch[0], str):
        return type(batch), [plain(item) for item in batch]
    if isinstance(batch, list | tuple):
        return list(batch)  # torch gives a list of strings at the top and a tuple of them below
    return batch


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize("case", CASES)
def test_same_batches(case, num_workers):
    ours, theirs = (
        [plain(batch) for batch in library.utils.data.DataLoader(num_workers=num_workers, **CASES[case](library))]
        for library in (flow, torch)
    )
    assert ours == theirs and ours


@pytest.mark.parametrize(("total", "lengths"), [(10, [0.33, 0.33, 0.34]), (11, [0.5, 0.25, 0.25]), (7, [3, 4])])
def test_same_sizes_of_random_splits(total, lengths):
    ours, theirs = ([len(part) for part in lib.utils.data.random_split(range(total), lengths)] for lib in (flow, torch))
    assert ours == theirs
