"""Labelled sequences of tool calls: agents that are stuck, and agents at ordinary work.

    STUCK, WORK   {what it is about: [(tool, input, result, failed), ...]}

Numbers that a machine prints (times, ports, process ids) differ from call to call.
"""
from __future__ import annotations


def run(command: str, out: str = "", **others) -> tuple:
    return "Bash", dict({"command": command}, **others), out, False


def fail(command: str, out: str = "error: no rule", code: int = 1, **others) -> tuple:
    return "Bash", dict({"command": command}, **others), "Exit code %d\n%s" % (code, out), True


def read(path: str, text: str = "text", **place) -> tuple:
    return "Read", dict({"file_path": path}, **place), text, False


def edit(path: str, old: str, new: str) -> tuple:
    given = {"file_path": path, "old_string": old, "new_string": new, "replace_all": False}
    return "Edit", given, "The file %s has been updated." % path, False


def bad_edit(path: str, old: str) -> tuple:
    error = "<tool_use_error>String to replace not found in file.\nString: %s</tool_use_error>" % old
    return "Edit", {"file_path": path, "old_string": old, "new_string": "x"}, error, True


def write(path: str, text: str) -> tuple:
    given = {"file_path": path, "content": text}
    return "Write", given, "The file %s has been updated." % path, False


def other(tool: str, response: object = "ok", failed: bool = False, **given) -> tuple:
    return tool, given, str(response), failed


def todo(number: int) -> tuple:
    return other("TodoWrite", "Todos have been modified", todos=[{"content": "step"}] * number)


FAILED = "FAILED test_a.py::test_x - assert 1 == 2\n1 failed in 0.%02ds"
REFUSED = "curl: (7) Failed to connect to localhost port 3000 after %d ms: Connection refused"


def turns(count: int, *makers) -> list:
    """`count` rounds of the given calls, each made with the number of its round."""
    return [make(number) for number in range(count) for make in makers]


STUCK = {
    "a test that passes each time": turns(8, lambda n: run("pytest -q", "5 passed in 0.%02ds" % (n * 7))),
    "the same failing command": turns(8, lambda n: fail("make", "gcc: error: x.c")),
    "the same failing test, its time differs": turns(8, lambda n: fail("pytest -q", FAILED % n)),
    "another description each time": turns(8, lambda n: fail("make test", description="Run the tests, try %d" % n)),
    "another comment each time": turns(8, lambda n: fail("# attempt %d: maybe now\nmake test" % n)),
    "other ways to look at the same output": [
        fail("make test"), fail("make test 2>&1"), fail("make test 2>&1 | tail -20"), fail("cd /p && make test"),
        fail("make   test"), fail("VERBOSE=1 make test"), fail("make test | head -n 50"), fail("make test || true")],
    "two failing commands in turn": turns(4, lambda n: fail("npm test"), lambda n: fail("npm run build", "missing script")),
    "growing retries with sleep": turns(8, lambda n: fail("sleep %d; curl -s localhost:3000" % 2 ** n, REFUSED % n, 7)),
    "one port after the other": turns(8, lambda n: fail("curl localhost:%d" % (3000 + n), REFUSED % n, 7)),
    "make clean, make, make clean, make": turns(4, lambda n: run("make clean", "rm -f *.o"), lambda n: fail("make")),
    "install anew, fail again": turns(4, lambda n: run("rm -rf node_modules"), lambda n: fail("npm ci", "ECONNREFUSED %d" % n)),
    "a search on the web before each try": turns(
        4, lambda n: other("WebSearch", ["hit %d" % n], query="error %s" % "abcd"[n]), lambda n: fail("cargo build", "E0432")),
    "the same command, the same result": turns(8, lambda n: run("git status", "nothing to commit")),
    "two looks in turn, nothing changes": turns(4, lambda n: run("git status", "clean"), lambda n: run("git diff", "")),
    "the same file again and again": turns(8, lambda n: read("/p/a.py")),
    "the same edit that does not apply": turns(8, lambda n: bad_edit("/p/a.py", "foo")),
    "edits that do not apply, always another guess": turns(8, lambda n: bad_edit("/p/a.py", "foo" + " " * n)),
    "read and an edit that does not apply": turns(4, lambda n: read("/p/a.py"), lambda n: bad_edit("/p/a.py", "foo")),
    "to and fro between two versions": turns(
        4, lambda n: edit("/p/a.py", "ab"[n % 2], "ba"[n % 2]), lambda n: fail("pytest", FAILED % n)),
    "the same text written over itself": turns(4, lambda n: write("/p/a.py", "x"), lambda n: fail("pytest", FAILED % n)),
    "a tool of a server that fails": turns(8, lambda n: other("mcp__db__query", "Error: no such table: t", True, sql="select 1 from t")),
    "a search without result": turns(8, lambda n: other("Grep", {"mode": "content", "numFiles": 0, "content": ""}, pattern="foo")),
    "the same task for a subagent": turns(8, lambda n: other("Agent", "no access", True, prompt="deploy it", description="try %d" % n)),
    "a build whose ids differ": turns(8, lambda n: fail("docker build .", "failed to solve: process 4f%dab: exit code 1" % n)),
    "a traceback whose addresses differ": turns(8, lambda n: fail("python3 app.py", "TypeError: <A object at 0x7f%d3a0>" % n)),
    "a search and a look, nothing changes": turns(4, lambda n: other("Grep", {"content": "a.py:1"}, pattern="x"), lambda n: read("/p/a.py")),
    "a write that is not allowed, always another text": turns(
        8, lambda n: other("Write", "The user doesn't want to proceed with this tool use.", True, file_path="/p/x", content="v%d" % n)),
    "an element that is not there": turns(8, lambda n: other("browser_click", "Error: no element", True, ref="e%d" % n)),
    "todo list kept well, command fails all the same": turns(8, lambda n: fail("make"), todo),
}

WORK = {
    "the heads of files that begin alike": turns(8, lambda n: run("head -1 %s.py" % "abcdefgh"[n], "import os")),
    "programs named like a filter": turns(8, lambda n: run("trueskill --%s" % "abcdefgh"[n], "ok")),
    "test, edit, test": turns(8, lambda n: fail("pytest", FAILED % n), lambda n: edit("/p/a.py", "v%d" % n, "v%d" % (n + 1))),
    "test, edit by sed, test": turns(
        8, lambda n: fail("pytest", FAILED % n), lambda n: run("sed -i 's/%s/%s/' a.py" % ("abcdefgh"[n], "bcdefghi"[n]))),
    "test, file by heredoc, test": turns(
        8, lambda n: fail("node t.js", "TypeError"), lambda n: run("cat > t.js <<'EOF'\nlet %s\nEOF" % "abcdefgh"[n])),
    "test, edit by a server's tool, test": turns(
        8, lambda n: fail("go test ./...", "FAIL"), lambda n: other("mcp__fs__edit_file", "edited %s" % "abcdefgh"[n], path="a.go", n=n)),
    "edit, passing tests": turns(8, lambda n: edit("/p/a.py", "v%d" % n, "v%d" % (n + 1)), lambda n: run("pytest -q", "5 passed in 0.%ds" % n)),
    "a file read again after each edit": turns(8, lambda n: read("/p/a.py", "v%d" % n), lambda n: edit("/p/a.py", "v%d" % n, "v%d" % (n + 1))),
    "four files read twice": turns(8, lambda n: read("/p/%s.py" % "abcd"[n % 4])),
    "paging with Read": turns(12, lambda n: read("/p/a.py", "page %d" % n, offset=1 + 200 * n, limit=200)),
    "paging with sed": turns(12, lambda n: run("sed -n '%d,%dp' a.py" % (200 * n + 1, 200 * n + 200), "page %d" % n)),
    "a build polled by its tool": turns(16, lambda n: other("BashOutput", {"stdout": "", "status": "running"}, bash_id="b1")),
    "a build polled with sleep": turns(16, lambda n: run("sleep 30 && gh run view 5 --json status", '{"status":"in_progress"}')),
    "a build polled without sleep": turns(12, lambda n: run("tail -1 build.log", "[%d/90] Compiling" % (7 * n))),
    "the output file of a background task": turns(12, lambda n: read("/tmp/c/tasks/b1.output", "")),
    "a server's tool that waits": turns(12, lambda n: other("mcp__ci__wait_until_done", "still running", run="5")),
    "todo list between steps": turns(8, todo, lambda n: run("mkdir d%d" % n)),
    "browser: click, wait, snapshot": turns(
        6, lambda n: other("mcp__playwright__browser_click", "Clicked\npage %d" % n, element="Next", ref="e5"),
        lambda n: other("mcp__playwright__browser_wait_for", "Waited for 2", time=2),
        lambda n: other("mcp__playwright__browser_snapshot", "page %d of the list" % n)),
    "browser: the same button, a bare answer": turns(
        6, lambda n: other("browser_click", "Clicked", ref="e5"), lambda n: other("browser_wait_for", "ok", time=1),
        lambda n: other("browser_snapshot", "row %s" % "abcdef"[n])),
    "another error each time": turns(8, lambda n: fail("make", "undefined reference to %s" % "abcdefgh"[n])),
    "another error each time, at the end of a long log": turns(
        8, lambda n: fail("make", "gcc -c a.c\n" * 900 + "undefined reference to %s" % "abcdefgh"[n])),
    "another command each time, the same error": turns(8, lambda n: fail("./run_%s" % "abcdefgh"[n], "Permission denied")),
    "a server that comes up": turns(3, lambda n: fail("curl -s localhost:3000", REFUSED % n, 7)) + [run("curl -s localhost:3000", "ok")],
    "an install that works at the third try": turns(2, lambda n: fail("npm ci", "ETIMEDOUT")) + turns(
        4, lambda n: run("npm %s" % ["ci", "test", "run build", "run lint"][n], "ok")),
    "a test run four times to see whether it is flaky": turns(4, lambda n: run("pytest -k flaky", "1 passed")) + [
        read("/p/a.py"), edit("/p/a.py", "a", "b"), run("pytest -k flaky", "1 passed"), run("git diff", "+b")],
    "one rename in many files": turns(10, lambda n: edit("/p/%s.py" % "abcdefghij"[n], "old", "new")),
    "a bisection": turns(6, lambda n: fail("make test", FAILED % n), lambda n: run(
        "git bisect bad", "Bisecting: %d revisions left\n[%s] %s the parser" % (40 // (n + 1), "abcdef"[n] * 7, ["Fix", "Add", "Cut", "Move", "Split", "Join"][n]))),
    "commits, one after the other": turns(5, lambda n: edit("/p/%d" % n, "a", "b"), lambda n: run("git add -A"), lambda n: run("git commit -qm 'Step %d'" % n)),
    "a look around": [run("ls", "a b"), run("git status", "clean"), read("/p/a"), read("/p/b"), run("ls src", "c"), run("git status", "clean"),
                      read("/p/c"), run("git log --oneline -5", "x"), run("ls", "a b"), read("/p/a"), read("/p/b"), read("/p/c")],
    "searches in the shell without result": turns(10, lambda n: fail("grep -rn '%s' src" % "abcdefghij"[n], "")),
    "one test file after the other, each fails": turns(8, lambda n: fail("pytest tests/test_%s.py" % "abcdefgh"[n], FAILED % n)),
    "the same look after each of several changes": turns(8, lambda n: run("mv %s x" % "abcdefgh"[n]), lambda n: run("ls", "x")),
    "different tasks for subagents": turns(8, lambda n: other("Agent", {"content": [{"type": "text", "text": "done"}]}, prompt="look at part %s" % "abcdefgh"[n])),
}
