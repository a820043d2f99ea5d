"""A whole session in the terminal, without a client: `make demo`.

In a scratch folder the kit is installed and a session is played through the registered command strings, run
by /bin/sh exactly as the client runs them: the start with a handoff, the gate, tool calls that fill the context,
signals, the handoff, a workflow whose end is checked, the end. Each event is shown with what the agent would have seen.
Nothing is left behind. Needs a POSIX shell and nothing else.
"""
from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time

REPO = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SHOWN_ROOT = "/demo"
SESSION = "5d0c7a3e-demo"
WINDOW = 200_000
CONTEXT = {
    "CONSTITUTION.md": "# Constitution\n\n- Prices are integers, in cents.\n",
    "TASKS.md": "# Tasks\n\n- [ ] Checkout page: address form, then payment\n",
    "DECISIONS.md": "# Decisions\n\n- 2026-02-01: no client-side rounding\n",
}
HANDOFF = """# Handoff

## Goal
Finish the checkout page.

## State
The cart works, the address form is half done.

## Next steps
1. Validate the postcode
2. Payment
"""
BLOCK = "---\nSIGNAL: EXECUTION_COMPLETE\nPHASE: execution\nSTATUS: complete\nTIMESTAMP: {time}\nNEXT: none\n---"


class Screen:
    """Plain text in a pipe, colour on a terminal."""

    STYLES = {"title": "1;36", "event": "1", "agent": "33", "dim": "2", "person": "32"}

    def __init__(self, scratch: str):
        self.scratch, self.lines = scratch, []
        self.colour = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
        self.width = min(shutil.get_terminal_size((100, 24)).columns, 110)

    def line(self, style: str, text: str) -> None:
        text = text.replace(self.scratch, SHOWN_ROOT)
        self.lines += [(style, line) for line in text.split("\n")]
        print("\033[%sm%s\033[0m" % (self.STYLES[style], text) if self.colour and text else text, flush=True)

    def title(self, text: str) -> None:
        self.line("title", "\n== " + text)

    def block(self, style: str, text: str, head: str = "    | ") -> None:
        import textwrap

        for line in text.split("\n"):
            for part in textwrap.wrap(line, self.width - len(head), break_on_hyphens=False) or [""]:
                self.line(style, (head + part).rstrip())


class Demo:
    """A project in a scratch folder, the registered commands, and a transcript that grows."""

    def __init__(self, scratch: str):
        self.screen = Screen(scratch)
        self.root, self.home, self.tmp = (os.path.join(scratch, name) for name in ("shop", "home", "tmp"))
        self.transcript = os.path.join(self.home, ".claude", "projects", "shop", SESSION + ".jsonl")
        self.tokens = self.events = self.calls = 0
        self.took_s = 0.0
        for folder in (self.root, self.home, self.tmp, os.path.join(scratch, "bin"), os.path.dirname(self.transcript)):
            os.makedirs(folder)
        os.symlink(os.path.realpath(sys.executable), os.path.join(scratch, "bin", "python3"))
        self.env = {"PATH": os.path.join(scratch, "bin") + ":/usr/local/bin:/usr/bin:/bin", "HOME": self.home,
                    "TMPDIR": self.tmp, "LANG": os.environ.get("LC_ALL") or os.environ.get("LANG", "C.UTF-8"),
                    "COLUMNS": str(self.screen.width), "CLAUDE_PROJECT_DIR": self.root, "CLAUDECODE": "1",
                    "AI_AGENT": "claude-code_2-1-325_demo"}
        if not self.screen.colour:
            self.env["NO_COLOR"] = "1"

    def write(self, name: str, text: str) -> str:
        path = os.path.join(self.root, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as out:
            out.write(text)
        return path

    def install(self) -> None:
        """With install.py, or by hand where it is not there."""
        settings = os.path.join(self.root, ".claude", "settings.json")
        if os.path.exists(os.path.join(REPO, "install.py")):
            self.person("python3 install.py", [sys.executable, os.path.join(REPO, "install.py"), self.root])
        else:
            os.makedirs(os.path.join(self.root, ".claude", "hooks"))
            shutil.copy(os.path.join(REPO, "ctx_hooks.py"), os.path.join(self.root, ".claude", "hooks"))
            shutil.copy(os.path.join(REPO, "hooks.json"), settings)
        with open(settings, encoding="utf-8") as source:
            hooks = json.load(source)["hooks"]
        self.commands = {event: entries[0]["hooks"][0]["command"] for event, entries in hooks.items()}

    def person(self, shown: str, argv: list, indent: str = "    ") -> None:
        """A command that a person types."""
        self.screen.line("person", "  $ " + shown)
        env = {name: value for name, value in self.env.items() if name not in ("CLAUDECODE", "AI_AGENT")}
        done = subprocess.run(argv, env=env, cwd=self.root, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        for line in done.stdout.decode("utf-8", "replace").rstrip().split("\n"):
            self.screen.line("dim", indent + line)
        if done.returncode:
            sys.exit("demo: %s exited with %d" % (shown, done.returncode))

    def ctx(self, *words: str) -> None:
        kit = os.path.join(self.root, ".claude", "hooks", "ctx_hooks.py")
        shown = " ".join("'%s'" % word if " " in word else word for word in words)
        self.person("python3 .claude/hooks/ctx_hooks.py " + shown, [sys.executable, kit, *words])

    def answer(self, text: str, tokens: int, tool_use: dict | None = None) -> None:
        """The model answers: a row in the transcript, with its usage."""
        self.tokens = tokens
        content = [{"type": "text", "text": text}] + ([tool_use] if tool_use else [])
        message = {"id": "msg_%d" % self.calls, "role": "assistant", "model": "claude-sonnet-4-5", "content": content,
                   "stop_reason": "tool_use" if tool_use else "end_turn",
                   "usage": {"input_tokens": 400, "cache_creation_input_tokens": 0,
                             "cache_read_input_tokens": tokens - 400}}
        self.row({"type": "assistant", "isSidechain": False, "sessionId": SESSION, "message": message})

    def row(self, row: dict) -> None:
        """The client writes the transcript; what a hook injected stands there too."""
        with open(self.transcript, "a", encoding="utf-8") as out:
            out.write(json.dumps(row) + "\n")

    def event(self, name: str, note: str = "", **fields) -> dict:
        """One hook event through its registered command; shows what the agent and the person would see."""
        event = {"session_id": SESSION, "transcript_path": self.transcript, "cwd": self.root,
                 "permission_mode": "default", "hook_event_name": name, **fields}
        start = time.perf_counter()
        done = subprocess.run(["/bin/sh", "-c", self.commands[name]], input=json.dumps(event).encode(), env=self.env,
                              cwd=self.root, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        took_s = time.perf_counter() - start
        self.events, self.took_s = self.events + 1, self.took_s + took_s
        if done.returncode or done.stderr:
            sys.exit("demo: the hook of %s failed: %s" % (name, done.stderr.decode("utf-8", "replace")))
        reply = json.loads(done.stdout) if done.stdout else {}
        self.screen.line("event", "  > %-17s %s" % (name, note))
        if reply.get("systemMessage"):
            self.screen.block("person", reply["systemMessage"], "    (the person sees) ")
        text = reply.get("hookSpecificOutput", {}).get("additionalContext", "") or reply.get("reason", "")
        if text:
            self.screen.block("agent", text)
            self.row({"type": "attachment", "attachment": {
                "type": "hook_additional_context", "hookEvent": name, "content": [text]}})
        elif not reply:
            self.screen.line("dim", "    silent")
        return reply

    def tool(self, name: str, note: str, tokens: int, says: str = "", **tool_input) -> None:
        """One tool call: the model's answer, then the events before and after it."""
        self.calls, before = self.calls + 1, self.tokens
        tool_id = "toolu_%d" % self.calls
        self.answer(says, tokens, {"type": "tool_use", "id": tool_id, "name": name, "input": tool_input})
        response = {"file": {"content": "x" * 8_000}} if name == "Read" else {"stdout": "x" * (tokens - before) * 3}
        shared = {"tool_name": name, "tool_input": tool_input, "tool_use_id": tool_id}
        share = "%d%% of the context" % (tokens * 100 // WINDOW)
        self.event("PreToolUse", "%s %s" % (name, note), **shared)
        self.event("PostToolUse", "%s %s, %s" % (name, note, share), tool_response=response, **shared)

    def stop(self, note: str, text: str, active: bool) -> None:
        self.answer(text, self.tokens)
        self.event("Stop", note, stop_hook_active=active, last_assistant_message=text)


def play(demo: Demo) -> None:
    screen = demo.screen
    screen.line("dim", "The scratch folder is shown as %s. Lines with | are what the agent would see." % SHOWN_ROOT)
    screen.title("install")
    for name, text in CONTEXT.items():
        demo.write(".context/" + name, text)
    demo.install()

    screen.title("yesterday's session left a handoff")
    demo.event("SessionStart", "startup", source="startup", session_id="yesterday")
    time.sleep(0.05)  # a file system's clock is coarse: clearly after the first event
    demo.write(".context/handoffs/yesterday.md", HANDOFF)
    demo.event("SessionEnd", "prompt_input_exit", reason="prompt_input_exit", session_id="yesterday")

    screen.title("a new session: the handoff arrives, then the gate")
    demo.event("SessionStart", "startup", source="startup")
    demo.event("UserPromptSubmit", '"Go on with the checkout"', prompt="Go on with the checkout")
    context = os.path.join(demo.root, ".context")
    demo.tool("Read", "TASKS.md", 24_000, "ACK: context received. Reading my files.", file_path=context + "/TASKS.md")
    demo.tool("Read", "CONSTITUTION.md", 26_000, file_path=context + "/CONSTITUTION.md")

    screen.title("work fills the context; what the agent needs to know comes with the next tool result")
    demo.tool("Bash", "npm test", 88_000, command="npm test")
    demo.ctx("signal", "CI: 3 tests fail on main", "--action", "Look at the log before pushing", "--severity", "critical",
             "--global")
    demo.tool("Grep", "postcode", 120_000, pattern="postcode")

    screen.title("near the limit: a handoff is asked for until it is there")
    demo.tool("Edit", "payment.ts", 143_000, file_path=demo.root + "/payment.ts")
    demo.ctx("status")
    path = demo.write(".context/handoffs/%s.md" % SESSION[:8], HANDOFF.replace("half done", "done").replace("1. V", "1. (done) V"))
    demo.tool("Write", "the handoff", 147_000, file_path=path)

    screen.title("auto mode: the agent goes on until the work is proven done")
    demo.ctx("auto", "start", "Finish the checkout page", "--until", "test -f checked", "--session", SESSION)
    demo.stop('"I think that is it."', "I think that is it.", active=False)
    for note, text in (("with the block, but the check fails", "Done."), ("with the block again, and the check passes", "Now it is done.")):
        demo.tool("Bash", "npm test", demo.tokens + 1000, command="npm test")
        block = BLOCK.format(time=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()))
        demo.stop(note, text + "\n" + block, active=True)
        demo.write("checked", "")
    demo.ctx("auto", "status")

    screen.title("the end: nothing is left of the session, and the handoff waits for the next one")
    demo.event("SessionEnd", "prompt_input_exit", reason="prompt_input_exit")
    demo.ctx("why", "6")
    demo.event("SessionStart", "startup, another session", source="startup", session_id="another")
    screen.line("dim", "\n%d events, %.0f ms each with the shell around them." % (
        demo.events, demo.took_s * 1000 / demo.events))


PICTURED = ("a new session", "near the limit", "the end")  # titles of the parts that the picture shows
COLOURS = {"title": "#4dc4d9", "event": "#f2f2f2", "agent": "#e5c07b", "dim": "#8a8f98", "person": "#98c379"}


def render_svg(lines: list) -> str:
    """What stood on the screen, as a picture: the parts named above, without the long blocks."""
    shown, is_in = [], False
    for style, text in lines:
        if style == "title" and text.strip():
            is_in = any(name in text for name in PICTURED)
            shown += [("dim", ""), (style, text.strip())] if is_in else []
        elif is_in and text.strip() and style != "dim" and not text.startswith("  $"):
            shown.append((style, text.rstrip()))
    rows = ['<text x="16" y="%d" fill="%s" xml:space="preserve">%s</text>' % (
        22 + 18 * number, COLOURS[style], text.replace("&", "&amp;").replace("<", "&lt;")) for number, (style, text) in enumerate(shown)]
    return ('<svg xmlns="http://www.w3.org/2000/svg" width="960" height="%d" font-family="ui-monospace, Menlo, Consolas, monospace" '
            'font-size="13">\n<rect width="100%%" height="100%%" rx="8" fill="#1e2127"/>\n%s\n</svg>\n' % (
                30 + 18 * len(shown), "\n".join(rows)))


def main() -> None:
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(encoding="utf-8", errors="replace")
    scratch = os.path.realpath(tempfile.mkdtemp(prefix="ctx-demo-"))
    demo = Demo(scratch)
    try:
        play(demo)
        if sys.argv[1:2] == ["--svg"]:
            with open(sys.argv[2], "w", encoding="utf-8") as out:
                out.write(render_svg(demo.screen.lines))
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


if __name__ == "__main__":
    main()
