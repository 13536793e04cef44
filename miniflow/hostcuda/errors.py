"""What can go wrong with a kernel. Each error derives from the builtin it resembles."""

__all__ = """
    CudaDeviceError DivergentBarrierError KernelArgumentError KernelCheckError KernelIndexError KernelLaunchError
    UnsupportedKernelError
""".split()


class UnsupportedKernelError(NotImplementedError):
    """A kernel uses a construct that the host executor does not translate; the message names it and its line."""


class KernelLaunchError(ValueError):
    """A launch asks for what no GPU can do: too many threads, too much shared memory, a wrong configuration."""


class KernelArgumentError(TypeError):
    """An argument does not fit the kernel: their number, their types, or the device on which an array lies."""


class DivergentBarrierError(RuntimeError):
    """Threads of one block did not reach the same barrier: some took a branch around it, or left a loop early."""


class CudaDeviceError(RuntimeError):
    """A device does not exist, or an array of another device was used."""


class KernelCheckError(AssertionError):
    """The checked executor found races, accesses out of bounds, or other mistakes; `findings` lists them."""

    def __init__(self, message: str, findings: tuple = ()):
        super().__init__(message)
        self.findings = findings


class KernelIndexError(IndexError):
    """A kernel used an index outside of its array."""


class KernelReturnError(TypeError):
    """A kernel returns a value; only device functions can."""


class KernelTimeoutError(TimeoutError):
    """A thread seems to wait in a loop for another one that does not run before it ends."""


class DeviceArrayError(ValueError):
    """Shapes or layouts do not fit a transfer, a view, or an assignment to a device array."""


class DeviceArrayTypeError(TypeError):
    """The host asks of a device array what only a host array does, or the dtypes of a transfer differ."""


class ImplicitCopyWarning(UserWarning):
    """A NumPy array was passed to a kernel: on a GPU it is copied there and back at every launch."""


class CacheWarning(UserWarning):
    """Compiled kernels are not kept, so that every process compiles them again."""


class UnwrittenWarning(UserWarning):
    """Elements of a device array that no kernel wrote, as the checks saw, are copied to the host."""
