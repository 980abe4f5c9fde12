"""`replayssm serve --device cuda`: start, health, answers, streams, a cached prompt, drafts, stop. Skipped, with the reason,
where there is no GPU or the program has no CUDA backend."""

import json
import os
import sys
import threading
import unittest
import urllib.request

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from served import Server  # noqa: E402

ABSENT = ("has no GPU", "no CUDA backend")
PROMPT = "The river was low that summer, and the boys walked across it every morning on the flat stones below the mill."
SETTINGS = {
    "plain": ("--device", "cuda"),
    "deterministic": ("--device", "cuda", "--deterministic"),
    "no overlap": ("--device", "cuda", "--deterministic", "--disable-overlap-schedule"),
    "drafts": ("--device", "cuda", "--deterministic", "--speculative-algorithm", "EAGLE"),
}


def start(*flags):
    return Server("--max-running-requests", "8", "--context-length", "1024", *flags)


def skip_without_gpu():
    try:
        start(*SETTINGS["plain"]).stop()
    except RuntimeError as error:
        if not any(words in str(error) for words in ABSENT):
            raise
        print(f"skipped: {error}", file=sys.stderr)
        sys.exit(77)


def body(prompt=PROMPT, **more):
    return {"prompt": prompt, "max_tokens": 40, "temperature": 0, "ignore_eos": True, **more}


def stream(server, request):
    """The text of a streamed completion, and the number of its pieces."""
    data = json.dumps({**request, "stream": True}).encode()
    call = urllib.request.Request(server.url + "/v1/completions", data=data, headers={"Content-Type": "application/json"})
    pieces, done = [], False
    with urllib.request.urlopen(call, timeout=60) as response:
        for line in response:
            if not line.startswith(b"data: "):
                continue
            if line.strip() == b"data: [DONE]":
                done = True
                continue
            pieces += [choice["text"] for choice in json.loads(line[6:])["choices"]]
    if not done:
        raise AssertionError("the stream did not end with [DONE]")
    return "".join(pieces), len(pieces)


class ServeCuda(unittest.TestCase):
    def test_a_whole_life(self):
        for name, flags in SETTINGS.items():
            with self.subTest(name):
                server = start(*flags)
                try:
                    self.live(server)
                finally:
                    server.stop()  # SIGTERM; ends with 0

    def live(self, server):
        with urllib.request.urlopen(server.url + "/health", timeout=10) as response:
            self.assertEqual(response.status, 200)
        self.assertEqual([each["id"] for each in server.get("/v1/models")["data"]], [server.model])

        first = server.post("/v1/completions", body())
        self.assertEqual(first["usage"]["completion_tokens"], 40)
        text = first["choices"][0]["text"]
        self.assertTrue(text.strip())

        # The prompt is known by now, and the answer the same.
        second = server.post("/v1/completions", body())
        self.assertGreater(second["usage"]["prompt_tokens_details"]["cached_tokens"], 0)
        streamed, pieces = stream(server, body())
        self.assertGreater(pieces, 5)
        self.assertEqual(streamed, second["choices"][0]["text"])

        chat = server.post("/v1/chat/completions", {
            "messages": [{"role": "user", "content": "Count from 3 to 9."}], "max_tokens": 60, "temperature": 0})
        self.assertIn("7", chat["choices"][0]["message"]["content"])
        sampled = server.post("/v1/completions", body(temperature=0.8, seed=5, logprobs=2, max_tokens=8))
        self.assertEqual(len(sampled["choices"][0]["logprobs"]["tokens"]), 8)

        self.several_at_once(server)
        server.wait_until_idle()

    def several_at_once(self, server):
        prompts = [PROMPT[: 20 + 9 * i] for i in range(6)]
        answers = [None] * len(prompts)

        def ask(i):
            answers[i] = server.post("/v1/completions", body(prompts[i]))["usage"]["completion_tokens"]

        threads = [threading.Thread(target=ask, args=(i,)) for i in range(len(prompts))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(answers, [40] * len(prompts))

    def test_deterministic_answers_do_not_depend_on_cache_drafts_overlap_or_batch(self):
        answers = {}
        for name in ("deterministic", "no overlap", "drafts"):
            server = start(*SETTINGS[name])
            try:
                cold = server.post("/v1/completions", body())["choices"][0]["text"]
                self.several_at_once(server)
                warm = server.post("/v1/completions", body())["choices"][0]["text"]
                self.assertEqual(cold, warm)
                answers[name] = cold
                if name == "drafts":
                    self.assertGreater(server.get("/state")["counters"]["speculation"]["drafts_accepted"][0], 0)
            finally:
                server.stop()
        self.assertEqual(len(set(answers.values())), 1, answers)


if __name__ == "__main__":
    skip_without_gpu()
    unittest.main()
