"""The web page in a real headless browser, served by `replayssm serve` with the embedded model.

Exit code 77, with the reason, where Chromium, its driver or Selenium is missing.
"""

import json
import os
import re
import shutil
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from served import Server  # noqa: E402

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
try:
    from selenium import webdriver
    from selenium.common.exceptions import StaleElementReferenceException
    from selenium.webdriver.chrome.service import Service
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys
    from selenium.webdriver.support.ui import WebDriverWait
except ImportError:
    webdriver = None
for missing, name in ((CHROMIUM, "chromium"), (DRIVER, "chromedriver"), (webdriver, "python3-selenium")):
    if missing is None:
        print(f"skipped: {name} is not installed; tools/install_packages.sh browser does it")
        sys.exit(77)

DOOR_TOOL = [{"type": "function", "function": {
    "name": "open_door", "description": "Open a door with a code.",
    "parameters": {"type": "object", "required": ["door", "code"],
                   "properties": {"door": {"type": "integer"}, "code": {"type": "string"}}}}}]

# Notes each text that the newest answer has shown.
WATCH_TEXT = """
window.shown = [];
new MutationObserver(() => {
  const text = [...document.querySelectorAll('.message.assistant .body')].at(-1)?.textContent ?? '';
  if (window.shown.at(-1) !== text) window.shown.push(text);
}).observe(document.getElementById('messages'), { childList: true, subtree: true, characterData: true });
"""
# Answers as long as max_tokens says: the model's own are short.
IGNORE_END = """
const plain = requestBody;
requestBody = (...given) => ({ ...plain(...given), ignore_eos: true });
"""
# Answers come from here instead of the server: arguments[0], in pieces of arguments[1] bytes.
SCRIPTED = """
const [text, piece] = arguments, real = window.fetch;
window.fetch = (url, options) => {
  if (!String(url).includes('/v1/chat/completions')) return real(url, options);
  const bytes = new TextEncoder().encode(text);
  let at = 0;
  return Promise.resolve(new Response(new ReadableStream({ pull(stream) {
    if (at >= bytes.length) return stream.close();
    stream.enqueue(bytes.slice(at, at += piece));
  } })));
};
"""


def events(*chunks):
    return "".join(f"data: {json.dumps(chunk, ensure_ascii=False)}\n\n" for chunk in chunks)


def delta(finish_reason=None, **fields):
    return {"choices": [{"index": 0, "delta": fields, "finish_reason": finish_reason}]}


# Notes how many records the rings had, and the depths of the checkpoints.
WATCH_RINGS = """
window.rings = [];
new MutationObserver(() => {
  for (const ring of document.querySelectorAll('.sequence:not(.ended) .ring')) {
    window.rings.push([ring.childElementCount, ring.querySelectorAll('.full').length]);
  }
}).observe(document.getElementById('sequences'), { childList: true });
"""


def browser():
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
                 "--disable-background-networking", "--window-size=1400,1000"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    options.set_capability("strictFileInteractability", False)
    return webdriver.Chrome(service=Service(DRIVER), options=options)


class Page(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server("--deterministic")
        cls.driver = browser()

    @classmethod
    def tearDownClass(cls):
        cls.driver.quit()
        cls.server.stop()

    def setUp(self):
        self.driver.set_window_size(1400, 1000)
        self.driver.get(self.server.url + "/")
        self.driver.execute_script("localStorage.clear();")
        self.driver.refresh()
        self.wait(lambda: self.id("health").text == "live", "the panel is live")
        self.set_value("temperature", "0")

    def tearDown(self):
        self.assertNotIn("\ufffd", self.driver.execute_script("return document.body.innerText"), "L01")
        severe = [entry["message"] for entry in self.driver.get_log("browser") if entry["level"] == "SEVERE"]
        self.assertEqual(severe, [], "console errors")
        asked = []
        for entry in self.driver.get_log("performance"):
            event = json.loads(entry["message"])["message"]
            if event["method"] == "Network.requestWillBeSent":
                asked.append(event["params"]["request"]["url"])
        elsewhere = [url for url in asked if not url.startswith((self.server.url + "/", "data:", "blob:"))]
        self.assertEqual(elsewhere, [], "requests to elsewhere")
        self.server.wait_until_idle()

    def id(self, name):
        return self.driver.find_element(By.ID, name)

    def all(self, selector):
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def wait(self, condition, what, seconds=60):
        return WebDriverWait(self.driver, seconds, poll_frequency=0.05,
                             ignored_exceptions=[StaleElementReferenceException]).until(lambda _: condition(), what)

    # The text of the last element, "" where there is none; at one moment, whatever is redrawn.
    def last(self, selector):
        return self.driver.execute_script(
            "return [...document.querySelectorAll(arguments[0])].at(-1)?.textContent ?? '';", selector)

    # A person's typing, with the settings open for as long as it takes.
    def set_value(self, name, text):
        self.id("settings-open").click()
        self.id(name).clear()
        self.id(name).send_keys(text)
        self.id("settings-open").click()

    def ask(self, text):
        self.id("input").send_keys(text, Keys.ENTER)

    def answered(self):
        self.wait(lambda: self.id("send").is_displayed() and self.all(".message.assistant .under button"), "an answer")
        return self.last(".message.assistant .body")

    def test_an_answer_streams_and_the_panel_moves(self):
        self.set_value("max_tokens", "200")
        self.driver.execute_script(IGNORE_END + WATCH_TEXT + WATCH_RINGS)
        self.assertEqual(self.id("model").text, "tiny")
        self.ask("Tell me a story.")
        text = self.answered()
        whole = self.server.post("/v1/chat/completions", {
            "messages": [{"role": "user", "content": "Tell me a story."}], "temperature": 0,
            "max_tokens": 200, "ignore_eos": True})
        message = whole["choices"][0]["message"]
        self.assertEqual(re.sub(r"\s+", " ", text).strip(), re.sub(r"\s+", " ", message["content"]).strip())
        shown = [each for each in self.driver.execute_script("return window.shown") if each]
        self.assertGreater(len(shown), 3, "the text came in pieces")
        for shorter, longer in zip(shown, shown[1:]):
            self.assertTrue(longer.startswith(shorter), (shorter, longer))
        self.assertIn("prompt tokens reused", self.last(".message.assistant .under"))

        rings = self.driver.execute_script("return window.rings")
        self.assertTrue(rings, "the running request was shown")
        block = self.server.get("/state")["replay"]["fold_block"]
        for cells, full in rings:
            self.assertEqual(cells, block)
            self.assertTrue(0 <= full <= block)
        self.assertGreater(len({full for _, full in rings}), 1, "the ring's fill changed")
        self.wait(lambda: self.all(".sequence.ended"), "the ended request stays in sight")
        self.wait(lambda: "folds of" in self.id("traffic").text, "folds are counted")
        self.assertTrue(self.all("#cache-plot rect"), "cache entries are shown")
        self.assertEqual(len(self.all("#pools .meter")), 3)
        self.assertTrue(self.all("#plan-legend li"))

    def test_stop_ends_the_answer_and_frees_its_place(self):
        self.set_value("max_tokens", "3000")
        self.driver.execute_script(IGNORE_END)
        before = self.server.get("/state")["counters"]["generation_tokens"]
        self.ask("Tell me a story.")
        self.wait(lambda: len(self.last(".message.assistant .body")) > 20, "text comes")
        self.id("stop").click()
        text = self.answered()
        self.assertIn("ended: stopped", self.last(".message.assistant .under"))
        self.assertGreater(len(text), 20)
        state = self.server.wait_until_idle()
        self.assertLess(state["counters"]["generation_tokens"] - before, 3000)
        self.ask("Count from 7 to 12")
        self.wait(lambda: len(self.last(".message.assistant .body")) > 20, "text comes again")
        self.id("input").send_keys(Keys.ESCAPE)
        self.answered()
        self.assertIn("ended: stopped", self.last(".message.assistant .under"), "Escape stops as well")

    def test_editing_and_asking_again_open_branches(self):
        self.ask("Count from 7 to 12")
        self.assertEqual(self.answered(), "7, 8, 9, 10, 11, 12")
        self.all(".message.user .under button")[0].click()
        field = self.all(".message.user textarea")[0]
        field.clear()
        field.send_keys("Count from 3 to 5", Keys.ENTER)
        self.wait(lambda: self.all(".message.user .body") and self.answered() == "3, 4, 5", "the edited question's answer")
        self.assertIn("2 of 2", self.all(".message.user .under")[0].text)
        self.driver.find_element(By.CSS_SELECTOR, "[aria-label='Answer again']").click()
        self.wait(lambda: "2 of 2" in self.last(".message.assistant .under"), "a second answer")
        self.all("[aria-label='Branch before']")[0].click()
        self.assertEqual(self.last(".message.assistant .body"), "7, 8, 9, 10, 11, 12")
        self.driver.refresh()
        self.wait(lambda: self.last(".message.assistant .body"), "the conversation is kept")
        self.assertEqual(self.last(".message.assistant .body"), "7, 8, 9, 10, 11, 12")

    def test_a_tool_call_is_shown_and_takes_its_result(self):
        self.id("settings-open").click()
        self.driver.execute_script(
            "const field = document.getElementById('tools'); field.value = arguments[0];"
            "field.dispatchEvent(new Event('input', { bubbles: true }));", json.dumps(DOOR_TOOL))
        self.id("settings-open").click()
        self.ask("Please open door 9, the code is U7897.")
        self.wait(lambda: self.all(".call input"), "a call")
        self.assertEqual(self.all(".call strong")[0].text, "open_door()")
        self.assertEqual(json.loads(self.all(".call pre")[0].text), {"door": 9, "code": "U7897"})
        self.all(".call input")[0].send_keys('{"status": "open"}', Keys.ENTER)
        self.wait(lambda: len(self.all(".message.assistant")) == 2, "the answer to the result")
        self.assertEqual(self.answered(), "Door 9 is open.")

    def test_reasoning_and_characters_cut_by_the_network(self):
        text = ": ping\n\n" + events(
            delta(role="assistant", content=""), delta(reasoning_content="Grüße zählen"),
            delta(content="Ein 🦊 und "), delta(content="**zwei** 北京"), delta("stop")) + "data: [DONE]\n\n"
        for piece in (1, 3, 1000):
            with self.subTest(piece):
                self.driver.execute_script(SCRIPTED, text, piece)
                self.ask("Hello")
                self.assertEqual(self.answered(), "Ein 🦊 und zwei 北京")
                self.assertEqual(self.last(".message.assistant strong"), "zwei")
                self.assertIn("Grüße zählen", self.last(".message.assistant details"))
                self.id("new").click()

    def test_an_error_in_the_stream_keeps_what_came_before(self):
        self.driver.execute_script(SCRIPTED, events(delta(content="Half"), {"error": {"message": "it broke"}}), 7)
        self.ask("Hello")
        self.assertEqual(self.answered(), "Half")
        self.assertEqual(self.id("problem").text, "it broke")
        self.driver.execute_script(SCRIPTED, events(delta(content="Cut")), 7)
        self.ask("Hello")
        self.wait(lambda: "ended before the answer did" in self.id("problem").text, "a cut stream is an error")

    def test_wrong_settings_are_named(self):
        self.set_value("temperature", "99")
        self.ask("Hello")
        self.assertTrue(self.id("settings").is_displayed())
        self.assertFalse(self.all(".message.assistant"))
        self.id("temperature").clear()
        self.id("tools").send_keys("[nonsense")
        self.assertIn("Tools:", self.id("tools-error").text)

    def test_the_panel_names_slots_phases_and_folds(self):
        sequence = {"id": 7, "choice": 1, "phase": "paused", "prompt_tokens": 40, "cached_tokens": 39, "output_tokens": 3,
                    "committed": 42, "checkpoint": 32, "pending": 10, "last_fold": 33, "slot": 5, "slot_shared": True}
        text, full, folded = self.driver.execute_script(
            "const view = sequenceView(arguments[0], { enabled: true, fold_block: 16 }, true, false);"
            "return [view.textContent, view.querySelectorAll('.ring .full').length, view.querySelectorAll('.folded').length];",
            sequence)
        for words in ("Request 7, choice 1", "slot 5 shared", "paused", "checkpoint c32", "committed t42",
                      "pending10 of 16", "last foldat t = 33", "reused39"):
            self.assertIn(words, text)
        self.assertEqual((full, folded), (10, 1))
        no_slot = self.driver.execute_script(
            "return sequenceView(arguments[0], { enabled: false }, false, false).textContent;", {**sequence, "slot": None})
        self.assertIn("no slot", no_slot)

    def test_export_and_import(self):
        self.ask("Count from 7 to 12")
        self.answered()
        exported = self.driver.execute_script("return conversation.toJson('Be brief.')")
        self.assertEqual([message["role"] for message in exported["messages"]], ["system", "user", "assistant"])
        self.id("new").click()
        self.assertFalse(self.all(".message"))
        with tempfile.TemporaryDirectory() as folder:
            def take(name, content):
                path = os.path.join(folder, name)
                with open(path, "w", encoding="utf-8") as file:
                    file.write(content)
                self.id("import-file").send_keys(path)

            take("whole.json", json.dumps(exported))
            self.wait(lambda: len(self.all(".message")) == 2, "the export is back")
            self.assertEqual(self.id("system").get_property("value"), "Be brief.")
            take("bare.json", json.dumps([{"role": "user", "content": "Hi"}]))
            self.wait(lambda: len(self.all(".message")) == 1, "bare messages")
            take("wrong.json", json.dumps([{"role": "pope", "content": "Hi"}]))
            self.wait(lambda: "messages[0].role" in self.id("problem").text, "a refusal by name")
            self.assertEqual(len(self.all(".message")), 1, "what was there stays")

    def test_text_of_a_model_is_never_markup(self):
        hostile = ("<img src=x onerror=alert(1)> **bold <script>alert(1)</script>** `<b>` \n\n"
                   "# <i>title</i>\n\n```<script>\n</code><script>alert(1)</script>\n```\n\n"
                   "- <a href='javascript:alert(1)'>x</a>\n\n[x](javascript:alert(1))\n")
        tags, text = self.driver.execute_script(
            "const box = document.createElement('div'); box.append(...markdownNodes(arguments[0]));"
            "return [[...box.querySelectorAll('*')].map((each) => each.tagName), box.textContent];", hostile)
        allowed = {"P", "STRONG", "EM", "CODE", "PRE", "DIV", "HEADER", "SPAN", "BUTTON", "UL", "OL", "LI",
                   "H3", "H4", "H5", "BLOCKQUOTE"}
        self.assertLessEqual(set(tags), allowed)
        self.assertIn("<script>alert(1)</script>", text)
        self.assertIn("[x](javascript:alert(1))", text)

    def test_it_can_be_used_without_a_mouse_and_on_a_narrow_screen(self):
        for each in self.all("button, input:not([type=file]), textarea"):
            if each.is_displayed():
                self.assertTrue(each.accessible_name, each.get_attribute("outerHTML"))
        self.assertEqual(self.driver.switch_to.active_element.get_attribute("id"), "settings-open")
        self.driver.refresh()
        self.assertEqual(self.driver.switch_to.active_element.get_attribute("id"), "input")
        self.driver.set_window_size(420, 900)
        wide, width = self.driver.execute_script("return [document.documentElement.scrollWidth, innerWidth]")
        self.assertLessEqual(wide, width)
        self.assertFalse(self.id("engine").is_displayed())
        self.id("show-engine").click()
        self.assertTrue(self.id("engine").is_displayed())
        self.assertFalse(self.id("chat").is_displayed())


if __name__ == "__main__":
    unittest.main()
