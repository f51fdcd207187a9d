#!/usr/bin/env python3
"""Compares colibri with llama.cpp on the processors of this machine: the same model, width of weights,
number of threads and tokens, in alternation, as ratios with their spread. README.md beside this file says
how to get what it needs and what makes the numbers honest.

  peer.py --llama BIN_FOLDER --gguf MODEL.gguf --colibri build/release/bin/colibri --container MODEL
"""
import argparse
import contextlib
import fcntl
import json
import os
import signal
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

import conditions
import ratios
from engines import Case, Colibri, Llama, PREFILL, decode_case, llama_case
from models import ModelError, check_same, read_container, read_gguf
from watched import RunError, watch

READAHEADS = (128, 8192)  # KiB: Linux's default, and what suits large models
MICRO_BATCHES = (512, 2048)  # rows that llama.cpp takes through the model at a time, in a prefill job


def arguments(argv):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--llama", required=True, metavar="FOLDER",
                        help="folder with llama-bench and llama-batched-bench")
    parser.add_argument("--gguf", required=True, help="the model for llama.cpp")
    parser.add_argument("--colibri", required=True, metavar="PROGRAM", help="the colibri program")
    parser.add_argument("--container", required=True, metavar="FOLDER", help="the same model for colibri")
    parser.add_argument("--threads", type=positive, default=len(os.sched_getaffinity(0)),
                        help="of both engines; all processors when left out")
    parser.add_argument("--rounds", type=positive, default=3)
    parser.add_argument("--memory", default="all,50%,25%", metavar="LIST",
                        help="all: the model in memory; 25%%: a share of the GGUF, needs root; "
                             "default all,50%%,25%%")
    parser.add_argument("--cases", default="", metavar="LIST",
                        help="of prefill, job and sizes of batches; default prefill,128,32,8,1 in memory and "
                             "job,1024,128,32,1 with limited memory")
    parser.add_argument("--results", metavar="FILE", help="JSON lines to which each run is added; the table "
                        "is of all runs in it, so that a comparison can be made in several sittings")
    parser.add_argument("--timeout", type=positive, default=600, metavar="SECONDS", help="of one run")
    parser.add_argument("--lock", metavar="FILE", help="held exclusively (flock) during the runs of a round "
                        "and case, for machines on which others measure too")
    return parser.parse_args(argv)


def positive(text):
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"expected 1 or more: {text}")
    return value


def program(path) -> Path:
    path = Path(path).absolute()
    if not (path.is_file() and os.access(path, os.X_OK)):
        raise ModelError(f"no such program: {path}; README.md says how to build it")
    return path


def shares(text) -> list:
    """None for all of the memory, else a share of the model."""
    result = []
    for part in text.split(","):
        if part == "all":
            result.append(None)
            continue
        try:
            share = float(part.removesuffix("%")) / 100
        except ValueError:
            share = 0
        if not part.endswith("%") or not 0 < share <= 2:
            raise ModelError(f"--memory: expected all or a share such as 25%: {part}")
        result.append(share)
    return result


def cases(text, limited: bool) -> list:
    names = text.split(",") if text else (
        ["job", "1024", "128", "32", "1"] if limited else ["prefill", "128", "32", "8", "1"])
    result = []
    for name in names:
        if name == "prefill" and not limited:
            result.append(Case("prefill", 3, PREFILL, 0))
        elif name in ("job", "prefill"):
            result.append(Case("job", 8, PREFILL, 0))
        elif name.isdigit() and 0 < int(name) <= 4096:
            result.append(decode_case(int(name), 0.25 if limited else 1))
        else:
            raise ModelError(f"--cases: expected prefill, job or the size of a batch up to 4096: {name}")
    return result


def json_report(what: str, text: str) -> dict:
    try:
        return json.loads(text)
    except ValueError as error:
        raise RunError(f"{what} is no JSON: {error}") from error


class Comparison:
    def __init__(self, options, container, gguf, folder: Path):
        self.options, self.container, self.gguf, self.folder = options, container, gguf, folder
        self.llama = Llama(Path(options.llama).absolute(), gguf.path, options.threads)
        self.colibri = Colibri(program(options.colibri), container.path, options.threads,
                               container.shape.vocab)

    def limit(self, share: float, case: Case) -> int:
        """The share of the model, and the keys and values of the case."""
        kept = self.container.shape.kv_bytes(case.sequences, case.positions)
        return int(share * self.gguf.bytes) + kept

    def run_colibri(self, case: Case, share):
        requests, profile = self.folder / "requests.jsonl", self.folder / "profile.json"
        requests.write_text(self.colibri.requests(case), encoding="utf-8")
        profile.unlink(missing_ok=True)
        if share is None:
            watched = watch(self.colibri.command(case, requests, "100%", profile), self.options.timeout)
        else:
            planned = watch(self.colibri.plan_command(case), self.options.timeout)
            if planned.complaint:
                raise RunError(f"colibri plan: {planned.complaint}\n    {planned.said.strip()}")
            plan = json_report("colibri plan", "\n".join(line for _, line in planned.lines))
            dynamic = self.colibri.dynamic_bytes(case, plan)
            conditions.drop_from_memory(self.container.files)
            with conditions.MemoryGroup(self.limit(share, case)) as group:
                watched = watch(self.colibri.command(case, requests, "auto", profile, dynamic),
                                self.options.timeout, group)
        self.log(f"colibri, {case.name}", watched)
        report = json_report("colibri's profile", profile.read_text(encoding="utf-8")) if profile.exists() else {}
        yield "", self.colibri.measured(case, watched, report)

    def run_llama(self, case: Case, share):
        asked, case = case, llama_case(case)
        few = f", batch {case.sequences}" if case != asked else ""
        if share is None:
            conditions.bring_into_memory([self.gguf.path])
            watched = watch(self.llama.command(case, limited=False), self.options.timeout)
            self.log(f"llama.cpp, {case.name}", watched)
            yield few.removeprefix(", "), self.llama.measured(case, watched)
            return
        for kilobytes in READAHEADS:
            for micro_batch in MICRO_BATCHES if case.kind == "job" else MICRO_BATCHES[:1]:
                conditions.drop_from_memory([self.gguf.path])
                with conditions.MemoryGroup(self.limit(share, case)) as group, \
                        conditions.readahead(self.gguf.path, kilobytes):
                    watched = watch(self.llama.command(case, True, micro_batch), self.options.timeout, group)
                setting = f"{kilobytes} KiB readahead"
                if case.kind == "job":
                    setting += f", ubatch {micro_batch}"
                self.log(f"llama.cpp, {case.name}, {setting}", watched)
                try:
                    yield setting + few, self.llama.measured(case, watched, micro_batch)
                except RunError as error:  # the other settings may do
                    print(f"{error} ({setting})", file=sys.stderr)

    def log(self, title: str, watched) -> None:
        """What an engine said goes beside the results: colibri's table tells where its time went."""
        if self.options.results:
            with open(self.options.results + ".log", "a", encoding="utf-8") as file:
                file.write(f"=== {title}\n{watched.said}\n")

    def round(self, number: int, case: Case, share) -> list:
        """Both engines once; who begins alternates."""
        place = "in memory" if share is None else f"{share:.0%} of the model in memory"
        sides = [("colibri", self.run_colibri), ("llama.cpp", self.run_llama)]
        runs = []
        for engine, run in sides if number % 2 == 0 else reversed(sides):
            try:
                for setting, measured in run(case, share):
                    runs.append(ratios.Run(
                        self.gguf.path.stem, place, case.name, engine, setting, number, measured.rate,
                        measured.bytes_a_step, measured.bytes / measured.seconds, measured.other_cores))
                    print(f"round {number + 1}, {place}: {engine}, {case.name}: {measured.rate:.1f} tokens/s"
                          + (f" ({setting})" if setting else ""), file=sys.stderr)
            except RunError as error:
                print(error, file=sys.stderr)
        return runs


@contextlib.contextmanager
def locked(path):
    if not path:
        yield
        return
    with open(path, "a", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def earlier_runs(path) -> list:
    if not path or not os.path.exists(path):
        return []
    try:
        with open(path, encoding="utf-8") as file:
            return [ratios.Run(**json.loads(line)) for line in file if line.strip()]
    except (ValueError, TypeError) as error:
        raise ModelError(f"not results of this program: {path}: {error}") from error


def compare(options, container, gguf, runs: list) -> bool:
    """Adds the runs of all rounds to `runs`; whether every one gave a result for both engines."""
    complete = True
    before = max((run.round for run in runs), default=-1) + 1  # rounds of earlier sittings stay apart
    with tempfile.TemporaryDirectory(prefix="colibri_peer_") as folder:
        comparison = Comparison(options, container, gguf, Path(folder))
        for number in range(before, before + options.rounds):
            for share in shares(options.memory):
                for case in cases(options.cases, share is not None):
                    with locked(options.lock):
                        new = comparison.round(number, case, share)
                    complete &= len({run.engine for run in new}) == 2
                    runs += new
                    if options.results:
                        with open(options.results, "a", encoding="utf-8") as file:
                            file.writelines(json.dumps(asdict(run)) + "\n" for run in new)
    return complete


def main(argv=None) -> int:
    options = arguments(argv)
    # Ends as an interrupt does: the engine is ended too, and what was changed on the machine is put back.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        for name in ("llama-bench", "llama-batched-bench"):
            program(Path(options.llama) / name)
        program(options.colibri)
        for share in shares(options.memory):
            cases(options.cases, share is not None)
        container, gguf = read_container(options.container), read_gguf(options.gguf)
        check_same(container, gguf)
        runs = earlier_runs(options.results)
        complete = compare(options, container, gguf, runs)
    except (ModelError, conditions.ConditionError) as error:
        print(f"peer: {error}", file=sys.stderr)
        return 2
    print(f"{container.path.name}: {container.bytes / 1e9:.2f} GB, {container.shape.weights}; "
          f"{gguf.path.name}: {gguf.bytes / 1e9:.2f} GB; {options.threads} threads\n")
    print(ratios.table(runs), end="")
    return 0 if complete else 1


if __name__ == "__main__":
    sys.exit(main())
