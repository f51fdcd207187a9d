"""Runs one program and notes when each line of its output came and how much it had read by then.

Both engines are watched in the same way: by lines on standard output and by the kernel's count of the
bytes that the process has read from drives (faults of mapped files and read-ahead included).
"""
import bisect
import os
import signal
import subprocess
import threading
import time
from dataclasses import dataclass, field

INTERVAL = 0.02  # seconds between two looks at the count of bytes


class RunError(Exception):
    """A run that gave no result: what it was, how it ended, the end of what it said."""


@dataclass
class Watched:
    lines: list = field(default_factory=list)  # (seconds since the start, text)
    reads: list = field(default_factory=list)  # (seconds since the start, bytes read so far), ascending
    other_cores: float = 0  # processors that everything else on the machine kept busy
    complaint: str = ""  # how it failed; empty when it did not
    said: str = ""  # on standard error

    def bytes_at(self, seconds: float) -> float:
        """Between two looks the bytes are taken to come evenly."""
        if not self.reads:
            return 0
        after = bisect.bisect_left(self.reads, (seconds,))
        if after == 0:
            return self.reads[0][1]
        if after == len(self.reads):
            return self.reads[-1][1]
        (t0, b0), (t1, b1) = self.reads[after - 1], self.reads[after]
        return b0 + (b1 - b0) * (seconds - t0) / max(t1 - t0, 1e-9)

    def bytes_between(self, begin: float, end: float) -> float:
        return self.bytes_at(end) - self.bytes_at(begin)


def bytes_read(pid: int):
    try:
        with open(f"/proc/{pid}/io", encoding="ascii") as counts:
            for line in counts:
                if line.startswith("read_bytes:"):
                    return int(line.split()[1])
    except (OSError, ProcessLookupError):
        pass
    return None


def busy_seconds() -> float:
    """Of all processors, since the machine was started."""
    with open("/proc/stat", encoding="ascii") as stat:
        user, nice, system, _, _, irq, softirq = (int(x) for x in stat.readline().split()[1:8])
    return (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")


def watch(command, timeout: float, group=None) -> Watched:
    """Runs `command`, in the memory group when one is given. Never raises for what the program does."""
    result = Watched()
    busy = busy_seconds()
    start = time.monotonic()
    try:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True, errors="replace", start_new_session=True,
            preexec_fn=group.enter if group is not None else None)
    except (OSError, subprocess.SubprocessError) as error:
        result.complaint = f"could not be started: {error}"
        return result
    errors = []
    overdue = threading.Event()

    def collect_errors():
        errors.extend(process.stderr)

    def look():
        while process.returncode is None:
            count = bytes_read(process.pid)
            if count is not None:
                result.reads.append((time.monotonic() - start, count))
            time.sleep(INTERVAL)

    def end_it():
        overdue.set()
        os.killpg(process.pid, signal.SIGKILL)

    threads = [threading.Thread(target=collect_errors), threading.Thread(target=look)]
    timer = threading.Timer(timeout, end_it)
    for thread in (*threads, timer):
        thread.start()
    try:
        for line in process.stdout:
            result.lines.append((time.monotonic() - start, line.rstrip("\n")))
        # Not yet reaped, so the group's id cannot belong to another process when the timer ends it.
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        timer.cancel()
        timer.join()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    finally:
        if process.returncode is None:  # interrupted: nothing is left behind
            timer.cancel()
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        for thread in threads:
            thread.join()
        process.stdout.close()
        process.stderr.close()
    seconds = time.monotonic() - start
    own = usage.ru_utime + usage.ru_stime
    result.other_cores = max(0.0, (busy_seconds() - busy - own) / seconds)
    result.said = "".join(errors)
    if overdue.is_set():
        result.complaint = f"took longer than {timeout:.0f} s"
    elif group is not None and group.killed():
        result.complaint = "was ended by the kernel: it needs more than the memory that it was given"
    elif process.returncode != 0:
        result.complaint = f"ended with status {process.returncode}"
    return result
