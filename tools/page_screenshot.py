"""Takes the picture of the web page that the README shows: a chat, and the panel while others ask too.

Wants Debian's chromium, chromium-driver and python3-selenium (tools/install_packages.sh browser).

    /usr/bin/python3 tools/page_screenshot.py PROGRAM docs/page.png [dark]
"""

import os
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests"))
os.environ["REPLAYSSM_PROGRAM"] = sys.argv[1]
from selenium import webdriver  # noqa: E402
from selenium.webdriver.chrome.service import Service  # noqa: E402
from selenium.webdriver.common.by import By  # noqa: E402
from selenium.webdriver.common.keys import Keys  # noqa: E402
from served import Server  # noqa: E402

QUESTIONS = ["Remember this codeword: lantern-482", "What is the codeword?", "What is 345 + 278?",
             "Please sort these words: pear, apple, fig, lemon", "Count from 7 to 12"]


def load(server, requests, concurrency, tokens):
    return subprocess.Popen(
        [sys.argv[1], "bench", "serve", "--url", server.url, "--requests", str(requests),
         "--concurrency", str(concurrency), "--max-tokens", str(tokens), "--prefix-words", "40"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def main():
    options = webdriver.ChromeOptions()
    for flag in ("--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--window-size=1320,1400"):
        options.add_argument(flag)
    with Server("--log-level", "warning") as server:
        driver = webdriver.Chrome(service=Service("/usr/bin/chromedriver"), options=options)
        others = []
        try:
            driver.get(server.url)
            if "dark" in sys.argv[3:]:
                driver.execute_script("showTheme('dark')")
            field = driver.find_element(By.ID, "input")
            driver.execute_script("document.getElementById('temperature').value = '0'; saveSettings();")
            for question in QUESTIONS:
                field.send_keys(question, Keys.ENTER)
                end = time.monotonic() + 60
                while not driver.find_element(By.ID, "send").is_displayed() and time.monotonic() < end:
                    time.sleep(0.1)
            load(server, 3, 1, 8).wait()  # so that the prefix is known
            others.append(load(server, 1000, 4, 400))
            time.sleep(10)
            driver.execute_script("document.activeElement.blur()")
            driver.save_screenshot(sys.argv[2])
        finally:
            for other in others:
                other.terminate()
                other.wait()
            driver.quit()


main()
