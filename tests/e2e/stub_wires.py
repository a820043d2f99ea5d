"""A stub model on loopback that speaks the four wire formats of the agents that `wrap` is tried with.

    POST …/messages            Anthropic Messages         POST …/responses                  OpenAI Responses
    POST …/chat/completions    OpenAI Chat Completions    POST …:[stream]GenerateContent    Gemini

A test gives a function from the request's text to a `Say`; every request is kept in `requests`.
"""

from __future__ import annotations

import json
import threading
import time
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Say:
    """One answer: a text, perhaps one tool call, perhaps late."""

    def __init__(self, text="", tool=None, delay_s=0.0):
        self.text, self.tool, self.delay_s = text, tool, delay_s  # tool: (name, input)


class StubWires:
    """The server; `answer` is called with everything that the request says, as one text."""

    def __init__(self, answer):
        self.answer, self.requests, self.closing = answer, [], threading.Event()
        stub = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def do_GET(self):
                self.reply(200, "application/json", json.dumps({"object": "list", "data": []}))

            def do_HEAD(self):
                self.reply(200, "application/json", "")

            def do_POST(self):
                body = self.rfile.read(int(self.headers.get("content-length") or 0))
                wire = wire_of(self.path)
                if not wire:
                    self.reply(404, "application/json", '{"error": {"message": "stub: not found"}}')
                    return
                request = json.loads(body or b"{}")
                stub.requests.append(request)
                say = stub.answer(json.dumps(request, ensure_ascii=False))
                stub.closing.wait(say.delay_s)
                streams = request.get("stream") or "stream" in self.path
                kind, text = wire(request, say, streams)
                self.reply(200, kind, text)

            def reply(self, code, kind, text):
                data = text.encode("utf-8")
                self.send_response(code)
                self.send_header("content-type", kind)
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                try:
                    self.wfile.write(data)
                except OSError:
                    pass  # the agent is gone

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *_):
                pass  # an agent that was ended in the middle of a request

        self.server = Server(("127.0.0.1", 0), Handler)
        self.url = "http://127.0.0.1:%d" % self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    def close(self):
        self.closing.set()
        self.server.shutdown()
        self.server.server_close()

    def holds(self, text):
        """In how many requests does the text stand?"""
        return sum(text in json.dumps(request, ensure_ascii=False) for request in self.requests)


def wire_of(path):
    path = path.split("?")[0].rstrip("/")
    if path.endswith((":generateContent", ":streamGenerateContent")):
        return _gemini
    return {"messages": _messages, "responses": _responses, "completions": _chat}.get(path.rsplit("/", 1)[-1])


def _fresh(prefix):
    return prefix + uuid.uuid4().hex[:20]


def _sse(events):
    """[(name or None, data)] as a stream of server-sent events."""
    lines = []
    for name, data in events:
        lines.append(("event: %s\n" % name if name else "") + "data: %s\n\n" % (
            data if isinstance(data, str) else json.dumps(data)))
    return "text/event-stream", "".join(lines)


def _json(data):
    return "application/json", json.dumps(data)


def _messages(request, say, streams):
    blocks = [{"type": "text", "text": say.text}] if say.text or not say.tool else []
    if say.tool:
        blocks.append({"type": "tool_use", "id": _fresh("toolu_"), "name": say.tool[0], "input": say.tool[1]})
    usage = {"input_tokens": 10, "output_tokens": 5}
    stop = "tool_use" if say.tool else "end_turn"
    message = {"id": _fresh("msg_"), "type": "message", "role": "assistant", "model": request.get("model", "stub"),
               "content": blocks, "stop_reason": stop, "stop_sequence": None, "usage": usage}
    if not streams:
        return _json(message)
    events = [("message_start", {"message": dict(message, content=[], stop_reason=None)})]
    for index, block in enumerate(blocks):
        is_text = block["type"] == "text"
        start = dict(block, text="") if is_text else dict(block, input={})
        delta = ({"type": "text_delta", "text": block["text"]} if is_text else
                 {"type": "input_json_delta", "partial_json": json.dumps(block["input"])})
        events += [("content_block_start", {"index": index, "content_block": start}),
                   ("content_block_delta", {"index": index, "delta": delta}),
                   ("content_block_stop", {"index": index})]
    events += [("message_delta", {"delta": {"stop_reason": stop, "stop_sequence": None}, "usage": usage}),
               ("message_stop", {})]
    return _sse([(name, dict(data, type=name)) for name, data in events])


def _responses(request, say, streams):
    items = [{"type": "message", "id": _fresh("msg_"), "role": "assistant", "status": "completed",
              "content": [{"type": "output_text", "text": say.text, "annotations": []}]}]
    if say.tool:
        items.append(dict(say.tool[1], id=_fresh("it_"), call_id=_fresh("call_"), name=say.tool[0], status="completed"))
    usage = {"input_tokens": 10, "input_tokens_details": {"cached_tokens": 0}, "output_tokens": 5,
             "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": 15}
    whole = {"id": _fresh("resp_"), "object": "response", "created_at": int(time.time()), "status": "completed",
             "model": request.get("model", "stub"), "output": items, "usage": usage, "error": None}
    if not streams:
        return _json(whole)
    events = [("response.created", {"response": dict(whole, status="in_progress", output=[], usage=None)})]
    for index, item in enumerate(items):
        events.append(("response.output_item.added", {"output_index": index, "item": item}))
        if item["type"] == "message":
            events.append(("response.output_text.delta", {
                "item_id": item["id"], "output_index": index, "content_index": 0, "delta": say.text}))
        events.append(("response.output_item.done", {"output_index": index, "item": item}))
    events.append(("response.completed", {"response": whole}))
    return _sse([(name, dict(data, type=name, sequence_number=i)) for i, (name, data) in enumerate(events)])


def _chat(request, say, streams):
    head = {"id": _fresh("chatcmpl-"), "created": int(time.time()), "model": request.get("model", "stub")}
    usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
    if not streams:
        choice = {"index": 0, "message": {"role": "assistant", "content": say.text}, "finish_reason": "stop"}
        return _json(dict(head, object="chat.completion", choices=[choice], usage=usage))
    head["object"] = "chat.completion.chunk"
    chunks = [dict(head, choices=[{"index": 0, "delta": {"role": "assistant", "content": say.text}, "finish_reason": None}]),
              dict(head, choices=[{"index": 0, "delta": {}, "finish_reason": "stop"}]),
              dict(head, choices=[], usage=usage)]
    return _sse([(None, chunk) for chunk in chunks] + [(None, "[DONE]")])


def _gemini(_, say, streams):
    parts = [{"text": say.text}]
    if say.tool:
        parts.append({"functionCall": {"name": say.tool[0], "args": say.tool[1]}, "thoughtSignature": "c3R1Yg=="})
    answer = {"candidates": [{"content": {"role": "model", "parts": parts}, "finishReason": "STOP", "index": 0}],
              "usageMetadata": {"promptTokenCount": 10, "candidatesTokenCount": 5, "totalTokenCount": 15},
              "modelVersion": "stub", "responseId": _fresh("")}
    return _sse([(None, answer)]) if streams else _json(answer)
