"""Enqueue jobs over HTTP, with Python's standard library only.

    HEADGATE_URL=http://127.0.0.1:9090 HEADGATE_API_KEY=hg_... python3 client.py

A server without a keys file needs no key from this machine.
"""

import json
import os
import time
import urllib.error
import urllib.request
from urllib.parse import quote


class Problem(Exception):
    """An error response, as defined by RFC 9457."""

    def __init__(self, status, document):
        super().__init__(document.get("detail") or document.get("title"))
        self.status = status
        self.code = document.get("code")
        self.errors = document.get("errors", [])


class Headgate:
    def __init__(self, url, key=None):
        self.base = url.rstrip("/") + "/api/v1"
        self.key = key

    def call(self, method, path, body=None, headers=None, tries=4):
        headers = dict(headers or {})
        if self.key:
            headers["Authorization"] = "Bearer " + self.key
        data = body
        if body is not None and not isinstance(body, bytes):
            data = json.dumps(body).encode()
            headers.setdefault("Content-Type", "application/json")
        for attempt in range(tries):
            request = urllib.request.Request(self.base + path, data=data, headers=headers, method=method)
            try:
                with urllib.request.urlopen(request, timeout=30) as response:
                    return json.load(response)
            except urllib.error.HTTPError as error:
                # Over a limit, or Redis is down: Retry-After says when to try again.
                if error.code in (429, 503, 504) and attempt + 1 < tries:
                    time.sleep(float(error.headers.get("Retry-After", 1)))
                    continue
                raise Problem(error.code, json.load(error)) from None

    def enqueue(self, kind, tenant, payload, key, **more):
        """Enqueues a job. Sent again with the same key, it is enqueued only once."""
        job = {"kind": kind, "tenant": tenant, "payload": payload, **more}
        return self.call("POST", "/jobs", job, {"Idempotency-Key": key})

    def enqueue_many(self, jobs):
        lines = b"".join(json.dumps(job).encode() + b"\n" for job in jobs)
        return self.call("POST", "/jobs/batch", lines, {"Content-Type": "application/x-ndjson"})

    def job(self, queue, id):
        return self.call("GET", f"/queues/{quote(queue, safe='')}/jobs/{quote(id, safe='')}")


if __name__ == "__main__":
    headgate = Headgate(os.environ.get("HEADGATE_URL", "http://127.0.0.1:9090"), os.environ.get("HEADGATE_API_KEY"))
    hook = {"url": "https://example.com/hook", "body": {"order": 4711}}

    receipt = headgate.enqueue("webhook", "acme", hook, key="python-4711")
    print("enqueued", receipt["id"], receipt["state"], receipt.get("expected_at", ""))
    again = headgate.enqueue("webhook", "acme", hook, key="python-4711")
    print("again", again["id"] == receipt["id"], again["existing"])

    result = headgate.enqueue_many(
        {"kind": "webhook", "tenant": "acme", "key": f"python-{n}", "payload": {**hook, "body": n}} for n in range(3)
    )
    print("batch", result["accepted"] + result["existing"], result["refused"])

    print("why", headgate.job(receipt["queue"], receipt["id"])["text"])
    try:
        headgate.enqueue("webhook", "acme", {"body": 1}, key="python-bad")
    except Problem as problem:
        print("refused", problem.status, problem.code, problem.errors[0]["field"])
