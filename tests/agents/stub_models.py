"""A stub model on loopback that speaks the four wire formats of coding agents.

A test scripts the model as a list of turns, starts a client against `StubModel.url`, and
looks at `requests` afterwards: the bodies that the client really sent. What is not in one
of them did not reach the model.

    POST …/messages                                  Anthropic Messages
    POST …/responses                                 OpenAI Responses
    POST …/chat/completions                          OpenAI Chat Completions
    POST …:generateContent, :streamGenerateContent   Gemini

Answers are streams of events, as all these clients ask for them. Requests that offer no
tools (a title, a router) do not use up the script.
"""

from __future__ import annotations

import html
import json
import threading
import time
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

RECAP = "Summarize earlier turns or the whole session"  # Grok asks for one at its end
FRESH_TOKENS = 300  # the rest of a turn's tokens counts as read from the cache
OUTPUT_TOKENS = 20


class Turn:
    """One answer: a text, and calls as [(name, input)]; or functions of the request."""

    def __init__(self, text="", tools=(), tokens=1000):
        self.text, self.tools, self.tokens = text, tools, tokens

    def play(self, request):
        text = self.text(request) if callable(self.text) else self.text
        tools = self.tools(request) if callable(self.tools) else self.tools
        return text, [(fresh("call"), name, value) for name, value in tools]


class Request:
    """One recorded request of the client."""

    def __init__(self, body):
        self.text = plain("\n".join(strings(body)))
        self.is_main = offers_tools(body) and RECAP not in self.text

    def holds(self, text):
        return plain(text) in self.text


class StubModel:
    """The server. Turns are used up by requests that offer tools."""

    def __init__(self):
        self.requests, self.turns, self.ran_out = [], [], 0
        self.lock = threading.Lock()
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), handler(self))
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True)
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
        return [request for request in self.requests if request.is_main]

    def take_turn(self, request):
        with self.lock:
            self.requests.append(request)
            if not request.is_main:
                return Turn('{"title": "stub title"}')
            if self.turns:
                return self.turns.pop(0)
            self.ran_out += 1
            return Turn("stub: out of turns")


def plain(text):
    """Text as it was said: clients escape markup and fold white space in what hooks say."""
    return " ".join(html.unescape(text).split())


def strings(value):
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        return [text for item in value for text in strings(item)]
    return []


def offers_tools(body):
    """Codex declares the tools of its newest models inside `input`."""
    items = body.get("input")
    inside = isinstance(items, list) and any(item.get("type") == "additional_tools" for item in items)
    return bool(inside or body.get("tools"))


def fresh(prefix):
    return "%s_%s" % (prefix, uuid.uuid4().hex[:20])


# --- the server


def handler(stub):
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self):
            self.reply(404, "application/json", "{}")

        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers.get("content-length") or 0)) or "{}")
            path = self.path.split("?")[0]
            wire = next((wire for end, wire in WIRES.items() if path.endswith(end)), None)
            if not wire:
                return self.do_GET()
            request = Request(body)
            turn = stub.take_turn(request)
            text, calls = turn.play(request)
            events = wire(text, calls, turn.tokens, body.get("model") or "stub-model")
            if path.endswith(":generateContent"):
                return self.reply(200, "application/json", json.dumps(events[0]))
            return self.reply(200, "text/event-stream", stream(events))

        def reply(self, status, kind, text):
            data = text.encode("utf-8")
            self.send_response(status)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *arguments):
            """Nothing: the record is `requests`."""

    return Handler


def stream(events):
    lines = []
    for event in events:
        if "type" in event:
            lines.append("event: " + event["type"])
        lines += ["data: " + json.dumps(event), "", ""]
    return "\n".join(lines)


# --- the wires: (text, calls, tokens, model) -> the events of an answer


def messages_wire(text, calls, tokens, model):
    usage = {
        "input_tokens": FRESH_TOKENS,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": tokens - FRESH_TOKENS,
        "output_tokens": OUTPUT_TOKENS,
    }
    message = {"id": fresh("msg"), "type": "message", "role": "assistant", "model": model, "content": []}
    message.update(stop_reason=None, stop_sequence=None, usage=usage)
    blocks = [({"type": "text", "text": ""}, {"type": "text_delta", "text": text})]
    for key, name, value in calls:
        block = {"type": "tool_use", "id": key, "name": name, "input": {}}
        blocks.append((block, {"type": "input_json_delta", "partial_json": json.dumps(value)}))
    events = [{"type": "message_start", "message": message}]
    for index, (block, delta) in enumerate(blocks):
        events.append({"type": "content_block_start", "index": index, "content_block": block})
        events.append({"type": "content_block_delta", "index": index, "delta": delta})
        events.append({"type": "content_block_stop", "index": index})
    stop = {"stop_reason": "tool_use" if calls else "end_turn", "stop_sequence": None}
    events.append({"type": "message_delta", "delta": stop, "usage": usage})
    return events + [{"type": "message_stop"}]


def responses_wire(text, calls, tokens, model):
    part = {"type": "output_text", "text": text, "annotations": []}
    items = [{"type": "message", "id": fresh("msg"), "role": "assistant", "content": [part]}]
    for key, name, value in calls:
        item = {"id": fresh("fc"), "call_id": key, "name": name}
        if isinstance(value, str):  # a tool whose input is not JSON
            item.update(type="custom_tool_call", namespace="functions", input=value)
        else:
            item.update(type="function_call", arguments=json.dumps(value))
        if "." in name:  # of a group of tools
            item["namespace"], _, item["name"] = name.rpartition(".")
        items.append(item)
    usage = {
        "input_tokens": tokens,
        "input_tokens_details": {"cached_tokens": tokens - FRESH_TOKENS},
        "output_tokens": OUTPUT_TOKENS,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": tokens + OUTPUT_TOKENS,
    }
    head = {"id": fresh("resp"), "object": "response", "created_at": int(time.time()), "model": model}
    events = [{"type": "response.created", "response": dict(head, status="in_progress", output=[])}]
    for index, item in enumerate(items):
        item["status"] = "completed"
        place = {"output_index": index, "item": item}
        events.append(dict(place, type="response.output_item.added"))
        events.append(dict(place, type="response.output_item.done"))
    whole = dict(head, status="completed", output=items, usage=usage)
    return events + [{"type": "response.completed", "response": whole}]


def chat_wire(text, calls, tokens, model):
    usage = {
        "prompt_tokens": tokens,
        "prompt_tokens_details": {"cached_tokens": tokens - FRESH_TOKENS},
        "completion_tokens": OUTPUT_TOKENS,
        "total_tokens": tokens + OUTPUT_TOKENS,
    }
    head = {"id": fresh("chatcmpl"), "object": "chat.completion.chunk", "created": int(time.time()), "model": model}
    choices = [{"index": 0, "delta": {"role": "assistant", "content": text}, "finish_reason": None}]
    for index, (key, name, value) in enumerate(calls):
        function = {"name": name, "arguments": json.dumps(value)}
        call = {"index": index, "id": key, "type": "function", "function": function}
        choices.append({"index": 0, "delta": {"tool_calls": [call]}, "finish_reason": None})
    choices.append({"index": 0, "delta": {}, "finish_reason": "tool_calls" if calls else "stop"})
    return [dict(head, choices=[choice]) for choice in choices] + [dict(head, choices=[], usage=usage)]


def gemini_wire(text, calls, tokens, model):
    parts = [{"text": text}]
    for _, name, value in calls:
        parts.append({"functionCall": {"name": name, "args": value}, "thoughtSignature": "c3R1Yg=="})
    usage = {
        "promptTokenCount": tokens,
        "cachedContentTokenCount": tokens - FRESH_TOKENS,
        "candidatesTokenCount": OUTPUT_TOKENS,
        "totalTokenCount": tokens + OUTPUT_TOKENS,
    }
    candidate = {"content": {"role": "model", "parts": parts}, "finishReason": "STOP", "index": 0}
    whole = {"candidates": [candidate], "usageMetadata": usage, "modelVersion": model, "responseId": fresh("r")}
    return [whole]


WIRES = {
    "/messages": messages_wire,
    "/responses": responses_wire,
    "/chat/completions": chat_wire,
    ":generateContent": gemini_wire,
    ":streamGenerateContent": gemini_wire,
}
