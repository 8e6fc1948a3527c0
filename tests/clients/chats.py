"""Chats with an OpenAI-compatible server, all at the same time. Each asks for another capital, so that an answer that belongs to
another chat is a wrong one; all answers have the same number of tokens.

Prints JSON: the chats with their questions, answers, and the capital that has to be in the answer.
"""

import argparse
import concurrent.futures
import json
import time
import urllib.error
import urllib.request

CAPITALS = {
    "Poland": "Warsaw", "Japan": "Tokyo", "Egypt": "Cairo", "Kenya": "Nairobi", "Peru": "Lima", "Norway": "Oslo",
    "Greece": "Athens", "Canada": "Ottawa", "Cuba": "Havana", "India": "New Delhi", "China": "Beijing", "Austria": "Vienna",
    "Germany": "Berlin", "Russia": "Moscow", "Hungary": "Budapest", "Ireland": "Dublin"}
TOKENS = 12
START_LIMIT = 120
ANSWER_LIMIT = 300


class Client:
    def __init__(self, url, model):
        self.url, self.model = url, model

    def post(self, path, body):
        request = urllib.request.Request(self.url + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=ANSWER_LIMIT) as answer:
            return json.load(answer)

    def wait(self):
        """Until the server has loaded what it needs."""
        end = time.monotonic() + START_LIMIT
        while True:
            try:
                return urllib.request.urlopen(self.url + "/health", timeout=10).close()
            except (urllib.error.URLError, OSError):
                if time.monotonic() > end:
                    raise
                time.sleep(0.2)

    def chat(self, country):
        question = f"What is the capital of {country}?"
        answer = self.post("/chat/completions", {
            "model": self.model, "messages": [{"role": "user", "content": question}], "max_tokens": TOKENS,
            "ignore_eos": True, "temperature": 0, "seed": 1, "cache_prompt": False})
        text = answer["choices"][0]["message"]["content"]
        return {"question": question, "answer": text, "capital": CAPITALS[country]}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("--model", default="default")
    parser.add_argument("--chats", type=int, default=len(CAPITALS))
    parser.add_argument("--unload", action="store_true", help="have the server end what runs the model")
    arguments = parser.parse_args()
    client = Client(arguments.url, arguments.model)
    client.wait()
    with concurrent.futures.ThreadPoolExecutor(arguments.chats) as pool:
        chats = list(pool.map(client.chat, list(CAPITALS)[:arguments.chats]))
    if arguments.unload:
        client.post("/unload", {})
    print(json.dumps(chats))


main()
