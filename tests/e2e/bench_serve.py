"""`replayssm bench serve` against a running `replayssm serve`."""

import json
import os
import pty
import signal
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from served import Server  # noqa: E402

PROGRAM = os.environ["REPLAYSSM_PROGRAM"]
SPREADS = ("time_to_first_token_ms", "inter_token_latency_ms", "time_per_output_token_ms", "request_latency_ms")


def bench(*flags):
    return subprocess.run([PROGRAM, "bench", "serve", *flags], capture_output=True, text=True, timeout=60)


class BenchServe(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server(api_key="bench-key")

    @classmethod
    def tearDownClass(cls):
        cls.server.stop()

    def report(self, *flags, exit_code=0):
        result = bench("--url", self.server.url, "--api-key", "bench-key", "--json", *flags)
        self.assertEqual(result.returncode, exit_code, result.stderr + result.stdout)
        return json.loads(result.stdout)

    def test_counts_and_times_of_both_endpoints(self):
        for endpoint in ("chat", "completions"):
            with self.subTest(endpoint):
                before = self.server.get("/state")["counters"]
                report = self.report("--endpoint", endpoint, "--requests", "12", "--concurrency", "4",
                                     "--max-tokens", "9", "--prompt-words", "12", "--seed", "3")
                after = self.server.wait_until_idle()["counters"]
                self.assertEqual((report["completed"], report["failed"], report["errors"]), (12, 0, []))
                self.assertEqual(report["completion_tokens"], 12 * 9, "ignore_eos: all of them")
                for name in ("prompt_tokens", "generation_tokens"):
                    mine = report["completion_tokens" if name == "generation_tokens" else name]
                    self.assertEqual(after[name] - before[name], mine, name)
                for name in SPREADS:
                    spread = report[name]
                    self.assertTrue(0 <= spread["p50"] <= spread["p90"] <= spread["p99"] <= spread["max"], spread)
                self.assertLessEqual(report["time_to_first_token_ms"]["max"], report["request_latency_ms"]["max"])
                self.assertAlmostEqual(report["requests_per_second"] * report["seconds"], 12, places=6)
                self.assertEqual(report["model"], self.server.model)

    def test_a_shared_prefix_is_reused(self):
        report = self.report("--requests", "6", "--concurrency", "1", "--max-tokens", "2",
                             "--prefix-words", "300", "--prompt-words", "4", "--seed", "8")
        self.assertGreater(report["cached_tokens"], report["prompt_tokens"] // 2)
        lone = self.report("--requests", "6", "--concurrency", "1", "--max-tokens", "2",
                           "--prompt-words", "80", "--seed", "9")
        self.assertLess(lone["cached_tokens"], lone["prompt_tokens"] // 4)

    def test_prompts_of_a_file(self):
        with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
            file.write("Count from 7 to 12\n\nCount from 3 to 5\n")
            file.flush()
            report = self.report("--prompts", file.name, "--requests", "5", "--stop-at-eos")
            self.assertEqual(report["completed"], 5)
            self.assertLess(report["completion_tokens"], 5 * 64, "the model ended by itself")

    def test_text_for_people(self):
        result = bench("--url", self.server.url, "--api-key", "bench-key", "--requests", "2", "--max-tokens", "3")
        self.assertEqual(result.returncode, 0, result.stderr)
        for word in ("2 of 2 requests completed", "time to first token", "inter-token latency", "p99"):
            self.assertIn(word, result.stdout)
        self.assertEqual(result.stderr, "", "no progress bar without a terminal")

    def test_a_terminal_sees_progress(self):
        main, terminal = pty.openpty()
        with subprocess.Popen([PROGRAM, "bench", "serve", "--url", self.server.url, "--api-key", "bench-key",
                               "--requests", "60", "--concurrency", "1", "--max-tokens", "60", "--json"],
                              stdout=subprocess.PIPE, stderr=terminal) as process:
            os.close(terminal)
            time.sleep(2.5)
            process.send_signal(signal.SIGINT)
            report = json.loads(process.stdout.read())
        seen = os.read(main, 65536).decode()
        os.close(main)
        if process.returncode != 0:  # else it was done before the signal
            self.assertEqual(process.returncode, 130)
            self.assertTrue(report["interrupted"])
            self.assertLess(report["completed"], 60)
        self.assertIn("requests [", seen)
        self.server.wait_until_settled()

    def test_what_fails_is_counted_with_the_servers_words(self):
        report = self.report("--requests", "3", "--model", "another", exit_code=1)
        self.assertEqual((report["completed"], report["failed"]), (0, 3))
        self.assertEqual(report["errors"][0]["count"], 3)
        self.assertIn("HTTP 404: model: another", report["errors"][0]["message"])
        self.assertEqual(report["request_latency_ms"]["max"], 0)

    def test_refusals_name_the_flag(self):
        for flags, code, words in (
                (("--url", "https://127.0.0.1"), 2, "--url"), (("--url", "127.0.0.1:8000"), 2, "--url"),
                (("--url", "http://127.0.0.1:99999"), 2, "--url"), (("--requests", "0"), 2, "--requests"),
                (("--concurrency", "none"), 2, "--concurrency"), (("--prompts", "/no/such/file"), 2, "--prompts"),
                (("--url", self.server.url, "--api-key", "wrong"), 1, "HTTP 401"),
                (("--url", "http://127.0.0.1:1"), 1, "--url")):
            with self.subTest(flags):
                result = bench(*flags)
                self.assertEqual(result.returncode, code, result.stderr)
                self.assertIn(words, result.stderr)
                self.assertEqual(result.stdout, "")


if __name__ == "__main__":
    unittest.main()
