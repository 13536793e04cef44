"""The DataLoader's batches: which samples, in which order, with and without worker processes."""

import itertools
import random

import numpy as np
import pytest

import miniflow as flow
from miniflow.errors import ArgumentError, ArgumentTypeError
from miniflow.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    IterableDataset,
    SequentialSampler,
    SubsetRandomSampler,
    TensorDataset,
    get_worker_info,
)

WORKERS = [0, 1, 3]


class Squares(Dataset):
    def __init__(self, size):
        self.size = size

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        return index, index**2


class Shared(IterableDataset):
    """0 to size - 1, each read by one worker."""

    def __init__(self, size):
        self.size = size

    def __iter__(self):
        worker = get_worker_info()
        first, step = (0, 1) if worker is None else (worker.id, worker.num_workers)
        yield from range(first, self.size, step)


class Draws(Dataset):
    """Random numbers from every generator that a worker seeds, and the worker's seed."""

    def __len__(self):
        return 12

    def __getitem__(self, index):
        return random.random(), np.random.rand(), flow.rand(1).item(), get_worker_info().seed


def generator(seed=0):
    return flow.Generator().manual_seed(seed)


def values(loader):
    return [batch.tolist() for batch in loader]


@pytest.mark.parametrize("num_workers", WORKERS)
def test_batches_of_tensors(num_workers):
    x = np.random.default_rng(0).standard_normal((11, 2, 3)).astype(np.float32)
    dataset = TensorDataset(flow.from_numpy(x), flow.arange(11))
    batches = list(DataLoader(dataset, batch_size=4, num_workers=num_workers))
    assert [type(batch) for batch in batches] == [list] * 3
    assert [tuple(a.shape) for a, _ in batches] == [(4, 2, 3), (4, 2, 3), (3, 2, 3)]
    assert all(a.dtype is flow.float32 and b.dtype is flow.int64 for a, b in batches)
    np.testing.assert_array_equal(np.concatenate([a.numpy() for a, _ in batches]), x)
    assert [i for _, b in batches for i in b.tolist()] == list(range(11))
    batches[0][0].numpy()[...] = 0  # batches are fresh memory, which may be written
    assert x.all()


@pytest.mark.few(13)
@pytest.mark.parametrize("num_workers", WORKERS)
@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("batch_size", [5, 23, 40])
def test_every_sample_once_an_epoch(num_workers, shuffle, drop_last, batch_size):
    loader = DataLoader(Squares(23), batch_size, shuffle, drop_last=drop_last, num_workers=num_workers)
    for _ in range(2):
        batches = list(loader)
        assert len(batches) == len(loader) == (23 // batch_size if drop_last else -(-23 // batch_size))
        seen = [i for index, _ in batches for i in index.tolist()]
        assert len(seen) == (23 // batch_size * batch_size if drop_last else 23)
        assert sorted(set(seen)) == sorted(seen) and (shuffle or seen == list(range(len(seen))))
        assert [i for _, square in batches for i in square.tolist()] == [i**2 for i in seen]


def test_the_order_does_not_depend_on_the_workers():
    def epochs(num_workers, seed):
        loader = DataLoader(Squares(50), 4, shuffle=True, num_workers=num_workers, generator=generator(seed))
        return [[i for index, _ in loader for i in index.tolist()] for _ in range(2)]

    first = epochs(0, seed=7)
    assert first == epochs(1, seed=7) == epochs(3, seed=7)
    assert first[0] != first[1] and first != epochs(0, seed=8) and first[0] != sorted(first[0])
    flow.manual_seed(7)
    default = values(DataLoader(range(50), 4, shuffle=True))
    flow.manual_seed(7)
    assert values(DataLoader(range(50), 4, shuffle=True, num_workers=2)) == default


def test_the_workers_do_not_change_when_the_sampler_draws():
    orders = []
    for num_workers in (0, 2):
        source = generator(7)
        batches = iter(DataLoader(range(50), 50, shuffle=True, num_workers=num_workers, generator=source))
        flow.rand(3, generator=source)
        orders.append(next(batches).tolist())
    assert orders[0] == orders[1]


@pytest.mark.parametrize("num_workers", WORKERS)
def test_samplers(num_workers):
    def load(**options):
        return values(DataLoader(range(10), num_workers=num_workers, **options))

    assert load(sampler=[3, 3, 9], batch_size=2) == [[3, 3], [9]]
    assert load(batch_sampler=[[1], [2, 3], [9, 0, 4]]) == [[1], [2, 3], [9, 0, 4]]
    assert load(batch_sampler=BatchSampler(SequentialSampler(range(5)), 2, True)) == [[0, 1], [2, 3]]
    drawn = load(sampler=SubsetRandomSampler([4, 6, 8], generator=generator()), batch_size=3)
    assert [sorted(batch) for batch in drawn] == [[4, 6, 8]]
    assert load(batch_size=4, drop_last=True) == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert load(batch_size=2, collate_fn=lambda samples: flow.tensor([sum(samples)])) == [[1], [5], [9], [13], [17]]
    assert list(DataLoader([], num_workers=num_workers)) == []


@pytest.mark.parametrize("num_workers", WORKERS)
def test_without_batches(num_workers):
    samples = [np.arange(2), "text", (np.float32(1.5), None)]
    first, second, third = DataLoader(samples, batch_size=None, num_workers=num_workers)
    assert first.tolist() == [0, 1] and second == "text"
    assert type(third) is tuple and third[0].dtype is flow.float32 and third[1] is None
    loader = DataLoader(range(9), batch_size=None, shuffle=True, num_workers=num_workers)
    assert sorted(loader) == list(range(9)) and len(loader) == 9


def test_getitems_reads_a_batch_in_one_call():
    class Batched(Squares):
        def __getitems__(self, indices):
            return [(-index, index) for index in indices]

    first, _ = DataLoader(Batched(3), batch_size=2)
    assert [part.tolist() for part in first] == [[0, -1], [0, 1]]


@pytest.mark.parametrize("num_workers", WORKERS)
@pytest.mark.parametrize("size", [0, 2, 23, 24])
def test_an_iterable_dataset_that_shares_its_work(num_workers, size):
    loader = DataLoader(Shared(size), batch_size=4, num_workers=num_workers)
    for _ in range(2):
        seen = [i for batch in loader for i in batch.tolist()]
        assert sorted(seen) == list(range(size))
    single = list(DataLoader(Shared(size), batch_size=None, num_workers=num_workers))
    assert sorted(single) == list(range(size))


def test_an_iterable_dataset_in_workers_is_a_copy_each():
    class Stream(IterableDataset):
        def __iter__(self):
            return iter(range(3))

        def __len__(self):
            return 3

    seen = [i for batch in DataLoader(Stream(), batch_size=2, num_workers=2) for i in batch.tolist()]
    assert seen == [0, 1, 0, 1, 2, 2]
    assert len(DataLoader(Stream(), batch_size=2)) == 2 and len(DataLoader(Stream(), batch_size=2, drop_last=True)) == 1
    assert len(DataLoader(Stream(), batch_size=None)) == 3
    assert values(DataLoader(Stream(), batch_size=2, drop_last=True)) == [[0, 1]]
    assert values(DataLoader(Stream(), batch_size=2, drop_last=True, num_workers=2)) == [[0, 1], [0, 1]]
    with pytest.raises(TypeError, match="'Shared' has no len"):
        len(DataLoader(Shared(3)))


def test_an_iterable_dataset_without_end():
    class Endless(IterableDataset):
        def __iter__(self):
            return itertools.count(get_worker_info().id, 2)

    batches = itertools.islice(DataLoader(Endless(), batch_size=2, num_workers=2), 4)
    assert values(batches) == [[0, 2], [1, 3], [4, 6], [5, 7]]


def test_random_numbers_differ_between_workers_and_repeat_with_the_seed():
    def epoch(loader):
        return np.array([[column.item() for column in batch] for batch in loader])  # (12, 4)

    def fresh(seed, **options):
        return DataLoader(Draws(), num_workers=3, generator=generator(seed), **options)

    first, again, other = epoch(fresh(1)), epoch(fresh(1)), epoch(fresh(2))
    np.testing.assert_array_equal(first, again)
    for kind in range(3):
        assert len(set(first[:, kind])) == 12  # no two workers and no two samples draw the same
        assert not set(first[:, kind]) & set(other[:, kind])
    seeds = first[:3, 3]
    np.testing.assert_array_equal(seeds - seeds[0], [0, 1, 2])
    loader, persistent = fresh(1), fresh(1, persistent_workers=True)
    epochs = [epoch(loader), epoch(loader)]
    assert not set(epochs[0][:, 0]) & set(epochs[1][:, 0])
    np.testing.assert_array_equal(epochs, [epoch(persistent), epoch(persistent)])


def test_worker_info_and_init():
    class Info(Dataset):
        def __len__(self):
            return 4

        def __getitem__(self, index):
            worker = get_worker_info()
            return worker.id, worker.num_workers, worker.dataset is self, self.opened

    def open_in(worker_id):
        get_worker_info().dataset.opened = 10 + worker_id

    rows = [[column.item() for column in batch] for batch in DataLoader(Info(), num_workers=2, worker_init_fn=open_in)]
    assert rows == [[0, 2, True, 10], [1, 2, True, 11], [0, 2, True, 10], [1, 2, True, 11]]
    assert get_worker_info() is None


@pytest.mark.parametrize("num_workers", [1, 2])
def test_large_batches_and_large_index_lists(num_workers):
    """More bytes than a pipe holds, both ways at once."""

    class Large(Dataset):
        def __getitem__(self, index):
            return np.full((1 << 20,), index, np.float32)  # 4 MB

        def __getitems__(self, indices):
            return [self[indices[0]]]

    tasks = [[i] * 200_000 for i in range(8)]
    for i, batch in enumerate(DataLoader(Large(), batch_sampler=tasks, num_workers=num_workers, prefetch_factor=4)):
        assert batch.shape == (1, 1 << 20) and (batch.numpy() == i).all()
    assert i == 7


def test_batches_of_every_dtype_and_structure_travel():
    class Mixed(Dataset):
        def __len__(self):
            return 3

        def __getitem__(self, index):
            tensor = flow.tensor([[1.0, 2.0]])
            return {
                "half": flow.from_numpy(np.full((2, 2), index, flow.bfloat16.numpy)),
                "empty": np.zeros((0, 3), np.int32),
                "bool": index == 1,
                "nested": [(str(index), tensor * index)],
                "scalar": flow.tensor(float(index)),
            }

    here, there = (list(DataLoader(Mixed(), 2, num_workers=n)) for n in (0, 2))
    assert len(here) == len(there) == 2
    for a, b in zip(here, there, strict=True):
        assert list(a) == list(b) and a["nested"][0][0] == b["nested"][0][0]
        pairs = [(a[key], b[key]) for key in ("half", "empty", "bool", "scalar")] + [
            (a["nested"][0][1], b["nested"][0][1])
        ]
        for x, y in pairs:
            assert x.dtype is y.dtype and x.shape == y.shape and x.numpy().tobytes() == y.numpy().tobytes()


def test_a_data_set_may_reuse_the_memory_of_its_samples():
    class Reused(Dataset):
        buffer = np.zeros(1 << 20, np.int64)  # 8 MB, more than a socket holds

        def __len__(self):
            return 6

        def __getitem__(self, index):
            self.buffer[:] = index
            return self.buffer

    for index, sample in enumerate(DataLoader(Reused(), batch_size=None, num_workers=1, prefetch_factor=4)):
        assert (sample.numpy() == index).all()
    assert index == 5


def test_tensors_of_any_layout_travel():
    base = flow.arange(24).reshape(4, 6)
    samples = [base.T, base[::2, 1::3], base[1].expand(3, 6), base[2, 3], base[:0]]
    for sample, arrived in zip(samples, DataLoader(samples, batch_size=None, num_workers=1), strict=True):
        np.testing.assert_array_equal(arrived.numpy(), sample.numpy())
        assert arrived.shape == sample.shape


def test_samples_that_require_grad_arrive_as_values():
    weight = flow.tensor([[1.0], [2.0], [3.0]], requires_grad=True)
    batches = list(DataLoader(TensorDataset(weight), batch_size=2, num_workers=1))
    assert [batch.tolist() for (batch,) in batches] == [[[1.0], [2.0]], [[3.0]]]
    assert not batches[0][0].requires_grad


REFUSED = {
    "sampler and shuffle": (dict(sampler=[0], shuffle=True), "both sampler and shuffle=True"),
    "batch_sampler and batch_size": (dict(batch_sampler=[[0]], batch_size=2), "expected it alone"),
    "batch_sampler and shuffle": (dict(batch_sampler=[[0]], shuffle=True), "expected it alone"),
    "batch_sampler and drop_last": (dict(batch_sampler=[[0]], drop_last=True), "expected it alone"),
    "no batches and drop_last": (dict(batch_size=None, drop_last=True), "drop_last=True with batch_size=None"),
    "batch_size 0": (dict(batch_size=0), "batch_size=0; expected an integer above zero"),
    "batch_size 2.0": (dict(batch_size=2.0), "batch_size=2.0; expected an integer"),
    "num_workers": (dict(num_workers=-1), "num_workers=-1; expected a number of at least 0"),
    "timeout": (dict(timeout=-1, num_workers=1), "timeout=-1; expected a number of at least 0"),
    "prefetch_factor": (dict(prefetch_factor=0, num_workers=1), "prefetch_factor=0; expected an integer"),
}


def test_a_number_is_no_data_set():
    with pytest.raises(TypeError, match="DataLoader: got dataset=5; expected a Dataset, or a list of samples"):
        DataLoader(5)


@pytest.mark.parametrize(
    ("name", "expected"),
    [("collate_fn", "a function"), ("worker_init_fn", "a function"), ("generator", "a flow.Generator")],
)
def test_what_is_no_function_and_no_generator(name, expected):
    with pytest.raises(ArgumentTypeError, match=f"DataLoader: got {name}=3; expected {expected}, or None"):
        DataLoader(Squares(3), **{name: 3})


@pytest.mark.parametrize("name", REFUSED)
def test_arguments_that_make_no_sense(name):
    options, words = REFUSED[name]
    with pytest.raises(ArgumentError, match=words):
        DataLoader(Squares(3), **options)


@pytest.mark.parametrize("options", [dict(shuffle=True), dict(sampler=[0]), dict(batch_sampler=[[0]])])
def test_iterable_datasets_have_no_indices(options):
    with pytest.raises(ArgumentError, match="for an IterableDataset, which has no indices"):
        DataLoader(Shared(3), **options)


def test_a_worker_starts_no_workers():
    class Nested(Dataset):
        def __len__(self):
            return 1

        def __getitem__(self, index):
            return list(DataLoader(range(2), num_workers=1))

    with pytest.raises(AssertionError, match="daemonic processes are not allowed to have children"):
        list(DataLoader(Nested(), num_workers=1))
