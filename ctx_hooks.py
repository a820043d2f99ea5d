#!/usr/bin/env python3
# ctx_hooks: hooks that keep a coding agent on track. Tools, leave this file as it is:
# fmt: off
# isort: skip_file
# ruff: noqa
# ruff: noqa: PGH004
# flake8: noqa
# pylint: skip-file
# type: ignore
""":"; exec 3<&0 </dev/null # The launcher, for a shell. To Python it is a string.
# It answers calls that need no reply by itself, and starts Python for the others.
# usage: sh ctx_hooks.py MODE [AGENT] [now]
#
# Other tools may rewrite this file, but whatever quote or line is lost, what an event
# says must not be run. So the event waits on descriptor 3 for Python alone, and there
# is no command substitution. If all quotes are inverted, this ends it: ';exit 0;'
set +eu # both may be exported in SHELLOPTS
mode=$1 agent=$2
case ${HOME:-} in /*) cache=$HOME/.cache ;; *) cache=/dev/null ;; esac
case ${XDG_CACHE_HOME:-} in /*) cache=$XDG_CACHE_HOME ;; esac
cache=$cache/ctx_hooks
case ${LOCALAPPDATA:-} in ?:*) cache=$LOCALAPPDATA/ctx_hooks/cache ;; esac # Windows

# 1. No context folder and no settings here or above: there is nothing to do.
case $agent in codex) dir=$PWD ;; *) dir=${CLAUDE_PROJECT_DIR:-$PWD} ;; esac
case $mode in inject | gate | monitor | stop-enforce | cleanup)
  [ -e "${XDG_CONFIG_HOME:-${HOME:-}/.config}/ctx_hooks/contextrc" ] && dir=
  while [ -n "$dir" ] && [ ! -d "$dir/.context" ] && [ ! -e "$dir/.contextrc" ]; do
    case $dir in
      /*/* | [!/]*/*) dir=${dir%/*} ;;
      /*) exit 0 ;;
      *) dir= ;; # a Windows path: let Python look
    esac
  done ;;
esac

# 2. Which session is this? The variable is chosen by the agent's word. Grok and
# Copilot run Claude's line too, perhaps inside a session of Claude's.
case $agent in
  gemini) id=${GEMINI_SESSION_ID:-} ;;
  qwen) id=${QWEN_CODE_SESSION_ID:-} ;;
  droid) id=${session_id:-} ;;
  grok) id=${GROK_SESSION_ID:-} ;;
  '') agent=claude id=${CLAUDE_CODE_SESSION_ID:-}
    [ -z "${GROK_SESSION_ID:-}${COPILOT_CLI:-}" ] || id= ;;
  *) id= ;;
esac
case $id in *[!A-Za-z0-9_-]*) id= ;; esac
[ "$3" = now ] && id=

# 3. The gate has spoken (its marker is there), or the session is calm: the file
# holds how many calls may pass, and paths that end the calm when they change.
calm=$cache/calm/$agent-$id
case $mode:$id in
  *:) ;; # not known: let Python look
  gate:*) [ -f "${TMPDIR:-/tmp}/ctx-loaded-$id" ] && exit 0 ;;
  monitor:*)
    if [ -f "$calm" ] && [ -r "$calm" ] && [ -f "$calm.tally" ] && [ -w "$calm.tally" ]
    then
      { IFS= read -r room && IFS= read -r one && IFS= read -r two &&
        IFS= read -r three; } <"$calm" || room=0
      IFS= read -r tally <"$calm.tally"
      case $room in [1-9]) ;; *) room=0 ;; esac
      for file in "$one"/*.md "$two"/*.md; do # perhaps written over in place
        [ "$file" -nt "$calm" ] && room=0
      done
      [ ${#tally} -lt "$room" ] && ! [ "$one" -nt "$calm" ] &&
        ! [ "$two" -nt "$calm" ] && ! [ "$three" -nt "$calm" ] &&
        printf . 2>/dev/null >>"$calm.tally" && exit 0
    fi ;;
esac

# 4. Start Python: exactly this file, its bytecode in the user's own cache folder.
# The link there leads to the interpreter that a slow python3 of a version manager runs.
# On Windows py comes first: python3 may only open the Store.
python=$cache/python3 option=
if [ -f "$python" ] && [ -x "$python" ]; then :
elif [ -n "${LOCALAPPDATA:-}" ] && command -v py; then python=py option=-3
elif command -v python3; then python=python3
elif command -v py; then python=py option=-3
else exit 127; fi >/dev/null
exec "$python" ${option:+"$option"} -I -S -X utf8 -c '
import gc, sys
from _frozen_importlib_external import SourceFileLoader
gc.disable()  # a run is over before there is anything to collect
file, sys.pycache_prefix = sys.argv.pop(1), sys.argv.pop(1)
code = SourceFileLoader("ctx_hooks", file).get_code("ctx_hooks")
sys.pycache_prefix = None
exec(code, {"__name__": "__main__", "__file__": file})
' "$0" "$cache/bytecode" "$@" <&3 3<&-
exit 127
":"""
from __future__ import annotations

"exit"  # a shell gets here only if a tool has taken the launcher away

__doc__ = """ctx_hooks: hooks that keep a coding agent on track. MIT licence.

    SessionStart -> inject        the agent gets what the last session left:
                                  a handoff, and what happened after it
    first tool   -> gate          it is told, once, which context files to read
    every tool   -> monitor       fullness is measured; alerts and signals reach
                                  the agent while it works; near the limit it is
                                  asked for a handoff until there is one
    next prompt  -> inject        pending signals reach the agent as one block
    PreCompact   -> monitor       the person's own words are pinned, and a
                                  handoff is made if there is none
    Stop         -> stop-enforce  in auto mode the agent goes on until its phase
                                  is complete, and proven so
    SessionEnd   -> cleanup       the session's handoff is brought up to date;
                                  its signals and launcher files go

What a hook promises: it exits with 0, always. It prints nothing, or one JSON
object (plain text before a compaction: the client asks for that). It never
blocks a tool or a prompt. It uses no network. It starts no process except
git status, when it makes a handoff, and a check command that the person
agreed to. It creates nothing where there is no context folder, and it ends
after 4 seconds, a check aside. When in doubt it says nothing.

The file reads from the top down: first what happens at each event, then the
mechanisms, then what they stand on. A section uses only the sections below it
in this list. The people's commands come last and may use everything.

    Run           the line of a run: event, project, lock, session, look,
                  handler, print, save
    Modes         what happens at each event
    Startup       what the last session left, and the proof that it arrived
    Calm          how many calls the launcher may answer alone
    Alerts        the auditors
    Handoff       the reminder, the handoff that the kit makes, what came since
    Gate          the context files to read first
    Signals       files for the agent, written by anybody
    Auto          the workflow that goes on until a phase is complete
    Look          one pass over the transcript, folded into facts
    Clients       the one place that knows the clients' JSON
    Session       what is kept of a session, in the user's home
    Git           branch, commit, what is changed
    Project       where the project is, its lock, pause, which kit speaks
    Config        .contextrc
    Recorder      what was said and why, errors, metrics
    Text          cleaning and cutting what reaches the agent or a person
    Files         reading, atomic writing, names, times

    Registration  the lines in the clients' settings
    Doctor        what can keep the hooks from working
    Status        what people see
    Wrap          the startup context for agents without hooks
    Commands      what people run
    Main          argv
"""

import json
import os
import re
import sys
import time

VERSION = "0.4.0"


class Record:
    """A small record. Its fields stand in the class, each with type and default.

    A value of another type than the default counts as absent, so a record can be
    made from any JSON object.
    """

    def __init__(self, data: object = None) -> None:
        given = data if isinstance(data, dict) else {}
        for name, default in self.fields():
            value = given.get(name, default)
            if isinstance(default, Record):
                value = type(default)(value)
            elif isinstance(default, float) and type(value) is int:
                value = float(value)
            elif type(value) is not type(default):
                value = default
            if isinstance(value, (list, dict)):
                value = value.copy()
            setattr(self, name, value)

    @classmethod
    def fields(cls) -> list:
        """The fields with their defaults: [(name, default)]."""
        return [(name, getattr(cls, name)) for name in cls.__annotations__]

    def as_dict(self) -> dict:
        """The fields as JSON values."""
        values = {}
        for name, _ in self.fields():
            value = getattr(self, name)
            values[name] = value.as_dict() if isinstance(value, Record) else value
        return values


# =============================================================================
# Run
# =============================================================================
# One run of a hook: read the event, find the project, take its lock, load the
# session, look at the transcript, let the mode's handler add what it has to say,
# print, save, unlock. We print before we save: a hook that is killed in between
# says a thing twice, but loses nothing.

DEADLINE_S, DEADLINE_CLEANUP_S = 4.0, 1.2
STDIN_LIMIT_BYTES, PIPE_BYTES = 32_000_000, 65_536


class Run:
    """One run of a hook: what its handlers work with."""

    error_log: str = ""  # where an internal error is noted, once the project is known

    def __init__(self, event: Event, project: Project, env: dict, now: float) -> None:
        self.event = event
        self.project = project
        self.settings = project.settings
        self.env = env
        self.now = now
        self.session = Session()
        self.reply = Reply(event)
        self.check = ""  # a command that must exit 0 before the phase is complete
        self.block: dict = {}  # the completion block that claims so
        self.is_first = False  # this project has never seen a hook before
        self.head = read_head(project.root)  # branch and commit now


def run_hook(mode: str, words: list, env: dict, now: float) -> None:
    """One run, from the event on stdin to the reply on stdout."""
    agent = words[0] if words and words[0] in DIALECTS else ""
    event = parse_event(read_event(), mode, agent, env)
    if event is None or event.is_subagent or not event.session_id:
        return
    project = find_project(start_folder(event, env), env)
    if project is None or is_switched_off(project, env, now):
        return
    if another_kit_speaks(project, __file__, project_settings(event.agent)):
        return
    if not prepare_folders(project):
        return
    Run.error_log = project.state("errors.log")
    run = Run(event, project, env, now)
    run.is_first = not os.path.exists(project.state("lock"))
    wait_s = LOCK_WAIT_STOP_S if event.name == "Stop" else LOCK_WAIT_S
    with ProjectLock(project, wait_s) as lock:
        if not lock.is_held:
            return let_go_without_lock(run)
        load_and_look(run)
        HANDLERS[mode](run)
        if not run.check:
            return speak_and_save(run)
        save_session(project, run.session)
    failure = run_check(run)  # may take minutes, so nobody waits for our lock
    with ProjectLock(project, wait_s) as lock:
        if not lock.is_held:
            return let_go_without_lock(run)
        run.session = load_session(project, event.session_id)
        judge_check(run, failure)
        speak_and_save(run)


def load_and_look(run: Run) -> None:
    """Load the session, note this event, and look at the transcript."""
    event = run.event
    session = run.session = load_session(run.project, event.session_id)
    session.agent = event.agent
    if not session.session_start:
        session.session_start = format_iso(run.now)
        note_what_stood_there(run.project, session)
    session.seen_at = run.now
    session.ended_at = 0.0
    session.end_reason = ""
    session.stopped_at = 0.0
    if event.agent == "claude":
        session.client_pid = run.env.get("CLAUDE_PID", "")
    session.model = event.model or session.model
    if event.transcript_path and event.transcript_path != session.transcript:
        session.transcript = event.transcript_path
        session.offset = 0
        session.facts = Facts()
    if session.branch in ("", run.head[0]):  # another one is for `audit_tree` to tell
        session.branch, session.commit = run.head
    look_at(session, event)
    notice_compaction(run)


def speak_and_save(run: Run) -> None:
    """Print the reply, then book what was said, then save."""
    print_reply(run)
    if run.event.is_known:
        for action, args in run.reply.said_actions:
            action(*args)
    if run.event.name == "Stop" and not run.reply.is_hold:
        run.session.stopped_at = run.now
    save_session(run.project, run.session)
    write_calm(run)
    link_interpreter(run.project)
    if run.event.name == "SessionStart":
        sweep(run)  # when the handoff is out: there may be much to remove


def let_go_without_lock(run: Run) -> None:
    """Another hook holds the lock: say nothing. Only if a workflow runs and this is a
    Stop, the person learns that it was not judged."""
    if run.event.name == "Stop" and read_workflow(run.project).is_running:
        run.reply.tell("ctx: the project was busy; this stop was not judged")
        print_reply(run)


def print_reply(run: Run) -> None:
    text = render_reply(run.event, run.reply, run.env)
    if not text:
        return
    try:
        sys.stdout.write(text + "\n")
        sys.stdout.flush()
    except OSError:
        os._exit(0)  # the window was closed: nobody heard it, so nothing is noted


def link_interpreter(project: Project) -> None:
    """Let the launcher find the real interpreter behind a version manager's shim."""
    link = os.path.join(project.cache, "python3")
    if os.name == "nt" or os.access(link, os.X_OK):
        return
    draft = "%s.tmp-%d" % (link, os.getpid())
    make_folder(project.cache)
    try:
        os.symlink(os.path.realpath(sys.executable), draft)
        os.replace(draft, link)
    except OSError:
        remove_file(draft)  # read-only: the launcher goes on looking up python3


def read_event() -> object:
    """The JSON object on stdin, as soon as it is complete; None if there is none.

    Some clients never close the pipe, so we try to parse whenever it may be whole.
    """
    if sys.stdin is None or sys.stdin.isatty():
        return None
    data = bytearray()
    while len(data) < STDIN_LIMIT_BYTES:
        piece = os.read(sys.stdin.fileno(), PIPE_BYTES)
        if not piece:
            return parse_object(data)
        data += piece
        is_drained = len(piece) < PIPE_BYTES  # else each piece could be tried in vain
        if is_drained and piece.rstrip().endswith(b"}"):
            value = parse_object(data)
            if value:
                return value
    return None


# --- the fail-open boundary


def guarded_hook(mode: str, words: list) -> None:
    """Run a hook so that whatever goes wrong ends in silence and exit 0."""
    if sys.stdout is None:
        os._exit(0)  # closed: nobody would hear us
    sys.stdout.reconfigure(encoding="utf-8", errors="replace", newline="\n")
    now = time.time()
    start_deadline(DEADLINE_CLEANUP_S if mode == "cleanup" else DEADLINE_S)
    try:
        run_hook(mode, words, dict(os.environ), now)
    except Exception as error:  # noqa: BLE001, whatever it is
        report_error(error, now)
    finally:
        os._exit(0)  # nothing is left to tidy up


def report_error(error: Exception, now: float) -> None:
    """One line on stderr and in errors.log: what went wrong, and where."""
    trace = error.__traceback__
    while trace.tb_next:
        trace = trace.tb_next
    place = "%s:%d" % (trace.tb_frame.f_code.co_name, trace.tb_lineno)
    what = "%s in %s: %s" % (type(error).__name__, place, error)
    line = for_terminal(what)[:500]
    if Run.error_log:
        append_line(Run.error_log, format_iso(now) + " " + line, ERRORS_LIMIT_BYTES)
    if sys.stderr is not None:  # if it is closed, another file may have its number
        os.write(2, ("ctx_hooks: %s\n" % line).encode("ascii", "replace"))


# =============================================================================
# Modes
# =============================================================================
# What happens at each event. A handler gets the run, adds to its reply and returns.
# It never prints, locks, reads the clock or the environment.


def inject(run: Run) -> None:
    """SessionStart: what the last session left. UserPromptSubmit: pending signals."""
    if run.event.name == "SessionStart":
        start_session(run)
    follow_delivery(run)
    brief(run)
    if run.event.name == "UserPromptSubmit":
        add_signals(run, [])


def gate(run: Run) -> None:
    """PreToolUse: once a session, the context files to read."""
    add_gate(run)


def monitor(run: Run) -> None:
    """PostToolUse: fullness, alerts, signals. PreCompact: pin the person's words."""
    if run.event.name == "PreCompact":
        return before_compaction(run)
    follow_delivery(run)
    if "PreToolUse" not in DIALECTS[run.event.agent].registered:
        add_gate(run)
    full = fullness(run)
    is_reminding = add_reminder(run, full)
    add_alerts(run, full, is_reminding)


def before_compaction(run: Run) -> None:
    """The client is about to summarise: leave a handoff, pin the person's words."""
    if not run.settings["handoff.enabled"]:
        return
    make_handoff(run, run.session, run.now)
    if run.event.agent == "claude":
        run.reply.plain = clean_text(render_pins(run.session.facts))


def stop_enforce(run: Run) -> None:
    """Stop: save a printed handoff; in auto mode, go on until the phase is complete."""
    follow_delivery(run)
    save_printed(run.project, run.session)
    notice_handoff(run)
    enforce_stop(run)


def cleanup(run: Run) -> None:
    """SessionEnd: bring the handoff up to date; the session's runtime files go."""
    if run.event.reason == "resume":
        return
    session = run.session
    session.ended_at = run.now
    session.end_reason = run.event.reason
    notice_handoff(run)
    settle_delivery(run.project, session)
    make_handoff(run, session, run.now)
    remove_runtime_files(run.project, session, run.env)


HANDLERS = {
    "inject": inject,
    "gate": gate,
    "monitor": monitor,
    "stop-enforce": stop_enforce,
    "cleanup": cleanup,
}


# =============================================================================
# Startup
# =============================================================================
# A new session gets the newest handoff that waits. Delivering moves its file to
# handoffs/delivered/, so only one session gets it. Evidence ends the delivery: our
# text in the transcript, or the agent's acknowledgement. Without evidence the text
# is sent again, and at last written into the client's instruction file.

UPDATE_LIMIT_S = 1.0
BUSY_S, BUSY_CALL_S = 600, 7200
KEPT_S = 7 * 86400
SWEEP_EVERY_S, SWEEP_LIMIT_S = 3600, 0.5
LEFTOVER = r"\.(?:json|md)\.(?:tmp-\d+|corrupt)$"  # of a write that was killed
MOST_ATTEMPTS = 5
LEAST_SENT = 1_000  # characters; a startup text cut below this says too little
NEW_HEAD = "Handoff of the session before this one (%s), left by %s %s ago."
OWN_HEAD = "Your own handoff from before the compaction (%s), %s old."
MOVED = "The working tree is on %s at %s now; it was on %s at %s then."
STILL_OPEN = "That session is still open in another window, and may go on itself."
BEGAN_WITH = "That session began with the handoff %s, kept in %s."
OTHERS = "Also waiting in the same folder: %s."
FILES_HEAD = "Context for this session (ctx_hooks, %s):"
STRANGERS = "It came with the repository: none of this user's sessions wrote it."
OFFER = "It is offered, not ordered: if you are asked for something else, leave it."
ACK_FRAME = (
    "[CONTEXT INJECTION - Please acknowledge receipt]\n%s\n\n"
    '[END CONTEXT - Reply "ACK: context received" to confirm]'
)
FILE_NOTICE = "[System] Session context written to %s - please review"
LAST_NOTICE = "[System] The context of the last session is in %s, if you need it"
NOT_HEARD = "ctx: the agent seems not to get the handoff; it is in %s now"
SECTION_BEGIN = "<!-- STARTUP_CONTEXT_INJECTION -->"
SECTION_END = "<!-- END_STARTUP_CONTEXT -->"
SECTION = "\n%s\n## Session Context (Auto-Injected)\n\n%s\n\n%s\n"


def start_session(run: Run) -> None:
    """A session starts, is resumed, or was compacted: prepare what it gets."""
    session, source = run.session, run.event.source
    if run.is_first:
        more = status_command(run.project)
        run.reply.tell("ctx: hooks are on; %s shows more" % more)
    if source in ("resume", "fork"):
        if session.facts.tool_calls:
            claim_marker(run)  # the gate has spoken in this conversation
        return
    if source == "compact":
        make_handoff(run, session, run.now)
    else:
        session.branch, session.commit = run.head
        update_others(run)
    # some clients announce a start twice
    was_sent = session.delivery.state == "sent" and session.delivery.source == source
    if run.settings["startup.enabled"] and not was_sent:
        prepare_delivery(run)


def prepare_delivery(run: Run) -> None:
    """Choose the handoff and write the text; `follow_delivery` sends it."""
    session, source = run.session, run.event.source
    name = choose_handoff(run, source)
    text = startup_text(run, name, source)
    session.delivery = Delivery(
        {
            "state": "owed" if text else "",
            "source": source,
            "handoff": name,
            "head": text.split("\n")[0],
            "text": text,
        }
    )
    session.facts.received = ""  # older evidence proves nothing
    session.facts.acknowledged_at = ""


def status_command(project: Project) -> str:
    """The command that shows more, ready to be pasted in the project's folder."""
    import shlex

    kit = os.path.abspath(__file__)
    if os.path.isdir(os.path.join(os.path.dirname(kit), ".claude-plugin")):
        return "/ctx-hooks:status"
    return shlex.quote(project.relative(kit)) + " status"


# --- which handoff


def choose_handoff(run: Run, source: str) -> str:
    """The name of the handoff for this session; "" if none waits."""
    own = own_handoff(run.session)
    if source == "compact":
        return own if read_handoff(run.project.path("handoffs", own)) else ""
    waiting = [name for name in waiting_handoffs(run) if name != own]
    if source == "clear":
        writers = {name: writer_of(run.project, name) for name in waiting}
        cleared = [name for name in waiting if was_cleared(writers[name], run.session)]
        waiting = cleared or waiting
    return waiting[0] if waiting else ""


def waiting_handoffs(run: Run) -> list:
    """The names of the handoffs that may be delivered, the newest first."""
    max_age_s = run.settings["startup.max_age_hours"] * 3600
    found = []
    for path, written_at in list_files(run.project.path("handoffs"), ".md"):
        name = os.path.basename(path)
        is_too_old = run.now - written_at > max_age_s
        if is_too_old or is_busy(writer_of(run.project, name), run.now):
            continue
        if read_handoff(path):
            found.append(name)
    return sorted(found, key=lambda name: is_strangers(run.project, name))


def is_strangers(project: Project, name: str) -> bool:
    return came_with_clone(project, project.path("handoffs", name))


def is_busy(session: Session, now: float) -> bool:
    """Whether a session is at work: its transcript grows, or a call is running."""
    is_at_rest = not session.id or session.ended_at or session.stopped_at
    if is_at_rest or is_gone(session.client_pid):
        return False
    is_call_running = any(not call["outcome"] for call in session.facts.calls)
    quiet_s = now - max(modified_at(session.transcript), session.seen_at)
    return abs(quiet_s) < (BUSY_CALL_S if is_call_running else BUSY_S)


def is_gone(pid: str) -> bool:
    """Whether the client's process has surely ended."""
    return can_be_asked(pid) and not is_running(pid)


def is_running(pid: str) -> bool:
    """Whether the client's process surely runs."""
    if not can_be_asked(pid):
        return False
    try:
        os.kill(int(pid), 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass  # another user's
    return True


def can_be_asked(pid: str) -> bool:
    """Not on Windows: there os.kill would end the process."""
    return pid.isdecimal() and os.name != "nt"


def update_others(run: Run) -> None:
    """Bring other sessions' handoffs up to date: a killed one could not."""
    deadline = time.monotonic() + UPDATE_LIMIT_S
    for other in all_sessions(run.project):
        if time.monotonic() > deadline:
            break
        is_other = other.id != run.session.id and other.agent in DIALECTS
        has_grown = size_of(other.transcript) > other.handoff_offset
        is_settled = not other.delivery.handoff
        if not is_other or (is_settled and not has_grown):
            continue
        look(other)
        pid = other.client_pid
        is_silent = run.now - other.seen_at > BUSY_S
        if is_gone(pid) or (is_silent and not is_running(pid)):  # it will not go on
            settle_delivery(run.project, other)
        if not is_busy(other, run.now):
            make_handoff(run, other, modified_at(other.transcript))
        save_session(run.project, other)


# --- the text


def startup_text(run: Run, name: str, source: str) -> str:
    """All that this session gets at its start, within its budget; "" if nothing."""
    budget = int(run.settings["startup.budget_chars"])
    files = cut_end(startup_files(run), budget // 2)
    if name:
        head = clean_text(render_lines("", handoff_head(run, name, source)))
        room = budget - len(head) - len(files) - 4  # for the blank lines between
        handoff = clean_text(read_handoff(run.project.path("handoffs", name)))
        texts = [head, fit_handoff(handoff, room), files]
    elif files:
        texts = [FILES_HEAD % format_iso(run.now), files]
    else:
        return ""
    text = "\n\n".join(filter(None, texts))
    wants_ack = BOOLEANS.get(run.settings["startup.require_ack"])
    return ACK_FRAME % text if wants_ack else text


def handoff_head(run: Run, name: str, source: str) -> list[str]:
    """Where the handoff comes from, how old it is, and what is different now."""
    writer = writer_of(run.project, name)
    written_at = modified_at(run.project.path("handoffs", name))
    age = format_age(run.now - written_at)
    moved = describe_move(writer, run.head)
    if source == "compact":
        return [OWN_HEAD % (name, age), moved]
    label = DIALECTS.get(writer.agent, Dialect()).label or "an unknown writer"
    lines = [NEW_HEAD % (name, label, age), OFFER, moved]
    if is_strangers(run.project, name):
        lines.insert(1, STRANGERS)
    if is_open_elsewhere(writer, run.session):
        lines.append(STILL_OPEN)
    if writer.began_with:
        folder = run.project.relative(run.project.path("handoffs", "delivered"))
        lines.append(BEGAN_WITH % (writer.began_with, folder))
    others = [other for other in waiting_handoffs(run) if other != name]
    if others:
        lines.append(OTHERS % ", ".join(others[:5]))
    return lines


def is_open_elsewhere(writer: Session, session: Session) -> bool:
    is_another = session.client_pid not in ("", writer.client_pid)
    return is_another and not writer.ended_at and is_running(writer.client_pid)


def describe_move(writer: Session, now: tuple) -> str:
    """How branch and commit differ from then; "" if they do not."""
    then = (writer.branch, writer.commit)
    if "" in (then[0], now[0]) or then == now:
        return ""
    return MOVED % (now + then)


def fit_handoff(text: str, room: int) -> str:
    """The handoff, cut to its room: its body is cut before what happened since."""
    body, _, since = text.rpartition("\n" + SINCE_HEAD)
    if not body:
        return cut_middle(text.rstrip(), room)
    since = (SINCE_HEAD + since).replace("\n" + SINCE_END, "").rstrip()
    since = cut_end(since, room * 2 // 3)
    return cut_middle(body.rstrip(), room - len(since) - 2) + "\n\n" + since


def startup_files(run: Run) -> str:
    """The texts of `startup.files`."""
    texts = []
    for name in run.settings["startup.files"]:
        path = os.path.join(run.project.root, name)
        if is_worth_reading(run.project, path):
            text = "## %s\n\n%s" % (one_line(name, 300), read_text(path).strip())
            texts.append(clean_text(text))
    return "\n\n".join(texts)


# --- the delivery


def follow_delivery(run: Run) -> None:
    """Send what is owed; then look for evidence, and send again if there is none."""
    delivery = run.session.delivery
    if delivery.state == "owed" and may_send(run.event):
        send(run, delivery.text)
    elif delivery.state == "sent":
        evidence = find_evidence(run.session)
        if evidence:
            end_delivery(run, evidence)
        elif is_retry_due(run):
            retry(run)


def may_send(event: Event) -> bool:
    """Not at a Stop: the text would hold it. In an unknown client only at the start:
    nothing is booked there, so the text would come with every event."""
    is_bookable = event.is_known or event.name == "SessionStart"
    return can_speak(event) and event.name != "Stop" and is_bookable


def find_evidence(session: Session) -> str:
    """What proves that the text arrived; "" if nothing does yet."""
    facts = session.facts
    if facts.received:
        return "receipt"
    if facts.acknowledged_at:
        return "acknowledgement"
    has_receipts = DIALECTS[session.agent].has_receipts
    return "answer" if has_answered(session) and not has_receipts else ""


def has_answered(session: Session) -> bool:
    """Whether the agent has said anything since the last attempt."""
    return session.facts.answer != session.delivery.answer


def is_retry_due(run: Run) -> bool:
    """Whether the agent answered without a trace of our text, and the wait is over."""
    if not run.event.is_typed or not has_answered(run.session):
        return False
    return has_waited(run.session.delivery.sent_at, retry_wait_s(run), run.now)


def retry_wait_s(run: Run) -> float:
    """How long to wait for evidence of the last attempt."""
    backoffs = run.settings["startup.retry_backoffs_s"] or [1.0]
    return backoffs[min(run.session.delivery.attempts, len(backoffs)) - 1]


def send(run: Run, text: str) -> None:
    """One attempt. The first one tells the person, too."""
    while not run.reply.add(text):  # clients count wide letters double or more
        if len(text) < LEAST_SENT:
            return
        text = cut_middle(text, len(text) * 3 // 4)
    run.reply.when_said(note_sent, run)
    delivery = run.session.delivery
    name = delivery.handoff
    if delivery.attempts == 0 and name and not is_strangers(run.project, name):
        path = run.project.path("handoffs", name)
        clock = format_clock(modified_at(path), run.now)
        lines = len(read_handoff(path).splitlines())
        run.reply.tell("ctx: handoff of %s delivered, %d lines" % (clock, lines))


def note_sent(run: Run) -> None:
    """The text is out: book it, and take the handoff so that nobody else gets it."""
    session, delivery = run.session, run.session.delivery
    name = delivery.handoff
    delivery.state = "sent"
    delivery.attempts += 1
    delivery.first_at = delivery.first_at or run.now
    delivery.sent_at = run.now
    delivery.answer = session.facts.answer
    count_metric(run.project, "attempted")
    record(run, "injection:attempted", handoff=name, attempt=delivery.attempts)
    if name and delivery.source != "compact":
        session.began_with = name
        save_session(run.project, session)  # a kill here must not orphan it
        take_handoff(run.project, name)


def take_handoff(project: Project, name: str) -> None:
    """If it cannot be moved, it stays, and the next session is offered it, too."""
    delivered = project.path("handoffs", "delivered")
    attempt(os.makedirs, delivered)
    attempt(replace_file, project.path("handoffs", name), os.path.join(delivered, name))


def give_back(project: Project, name: str) -> None:
    """Let it wait again, unless a newer one of the same session does."""
    waiting = project.path("handoffs", name)
    if not os.path.lexists(waiting):
        attempt(replace_file, project.path("handoffs", "delivered", name), waiting)


def end_delivery(run: Run, evidence: str) -> None:
    """There is evidence: count it, and tidy up what was kept for another attempt."""
    delivery = run.session.delivery
    delivery.state = "done"
    delivery.text = ""
    is_first_try = delivery.attempts == 1
    outcome = "succeededOnFirstTry" if is_first_try else "succeededAfterRetry"
    count_metric(run.project, outcome, delivery.attempts, run.now - delivery.first_at)
    record(run, "injection:succeeded", evidence=evidence, attempts=delivery.attempts)
    if delivery.escalated or not run.session.agent:  # wrap: it may be of a run before
        write_section(instruction_path(run.project, run.session), "")


def retry(run: Run) -> None:
    """The next rung: send again, then the instruction file, at last give up."""
    delivery = run.session.delivery
    file_after = run.settings["startup.file_fallback_after_attempts"]
    if delivery.attempts >= MOST_ATTEMPTS:
        return give_up(run)
    name = write_fallback(run) if delivery.attempts >= file_after else ""
    send(run, FILE_NOTICE % name if name else delivery.text)


def write_fallback(run: Run) -> str:
    """Put the text into the instruction file; gives its name if that was done now."""
    delivery = run.session.delivery
    path = instruction_path(run.project, run.session)
    if delivery.escalated or not write_section(path, delivery.text):
        return ""
    delivery.escalated = True
    name = run.project.relative(path)
    run.reply.tell(NOT_HEARD % name)
    count_metric(run.project, "escalatedToFile")
    record(run, "injection:escalated", file=name)
    return name


def give_up(run: Run) -> None:
    """One last line says where the text is."""
    delivery = run.session.delivery
    path = run.project.path("handoffs", "delivered", delivery.handoff)
    if delivery.escalated:
        path = instruction_path(run.project, run.session)
    run.reply.add(LAST_NOTICE % run.project.relative(path))
    delivery.state = "failed"
    count_metric(run.project, "failed")
    record(run, "injection:failed", attempts=delivery.attempts)


def settle_delivery(project: Project, session: Session) -> None:
    """A session ends: without evidence or without work it gives the handoff back."""
    delivery = session.delivery
    has_evidence = delivery.state == "sent" and find_evidence(session)
    arrived = delivery.state == "done" or has_evidence
    was_taken = delivery.handoff and delivery.source != "compact"
    if was_taken and not (arrived and did_work(session.facts)):
        give_back(project, delivery.handoff)
        session.began_with = ""
    if delivery.escalated:
        write_section(instruction_path(project, session), "")
    session.delivery = Delivery()  # a resumed session is sent nothing again


# --- the instruction file


def instruction_path(project: Project, session: Session) -> str:
    told = project.settings["startup.fallback_file"]
    dialect = DIALECTS.get(session.agent, Dialect())
    return os.path.join(project.root, told or dialect.instruction_file)


def write_section(path: str, body: str) -> bool:
    """Put our section at the end of the file; without a body, take it out.

    Text outside of it stays byte for byte. A file that held nothing else goes.
    """
    is_odd = os.path.lexists(path) and not os.path.isfile(path)
    if os.path.islink(path) or is_odd or size_of(path) > STATE_LIMIT_BYTES:
        return False
    before = read_bytes(path, STATE_LIMIT_BYTES)
    after = without_section(before)
    if body:
        after += render_section(body)
    if after == before:
        return True
    if not after:
        remove_file(path)
        return True
    mode = os.stat(path).st_mode & 0o777 if before else 0o644
    return write_atomically(path, after, mode)


def render_section(body: str) -> bytes:
    for mark in (SECTION_BEGIN, SECTION_END):
        body = body.replace(mark, "")
    section = SECTION % (SECTION_BEGIN, body, SECTION_END)
    return section.encode("utf-8", "replace")


def without_section(content: bytes) -> bytes:
    """A file's content without our section; a merge may have left two. A mark without
    its other half is the person's."""
    body = "(?:(?!%s).)*?" % SECTION_BEGIN
    section = "\n?%s%s%s\n?" % (SECTION_BEGIN, body, SECTION_END)
    return re.sub(section.encode(), b"", content, flags=re.DOTALL)


# --- what sessions leave behind


def remove_runtime_files(project: Project, session: Session, env: dict) -> None:
    """A session's signals, marker, launcher files and alerts."""
    folder = project.path("signals", "sessions", safe_name(session.id))
    remove_files(folder)
    remove_folder(folder)
    remove_file(marker_path(session.id, env))
    remove_calm(calm_path(project, session))
    forget_alerts(project, session.id)


def sweep(run: Run) -> None:
    """Remove what is older than 7 days; at most once an hour, and not for long, because
    the client waits for us. The next start goes on where this one ended."""
    stamp = run.project.state("swept")
    if not has_waited(modified_at(stamp), SWEEP_EVERY_S, run.now):
        return
    deadline = time.monotonic() + SWEEP_LIMIT_S
    for path in leftovers(run.project, run.now - KEPT_S):
        remove_leftover(run, path)
        if time.monotonic() > deadline:
            return
    write_atomically(stamp, "")


def leftovers(project: Project, oldest: float) -> list[str]:
    """The files that are to go: older than that, and ours."""
    places = {
        os.path.join(project.cache, "calm"): "",
        project.home: SESSION_FILE + "|" + LEFTOVER,
        project.context: LEFTOVER,
        project.path("handoffs"): r"\.md$|" + LEFTOVER,
    }
    found = []
    for folder, pattern in places.items():
        files = [path for path, at in list_files(folder, "") if at < oldest]
        found += [path for path in files if re.search(pattern, path)]
    delivered = list_files(project.path("handoffs", "delivered"), "")
    # a handoff is as old as the work in it; its ctime tells when it was moved there
    return found + [path for path, _ in delivered if os.stat(path).st_ctime < oldest]


def remove_leftover(run: Run, path: str) -> None:
    """With a session goes what it left; a handoff that nobody took is kept a while."""
    folder, name = os.path.split(path)
    if folder == run.project.path("handoffs") and name.endswith(".md"):
        return take_handoff(run.project, name)
    session = Session(read_object(path)) if folder == run.project.home else Session()
    if session.id and session.version == SESSION_VERSION:
        remove_runtime_files(run.project, session, run.env)
        write_section(instruction_path(run.project, session), "")
    remove_file(path)


def remove_files(folder: str) -> None:
    for path, _ in list_files(folder, ""):
        remove_file(path)


# =============================================================================
# Calm
# =============================================================================
# After each tool call we know for how many more calls nothing can happen. We leave
# that number for the launcher, with the paths whose change ends the calm. The
# launcher answers that many calls without Python and notes one dot for each:
#
#     <cache>/calm/<agent>-<session>         8, then three paths, a line each
#     <cache>/calm/<agent>-<session>.tally   ...

CALM_CALLS = 8
CALL_TOKENS_LEAST, CALL_TOKENS_MOST = 3_000, 10_000
PLAIN_ID = "[A-Za-z0-9_-]{1,100}"  # the launcher takes no other as a file name


def calm_path(project: Project, session: Session) -> str:
    """The launcher's file; "" where the launcher would not look for one."""
    if not re.fullmatch(PLAIN_ID, session.id):
        return ""
    name = "%s-%s" % (session.agent, session.id)
    return os.path.join(project.cache, "calm", name)


def write_calm(run: Run) -> None:
    """Leave the number of calm calls, or take it away."""
    project, session = run.project, run.session
    path = calm_path(project, session)
    calls = calm_calls(run) if path and run.event.name == "PostToolUse" else 0
    if calls < 1:
        return remove_calm(path)
    lines = [
        str(calls),
        project.path("signals", "global"),
        project.path("signals", "sessions", safe_name(session.id)),
        head_file(project.root),
        "",
    ]
    if write_atomically(path + ".tally", ""):
        write_atomically(path, "\n".join(lines))
        set_time(path, run.now - 1)  # old shells compare whole seconds


def remove_calm(path: str) -> None:
    if path:
        remove_file(path)
        remove_file(path + ".tally")


def calm_calls(run: Run) -> int:
    """For how many calls nothing can happen; 0 while something is pending."""
    full = fullness(run)
    if not full.is_known or not run.event.is_known or is_something_pending(run):
        return 0
    growth = growth_of_a_call(run.session.facts)
    tokens_a_call = min(max(growth, CALL_TOKENS_LEAST), CALL_TOKENS_MOST)
    calls = CALM_CALLS
    for level in urgent_levels(run, full):
        if level > full.tokens:
            calls = min(calls, (level - full.tokens) // tokens_a_call)
    return calls


def is_something_pending(run: Run) -> bool:
    """Whether the very next call may need an answer."""
    session = run.session
    if run.reply.texts or session.delivery.state in ("owed", "sent"):
        return True
    if run.settings["handoff.enabled"] and is_handoff_owed(session):
        return True
    keys = call_keys(session.facts)[-3:]
    is_repeating = len(set(keys)) < len(keys)
    return is_repeating or read_workflow(run.project).is_running


def urgent_levels(run: Run, full: Fullness) -> list:
    """The numbers of tokens at which something urgent has to be said: the critical
    level and the handoff point. A mere warning may come a few calls late."""
    critical_percent = HEALTH_LEVELS["CTX_HEALTH_95"]["said_from"]
    levels = [full.usable * critical_percent // 100]
    if not run.session.handoff_complete:
        levels.append(handoff_point(run.settings, full))
    return levels


# =============================================================================
# Alerts
# =============================================================================
# An auditor is a function that gives back an alert or None, and a row of AUDITORS. It
# judges by the facts, which end before the present call; in a calm it may be asked up
# to eight calls late. An alert is a signal without a file: it goes straight into this
# reply. It is said when its level is crossed, and again after each cooldown while it
# stays active.
# monitor-state.json tells it to others; keys are "<session>:<CODE>", "global:<CODE>":
#
#     {"lastEmitted": {key: ISO}, "activeAlerts": {key: true},
#      "lastHealth": {"<session>": {"contextPercent": 87, "repetitionScore": 0.0}}}

HEALTH_LEVELS = {
    "CTX_HEALTH_95": {
        "said_from": 95,  # percent
        "over_below": 85,
        "severity": "critical",
        "action": "Suggest /clear to the person now: the next messages may not fit",
    },
    "CTX_HEALTH_85": {
        "said_from": 85,
        "over_below": 75,
        "severity": "warning",
        "action": "Finish the step you are at, then suggest /clear to the person",
    },
    "CTX_HEALTH_70": {
        "said_from": 70,
        "over_below": 60,
        "severity": "warning",
        "action": "Keep answers short, and plan a good place to stop",
    },
}
REPETITION_SAID, REPETITION_CLEARED = 4.0, 2.0
FAILING_WEIGHT = 1.5  # a failing repeat counts more
REPETITION_ACTION = (
    "Stop and try a different approach; say what you expected and what happened instead"
)
TREE_MOVED = (
    "The working tree is on %s now; it was on %s, "
    "and no command of this session changed it."
)
TREE_ACTION = "Look at what is there before you go on"
AUDIT_ACTION = "Check that they still match the code, and update or confirm them"


def new_alert(summary: str, action: str) -> Signal:
    """A warning with the codes of its auditor."""
    return Signal({"body": "%s\n→ %s" % (summary, action)})


def audit_health(run: Run, full: Fullness, active: list) -> Signal | None:
    """How full the context is; a jump over two levels says the higher."""
    codes = []
    for code, level in HEALTH_LEVELS.items():
        if full.percent >= level["over_below" if code in active else "said_from"]:
            codes.append(code)
    if not codes or not full.is_known:
        return None
    highest = HEALTH_LEVELS[codes[0]]
    note = "" if full.is_exact else " (estimated)"
    summary = "Context: %s full%s." % (full.shown(), note)
    alert = new_alert(summary, highest["action"])
    alert.severity = highest["severity"]
    alert.codes = codes
    return alert


def audit_repetition(run: Run, full: Fullness, active: list) -> Signal | None:
    """The same call with the same outcome, again and again."""
    score, count, all_failed = repetition(run.session.facts)
    if score < (REPETITION_CLEARED if active else REPETITION_SAID):
        return None
    total = len(call_keys(run.session.facts))
    summary = "Repetition: %d of the last %d tool calls were repeats" % (count, total)
    summary += " and failed the same way." if all_failed else "."
    return new_alert(summary, REPETITION_ACTION)


def repetition(facts: Facts) -> tuple:
    """(score, how many calls repeat, whether all of those failed) of the last calls.

    The same failure or the same edit counts from the second time on, any other result
    from the third.
    """
    keys = call_keys(facts)
    score, repeating, all_failed = 0.0, 0, True
    for key in dict.fromkeys(keys):
        count = keys.count(key)
        has_failed = key.endswith("failed")
        is_strict = has_failed or key.startswith("edit")
        if count > (1 if is_strict else 2):
            score += (count - 1) * (FAILING_WEIGHT if has_failed else 1.0)
            repeating += count
            all_failed = all_failed and has_failed
    return score, repeating, all_failed


def call_keys(facts: Facts) -> list:
    """What the last calls did and what came of it; waiting and notes are left out."""
    return [call["key"] for call in facts.calls if call["key"]]


def audit_files(run: Run, full: Fullness, active: list) -> Signal | None:
    """Context files that nobody has touched or read for long."""
    stale_days = run.settings["audit.stale_days"]
    files = [path for path in context_files(run.project) if os.path.isfile(path)]
    if not files or not stale_days or files_read(run, files):
        return None
    touched_at = max(map(modified_at, files))
    days = (run.now - touched_at) / 86400
    if days < stale_days:
        return None
    names = ", ".join(map(os.path.basename, files))
    summary = "Context files untouched for %d days: %s." % (days, names)
    return new_alert(summary, AUDIT_ACTION)


def audit_tree(run: Run, full: Fullness, active: list) -> Signal | None:
    """The branch is another one, and no command of this session did that."""
    session = run.session
    branch_before, moves_before = session.branch, session.moves_seen
    session.branch, session.commit = run.head
    session.moves_seen = session.facts.tree_moves  # and subagents
    if not branch_before or session.branch == branch_before:
        return None
    # the transcript may not hold the present call yet
    is_moving = may_move_tree(command_of(run.event.tool_input))
    if is_moving or session.moves_seen != moves_before:
        return None
    summary = TREE_MOVED % (session.branch, branch_before)
    return new_alert(summary, TREE_ACTION)


class Auditor:
    """A row of AUDITORS."""

    def __init__(
        self, audit: object, codes: list, cooldown_s: int, is_global: bool = False
    ) -> None:
        self.audit = audit
        self.codes = codes  # that its alerts may have
        self.cooldown_s = cooldown_s
        self.is_global = is_global  # about the project, not about one session


AUDITORS = {
    "context-health": Auditor(audit_health, list(HEALTH_LEVELS), 900),
    "repetition": Auditor(audit_repetition, ["CTX_REPETITION"], 600),
    "audit-reminder": Auditor(audit_files, ["CTX_AUDIT_DUE"], 14_400, is_global=True),
    "tree-moved": Auditor(audit_tree, ["CTX_TREE_MOVED"], 0),
}


class MonitorState(Record):
    """monitor-state.json"""

    lastEmitted: dict = {}
    activeAlerts: dict = {}
    lastHealth: dict = {}


def add_alerts(run: Run, full: Fullness, is_reminding: bool) -> None:
    """Add the alerts that are due, in one block with the signals. The state is saved
    once the reply is printed."""
    path, session_id = run.project.path("monitor-state.json"), run.session.id
    before = load_state(path)
    state = MonitorState(before)
    state.lastHealth[session_id] = {
        "contextPercent": full.percent,
        "repetitionScore": repetition(run.session.facts)[0],
    }
    alerts = run_auditors(run, full, state)
    if is_reminding:  # the reminder says how full it is
        alerts = [alert for alert in alerts if alert.auditor != "context-health"]
    for alert in add_signals(run, alerts):
        for code in alert.codes:
            state.lastEmitted[session_id + ":" + code] = format_iso(run.now)
            run.session.alerted[code] = run.now
    if state.as_dict() != before:
        run.reply.when_said(write_object, path, state.as_dict())


def run_auditors(run: Run, full: Fullness, state: MonitorState) -> list:
    """The alerts that this session may hear now; notes which codes are active."""
    due = []
    for name, auditor in AUDITORS.items():
        scope = "global:" if auditor.is_global else run.session.id + ":"
        active = [code for code in auditor.codes if scope + code in state.activeAlerts]
        alert = auditor.audit(run, full, active)
        for code in active:
            del state.activeAlerts[scope + code]
        if not alert:
            continue
        alert.auditor = name
        alert.codes = alert.codes or auditor.codes
        for code in alert.codes:
            state.activeAlerts[scope + code] = True
        said_at = run.session.alerted.get(alert.codes[0], 0.0)
        if has_waited(said_at, auditor.cooldown_s, run.now):
            due.append(alert)
    return due


def has_waited(since: float, wait_s: float, now: float) -> bool:
    """Whether a wait is over; after the clock went back, every wait is."""
    passed_s = now - since
    return passed_s < 0 or passed_s >= wait_s


def forget_alerts(project: Project, session_id: str) -> None:
    """A session is over: its keys go."""
    path = project.path("monitor-state.json")
    before = read_object(path)
    after = MonitorState(before).as_dict()
    for table in after.values():
        for key in list(table):
            if (key + ":").startswith(session_id + ":"):
                del table[key]
    if before and after != before:
        write_object(path, after)


# =============================================================================
# Handoff
# =============================================================================
# Every session that did work leaves a handoff, .context/handoffs/<session>.md, and
# it is never older than the work. Near the limit we ask the agent until it has
# written one. If it wrote none, the kit makes one from the facts. What happened
# after the agent wrote its own stands between SINCE_HEAD and SINCE_END, and is
# replaced each time. What is not ours is quoted, or one line behind a mark.

HANDOFF_PERCENT, HANDOFF_TOKENS = 85, 400_000
HANDOFF_LIMIT_BYTES = 512_000
KIT_HEAD = "# Handoff, made by ctx_hooks from the transcript"
KIT_NOTE = "The agent wrote none. Session %s in %s, until %s"
SINCE_HEAD = "## Since this handoff (added by ctx_hooks)"
SINCE_END = "<!-- end of what ctx_hooks added -->"
SINCE = "\n" + SINCE_HEAD + "%s\n" + SINCE_END + "\n"
SAID_LAST_LIMIT, RULES_LIMIT, LINE_LIMIT = 3_000, 2_000, 500
RULES_SESSIONS = 40  # so far back
DONE = ("completed", "done")  # what clients call a todo that is
REMINDER = """\
Context is {shown} full ({full.tokens:,} of {full.usable:,} usable tokens{note}). \
Write a handoff for the next session to {path} now, before anything else; \
where you may not write (plan mode), end your answer with it between a line \
BEGIN HANDOFF and a line END HANDOFF. Put there: goal · the person's own rules \
and corrections, word for word · state · decisions and why · what was tried and \
failed · how to verify · next steps · open files. This note comes with every \
tool result until there is a handoff."""
WRITTEN = "ctx: handoff written; /clear when you like, the next session starts from it"
PIN_HEAD = (
    "Keep these words of the person verbatim in the summary, and the rules they gave:"
)
PIN_LIMIT = 9_500


def handoff_path(project: Project, session_id: str) -> str:
    return project.path("handoffs", safe_name(session_id) + ".md")


def delivered_path(project: Project, session: Session) -> str:
    return project.path("handoffs", "delivered", own_handoff(session))


def is_plain_text(path: str) -> bool:
    """Whether we can read a handoff whole, and write it back. A missing one we can."""
    text, size = read_text(path, HANDOFF_LIMIT_BYTES), size_of(path)
    is_whole = size <= HANDOFF_LIMIT_BYTES and bool(text) == bool(size)
    return is_whole and "\0" not in text and "\ufffd" not in text


def read_handoff(path: str) -> str:
    """A handoff's text; "" if it says nothing, is binary or a link."""
    text = "" if os.path.islink(path) else read_text(path, HANDOFF_LIMIT_BYTES)
    return text if "\0" not in text and says_something(text) else ""


def read_body(path: str, session: Session) -> str:
    """A handoff's text without what the kit added for this session. What somebody wrote
    below that stays, and so does such a part that the agent copied from elsewhere."""
    head, *parts = read_handoff(path).split("\n" + SINCE_HEAD)
    body = [head]
    for part in parts:
        since, _, after = part.partition("\n" + SINCE_END)
        is_ours = content_mark(since.rstrip()) == session.kit_mark != ""
        body.append(after if is_ours else "\n" + SINCE_HEAD + part)
    return "".join(body).rstrip()


def did_work(facts: Facts) -> bool:
    """An edit, or two calls that do more than look."""
    return facts.work >= 2


# --- the agent's own handoff


def note_what_stood_there(project: Project, session: Session) -> None:
    """A session begins, or goes on after a compaction: what stands in the files now is
    not the handoff that we will ask for."""
    body = read_body(handoff_path(project, session.id), session)
    body = body or read_body(delivered_path(project, session), session)  # may come back
    session.handoff_before = content_mark(body)
    session.old_prompt_before = content_mark(read_old_prompt(project))


def has_own_handoff(project: Project, session: Session) -> bool:
    """Whether the agent wrote one since the start or the last compaction."""
    path = handoff_path(project, session.id)
    old_prompt = read_old_prompt(project)
    mark = content_mark(old_prompt)
    is_new = mark not in ("", session.old_prompt_before)
    if is_new and write_atomically(path, old_prompt):
        session.old_prompt_before = mark
    known = ("", session.handoff_before, session.kit_mark)
    return content_mark(read_body(path, session)) not in known


def read_old_prompt(project: Project) -> str:
    """The handoff where earlier tools put it."""
    path = os.path.join(project.root, OLD_HANDOFF)
    return read_handoff(path) if is_inside(path, project.root) else ""


def save_printed(project: Project, session: Session) -> bool:
    """Save the handoff that the agent printed last, once; False if that fails."""
    facts, text = session.facts, session.facts.printed
    is_new = content_mark(text) != session.printed_mark and says_something(text)
    if not is_new or not project.settings["handoff.enabled"]:
        return True
    path = handoff_path(project, session.id)
    if text != read_body(path, session) and not write_atomically(path, text + "\n"):
        return False
    session.printed_mark = content_mark(text)
    facts.said = facts.said.replace(text, "")
    facts.handoff_at = max(facts.handoff_at, facts.printed_at)
    return True


def notice_handoff(run: Run) -> None:
    """Note whether the agent has written its handoff; the person is told once."""
    session, facts = run.session, run.session.facts
    if session.handoff_complete or not has_own_handoff(run.project, session):
        return
    session.handoff_complete = True
    facts.handoff_at = facts.handoff_at or facts.answered_at
    if session.threshold_crossed_at:
        run.reply.tell(WRITTEN)
    path = handoff_path(run.project, session.id)
    record(run, "handoff:written", path=run.project.relative(path))


def notice_compaction(run: Run) -> None:
    """After a compaction the handoff, the gate and the briefing are wanted anew.

    The event may come before the compaction's row in the transcript or after it.
    """
    session = run.session
    compacted_at = session.facts.compacted_at
    if run.event.source != "compact" and compacted_at <= session.compaction_seen:
        return
    session.compaction_seen = max(compacted_at, format_iso(run.now))
    note_what_stood_there(run.project, session)
    session.threshold_crossed_at = ""
    session.handoff_complete = False
    session.reminded_answer = ""
    session.briefed = False
    remove_file(marker_path(session.id, run.env))


# --- the reminder


def handoff_point(settings: Settings, full: Fullness) -> int:
    """The number of tokens from which on a handoff is wanted."""
    automatic = min(full.usable * HANDOFF_PERCENT // 100, HANDOFF_TOKENS)
    told = settings["handoff.threshold"]
    if told == "auto":
        return automatic
    if told[-1] in "km":
        return min(automatic, as_tokens(told))
    return full.usable * int(told) // 100


def add_reminder(run: Run, full: Fullness) -> bool:
    """Ask for a handoff once the point is crossed; True if this answer's calls do."""
    session = run.session
    can_be_written = os.access(run.project.context, os.W_OK)
    if not run.settings["handoff.enabled"] or not full.is_known or not can_be_written:
        return False
    notice_handoff(run)
    point = handoff_point(run.settings, full)
    if full.tokens < point:
        return False
    if not session.threshold_crossed_at:
        crossed_at = crossing_time(session.facts, point)
        session.threshold_crossed_at = crossed_at or format_iso(run.now)
        record(run, "handoff:crossed", percent=full.percent)
    if not is_handoff_owed(session):
        return False
    if session.reminded_answer == session.facts.answer:
        return True  # another call of the same answer carries it
    if not run.reply.add(render_reminder(run, full)):
        return False
    make_folder(run.project.path("handoffs"))  # a redirection does not make it
    if not session.reminded_answer:
        shown = full.shown()
        run.reply.tell("ctx: context %s full, asked the agent for a handoff" % shown)
    session.reminded_answer = session.facts.answer
    record(run, "handoff:asked", percent=full.percent)
    return True


def is_handoff_owed(session: Session) -> bool:
    """Whether the point is crossed, and the agent has written none. If the person said
    no to that, the kit makes one at the end."""
    crossed_at = session.threshold_crossed_at
    is_refused = session.facts.handoff_refused_at > crossed_at
    return crossed_at != "" and not session.handoff_complete and not is_refused


def crossing_time(facts: Facts, point: int) -> str:
    """The time of the answer that crossed the point, since the last compaction."""
    for at, tokens, *_ in facts.measured:
        if tokens >= point and at > facts.compacted_at:
            return at
    return ""


def render_reminder(run: Run, full: Fullness) -> str:
    return REMINDER.format(
        full=full,
        shown=full.shown(),
        note="" if full.is_exact else ", estimated",
        path=handoff_path(run.project, run.session.id),
    )


# --- the handoff that the kit makes


def make_handoff(run: Run, session: Session, now: float) -> bool:
    """Make the session's handoff, or bring the agent's own up to date. False if there
    is none to make: no work was done, or it cannot be written."""
    project, path = run.project, handoff_path(run.project, session.id)
    is_saved = save_printed(project, session)
    is_wanted = project.settings["handoff.enabled"] and did_work(session.facts)
    if is_wanted and was_delivered(project, session, path):
        is_wanted = False
    if is_wanted and is_plain_text(path):  # else we could not write it back
        is_saved = write_handoff(project, session, now) and is_saved
    if not is_saved:  # a full disk: it does not count as made, so the next start tries
        name = project.relative(path)
        record(run, "handoff:failed", session=session.id, path=name)
        return False
    session.handoff_offset = session.offset
    return is_wanted


def write_handoff(project: Project, session: Session, now: float) -> bool:
    """Write the whole file; the mark of our part counts only once that is done."""
    path = handoff_path(project, session.id)
    body = read_body(path, session)
    body = body or read_body(delivered_path(project, session), session)
    if content_mark(body) in ("", session.kit_mark):
        text = ours = render_handoff(project, session, now)
    else:
        ours = render_since(project, session)
        text = body + "\n" + (SINCE % ours if ours else "")
    if not write_atomically(path, text):
        return False
    session.kit_mark = content_mark(ours.rstrip())
    set_time(path, now)  # as old as the work, whatever clock the disk has
    return True


def was_delivered(project: Project, session: Session, path: str) -> bool:
    """Whether another session got this handoff, and no work was done since."""
    if os.path.lexists(path) or session.end_reason == "clear":
        return False  # after /clear the next session is to go on from it
    delivered_at = modified_at(delivered_path(project, session))
    return 0 < delivered_at and parse_iso(session.facts.worked_at) <= delivered_at


def render_handoff(project: Project, session: Session, now: float) -> str:
    """A whole handoff from the facts, for somebody who was not there."""
    label = DIALECTS[session.agent].label
    head = KIT_NOTE % (for_terminal(session.id), label, format_iso(now))
    if session.branch:
        head += " on %s at %s" % (session.branch, session.commit)
    rules = cut_middle(render_requests(earlier_rules(project, session)), RULES_LIMIT)
    sections = list_work(project, session, "")
    sections.insert(1, ("Rules they gave in the sessions before", rules))
    work = render_sections("##", sections)
    return hide_secrets("\n\n".join([KIT_HEAD, head + ".", work]))


def earlier_rules(project: Project, session: Session) -> list:
    """The person's rules in the sessions that this one goes back to, oldest first."""
    found: list = []
    for _ in range(RULES_SESSIONS):
        if not session.began_with:
            break
        session = writer_of(project, session.began_with)
        requests = session.facts.requests
        rules = [words for _, words in requests if re.search(RULE_WORDS, words)]
        found = rules + found
    return list(dict.fromkeys(found))


def render_since(project: Project, session: Session) -> str:
    """What happened after the agent wrote its handoff; "" if nothing did."""
    facts, since = session.facts, session.facts.handoff_at
    last_request_at = facts.requests[-1][0] if facts.requests else ""
    if max(facts.worked_at, last_request_at) <= since:
        return ""
    work = render_sections("###", list_work(project, session, since))
    return "\n\n" + hide_secrets(work) if work else ""


def list_work(project: Project, session: Session, since: str) -> list:
    """What was asked, done and said after `since`, an ISO time: [(title, text)]."""
    facts = session.facts
    requests = [words for at, words in facts.requests if came_after(at, since)]
    edited = [path for path, at in facts.edited if came_after(at, since)]
    edited = [project.relative(path) for path in edited]
    commands = [words for at, words in facts.commands if came_after(at, since)]
    waiting = [what_waits(call) for call in facts.calls if not call["outcome"]]
    changed = changed_files(project.root)
    workflow = workflow_of(project, session)
    sections = [
        ("The person's requests, word for word", render_requests(requests)),
        ("The workflow of this session (auto mode)", quote(workflow)),
        ("Todo list", render_todos(facts.todos)),
        ("Files edited", render_lines("- ", edited)),
        ("Uncommitted changes (git status)", quote("\n".join(changed), "    ")),
        ("The last commands", render_lines("    ", commands)),
        ("Without a result", render_lines("    ", waiting)),
    ]
    if facts.failed and came_after(facts.failed["at"], since):
        sections.append(("The last command that failed", render_failure(facts)))
    if facts.passed and came_after(facts.passed["at"], since):
        sections.append(("The last check", render_check(facts.passed)))
    if came_after(facts.said_at, since):
        said = cut_middle(facts.said, SAID_LAST_LIMIT)
        sections.append(("What the agent said last", quote(said)))
    return sections


def what_waits(call: dict) -> str:
    """A call that has no result: its command, or the files that it edits."""
    return call["command"] or ", ".join(call.get("writes", []))


def came_after(at: str, since: str) -> bool:
    """Whether an ISO time is after another; without the other, everything is."""
    return not since or at > since


def render_sections(level: str, sections: list) -> str:
    """Headings with text; none without something under it."""
    texts = ["%s %s\n\n%s\n" % (level, title, text) for title, text in sections if text]
    text = re.sub(CONTROL, "", "\n".join(texts))
    return text.replace("\ufffd", "?")  # with one of those it would count as no text


def render_lines(mark: str, texts: list[str]) -> str:
    """A line for each text: a name may hold newlines."""
    return "\n".join(mark + one_line(text, LINE_LIMIT) for text in texts if text)


def render_requests(requests: list) -> str:
    return "\n\n".join(map(quote, requests))


def render_todos(todos: list) -> str:
    lines = []
    for status, text in todos:
        box = "- [x] " if status in DONE else "- [ ] "
        if text and status != "deleted":
            lines.append(box + text)
    return "\n".join(lines)


def render_check(check: dict) -> str:
    verdict, end = check.get("verdict", "passed"), check.get("end")  # older state
    text = "`%s` %s at %s" % (check["command"], verdict, check["at"])
    return text + "; its last line: `%s`" % end if end else text


def render_failure(facts: Facts) -> str:
    """The last failing command, and what was tried since; "" if there is none."""
    if not facts.failed:
        return ""
    error = quote(facts.failed["error"], "    ")
    text = "`%s`\n\n%s" % (facts.failed["command"], error)
    if facts.tried:
        text += "\n\nSince then: `%s`" % "`, `".join(dict.fromkeys(facts.tried))
    return text


def render_pins(facts: Facts) -> str:
    """What Claude Code's own summary is asked to keep at a compaction."""
    open_todos = [todo for todo in facts.todos if todo[0] not in DONE]
    sections = [
        ("Still to do", render_todos(open_todos)),
        ("The last command that failed", render_failure(facts)),
    ]
    rest = hide_secrets(render_sections("##", sections))
    words = [request[1] for request in facts.requests]
    requests = hide_secrets(render_requests(words))
    if not requests and not rest:
        return ""
    room = PIN_LIMIT - len(PIN_HEAD) - len(rest)
    return "\n\n".join([PIN_HEAD, cut_middle(requests, room), rest])


# =============================================================================
# Gate
# =============================================================================
# Once a session, at the first tool call, the agent is told which context files to
# read. A marker in the temp folder says that this was done; the launcher looks for
# it, too. After a compaction and after /clear the gate speaks again.

GATE_TEXT = "STOP. Read your context files before proceeding: %s"
GATE_CHECKPOINT = (
    "When you have read them, say so in one line: Context Loaded — Read: … Skipped: …"
)


def add_gate(run: Run) -> None:
    """Say which files to read, unless that was said or there is nothing to read."""
    project = run.project
    if not claim_marker(run) or run.settings["gate.mode"] == "off":
        return
    paths = context_files(project)
    read = files_read(run, paths)
    unread = []
    for path in paths:
        if path not in read and is_worth_reading(project, path):
            unread.append(path)
    if not unread:
        return
    names = unread
    if run.event.cwd in ("", project.root):  # elsewhere the agent needs whole paths
        names = map(project.relative, unread)
    text = GATE_TEXT % ", ".join(names)
    if run.settings["gate.checkpoint"]:
        text += "\n" + GATE_CHECKPOINT
    run.reply.add(text)
    short_names = map(os.path.basename, unread)
    record(run, "gate:said", files=", ".join(short_names))


def context_files(project: Project) -> list:
    """The paths of `gate.files`."""
    return [project.path(name) for name in project.settings["gate.files"]]


def is_worth_reading(project: Project, path: str) -> bool:
    """Whether a file may reach the agent and says something."""
    return may_be_delivered(project, path) and says_something(read_text(path))


def files_read(run: Run, files: list) -> list:
    """Which of these files the agent has read in this session."""
    seen = ["/" + path.replace("\\", "/") for path in run.session.facts.read]
    found = []
    for path in files:
        ending = "/" + run.project.relative(path)
        if any(other.endswith(ending) for other in seen):
            found.append(path)
    return found


def marker_path(session_id: str, env: dict) -> str:
    folder = env.get("TEMP" if os.name == "nt" else "TMPDIR") or "/tmp"
    return os.path.join(folder, "ctx-loaded-" + safe_name(session_id))


def claim_marker(run: Run) -> bool:
    """True for the first to ask. If no marker can be made, everybody is the first."""
    path = marker_path(run.session.id, run.env)
    flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY
    try:
        os.close(os.open(path, flags, 0o600))
    except FileExistsError:
        return False
    except OSError:
        pass
    return True


# =============================================================================
# Signals
# =============================================================================
# A signal is a file for the agent; anybody may write one, into
# .context/signals/global/ or .context/signals/sessions/<session>/:
#
#     ---
#     generated_at: 2026-02-03T10:45:00Z
#     severity: warning
#     ttl: 300
#     auditor: context-health
#     code: CTX_HEALTH_85
#     ---
#     Context: 87% full, repetition in last 8 turns.
#     → Summarize the current state in 5 bullets
#
# Each session hears each signal once. Everything in the header has a default.

SIGNALS_LOOKED_AT = 200
SIGNAL_LIMIT_BYTES = 64_000
BODY_LIMIT = 2_000
DEFAULT_TTL_S, LONGEST_TTL_S = 300.0, 30.0 * 86400
CLOCK_SKEW_S = 86_400  # a disk may have a clock of its own
FROM_CLONE = "(a file of this repository says) "
ONE_SIGNAL = "⚠️ [ctx monitor] "
MANY_SIGNALS = "⚠️ [ctx monitor] %d issues:"
MORE_SIGNALS = "  … %d more will follow"


class Signal(Record):
    """A signal, or an alert on its way into the same block."""

    path: str = ""  # "" for an alert
    is_global: bool = False
    is_strangers: bool = False  # it came with the clone
    severity: str = "warning"
    generated_at: float = 0.0
    ttl_s: float = DEFAULT_TTL_S
    auditor: str = ""
    code: str = ""
    body: str = ""
    mark: str = ""  # tells this version of a global signal from others
    codes: list = []  # of an alert: all become active, the first one is said

    def rank(self) -> int:
        return SEVERITIES.index(self.severity)


# --- the file


def read_signal(path: str, written_at: float) -> Signal:
    text = read_text(path, SIGNAL_LIMIT_BYTES)
    signal = parse_signal(text, written_at)
    signal.path = path
    signal.mark = time_mark(written_at) + content_mark(text)
    return signal


def parse_signal(text: str, written_at: float) -> Signal:
    """A signal from a file's text. Whatever is missing or broken has its default."""
    header, body = split_header(text)
    signal = Signal()
    severity = header.get("severity", "").lower()
    if severity in SEVERITIES:
        signal.severity = severity
    ttl = header.get("ttl", "")
    if re.fullmatch(r"\d{1,20}(\.\d+)?", ttl):
        signal.ttl_s = min(float(ttl), LONGEST_TTL_S)
    told_at = parse_iso(header.get("generated_at", ""))
    is_plausible = 0 < told_at <= written_at + CLOCK_SKEW_S
    signal.generated_at = told_at if is_plausible else written_at
    signal.auditor = header.get("auditor", "")
    signal.code = header.get("code", "")
    signal.body = clean_text(cut_end(body.strip() or signal.code, BODY_LIMIT))
    return signal


def split_header(text: str) -> tuple:
    """({key: value}, body); without a header the whole text is the body."""
    lines = text.split("\n")
    if lines[0].strip() != "---":
        return {}, text
    header: dict = {}
    for number, line in enumerate(lines[1:], 1):
        if line.strip() == "---":
            return header, "\n".join(lines[number + 1 :])
        key, _, value = strip_comment(line).partition(":")
        header[key.strip().lower()] = unquote(value)
    return {}, "\n".join(lines[1:])  # never closed: say what is there


# --- which signals wait


def read_signals(run: Run) -> list:
    """The signals that wait for this session; expired ones are removed."""
    own = run.project.path("signals", "sessions", safe_name(run.session.id))
    shared = run.project.path("signals", "global")
    files = list_files(own, ".md") + list_files(shared, ".md")
    files.sort(key=lambda file: -file[1])
    waiting = []
    for path, written_at in files[:SIGNALS_LOOKED_AT]:
        name = os.path.basename(path)
        is_own = not path.startswith(shared)
        heard = run.session.heard.get(path if is_own else name, "")
        is_same_file = heard.startswith(time_mark(written_at))
        if is_same_file and run.event.name != "UserPromptSubmit":
            continue  # heard; at prompts we look whether it changed or expired
        signal = read_signal(path, written_at)
        signal.is_global = not is_own
        if run.now > signal.generated_at + signal.ttl_s:
            record(run, "signal:expired", file=name, body=signal.body[:200])
            remove_file(path)
        elif signal.body and signal.mark != heard:
            waiting.append(signal)
    for signal in waiting:
        if came_with_clone(run.project, signal.path):
            signal.is_strangers = True
            signal.body = FROM_CLONE + signal.body
    return waiting


def minimum_rank(run: Run) -> int:
    """Which severity reaches the agent; the environment wins over the settings."""
    word = run.env.get("CTX_INJECT_MIN_SEVERITY", "").lower()
    if word not in SEVERITIES:
        word = run.settings["monitor.inject_min_severity"]
    return SEVERITIES.index(word)


def newest_of_each(signals: list) -> list:
    """One signal of each source and code; a newer one replaces those before it."""
    newest: dict = {}
    for signal in sorted(signals, key=lambda signal: signal.generated_at):
        key = signal.path
        if signal.auditor and signal.code:
            key = (signal.is_global, signal.auditor, signal.code)
        if key in newest:
            remove_file(newest.pop(key).path)
        newest[key] = signal
    return list(newest.values())


# --- what is said


def add_signals(run: Run, alerts: list) -> list:
    """Add the alerts and the waiting signals to the reply, as one block; gives back
    those that fit."""
    if not can_speak(run.event):
        return []
    least = minimum_rank(run)
    signals = [signal for signal in read_signals(run) if signal.rank() >= least]
    items = alerts + newest_of_each(signals)
    items.sort(key=lambda item: (item.is_strangers, -item.rank()))
    said = fit_block(run, items)
    for signal in said:
        book_signal(run, signal)
    return said


def fit_block(run: Run, items: list) -> list:
    """Add one block with as many items as fit; gives back those that are in it."""
    if len(items) == 1 and run.reply.add(ONE_SIGNAL + items[0].body):
        return items
    lines = ["  • " + signal_line(item.body) for item in items]
    for count in range(len(items), 0, -1):
        block = [MANY_SIGNALS % len(items)] + lines[:count]
        waiting = len(items) - count
        if waiting:
            block.append(MORE_SIGNALS % waiting)
        if run.reply.add("\n".join(block)):
            return items[:count]
    return []


def signal_line(body: str) -> str:
    """Summary → Action, in one line."""
    return " ".join(body.split())


def book_signal(run: Run, signal: Signal) -> None:
    """What a signal in the reply brings with it."""
    body = signal.body
    if signal.severity == "critical" and not signal.is_strangers:
        is_alert = bool(signal.codes)  # its advice is for the agent
        told = body.partition("\n")[0] if is_alert else body
        run.reply.tell("ctx: " + one_line(told, 200))
        run.reply.bell = notification(run.settings["monitor.notify"], body)
    if signal.codes:
        record(run, "alert:said", code=signal.codes[0], text=body)
        return
    record(
        run,
        "signal:delivered",
        file=os.path.basename(signal.path),
        severity=signal.severity,
        body=body[:200],
    )
    run.reply.when_said(forget_signal, run.session, signal)


def forget_signal(session: Session, signal: Signal) -> None:
    """Remember it as heard; a session's own goes, too, if we may."""
    key = os.path.basename(signal.path)
    if not signal.is_global:
        remove_file(signal.path)
        key = signal.path
    session.heard[key] = signal.mark
    for name in list(session.heard)[:-SIGNALS_LOOKED_AT]:
        del session.heard[name]


def notification(how: str, text: str) -> str:
    """The terminal sequence that draws the person's attention."""
    if how == "desktop":
        return "\x1b]9;%s\x07" % one_line(for_terminal(text), 120)
    return "\x07" if how == "bell" else ""


# =============================================================================
# Auto
# =============================================================================
# .caw/auto-state.json says which phase the agent is in. It counts only when it was
# meant on this machine: it names a session of ours, or `auto start` left its token in
# agreed.json, with the checks that the person agreed to. A phase ends with a block in
# the agent's own words, once its check exits 0. Any doubt lets the agent stop, aloud.

PHASES = {
    "expansion": "write down what is asked, what is not, and how it will be judged",
    "init": "set up .caw/ for this task, and find out how to build and test",
    "planning": "write task_plan.md with small steps that can each be checked",
    "execution": "carry out all steps of the plan, and mark each one when it is done",
    "qa": "run the build, the linters and the tests, and mend what fails",
    "review": "read the whole change as a reviewer would, and list the findings",
    "fix": "mend the findings of the review",
    "check": "compare the result with the requirements and the project's rules",
    "reflect": "write down what was learned, in the context files where it belongs",
}
SKIPS = {  # the key of `config` that leaves a phase out
    "expansion": "skip_expansion",
    "qa": "skip_qa",
    "review": "skip_review",
    "fix": "skip_review",
    "check": "skip_review",
    "reflect": "skip_reflect",
}
TRANSITIONS = {
    "TRANSITION_TO_QA": "qa",
    "TRANSITION_TO_VALIDATION": "review",
    "TRANSITION_TO_FIX": "fix",
}
OUTCOMES = {  # signals of every phase, and what they come to
    "PHASE_BLOCKED": "phase_blocked",
    "PHASE_ERROR": "critical_error",
    "AUTO_COMPLETE": "auto_complete_signal",
}
PHASE_NAME = r"[a-z][a-z0-9_-]{0,39}"
MAX_ITERATIONS = 20
STALE_AFTER_S = 7200
TIME_TOLERANCE_S = 300


class Completions(Record):
    """The completion blocks that counted."""

    last_checked: str = ""  # when a hook last took care of the workflow
    detected_signals: list = []  # {signal, detected_at, reason}


class Workflow(Record):
    """.caw/auto-state.json. Times are ISO 8601."""

    schema_version: str = "2.0"
    active: bool = False
    phase: str = ""  # one of `phases`; at the end complete, failed or cancelled
    phases: list = []
    iteration: int = 0  # stops that were held in this phase
    max_iterations: int = MAX_ITERATIONS
    task_description: str = "see the conversation"
    until: str = ""  # the command that proves the last phase
    config: dict = {}  # skip_qa and its like
    session_id: str = ""  # "": it waits for a session
    any_prompt: bool = False  # a script's prompt binds it, too
    token: str = ""
    phase_started_at: str = ""
    exit_reason: str = ""  # a key of ENDINGS
    outcome: str = "the workflow ended"  # what the person was told then
    last_phase: str = ""
    needs: str = ""  # the last words to the person: what to decide, an error
    signals: Completions = Completions()
    # not on disk:
    is_ours = False  # meant on this machine
    checks = {}  # phase -> the command that the person agreed to
    lead = ""  # what the agent is told first

    @property
    def is_running(self) -> bool:
        return self.is_ours and self.active and self.phase in self.phases

    @property
    def is_single_task(self) -> bool:
        """Whether it was `--until` alone: no phases to speak of, only the task."""
        return bool(self.until) and self.phases == ["execution"]

    @property
    def stage(self) -> str:
        """What is being done, in words."""
        return "the task" if self.is_single_task else "phase " + self.phase

    @property
    def signal(self) -> str:
        """The signal that completes the phase."""
        return self.phase.upper() + "_COMPLETE"

    @property
    def leads(self) -> dict:
        """The signals that count now -> the next phase, or a key of SENTENCES."""
        later = self.phases[self.phases.index(self.phase) + 1 :]
        leads = {signal: to for signal, to in TRANSITIONS.items() if to in later}
        leads.update(OUTCOMES)
        leads[self.signal] = [*later, "all_phases_complete"][0]
        return leads


# --- the file, and whether it counts


def workflow_path(project: Project) -> str:
    """Where the state is; "" if a link leads out of the project."""
    path = os.path.join(project.root, ".caw", "auto-state.json")
    return path if is_inside(path, project.root) else ""


def read_workflow(project: Project) -> Workflow:
    """The workflow. It is not running if its file is missing, unusable or foreign."""
    flow = Workflow(read_object(workflow_path(project)))
    agreed = read_object(project.state("agreed.json"))
    session = session_path(project, flow.session_id)
    has_token = flow.token == agreed.get("token")
    flow.is_ours = has_token or os.path.exists(session)
    if has_token:
        flow.checks = agreed["checks"]
    flow.phases = plan_phases(flow.phases, flow.config)
    return flow


def plan_phases(names: list, flags: dict) -> list:
    """The phases to go through: the given ones, else ours; none twice, none skipped."""
    known = [name for name in map(str, names) if re.fullmatch(PHASE_NAME, name)]
    phases = dict.fromkeys(known or PHASES)
    return [name for name in phases if not flags.get(SKIPS.get(name))]


def workflow_of(project: Project, session: Session) -> str:
    """The session's workflow for its handoff; "" if it has none."""
    flow = read_workflow(project)
    if not flow.is_ours or flow.session_id != session.id:
        return ""
    state = "It goes on: now comes %s." % flow.stage
    if not flow.is_running:
        state = "It is over: %s." % flow.outcome
    return one_line(flow.task_description, 1000) + "\n\n" + state


# --- completion blocks

FORMS = {  # signal -> what its block needs beside PHASE and TIMESTAMP; "": anything
    "PHASE_ERROR": {"STATUS": "error", "ERROR": "", "RECOVERABLE": "true or false"},
    "PHASE_BLOCKED": {"STATUS": "blocked", "NEEDS": ""},
}
COMPLETION = {"STATUS": "complete", "NEXT": ""}
# Lines `key: value` between two lines `---`; one `---` may close a block and open one.
# A block may be indented, but not by one blank: that is how a diff quotes.
BLOCK = (
    r"(?m)^(?:[ \t]{2,})?---[ \t\r]*\n"
    r"((?:[ \t]*\w+[ \t]*:.*\n|[ \t\r]*\n)+)"
    r"(?=[ \t]*---[ \t\r]*$)"
)
FIELD = r"(\w+)[ \t]*:(.*)"


def parse_blocks(text: str) -> list:
    """The blocks in a text, bare or fenced, as {key: value}."""
    blocks = []
    for lines in re.findall(BLOCK, text):
        fields = re.findall(FIELD, lines)
        block = {key.upper(): value.strip() for key, value in fields}
        if "SIGNAL" in block:
            blocks.append(block)
    return blocks


def problem_of_block(block: dict, flow: Workflow, now: float) -> str:
    """What is wrong with a block in this phase; "" if it counts."""
    signal = block["SIGNAL"]
    if signal not in flow.leads:
        return "SIGNAL must be " + flow.signal
    needed = dict(FORMS.get(signal, COMPLETION), PHASE=flow.phase)
    for key, wanted in needed.items():
        value = block.get(key)
        if not value:
            return key + " is missing"
        if wanted and value not in wanted.split(" or "):
            return "%s must be %s" % (key, wanted)
    at = parse_iso(block.get("TIMESTAMP"))
    since = min(now, parse_iso(flow.phase_started_at)) - TIME_TOLERANCE_S
    if not at or at < since or at > now + TIME_TOLERANCE_S:
        return "TIMESTAMP must be " + format_iso(now)
    return ""


def judge_words(flow: Workflow, said: str, now: float) -> dict:
    """The last block that counts, or {}."""
    flow.lead = "The completion block of %s is missing." % flow.stage
    found = {}
    for block in parse_blocks(said):
        problem = problem_of_block(block, flow, now)
        if problem:
            flow.lead = "Your block does not count: %s." % problem
        else:
            found = block
    return found


# --- at a prompt, after /clear, after a compaction

CANCEL_WORDS = "ctx cancel"
CANCELLED = "[ctx auto] The person cancelled the workflow; you may stop when you like."


def brief(run: Run) -> None:
    """Bind the workflow if it waits for this session, and tell the agent about it."""
    flow = read_workflow(run.project)
    if not bind(run, flow):
        return
    reason = hear_person(run, flow) if run.event.is_typed else ""
    goes_on = conclude(run, flow, reason)
    if not goes_on or run.session.briefed or not can_speak(run.event):
        return
    flow.lead = BRIEFING
    if run.reply.add(render(run, flow)):
        run.session.briefed = True
        record(run, "auto:briefed", phase=flow.phase)


def bind(run: Run, flow: Workflow) -> bool:
    """Bind a workflow that waits to this session; whether it runs for it."""
    if not flow.is_running:
        return False
    session = run.session
    is_script = run.env.get("CLAUDE_CODE_SESSION_ATTENDED") == "0"
    may_bind = flow.any_prompt or run.event.is_typed and not is_script
    if flow.session_id:  # after /clear it goes along to the next session
        may_bind = was_cleared(load_session(run.project, flow.session_id), session)
    if may_bind:
        flow.session_id = session.id
    if not flow.signals.last_checked:
        session.briefed = False  # that was about an earlier workflow
    return flow.session_id == session.id


def hear_person(run: Run, flow: Workflow) -> str:
    """A person's prompt sets the brakes back and answers a phase that was blocked.
    Gives the reason if it ends the workflow."""
    if run.event.prompt.strip().lower() == CANCEL_WORDS:
        run.reply.add(CANCELLED)
        return "user_cancelled"
    if not flow.needs and is_stale(flow, run.session, run.now):
        return "stale_state"
    flow.needs = ""
    flow.iteration = 0
    run.session.holds = 0
    return ""


def is_stale(flow: Workflow, session: Session, now: float) -> bool:
    """Whether nothing happened for hours."""
    worked_at = session.facts.worked_at
    last = max(flow.signals.last_checked, flow.phase_started_at, worked_at)
    return 0 < parse_iso(last) < now - STALE_AFTER_S


# --- at a stop

IDLE_LIMIT = 3
HOLD_CAP = 8  # stops held in a row; clients without a cap of their own get ours
FULL_PERCENT = 95
ENDINGS = {  # why a workflow ends, and its phase then
    "all_phases_complete": "complete",
    "auto_complete_signal": "complete",
    "max_iterations_reached": "failed",
    "stale_state": "failed",
    "critical_error": "failed",
    "user_cancelled": "cancelled",
}
SENTENCES = {  # what the person is told when the agent may stop
    "all_phases_complete": "the workflow passed: all of it is complete",
    "auto_complete_signal": "the workflow passed: the agent declared it complete",
    "max_iterations_reached": "the workflow failed: {flow.stage} was not complete"
    " after {flow.max_iterations} iterations",
    "stale_state": "the workflow was ended: {flow.stage} saw 2 hours without activity",
    "critical_error": "the workflow failed: an error ended {flow.stage}: {flow.needs}",
    "user_cancelled": "the workflow was cancelled during {flow.stage}",
    "phase_blocked": "{flow.stage} waits for you: {flow.needs}; a prompt goes on",
    "changed": "the workflow was changed while its check ran; this stop was let go",
    "subagents": "subagents are at work; {flow.stage} goes on when they are done",
    "wake_up": "a wake-up is scheduled; {flow.stage} goes on with it",
    "plan_mode": "in plan mode the agent may stop; {flow.stage} stays",
    "context_full": "the context is full, so the agent may stop; {flow.stage} stays",
    "no_progress": "3 stops without a tool call, so one may pass; {flow.stage} stays",
    "hold_cap": "the client holds no longer, so the agent may stop; {flow.stage} stays",
    "unwritable": ".caw/auto-state.json cannot be written, so the agent may stop",
}


def enforce_stop(run: Run) -> None:
    """Hold the stop, complete the phase, or let go; or leave a check to run first."""
    flow = read_workflow(run.project)
    if not bind(run, flow):
        return
    run.block = judge_words(flow, run.session.facts.said, run.now)
    signal = run.block.get("SIGNAL", "")
    if signal == "AUTO_COMPLETE":
        run.check = ["", *flow.checks.values()][-1]
    elif signal and signal not in FORMS:
        run.check = flow.checks.get(flow.phase, "")
    if not run.check:
        settle(run, flow)


def judge_check(run: Run, failure: str) -> None:
    """Go on with the stop, now that its check has run. `auto stop` may have come."""
    flow = read_workflow(run.project)
    if not bind(run, flow) or flow.phase != run.block["PHASE"]:
        return let_go(run, flow, "changed")
    if failure:
        run.block = {}
        flow.lead = failure
    else:
        note_check(run.session.facts, run.check, "passed", format_iso(run.now), "")
    settle(run, flow)


def settle(run: Run, flow: Workflow) -> None:
    """Follow the block; then the first brake lets go, or the stop is held."""
    session = run.session
    session.holds += 1
    if session.held_calls != session.facts.tool_calls:
        session.held_calls = session.facts.tool_calls
        session.holds = 0
    reason = follow_block(flow, run.block, format_iso(run.now))
    reason = reason or find_brake(run, flow)
    if not reason:
        flow.iteration += 1
    if conclude(run, flow, reason):
        hold(run, flow)


def follow_block(flow: Workflow, block: dict, at: str) -> str:
    """Note the signal and follow it; why the agent may stop, or ""."""
    if not block:
        return ""
    signal = block["SIGNAL"]
    to = flow.leads[signal]
    told = text_of(dig(block, "NEEDS ERROR REASON"))
    words = one_line(told, 500)
    row = {"signal": signal, "detected_at": at, "reason": words}
    flow.signals.detected_signals.append(row)
    if signal == "PHASE_ERROR" and block["RECOVERABLE"] == "true":
        flow.lead = "You reported an error: %s. Recover and go on." % words
        return ""
    if to not in flow.phases:
        flow.needs = words
        return to
    flow.lead = "Phase %s is complete. Now comes %s." % (flow.phase, to)
    flow.phase = to
    flow.phase_started_at = at
    flow.iteration = 0
    return ""


def find_brake(run: Run, flow: Workflow) -> str:
    """The first brake that applies; "" if the stop is to be held."""
    event = run.event
    kinds = [dig(task, "type") for task in event.background_tasks]
    brakes = {
        "phase_blocked": flow.needs,
        "subagents": kinds.count("shell") < len(kinds),  # a server may run for ever
        "wake_up": event.session_crons,
        "plan_mode": event.permission_mode == "plan",
        "context_full": fullness(run).percent >= FULL_PERCENT,
        "no_progress": run.session.holds >= IDLE_LIMIT and flow.iteration,
        "hold_cap": run.session.holds >= HOLD_CAP,
        "max_iterations_reached": flow.iteration >= flow.max_iterations,
    }
    return first_true(brakes)


def first_true(rows: dict) -> str:
    """The first key whose value is true; "" if there is none."""
    return next((key for key, value in rows.items() if value), "")


def conclude(run: Run, flow: Workflow, reason: str) -> bool:
    """Save the state. Gives whether the agent goes on: without a reason to let go."""
    if reason:
        let_go(run, flow, reason)
    flow.signals.last_checked = format_iso(run.now)
    if write_object(workflow_path(run.project), flow.as_dict()):
        return not reason
    let_go(run, flow, "unwritable")
    return False


def let_go(run: Run, flow: Workflow, reason: str) -> None:
    """The agent may stop: one line to the person, one row to the recorder."""
    text = SENTENCES[reason].format(flow=flow)
    run.reply.tell("ctx auto: %s." % text)
    record(run, "auto:released", reason=reason, said=text)
    run.session.holds = 0
    if reason in ENDINGS:
        flow.active = False
        flow.last_phase = flow.phase
        flow.phase = ENDINGS[reason]
        flow.exit_reason = reason
        flow.outcome = text


def hold(run: Run, flow: Workflow) -> None:
    """The agent goes on: with three lines, or with the whole text if it knows none."""
    said = one_line(flow.lead, 300)
    record(run, "auto:held", phase=flow.phase, iteration=flow.iteration, said=said)
    flow.lead = CONTINUATION_HEAD + "\n" + flow.lead
    run.reply.texts.append(render(run, flow))  # all of its parts are bounded
    run.reply.is_hold = True
    run.session.briefed = True
    run.session.facts.said = ""  # these words were judged; a block counts once


# --- what the agent is told

CONTINUATION_HEAD = "## Auto Mode Continuation"  # some clients show it as a prompt
BRIEFING = "[ctx auto] A workflow runs in this session."
TASK_ABOUT = "finish it before you stop"
WHOLE_TEXT = """\
- Now: {flow.stage} (iteration {flow.iteration}/{flow.max_iterations}): {about}
- Task: {task}
- Expected signal: {flow.signal}
- Verified by: {proof}

When {flow.stage} is done, print this block. The time is now {now}.
---
SIGNAL: {flow.signal}
PHASE: {flow.phase}
STATUS: complete
TIMESTAMP: <current time, ISO 8601>
NEXT: {next}
---
If nothing was left to do, add the line REASON: nothing was left to do, because …
If something went wrong, print this instead; with RECOVERABLE: false the workflow ends.
---
SIGNAL: PHASE_ERROR
PHASE: {flow.phase}
STATUS: error
TIMESTAMP: <current time, ISO 8601>
ERROR: <what happened>
RECOVERABLE: <true or false>
---
If the person must decide something, print this; you may then stop, and they are asked.
---
SIGNAL: PHASE_BLOCKED
PHASE: {flow.phase}
STATUS: blocked
TIMESTAMP: <current time, ISO 8601>
NEEDS: <what they must decide>
---"""
SHORT_TEXT = (
    "When {flow.stage} is done (iteration {flow.iteration}/{flow.max_iterations}),"
    " print the block with SIGNAL: {flow.signal} and the time, now {now}; with the line"
    " REASON: nothing was left to do, because … if that is so; PHASE_BLOCKED if the"
    " person must decide, PHASE_ERROR if it went wrong. What to do now: {about}"
)


def render(run: Run, flow: Workflow) -> str:
    """The lead, then the whole text, or the short one for an agent that knows it."""
    text = SHORT_TEXT if run.session.briefed else WHOLE_TEXT
    check = flow.checks.get(flow.phase)
    about = run.settings.of_phase("auto.about", flow.phase)
    usual = PHASES.get(flow.phase, TASK_ABOUT)
    if flow.is_single_task:
        usual = TASK_ABOUT
    text = text.format(
        flow=flow,
        about=one_line(about or usual, 300),
        task=one_line(flow.task_description, 1000),
        proof="`%.300s`, which must exit 0" % check if check else "your word",
        next=flow.leads[flow.signal],
        now=format_iso(run.now),
    )
    return clean_text(flow.lead + "\n" + text)


# --- the check: the one process that a person's agreement lets us start

CHECK_LIMIT_S = 140  # the client waits 150 s
CHECK_TAIL = 2_000
CHECK_OUTPUT_LIMIT = 50_000_000
CHECK_POLL_S = 0.05
CHECK_FAILED = """\
The block is there, but its check `%.300s` exited %d. Mend that, then print the block \
again. It may run for %d s and print 50 MB; the end of its output:
%s"""
WATCHER = """\
(
  seconds=0
  while kill -0 "$2" && [ "$seconds" -lt "$3" ]; do
    sleep 1
    seconds=$((seconds + 1))
  done
  kill -9 0
) >/dev/null 2>&1 &
exec sh -c "$1"
"""
TASKKILL = r"C:\Windows\System32\taskkill.exe"  # never one from the project's folder
SECRET_NAME = (
    r"(?i)^(ANTHROPIC|CLAUDE_CODE)_"
    r"|(KEY|TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIALS?|_PASS|_PAT)$"
)


def run_check(run: Run) -> str:
    """Run the check of this stop; "" if it exited 0, else what the agent is told."""
    limit_s = min(run.settings["auto.check_timeout_s"], CHECK_LIMIT_S)
    start_deadline(limit_s + DEADLINE_BESIDE_CHECK_S)
    try:
        code, output = run_command(run, limit_s)
    except (OSError, ValueError) as error:  # too many processes, a null byte
        code, output = -1, str(error)
    output = hide_secrets(output)[-CHECK_TAIL:].strip()
    return CHECK_FAILED % (run.check, code, limit_s, output) if code else ""


def run_command(run: Run, limit_s: float) -> tuple:
    """The exit code and the end of the output. The command has a process group of its
    own, which ends with it."""
    import subprocess
    import tempfile

    env = {
        name: value
        for name, value in run.env.items()
        if not re.search(SECRET_NAME, name)
    }
    with tempfile.TemporaryFile() as output:
        child = subprocess.Popen(  # the person agreed to this text
            run.check if os.name == "nt" else watched(run.check, limit_s),
            shell=os.name == "nt",
            cwd=run.project.root,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        end_with_us(child)
        end = time.monotonic() + limit_s
        while child.poll() is None and time.monotonic() < end:
            time.sleep(CHECK_POLL_S)
            if output.seek(0, os.SEEK_END) > CHECK_OUTPUT_LIMIT:
                break
        end_group(child)
        size = output.seek(0, os.SEEK_END)
        output.seek(max(0, size - 4 * CHECK_TAIL))
        tail = output.read()
    return child.returncode, tail.decode("utf-8", "replace")


def watched(command: str, limit_s: float) -> list[str]:
    """The command with a watcher beside it, which ends both once this process is gone.
    We may be killed, and could not end the check then."""
    limit = "%d" % (limit_s + DEADLINE_BESIDE_CHECK_S)
    return ["sh", "-c", WATCHER, "sh", command, str(os.getpid()), limit]


def end_with_us(child: object) -> None:
    """If the client gives up and ends this hook, the check ends, too."""
    import signal

    for name in ("SIGTERM", "SIGHUP", "SIGINT"):
        if hasattr(signal, name):  # Windows knows no SIGHUP
            signal.signal(getattr(signal, name), lambda *_: end_group(child))


def end_group(child: object) -> None:
    """End the command and all that it started."""
    import signal
    import subprocess

    if os.name == "nt":
        kill = [TASKKILL, "/F", "/T", "/PID", str(child.pid)]
        subprocess.run(kill, capture_output=True)
    else:
        try:
            os.killpg(child.pid, signal.SIGKILL)
        except OSError:
            pass  # nobody is left
    child.wait()


# --- for the command `auto`: a person's half

OWN_TERMINAL = "use a terminal of your own; ! in the client is the agent's shell, too"


def new_workflow(run: Run, options: object) -> Workflow:
    """What `auto start` was asked for; a UserError if that cannot be meant."""
    if read_workflow(run.project).is_running:
        raise UserError("a workflow runs already", "`auto stop` ends it")
    names = plan_phases(run.settings["auto.phases"], {})
    phases = [name for name in names if name not in options.skip]
    leaves_some = set(options.skip) < set(names)
    if not leaves_some or options.phase not in ("", *phases):
        raise UserError("no such phase to begin with or to skip", ", ".join(names))
    if options.until and phases == list(PHASES) and not options.phase:
        phases = ["execution"]  # with --until alone there is only the task
    return Workflow(
        {
            "phases": phases,
            "phase": options.phase or phases[0],
            "max_iterations": options.max_iterations,
            "task_description": options.task,
            "until": options.until,
        }
    )


def old_workflow(project: Project) -> Workflow:
    """The workflow that `auto resume` takes up, also after it ended."""
    flow = read_workflow(project)
    flow.phase = flow.last_phase or flow.phase
    if flow.phase not in flow.phases:
        raise UserError("there is no workflow to take up", "see `auto start --help`")
    return flow


def plan_checks(run: Run, flow: Workflow, options: object) -> list:
    """Give the phases their checks; those neither typed nor agreed to before."""
    known = [options.until, *read_workflow(run.project).checks.values()]
    flow.checks = {}
    for phase in flow.phases:
        command = run.settings.of_phase("auto.done_when", phase)
        if command:
            flow.checks[phase] = command
    if flow.until:
        flow.checks[flow.phases[-1]] = flow.until
    return [command for command in flow.checks.values() if command not in known]


def publish(run: Run, flow: Workflow, options: object) -> None:
    """Let the workflow wait for its session, with its token and checks at home."""
    is_agent = any(run.env.get(name) for name in agent_variables())
    if is_agent and (options.until or options.agree):
        raise UserError("an agent cannot agree to a check", OWN_TERMINAL)
    unknown = plan_checks(run, flow, options)
    if unknown and not options.agree:
        what = "you did not agree to its checks: " + ", ".join(unknown)
        raise UserError(what, "--agree lets the workflow run them")
    agreed = {"token": os.urandom(16).hex(), "checks": flow.checks}
    state = flow.as_dict()
    state.update(
        active=True,
        token=agreed["token"],
        session_id=options.session or run.env.get("CLAUDE_CODE_SESSION_ID", ""),
        any_prompt=options.any,
        iteration=0,
        needs="",
        last_phase="",
        phase_started_at=format_iso(run.now),
        signals={},  # no hook has met it yet
    )
    is_noted = write_object(run.project.state("agreed.json"), agreed)
    if not is_noted or not write_object(workflow_path(run.project), state):
        raise UserError("cannot write .caw/auto-state.json", "check its folder's owner")
    ignored = os.path.join(run.project.root, ".caw", ".gitignore")
    if not os.path.lexists(ignored):
        write_atomically(ignored, "/auto-state.json\n/.gitignore\n")
    record(run, "auto:started", phase=flow.phase)


def cancel_workflow(run: Run) -> None:
    flow = read_workflow(run.project)
    if flow.active:
        conclude(run, flow, "user_cancelled")


RESUME = " `auto resume` takes it up again."
STATES = {  # what `auto status` says first
    "none": "There is no workflow in .caw/auto-state.json, so it holds nobody."
    " `auto start TASK` begins one.",
    "foreign": "This workflow came with the project and holds nobody." + RESUME,
    "complete": "It is over: {flow.outcome:.500}.",
    "ended": "It is over: {flow.outcome:.500}." + RESUME,
    "blocked": "Your answer is needed, for {flow.stage}: {flow.needs:.500}",
    "stale": "It saw 2 hours without activity; a prompt ends it." + RESUME,
    "waiting": "The workflow waits for the next prompt; then {flow.stage} begins.",
    "running": "The agent works on {flow.stage} in session {flow.session_id:.8},"
    " iteration {flow.iteration} of {flow.max_iterations}.",
}
AGREED_CHECK = "Check of %s: `%.200s`; you agreed to it."


def describe_workflow(project: Project, now: float) -> list:
    """The workflow in sentences, and what a person can do next."""
    flow = read_workflow(project)
    states = {
        "none": not flow.phase,
        "foreign": not flow.is_ours,
        "complete": flow.phase == "complete",
        "ended": not flow.is_running,
        "blocked": flow.needs,
        "stale": is_stale(flow, load_session(project, flow.session_id), now),
        "waiting": not flow.session_id,
        "running": True,
    }
    lines = [STATES[first_true(states)].format(flow=flow)]
    if flow.phase:
        lines.append("Task: %.300s" % flow.task_description)
    if flow.is_running:
        checks = [AGREED_CHECK % row for row in flow.checks.items()]
        lines += checks or ["No check: it ends on the agent's word."]
        lines.append("To end it: `auto stop`, or type `ctx cancel` in its session.")
    return lines


# =============================================================================
# Look
# =============================================================================
# The transcript is the truth: it holds every prompt, answer, call, result, and our
# own texts. One pass reads what it gained since the last look and folds each row
# into the session's facts. Everything else is a view of those facts, so it does
# not matter which calls started Python.

LOOK_LIMIT_BYTES = 4_000_000
LATE_S, LATE_POLL_S = 0.25, 0.02
KEY_ROOM = 8_000  # characters; the longest secret fits
LONG_ROW_BYTES = 4_000  # only such a row could take long
KEPT = {"commands": 8, "tried": 5, "edited": 40, "read": 60}
CALLS_KEPT, WAITING_CALLS_KEPT = 8, 40
TODOS_KEPT = 40
SAID_LIMIT, PRINTED_LIMIT = 40_000, 200_000
PRINTED_BEGIN = r"(?m)^[ \t*_#]*BEGIN HANDOFF[ \t*_]*$"
PRINTED_END = r"(?m)^[ \t*_#]*END HANDOFF[ \t*_]*$"
MEASURED_LIMIT, MEASURED_WHOLE = 60, 16
REQUESTS_LIMIT, REQUEST_LIMIT = 12_000, 6_000
RULE_WORDS = r"(?i)\b(always|never|must|don'?t|do not|only|instead)\b"
ACKNOWLEDGED = r"(?i)\bACK:\s*context received"


def look_at(session: Session, event: Event) -> None:
    """Look; wait a moment where the transcript lags behind the event."""
    newest = look(session)
    deadline = time.monotonic() + LATE_S
    while is_behind(session.facts, event, newest) and time.monotonic() < deadline:
        time.sleep(LATE_POLL_S)
        newest = max(newest, look(session))
    if lacks_last_words(session.facts, event):
        add_words(session.facts, event.last_assistant_message)


def look(session: Session) -> str:
    """Fold what the transcript gained into the facts; gives the newest row's time."""
    dialect, newest = DIALECTS[session.agent], ""
    mark = session.reading_mark
    hung_at = read_text(mark) if mark else ""
    for at, line in new_lines(session):
        if hung_at == str(at):
            continue  # a run before this one ended in this row
        if mark and len(line) > LONG_ROW_BYTES:
            write_atomically(mark, str(at))
            hung_at = hung_at or "-"
        row = dialect.read_row(parse_object(line))
        fold_row(session, row)
        newest = max(newest, row.at)
    if hung_at:
        remove_file(mark)
    facts = session.facts
    if facts.answered_at > facts.compacted_at:
        beside = dialect.read_beside(session.transcript)
        beside.id, beside.at = facts.answer, facts.answered_at
        fold_usage(facts, beside)
    return newest


def is_behind(facts: Facts, event: Event, newest: str) -> bool:
    """Whether to wait for the transcript: at a Stop it lacks the agent's last words; or
    the client writes late, no row is as new as the event, and the numbers matter."""
    if lacks_last_words(facts, event):
        return True
    if not DIALECTS[event.agent].is_late or newest >= event.timestamp:
        return False
    if event.name in ("PostToolUse", "PostToolUseFailure"):
        return facts.tokens * 2 >= facts.window
    return event.name == "Stop"


def lacks_last_words(facts: Facts, event: Event) -> bool:
    if event.name != "Stop":
        return False
    last_words = hide_secrets(event.last_assistant_message[-KEY_ROOM:]).strip()[-200:]
    return last_words not in facts.said


def new_lines(session: Session) -> list[tuple[int, bytes]]:
    """The whole lines that the transcript gained, each with the offset at which it
    begins; moves the session's own offset."""
    size = size_of(session.transcript)
    if 0 < size < session.offset:  # it was rewritten
        session.offset = 0
        session.facts = Facts()
    start = max(session.offset, size - LOOK_LIMIT_BYTES)
    data = read_bytes(session.transcript, LOOK_LIMIT_BYTES, start=start)
    lines = data.split(b"\n")
    if start > session.offset:
        lines[0] = b""  # its beginning was skipped
    unfinished = lines.pop()
    session.offset = start + len(data) - len(unfinished)
    found = []
    for line in lines:
        found.append((start, line))
        start += len(line) + 1
    return found


# --- rows


def fold_row(session: Session, row: Row) -> None:
    """One row of the transcript into the facts."""
    facts, head = session.facts, session.delivery.head
    text = "".join([row.text] + [text for _, _, text in row.results])
    facts.chars += len(text)
    if head and row.kind != "answer" and head in text:
        facts.received = head
    if row.kind == "boundary":
        return fold_boundary(facts, row)
    if row.kind == "answer":
        fold_answer(facts, row)
    elif row.kind == "prompt":
        fold_prompt(facts, row)
    for call in row.calls:
        fold_call(session, row.at, *call)
    for result in row.results:
        fold_result(session, row.at, *result)
    fold_usage(facts, row)


def fold_boundary(facts: Facts, row: Row) -> None:
    """A compaction: nothing of the old fullness holds."""
    facts.compactions += 1
    facts.compacted_at = row.at
    facts.tokens = row.tokens
    facts.chars = row.tokens * CHARS_PER_TOKEN
    facts.measured.append([row.at, row.tokens, ""])


def fold_usage(facts: Facts, row: Row) -> None:
    """Tokens, window and model, where the row tells them."""
    facts.window = row.window or facts.window
    facts.model = row.model or facts.model
    if not row.tokens:
        return
    facts.tokens = row.tokens
    if row.id and facts.measured and facts.measured[-1][2:] == [row.id]:
        del facts.measured[-1]  # of the same answer
    facts.measured.append([row.at, row.tokens, row.id])
    if len(facts.measured) > MEASURED_LIMIT:
        del facts.measured[:-MEASURED_WHOLE:2]  # every second of the older ones


def fold_answer(facts: Facts, row: Row) -> None:
    facts.answer = row.id or row.at
    facts.answered_at = row.at
    if not row.text:
        return
    facts.said_at = row.at
    # a Stop may have told it already, or a client writes it twice
    if not facts.said.endswith(hide_secrets(row.text)):
        add_words(facts, row.text)
    if "context received" in row.text.lower() and re.search(ACKNOWLEDGED, row.text):
        facts.acknowledged_at = row.at


def add_words(facts: Facts, text: str) -> None:
    """More words of the agent; a handoff that they print is kept whole."""
    facts.said = (facts.said + "\n\n" + hide_secrets(text)).strip()
    printed = last_printed(facts.said) if re.search(PRINTED_END, text) else ""
    if printed:
        facts.printed = cut_middle(printed, PRINTED_LIMIT)
        facts.printed_at = facts.said_at
    facts.said = facts.said[-SAID_LIMIT:]


def last_printed(said: str) -> str:
    """The last handoff that the agent printed between its two lines; "" if none."""
    for text in reversed(re.split(PRINTED_END, said)[:-1]):
        parts = re.split(PRINTED_BEGIN, text, maxsplit=1)
        if len(parts) > 1:
            return parts[1].strip()
    return ""


def fold_prompt(facts: Facts, row: Row) -> None:
    """The person's own words, or what the client put there in their name."""
    text = slash_command(persons_words(row.words or row.text))
    if not is_typed(text):
        return
    facts.said = ""
    words = cut_middle(hide_secrets(text), REQUEST_LIMIT)
    if facts.requests and facts.requests[-1][1] == words:
        return
    facts.requests.append([row.at, words])
    while sum(len(words) + 40 for _, words in facts.requests) > REQUESTS_LIMIT:
        del facts.requests[least_needed(facts.requests)]


def slash_command(text: str) -> str:
    """What the person typed, where the client wrote its parts between tags."""
    name, _, rest = text.partition("<command-name>")[2].partition("</command-name>")
    words = rest.partition("<command-args>")[2].partition("</command-args>")[0].strip()
    return name + " " + words if name.startswith("/") and words else text


def least_needed(requests: list) -> int:
    """The index of the request to drop: near the middle, and no rule if possible."""
    middle, last = len(requests) // 2, len(requests) - 1
    if last < 2:
        return 0
    for index in (*range(middle, last), *range(middle - 1, 0, -1)):
        if not re.search(RULE_WORDS, requests[index][1]):
            return index
    return middle


# --- calls

# How much a call adds to the work, by its kind. Two are worth a handoff.
WORK = {"edit": 2, "run": 1, "agent": 1, "other": 1}
LOOKING = (
    "ls, cat, head, tail, grep, rg, find, fd, sed -n, awk, wc, echo, pwd, which, type, "
    "stat, tree, ps, jq, diff, file, du, df, env, date, whoami, less, more, "
    "command -v, python --version, python3 --version, node --version, git status, "
    "git diff, git log, git show, git branch, git remote, git blame, git rev-parse, "
    "git ls-files, git grep"
).split(", ")
HARMLESS = r"2>&1|>&2|> ?/dev/null|--no-pager "
WRITING = r">|sed -i|tee |-delete|-exec"
WAITING = "sleep, wait, watch, tail, gh run watch".split(", ")
CHECKERS = (
    "pytest tox nox unittest ruff mypy flake8 eslint tsc jest vitest mocha phpunit "
    "rspec shellcheck bats ctest make mvn gradle gradlew"
).split()
RUNNERS = (  # what may stand before a program, with options and numbers
    "env time nice sudo timeout npx bunx uv uvx poetry pipenv pdm hatch bundle run exec"
).split()
INTERPRETERS = r"(.*/)?(python[\d.]*|node|sh|bash)"
HEREDOC = r"(?<!<)<<-?\s*['\"\\]?(\w+)"
QUOTED = r"""'[^']*'|"[^"]*\""""
BUILD_TOOLS = "go cargo dotnet swift mix bun deno npm pnpm yarn cmake".split()
BUILD_STEPS = ("test", "build", "lint", "check", "vet", "clippy", "--build")
CHECK_WORDS = ("test", "check", "verify")
CHECK_SCRIPTS = ("/test", "/check", "/verify", "/ci", "ci/run")
TREE_MOVERS = "git gh jj hub checkout switch worktree release deploy".split()
REFUSED = r"(?i)user (doesn't want|rejected|refused|denied|declined|cancel+ed)"
OUTPUT_FILTERS = r"(\s*2>&1|\s*\|\s*(tail|head|cat)( -n?\s*\d+)?|\s*\|\| true)+\s*$"


def fold_call(
    session: Session, at: str, call_id: str, tool: str, tool_input: dict
) -> None:
    """A tool call: counts, work, files, commands."""
    facts = session.facts
    if call_id and any(known["id"] == call_id for known in facts.calls):
        return  # some clients write a row twice
    kind, command = tool_kind(tool), ""
    paths = touched_paths(tool_input)
    if kind == "run":
        command = command_of(tool_input)
        kind = "look" if is_looking(command) else "run"
        fold_command(facts, command, at)
    elif kind == "read" and "".join(paths).endswith(".output"):  # of a running task
        kind = "poll"
    facts.tool_calls += 1
    facts.breakdown[tool] = facts.breakdown.get(tool, 0) + 1
    facts.tree_moves += kind == "agent"  # its commands are in another transcript
    if kind == "note":
        fold_todos(facts, tool_input)
    if kind in WORK:
        facts.work += WORK[kind]
        facts.worked_at = at
    writes = paths if kind == "edit" else written_files(command)
    call = {
        "id": call_id,
        "tool": tool,
        "kind": kind,
        "command": one_line(hide_secrets(command), 300),
        "does": describe_call(tool, kind, tool_input),
        "check": verdict_of(command),  # if it exits 0
        "outcome": "",  # until there is a result; then ok or failed
        "key": "",  # two calls with the same key did the same, with the same outcome
        "at": at,
        "writes": writes[: KEPT["edited"]],  # if it succeeds
    }
    facts.calls.append(call)
    facts.read += paths if kind == "read" else []
    trim_facts(facts)


def trim_facts(facts: Facts) -> None:
    """Keep the newest. A call that waits for its result stays longer: an answer may
    hold a dozen edits, and each counts only when its result is there."""
    last = facts.calls[-CALLS_KEPT:]
    kept = facts.calls[-WAITING_CALLS_KEPT:]
    facts.calls = [call for call in kept if not call["outcome"] or call in last]
    for name, limit in KEPT.items():
        del getattr(facts, name)[:-limit]


def own_handoff(session: Session) -> str:
    return safe_name(session.id) + ".md"


def is_own_handoff(session: Session, path: str) -> bool:
    """By its name alone: a command may have changed the folder first."""
    return re.split(r"[/\\]", path)[-1] == own_handoff(session)


def fold_command(facts: Facts, command: str, at: str) -> None:
    """A shell command. It may read Markdown files and move the tree."""
    words = one_line(hide_secrets(command), 300)
    facts.commands = [row for row in facts.commands if row[1] != words]
    facts.commands.append([at, words])
    facts.tree_moves += may_move_tree(command)
    if ".md" in command:
        facts.read += re.findall(r"[^\s'\"=:]+\.md\b", command)


def may_move_tree(command: str) -> bool:
    """Whether a shell command may switch the branch."""
    words = re.split(r"\W+", command)
    if is_looking(command) and "branch" not in words:
        return False
    return any(word in words for word in TREE_MOVERS)


def is_looking(command: str) -> bool:
    """Whether every part of a shell command only looks."""
    command = re.sub(HARMLESS, "", command)
    if re.search(WRITING, command):
        return False
    return all(begins_with(part, LOOKING) for part in shell_parts(command))


def shell_parts(command: str) -> list:
    """The simple commands of a shell command, without what is quoted."""
    command = re.sub(QUOTED, "''", without_heredocs(command))
    parts = [part.strip(" \t()") for part in re.split(r"[;&|\n]+", command)]
    return [part for part in parts if part and not part.startswith(("cd ", "#"))]


def without_heredocs(command: str) -> str:
    """A shell command without the texts of its heredocs."""
    kept: list[str] = []
    ends: list[str] = []
    for line in command.split("\n"):
        if not ends:
            kept.append(line)
            ends = re.findall(HEREDOC, line)
        elif line.strip() == ends[0]:
            del ends[0]
    return "\n".join(kept)


def program_words(part: str) -> list:
    """A simple command from its program on, without `X=1 timeout 60 python3 -m`."""
    words = part.split()
    for index, word in enumerate(words):
        is_runner = word in RUNNERS or re.fullmatch(INTERPRETERS, word)
        is_limit = word.rstrip("smh").isdecimal()
        is_option = "=" in word or word.startswith("-")
        if not (is_runner or is_limit or is_option):
            return words[index:]
    return []


def begins_with(command: str, known: list) -> bool:
    """Whether the first word, or the first two or three, are a known command."""
    words = program_words(command) or command.split()
    return any(" ".join(words[:count]) in known for count in (1, 2, 3))


def verdict_of(command: str) -> str:
    """What exit code 0 says of a command that tests, builds or lints something; "" for
    other commands. In a pipe or a list it may be the exit code of something else."""
    if not any(map(is_check, shell_parts(command))):
        return ""
    is_alone = not re.search(r"[|;\n]|&\s*\Z", re.sub(QUOTED, "", command))
    return "passed" if is_alone else "ran"


def is_check(part: str) -> bool:
    words = [word for word in program_words(part) if word != "run"]
    program, step = [*words, "", ""][:2]
    name = program.rpartition("/")[2]
    if name in BUILD_TOOLS:
        return step.startswith(BUILD_STEPS)
    if name.endswith((".sh", ".py")):
        return any(known in program for known in CHECK_WORDS)
    return name in CHECKERS or program.endswith(CHECK_SCRIPTS)


def describe_call(tool: str, kind: str, tool_input: dict) -> str:
    """What a call does, to find repeated ones; "" for waiting and notes, which may
    repeat. Comments, descriptions and ways to look at the output do not count."""
    if kind in ("poll", "note"):
        return ""
    if tool_kind(tool) == "run":
        text = re.sub(r"(^|\s)#.*", "", command_of(tool_input).strip())
        text = re.sub(OUTPUT_FILTERS, "", " ".join(text.split()))
    else:
        given = dict(tool_input, description="")
        text = tool + " " + json.dumps(given, sort_keys=True)
    text = " ".join(text.split())
    return "%s %d" % (hide_secrets(text[:KEY_ROOM])[:200], len(text))


def fold_todos(facts: Facts, tool_input: dict) -> None:
    """The todo list as the client's tool leaves it: a whole list, or one task."""
    rows = dig(tool_input, "todos plan")
    number = text_of(tool_input.get("taskId"))
    status = text_of(tool_input.get("status"))
    if isinstance(rows, list):
        facts.todos = [todo_of(row) for row in blocks_of(rows)]
    elif tool_input.get("subject") and not number:
        facts.todos.append(todo_of(tool_input))
    for place, todo in enumerate(facts.todos, 1):
        if number == str(place) and status:
            todo[0] = status
    del facts.todos[TODOS_KEPT:]


def todo_of(row: dict) -> list:
    """[status, text]"""
    text = text_of(dig(row, "subject content step description"))
    return [text_of(row.get("status")) or "pending", one_line(hide_secrets(text), 200)]


# --- the files that a shell command writes

SHELL_TOKEN = r"""(?xs)
    (?<!\S)\#[^\n]* | \d?>&\d  # a comment, 2>&1: no file
    | (?P<redirect> \d?&?>[>|]? | \d?<[<&-]* )
    | (?P<end> [;&|()\n] )
    | (?P<word> (?: [^\s;&|<>()'"\\] | '[^']*'? | "(?:[^"\\]|\\.)*"? | \\.? )+ )
"""
SHELL_QUOTES = r"""(?s)'([^']*)'?|"((?:[^"\\]|\\.)*)"?|\\(.)"""
SED_IN_PLACE = r" -[a-zA-Z]*i| --in-place"
NO_NAME = r"[$`*?{\n]|^/dev/|^$"  # what only the shell knows, and what is no file


def written_files(command: str) -> list[str]:
    """The files that a shell command writes if it succeeds, as far as it names them."""
    files: list[str] = []
    words: list[str] = []  # of the simple command that we are in
    redirect = ""
    for token in re.finditer(SHELL_TOKEN, without_heredocs(command) + "\n"):
        text = re.sub(SHELL_QUOTES, r"\1\2\3", token.group())
        if token.lastgroup == "end":
            files += written_by(words)
            words = []
        elif token.lastgroup == "word" and redirect:
            files += [text] if ">" in redirect else []
        elif token.lastgroup == "word":
            words.append(text)
        redirect = text if token.lastgroup == "redirect" else ""
    return [name for name in files if not re.search(NO_NAME, name)]


def written_by(words: list[str]) -> list[str]:
    """The files that a simple command writes because its arguments say so."""
    names = [word for word in words if word and not word.startswith("-")]
    if names[:1] == ["git"]:
        del names[0]  # git mv
    program = "".join(names[:1])
    if program == "tee":
        return names[1:]
    if program in ("cp", "mv"):
        return names[2:][-1:]
    if program == "sed" and re.search(SED_IN_PLACE, " ".join(words)):
        return names[1 + max(1, words.count("-e")) :]  # behind its scripts
    return []


# --- results


def fold_result(
    session: Session, at: str, call_id: str, has_failed: bool, text: str
) -> None:
    """What came of a call."""
    facts = session.facts
    waiting = {call["id"]: call for call in facts.calls if not call["outcome"]}
    call = waiting.get(call_id)
    if not call:
        return
    call["outcome"] = "failed" if has_failed else "ok"
    note_key(facts, call, text)
    if has_failed:
        return fold_failure(session, call, text, at)
    for path in call.get("writes", []):
        fold_edit(session, path, call["at"])
    command = call["command"]
    if command == facts.failed.get("command"):
        facts.failed = {}
    elif command and facts.failed:
        facts.tried.append(command)
    if call.get("check"):
        note_check(facts, command, call["check"], at, text)


def fold_edit(session: Session, path: str, at: str) -> None:
    """A call has written this file; `at` is when it was called."""
    facts = session.facts
    if is_own_handoff(session, path):
        facts.handoff_at = max(facts.handoff_at, at)
        facts.printed = ""  # the file is newer
        return
    facts.edited = [row for row in facts.edited if row[0] != path]
    facts.edited.append([path, at])


def fold_failure(session: Session, call: dict, text: str, at: str) -> None:
    """A call failed: a command is kept, and whether the person refused the handoff."""
    facts = session.facts
    if call["command"]:
        error = hide_secrets(text.strip()[-KEY_ROOM:])[-1500:]  # hide before truncating
        facts.failed = {"command": call["command"], "error": error, "at": at}
        facts.tried = []
    is_handoff = any(is_own_handoff(session, path) for path in call.get("writes", []))
    if is_handoff and re.search(REFUSED, text):
        facts.handoff_refused_at = at


def note_check(facts: Facts, command: str, verdict: str, at: str, output: str) -> None:
    """A check exited 0; if it had failed before, that is over."""
    if facts.failed.get("command") == command:
        facts.failed = {}
    end = one_line(hide_secrets(output.strip().rpartition("\n")[2]), 120)
    facts.passed = {"command": command, "verdict": verdict, "at": at, "end": end}


def note_key(facts: Facts, call: dict, text: str) -> None:
    """The call's key: in which state of things it ran, what it did, what came of it.

    Each success that is new changes the state of things: the same test after another
    edit is no repetition. The same edit twice is one in any state.
    """
    has_failed = call["outcome"] == "failed"
    is_edit = call["kind"] == "edit"
    is_waiting = begins_with(call["command"], WAITING) and not has_failed
    if not call["does"] or is_waiting:
        return
    did = "| %s | %s" % (call["does"], what_came(call, text))
    if has_failed and is_edit:  # each another guess at the same place
        did = "| %s | %s failed" % (call["tool"], text.partition("\n")[0][:160])
    elif has_failed:
        did = re.sub(r"\d+", "#", did)  # other ports, longer waits
    is_new = not any(other["key"].endswith(did) for other in facts.calls)
    state = "edit" if is_edit else str(facts.changes)
    call["key"] = state + did
    is_look = call["kind"] in ("read", "look")
    facts.changes += is_new and not is_look and not has_failed


def what_came(call: dict, text: str) -> str:
    """The ends of a result, and the outcome. Numbers in a command's output, such as
    times and process ids, differ each time."""
    start, end = hide_secrets(text[:KEY_ROOM]), hide_secrets(text[-KEY_ROOM:])
    ends = start[:200] + "…" + end[-200:]
    if call["command"]:
        ends = re.sub(r"\d+", "#", ends)
    return "%s%s %s" % (ends[:80], ends[-80:], call["outcome"])


# --- views: fullness

DEFAULT_WINDOW = 200_000
SMALL_MODELS = ("claude-3", "opus-4", "sonnet-4", "haiku-4")
LATER_MODELS = ("-4-7", "-4-8", "-4-9", "[1m]")  # their window is the large one

CHARS_PER_TOKEN = 4


class Fullness(Record):
    """How full the context is. Percent is of `usable`: where the client compacts."""

    tokens: int = 0
    window: int = DEFAULT_WINDOW
    window_from: str = ""
    usable: int = DEFAULT_WINDOW
    percent: int = 0
    is_exact: bool = False
    is_known: bool = False

    def percent_of(self, tokens: int) -> int:
        return min(100, tokens * 100 // self.usable)

    def shown(self) -> str:
        return "%s%d%%" % ("" if self.is_exact else "~", self.percent)


def fullness(run: Run) -> Fullness:
    """The fullness of the run's session, by its facts."""
    session, found = run.session, Fullness()
    facts = session.facts
    has_begun = facts.answered_at or facts.compacted_at
    found.is_exact = facts.tokens > 0
    found.tokens = facts.tokens or facts.chars // CHARS_PER_TOKEN
    found.is_known = bool(has_begun and found.tokens)
    found.window_from, found.window = find_window(session, run.settings)
    found.usable = DIALECTS[session.agent].usable_tokens(found.window, run.env)
    found.percent = found.percent_of(found.tokens)
    return found


def find_window(session: Session, settings: Settings) -> tuple:
    """(where it comes from, tokens): the first source that tells the window."""
    facts = session.facts
    sources = {
        "settings": settings["monitor.context_window"],
        "transcript": facts.window,
        "status line": session.window_told,
        "client": DIALECTS[session.agent].window,
        "model": window_of_model(session),
        "default": DEFAULT_WINDOW,
    }
    source, window = next(pair for pair in sources.items() if pair[1] >= 1000)
    measured = [row[1] for row in facts.measured]  # an estimate proves nothing
    if source != "settings" and max(measured, default=0) > window:
        return "measured", max(LARGE_WINDOW, window)
    return source, window


def window_of_model(session: Session) -> int:
    """As Claude Code decides it by the model's name; 0 for other models."""
    name = session.facts.model or session.model
    if "[1m]" in session.model:
        name = session.model
    is_claude = session.agent == "claude" or "claude" in name
    if not name or not is_claude:
        return 0
    name = name.lower().replace(".", "-")
    is_small = any(known in name for known in SMALL_MODELS)
    is_later = any(known in name for known in LATER_MODELS)
    return DEFAULT_WINDOW if is_small and not is_later else LARGE_WINDOW


def growth_of_a_call(facts: Facts) -> int:
    """The largest growth of the last eight answers, in tokens."""
    counts = [row[1] for row in facts.measured[-9:]]
    growths = [after - before for before, after in zip(counts, counts[1:])]
    return max(growths, default=0)


# =============================================================================
# Clients
# =============================================================================
# The one place that knows the clients' JSON: event names and fields, reply
# shapes, tool names, transcript rows. Each client is one class at the end. The
# rest of the file speaks in Event, Row and Reply.

EVENTS = {  # event, by Claude Code's name -> mode
    "SessionStart": "inject",
    "UserPromptSubmit": "inject",
    "PreToolUse": "gate",
    "PostToolUse": "monitor",
    "PostToolUseFailure": "monitor",
    "PreCompact": "monitor",
    "Stop": "stop-enforce",
    "SessionEnd": "cleanup",
}
NEVER_HEARD = ("PreCompact", "SessionEnd")
REPLY_LIMIT = 9_900  # the client cuts at 10,000 UTF-16 units
LARGE_WINDOW = 1_000_000  # tokens; 200,000 is the usual one


class Event(Record):
    """What the client told us, with Claude Code's names for fields and events."""

    agent: str = "claude"  # a key of DIALECTS
    name: str = ""  # a key of EVENTS
    is_subagent: bool = False
    is_typed: bool = False  # a prompt that a person typed
    is_known: bool = True  # we know which client this is
    hook_event_name: str = ""  # the client's own name of the event
    session_id: str = ""
    transcript_path: str = ""
    cwd: str = ""
    timestamp: str = ""  # ISO, as the client writes it
    prompt: str = ""
    source: str = ""
    reason: str = ""
    tool_input: dict = {}
    last_assistant_message: str = ""
    permission_mode: str = ""
    background_tasks: list = []
    session_crons: list = []
    model: str = ""


class Row(Record):
    """One line of a transcript, in our words. Its kind is

        prompt    the person's words
        answer    the agent's words, maybe with calls; or the end of an answer
        call      calls alone
        result    results of calls
        heard     what hooks or the client said to the agent
        numbers   tokens or the window
        boundary  a compaction
    """

    kind: str = ""  # "" if it says nothing to us
    id: str = ""  # of the answer that it belongs to
    at: str = ""  # ISO time, compared as text
    text: str = ""
    words: str = ""  # the person's own, where the row has more in its text: @file
    calls: list = []  # [(id, tool, input)]
    results: list = []  # [(call id, has failed, text)]
    tokens: int = 0
    window: int = 0
    model: str = ""


class Dialect:
    """How a client speaks. A subclass says only what is different."""

    label: str = ""
    settings: str = ""  # the project's settings file with its hooks
    user_settings: str = ""  # the same in the home, where it has another name
    project_variable: str = ""  # names the folder that the client was started in
    shell_variables: tuple = ()  # one stands in the environment of the agent's shell
    renamed: dict = {}  # our event name -> theirs
    registered: tuple = tuple(EVENTS)
    time_unit: int = 1  # of a timeout in the settings, per second
    end_limit_s: int = 5
    fields: dict = {}  # their field of an event -> ours
    unheard: tuple = NEVER_HEARD  # events whose text does not reach the model
    has_receipts: bool = True  # its transcript holds what hooks said
    is_flat: bool = False  # the text stands at the top level of a reply
    reply_unit: tuple = ("utf-16-le", 2)  # of a reply's limit: encoding, bytes
    runs_claudes: tuple = ()  # scopes in which it runs Claude Code's settings, too
    instruction_file: str = "AGENTS.md"
    compacts_at: int = 100  # percent of the window
    window: int = 0  # where every model has the same
    is_late: bool = False  # its transcript is written a moment after the event
    # Its transcript. A place is a path of keys, such as `message.id`; see dig().
    passed_over: str = "isSidechain"  # marks rows that are not of the main agent
    row_type: str = "type"
    kinds: dict = {}  # type of a row -> our kind; rows of other types say nothing
    places: dict = {}  # field of Row -> its place in theirs
    call: tuple = ("", "", "", "")  # places of the blocks; in a block: id, tool, input
    result: tuple = ("", "", "", "")  # the same; in a block: id, sign of failure, text
    failure: str = ""  # a pattern, where only the result's text tells a failure
    result_head: str = ""  # a pattern of what the client puts before a result's text

    def __init__(self) -> None:
        self.user_settings = self.user_settings or self.settings

    def find_transcript(self, event: Event, env: dict) -> str:
        """Where the transcript is; some clients do not say."""
        return event.transcript_path

    def adjust(self, event: Event, data: dict) -> Event | None:
        """The event, where a client means something else by it; None to ignore it."""
        return event

    def holds_by_text(self, event: Event, env: dict) -> bool:
        """Whether the agent goes on for a text at a Stop; else we block the stop."""
        return False

    def read_row(self, row: dict) -> Row:
        """One row of its transcript, in our words."""
        kind = self.kinds.get(text_of(dig(row, self.row_type)), "")
        found = Row({field: dig(row, place) for field, place in self.places.items()})
        if not kind or dig(row, self.passed_over):
            return Row({"at": found.at})
        found.kind = kind
        found.text = joined_texts(dig(row, self.places["text"]))
        found.words = joined_texts(dig(row, self.places.get("words", "")))
        found.tokens = count_of(found.tokens)
        found.window = count_of(found.window)
        if kind in ("answer", "call"):
            found.calls = self.read_calls(row)
        elif kind in ("prompt", "result"):
            found.results = self.read_results(dig(row, self.result[0]))
            found.kind = "result" if found.results else kind
        return found

    def read_calls(self, row: dict) -> list:
        blocks, *places = self.call
        calls = []
        for block in blocks_of(dig(row, blocks)):
            call = call_of(*[dig(block, place) for place in places])
            if call[1]:  # other blocks have no tool
                calls.append(call)
        return calls

    def read_results(self, content: object) -> list:
        _, id_place, failure, text_place = self.result
        results = []
        for block in blocks_of(content):
            call_id = dig(block, id_place)
            has_failed = bool(dig(block, failure)) or block.get("status") == "failed"
            text = joined_texts(dig(block, text_place))
            if self.failure and re.search(self.failure, text):
                has_failed = True
            if self.result_head:
                text = re.sub(self.result_head, "", text)
            if call_id:
                results.append((text_of(call_id), has_failed, text))
        return results

    def read_beside(self, transcript: str) -> Row:
        """Numbers that a file beside the transcript tells."""
        return Row()

    def usable_tokens(self, window: int, env: dict) -> int:
        """Up to where the client compacts by itself; the window if it does not."""
        return window * self.compacts_at // 100


# --- events


def parse_event(data: object, mode: str, word: str, env: dict) -> Event | None:
    """The event in our words; None if it is none that this mode is for."""
    if not isinstance(data, dict):
        return None
    agent = detect_agent(word, data)
    dialect = DIALECTS[agent]
    named = {ours: data.get(theirs) for theirs, ours in dialect.fields.items()}
    event = Event({**named, **data})  # in both spellings: ours counts
    names = {dialect.renamed.get(name, name): name for name in EVENTS}
    event.name = names.get(event.hook_event_name, "")
    if EVENTS.get(event.name) != mode:
        return None
    event.agent = agent
    event.is_known = is_known_client(word, agent, env)
    event.is_subagent = bool(data.get("agent_id") or data.get("subagentType"))
    if event.source == "new":
        event.source = "startup"
    event.prompt = persons_words(event.prompt)
    event.is_typed = event.name == "UserPromptSubmit" and is_typed(event.prompt)
    event.transcript_path = dialect.find_transcript(event, env)
    return dialect.adjust(event, data)


def detect_agent(word: str, data: dict) -> str:
    """The agent's word in the command; but Copilot and Grok run Claude's line too."""
    if word in DIALECTS:
        return word
    if "workspaceRoot" in data:
        return "grok"
    path = data.get("transcript_path", "/session-state/")
    has_copilots_shape = "timestamp" in data and "permission_mode" not in data
    if has_copilots_shape and "/session-state/" in str(path):
        return "copilot"
    return "claude"


def is_known_client(word: str, agent: str, env: dict) -> bool:
    """Cursor and others run Claude's line too; only Claude Code sets these."""
    if word or agent != "claude":
        return True
    return bool(env.get("CLAUDECODE") or env.get("AI_AGENT"))


def start_folder(event: Event, env: dict) -> str:
    """The folder that the client was started in, else where it is now."""
    variable = DIALECTS[event.agent].project_variable
    return env.get(variable, "") or event.cwd


def project_settings(agent: str) -> list:
    """The project's files in which a client finds hooks."""
    dialect = DIALECTS[agent]
    files = [dialect.settings]
    if agent == "claude" or "project" in dialect.runs_claudes:
        files += [".claude/settings.json", ".claude/settings.local.json"]
    return files


def agent_variables() -> list:
    """One of these stands in the environment of an agent's shell."""
    names: list = []
    for dialect in DIALECTS.values():
        names += dialect.shell_variables
    return names


def can_speak(event: Event) -> bool:
    return event.name not in DIALECTS[event.agent].unheard


# --- replies


class Reply:
    """What a run has to say. Parts are added in their order; `when_said` is done once
    they are printed, so that nothing is booked that was not said."""

    def __init__(self, event: Event) -> None:
        self.dialect = DIALECTS[event.agent]
        self.texts: list = []  # to the agent
        self.notes: list = []  # lines to the person
        self.plain = ""  # at PreCompact: the instructions of the summary
        self.is_hold = False  # a stop that is held
        self.bell = ""  # terminal sequence
        self.said_actions: list = []

    def room(self) -> int:
        """How many characters still fit."""
        used = sum(self.length(text) + 2 for text in self.texts)
        return max(0, REPLY_LIMIT - used)

    def length(self, text: str) -> int:
        """The text's length as the client counts it."""
        encoding, unit_bytes = self.dialect.reply_unit
        return len(text.encode(encoding, "replace")) // unit_bytes

    def add(self, text: str) -> bool:
        """Add a text if it fits; False if it has to wait."""
        if self.length(text) > self.room():
            return False
        self.texts.append(clean_text(text))  # names of files may hold markup, too
        return True

    def tell(self, note: str) -> None:
        """A line to the person."""
        self.notes.append(for_terminal(note))

    def when_said(self, action: object, *args: object) -> None:
        """Do this once the reply is printed."""
        self.said_actions.append((action, args))


def render_reply(event: Event, reply: Reply, env: dict) -> str:
    """What goes to stdout; "" if there is nothing to say."""
    if reply.plain:
        return reply.plain
    dialect = reply.dialect
    text = "\n\n".join(reply.texts)
    answer: dict = {}
    if reply.notes and not dialect.is_flat:
        answer["systemMessage"] = "\n".join(reply.notes)
    if reply.bell and event.agent == "claude":
        answer["terminalSequence"] = reply.bell
    if reply.is_hold and not dialect.holds_by_text(event, env):
        answer["decision"] = "block"
        answer["reason"] = text
    elif text and dialect.is_flat:
        answer["additionalContext"] = text
    elif text:
        answer["hookSpecificOutput"] = {
            "hookEventName": event.hook_event_name,
            "additionalContext": text,
        }
    return json.dumps(answer) if answer else ""


# --- tools: what a call does, by the tool's name in any client

TOOL_KINDS = {
    "read": "read notebookread read_file view read_many_files",
    "look": "grep glob ls grep_search search_file_content list_directory list_dir rg "
    "websearch web_search webfetch web_fetch google_web_search toolsearch tool_search "
    "grep_files",
    "edit": "write edit multiedit notebookedit write_file replace apply_patch create "
    "applypatch str_replace create_file replace_string_in_file insert_edit_into_file "
    "search_replace",
    "run": "bash powershell run_shell_command execute shell exec_command exec "
    "run_in_terminal run_terminal_command local_shell",
    "poll": "bashoutput taskoutput killshell taskstop monitor schedulewakeup sleep "
    "listagents read_bash stop_bash write_stdin askuserquestion ask_user exitplanmode "
    "enterplanmode croncreate crondelete cronlist ask_user_question exit_plan_mode "
    "enter_plan_mode get_command_or_subagent_output kill_command_or_subagent",
    "note": "todowrite taskcreate taskupdate tasklist taskget write_todos todo_write "
    "update_plan todoread",
    "agent": "agent task sendmessage spawn_agent spawn_subagent",
}
PATCHED_FILE = r"(?m)^\*\*\* (?:Update|Add|Delete) File: (.+)$"


def tool_kind(tool: str) -> str:
    """A key of TOOL_KINDS, or "other"."""
    name = tool.lower().rpartition("__")[2]  # mcp__browser__wait_for
    for kind, names in TOOL_KINDS.items():
        if name in names.split():
            return kind
    return "poll" if "wait" in name else "other"


def touched_paths(tool_input: dict) -> list:
    """The files that a call reads or edits, as it names them."""
    keys = "file_path path notebook_path absolute_path target_file"
    path = text_of(dig(tool_input, keys))
    patch = text_of(dig(tool_input, "command input patch"))
    if path:
        return [path]
    return re.findall(PATCHED_FILE, patch) if "*** " in patch else []


def command_of(tool_input: dict) -> str:
    """The shell command of a call; "" if it has none."""
    command = dig(tool_input, "command cmd")
    if isinstance(command, list):
        command = " ".join(map(str, command))
    return text_of(command)[:8000]


# --- transcripts: what all readers need

HOOK_TAGS = ("hook_context", "qwen:user-prompt-submit-context")
FILES_MARK = "\n--- Content from referenced files ---"  # Gemini and Qwen: of @file
MACHINE_PROMPT = (  # how prompts look that nobody typed
    r"(?s)<[a-z]+[-_][\w-]*[ >].*</[\w-]+>\Z"
    r"|<(?:task-notification|system-reminder|(?:local-)?command-\w+|skill)>"
    r"|Caveat: The messages below|\[Request interrupted|# AGENTS\.md instructions"
    r"|## Auto Mode|Stop hook (?:feedback|additional context)"
)


def dig(value: object, places: str) -> object:
    """What stands at a place, such as `message.id`. Of several places, divided by
    blanks, the first that holds something counts; None if none does."""
    for place in places.split():
        found = value
        for key in place.split("."):
            found = found.get(key) if isinstance(found, dict) else None
        if found:
            return found
    return None


def text_of(value: object) -> str:
    return value if isinstance(value, str) else ""


def count_of(value: object, most: int = 20_000_000) -> int:
    """A plausible number of tokens; 0 for anything else."""
    is_number = type(value) in (int, float)  # a bool is none
    return int(value) if is_number and 0 < value < most else 0


def sum_of(usage: object, keys: str) -> int:
    return sum(count_of(dig(usage, key)) for key in keys.split())


def claude_tokens(usage: object) -> int:
    keys = "input_tokens cache_creation_input_tokens cache_read_input_tokens"
    return sum_of(usage, keys)


def blocks_of(content: object) -> list:
    """The objects in a list; an object alone counts as a list of one."""
    blocks = content if isinstance(content, list) else [content]
    return [block for block in blocks if isinstance(block, dict)]


def joined_texts(content: object) -> str:
    """The text of a content: a string, or a list of strings and text blocks."""
    texts = []
    for block in content if isinstance(content, list) else [content]:
        if not dig(block, "thought"):  # thoughts are not said
            texts.append(text_of(block) or text_of(dig(block, "text content.text")))
    return "\n".join(filter(None, texts))


def persons_words(text: str) -> str:
    """A prompt without what hooks and clients put around it."""
    for tag in HOOK_TAGS:
        text = without_tagged(text, tag)
    return text.partition(FILES_MARK)[0].strip()


def without_tagged(text: str, tag: str) -> str:
    """A text without what is inside of a tag. An open end is the person's own."""
    kept, *parts = text.split("<%s>" % tag)
    for number, part in enumerate(parts, 1):
        _, closing, rest = part.partition("</%s>" % tag)
        if closing:
            kept += rest
        elif number == len(parts):
            kept += "<%s>%s" % (tag, part)
    return kept


def is_typed(prompt: str) -> bool:
    """Whether a person typed this prompt."""
    return bool(prompt) and not re.match(MACHINE_PROMPT, prompt)


def number_in(env: dict, name: str) -> int:
    value = env.get(name, "")
    return int(value) if value.isdecimal() else 0


def call_of(call_id: object, tool: object, given: object) -> tuple:
    """An entry of Row.calls. The input is an object, JSON of one, or a plain text."""
    if isinstance(given, str):
        given = parse_object(given) or {"command": given}
    return text_of(call_id), text_of(tool), given if isinstance(given, dict) else {}


# --- the clients, one class each: first what is special in its settings, events and
# replies, then its transcript, then methods for what no table can say

NOT_BEFORE_TOOLS = NEVER_HEARD + ("PreToolUse",)
COMMON = ("SessionStart", "UserPromptSubmit", "PostToolUse", "Stop", "SessionEnd")
WITH_COMPACTION = COMMON + ("PreCompact",)
WITH_FAILURES = WITH_COMPACTION + ("PostToolUseFailure",)
# Claude Code compacts by itself at 167,000 of 200,000 and at 977,000 of 1,000,000.
RESERVE_TOKENS, RESERVE_LARGE_TOKENS, OUTPUT_TOKENS = 33_000, 23_000, 20_000


class ClaudeCode(Dialect):
    label = "Claude Code"
    settings = ".claude/settings.json"
    project_variable = "CLAUDE_PROJECT_DIR"
    shell_variables = ("CLAUDECODE", "AI_AGENT")
    instruction_file = "CLAUDE.md"
    passed_over = "isSidechain isApiErrorMessage"
    row_type = "subtype attachment.type type"
    kinds = {
        "assistant": "answer",
        "user": "prompt",
        "queued_command": "prompt",  # typed while the agent worked
        "hook_additional_context": "heard",
        "compact_boundary": "boundary",
    }
    places = {
        "at": "timestamp",
        "id": "message.id",
        "model": "message.model",
        "tokens": "compactMetadata.postTokens",
        "text": "message.content attachment.content attachment.prompt",
    }
    call = ("message.content", "id", "name", "input")
    result = ("message.content", "tool_use_id", "is_error", "content")

    def read_row(self, row: dict) -> Row:
        found = super().read_row(row)
        if found.model == "<synthetic>":
            return Row()
        if found.kind == "answer":
            found.tokens = claude_tokens(dig(row, "message.usage"))
            asked = text_of(row.get("requestedModel"))
            found.model = asked if "[1m]" in asked else found.model
        elif dig(row, "isMeta isCompactSummary"):
            found.kind = "heard"
        return found

    def holds_by_text(self, event: Event, env: dict) -> bool:
        """From 2.1.163 on it goes on for additionalContext, without showing an error.
        An outer agent's AI_AGENT may be inherited, so the session must agree."""
        match = re.match(r"claude-code_(\d+)-(\d+)-(\d+)", env.get("AI_AGENT", ""))
        is_own = env.get("CLAUDE_CODE_SESSION_ID") == event.session_id
        if not match or not is_own:
            return False
        return tuple(map(int, match.groups())) >= (2, 1, 163)

    def usable_tokens(self, window: int, env: dict) -> int:
        if env.get("DISABLE_AUTO_COMPACT", "") not in ("", "0", "false"):
            return window
        told = number_in(env, "CLAUDE_CODE_AUTO_COMPACT_WINDOW")
        if told > 50_000:
            window = min(window, told)
        reserve = RESERVE_TOKENS if window < LARGE_WINDOW else RESERVE_LARGE_TOKENS
        usable = max(window - reserve, window // 2)  # half of a small one that was set
        percent = number_in(env, "CLAUDE_AUTOCOMPACT_PCT_OVERRIDE")
        if 1 <= percent <= 100:
            by_percent = (window - OUTPUT_TOKENS) * percent // 100
            usable = min(usable, max(by_percent, 1000))
        return usable


class Codex(Dialect):
    label = "Codex"
    settings = ".codex/hooks.json"
    shell_variables = ("CODEX_CI", "CODEX_THREAD_ID")
    registered = WITH_COMPACTION
    end_limit_s = 3
    reply_unit = ("utf-8", 1)
    compacts_at = 94
    row_type = "payload.role payload.type type"
    kinds = {
        "assistant": "answer",
        "token_usage_record": "answer",  # ends one, with or without words
        "user": "prompt",
        "developer": "heard",
        "function_call": "call",
        "custom_tool_call": "call",
        "item_completed": "call",
        "function_call_output": "result",
        "custom_tool_call_output": "result",
        "compacted": "boundary",
        "task_started": "numbers",
        "token_count": "numbers",
    }
    places = {
        "at": "timestamp",
        "id": "payload.response_id",
        "tokens": "payload.usage.input_tokens",
        "window": "payload.model_context_window payload.info.model_context_window",
        "text": "payload.content",
    }
    call = ("payload", "call_id", "name", "arguments input")
    result = ("payload", "call_id", "", "output")
    result_head = r"\AChunk ID: (?:.*\n){1,5}?Output:\n"
    failure = r"\AChunk ID: (?:.*\n){1,3}?Process exited with code [1-9]"

    def read_row(self, row: dict) -> Row:
        found = super().read_row(row)
        if dig(row, "payload.name") == "exec":  # what a script runs has its own rows
            found.calls = []
        item = dig(row, "payload.item")
        if text_of(dig(item, "id")).startswith("exec-"):
            self.read_item(found, item)
        last = dig(row, "payload.info.last_token_usage")
        if not dig(last, "input_tokens"):  # after a compaction
            found.tokens = found.tokens or count_of(dig(last, "total_tokens"))
        return found

    def read_item(self, found: Row, item: dict) -> None:
        """What a script did (code mode): a call and its result at once."""
        command, changes = item.get("command"), item.get("changes")
        if isinstance(command, list):
            command = command[2:]  # without bash -lc
        tool, given = "exec_command", {"command": command}
        if isinstance(changes, dict):
            tool = "apply_patch"
            given = "\n".join("*** Update File: " + path for path in changes)
        found.calls = [call_of(item["id"], tool, given)]
        has_failed = item.get("status") == "failed"
        text = text_of(item.get("aggregated_output"))
        found.results = [(item["id"], has_failed, text)]


class GeminiCli(Dialect):
    label = "Gemini CLI"
    settings = ".gemini/settings.json"
    project_variable = "GEMINI_PROJECT_DIR"
    shell_variables = ("GEMINI_CLI",)
    renamed = {
        "UserPromptSubmit": "BeforeAgent",
        "PreToolUse": "BeforeTool",
        "PostToolUse": "AfterTool",
        "Stop": "AfterAgent",
    }
    registered = COMMON  # its PreCompress comes before every request
    time_unit = 1000
    fields = {"prompt_response": "last_assistant_message"}
    unheard = NOT_BEFORE_TOOLS
    instruction_file = "GEMINI.md"
    window = 1_048_576
    kinds = {"gemini": "answer", "user": "prompt"}
    places = {
        "at": "timestamp $set.lastUpdated",
        "id": "id",
        "tokens": "tokens.input",
        "text": "content",
        "words": "displayContent",
    }
    call = ("toolCalls", "id", "name", "args")
    result = (
        "content",
        "functionResponse.id",
        "functionResponse.response.error",
        "functionResponse.response.error functionResponse.response.output",
    )
    failure = r"\nExit Code: [1-9]\d*\n(?:Signal|Process Group)"

    def adjust(self, event: Event, data: dict) -> Event | None:
        """Its Stop has the text of the whole turn, with what earlier holds brought. The
        last line is enough to tell whether the transcript has caught up."""
        said = event.last_assistant_message.strip()
        event.last_assistant_message = said.rpartition("\n")[2]
        return event

    def read_row(self, row: dict) -> Row:
        """An answer is written again when its calls are done, with their results."""
        found = super().read_row(row)
        for call in blocks_of(row.get("toolCalls")):
            found.results += self.read_results(call.get("result"))
        if "<state_snapshot>" in json.dumps(row.get("$set")):
            found.kind = "boundary"
        return found


class QwenCode(Dialect):
    label = "Qwen Code"
    settings = ".qwen/settings.json"
    project_variable = "QWEN_PROJECT_DIR"
    shell_variables = ("QWEN_CODE",)
    registered = WITH_FAILURES
    fields = {"crons": "session_crons"}
    unheard = NOT_BEFORE_TOOLS
    has_receipts = False  # the start's text goes into the system message
    compacts_at = 85
    row_type = "subtype type"
    kinds = {
        "assistant": "answer",
        "user": "prompt",
        "tool_result": "result",
        "chat_compression": "boundary",
    }
    places = {
        "at": "timestamp",
        "id": "uuid",
        "tokens": "usageMetadata.promptTokenCount systemPayload.info.newTokenCount",
        "window": "contextWindowSize",
        "text": "message.parts",
        "words": "systemPayload.displayText",
    }
    call = (
        "message.parts",
        "functionCall.id",
        "functionCall.name",
        "functionCall.args",
    )
    result = ("message.parts", *GeminiCli.result[1:])
    failure = GeminiCli.failure

    def adjust(self, event: Event, data: dict) -> Event | None:
        """Its prompt event comes before every request; a person's has this field."""
        is_prompt = event.name == "UserPromptSubmit"
        return None if is_prompt and "submitted_prompt" not in data else event


class CopilotCli(Dialect):
    label = "Copilot CLI"
    settings = ".github/hooks/ctx_hooks.json"
    user_settings = ".copilot/hooks/ctx_hooks.json"
    project_variable = "COPILOT_PROJECT_DIR"
    shell_variables = ("COPILOT_CLI",)
    registered = WITH_FAILURES
    is_flat = True
    runs_claudes = ("project",)
    compacts_at = 80
    is_late = True
    passed_over = "agentId"
    kinds = {
        "assistant.message": "answer",
        "user.message": "prompt",
        "tool.execution_complete": "result",
        "hook.end": "heard",
        "session.usage_record": "numbers",
        "session.compaction_complete": "boundary",
    }
    places = {
        "at": "timestamp",
        "id": "data.messageId",
        "tokens": "data.usage.inputTokens data.postCompactionTokens",
        "window": "data.usage.maxPromptTokens",
        "text": "data.content data.output.additionalContext",
    }
    call = ("data.toolRequests", "toolCallId", "name", "arguments")
    result = (
        "data",
        "toolCallId",
        "error shellExecution.exitCode",
        "result.content error.message",
    )

    def find_transcript(self, event: Event, env: dict) -> str:
        """Only its Stop names the transcript; it lies where the session's id says."""
        is_plain = safe_name(event.session_id) == event.session_id
        if event.transcript_path or not is_plain:
            return event.transcript_path
        home = env.get("COPILOT_HOME") or os.path.join(home_folder(env), ".copilot")
        return os.path.join(home, "session-state", event.session_id, "events.jsonl")

    def read_row(self, row: dict) -> Row:
        found = super().read_row(row)
        has_failed = found.kind == "boundary" and not dig(row, "data.success")
        return Row() if has_failed else found


class Droid(Dialect):
    label = "droid"
    settings = ".factory/settings.json"
    project_variable = "DROID_PROJECT_DIR"
    registered = WITH_COMPACTION
    unheard = NOT_BEFORE_TOOLS
    row_type = "message.role type"
    kinds = {"assistant": "answer", "user": "prompt", "compaction_state": "boundary"}
    places = {
        "at": "timestamp",
        "id": "id",
        "model": "message.modelId",
        "tokens": "summaryTokens",
        "text": "message.content",
    }
    call = ClaudeCode.call
    result = ClaudeCode.result
    failure = r"\[Process exited with code [1-9]\d*\]\s*\Z"

    def read_row(self, row: dict) -> Row:
        found = super().read_row(row)
        printed = blocks_of(dig(row, "message.hookResults"))
        if printed:
            found.text = joined_texts([one.get("stdout") for one in printed])
        if printed or dig(row, "message.visibility") == "llm_only":
            found.kind = "heard"
        return found

    def read_beside(self, transcript: str) -> Row:
        """Its numbers are in <session>.settings.json."""
        stem, _ = os.path.splitext(transcript)
        settings = read_object(stem + ".settings.json")
        keys = "inputTokens cacheReadTokens cacheCreationTokens"
        tokens = sum_of(settings.get("lastCallTokenUsage"), keys)
        return Row({"tokens": tokens, "model": settings.get("model")})


class GrokBuild(Dialect):
    label = "Grok Build"
    settings = ".grok/hooks/ctx_hooks.json"
    project_variable = "GROK_WORKSPACE_ROOT"
    shell_variables = ("GROK_SESSION_ID",)
    registered = WITH_FAILURES
    fields = {  # it has the others in both spellings
        "lastAssistantMessage": "last_assistant_message",
        "backgroundTasks": "background_tasks",
        "sessionCrons": "session_crons",
    }
    unheard = NEVER_HEARD + ("SessionStart", "UserPromptSubmit")
    has_receipts = False
    runs_claudes = ("project", "user")
    compacts_at = 85
    row_type = "params.update.sessionUpdate"
    kinds = {
        "agent_message_chunk": "answer",
        "tool_call": "answer",
        "user_message_chunk": "prompt",
        "tool_call_update": "result",
        "auto_compact_completed": "boundary",
    }
    places = {
        "tokens": "params._meta.totalTokens params.update.tokens_after",
        "text": "params.update.content",
    }
    call = ("params.update", "toolCallId", "title", "rawInput")
    result = ("params.update", "toolCallId", "rawOutput.exit_code", "content")

    def adjust(self, event: Event, data: dict) -> Event | None:
        """At its end comes another Stop, which can hold nothing."""
        is_end = event.reason in ("shutdown", "channel_closed")
        return None if event.name == "Stop" and is_end else event

    def read_row(self, row: dict) -> Row:
        found = super().read_row(row)
        meta = dig(row, "params._meta")
        sent_ms = count_of(dig(meta, "agentTimestampMs"), most=10**13)
        found.at = format_iso(sent_ms / 1000) if sent_ms else ""
        found.id = str(dig(meta, "streamStartMs") or "")  # one for each answer
        if not dig(row, "params.update.status"):  # the call still runs
            found.results = []
        return found

    def read_beside(self, transcript: str) -> Row:
        """The window is in signals.json, from the end of the first turn on."""
        signals = read_object(os.path.join(os.path.dirname(transcript), "signals.json"))
        return Row({"window": count_of(signals.get("contextWindowTokens"))})


DIALECTS = {  # by the word in the registered command
    "claude": ClaudeCode(),
    "codex": Codex(),
    "gemini": GeminiCli(),
    "qwen": QwenCode(),
    "copilot": CopilotCli(),
    "droid": Droid(),
    "grok": GrokBuild(),
}

# =============================================================================
# Session
# =============================================================================
# What is kept of a session: session-<id>.json in the project's state folder. It is
# loaded once and saved once in a run. `facts` is what the transcript says; all
# else is what we did about it.

SESSION_VERSION = 3
SESSION_FILE = r"session-[^/\\]*\.json$"


class Facts(Record):
    """What the transcript says, folded row by row (section Look)."""

    tokens: int = 0  # of the last answer since the last compaction
    chars: int = 0  # text since then, for transcripts that hold no usage
    measured: list = []  # [ISO time, tokens, answer]; older ones are thinned out
    window: int = 0  # as the transcript tells it
    model: str = ""
    answer: str = ""  # id of the last answer
    answered_at: str = ""  # its time
    compactions: int = 0
    compacted_at: str = ""
    tool_calls: int = 0
    breakdown: dict = {}  # tool -> calls
    calls: list = []  # the last 8, as `fold_call` makes them
    changes: int = 0  # how often something new changed; tells repeats from progress
    work: int = 0  # 2 for an edit, 1 for a call that does more than look
    worked_at: str = ""  # time of the last such call
    edited: list = []  # [path, ISO time], newest last
    read: list = []  # paths of files read, newest last
    requests: list = []  # [ISO time, the person's words]
    said: str = ""  # the agent's words since the last prompt
    said_at: str = ""
    printed: str = ""  # the last handoff that the agent printed
    printed_at: str = ""
    todos: list = []  # [status, text]
    commands: list = []  # [ISO time, command], the last ones
    failed: dict = {}  # the last failing command: command, error, at
    tried: list = []  # commands since that failure
    passed: dict = {}  # the last check that exited 0: command, at, verdict, end
    received: str = ""  # the head of our startup text, once the transcript has it
    acknowledged_at: str = ""  # when the agent said so itself
    tree_moves: int = 0  # commands and subagents that may have switched the branch
    handoff_at: str = ""  # when the agent last wrote its handoff
    handoff_refused_at: str = ""  # when the person last refused that


class Delivery(Record):
    """The startup text on its way to the agent (section Startup)."""

    state: str = ""  # "", owed, sent, done, failed
    source: str = ""  # the start's source: startup, clear, compact, …
    handoff: str = ""  # the file's name in .context/handoffs
    head: str = ""  # its first line, by which a receipt is known
    text: str = ""  # kept until there is evidence, to send it again
    attempts: int = 0
    first_at: float = 0.0
    sent_at: float = 0.0
    answer: str = ""  # the agent's last answer when it was sent
    escalated: bool = False


class Session(Record):
    """A session's state."""

    version: int = SESSION_VERSION
    id: str = ""
    agent: str = ""
    transcript: str = ""
    offset: int = 0  # how far the transcript has been read
    session_start: str = ""
    seen_at: float = 0.0  # the last event
    stopped_at: float = 0.0  # the last Stop, 0.0 while the agent works
    ended_at: float = 0.0
    end_reason: str = ""
    client_pid: str = ""
    model: str = ""  # as the start names it, with [1m]
    window_told: int = 0  # as the status line tells it
    branch: str = ""  # at the last look
    commit: str = ""
    moves_seen: int = 0  # tree_moves at the last look
    began_with: str = ""  # the handoff this session got
    compaction_seen: str = ""  # ISO time at which we noticed the last one
    threshold_crossed_at: str = ""
    handoff_complete: bool = False  # the agent wrote one since the last compaction
    handoff_before: str = ""  # mark of what stood there at the start or compaction
    kit_mark: str = ""  # of the handoff that the kit made, or of what it added
    printed_mark: str = ""  # of the printed one that was saved last
    handoff_offset: int = -1  # `offset` when the kit last made one
    old_prompt_before: str = ""  # mark of .claude/ll-continue-prompt.md then
    reminded_answer: str = ""  # the answer whose calls carried the last reminder
    heard: dict = {}  # signals: name, or an own one's path -> mark of its content
    alerted: dict = {}  # code of an alert -> when it was said
    briefed: bool = False  # about the workflow, since the start or the last compaction
    holds: int = 0  # stops in a row without a tool call
    held_calls: int = 0  # tool calls at the last hold
    delivery: Delivery = Delivery()
    facts: Facts = Facts()
    # not on disk:
    reading_mark = ""  # the file that names a row while it is read


def session_path(project: Project, session_id: str) -> str:
    return project.state("session-%s.json" % safe_name(session_id))


def load_session(project: Project, session_id: str) -> Session:
    """The session's state; a new one if there is none that can be used."""
    session = Session(load_state(session_path(project, session_id)))
    if session.version != SESSION_VERSION or session.id != session_id:
        session = Session({"id": session_id})
    session.reading_mark = session_path(project, session_id) + ".reading"
    return session


def save_session(project: Project, session: Session) -> None:
    data = json.dumps(session.as_dict(), separators=(",", ":"))
    write_atomically(session_path(project, session.id), data)


def was_cleared(before: Session, session: Session) -> bool:
    """Whether the person left a session by /clear, in the client of this one."""
    is_same_client = before.client_pid == session.client_pid != ""
    return is_same_client and before.end_reason == "clear"


def writer_of(project: Project, name: str) -> Session:
    """The session that a handoff belongs to; an empty one if we know none."""
    stem = name[: -len(".md")]
    return Session(read_object(project.state("session-%s.json" % stem)))


def all_sessions(project: Project, limit: int = 200) -> list:
    """The sessions of the project that are kept, the newest first."""
    found = []
    for path, _ in list_files(project.home, ".json"):
        if os.path.basename(path).startswith("session-") and len(found) < limit:
            session = Session(read_object(path))
            session.reading_mark = path + ".reading"
            if session.id and session.version == SESSION_VERSION:
                found.append(session)
    return found


# =============================================================================
# Git
# =============================================================================
# Branch and commit are read from files. What is changed is asked of `git status`,
# only when a handoff is made; without git, or not in time, nothing is said of it.

GIT_LIMIT_S = 0.6
CHANGED_LIMIT = 30
COMMIT = r"[0-9a-f]{40,64}"
# Nothing in a repository may make git run a program, ask, or write.
SAFE_GIT = (
    "--no-optional-locks --no-pager -c safe.bareRepository=explicit"
    " -c core.fsmonitor=false -c core.hooksPath=%s -c diff.external=" % os.devnull
).split()
STATUS_WORDS = "status --porcelain --ignore-submodules=dirty".split()


def git_folder(root: str) -> str:
    """The git folder of a working tree; "" if there is none here or above."""
    for folder in upwards(root):
        path = os.path.join(folder, ".git")
        if os.path.isdir(path):
            return path
        told = read_text(path).partition("gitdir:")[2].strip()  # a worktree
        if told:
            return os.path.normpath(os.path.join(folder, told))
        if os.path.isfile(folder + "/HEAD") and os.path.isdir(folder + "/objects"):
            return ""  # git would take this folder's own settings, which may run things
    return ""


def head_file(root: str) -> str:
    """The file that changes when the branch does; "" without git."""
    folder = git_folder(root)
    return os.path.join(folder, "HEAD") if folder else ""


def read_head(root: str) -> tuple:
    """(branch, short commit); ("", "") without git. A detached head is "commit …"."""
    path = head_file(root)
    head = read_text(path).strip()
    if re.fullmatch(COMMIT, head):
        return "commit " + head[:10], head[:10]
    name = head.partition("ref: ")[2]
    if not name or name.endswith("/.invalid"):  # git keeps them elsewhere: reftable
        return "", ""
    branch = for_terminal(name.replace("refs/heads/", "", 1))
    return one_line(branch, 100), read_ref(os.path.dirname(path), name)[:10]


def read_ref(folder: str, name: str) -> str:
    """The commit of a branch; a worktree shares its branches with the main folder."""
    shared = os.path.join(folder, read_text(os.path.join(folder, "commondir")).strip())
    commit = read_text(os.path.join(shared, name)).strip()
    if re.fullmatch(COMMIT, commit):
        return commit
    packed = read_text(os.path.join(shared, "packed-refs"), STATE_LIMIT_BYTES)
    match = re.search(r"(?m)^(%s) %s$" % (COMMIT, re.escape(name)), packed)
    return match.group(1) if match else ""


def find_git() -> str:
    """Where git is; "" if there is none. Windows itself would take one that lies in the
    project's folder."""
    name = "git.exe" if os.name == "nt" else "git"
    for folder in os.get_exec_path():
        path = os.path.join(folder, name)
        if os.path.isabs(path) and os.access(path, os.X_OK):
            return path
    return ""


def run_git(root: str, words: list[str], limit_s: float) -> str:
    """What git prints in a folder; "" if it fails, is too slow, or there is none."""
    import subprocess

    git = find_git()
    if not git or not git_folder(root):
        return ""
    try:
        done = subprocess.run(
            [git, *SAFE_GIT, *words],
            cwd=root,
            env=dict(os.environ, GIT_TERMINAL_PROMPT="0"),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=limit_s,
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return "" if done.returncode else os.fsdecode(done.stdout)


def changed_files(root: str) -> list[str]:
    """The lines of `git status --porcelain`, at most CHANGED_LIMIT."""
    told = run_git(root, STATUS_WORDS, GIT_LIMIT_S)
    lines = told.encode("utf-8", "replace").decode().split("\n")
    return [line for line in lines if line.strip()][:CHANGED_LIMIT]


# =============================================================================
# Project
# =============================================================================
# A project is the folder that the client was started in, or its nearest parent,
# with a context folder. Our own state about it lies in the user's home, so no
# clone can forge it. One lock for each project is held for a whole run.

PROJECT_NAME_LIMIT = 100 if os.name == "nt" else 200  # of 260 for a path there
LOCK_WAIT_S, LOCK_WAIT_STOP_S = 1.0, 3.0
LOCK_POLL_S = 0.01
RUNTIME_FOLDERS = (
    "signals",
    "signals/global",
    "signals/sessions",
    "handoffs",
    "handoffs/delivered",
)
RUNTIME_NAMES = ("signals", "handoffs", "monitor-state.json")
GITIGNORE = """\
# Runtime files of ctx_hooks. The context files beside this one are yours.
/signals/
/handoffs/
/monitor-state.json
/.gitignore
"""


class Project:
    """A project's folders and settings."""

    def __init__(self, root: str, settings: Settings, env: dict) -> None:
        self.root = root
        self.settings = settings
        self.context = os.path.join(root, settings["context_dir"])
        self.home = project_state_folder(root, env)
        self.cache = cache_folder(env)

    def state(self, name: str) -> str:
        """The path of one of our own files about this project."""
        return os.path.join(self.home, name)

    def path(self, *names: str) -> str:
        """A path below the context folder."""
        return os.path.join(self.context, *names)

    def relative(self, path: str) -> str:
        """A path as it is named inside the project."""
        try:
            inside = os.path.relpath(path, self.root)
        except ValueError:  # another drive
            return path
        return path if inside.startswith("..") else inside.replace(os.sep, "/")


def find_project(start: str, env: dict) -> Project | None:
    """The project of a folder; None if there is none, or it is not ours to work in."""
    if not os.path.isabs(start) or "\0" in start or not home_folder(env):
        return None
    start = os.path.normpath(start)
    usual = read_settings("", env)["context_dir"]
    for folder in upwards(start):
        is_trusted = folder == start or is_ours(os.path.join(folder, ".contextrc"))
        name = told_context_dir(folder) if is_trusted else ""
        context = os.path.join(folder, name or usual)
        if not os.path.isdir(context) or not (folder == start or is_ours(context)):
            continue
        settings = read_settings(folder if is_trusted else "", env)
        project = Project(folder, settings, env)
        if project.context == context:  # else the parser would not have that name
            return project if is_safe_to_use(project) else None
    return None


def told_context_dir(folder: str) -> str:
    """What a folder's .contextrc calls the context folder; "" if it does not say. Many
    folders may lie above, so the rest is only parsed where a project is found."""
    text = read_text(os.path.join(folder, ".contextrc"), SETTINGS_LIMIT_BYTES)
    told = re.findall(r"""(?m)^['"]?context_dir['"]?[ \t]*:(.*)$""", text)
    return unquote(strip_comment(told[-1][:LINE_LIMIT])) if told else ""


def is_ours(path: str) -> bool:
    """What lies in a parent counts only if it is this user's or root's: in a shared
    folder somebody else could have put it there."""
    if os.name == "nt" or not os.path.exists(path):
        return True
    return os.stat(path).st_uid in (0, os.getuid())


def is_safe_to_use(project: Project) -> bool:
    """A link as runtime folder would lead our writes to somewhere else."""
    parts = parts_inside(project.context, project.root)
    if parts in ([], ["."]) or is_private(parts):
        return False
    return not any(os.path.islink(project.path(name)) for name in RUNTIME_FOLDERS)


def is_private(parts: list) -> bool:
    """Whether a path leads through the folder of git or of Claude Code."""
    return any(part.lower() in (".git", ".claude") for part in parts)


def prepare_folders(project: Project) -> bool:
    """The state folder, and a .gitignore that names our files in the context folder.
    False if there can be no state: the home is read-only."""
    try:
        os.makedirs(project.home, mode=0o700, exist_ok=True)
    except OSError:
        return False
    if not os.path.exists(project.state("root")):
        note_clone(project)
        write_atomically(project.state("root"), project.root)  # for `status --all`
    path = project.path(".gitignore")
    if not os.path.lexists(path):
        write_atomically(path, GITIGNORE, mode=0o644)
    return os.access(project.home, os.W_OK)


# --- what came with a clone: a repository speaks to the agent, not to the person


def note_clone(project: Project) -> None:
    """Before this user's first run here: what is there was written by somebody else."""
    found = {}
    for name in ("signals/global", "handoffs"):
        for path, written_at in list_files(project.path(name), ".md"):
            found[project.relative(path)] = time_mark(written_at)
    if found:
        write_object(project.state("cloned.json"), found)


def came_with_clone(project: Project, path: str) -> bool:
    """Whether a signal or handoff is a stranger's; not once somebody wrote it anew."""
    noted = read_object(project.state("cloned.json"))
    return noted.get(project.relative(path)) == time_mark(modified_at(path))


# --- the user's folders


def home_folder(env: dict) -> str:
    """The user's home; "" if there is none. Never guessed: that could be root's."""
    home = env.get("USERPROFILE" if os.name == "nt" else "HOME", "")
    return home if os.path.isabs(home) else ""


def user_folder(env: dict, variable: str, below_home: str) -> str:
    """An XDG folder, or its default below the home; on Windows %LOCALAPPDATA%."""
    given = env.get("LOCALAPPDATA" if os.name == "nt" else variable, "")
    if os.path.isabs(given):
        return given
    home = home_folder(env)
    return os.path.join(home, below_home) if home else ""


def state_home(env: dict) -> str:
    return user_folder(env, "XDG_STATE_HOME", ".local/state")


def cache_folder(env: dict) -> str:
    """Bytecode and launcher files, where the launcher looks, too. "" without a home."""
    folder = user_folder(env, "XDG_CACHE_HOME", ".cache")
    below = r"ctx_hooks\cache" if os.name == "nt" else "ctx_hooks"
    return os.path.join(folder, below) if folder else ""


def config_home(env: dict) -> str:
    return user_folder(env, "XDG_CONFIG_HOME", ".config")


def read_settings(root: str, env: dict) -> Settings:
    """The user's settings for all projects, then the project's own."""
    settings = Settings()
    home = config_home(env)
    if home:
        settings.read(read_text(os.path.join(home, "ctx_hooks", "contextrc")))
    if root:
        path = os.path.join(root, ".contextrc")
        settings.read(read_text(path, SETTINGS_LIMIT_BYTES), is_projects=True)
    return settings


def project_state_folder(root: str, env: dict) -> str:
    """Where our own files about a project lie; "" without a home."""
    home = state_home(env)
    path = os.path.normcase(os.path.realpath(root))  # C: and c: are one
    name = safe_name(path, PROJECT_NAME_LIMIT)
    return os.path.join(home, "ctx_hooks", name) if home else ""


# --- the lock


class ProjectLock:
    """One lock for each project. `with` holds it; `is_held` says whether it was had."""

    def __init__(self, project: Project, wait_s: float) -> None:
        self.path = project.state("lock")
        self.wait_s = wait_s
        self.is_held = False

    def __enter__(self) -> ProjectLock:
        self.file = open(self.path, "a+b")
        deadline = time.monotonic() + self.wait_s
        while not try_lock(self.file):
            if time.monotonic() > deadline:
                return self
            time.sleep(LOCK_POLL_S)
        self.is_held = True
        return self

    def __exit__(self, *_: object) -> None:
        self.file.close()  # closing releases the lock


def try_lock(file: object) -> bool:
    try:
        if os.name == "nt":
            import msvcrt

            file.seek(0)
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    except OSError:
        return False


# --- whom we trust: what of a project may reach the agent

SECRET_NAMES = (
    r"(?i)\.env.*|.*\.(pem|key|p12|pfx|kdbx)|id_[a-z0-9]+.*|credentials.*"
    r"|\.netrc|_netrc|\.pgpass|\.npmrc|\.pypirc"
)
OLD_HANDOFF = ".claude/ll-continue-prompt.md"


def may_be_delivered(project: Project, path: str) -> bool:
    """Whether a file may reach the agent: it is inside the project with all links
    resolved, not below .git or .claude (the old handoff aside), and no secret."""
    parts = parts_inside(path, project.root)
    is_secret = any(re.fullmatch(SECRET_NAMES, part) for part in parts)
    if not parts or is_secret:
        return False
    return not is_private(parts) or "/".join(parts) == OLD_HANDOFF


# --- whether to speak at all

OWN_LINE = r"ctx_hooks\.py\W{1,12}(?:inject|gate|monitor|stop-enforce|cleanup)\b"


def is_switched_off(project: Project, env: dict, now: float) -> bool:
    """By CTX_HOOKS_DISABLE, or by `pause`: its file holds an epoch, or 0 for no end."""
    if env.get("CTX_HOOKS_DISABLE", "") not in ("", "0"):
        return True
    path = project.state("paused")
    until = read_text(path).strip()
    is_over = until.isdecimal() and 0 < int(until) <= now
    return os.path.exists(path) and not is_over


def another_kit_speaks(project: Project, kit: str, settings_files: list) -> bool:
    """Whether this kit is the plugin's or the user's, and the project has its own."""
    own = os.path.join(project.root, KIT_PLACE)
    if is_inside(kit, project.root) or not os.path.exists(own):
        return False
    for name in settings_files:
        text = read_text(os.path.join(project.root, name))
        if re.search(OWN_LINE, text):
            return True
    return False


# =============================================================================
# Config
# =============================================================================
# .contextrc is a small YAML subset: nested keys by indentation, scalars, lists
# as [a, b] or as "- a" lines, comments, quotes. A bad line or entry is reported
# with line and column, and skipped; the rest counts.

CONTEXT_FILES = [
    "CONSTITUTION.md",
    "TASKS.md",
    "CONVENTIONS.md",
    "DECISIONS.md",
    "LEARNINGS.md",
    "AGENT_PLAYBOOK.md",
]
INSTRUCTION_FILES = "CLAUDE.md CLAUDE.local.md AGENTS.md GEMINI.md QWEN.md".split()
SEVERITIES = ("info", "warning", "critical")
BOOLEANS = {
    "true": True,
    "yes": True,
    "on": True,
    "false": False,
    "no": False,
    "off": False,
}
LINE_LIMIT, LIST_LIMIT = 8_000, 200
SETTINGS_LIMIT_BYTES = 64_000  # a longer file would slow down every hook


def as_path(text: str) -> str:
    parts = text.replace("\\", "/").split("/")
    is_odd = text[:1] in ("", "[", "/", "~")  # a "[" is a list that is not closed
    if is_odd or ".." in parts or ":" in parts[0]:
        raise ValueError("must be a path inside the project")
    return text


def as_bool(text: str) -> bool:
    if text.lower() not in BOOLEANS:
        raise ValueError("must be true or false")
    return BOOLEANS[text.lower()]


def as_number(text: str) -> float:
    if not re.fullmatch(r"\d{1,9}(\.\d{1,6})?", text):
        raise ValueError("must be a number")
    return float(text)


def as_tokens(text: str) -> int:
    """200000, 200k or 1m."""
    given = text.lower().replace("_", "")
    if not re.fullmatch(r"\d{1,9}[km]?", given):
        raise ValueError("must be a number of tokens, such as 200000 or 200k")
    return int(given.replace("k", "000").replace("m", "000000"))


def as_threshold(text: str) -> str:
    """auto, a percentage, or a number of tokens such as 300k."""
    if not re.fullmatch(r"(?i)auto|[1-9]\d?%?|100%?|\d{1,6}[km]", text):
        raise ValueError("must be auto, a percentage, or tokens such as 300k")
    return text.lower().rstrip("%")


def as_plain_pattern(text: str) -> str:
    """A project's pattern: plain text, in which * stands for anything. A regular
    expression of a stranger's could freeze the terminal."""
    pattern, *others = map(re.escape, text.split("*", 8))
    for number, part in enumerate(others, 1):
        # takes the first place that fits, and never looks back
        pattern += r"(?=(.{0,200}?%s))\%d" % (part, number)
    return pattern


def as_yours(text: str) -> str:
    raise ValueError("counts only in your own settings, ~/.config/ctx_hooks/contextrc")


def one_of(*choices: str) -> object:
    """A check that takes only these words, in any case."""
    known = {choice.lower(): choice for choice in choices}

    def as_choice(text: str) -> str:
        if text.lower() not in known:
            raise ValueError("must be one of: " + ", ".join(choices))
        return known[text.lower()]

    return as_choice


# A setting: its default, and the check of one value. A list has a list as default.
SETTINGS = {
    "context_dir": (".context", as_path),
    "gate.mode": ("directive", one_of("directive", "off")),
    "gate.files": (CONTEXT_FILES, as_path),
    "gate.checkpoint": (False, as_bool),
    "monitor.inject_min_severity": ("warning", one_of(*SEVERITIES)),
    "monitor.notify": ("off", one_of("off", "bell", "desktop")),
    "monitor.context_window": (0, as_tokens),
    "handoff.enabled": (True, as_bool),
    "handoff.threshold": ("auto", as_threshold),
    "audit.stale_days": (14.0, as_number),
    "startup.enabled": (True, as_bool),
    "startup.files": ([], as_path),
    "startup.max_age_hours": (72.0, as_number),
    "startup.budget_chars": (8000.0, as_number),
    "startup.require_ack": ("auto", one_of("auto", *BOOLEANS)),
    "startup.retry_backoffs_s": ([1.0, 2.0, 5.0, 10.0], as_number),
    "startup.file_fallback_after_attempts": (3.0, as_number),
    "startup.fallback_file": ("", one_of(*INSTRUCTION_FILES)),
    "auto.phases": ([], str),
    "auto.about.*": ("", str),
    "auto.done_when.*": ("", str),
    "auto.check_timeout_s": (120.0, as_number),
    "wrap.ready_patterns": ([], str),
}


# What reaches out of the text is the user's: these checks apply in a project's file.
PROJECT_CHECKS = {
    "monitor.notify": as_yours,
    "wrap.ready_patterns": as_plain_pattern,
}


class Settings:
    """The values of a .contextrc, and what is wrong with it: [(line, column, what)]."""

    def __init__(self) -> None:
        self.values = {name: default for name, (default, _) in SETTINGS.items()}
        self.problems: list = []

    def __getitem__(self, name: str) -> object:
        return self.values[name]

    def of_phase(self, name: str, phase: str) -> str:
        """`auto.about` or `auto.done_when` of one phase."""
        return self.values.get("%s.%s" % (name, phase), "")

    def read(self, text: str, is_projects: bool = False) -> None:
        """Take the values of one file's text; later files win."""
        for name, place, values in parse_keys(text):
            group = name.rpartition(".")[0] + ".*"
            setting = SETTINGS.get(name) or SETTINGS.get(group)
            is_group = any(known.startswith(name + ".") for known in SETTINGS)
            may_be_empty = setting and isinstance(setting[0], list)
            if setting and is_projects:
                setting = (setting[0], PROJECT_CHECKS.get(name, setting[1]))
            if setting and (values or may_be_empty):
                self.take(name, setting, values)
            elif values or not is_group:
                self.problems.append((*place, "unknown setting, or no value: " + name))

    def take(self, name: str, setting: tuple, values: list) -> None:
        """The values of one setting. A bad one is reported, and drops only itself."""
        default, check = setting
        good = []
        for line, column, text in values[:LIST_LIMIT]:
            try:
                good.append(check(text))
            except ValueError as error:
                self.problems.append((line, column, "%s: %s" % (name, error)))
        if isinstance(default, list) and (good or not values):
            self.values[name] = good
        elif good:
            self.values[name] = good[-1]


def parse_keys(text: str) -> list:
    """[(dotted key, (line, column), values)]; a value is (line, column, text)."""
    found: list = []
    values: list = []  # of the last key
    open_keys: list = []  # (column, key) of the keys that this line is inside of
    for line, content in enumerate(text.split("\n"), 1):
        content = strip_comment(content[:LINE_LIMIT]).rstrip()
        words = content.strip()
        column = len(content) - len(words) + 1
        if words in ("", "---"):
            continue
        if words.startswith("- ") and found:
            values.append((line, column, unquote(words[2:])))
            continue
        while open_keys and open_keys[-1][0] >= column:
            open_keys.pop()
        key, _, value = words.partition(":")
        open_keys.append((column, unquote(key)))
        name = ".".join(part for _, part in open_keys)
        values = [(line, column, unquote(item)) for item in split_list(value.strip())]
        found.append((name, (line, column), values))
    return found


def strip_comment(line: str) -> str:
    """A line without its comment; a # inside quotes or a word is none."""
    if "#" not in line:
        return line
    return re.match(r"""(?:[^'"#]|"[^"]*"|'[^']*'|(?<=\S)#|['"])*""", line).group()


def unquote(text: str) -> str:
    match = re.fullmatch(r"""\s*(['"])(.*)\1\s*""", text)
    return match.group(2) if match else text.strip()


def split_list(text: str) -> list:
    """The entries of [a, b]; one value is a list of one. Quotes may hold a comma."""
    if not (text.startswith("[") and text.endswith("]")):
        return [text] if text else []
    entries = re.findall(r"""\s*("[^"]*"|'[^']*'|[^,]+)""", text[1:-1])
    return [entry for entry in entries if entry.strip()]


# =============================================================================
# Recorder
# =============================================================================
# events.jsonl: one row for each thing that was said or decided, with the reason;
# `why` reads it. It is cut to its newer half when it is full.
#
#     {"at": "2026-02-03T10:45:00Z", "event": "signal:delivered", "session": "…", …}

EVENTS_LIMIT_BYTES = 400_000
ERRORS_LIMIT_BYTES = 40_000


class Metrics(Record):
    """metrics.json: what came of the deliveries at a session's start."""

    attempted: int = 0
    succeededOnFirstTry: int = 0
    succeededAfterRetry: int = 0
    escalatedToFile: int = 0
    failed: int = 0
    averageAttemptsToSuccess: float = 0.0
    averageTimeToSuccess: float = 0.0  # seconds


def record(run: Run, event: str, **details: object) -> None:
    """Note one row for `why`."""
    row = {"at": format_iso(run.now), "event": event, "session": run.session.id}
    for name, value in details.items():
        row[name] = hide_secrets(value) if isinstance(value, str) else value
    append_line(run.project.state("events.jsonl"), json.dumps(row), EVENTS_LIMIT_BYTES)


def append_line(path: str, line: str, limit_bytes: int) -> None:
    """Append to a bounded log."""
    try:
        with open(path, "a", encoding="utf-8") as file:
            file.write(line + "\n")
        if size_of(path) > limit_bytes:
            newer = read_bytes(path, limit_bytes, start=limit_bytes // 2)
            write_atomically(path, newer.partition(b"\n")[2])
    except OSError:
        pass  # a full disk: the work goes on without a log


def read_events(project: Project) -> list:
    """The recorder's rows, oldest first."""
    content = read_bytes(project.state("events.jsonl"), 2 * EVENTS_LIMIT_BYTES)
    rows = map(parse_object, content.split(b"\n"))
    return [row for row in rows if row]


def count_metric(
    project: Project, name: str, attempts: int = 0, seconds: float = 0.0
) -> None:
    """Count one outcome of a delivery; a success also moves the averages."""
    path = project.state("metrics.json")
    metrics = Metrics(load_state(path))
    setattr(metrics, name, getattr(metrics, name) + 1)
    if name.startswith("succeeded"):
        count = metrics.succeededOnFirstTry + metrics.succeededAfterRetry
        averages = {
            "averageAttemptsToSuccess": attempts,
            "averageTimeToSuccess": max(0.0, seconds),
        }
        for average, value in averages.items():
            old = getattr(metrics, average)
            setattr(metrics, average, round(old + (value - old) / count, 3))
    write_object(path, metrics.as_dict())


# =============================================================================
# Text
# =============================================================================
# What reaches the agent has no control characters, no tags that imitate a
# client's markup, and no lines that pose as a turn. What the kit writes down
# hides what looks like a secret.

CONTROL = (  # also invisible letters, changes of direction, halves of a pair
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u200b-\u200f\u2028-\u202e\u2060-\u206f"
    "\ufeff\ud800-\udfff\U000e0000-\U000e0fff]"
)
MARKUP = (
    r"(?i)</?\s*(?:(?:system|user)[-_]\w+|function_\w+|tool_\w+|hook_\w+|command-\w+"
    r"|local-command-\w+|task-notification|antml:\w+|invoke)\b[^<>]*>"
    r"|(?:</|(?<!\w)<)\s*(?:system|user|assistant|human)\b[^<>]*>"  # not List<User>
)
POSED_TURN = r"(?im)^([ \t]*)(?=(?:human|user|assistant|system)[ \t]*:)"
# What looks like a secret. A group is its left side, which stays. Each pattern is
# linear: what may repeat is bounded, or ends before it could begin again.
NEXT_LINE = r"(?:\\r|\\n|\r?\n[ \t>|]*)+"
NO_VALUE = (
    r"(?![$<{\[(]|\*{3}|(?:str|string|bytes|text|none|null|true|false|undefined"
    r"|required|optional|token|password|secret|int|any|char|varchar)\b)"
)
PASS_NAME = r"(?:password|passwd|passphrase|(?:\b|_)pass|(?:\b|_)pwd)"
KEY_NAME = (
    r"(?:(?:secret|api|access|private|account|auth|encryption|signing)"
    r"(?:[_-]?access)?[_-]?key(?:[_-]?id)?|secret|token|credential|auth[_-]?token)"
)
WITH_DIGIT = r"(?!\d+\b)(?=[^\s'\"]{0,200}?\d)"  # and no mere number
VALUE = r"[^\s'\"(),;&<>{}\[\]]"
LOOSE = r"['\"]?(?:\s{0,4}[:=]\s{0,4}|\s{0,4}:=\s{0,4})"
SECRETS = (
    r"-----BEGIN [A-Z ]{0,30}PRIVATE KEY[A-Z ]{0,10}-----"  # to its last line of base64
    r"(?:%s(?:(?:Proc-Type|DEK-Info|Version|Comment): [^\n\\]{1,100}"
    r"|[A-Za-z0-9+/]{24,}={0,2}|[A-Za-z0-9+/]{1,23}={1,2}|=[A-Za-z0-9+/]{4}"
    r"|[A-Za-z0-9+/]{1,23}(?=%s-----END))(?=[\s\\'\"]|\Z))*"
    r"(?:%s-----END [A-Z ]{0,40}-----)?" % (NEXT_LINE, NEXT_LINE, NEXT_LINE),
    r"\b(?:sk|pk|rk)[-_](?:[a-z0-9]{1,20}[-_]){0,3}"
    r"(?=[\w-]{0,200}?\d)[A-Za-z0-9]{16,}[A-Za-z0-9_-]*",
    r"\b(?:gh[pousr]|npm|hf|shp(?:at|ss|ca|pa)|sntry[su]|rubygems|whsec)_"
    r"[A-Za-z0-9]{16,}",
    r"\b(?:github_pat_|gl[a-z]{1,5}-|xox[abeprs]-|xapp-|pypi-|dckr_pat_|do[opr]_v1_"
    r"|lin_api_|figd_|hv[sbr]\.|SG\.|ya29\.|ATATT|EAA[A-Z]|AGE-SECRET-KEY-"
    r"|PMAK-|tskey-)"
    r"(?=[\w.-]{0,200}?\d)[A-Za-z0-9_.=-]{16,}",
    r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b",
    r"\bAIza[A-Za-z0-9_-]{30,}",
    r"\beyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{5,}",
    r"\bSK[0-9a-f]{32}\b",  # Twilio
    r"\b\d{8,10}:[A-Za-z0-9_-]{35}\b",  # a bot of Telegram, then one of Discord
    r"\b[MNO][A-Za-z0-9_-]{23,25}\.[A-Za-z0-9_-]{6}\.[A-Za-z0-9_-]{27,38}\b",
    r"(hooks\.slack\.com/services/|discord(?:app)?\.com/api/webhooks/)[\w/-]{20,}",
    r"(?<=://)[^/\s:@$<{]{0,200}:[^/\s@$<{]{1,200}(?=@)",
    r"(?i)(\b(?:bearer|basic)\s{1,4})(?=[\w.~+/-]{0,200}?\d)[\w.~+/-]{16,}=*",
    r"(?i)(\bauthorization:\s{0,4}(?:basic|bearer|token)\s{1,4})[\w.~+/-]{8,}=*",
    r"(\b(?:curl|wget|https?|xh)\b[^\n|;]{0,300}?\s(?:-u|--user)[ =]?['\"]?"
    r"[^\s:'\"$]{1,100}:)[^\s'\"$]{1,200}",
    r"(\b(?:mysql\w{0,10}|mariadb|sshpass)\b[^\n|;]{0,200}?\s-p)[^\s'\"$]{3,200}",
    r"(?i)(--?(?:[a-z]{1,20}-)?(?:password|passwd|passphrase|token|api-?key|secret"
    r"|(?:access|secret)-key)(?:=|\s{1,4})['\"]?)"
    r"(?![-$<{\[])(?=[^\s'\"]{0,200}?[\d!@#%^&*+])[^\s'\"]{3,}",
    # in quotes; PASS=x and KEY=x1; at last `password: x1`, as YAML has it
    r"(?i)((?:%s|%s)%s['\"])%s[^'\"\n]{4,}(?=['\"])"
    % (PASS_NAME, KEY_NAME, LOOSE, NO_VALUE),
    r"(?i)(%s['\"]?=)%s(?!\d{1,3}\b)%s{4,}(?![\w(])" % (PASS_NAME, NO_VALUE, VALUE),
    r"(?i)(%s['\"]?=)%s%s%s{6,}(?![\w(])" % (KEY_NAME, NO_VALUE, WITH_DIGIT, VALUE),
    r"(?i)((?:passw(?:or)?d|passphrase|%s)%s)%s%s%s{8,}(?![\w(])"
    % (KEY_NAME, LOOSE, NO_VALUE, WITH_DIGIT, VALUE),
)
HIDDEN = "[hidden]"
CUT_MARK = "\n[… cut …]\n"


def clean_text(text: str) -> str:
    """Text from outside as it may reach the agent."""
    text = text.replace("\r\n", "\n")
    if not text.replace("\n", "").isprintable():
        text = re.sub(CONTROL, "", text)
    if "<" in text:
        text = without_markup(text)
    return re.sub(POSED_TURN, r"\1> ", text) if ":" in text else text


def without_markup(text: str) -> str:
    """A tag may arise from what is left around another one; at last, none can."""
    for _ in range(2):
        text = re.sub(MARKUP, "·", text)  # with " " its neighbours could form a tag
    return text.replace("<", "·") if re.search(MARKUP, text) else text


def for_terminal(text: str) -> str:
    """One line for a person's screen."""
    line = " ".join(text.split())
    return "".join(filter(str.isprintable, line))


def hide_secrets(text: str) -> str:
    for pattern in SECRETS:
        text = re.sub(pattern, keep_name, text)
    return text


def keep_name(match: re.Match) -> str:
    """What stands for a secret; `password = …` keeps its left side."""
    left = match.group(1) if match.re.groups else ""
    return left + HIDDEN


def one_line(text: str, limit: int) -> str:
    """The text in one line, cut at `limit` characters."""
    line = " ".join(text.split())
    return line if len(line) <= limit else line[: limit - 1] + "…"


def quote(text: str, mark: str = "> ") -> str:
    """What others said, each line behind a mark: none can pass as a heading of ours."""
    return "\n".join(mark + line for line in text.splitlines())


def cut_middle(text: str, limit: int) -> str:
    """At most `limit` characters: the beginning and the end stay. The end may be the
    rest of a quoted line; behind an ellipsis it looks like no heading either."""
    if len(text) <= limit:
        return text
    mark = CUT_MARK + "…"
    half = max(0, limit - len(mark)) // 2
    return text[:half] + mark + text[len(text) - half :]


def cut_end(text: str, limit: int) -> str:
    if len(text) <= limit:
        return text
    return text[: max(0, limit - len(CUT_MARK))] + CUT_MARK


def says_something(text: str) -> bool:
    """Whether a Markdown file holds more than headings, comments and fillers."""
    if "<!--" in text:
        text = re.sub(r"(?s)<!--.*?(-->|\Z)", "", text)
    for line in text.split("\n"):
        words = line.strip().strip("-*_|> ").rstrip(".…:")
        is_filler = words.lower() in ("", "todo", "tbd", "fixme", "none", "n/a", "[ ]")
        is_template = words.startswith("[") and words.endswith("]")
        is_heading = line.lstrip().startswith("#")
        if not (is_heading or is_filler or is_template):
            return True
    return False


def content_mark(text: str) -> str:
    """Tells one content from another; "" for none."""
    import zlib

    if not text:
        return ""
    return "%08x" % zlib.crc32(text.encode("utf-8", "replace"))


# =============================================================================
# Files
# =============================================================================
# Reading is bounded and never waits for a FIFO or a device. Every write is
# atomic: a reader sees the old file or the new one. Inside, time is epoch
# seconds; on disk, where people read it, ISO 8601 with Z.

STATE_LIMIT_BYTES = 4_000_000
TEXT_LIMIT_BYTES = 512_000
NAME_LIMIT = 120
ISO_TIME = (
    r"(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d(?::\d\d)?)(?:[.,]\d+)?"
    r"\s*(?:Z|([+-]\d\d):?(\d\d))?"
)
PLAIN_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-"
DEVICES = ("con", "prn", "aux", "nul", "com", "lpt")  # on Windows: also COM1, con.txt


def read_bytes(path: str, limit_bytes: int = TEXT_LIMIT_BYTES, start: int = 0) -> bytes:
    """The file's bytes from `start` on; b"" if it cannot be read."""
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    try:
        descriptor = os.open(path, flags)
        with open(descriptor, "rb") as file:
            if not os.path.isfile(descriptor):  # a FIFO, a device
                return b""
            file.seek(start)
            return file.read(limit_bytes)
    except (OSError, ValueError):  # ValueError: a null byte in the path
        return b""


def read_text(path: str, limit_bytes: int = TEXT_LIMIT_BYTES) -> str:
    """The file's text without BOM and CR; "" if it cannot be read."""
    data = read_bytes(path, limit_bytes)
    is_wide = data[:2] in (b"\xff\xfe", b"\xfe\xff")  # as PowerShell's `>` writes
    text = data.decode("utf-16" if is_wide else "utf-8", "replace")
    return text.lstrip("\ufeff").replace("\r\n", "\n")


def parse_object(text: str | bytes) -> dict:
    """The JSON object in a text; {} for anything else."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def read_object(path: str) -> dict:
    """The JSON object in a file; {} if there is none."""
    return parse_object(read_bytes(path, STATE_LIMIT_BYTES))


def load_state(path: str) -> dict:
    """The JSON object in one of our own files. One that cannot be used is set aside."""
    content = read_bytes(path, STATE_LIMIT_BYTES)
    value = parse_object(content)
    if content and not value and content.strip() != b"{}":
        attempt(os.replace, path, path + ".corrupt")
    return value


def write_atomically(path: str, content: str | bytes, mode: int = 0o600) -> bool:
    """Replace the file as a whole, make its folder if need be; False if that fails."""
    data = content.encode("utf-8", "replace") if isinstance(content, str) else content
    draft = "%s.tmp-%d" % (path, os.getpid())
    try:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
        with open(os.open(draft, flags, mode), "wb") as file:
            file.write(data)
        replace_file(draft, path)
        return True
    except (OSError, ValueError):
        remove_file(draft)
        return False


def replace_file(source: str, target: str) -> None:
    """os.replace; on Windows a reader may hold the target for a moment."""
    for _ in range(20):
        try:
            return os.replace(source, target)
        except PermissionError:
            if os.name != "nt":
                raise
            time.sleep(0.02)
    os.replace(source, target)


def write_object(path: str, value: dict) -> bool:
    return write_atomically(path, json.dumps(value, indent=1) + "\n")


def attempt(action: object, *args: object) -> None:
    """Change a file if that can be done: it may be gone, or on a read-only disk."""
    try:
        action(*args)
    except (OSError, ValueError):
        pass  # a ValueError: a null byte in the path


def remove_file(path: str) -> None:
    attempt(os.unlink, path)


def remove_folder(path: str) -> None:
    """Remove an empty folder."""
    attempt(os.rmdir, path)


def make_folder(path: str) -> None:
    attempt(os.makedirs, path, 0o700)


def set_time(path: str, at: float) -> None:
    attempt(os.utime, path, (at, at))


def list_files(folder: str, ending: str) -> list:
    """[(path, mtime)] of the folder's regular files with this ending, newest first. A
    folder that is a link counts as empty: it may lead out of the project."""
    found: list = []
    if os.path.islink(folder):
        return found
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.name.endswith(ending) and entry.is_file(follow_symlinks=False):
                    found.append((entry.path, modified_at(entry.path)))
    except OSError:
        return []
    return sorted(found, key=lambda pair: (-pair[1], pair[0]))


def modified_at(path: str) -> float:
    """The file's time; 0.0 if it is not there."""
    try:
        return os.stat(path).st_mtime
    except (OSError, ValueError):
        return 0.0


def time_mark(written_at: float) -> str:
    return "%.6f-" % written_at


def size_of(path: str) -> int:
    try:
        return os.stat(path).st_size
    except (OSError, ValueError):
        return 0


def safe_name(text: str, limit: int = NAME_LIMIT) -> str:
    """A file name for an outside string; distinct strings stay distinct."""
    name = "".join(map(plain_letter, text))
    stem = name.partition(".")[0].lower()
    if name.startswith(".") or stem.rstrip("0123456789") in DEVICES:
        name = "%%%02X" % ord(name[0]) + name[1:]
    if name.endswith("."):  # Windows drops it
        name = name[:-1] + "%2E"
    if len(name) > limit:
        name = name[: limit - 33] + "-" + digest(text)
    return name


def plain_letter(letter: str) -> str:
    if letter in PLAIN_LETTERS:
        return letter
    data = letter.encode("utf-8", "surrogatepass")
    return "".join("%%%02X" % byte for byte in data)


def digest(text: str) -> str:
    """32 hex digits that stand for a text."""
    import hashlib

    data = text.encode("utf-8", "surrogatepass")
    return hashlib.sha256(data).hexdigest()[:32]


def sha256_of(content: bytes) -> str:
    """The sha256 of a file; CRLF counts as LF, for git may change that."""
    import hashlib

    return hashlib.sha256(content.replace(b"\r\n", b"\n")).hexdigest()


def is_inside(path: str, folder: str) -> bool:
    """Whether a path, with all links resolved, is the folder or lies below it."""
    return bool(parts_inside(path, folder))


def parts_inside(path: str, folder: str) -> list:
    """The names from a folder down to a path, links resolved; [] if it leads out."""
    try:
        inside = os.path.relpath(os.path.realpath(path), os.path.realpath(folder))
    except (OSError, ValueError):  # a null byte, another drive
        return []
    parts = inside.split(os.sep)
    return [] if parts[0] == ".." else parts


def upwards(folder: str) -> list:
    """The folder and its parents, the root aside."""
    found = []
    while folder != os.path.dirname(folder):
        found.append(folder)
        folder = os.path.dirname(folder)
    return found


def format_iso(epoch: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(epoch))


def parse_iso(text: object) -> float:
    """Epoch seconds of an ISO 8601 time, UTC if it has no zone; 0.0 if it is none."""
    from datetime import datetime

    match = re.fullmatch(ISO_TIME, str(text).strip().upper())
    if not match:
        return 0.0
    day, clock, hours, minutes = match.groups()
    zone = "%s:%s" % (hours or "+00", minutes or "00")
    try:
        return datetime.fromisoformat(day + "T" + clock + zone).timestamp()
    except ValueError:  # February 30
        return 0.0


def format_clock(epoch: float, now: float) -> str:
    """A local time for people: the hour today, else with the date."""
    moment, today = time.localtime(epoch), time.localtime(now)
    is_today = moment[:3] == today[:3]
    return time.strftime("%H:%M" if is_today else "%Y-%m-%d %H:%M", moment)


def format_age(seconds: float) -> str:
    """A duration in words: 40 s, 5 min, 3 h, 2 days."""
    if seconds >= 2 * 86400:
        return "%d days" % (seconds // 86400)
    if seconds >= 3600:
        return "%d h" % (seconds // 3600)
    if seconds >= 60:
        return "%d min" % (seconds // 60)
    return "%d s" % max(0, seconds)


# --- the deadline of a process

DEADLINE_BESIDE_CHECK_S = 5.0


def start_deadline(seconds: float) -> None:
    """End this process then, in silence, whatever it hangs in. The interpreter's own
    watchdog waits outside of its lock, so a regular expression cannot stop it."""
    import faulthandler

    nobody = open(os.devnull, "w")
    faulthandler.dump_traceback_later(seconds, exit=True, file=nobody)


# =============================================================================
# Registration
# =============================================================================
# The lines in the clients' settings: made for install.py, recognised for
# install.py and `doctor`. hooks.json says which event runs which mode. A line is
#     sh "$CLAUDE_PROJECT_DIR/.claude/hooks/ctx_hooks.py" monitor || exit 0
# and stays the same in every version: Codex trusts a line by its hash.

KIT_PLACE = ".claude/hooks/ctx_hooks.py"
SHELL_LINE = "sh %s %s || exit 0"
POWERSHELL_LINE = "py -3 -I %s %s; exit 0"
REGISTERED = r"""(?xs)
    (?:["']?(?:[\w.:/\\\ @~+-]*[/\\])?                     # maybe an interpreter:
       (?:(?:ba|da|z)?sh|py|python[\d.]*)(?:\.exe)?["']?   # sh, python3, py -3 -I
       (?:\ -(?![cm])\w+(?:\ utf8)?)*\ )?
    (?P<path>(?:[^\s"'|&;<>()]|"[^"]*"|'[^']*')+)          # one word for the shell,
    (?:(?<=[\s/\\"']ctx_hooks\.py)|(?<=[\s/\\"']ctx_hooks\.py["']))  # our file
    \ (?P<words>(?:inject|gate|monitor|stop-enforce|cleanup|statusline)(?:\ [a-z]+)*)
    (?:\ 2>/dev/null)?(?:\ \|\|\ (?:exit\ 0|true)|;\ exit\ 0)?
"""


class RegisteredLine(Record):
    """A line in a client's settings that runs this kit and does nothing else."""

    mode: str = ""
    agent: str = "claude"
    words: list = []  # mode, agent, "now"
    path: str = ""  # of the kit, variables as they stand
    entry: dict = {}  # as it stands in the settings
    place: list = []  # keys and indexes that lead to the entry: "hooks", event, …


def parse_line(command: object) -> RegisteredLine | None:
    """What a command runs, if it runs this kit alone; None for every other one."""
    match = re.fullmatch(REGISTERED, command) if isinstance(command, str) else None
    if not match:
        return None
    line = RegisteredLine()
    line.words = match["words"].split()
    line.mode, *others = line.words
    for word in others:
        if word in DIALECTS:
            line.agent = word
        elif word != "now":
            return None
    line.path = re.sub(r"""("|')(.*?)\1""", r"\2", match["path"], flags=re.DOTALL)
    return line


def find_lines(value: object, place: tuple = ()) -> list:
    """The RegisteredLines in a client's settings, in their order."""
    if len(place) == 5:
        line = parse_line(dig(value, "command"))
        if not line:
            return []
        line.place = list(place)
        line.entry = value
        return [line]
    children = enumerate(value) if isinstance(value, list) else ()
    if isinstance(value, dict):
        children = value.items()
    found = []
    for key, child in children:
        if key == "hooks" or len(place) not in (0, 3):
            found += find_lines(child, place + (key,))
    return found


def adapt_hooks(hooks: dict, agent: str, path: str, form: str = SHELL_LINE) -> dict:
    """{event: group} of hooks.json in the words and units of one client.

    `path` is the kit as a word for the shell.
    """
    dialect = DIALECTS[agent]
    adapted = {}
    for event, (group,) in hooks.items():
        if event not in dialect.registered:
            continue
        entry = dict(group["hooks"][0])
        words = parse_line(entry["command"]).words
        if agent != "claude":
            words.insert(1, agent)
            group = {}  # only Claude Code needs the matcher
        if event == "SessionEnd":
            entry["timeout"] = dialect.end_limit_s
        entry["timeout"] *= dialect.time_unit
        entry["command"] = form % (path, " ".join(words))
        adapted[dialect.renamed.get(event, event)] = dict(group, hooks=[entry])
    return adapted


def kit_word(agent: str) -> str:
    """A project's kit as a word for the shell; "" if the client sets no variable."""
    variable = DIALECTS[agent].project_variable
    return '"$%s/%s"' % (variable, KIT_PLACE) if variable else ""
# =============================================================================
# Doctor
# =============================================================================
# What can keep the hooks from working, as rows of (level, what, what to do). It
# runs a registered line only in a scratch project, and only if the file that the
# line names is byte for byte this one.

OK = "ok"
HINT = "hint"
WARN = "warn"
FAIL = "FAIL"
PRIVATE_SETTINGS = ".claude/settings.local.json"
MANAGED = (
    "/etc/claude-code/managed-settings.json",
    "/Library/Application Support/ClaudeCode/managed-settings.json",
    r"C:\Program Files\ClaudeCode\managed-settings.json",
)
SILENCERS = (
    "disableAllHooks",
    "allowManagedHooksOnly",
    "strictPluginOnlyCustomization",
)


def diagnose(here: Here) -> list:
    """All findings, in the order in which a person would look."""
    rows = [(OK, "ctx_hooks " + VERSION, "")]
    files = {}
    for path in dict.fromkeys([*settings_files(here), *MANAGED]):
        settings = read_object(path)
        files[path] = find_lines(settings)
        for key in SILENCERS:
            if settings.get(key) is True:
                rows.append((FAIL, "no hook of yours runs: " + key, "see " + path))
    rows += check_registration(here, files)
    if here.project:
        return rows + project_problems(here)
    return rows + [(WARN, NO_PROJECT, init_call(here))]


# --- the settings of the clients


def settings_files(here: Here) -> list:
    """The settings in which a client may find this kit."""
    home = home_folder(here.env)
    own = here.env.get("CLAUDE_CONFIG_DIR") or os.path.join(home, ".claude")
    paths = [own + "/settings.json"]
    names = [PRIVATE_SETTINGS]
    for dialect in DIALECTS.values():
        names.append(dialect.settings)
        paths.append(os.path.join(home, dialect.user_settings))
    return paths + [os.path.join(here.root, name) for name in names]


def check_registration(here: Here, files: dict) -> list:
    """Where the kit is registered, if anywhere, and that it is not twice."""
    rows = []
    for path, lines in files.items():
        if lines:
            rows += check_lines(here, path, lines)
    if not rows and not is_plugin():
        return [(FAIL, "no client runs this kit here", installer_call(here, ""))]
    shared = os.path.join(here.root, DIALECTS["claude"].settings)
    private = os.path.join(here.root, PRIVATE_SETTINGS)
    if files[shared] and files[private]:
        hint = installer_call(here, "--scope local --uninstall")
        rows.append((WARN, "registered twice: shared, and privately", hint))
    return rows


def check_lines(here: Here, path: str, lines: list) -> list:
    """Are our lines in one settings file complete and trusted, and do they run?"""
    dialect = DIALECTS[lines[0].agent]
    starts = [line for line in lines if line.mode == "inject"]
    is_whole = len(lines) >= len(dialect.registered)
    if not starts or not is_whole:
        hint = installer_call(here, "")
        return [(FAIL, path + " lacks hooks of ours", hint)]
    what = "%s is registered in %s" % (dialect.label, path)
    rows = [(OK, what, "")]
    if lines[0].agent == "codex":
        rows.append(check_trust(here, lines))
    return rows + try_line(here, starts[0], scope_option(here, path))


def scope_option(here: Here, path: str) -> str:
    """The option with which install.py writes these settings; "" for shared ones."""
    if path == os.path.join(here.root, PRIVATE_SETTINGS):
        return "--scope local"
    return "" if path.startswith(os.path.join(here.root, "")) else "--scope user"


def check_trust(here: Here, lines: list) -> tuple:
    """Codex runs no hook that is not trusted, and none in a folder that is not."""
    home = home_folder(here.env)
    told = read_text(os.path.join(home, ".codex", "config.toml"))
    _, _, folder = told.partition('[projects."%s"]' % here.root)
    own, _, _ = folder.partition("\n[")
    untrusted = [line for line in lines if trust_mark(line) not in told]
    if '"trusted"' in own and not untrusted:
        return OK, "Codex trusts the folder and the hooks", ""
    what = "Codex does not trust this folder and all its hooks yet"
    return WARN, what, "start codex here, type /hooks and trust them"


def trust_mark(line: RegisteredLine) -> str:
    """The hash by which Codex notes that the person trusts a hook."""
    import hashlib

    event = re.sub(r"\B([A-Z])", r"_\1", line.place[1]).lower()
    hook = dict(line.entry)
    hook["async"] = False
    content = {"event_name": event, "hooks": [hook]}
    text = json.dumps(
        content, sort_keys=True, separators=(",", ":"), ensure_ascii=False
    )
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


# --- does a registered line run?

# The line by which a kit is known, whatever formatters did to it.
KIT_MARK = rb"(?m)^(# |__doc__ = ...)ctx_hooks: hooks that keep a coding agent on track"
CHANGED = "%s was changed since it was installed, by a formatter?"
CUT = "cut short"
PROGRAM_LIMIT_S = 20
TRIAL = """\
exec 2>&1
kit=$1 variable=$2 cache=$3
shift 3 # what is left are the words of the line
mkdir -p .context .claude/hooks && cp -p "$kit" .claude/hooks/
export "$variable=$PWD" CTX_HOOKS_DISABLE= LOCALAPPDATA="$PWD/home"
export XDG_STATE_HOME="$PWD/home" XDG_CACHE_HOME="$PWD/home" XDG_CONFIG_HOME="$PWD/home"
export PATH="$cache:$PATH" # the interpreter of the hooks lies in the cache
echo '{"hook_event_name": "SessionStart", "session_id": "doctor", "cwd": "'"$PWD"'"}' |
  (sh .claude/hooks/ctx_hooks.py "$@" || exit 0) >reply.json
[ -e home/ctx_hooks/*/session-doctor.json ] || echo "it did nothing"
"""


def try_line(here: Here, line: RegisteredLine, scope: str) -> list:
    """What comes of a registered line, as rows. Only this very file is run."""
    values = {
        DIALECTS[line.agent].project_variable: here.root,
        "HOME": home_folder(here.env),
    }
    path = re.sub(r"\$\{?(\w+)\}?", lambda name: values.get(name[1], ""), line.path)
    content = read_bytes(path, STATE_LIMIT_BYTES)
    is_this_file = content == read_bytes(__file__, STATE_LIMIT_BYTES)
    put_back = "`%s` puts it back" % installer_call(here, scope).strip()
    if b"\r\n" in content[:200]:
        what = path + " has CRLF line ends, which a shell cannot run"
        return [(FAIL, what, put_back)]
    rows = []
    if is_changed_kit(content, install_record(here)):
        rows.append((WARN if is_this_file else FAIL, CHANGED % path, put_back))
    elif not is_this_file:
        what = "not tried, it is missing or another version: " + path
        rows.append((FAIL, what, installer_call(here, scope)))
    if is_this_file:
        rows.append(run_in_scratch(here, line))
    return rows


def is_changed_kit(content: bytes, record: dict) -> bool:
    """Whether this is the release that was installed here, with other bytes. Another
    release may have come by git."""
    if kit_version(content) not in (record.get("version"), CUT):
        return False
    return sha256_of(content) not in (record.get("kits") or [])


def kit_version(content: bytes) -> str:
    """Which release a file is, changed or not; "" if it is another's."""
    if not re.search(KIT_MARK, content):
        return ""
    version = re.search(rb"(?m)^VERSION *= *.([\w.]+)", content)
    return version[1].decode() if version else CUT


def run_in_scratch(here: Here, line: RegisteredLine) -> tuple:
    """How a session starts in a scratch project, as a row."""
    import tempfile

    if os.name == "nt":
        what = "the registered line was not tried: on Windows the shell is the client's"
        return HINT, what, "start a session; then it is in `%s`" % kit_call("status")
    kit = os.path.abspath(__file__)
    variable = DIALECTS[line.agent].project_variable or "PWD"
    trial = ["sh", "-c", TRIAL, "sh", kit, variable, cache_folder(here.env)]
    trial += line.words
    with tempfile.TemporaryDirectory(prefix="ctx-doctor-") as folder:
        run_program(trial, cwd=folder, env=here.env)  # compiles the file
        start = time.perf_counter()
        _, problem = run_program(trial, cwd=folder, env=here.env)
        took_ms = (time.perf_counter() - start) * 1000
        python = os.path.realpath(folder + "/home/ctx_hooks/python3")
    if problem:
        hint = installer_call(here, "--python PATH")
        return FAIL, "the registered line fails: " + problem, hint
    what = "the registered line runs, in %d ms, with %s" % (took_ms, python)
    return OK, what, ""


def run_program(words: list, **place: object) -> tuple:
    """(exit code, what it printed on stdout); 127 and why, if it cannot be run."""
    import subprocess

    quiet = subprocess.DEVNULL
    try:
        done = subprocess.run(
            words,
            stdin=quiet,
            stdout=subprocess.PIPE,
            stderr=quiet,
            timeout=PROGRAM_LIMIT_S,
            **place,
        )
    except (OSError, subprocess.SubprocessError) as error:
        return 127, str(error)
    return done.returncode, os.fsdecode(done.stdout)


# --- the project


def project_problems(here: Here) -> list:
    """What is wrong in the project itself; `status` shows this, too."""
    project = here.project
    rows = []
    if is_switched_off(project, here.env, here.now):
        what = "all hooks are off, by `pause` or by CTX_HOOKS_DISABLE"
        rows.append((WARN, what, kit_call("resume")))
    own = os.path.join(config_home(here.env), "ctx_hooks", "contextrc")
    for path in (own, os.path.join(project.root, ".contextrc")):
        settings = Settings()
        settings.read(read_text(path), is_projects=path != own)
        for line, column, what in settings.problems:
            where = "settings, line %d, column %d: " % (line, column)
            rows.append((WARN, where + what, "this line is ignored; see " + path))
    paths = context_files(project)
    has_text = any(is_worth_reading(project, path) for path in paths)
    if not has_text and project.settings["gate.mode"] != "off":
        what = "no context file says anything yet, so the agent reads none"
        rows.append((HINT, what, "write into " + project.path("TASKS.md")))
    errors = project.state("errors.log")
    is_recent = modified_at(errors) > here.now - KEPT_S
    if size_of(errors) and is_recent:
        what = "internal errors were noted; please report them"
        rows.append((WARN, what, "cat " + errors))
    return rows


# =============================================================================
# Status
# =============================================================================
# What people see, 80 columns wide. A row is (state, text, hint). print_page is the
# only way to a terminal: it takes control characters out, and makes headings and
# what is alarming bold there.

SESSIONS_SHOWN = 5
ROWS_SHOWN = 6
UNHEARD_SHOWN_S = 86400
PAGE_WIDTH = 80
ROW_LIMIT = 500  # a row with a long path is whole all the same
HEAD_LINE = "  %-8.8s %-11s %-7s %-7s "
METER_LINE = "%12s %s %s of %dk"
INDENT = " " * 11  # the width of "  warning  "
SPARKS = "▁▂▃▄▅▆▇█"
SPARK_COLUMNS = 12
BOLD = r"\S.*|  (FAIL|warn|critical) .*"


class Here:
    """A project, or a folder without one, as a person looks at it now."""

    def __init__(self, folder: str, env: dict) -> None:
        self.env = env
        self.now = time.time()
        self.project = find_project(folder, env)
        self.root = self.project.root if self.project else folder

    def run(self, session: Session) -> Run:
        """A run without an event: what hooks can tell of a session."""
        event = Event({"name": "SessionStart"})
        run = Run(event, self.project, self.env, self.now)
        run.session = session
        return run

    def runs(self) -> list:
        """One for each session, as its transcript is now; nothing is saved."""
        found = []
        for session in all_sessions(self.project):
            if session.agent in DIALECTS:
                look(session)
                found.append(self.run(session))
        return found

    def clock(self, epoch: float) -> str:
        return format_clock(epoch, self.now)


# --- sessions


def session_data(run: Run) -> dict:
    """A session for scripts, which know the names of its measures."""
    session, facts = run.session, run.session.facts
    full = fullness(run)
    return {
        "id": session.id,
        "agent": session.agent,
        "state": session_state(run),
        "session_start": session.session_start,
        "estimated_tokens": full.tokens,
        "context": full.as_dict(),
        "tool_calls": facts.tool_calls,
        "breakdown": facts.breakdown,
        "threshold_crossed_at": session.threshold_crossed_at or None,
        "handoff_complete": session.handoff_complete,
    }


def session_state(run: Run) -> str:
    session = run.session
    if session.ended_at:
        return "ended"
    if is_gone(session.client_pid):
        return "killed"
    return "working" if is_busy(session, run.now) else "waiting"


def session_lines(run: Run) -> list:
    """Who does what, and how full the context is; below that some details."""
    session = run.session
    label = DIALECTS[session.agent].label
    seen_at = max(session.seen_at, modified_at(session.transcript))
    age = format_age(run.now - seen_at)
    head = HEAD_LINE % (session.id, label, session_state(run), age)
    started_at = format_clock(parse_iso(session.session_start), run.now)
    note = "since %s · calls: %d" % (started_at, session.facts.tool_calls)
    if session.threshold_crossed_at:
        note += " · handoff " + handoff_state(session)
    read = files_read(run, context_files(run.project))
    if read:
        note += " · read: " + ", ".join(map(os.path.basename, read))
    return [head + meter(run), INDENT + note]


def handoff_state(session: Session) -> str:
    if session.handoff_complete:
        return "written"
    return "asked for" if is_handoff_owed(session) else "refused"


def meter(run: Run) -> str:
    """How full the context is, over time and now."""
    full = fullness(run)
    if not full.is_known:
        return " not measured yet"
    spark = sparkline(run.session.facts.measured, full)
    bar = "█" * (full.percent // 10)
    usable_k = full.usable // 1000
    return METER_LINE % (spark, bar.ljust(10, "░"), full.shown(), usable_k)


def sparkline(measured: list, full: Fullness) -> str:
    """Fullness over time, at most SPARK_COLUMNS wide; the newest is there."""
    step = len(measured) // SPARK_COLUMNS + 1
    text = ""
    for row in measured[::-1][::step]:
        level = full.percent_of(row[1]) // 12
        text = SPARKS[min(7, level)] + text
    return text


# --- handoffs and signals, as rows


def handoff_rows(here: Here, runs: list) -> list:
    """The handoffs that wait, then those that a session got."""
    takers = {run.session.began_with: "→ %.8s" % run.session.id for run in runs}
    places = {"waiting": "handoffs", "used": "handoffs/delivered"}
    rows = []
    for state, folder in places.items():
        for path, written_at in list_files(here.project.path(folder), ".md"):
            name = os.path.basename(path)
            text = " ".join((here.clock(written_at), name, takers.get(name, "")))
            rows.append((state, text, ""))
    return rows


def signal_rows(here: Here, runs: list) -> list:
    """The signals that wait, for whom and until when; then those that nobody heard."""
    files = []
    for folder, _, _ in os.walk(here.project.path("signals")):
        files += list_files(folder, ".md")[:SIGNALS_LOOKED_AT]
    rows = []
    for path, written_at in files:
        signal = read_signal(path, written_at)
        until = signal.generated_at + signal.ttl_s
        if until >= here.now:
            hint = "for %s, until %s" % (listener_of(path), here.clock(until))
            rows.append((signal.severity, signal_line(signal.body), hint))
    return rows + unheard_rows(here, runs)


def listener_of(path: str) -> str:
    name = os.path.basename(os.path.dirname(path))
    return "every session" if name == "global" else "session " + name[:8]


def unheard_rows(here: Here, runs: list) -> list:
    """Signals that a hook removed in the last day before anybody had heard them."""
    heard = {name for run in runs for name in run.session.heard}
    rows = []
    for event in read_events(here.project):
        at = parse_iso(event.get("at"))
        is_expired = event.get("event") == "signal:expired"
        is_recent = here.now - at < UNHEARD_SHOWN_S
        if is_expired and is_recent and event["file"] not in heard:
            hint = "expired at " + here.clock(at)
            rows.append(("unheard", signal_line(event["body"]), hint))
    return rows


# --- the page


def status_data(here: Here) -> dict:
    """All that `status` tells."""
    runs = here.runs()
    return {
        "version": VERSION,
        "project": here.project.root,
        "sessions": runs,  # session_data makes JSON of them
        "workflow": read_workflow(here.project).as_dict(),
        "handoffs": handoff_rows(here, runs),
        "signals": signal_rows(here, runs),
        "problems": project_problems(here),
    }


def status_page(here: Here) -> list:
    """The page of one project."""
    data = status_data(here)
    page = ["ctx_hooks %s · %s" % (VERSION, here.project.root)]
    for run in data["sessions"][:SESSIONS_SHOWN]:
        page += session_lines(run)
    if not data["sessions"]:
        page.append("  no session yet; is all in place? " + kit_call("doctor"))
    if data["workflow"]["phase"]:
        page += ["", "workflow", *workflow_lines(here)]
    for title in ("handoffs", "signals", "problems"):
        if data[title]:
            page += ["", title, *row_lines(data[title][:ROWS_SHOWN])]
    return [*page, ""]


def workflow_lines(here: Here) -> list:
    """The workflow in sentences; the commands in them can be pasted."""
    call = "`" + kit_call("auto ")
    sentences = describe_workflow(here.project, here.now)
    return ["  " + text.replace("`auto ", call) for text in sentences]


def row_lines(rows: list) -> list:
    """Rows as lines; a hint stands below, whole, so that it can be pasted."""
    lines = []
    for state, text, hint in rows:
        lines.append("  %-8s %s" % (state, one_line(text, ROW_LIMIT)))
        if hint:
            lines.append(INDENT + hint)
    return lines


def print_page(lines: list) -> None:
    is_terminal = sys.stdout.isatty() and "NO_COLOR" not in os.environ
    for line in lines:
        text = re.sub(CONTROL, "", line).replace("\n", " ")
        if is_terminal and re.fullmatch(BOLD, text):
            text = "\x1b[1m%s\x1b[0m" % text
        print(text)


# --- why

DECISIONS = {
    "alert:said": "told the agent ({code}): {text}",
    "auto:briefed": "told the agent about the workflow: phase {phase}",
    "auto:started": "began a workflow: phase {phase}",
    "auto:held": "sent the agent on, phase {phase}, iteration {iteration}: {said}",
    "auto:released": "let the agent stop: {said}",
    "gate:said": "asked the agent to read {files}, before its first tool call",
    "handoff:crossed": "saw the context {percent}% full: from here a handoff is wanted",
    "handoff:asked": "asked for a handoff at {percent}%: there was none yet",
    "handoff:failed": "could not write {path}; the next start tries again",
    "handoff:written": "stopped asking for a handoff: the agent wrote {path}",
    "injection:attempted": "sent the startup text {handoff}, attempt {attempt}",
    "injection:succeeded": "saw that the startup text arrived: {evidence}",
    "injection:escalated": "wrote the startup text into {file}: no trace of it so far",
    "injection:failed": "gave up on the startup text after {attempts} attempts",
    "signal:delivered": "told the agent a signal ({severity}): {body}",
    "signal:expired": "removed a signal whose time was over: {body}",
    "wrap:typed": "typed the startup text into the program",
    "wrap:submitted": "pressed Enter: the program showed our text",
    "wrap:gave-up": "typed nothing more: {reason}",
}


def describe_decision(here: Here, row: dict) -> str:
    """One row of the recorder: when, in which session, what, and why."""
    import textwrap

    try:
        text = DECISIONS[row["event"]].format_map(row)
    except KeyError:  # of another version
        text = json.dumps(row)
    at = here.clock(parse_iso(row.get("at")))
    text = for_terminal("%s  %.8s  %s" % (at, row.get("session"), text))
    return textwrap.fill(text, PAGE_WIDTH, subsequent_indent="    ")


# =============================================================================
# Wrap
# =============================================================================
# `wrap -- aider` runs a program without hooks in a pseudo-terminal, passes
# everything through, and types the startup context when the program waits for a
# line. It never answers for the person: Enter is pressed only behind our own
# text, seen in its output. Screen knows, Typist decides, Terminal moves the bytes.

WRAP_POLL_S, WRAP_SETTLE_S, WRAP_TIMEOUT_S = 0.2, 0.5, 30.0
WRAP_ECHO_S = 8.0  # our text appears within this; the person's keys wait so long
WRAP_ANSWER_S = 5.0  # a program at its prompt again for so long has not acknowledged
WRAP_OUTPUT_BYTES = 10_000  # at least 5,000 characters
WRAP_READ_BYTES = 16_384
WRAP_LINE_BYTES = 4_000  # a terminal loses what is longer than 4,095
NOT_SUBMITTED = "ctx: the context was not submitted: "
NOT_ACKNOWLEDGED = "ctx: the context was not acknowledged; the next session gets it"
SHELLS = "sh bash dash zsh fish ksh mksh ash csh tcsh nu pwsh xonsh elvish".split()
SCREENS = (  # editors, pagers, monitors: every key is a command
    "vi vim nvim view ex ed nano pico emacs micro hx helix kak joe "
    "less more most man top htop"
).split()


def run_wrap(here: Here, options: object) -> int:
    """Run `options.command` with the startup context; its exit code."""
    import subprocess

    if options.words:
        hint = kit_call("wrap -- " + " ".join(options.words))
        raise UserError("put -- before the program", hint)
    project = need_project(here)
    command = options.command
    refuse_program(command)
    run = start_wrap(project, options.context, here.env)
    if run.session.delivery.state == "owed":
        typist = Typist(run, options.timeout or WRAP_TIMEOUT_S)
        if os.name == "posix" and os.isatty(0) and os.isatty(1):
            return Terminal(typist).run(command)
        typist.give_up("there is no terminal")
        typist.close()
    if os.name == "posix":
        os.execvp(command[0], command)
    return subprocess.call(command)  # Windows can only wait for it


def refuse_program(command: list) -> None:
    """A UserError for what has hooks, and for what nobody wants text typed into."""
    hint = "name the agent: wrap -- aider, wrap -- sh -c '...'"
    if not command:
        raise UserError("a command is missing", hint)
    name = os.path.basename(command[0])
    if name in DIALECTS:
        install = "install them: python3 install.py --agent " + name
        raise UserError("%s has hooks; they do this better" % name, install)
    runs_script = any(not word.startswith("-") for word in command[1:])
    if name in SCREENS or (name in SHELLS and not runs_script):
        raise UserError("%s would take the context as commands" % name, hint)


def start_wrap(project: Project, context_file: str, env: dict) -> Run:
    """A run whose session has a delivery for the program, like a client's start."""
    event = Event({"name": "SessionStart", "source": "startup"})
    run = Run(event, project, env, time.time())
    run.session.id = "wrap-%d" % os.getpid()
    run.session.seen_at = run.now
    if is_switched_off(project, env, run.now) or not prepare_folders(project):
        return run
    if context_file:
        text = cut_end(clean_text(read_text(context_file)), REPLY_LIMIT - 400)
        if not says_something(text):
            raise UserError("no context in " + context_file, "name a text file")
        run.session.delivery = Delivery({"state": "owed", "text": text})
    else:
        with ProjectLock(project, LOCK_WAIT_S):
            start_session(run)
    return run


# --- what the program shows

MOVES = r"\x1b\[[0-9;]*[ABEFGHfd]|\r\n?"
FORWARD = r"\x1b\[\d*C"
ESCAPES = (
    r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?"
    r"|\x1bO.|\x1b[ -/]*[0-~]"
)
MODES = rb"\x1b\[\?(?:\d+;)*(1049|2004)(?:;\d+)*([hl])"  # alternate screen, pastes
# what a killed program may leave behind: alternate screen, hidden cursor, mouse, pastes
USUAL_MODES = b"\x1b[?1047l\x1b[?25h\x1b[?1000;1002;1003;1004;1006;2004l\x1b[0m"


class Screen:
    """What is known of the program: the end of its output, and how it takes input."""

    def __init__(self) -> None:
        self.kept = b""  # since we, or the person, last typed a line
        self.modes: dict = {}  # number -> h or l
        self.heard_at = time.monotonic()
        self.silent_s = 0.0
        self.process = "unknown"  # or reading, busy
        self.is_raw = False
        self.is_free = True  # input is not hidden, no alternate screen, no half line

    def feed(self, data: bytes) -> None:
        self.heard_at = time.monotonic()
        self.kept = (self.kept + data)[-WRAP_OUTPUT_BYTES:]
        self.modes.update(re.findall(MODES, self.kept))

    def text(self) -> str:
        """The output as it reads without a terminal; where it jumps, a line begins."""
        text = self.kept.decode("utf-8", "replace")
        text = re.sub(FORWARD, " ", re.sub(MOVES, "\n", text))
        return re.sub(ESCAPES + "|" + CONTROL, "", text)


def last_lines(text: str, count: int = 1) -> str:
    """The last lines with something in them."""
    lines = re.findall(r"\S(?:.*\S)?", text)
    return "\n".join(lines[-count:])


# --- does it ask the person something?

PROMPT = (  # nothing is typed behind it yet
    r"(?i)^[│┃|]?[\w ./:~()\[\]-]{0,40}(>{1,3}|[❯›»]|\]:)[\s│┃|]*$"
    r"|^(you|user|me|human|prompt|input|ask|chat|message|query)\s?:$"
)
QUESTION = (
    r"""(?imx)
    [\[(]\s*\[?y(es)?\]?\s*[/|,]\s*n(o)?\b | \(y\)es\b   # [Y/n], ([y]/n), (Y)es/(N)o
    | \b(trust|allow|approve|permission|proceed|authori[sz]e|grant|overwrite|confirm
        |continue|are\ you\ sure|do\ you\ want|would\ you\ like)\b[^.\n]{0,120}\?
    | \b(enter|return)\b.{0,14}\b(confirm|select|continue|choose|accept|approve|exit)\b
    | \barrow\ keys\b | \bpress\ (any\ key|enter|return)\b
    | \besc(ape)?\ to\ (cancel|go\ back|reject|skip|interrupt|stop)\b
    | \b(password|passphrase|passcode|pin|token|secret|api.?key|code)\b.{0,60}[:?>]$
    | [:?$#%]\Z | \(END\)\Z | --\s?More                   # also a shell's and a pager's
    | ^\W*[❯›▶►➤→●◉>*]\s*(yes|no|allow|deny|trust|accept|cancel)\b
    | (^\W*(\d{1,2}[.)]|\[.?\]|\(.?\)|[○◯●◉])\s.*(\n|\Z)){2}     # a choice"""
)
ANSWERED = r"(?im)^.*(/no?[\])]\??:?|\]:) \w+$"  # Remove it? [Y/n] y


def has_question(text: str) -> bool:
    """Whether the last lines ask the person something."""
    asked = last_lines(text, 12)
    if re.search(PROMPT, last_lines(text)):
        # A line further above, or with its answer behind it, is no question any more.
        asked = re.sub(ANSWERED, "", last_lines(text, 3)) + "\n"
    return bool(re.search(QUESTION, asked))


# --- does it wait for a line?

READY_ABOVE = 0.7
MID_THOUGHT = r"([\w,;:(\[{–—-]|\.\.|…)$"


def readiness(screen: Screen, patterns: list) -> float:
    """How sure we are that the program waits for a line: 0 is no, 1 is yes."""
    last = last_lines(screen.text())
    has_prompt = matches([PROMPT, *patterns], last)
    takes_keys = screen.is_raw and not has_prompt  # and every key may be a command
    if takes_keys or screen.process == "busy":
        return 0.0
    evidence = (
        (0.95, screen.process == "reading"),
        (0.9, has_prompt),
        (min(screen.silent_s / 3, 0.8), screen.silent_s >= 0.5),
        (0.6, not re.search(MID_THOUGHT, last)),
    )
    scores = [score for score, holds in evidence if holds]
    agree = 0.1 if len(scores) > 1 else 0.0
    return max(scores, default=0.0) + agree


def matches(patterns: list, line: str) -> bool:
    try:
        return any(re.search(pattern, line, re.I) for pattern in patterns)
    except re.error:
        return False


BUSY = r"\((?:%s)\) |\) [RD] " % "|".join(SHELLS + SCREENS)  # name and state in stat
READ_WAITS = ("wait_woken", "n_tty_read")
POLL_WAITS = (
    "poll_schedule_timeout do_select do_poll do_sys_poll ep_poll do_epoll_wait"
).split()


def process_state(pid: int, is_raw: bool) -> str:
    """Whether a program is reading or busy; unknown if the kernel does not tell."""
    folder = "/proc/%d/" % pid
    if re.search(BUSY, read_text(folder + "stat")):
        return "busy"
    wait = read_text(folder + "wchan").partition(".")[0]
    if wait in ("", "0"):
        return "unknown"
    # A read may be of a socket, so it has to be of descriptor 0. A poll is for keys in
    # raw mode; in line mode it may be for the network.
    reads_input = re.match(r"\d+ 0x0 ", read_text(folder + "syscall"))
    is_reading = wait in READ_WAITS and reads_input
    is_polling = wait in POLL_WAITS and is_raw
    return "reading" if is_reading or is_polling else "busy"


# --- the text, and what comes back

ECHO_LETTERS = 24  # more than an acknowledgement has, less than our request around it
# the acknowledgement, but not our request for it
TOLD_ACK = r'(?i)(?<!Reply ")\bACK:\s*context\s+received(?!\W{0,9}to\W{0,9}confirm)'


def plan_keys(text: str, takes_paste: bool) -> bytes:
    """The keys for a text, without the Enter. Outside of a paste it is one line."""
    text = re.sub(CONTROL, "", text)
    if takes_paste:
        return b"\x1b[200~" + text.replace("\n", "\r").encode() + b"\x1b[201~"
    while len(text.encode()) > WRAP_LINE_BYTES:
        text = cut_middle(text, len(text) * 3 // 4)
    return " ".join(text.split()).encode()


# --- when to type what


class Typist:
    """Decides what is typed when. waiting -> typed -> submitted -> typed … -> done"""

    def __init__(self, run: Run, timeout_s: float) -> None:
        self.run = run
        self.state = "waiting"
        self.deadline = time.monotonic() + timeout_s  # for this state
        self.prompt = ""  # the line at which we typed last
        self.typed = ""
        wants_ack = BOOLEANS.get(run.settings["startup.require_ack"], True)
        self.evidence = TOLD_ACK if wants_ack else ""  # else the echo is enough

    def step(self, screen: Screen, now: float) -> bytes:
        """The keys to type now; b"" for none."""
        self.run.now = time.time()
        if now >= self.deadline:
            self.give_up("the program was not ready in time")
        elif self.state == "typed":
            return self.press_enter(screen)
        elif self.state == "submitted" and re.search(self.evidence, screen.text()):
            self.state = "done"
            end_delivery(self.run, "output")
        elif self.is_ready(screen):
            return self.type_next(screen, now)
        return b""

    def is_ready(self, screen: Screen) -> bool:
        """Whether it waits for a line, has settled, and is back at its prompt."""
        wait_s = WRAP_SETTLE_S
        if self.state == "submitted":
            wait_s = max(WRAP_ANSWER_S, retry_wait_s(self.run))
        patterns = self.run.settings["wrap.ready_patterns"]
        is_sure = readiness(screen, patterns) > READY_ABOVE
        is_quiet = screen.is_free and screen.silent_s >= wait_s
        is_back = self.prompt in ("", same_prompt(screen))
        return is_sure and is_quiet and is_back and not has_question(screen.text())

    def type_next(self, screen: Screen, now: float) -> bytes:
        """The next rung of the ladder: the text, or what became of it."""
        run = self.run
        run.reply.texts = []
        retry(run)
        self.typed = "\n\n".join(run.reply.texts)
        if self.evidence and not self.typed.startswith("[CONTEXT "):
            # What the text itself quotes must not look like an answer.
            self.typed = ACK_FRAME % self.typed.replace("ACK:", "ACK")
        record(run, "wrap:typed")
        self.state = "typed"
        self.deadline = now + WRAP_ECHO_S
        self.prompt = same_prompt(screen)
        return plan_keys(self.typed, screen.modes.get(b"2004") == b"h")

    def press_enter(self, screen: Screen) -> bytes:
        """Enter, once our text stands there and nothing is asked behind it."""
        run = self.run
        letters = re.sub(r"[\W_]", "", self.typed)[-ECHO_LETTERS:]
        behind = re.split(r"[\W_]*".join(letters), screen.text())[1:]  # however wrapped
        if not behind or not screen.is_free or has_question(behind[-1]):
            return b""
        record(run, "wrap:submitted")
        self.deadline = float("inf")
        self.state = "submitted"
        if run.session.delivery.state == "failed":
            self.state = "done"  # that was the last line
        else:
            note_sent(run)
        return b"\r"

    def give_up(self, reason: str) -> None:
        """Nothing is typed any more. The instruction file needs nobody to be ready."""
        run = self.run
        self.state = "done"
        record(run, "wrap:gave-up", reason=reason)
        run.reply.notes = []
        run.reply.tell(NOT_SUBMITTED + reason)
        write_fallback(run)

    def close(self) -> None:
        """The program has ended. Without evidence the handoff waits again."""
        run, delivery = self.run, self.run.session.delivery
        if delivery.state in ("sent", "failed"):
            run.reply.tell(NOT_ACKNOWLEDGED)
            give_back(run.project, delivery.handoff)
        save_session(run.project, run.session)
        write_some(2, "\n".join([*run.reply.notes, ""]).encode())


def same_prompt(screen: Screen) -> str:
    """The last line, by which a prompt is known again although it counts."""
    return re.sub(r"\d+", "0", last_lines(screen.text()))


# --- the pseudo-terminal

LINE_ENDS = (b"\r", b"\n", b"\x03", b"\x04", b"\x15")  # Enter, ^C, ^D, ^U
# what a terminal answers by itself: its kind, the cursor's place, focus, colours
REPORTS = rb"\x1b\[[\d;?>=]*[cnRtyIO]|\x1b\[\?\d+u|\x1b[\]P][^\x07\x1b]*(\x07|\x1b\\)"


class Terminal:
    """The person's terminal, and the pseudo-terminal in which the program runs."""

    def __init__(self, typist: Typist) -> None:
        self.typist = typist
        self.screen = Screen()
        self.queue = b""  # keys on their way to the program
        self.line = ""  # of the person's: half, or ended and not answered yet

    def run(self, command: list) -> int:
        """Pass everything through until the program ends; its exit code."""
        try:
            self.start(command)
            while self.process.poll() is None:
                self.pump()
            while self.read_output():
                pass
        finally:
            self.restore()
            self.typist.close()
        code = self.process.returncode
        return code if code >= 0 else 128 - code

    def start(self, command: list) -> None:
        import fcntl
        import signal
        import subprocess
        import termios

        self.saved = termios.tcgetattr(0)
        self.master, slave = os.openpty()
        os.set_blocking(self.master, False)
        termios.tcsetattr(slave, termios.TCSANOW, self.saved)
        self.fit()
        self.process = subprocess.Popen(
            command,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        os.close(slave)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self.forward)
        signal.signal(signal.SIGWINCH, self.fit)

    def forward(self, number: int, *_: object) -> None:
        """Pass a signal on to the program."""
        self.process.send_signal(number)

    def fit(self, *_: object) -> None:
        """The person's terminal raw, and its size for the program."""
        import fcntl
        import termios
        import tty

        tty.setraw(0, termios.TCSADRAIN)
        size = fcntl.ioctl(0, termios.TIOCGWINSZ, bytes(8))
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, size)

    def restore(self) -> None:
        """The person's terminal as it was, whatever the program left switched on."""
        import termios

        write_some(1, USUAL_MODES)
        try:
            termios.tcsetattr(0, termios.TCSADRAIN, self.saved)
        except termios.error:
            pass  # the window was closed

    def pump(self) -> None:
        """Pass on what is there, or wait for it a moment."""
        import select

        self.queue = write_some(self.master, self.queue)
        # No key comes between our text and its Enter.
        is_held = self.typist.state == "typed"
        sources = [self.master] if is_held else [self.master, 0]
        ready, _, _ = select.select(sources, [], [], WRAP_POLL_S)
        if 0 in ready:
            self.read_keys()
        if self.master in ready and not self.read_output():
            self.restore()  # it has closed its terminal; ^C is for us now
            self.process.wait()
            return
        is_due = not ready or time.monotonic() >= self.typist.deadline
        if is_due and self.typist.state != "done":
            self.look()

    def read_keys(self) -> None:
        import signal
        import termios

        keys = read_some(0)
        if not keys:
            raise SystemExit(128 + signal.SIGHUP)  # the window was closed
        if keys == b"\x1a" and termios.tcgetattr(self.master)[3] & termios.ISIG:
            return self.suspend()
        self.queue += keys
        if keys.endswith(LINE_ENDS):
            self.line = "ended"
        elif re.sub(REPORTS, b"", keys):
            self.line = "half"

    def suspend(self) -> None:
        """^Z: stop the program and ourselves; the person's shell comes back."""
        import signal

        self.forward(signal.SIGSTOP)  # without a shell SIGTSTP stops nothing
        self.restore()
        os.kill(os.getpid(), signal.SIGTSTP)
        self.fit()
        self.forward(signal.SIGCONT)
        self.forward(signal.SIGWINCH)  # draw again

    def read_output(self) -> bytes:
        """Pass on what the program writes; b"" if there is nothing."""
        data = read_some(self.master)
        if self.line == "ended" and data.strip():
            self.line = ""
            self.screen.kept = b""  # what was asked before is settled
        self.screen.feed(data)
        rest = data
        while rest:
            rest = write_some(1, rest)
        return data

    def look(self) -> None:
        """Let the typist look at the program."""
        import termios

        screen, now = self.screen, time.monotonic()
        flags = termios.tcgetattr(self.master)[3]
        screen.is_raw = not flags & termios.ICANON
        is_hidden = not screen.is_raw and not flags & termios.ECHO
        is_alternate = screen.modes.get(b"1049") == b"h"
        screen.is_free = not (is_hidden or is_alternate or self.line)
        screen.process = process_state(self.process.pid, screen.is_raw)
        screen.silent_s = now - screen.heard_at
        with ProjectLock(self.typist.run.project, LOCK_WAIT_S):
            keys = self.typist.step(screen, now)
        if keys:
            screen.kept = b""
            self.queue += keys


def read_some(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, WRAP_READ_BYTES)
    except OSError:
        return b""  # closed, or nothing is there


def write_some(descriptor: int, data: bytes) -> bytes:
    """What is left to write; nothing if nobody is there any more."""
    try:
        return data[os.write(descriptor, data) :]
    except BlockingIOError:
        return data  # full for now
    except OSError:
        return b""
# =============================================================================
# Commands
# =============================================================================
# What people run: a function and a line of the parser each. What fails is a
# UserError: two lines on stderr, and exit 1.

NO_PROJECT = "no .context folder here or above: the hooks stay silent"
DURATION = r"([1-9]\d{0,6})([smhd]?)"
UNITS_S = {
    "": 1,
    "s": 1,
    "m": 60,
    "h": 3600,
    "d": 86400,
}
SIGNAL_FILE = """\
---
severity: %s
ttl: %d
auditor: signal-command
code: %s
---
%s
"""


class UserError(Exception):
    """What is wrong, as a sentence for the person, and what to do about it."""


# --- commands that can be pasted from where one is


def kit_call(words: str) -> str:
    return program_call(os.path.abspath(__file__), words)


def program_call(path: str, words: str) -> str:
    """A Python program with its words; its path from here if it lies below."""
    import shlex
    import subprocess

    here = os.path.join(os.getcwd(), "")
    if path.startswith(here):
        path = "./" + path[len(here) :]
    start = "" if os.access(path, os.X_OK) else "python3 "
    if os.name == "nt":
        return "py -3 %s %s" % (subprocess.list2cmdline([path]), words)
    return "%s%s %s" % (start, shlex.quote(path), words)


def installer_call(here: Here, words: str) -> str:
    """install.py lies where the kit came from, or beside it."""
    folder = os.path.dirname(os.path.abspath(__file__))
    folder = text_of(install_record(here).get("source")) or folder
    path = os.path.join(folder, "install.py")
    if os.path.isfile(path):
        return program_call(path, words)
    return "in your copy of ctx_hooks: python3 install.py " + words


def install_record(here: Here) -> dict:
    """What install.py noted, for this project or for all; {} if it never ran."""
    state = project_state_folder(here.root, here.env)
    own = project_state_folder(home_folder(here.env), here.env)
    record = read_object(os.path.join(state, "install-project.json"))
    return record or read_object(os.path.join(own, "install-user.json"))


def init_call(here: Here) -> str:
    """What makes this folder a project; the plugin needs no more than the folder."""
    return "mkdir .context" if is_plugin() else installer_call(here, "--init")


def is_plugin() -> bool:
    """Whether this file lies where Claude Code keeps its plugins."""
    path = os.path.abspath(__file__).replace(os.sep, "/")
    return "/plugins/cache/" in path


# --- what several commands need


def need_project(here: Here) -> Project:
    if here.project is None:
        raise UserError(NO_PROJECT, init_call(here))
    return here.project


class HeldLock(ProjectLock):
    """The project's lock; a UserError if it cannot be had."""

    def __init__(self, project: Project) -> None:
        prepare_folders(project)
        super().__init__(project, LOCK_WAIT_STOP_S)

    def __enter__(self) -> HeldLock:
        super().__enter__()
        if not self.is_held:
            raise UserError("the project is busy", "try again in a second")
        return self


def must_write(path: str, content: str) -> None:
    if not write_atomically(path, content, mode=0o644):
        raise UserError("cannot write " + path, "check its owner and permissions")


def duration(text: str) -> int:
    """The seconds of 90, 90s, 30m, 2h or 1d."""
    match = re.fullmatch(DURATION, text)
    if not match:
        raise ValueError(text)
    return int(match[1]) * UNITS_S[match[2]]


def choose(names: list, prefix: str) -> str:
    """The one name that begins so."""
    found = [name for name in names if name.startswith(prefix)]
    if len(found) != 1:
        known = ", ".join(names[:5]) or "none yet"
        raise UserError("say which one", "there are: " + known)
    return found[0]


def choose_session(project: Project, prefix: str) -> str:
    known = [session.id for session in all_sessions(project)]
    return choose(known, prefix)


# --- the commands


def show_status(here: Here, options: object) -> None:
    if options.all:
        places = all_projects(here.env)
    else:
        need_project(here)
        places = [here]
    if options.json:
        data = [status_data(place) for place in places]
        told = data if options.all else data[0]
        print(json.dumps(told, indent=1, default=session_data))
        return
    for place in places:
        print_page(status_page(place))


def all_projects(env: dict) -> list:
    """The user's projects, those with a context folder still there."""
    home = os.path.join(state_home(env), "ctx_hooks")
    names = os.listdir(home) if os.path.isdir(home) else []
    found = []
    for name in sorted(names):
        root = read_text(os.path.join(home, name, "root"))
        here = Here(root, env)
        if here.project and here.project.root == root:
            found.append(here)
    return found


def show_why(here: Here, options: object) -> None:
    rows = read_events(need_project(here))
    for row in rows[max(0, len(rows) - options.count) :]:
        print(describe_decision(here, row))
    if not rows:
        print("Nothing was said or decided here yet; silence is not recorded.")


def run_handoff(here: Here, options: object) -> None:
    """show, now, list, drop"""
    project = need_project(here)
    run = here.run(Session())
    with HeldLock(project):
        update_others(run)  # as the next start would
        if options.action == "now":
            make_now(here, options.session)
        elif options.action == "drop":
            name = choose(waiting_handoffs(run), options.session)
            take_handoff(project, name)
            note = "taken away; for some days it is kept in handoffs/delivered/"
            print_page([note + name])
        elif options.action == "list":
            print_page(row_lines(handoff_rows(here, here.runs())))
        else:
            text = startup_text(run, choose_handoff(run, "startup"), "startup")
            print(re.sub(CONTROL, "", text) or "No handoff waits for the next session.")


def make_now(here: Here, prefix: str) -> None:
    """Make a handoff of the newest session, or of the one that is named."""
    runs = {run.session.id: run for run in here.runs()}
    known = list(runs)
    run = runs[choose(known if prefix else known[:1], prefix)]
    session = run.session
    if not make_handoff(run, session, here.now):
        what = "session %s did no work yet" % session.id
        raise UserError(what, "a handoff is made of edits and commands")
    save_session(here.project, session)
    print(handoff_path(here.project, session.id))


def send_signal(here: Here, options: object) -> None:
    project = need_project(here)
    folder = project.path("signals", "global")
    if options.session:
        session_id = choose_session(project, options.session)
        folder = project.path("signals", "sessions", safe_name(session_id))
    if not options.text.strip():
        raise UserError("the signal says nothing", "say what is wrong → what to do")
    prepare_folders(project)  # git is to ignore the file
    path = os.path.join(folder, "signal-%x.md" % time.time_ns())
    content = SIGNAL_FILE % (
        options.severity,
        options.ttl,
        options.code,
        options.text,
    )
    must_write(path, content)
    listener = listener_of(path)
    least = project.settings["monitor.inject_min_severity"]
    if SEVERITIES.index(options.severity) < SEVERITIES.index(least):
        listener = "`status` alone"
    print("for %s, until %s" % (listener, here.clock(here.now + options.ttl)))


def pause(here: Here, options: object) -> None:
    project = need_project(here)
    until = 0.0
    when = "you run " + kit_call("resume")
    if options.time:
        until = here.now + options.time
        when = here.clock(until)
    must_write(project.state("paused"), "%d\n" % until)
    print("all hooks in %s are silent until %s" % (project.root, when))


def resume(here: Here, options: object) -> None:
    path = need_project(here).state("paused")
    was_paused = os.path.exists(path)
    remove_file(path)
    note = " again" if was_paused else "; there was no pause"
    print("the hooks are on" + note)


def run_auto(here: Here, options: object) -> None:
    """start, status, resume, stop"""
    project = need_project(here)
    if options.session:
        options.session = choose_session(project, options.session)
    run = here.run(Session())
    flow = None
    if options.action == "start":
        flow = new_workflow(run, options)
    elif options.action == "resume":
        flow = old_workflow(project)
    if flow and not options.agree:
        options.agree = person_agrees(plan_checks(run, flow, options))
    with HeldLock(project):
        if flow:
            publish(run, flow, options)
        elif options.action == "stop":
            cancel_workflow(run)
    print_page(workflow_lines(here))


def person_agrees(commands: list) -> bool:
    """Ask a person in a terminal for checks that they did not type."""
    if not commands or not sys.stdin.isatty():
        return False
    print_page(["  " + command for command in commands])
    answer = input("May these commands run as checks? [y/N] ")
    return answer.strip().lower() in ("y", "yes")


def run_doctor(here: Here, options: object) -> int:
    rows = diagnose(here)
    print_page(row_lines(rows))
    return int(any(FAIL in row for row in rows))


def show_statusline(here: Here, options: object) -> None:
    """One line from the client's JSON on stdin; nothing for what the hooks ignore."""
    data = parse_object(sys.stdin.buffer.read(STDIN_LIMIT_BYTES))
    folder = text_of(dig(data, "workspace.project_dir"))
    session_id = text_of(data.get("session_id"))
    here = Here(folder, here.env)
    if not here.project:
        return
    session = load_session(here.project, session_id)
    if session.agent not in DIALECTS:
        return
    size = count_of(dig(data, "context_window.context_window_size"))
    if size not in (0, session.window_told):  # the client tells it nowhere else
        with HeldLock(here.project):
            session = load_session(here.project, session.id)
            session.window_told = size
            save_session(here.project, session)
    used = claude_tokens(dig(data, "context_window.current_usage"))
    session.facts.tokens = used or session.facts.tokens
    full = fullness(here.run(session))
    line = "ctx " + full.shown()
    if session.threshold_crossed_at:
        line += " · handoff " + handoff_state(session)
    print_page([line])


def show_version(here: Here, options: object) -> None:
    import hashlib

    content = read_bytes(__file__, STATE_LIMIT_BYTES)
    sha256 = hashlib.sha256(content).hexdigest()
    print("ctx_hooks %s\nsha256 %s" % (VERSION, sha256))


# --- the command line

COMMANDS = {  # its function, and what it is for
    "status": (show_status, "sessions, handoffs, signals, workflow, problems"),
    "why": (show_why, "what was said and decided last, and why"),
    "handoff": (run_handoff, "what the next session gets; make or drop one"),
    "signal": (send_signal, "tell the agents something while they work"),
    "auto": (run_auto, "keep the agent at work until a task is done"),
    "pause": (pause, "switch the hooks off in this project"),
    "resume": (resume, "end a pause"),
    "doctor": (run_doctor, "what can keep the hooks from working, and what to do"),
    "statusline": (show_statusline, "a line for the status line of Claude Code"),
    "wrap": (run_wrap, "run an agent that has no hooks: wrap -- aider"),
}
FLAG = {"action": "store_true"}
TEXT = {"default": ""}
OPTIONAL = {"default": "", "nargs": "?"}
HANDOFF_ACTION = {
    "choices": ("show", "now", "list", "drop"),
    "default": "show",
    "nargs": "?",
}
VERSION_FLAG = {"action": "store_const", "dest": "run", "const": show_version}
OPTIONS = (  # of which command, its name, what it is for, its kind
    ("", "--version", "and the file's sha256", VERSION_FLAG),
    ("status", "--json", "for scripts", FLAG),
    ("status", "--all", "all your projects", FLAG),
    ("why", "count", "10 unless told", {"type": int, "default": 10, "nargs": "?"}),
    ("handoff", "action", "", HANDOFF_ACTION),
    ("handoff", "session", "or how its id begins", OPTIONAL),
    ("signal", "text", '"what is wrong → what to do"', {}),
    ("signal", "--session", "only this one", TEXT),
    ("signal", "--severity", "", {"choices": SEVERITIES, "default": "warning"}),
    ("signal", "--ttl", "90s, 30m, 2h, 1d", {"type": duration, "default": "1d"}),
    ("signal", "--code", "a newer one of this code replaces it", TEXT),
    ("auto", "action", "", {"choices": ("start", "status", "resume", "stop")}),
    ("auto", "task", "start: what is to be done", OPTIONAL),
    ("auto", "--until", "done when this command exits 0", TEXT),
    ("auto", "--phase", "begin with this one", TEXT),
    ("auto", "--skip", "leave this phase out", {"action": "append", "default": []}),
    ("auto", "--session", "only this one", TEXT),
    ("auto", "--any", "a script's prompt counts, too", FLAG),
    ("auto", "--max-iterations", "", {"type": int, "default": MAX_ITERATIONS}),
    ("auto", "--agree", "to the checks of .contextrc", FLAG),
    ("pause", "--for", "30m, 2h", {"type": duration, "default": 0, "dest": "time"}),
    ("wrap", "--context", "a file to type instead of the handoff", TEXT),
    ("wrap", "--timeout", "seconds; default: 30", {"type": float, "default": 0.0}),
    ("wrap", "words", "", {"nargs": "*", "metavar": "-- CMD"}),
)


def make_parser() -> object:
    import argparse

    class Parser(argparse.ArgumentParser):
        def error(self, message: str) -> None:
            raise UserError(message, self.prog + " --help")

    parser = Parser(
        prog=kit_call("").strip(),
        description="Hooks that keep a coding agent on track.",
    )
    subparsers = parser.add_subparsers(title="commands", metavar="COMMAND")
    parsers = {"": parser}
    for name, (run, text) in COMMANDS.items():
        parsers[name] = subparsers.add_parser(name, help=text, description=text)
        parsers[name].set_defaults(run=run)
    for name, option, text, kind in OPTIONS:
        parsers[name].add_argument(option, help=text, **kind)
    return parser


def run_words(argv: list) -> int:
    """Run one command; its exit code. What follows -- is the command of `wrap`."""
    cut = argv.index("--") if "--" in argv else len(argv)
    words = argv[:cut] or ["--help"]
    options = make_parser().parse_args(words)
    options.command = argv[cut + 1 :]
    here = Here(os.getcwd(), dict(os.environ))
    return options.run(here, options) or 0


READER_HAS_GONE = (32, 22)  # EPIPE; Windows says EINVAL


def run_people(argv: list) -> int:
    """Run a person's command. It never exits with 2, which would mean "deny" to a
    client that runs it as a hook."""
    if sys.stdout is None:  # it was closed before the start
        sys.stdout = open(os.devnull, "w")
    sys.stdout.reconfigure(encoding="utf-8", errors="replace")
    try:
        try:
            return run_words(argv)
        finally:
            sys.stdout.flush()  # also after --help, which ends by an exception
    except UserError as error:
        what, hint = error.args
    except OSError as error:
        if error.errno in READER_HAS_GONE:  # it has seen enough
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            return 1
        what, hint = str(error), kit_call("doctor")
    except (KeyboardInterrupt, EOFError):  # ^C, or ^D at a question
        return 130
    sys.stderr.write("error: %s\nhint: %s\n" % (for_terminal(what), for_terminal(hint)))
    return 1


# =============================================================================
# Main
# =============================================================================
# The first word is a mode, for clients, or a command, for people. An unknown mode
# of a hook exits with 1: 2 would mean "deny" to the client.


def main(argv: list) -> int:
    if argv and argv[0] in HANDLERS:
        guarded_hook(argv[0], argv[1:])  # ends the process
    return run_people(argv)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
