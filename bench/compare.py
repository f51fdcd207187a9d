#!/usr/bin/env python3
"""Compares two results of a Google Benchmark program, such as kernels_bench:

    build/release/bin/kernels_bench --benchmark_repetitions=5 --benchmark_out=before.json
    ... change something, build ...
    build/release/bin/kernels_bench --benchmark_repetitions=5 --benchmark_out=after.json
    bench/compare.py before.json after.json --threshold 5

A line for each benchmark that both files have: the medians over repetitions, how far the repetitions lie
apart (largest minus smallest, as a share of the median; none of a single one), and after / before, so that
more than 1 is slower. What only one file has is listed below.

Exit status: 0 when no benchmark is slower by more than the threshold, 1 when one is, 2 when the files cannot
be compared: wrong usage, not a result, nothing in common, another machine or kind of build (see --force).
"""

import argparse
import json
import re
import statistics
import sys

NANOSECONDS = {"ns": 1.0, "us": 1e3, "ms": 1e6, "s": 1e9}
# What must be equal for times to mean the same. Clocks are left out: they are read while they vary.
CONTEXT = ("cpu", "num_cpus", "caches", "build_type", "library_build_type", "executable")


class Unusable(Exception):
    """Why files cannot be compared."""


class Timing:
    """Times of one benchmark over its repetitions, in nanoseconds."""

    def __init__(self, median, spread):
        self.median = median
        self.spread = spread  # (max - min) / median; None when there was one repetition

    @classmethod
    def of_repetitions(cls, times):
        median = statistics.median(times)
        spread = (max(times) - min(times)) / median if len(times) > 1 and median > 0 else None
        return cls(median, spread)


def load(path):
    """The parsed result in `path`."""
    try:
        with open(path, encoding="utf-8") as file:
            result = json.load(file)
    except OSError as error:
        raise Unusable(f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise Unusable(f"not JSON: {path}: {error}") from error
    if not isinstance(result, dict) or not isinstance(result.get("benchmarks"), list):
        raise Unusable(f"not a result of Google Benchmark: {path} has no list `benchmarks`")
    if not isinstance(result.get("context") or {}, dict):
        raise Unusable(f"not a result of Google Benchmark: {path}: its `context` is no object")
    return result


def timings(result, path, clock):
    """Timing of each benchmark by name, in the order of the file."""
    repetitions, medians = {}, {}
    for entry in result["benchmarks"]:
        if not isinstance(entry, dict):
            raise Unusable(f"not a result of Google Benchmark: {path}: a benchmark that is no object")
        if entry.get("error_occurred"):
            continue
        try:
            name = entry.get("run_name", entry["name"])
            time = float(entry[clock]) * NANOSECONDS[entry["time_unit"]]
        except (KeyError, TypeError, ValueError) as error:
            if entry.get("run_type") == "aggregate":
                continue  # a share, such as cv, or one that the user defined
            raise Unusable(f"not a result of Google Benchmark: {path}: a benchmark without {error}") from error
        if entry.get("run_type", "iteration") == "iteration":
            repetitions.setdefault(name, []).append(time)
        elif entry.get("aggregate_name") == "median":
            medians[name] = time
    found = {name: Timing.of_repetitions(times) for name, times in repetitions.items()}
    # Results that hold aggregates alone.
    for name, median in medians.items():
        found.setdefault(name, Timing(median, None))
    return found


def context_differences(before, after):
    """Lines about what differs in the machines and builds of two results."""
    first, second = before.get("context") or {}, after.get("context") or {}
    lines = []
    for field in CONTEXT:
        one, other = first.get(field), second.get(field)
        if field == "executable":  # only its last part: builds lie in different folders
            one, other = (str(value or "").rsplit("/", 1)[-1] for value in (one, other))
        if one != other:
            lines.append(f"{field}: {json.dumps(one)} and {json.dumps(other)}")
    return lines


def time_text(nanoseconds):
    """Three digits or more, in the largest unit that leaves something before the point."""
    unit, scale = next(((unit, scale) for unit, scale in reversed(NANOSECONDS.items()) if nanoseconds >= scale),
                       ("ns", 1.0))
    value = nanoseconds / scale
    digits = 0 if value >= 100 else 1 if value >= 10 else 2
    return f"{value:.{digits}f} {unit}"


def spread_text(timing):
    return "" if timing.spread is None else f"{timing.spread * 100:.1f} %"


def print_table(rows):
    """Rows of texts, the first one being the heading; columns are aligned, the first one to the left."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        cells = [row[0].ljust(widths[0])] + [cell.rjust(width) for cell, width in zip(row[1:], widths[1:])]
        print("  ".join(cells).rstrip())


def compare(before, after, threshold):
    """Prints the table; how many benchmarks are slower by more than `threshold`, a share."""
    rows = [("benchmark", "before", "spread", "after", "spread", "after/before", "")]
    slower = 0
    ratios = []
    for name, old in before.items():
        new = after.get(name)
        if new is None:
            continue
        ratio = new.median / old.median if old.median > 0 else float("inf")
        ratios.append(ratio)
        verdict = ""
        if ratio > 1 + threshold:
            verdict, slower = "slower", slower + 1
        elif ratio < 1 / (1 + threshold):
            verdict = "faster"
        rows.append((name, time_text(old.median), spread_text(old), time_text(new.median), spread_text(new),
                     f"{ratio:.3f}", verdict))
    print_table(rows)
    positive = [ratio for ratio in ratios if 0 < ratio < float("inf")]
    if positive:
        print(f"\ngeometric mean of {len(positive)}: {statistics.geometric_mean(positive):.3f}")
    for title, names in (("only before", [name for name in before if name not in after]),
                         ("only after", [name for name in after if name not in before])):
        if names:
            print(f"{title}: {', '.join(names)}")
    return slower


def parse_arguments(arguments):
    parser = argparse.ArgumentParser(
        description="Compares two results of a Google Benchmark program.",
        epilog="exit status: 0 nothing is slower by more than the threshold, 1 something is, "
               "2 the files cannot be compared")
    parser.add_argument("before", help="JSON of --benchmark_out")
    parser.add_argument("after", help="JSON of --benchmark_out")
    parser.add_argument("--threshold", type=float, default=5.0, metavar="PERCENT",
                        help="what is slower by more gives exit status 1 (default %(default)s)")
    parser.add_argument("--filter", default="", metavar="REGEX", help="only benchmarks whose name matches")
    parser.add_argument("--clock", choices=("real_time", "cpu_time"), default="real_time",
                        help="which time to compare (default %(default)s)")
    parser.add_argument("--force", action="store_true", help="compare what is from different machines or builds")
    chosen = parser.parse_args(arguments)
    if not chosen.threshold >= 0:
        parser.error(f"--threshold must not be negative: {chosen.threshold}")
    try:
        chosen.filter = re.compile(chosen.filter)
    except re.error as error:
        parser.error(f"--filter is not a regular expression: {error}")
    return chosen


def run(chosen):
    results = [load(path) for path in (chosen.before, chosen.after)]
    differences = context_differences(*results)
    if differences:
        text = "results are from different machines or builds:\n  " + "\n  ".join(differences)
        if not chosen.force:
            raise Unusable(text + "\nmeasure both in one place, or compare all the same with --force")
        print(text + "\n")
    before, after = ({name: timing for name, timing in timings(result, path, chosen.clock).items()
                      if chosen.filter.search(name)}
                     for result, path in zip(results, (chosen.before, chosen.after)))
    if not before.keys() & after.keys():
        raise Unusable("no benchmark is in both files" +
                       (f" and matches {chosen.filter.pattern}" if chosen.filter.pattern else ""))
    return 1 if compare(before, after, chosen.threshold / 100) > 0 else 0


def main(arguments):
    chosen = parse_arguments(arguments)
    try:
        return run(chosen)
    except Unusable as error:
        print(f"compare.py: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
