"""bench/peer against recorded output of llama.cpp's benchmarks and against programs that only print.

Expectations are computed by hand from the recorded numbers. Nothing here depends on how long anything
takes: of colibri's side, whose times are taken from when lines come, the clock is given.
"""
import contextlib
import io
import json
import os
import re
import struct
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench" / "peer"))

import conditions  # noqa: E402
import engines  # noqa: E402
import models  # noqa: E402
import peer  # noqa: E402
import ratios  # noqa: E402
from watched import RunError, Watched, watch  # noqa: E402

# One line each, as printed by llama-bench -o jsonl and llama-batched-bench --output-format jsonl.
BENCH_LINE = (
    '{"build_commit": "unknown", "model_type": "olmoe A1.7B Q8_0", "model_size": 3616702464, '
    '"n_batch": 2048, "n_ubatch": 512, "n_threads": 2, "n_prompt": 512, "n_gen": 0, "n_depth": 0, '
    '"avg_ns": 4500000000, '
    '"stddev_ns": 0, "avg_ts": 113.777, "stddev_ts": 0.0, "samples_ns": [ 4400000000, 4600000000 ],'
    '"samples_ts": [ 116.364, 111.304 ]}')
BATCHED_LINE = (
    '{"n_kv_max": 2048, "n_batch": 2048, "n_ubatch": 512, "flash_attn": -1, "is_pp_shared": 0, '
    '"n_gpu_layers": -1, "n_threads": 2, "n_threads_batch": 2, "pp": 32, "tg": 16, "pl": 8, "n_kv": 384, '
    '"t_pp": 2.5, "speed_pp": 102.4, "t_tg": 2.0, "speed_tg": 64.0, "t": 4.5, "speed": 85.33}')


def result_line(name, completion_tokens, prompt_tokens=32, finish_reason="length"):
    return json.dumps({"id": name, "index": 0, "text": "", "tokens": [], "prompt_tokens": prompt_tokens,
                       "completion_tokens": completion_tokens, "finish_reason": finish_reason})


def steady_reads(rate, seconds):
    """Looks at a process that reads `rate` bytes a second all the time."""
    return [(t / 10, t / 10 * rate) for t in range(int(seconds * 10) + 1)]


def gguf_bytes(fields, tensors):
    """A GGUF header: strings, unsigned 32-bit numbers and lists of strings as fields; name -> type."""
    def string(text):
        return struct.pack("<Q", len(text)) + text.encode()

    out = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(fields))
    for name, value in fields.items():
        out += string(name)
        if isinstance(value, str):
            out += struct.pack("<I", 8) + string(value)
        elif isinstance(value, list):
            out += struct.pack("<IIQ", 9, 8, len(value)) + b"".join(string(x) for x in value)
        else:
            out += struct.pack("<II", 4, value)
    for name, kind in tensors.items():
        out += string(name) + struct.pack("<IQQIQ", 2, 64, 64, kind, 0)
    return out


FIELDS = {"general.architecture": "olmoe", "olmoe.block_count": 2, "olmoe.embedding_length": 64,
          "olmoe.expert_count": 8, "olmoe.expert_used_count": 2, "olmoe.feed_forward_length": 32,
          "olmoe.attention.head_count": 4, "olmoe.attention.head_count_kv": 2,
          "tokenizer.ggml.tokens": ["a", "b", "c"]}
SPEC = {"layers": [{}, {}], "hidden_size": 64, "num_experts": 8, "num_experts_per_token": 2,
        "intermediate_size": 32, "vocab_size": 3, "attention": {"num_kv_heads": 2, "head_dim": 16},
        "weight_dtype": "int8_g64"}

# Prints what a batch of colibri prints: a result for each request, with the tokens that it asked for.
PRETEND_COLIBRI = """#!/usr/bin/env python3
import json, sys
requests = [json.loads(line) for line in open(sys.argv[3])]
for request in requests:
    print(json.dumps({"id": request["id"], "prompt_tokens": len(request["tokens"]),
                      "completion_tokens": request["max_tokens"], "finish_reason": "length"}), flush=True)
profile = sys.argv[sys.argv.index("--profile") + 1]
json.dump({"wall_seconds": 2.0, "steps": 4, "bytes_read": 1000}, open(profile, "w"))
print("the table of stages", file=sys.stderr)
"""


class Folder(unittest.TestCase):
    """A folder with a pair of models and programs."""

    def setUp(self):
        held = tempfile.TemporaryDirectory()
        self.addCleanup(held.cleanup)
        self.path = Path(held.name)

    def write(self, name, content):
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    def pretend(self, name, script):
        path = self.write(name, script)
        path.chmod(0o755)
        return path

    def write_models(self, fields=None, spec=None, kind=8):
        tensors = {"blk.0.ffn_down_exps.weight": kind}
        self.write("model.gguf", gguf_bytes({**FIELDS, **(fields or {})}, tensors))
        self.write("model/model_spec.json", json.dumps({**SPEC, **(spec or {})}))
        self.write("model/experts.bin", b"\0" * 1000)

    def write_programs(self, batched=BATCHED_LINE, bench=BENCH_LINE):
        self.pretend("bin/llama-bench", f"#!/bin/sh\ncat <<'END'\n{bench}\nEND\n")
        self.pretend("bin/llama-batched-bench", f"#!/bin/sh\ncat <<'END'\n{batched}\nEND\n")
        self.pretend("colibri", PRETEND_COLIBRI)

    def run_peer(self, *more):
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            status = peer.main(["--llama", str(self.path / "bin"), "--gguf", str(self.path / "model.gguf"),
                                "--colibri", str(self.path / "colibri"), "--threads", "2",
                                "--container", str(self.path / "model"), *more])
        return status, out.getvalue(), err.getvalue()


class Outputs(unittest.TestCase):
    llama = engines.Llama(Path("bin"), Path("m.gguf"), 2)
    colibri = engines.Colibri(Path("colibri"), Path("model"), 2, 100)

    def test_prefill_of_llama(self):
        watched = Watched(lines=[(20.0, BENCH_LINE)], reads=steady_reads(1e9, 20))
        measured = self.llama.measured(engines.Case("prefill", 2, 512, 0), watched)
        self.assertAlmostEqual(measured.rate, 1024 / 9.0)  # both samples together
        self.assertAlmostEqual(measured.bytes, 9e9)  # of their time only

    def test_decoding_of_llama(self):
        watched = Watched(lines=[(0.0, "main: noise"), (10.0, BATCHED_LINE), (10.1, "{broken")],
                          reads=steady_reads(1e9, 11))
        measured = self.llama.measured(engines.Case("decode", 8, 32, 16), watched)
        self.assertAlmostEqual(measured.rate, 8 * 16 / 2.0)
        self.assertAlmostEqual(measured.bytes_a_step, 2e9 / 16)

    def test_job_of_llama(self):
        watched = Watched(lines=[(10.0, BATCHED_LINE)], reads=[(0.0, 0), (5.5, 1e9), (8.0, 3e9), (10.0, 9e9)])
        measured = self.llama.measured(engines.Case("job", 8, 32, 0), watched, micro_batch=100)
        self.assertAlmostEqual(measured.rate, 8 * 32 / 2.5)
        self.assertEqual(measured.steps, 3)  # 256 tokens, 100 at a time
        self.assertAlmostEqual(measured.bytes, 2e9)  # from 5.5 to 8 s: the prompts' part

    def test_decoding_of_colibri(self):
        case = engines.Case("decode", 2, 32, 16)
        lines = [(1.0, result_line("warm-0", 1)), (3.0, result_line("marker", 1)),
                 (6.9, result_line("timed-1", 17)), (7.0, result_line("timed-0", 17))]
        measured = self.colibri.measured(case, Watched(lines=lines, reads=steady_reads(1e8, 8)), {})
        self.assertAlmostEqual(measured.rate, 2 * 16 / 4.0)  # from the marker to the last
        self.assertAlmostEqual(measured.bytes_a_step, 4e8 / 16)

    def test_prefill_of_colibri(self):
        lines = [(1.0, result_line("warm-0", 1, 512)), (2.0, result_line("timed-0", 1, 512)),
                 (3.5, result_line("timed-1", 1, 512))]
        measured = self.colibri.measured(engines.Case("prefill", 2, 512, 0), Watched(lines=lines), {})
        self.assertAlmostEqual(measured.rate, 1024 / 2.5)

    def test_job_of_colibri_is_timed_by_its_profile(self):
        lines = [(9.0, result_line(f"timed-{i}", 0, 512, "stop")) for i in range(8)]
        measured = self.colibri.measured(engines.Case("job", 8, 512, 0), Watched(lines=lines),
                                         {"wall_seconds": 8.0, "steps": 2, "bytes_read": 6e9})
        self.assertAlmostEqual(measured.rate, 512.0)
        self.assertAlmostEqual(measured.bytes_a_step, 3e9)

    def test_missing_tokens_and_failed_requests_are_no_result(self):
        case = engines.Case("decode", 1, 32, 16)
        for line in (result_line("timed-0", 16), result_line("timed-0", 17, finish_reason="error")):
            with self.assertRaises(RunError):
                self.colibri.measured(case, Watched(lines=[(1.0, line)]), {})
        with self.assertRaisesRegex(RunError, "printed no result"):
            self.llama.measured(case, Watched(lines=[(1.0, "loading")]))

    def test_requests_fill_the_warm_up_step_and_no_more(self):
        case = engines.decode_case(128)
        self.assertEqual((case.prompt, case.generated), (8, 11))
        requests = [json.loads(line) for line in self.colibri.requests(case).splitlines()]
        rows = {"warm": 0, "marker": 0, "timed": 0}
        for request in requests:
            rows[request["id"].split("-")[0]] += len(request["tokens"])
        self.assertEqual(rows["warm"], self.colibri.rows(case))
        self.assertEqual(rows["marker"] + rows["timed"], 129 * 8)
        self.assertLessEqual(rows["marker"] + rows["timed"], self.colibri.rows(case))
        self.assertEqual({r["max_tokens"] for r in requests if r["id"].startswith("timed")}, {12})

    def test_memory_for_keys_and_values(self):
        shape = models.Shape(8, 2048, 64, 8, 1024, 4096, kv_heads=16, head_dim=128, weights="int8")
        self.assertEqual(shape.kv_bytes(32, 41), 32 * 48 * 8 * 2 * 16 * 128 * 2)
        case = engines.Case("decode", 4, 32, 15)  # 48 positions: 3 pages for each of 5 sequences
        plan = {"dynamic_bytes": 5000, "kv_pages": 3, "kv_page_bytes": 1000}
        self.assertEqual(self.colibri.dynamic_bytes(case, plan), 2000 + 15 * 1000)

    def test_llama_takes_no_more_sequences_than_it_can(self):
        self.assertEqual(engines.llama_case(engines.decode_case(1024)).sequences, 256)
        self.assertEqual(engines.llama_case(engines.decode_case(32)), engines.decode_case(32))


class Ratios(unittest.TestCase):
    @staticmethod
    def run_of(engine, number, rate, setting="", place="in memory", read=0.0):
        return ratios.Run("m", place, "decode", engine, setting, number, rate, read, read / 2, 0.05)

    def test_ratios_are_paired_by_round(self):
        ours = [self.run_of("colibri", i, rate) for i, rate in enumerate((100, 60, 90, 80))]
        theirs = [self.run_of("llama.cpp", i, rate) for i, rate in ((0, 50), (1, 20), (2, 30))]
        self.assertEqual(ratios.round_ratios(ours, theirs), [2.0, 3.0, 3.0])  # round 3 has no pair

    def test_the_best_setting_stands_for_llama(self):
        runs = [self.run_of("llama.cpp", i, rate, setting)
                for setting, rates in (("a", (10, 10, 90)), ("b", (20, 21, 19)))
                for i, rate in enumerate(rates)]
        self.assertEqual(ratios.best_setting(runs), "b")

    def test_table(self):
        place = "25% of the model in memory"
        runs = []
        for i, (ours, theirs) in enumerate(((30, 10), (44, 11), (24, 12))):
            runs.append(self.run_of("colibri", i, ours, place=place, read=3e9))
            runs.append(self.run_of("llama.cpp", i, theirs, "128 KiB readahead", place, 4e9))
            runs.append(self.run_of("llama.cpp", i, 5, "8192 KiB readahead", place, 4e9))
        lines = ratios.table(runs).splitlines()
        self.assertEqual(lines[0], "m, " + place)
        self.assertEqual(lines[2].split(), "decode 30.0 3.000 1.50 11.0 4.000 2.00 3.00 2.00 to 4.00 3 "
                                           "0 of 6 128 KiB readahead".split())

    def test_a_side_without_results_has_no_ratio(self):
        text = ratios.table([self.run_of("colibri", 0, 10)])
        self.assertRegex(text, r"decode +10\.0 +- +- +- +0 +0 of 1")


class Models(Folder):
    def test_the_same_model(self):
        self.write_models()
        container = models.read_container(self.path / "model")
        gguf = models.read_gguf(self.path / "model.gguf")
        self.assertEqual(container.shape, gguf.shape)
        self.assertEqual(container.bytes, 1000)
        models.check_same(container, gguf)

    def test_other_sizes_and_widths_are_named(self):
        for fields, kind, words in (
                ({"olmoe.expert_count": 16}, 8, "experts: 8 in the container, 16 in the GGUF"),
                ({}, 2, "weights: int8 in the container, int4 in the GGUF")):
            self.write_models(fields=fields, kind=kind)
            with self.assertRaisesRegex(models.ModelError, words):
                models.check_same(models.read_container(self.path / "model"),
                                  models.read_gguf(self.path / "model.gguf"))

    def test_every_truncated_header_is_refused(self):
        self.write_models()
        whole = (self.path / "model.gguf").read_bytes()
        for size in range(len(whole)):
            with self.assertRaises(models.ModelError):
                models.read_gguf(self.write("cut.gguf", whole[:size]))

    def test_absurd_lengths_are_refused(self):
        with self.assertRaisesRegex(models.ModelError, "a length of"):
            models.read_gguf(self.write("a.gguf", b"GGUF" + struct.pack("<IQQ", 3, 1, 2**60)))


class Conditions(Folder):
    def test_readahead_is_put_back(self):
        number = os.stat(self.path).st_dev
        setting = f"{os.major(number)}:{os.minor(number)}/read_ahead_kb"
        with self.assertRaisesRegex(conditions.ConditionError, "cannot see how far"):
            with conditions.readahead(self.path, 128, self.path):
                pass
        file = self.write(setting, "4096\n")
        with contextlib.suppress(KeyError), conditions.readahead(self.path, 128, self.path):
            self.assertEqual(file.read_text(), "128")
            raise KeyError
        self.assertEqual(file.read_text(), "4096")

    def test_a_group_without_a_memory_controller(self):
        with self.assertRaisesRegex(conditions.ConditionError, "no memory controller"):
            with conditions.MemoryGroup(1 << 20, self.path):
                pass
        self.assertEqual(list(self.path.iterdir()), [])

    def test_how_a_program_ends_is_told(self):
        quick = watch(["sh", "-c", "echo one; echo two; echo why >&2; exit 3"], 60)
        self.assertEqual([line for _, line in quick.lines], ["one", "two"])
        self.assertEqual((quick.complaint, quick.said), ("ended with status 3", "why\n"))
        self.assertIn("longer than", watch(["sleep", "600"], 0.1).complaint)
        self.assertIn("could not be started", watch([str(self.path / "none")], 1).complaint)

    def test_bytes_between_two_looks(self):
        watched = Watched(reads=[(1.0, 100), (2.0, 300)])
        self.assertEqual(watched.bytes_between(1.5, 9.0), 100)
        self.assertEqual(watched.bytes_between(0.0, 1.5), 100)


class WholeComparison(Folder):
    def test_both_engines_in_memory(self):
        self.write_models()
        self.write_programs()
        results = self.path / "results.jsonl"
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(self.path)
        common = ("--colibri", "colibri", "--llama", "bin", "--memory", "all", "--cases", "prefill,8",
                  "--results", str(results))
        status, out, err = self.run_peer("--rounds", "2", *common)
        self.assertEqual(status, 0, err)
        self.assertIn("model: 0.00 GB, int8; model.gguf", out)
        # llama.cpp's side is what was recorded: 2 x 512 tokens in 9 s, 8 x 16 in 2 s.
        self.assertRegex(out, r"prefill 512 +[\d.]+ +113\.8 +[\d.]+ +[\d.]+ to [\d.]+ +2 ")
        self.assertRegex(out, r"decode, batch 8 +[\d.]+ +64\.0 ")
        self.assertIn("the table of stages", (self.path / "results.jsonl.log").read_text())
        order = [json.loads(line)["engine"] for line in results.read_text().splitlines()]
        self.assertEqual(order, ["colibri", "llama.cpp"] * 2 + ["llama.cpp", "colibri"] * 2)
        status, out, err = self.run_peer("--rounds", "1", *common)  # a second sitting adds its round
        self.assertEqual(status, 0, err)
        self.assertRegex(out, r"decode, batch 8 .* 3 ")

    def test_an_engine_that_fails(self):
        self.write_models()
        self.write_programs()
        self.pretend("bin/llama-batched-bench", "#!/bin/sh\necho 'unable to load' >&2\nexit 1\n")
        status, out, err = self.run_peer("--memory", "all", "--cases", "8", "--rounds", "1")
        self.assertEqual(status, 1)
        self.assertIn("llama.cpp, decode, batch 8: ended with status 1\n    unable to load", err)
        self.assertRegex(out, r"decode, batch 8 +[\d.]+ +- ")

    def test_wrong_input(self):
        self.write_models()
        self.write_programs()
        for more, words in (((), ""), (("--memory", "half"), "--memory: expected all or a share"),
                            (("--cases", "9999"), "--cases: expected prefill, job or the size"),
                            (("--results", str(self.path / "model.gguf")), "not results of this program"),
                            (("--container", str(self.path / "none")), "cannot read the container"),
                            (("--llama", str(self.path)), "no such program: .*llama-bench")):
            if more:
                status, _, err = self.run_peer(*more)
                self.assertEqual(status, 2)
                self.assertTrue(re.search(words, err), err)
        self.write_models(spec={"hidden_size": 128})
        status, _, err = self.run_peer()
        self.assertEqual(status, 2)
        self.assertIn("hidden: 128 in the container, 64 in the GGUF", err)


if __name__ == "__main__":
    unittest.main()
