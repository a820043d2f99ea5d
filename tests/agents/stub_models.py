"""A stub model on loopback that speaks the four wire formats of coding agents.

A test scripts the model as a list of turns, starts a client against `StubModel.url`, and
looks at `requests` afterwards: the bodies that the client really sent. What is not in one
of them did not reach the model.

    POST …/messages                                  Anthropic Messages
    POST …/responses                                 OpenAI Responses
    POST …/chat/completions                          OpenAI Chat Completions
    POST …:generateContent, :streamGenerateContent   Gemini

Requests that offer no tools (a title, a router) do not use up the script.
"""

from __future__ import annotations

import gzip
import html
import json
import threading
import time
import uuid
import zlib
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

OUT_OF_TURNS = "stub: out of turns"
RECAP = "Summarize earlier turns or the whole session"  # Grok asks for one at its end
SIDE_ANSWER = '{"title": "stub title"}'
FRESH_TOKENS, OUTPUT_TOKENS = (
    300,
    20,
)  # the rest of a turn's tokens counts as read from the cache


class Turn:
    """One answer: a text, and calls as [(name, input)]; or functions of the request."""

    def __init__(self, text="", tools=(), tokens=1000):
        self.text, self.tools, self.tokens = text, tools, tokens

    def play(self, request):
        text = self.text(request) if callable(self.text) else self.text
        tools = self.tools(request) if callable(self.tools) else self.tools
        return text, [(_fresh("call"), name, value) for name, value in tools]


class Request:
    """One recorded request of the client."""

    def __init__(self, number, path, body):
        self.number, self.path, self.body = number, path, body
        self.wire = _wire(path)
        self.text = _plain("\n".join(_strings(body)))
        is_recap = RECAP in self.text
        self.is_main = bool(self.wire) and _offers_tools(body) and not is_recap

    def holds(self, text):
        return _plain(text) in self.text


class StubModel:
    """The server. Turns are used up by requests that offer tools."""

    def __init__(self):
        self.requests, self.turns, self.ran_out = [], [], 0
        self.lock = threading.Lock()
        self.extra = {}  # path -> JSON, for clients that ask their service something at the start
        self.server = _Server(("127.0.0.1", 0), _handler(self))
        self.thread = threading.Thread(
            target=self.server.serve_forever, args=(0.05,), daemon=True
        )
        self.thread.start()

    @property
    def url(self):
        return "http://127.0.0.1:%d" % self.server.server_address[1]

    def close(self):
        self.server.shutdown()
        self.server.server_close()
        self.thread.join(5)

    def script(self, *turns):
        self.turns = [Turn(turn) if isinstance(turn, str) else turn for turn in turns]
        self.requests, self.ran_out = [], 0

    def main(self):
        return [request for request in list(self.requests) if request.is_main]

    def holding(self, text):
        """The requests of the main loop in which the text stood."""
        return [request for request in self.main() if request.holds(text)]

    def answer(self, path, body):
        with self.lock:
            request = Request(len(self.requests), path, body)
            self.requests.append(request)
            if not request.is_main:
                turn = Turn(SIDE_ANSWER)
            elif self.turns:
                turn = self.turns.pop(0)
            else:
                self.ran_out += 1
                turn = Turn(OUT_OF_TURNS)
        return request, turn


def _plain(text):
    """Text as it was said: clients escape markup and fold white space in what hooks say."""
    return " ".join(html.unescape(text).split())


def _strings(value):
    if isinstance(value, str):
        return [value]
    inner = (
        value.values()
        if isinstance(value, dict)
        else value
        if isinstance(value, list)
        else ()
    )
    return [text for item in inner for text in _strings(item)]


def _wire(path):
    if path.endswith("/messages"):
        return "messages"
    if path.endswith("/responses"):
        return "responses"
    if path.endswith("/chat/completions"):
        return "chat"
    return (
        "gemini"
        if path.rpartition(":")[2] in ("generateContent", "streamGenerateContent")
        else ""
    )


def _offers_tools(body):
    """Codex declares the tools of its newest models inside `input`."""
    items = body.get("input")
    inside = isinstance(items, list) and any(
        i.get("type") == "additional_tools" for i in items if isinstance(i, dict)
    )
    return bool(inside or body.get("tools"))


def _fresh(prefix):
    return "%s_%s" % (prefix, uuid.uuid4().hex[:20])


# ---------------------------------------------------------------------------
# the server
# ---------------------------------------------------------------------------


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request, client_address):
        """A client that was ended in the middle of an answer is no event."""


def _handler(stub):
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self):
            path = self.path.split("?")[0]
            if path.endswith("/models"):
                return self.reply(
                    200,
                    {
                        "object": "list",
                        "data": [{"id": "stub-model", "object": "model"}],
                        "models": [],
                    },
                )
            known = stub.extra.get(path)
            return self.reply(
                404 if known is None else 200,
                known if known is not None else {"error": {"code": 404}},
            )

        def do_POST(self):
            body, path = self.read_body(), self.path.split("?")[0].rstrip("/")
            if path.endswith(("count_tokens", ":countTokens")):
                return self.reply(200, {"input_tokens": 1000, "totalTokens": 1000})
            if not _wire(path):
                return self.reply(
                    404, {"error": {"message": "stub: not found", "code": 404}}
                )
            request, turn = stub.answer(path, body)
            text, calls = turn.play(request)
            stream = bool(body.get("stream")) or path.endswith(":streamGenerateContent")
            whole, events = WIRES[request.wire](
                text, calls, turn.tokens, str(body.get("model") or "stub-model")
            )
            return (
                self.send(200, events, "text/event-stream")
                if stream
                else self.reply(200, whole)
            )

        do_PUT = do_POST

        def read_body(self):
            raw = (
                self.rfile.read(int(self.headers.get("content-length") or 0))
                or self.read_chunks()
            )
            unpack = {"gzip": gzip.decompress, "deflate": zlib.decompress}.get(
                self.headers.get("content-encoding")
            )
            try:
                body = json.loads(unpack(raw) if unpack else raw)
            except (ValueError, OSError, zlib.error):
                body = {}
            return body if isinstance(body, dict) else {}

        def read_chunks(self):
            data = b""
            while "chunked" in (self.headers.get("transfer-encoding") or ""):
                size = int(self.rfile.readline().split(b";")[0], 16)
                data += self.rfile.read(size)
                self.rfile.readline()
                if not size:
                    break
            return data

        def reply(self, status, value):
            self.send(status, json.dumps(value), "application/json")

        def send(self, status, text, kind):
            data = text.encode("utf-8")
            self.send_response(status)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *arguments):
            """Nothing: the record is `requests`."""

    return Handler


# ---------------------------------------------------------------------------
# the wires: (text, calls, tokens, model) -> (the answer as one object, as server-sent events)
# ---------------------------------------------------------------------------


def _named_events(events):
    return "".join(
        "event: %s\ndata: %s\n\n" % (event["type"], json.dumps(event))
        for event in events
    )


def _messages(text, calls, tokens, model):
    usage = {
        "input_tokens": FRESH_TOKENS,
        "cache_creation_input_tokens": 0,
        "output_tokens": OUTPUT_TOKENS,
    }
    usage["cache_read_input_tokens"] = tokens - FRESH_TOKENS
    blocks = [{"type": "text", "text": text}] if text or not calls else []
    blocks += [
        {"type": "tool_use", "id": key, "name": name, "input": value}
        for key, name, value in calls
    ]
    stop = "tool_use" if calls else "end_turn"
    whole = {
        "id": _fresh("msg"),
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": blocks,
    }
    whole.update(stop_reason=stop, stop_sequence=None, usage=usage)
    events = [
        {"type": "message_start", "message": dict(whole, content=[], stop_reason=None)}
    ]
    for index, block in enumerate(blocks):
        empty, delta = (
            {"type": "text", "text": ""},
            {"type": "text_delta", "text": text},
        )
        if block["type"] == "tool_use":
            empty, delta = (
                dict(block, input={}),
                {
                    "type": "input_json_delta",
                    "partial_json": json.dumps(block["input"]),
                },
            )
        events.append(
            {"type": "content_block_start", "index": index, "content_block": empty}
        )
        events.append({"type": "content_block_delta", "index": index, "delta": delta})
        events.append({"type": "content_block_stop", "index": index})
    events.append(
        {
            "type": "message_delta",
            "delta": {"stop_reason": stop, "stop_sequence": None},
            "usage": usage,
        }
    )
    return whole, _named_events(events + [{"type": "message_stop"}])


def _responses(text, calls, tokens, model):
    items = []
    if text or not calls:
        part = {"type": "output_text", "text": text, "annotations": []}
        items.append(
            {
                "type": "message",
                "id": _fresh("msg"),
                "role": "assistant",
                "content": [part],
            }
        )
    for key, name, value in calls:
        if isinstance(value, str):  # a tool whose input is not JSON
            items.append(
                {
                    "type": "custom_tool_call",
                    "id": _fresh("ctc"),
                    "call_id": key,
                    "name": name,
                    "input": value,
                }
            )
            items[-1]["namespace"] = "functions"
        else:
            items.append(
                {
                    "type": "function_call",
                    "id": _fresh("fc"),
                    "call_id": key,
                    "name": name,
                }
            )
            items[-1]["arguments"] = json.dumps(value)
    usage = {
        "input_tokens": tokens,
        "input_tokens_details": {"cached_tokens": tokens - FRESH_TOKENS},
    }
    usage.update(
        output_tokens=OUTPUT_TOKENS, output_tokens_details={"reasoning_tokens": 0}
    )
    usage["total_tokens"] = tokens + OUTPUT_TOKENS
    whole = {
        "id": _fresh("resp"),
        "object": "response",
        "created_at": int(time.time()),
        "model": model,
    }
    whole.update(
        status="completed",
        output=[dict(item, status="completed") for item in items],
        usage=usage,
    )
    events = [
        {
            "type": "response.created",
            "response": dict(whole, status="in_progress", output=[], usage=None),
        }
    ]
    for index, item in enumerate(whole["output"]):
        events.append(
            {"type": "response.output_item.added", "output_index": index, "item": item}
        )
        if item["type"] == "message":
            delta = {
                "item_id": item["id"],
                "output_index": index,
                "content_index": 0,
                "delta": text,
            }
            events.append(dict(delta, type="response.output_text.delta"))
        events.append(
            {"type": "response.output_item.done", "output_index": index, "item": item}
        )
    return whole, _named_events(
        events + [{"type": "response.completed", "response": whole}]
    )


def _chat(text, calls, tokens, model):
    usage = {
        "prompt_tokens": tokens,
        "completion_tokens": OUTPUT_TOKENS,
        "total_tokens": tokens + OUTPUT_TOKENS,
    }
    usage["prompt_tokens_details"] = {"cached_tokens": tokens - FRESH_TOKENS}
    asked = [
        {
            "index": i,
            "id": key,
            "type": "function",
            "function": {"name": name, "arguments": json.dumps(value)},
        }
        for i, (key, name, value) in enumerate(calls)
    ]
    message = {"role": "assistant", "content": text}
    if asked:
        message["tool_calls"] = asked
    end = "tool_calls" if asked else "stop"
    head = {"id": _fresh("chatcmpl"), "created": int(time.time()), "model": model}
    whole = dict(
        head,
        object="chat.completion",
        usage=usage,
        choices=[{"index": 0, "message": message, "finish_reason": end}],
    )
    deltas = (
        [({"role": "assistant", "content": text}, None)]
        + [({"tool_calls": [one]}, None) for one in asked]
        + [({}, end)]
    )
    chunks = [
        dict(
            head,
            object="chat.completion.chunk",
            choices=[{"index": 0, "delta": delta, "finish_reason": reason}],
        )
        for delta, reason in deltas
    ]
    chunks.append(dict(head, object="chat.completion.chunk", choices=[], usage=usage))
    return whole, "".join(
        "data: %s\n\n" % json.dumps(chunk) for chunk in chunks
    ) + "data: [DONE]\n\n"


def _gemini(text, calls, tokens, model):
    parts = [{"text": text}] if text or not calls else []
    parts += [
        {"functionCall": {"name": name, "args": value}, "thoughtSignature": "c3R1Yg=="}
        for _, name, value in calls
    ]
    usage = {
        "promptTokenCount": tokens,
        "cachedContentTokenCount": tokens - FRESH_TOKENS,
    }
    usage.update(
        candidatesTokenCount=OUTPUT_TOKENS, totalTokenCount=tokens + OUTPUT_TOKENS
    )
    content = {"role": "model", "parts": parts}
    whole = {
        "candidates": [{"content": content, "finishReason": "STOP", "index": 0}],
        "usageMetadata": usage,
    }
    whole.update(modelVersion=model, responseId=_fresh("r"))
    return whole, "data: %s\r\n\r\n" % json.dumps(whole)


WIRES = {
    "messages": _messages,
    "responses": _responses,
    "chat": _chat,
    "gemini": _gemini,
}
