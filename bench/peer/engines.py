"""How each engine is started for a case, and what its output says about it.

A case is a number of prompts of random tokens and of tokens to generate after them. llama.cpp's own
benchmarks report the time of both parts. colibri runs the same case as a batch job; its results arrive on
standard output as they complete, and times are taken there:

    warm-up prompts ......... results = everything has been read and computed with once
    the prompts + a marker .. the marker, a prompt of which one token is wanted, = prompts are done
    tokens, tokens, ......... the last result = the last step is done
"""
import json
import math
import random
from dataclasses import dataclass
from pathlib import Path

from watched import RunError, Watched

PREFILL = 512  # tokens of the prompts of which the prefill is measured
LLAMA_SEQUENCES = 256  # llama.cpp takes no more at a time
TEMPERATURE = 1.0  # with random weights nearly uniform: new tokens every step, as in llama.cpp's benchmark


@dataclass(frozen=True)
class Case:
    """`kind` is prefill (one prompt after the other), decode (a batch of sequences) or job (prompts only,
    as many at a time as an engine likes)."""

    kind: str
    sequences: int
    prompt: int
    generated: int  # by each sequence, in the part that is timed

    @property
    def name(self) -> str:
        if self.kind == "decode":
            return f"decode, batch {self.sequences}"
        return f"prefill {self.prompt}" if self.kind == "prefill" else f"prefill job, {self.tokens} tokens"

    @property
    def tokens(self) -> int:
        """That are timed."""
        return self.sequences * (self.generated if self.kind == "decode" else self.prompt)

    @property
    def positions(self) -> int:
        """Of one sequence at its end."""
        return self.prompt + self.generated + 1


def decode_case(batch: int, share_of_steps: float = 1) -> Case:
    """Prompts get shorter and steps fewer where there are many sequences, so that no case takes minutes."""
    prompt = max(1, min(32, 1024 // batch))
    steps = max(4, round(128 * share_of_steps / math.sqrt(batch)))
    return Case("decode", batch, prompt, steps)


@dataclass(frozen=True)
class Measured:
    tokens: int
    seconds: float
    steps: int
    bytes: float
    other_cores: float

    @property
    def rate(self) -> float:
        return self.tokens / self.seconds

    @property
    def bytes_a_step(self) -> float:
        return self.bytes / self.steps


def failed(engine: str, case: Case, why: str, watched: Watched) -> RunError:
    tail = watched.said.strip().splitlines()[-5:]
    return RunError(f"{engine}, {case.name}: {why}" + "".join("\n    " + line for line in tail))


# --- llama.cpp ---------------------------------------------------------------------------------------------


def llama_case(case: Case) -> Case:
    """The case with no more sequences than llama.cpp takes."""
    if case.sequences <= LLAMA_SEQUENCES:
        return case
    return Case(case.kind, LLAMA_SEQUENCES, case.prompt, case.generated)


@dataclass(frozen=True)
class Llama:
    folder: Path  # with its programs
    model: Path
    threads: int

    def command(self, case: Case, limited: bool, micro_batch: int = PREFILL) -> list:
        threads = str(self.threads)
        model = ["-m", str(self.model), "-t", threads]
        if case.kind == "prefill":
            return [str(self.folder / "llama-bench"), *model, "-p", str(case.prompt), "-n", "0",
                    "-r", str(case.sequences), "-o", "jsonl"]
        context = case.sequences * (case.prompt + max(case.generated, 1))
        command = [str(self.folder / "llama-batched-bench"), *model, "-tb", threads,
                   "-npp", str(case.prompt), "-ntg", str(max(case.generated, 1)), "-npl", str(case.sequences),
                   "-c", str(context), "-b", str(max(2048, case.sequences * case.prompt)),
                   "-ub", str(micro_batch), "--output-format", "jsonl"]
        # One region of keys and values takes only what is needed; a copy of the weights in another layout
        # would not be file pages, which the kernel can drop.
        return command + (["-kvu", "-nr"] if limited else [])

    def measured(self, case: Case, watched: Watched, micro_batch: int = PREFILL) -> Measured:
        if watched.complaint:
            raise failed("llama.cpp", case, watched.complaint, watched)
        for end, line in watched.lines:
            fields = json_object(line)
            if "samples_ns" in fields and case.kind == "prefill":
                seconds = sum(fields["samples_ns"]) / 1e9
                steps = len(fields["samples_ns"])
                return Measured(steps * fields["n_prompt"], seconds, steps,
                                watched.bytes_between(end - seconds, end), watched.other_cores)
            if "t_tg" in fields and case.kind == "decode":
                seconds, steps = fields["t_tg"], fields["tg"]
                return Measured(steps * fields["pl"], seconds, steps,
                                watched.bytes_between(end - seconds, end), watched.other_cores)
            if "t_pp" in fields and case.kind == "job":
                seconds, tokens = fields["t_pp"], fields["pp"] * fields["pl"]
                begin = end - fields["t_tg"] - seconds
                return Measured(tokens, seconds, -(-tokens // micro_batch),
                                watched.bytes_between(begin, begin + seconds), watched.other_cores)
        raise failed("llama.cpp", case, "printed no result", watched)


# --- colibri -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Colibri:
    program: Path
    container: Path
    threads: int
    vocab: int

    def rows(self, case: Case) -> int:
        """Of a step: all prompts and the marker, so that sequences begin to generate together."""
        if case.kind == "prefill":
            return case.prompt
        return max((case.sequences + 1) * case.prompt, 64)

    def requests(self, case: Case, seed: int = 1) -> str:
        """The requests of the case, a line each."""
        draw = random.Random(seed)
        lines = []

        def add(name, tokens, wanted):
            lines.append(json.dumps({
                "id": name, "tokens": [draw.randrange(self.vocab) for _ in range(tokens)],
                "max_tokens": wanted, "ignore_eos": True, "temperature": TEMPERATURE,
                "seed": len(lines) + 1}))

        if case.kind != "job":
            left = self.rows(case)
            while left > 0:
                add(f"warm-{len(lines)}", min(left, PREFILL), 1)
                left -= min(left, PREFILL)
        if case.kind == "decode":
            add("marker", case.prompt, 1)
        for i in range(case.sequences):
            add(f"timed-{i}", case.prompt, case.generated + 1 if case.kind == "decode" else 1)
        return "\n".join(lines) + "\n"

    def plan_command(self, case: Case) -> list:
        return [str(self.program), "plan", str(self.container), "--json", "--experts-memory", "min",
                "--max-rows", str(self.rows(case)), "--set", "stages.attend.kv_type=bf16"]

    def dynamic_bytes(self, case: Case, plan: dict) -> int:
        """Memory for the keys and values of the case and no more, from a plan for as many rows."""
        fixed = plan["dynamic_bytes"] - plan["kv_pages"] * plan["kv_page_bytes"]
        pages = (case.sequences + 1) * -(-case.positions // 16)
        warm_up = -(-self.rows(case) // 16) + -(-self.rows(case) // PREFILL)
        return fixed + max(pages, warm_up) * plan["kv_page_bytes"]

    def command(self, case: Case, requests: Path, experts: str, profile: Path, dynamic: int = 0) -> list:
        """Keys and values of 16 bits, as llama.cpp's. `dynamic` 0: as the plan likes."""
        command = [str(self.program), "batch", str(self.container), str(requests),
                   "--threads", str(self.threads), "--experts-memory", experts, "--profile", str(profile),
                   "--state-dir", "", "--set", "stages.attend.kv_type=bf16",
                   "--set", "stages.write.flush_seconds=0"]
        if case.kind == "job":
            return command + ["--task", "embed"]
        if dynamic > 0:
            command += ["--set", f"memory.dynamic={dynamic}"]
        return command + ["--max-rows", str(self.rows(case))]

    def measured(self, case: Case, watched: Watched, profile: dict) -> Measured:
        if watched.complaint:
            raise failed("colibri", case, watched.complaint, watched)
        came = {"warm": 0.0, "marker": 0.0, "timed": 0.0}  # when the last of them came
        tokens = 0
        for seconds, line in watched.lines:
            fields = json_object(line)
            if "finish_reason" not in fields:
                continue
            if fields["finish_reason"] == "error":
                raise failed("colibri", case, f"a request failed: {line[:200]}", watched)
            group = fields["id"].split("-")[0]
            came[group] = max(came.get(group, 0), seconds)
            if group == "timed":
                tokens += (fields["completion_tokens"] - 1 if case.kind == "decode"
                           else fields["prompt_tokens"])
        if tokens != case.tokens:
            raise failed("colibri", case, f"{tokens} tokens in its results, {case.tokens} expected", watched)
        if case.kind == "job" and "wall_seconds" not in profile:
            raise failed("colibri", case, "it has left no profile", watched)
        if case.kind == "job":  # all of it, the first reads included
            return Measured(tokens, profile["wall_seconds"], profile["steps"], profile["bytes_read"],
                            watched.other_cores)
        begin = came["marker"] if case.kind == "decode" else came["warm"]
        if came["timed"] <= begin:
            raise failed("colibri", case, "its results came all at once or out of order", watched)
        steps = case.generated if case.kind == "decode" else case.sequences
        return Measured(tokens, came["timed"] - begin, steps,
                        watched.bytes_between(begin, came["timed"]), watched.other_cores)


def json_object(line: str) -> dict:
    try:
        value = json.loads(line) if line.startswith("{") else {}
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
