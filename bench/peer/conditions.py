"""The conditions of a run: how much memory it may use, what of its files lies in memory when it begins,
and how far the kernel reads ahead.

Memory is limited by a control group (version 1 or 2); page cache that the run fills counts. Everything
that is changed is put back, also when a run fails. What needs root says so.
"""
import contextlib
import os
import time
from pathlib import Path

GROUPS = Path("/sys/fs/cgroup")
PAGE = 4096


class ConditionError(Exception):
    """Something that cannot be set here; the text says what and what to do."""


def written(path, value, what):
    try:
        Path(path).write_text(str(value))
    except OSError as error:
        raise ConditionError(f"cannot set {what}: {path}: {error.strerror}; run as root") from error


class MemoryGroup:
    """A control group of its own for one process; removed at the end of the `with` block."""

    def __init__(self, limit_bytes: int, root: Path = GROUPS):
        self.first_version = (root / "memory").is_dir()
        self.folder = (root / "memory" if self.first_version else root) / f"colibri_peer_{os.getpid()}"
        self.limit = limit_bytes // PAGE * PAGE

    def __enter__(self):
        try:
            self.folder.mkdir()
        except OSError as error:
            raise ConditionError(f"cannot make a memory control group: {self.folder}: {error.strerror}; "
                                 "run as root, or leave out the runs with limited memory") from error
        try:
            self.set_limits()
        except BaseException:  # also a signal: __exit__ is not called for a block that was not entered
            self.remove()
            raise
        return self

    def set_limits(self):
        name = "memory.limit_in_bytes" if self.first_version else "memory.max"
        if not (self.folder / name).exists():
            raise ConditionError(f"control groups here have no memory controller: {self.folder.parent}; "
                                 "enable it in cgroup.subtree_control")
        written(self.folder / name, self.limit, "the memory limit")
        # Pages that are swapped out would be memory that the limit does not see.
        for swap, value in (("memory.swap.max", 0), ("memory.memsw.limit_in_bytes", self.limit)):
            if (self.folder / swap).exists():
                written(self.folder / swap, value, "the limit of swap")

    def enter(self):
        """Called by the process that is to be limited, before it becomes the program."""
        (self.folder / "cgroup.procs").write_text(str(os.getpid()))

    def killed(self) -> bool:
        """Whether the kernel ended a process of the group because of its limit."""
        name = "memory.oom_control" if self.first_version else "memory.events"
        for line in (self.folder / name).read_text().splitlines():
            if line.startswith("oom_kill "):
                return int(line.split()[1]) > 0
        return False

    def remove(self):
        for _ in range(50):  # a group stays busy for a moment after its last process
            with contextlib.suppress(OSError):
                self.folder.rmdir()
                return
            time.sleep(0.1)

    def __exit__(self, *_):
        self.remove()


@contextlib.contextmanager
def readahead(file, kilobytes: int, devices: Path = Path("/sys/class/bdi")):
    """Reads of mapped files on the drive of `file` go this far ahead, within the block."""
    number = os.stat(file).st_dev
    setting = devices / f"{os.major(number)}:{os.minor(number)}" / "read_ahead_kb"
    try:
        before = setting.read_text().strip()
    except OSError as error:
        raise ConditionError(f"cannot see how far the drive reads ahead: {setting}: {error.strerror}; "
                             "put the GGUF on a file system with a device of its own") from error
    try:
        written(setting, kilobytes, "how far the drive reads ahead")
        yield
    finally:
        written(setting, before, "how far the drive reads ahead")


def bring_into_memory(files) -> None:
    for path in files:
        with open(path, "rb", buffering=0) as file:
            while file.read(1 << 24):
                pass


def drop_from_memory(files) -> None:
    """Takes the files out of the page cache, so that what lies there is not memory beside the limit."""
    for path in files:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fdatasync(descriptor)  # pages that wait to be written would stay
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)
