"""The transformation gets the stored image itself: what it writes stays, and adds up from epoch to epoch.

rejected by: test_samples
message: it gets a copy of the stored image each time
"""


class Digits(Digits):
    def __getitem__(self, index):
        image = self.images[index]
        if self.transform is not None:
            image = self.transform(image)
        return image, int(self.labels[index])
