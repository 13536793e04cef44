"""The last batch is left out if it is smaller, always.

rejected by: test_loader
message: batches of [4, 4, 3] samples, got 2
"""


class Loader(Loader):
    def __iter__(self):
        samples = []
        for index in self.order:
            samples.append(self.dataset[index])
            if len(samples) == self.size:
                yield collate(samples)
                samples = []
