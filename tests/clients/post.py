"""Sends JSON to a server of llama.cpp once that has loaded its model, and prints the JSON that it answers.

    post.py http://127.0.0.1:8080 /v1/embeddings '{"input": ["a text"]}'
"""

import sys
import time
import urllib.error
import urllib.request

START_LIMIT = 120
ANSWER_LIMIT = 300

url, path, body = sys.argv[1:]
end = time.monotonic() + START_LIMIT
while True:
    try:
        urllib.request.urlopen(url + "/health", timeout=10).close()
        break
    except (urllib.error.URLError, OSError):
        if time.monotonic() > end:
            raise
        time.sleep(0.2)
request = urllib.request.Request(url + path, body.encode(), {"Content-Type": "application/json"})
with urllib.request.urlopen(request, timeout=ANSWER_LIMIT) as answer:
    print(answer.read().decode())
