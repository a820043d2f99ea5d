#!/usr/bin/env python3
''':'
# The launcher. `sh` runs the lines down to the next three quotes; Python skips
# them as a string. usage: sh ctx_hooks.py MODE [AGENT] [now]
# Calls in which nothing can happen are answered here, without starting Python.
mode=$1 agent=$2
case ${HOME:-} in /*) cache=$HOME/.cache ;; *) cache=/dev/null ;; esac
case ${XDG_CACHE_HOME:-} in /*) cache=$XDG_CACHE_HOME ;; esac
case ${LOCALAPPDATA:-} in ?:*) cache=$LOCALAPPDATA/ctx_hooks/cache ;; esac # Windows
cache=$cache/ctx_hooks

# 1. No context folder and no settings here or above: there is nothing to do.
case $agent in codex) dir=$PWD ;; *) dir=${CLAUDE_PROJECT_DIR:-$PWD} ;; esac
case $mode in inject | gate | monitor | stop-enforce | cleanup)
  [ -e "${XDG_CONFIG_HOME:-${HOME:-}/.config}/ctx_hooks/contextrc" ] && dir=
  while [ -n "$dir" ] && [ ! -d "$dir/.context" ] && [ ! -e "$dir/.contextrc" ]; do
    case $dir in
      /*/* | [!/]*/*) dir=${dir%/*} ;;
      *\\*) dir= ;; # a Windows path: let Python look
      *) exit 0 ;;
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
      { IFS= read -r room; IFS= read -r one; IFS= read -r two; IFS= read -r three; } <"$calm"
      IFS= read -r tally <"$calm.tally"
      case $room in [1-9]) ;; *) room=0 ;; esac
      [ ${#tally} -lt "$room" ] && ! [ "$one" -nt "$calm" ] && ! [ "$two" -nt "$calm" ] &&
        ! [ "$three" -nt "$calm" ] && printf . 2>/dev/null >>"$calm.tally" && exit 0
    fi ;;
esac

# 4. Start Python: exactly this file, its bytecode in the user's own cache folder.
# The link there leads to the interpreter behind a version manager's slow `python3`.
python=$cache/python3
if [ -f "$python" ] && [ -x "$python" ]; then start() { exec "$python" "$@"; }
elif command -v python3 >/dev/null; then start() { exec python3 "$@"; }
elif command -v py >/dev/null; then start() { exec py -3 "$@"; }
else exit 127; fi
start -I -S -X utf8 -c '
import gc, sys
from _frozen_importlib_external import SourceFileLoader
gc.disable()  # a run is over before there is anything to collect
file, sys.pycache_prefix = sys.argv.pop(1), sys.argv.pop(1)
code = SourceFileLoader("ctx_hooks", file).get_code("ctx_hooks")
sys.pycache_prefix = None
exec(code, {"__name__": "__main__", "__file__": file})' "$0" "$cache/bytecode" "$@"
'''
from __future__ import annotations

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
object. It never blocks a tool or a prompt. It uses no network. It starts no
process except `git status`, when it makes a handoff, and a check command that
the person agreed to. It creates nothing where there is no context folder, and
it ends after 4 seconds. When in doubt it says nothing.

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

VERSION = "0.3.0"


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
# The line of a run: read the event, find the project, take its lock, load the
# session, look at the transcript, let the mode's handler add what it has to say,
# print, save, unlock. Printed before it is saved: a hook that is killed in
# between says a thing twice, and loses nothing.

DEADLINE_S, DEADLINE_CLEANUP_S = 4.0, 1.2
STDIN_LIMIT_BYTES, PIPE_BYTES = 32_000_000, 65_536


class Run:
    """One run of a hook: what its handlers work with."""

    error_log: str = ""  # where an internal error is noted, once the project is known

    def __init__(self, event: Event, project: Project, env: dict, now: float) -> None:
        self.event = event
        self.project = project
        self.env = env
        self.now = now
        self.session = Session()
        self.reply = Reply(event)
        self.check: Check | None = None  # a command that has to pass before a stop
        self.is_first = False  # nothing was known of this project before


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
        if run.is_first:
            remove_old_state(project)
        HANDLERS[mode](run)
        if run.check is None:
            return speak_and_save(run)
    result = run_check(run.check, run.project.root, run.env)  # outside the lock
    with ProjectLock(project, wait_s) as lock:
        if not lock.is_held:
            return let_go_without_lock(run)
        judge_check(run, result)
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
    session.stopped_at = 0.0
    if event.agent == "claude":
        session.client_pid = run.env.get("CLAUDE_PID", "")
    session.model = event.model or session.model
    if event.transcript_path and event.transcript_path != session.transcript:
        session.transcript = event.transcript_path
        session.offset = 0
        session.facts = Facts()
    look_at(session, event)


def speak_and_save(run: Run) -> None:
    """Print the reply, then book what was said, then save."""
    text = render_reply(run.event, run.reply, run.env)
    if text:
        sys.stdout.write(text + "\n")
        sys.stdout.flush()
    if run.event.is_known:
        for action, args in run.reply.said_actions:
            action(*args)
    save_session(run.project, run.session)
    write_calm(run)
    link_interpreter(run.project)


def let_go_without_lock(run: Run) -> None:
    """Another hook holds the lock. A workflow's stop is let go, and the person is told."""
    if run.event.name == "Stop" and read_workflow(run.project).is_running:
        run.reply.tell("ctx: the project was busy; this stop was not judged")
        sys.stdout.write(render_reply(run.event, run.reply, run.env) + "\n")


def link_interpreter(project: Project) -> None:
    """Let the launcher find the real interpreter behind a version manager's shim."""
    link = os.path.join(project.cache, "python3")
    if not project.cache or os.name == "nt" or os.access(link, os.X_OK):
        return
    draft = "%s.tmp-%d" % (link, os.getpid())
    try:
        os.makedirs(project.cache, mode=0o700, exist_ok=True)
        os.symlink(os.path.realpath(sys.executable), draft)
        os.replace(draft, link)
    except OSError:
        remove_file(draft)  # read-only: `python3` is found by its name every time


def read_event() -> object:
    """The JSON object on stdin, as soon as it is complete; None if there is none.

    Some clients never close the pipe. A terminal is no input.
    """
    if sys.stdin is None or sys.stdin.isatty():
        return None
    descriptor, data, tried = sys.stdin.fileno(), bytearray(), 0
    while len(data) < STDIN_LIMIT_BYTES:
        piece = os.read(descriptor, PIPE_BYTES)
        data += piece
        is_drained = len(piece) < PIPE_BYTES or len(data) > 2 * tried
        may_be_whole = is_drained and piece.rstrip().endswith(b"}")
        if may_be_whole or not piece:
            value, tried = parse_object(data), len(data)
            if value or not piece:
                return value or None
    return None


# --- the fail-open boundary


def guarded_hook(mode: str, words: list) -> None:
    """Run a hook so that whatever goes wrong ends in silence and exit 0."""
    if sys.stdout is None:
        os._exit(0)  # closed: nobody would hear us
    now, env = time.time(), dict(os.environ)
    start_deadline(DEADLINE_CLEANUP_S if mode == "cleanup" else DEADLINE_S)
    try:
        run_hook(mode, words, env, now)
        sys.stdout.flush()
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
    line = for_terminal("%s in %s: %s" % (type(error).__name__, place, error))[:500]
    if Run.error_log:
        append_line(Run.error_log, format_iso(now) + " " + line, ERRORS_LIMIT_BYTES)
    if sys.stderr is not None:  # closed: another file may have its number
        os.write(2, ("ctx_hooks: %s\n" % line).encode("ascii", "replace"))


# =============================================================================
# Modes
# =============================================================================
# What happens at each event. A handler gets the run, adds to its reply and returns.
# It never prints, locks, reads the clock or the environment.


def inject(run: Run) -> None:
    """SessionStart: what the last session left. UserPromptSubmit: pending signals."""
    notice_compaction(run)
    if run.event.name == "SessionStart":
        start_session(run)
    follow_delivery(run)
    brief(run)
    if run.event.name == "UserPromptSubmit":
        add_signals(run, [])


def gate(run: Run) -> None:
    """PreToolUse: once a session, the context files to read."""
    notice_compaction(run)
    add_gate(run)


def monitor(run: Run) -> None:
    """PostToolUse: fullness, alerts, signals. PreCompact: pin the person's words."""
    if run.event.name == "PreCompact":
        return before_compaction(run)
    notice_compaction(run)
    follow_delivery(run)
    if "PreToolUse" not in DIALECTS[run.event.agent].registered:
        add_gate(run)
    full = fullness(run)
    is_reminding = add_reminder(run, full)
    alerts = run_auditors(run, full, is_reminding)
    add_signals(run, alerts)


def before_compaction(run: Run) -> None:
    """The context is about to be summarised: leave a handoff, pin the person's words."""
    if not run.project.settings["handoff.enabled"]:
        return
    make_handoff(run.project, run.session, run.now)
    if run.event.agent == "claude":
        run.reply.plain = clean_text(render_pins(run.session.facts))


def stop_enforce(run: Run) -> None:
    """Stop: save a printed handoff; in auto mode, go on until the phase is complete."""
    run.session.stopped_at = run.now
    notice_compaction(run)
    follow_delivery(run)
    save_printed(run)
    notice_handoff(run)
    enforce_stop(run)
    if run.reply.is_hold:
        run.session.stopped_at = 0.0


def cleanup(run: Run) -> None:
    """SessionEnd: bring the handoff up to date; the session's runtime files go."""
    if run.event.reason == "resume":
        return
    session = run.session
    session.ended_at = run.now
    session.end_reason = run.event.reason
    notice_handoff(run)
    settle_delivery(run.project, session)
    make_handoff(run.project, session, run.now)
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
# text in the transcript, or the agent's acknowledgement. Without evidence it is
# sent again, then written into the client's instruction file.

UPDATE_LIMIT_S = 1.0
BUSY_S, BUSY_CALL_S = 600, 7200
KEPT_S = 7 * 86400
SWEEP_EVERY_S = 3600
LEFTOVER = r"\.(?:json|md)\.(?:tmp-\d+|corrupt)$"  # of a write that was killed
MOST_ATTEMPTS = 5
OFFER = "It is offered, not ordered: if you are asked for something else, leave it."
ACK_FRAME = (
    "[CONTEXT INJECTION - Please acknowledge receipt]\n%s\n\n"
    '[END CONTEXT - Reply "ACK: context received" to confirm]'
)
FILE_NOTICE = "[System] Session context written to %s - please review"
LAST_NOTICE = "[System] The context of the last session is in %s, if you need it"
SECTION_BEGIN = "<!-- STARTUP_CONTEXT_INJECTION -->"
SECTION_END = "<!-- END_STARTUP_CONTEXT -->"
SECTION_HEAD = "## Session Context (Auto-Injected)"


def start_session(run: Run) -> None:
    """A session starts, goes on, or was compacted."""
    session, source = run.session, run.event.source
    if run.is_first:
        more = status_command(run.project)
        run.reply.tell("ctx: hooks are on; %s shows more" % more)
    if source in ("resume", "fork"):
        if session.facts.tool_calls:
            claim_marker(run)  # the gate has spoken in this conversation
        return
    if source == "compact":
        make_handoff(run.project, session, run.now)
    else:
        session.branch, session.commit = read_head(run.project.root)
        sweep(run)
        update_others(run)
    was_told = session.delivery.state == "sent" and session.delivery.source == source
    if not run.project.settings["startup.enabled"] or was_told:
        return  # some clients tell a start twice
    name = choose_handoff(run, source)
    text = startup_text(run, name, source)
    session.delivery = Delivery({"source": source, "handoff": name, "text": text})
    session.facts.received = ""
    if text:
        session.delivery.state = "owed"
        session.delivery.head = text.split("\n")[0]


def status_command(project: Project) -> str:
    """How a person asks for more, as it can be pasted in the project's folder."""
    kit = os.path.abspath(__file__)
    if os.path.isdir(os.path.join(os.path.dirname(kit), ".claude-plugin")):
        return "/ctx-hooks:status"
    return "'%s' status" % kit if " " in kit else project.relative(kit) + " status"


# --- which handoff


def choose_handoff(run: Run, source: str) -> str:
    """The name of the handoff for this session; "" if none waits."""
    own = os.path.basename(handoff_path(run.project, run.session.id))
    if source == "compact":
        return own if read_handoff(run.project.path("handoffs", own)) else ""
    waiting = [name for name in waiting_handoffs(run) if name != own]
    cleared = just_cleared(run) if source == "clear" else ""
    if cleared in waiting:
        return cleared
    return waiting[0] if waiting else ""


def waiting_handoffs(run: Run) -> list:
    """The names of the handoffs that may be delivered, the newest first."""
    max_age_s = run.project.settings["startup.max_age_hours"] * 3600
    found = []
    for path, written_at in list_files(run.project.path("handoffs"), ".md"):
        name = os.path.basename(path)
        is_fresh = run.now - written_at <= max_age_s
        if is_fresh and not is_busy(writer_of(run.project, name), run.now) and read_handoff(path):
            found.append(name)
    return found


def writer_of(project: Project, name: str) -> Session:
    """The session that a handoff belongs to; an empty one if we know none."""
    stem = name[: -len(".md")]
    return Session(read_object(project.state("session-%s.json" % stem)))


def just_cleared(run: Run) -> str:
    """The handoff of the session that this client process cleared last."""
    last = Session()
    for other in all_sessions(run.project):
        is_ours = other.end_reason == "clear" and other.client_pid == run.session.client_pid
        if is_ours and other.client_pid and other.ended_at > last.ended_at:
            last = other
    return os.path.basename(handoff_path(run.project, last.id)) if last.id else ""


def is_busy(session: Session, now: float) -> bool:
    """Whether a session is at work: its transcript grows, or a call waits for its result."""
    is_at_rest = not session.id or session.ended_at or session.stopped_at
    if is_at_rest or is_gone(session.client_pid):
        return False
    waits_for_call = any(not call["outcome"] for call in session.facts.calls)
    quiet_s = now - max(modified_at(session.transcript), session.seen_at)
    return quiet_s < (BUSY_CALL_S if waits_for_call else BUSY_S)


def is_gone(pid: str) -> bool:
    """Whether a client's process has ended; where that is not known, it runs."""
    if not pid.isdigit() or os.name == "nt":
        return False
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):
        pass  # another user's
    return False


def update_others(run: Run) -> None:
    """Bring the handoffs of other sessions up to date: a killed one had no end."""
    deadline = time.monotonic() + UPDATE_LIMIT_S
    for other in all_sessions(run.project):
        if time.monotonic() > deadline:
            break
        has_grown = size_of(other.transcript) > other.handoff_offset
        is_other = other.id != run.session.id and other.agent in DIALECTS
        if not is_other or not has_grown:
            continue
        look(other)
        if is_gone(other.client_pid) or run.now - other.seen_at > BUSY_S:
            settle_delivery(run.project, other)
        if not is_busy(other, run.now):
            make_handoff(run.project, other, modified_at(other.transcript))
        save_session(run.project, other)


# --- the text


def startup_text(run: Run, name: str, source: str) -> str:
    """Everything that this session gets at its start, within its budget; "" if nothing."""
    budget = int(min(run.project.settings["startup.budget_chars"], REPLY_LIMIT - 400))
    rest = cut_end(startup_files(run), budget // 2)
    texts = [rest] if rest else []
    if name:
        head = clean_text(handoff_head(run, name, source))
        room = budget - len(head) - len(rest) - 4  # for the blank lines between
        path = run.project.path("handoffs", name)
        texts.insert(0, head + "\n\n" + fit_handoff(clean_text(read_handoff(path)), room))
    elif rest:
        texts.insert(0, "Context for this session (ctx_hooks, %s):" % format_iso(run.now))
    text = "\n\n".join(texts)
    wants_ack = BOOLEANS.get(run.project.settings["startup.require_ack"], False)
    return ACK_FRAME % text if text and wants_ack else text


def handoff_head(run: Run, name: str, source: str) -> str:
    """Where the handoff comes from, how old it is, and what is different now."""
    path = run.project.path("handoffs", name)
    writer = writer_of(run.project, name)
    label = DIALECTS[writer.agent].label if writer.agent in DIALECTS else "an unknown writer"
    age = format_age(run.now - modified_at(path))
    if source == "compact":
        lines = ["Your own handoff from before the compaction (%s), %s old." % (name, age)]
    else:
        lines = ["Handoff of the session before this one (%s), left by %s %s ago." % (name, label, age)]
        lines.append(OFFER)
    moved = describe_move(writer, run.session)
    others = [other for other in waiting_handoffs(run) if other != name]
    if moved:
        lines.append(moved)
    if writer.began_with and source != "compact":
        kept = run.project.relative(run.project.path("handoffs", "delivered"))
        lines.append("That session began with the handoff %s, kept in %s." % (writer.began_with, kept))
    if others and source != "compact":
        lines.append("Also waiting in the same folder: %s." % ", ".join(others[:5]))
    return "\n".join(lines)


def describe_move(writer: Session, session: Session) -> str:
    """How branch and commit differ from then; "" if they do not."""
    then = "%s at %s" % (writer.branch, writer.commit)
    now = "%s at %s" % (session.branch, session.commit)
    if not writer.branch or not session.branch or then == now:
        return ""
    return "The working tree is on %s now; it was on %s then." % (now, then)


def fit_handoff(text: str, room: int) -> str:
    """Cut to its room; what happened since stays whole as long as it can."""
    body, since = split_handoff(text)
    since = cut_end(since, room * 2 // 3)
    body = cut_middle(body, room - len(since) - 2)
    return body + "\n\n" + since if since else body


def startup_files(run: Run) -> str:
    """The texts of `startup.files`."""
    texts = []
    for name in run.project.settings["startup.files"]:
        path = os.path.join(run.project.root, name)
        text = read_text(path) if may_be_delivered(run.project, path) else ""
        if says_something(text):
            texts.append("## %s\n\n%s" % (name, clean_text(text).strip()))
    return "\n\n".join(texts)


# --- the delivery


def follow_delivery(run: Run) -> None:
    """Look for evidence; send what is owed; send again what left no trace."""
    delivery = run.session.delivery
    if delivery.state == "sent":
        evidence = find_evidence(run)
        if evidence:
            return end_delivery(run, evidence)
        if is_retry_due(run):
            retry(run)
    elif delivery.state == "owed" and may_send(run.event):
        send(run, delivery.text)


def may_send(event: Event) -> bool:
    """Not at a Stop, which the text would hold; nor in a client that we do not know with
    every event, because there nothing is booked."""
    is_start = event.name == "SessionStart"
    return can_speak(event) and event.name != "Stop" and (event.is_known or is_start)


def find_evidence(run: Run) -> str:
    """What proves that the text arrived; "" if nothing does yet."""
    facts, delivery = run.session.facts, run.session.delivery
    if facts.received == delivery.head:
        return "receipt"
    if facts.acknowledged_at > format_iso(delivery.first_at):
        return "acknowledgement"
    has_answered = facts.answer != delivery.answer
    return "answer" if has_answered and not run.reply.dialect.has_receipts else ""


def is_retry_due(run: Run) -> bool:
    """Whether the agent answered without a trace of our text, and the wait is over."""
    delivery = run.session.delivery
    is_prompt = run.event.name == "UserPromptSubmit" and run.event.is_typed
    has_answered = run.session.facts.answer != delivery.answer
    backoffs = run.project.settings["startup.retry_backoffs_s"] or [1.0]
    wait_s = backoffs[min(delivery.attempts, len(backoffs)) - 1]
    is_waiting = 0 <= run.now - delivery.sent_at < wait_s
    return is_prompt and has_answered and not is_waiting


def send(run: Run, text: str) -> None:
    """One attempt. The handoff is taken, and the person is told."""
    if not run.reply.add(text):
        return
    run.reply.when_said(note_sent, run)
    delivery = run.session.delivery
    if delivery.attempts == 0 and delivery.handoff:
        path = run.project.path("handoffs", delivery.handoff)
        clock = format_clock(modified_at(path), run.now)
        lines = len(read_handoff(path).splitlines())
        run.reply.tell("ctx: handoff of %s delivered, %d lines" % (clock, lines))


def note_sent(run: Run) -> None:
    """The text is out: book it, and take the handoff so that nobody else gets it."""
    delivery = run.session.delivery
    delivery.state = "sent"
    delivery.attempts += 1
    delivery.first_at = delivery.first_at or run.now
    delivery.sent_at = run.now
    delivery.answer = run.session.facts.answer
    count_metric(run.project, "attempted")
    record(run, "injection:attempted", handoff=delivery.handoff, attempt=delivery.attempts)
    if delivery.handoff and delivery.source != "compact":
        take_handoff(run.project, delivery.handoff)
        run.session.began_with = delivery.handoff


def take_handoff(project: Project, name: str) -> None:
    move_handoff(project.path("handoffs", name), project.path("handoffs", "delivered", name))


def give_back(project: Project, name: str) -> None:
    """Let it wait again, unless a newer one of the same session does."""
    target = project.path("handoffs", name)
    if not os.path.lexists(target):
        move_handoff(project.path("handoffs", "delivered", name), target)


def move_handoff(source: str, target: str) -> None:
    try:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        replace_file(source, target)
    except OSError:
        pass  # read-only: it stays, and the next session is offered it, too


def end_delivery(run: Run, evidence: str) -> None:
    """There is evidence: count it, and tidy up what was kept for another attempt."""
    delivery = run.session.delivery
    delivery.state = "done"
    delivery.text = ""
    is_first_try = delivery.attempts == 1
    name = "succeededOnFirstTry" if is_first_try else "succeededAfterRetry"
    count_metric(run.project, name, delivery.attempts, run.now - delivery.first_at)
    record(run, "injection:succeeded", evidence=evidence, attempts=delivery.attempts)
    remove_section(instruction_path(run.project, run.session))


def retry(run: Run) -> None:
    """Send it again; after some attempts through the instruction file; then give up."""
    delivery, settings = run.session.delivery, run.project.settings
    if delivery.attempts >= MOST_ATTEMPTS:
        path = run.project.path("handoffs", "delivered", delivery.handoff)
        if delivery.escalated:
            path = instruction_path(run.project, run.session)
        run.reply.add(LAST_NOTICE % run.project.relative(path))
        delivery.state = "failed"
        count_metric(run.project, "failed")
        record(run, "injection:failed", attempts=delivery.attempts)
    elif delivery.attempts >= settings["startup.file_fallback_after_attempts"]:
        escalate(run)
    else:
        send(run, delivery.text)


def escalate(run: Run) -> None:
    """The text goes into the client's instruction file; agent and person are told once."""
    delivery = run.session.delivery
    path = instruction_path(run.project, run.session)
    if not delivery.escalated and write_section(path, delivery.text):
        delivery.escalated = True
        name = run.project.relative(path)
        run.reply.tell("ctx: the agent seems not to get the handoff; it is in %s now" % name)
        count_metric(run.project, "escalatedToFile")
        record(run, "injection:escalated", file=name)
        send(run, FILE_NOTICE % name)
    else:
        send(run, delivery.text)


def settle_delivery(project: Project, session: Session) -> None:
    """At a session's end: without evidence, or without work, the handoff is given back."""
    delivery = session.delivery
    if delivery.state == "sent" and session.facts.received == delivery.head:
        delivery.state = "done"
    was_taken = delivery.handoff and delivery.source != "compact"
    arrived = delivery.state == "done"
    if was_taken and not (arrived and did_work(session.facts)):
        give_back(project, delivery.handoff)
        session.began_with = ""
    if delivery.escalated:
        remove_section(instruction_path(project, session))
    session.delivery = Delivery()  # a resumed session is sent nothing again


# --- the instruction file


def instruction_path(project: Project, session: Session) -> str:
    told = project.settings["startup.fallback_file"]
    dialect = DIALECTS.get(session.agent, Dialect())
    return os.path.join(project.root, told or dialect.instruction_file)


def write_section(path: str, body: str) -> bool:
    """Put our section at the end of the file; text outside stays byte for byte."""
    is_other = os.path.lexists(path) and not os.path.isfile(path)
    if os.path.islink(path) or is_other or size_of(path) > STATE_LIMIT_BYTES:
        return False
    before = without_section(read_bytes(path, STATE_LIMIT_BYTES))
    for mark in (SECTION_BEGIN, SECTION_END):
        body = body.replace(mark, "")
    section = "\n%s\n%s\n\n%s\n\n%s\n" % (SECTION_BEGIN, SECTION_HEAD, body, SECTION_END)
    return write_atomically(path, before + section.encode("utf-8", "replace"), mode_of(path))


def without_section(content: bytes) -> bytes:
    """A file's content without our section; a merge may have left two."""
    section = "\n?%s.*?%s\n?" % (SECTION_BEGIN, SECTION_END)
    return re.sub(section.encode(), b"", content, flags=re.DOTALL)


def remove_section(path: str) -> None:
    """Take our section out again; a file that held nothing else goes."""
    content = read_bytes(path, STATE_LIMIT_BYTES)
    rest = without_section(content)
    if os.path.islink(path) or rest == content or size_of(path) > STATE_LIMIT_BYTES:
        return
    if rest:
        write_atomically(path, rest, mode_of(path))
    else:
        remove_file(path)


def mode_of(path: str) -> int:
    """The permissions of the person's file; those of a new one if there is none."""
    return os.stat(path).st_mode & 0o777 if os.path.exists(path) else 0o644


# --- what sessions leave behind


def remove_runtime_files(project: Project, session: Session, env: dict) -> None:
    """A session's signals, marker, launcher files and alerts."""
    folder = project.path("signals", "sessions", safe_name(session.id))
    for path, _ in list_files(folder, ""):
        remove_file(path)
    remove_folder(folder)
    remove_file(marker_path(session.id, env))
    remove_calm(project, session)
    forget_alerts(project, session.id)


def sweep(run: Run) -> None:
    """Remove what is older than 7 days; at most once an hour."""
    project, oldest = run.project, run.now - KEPT_S
    stamp = project.state("swept")
    if 0 <= run.now - modified_at(stamp) < SWEEP_EVERY_S:
        return
    write_atomically(stamp, "")
    remove_older(os.path.join(project.cache, "calm"), oldest, "")
    for folder in (project.home, project.context, project.path("handoffs")):
        remove_older(folder, oldest, LEFTOVER)
    for path, _ in list_files(project.path("handoffs", "delivered"), ""):
        if os.stat(path).st_ctime < oldest:  # that is when it was moved there
            remove_file(path)
    for path, written_at in list_files(project.path("handoffs"), ".md"):
        if written_at < oldest:  # nobody took it; it is kept for another 7 days
            take_handoff(project, os.path.basename(path))
    for session in all_sessions(project, limit=5000):
        if session.seen_at < oldest:
            remove_runtime_files(project, session, run.env)
            remove_section(instruction_path(project, session))
            remove_file(session_path(project, session.id))


def remove_older(folder: str, oldest: float, pattern: str) -> None:
    for path, written_at in list_files(folder, ""):
        if written_at < oldest and re.search(pattern, path):
            remove_file(path)


def remove_old_state(project: Project) -> None:
    """Version 0.2.0 kept its state inside the context folder: once, that goes."""
    folder = project.path("state")
    ledger = read_object(os.path.join(folder, "handoffs.json"))
    if os.path.islink(folder) or not isinstance(ledger.get("handoffs"), dict):
        return
    for row in ledger["handoffs"].values():
        name = os.path.basename(text_of(dig(row, "file")))
        if name and dig(row, "evidence"):
            take_handoff(project, name)
    for path, _ in list_files(folder, "") + list_files(os.path.join(folder, "aside"), ""):
        if path.endswith((".json", ".lock", ".claims", ".statusline", ".log", "collected")):
            remove_file(path)
    remove_folder(os.path.join(folder, "aside"))
    remove_folder(folder)
    for name in ("metrics.json", "events.jsonl", "events.jsonl.1"):
        if read_bytes(project.path(name), 1) == b"{":
            remove_file(project.path(name))


# =============================================================================
# Calm
# =============================================================================
# After each look we know for how many calls nothing can happen. That number, and
# the paths whose change ends the calm, are left for the launcher, which counts one
# dot a call beside it:
#
#     <cache>/calm/<agent>-<session>         8, then three paths, a line each
#     <cache>/calm/<agent>-<session>.tally   a dot for each call that was answered

CALM_CALLS = 8
CALL_TOKENS_LEAST, CALL_TOKENS_MOST = 3_000, 10_000


def calm_path(project: Project, session: Session) -> str:
    return os.path.join(project.cache, "calm", "%s-%s" % (session.agent, session.id))


def is_plain_id(text: str) -> bool:
    """Whether the launcher takes this id as a file name: letters, digits, - and _."""
    letters = text.replace("-", "").replace("_", "")
    return letters.isascii() and letters.isalnum() and len(text) <= 100


def write_calm(run: Run) -> None:
    """Leave the number of calm calls, or take it away."""
    session = run.session
    if not run.project.cache or not is_plain_id(session.id):
        return
    path = calm_path(run.project, session)
    room = calm_calls(run) if run.event.name == "PostToolUse" else 0
    lines = [str(room)] + ends_of_calm(run.project, session)
    if room < 1 or "\n" in "".join(lines):
        return remove_calm(run.project, session)
    is_left = write_atomically(path + ".tally", "") and write_atomically(
        path, "\n".join(lines) + "\n"
    )
    if is_left:
        set_time(path, run.now - 1)  # old shells compare whole seconds


def ends_of_calm(project: Project, session: Session) -> list:
    """The paths whose change ends the calm."""
    return [
        project.path("signals", "global"),
        project.path("signals", "sessions", safe_name(session.id)),
        head_file(project.root),
    ]


def remove_calm(project: Project, session: Session) -> None:
    if project.cache and is_plain_id(session.id):
        path = calm_path(project, session)
        remove_file(path)
        remove_file(path + ".tally")


def calm_calls(run: Run) -> int:
    """For how many calls nothing can happen; 0 while something is pending."""
    full = fullness(run)
    if not full.is_known or not run.event.is_known or is_something_pending(run):
        return 0
    tokens_to_go = next_level(run, full) - full.tokens
    growth = growth_of_a_call(run.session.facts)
    tokens_a_call = min(max(growth, CALL_TOKENS_LEAST), CALL_TOKENS_MOST)
    return min(CALM_CALLS, tokens_to_go // tokens_a_call)


def is_something_pending(run: Run) -> bool:
    session = run.session
    is_handoff_owed = session.threshold_crossed_at and not session.handoff_complete
    is_delivery_open = session.delivery.state in ("owed", "sent")
    keys = [call["key"] for call in session.facts.calls[-3:] if call["key"]]
    is_repeating = len(set(keys)) < len(keys)
    has_spoken = bool(run.reply.texts)
    return bool(
        (is_handoff_owed and run.project.settings["handoff.enabled"])
        or is_delivery_open
        or is_repeating
        or has_spoken
        or read_workflow(run.project).is_running
    )


def next_level(run: Run, full: Fullness) -> int:
    """The tokens at which something will have to be said."""
    levels = [full.usable * level[0] // 100 for level in HEALTH_LEVELS]
    if not run.session.handoff_complete:
        levels.append(handoff_point(run.project.settings, full))
    above = [tokens for tokens in levels if tokens > full.tokens]
    return min(above) if above else full.tokens + CALM_CALLS * CALL_TOKENS_MOST


# =============================================================================
# Alerts
# =============================================================================
# An auditor is a function from a run to an alert or None, and a row of AUDITORS. An
# alert goes straight into the reply at hand. It is said when its level is crossed,
# not again inside its band, and again after its cooldown while it lasts.
# monitor-state.json remembers; keys are "<session>:<CODE>" or "global:<CODE>":
#
#     {"lastEmitted": {key: ISO}, "activeAlerts": {key: true},
#      "lastHealth": {"<session>": {"contextPercent": 87, "repetitionScore": 0.0}}}

HEALTH_LEVELS = (  # said at, cleared below, severity, what to do
    (95, 85, "critical", "Suggest /clear to the person now: the next messages may not fit"),
    (85, 75, "warning", "Finish the step you are at, then suggest /clear to the person"),
    (70, 60, "warning", "Keep answers short, and plan a good place to stop"),
)
REPETITION_SAID, REPETITION_CLEARED = 4.0, 2.0
FAILING_WEIGHT = 1.5  # a failing repeat counts more
REPETITION_ACTION = (
    "Stop and try a different approach; say what you expected and what happened instead"
)
TREE_MOVED = (
    "The working tree is on %s now; it was on %s, and no command of this session changed it."
)
TREE_ACTION = "Look at what is there before you go on"
AUDIT_ACTION = "Check that they still match the code, and update or confirm them"


class Alert:
    """What an auditor found. The first code is the one that is said."""

    def __init__(self, codes: list, severity: str, summary: str, action: str) -> None:
        self.codes = codes
        self.severity = severity
        self.text = "%s\n→ %s" % (summary, action)


def audit_health(run: Run, full: Fullness, active: list) -> Alert | None:
    """How full the context is; a jump over two levels says the higher."""
    over = []
    for level in HEALTH_LEVELS if full.is_known else ():
        is_in_band = level_code(level) in active and full.percent >= level[1]
        if full.percent >= level[0] or is_in_band:
            over.append(level)
    if not over:
        return None
    _, _, severity, action = over[0]
    note = "" if full.is_exact else " (estimated)"
    summary = "Context: %s full%s." % (full.shown(), note)
    return Alert([level_code(level) for level in over], severity, summary, action)


def level_code(level: tuple) -> str:
    return "CTX_HEALTH_%d" % level[0]


def audit_repetition(run: Run, full: Fullness, active: list) -> Alert | None:
    """The same call with the same outcome, again and again."""
    score, count, has_failed = repetition(run.session.facts)
    if score < (REPETITION_CLEARED if active else REPETITION_SAID):
        return None
    known = [call for call in run.session.facts.calls if call["key"]]
    how = " and failed the same way" if has_failed else ""
    summary = "Repetition: %d of the last %d tool calls did the same%s."
    summary = summary % (count, len(known), how)
    return Alert(["CTX_REPETITION"], "warning", summary, REPETITION_ACTION)


def repetition(facts: Facts) -> tuple:
    """(score, how many calls repeat, whether all of them failed) of the last calls.

    The same failure or the same edit twice counts, the same result three times.
    """
    keys = [call["key"] for call in facts.calls if call["key"]]
    score, repeating, all_failed = 0.0, 0, True
    for key in dict.fromkeys(keys):
        count = keys.count(key)
        has_failed = key.endswith("failed")
        is_strict = has_failed or key.startswith("edit")
        if count > (1 if is_strict else 2):
            score += (count - 1) * (FAILING_WEIGHT if has_failed else 1.0)
            repeating += count
            all_failed = all_failed and has_failed
    return score, repeating, all_failed and repeating > 0


def audit_files(run: Run, full: Fullness, active: list) -> Alert | None:
    """Context files that nobody has touched or read for long."""
    stale_days = run.project.settings["audit.stale_days"]
    files = [path for path in context_files(run.project) if os.path.isfile(path)]
    if not files or not stale_days or files_read(run, files):
        return None
    days = (run.now - max(map(modified_at, files))) / 86400
    if days < stale_days:
        return None
    names = ", ".join(os.path.basename(path) for path in files)
    summary = "Context files untouched for %d days: %s." % (days, names)
    return Alert(["CTX_AUDIT_DUE"], "warning", summary, AUDIT_ACTION)


def audit_tree(run: Run, full: Fullness, active: list) -> Alert | None:
    """The branch is another one, and no command of this session did that."""
    session = run.session
    before, moves_before = session.branch, session.moves_seen
    session.branch = read_branch(run.project.root)
    session.moves_seen = session.facts.tree_moves + session.facts.subagents
    was_moved_by_us = session.moves_seen != moves_before
    if not before or session.branch == before or was_moved_by_us:
        return None
    summary = TREE_MOVED % (session.branch, before)
    return Alert(["CTX_TREE_MOVED"], "warning", summary, TREE_ACTION)


# An auditor: its function, what its codes begin with, is it everybody's, cooldown.
AUDITORS = {
    "context-health": (audit_health, "CTX_HEALTH_", False, 900),
    "repetition": (audit_repetition, "CTX_REPETITION", False, 600),
    "audit-reminder": (audit_files, "CTX_AUDIT_DUE", True, 14_400),
    "tree-moved": (audit_tree, "CTX_TREE_MOVED", False, 0),
}


def run_auditors(run: Run, full: Fullness, is_reminding: bool) -> list:
    """The alerts to say now, as signals. Fullness is not said beside the reminder."""
    path = run.project.path("monitor-state.json")
    known = MonitorState(load_state(path))
    before = json.dumps(known.as_dict())
    score = repetition(run.session.facts)[0]
    health = {"contextPercent": full.percent, "repetitionScore": score}
    known.lastHealth[run.session.id] = health
    due = []
    for name, (audit, prefix, is_global, cooldown_s) in AUDITORS.items():
        scope = "global:" if is_global else run.session.id + ":"
        active = known.active_codes(scope, prefix)
        alert = audit(run, full, active)
        known.follow(scope, active, alert)
        is_beside = is_reminding and name == "context-health"
        if alert and not is_beside and known.may_say(run, alert.codes[0], cooldown_s):
            due.append(alert_as_signal(run, name, alert))
    if json.dumps(known.as_dict()) != before:
        write_object(path, known.as_dict())
    return due


class MonitorState(Record):
    """monitor-state.json"""

    lastEmitted: dict = {}
    activeAlerts: dict = {}
    lastHealth: dict = {}

    def active_codes(self, scope: str, prefix: str) -> list:
        start = len(scope)
        return [key[start:] for key in self.activeAlerts if key.startswith(scope + prefix)]

    def follow(self, scope: str, active: list, alert: Alert | None) -> None:
        """Set and clear what is active; below its band an alert is over."""
        codes = alert.codes if alert else []
        for code in active:
            if code not in codes:
                del self.activeAlerts[scope + code]
        for code in codes:
            self.activeAlerts[scope + code] = True

    def may_say(self, run: Run, code: str, cooldown_s: float) -> bool:
        """Whether the cooldown is over. A time in the future counts for nothing."""
        past_s = run.now - parse_iso(self.lastEmitted.get(run.session.id + ":" + code, ""))
        clock_went_back = past_s < 0
        return clock_went_back or past_s >= cooldown_s


def alert_as_signal(run: Run, auditor: str, alert: Alert) -> Signal:
    signal = Signal({"severity": alert.severity, "auditor": auditor, "body": alert.text})
    signal.code = alert.codes[0]
    signal.generated_at = run.now
    signal.when_said = (note_alert, run, alert)
    return signal


def note_alert(run: Run, alert: Alert) -> None:
    """An alert was said: its cooldown begins."""
    path = run.project.path("monitor-state.json")
    known = MonitorState(read_object(path))
    for code in alert.codes:
        known.lastEmitted[run.session.id + ":" + code] = format_iso(run.now)
    write_object(path, known.as_dict())
    record(run, "alert:said", code=alert.codes[0], text=alert.text)


def forget_alerts(project: Project, session_id: str) -> None:
    """A session is over: its keys go."""
    path = project.path("monitor-state.json")
    known = MonitorState(read_object(path))
    has_changed = False
    for table in (known.lastEmitted, known.activeAlerts, known.lastHealth):
        for key in list(table):
            if key == session_id or key.startswith(session_id + ":"):
                del table[key]
                has_changed = True
    if has_changed:
        write_object(path, known.as_dict())


# =============================================================================
# Handoff
# =============================================================================
# Every session that did work leaves a handoff, .context/handoffs/<session>.md, and
# it is never older than the work. Near the limit the agent is asked for one until
# it wrote one. Else the kit makes one from the facts. What happened after the
# agent wrote it is added below SINCE_HEAD, replaced each time.

HANDOFF_PERCENT, HANDOFF_TOKENS = 85, 400_000
HANDOFF_LIMIT_BYTES = 512_000
KIT_HEAD = "# Handoff, made by ctx_hooks from the transcript"
SINCE_HEAD = "## Since this handoff (added by ctx_hooks)"
REMINDER = """\
Context is {shown} full ({tokens:,} of {usable:,} usable tokens{note}). Write a handoff for the \
next session to {path} now, before anything else; where you may not write (plan mode), end your \
answer with it between a line BEGIN HANDOFF and a line END HANDOFF. Put there: goal · the \
person's own rules and corrections, word for word · state · decisions and why · what was tried \
and failed · how to verify · next steps · open files. This note comes with every tool result \
until there is a handoff."""
PRINTED = r"(?ms)^[\s*_#]*BEGIN HANDOFF[\s*_]*$\n(.*?)^[\s*_#]*END HANDOFF[\s*_]*$"
PIN_HEAD = "Keep these words of the person verbatim in the summary, and the rules they gave:"
PIN_LIMIT = 9_500


def handoff_path(project: Project, session_id: str) -> str:
    return project.path("handoffs", safe_name(session_id) + ".md")


def read_handoff(path: str) -> str:
    """A handoff's text; "" if it says nothing, is binary or a link."""
    content = b"" if os.path.islink(path) else read_bytes(path, HANDOFF_LIMIT_BYTES)
    text = content.decode("utf-8", "replace").lstrip("\ufeff").replace("\r\n", "\n")
    return text if b"\0" not in content and says_something(text) else ""


def split_handoff(text: str) -> tuple:
    """(the handoff itself, what the kit added)"""
    body, found, since = text.partition("\n" + SINCE_HEAD)
    return body.rstrip(), (SINCE_HEAD + since).strip() if found else ""


def body_mark(body: str) -> str:
    """Tells one content from another, without asking a clock; "" for none."""
    if not body:
        return ""
    import zlib

    return "%d-%d" % (len(body), zlib.crc32(body.encode("utf-8", "replace")))


def did_work(facts: Facts) -> bool:
    """An edit, or two calls that do more than look."""
    return facts.work >= 2


# --- the agent's own handoff


def agents_handoff(project: Project, session: Session) -> str:
    """The handoff that the agent wrote since the start or the last compaction, or ""."""
    adopt_old_prompt(project, session)
    body = split_handoff(read_handoff(handoff_path(project, session.id)))[0]
    known = (session.handoff_before, session.kit_mark)
    return body if body_mark(body) not in known else ""


def adopt_old_prompt(project: Project, session: Session) -> None:
    """Copy a handoff from where earlier tools put it, if it is new in this session."""
    text = read_handoff(os.path.join(project.root, OLD_HANDOFF))
    mark = body_mark(text)
    if text and mark != session.old_prompt_before:
        session.old_prompt_before = mark
        write_atomically(handoff_path(project, session.id), text)


def note_what_stood_there(project: Project, session: Session) -> None:
    """What stands in the handoff's file now is not the answer to the next reminder."""
    own = split_handoff(read_handoff(handoff_path(project, session.id)))[0]
    session.handoff_before = body_mark(own)
    old = read_handoff(os.path.join(project.root, OLD_HANDOFF))
    session.old_prompt_before = body_mark(old)


def save_printed(run: Run) -> None:
    """Save a handoff that the agent printed between its two lines."""
    found = re.findall(PRINTED, run.session.facts.said)
    if not found or not run.project.settings["handoff.enabled"]:
        return
    text = found[-1].strip() + "\n"
    path = handoff_path(run.project, run.session.id)
    is_same = split_handoff(read_handoff(path))[0] == text.strip()
    if says_something(text) and not is_same and write_atomically(path, text):
        run.session.facts.handoff_at = run.session.facts.said_at
        notice_handoff(run)


def notice_handoff(run: Run) -> bool:
    """Whether the agent has written its handoff; the person is told once."""
    session = run.session
    if session.handoff_complete:
        return True
    if not agents_handoff(run.project, session):
        return False
    session.handoff_complete = True
    session.handoff_noticed = session.facts.handoff_at or session.facts.answered_at
    if session.threshold_crossed_at:
        run.reply.tell("ctx: handoff written; /clear when you like, the next session starts from it")
    record(run, "handoff:written", path=run.project.relative(handoff_path(run.project, session.id)))
    return True


# --- the reminder


def handoff_point(settings: Settings, full: Fullness) -> int:
    """Tokens from which on a handoff is wanted."""
    automatic = min(full.usable * HANDOFF_PERCENT // 100, HANDOFF_TOKENS)
    told = settings["handoff.threshold"]
    if told == "auto":
        return automatic
    if told[-1] in "km":
        return min(automatic, as_tokens(told))
    return full.usable * int(told) // 100


def add_reminder(run: Run, full: Fullness) -> bool:
    """Ask for a handoff once the point is crossed; True if this reply does."""
    session, facts = run.session, run.session.facts
    can_be_written = os.access(run.project.context, os.W_OK)
    is_wanted = run.project.settings["handoff.enabled"] and full.is_known
    if not is_wanted or not can_be_written:
        return False
    is_written = notice_handoff(run)
    point = handoff_point(run.project.settings, full)
    if full.tokens < point:
        return False
    if not session.threshold_crossed_at:
        session.threshold_crossed_at = crossing_time(facts, point) or format_iso(run.now)
        record(run, "handoff:crossed", percent=full.percent)
    was_asked_in_this_answer = session.reminded_answer == facts.answer
    if is_written or was_asked_in_this_answer:
        return False
    if not run.reply.add(render_reminder(run, full)):
        return False
    make_folder(run.project.path("handoffs"))  # a shell makes none
    session.reminded_answer = facts.answer
    if not session.was_asked:
        session.was_asked = True
        run.reply.tell("ctx: context %s full, asked the agent for a handoff" % full.shown())
    record(run, "handoff:asked", percent=full.percent)
    return True


def crossing_time(facts: Facts, point: int) -> str:
    """The time of the answer that crossed the point, since the last compaction."""
    for row in facts.measured:
        if row[1] >= point and row[0] > facts.compacted_at:
            return row[0]
    return ""


def render_reminder(run: Run, full: Fullness) -> str:
    return REMINDER.format(
        shown=full.shown(),
        tokens=full.tokens,
        usable=full.usable,
        note="" if full.is_exact else ", estimated",
        path=handoff_path(run.project, run.session.id),
    )


def notice_compaction(run: Run) -> None:
    """After a compaction the handoff is wanted anew, and the gate and the briefing, too.

    The event may come before the compaction stands in the transcript.
    """
    session, count = run.session, run.session.facts.compactions
    if run.event.source == "compact":
        count = max(count, session.compactions_seen + 1)
    if count <= session.compactions_seen:
        return
    session.compactions_seen = count
    note_what_stood_there(run.project, session)
    session.threshold_crossed_at = ""
    session.handoff_complete = False
    session.reminded_answer = ""
    session.was_asked = False
    session.briefed = False
    remove_file(marker_path(session.id, run.env))


# --- the handoff that the kit makes


def make_handoff(project: Project, session: Session, now: float) -> bool:
    """Make the session's handoff, or bring the agent's own up to date. False if there
    is none to make: no work was done, or it cannot be written."""
    session.handoff_offset = session.offset
    if not project.settings["handoff.enabled"] or not did_work(session.facts):
        return False
    path = handoff_path(project, session.id)
    if size_of(path) > HANDOFF_LIMIT_BYTES:
        return True  # too long to be read whole: it stays as the agent wrote it
    body = split_handoff(read_handoff(path))[0]
    changed = changed_files(project.root)
    session.branch, session.commit = read_head(project.root)
    if body and body_mark(body) != session.kit_mark:
        since = max(session.handoff_noticed, session.facts.handoff_at)
        added = render_since(project, session, since, changed)
        text = body + "\n\n" + added if added else body + "\n"
    else:
        text = render_handoff(project, session, now, changed)
        session.kit_mark = body_mark(text.rstrip())
    is_written = write_atomically(path, text)
    if is_written:
        set_time(path, now)  # as old as the work, whatever clock the disk has
    return is_written


def render_handoff(project: Project, session: Session, now: float, changed: list) -> str:
    """A whole handoff from the facts, for somebody who was not there."""
    facts = session.facts
    where = " on %s at %s" % (session.branch, session.commit) if session.branch else ""
    label = DIALECTS[session.agent].label
    head = "The agent left none. Session %s in %s, until %s%s." % (
        session.id,
        label,
        format_iso(now),
        where,
    )
    if session.began_with:
        head += " It began with the handoff %s, kept in %s." % (
            session.began_with,
            project.relative(project.path("handoffs", "delivered")),
        )
    sections = [
        ("The person's requests, word for word", render_requests(facts.requests)),
        ("Todo list", render_todos(facts.todos)),
        ("Files edited", render_edited(project, facts.edited)),
        ("Uncommitted changes (git status)", render_changed(changed)),
        ("The last commands", render_commands(facts.commands)),
        ("The last command that failed", render_failure(facts)),
        ("Last verified", render_passed(facts)),
        ("What the agent said last", cut_middle(facts.said, 3000)),
    ]
    return hide_secrets(KIT_HEAD + "\n\n" + head + "\n\n" + render_sections(sections, "##"))


def render_since(project: Project, session: Session, since: str, changed: list) -> str:
    """What happened after the agent wrote its handoff; "" if nothing did."""
    facts = session.facts
    requests = [row for row in facts.requests if row[0] > since]
    if facts.worked_at <= since and not requests:
        return ""
    has_failed = facts.failed and facts.failed["at"] > since
    has_passed = facts.passed and facts.passed["at"] > since
    sections = [
        ("Later requests", render_requests(requests)),
        ("Todo list now", render_todos(facts.todos)),
        ("Files edited", render_edited(project, [row for row in facts.edited if row[1] > since])),
        ("Uncommitted changes (git status)", render_changed(changed)),
        ("Commands", render_commands([row for row in facts.commands if row[0] > since])),
        ("The last command that failed", render_failure(facts) if has_failed else ""),
        ("Last verified", render_passed(facts) if has_passed else ""),
        ("What the agent said last", cut_middle(facts.said, 2000) if facts.said_at > since else ""),
    ]
    text = render_sections(sections, "###")
    return hide_secrets(SINCE_HEAD + "\n\n" + text) if text else ""


def render_sections(sections: list, level: str) -> str:
    """Headings with text; none without something under it."""
    texts = ["%s %s\n\n%s\n" % (level, title, text) for title, text in sections if text]
    return "\n".join(texts)


def render_requests(requests: list) -> str:
    return "\n\n".join("> " + words.replace("\n", "\n> ") for _, words in requests)


def render_todos(todos: list) -> str:
    lines = []
    for status, text in todos:
        is_done = status in ("completed", "done")
        if text and status != "deleted":
            lines.append("- [%s] %s" % ("x" if is_done else " ", text))
    return "\n".join(lines)


def render_edited(project: Project, edited: list) -> str:
    return "\n".join("- " + project.relative(path) for path, _ in edited)


def render_changed(changed: list) -> str:
    return "\n".join("    " + line for line in changed)


def render_commands(commands: list) -> str:
    return "\n".join("    " + command for _, command in commands)


def render_failure(facts: Facts) -> str:
    if not facts.failed:
        return ""
    error = facts.failed["error"].replace("\n", "\n    ")
    text = "`%s`\n\n    %s" % (facts.failed["command"], error)
    if facts.tried:
        text += "\n\nSince then: " + ", ".join("`%s`" % command for command in facts.tried)
    return text


def render_passed(facts: Facts) -> str:
    if not facts.passed:
        return ""
    return "`%s` passed at %s" % (facts.passed["command"], facts.passed["at"])


def render_pins(facts: Facts) -> str:
    """What Claude Code's own summary is asked to keep at a compaction."""
    open_todos = [todo for todo in facts.todos if todo[0] not in ("completed", "done")]
    sections = [
        ("Still to do", render_todos(open_todos)),
        ("The last command that failed", render_failure(facts)),
    ]
    rest = hide_secrets(render_sections(sections, "##"))
    requests = hide_secrets(render_requests(facts.requests))
    if not requests and not rest:
        return ""
    room = PIN_LIMIT - len(PIN_HEAD) - len(rest)
    return PIN_HEAD + "\n\n" + cut_middle(requests, room) + "\n\n" + rest


# =============================================================================
# Gate
# =============================================================================
# Once a session, at the first tool call, the agent is told which context files to
# read. The marker in the temp folder says that it was told; the launcher looks at
# it, too. A compaction and /clear make the gate speak again.

GATE_TEXT = "STOP. Read your context files before proceeding: %s"
GATE_CHECKPOINT = (
    "When you have read them, say so in one line: Context Loaded — Read: … Skipped: …"
)


def add_gate(run: Run) -> None:
    """Say which files to read, unless that was said or there is nothing to read."""
    settings = run.project.settings
    if not claim_marker(run):
        return
    files = [path for path in context_files(run.project) if is_worth_reading(run.project, path)]
    read = files_read(run, files)
    unread = [path for path in files if path not in read]
    if settings["gate.mode"] == "off" or not unread:
        return
    names = unread  # an agent that stands elsewhere needs the whole paths
    if run.event.cwd in ("", run.project.root):
        names = [run.project.relative(path) for path in unread]
    text = GATE_TEXT % ", ".join(names)
    if settings["gate.checkpoint"]:
        text += "\n" + GATE_CHECKPOINT
    run.reply.add(text)
    record(run, "gate:said", files=[os.path.basename(path) for path in unread])


def context_files(project: Project) -> list:
    """The paths of `gate.files`."""
    return [project.path(name) for name in project.settings["gate.files"]]


def is_worth_reading(project: Project, path: str) -> bool:
    """Whether the file is there, inside the project, and says something."""
    return may_be_delivered(project, path) and says_something(read_text(path))


def files_read(run: Run, files: list) -> list:
    """Which of these files the agent has read in this session."""
    seen = {path.replace("\\", "/") for path in run.session.facts.read}
    found = []
    for path in files:
        named = run.project.relative(path)
        if any(other == path or other.endswith("/" + named) or other == named for other in seen):
            found.append(path)
    return found


def marker_path(session_id: str, env: dict) -> str:
    folder = env.get("TEMP") if os.name == "nt" else env.get("TMPDIR")
    return os.path.join(folder or "/tmp", "ctx-loaded-" + safe_name(session_id))


def claim_marker(run: Run) -> bool:
    """True for the first to ask. If no marker can be made, everybody is the first."""
    path = marker_path(run.session.id, run.env)
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
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
DEFAULT_TTL_S, LONGEST_TTL_S = 300, 30 * 86400
CLOCK_SKEW_S = 86_400  # a disk may have a clock of its own
ONE_SIGNAL = "⚠️ [ctx monitor] "
MANY_SIGNALS = "⚠️ [ctx monitor] %d issues:"
MORE_SIGNALS = "  … %d more will follow"


class Signal(Record):
    """A signal, or an alert on its way into the same block."""

    path: str = ""  # "" for an alert
    is_global: bool = False
    severity: str = "warning"
    generated_at: float = 0.0
    ttl_s: float = float(DEFAULT_TTL_S)
    auditor: str = ""
    code: str = ""
    body: str = ""
    mark: str = ""  # tells this version of a global signal from others
    when_said: tuple = ()  # of an alert: what to call with which arguments

    def rank(self) -> int:
        return SEVERITIES.index(self.severity)


def parse_signal(text: str, written_at: float) -> Signal:
    """A signal from a file's text. Whatever is missing or broken has its default."""
    header, body = split_header(text)
    signal = Signal()
    severity = header.get("severity", "").lower()
    if severity in SEVERITIES:
        signal.severity = severity
    if re.fullmatch(r"\d{1,20}(\.\d+)?", header.get("ttl", "")):
        signal.ttl_s = min(float(header["ttl"]), float(LONGEST_TTL_S))
    told_at = parse_iso(header["generated_at"]) if "generated_at" in header else 0.0
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


def read_signals(run: Run) -> list:
    """The signals that wait for this session; expired ones are removed."""
    session_folder = run.project.path("signals", "sessions", safe_name(run.session.id))
    global_folder = run.project.path("signals", "global")
    paths = list_files(session_folder, ".md") + list_files(global_folder, ".md")
    paths.sort(key=lambda pair: -pair[1])
    waiting = []
    for path, written_at in paths[:SIGNALS_LOOKED_AT]:
        is_global = path.startswith(global_folder)
        known = run.session.heard.get(os.path.basename(path), "") if is_global else ""
        is_same_time = known.startswith("%.6f-" % written_at)
        if is_same_time and run.event.name != "UserPromptSubmit":
            continue  # heard: its content and its end are looked at with the next prompt
        signal = read_signal(path, written_at)
        signal.is_global = is_global
        if run.now > signal.generated_at + signal.ttl_s:
            record(run, "signal:expired", file=os.path.basename(path), body=signal.body[:200])
            remove_file(path)
        elif signal.body and signal.mark != known:
            waiting.append(signal)
    return waiting


def read_signal(path: str, written_at: float) -> Signal:
    import zlib

    text = read_text(path, SIGNAL_LIMIT_BYTES)
    signal = parse_signal(text, written_at)
    signal.path = path
    signal.mark = "%.6f-%d" % (written_at, zlib.crc32(text.encode("utf-8", "replace")))
    return signal


def add_signals(run: Run, alerts: list) -> None:
    """Add the alerts and the waiting signals to the reply, as one block."""
    if not can_speak(run.event):
        return
    least = minimum_rank(run)
    signals = [signal for signal in read_signals(run) if signal.rank() >= least]
    signals, superseded = newest_of_each(signals)
    items = alerts + sorted(signals, key=lambda signal: signal.generated_at)
    items.sort(key=lambda item: -item.rank())
    said = fit_block(run, items)
    for signal in said:
        book_signal(run, signal)
    for signal in superseded if said else []:
        run.reply.when_said(forget_signal, run.session, signal)


def minimum_rank(run: Run) -> int:
    """Which severity reaches the agent; the environment wins over the settings."""
    word = run.env.get("CTX_INJECT_MIN_SEVERITY", "").lower()
    if word not in SEVERITIES:
        word = run.project.settings["monitor.inject_min_severity"]
    return SEVERITIES.index(word)


def newest_of_each(signals: list) -> tuple:
    """(those to say, those that a newer one with the same code replaces)"""
    newest: dict = {}
    superseded = []
    for signal in sorted(signals, key=lambda signal: signal.generated_at):
        source = (signal.is_global, signal.auditor, signal.code)
        key = source if signal.auditor and signal.code else signal.path
        if key in newest:
            superseded.append(newest[key])
        newest[key] = signal
    return list(newest.values()), superseded


def fit_block(run: Run, items: list) -> list:
    """Add one block with as many items as fit; returns those that are in it."""
    if len(items) == 1 and run.reply.add(ONE_SIGNAL + items[0].body):
        return items
    for count in range(len(items), 0, -1):
        lines = [MANY_SIGNALS % len(items)]
        lines += ["  • " + signal_line(item.body) for item in items[:count]]
        if count < len(items):
            lines.append(MORE_SIGNALS % (len(items) - count))
        if run.reply.add("\n".join(lines)):
            return items[:count]
    return []


def signal_line(body: str) -> str:
    """Summary → Action, in one line."""
    return " ".join(body.split())


def book_signal(run: Run, signal: Signal) -> None:
    """What happens once this signal has been said."""
    if signal.when_said:
        run.reply.when_said(*signal.when_said)
    else:
        run.reply.when_said(forget_signal, run.session, signal)
        name = os.path.basename(signal.path)
        record(run, "signal:delivered", file=name, severity=signal.severity, body=signal.body[:200])
    if signal.severity == "critical":
        run.reply.tell("ctx: " + one_line(signal.body, 200))
        run.reply.bell = notification(run.project.settings["monitor.notify"], signal.body)


def forget_signal(session: Session, signal: Signal) -> None:
    """A session's own signal goes; a global one is remembered as heard."""
    if signal.is_global:
        session.heard[os.path.basename(signal.path)] = signal.mark
        for name in list(session.heard)[:-SIGNALS_LOOKED_AT]:
            del session.heard[name]
    elif signal.path:
        remove_file(signal.path)


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
# agreed.json. A phase ends with a completion block in the agent's own words, once its
# check, if it has one, exits 0. Any doubt lets the agent stop, and says so.

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
SKIPS = {
    "skip_expansion": ["expansion"],
    "skip_qa": ["qa"],
    "skip_review": ["review", "fix", "check"],
    "skip_reflect": ["reflect"],
}
TRANSITIONS = {
    "TRANSITION_TO_QA": "qa",
    "TRANSITION_TO_VALIDATION": "review",
    "TRANSITION_TO_FIX": "fix",
}
PHASE_NAME = r"[a-z][a-z0-9_-]{0,39}"
MAX_ITERATIONS, ITERATIONS_LIMIT = 20, 50
STALE_AFTER_S, TIME_TOLERANCE_S = 2 * 3600, 300


class Signals(Record):
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
    task_description: str = ""
    until: str = ""  # the command that proves the last phase
    config: dict = {}  # skip_qa and its like
    session_id: str = ""  # "": it waits for a session
    any_prompt: bool = False  # a script's prompt binds it, too
    token: str = ""
    started_at: str = ""
    phase_started_at: str = ""
    completed_at: str = ""
    exit_reason: str = ""  # a key of ENDINGS
    last_phase: str = ""
    needs: str = ""  # what the person has to decide
    last_error: dict = {}
    signals: Signals = Signals()
    # not on disk:
    is_ours = False  # meant on this machine
    lead = ""  # what the agent is told first, if it is held

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
        phase = self.phase if self.active else self.last_phase
        return "the task" if self.is_single_task else "phase " + phase

    @property
    def signal(self) -> str:
        """The signal that completes the phase."""
        return self.phase.upper().replace("-", "_") + "_COMPLETE"


# --- the file, and whether it counts


def workflow_path(project: Project) -> str:
    return os.path.join(project.root, ".caw", "auto-state.json")


def read_workflow(project: Project) -> Workflow:
    """The workflow. It is not running if its file is missing, unusable or foreign."""
    path = workflow_path(project)
    data = read_object(path)
    if not data or not is_inside(path, project.root):
        return Workflow()
    flow = Workflow(data)
    flow.phases = plan_phases(flow.phases, flow.config)
    flow.max_iterations = min(max(flow.max_iterations, 1), ITERATIONS_LIMIT)
    session = session_path(project, flow.session_id)
    names_session = flow.session_id and os.path.exists(session)
    has_token = flow.token and flow.token == read_agreed(project).token
    flow.is_ours = bool(names_session or has_token)
    return flow


def plan_phases(names: list, flags: dict) -> list:
    """The phases to go through: the given ones, else ours; none twice, none skipped."""
    known = [name for name in map(str, names) if re.fullmatch(PHASE_NAME, name)]
    skipped = []
    for flag, phases in SKIPS.items():
        if flags.get(flag) is True:
            skipped += phases
    return [name for name in dict.fromkeys(known or PHASES) if name not in skipped]


def write_workflow(project: Project, flow: Workflow) -> bool:
    """Write the state and keep the keys of others; False if that is impossible."""
    path = workflow_path(project)
    if not is_inside(path, project.root):
        return False  # a link that leads out
    data = read_object(path)
    data.update(flow.as_dict())
    return write_object(path, data)


class Agreed(Record):
    """agreed.json, in the user's home: what the person started and agreed to."""

    token: str = ""
    checks: dict = {}  # phase -> the exact text of its command


def read_agreed(project: Project) -> Agreed:
    return Agreed(read_object(project.state("agreed.json")))


def checks_of(project: Project, flow: Workflow) -> dict:
    """phase -> the command that has to exit 0, for those that have one."""
    checks = {}
    for phase in flow.phases:
        checks[phase] = project.settings.of_phase("auto.done_when", phase)
    if flow.until:
        checks[flow.phases[-1]] = flow.until
    return {phase: command for phase, command in checks.items() if command}


def is_agreed(project: Project, flow: Workflow) -> bool:
    """Whether the person agreed to exactly these checks. An agent can edit settings:
    a check that was taken away is not agreed to, either."""
    agreed, checks = read_agreed(project), checks_of(project, flow)
    known = agreed.checks if agreed.token == flow.token else {}
    return checks == known


# --- completion blocks

BLOCK = """\
---
SIGNAL: {flow.signal}
PHASE: {flow.phase}
STATUS: complete
TIMESTAMP: <current time, ISO 8601>
NEXT: {next}
---"""
ERROR_BLOCK = """\
---
SIGNAL: PHASE_ERROR
PHASE: {flow.phase}
STATUS: error
TIMESTAMP: <current time, ISO 8601>
ERROR: <what happened>
RECOVERABLE: <true or false>
---"""
BLOCKED_BLOCK = """\
---
SIGNAL: PHASE_BLOCKED
PHASE: {flow.phase}
STATUS: blocked
TIMESTAMP: <current time, ISO 8601>
NEEDS: <what they must decide>
---"""
FORMS = {  # signal -> its STATUS, and what it needs beside PHASE and TIMESTAMP
    "PHASE_ERROR": ("error", "ERROR", "RECOVERABLE"),
    "PHASE_BLOCKED": ("blocked", "NEEDS"),
}
COMPLETION_FORM = ("complete", "NEXT")
# Lines `key: value` between two lines `---`; one `---` may close a block and open one.
BLOCK_LINES = (
    r"(?m)^[ \t]*---[ \t\r]*\n"
    r"((?:[ \t]*\w+[ \t]*:.*\n|[ \t\r]*\n)+)"
    r"(?=[ \t]*---[ \t\r]*$)"
)
DIFF = r"(?ms)^```(?:diff|patch)\b.*?^```"


def parse_blocks(text: str) -> list:
    """The blocks in a text, bare or fenced, as {key: value}."""
    found = []
    for lines in re.findall(BLOCK_LINES, re.sub(DIFF, "", text)):
        block = {"SIGNAL": ""}
        for line in lines.split("\n"):
            key, _, value = line.partition(":")
            block[key.strip().upper()] = value.strip()
        block["SIGNAL"] = one_line(block["SIGNAL"].upper(), 40)
        found.append(block)
    return [block for block in found if block["SIGNAL"]]


def problem_of_block(block: dict, flow: Workflow, now: float) -> str:
    """What is wrong with a block in this phase; "" if it counts."""
    signal = block["SIGNAL"]
    status, *needed = FORMS.get(signal, COMPLETION_FORM)
    for key in ("PHASE", "STATUS", "TIMESTAMP", *needed):
        if not block.get(key):
            return key + " is missing"
    leads_on = TRANSITIONS.get(signal) in later_phases(flow)
    is_known = signal in (flow.signal, "AUTO_COMPLETE", *FORMS)
    is_flag = block.get("RECOVERABLE", "true").lower() in ("true", "false")
    rules = (
        ("SIGNAL", is_known or leads_on, flow.signal),
        ("PHASE", block["PHASE"].lower() == flow.phase, flow.phase),
        ("STATUS", block["STATUS"].lower() == status, status),
        ("TIMESTAMP", is_time_of_phase(block["TIMESTAMP"], flow, now), format_iso(now)),
        ("RECOVERABLE", is_flag, "true or false"),
    )
    for key, is_right, wanted in rules:
        if not is_right:
            return "%s must be %s" % (key, wanted)
    return ""


def is_time_of_phase(text: str, flow: Workflow, now: float) -> bool:
    """Whether a time lies between the phase's start and now."""
    since = min(now, parse_iso(flow.phase_started_at or flow.started_at))
    return since - TIME_TOLERANCE_S <= parse_iso(text) <= now + TIME_TOLERANCE_S


def judge_words(flow: Workflow, said: str, now: float) -> dict:
    """The one block that counts, or {}; the phase's own signal comes before others."""
    flow.lead = "The completion block of %s is missing." % flow.stage
    blocks = parse_blocks(said)
    blocks.sort(key=lambda block: block["SIGNAL"] == flow.signal)
    found: dict = {}
    for block in blocks:
        problem = problem_of_block(block, flow, now)
        if not problem:
            found = block
        else:
            flow.lead = "The block %s does not count: %s." % (block["SIGNAL"], problem)
    return found


# --- at a prompt, after /clear, after a compaction

CONTINUATION_HEAD = "## Auto Mode Continuation"
CANCEL_WORDS = "ctx cancel"
CANCELLED = "[ctx auto] The person cancelled the workflow; you may stop when you like."


def brief(run: Run) -> None:
    """Bind the workflow if it waits for this session, and tell the agent about it."""
    flow, event = read_workflow(run.project), run.event
    if not flow.is_running:
        return
    is_continuation = event.prompt.startswith(CONTINUATION_HEAD)
    is_person = event.prompt and event.is_typed and not is_continuation
    if is_after_clear(run, flow) or is_person and may_bind(run, flow):
        flow.session_id = run.session.id
    if not meets_session(run, flow):
        return
    if is_person:
        hear_person(run, flow)
    if flow.active:
        add_briefing(run, flow)


def is_after_clear(run: Run, flow: Workflow) -> bool:
    """Whether this client cleared the workflow's session: it goes along to the next."""
    cleared, pid = load_session(run.project, flow.session_id), run.session.client_pid
    was_cleared = cleared.ended_at > 0 and cleared.end_reason == "clear"
    return was_cleared and pid != "" and cleared.client_pid == pid


def may_bind(run: Run, flow: Workflow) -> bool:
    """Whether a workflow may take the session of a person who typed. A script that
    runs the client in print mode is no person."""
    is_print_mode = run.env.get("CLAUDE_CODE_SESSION_ATTENDED") == "0"
    is_unattended = is_print_mode and run.event.agent == "claude"
    return not flow.session_id and not is_unattended


def meets_session(run: Run, flow: Workflow) -> bool:
    """Whether the workflow runs for this session."""
    if not flow.session_id and flow.any_prompt:
        flow.session_id = run.session.id
    if not flow.signals.last_checked:
        run.session.briefed = False  # that was about an earlier workflow
    return flow.is_running and flow.session_id == run.session.id


def hear_person(run: Run, flow: Workflow) -> None:
    """A person's prompt sets the brakes back and answers a phase that was blocked."""
    session = run.session
    if run.event.prompt.strip().lower() == CANCEL_WORDS:
        run.reply.add(CANCELLED)
        return end_workflow(run, flow, "user_cancelled")
    if not flow.needs and is_stale(flow, session, run.now):
        return end_workflow(run, flow, "stale_state")
    flow.needs = ""
    flow.iteration = 0
    session.holds = session.idle_holds = 0
    session.held_calls = session.facts.tool_calls


def add_briefing(run: Run, flow: Workflow) -> None:
    flow.signals.last_checked = format_iso(run.now)
    if not write_workflow(run.project, flow):
        return release(run, flow, "unwritable")
    if run.session.briefed or not can_speak(run.event):
        return
    flow.lead = BRIEFING_TASK if flow.is_single_task else BRIEFING
    if run.reply.add(render(run.project, flow, whole_text(flow), run.now)):
        run.session.briefed = True
        record(run, "auto:briefed", phase=flow.phase)


def is_stale(flow: Workflow, session: Session, now: float) -> bool:
    """Whether nothing happened for hours. Times in the future tell nothing."""
    active = [flow.signals.last_checked, flow.phase_started_at, session.facts.worked_at]
    times = [parse_iso(at) for at in active]
    known = [at for at in times if 0 < at <= now + TIME_TOLERANCE_S]
    return now - max(known, default=now) > STALE_AFTER_S


# --- at a stop

IDLE_LIMIT, FULL_PERCENT = 3, 95
TO_PERSON = "ctx auto: %s."
ENDINGS = {  # why a workflow ends: the phase then, and "the workflow …"
    "all_phases_complete": ("complete", "passed: all of it is complete"),
    "auto_complete_signal": ("complete", "passed: the agent declared it complete"),
    "max_iterations_reached": (
        "failed",
        "failed: {flow.stage} was not complete after {flow.max_iterations} iterations",
    ),
    "stale_state": ("failed", "was ended: {flow.stage} saw 2 hours without activity"),
    "critical_error": ("failed", "failed: an error ended {flow.stage}: {error}"),
    "user_cancelled": ("cancelled", "was cancelled during {flow.stage}"),
}
RELEASES = {  # why one stop passes while the workflow stays
    "blocked": "{flow.stage} waits for you: {flow.needs} (your next prompt goes on)",
    "not_agreed": "{flow.stage} needs checks that you agreed to; see `auto status`",
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
    """Hold the stop, complete the phase, or let go. A check runs after this."""
    flow = read_workflow(run.project)
    if not meets_session(run, flow):
        return
    block = judge_words(flow, run.session.facts.said, run.now)
    ended = phases_ended(flow, block)
    checks = checks_of(run.project, flow)
    commands = [checks[phase] for phase in ended if phase in checks]
    if ended and not is_agreed(run.project, flow):
        settle(run, flow, {}, "not_agreed")
    elif commands:
        run.check = Check({"commands": commands, "began_in": place_of(flow)})
        run.check.timeout_s = run.project.settings["auto.check_timeout_s"]
    else:
        settle(run, flow, block)


def place_of(flow: Workflow) -> list:
    """By which one sees that somebody changed the workflow."""
    return [flow.is_running, flow.session_id, flow.token, flow.phase]


def judge_check(run: Run, result: CheckResult) -> None:
    """Go on with the stop, now that its check has run. `auto stop` may have come."""
    flow = read_workflow(run.project)
    if not meets_session(run, flow) or place_of(flow) != run.check.began_in:
        return release(run, flow, "changed")
    block = judge_words(flow, run.session.facts.said, run.now)
    if result.problem:
        block = {}
        flow.lead = describe_failure(result)
    settle(run, flow, block)


def settle(run: Run, flow: Workflow, block: dict, reason: str = "") -> None:
    """Apply the block; then the first brake lets go, or the stop is held."""
    phase = flow.phase
    if block:
        reason = apply_block(flow, block, run.now)
    has_advanced = flow.phase != phase
    if has_advanced:
        about = about_phase(run.project, flow)
        flow.lead = "Phase %s is complete. Now %s: %s." % (phase, flow.phase, about)
    count_stop(run, has_advanced)
    reason = reason or find_brake(run, flow)
    if reason in ENDINGS:
        return end_workflow(run, flow, reason)
    if not reason:
        flow.iteration += 1
    flow.signals.last_checked = format_iso(run.now)
    if not write_workflow(run.project, flow):
        reason = "unwritable"
    if reason:
        release(run, flow, reason)
    else:
        hold(run, flow)


def count_stop(run: Run, has_advanced: bool) -> None:
    """Count this stop for the brakes."""
    session, calls = run.session, run.session.facts.tool_calls
    has_worked = calls != session.held_calls
    session.held_calls = calls
    session.holds += 1
    session.idle_holds += 1
    if has_worked or not run.event.stop_hook_active:
        session.holds = 1
    if has_worked or has_advanced:
        session.idle_holds = 0


def find_brake(run: Run, flow: Workflow) -> str:
    """The first brake that applies; "" if the stop is to be held."""
    event, session = run.event, run.session
    tasks = [dig(task, "type") for task in event.background_tasks]
    told = run.env.get("CLAUDE_CODE_STOP_HOOK_BLOCK_CAP", "")
    cap = int(told) if told.isdigit() else HOLD_CAP
    brakes = (
        ("blocked", flow.needs),
        ("stale_state", is_stale(flow, session, run.now)),
        ("subagents", any(kind != "shell" for kind in tasks)),  # a server runs for ever
        ("wake_up", event.session_crons),
        ("plan_mode", event.permission_mode == "plan"),
        ("context_full", fullness(run).percent >= FULL_PERCENT),
        ("no_progress", session.idle_holds >= IDLE_LIMIT),
        ("hold_cap", 0 < cap <= session.holds),
        ("max_iterations_reached", flow.iteration >= flow.max_iterations),
    )
    for reason, applies in brakes:
        if applies:
            return reason
    return ""


def hold(run: Run, flow: Workflow) -> None:
    """The agent goes on: with three lines, or with the whole text if it knows none."""
    text = SHORT_TEXT if run.session.briefed else whole_text(flow)
    said = one_line(flow.lead, 300)
    record(run, "auto:held", phase=flow.phase, iteration=flow.iteration, said=said)
    flow.lead = CONTINUATION_HEAD + "\n" + flow.lead
    text = render(run.project, flow, text, run.now)
    if not run.reply.add(text):
        run.reply.add(cut_middle(text, run.reply.room() // 4))
    run.reply.is_hold = True
    run.session.briefed = True
    run.session.facts.said = ""  # these words were judged; a block counts once


def release(run: Run, flow: Workflow, reason: str) -> None:
    """The agent may stop and the workflow stays; the person is told why."""
    run.session.holds = run.session.idle_holds = 0
    say_why(run, flow, "auto:released", reason, RELEASES[reason])


def end_workflow(run: Run, flow: Workflow, reason: str) -> None:
    """The workflow is over; the person is told why."""
    flow.last_phase = flow.phase
    flow.phase, text = ENDINGS[reason]
    flow.active = run.session.briefed = False
    flow.exit_reason = reason
    flow.completed_at = format_iso(run.now)
    if not write_workflow(run.project, flow):
        text += ", but .caw/auto-state.json cannot be written"
    say_why(run, flow, "auto:ended", reason, "the workflow " + text)


def say_why(run: Run, flow: Workflow, event: str, reason: str, text: str) -> None:
    """One line to the person and one row to the recorder: no stop passes in silence."""
    text = fill_in(text, flow)
    run.reply.tell(TO_PERSON % text)
    record(run, event, reason=reason, phase=flow.last_phase or flow.phase, said=text)


def fill_in(text: str, flow: Workflow) -> str:
    """A sentence for the person, with the workflow's facts in it."""
    return text.format(flow=flow, error=flow.last_error.get("message"))


# --- what a block does


def apply_block(flow: Workflow, block: dict, now: float) -> str:
    """Note the signal, then advance; why the agent may stop, or ""."""
    signal, at = block["SIGNAL"], format_iso(now)
    row = {"signal": signal, "detected_at": at, "reason": block.get("REASON", "")}
    flow.signals.detected_signals.append(row)
    following = following_phase(flow, signal)
    if signal == "PHASE_BLOCKED":
        flow.needs = one_line(block["NEEDS"], 500)
        return "blocked"
    if signal == "PHASE_ERROR":
        return apply_error(flow, block, at)
    if signal == "AUTO_COMPLETE":
        return "auto_complete_signal"
    if not following:
        return "all_phases_complete"
    flow.phase = following
    flow.phase_started_at = at
    flow.iteration = 0
    return ""


def apply_error(flow: Workflow, block: dict, at: str) -> str:
    message = one_line(block["ERROR"], 500)
    flow.last_error = {"phase": flow.phase, "message": message, "timestamp": at}
    flow.lead = "You reported an error: %s. Recover from it and go on." % message
    return "" if block["RECOVERABLE"].lower() == "true" else "critical_error"


def later_phases(flow: Workflow) -> list:
    return flow.phases[flow.phases.index(flow.phase) + 1 :]


def following_phase(flow: Workflow, signal: str = "") -> str:
    """Where a signal leads: to the phase it names, else the next; "" at the end."""
    later = later_phases(flow)
    if TRANSITIONS.get(signal) in later:
        return TRANSITIONS[signal]
    return later[0] if later else ""


def phases_ended(flow: Workflow, block: dict) -> list:
    """The phases that a block ends or leaps over: it owes their checks."""
    signal = block.get("SIGNAL", "")
    if not signal or signal in FORMS:
        return []
    here = flow.phases.index(flow.phase)
    following = following_phase(flow, signal)
    if signal == "AUTO_COMPLETE" or not following:
        return flow.phases[here:]
    return flow.phases[here : flow.phases.index(following)]


# --- what the agent is told

BRIEFING = "[ctx auto] A workflow runs in this session."
BRIEFING_TASK = "[ctx auto] The person wants this task done before you stop."
PHASE_TEXT = """\
- Phase: {flow.phase} (iteration {flow.iteration}/{flow.max_iterations}): {about}
"""
WHOLE_TEXT = f"""\
- Task: {{task}}
- Expected signal: {{flow.signal}}
- Verified by: {{proof}}

When {{flow.stage}} is done, print this block. The time is now {{now}}.
{BLOCK}
If nothing was left to do, add the line REASON: nothing was left to do, because …
If something went wrong, print this instead; with RECOVERABLE: false the workflow ends.
{ERROR_BLOCK}
If the person must decide something, print this; you may then stop, and they are asked.
{BLOCKED_BLOCK}"""
SHORT_TEXT = (
    "When {flow.stage} is done (iteration {flow.iteration}/{flow.max_iterations}),"
    " print the block with SIGNAL: {flow.signal} and the time, now {now}; with the line"
    " REASON: nothing was left to do, because … if that is so; PHASE_BLOCKED if the"
    " person must decide, PHASE_ERROR if it went wrong."
)


def whole_text(flow: Workflow) -> str:
    return WHOLE_TEXT if flow.is_single_task else PHASE_TEXT + WHOLE_TEXT


def about_phase(project: Project, flow: Workflow) -> str:
    about = project.settings.of_phase("auto.about", flow.phase)
    about = about or PHASES.get(flow.phase, "see the task")
    return one_line(clean_text(about), 400).rstrip(".")


def render(project: Project, flow: Workflow, text: str, now: float) -> str:
    """The lead and a text for the agent, with the workflow's facts in it."""
    task = flow.task_description or "see the conversation"
    check = checks_of(project, flow).get(flow.phase, "")
    proof = "`%s`, which must exit 0" % one_line(clean_text(check), 300)
    text = text.format(
        flow=flow,
        about=about_phase(project, flow),
        task=one_line(clean_text(task), 1500),
        proof=proof if check else "your word",
        next=following_phase(flow) or "none",
        now=format_iso(now),
    )
    return flow.lead + "\n" + text


# --- the check: the one process that a person's agreement lets us start

CHECKS_LIMIT_S = 140  # all of one stop together: the client waits 150 s
CHECK_TAIL = 2_000
CHECK_OUTPUT_LIMIT_MB = 50
CHECK_POLL_S = 0.05
SECRET_NAME = (
    r"(?i)^(ANTHROPIC|CLAUDE_CODE)_"
    r"|(KEY|TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIALS?|_PASS|_PAT)$"
)


class Check(Record):
    """Commands that have to exit 0 before a stop counts as a completion."""

    commands: list = []
    timeout_s: float = 0.0  # of each
    began_in: list = []  # the workflow's place: it may change meanwhile


class CheckResult(Record):
    """What came of the last command that ran."""

    command: str = ""
    problem: str = ""  # "" if it exited 0
    output: str = ""  # its end


def run_check(check: Check, root: str, env: dict) -> CheckResult:
    """Run the commands up to the first that fails."""
    count = len(check.commands)
    limit_s = min(max(check.timeout_s, 1), CHECKS_LIMIT_S / count)
    start_deadline(limit_s * count + DEADLINE_BESIDE_CHECK_S)
    safe_env = {name: env[name] for name in env if not re.search(SECRET_NAME, name)}
    result = CheckResult()
    for command in check.commands:
        result = run_command(command, root, safe_env, limit_s)
        if result.problem:
            break
    return result


def run_command(command: str, root: str, env: dict, limit_s: float) -> CheckResult:
    """Run one command in a process group of its own, which ends with it."""
    import subprocess
    import tempfile

    result = CheckResult({"command": command})
    with tempfile.TemporaryFile() as output:
        try:
            child = subprocess.Popen(  # noqa: S602, the person agreed to this text
                command,
                shell=True,
                cwd=root,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=os.name != "nt",
            )
        except (OSError, ValueError) as error:  # too many processes, a null byte
            result.problem = "could not be started: %s" % error
            return result
        result.problem = wait_for(child, output, limit_s)
        end_group(child, env)
        size = output.seek(0, os.SEEK_END)
        output.seek(max(0, size - 4 * CHECK_TAIL))
        tail = output.read(4 * CHECK_TAIL).decode("utf-8", "replace")
        result.output = hide_secrets(clean_text(tail))[-CHECK_TAIL:].strip()
    return result


def wait_for(child: object, output: object, limit_s: float) -> str:
    """Wait for the command's end; "" if it exited 0, else what went wrong."""
    end = time.monotonic() + limit_s
    while child.poll() is None:
        size_mb = os.fstat(output.fileno()).st_size // 1_000_000
        if time.monotonic() > end:
            return "did not end within %d s" % limit_s
        if size_mb >= CHECK_OUTPUT_LIMIT_MB:
            return "printed more than %d MB" % CHECK_OUTPUT_LIMIT_MB
        time.sleep(CHECK_POLL_S)
    return "exited %d" % child.returncode if child.returncode else ""


def end_group(child: object, env: dict) -> None:
    """End the command and all that it started."""
    import signal
    import subprocess

    if os.name == "nt":
        # by its path: a bare name is looked for in the project's folder first
        folder = env.get("SYSTEMROOT", r"C:\Windows")
        tool = os.path.join(folder, "System32", "taskkill.exe")
        kill = [tool, "/F", "/T", "/PID", str(child.pid)]
        subprocess.call(kill, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    else:
        try:
            os.killpg(child.pid, signal.SIGKILL)
        except OSError:
            pass  # nobody is left
    child.wait()


def describe_failure(result: CheckResult) -> str:
    """What the agent is told about a check that failed."""
    command = one_line(clean_text(result.command), 300)
    text = "The block is there, but its check `%s` %s." % (command, result.problem)
    text += " Mend that, then print the block again."
    if result.output:
        text += " The end of the output:\n" + result.output
    return text


# --- for the command `auto`: a person's half

AGENT_VARIABLES = (  # one of these stands in the environment of an agent's shell
    "CLAUDECODE",
    "AI_AGENT",
    "CODEX_CI",
    "CODEX_THREAD_ID",
    "COPILOT_CLI",
    "GEMINI_CLI",
    "QWEN_CODE",
    "GROK_SESSION_ID",
)


class AutoOptions(Record):
    """What `auto start` and `auto resume` were given."""

    task: str = ""
    until: str = ""
    phase: str = ""  # to begin with
    skip: list = []
    any: bool = False
    session: str = ""
    max_iterations: int = MAX_ITERATIONS
    agree: bool = False
    force: bool = False


def start_workflow(
    project: Project, options: AutoOptions, env: dict, now: float
) -> Workflow:
    """Begin a workflow; a UserError if that cannot be."""
    if not options.task.strip():
        raise UserError("the task is empty", "say in a sentence what is to be done")
    if read_workflow(project).is_running and not options.force:
        raise UserError("a workflow runs already", "see `auto status`, or use --force")
    flow = Workflow()
    flow.phases = choose_phases(project, options)
    flow.phase = options.phase or flow.phases[0]
    flow.task_description = options.task
    flow.until = options.until
    flow.max_iterations = options.max_iterations
    flow.started_at = format_iso(now)
    if not options.session and not options.any:
        options.session = env.get("CLAUDE_CODE_SESSION_ID", "")
    hand_over(flow, options, now)
    publish(project, flow, options, env)
    record(Run(Event(), project, env, now), "auto:started", phase=flow.phase)
    return flow


def choose_phases(project: Project, options: AutoOptions) -> list:
    """The phases of a new workflow. With --until alone there is only the task."""
    names = plan_phases(project.settings["auto.phases"], {})
    left = [name for name in names if name not in options.skip]
    for name in options.skip + [options.phase or names[0]]:
        if name not in names:
            raise UserError("there is no phase " + name, "phases: " + ", ".join(names))
    if not left or options.phase in options.skip:
        raise UserError("that skips the phase to begin with", "skip fewer phases")
    if options.until and left == list(PHASES) and not options.phase:
        return ["execution"]
    return left


def resume_workflow(
    project: Project, options: AutoOptions, env: dict, now: float
) -> Workflow:
    """Hand the workflow on to the next session that prompts, also after it ended."""
    flow = read_workflow(project)
    if not flow.phase or flow.phase == "complete":
        raise UserError("there is no workflow to take up", "see `auto start --help`")
    if flow.phase not in flow.phases:
        flow.phase = flow.last_phase
    if flow.phase not in flow.phases:
        flow.phase = flow.phases[0]
    hand_over(flow, options, now)
    publish(project, flow, options, env)
    record(Run(Event(), project, env, now), "auto:resumed", phase=flow.phase)
    return flow


def hand_over(flow: Workflow, options: AutoOptions, now: float) -> None:
    """Let the workflow begin its phase with another session."""
    flow.active = True
    flow.exit_reason = flow.completed_at = flow.last_phase = flow.needs = ""
    flow.iteration = 0
    flow.session_id = options.session
    flow.any_prompt = options.any
    flow.phase_started_at = format_iso(now)
    flow.signals.last_checked = ""  # no hook has met it yet


def publish(project: Project, flow: Workflow, options: AutoOptions, env: dict) -> None:
    """Write the workflow, and at home its token and the checks if they are agreed to:
    by `options.agree`, or because each was typed or agreed to before."""
    shell = [name for name in AGENT_VARIABLES if env.get(name)]
    if shell and (options.until or options.agree):
        hint = "use a terminal of your own; ! in the client is the agent's shell, too"
        raise UserError("%s is set: an agent cannot agree to a check" % shell[0], hint)
    checks = checks_of(project, flow)
    known = {options.until, *read_agreed(project).checks.values()}
    agreed = Agreed({"token": os.urandom(16).hex()})
    if options.agree or known.issuperset(checks.values()):
        agreed.checks = checks
    flow.token = agreed.token
    flow.is_ours = True
    is_noted = write_object(project.state("agreed.json"), agreed.as_dict())
    if not is_noted or not write_workflow(project, flow):
        raise UserError("cannot write .caw/auto-state.json", "check its folder's owner")
    ignored = os.path.join(project.root, ".caw", ".gitignore")
    if not os.path.lexists(ignored):
        write_atomically(ignored, "/auto-state.json\n/.gitignore\n")


def stop_workflow(project: Project, env: dict, now: float) -> str:
    """Cancel the workflow and say so; "" if none runs."""
    flow = read_workflow(project)
    if not flow.active:
        return ""
    run = Run(Event(), project, env, now)
    end_workflow(run, flow, "user_cancelled")
    return run.reply.notes[0]


RESUME = " `auto resume` takes it up again."
BEGIN = " `auto start TASK` begins one."
STATES = {  # what `auto status` says first
    "none": "There is no workflow." + BEGIN,
    "unusable": ".caw/auto-state.json is no workflow and holds nobody." + BEGIN,
    "foreign": "This workflow came with the project and holds nobody." + RESUME,
    "complete": "At {at} the workflow {ending}.",
    "ended": "At {at} the workflow {ending}." + RESUME,
    "blocked": "{flow.stage} waits for your answer in its session: {flow.needs}",
    "waiting": "The workflow waits for the next prompt; then {flow.stage} begins.",
    "stale": "{flow.stage} saw 2 hours without activity; a prompt ends it." + RESUME,
    "running": "The agent works on {flow.stage} in session {flow.session_id:.8},"
    " iteration {flow.iteration} of {flow.max_iterations}.",
}


def state_of(project: Project, flow: Workflow, now: float) -> str:
    """A key of STATES."""
    session = load_session(project, flow.session_id)
    states = (
        ("none", not os.path.lexists(workflow_path(project))),
        ("unusable", not flow.phase),
        ("foreign", not flow.is_ours),
        ("complete", flow.phase == "complete"),
        ("ended", not flow.is_running),
        ("blocked", flow.needs),
        ("stale", is_stale(flow, session, now)),
        ("waiting", not flow.session_id),
    )
    for state, applies in states:
        if applies:
            return state
    return "running"


def describe_workflow(project: Project, now: float) -> list:
    """The workflow in sentences, and what a person can do next."""
    flow = read_workflow(project)
    state = state_of(project, flow, now)
    at = format_clock(parse_iso(flow.completed_at), now)
    ending = ENDINGS.get(flow.exit_reason, ("", "has ended"))[1]
    ending = fill_in(ending, flow)
    lines = [STATES[state].format(flow=flow, at=at, ending=ending)]
    if flow.phase:
        lines.append("Task: " + one_line(flow.task_description, 300))
    if flow.is_running:
        lines += describe_checks(project, flow)
        lines.append("To end it: `auto stop`, or type `ctx cancel` in its session.")
    return [for_terminal(line[0].upper() + line[1:]) for line in lines]


def describe_checks(project: Project, flow: Workflow) -> list:
    """Which command proves which phase, and whether the person agreed to it."""
    consent = "you agreed to it"
    if not is_agreed(project, flow):
        consent = "it needs your agreement to run: `auto resume` asks"
    lines = []
    for phase, command in checks_of(project, flow).items():
        command = one_line(command, 200)
        lines.append("Check of %s: `%s`; %s." % (phase, command, consent))
    return lines or ["No check: it ends on the agent's word."]
# =============================================================================
# Look
# =============================================================================
# The transcript is the truth: it holds every prompt, answer, call, result, and our
# own texts. One pass reads what it gained since the last look and folds each row
# into the session's facts. Everything else is a view of those facts, so it does
# not matter which calls started Python.

LOOK_LIMIT_BYTES = 4_000_000
LATE_S, LATE_POLL_S = 0.25, 0.02
CALLS_KEPT = 8
COMMANDS_KEPT = 8
EDITED_KEPT, READ_KEPT, TODOS_KEPT = 40, 60, 40
SAID_LIMIT = 40_000
MEASURED_LIMIT, MEASURED_WHOLE = 60, 16
REQUESTS_LIMIT, REQUEST_LIMIT = 12_000, 6_000
RULE_WORDS = r"(?i)\b(always|never|must|don'?t|do not|only|instead)\b"
MACHINE_PROMPT = (
    r"\s*(<(?!/?(?:b|i|a|p|div|span|html)\b)[a-z][\w-]*>|Caveat:|\[Request interrupted"
    r"|## Auto Mode|Stop hook (feedback|additional context))"
)
ACKNOWLEDGED = r"(?i)\bACK:\s*context received"


class Call(Record):
    """A tool call, as far as repetition and the handoff need it."""

    id: str = ""
    tool: str = ""
    kind: str = ""
    command: str = ""  # of a shell call
    does: str = ""  # what it does, without comments and ways to look at the output
    outcome: str = ""  # "" until there is a result, then ok or failed
    key: str = ""  # the same key twice: the same call with the same outcome


def look(session: Session) -> str:
    """Fold what the transcript gained into the facts; gives the newest row's time."""
    dialect, newest = DIALECTS[session.agent], ""
    for line in new_lines(session):
        row = dialect.read_row(parse_object(line))
        fold_row(session, row)
        newest = max(newest, row.at)
    facts = session.facts
    if facts.answered_at > facts.compacted_at:
        beside = dialect.read_beside(session.transcript)
        beside.id, beside.at = facts.answer, facts.answered_at
        fold_usage(facts, beside)
    return newest


def look_at(session: Session, event: Event) -> None:
    """Look; wait a moment where the transcript lags behind the event."""
    newest = look(session)
    deadline = time.monotonic() + LATE_S
    while is_behind(session.facts, event, newest) and time.monotonic() < deadline:
        time.sleep(LATE_POLL_S)
        newest = max(newest, look(session))
    last_words = event.last_assistant_message.strip()[-200:]
    if event.name == "Stop" and last_words not in session.facts.said:
        add_words(session.facts, event.last_assistant_message)


def is_behind(facts: Facts, event: Event, newest: str) -> bool:
    """Whether the transcript lacks the last answer: its words at a Stop; where a client
    writes late, any row as new as the event, once the numbers begin to matter."""
    last_words = event.last_assistant_message.strip()[-200:]
    if event.name == "Stop" and last_words:
        return last_words not in facts.said
    matters = event.name == "Stop" or facts.tokens * 2 >= facts.window
    is_about_calls = event.name in ("PostToolUse", "PostToolUseFailure", "Stop")
    is_late = DIALECTS[event.agent].is_late and is_about_calls
    return is_late and matters and newest < event.timestamp


def new_lines(session: Session) -> list:
    """The whole lines that the transcript gained; moves the session's offset."""
    size = size_of(session.transcript)
    if size < session.offset:  # rewritten, or another file
        session.offset = 0
        session.facts = Facts()
    start = max(session.offset, size - LOOK_LIMIT_BYTES)
    is_skipping = start > session.offset
    data = read_bytes(session.transcript, LOOK_LIMIT_BYTES, start=start)
    whole, newline, _ = data.rpartition(b"\n")
    if not newline:
        return []
    session.offset = start + len(whole) + 1
    lines = whole.split(b"\n")
    return lines[1:] if is_skipping else lines


def fold_row(session: Session, row: Row) -> None:
    """One row of the transcript into the facts."""
    facts = session.facts
    facts.chars += len(row.text)
    if row.kind == "boundary":
        fold_boundary(facts, row)
    elif row.kind == "answer":
        fold_answer(facts, row)
    elif row.kind == "prompt":
        fold_prompt(facts, row)
    if row.receipt and session.delivery.head and session.delivery.head in row.receipt:
        facts.received = session.delivery.head
    for call_id, tool, tool_input in row.calls:
        fold_call(facts, call_id, tool, tool_input, row.at)
    for call_id, has_failed, text in row.results:
        facts.chars += len(text)
        fold_result(facts, call_id, has_failed, text, row.at)
    if row.kind != "boundary":
        fold_usage(facts, row)


def fold_boundary(facts: Facts, row: Row) -> None:
    """A compaction: nothing of the old fullness holds."""
    facts.compactions += 1
    facts.compacted_at = row.at
    facts.tokens = row.tokens
    facts.chars = row.tokens * 4
    facts.measured.append([row.at, row.tokens])


def fold_usage(facts: Facts, row: Row) -> None:
    """Tokens, window and model, where the row tells them."""
    facts.window = row.window or facts.window
    facts.model = row.model or facts.model
    if not row.tokens:
        return
    is_same_answer = row.id and facts.measured and facts.measured[-1][2:] == [row.id]
    facts.tokens = row.tokens
    if is_same_answer:
        facts.measured[-1][1] = row.tokens
    else:
        facts.measured.append([row.at, row.tokens, row.id])
    if len(facts.measured) > MEASURED_LIMIT:  # every second of the older ones goes
        older = facts.measured[:-MEASURED_WHOLE]
        facts.measured = older[::2] + facts.measured[-MEASURED_WHOLE:]


def fold_answer(facts: Facts, row: Row) -> None:
    is_repeated = row.id == facts.answer and facts.said.endswith(row.text)
    facts.answer = row.id or row.at
    facts.answered_at = row.at
    if row.text and not is_repeated:  # some clients write an answer twice
        add_words(facts, row.text)
        facts.said_at = row.at
    if "context received" in row.text.lower() and re.search(ACKNOWLEDGED, row.text):
        facts.acknowledged_at = row.at


def add_words(facts: Facts, text: str) -> None:
    facts.said = (facts.said + "\n\n" + text).strip()[-SAID_LIMIT:]


def fold_prompt(facts: Facts, row: Row) -> None:
    """The person's own words, or what the client put there in their name."""
    text = row.text.strip()
    command = re.match(r"<command-name>(/\S+)</command-name>", text)
    facts.said = ""
    if command or not text or re.match(MACHINE_PROMPT, text):
        return
    if facts.requests and facts.requests[-1][1] == cut_middle(text, REQUEST_LIMIT):
        return
    facts.requests.append([row.at, cut_middle(text, REQUEST_LIMIT)])
    while sum(len(words) for _, words in facts.requests) > REQUESTS_LIMIT:
        del facts.requests[least_needed(facts.requests)]


def least_needed(requests: list) -> int:
    """Which request goes: never the first or the last, from the middle, rules at the end."""
    if len(requests) < 3:
        return 0
    middle = range(1, len(requests) - 1)
    chatter = [index for index in middle if not re.search(RULE_WORDS, requests[index][1])]
    candidates = chatter or list(middle)
    return candidates[len(candidates) // 2]


# --- calls and results

LOOKING = (
    "ls, cat, head, tail, grep, rg, find, fd, sed -n, awk, wc, echo, pwd, which, type, stat, "
    "tree, ps, jq, diff, file, du, df, env, date, whoami, less, more, command -v, "
    "python --version, python3 --version, node --version, git status, git diff, git log, "
    "git show, git branch, git remote, git blame, git rev-parse, git ls-files, git grep"
).split(", ")
WAITING = "sleep, wait, watch, tail, gh run watch".split(", ")
CHECKERS = (
    "pytest tox nox unittest ruff mypy flake8 eslint tsc jest vitest mocha phpunit rspec "
    "shellcheck bats ctest make mvn gradle gradlew"
).split()
BUILD_TOOLS = "go cargo dotnet swift mix bun deno npm pnpm yarn cmake".split()
BUILD_STEPS = ("test", "build", "lint", "check", "vet", "clippy", "--build")
CHECK_WORDS = ("test", "check", "verify")
CHECK_SCRIPTS = ("/test", "/check", "/verify", "/ci", "ci/run")
TREE_MOVERS = ("git", "gh", "jj", "hub", "checkout", "switch", "worktree", "release", "deploy")
NUMBERS = r"\d+"


def fold_call(facts: Facts, call_id: str, tool: str, tool_input: dict, at: str) -> None:
    """A tool call: counts, files, commands, what it does."""
    if call_id and any(known["id"] == call_id for known in facts.calls):
        return  # some clients write a row twice
    kind = tool_kind(tool)
    command = command_of(tool_input) if kind == "run" else ""
    facts.tool_calls += 1
    facts.breakdown[tool] = facts.breakdown.get(tool, 0) + 1
    if kind == "note":
        fold_todos(facts, tool_input)
    if kind == "agent":
        facts.subagents += 1
    is_handoff_named = "/handoffs/" in command and not is_looking(command)
    is_edited = kind == "edit" and any(map(is_handoff_path, touched_paths(tool_input)))
    if is_handoff_named or is_edited:
        facts.handoff_at = at
    if command:
        row = [at, one_line(command, 300)]
        facts.commands = (facts.commands + [row])[-COMMANDS_KEPT:]
        facts.tree_moves += may_move_tree(command)
    fold_paths(facts, kind, tool_input, at)
    fold_work(facts, kind, command, at)
    call = Call({"id": call_id, "tool": tool, "kind": kind})
    call.command = one_line(command, 300)
    call.does = describe_call(tool, kind, command, tool_input)
    facts.calls = (facts.calls + [call.as_dict()])[-CALLS_KEPT:]


def may_move_tree(command: str) -> bool:
    """Whether a shell command may switch the branch."""
    if not any(word in command for word in TREE_MOVERS):
        return False
    return not set(TREE_MOVERS).isdisjoint(re.split(r"\W+", command))


def fold_paths(facts: Facts, kind: str, tool_input: dict, at: str) -> None:
    """Which files were read or edited. A shell reads files, too."""
    paths = touched_paths(tool_input)
    if kind == "edit":
        for path in paths:
            if not is_handoff_path(path):
                others = [row for row in facts.edited if row[0] != path]
                facts.edited = (others + [[path, at]])[-EDITED_KEPT:]
    elif kind == "read":
        facts.read = (facts.read + paths)[-READ_KEPT:]
    elif kind == "run":
        command = command_of(tool_input)
        if ".md" in command:
            named = re.findall(r"[^\s'\"=:]+\.md\b", command)
            facts.read = (facts.read + named)[-READ_KEPT:]


def is_handoff_path(path: str) -> bool:
    return "/handoffs/" in path.replace("\\", "/") and path.endswith(".md")


def fold_work(facts: Facts, kind: str, command: str, at: str) -> None:
    """Work is an edit, or two calls that do more than look."""
    if kind == "edit":
        facts.work += 2
    elif kind in ("agent", "other") or (kind == "run" and not is_looking(command)):
        facts.work += 1
    else:
        return
    facts.worked_at = at


def is_looking(command: str) -> bool:
    """Whether every part of a shell command only looks."""
    for harmless in ("2>&1", ">&2", ">/dev/null", "> /dev/null", "--no-pager "):
        command = command.replace(harmless, "")
    if any(word in command for word in (">", "sed -i", "tee ", "-delete", "-exec")):
        return False
    for separator in ("&&", "||", "|", "\n"):
        command = command.replace(separator, ";")
    parts = [part.strip() for part in command.split(";")]
    known = [part for part in parts if part and not part.startswith(("cd ", "#"))]
    return all(begins_with(part, LOOKING) for part in known)


def begins_with(command: str, known: list) -> bool:
    """Whether the first word, or the first two or three, are a known command."""
    words = command.split()
    if words[:1] == ["timeout"]:
        words = words[2:]
    return any(" ".join(words[:count]) in known for count in (1, 2, 3))


def is_check(command: str) -> bool:
    """Whether a shell command tests, builds or lints something."""
    words = [word.strip("();&|'\"") for word in command.replace(" run ", " ").split()]
    for word, following in zip(words, words[1:] + [""]):
        name = word.rpartition("/")[2]
        is_step = name in BUILD_TOOLS and following.startswith(BUILD_STEPS)
        is_named_so = any(known in word for known in CHECK_WORDS)
        is_script = is_named_so and name.endswith((".sh", ".py"))
        if name in CHECKERS or is_step or is_script or word.endswith(CHECK_SCRIPTS):
            return True
    return False


def describe_call(tool: str, kind: str, command: str, tool_input: dict) -> str:
    """What a call does; numbers, comments and ways to look at the output aside."""
    is_task_output = any(path.endswith(".output") for path in touched_paths(tool_input))
    if kind == "run":
        text = plain_command(command)
    elif kind in ("poll", "note") or is_task_output:
        return ""
    else:
        known = {key: value for key, value in tool_input.items() if key != "description"}
        text = tool + " " + json.dumps(known, sort_keys=True)
    text = " ".join(text.split())
    return "%s %d" % (text[:200], len(text))


def plain_command(command: str) -> str:
    """A command without comments and ways to look at the output."""
    text = command.strip()
    if "#" in text:
        text = re.sub(r"(^|\s)#.*", "", text)
    if "|" in text or "2>&1" in text:
        shortened = r"(\s*2>&1|\s*\|\s*(tail|head|cat)( -n?\s*\d+)?|\s*\|\| true)+\s*$"
        text = re.sub(shortened, "", text)
    return text


def fold_result(facts: Facts, call_id: str, has_failed: bool, text: str, at: str) -> None:
    """What came of a call."""
    known = [call for call in facts.calls if call["id"] == call_id and not call["outcome"]]
    if not known:
        return
    call = known[-1]
    call["outcome"] = "failed" if has_failed else "ok"
    note_repetition(facts, call, text)
    command = call["command"]
    if not command:
        return
    if has_failed:
        facts.failed = {"command": command, "error": text.strip()[-1500:], "at": at}
        facts.tried = []
        return
    if is_check(command) and not is_looking(command):
        facts.passed = {"command": command, "at": at}
    if facts.failed.get("command") == command:
        facts.failed = {}
    elif facts.failed:
        facts.tried = (facts.tried + [command])[-5:]


def note_repetition(facts: Facts, call: dict, text: str) -> None:
    """The call's key: what it does, in which state of things, and what came of it."""
    has_failed, is_edit = call["outcome"] == "failed", call["kind"] == "edit"
    is_waiting = begins_with(call["command"], WAITING) and not has_failed
    if not call["does"] or is_waiting:
        return  # waiting and notes are not work
    what, result = call["does"], text[:200] + "…" + text[-200:]
    if has_failed:
        what = re.sub(NUMBERS, "#", what)  # other ports, longer waits
    if has_failed or call["kind"] == "run":
        result = re.sub(NUMBERS, "#", result)
    if is_edit and has_failed:  # each another guess at the same place
        what, result = call["tool"], text.partition("\n")[0]
    same = "| %s | %s%s %s" % (what, result[:80], result[-80:], call["outcome"])
    is_new = not any(other["key"].endswith(same) for other in facts.calls)
    call["key"] = ("edit" if is_edit else str(facts.changes)) + same
    is_look = call["kind"] in ("read", "look")
    if call["kind"] == "run":
        is_look = is_looking(call["command"])
    if is_new and not is_look and call["outcome"] == "ok":
        facts.changes += 1


def fold_todos(facts: Facts, tool_input: dict) -> None:
    """The todo list as the client's tool leaves it: a whole list, or one task."""
    rows = tool_input.get("todos") or tool_input.get("plan")
    if isinstance(rows, list):
        facts.todos = [todo_of(row) for row in rows if isinstance(row, dict)][:TODOS_KEPT]
        return
    number = text_of(tool_input.get("taskId"))
    if number.isdigit() and 0 < int(number) <= len(facts.todos):
        status = text_of(tool_input.get("status"))
        facts.todos[int(number) - 1][0] = status or facts.todos[int(number) - 1][0]
    elif tool_input.get("subject") and len(facts.todos) < TODOS_KEPT:
        facts.todos.append(todo_of(tool_input))


def todo_of(row: dict) -> list:
    """[status, text]"""
    for key in ("subject", "content", "step", "description"):
        if text_of(row.get(key)):
            return [text_of(row.get("status")) or "pending", one_line(row[key], 200)]
    return ["pending", ""]


# --- views: fullness

DEFAULT_WINDOW, LARGE_WINDOW = 200_000, 1_000_000
SMALL_MODELS = ("claude-3", "opus-4", "sonnet-4", "haiku-4")
LATER_MODELS = ("-4-7", "-4-8", "-4-9", "[1m]")  # their window is the large one
# Claude Code compacts by itself at 167,000 of 200,000 and at 977,000 of 1,000,000.
RESERVE_TOKENS, RESERVE_LARGE_TOKENS, OUTPUT_TOKENS = 33_000, 23_000, 20_000
CHARS_PER_TOKEN = 4


class Fullness(Record):
    """How full the context is. Percent is of what can be used before the client compacts."""

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
    """The fullness of the run's session."""
    return measure(run.session, run.project.settings, run.env)


def measure(session: Session, settings: Settings, env: dict) -> Fullness:
    """The fullness by a session's facts."""
    facts, found = session.facts, Fullness()
    found.is_exact = facts.tokens > 0
    found.tokens = facts.tokens or facts.chars // CHARS_PER_TOKEN
    found.is_known = found.tokens > 0 and bool(facts.answered_at or facts.compacted_at)
    found.window_from, found.window = find_window(session, settings)
    most = max([0] + [row[1] for row in facts.measured])  # an estimate proves nothing
    if found.window_from != "settings" and most > found.window:
        found.window_from, found.window = "measured", max(LARGE_WINDOW, found.window)
    found.usable = usable_tokens(session.agent, found.window, env)
    found.percent = found.percent_of(found.tokens)
    return found


def find_window(session: Session, settings: Settings) -> tuple:
    """(where it comes from, the window's tokens): the best source that tells one."""
    name = session.model if "[1m]" in session.model else session.facts.model or session.model
    is_claude = session.agent == "claude" or "claude" in name
    sources = [
        ("settings", settings["monitor.context_window"]),
        ("transcript", session.facts.window),
        ("status line", session.window_told),
        ("client", DIALECTS[session.agent].window),
        ("model", window_of_model(name) if is_claude and name else 0),
    ]
    for source, tokens in sources:
        if tokens >= 1000:
            return source, tokens
    return "default", DEFAULT_WINDOW


def window_of_model(model: str) -> int:
    """As Claude Code decides it by the model's name."""
    name = model.lower().replace(".", "-")
    is_small = any(known in name for known in SMALL_MODELS)
    is_later = any(known in name for known in LATER_MODELS)
    return DEFAULT_WINDOW if is_small and not is_later else LARGE_WINDOW


def usable_tokens(agent: str, window: int, env: dict) -> int:
    """Up to where the client compacts by itself; the window where that is not known."""
    if agent != "claude":
        return window * (DIALECTS[agent].compacts_at or 100) // 100
    if env.get("DISABLE_AUTO_COMPACT", "") not in ("", "0", "false"):
        return window
    told = env.get("CLAUDE_CODE_AUTO_COMPACT_WINDOW", "")
    base = min(window, int(told)) if told.isdigit() and int(told) > 50_000 else window
    reserve = RESERVE_TOKENS if base < LARGE_WINDOW else RESERVE_LARGE_TOKENS
    usable = max(base - reserve, base // 2)  # a small window was told by the person
    percent = env.get("CLAUDE_AUTOCOMPACT_PCT_OVERRIDE", "")
    if percent.isdigit() and 1 <= int(percent) <= 100:
        usable = min(usable, (base - OUTPUT_TOKENS) * int(percent) // 100)
    return max(usable, 1000)


def growth_of_a_call(facts: Facts) -> int:
    """The largest growth of the last eight answers, in tokens."""
    counts = [row[1] for row in facts.measured[-9:]]
    return max([after - before for before, after in zip(counts, counts[1:])] or [0])


# =============================================================================
# Clients
# =============================================================================
# The one place that knows the clients' JSON: event names and fields, reply
# shapes, tool names, transcript rows. Each client is a row of DIALECTS. The rest
# of the file speaks in Event, Row and Reply.

EVENTS = {  # our name of an event -> its mode
    "SessionStart": "inject",
    "UserPromptSubmit": "inject",
    "PreToolUse": "gate",
    "PostToolUse": "monitor",
    "PostToolUseFailure": "monitor",
    "PreCompact": "monitor",
    "Stop": "stop-enforce",
    "SessionEnd": "cleanup",
}
CAN_NEVER_SPEAK = ("PreCompact", "SessionEnd")
REPLY_LIMIT = 9_900  # the client cuts at 10,000 UTF-16 units
HOLD_CAP = 8  # stops held in a row; clients without a cap of their own get ours


class Event(Record):
    """What the client told us, in Claude Code's names; `name` is ours of the event."""

    agent: str = "claude"
    name: str = ""
    is_subagent: bool = False
    is_typed: bool = True  # a prompt that a person typed
    is_known: bool = True  # we know which client this is
    hook_event_name: str = ""
    session_id: str = ""
    transcript_path: str = ""
    cwd: str = ""
    timestamp: str = ""  # ISO, as the client writes it
    prompt: str = ""
    source: str = ""
    reason: str = ""
    trigger: str = ""
    tool_name: str = ""
    tool_use_id: str = ""
    tool_input: dict = {}
    last_assistant_message: str = ""
    stop_hook_active: bool = False
    permission_mode: str = ""
    background_tasks: list = []
    session_crons: list = []
    model: str = ""


class Row(Record):
    """One line of a transcript, in our words."""

    kind: str = "other"  # or prompt, answer, boundary (a compaction)
    id: str = ""  # of an answer: several rows may belong to one
    at: str = ""  # ISO time, compared as text
    text: str = ""
    calls: list = []  # [(id, tool, input)]
    results: list = []  # [(call id, has failed, text)]
    receipt: str = ""  # text of hooks that reached the model
    tokens: int = 0
    window: int = 0
    model: str = ""


class Dialect:
    """How a client speaks. A row of the table says only what is different."""

    name: str = ""
    label: str = ""
    settings: str = ""  # the project's settings file with its hooks
    user_settings: str = ""  # the same in the home, where it has another name
    project_variable: str = ""  # names the folder that the client was started in
    renamed: dict = {}  # our event name -> theirs
    registered: tuple = tuple(EVENTS)
    time_unit: int = 1  # of a timeout in the settings, per second
    end_limit_s: int = 5
    fields: dict = {}  # their field of an event -> ours
    mute: tuple = CAN_NEVER_SPEAK  # events whose text does not reach the model
    has_receipts: bool = True  # its transcript holds what hooks said
    is_flat: bool = False  # the text stands at the top level of a reply
    counts_bytes: bool = False  # the limit of a reply is in UTF-8 bytes
    holds_by_text: bool = False  # newer versions: a stop is held by text alone
    runs_claudes: tuple = ()  # scopes in which it runs Claude Code's settings, too
    instruction_file: str = "AGENTS.md"
    compacts_at: int = 0  # percent of the window; 0: not known
    window: int = 0  # where every model has the same
    is_late: bool = False  # its transcript is written a moment after the event

    def __init__(self, **values: object) -> None:
        for name, value in values.items():
            setattr(self, name, value)
        self.user_settings = self.user_settings or self.settings

    def find_transcript(self, event: Event, env: dict) -> str:
        """Where the transcript is; some clients do not say."""
        return event.transcript_path

    def complete(self, event: Event, data: dict) -> Event | None:
        """The event where a client means something else by it; None: it is none."""
        return event

    def read_row(self, row: dict) -> Row:
        """One row of its transcript, in our words."""
        raise NotImplementedError

    def read_beside(self, transcript: str) -> Row:
        """Numbers that a file beside the transcript tells."""
        return Row()


# --- events


def parse_event(data: object, mode: str, word: str, env: dict) -> Event | None:
    """The event in our words; None if it is none that this mode is for."""
    if not isinstance(data, dict):
        return None
    agent = detect_agent(word, data)
    dialect = DIALECTS[agent]
    event = Event(in_our_names(data, dialect.fields))
    names = {dialect.renamed.get(name, name): name for name in EVENTS}
    event.name = names.get(event.hook_event_name, "")
    if EVENTS.get(event.name) != mode:
        return None
    event.agent = agent
    event.is_known = is_known_client(word, agent, env)
    event.is_subagent = bool(data.get("agent_id") or data.get("subagentType"))
    event.source = "startup" if event.source == "new" else event.source
    event.prompt = persons_words(event.prompt)
    event.is_typed = not event.prompt.startswith("<task-notification>")
    event.transcript_path = dialect.find_transcript(event, env)
    return dialect.complete(event, data)


def in_our_names(data: dict, fields: dict) -> dict:
    """An event's fields; where it has one in both spellings, ours counts."""
    named = {ours: data[theirs] for theirs, ours in fields.items() if theirs in data}
    named.update(data)
    return named


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
    claudes = [".claude/settings.json", ".claude/settings.local.json"]
    runs_them = agent == "claude" or "project" in dialect.runs_claudes
    return [dialect.settings] + (claudes if runs_them else [])


def can_speak(event: Event) -> bool:
    return event.name not in DIALECTS[event.agent].mute


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
        if self.dialect.counts_bytes:
            return len(text.encode("utf-8", "replace"))
        return len(text.encode("utf-16-le", "replace")) // 2

    def add(self, text: str) -> bool:
        """Add a text if it fits; False if it has to wait."""
        if self.length(text) > self.room():
            return False
        self.texts.append(text)
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
    if reply.is_hold and not holds_by_text(event, env):
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


def holds_by_text(event: Event, env: dict) -> bool:
    """From 2.1.163 on Claude Code goes on for additionalContext, without showing an
    error. An outer agent's AI_AGENT may be inherited, so the session must agree."""
    if not DIALECTS[event.agent].holds_by_text:
        return False
    match = re.match(r"claude-code_(\d+)-(\d+)-(\d+)", env.get("AI_AGENT", ""))
    is_own = env.get("CLAUDE_CODE_SESSION_ID") == event.session_id
    return bool(match) and is_own and tuple(map(int, match.groups())) >= (2, 1, 163)


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
    for key in ("file_path", "path", "notebook_path", "absolute_path", "target_file"):
        if isinstance(tool_input.get(key), str):
            return [tool_input[key]]
    for key in ("command", "input", "patch"):
        text = tool_input.get(key)
        if isinstance(text, str):
            return re.findall(PATCHED_FILE, text) if "*** " in text else []
    return []


def command_of(tool_input: dict) -> str:
    """The shell command of a call; "" if it has none."""
    for key in ("command", "cmd"):
        command = tool_input.get(key)
        if isinstance(command, list):
            command = " ".join(map(str, command))
        if isinstance(command, str):
            return command[:8000]
    return ""


# --- transcripts: what the readers share

HOOK_TAGS = r"(?s)<(hook_context|qwen:user-prompt-submit-context)>.*?</\1>\s*"
CODEXS_HEAD = r"\AChunk ID: (?:.*\n){1,5}?Output:\n"
FAILED_COMMAND = (
    r"\AChunk ID: (?:.*\n){1,3}?Process exited with code [1-9]"
    r"|\nExit Code: [1-9]\d*\n(?:Signal|Process Group)"  # Gemini CLI, Qwen Code
    r"|\[Process exited with code [1-9]\d*\]\s*\Z"  # droid
)


def dig(value: object, *keys: str) -> object:
    """The value below a chain of keys; None if there is none."""
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def text_of(value: object) -> str:
    return value if isinstance(value, str) else ""


def count_of(value: object, most: int = 20_000_000) -> int:
    """A number that can be meant, such as one of tokens; 0 for anything else."""
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return int(value) if is_number and 0 < value < most else 0


def blocks_of(content: object) -> list:
    """The blocks of a content that are objects; an object alone counts as one."""
    blocks = content if isinstance(content, list) else [content]
    return [block for block in blocks if isinstance(block, dict)]


def joined_texts(content: object) -> str:
    """The text of a content: a string, or a list of strings and text blocks."""
    texts = []
    for block in content if isinstance(content, list) else [content]:
        if not dig(block, "thought"):  # what the agent only thought was not said
            texts.append(text_of(block) or text_of(dig(block, "text")))
    return "\n".join(filter(None, texts))


def persons_words(text: str) -> str:
    """A prompt without what hooks put around it."""
    if "</" in text:
        text = re.sub(HOOK_TAGS, "", text)
    return text.strip()


def call_of(call_id: object, tool: object, given: object) -> tuple:
    """A row of Row.calls. The input is an object, JSON of one, or a plain text."""
    if isinstance(given, str):
        given = parse_object(given) or {"command": given}
    return text_of(call_id), text_of(tool), given if isinstance(given, dict) else {}


def result_of(call_id: object, has_failed: bool, text: str) -> tuple:
    """A row of Row.results. A command that failed may only say so in its text."""
    if "exited with code" in text or "Exit Code:" in text:
        has_failed = has_failed or bool(re.search(FAILED_COMMAND, text))
        text = re.sub(CODEXS_HEAD, "", text)
    return text_of(call_id), has_failed, text


def read_blocks(found: Row, content: object) -> None:
    """Text, calls and results, as Anthropic writes them."""
    found.text = joined_texts(content)
    for block in blocks_of(content):
        kind, text = block.get("type"), joined_texts(block.get("content"))
        if kind == "tool_use":
            given = block.get("input")
            found.calls.append(call_of(block.get("id"), block.get("name"), given))
        elif kind == "tool_result":
            is_error = block.get("is_error") is True
            found.results.append(result_of(block.get("tool_use_id"), is_error, text))


def function_call(call: dict) -> tuple:
    """A call, as Google writes it."""
    return call_of(call.get("id"), call.get("name"), call.get("args"))


def function_responses(parts: object) -> list:
    """The results in Google's parts."""
    answers = [part.get("functionResponse") for part in blocks_of(parts)]
    results = []
    for answer in blocks_of(answers):
        error = text_of(dig(answer, "response", "error"))
        text = error or text_of(dig(answer, "response", "output"))
        results.append(result_of(answer.get("id"), bool(error), text))
    return results


def read_googles_parts(found: Row, parts: object) -> None:
    """A prompt, or results. What hooks said stands in both."""
    heard = joined_texts(parts)
    found.results = function_responses(parts)
    found.text = persons_words(heard)
    found.receipt = "\n".join([heard] + [text for _, _, text in found.results])
    if found.results:
        found.kind = "other"


# --- transcripts: a reader for each client


class ClaudeCode(Dialect):
    def read_row(self, row: dict) -> Row:
        if row.get("isSidechain") or row.get("isApiErrorMessage"):
            return Row()
        kind, message = row.get("type"), row.get("message")
        content, extra = dig(message, "content"), row.get("attachment")
        found = Row({"at": row.get("timestamp")})
        if kind == "assistant" and dig(message, "model") != "<synthetic>":
            found.kind = "answer"
            found.id = text_of(dig(message, "id"))
            found.model = claude_model(row)
            found.tokens = claude_tokens(dig(message, "usage"))
            read_blocks(found, content)
        elif kind == "user":
            is_clients_own = row.get("isMeta") or row.get("isCompactSummary")
            read_blocks(found, content)
            found.kind = "other" if is_clients_own or found.results else "prompt"
        elif kind == "system" and row.get("subtype") == "compact_boundary":
            found.kind = "boundary"
            found.tokens = count_of(dig(row, "compactMetadata", "postTokens"))
        elif dig(extra, "type") == "hook_additional_context":
            found.receipt = joined_texts(extra.get("content"))
        elif dig(extra, "type") == "queued_command":  # typed while the agent worked
            found.kind = "prompt"
            found.text = joined_texts(extra.get("prompt"))
        return found


def claude_model(row: dict) -> str:
    """The model's name; what was asked for has the [1m] that the answer lacks."""
    asked = text_of(row.get("requestedModel"))
    return asked if "[1m]" in asked else text_of(dig(row, "message", "model"))


def claude_tokens(usage: object) -> int:
    keys = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
    return sum(count_of(dig(usage, key)) for key in keys)


class Codex(Dialect):
    OWN = ("<environment_context>", "<user_instructions>", "# AGENTS.md instructions")

    def read_row(self, row: dict) -> Row:
        kind, payload = row.get("type"), row.get("payload")
        found = Row({"at": row.get("timestamp")})
        if kind == "token_usage_record":  # it ends an answer
            found.kind = "answer"
            found.id = text_of(dig(payload, "response_id"))
            found.tokens = count_of(dig(payload, "usage", "input_tokens"))
        elif kind == "compacted":
            found.kind = "boundary"
        elif kind == "response_item":
            self.read_item(found, payload)
        elif isinstance(dig(payload, "item"), dict):
            self.read_nested(found, payload["item"])
        else:
            self.read_numbers(found, payload)
        return found

    def read_item(self, found: Row, payload: object) -> None:
        role, text = dig(payload, "role"), joined_texts(dig(payload, "content"))
        tool, call_id = dig(payload, "name"), dig(payload, "call_id")
        if role == "assistant":
            found.kind = "answer"
            found.text = text
        elif role == "developer":
            found.receipt = text
        elif role == "user" and not text.startswith(self.OWN):
            found.kind = "prompt"
            found.text = "" if text.startswith("<hook_prompt") else text
        elif tool and tool != "exec":  # what a script runs has rows of its own
            given = payload.get("arguments") or payload.get("input")
            found.calls.append(call_of(call_id, tool, given))
        elif dig(payload, "output"):
            text = joined_texts(payload["output"])
            found.results.append(result_of(call_id, False, text))

    def read_nested(self, found: Row, item: dict) -> None:
        """What a script did (code mode): the call and its result at once."""
        call_id, command = text_of(item.get("id")), item.get("command")
        if not call_id.startswith("exec-"):
            return
        if isinstance(item.get("changes"), dict):
            patch = "\n".join("*** Update File: " + path for path in item["changes"])
            found.calls.append(call_of(call_id, "apply_patch", patch))
        else:
            words = command[2:] if isinstance(command, list) else []  # after bash -lc
            found.calls.append(call_of(call_id, "exec_command", {"command": words}))
        text = text_of(item.get("aggregated_output"))
        found.results.append((call_id, item.get("status") == "failed", text))

    def read_numbers(self, found: Row, payload: object) -> None:
        info = dig(payload, "info")
        for told in (payload, info):
            found.window = found.window or count_of(dig(told, "model_context_window"))
        found.model = text_of(dig(payload, "model"))
        last = dig(info, "last_token_usage")
        if dig(last, "input_tokens") == 0:  # after a compaction
            found.tokens = count_of(dig(last, "total_tokens"))


class GeminiCli(Dialect):
    def complete(self, event: Event, data: dict) -> Event | None:
        """Its Stop has the text of the whole turn, with what earlier holds brought. The
        transcript has it all; the last line tells whether that has caught up."""
        said = event.last_assistant_message.strip()
        event.last_assistant_message = said.rpartition("\n")[2]
        return event

    def read_row(self, row: dict) -> Row:
        kind, content = row.get("type"), row.get("content")
        found = Row({"at": row.get("timestamp"), "id": row.get("id")})
        if kind == "gemini":  # written again when its calls are done
            found.kind = "answer"
            found.text = joined_texts(content)
            found.model = text_of(row.get("model"))
            found.tokens = count_of(dig(row, "tokens", "input"))
            for call in blocks_of(row.get("toolCalls")):
                found.calls.append(function_call(call))
                found.results += function_responses(call.get("result"))
        elif kind == "user":
            found.kind = "prompt"
            read_googles_parts(found, content)
        elif "<state_snapshot>" in json.dumps(row.get("$set")):
            found.kind = "boundary"
            found.at = text_of(dig(row, "$set", "lastUpdated"))
        return found


class QwenCode(Dialect):
    def complete(self, event: Event, data: dict) -> Event | None:
        """Its prompt event comes before every request; a person's has this field."""
        is_prompt = event.name == "UserPromptSubmit"
        return None if is_prompt and "submitted_prompt" not in data else event

    def read_row(self, row: dict) -> Row:
        kind, parts = row.get("type"), dig(row, "message", "parts")
        found = Row({"at": row.get("timestamp")})
        if kind == "assistant":
            found.kind = "answer"
            found.id = text_of(row.get("uuid"))
            found.text = joined_texts(parts)
            found.model = text_of(row.get("model"))
            found.tokens = count_of(dig(row, "usageMetadata", "promptTokenCount"))
            found.window = count_of(row.get("contextWindowSize"))
            calls = [part.get("functionCall") for part in blocks_of(parts)]
            found.calls = [function_call(call) for call in blocks_of(calls)]
        elif kind in ("user", "tool_result"):
            found.kind = "prompt"
            read_googles_parts(found, parts)
        elif row.get("subtype") == "chat_compression":
            found.kind = "boundary"
            found.tokens = count_of(dig(row, "systemPayload", "info", "newTokenCount"))
        return Row() if row.get("isSidechain") else found


class CopilotCli(Dialect):
    def find_transcript(self, event: Event, env: dict) -> str:
        """Only its Stop names the transcript; it lies where the session's id says."""
        is_plain = safe_name(event.session_id) == event.session_id
        if event.transcript_path or not is_plain:
            return event.transcript_path
        home = env.get("COPILOT_HOME") or os.path.join(home_folder(env), ".copilot")
        return os.path.join(home, "session-state", event.session_id, "events.jsonl")

    def read_row(self, row: dict) -> Row:
        kind, data = row.get("type"), row.get("data")
        found = Row({"at": row.get("timestamp")})
        if kind == "session.usage_record":
            usage = dig(data, "usage")
            found.tokens = count_of(dig(usage, "inputTokens"))
            found.window = count_of(dig(usage, "maxPromptTokens"))
            found.model = text_of(dig(usage, "model"))
        elif kind == "assistant.message":
            found.kind = "answer"
            found.id = text_of(dig(data, "messageId"))
            found.text = text_of(dig(data, "content"))
            for call in blocks_of(dig(data, "toolRequests")):
                call_id, given = call.get("toolCallId"), call.get("arguments")
                found.calls.append(call_of(call_id, call.get("name"), given))
        elif kind == "user.message":
            found.kind = "prompt"
            found.text = text_of(dig(data, "content"))
        elif kind == "tool.execution_complete":
            found.results = [self.read_result(data)]
        elif kind == "hook.end":
            found.receipt = text_of(dig(data, "output", "additionalContext"))
        elif kind == "session.compaction_complete" and dig(data, "success"):
            found.kind = "boundary"
            found.tokens = count_of(dig(data, "postCompactionTokens"))
        return Row() if row.get("agentId") else found

    def read_result(self, data: object) -> tuple:
        code = dig(data, "shellExecution", "exitCode")
        has_failed = dig(data, "success") is False or bool(code)
        said = dig(data, "result", "content") or dig(data, "error", "message")
        return text_of(dig(data, "toolCallId")), has_failed, joined_texts(said)


class Droid(Dialect):
    def read_row(self, row: dict) -> Row:
        message = row.get("message")
        role, content = dig(message, "role"), dig(message, "content")
        found = Row({"at": row.get("timestamp"), "id": row.get("id")})
        if row.get("type") == "compaction_state":
            found.kind = "boundary"
            found.tokens = count_of(row.get("summaryTokens"))
        elif dig(message, "hookEventName"):
            printed = blocks_of(message.get("hookResults"))
            found.receipt = joined_texts([one.get("stdout") for one in printed])
        elif role == "assistant":
            found.kind = "answer"
            found.model = text_of(message.get("modelId"))
            read_blocks(found, content)
        elif role == "user" and message.get("visibility") != "llm_only":
            read_blocks(found, content)
            found.kind = "other" if found.results else "prompt"
        return found

    def read_beside(self, transcript: str) -> Row:
        """Its numbers are in <session>.settings.json."""
        path, ending, _ = transcript.rpartition(".jsonl")
        settings = read_object(path + ".settings.json") if ending else {}
        usage = settings.get("lastCallTokenUsage")
        keys = ("inputTokens", "cacheReadTokens", "cacheCreationTokens")
        tokens = sum(count_of(dig(usage, key)) for key in keys)
        return Row({"tokens": tokens, "model": settings.get("model")})


class GrokBuild(Dialect):
    def complete(self, event: Event, data: dict) -> Event | None:
        """At its end comes another Stop, which can hold nothing."""
        is_end = event.reason in ("shutdown", "channel_closed")
        return None if event.name == "Stop" and is_end else event

    def read_row(self, row: dict) -> Row:
        update, meta = dig(row, "params", "update"), dig(row, "params", "_meta")
        kind, content = dig(update, "sessionUpdate"), dig(update, "content")
        sent_at = count_of(dig(meta, "agentTimestampMs"), most=10**13)
        found = Row({"at": format_iso(sent_at / 1000) if sent_at else ""})
        found.id = str(dig(meta, "streamStartMs") or "")  # one for each answer
        found.tokens = count_of(dig(meta, "totalTokens"))
        if kind == "agent_message_chunk":
            found.kind = "answer"
            found.text = joined_texts(content)
        elif kind == "user_message_chunk":
            found.kind = "prompt"
            found.text = joined_texts(content)
            found.model = text_of(dig(update, "_meta", "modelId"))
        elif kind == "tool_call":
            found.kind = "answer"
            call_id, given = update.get("toolCallId"), update.get("rawInput")
            found.calls.append(call_of(call_id, update.get("title"), given))
        elif kind == "tool_call_update" and update.get("status"):
            found.results = [self.read_result(update)]
        elif kind == "auto_compact_completed":
            found.kind = "boundary"
            found.tokens = count_of(update.get("tokens_after"))
        return found

    def read_beside(self, transcript: str) -> Row:
        """The window is in signals.json, from the end of the first turn on."""
        signals = read_object(os.path.join(os.path.dirname(transcript), "signals.json"))
        return Row({"window": count_of(signals.get("contextWindowTokens"))})

    def read_result(self, update: dict) -> tuple:
        code = dig(update, "rawOutput", "exit_code")
        has_failed = update["status"] == "failed" or bool(code)
        contents = [block.get("content") for block in blocks_of(update.get("content"))]
        return text_of(update.get("toolCallId")), has_failed, joined_texts(contents)


# --- the table

MUTE_BEFORE_TOOL = CAN_NEVER_SPEAK + ("PreToolUse",)
COMMON = ("SessionStart", "UserPromptSubmit", "PostToolUse", "Stop", "SessionEnd")
WITH_COMPACTION = COMMON + ("PreCompact",)
WITH_FAILURES = WITH_COMPACTION + ("PostToolUseFailure",)
GROKS_FIELDS = {  # it has the others in both spellings
    "stopHookActive": "stop_hook_active",
    "lastAssistantMessage": "last_assistant_message",
    "backgroundTasks": "background_tasks",
    "sessionCrons": "session_crons",
}

DIALECTS = {
    dialect.name: dialect
    for dialect in (
        ClaudeCode(
            name="claude",
            label="Claude Code",
            settings=".claude/settings.json",
            project_variable="CLAUDE_PROJECT_DIR",
            holds_by_text=True,
            instruction_file="CLAUDE.md",
        ),
        Codex(
            name="codex",
            label="Codex",
            settings=".codex/hooks.json",
            registered=WITH_COMPACTION,
            end_limit_s=3,
            counts_bytes=True,
            compacts_at=94,
        ),
        GeminiCli(
            name="gemini",
            label="Gemini CLI",
            settings=".gemini/settings.json",
            project_variable="GEMINI_PROJECT_DIR",
            renamed={
                "UserPromptSubmit": "BeforeAgent",
                "PreToolUse": "BeforeTool",
                "PostToolUse": "AfterTool",
                "Stop": "AfterAgent",
            },
            registered=COMMON,  # its PreCompress comes before every request
            time_unit=1000,
            fields={"prompt_response": "last_assistant_message"},
            mute=MUTE_BEFORE_TOOL,
            instruction_file="GEMINI.md",
            window=1_048_576,
        ),
        QwenCode(
            name="qwen",
            label="Qwen Code",
            settings=".qwen/settings.json",
            project_variable="QWEN_PROJECT_DIR",
            registered=WITH_FAILURES,
            fields={"crons": "session_crons"},
            mute=MUTE_BEFORE_TOOL,
            has_receipts=False,  # the start's text goes into the system message
            compacts_at=85,
        ),
        CopilotCli(
            name="copilot",
            label="Copilot CLI",
            settings=".github/hooks/ctx_hooks.json",
            user_settings=".copilot/hooks/ctx_hooks.json",
            project_variable="COPILOT_PROJECT_DIR",
            registered=WITH_FAILURES,
            is_flat=True,
            runs_claudes=("project",),
            compacts_at=80,
            is_late=True,
        ),
        Droid(
            name="droid",
            label="droid",
            settings=".factory/settings.json",
            project_variable="DROID_PROJECT_DIR",
            registered=WITH_COMPACTION,
            mute=MUTE_BEFORE_TOOL,
        ),
        GrokBuild(
            name="grok",
            label="Grok Build",
            settings=".grok/hooks/ctx_hooks.json",
            project_variable="GROK_WORKSPACE_ROOT",
            registered=WITH_FAILURES,
            fields=GROKS_FIELDS,
            mute=CAN_NEVER_SPEAK + ("SessionStart", "UserPromptSubmit"),
            has_receipts=False,
            runs_claudes=("project", "user"),
            compacts_at=85,
        ),
    )
}


# =============================================================================
# Session
# =============================================================================
# What is kept of a session: session-<id>.json in the project's state folder. It is
# loaded once and saved once in a run. `facts` is what the transcript says; all
# else is what we did about it.

SESSION_VERSION = 3
SESSION_KEPT_S = 7 * 86400


class Facts(Record):
    """What the transcript says, folded row by row (section Look)."""

    tokens: int = 0  # of the last answer since the last compaction
    chars: int = 0  # text since then, for transcripts that hold no usage
    measured: list = []  # [ISO time, tokens] of answers; older ones are thinned out
    window: int = 0  # as the transcript tells it
    model: str = ""
    answer: str = ""  # id of the last answer
    answered_at: str = ""  # its time
    compactions: int = 0
    compacted_at: str = ""
    tool_calls: int = 0
    breakdown: dict = {}  # tool -> calls
    calls: list = []  # the last 8, as dicts of a Call
    changes: int = 0  # how often something new changed; tells repeats from progress
    work: int = 0  # 2 for an edit, 1 for a call that does more than look
    worked_at: str = ""  # time of the last such call
    edited: list = []  # [path, ISO time], newest last
    read: list = []  # paths of files read, newest last
    requests: list = []  # [ISO time, the person's words]
    said: str = ""  # the agent's words since the last prompt
    said_at: str = ""
    todos: list = []  # [status, text]
    commands: list = []  # [ISO time, command], the last ones
    failed: dict = {}  # the last failing command: command, error, at
    tried: list = []  # commands since that failure
    passed: dict = {}  # the last check that passed: command, at
    received: str = ""  # the head of our startup text, once it was seen in the transcript
    acknowledged_at: str = ""  # when the agent said so itself
    subagents: int = 0  # how many were started
    tree_moves: int = 0  # commands that may have switched the branch
    handoff_at: str = ""  # when the agent last wrote into the handoffs folder


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
    moves_seen: int = 0  # tree_moves + subagents at the last look
    began_with: str = ""  # the handoff this session got
    compactions_seen: int = 0
    threshold_crossed_at: str = ""
    handoff_complete: bool = False  # the agent wrote one since the last compaction
    handoff_before: str = ""  # what stood in its file at the start or the last compaction
    kit_mark: str = ""  # of the handoff that the kit made, to know it again
    handoff_noticed: str = ""  # when we saw the agent's handoff first
    handoff_offset: int = -1  # how far the transcript was read when the kit last made one
    old_prompt_before: str = ""  # the same of .claude/ll-continue-prompt.md
    reminded_answer: str = ""  # the answer whose calls carried the last reminder
    was_asked: bool = False  # the person was told that a handoff was asked for
    heard: dict = {}  # global signals: name -> content
    briefed: bool = False  # about the workflow, since the start or the last compaction
    holds: int = 0  # stops held in a row
    idle_holds: int = 0  # of these, the last ones without a tool call
    held_calls: int = 0  # tool calls at the last hold
    delivery: Delivery = Delivery()
    facts: Facts = Facts()


def session_path(project: Project, session_id: str) -> str:
    return project.state("session-%s.json" % safe_name(session_id))


def load_session(project: Project, session_id: str) -> Session:
    """The session's state; a new one if there is none that can be used."""
    data = load_state(session_path(project, session_id))
    if data.get("version") != SESSION_VERSION or data.get("id") != session_id:
        data = {}
    session = Session(data)
    session.id = session_id
    return session


def save_session(project: Project, session: Session) -> bool:
    data = json.dumps(session.as_dict(), separators=(",", ":"))
    return write_atomically(session_path(project, session.id), data)


def all_sessions(project: Project, limit: int = 200) -> list:
    """The sessions of the project that are kept, the newest first."""
    found = []
    for path, _ in list_files(project.home, ".json"):
        if os.path.basename(path).startswith("session-") and len(found) < limit:
            session = Session(read_object(path))
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
GIT_STATUS = ("git", "--no-optional-locks", "-c", "core.fsmonitor=false", "status", "--porcelain")


def git_folder(root: str) -> str:
    """The git folder of a working tree; "" if there is none here or above."""
    folder = root
    while folder != os.path.dirname(folder):
        path = os.path.join(folder, ".git")
        if os.path.isdir(path):
            return path
        told = read_text(path, 4096).partition("gitdir:")[2].strip()  # a worktree
        if told:
            return os.path.normpath(os.path.join(folder, told))
        folder = os.path.dirname(folder)
    return ""


def head_file(root: str) -> str:
    """The file that changes when the branch does; "" without git."""
    folder = git_folder(root)
    return os.path.join(folder, "HEAD") if folder else ""


def read_branch(root: str) -> str:
    """The branch; a detached head is a commit. "" without git."""
    head = read_text(head_file(root), 4096).strip()
    if head.startswith("ref: "):
        name = head[5:].replace("refs/heads/", "", 1)
        return one_line(for_terminal(name), 100)
    is_commit = re.fullmatch(r"[0-9a-f]{40,64}", head)
    return "commit " + head[:10] if is_commit else ""


def read_head(root: str) -> tuple:
    """(branch, short commit); ("", "") without git."""
    branch, folder = read_branch(root), git_folder(root)
    head = read_text(head_file(root), 4096).strip()
    if not head.startswith("ref: "):
        return branch, branch.replace("commit ", "")
    name = head[5:]
    shared = read_text(os.path.join(folder, "commondir"), 4096).strip()
    common = os.path.normpath(os.path.join(folder, shared)) if shared else folder
    commit = read_text(os.path.join(common, name), 4096).strip()
    if not commit:
        packed = read_text(os.path.join(common, "packed-refs"), STATE_LIMIT_BYTES)
        match = re.search(r"(?m)^([0-9a-f]{40,64}) %s$" % re.escape(name), packed)
        commit = match.group(1) if match else ""
    return branch, commit[:10]


def changed_files(root: str) -> list:
    """The lines of `git status --porcelain`, at most CHANGED_LIMIT."""
    import subprocess

    if not git_folder(root):
        return []
    try:
        done = subprocess.run(
            GIT_STATUS,
            cwd=root,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=GIT_LIMIT_S,
        )
    except (OSError, subprocess.SubprocessError):
        return []
    lines = done.stdout.decode("utf-8", "replace").split("\n")
    return [line for line in lines if line.strip()][:CHANGED_LIMIT]


# =============================================================================
# Project
# =============================================================================
# A project is the folder that the client was started in, or its nearest parent,
# with a context folder. Our own state about it lies in the user's home, so no
# clone can forge it. One lock for each project is held for a whole run.

PROJECT_NAME_LIMIT = 200
LOCK_WAIT_S, LOCK_WAIT_STOP_S = 1.0, 3.0
LOCK_POLL_S = 0.01
RUNTIME_FOLDERS = ("signals", "signals/global", "signals/sessions", "handoffs", "handoffs/delivered")
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
        inside = os.path.relpath(path, self.root)
        return path if inside.startswith("..") else inside.replace(os.sep, "/")


def find_project(start: str, env: dict) -> Project | None:
    """The project of a folder; None if there is none, or it is not ours to work in."""
    folder = os.path.normpath(start) if os.path.isabs(start) else ""
    if not folder or not home_folder(env):
        return None
    is_start = True
    while folder != os.path.dirname(folder):
        settings = read_settings(folder, env)
        context = os.path.join(folder, settings["context_dir"])
        if os.path.isdir(context) and (is_start or is_our_folder(context)):
            return Project(folder, settings, env) if is_safe_to_use(folder, context) else None
        folder = os.path.dirname(folder)
        is_start = False
    return None


def is_our_folder(path: str) -> bool:
    """A parent's context folder counts only if it is this user's or root's."""
    if os.name == "nt":
        return True
    return os.stat(path).st_uid in (0, os.getuid())


def is_safe_to_use(root: str, context: str) -> bool:
    """A link as runtime folder would lead our writes to somewhere else."""
    if parts_inside(context, root)[:1] in ([], ["."], [".git"], [".claude"]):
        return False
    folders = [os.path.join(context, name) for name in RUNTIME_FOLDERS]
    return not any(os.path.islink(folder) for folder in folders)


def prepare_folders(project: Project) -> bool:
    """The state folder, and a .gitignore that names our files in the context folder.
    False if there can be no state: the home is read-only."""
    try:
        os.makedirs(project.home, mode=0o700, exist_ok=True)
    except OSError:
        return False
    if not os.path.exists(project.state("root")):
        write_atomically(project.state("root"), project.root)  # for `status --all`
    path = project.path(".gitignore")
    if not os.path.lexists(path):
        write_atomically(path, GITIGNORE, mode=0o644)
    return os.access(project.home, os.W_OK)


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
    """Bytecode and launcher files; the launcher finds the same folder. "" without a home."""
    folder = user_folder(env, "XDG_CACHE_HOME", ".cache")
    below = "ctx_hooks/cache" if os.name == "nt" else "ctx_hooks"
    return os.path.join(folder, *below.split("/")) if folder else ""


def config_home(env: dict) -> str:
    return user_folder(env, "XDG_CONFIG_HOME", ".config")


def read_settings(root: str, env: dict) -> Settings:
    """The user's settings for all projects, then the project's own."""
    settings = Settings()
    home = config_home(env)
    if home:
        settings.read(read_text(os.path.join(home, "ctx_hooks", "contextrc")))
    settings.read(read_text(os.path.join(root, ".contextrc")))
    return settings


def project_state_folder(root: str, env: dict) -> str:
    """Where our own files about a project lie; "" without a home."""
    home = state_home(env)
    name = safe_name(os.path.abspath(root), PROJECT_NAME_LIMIT)
    return os.path.join(home, "ctx_hooks", name) if home else ""


# --- the lock


class ProjectLock:
    """One lock for each project. `with` holds it; `is_held` says whether it was had."""

    def __init__(self, project: Project, wait_s: float) -> None:
        self.path = project.state("lock")
        self.wait_s = wait_s
        self.is_held = False
        self.file = None

    def __enter__(self) -> ProjectLock:
        self.file = open(self.path, "a+b")
        deadline = time.monotonic() + self.wait_s
        while not self.is_held:
            self.is_held = try_lock(self.file)
            if self.is_held or time.monotonic() > deadline:
                break
            time.sleep(LOCK_POLL_S)
        return self

    def __exit__(self, *_: object) -> None:
        self.file.close()  # closing releases the lock
        self.is_held = False


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
    r"(?i)\.env.*|.*\.(pem|key|p12|pfx|kdbx)|id_[a-z0-9]+.*|\.netrc|_netrc|credentials.*"
    r"|\.pgpass|\.npmrc|\.pypirc"
)
OLD_HANDOFF = ".claude/ll-continue-prompt.md"


def may_be_delivered(project: Project, path: str) -> bool:
    """Whether a file of the project may be read to the agent: inside the project with
    all links resolved, not below .git or .claude, and nothing that looks like a secret."""
    parts = parts_inside(path, project.root)
    is_private = any(part.lower() in (".git", ".claude") for part in parts)
    is_secret = any(re.fullmatch(SECRET_NAMES, part) for part in parts)
    is_old_handoff = "/".join(parts) == OLD_HANDOFF
    return bool(parts) and not is_secret and (not is_private or is_old_handoff)


def parts_inside(path: str, folder: str) -> list:
    """The names from a folder down to a path, all links resolved; [] if it leads out."""
    try:
        inside = os.path.relpath(os.path.realpath(path), os.path.realpath(folder))
    except (OSError, ValueError):  # a null byte, another drive
        return []
    parts = inside.split(os.sep)
    return [] if parts[0] == ".." else parts


# --- whether to speak at all


def is_switched_off(project: Project, env: dict, now: float) -> bool:
    """By CTX_HOOKS_DISABLE, or by `pause`."""
    if env.get("CTX_HOOKS_DISABLE", "") not in ("", "0"):
        return True
    return paused_until(project, now) > now


def paused_until(project: Project, now: float) -> float:
    """When the pause ends; 0.0 if there is none. The file holds an epoch, or 0: no end."""
    path = project.state("paused")
    if not os.path.exists(path):
        return 0.0
    match = re.match(r"\d{1,12}", read_text(path))
    until = float(match.group()) if match else 0.0
    if until and until <= now:
        return 0.0
    return until or float("inf")


def another_kit_speaks(project: Project, kit: str, settings_files: list) -> bool:
    """Whether this kit is the plugin's or the user's, and the project has its own."""
    if is_inside(kit, project.root):
        return False
    for name in settings_files:
        if re.search(OWN_LINE, read_text(os.path.join(project.root, name))):
            return True
    return False


# also finds the lines of 0.2.0, which begin with `: ctx_hooks inject;`
OWN_LINE = r"ctx_hooks(?:\.py)?\W{1,12}(?:inject|gate|monitor|stop-enforce|cleanup)\b"


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
INSTRUCTION_FILES = ("CLAUDE.md", "CLAUDE.local.md", "AGENTS.md", "GEMINI.md", "QWEN.md")
SEVERITIES = ("info", "warning", "critical")
BOOLEANS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
LINE_LIMIT, LIST_LIMIT = 8_000, 200


def as_text(text: str) -> str:
    return text


def as_path(text: str) -> str:
    parts = text.replace("\\", "/").split("/")
    is_odd = text[:1] in ("", "[")  # no name, or a list that is not closed
    if is_odd or text.startswith(("/", "~")) or ".." in parts or ":" in parts[0]:
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
    match = re.fullmatch(r"(\d{1,9})(k|m)?", text.lower().replace("_", ""))
    if not match:
        raise ValueError("must be a number of tokens, such as 200000 or 200k")
    return int(match.group(1)) * {"k": 1_000, "m": 1_000_000}.get(match.group(2), 1)


def as_threshold(text: str) -> str:
    """auto, a percentage, or a number of tokens such as 300k."""
    is_percent = re.fullmatch(r"\d{1,3}%?", text) and 1 <= int(text.rstrip("%")) <= 100
    is_tokens = re.fullmatch(r"\d{1,6}[km]", text.lower())
    if text != "auto" and not is_percent and not is_tokens:
        raise ValueError("must be auto, a percentage, or tokens such as 300k")
    return text.lower().rstrip("%")


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
    "auto.phases": ([], as_text),
    "auto.about.*": ("", as_text),
    "auto.done_when.*": ("", as_text),
    "auto.check_timeout_s": (120.0, as_number),
    "wrap.ready_patterns": ([], as_text),
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

    def read(self, text: str) -> None:
        """Take the values of one file's text; later files win."""
        for name, place, values in parse_keys(text):
            group = name.rpartition(".")[0] + ".*"
            setting = SETTINGS.get(name) or SETTINGS.get(group)
            is_group = any(known.startswith(name + ".") for known in SETTINGS)
            may_be_empty = setting and isinstance(setting[0], list)
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
    open_keys: list = []  # (column, key) of the keys that this line is inside of
    for line, content in enumerate(text.split("\n"), 1):
        content = strip_comment(content[:LINE_LIMIT]).rstrip()
        words = content.strip()
        column = len(content) - len(words) + 1
        if words in ("", "---"):
            continue
        if words.startswith("- ") and found:
            found[-1][2].append((line, column, unquote(words[2:])))
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
    match = re.match(r"""(?:[^'"#]|"[^"]*"|'[^']*'|(?<=\S)#|['"])*""", line)
    return match.group() if match else line


def unquote(text: str) -> str:
    text = text.strip()
    if len(text) >= 2 and text[0] == text[-1] and text[0] in "\"'":
        return text[1:-1]
    return text


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
    row.update(details)
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
    rows = [parse_object(line) for line in content.split(b"\n") if line]
    return [row for row in rows if row]


def count_metric(project: Project, name: str, attempts: int = 0, seconds: float = 0.0) -> None:
    """Count one outcome of a delivery in metrics.json; a success also moves the averages."""
    path = project.state("metrics.json")
    metrics = Metrics(load_state(path))
    setattr(metrics, name, getattr(metrics, name) + 1)
    if name.startswith("succeeded"):
        count = metrics.succeededOnFirstTry + metrics.succeededAfterRetry
        move_average(metrics, "averageAttemptsToSuccess", attempts, count)
        move_average(metrics, "averageTimeToSuccess", max(0.0, seconds), count)
    write_object(path, metrics.as_dict())


def move_average(metrics: Metrics, name: str, value: float, count: int) -> None:
    old = getattr(metrics, name)
    setattr(metrics, name, round(old + (value - old) / count, 3))


# =============================================================================
# Text
# =============================================================================
# What reaches the agent has no control characters, no tags that imitate a
# client's markup, and no lines that pose as a turn. What the kit writes down
# hides what looks like a secret.

CONTROL = "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2066-\u2069\ufeff\ud800-\udfff]"
MARKUP = (
    r"(?i)</?\s*(?:(?:system|user)[-_]\w+|function_\w+|tool_\w+|hook_\w+|command-\w+"
    r"|local-command-\w+|task-notification|antml:\w+|invoke)\b[^<>]*>"
    r"|(?:</|(?<!\w)<)\s*(?:system|user|assistant|human)\b[^<>]*>"  # not List<User>
)
POSED_TURN = r"(?im)^([ \t]*)(?=(?:human|user|assistant|system)[ \t]*:)"
SECRETS = (
    r"(?s)-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*-----|\Z)",
    r"\b(?:sk|pk|rk)[-_](?:[a-z0-9]+[-_]){0,3}[A-Za-z0-9]{16,}[A-Za-z0-9_-]*",
    r"\b(?:ghp|gho|ghu|ghs|ghr|glpat|xox[abps]|npm|hf|pypi)[-_][A-Za-z0-9_-]{16,}",
    r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b",
    r"\bAIza[A-Za-z0-9_-]{30,}",
    r"\beyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{5,}",
    r"(?<=://)[^/\s:@]+:[^/\s@]+(?=@)",
    r"(?<=\bBearer )[A-Za-z0-9._~+/-]{16,}=*",
    r"(?i)(?<![A-Za-z])((?:\w{0,40}_)?(?:password|passwd|secret|api_?key|token|credential)s?"
    r"\s*[=:]\s*)(['\"]?)(?!\$|<|\{)[^\s'\"]{6,}\2",
)
HIDDEN = "[hidden]"
CUT_MARK = "\n[… cut …]\n"


def clean_text(text: str) -> str:
    """Text from outside as it may reach the agent."""
    text = text.replace("\r\n", "\n")
    if not text.replace("\n", "").isprintable():
        text = re.sub(CONTROL, "", text)
    if "<" in text:
        text = re.sub(MARKUP, " ", text)  # a blank: what stood around it must not become a tag
    return re.sub(POSED_TURN, r"\1> ", text) if ":" in text else text


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


def cut_middle(text: str, limit: int) -> str:
    """At most `limit` characters: the beginning and the end stay."""
    if len(text) <= limit:
        return text
    half = max(0, limit - len(CUT_MARK)) // 2
    return text[:half] + CUT_MARK + text[len(text) - half :]


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
        if not line.lstrip().startswith("#") and not is_filler and not is_template:
            return True
    return False


# =============================================================================
# Files
# =============================================================================
# Reading is bounded and never waits for a FIFO or a device. Every write is
# atomic: a reader sees the old file or the new one. Inside, time is epoch
# seconds; on disk, where people read it, ISO 8601 with Z.

STATE_LIMIT_BYTES = 4_000_000
TEXT_LIMIT_BYTES = 512_000
NAME_LIMIT = 120
PLAIN_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-"


def read_bytes(path: str, limit_bytes: int = TEXT_LIMIT_BYTES, start: int = 0) -> bytes:
    """The file's bytes from `start`, at most `limit_bytes`; b"" if it cannot be read."""
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    try:
        descriptor = os.open(path, flags)
        with open(descriptor, "rb") as file:
            if not is_regular(os.fstat(descriptor)):
                return b""
            file.seek(start)
            return file.read(limit_bytes)
    except (OSError, ValueError):  # ValueError: a null byte in the path
        return b""


def is_regular(info: os.stat_result) -> bool:
    return info.st_mode & 0o170000 == 0o100000


def read_text(path: str, limit_bytes: int = TEXT_LIMIT_BYTES) -> str:
    """The file's text without BOM and CR; "" if it cannot be read."""
    text = read_bytes(path, limit_bytes).decode("utf-8", "replace")
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
        try:
            os.replace(path, path + ".corrupt")
        except OSError:
            pass  # read-only: it stays, and counts as empty
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


def remove_file(path: str) -> None:
    try:
        os.unlink(path)
    except (OSError, ValueError):
        pass  # it is gone, or not ours to remove


def remove_folder(path: str) -> None:
    """Remove an empty folder."""
    try:
        os.rmdir(path)
    except (OSError, ValueError):
        pass  # not empty, or gone


def list_files(folder: str, ending: str) -> list:
    """[(path, mtime)] of the folder's regular files with this ending, newest first."""
    found = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.name.endswith(ending) and entry.is_file(follow_symlinks=False):
                    found.append((entry.path, entry.stat().st_mtime))
    except OSError:
        return []
    return sorted(found, key=lambda pair: (-pair[1], pair[0]))


def modified_at(path: str) -> float:
    """The file's time; 0.0 if it is not there."""
    try:
        return os.stat(path).st_mtime
    except (OSError, ValueError):
        return 0.0


def size_of(path: str) -> int:
    try:
        return os.stat(path).st_size
    except (OSError, ValueError):
        return 0


def make_folder(path: str) -> None:
    try:
        os.makedirs(path, mode=0o700, exist_ok=True)
    except OSError:
        pass  # read-only, or a full disk


def set_time(path: str, at: float) -> None:
    try:
        os.utime(path, (at, at))
    except OSError:
        pass  # some file systems have no times to set


def safe_name(text: str, limit: int = NAME_LIMIT) -> str:
    """A file name for an outside string; distinct strings stay distinct."""
    is_plain = not text.strip(PLAIN_LETTERS)
    name = text if is_plain else "".join(map(plain_letter, text))
    if name.startswith("."):
        name = "%2E" + name[1:]
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


def is_inside(path: str, folder: str) -> bool:
    """Whether a path, with all links resolved, is the folder or lies below it."""
    try:
        real, base = os.path.realpath(path), os.path.realpath(folder)
    except (OSError, ValueError):
        return False
    return real == base or real.startswith(base.rstrip(os.sep) + os.sep)


def format_iso(epoch: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(epoch))


def parse_iso(text: object) -> float:
    """Epoch seconds of an ISO 8601 time; without a zone it is UTC; 0.0 if it is none."""
    from datetime import datetime, timezone

    match = re.fullmatch(
        r"(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d(?::\d\d)?)(?:[.,]\d+)?\s*(Z|[+-]\d\d:?\d\d)?",
        str(text).strip().upper(),
    )
    if not match:
        return 0.0
    day, clock, zone = match.groups()
    offset = "+0000" if zone in (None, "Z") else zone.replace(":", "")
    layout = "%Y-%m-%dT%H:%M:%S%z" if len(clock) == 8 else "%Y-%m-%dT%H:%M%z"
    try:
        moment = datetime.strptime(day + "T" + clock + offset, layout)
        return moment.astimezone(timezone.utc).timestamp()
    except (ValueError, OverflowError):
        return 0.0


def format_clock(epoch: float, now: float) -> str:
    """A local time for people: the hour today, else with the date."""
    moment, today = time.localtime(epoch), time.localtime(now)
    is_today = moment[:3] == today[:3]
    return time.strftime("%H:%M" if is_today else "%Y-%m-%d %H:%M", moment)


def format_age(seconds: float) -> str:
    """A duration in words: 40 s, 5 min, 3 h, 2 days."""
    for unit, length in (("days", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length or (unit != "days" and seconds >= length):
            return "%d %s" % (seconds // length, unit)
    return "%d s" % max(0, seconds)


# --- the deadline of a process

DEADLINE_BESIDE_CHECK_S = 5.0


class Deadline:
    """When this process ends in silence, whatever it hangs in."""

    at: float = 0.0


def start_deadline(seconds: float) -> None:
    import _thread

    is_first = not Deadline.at
    Deadline.at = time.monotonic() + seconds
    if is_first:
        _thread.start_new_thread(end_at_deadline, ())


def end_at_deadline() -> None:
    while time.monotonic() < Deadline.at:
        time.sleep(max(0.01, Deadline.at - time.monotonic()))
    os._exit(0)


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
    (?:["']?(?:[^"'|&;<>()$]*[/\\])?                       # maybe an interpreter:
       (?:(?:ba|da|z)?sh|py|python[\d.]*)(?:\.exe)?["']?   # sh, python3, py -3 -I
       (?:\ -(?![cm])\w+(?:\ utf8)?)*\ )?
    (?P<path>(?:[^\s"'|&;<>()]|"[^"]*"|'[^']*')+)          # one word for the shell,
    (?:(?<=[\s/\\"']ctx_hooks\.py)|(?<=[\s/\\"']ctx_hooks\.py["']))  # our file
    \ (?P<words>(?:inject|gate|monitor|stop-enforce|cleanup|statusline)(?:\ [a-z]+)*)
    (?:\ 2>/dev/null)?(?:\ \|\|\ (?:exit\ 0|true)|;\ exit\ 0)?
    |                                                      # 0.2.0: some 700 characters
    (?::\ ctx_hooks\ |[^|&;<>()]*\ -X\ ctx_hooks=)
    (?P<old>inject|gate|monitor|stop-enforce|cleanup|statusline)\b
    .*(?:;|\|\|)\ exit\ 0
"""


class RegisteredLine(Record):
    """A line in a client's settings that runs this kit and does nothing else."""

    mode: str = ""
    agent: str = "claude"
    words: list = []  # mode, agent, "now"
    path: str = ""  # of the kit, variables as they stand; "" in a line of 0.2.0
    command: str = ""
    place: list = []  # keys and indexes that lead to the entry: "hooks", event, …


def parse_line(command: object) -> RegisteredLine | None:
    """What a command runs, if it runs this kit alone; None for every other one."""
    match = re.fullmatch(REGISTERED, command) if isinstance(command, str) else None
    if not match:
        return None
    line = RegisteredLine()
    line.words = (match["words"] or match["old"]).split()
    line.mode, *others = line.words
    for word in others:
        if word in DIALECTS:
            line.agent = word
        elif word != "now":
            return None
    line.path = re.sub(r"""("|')(.*?)\1""", r"\2", match["path"] or "", flags=re.DOTALL)
    line.command = command
    return line


def find_lines(value: object, place: tuple = ()) -> list:
    """The RegisteredLines in a client's settings, in their order."""
    if len(place) == 5:
        line = parse_line(value.get("command")) if isinstance(value, dict) else None
        if line:
            line.place = list(place)
        return [line] if line else []
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
        if event in dialect.registered:
            entry = adapt_entry(group["hooks"][0], agent, path, form)
            if event == "SessionEnd":
                entry["timeout"] = dialect.end_limit_s * dialect.time_unit
            own_name = dialect.renamed.get(event, event)
            adapted[own_name] = dict(group, hooks=[entry])
            if agent != "claude":
                adapted[own_name].pop("matcher", None)  # only Claude Code needs it
    return adapted


def adapt_entry(entry: dict, agent: str, path: str, form: str) -> dict:
    words = parse_line(entry["command"]).words
    if agent != "claude":
        words.insert(1, agent)
    timeout = entry["timeout"] * DIALECTS[agent].time_unit
    return dict(entry, command=form % (path, " ".join(words)), timeout=timeout)


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

TRIAL_LIMIT_S = 20
OK, HINT, WARN, FAIL = "ok", "hint", "warn", "FAIL"
SHARED, PRIVATE = ".claude/settings.json", ".claude/settings.local.json"
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
    here.root = here.project.root if here.project else here.folder
    lines = registered_lines(here)
    rows = [(OK, "ctx_hooks %s, Python %s" % (VERSION, sys.version.split()[0]), "")]
    rows += check_silencers(here)
    rows += check_lines(here, lines)
    rows += check_codex(here)
    kits = {}
    for found in lines.values():
        kits.update(
            {line.path + line.agent: line for line in found if line.mode == "inject"}
        )
    rows += [try_line(here, line) for line in kits.values()]
    if here.project is None:
        return rows + [(WARN, NO_PROJECT, init_call(here))]
    return rows + project_problems(here)


# --- the settings of the clients


def settings_files(here: Here, agent: str) -> list:
    """The settings of a client that count here."""
    dialect, home = DIALECTS[agent], home_folder(here.env)
    if agent == "claude":
        own = here.env.get("CLAUDE_CONFIG_DIR") or os.path.join(home, ".claude")
        paths = [os.path.join(here.root, name) for name in (SHARED, PRIVATE)]
        return paths + [os.path.join(own, "settings.json")]
    return [
        os.path.join(here.root, dialect.settings),
        os.path.join(home, dialect.user_settings),
    ]


def registered_lines(here: Here) -> dict:
    """{settings file: its lines that run this kit}, for those that have some."""
    found = {}
    for agent in DIALECTS:
        for path in settings_files(here, agent):
            lines = find_lines(read_object(path))
            if lines:
                found[path] = lines
    return found


def check_silencers(here: Here) -> list:
    """What switches hooks off altogether."""
    rows = []
    if here.env.get("CTX_HOOKS_DISABLE", "0") not in ("", "0"):
        rows.append((WARN, "CTX_HOOKS_DISABLE is set", "unset CTX_HOOKS_DISABLE"))
    for path in [*settings_files(here, "claude"), *MANAGED]:
        try:
            settings = json.loads(read_text(path, STATE_LIMIT_BYTES) or "{}")
        except ValueError:
            settings = {}
            what = path + " is not JSON, so the client ignores it"
            rows.append((FAIL, what, "python3 -m json.tool " + path))
        for key in SILENCERS:
            if dig(settings, key) is True:
                rows.append((FAIL, "no hook of yours runs: " + key, "see " + path))
    return rows


def check_lines(here: Here, lines: dict) -> list:
    """Is every event registered, and the kit not twice?"""
    installer = installer_call(here, "")
    if not lines and not is_plugin(here.env):
        return [(FAIL, "no client runs this kit here", installer)]
    rows = []
    for path, found in lines.items():
        dialect = DIALECTS[found[0].agent]
        events = [line.place[1] for line in found]
        wanted = [dialect.renamed.get(event, event) for event in dialect.registered]
        missing = [event for event in wanted if event not in events]
        if missing:
            what = "%s lacks %s" % (path, ", ".join(missing))
            rows.append((FAIL, what, installer))
        rows.append((OK, "%s is registered in %s" % (dialect.label, path), ""))
    both = [os.path.join(here.root, name) in lines for name in (SHARED, PRIVATE)]
    if all(both):
        hint = installer_call(here, "--scope local --uninstall")
        rows.append((WARN, "registered twice: shared, and privately", hint))
    return rows


def check_codex(here: Here) -> list:
    """Codex runs no hook that is not trusted, and none in a folder that is not."""
    path = os.path.join(here.root, DIALECTS["codex"].settings)
    settings = read_object(path)
    if not find_lines(settings):
        return []
    told = read_text(os.path.join(home_folder(here.env), ".codex", "config.toml"))
    folder = told.partition('[projects."%s"]' % here.root)[2].partition("\n[")[0]
    if '"trusted"' not in folder:
        return [(WARN, "Codex does not trust this folder yet", "start codex here")]
    marks = codex_marks(path, settings)
    missing = [mark for mark in marks if mark not in told]
    if missing:
        what = "Codex does not trust %d of %d hooks yet" % (len(missing), len(marks))
        return [(WARN, what, "start codex here, type /hooks and trust them")]
    return [(OK, "Codex trusts the folder and the hooks", "")]


def codex_marks(path: str, settings: dict) -> list:
    """The hash of each hook, as Codex notes it once the person trusts it."""
    import hashlib

    marks = []
    for line in find_lines(settings):
        _, event, group, _, _ = line.place
        entry = dict(settings["hooks"][event][group])
        hook = {"async": False, "type": "command", "command": line.command}
        hook["timeout"] = entry["hooks"][line.place[4]].get("timeout")
        entry.update(
            hooks=[hook], event_name=re.sub(r"\B([A-Z])", r"_\1", event).lower()
        )
        text = json.dumps(
            entry, sort_keys=True, separators=(",", ":"), ensure_ascii=False
        )
        marks.append("sha256:" + hashlib.sha256(text.encode()).hexdigest())
    return marks


# --- does a registered line run?


def try_line(here: Here, line: RegisteredLine) -> tuple:
    """What comes of a registered line. A file that is not this one is not run."""
    import tempfile

    variables = {dialect.project_variable: here.root for dialect in DIALECTS.values()}
    variables["HOME"] = home_folder(here.env)
    path = re.sub(r"\$\{?(\w+)\}?", lambda name: variables.get(name[1], ""), line.path)
    content = read_bytes(path, STATE_LIMIT_BYTES)
    installer = installer_call(here, "")
    if b"\r\n" in content[:200]:
        return FAIL, path + " has CRLF line ends, which a shell cannot run", installer
    if content != read_bytes(__file__, STATE_LIMIT_BYTES):
        state = "another version" if content else "missing"
        return (
            FAIL,
            "not tried, %s is %s" % (path or "a line of 0.2.0", state),
            installer,
        )
    with tempfile.TemporaryDirectory(prefix="ctx-doctor-") as folder:
        python, took_ms, problem = run_in_scratch(here, line, os.path.realpath(folder))
    if problem:
        return FAIL, "the registered line fails: " + problem, installer
    return OK, "the registered line runs, in %d ms, with %s" % (took_ms, python), ""


def run_in_scratch(here: Here, line: RegisteredLine, folder: str) -> tuple:
    """(interpreter, milliseconds, what went wrong) of a session's start there."""
    import subprocess

    env = prepare_scratch(here, folder)
    name = DIALECTS[line.agent].renamed.get("SessionStart", "SessionStart")
    event = {"hook_event_name": name, "session_id": "doctor", "cwd": folder}
    for _ in range(2):  # the first has to compile the file
        start = time.perf_counter()
        try:
            done = subprocess.run(
                ["sh", "-c", line.command],
                input=json.dumps(event).encode(),
                cwd=folder,
                env=env,
                timeout=TRIAL_LIMIT_S,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
            )
        except (OSError, subprocess.SubprocessError) as error:
            return "", 0, str(error)
        took_ms = (time.perf_counter() - start) * 1000
    problem = done.stderr.decode("utf-8", "replace")
    if not os.path.isfile(session_path(find_project(folder, env), "doctor")):
        problem = problem or "it did nothing"
    return os.path.realpath(folder + "/cache/ctx_hooks/python3"), took_ms, problem


def prepare_scratch(here: Here, folder: str) -> dict:
    """Fill a scratch project with what a hook needs; gives its environment."""
    os.makedirs(os.path.join(folder, ".context"))
    cache = os.path.join(folder, "cache")
    os.makedirs(os.path.join(cache, "ctx_hooks"))
    content = read_bytes(__file__, STATE_LIMIT_BYTES)
    write_atomically(os.path.join(folder, KIT_PLACE), content)
    link = os.path.join(cache_folder(here.env), "python3")
    if os.path.islink(link):
        os.symlink(os.readlink(link), os.path.join(cache, "ctx_hooks", "python3"))
    env = dict(here.env, CTX_HOOKS_DISABLE="", XDG_CACHE_HOME=cache)
    for name in ("XDG_STATE_HOME", "XDG_CONFIG_HOME", "LOCALAPPDATA", "TMPDIR"):
        env[name] = folder
    for dialect in DIALECTS.values():
        env[dialect.project_variable or "PWD"] = folder
    return env


# --- the project


def project_problems(here: Here) -> list:
    """What is wrong in the project itself; `status` shows this, too."""
    project = here.project
    rows = []
    until = paused_until(project, here.now)
    if until:
        when = "" if until == float("inf") else " until " + here.clock(until)
        rows.append((WARN, "all hooks are paused" + when, kit_call("resume")))
    own = os.path.join(config_home(here.env), "ctx_hooks", "contextrc")
    for path in (own, os.path.join(project.root, ".contextrc")):
        rows += settings_problems(path)
    if project.settings["gate.mode"] != "off" and not here.files():
        what = "no context file says anything yet, so the agent reads none"
        rows.append((HINT, what, "write into " + project.path("TASKS.md")))
    errors = project.state("errors.log")
    if size_of(errors):
        rows.append(
            (WARN, "internal errors were noted; please report them", "cat " + errors)
        )
    for folder in (project.context, project.home):
        if os.path.isdir(folder) and not os.access(folder, os.W_OK):
            rows.append((FAIL, "cannot write into " + folder, "check its owner"))
    flow = read_workflow(project)
    if flow.active and not flow.is_ours:
        what = "a workflow lies here that nobody started on this machine; it is inert"
        rows.append((HINT, what, kit_call("auto stop")))
    return rows


def settings_problems(path: str) -> list:
    settings = Settings()
    settings.read(read_text(path))
    rows = []
    for line, column, what in settings.problems:
        where = "%s, line %d, column %d" % (os.path.basename(path), line, column)
        rows.append(
            (WARN, "%s: %s" % (where, what), "this line is ignored; see " + path)
        )
    return rows


# =============================================================================
# Status
# =============================================================================
# What people see. A row is (state, text, hint). A page is a list of lines, (style,
# text), 80 columns wide. print_page is the only way to a terminal: it takes control
# characters out, and colours only a terminal.

SESSIONS_SHOWN, ROWS_SHOWN = 5, 6
UNHEARD_SHOWN_S = 86400
PAGE_WIDTH = 80
INDENT = " " * 11
SPARKS = "▁▂▃▄▅▆▇█"
SPARK_COLUMNS = 12
COLOURS = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33"}
STYLES = {
    "ok": "green",
    "hint": "dim",
    "warn": "yellow",
    "FAIL": "red",
    "critical": "red",
    "warning": "yellow",
    "waiting": "green",
    "used": "dim",
    "unheard": "dim",
}


class Here:
    """A project, or a folder without one, as a person looks at it now."""

    def __init__(self, folder: str, env: dict) -> None:
        self.folder = folder
        self.env = env
        self.now = time.time()
        self.project = find_project(folder, env)

    def run(self, session: Session) -> Run:
        """A run without an event: what hooks can tell of a session."""
        run = Run(Event({"name": "SessionStart"}), self.project, self.env, self.now)
        run.session = session
        return run

    def runs(self) -> list:
        """One for each session, as its transcript is now; nothing is saved."""
        known = all_sessions(self.project)
        sessions = [session for session in known if session.agent in DIALECTS]
        for session in sessions:
            look(session)
        return [self.run(session) for session in sessions]

    def files(self) -> list:
        """The context files that say something."""
        paths = context_files(self.project)
        return [path for path in paths if is_worth_reading(self.project, path)]

    def clock(self, time_of: object) -> str:
        """An epoch or an ISO time for a person."""
        epoch = parse_iso(time_of) if isinstance(time_of, str) else time_of
        return format_clock(epoch, self.now)


# --- sessions


def session_data(run: Run) -> dict:
    """A session for scripts, which know the names of its measures."""
    session, facts = run.session, run.session.facts
    return {
        "id": session.id,
        "agent": session.agent,
        "state": session_state(run),
        "session_start": session.session_start,
        "estimated_tokens": fullness(run).tokens,
        "context": fullness(run).as_dict(),
        "tool_calls": facts.tool_calls,
        "breakdown": facts.breakdown,
        "threshold_crossed_at": session.threshold_crossed_at or None,
        "handoff_complete": session.handoff_complete,
    }


def session_state(run: Run) -> str:
    session = run.session
    if session.ended_at or is_gone(session.client_pid):
        return "ended" if session.ended_at else "killed"
    return "working" if is_busy(session, run.now) else "waiting"


def session_lines(here: Here, runs: list) -> list:
    """Two lines for each session."""
    lines = []
    for run in runs[:SESSIONS_SHOWN]:
        lines.append(meter_line(run))
        lines.append(("dim", INDENT + session_note(here, run)))
    if len(runs) > SESSIONS_SHOWN:
        lines.append(("dim", "  and %d more" % (len(runs) - SESSIONS_SHOWN)))
    return lines


def meter_line(run: Run) -> tuple:
    """Who does what, and how full the context is, over time and now."""
    session, full = run.session, fullness(run)
    seen_at = max(session.seen_at, modified_at(session.transcript))
    state = "%s %s" % (session_state(run), format_age(run.now - seen_at))
    label = DIALECTS[session.agent].label
    head = "  %-8s %-11s %-15s" % (session.id[:8], label, state)
    if not full.is_known:
        return "", head + "  not measured yet"
    spark = sparkline(session.facts.measured, full).rjust(SPARK_COLUMNS)
    bar = ("█" * (full.percent // 10)).ljust(10, "░")
    of_all = "%s of %dk" % (full.shown(), full.usable // 1000)
    style = "red" if full.percent >= HANDOFF_PERCENT else "green"
    return style, " ".join((head + spark, bar, of_all))


def sparkline(measured: list, full: Fullness) -> str:
    """Fullness over time, at most SPARK_COLUMNS wide; the newest is there."""
    step = len(measured) // SPARK_COLUMNS + 1
    percents = [full.percent_of(row[1]) for row in measured[::-1][::step]]
    return "".join(SPARKS[min(7, percent // 12)] for percent in reversed(percents))


def session_note(here: Here, run: Run) -> str:
    """Since when, how many calls, what was read, what became of the handoff."""
    session, files = run.session, here.files()
    read = files_read(run, files)
    parts = ["since " + here.clock(session.session_start)]
    parts.append("calls: %d" % session.facts.tool_calls)
    parts.append("context files read: %d/%d" % (len(read), len(files)))
    if session.handoff_complete:
        parts.append("handoff written")
    elif session.threshold_crossed_at:
        parts.append("handoff due")
    return " · ".join(parts)


# --- handoffs and signals, as rows


def handoff_rows(here: Here, runs: list) -> list:
    """The handoffs that wait, then those that a session got."""
    folder = here.project.path("handoffs")
    offered = waiting_handoffs(here.run(Session()))
    takers = {run.session.began_with: run.session for run in runs}
    rows = []
    for path, written_at in list_files(folder, ".md"):
        is_offered = os.path.basename(path) in offered
        state = "waiting" if is_offered else "held"  # too old, or still in work
        rows.append((state, describe_handoff(here, path, written_at), ""))
    for path, written_at in list_files(os.path.join(folder, "delivered"), ".md"):
        text = describe_handoff(here, path, written_at)
        taker = takers.get(os.path.basename(path))
        if taker:
            text += " → %s %s" % (taker.id[:8], here.clock(taker.session_start))
        rows.append(("used", text, ""))
    return rows


def describe_handoff(here: Here, path: str, written_at: float) -> str:
    """When and by whom it was written."""
    name = os.path.basename(path)
    writer = writer_of(here.project, name)
    label = DIALECTS[writer.agent].label if writer.agent in DIALECTS else "by hand"
    if read_handoff(path).startswith(KIT_HEAD):
        label += ", from the transcript"
    stem, _ = os.path.splitext(name)
    return "%s  %s  %s" % (here.clock(written_at), stem[:8], label)


def signal_rows(here: Here, runs: list) -> list:
    """The signals that wait, for whom and until when; then those that nobody heard."""
    rows = []
    for folder, _, _ in os.walk(here.project.path("signals")):
        for path, written_at in list_files(folder, ".md")[:SIGNALS_LOOKED_AT]:
            signal = read_signal(path, written_at)
            if here.now <= signal.generated_at + signal.ttl_s:
                about = describe_signal(here, runs, signal)
                rows.append((signal.severity, signal_line(signal.body), about))
    return rows + unheard_rows(here)


def unheard_rows(here: Here) -> list:
    """Signals that a hook removed in the last day before anybody had heard them."""
    heard, rows = set(), []
    for event in read_events(here.project):
        name = event.get("file")
        if event.get("event") == "signal:delivered":
            heard.add(name)
        is_recent = here.now - parse_iso(event.get("at")) < UNHEARD_SHOWN_S
        is_expired = event.get("event") == "signal:expired"
        if is_expired and is_recent and name not in heard:
            about = "expired at " + here.clock(event["at"])
            rows.append(("unheard", signal_line(event["body"]), about))
    return rows


def describe_signal(here: Here, runs: list, signal: Signal) -> str:
    folder, name = os.path.split(signal.path)
    listener = os.path.basename(folder)
    text = "every session" if listener == "global" else "session " + listener[:8]
    heard = [run for run in runs if run.session.heard.get(name) == signal.mark]
    if heard:
        text += ", heard by %d" % len(heard)
    until = here.clock(signal.generated_at + signal.ttl_s)
    return "for %s, until %s" % (text, until)


# --- the page


def status_rows(here: Here, runs: list) -> dict:
    return {
        "handoffs": handoff_rows(here, runs),
        "signals": signal_rows(here, runs),
        "problems": project_problems(here),
    }


def status_data(here: Here) -> dict:
    """All that `status` tells, for scripts."""
    runs, flow = here.runs(), read_workflow(here.project)
    data = {"version": VERSION, "project": here.project.root}
    data["sessions"] = [session_data(run) for run in runs]
    data["workflow"] = flow.as_dict() if flow.phase else None
    for name, rows in status_rows(here, runs).items():
        data[name] = [dict(zip(("state", "text", "hint"), row)) for row in rows]
    return data


def status_page(here: Here) -> list:
    """The page of one project."""
    runs = here.runs()
    sections = {"sessions": session_lines(here, runs), "workflow": workflow_lines(here)}
    for title, rows in status_rows(here, runs).items():
        sections[title] = row_lines(rows[:ROWS_SHOWN])
    page = [head_line(here)]
    if not runs:
        page += row_lines(
            [("", "no session yet; is all in place?", kit_call("doctor"))]
        )
    for title, lines in sections.items():
        if lines:
            page += [("", ""), ("bold", title), *lines]
    return page


def short_page(here: Here) -> list:
    """A project in a few lines, for `status --all`."""
    live = ("working", "waiting")
    runs = [run for run in here.runs() if session_state(run) in live]
    flow = workflow_lines(here)[:1]
    problems = row_lines(project_problems(here))
    return [head_line(here), *session_lines(here, runs), *flow, *problems, ("", "")]


def workflow_lines(here: Here) -> list:
    """The workflow in sentences; the commands in them can be pasted."""
    if not os.path.exists(workflow_path(here.project)):
        return []
    sentences = describe_workflow(here.project, here.now)
    call = "`" + kit_call("auto ")
    return [("", "  " + text.replace("`auto ", call)) for text in sentences]


def head_line(here: Here) -> tuple:
    return "bold", "ctx_hooks %s · %s" % (VERSION, here.project.root)


def row_lines(rows: list) -> list:
    """Rows as lines; a hint stands below, whole, so that it can be pasted."""
    lines = []
    for state, text, hint in rows:
        line = "  %-8s %s" % (state, one_line(text, PAGE_WIDTH * 2))
        lines.append((STYLES.get(state, ""), line))
        if hint:
            lines.append(("", INDENT + hint))
    return lines


def print_page(page: list) -> None:
    is_coloured = sys.stdout.isatty() and "NO_COLOR" not in os.environ
    for style, text in page:
        text = re.sub(CONTROL, "", text).replace("\n", " ").rstrip()
        if is_coloured and style:
            text = "\x1b[%sm%s\x1b[0m" % (COLOURS[style], text)
        print(text)


# --- why

DECISIONS = {
    "alert:said": "told the agent ({code}): {text}",
    "auto:briefed": "told the agent about the workflow: phase {phase}",
    "auto:started": "began a workflow: phase {phase}",
    "auto:resumed": "took the workflow up again: phase {phase}",
    "auto:held": "sent the agent on, phase {phase}, iteration {iteration}: {said}",
    "auto:released": "let the agent stop: {said}",
    "auto:ended": "{said}",
    "gate:said": "asked the agent to read {files}, before its first tool call",
    "handoff:crossed": "saw the context {percent}% full: from here a handoff is wanted",
    "handoff:asked": "asked for a handoff at {percent}%: there was none yet",
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

    values = dict(row)
    if isinstance(row.get("files"), list):
        values["files"] = ", ".join(map(str, row["files"]))
    try:
        text = DECISIONS[row["event"]].format(**values)
    except (KeyError, TypeError):  # of another version
        text = json.dumps(row)
    head = "%s  %-8s  " % (here.clock(row.get("at", "")), str(row.get("session"))[:8])
    indent = " " * len(head)
    return textwrap.fill(
        head + for_terminal(text), PAGE_WIDTH, subsequent_indent=indent
    )



# =============================================================================
# Wrap
# =============================================================================
# `wrap -- aider` runs a program without hooks in a pseudo-terminal, passes
# everything through, and types the startup context when the program waits for a
# line. It never answers for the person: Enter is pressed only behind our own
# text, seen in the program's output. Typist decides; Terminal moves the bytes.

WRAP_POLL_S, WRAP_SETTLE_S, WRAP_TIMEOUT_S = 0.2, 0.5, 30.0
WRAP_ACK_S = 5.0  # so long a program may wait again before its answer counts as missing
WRAP_HOLD_S = 5.0  # so long the person's keys wait for our Enter
WRAP_OUTPUT_CHARS = 5_000
WRAP_READ_BYTES = 16_384
WRAP_LINE_BYTES = 4_000 if sys.platform == "linux" else 1_000  # a longer one is lost
NOT_ACKNOWLEDGED = "ctx: the context was not acknowledged; the next session gets it"
NOT_SUBMITTED = "ctx: the context was not submitted (%s); it is in %s"
SHELLS = "sh bash dash zsh fish ksh mksh ash csh tcsh nu pwsh xonsh elvish".split()
SCREENS = (  # editors, pagers, monitors: every key is a command
    "vi vim nvim view ex ed nano pico emacs micro hx helix kak joe "
    "less more most man top htop"
).split()
LAUNCHERS = "npx npm pnpm yarn bun bunx uvx pipx env".split()


def wrap_program(project: Project, options: object, env: dict) -> int:
    """Run `options.command` with the startup context; its exit code."""
    import shutil

    command = options.command
    refuse_program(command)
    if not shutil.which(command[0], path=env.get("PATH")):
        raise UserError("cannot run " + command[0], "check the name and PATH")
    run = start_wrap(project, options.context, env)
    is_owed = run.session.delivery.state == "owed"
    typist = Typist(run, options.timeout or WRAP_TIMEOUT_S)
    if is_owed and has_terminal():
        return Terminal(typist).run(command, env)
    if is_owed:
        typist.give_up("there is no terminal")
        typist.close("")
    return run_plainly(command, env)


def refuse_program(command: list) -> None:
    """A UserError for what has hooks, and for what nobody wants text typed into."""
    if not command:
        raise UserError("a command is missing", "name the agent: wrap -- aider")
    names = [program_name(word) for word in command]
    name = names[0]
    for known in names if name in LAUNCHERS else [name]:
        if known in DIALECTS:
            hint = "install them: python3 install.py --agent " + known
            raise UserError("%s has hooks; they do this better" % known, hint)
    runs_script = any("c" in word or word[0] != "-" for word in command[1:])
    is_shell = name in SHELLS and not runs_script
    if is_shell or name in SCREENS:
        what = "%s is no agent: the context would be typed into it" % name
        raise UserError(what, "name the agent: wrap -- aider, wrap -- sh -c '...'")


def program_name(word: str) -> str:
    """codex for /usr/bin/codex, and for the package @openai/codex@1.2."""
    name = os.path.basename(word)
    return re.sub(r"(?<=\w)(-cli|-code)?(@[\w.^~-]+|\.\w+)?$", "", name)


def start_wrap(project: Project, context_file: str, env: dict) -> Run:
    """A run whose session has a delivery for the program, like a client's start."""
    event = Event({"name": "SessionStart", "source": "startup"})
    run = Run(event, project, env, time.time())
    run.session.id = "wrap-%d-%d" % (run.now, os.getpid())
    run.session.seen_at = run.now
    if is_switched_off(project, env, run.now):
        return run
    prepare_folders(project)
    settings = project.settings.values
    settings["startup.fallback_file"] = settings["startup.fallback_file"] or "AGENTS.md"
    if not context_file:
        with ProjectLock(project, LOCK_WAIT_S):
            start_session(run)
        return run
    text = cut_end(clean_text(read_text(context_file)).strip(), REPLY_LIMIT - 400)
    if not says_something(text):
        raise UserError("there is no context in " + context_file, "name a text file")
    run.session.delivery = Delivery({"state": "owed", "text": text})
    return run


def has_terminal() -> bool:
    return os.name == "posix" and os.isatty(0) and os.isatty(1)


def run_plainly(command: list, env: dict) -> int:
    """Become the program; Windows can only wait for it."""
    import subprocess

    sys.stdout.flush()
    if os.name == "posix":
        os.execvpe(command[0], command, env)
    return subprocess.call(command, env=env)


# --- what the program shows

MOVES = r"\x1b\[[0-9;]*[ABEFGHfd]|\r\n?"
FORWARD = r"\x1b\[\d*C"
ESCAPES = (
    r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?"
    r"|\x1bO.|\x1b[ -/]*[0-~]"
)
PRIVATE_MODE = r"\x1b\[\?([\d;]+)([hl])"
ALTERNATE_SCREENS, PASTE_MODE = ("47", "1047", "1049"), "2004"
USUAL_MODES = ("7", "25")  # a terminal wraps lines and shows the cursor


class Output:
    """The last characters of a program's output, and the terminal modes it has set."""

    def __init__(self) -> None:
        import codecs

        self.decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self.kept = ""
        self.unparsed = ""  # the start of an escape sequence that is cut off
        self.modes: dict = {}  # number -> h or l
        self.heard_at = time.monotonic()

    def feed(self, data: bytes) -> None:
        text = self.decoder.decode(data)
        if text:
            self.heard_at = time.monotonic()
        self.kept = (self.kept + text)[-2 * WRAP_OUTPUT_CHARS :]
        self.unparsed += text
        for numbers, letter in re.findall(PRIVATE_MODE, self.unparsed):
            for number in numbers.split(";"):
                self.modes[number] = letter
        self.unparsed = self.unparsed[self.unparsed.rfind("\x1b") :][:20]

    def text(self) -> str:
        return strip_escapes(self.kept)[-WRAP_OUTPUT_CHARS:]

    def is_on(self, *numbers: str) -> bool:
        return any(self.modes.get(number) == "h" for number in numbers)

    def undo_modes(self) -> bytes:
        """What gives the person a usual terminal again after a program was killed."""
        undo = ""
        for number, letter in self.modes.items():
            usual = "h" if number in USUAL_MODES else "l"
            if letter != usual:
                undo += "\x1b[?%s%s" % (number, usual)
        return undo.encode()


def strip_escapes(text: str) -> str:
    """Text as it reads without a terminal; a jump of the cursor begins a line."""
    text = re.sub(FORWARD, " ", re.sub(MOVES, "\n", text))
    return re.sub(CONTROL, "", re.sub(ESCAPES, "", text))


def last_lines(text: str, count: int) -> list:
    """The last lines with something in them."""
    lines = [line.strip() for line in text.split("\n")]
    return [line for line in lines if line][-count:]


def last_line(text: str) -> str:
    return "".join(last_lines(text, 1))


# --- does it ask the person something?

QUESTION_LINES = 12
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
ANSWERED = r"(?i)(/no?[\])]\??:?|\]:) \w+$"  # Remove it? [Y/n] y


def has_question(text: str) -> bool:
    """Whether the last lines ask the person something."""
    lines = last_lines(text, QUESTION_LINES)
    if re.search(PROMPT, last_line(text)):
        # What was asked further above is answered, or has its answer behind it.
        lines = [line for line in lines[-3:] if not re.search(ANSWERED, line)] + [""]
    return bool(re.search(QUESTION, "\n".join(lines)))


# --- does it wait for a line?

READY_ABOVE, READY_AGREE = 0.7, 0.1
READY_PROCESS, READY_PATTERN, READY_NATURAL = 0.95, 0.9, 0.6
SILENCE_FROM_MS, SILENCE_FULL_MS, SILENCE_MOST = 500, 3000, 0.8
NATURAL_FROM_MS = 200
MID_THOUGHT = r"([\w,;:(\[{–—-]|\.\.|…)$"
PATTERN_LIMIT_S = 0.2


class Glance(Record):
    """What is known of the program at one moment."""

    process: str = "unknown"  # or reading, busy, idle
    silent_ms: int = 0
    text: str = ""  # since we, or the person, last typed a line
    is_raw: bool = False
    is_hidden: bool = False  # it reads a line without showing it
    is_alternate: bool = False
    takes_paste: bool = False
    is_typing: bool = False  # the person has written half a line


def readiness(glance: Glance, patterns: list) -> float:
    """How sure we are that the program waits for a line, from 0 to 1."""
    last, silent_ms = last_line(glance.text), glance.silent_ms
    is_named = any(matches(pattern, last) for pattern in patterns)
    has_prompt = is_named or re.search(PROMPT, last)
    takes_keys = glance.is_raw and not glance.takes_paste and not has_prompt
    if takes_keys or glance.process in ("busy", "idle"):
        return 0.0
    scores = []
    if glance.process == "reading":
        scores.append(READY_PROCESS)
    if is_named:
        scores.append(READY_PATTERN)
    if silent_ms >= SILENCE_FROM_MS:
        scores.append(min(silent_ms / SILENCE_FULL_MS, SILENCE_MOST))
    if silent_ms >= NATURAL_FROM_MS and not re.search(MID_THOUGHT, last):
        scores.append(READY_NATURAL)
    agree = READY_AGREE if len(scores) > 1 else 0.0
    return min(1.0, max(scores, default=0.0) + agree)


def matches(pattern: str, line: str) -> bool:
    """Search a pattern of the project's; (a+)+$ could hang the person's terminal."""
    import signal

    signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_REAL, PATTERN_LIMIT_S)
    try:
        return bool(re.search(pattern, line, re.I))
    except (re.error, RecursionError, OverflowError, KeyboardInterrupt):
        return False
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def may_type(glance: Glance) -> bool:
    """Whether nothing speaks against typing now."""
    is_other = glance.is_hidden or glance.is_alternate or glance.is_typing
    return not is_other and not has_question(glance.text)


# --- what the kernel says

TERMINALS = ("/dev/pts/", "/dev/tty")
READ_WAITS = ("wait_woken", "n_tty_read")
POLL_WAITS = (
    "poll_schedule_timeout do_select do_poll do_sys_poll ep_poll do_epoll_wait"
).split()


def process_state(leader: int, is_raw: bool) -> str:
    """What the program does: reading its terminal, busy, idle or unknown."""
    try:
        found = [thread_state(thread, is_raw) for thread in threads_of(leader)]
    except (OSError, ValueError, IndexError):
        return "unknown"  # /proc is not there or tells too little, or a thread ended
    for state in ("busy", "reading", "unknown"):
        if state in found:
            return state
    return "idle"


def threads_of(leader: int) -> list:
    """The threads of a process and its children: an agent may be behind a launcher."""
    threads, processes = [], [str(leader)]
    for process in processes:
        folder = "/proc/%s/task/" % process
        for name in os.listdir(folder):
            threads.append(folder + name)
            processes += read_text(folder + name + "/children").split()
    return threads


def thread_state(thread: str, is_raw: bool) -> str:
    """The same for one thread, by its folder below /proc."""
    _, name, rest = re.split(r"\((.*)\)", read_text(thread + "/stat"), maxsplit=1)
    state, _, group, _, _, foreground = rest.split()[:6]
    wait = read_text(thread + "/wchan").partition(".")[0]
    if group != foreground:
        return "idle"
    if state in "RD":
        return "busy"
    if wait in ("", "0"):
        return "unknown"
    if wait in READ_WAITS:
        descriptor = int(read_text(thread + "/syscall").split()[1], 16)
        file = os.readlink("%s/fd/%d" % (thread, descriptor))
        is_reading = file.startswith(TERMINALS)
    else:
        # What a poll waits for is not told. In raw mode it is keys; in line mode
        # it may as well be the network, or a child.
        is_reading = is_raw and wait in POLL_WAITS
    if not is_reading:
        return "idle"
    return "busy" if name in SHELLS + SCREENS else "reading"


# --- the text, and what comes back

ECHO_LETTERS = 24  # more than an acknowledgement has, less than our request around it
PASTED_MARK = r"\[Pasted (?:[Tt]ext|[Cc]ontent)\b[^\]]*\]"  # stands for a long paste
# the acknowledgement, but not our request for it
TOLD_ACK = r'(?i)(?<!Reply ")\bACK:\s*context\s+received(?!\W{0,9}to\W{0,9}confirm)'
ACK_MARGIN = 40  # the end of our request may still be on its way
LINE_ENDS = (b"\r", b"\n", b"\x03", b"\x04", b"\x15")  # Enter, ^C, ^D, ^U


def plan_keys(text: str, takes_paste: bool) -> bytes:
    """The keys for a text, without the Enter. Outside of a paste it is one line."""
    text = re.sub(CONTROL, "", text.replace("\t", "    ")).strip()
    if takes_paste:
        return b"\x1b[200~" + text.replace("\n", "\r").encode() + b"\x1b[201~"
    line = " ".join(text.split()).encode()
    if len(line) > WRAP_LINE_BYTES:
        half = WRAP_LINE_BYTES // 2 - 10
        line = line[:half] + b" [... cut ...] " + line[-half:]
    return line.decode("utf-8", "ignore").encode()


def after_echo(text: str, typed: str) -> str | None:
    """What stands behind our text, however that is wrapped; None: it is not there."""
    letters = re.sub(r"[\W_]", "", typed)
    echo = r"[\W_]*".join(letters[-ECHO_LETTERS:])
    found = re.match("(?s).*(?:%s|%s)" % (echo, PASTED_MARK), text)
    return text[found.end() :] if found else None


def is_report(keys: bytes) -> bool:
    """Whether the terminal itself sent this: a position, a colour, an arrow key."""
    return not re.sub(ESCAPES, "", keys.decode("utf-8", "replace"))


# --- when to type what


class Typist:
    """Decides what is typed when. waiting -> typed -> submitted -> typed … -> done"""

    def __init__(self, run: Run, timeout_s: float) -> None:
        self.run = run
        self.timeout_s = timeout_s
        self.state = "waiting"
        self.since = time.monotonic()
        self.busy_at = self.since  # when it was last not ready
        self.prompt = ""  # the line at which we typed first
        self.typed = ""
        self.notes: list = []  # for the person, once the program has ended

    def step(self, glance: Glance, now: float) -> bytes:
        """The keys to type now; b"" for none."""
        self.run.now = time.time()
        if self.state == "typed":
            return self.press_enter(glance, now)
        if self.state == "submitted" and has_acknowledged(glance):
            self.succeed("acknowledgement")
        elif self.has_waited(glance, now):
            return self.type_next(glance, now)
        elif self.state == "waiting" and self.is_late(now):
            self.give_up("the program was not ready in time")
        return b""

    def has_waited(self, glance: Glance, now: float) -> bool:
        """Whether the program is ready, has settled, and is back where it was."""
        settings = self.run.project.settings
        is_ready = readiness(glance, settings["wrap.ready_patterns"]) > READY_ABOVE
        is_back = not glance.is_raw or self.prompt in ("", same_prompt(glance.text))
        if not is_ready or not is_back or not may_type(glance):
            self.busy_at = now
        waited_s = min(now - self.busy_at, glance.silent_ms / 1000)
        if self.state == "waiting":
            return waited_s >= WRAP_SETTLE_S
        return waited_s >= max(WRAP_ACK_S, backoff_s(self.run))

    def type_next(self, glance: Glance, now: float) -> bytes:
        """The next rung of the ladder: the text, or what became of it."""
        run = self.run
        run.reply = Reply(run.event)
        text = run.session.delivery.text
        if self.state == "waiting":
            self.prompt = same_prompt(glance.text)
            send(run, text)
        else:
            retry(run)
        self.typed = "\n\n".join(run.reply.texts)
        is_auto = run.project.settings["startup.require_ack"] == "auto"
        if is_auto and self.typed == text:
            quoted = text.replace("ACK:", "ACK")  # an echo must not look like an answer
            self.typed = ACK_FRAME % quoted
        self.change("typed", now)
        return plan_keys(self.typed, glance.takes_paste)

    def press_enter(self, glance: Glance, now: float) -> bytes:
        """Enter, once our text stands there and nothing is asked behind it."""
        rest = after_echo(glance.text, self.typed)
        if rest is not None and glance.silent_ms >= NATURAL_FROM_MS:
            glance.text = rest
            if may_type(glance):
                self.change("submitted", now)
                self.book()
                return b"\r"
        if glance.is_typing or self.is_late(now):
            self.give_up("it did not appear when it was typed")
        return b""

    def change(self, state: str, now: float) -> None:
        record(self.run, "wrap:" + state, waitedMs=int((now - self.since) * 1000))
        self.state = state
        self.since = self.busy_at = now

    def book(self) -> None:
        """Our text is submitted."""
        run = self.run
        self.notes += run.reply.notes
        for action, args in run.reply.said_actions:
            action(*args)
        delivery = run.session.delivery
        if delivery.state == "failed" or delivery.attempts > MOST_ATTEMPTS:
            self.state = "done"
        elif not BOOLEANS.get(run.project.settings["startup.require_ack"], True):
            self.succeed("echo")

    def succeed(self, evidence: str) -> None:
        self.state = "done"
        end_delivery(self.run, evidence)

    def give_up(self, reason: str) -> None:
        """Nothing is typed any more. The instruction file needs nobody to be ready."""
        run, project = self.run, self.run.project
        self.state = "done"
        delivery = run.session.delivery
        path = instruction_path(project, run.session)
        name = project.relative(path)
        if not delivery.escalated and write_section(path, delivery.text):
            delivery.escalated = True
            count_metric(project, "escalatedToFile")
            record(run, "injection:escalated", file=name, reason=reason)
        place = name if delivery.escalated else project.path("handoffs")
        self.notes.append(NOT_SUBMITTED % (reason, place))

    def is_late(self, now: float) -> bool:
        return now - self.since >= self.timeout_s

    def is_holding(self, now: float) -> bool:
        """The person's keys do not come between our text and its Enter."""
        return self.state == "typed" and now - self.since < WRAP_HOLD_S

    def close(self, text: str) -> None:
        """The program has ended. Without evidence the handoff waits again."""
        project, session = self.run.project, self.run.session
        if self.state == "submitted" and re.search(TOLD_ACK, text):
            self.succeed("acknowledgement")
        if session.delivery.state in ("sent", "failed"):
            self.notes.append(NOT_ACKNOWLEDGED)
            give_back(project, session.delivery.handoff)
        for note in self.notes:
            write_all(2, (note + "\n").encode())  # perhaps nobody is there any more


def has_acknowledged(glance: Glance) -> bool:
    """Whether the program says so; the end of our echoed request may be on its way."""
    is_whole = glance.silent_ms >= NATURAL_FROM_MS
    text = glance.text if is_whole else glance.text[:-ACK_MARGIN]
    return bool(re.search(TOLD_ACK, text))


def backoff_s(run: Run) -> float:
    backoffs = run.project.settings["startup.retry_backoffs_s"] or [1.0]
    return backoffs[min(run.session.delivery.attempts, len(backoffs)) - 1]


def same_prompt(text: str) -> str:
    """The last line, by which a prompt is known again although it counts."""
    return re.sub(r"\d+", "0", last_line(text))


# --- the pseudo-terminal


class Terminal:
    """The person's terminal, and the pseudo-terminal in which the program runs."""

    def __init__(self, typist: Typist) -> None:
        self.typist = typist
        self.output = Output()
        self.queue = b""  # keys on their way to the program
        self.is_half = False  # the person has begun a line
        self.has_answered = False  # the person has ended one
        self.has_keys = True
        self.next_look = 0.0
        self.code = -1

    def run(self, command: list, env: dict) -> int:
        """Pass everything through until the program ends; its exit code."""
        import termios

        self.saved = termios.tcgetattr(0)
        self.start(command, env)
        try:
            while self.code < 0:
                self.pump()
            while self.read_output():
                pass
        finally:
            self.restore()
            self.typist.close(self.output.text())
        return self.code

    def start(self, command: list, env: dict) -> None:
        import pty
        import signal
        import termios

        self.pid, self.master = pty.fork()
        if self.pid == 0:
            termios.tcsetattr(0, termios.TCSANOW, self.saved)
            become(command, env)
        os.set_blocking(self.master, False)
        for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self.forward)
        signal.signal(signal.SIGWINCH, self.fit)
        signal.signal(signal.SIGCONT, self.fit)
        self.fit()

    def forward(self, number: int, _: object = None) -> None:
        """Pass a signal on to the program."""
        try:
            os.killpg(self.pid, number)
        except OSError:
            pass  # it has ended

    def fit(self, *_: object) -> None:
        """The person's terminal raw, and its size for the program; also after ^Z."""
        import fcntl
        import termios
        import tty

        try:
            tty.setraw(0, termios.TCSADRAIN)
            size = fcntl.ioctl(0, termios.TIOCGWINSZ, bytes(8))
            fcntl.ioctl(self.master, termios.TIOCSWINSZ, size)
        except (OSError, termios.error):
            pass  # the window was closed; SIGHUP ends the program

    def restore(self) -> None:
        """The person's terminal as it was, whatever the program left switched on."""
        import termios

        write_all(1, self.output.undo_modes())
        try:
            termios.tcsetattr(0, termios.TCSADRAIN, self.saved)
        except termios.error:
            pass  # the window was closed

    def pump(self) -> None:
        """Pass on what is there, or wait for it a moment."""
        import select

        now = time.monotonic()
        sources = [self.master]
        if self.has_keys and not self.typist.is_holding(now):
            sources.append(0)
        targets = [self.master] if self.queue else []
        ready, writable, _ = select.select(sources, targets, [], WRAP_POLL_S)
        if 0 in ready:
            self.read_keys()
        if writable:
            self.write_queue()
        is_closed = self.master in ready and not self.read_output()
        self.follow_program(0 if is_closed else os.WNOHANG | os.WUNTRACED)
        if now >= self.next_look and self.code < 0 and self.typist.state != "done":
            self.next_look = now + WRAP_POLL_S
            self.look(now)

    def read_keys(self) -> None:
        import signal
        import termios

        keys = read_some(0)
        self.has_keys = bool(keys)
        if keys == b"\x1a" and self.flags() & termios.ISIG:
            self.forward(signal.SIGSTOP)  # ^Z: without a shell SIGTSTP stops nothing
            return
        self.queue += keys
        if keys.endswith(LINE_ENDS):
            self.is_half = False
            self.has_answered = True
        elif not is_report(keys):
            self.is_half = True

    def write_queue(self) -> None:
        try:
            self.queue = self.queue[os.write(self.master, self.queue) :]
        except OSError:
            pass  # full for now

    def read_output(self) -> bool:
        """Pass output on; False if there is none."""
        import signal

        data = read_some(self.master)
        if self.has_answered and data.strip():
            self.has_answered = False
            self.output.kept = ""  # what was asked before is settled
        self.output.feed(data)
        if not write_all(1, data):
            self.forward(signal.SIGHUP)  # the person's terminal is gone
        return bool(data)

    def follow_program(self, flags: int) -> None:
        """Has the program ended, or stopped?"""
        import signal

        pid, status = os.waitpid(self.pid, flags)
        if not pid:
            return
        if os.WIFSTOPPED(status):
            self.restore()
            os.kill(os.getpid(), signal.SIGTSTP)  # the person's shell comes back
            self.fit()
            self.forward(signal.SIGCONT)
            self.forward(signal.SIGWINCH)  # draw again
        elif os.WIFSIGNALED(status):
            self.code = 128 + os.WTERMSIG(status)
        else:
            self.code = os.WEXITSTATUS(status)

    def look(self, now: float) -> None:
        """Let the typist look at the program."""
        glance = self.glance(now)
        with ProjectLock(self.typist.run.project, LOCK_WAIT_S):
            keys = self.typist.step(glance, now)
        if keys:
            self.output.kept = ""
            self.queue += keys

    def flags(self) -> int:
        """The local modes that the program has set; 0 if it has closed its terminal."""
        import termios

        try:
            return termios.tcgetattr(self.master)[3]
        except termios.error:
            return 0

    def glance(self, now: float) -> Glance:
        import termios

        flags, output = self.flags(), self.output
        glance = Glance()
        glance.is_raw = not flags & termios.ICANON
        glance.is_hidden = not glance.is_raw and not flags & termios.ECHO
        glance.is_alternate = output.is_on(*ALTERNATE_SCREENS)
        glance.takes_paste = output.is_on(PASTE_MODE)
        glance.is_typing = self.is_half
        glance.silent_ms = int((now - output.heard_at) * 1000)
        glance.text = output.text()
        glance.process = process_state(self.pid, glance.is_raw)
        return glance


def become(command: list, env: dict) -> None:
    """Run the program in this process, which is the child's."""
    try:
        os.execvpe(command[0], command, env)
    finally:
        os._exit(127)


def read_some(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, WRAP_READ_BYTES)
    except OSError:
        return b""  # closed, or nothing is there


def write_all(descriptor: int, data: bytes) -> bool:
    try:
        while data:
            data = data[os.write(descriptor, data) :]
        return True
    except OSError:
        return False
# =============================================================================
# Commands
# =============================================================================
# What people run: a function and a line of the parser each. What fails is a
# UserError: two lines on stderr, and exit 1.

NO_PROJECT = "no .context folder here or above: the hooks stay silent"
DURATION = r"([1-9]\d{0,6})([smhd]?)"
UNITS_S = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}
SIGNAL_FILE = """\
---
generated_at: {at}
severity: {severity}
ttl: {ttl_s}
auditor: signal-command
code: {code}
---
{text}
"""


class UserError(Exception):
    """A sentence for the person, and what to do about it."""

    def __init__(self, what: str, hint: str) -> None:
        super().__init__(what)
        self.what = what
        self.hint = hint


# --- commands that can be pasted from where one is


def kit_call(words: str) -> str:
    return program_call(os.path.abspath(__file__), words)


def program_call(path: str, words: str) -> str:
    """A Python program with its words; its path from here if it lies below."""
    import shlex

    inside = os.path.relpath(path)
    if not inside.startswith(".."):
        path = os.path.join(".", inside) if os.sep not in inside else inside
    start = "" if os.access(path, os.X_OK) else "python3 "
    if os.name == "nt":
        return 'py -3 "%s" %s' % (path, words)
    return "%s%s %s" % (start, shlex.quote(path), words)


def installer_call(here: Here, words: str) -> str:
    """install.py lies where the kit came from, or beside it."""
    state = project_state_folder(here.folder, here.env)
    kept = read_object(os.path.join(state, "install-project.json"))
    for folder in (text_of(kept.get("source")), os.path.dirname(__file__)):
        path = os.path.join(os.path.abspath(folder), "install.py")
        if folder and os.path.isfile(path):
            return program_call(path, words)
    return "in your copy of ctx_hooks: python3 install.py %s" % words


def init_call(here: Here) -> str:
    """What makes this folder a project; the plugin needs no more than the folder."""
    return "mkdir .context" if is_plugin(here.env) else installer_call(here, "--init")


def is_plugin(env: dict) -> bool:
    """Whether this is Claude Code's plugin; a slash command has no variable for it."""
    folder = os.path.dirname(os.path.abspath(__file__))
    has_manifest = os.path.isfile(os.path.join(folder, ".claude-plugin", "plugin.json"))
    return has_manifest and ("/plugins/" in folder or "CLAUDECODE" in env)


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


def parse_duration(text: str) -> int:
    """The seconds of 90, 90s, 30m, 2h or 1d."""
    match = re.fullmatch(DURATION, text)
    if not match:
        raise UserError(
            "not a duration: " + text, "a number with s, m, h or d, as in 30m"
        )
    return int(match[1]) * UNITS_S[match[2]]


def choose(what: str, names: list, prefix: str) -> str:
    """The one name that begins so; a UserError if there is none, or more than one."""
    found = [name for name in names if name.startswith(prefix)]
    if len(found) != 1:
        begins = " begins with " + prefix if prefix else ""
        count = "more than one" if found else "no"
        known = ", ".join(names[:5]) or "none yet"
        raise UserError("%s %s%s" % (count, what, begins), "there are: " + known)
    return found[0]


def session_ids(project: Project) -> list:
    """The sessions that we know, the newest first."""
    return [row.id for row in all_sessions(project) if row.agent in DIALECTS]


# --- the commands


def show_status(here: Here, options: object) -> None:
    places = all_projects(here.env) if options.all else [here]
    if not options.all:
        need_project(here)
    if options.json:
        found = [status_data(place) for place in places]
        print(json.dumps(found if options.all else found[0], indent=1))
        return
    for place in places:
        print_page(short_page(place) if options.all else status_page(place))


def all_projects(env: dict) -> list:
    """The user's projects, those with a context folder still there."""
    from urllib.parse import unquote

    home = os.path.join(state_home(env), "ctx_hooks")
    found = []
    for name in sorted(os.listdir(home)) if os.path.isdir(home) else []:
        root = read_text(os.path.join(home, name, "root")).strip() or unquote(name)
        here = Here(root, env)
        if here.project and here.project.root == root:
            found.append(here)
    return found


def show_why(here: Here, options: object) -> None:
    rows = read_events(need_project(here))[-options.count :]
    for row in rows:
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
            name = choose("handoff that waits", waiting_handoffs(run), options.session)
            take_handoff(project, name)
            print("taken away; for some days it is kept in handoffs/delivered/" + name)
        elif options.action == "list":
            print_page(row_lines(handoff_rows(here, here.runs())))
        else:
            text = startup_text(run, choose_handoff(run, "startup"), "startup")
            print(re.sub(CONTROL, "", text) or "No handoff waits for the next session.")


def make_now(here: Here, prefix: str) -> None:
    """Make a session's handoff, or bring the agent's own up to date."""
    project = here.project
    known = session_ids(project)
    session_id = choose("session", known if prefix else known[:1], prefix)
    session = load_session(project, session_id)
    look(session)
    if not make_handoff(project, session, here.now):
        hint = "one is made of edits and commands; see " + kit_call("status")
        raise UserError("session %s did no work yet" % session_id[:8], hint)
    save_session(project, session)
    print(handoff_path(project, session_id))


def send_signal(here: Here, options: object) -> None:
    project = need_project(here)
    text = sys.stdin.read() if options.text == "-" else options.text
    if not clean_text(text).strip():
        raise UserError("the signal says nothing", kit_call('signal "what → do"'))
    folder, listener = project.path("signals", "global"), "every session"
    if options.session:
        listener = choose("session", session_ids(project), options.session)
        folder = project.path("signals", "sessions", safe_name(listener))
    ttl_s, code = parse_duration(options.ttl), safe_name(options.code)
    name = "%s-%x.md" % (code or "signal", time.time_ns())
    content = SIGNAL_FILE.format(
        at=format_iso(here.now),
        severity=options.severity,
        ttl_s=ttl_s,
        code=code,
        text=text.strip(),
    )
    must_write(os.path.join(folder, name), content)
    print("for %s, until %s" % (listener, here.clock(here.now + ttl_s)))


def pause(here: Here, options: object) -> None:
    project = need_project(here)
    until, when = 0.0, "until you run " + kit_call("resume")
    if options.time:
        until = here.now + parse_duration(options.time)
        when = "until " + here.clock(until)
    must_write(project.state("paused"), "%d\n" % until)
    print("all hooks in %s are silent %s" % (project.root, when))


def resume(here: Here, options: object) -> None:
    project = need_project(here)
    was_paused = paused_until(project, here.now) > 0
    remove_file(project.state("paused"))
    print(
        "the hooks are on again"
        if was_paused
        else "there was no pause; the hooks are on"
    )


def run_auto(here: Here, options: object) -> None:
    """start, status, resume, stop"""
    project = need_project(here)
    given = AutoOptions(vars(options))
    if given.session:
        given.session = choose("session", session_ids(project), given.session)
    with HeldLock(project):
        if options.action == "start":
            start_workflow(project, given, here.env, here.now)
        elif options.action == "resume":
            resume_workflow(project, given, here.env, here.now)
        elif options.action == "stop":
            stop_workflow(project, here.env, here.now)
    if options.action in ("start", "resume"):
        ask_for_checks(here, given)
    begin = "no workflow; begin one: " + kit_call(
        'auto start "TASK" --until "make test"'
    )
    print_page(workflow_lines(here) or [("", begin)])


def ask_for_checks(here: Here, given: AutoOptions) -> None:
    """Ask a person in a terminal for the checks that .contextrc names."""
    flow = read_workflow(here.project)
    is_agent = any(here.env.get(name) for name in AGENT_VARIABLES)
    if is_agreed(here.project, flow) or is_agent or not sys.stdin.isatty():
        return
    checks = checks_of(here.project, flow)
    print_page([("", "  " + command) for command in checks.values()])
    if input("May these commands run as checks? [y/N] ").strip().lower() in (
        "y",
        "yes",
    ):
        given.agree = True
        with HeldLock(here.project):
            publish(here.project, flow, given, here.env)


def run_doctor(here: Here, options: object) -> int:
    rows = diagnose(here)
    print_page(row_lines(rows))
    return 1 if any(row[0] == FAIL for row in rows) else 0


def run_wrap(here: Here, options: object) -> int:
    if options.words:
        hint = kit_call("wrap -- " + " ".join(options.words))
        raise UserError("put -- before the program", hint)
    return wrap_program(need_project(here), options, here.env)


def show_statusline(here: Here, options: object) -> None:
    """One line from the client's JSON on stdin; nothing on anything odd."""
    data = parse_object(sys.stdin.buffer.read(STDIN_LIMIT_BYTES))
    here = Here(text_of(dig(data, "workspace", "project_dir")), here.env)
    session_id = text_of(data.get("session_id"))
    if here.project is None or not session_id:
        return
    window = dig(data, "context_window")
    session = note_window(
        here.project, session_id, count_of(dig(window, "context_window_size"))
    )
    used = claude_tokens(dig(window, "current_usage"))
    session.facts.tokens = used or session.facts.tokens
    full = fullness(here.run(session))
    parts = ["ctx " + full.shown() if full.tokens else "ctx"]
    if is_switched_off(here.project, here.env, here.now):
        parts.append("paused")
    if session.threshold_crossed_at:
        parts.append(
            "handoff " + ("written" if session.handoff_complete else "asked for")
        )
    flow = read_workflow(here.project)
    if flow.is_running and flow.session_id == session_id:
        parts.append("%s %d/%d" % (flow.stage, flow.iteration, flow.max_iterations))
    print_page([("", " · ".join(parts))])


def note_window(project: Project, session_id: str, window: int) -> Session:
    """The session with the window's size, which the client tells nowhere else. One that
    the hooks know keeps it; its file is written only when the size is another."""
    session = load_session(project, session_id)
    if session.agent and window not in (0, session.window_told):
        with ProjectLock(project, LOCK_WAIT_S) as lock:
            session = load_session(project, session_id)
            session.window_told = window
            if lock.is_held:
                save_session(project, session)
    session.agent = "claude"
    session.window_told = window
    return session


# --- the command line


def make_parser() -> object:
    import argparse

    class Parser(argparse.ArgumentParser):
        def error(self, message: str) -> None:
            raise UserError(message, self.prog + " --help")

    name = kit_call("").strip()
    parser = Parser(prog=name, description="Hooks that keep a coding agent on track.")
    parser.add_argument("--version", action="store_true", help="and the file's sha256")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")

    def add(run: object, name: str, text: str) -> Parser:
        command = commands.add_parser(name, help=text, description=text)
        command.set_defaults(run=run, prog=command.prog, usage=command.format_usage)
        return command

    add_commands(add)
    return parser


def add_commands(add: object) -> None:
    """A line for each command, and one for each of its options."""
    status = add(
        show_status, "status", "sessions, handoffs, signals, workflow, problems"
    )
    status.add_argument("--json", action="store_true", help="for scripts")
    status.add_argument("--all", action="store_true", help="all your projects")
    why = add(show_why, "why", "what was said and decided last, and why")
    why.add_argument("count", nargs="?", type=int, default=10, metavar="N")
    handoff = add(
        run_handoff, "handoff", "what the next session gets; make or drop one"
    )
    actions = ("show", "now", "list", "drop")
    handoff.add_argument("action", nargs="?", choices=actions, default="show")
    handoff.add_argument("session", nargs="?", default="", help="or how its id begins")
    signal = add(send_signal, "signal", "tell the agents something while they work")
    signal.add_argument(
        "text", help='"what is wrong → what to do"; - reads it from stdin'
    )
    signal.add_argument("--session", default="", help="only this one")
    signal.add_argument("--severity", choices=SEVERITIES, default="warning")
    signal.add_argument("--ttl", default="1d", help="90s, 30m, 2h, 1d (default)")
    signal.add_argument(
        "--code", default="", help="a newer one of this code replaces it"
    )
    add_auto_options(
        add(run_auto, "auto", "keep the agent at work until a task is done")
    )
    silence = add(pause, "pause", "switch the hooks off in this project")
    silence.add_argument(
        "--for", dest="time", metavar="TIME", help="30m, 2h; default: no end"
    )
    add(resume, "resume", "end a pause")
    add(run_doctor, "doctor", "what can keep the hooks from working, and what to do")
    add(show_statusline, "statusline", "a line for the status line of Claude Code")
    wrap = add(run_wrap, "wrap", "run an agent that has no hooks: wrap -- aider")
    wrap.add_argument(
        "--context", default="", help="a file to type instead of the handoff"
    )
    wrap.add_argument("--timeout", type=float, default=0.0, help="seconds; default: 30")
    wrap.add_argument("words", nargs="*", metavar="-- CMD")


def add_auto_options(auto: object) -> None:
    auto.add_argument("action", choices=("start", "status", "resume", "stop"))
    auto.add_argument("task", nargs="?", default="", help="start: what is to be done")
    auto.add_argument("--until", default="", help="done when this command exits 0")
    auto.add_argument("--phase", default="", help="begin with this one")
    auto.add_argument(
        "--skip", action="append", default=[], help="leave this phase out"
    )
    auto.add_argument("--session", default="", help="only this one")
    auto.add_argument(
        "--any", action="store_true", help="a script's prompt counts, too"
    )
    auto.add_argument("--max-iterations", type=int, default=MAX_ITERATIONS)
    auto.add_argument(
        "--agree", action="store_true", help="to the checks of .contextrc"
    )
    auto.add_argument("--force", action="store_true", help="replace one that runs")


def run_words(argv: list) -> int:
    """Run one command; its exit code."""
    cut = argv.index("--") if "--" in argv else len(argv)
    parser = make_parser()
    options, unknown = parser.parse_known_args(argv[:cut])
    if unknown:
        raise UserError("unknown: " + unknown[0], options.usage().strip())
    if options.version:
        print("ctx_hooks %s\nsha256 %s" % (VERSION, own_sha256()))
    elif "run" not in options:
        parser.print_help()
    else:
        options.command = argv[cut + 1 :]
        return options.run(Here(os.getcwd(), dict(os.environ)), options) or 0
    return 0


def own_sha256() -> str:
    import hashlib

    return hashlib.sha256(read_bytes(__file__, STATE_LIMIT_BYTES)).hexdigest()


def run_people(argv: list) -> int:
    """Run a person's command. It never exits with 2, which would mean "deny" to a
    client that runs it as a hook."""
    if sys.stdout is None:  # it was closed before the start
        sys.stdout = open(os.devnull, "w")
    sys.stdout.reconfigure(encoding="utf-8", errors="replace")
    try:
        code = run_words(argv)
        sys.stdout.flush()
        return code
    except UserError as error:
        what, hint = error.what, error.hint
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # the reader has seen enough
        return 1
    except OSError as error:
        what, hint = str(error), kit_call("doctor")
    except KeyboardInterrupt:
        return 130
    sys.stderr.write("error: %s\nhint: %s\n" % (for_terminal(what), for_terminal(hint)))
    return 1


# =============================================================================
# Main
# =============================================================================
# The first word is a mode, for clients, or a command, for people. An unknown mode
# of a hook exits with 1: 2 would mean "deny" to the client.


def main(argv: list) -> int:
    word = argv[0] if argv else ""
    if word in HANDLERS:
        guarded_hook(word, argv[1:])
    return run_people(argv)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
