"""A running `replayssm serve` for tests in Python."""

import json
import os
import signal
import subprocess
import tempfile
import time
import urllib.request


class Server:
    """Starts the program of REPLAYSSM_PROGRAM on a free port of this machine. Use with `with`, or
    call stop(), which ends it as a service manager would and checks that it ends well."""

    def __init__(self, *flags, api_key=None):
        self.api_key = api_key
        self.log = tempfile.TemporaryFile(mode="w+")
        command = [os.environ["REPLAYSSM_PROGRAM"], "serve", "--port", "0", *flags]
        if api_key:
            command += ["--api-key", api_key]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=self.log, text=True)
        line = self.process.stdout.readline()  # "NAME is served at http://HOST:PORT"
        if " is served at " not in line:
            self.process.kill()
            self.process.wait()
            self.process.stdout.close()
            text = self.log_text()
            self.log.close()
            raise RuntimeError(f"the server did not start: {line}{text}")
        self.model, self.url = line.strip().split(" is served at ")

    def log_text(self):
        self.log.seek(0)
        return self.log.read()

    def get(self, path):
        """The JSON at a path."""
        return self._json(urllib.request.Request(self.url + path))

    def post(self, path, body):
        """The JSON that a JSON body is answered with."""
        return self._json(urllib.request.Request(
            self.url + path, data=json.dumps(body).encode(), headers={"Content-Type": "application/json"}))

    def _json(self, request):
        if self.api_key:
            request.add_header("Authorization", f"Bearer {self.api_key}")
        with urllib.request.urlopen(request, timeout=60) as response:
            return json.load(response)

    def wait_until(self, condition, what, seconds=30):
        """Polls /state until condition(state) is true; returns that state."""
        end = time.monotonic() + seconds
        while True:
            state = self.get("/state")
            if condition(state):
                return state
            if time.monotonic() > end:
                raise AssertionError(f"{what}: not within {seconds} s; {json.dumps(state)}")
            time.sleep(0.02)

    def wait_until_idle(self):
        return self.wait_until(lambda state: not state["sequences"], "no sequence is left")

    def wait_until_settled(self):
        """Idle, and still so after a while: a request that a client sent before it went away may not
        have been read yet."""
        before = None
        while True:
            counters = self.wait_until_idle()["counters"]
            if counters == before:
                return
            before = counters
            time.sleep(0.5)

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        try:
            code = self.process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            code = self.process.wait()
        self.process.stdout.close()
        text = self.log_text()
        self.log.close()
        if code != 0:
            raise AssertionError(f"the server ended with {code}\n{text}")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()
