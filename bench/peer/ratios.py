"""From the runs of all rounds to a table: medians, the ratio of each round, and how far ratios spread.

Runs are paired by round: what changes on the machine between rounds changes both sides of a ratio. A
contender that llama.cpp has several settings for is represented by the one with the best median.
"""
from dataclasses import dataclass
from statistics import median

DISTURBED = 0.1  # processors kept busy by others from which on a run is called disturbed


@dataclass(frozen=True)
class Run:
    model: str
    place: str  # "in memory", or how much of it
    case: str
    engine: str  # colibri or llama.cpp
    setting: str  # of llama.cpp, where there is a choice
    round: int
    rate: float  # tokens a second
    bytes_a_step: float
    bytes_a_second: float
    other_cores: float


def best_setting(runs: list) -> str:
    """The setting whose median rate is highest."""
    rates = {}
    for run in runs:
        rates.setdefault(run.setting, []).append(run.rate)
    return max(rates, key=lambda setting: median(rates[setting]))


def round_ratios(ours: list, theirs: list) -> list:
    """ours / theirs of the rounds in which both have a result."""
    rates = {run.round: run.rate for run in theirs}
    return [run.rate / rates[run.round] for run in ours if rates.get(run.round, 0) > 0]


def figures(rates: list, digits: int = 1) -> str:
    return f"{median(rates):.{digits}f}" if rates else "-"


def table(runs: list) -> str:
    """One block for each model and place, one line for each case, in order of first appearance."""
    text = ""
    for model, place in dict.fromkeys((run.model, run.place) for run in runs):
        here = [run for run in runs if (run.model, run.place) == (model, place)]
        reads = any(run.bytes_a_step > 1e6 for run in here) and place != "in memory"
        rows = [line_of(case, [run for run in here if run.case == case], reads)
                for case in dict.fromkeys(run.case for run in here)]
        text += f"{model}, {place}\n" + aligned([heading(reads), *rows]) + "\n"
    return text


def heading(reads: bool) -> list:
    side = ["tokens/s", "GB/step", "GB/s"] if reads else ["tokens/s"]
    return (["case"] + ["colibri " + side[0], *side[1:]] + ["llama.cpp " + side[0], *side[1:]]
            + ["ratio", "spread", "rounds", "disturbed", "llama.cpp with"])


def line_of(case: str, runs: list, reads: bool) -> list:
    ours = [run for run in runs if run.engine == "colibri"]
    theirs = [run for run in runs if run.engine == "llama.cpp"]
    setting = best_setting(theirs) if theirs else ""
    theirs = [run for run in theirs if run.setting == setting]
    ratios = round_ratios(ours, theirs)
    line = [case]
    for side in (ours, theirs):
        line.append(figures([run.rate for run in side]))
        if reads:
            line += [figures([run.bytes_a_step / 1e9 for run in side], 3),
                     figures([run.bytes_a_second / 1e9 for run in side], 2)]
    spread = f"{min(ratios):.2f} to {max(ratios):.2f}" if ratios else "-"
    disturbed = sum(run.other_cores > DISTURBED for run in ours + theirs)
    return line + [figures(ratios, 2), spread, str(len(ratios)),
                   f"{disturbed} of {len(ours) + len(theirs)}", setting]


def aligned(lines: list) -> str:
    """The first and the last column to the left, numbers to the right."""
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    last = len(widths) - 1
    return "\n".join(
        "  ".join(cell.ljust(width) if i in (0, last) else cell.rjust(width)
                  for i, (cell, width) in enumerate(zip(line, widths))).rstrip()
        for line in lines) + "\n"
