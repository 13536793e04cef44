"""A Dataset and an IterableDataset with worker processes, samplers and a collate function."""

import torch
from common import report
from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset, WeightedRandomSampler, get_worker_info


class Squares(Dataset):
    def __init__(self, n):
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        return {"x": torch.tensor([float(i), i / 2]), "y": i * i, "name": f"item {i}"}


class Stream(IterableDataset):
    def __iter__(self):
        info = get_worker_info()
        start, step = (0, 1) if info is None else (info.id, info.num_workers)
        return iter(range(start, 12, step))


def collate(rows):
    return torch.stack([r["x"] for r in rows]).mean(0), [r["name"] for r in rows]


if __name__ == "__main__":
    for workers in (0, 2):
        for batch in DataLoader(Squares(10), batch_size=4, num_workers=workers, drop_last=False):
            report(batch["x"].sum(), batch["y"].sum(), len(batch["name"]))
    for mean, names in DataLoader(Subset(Squares(10), [1, 3, 5]), batch_size=2, collate_fn=collate):
        report(*mean, len(names))
    report(*sorted(int(x) for batch in DataLoader(Stream(), batch_size=3, num_workers=2) for x in batch))
    sampler = WeightedRandomSampler([0.0, 0.0, 1.0], num_samples=4, replacement=True)
    report(*[float(batch["y"]) for batch in DataLoader(Squares(3), sampler=sampler, batch_size=1)])
