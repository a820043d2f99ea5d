"""A stub of the Messages API on loopback, for end-to-end runs of the real client.

A test scripts the model as a list of turns, starts the client against `StubModel.url`, and afterwards looks at
`StubModel.requests`: the bodies the client really sent. What is not in one of them did not reach the model.
A turn may be a function of the request: a model that reacts to what the hooks told it (see agents.py).

    client ──POST /v1/messages──► kind of request? ──► next turn of that kind ──► SSE (or one JSON object)
                                        │
                                        └── main, subagent (`tools` and the marker), compact, side (no `tools`)
"""

from __future__ import annotations

import json
import threading
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

MODEL = "claude-opus-4-6"  # a 200,000 window: small numbers cross the thresholds
SUBAGENT_MARKER = "SUBAGENT-TASK"  # a scripted Agent call puts this into its prompt
COMPACT_MARKER = "detailed summary of the conversation"  # the client's own words when it asks for a compaction
COMPACT_ANSWER = "<analysis>short</analysis>\n<summary>The earlier conversation, summarised by the stub.</summary>"


class Turn:
    """One answer of the model: text, tool calls (several may run in parallel), and how full it says it is."""

    def __init__(self, text="", tools=(), tokens=1000, act=None):
        self.text = text
        self.tools = list(tools)  # [(name, input), …]
        self.tokens = tokens  # input + cache creation + cache read
        self.act = act  # called with the request before the answer: things that happen outside

    def blocks(self):
        blocks = [{"type": "text", "text": self.text}] if self.text or not self.tools else []
        for name, arguments in self.tools:
            blocks.append({"type": "tool_use", "id": _fresh("toolu"), "name": name, "input": arguments})
        return blocks


class Request:
    """One recorded request of the client."""

    def __init__(self, body):
        self.body = body
        self.messages = body["messages"]
        self.kind = _kind(body)

    def text(self):
        """Everything but the model's own words: system prompt, user messages, tool results, injected context."""
        return "\n".join(_strings(self.body.get("system")) + _strings_of(self.messages))

    def news(self):
        """What the client added since the model's last answer."""
        last = max((i for i, m in enumerate(self.messages) if m["role"] == "assistant"), default=-1)
        return "\n".join(_strings_of(self.messages[last + 1 :]))


class StubModel:
    """The server. `turns` are used up by main requests, `subagent_turns` by requests of subagents."""

    def __init__(self):
        self.model = MODEL
        self.requests = []
        self.turns = []
        self.subagent_turns = []
        self.otherwise = Turn("stub: out of turns")  # or a function: for main requests after the last scripted one
        self.aside = Turn("stub: side answer")  # the same for side requests
        self.lock = threading.Lock()
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self.server.daemon_threads = True
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True)
        self.thread.start()

    @property
    def url(self):
        return "http://127.0.0.1:%d" % self.server.server_address[1]

    def close(self):
        self.server.shutdown()
        self.server.server_close()
        self.thread.join(5)

    def script(self, *turns, otherwise=None):
        """Append turns (plain strings are texts, functions take the request and give a turn); `otherwise` answers
        whatever comes after them."""
        self.turns.extend(Turn(t) if isinstance(t, str) else t for t in turns)
        self.otherwise = otherwise or self.otherwise

    def of(self, kind):
        return [r for r in list(self.requests) if r.kind == kind]

    def answer(self, body):
        request = Request(body)
        with self.lock:
            self.requests.append(request)
            turn = self._next_turn(request.kind)
        if callable(turn):
            turn = turn(request)
        if turn.act:
            turn.act(request)
        return _message(turn, body["model"])

    def _next_turn(self, kind):
        if kind == "compact":
            return Turn(COMPACT_ANSWER)
        if kind == "side":
            return self.aside
        if kind == "subagent":
            return self.subagent_turns.pop(0)
        return self.turns.pop(0) if self.turns else self.otherwise


def _kind(body):
    if COMPACT_MARKER in "\n".join(_strings_of(body["messages"][-2:])):  # newer models: a system message comes last
        return "compact"
    if not body.get("tools"):
        return "side"
    first = next(message for message in body["messages"] if message["role"] == "user")
    return "subagent" if SUBAGENT_MARKER in "\n".join(_strings(first["content"])) else "main"


def _strings_of(messages):
    return [s for m in messages if m["role"] != "assistant" for s in _strings(m["content"])]


def _strings(value):
    """Every piece of text in a content value, in order, whatever it is nested in."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, list):
        return [s for item in value for s in _strings(item)]
    if isinstance(value, dict):
        return _strings(value.get("text")) + _strings(value.get("content"))
    return []


def _fresh(prefix):
    return "%s_stub%s" % (prefix, uuid.uuid4().hex[:16])


# ---------------------------------------------------------------------------
# the wire
# ---------------------------------------------------------------------------


def _handler(stub):
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if "count_tokens" in self.path:
                return self.reply_json({"input_tokens": 1000})
            if not self.path.startswith("/v1/messages"):
                return self.reply_json({})
            message = stub.answer(body)
            return self.reply_stream(_events(message)) if body.get("stream") else self.reply_json(message)

        def do_GET(self):
            self.reply_json({})

        def reply_json(self, value):
            self.send_bytes("application/json", json.dumps(value).encode("utf-8"))

        def reply_stream(self, events):
            lines = ["event: %s\ndata: %s\n\n" % (e["type"], json.dumps(e)) for e in events]
            self.send_bytes("text/event-stream", "".join(lines).encode("utf-8"))

        def send_bytes(self, kind, data):
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *arguments):
            """Nothing: the record is `requests`."""

    return Handler


def _message(turn, model):
    return {
        "id": _fresh("msg"),
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": turn.blocks(),
        "stop_reason": "tool_use" if turn.tools else "end_turn",
        "stop_sequence": None,
        "usage": {
            "input_tokens": 3,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": turn.tokens - 3,
            "output_tokens": 10,
        },
    }


def _events(message):
    """The message as the server-sent events of a streaming answer."""
    yield {"type": "message_start", "message": dict(message, content=[], stop_reason=None)}
    for index, block in enumerate(message["content"]):
        if block["type"] == "text":
            empty, delta = {"type": "text", "text": ""}, {"type": "text_delta", "text": block["text"]}
        else:
            empty = dict(block, input={})
            delta = {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
        yield {"type": "content_block_start", "index": index, "content_block": empty}
        yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    ends = {"stop_reason": message["stop_reason"], "stop_sequence": None}
    yield {"type": "message_delta", "delta": ends, "usage": message["usage"]}
    yield {"type": "message_stop"}
