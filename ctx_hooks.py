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
# A tool that rewrites this file may lose a quote; a shell or Python might then take its
# program from stdin. So the event waits on descriptor 3, for our Python alone, and no
# command is substituted. If code and quoted text are swapped, this ends it: ';exit 0;'
set +eu # both may be exported in SHELLOPTS
mode=$1 agent=$2 need=
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
  *) need="ctx_hooks needs Python 3.8 or newer" ;; # a person reads it
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

# 3. The gate has spoken (its marker is there), or the session is calm. The calm file
# says how many calls may pass, between which sizes the transcript may grow meanwhile,
# where it is, and which paths end the calm. The tally has the size at each call so far.
calm=$cache/calm/$agent-$id tally=$cache/calm/$agent-$id.tally
case $mode:$id in
  *:) ;; # not known: let Python look
  gate:*) [ -f "${TMPDIR:-/tmp}/ctx-loaded-$id" ] && exit 0 ;;
  monitor:*)
    if [ -f "$calm" ] && [ -r "$calm" ]; then
      {
        read -r room && read -r size most && IFS= read -r transcript || room=0
        while IFS= read -r watched; do
          for file in "$watched" "$watched"/*.md; do # perhaps written over in place
            [ "$file" -nt "$calm" ] && room=0
          done
        done
      } <"$calm"
      case $room in [1-9]) dots= ;; *) room=0 ;; esac
      if [ "$room" -gt 0 ] && [ -f "$transcript" ] &&
        wc -c <"$transcript" >>"$tally"; then
        while [ ${#dots} -le "$room" ] && read -r now; do
          dots=$dots. least=$size; size=$now; done <"$tally"
        case $size$least$most in *[!0-9]*) room=0 ;; esac # zsh would evaluate it
        [ ${#dots} -le "$room" ] &&
          [ "$size" -gt "$least" ] && [ "$size" -le "$most" ] && exit 0
      fi 2>/dev/null
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
else [ -n "$need" ] && echo "$need" >&2; exit 127; fi >/dev/null
exec "$python" ${option:+"$option"} -I -S -X utf8 -c '
import gc, sys
if sys.version_info < (3, 8): sys.exit("ctx_hooks needs Python 3.8 or newer")
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
    first tool   -> gate          it hears, once, which context files to read
    every tool   -> monitor       fullness is measured; alerts and signals reach
                                  the agent while it works; near the limit it is
                                  asked for a handoff until there is one
    next prompt  -> inject        pending signals reach the agent as one block
    PreCompact   -> monitor       the person's own words are pinned, and a
                                  handoff is made if there is none
    Stop         -> stop-enforce  in a workflow the agent goes on until it is
                                  done, and proven so
    SessionEnd   -> cleanup       the session's handoff is brought up to date;
                                  its signals and launcher files are removed

What a hook promises: its line in the settings exits with 0, always. It prints
nothing, or one JSON object (plain text before a compaction: the client asks for
that). It never blocks a tool or a prompt. It uses no network. A shell starts wc
for the transcript's size, and Python; Python starts only git, to ask what
changed and what it tracks, and a check command that the person agreed to. In a
project without a context folder it creates nothing. It ends within 4 seconds,
unless a check runs. When in doubt it says nothing.

The kit is this file, wherever it was installed. A handoff is what one session
leaves for the next, a signal a file for the agent, an alert an auditor's
finding; a workflow is what `auto` runs. A mark tells one content from another.

Read it from the top down: the records, what happens at each event, the
mechanisms, then the foundation. A section uses only Records and the sections
below it in this list. The people's commands come last and may use everything.

    Records       the nouns: every record with its fields
    Run           the line of a run: event, project, lock, session, look,
                  handler, print, save
    Modes         what happens at each event
    Startup       what the last session left, and the proof that it arrived
    Calm          which calls the launcher may answer alone
    Alerts        the auditors
    Handoff       the request for one, the one that the kit makes, what came since
    Gate          the context files to read first
    Signals       files for the agent, written by anybody
    Auto          workflows: go on until the check passes, or phase by phase
    Look          one pass over the transcript, folded into facts
    Clients       the one place that knows the clients' JSON
    Session       what is kept of a session, in the user's home
    Git           branch, commit, what is changed
    Project       where the project is, its lock, pause, which kit speaks
    Config        .contextrc
    Recorder      what was said and why, errors, metrics
    Words         which of the person's words are kept, where room is short
    Text          cleaning and cutting what reaches the agent or a person
    Files         reading, atomic writing, names, times

    Registration  how the kit came here, its lines in the clients' settings
    Doctor        what can keep the hooks from working
    Status        what people see
    Wrap          the startup context for agents without hooks
    Commands      what people run
    Main          a mode for clients, or a command for people
"""

import json
import os
import re
import sys
import time
from collections import Counter
from os.path import (
    basename,
    dirname,
    exists,
    isabs,
    isdir,
    isfile,
    islink,
    join,
    lexists,
    realpath,
    relpath,
)

VERSION = "0.4.0"
IS_WINDOWS = os.name == "nt"
TYPE_CHECKING = False  # a type checker takes it for true; a run never does
if TYPE_CHECKING:
    import subprocess
    from argparse import ArgumentParser, Namespace
    from collections.abc import Callable, Iterable, Mapping
    from typing import IO, Any, NoReturn, TypedDict

    Env = dict[str, str]  # the environment
    Json = dict[str, object]  # an object that came as JSON: anything may be in it
    Step = Callable[["Run"], None]  # a part of a run
    Action = Callable[..., object]  # what is done later, whatever it gives back
    Check = Callable[[str], str]  # a setting's value as it counts, or ValueError
    Setting = tuple[str | list[str], Check]  # default, check
    Value = tuple[int, int, str]  # line, column, text of a setting or of a problem
    Audit = Callable[["Run", list[str]], "Signal | None"]
    Places = tuple[str, str, str, str]  # see Dialect
    Finding = tuple[str, str, str]  # level or state, what, what to do
    File = tuple[str, float]  # path and time
    Writers = dict[str, "Session"]  # a handoff's name -> the session that wrote it
    Measure = tuple[str, int, str]  # ISO time, tokens, answer
    Scale = dict[str, int]  # entry -> weight
    Weighed = list[tuple[str, int]]  # sentence, weight
    Sentence = tuple[int, str, int]  # the text's number, sentence, weight
    Rank = tuple[float, int, int]  # see rank_sentences
    Block = dict[str, str]  # a completion block, by its keys
    Said = tuple[float, str]  # when, and a signal's mark

    class Call(TypedDict):
        """A tool call, as the facts keep it."""

        id: str  # its result has the same
        tool: str  # as the client calls it
        kind: str  # a key of TOOL_KINDS, or other
        command: str  # of a shell, in one line
        does: str  # the call in a few words
        check: str  # what it proves if it exits 0
        outcome: str  # "" until there is a result; then ok or failed
        key: str  # two calls with the same key did the same, with the same outcome
        at: str  # ISO time
        writes: list[str]  # the files that it writes if it succeeds


# =============================================================================
# Records
# =============================================================================
# The nouns of this file. Each record lists its fields with a type, a default and a
# few words. A record reads and writes no file: sections do that.

DEFAULT_WINDOW = 200_000  # tokens
DEFAULT_TTL_S = 300.0
MAX_ITERATIONS = 20
SESSION_VERSION = 3


class Record:
    """A record: its fields are the class's annotated names, with their defaults.

    A value of another type than the default counts as absent, so that any JSON
    object makes a record.
    """

    defaults: Json  # of the fields, in their order

    def __init_subclass__(cls) -> None:
        cls.defaults = {name: getattr(cls, name) for name in cls.__annotations__}

    def __init__(self, data: object = None) -> None:
        given = data if isinstance(data, dict) else {}
        for name, default in self.defaults.items():
            value = given.get(name, default)
            if isinstance(default, Record):
                value = type(default)(value)
            elif type(value) is not type(default):
                value = default
            if isinstance(value, (list, dict)):
                value = value.copy()
            setattr(self, name, value)

    def as_dict(self) -> Json:
        """The fields as JSON values."""
        values = {}
        for name in self.defaults:
            value = getattr(self, name)
            values[name] = value.as_dict() if isinstance(value, Record) else value
        return values


class Event(Record):
    """What the client told us, with Claude Code's names for fields and events."""

    agent: str = "claude"  # a key of DIALECTS
    name: str = ""  # a key of EVENTS
    is_subagent: bool = False  # a subagent caused it
    is_typed: bool = False  # a prompt that a person typed
    is_known_client: bool = True  # we know which client this is
    hook_event_name: str = ""  # as the client calls it
    session_id: str = ""  # any text: it may be no file name
    transcript_path: str = ""  # of the session, also at a subagent's event
    cwd: str = ""  # where the agent is now
    timestamp: str = ""  # ISO, as the client writes it
    prompt: str = ""  # the person's words alone
    source: str = ""  # why a session starts: startup, resume, fork, clear, compact
    reason: str = ""  # why it ends: clear, resume and others
    tool_name: str = ""  # as the client calls it
    tool_input: Json = {}  # what the call was given
    tool_use_id: str = ""  # the call's id in the transcript
    agent_id: str = ""  # the subagent's
    agent_type: str = ""  # its kind, such as Explore
    last_assistant_message: str = ""  # at a Stop: the agent's last words
    permission_mode: str = ""  # plan, or another one
    background_tasks: list[object] = []  # objects with a type: shell, subagent, …
    session_crons: list[object] = []  # scheduled wake-ups
    model: str = ""  # its name, at a start


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
    id: str = ""  # the answer that it belongs to
    at: str = ""  # as format_iso writes it
    cwd: str = ""  # where the agent was
    text: str = ""  # all that it says
    words: str = ""  # the person's own, where `text` also holds the files they named
    calls: list[tuple[str, str, Json]] = []  # id, tool, input
    results: list[tuple[str, bool, str]] = []  # call id, has failed, text
    tokens: int = 0  # in the context
    window: int = 0  # the model's, in tokens
    limit: int = 0  # tokens at which the client compacted by itself
    model: str = ""  # its name


class Reply:
    """What a run has to say, in the order in which it was added. Actions given to
    `when_said` run after printing, so that only what was printed counts as said."""

    def __init__(self, event: Event) -> None:
        self.dialect = DIALECTS[event.agent]  # how the client speaks
        self.texts: list[str] = []  # to the agent
        self.notes: list[str] = []  # lines to the person
        self.plain = ""  # at PreCompact: the instructions of the summary
        self.is_hold = False  # a stop that is held
        self.bell = ""  # a sequence that makes the terminal ring
        self.said_actions: list[tuple[Action, tuple[object, ...]]] = []  # see when_said

    def room(self) -> int:
        """How many characters still fit."""
        return REPLY_LIMIT - sum(self.length(text) + 2 for text in self.texts)

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

    def when_said(self, action: Action, *args: object) -> None:
        """Do this once the reply is printed."""
        self.said_actions.append((action, args))


class Fullness(Record):
    """How full the context is. Percent is of `usable`: where the client compacts."""

    tokens: int = 0  # in the context
    window: int = DEFAULT_WINDOW  # the model's
    usable: int = DEFAULT_WINDOW  # up to where the client compacts
    percent: int = 0  # rounded down, at most 100
    is_exact: bool = False  # told by the client, not estimated from the text
    is_measured: bool = False  # the agent has answered, so there is something to tell

    def percent_of(self, tokens: int) -> int:
        return min(100, tokens * 100 // self.usable)

    def shown(self) -> str:
        return "%s%d%%" % ("" if self.is_exact else "~", self.percent)


class Facts(Record):
    """What the transcript says, folded row by row (section Look)."""

    tokens: int = 0  # of the last answer since the last compaction
    chars: int = 0  # text since then, for transcripts that hold no usage
    measured: list[Measure] = []  # older ones are thinned out
    window: int = 0  # in tokens, where the transcript has it
    model: str = ""  # the last answer's
    answer: str = ""  # the last answer's id
    answered_at: str = ""  # its ISO time
    compacted_at: str = ""  # ISO time of the last one
    limit: int = 0  # tokens at which the client last compacted by itself
    tool_calls: int = 0  # how many there were
    breakdown: dict[str, int] = {}  # tool -> calls
    calls: list[Call] = []  # the last 8, and those that wait for a result
    changes: int = 0  # calls that changed something new: no repeats, but progress
    work: int = 0  # 2 for each edit, 1 for each other call that does more than look
    worked_at: str = ""  # ISO time of the last such call
    edited: list[list[str]] = []  # [path, ISO time], newest last
    read: list[str] = []  # paths of files read, newest last
    requests: list[list[str]] = []  # [ISO time, the person's words]
    said: str = ""  # the agent's words since the last prompt
    said_last: str = ""  # the end of its words, also of those before the last prompt
    progress: str = ""  # told_progress at the last prompt
    said_at: str = ""  # ISO time of its last words
    printed: str = ""  # the last handoff that the agent printed
    printed_at: str = ""  # ISO time of that
    todos: list[list[str]] = []  # [status, text]
    commands: list[list[str]] = []  # [ISO time, command], the last ones
    output: list[str] = []  # the last command that ended, and the end of its output
    failed: dict[str, str] = {}  # the last failing command: command, error, at
    tried: list[str] = []  # commands since that failure
    passed: dict[str, str] = {}  # the last check with exit code 0, see fold_passed
    received: str = ""  # the head of our startup text, once the transcript has it
    acknowledged_at: str = ""  # ISO time at which the agent said that it has it
    tree_moves: int = 0  # how many commands and subagents may have moved the tree


class Delivery(Record):
    """The startup text on its way to the agent (section Startup)."""

    state: str = ""  # "", owed, sent, done, failed
    source: str = ""  # the start's source: startup, clear, compact, …
    handoff: str = ""  # the file's name in .context/handoffs
    kept: str = ""  # where that file is once it was delivered
    note: str = ""  # the line to the person, with the first attempt
    head: str = ""  # the text's first line; a receipt has the same
    text: str = ""  # kept until there is evidence, to send it again
    attempts: int = 0  # how often it was sent
    first_at: float = 0.0  # when it was sent first
    sent_at: float = 0.0  # when it was sent last
    answer: str = ""  # the agent's last answer when it was sent
    file: str = ""  # the instruction file that also holds the text


class Handoff(Record):
    """A session's handoff (section Handoff). Its states, until the next compaction:

        none ──the context is nearly full──► wanted ──the agent writes it──► written
        written ──work goes on──► (at the session's end) added to

    The text is in .context/handoffs/<session>.md, or in delivered/ once it was used.
    """

    began_with: str = ""  # the handoff that this session got at its start
    crossed_at: str = ""  # ISO time since which it is wanted
    is_complete: bool = False  # the agent has written it since then
    written_at: str = ""  # ISO time at which the agent last wrote it
    refused_at: str = ""  # ISO time at which the person last refused that
    mark_before: str = ""  # content_mark of the text there when the point was crossed
    kit_mark: str = ""  # content_mark of what the kit made, or added to the agent's
    kit_offset: int = -1  # the session's `offset` when the kit last made or updated it
    reminded_answer: str = ""  # the answer whose calls carried the last reminder


class Session(Record):
    """A session's state."""

    version: int = SESSION_VERSION  # the state of another version is begun anew
    id: str = ""  # the client's, "" if we know no such session
    agent: str = ""  # a key of DIALECTS, "" under wrap
    transcript: str = ""  # its path
    offset: int = 0  # how far the transcript has been read
    session_start: str = ""  # ISO time of its first event
    seen_at: float = 0.0  # the last event
    stopped_at: float = 0.0  # the last Stop, 0.0 while the agent works
    ended_at: float = 0.0  # its SessionEnd, 0.0 before that
    end_reason: str = ""  # as the event gives it: clear and others
    client_pid: str = ""  # the client's process, if we know it
    model: str = ""  # as the start names it, with [1m]
    window_told: int = 0  # in tokens, from the status line
    limit: int = 0  # tokens at which the client compacts: see learn_limit
    branch: str = ""  # at the last look
    commit: str = ""
    moves_seen: int = 0  # tree_moves at the last look
    tree_seen_at: float = 0.0  # the last look at branch and commit
    edit_noted: str = ""  # the last edited file for which we touched `edits`
    edits_seen: float = 0.0  # the time of the file `edits` at the last look
    edited_elsewhere: list[str] = []  # files that other open sessions edited lately
    compaction_seen: str = ""  # ISO time of the last one that we acted on
    said: dict[str, Said] = {}  # what this session has heard: see mark_said
    briefed: bool = False  # about the workflow, since the start or the last compaction
    holds: int = 0  # stops in a row without a tool call
    held_calls: int = 0  # tool calls at the last hold
    delivery: Delivery = Delivery()  # what it gets at its start
    handoff: Handoff = Handoff()  # what it leaves
    facts: Facts = Facts()  # what its transcript says
    # not on disk:
    reading_mark = ""  # a file with the offset of a long row while that is read


class Signal(Record):
    """A signal, or an alert on its way into the same block."""

    path: str = ""  # its file, "" for an alert
    is_strangers: bool = False  # it came with the clone
    severity: str = "warning"  # one of SEVERITIES
    generated_at: float = 0.0  # as its header says, else its file's time
    ttl_s: float = DEFAULT_TTL_S  # how long it counts
    auditor: str = ""  # who made it
    code: str = ""  # what it is about; a newer one of the same code replaces it
    body: str = ""  # what is wrong → what to do
    mark: str = ""  # tells this version of a global signal from others
    codes: list[str] = []  # an alert's: every crossed code, highest first

    @property
    def expires_at(self) -> float:
        return self.generated_at + self.ttl_s

    def rank(self) -> int:
        return SEVERITIES.index(self.severity)


class Completions(Record):
    """The completion blocks that counted."""

    last_checked: str = ""  # when a hook last took care of the workflow
    detected_signals: list[dict[str, str]] = []  # {signal, detected_at, reason}


class Workflow(Record):
    """What `auto` runs. agreed.json at home counts; .caw/auto-state.json shows the same
    to others. Times are ISO 8601."""

    schema_version: str = "2.0"
    active: bool = False  # it holds the agent, or waits for a session
    phase: str = ""  # one of `phases`; at the end complete, failed or cancelled
    phases: list[str] = []
    iteration: int = 0  # stops in this phase after which the agent was sent on
    max_iterations: int = MAX_ITERATIONS  # after so many the workflow has failed
    rounds: int = 0  # stops that were judged since the start
    task_description: str = "see the conversation"  # the person's words
    until: str = ""  # the check; then there is one phase, the task
    checks: dict[str, str] = {}  # phase -> the command that the person agreed to
    config: dict[str, bool] = {}  # skip_qa and its like
    session_id: str = ""  # "": it waits for a session
    any_prompt: bool = False  # a script's prompt also binds it
    token: str = ""  # marks one that `auto start` made
    started_at: str = ""  # by `auto start`
    phase_started_at: str = ""  # a block is not older than that
    outcome: str = "the workflow ended"  # what the person was told at its end
    last_phase: str = ""  # the phase in which it ended
    needs: str = ""  # the last words to the person: what to decide, an error
    signals: Completions = Completions()  # the blocks that counted
    # not on disk:
    is_foreign = False  # not meant here, or what was agreed cannot be read any more
    is_altered = False  # somebody changed or removed .caw/auto-state.json

    @property
    def is_running(self) -> bool:
        return self.active and not self.is_foreign and self.phase in self.phases

    @property
    def stage(self) -> str:
        """What is being done, in words."""
        return "the task" if self.until else "phase " + self.phase

    @property
    def proof(self) -> str:
        """What shows that it is done, in words."""
        commands = ["`%.200s`" % command for command in self.checks.values()]
        verb = " passes" if len(commands) == 1 else " pass"
        passed = " and ".join(commands) + verb if commands else "on the agent's word"
        return passed if self.until else "all phases are complete, " + passed

    @property
    def signal(self) -> str:
        """The signal that completes the phase."""
        return self.phase.upper() + "_COMPLETE"

    @property
    def next_by_signal(self) -> dict[str, str]:
        """The signals that lead on from here -> the next phase, or END. None leads
        past a phase that has a check."""
        later = [*self.phases[self.phases.index(self.phase) + 1 :], END]
        found = {self.signal: later[0]}
        for signal, to in TRANSITIONS.items():
            if to in later:
                passed = later[: later.index(to)]
                found[signal] = next(filter(self.checks.get, passed), to)
        return found


class MonitorState(Record):
    """monitor-state.json, which other tools read; section Alerts shows it."""

    lastEmitted: dict[str, str] = {}  # key -> ISO time at which it was said last
    activeAlerts: dict[str, bool] = {}  # key -> true while its level is crossed
    lastHealth: dict[str, Json] = {}  # session -> its fullness and repetition


class Metrics(Record):
    """metrics.json: what came of the deliveries at a session's start."""

    attempted: int = 0  # texts sent, retries too
    succeededOnFirstTry: int = 0  # deliveries
    succeededAfterRetry: int = 0  # deliveries
    escalatedToFile: int = 0  # those that needed the instruction file
    failed: int = 0  # those that were given up
    averageAttemptsToSuccess: float = 0.0  # of those that succeeded
    averageTimeToSuccess: float = 0.0  # seconds


class Installation(Record):
    """What --uninstall has to know and cannot see. It lies in the user's home, where no
    clone can forge it. Without it, our entries are removed all the same."""

    settings: Json = {}  # name -> {"original": text before us or null, "after": sha256}
    kits: list[str] = []  # sha256 of the kits that it wrote
    version: str = ""  # of the last one
    source: str = ""  # the folder of install.py, for the advice of `doctor`


class RegisteredLine(Record):
    """A line in a client's settings that runs this kit and does nothing else."""

    mode: str = ""  # the first word behind the path
    agent: str = "claude"  # the second, where the line is not Claude's
    words: list[str] = []  # mode, agent, "now"
    path: str = ""  # the kit's, with variables as they are written
    event: str = ""  # the client's name of the event that runs it
    index: int = 0  # of its group in the event's list
    position: int = 0  # of its entry in the group's hooks
    group: Json = {}  # with a matcher, perhaps
    entry: Json = {}  # with command and timeout


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

    error_log: str = ""  # the file for an internal error, once the project is known

    def __init__(self, event: Event, project: Project, env: Env, now: float) -> None:
        self.event = event
        self.project = project
        self.settings = project.settings
        self.env = env
        self.now = now
        self.session = Session()
        self.full = Fullness()  # at the last look
        self.reply = Reply(event)
        self.check = ""  # the command that must prove that a phase is complete
        self.verdict = ""  # how it failed
        self.output = ""  # the end of what it printed
        self.opening = ""  # the first words to the agent about its workflow
        self.head = read_head(project.root)  # branch and commit now


def run_hook(mode: str, words: list[str], env: Env, now: float) -> None:
    """One run, from the event on stdin to the reply on stdout."""
    agent = next(filter(DIALECTS.get, words), "")
    event = parse_event(read_event(), mode, agent, env)
    if event is None or not event.session_id:
        return
    if event.is_subagent and event.name != "SubagentStart":
        return
    project = find_project(start_folder(event, env), env)
    if project is None or is_switched_off(project, env, now):
        return
    if another_kit_speaks(project, event.agent):
        return
    if not prepare_folders(project):
        return
    Run.error_log = project.state("errors.log")
    run = Run(event, project, env, now)
    do_locked(run, load_and_look, greet, HANDLERS[mode], speak_or_check)
    if run.check:
        run_check(run)  # may take minutes, so not while we hold the lock
        do_locked(run, judge_checked)


def do_locked(run: Run, *steps: Step) -> None:
    """Do this while we hold the project's lock. If another hook holds it, say nothing;
    at a Stop of a running workflow, tell the person that it was not judged."""
    is_stop = run.event.name == "Stop"
    wait_s = LOCK_WAIT_STOP_S if is_stop else LOCK_WAIT_S
    lock = take_lock(run.project, wait_s)
    if lock:
        with lock:
            for step in steps:
                step(run)
    elif is_stop and read_workflow(run.project).is_running:
        run.reply.tell("ctx: the project was busy; this stop was not judged")
        print_reply(run)


def speak_or_check(run: Run) -> None:
    """A check comes before the reply, and runs while others may have the lock."""
    if run.check:
        save_session(run.project, run.session)
    else:
        speak_and_save(run)


def judge_checked(run: Run) -> None:
    """The check has ended; other hooks may have run beside it."""
    run.session = load_session(run.project, run.session.id)
    enforce_stop(run)
    hold_for_signals(run)
    speak_and_save(run)


def load_and_look(run: Run) -> None:
    """Load the session, add what the event says, and look at the transcript."""
    event = run.event
    session = run.session = load_session(run.project, event.session_id)
    session.agent = event.agent
    if event.is_subagent:
        return  # its transcript is another one
    session.session_start = session.session_start or format_iso(run.now)
    session.seen_at = run.now
    session.ended_at = session.stopped_at = 0.0
    session.end_reason = ""
    if event.agent == "claude":
        session.client_pid = run.env.get("CLAUDE_PID", "")
    session.model = event.model or session.model
    if event.transcript_path and event.transcript_path != session.transcript:
        session.transcript = event.transcript_path
        session.offset = 0
        session.facts = Facts()
    if not session.branch:  # leave a moved tree for audit_tree to report
        session.branch, session.commit = run.head
    look_at(session, event)
    fold_present_edit(session, event)
    note_edits(run)
    notice_compaction(run)
    session.limit = learn_limit(run)
    run.full = fullness(run)


def speak_and_save(run: Run) -> None:
    """Print the reply, then remember what was said, then save."""
    print_reply(run)
    if run.event.is_known_client:
        for action, args in run.reply.said_actions:
            action(*args)
    if run.event.name == "Stop" and not run.reply.is_hold:
        run.session.stopped_at = run.now
        run.session.holds = 0
    save_session(run.project, run.session)
    write_calm(run)
    link_interpreter(run.project)
    if run.event.name == "SessionStart":
        sweep(run)  # after the handoff is delivered: there may be much to remove


def print_reply(run: Run) -> None:
    text = render_reply(run.event, run.reply, run.env)
    if not text:
        return
    try:
        sys.stdout.write(text + "\n")
        sys.stdout.flush()
    except OSError:
        os._exit(0)  # the window was closed: nothing was heard


def link_interpreter(project: Project) -> None:
    """Let the launcher find the real interpreter behind a version manager's shim."""
    link = join(project.cache, "python3")
    if IS_WINDOWS or os.access(link, os.X_OK):
        return
    make_folder(project.cache)
    remove_file(link)  # it may lead to an interpreter that was removed
    attempt(os.symlink, realpath(sys.executable), link)


def read_event() -> object:
    """The JSON object on stdin, as soon as it is complete; None if there is none.

    Some clients never close the pipe, so parse whenever the object may be complete.
    """
    if sys.stdin is None or sys.stdin.isatty():
        return None
    data = bytearray()
    while len(data) < STDIN_LIMIT_BYTES:
        piece = os.read(sys.stdin.fileno(), PIPE_BYTES)
        if not piece:
            return parse_object(data)
        data += piece
        is_drained = len(piece) < PIPE_BYTES  # a full buffer: do not parse yet
        if is_drained and piece.rstrip().endswith(b"}"):
            value = parse_object(data)
            if value:
                return value
    return None


# --- the fail-open boundary


def guarded_hook(mode: str, words: list[str]) -> None:
    """Run a hook so that whatever goes wrong ends in silence and exit 0. The deadline
    ends it with 1; the line in the settings makes a 0 of that."""
    if sys.stdout is None:
        os._exit(0)  # it was closed before we started
    speak_utf8(newline="\n")
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
    import traceback

    [place] = traceback.extract_tb(error.__traceback__, -1)  # the innermost one
    kind = type(error).__name__
    what = "%s in %s:%s: %s" % (kind, place.name, place.lineno, error)
    line = for_terminal(what)[:500]
    if Run.error_log:
        append_line(Run.error_log, format_iso(now) + " " + line, ERRORS_LIMIT_BYTES)
    if sys.stderr is not None:  # if it is closed, another file may have its number
        os.write(2, ("ctx_hooks: %s\n" % line).encode("ascii", "replace"))


# =============================================================================
# Modes
# =============================================================================
# What happens at each event. A handler gets the run, adds to its reply and returns:
# it does not print, and the lock is taken.

GREETING_EVENTS = ("SessionStart", "UserPromptSubmit", "Stop")


def inject(run: Run) -> None:
    """SessionStart: what the last session left. UserPromptSubmit: pending signals."""
    is_start = run.event.name == "SessionStart"
    if is_start:
        start_session(run)
    follow_delivery(run)
    brief(run)
    if is_start:
        add_open_sessions(run)
    else:
        add_signals(run, [])


def gate(run: Run) -> None:
    """PreToolUse: once a session, the context files to read. SubagentStart: some of
    them, once a subagent."""
    if run.event.is_subagent:
        add_subagent_gate(run)
    else:
        add_gate(run)


def monitor(run: Run) -> None:
    """PostToolUse: fullness, alerts, signals. PreCompact: pin the person's words."""
    if run.event.name == "PreCompact":
        return before_compaction(run)
    follow_delivery(run)
    if "PreToolUse" not in DIALECTS[run.event.agent].registered:
        add_gate(run)
    is_reminding = add_reminder(run)
    add_alerts(run, is_reminding)


def before_compaction(run: Run) -> None:
    """The client is about to summarise: leave a handoff, pin the person's words."""
    if not run.settings.is_on("handoff.enabled"):
        return
    make_handoff(run, run.session, run.now)
    if run.event.agent == "claude":
        run.reply.plain = clean_text(render_pins(run.session.facts))


def stop_enforce(run: Run) -> None:
    """Stop: save the agent's handoff; in a workflow, go on until it is done; else say a
    critical signal before the agent stops."""
    follow_delivery(run)
    save_handoff(run.project, run.session)
    notice_handoff(run)
    enforce_stop(run)
    if not run.check:
        hold_for_signals(run)
    run.reply.when_said(save_alerts, run, read_alerts(run))


def cleanup(run: Run) -> None:
    """SessionEnd: bring the handoff up to date; remove the session's runtime files."""
    if run.event.reason == "resume":
        return
    session = run.session
    session.ended_at = run.now
    session.end_reason = run.event.reason
    notice_handoff(run)
    settle_delivery(run.project, session)
    make_handoff(run, session, run.now)
    remove_runtime_files(run.project, session, run.env)


def greet(run: Run) -> None:
    """Tell the person, once in a project, that the hooks are on; also if the context
    folder was made in the middle of a session."""
    path = run.project.state("greeted")
    if run.event.name not in GREETING_EVENTS or exists(path):
        return
    kit = Kit(run.project.root, run.env, start=start_folder(run.event, run.env))
    run.reply.tell("ctx: hooks are on; %s shows more" % kit.call("status"))
    run.reply.when_said(write_atomically, path, "")


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
# text in the transcript, or the agent's acknowledgement; an answer, where a client's
# transcript holds none of our texts. Without evidence the text is sent again, and at
# last written into the client's instruction file.

UPDATE_LIMIT_S = 1.0
BUSY_S, BUSY_CALL_S = 600, 7200
KEPT_S = 7 * 86400
SWEEP_EVERY_S = 3600
LEFTOVER = r"\.(?:json|md)\.(?:tmp-\d+|corrupt)$"  # a killed write leaves it
MOST_ATTEMPTS = 5
HANDOFFS_READ = 12
NEW_HEAD = "Handoff of the session before this one (%s), left by %s %s ago."
OWN_HEAD = "Your own handoff from before the compaction (%s), %s old."
BEGUN_HEAD = "The handoff that this session began with (%s), %s old, once more."
WHOLE_DELIVERED = "ctx: handoff of %s delivered, %d lines"
PARTLY_DELIVERED = "ctx: handoff of %s delivered: %d lines, %d left out, all in %s"
LEFT_OUT = "(%d lines of it are left out here for room. All of it: %s)"
SECTION_LIMIT = 500  # characters of a list in a startup text that is too long
SECTION_TITLE = r"(?m)^(##+ (?!Since this handoff).*\n+)"
MOVED = "The working tree is on %s at %s now; it was on %s at %s then."
BEGAN_WITH = "That session began with the handoff %s."
STILL_OPEN = "That session is still open in another window."
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
NO_SIGN = "ctx: no sign that the agent received the handoff; wrote it to %s"


def start_session(run: Run) -> None:
    """A session starts, is resumed, or was compacted: prepare what it gets."""
    session, source = run.session, run.event.source
    if source in ("resume", "fork"):
        if session.facts.tool_calls:
            claim_marker(run)  # the gate has spoken in this conversation
        return
    if source == "compact":
        make_handoff(run, session, run.now)
    else:
        update_others(run)
    # some clients announce a start twice
    was_sent = session.delivery.state == "sent" and session.delivery.source == source
    if run.settings.is_on("startup.enabled") and not was_sent:
        prepare_delivery(run)


def prepare_delivery(run: Run) -> None:
    """Choose the handoff and write the text; `follow_delivery` sends it."""
    project, source = run.project, run.event.source
    writers, whole = choose_handoff(run)
    name = next(iter(writers), "")
    folder = "handoffs" if source == "compact" else "handoffs/delivered"
    kept = project.relative(project.path(folder, name))
    text = startup_text(run, writers, whole, kept)
    note = ""
    if name and not is_strangers(project, name, writers[name]):
        clock = format_clock(modified_at(project.path("handoffs", name)), run.now)
        lines, left_out = len(whole.splitlines()), count_left_out(whole, text)
        note = WHOLE_DELIVERED % (clock, lines)
        if left_out:
            note = PARTLY_DELIVERED % (clock, lines - left_out, left_out, kept)
    run.session.delivery = Delivery(
        {
            "state": "owed" if text else "",
            "source": source,
            "handoff": name,
            "kept": kept,
            "note": note,
            "head": text.split("\n")[0],
            "text": text,
        }
    )
    run.session.facts.received = ""  # evidence of an earlier one must not count
    run.session.facts.acknowledged_at = ""


# --- which handoff


def choose_handoff(run: Run) -> tuple[Writers, str]:
    """The handoffs that may be delivered, and the text of the first. After a compaction
    that is the session's own, or the one it began with."""
    session, source = run.session, run.event.source
    own = own_handoff(session)
    if source == "compact":
        begun = join("delivered", session.handoff.began_with)
        writers = {own: session, begun: session}
    else:
        writers = waiting_handoffs(run)
        writers.pop(own, None)
    names = list(writers)
    if source == "clear":
        names.sort(key=lambda name: not was_cleared(writers[name], session))
    for place, name in enumerate(names[:HANDOFFS_READ]):
        text = read_handoff(run.project.path("handoffs", name))
        if text:
            return {name: writers[name] for name in names[place:]}, text
    return {}, ""


def waiting_handoffs(run: Run) -> Writers:
    """The handoffs that may be delivered and their writers: the user's own come first,
    then the newest."""
    project = run.project
    oldest = run.now - run.settings.number("startup.max_age_hours") * 3600
    files = list_files(project.path("handoffs"), MARKDOWN)
    names = [basename(path) for path, at in files if at >= oldest]
    pairs = [(name, writer_of(project, name)) for name in names]
    offered = [pair for pair in pairs if not is_busy(pair[1], run.now)]
    return dict(sorted(offered, key=lambda pair: is_strangers(project, *pair)))


def is_strangers(project: Project, name: str, writer: Session) -> bool:
    """Whether a handoff came with the repository."""
    path = project.path("handoffs", name)
    return not writer.id and is_from_repository(project, path)


def is_busy(session: Session, now: float) -> bool:
    """Whether a session is at work: its transcript grows, or a call is running."""
    is_at_rest = not session.id or session.ended_at or session.stopped_at
    if is_at_rest or is_running(session.client_pid) is False:
        return False
    is_call_running = any(not call["outcome"] for call in session.facts.calls)
    quiet_s = now - max(modified_at(session.transcript), session.seen_at)
    return abs(quiet_s) < (BUSY_CALL_S if is_call_running else BUSY_S)


def update_others(run: Run) -> None:
    """Bring other sessions' handoffs up to date: a killed one could not."""
    deadline = time.monotonic() + UPDATE_LIMIT_S
    for other in all_sessions(run.project):
        has_grown = size_of(other.transcript) > other.handoff.kit_offset
        is_other = other.id != run.session.id and other.agent in DIALECTS
        if not is_other or not (has_grown or other.delivery.handoff):
            continue
        look(other)
        if not is_open(other, run.now):
            settle_delivery(run.project, other)
        if not is_busy(other, run.now):
            make_handoff(run, other, modified_at(other.transcript))
        save_session(run.project, other)
        if time.monotonic() > deadline:
            break


# --- the text


def startup_text(run: Run, writers: Writers, whole: str, kept: str) -> str:
    """All that this session gets at its start, within the budget; "" if nothing."""
    budget = int(run.settings.number("startup.budget_chars"))
    most = run.reply.room() - len(ACK_FRAME)
    files = startup_files(run)
    if not writers and not files:
        return ""
    head = FILES_HEAD % format_iso(run.now)
    if writers:
        head = render_lines("", handoff_head(run, writers))
    while True:
        shown = cut_middle(files, budget // 2)
        room = budget - len(head) - len(shown) - 6  # for the blank lines between
        text = whole.rstrip()
        if len(text) > room:
            text = fit_handoff(text, room - len(LEFT_OUT + kept))
            text += "\n\n" + LEFT_OUT % (count_left_out(whole, text), kept)
        text = clean_text("\n\n".join(filter(None, [head, text, shown])))
        length = run.reply.length(text)
        if length <= most or budget <= 0:
            return text
        budget = budget * most // length - 100  # clients count wide letters double


def count_left_out(text: str, shortened: str) -> int:
    """How many lines of a text a shorter one does not have."""
    held = shortened.splitlines()
    lines = [line for line in text.splitlines() if line.strip("> ")]
    return sum(line not in held for line in lines)


def handoff_head(run: Run, writers: Writers) -> list[str]:
    """Where the handoff comes from, how old it is, and what is different now."""
    project, (name, *others) = run.project, writers
    age = format_age(run.now - modified_at(project.path("handoffs", name)))
    if run.event.source == "compact":
        head = OWN_HEAD if name == own_handoff(run.session) else BEGUN_HEAD
        return [head % (basename(name), age)]
    writer = writers[name]
    label = DIALECTS.get(writer.agent, Dialect()).label or "an unknown writer"
    lines = [NEW_HEAD % (name, label, age)]
    if is_strangers(project, name, writer):
        lines.append(STRANGERS)
    lines.append(OFFER)
    is_elsewhere = run.session.client_pid not in ("", writer.client_pid)
    if is_elsewhere and is_running(writer.client_pid) and not writer.ended_at:
        lines.append(STILL_OPEN)
    then, now = (writer.branch, writer.commit), run.head
    if then != now and "" not in (writer.branch, now[0]):
        lines.append(MOVED % (now + then))
    begun = writer.handoff.began_with
    if begun:
        path = project.path("handoffs", "delivered", begun)
        lines.append(BEGAN_WITH % project.relative(path))
    if others:
        lines.append(OTHERS % ", ".join(others[:5]))
    return lines


def fit_handoff(text: str, room: int) -> str:
    """The handoff, cut to its room. First our lists give way, then the person's words
    that do not bind, at last the agent's text; in each what binds stays longest."""
    body, mark, rest = text.rpartition("\n" + SINCE_HEAD)
    if not mark and not text.startswith(KIT_HEAD):
        return fit_text(text, room)
    is_short = mark and len(rest) < room * 3 // 4
    parts = re.split(SECTION_TITLE, mark + rest)  # text, title, text, title, text …
    sections = dict(zip(["", *parts[1::2]], parts[::2]))
    words = take_words(sections)
    for title, part in sections.items():
        sections[title] = cut_middle(part.rstrip(), room if is_short else SECTION_LIMIT)
    # the person's words get what the agent's text leaves, and at least what binds
    said = sum(words.values(), [])
    spare = room - len(join_sections(sections)) - len("".join(words))
    binding = render_requests(choose_words(said, spare * 2 // 3, BINDING))
    kept = choose_words(said, max(spare - len(body), len(binding)))
    for title, texts in words.items():
        sections[title] = render_requests(kept[: len(texts)])
        kept = kept[len(texts) :]
    ours = join_sections(sections)
    body = fit_text(body.rstrip(), room - len(ours) - 2)
    return cut_middle((body + "\n\n" + ours).strip(), room)


def take_words(sections: dict[str, str]) -> dict[str, list[str]]:
    """Take the person's words out of these sections: {title: texts}, the ones of the
    last session at the end."""
    words = {}
    for title in sorted(sections, key=lambda title: REQUESTS_TITLE in title):
        if title.strip("# \n") in WORDS_TITLES:
            text = re.sub(r"(?m)^> ?", "", sections[title].rstrip())
            words[title] = text.split("\n\n")
            sections[title] = ""
    return words


def join_sections(sections: dict[str, str]) -> str:
    """Titles with what is under them; none without a text."""
    return "\n\n".join(title + text for title, text in sections.items() if text)


def fit_text(text: str, room: int) -> str:
    """A text of the agent's, cut to its room: of all that follows its beginning, what
    binds stays longest, then what is near its end."""
    head = text[: room // WHOLE_SHARE].rpartition("\n")[0]
    rest = text[len(head) :].strip("\n")
    kept = choose_words([head, *rest.split("\n\n")], room)
    return "\n\n".join(filter(None, kept))


def startup_files(run: Run) -> str:
    """The texts of `startup.files`."""
    texts = []
    for name in run.settings.words("startup.files"):
        path = join(run.project.root, name)
        if is_worth_reading(run.project, path):
            texts.append("## %s\n\n%s" % (name, read_text(path).strip()))
    return "\n\n".join(texts)


# --- the delivery


def follow_delivery(run: Run) -> None:
    """Send what is owed; then look for evidence, and send again if there is none."""
    delivery = run.session.delivery
    evidence = find_evidence(run.session)
    if delivery.state == "owed" and may_send(run.event):
        send(run, delivery.text)
    elif delivery.state in ("sent", "failed") and evidence:
        end_delivery(run, evidence)
    elif delivery.state == "sent" and is_retry_due(run):
        retry(run)


def may_send(event: Event) -> bool:
    """Not at a Stop: the text would hold it. In an unknown client only at the start:
    nothing counts as sent there, so the text would come with every event."""
    is_bookable = event.is_known_client or event.name == "SessionStart"
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
    return abs(run.now - run.session.delivery.sent_at) >= retry_wait_s(run)


def retry_wait_s(run: Run) -> float:
    """How long to wait for evidence of the last attempt."""
    backoffs = ["1", *run.settings.words("startup.retry_backoffs_s")]
    return float(backoffs[: run.session.delivery.attempts + 1][-1])


def send(run: Run, text: str) -> None:
    """One attempt. The first one tells the person, too."""
    delivery = run.session.delivery
    if wants_ack(run):
        # An acknowledgement that the text quotes must not look like the agent's.
        text = ACK_FRAME % re.sub(r"(?i)ack([\W_]*context)", r"\1", text)
    if run.reply.add(text):
        run.reply.when_said(note_sent, run)
        if delivery.note and not delivery.attempts:
            run.reply.tell(delivery.note)


def wants_ack(run: Run) -> bool:
    """`auto` asks only under wrap, which has no other evidence."""
    if run.settings.text("startup.require_ack") == "auto":
        return not run.session.agent
    return run.settings.is_on("startup.require_ack")


def note_sent(run: Run) -> None:
    """The text was printed: take its handoff, so that no other session gets it."""
    session, delivery = run.session, run.session.delivery
    name = delivery.handoff
    delivery.state = "sent"
    delivery.attempts += 1
    delivery.first_at = delivery.first_at or run.now
    delivery.sent_at = run.now
    delivery.answer = session.facts.answer
    count_metric(run, "attempted")
    record(run, "injection:attempted", handoff=name, attempt=delivery.attempts)
    if name and delivery.source != "compact":
        session.handoff.began_with = name
        save_session(run.project, session)  # a kill here must not orphan it
        take_handoff(run.project, name)


def take_handoff(project: Project, name: str) -> None:
    """Move a handoff to delivered/. If that fails, the next session gets it, too."""
    delivered = project.path("handoffs", "delivered")
    make_folder(delivered)
    attempt(replace_file, project.path("handoffs", name), join(delivered, name))


def give_back(project: Project, name: str) -> None:
    """Move a handoff back, unless a newer one of the same session waits."""
    waiting = project.path("handoffs", name)
    if not lexists(waiting):
        attempt(replace_file, project.path("handoffs", "delivered", name), waiting)


def end_delivery(run: Run, evidence: str) -> None:
    """There is evidence: count it, and tidy up what was kept for another attempt."""
    delivery = run.session.delivery
    count_success(run)
    record(run, "injection:succeeded", evidence=evidence, attempts=delivery.attempts)
    delivery.state = "done"
    delivery.text = ""
    remove_sections(run.project)


def retry(run: Run) -> None:
    """The next rung: send again, then the instruction file, at last give up."""
    delivery = run.session.delivery
    if delivery.attempts >= MOST_ATTEMPTS:
        return give_up(run)
    text = delivery.text
    file_after = run.settings.number("startup.file_fallback_after_attempts")
    if delivery.attempts >= file_after and write_fallback(run):
        text = FILE_NOTICE % delivery.file
    send(run, text)


def write_fallback(run: Run) -> bool:
    """Put the text into the instruction file, once, and tell the person."""
    delivery = run.session.delivery
    name = instruction_file(run)
    path = join(run.project.root, name)
    body = SECTION_BODY % (delivery.handoff, format_iso(run.now), delivery.text)
    if delivery.file or not write_section(path, body):
        return False
    delivery.file = name
    run.reply.tell(NO_SIGN % name)
    count_metric(run, "escalatedToFile")
    record(run, "injection:escalated", file=name)
    return True


def give_up(run: Run) -> None:
    """One last line says where the text is. Later evidence still counts."""
    delivery = run.session.delivery
    run.reply.add(LAST_NOTICE % (delivery.file or delivery.kept))
    delivery.state = "failed"
    count_metric(run, "failed")
    record(run, "injection:failed", attempts=delivery.attempts)


def settle_delivery(project: Project, session: Session) -> None:
    """A session ends: without evidence, or with nothing to add, it gives the handoff
    back."""
    delivery = session.delivery
    arrived = delivery.state == "done" or find_evidence(session)
    was_taken = delivery.handoff and delivery.source != "compact"
    if was_taken and not (arrived and leaves_handoff(session.facts)):
        give_back(project, delivery.handoff)
        session.handoff.began_with = ""
    if delivery.file:
        remove_sections(project)
    session.delivery = Delivery()  # a resumed session is sent nothing again


# --- the instruction file

SECTION_BEGIN = "<!-- STARTUP_CONTEXT_INJECTION -->"
SECTION_END = "<!-- END_STARTUP_CONTEXT -->"
SECTION = "\n%s\n## Session Context (Auto-Injected)\n\n%s\n\n%s\n"
SECTION_BODY = "Context of earlier sessions (%s), written by ctx_hooks at %s\n\n%s"
# Not a mark that a person quotes, and not one whose counterpart is missing.
OUR_SECTION = r"%s\s+## Session Context(?:(?!%s|%s).)*%s\n?" % (
    (SECTION_BEGIN, SECTION_BEGIN, SECTION_END, SECTION_END)
)
# With the newline that we put before it, unless that would join the lines around it.
OUR_LINES = r"(?s)\n?%s\Z|(?:(?<![^\n])\n)?%s" % (OUR_SECTION, OUR_SECTION)


def instruction_file(run: Run) -> str:
    """The name of the file for our section: one that is there, because a new one
    could hide it from the client."""
    dialect = DIALECTS.get(run.session.agent, Dialect())
    told = run.settings.words("startup.fallback_file")
    names = told or list(dialect.instruction_files)
    there = [name for name in names if is_regular(join(run.project.root, name))]
    return [*there, *names][0]


def without_section(content: bytes) -> bytes:
    """A file's content without our section; a merge may have left two."""
    return re.sub(OUR_LINES.encode(), b"", content)


def remove_sections(project: Project) -> None:
    """A handoff has arrived: take our section out of every instruction file."""
    for name in INSTRUCTION_FILES:
        write_section(join(project.root, name), "")


def write_section(path: str, body: str) -> bool:
    """Put our section at the end of the file; without a body, take it out. Text outside
    of it stays byte for byte, and a file that held nothing else is removed."""
    is_odd = lexists(path) and not is_regular(path)
    if is_odd or size_of(path) > STATE_LIMIT_BYTES:
        return False
    before = read_bytes(path, STATE_LIMIT_BYTES)
    after = without_section(before)
    if body:
        for mark in (SECTION_BEGIN, SECTION_END):
            body = body.replace(mark, "·")  # with "" its neighbours could form a mark
        section = SECTION % (SECTION_BEGIN, body, SECTION_END)
        after += section.encode("utf-8", "replace")
    if after == before:
        return True
    if not after:
        remove_file(path)
        return True
    return write_atomically(path, after)


# --- what sessions leave behind


def remove_runtime_files(project: Project, session: Session, env: Env) -> None:
    """A session's signals, marker, launcher files and alerts."""
    folder = own_signals(project, session.id)
    for path, _ in list_files(folder):
        remove_file(path)
    remove_folder(folder)
    remove_file(marker_path(session.id, env))
    remove_calm(calm_path(project, session))
    forget_alerts(project, session.id)


def sweep(run: Run) -> None:
    """Remove what is older than 7 days, at most once an hour; a handoff is moved to
    delivered/ first, and removed from there after 14. If the deadline comes first, the
    next start continues where this one ended."""
    stamp = run.project.state("swept")
    if abs(run.now - modified_at(stamp)) >= SWEEP_EVERY_S:
        for path in leftovers(run):
            remove_leftover(run, path)
        write_atomically(stamp, "")


def leftovers(run: Run) -> list[str]:
    """Our files that are older than that."""
    project, oldest = run.project, run.now - KEPT_S
    temp, marker = os.path.split(marker_path("", run.env))
    places = {
        join(project.cache, "calm"): "",
        project.home: SESSION_FILE + "|" + LEFTOVER,
        project.context: LEFTOVER,
        project.path("handoffs"): MARKDOWN + "|" + LEFTOVER,
        temp: "^" + marker,
    }
    signals = project.path("signals", "sessions")  # a session hears of its own at once
    for name in list_names(signals):
        places[join(signals, name)] = MARKDOWN
    found = []
    for folder, pattern in places.items():
        found += [path for path, at in list_files(folder, pattern) if at < oldest]
    # moving a handoff keeps its time; it may have waited for 7 days before that
    delivered = list_files(project.path("handoffs", "delivered"))
    return found + [path for path, at in delivered if at < oldest - KEPT_S]


def remove_leftover(run: Run, path: str) -> None:
    """Remove it, and what a session left elsewhere. A handoff is kept for a while."""
    folder, name = os.path.split(path)
    if folder == run.project.path("handoffs") and name.endswith(".md"):
        return take_handoff(run.project, name)
    if re.search(SESSION_FILE, name):
        session = Session(read_object(path))
        forget_alerts(run.project, session.id)
        # it heard all of its signals; younger ones stay
        remove_folder(own_signals(run.project, session.id))
        if session.delivery.file:
            remove_sections(run.project)
    remove_file(path)
    if dirname(folder) == run.project.path("signals", "sessions"):
        remove_folder(folder)  # a killed session's, once it is empty


# =============================================================================
# Calm
# =============================================================================
# After each tool call we know how far it is to the next level at which something
# urgent has to be said. A token takes up a least number of bytes in the transcript, so
# the launcher needs only its size to know that the level is not reached. It answers a
# few calls without Python and notes the size at each. A transcript that did not grow
# since the call before lacks the present one: then its size proves nothing.
#
#     <cache>/calm/<agent>-<session>         8
#                                            120340 456340 (bytes of the transcript)
#                                            the transcript's path
#                                            paths that end the calm when they change
#     <cache>/calm/<agent>-<session>.tally   121507
#                                            124018

CALM_CALLS = 8  # a loop of calls that succeed is found within so many


def calm_path(project: Project, session: Session) -> str:
    """The launcher's file. An id that is no plain word gets a name that the launcher
    does not look for."""
    name = "%s-%s" % (session.agent, safe_name(session.id))
    return join(project.cache, "calm", name)


def write_calm(run: Run) -> None:
    """Tell the launcher what it may answer alone, or that it may answer nothing."""
    session = run.session
    path = calm_path(run.project, session)
    if not is_calm(run):
        return remove_calm(path)
    sizes = "%d %d" % (session.offset, session.offset + calm_bytes(run))
    lines = [str(CALM_CALLS), sizes, session.transcript, *watched_paths(run), ""]
    remove_file(path + ".tally")
    write_atomically(path, "\n".join(lines))
    set_time(path, run.now - 1)  # old shells compare whole seconds


def remove_calm(path: str) -> None:
    remove_file(path)
    remove_file(path + ".tally")


def watched_paths(run: Run) -> list[str]:
    """The files and folders whose change ends the calm."""
    project, git = run.project, git_folder(run.project.root)
    heads = ("HEAD", "logs/HEAD")  # each commit adds a line to the log
    elsewhere = run.session.edited_elsewhere[-FILES_WATCHED:]
    return [
        project.path("signals", "global"),
        own_signals(project, run.session.id),
        *[join(git, name) for name in heads if git],
        project.state("edits"),
        *[join(project.root, path) for path in elsewhere],
    ]


def calm_bytes(run: Run) -> int:
    """How much the transcript may grow before an urgent level can be reached. The
    warning at 70 % is not urgent: it may come a few calls late."""
    full = run.full
    urgent_at, *_ = HEALTH_LEVELS["CTX_HEALTH_95"]
    levels = [full.usable * urgent_at // 100, handoff_point(run.settings, full)]
    distances = [level - full.tokens for level in levels if level > full.tokens]
    tokens = min(distances, default=full.usable)
    return int(tokens * run.reply.dialect.bytes_per_token)


def is_calm(run: Run) -> bool:
    """Whether the next call needs an answer only if something new happens."""
    session, event = run.session, run.event
    if event.name != "PostToolUse" or not event.is_known_client:
        return False
    keys = call_keys(session.facts)[-3:]
    pending = (
        not run.full.is_measured,
        run.reply.texts,
        session.delivery.state in ("owed", "sent"),
        is_handoff_owed(session),
        len(set(keys)) < len(keys),
        read_workflow(run.project).is_running,
    )
    return not any(pending)


# =============================================================================
# Alerts
# =============================================================================
# An auditor is a function that gives back an alert or None, and a row of AUDITORS. It
# judges by the facts, which end before the present call; in a calm it may run up to
# eight calls late. An alert is a signal without a file, put straight into this reply:
# when its level is crossed, and again after each cooldown while it stays active.
# Others read monitor-state.json; its keys are "<session>:<CODE>" and "global:<CODE>":
#
#     {"lastEmitted": {key: ISO}, "activeAlerts": {key: true},
#      "lastHealth": {"<session>": {"contextPercent": 87, "repetitionScore": 0.0}}}
# What other sessions edited is in their session files. Each new edit touches the empty
# file `edits` in the project's state folder, and that ends the calm of the others.

# code: percent at which it is said and below which it is over, severity, what to do
HEALTH_LEVELS = {
    "CTX_HEALTH_95": (
        95,
        85,
        "critical",
        "Suggest /clear to the person now: the next messages may not fit",
    ),
    "CTX_HEALTH_85": (
        85,
        75,
        "warning",
        "Finish the step you are at, then suggest /clear to the person",
    ),
    "CTX_HEALTH_70": (
        70,
        60,
        "warning",
        "Keep answers short, and plan a good place to stop",
    ),
}
REPETITION_SAID, REPETITION_CLEARED = 4.0, 2.0
FAILING_WEIGHT = 1.5  # a failing repeat counts more
REPETITION = "Repetition: %d of the last %d tool calls were repeats%s"
REPETITION_ACTION = (
    "Stop and try a different approach; say what you expected and what happened instead"
)
TREE_MOVED = (
    "The working tree is on %s now; it was on %s, "
    "and no command of this session changed it."
)
TREE_COMMITS = "%s has %d new commit%s (%s → %s) that no command of this session made."
TREE_RESET = "%s is at %s now; it was at %s, and no command of this session changed it."
TREE_ACTION = "Look at what is there before you go on"
SUBAGENT_LAG_S = 60
SHARED_S = 3600
FILES_NAMED, FILES_WATCHED = 5, 8
EDITS_LIMIT = 1_000  # characters
SHARED = "%s was also edited %s ago by %s, which is open."
SHARED_ACTION = (
    "Look at the file as it is now before you change it, and tell the person"
)
SHARED_NOTE = "ctx: this session and %s both edited %s"
OPEN_HERE = "Also open in this project: %s."
STALE = "Context files untouched for %d days: %s."
AUDIT_ACTION = "Check that they still match the code, and update or confirm them"


def new_alert(summary: str, action: str, **more: object) -> Signal:
    """An alert; run_auditors fills in auditor and codes."""
    return Signal({"body": "%s\n→ %s" % (summary, action), **more})


def audit_health(run: Run, active: list[str]) -> Signal | None:
    """How full the context is; a jump over two levels says the higher."""
    full, codes = run.full, []
    for code, (alert_at, clear_below, *_) in HEALTH_LEVELS.items():
        if full.percent >= (clear_below if code in active else alert_at):
            codes.append(code)
    if not codes or not full.is_measured:
        return None
    *_, severity, action = HEALTH_LEVELS[codes[0]]
    note = "" if full.is_exact else " (estimated)"
    summary = "Context: %s full%s." % (full.shown(), note)
    return new_alert(summary, action, severity=severity, codes=codes)


def audit_repetition(run: Run, active: list[str]) -> Signal | None:
    """The same call with the same outcome, again and again."""
    score, count, all_failed = repetition(run.session.facts)
    if score < (REPETITION_CLEARED if active else REPETITION_SAID):
        return None
    end = " and failed the same way." if all_failed else "."
    total = len(call_keys(run.session.facts))
    return new_alert(REPETITION % (count, total, end), REPETITION_ACTION)


def repetition(facts: Facts) -> tuple[float, int, bool]:
    """(score, how many calls repeat, whether all of those failed) of the last calls.

    The same failure or the same edit counts from the second time on, any other result
    from the third.
    """
    keys = call_keys(facts)
    score, repeating, all_failed = 0.0, 0, True
    for key in set(keys):
        count, has_failed = keys.count(key), key.endswith("failed")
        is_strict = has_failed or key.startswith("edit")
        if count > (1 if is_strict else 2):
            score += (count - 1) * (FAILING_WEIGHT if has_failed else 1)
            repeating += count
            all_failed &= has_failed
    return score, repeating, all_failed


def call_keys(facts: Facts) -> list[str]:
    """What the last calls did and what came of it; waiting and notes are left out."""
    return [call["key"] for call in facts.calls if call["key"]]


def audit_files(run: Run, active: list[str]) -> Signal | None:
    """Context files that nobody has touched or read for long."""
    stale_days = run.settings.number("audit.stale_days")
    files = [path for path in context_files(run.project) if isfile(path)]
    touched_at = max(map(modified_at, files), default=run.now)
    days = (run.now - touched_at) / 86400
    if not 0 < stale_days <= days or files_read(run, files):
        return None
    names = ", ".join(map(basename, files))
    return new_alert(STALE % (days, names), AUDIT_ACTION)


def audit_tree(run: Run, active: list[str]) -> Signal | None:
    """Branch or commit is another one, and no command of this session did that."""
    session, moves = run.session, run.session.facts.tree_moves
    if not run.head[1]:
        return None  # no commit yet, or git is just writing
    before, seen_at = (session.branch, session.commit), session.tree_seen_at
    has_moved = moves != session.moves_seen
    session.branch, session.commit = run.head
    session.moves_seen, session.tree_seen_at = moves, run.now
    is_same = before in (run.head, ("", ""))
    if is_same or has_moved or may_be_moving(run, seen_at):
        return None
    return new_alert(describe_tree(run, *before), TREE_ACTION)


def may_be_moving(run: Run, since: float) -> bool:
    """Whether the session itself may have moved the tree since then: by the present
    call, or by a subagent at work."""
    folder = os.path.splitext(run.session.transcript)[0] + "/subagents"  # Claude Code's
    files = list_files(folder, r"\.jsonl$")
    is_subagents = any(at > since - SUBAGENT_LAG_S for _, at in files)
    words = (command_of(run.event.tool_input), run.event.tool_name)
    return is_subagents or any(map(may_move_tree, words))


def describe_tree(run: Run, old_branch: str, old_commit: str) -> str:
    """How the working tree differs from then."""
    branch, commit = run.head
    if branch != old_branch:
        return TREE_MOVED % (branch, old_branch)
    old, new = old_commit[:7] or "nothing", commit[:7]
    count = count_commits(run.project.root, old_commit)
    if count:
        return TREE_COMMITS % (branch, count, "s" * (count > 1), old, new)
    return TREE_RESET % (branch, new, old)


# --- the edits of other sessions


def note_edits(run: Run) -> None:
    """Let other sessions know that this one edited something. The file is as old as a
    calm that begins in this run, so that it ends only the calm of others."""
    edited = run.session.facts.edited
    newest = edited[-1][0] if edited else ""
    if newest != run.session.edit_noted:
        run.session.edit_noted = newest
        path = run.project.state("edits")
        write_atomically(path, "")
        set_time(path, run.now - 1)


def edits_of(run: Run, session: Session) -> dict[str, str]:
    """What a session edited in the last hour: {path in the project: ISO time}. Not what
    is older than the session: a fork's transcript begins with another one's rows."""
    project, found = run.project, {}
    oldest = max(format_iso(run.now - SHARED_S), session.session_start)
    for path, at in session.facts.edited:
        if at >= oldest:
            name = project.relative(join(project.root, path))
            found[one_line(name, 200)] = at
    return found


def open_sessions(run: Run) -> list[Session]:
    """The sessions that are open in other windows and were active in the last hour."""
    session, recent = run.session, all_sessions(run.project, since=run.now - SHARED_S)
    others = [one for one in recent if one.id != session.id and is_open(one, run.now)]
    return [one for one in others if not is_same_client(one, session)]


def audit_shared(run: Run, active: list[str]) -> Signal | None:
    """Another open session edited what this one edited."""
    session, edited_at = run.session, modified_at(run.project.state("edits"))
    if edited_at == session.edits_seen:
        return None
    session.edits_seen, session.edited_elsewhere = edited_at, []
    own, sentences = edits_of(run, session), []
    for other in open_sessions(run):
        for path, at in edits_of(run, other).items():
            session.edited_elsewhere.append(path)
            if path in own:
                sentences += tell_shared(run, other, path, at)
    if not sentences:
        return None
    return new_alert(cut_middle(" ".join(sentences), EDITS_LIMIT), SHARED_ACTION)


def tell_shared(run: Run, other: Session, path: str, at: str) -> list[str]:
    """A sentence about a file that both edited, once; the person hears it from the
    session that comes first."""
    session, key = run.session, other.id + " " + path
    if key in session.said or isabs(path):  # outside of the project
        return []
    mark_said(run, key)
    if session.id + " " + path not in other.said:
        run.reply.tell(SHARED_NOTE % (name_session(other), path))
    age = format_age(run.now - parse_iso(at))
    return [SHARED % (path, age, name_session(other))]


def name_session(session: Session) -> str:
    return "the %s session %.8s" % (DIALECTS[session.agent].label, session.id)


def add_open_sessions(run: Run) -> None:
    """At a start: the open sessions that edited something in the last hour."""
    texts = []
    for other in open_sessions(run):
        names = ", ".join(list(edits_of(run, other))[-FILES_NAMED:])
        if names:
            texts.append("%s, which edited %s" % (name_session(other), names))
    if texts:
        run.reply.add(OPEN_HERE % cut_middle("; ".join(texts), EDITS_LIMIT))


# auditor: function, the codes of its alerts, cooldown in seconds, and whether it is
# about the project and not about one session; `status` names a code by its row in TOLD
AUDITORS: dict[str, tuple[Audit, list[str], int, bool]] = {
    "context-health": (audit_health, list(HEALTH_LEVELS), 900, False),
    "repetition": (audit_repetition, ["CTX_REPETITION"], 600, False),
    "audit-reminder": (audit_files, ["CTX_AUDIT_DUE"], 14_400, True),
    "tree-moved": (audit_tree, ["CTX_TREE_MOVED"], 0, False),
    "other-session": (audit_shared, ["CTX_FILE_SHARED"], 0, False),
}


def add_alerts(run: Run, is_reminding: bool) -> None:
    """Add the alerts that are due, in one block with the signals. A change of the state
    is saved once the reply is printed."""
    session, state = run.session, read_alerts(run)
    active = dict(state.activeAlerts)
    due = run_auditors(run, state)
    # the reminder tells the agent how full it is: only the person hears the alert
    silent = [one for one in due if is_reminding and one.auditor == "context-health"]
    said = add_signals(run, [alert for alert in due if alert not in silent])
    for alert in filter(is_for_person, silent):
        note_said(run, alert)
        said.append(alert)
    for code in sum([alert.codes for alert in said], []):
        state.lastEmitted[session.id + ":" + code] = format_iso(run.now)
        mark_said(run, code)
    if said or state.activeAlerts != active:
        run.reply.when_said(save_alerts, run, state)


def read_alerts(run: Run) -> MonitorState:
    return MonitorState(load_state(run.project.path("monitor-state.json")))


def save_alerts(run: Run, state: MonitorState) -> None:
    """Write the state of the alerts, with how this session is: when the state changes,
    and at each Stop."""
    state.lastHealth[run.session.id] = {
        "contextPercent": run.full.percent,
        "repetitionScore": repetition(run.session.facts)[0],
    }
    write_object(run.project.path("monitor-state.json"), state.as_dict())


def run_auditors(run: Run, state: MonitorState) -> list[Signal]:
    """The alerts that are due in this session; also updates which codes are active."""
    due = []
    for name, (audit, codes, cooldown_s, is_global) in AUDITORS.items():
        scope = "global:" if is_global else run.session.id + ":"
        active = [code for code in codes if state.activeAlerts.pop(scope + code, None)]
        alert = audit(run, active)
        if not alert:
            continue
        alert.auditor = name
        alert.codes = alert.codes or codes
        state.activeAlerts.update({scope + code: True for code in alert.codes})
        said_at, _ = run.session.said.get(alert.codes[0], NEVER_SAID)
        if abs(run.now - said_at) >= cooldown_s:  # the clock may have gone back
            due.append(alert)
    return due


def forget_alerts(project: Project, session_id: str) -> None:
    """A session is over: remove its keys."""
    path, prefix = project.path("monitor-state.json"), session_id + ":"
    state, has_changed = read_object(path), False
    for table in map(object_of, state.values()):
        for key in list(table):
            if (key + ":").startswith(prefix):
                del table[key]
                has_changed = True
    if has_changed:
        write_object(path, state)


# =============================================================================
# Handoff
# =============================================================================
# Every session that did work leaves a handoff, .context/handoffs/<session>.md, and
# it is never older than the work. Near the limit we ask the agent until it has
# written one. If it wrote none, the kit makes one from the facts. What happened
# after the agent wrote it is added between SINCE_HEAD and SINCE_END, and replaced
# each time. What others said is quoted, or one line behind a mark.

HANDOFF_PERCENT, HANDOFF_TOKENS = 85, 400_000
HANDOFF_LIMIT_BYTES = 512_000
# Where other people's skills let the agent write one: HANDOFF.md, docs/handover.md
HANDOFF_NAME = r"(?i)(?:hand[-_]?(?:off|over)|continue-prompt)[^/\\]*\.md$"
COPIED = "<!-- copied by ctx_hooks from "
ADOPTED = COPIED + "%s -->\n"
KIT_HEAD = "# Handoff, made by ctx_hooks from the transcript"
KIT_NOTE = "The agent wrote none. Session %s in %s, until %s"
SINCE_HEAD = "## Since this handoff (added by ctx_hooks)"
SINCE_END = "<!-- end of what ctx_hooks added -->"
SINCE = "\n" + SINCE_HEAD + "%s\n" + SINCE_END + "\n"
RULES_LIMIT, LINE_LIMIT = 3_000, 500
REQUESTS_TITLE = "The person's requests, word for word"
RULES_TITLE = "Rules they gave in the sessions before"
UNQUOTED_TITLE = "The person's words that it does not quote"
WORDS_TITLES = (REQUESTS_TITLE, RULES_TITLE, UNQUOTED_TITLE)
RULES_SESSIONS = 40  # follow at most this many earlier sessions
DONE = ("completed", "done")  # statuses of a finished todo
REMINDER = """\
Context is {shown} full ({full.tokens:,} of {full.usable:,} usable tokens{note}). \
{order} {path} now, before anything else; \
where you may not write (plan mode), end your answer with it between a line \
BEGIN HANDOFF and a line END HANDOFF. Put there: goal · the person's own rules \
and corrections, word for word · state · decisions and why · what was tried and \
failed · how to verify · next steps · open files. This note comes with every \
tool result until that is done."""
WRITE = "Write a handoff for the next session to"
UPDATE = (
    "You wrote a handoff earlier, which lacks what was decided since. "
    "Bring it up to date:"
)
WRITTEN = "ctx: handoff written; /clear when you like, the next session starts from it"
PIN_HEAD = (
    "Keep these words of the person verbatim in the summary, and the rules they gave:"
)
PIN_LIMIT = 9_500


def handoff_path(project: Project, session: Session) -> str:
    return project.path("handoffs", own_handoff(session))


def delivered_path(project: Project, session: Session) -> str:
    return project.path("handoffs", "delivered", own_handoff(session))


def is_plain_text(path: str) -> bool:
    """Whether a handoff can be read whole and written back, or is not there yet."""
    text, size = read_text(path, HANDOFF_LIMIT_BYTES), size_of(path)
    is_whole = size <= HANDOFF_LIMIT_BYTES and bool(text) == bool(size)
    return is_whole and "\0" not in text and "\ufffd" not in text


def read_handoff(path: str) -> str:
    """A handoff's text; "" if it says nothing, is binary or a link."""
    text = "" if islink(path) else read_text(path, HANDOFF_LIMIT_BYTES)
    return text if "\0" not in text and says_something(text) else ""


def read_body(path: str, session: Session) -> str:
    """A handoff's text without the part that the kit added for this session; what
    somebody wrote below that stays."""
    text = read_handoff(path)
    body, head, rest = text.rpartition("\n" + SINCE_HEAD)
    since, _, after = rest.partition("\n" + SINCE_END)
    is_ours = content_mark(since.rstrip()) == session.handoff.kit_mark != ""
    return (body + after if head and is_ours else text).rstrip()


def did_work(facts: Facts) -> bool:
    """An edit, also one through the shell, or two calls that do more than look."""
    return facts.work >= 2 or bool(facts.edited)


def leaves_handoff(facts: Facts) -> bool:
    """Whether there was work, or the person said what binds, as one does in a plan."""
    said = [words for _, words in facts.requests]
    return did_work(facts) or any(choose_words(said, RULES_LIMIT, least=BINDING))


# --- the agent's own handoff


def own_body(project: Project, session: Session) -> str:
    """The session's handoff without our part, even if another session has got it."""
    body = read_body(handoff_path(project, session), session)
    return body or read_body(delivered_path(project, session), session)


def begun_body(project: Project, session: Session) -> str:
    """The text of the handoff that the session began with; "" if it got none."""
    name = session.handoff.began_with
    path = project.path("handoffs", "delivered", name)
    return read_body(path, session) if name else ""


def adopt_handoff(project: Project, session: Session, written: list[list[str]]) -> None:
    """Copy a handoff that the agent wrote elsewhere in the project to where ours is,
    unless one that was written there would be lost. `written` holds files that it
    wrote: [path, ISO time]."""
    handoff = session.handoff
    for name, at in written:
        if at <= handoff.written_at or not re.search(HANDOFF_NAME, name):
            continue
        path = join(project.root, name)
        text = read_handoff(path) if may_be_delivered(project, path) else ""
        ours = handoff_path(project, session)
        there = read_body(ours, session)
        is_copy = there.startswith(COPIED)
        may_go = is_copy or content_mark(there) in ("", handoff.kit_mark)
        if not text or not may_go:
            continue
        copy = ADOPTED % project.relative(path) + hide_secrets(text)
        if write_atomically(ours, copy):
            handoff.written_at = at


def files_being_written(run: Run) -> list[list[str]]:
    """[path, ISO time] of what the present call wrote: the transcript has no result."""
    if run.event.name != "PostToolUse":
        return []
    calls = [call for call in run.session.facts.calls if not call["outcome"]]
    return [[path, call["at"]] for call in calls for path in call.get("writes", [])]


def save_handoff(project: Project, session: Session) -> bool:
    """Save the handoff that the agent wrote elsewhere or printed, if it is newer than
    the file; False if that fails."""
    if not project.settings.is_on("handoff.enabled"):
        return True
    facts = session.facts
    adopt_handoff(project, session, facts.edited)
    text, at = facts.printed, facts.printed_at
    if at <= session.handoff.written_at or not says_something(text):
        return True
    if not write_atomically(handoff_path(project, session), text + "\n"):
        return False
    session.handoff.written_at = at
    rest = re.sub(PRINTED_END, "", facts.said.replace(text, ""))
    facts.said = re.sub(PRINTED_BEGIN, "", rest).strip()
    facts.said_last = facts.said[-SAID_LAST_LIMIT:]
    return True


def notice_handoff(run: Run) -> None:
    """Tell the person once that the agent has written its handoff. One from before the
    crossing does not count: it lacks what was decided since."""
    session, handoff = run.session, run.session.handoff
    path = handoff_path(run.project, session)
    mark = content_mark(read_body(path, session))
    if handoff.is_complete or mark in ("", handoff.kit_mark):
        return
    handoff.written_at = handoff.written_at or session.facts.answered_at
    if not handoff.crossed_at or mark == handoff.mark_before:
        return
    handoff.is_complete = True
    run.reply.tell(WRITTEN)
    record(run, "handoff:written", path=run.project.relative(path))


COMPACTION_ROW_S = 5  # the row of a compaction follows its event within this


def notice_compaction(run: Run) -> None:
    """After a compaction the handoff, the gate and the briefing are wanted anew.

    The event may come before the compaction's row in the transcript or after it.
    """
    session = run.session
    compacted_at = session.facts.compacted_at
    if run.event.source != "compact" and compacted_at <= session.compaction_seen:
        return
    row_by = run.now + COMPACTION_ROW_S
    session.compaction_seen = max(compacted_at, format_iso(row_by))
    session.handoff.crossed_at = ""
    session.handoff.is_complete = False
    session.handoff.reminded_answer = ""
    session.briefed = False
    remove_file(marker_path(session.id, run.env))


# --- the reminder


def handoff_point(settings: Settings, full: Fullness) -> int:
    """The number of tokens from which on a handoff is wanted."""
    automatic = min(full.usable * HANDOFF_PERCENT // 100, HANDOFF_TOKENS)
    told = settings.text("handoff.threshold")
    if told == "auto":
        return automatic
    if told[-1] in "km":
        return min(automatic, int(as_tokens(told)))
    return full.usable * int(told) // 100


def add_reminder(run: Run) -> bool:
    """Ask for a handoff once the point is crossed; True if this answer was asked."""
    handoff, full = run.session.handoff, run.full
    can_be_written = os.access(run.project.context, os.W_OK)
    is_on = run.settings.is_on("handoff.enabled")
    if not is_on or not full.is_measured or not can_be_written:
        return False
    written = run.session.facts.edited + files_being_written(run)
    adopt_handoff(run.project, run.session, written)
    point = handoff_point(run.settings, full)
    if full.tokens >= point and not handoff.crossed_at:
        note_crossing(run, point)
    notice_handoff(run)
    if full.tokens < point or not is_handoff_owed(run.session):
        return False
    if handoff.reminded_answer == run.session.facts.answer:
        return True  # another call of the same answer carries it
    if not run.reply.add(render_reminder(run)):
        return False
    make_folder(run.project.path("handoffs"))  # the shell's > does not make it
    if not handoff.reminded_answer:
        shown = full.shown()
        run.reply.tell("ctx: context %s full, asked the agent for a handoff" % shown)
    handoff.reminded_answer = run.session.facts.answer
    record(run, "handoff:asked", percent=full.percent)
    return True


def note_crossing(run: Run, point: int) -> None:
    """The point is crossed: what is in the file now is not what we ask for, unless the
    call that crossed it wrote that."""
    session, handoff = run.session, run.session.handoff
    crossed_at = crossing_time(session.facts, point)
    handoff.crossed_at = crossed_at or format_iso(run.now)
    names = [name for name, _ in files_being_written(run)]
    is_just_written = any(
        is_own_handoff(session, name) or re.search(HANDOFF_NAME, name) for name in names
    )
    body = own_body(run.project, session)
    handoff.mark_before = "" if is_just_written else content_mark(body)
    record(run, "handoff:crossed", percent=run.full.percent)


def is_handoff_owed(session: Session) -> bool:
    """Whether the point is crossed, and the agent has written none. If the person said
    no to that, the kit makes one at the end."""
    handoff = session.handoff
    is_refused = handoff.refused_at > handoff.crossed_at
    return handoff.crossed_at != "" and not handoff.is_complete and not is_refused


def crossing_time(facts: Facts, point: int) -> str:
    """The time of the answer that crossed the point, since the last compaction."""
    for at, tokens, *_ in facts.measured:
        if tokens >= point and at > facts.compacted_at:
            return at
    return ""


def render_reminder(run: Run) -> str:
    full, handoff = run.full, run.session.handoff
    has_earlier = handoff.mark_before not in ("", handoff.kit_mark)
    return REMINDER.format(
        full=full,
        shown=full.shown(),
        note="" if full.is_exact else ", estimated",
        order=UPDATE if has_earlier else WRITE,
        path=handoff_path(run.project, run.session),
    )


# --- the handoff that the kit makes


def make_handoff(run: Run, session: Session, now: float) -> bool:
    """Make the session's handoff, or bring the agent's own up to date. False if there
    is none to make: no work was done, or it cannot be written."""
    project, path = run.project, handoff_path(run.project, session)
    is_saved = save_handoff(project, session)
    is_on = project.settings.is_on("handoff.enabled") and leaves_handoff(session.facts)
    # after /clear the next session goes on from it, whoever else has got it
    is_cleared = run.event.reason == "clear" and session is run.session
    is_taken = not is_cleared and was_delivered(project, session, path)
    is_wanted = is_on and not is_taken
    if is_wanted and is_plain_text(path):  # else we could not write it back
        is_saved = write_handoff(project, session, now) and is_saved
    if not is_saved:  # a full disk: it does not count as made, so the next start tries
        name = project.relative(path)
        record(run, "handoff:failed", session=session.id, path=name)
        return False
    session.handoff.kit_offset = session.offset
    return is_wanted


def write_handoff(project: Project, session: Session, now: float) -> bool:
    """Write the whole file; the mark of our part counts only once that is done."""
    path = handoff_path(project, session)
    body = own_body(project, session)
    if not body and not did_work(session.facts):  # what was left to do still is
        body = begun_body(project, session)
    if content_mark(body) in ("", session.handoff.kit_mark):
        text = ours = render_handoff(project, session, now)
    else:
        ours = render_since(project, session, body)
        text = body + "\n" + (SINCE % ours if ours else "")
    if not write_atomically(path, text):
        return False
    session.handoff.kit_mark = content_mark(ours.rstrip())
    set_time(path, now)  # as old as the work, whatever clock the disk has
    return True


def was_delivered(project: Project, session: Session, path: str) -> bool:
    """Whether another session got this handoff, and no work was done since."""
    if lexists(path):
        return False
    delivered_at = modified_at(delivered_path(project, session))
    return 0 < delivered_at and parse_iso(session.facts.worked_at) <= delivered_at


def render_handoff(project: Project, session: Session, now: float) -> str:
    """A whole handoff from the facts, for somebody who was not there."""
    label = DIALECTS[session.agent].label
    head = KIT_NOTE % (for_terminal(session.id), label, format_iso(now))
    if session.branch:
        head += " on " + session.branch + (session.commit and " at " + session.commit)
    rules = choose_words(earlier_words(project, session), RULES_LIMIT, least=WISH)
    sections = list_work(project, session, "")
    sections.insert(1, (RULES_TITLE, render_requests(rules)))
    work = render_sections("##", sections)
    return hide_secrets("\n\n".join([KIT_HEAD, head + ".", work]))


def earlier_words(project: Project, session: Session) -> list[str]:
    """What the person said in the sessions that this one goes back to, oldest first."""
    found: list[str] = []
    for _ in range(RULES_SESSIONS):
        if not session.handoff.began_with:
            break
        session = writer_of(project, session.handoff.began_with)
        found = [words for _, words in session.facts.requests] + found
    return found


def render_since(project: Project, session: Session, body: str) -> str:
    """What the agent's handoff does not say: the person's words that it left out, and
    what happened after it was written. "" if there is nothing."""
    facts, since = session.facts, session.handoff.written_at
    before = [words for at, words in facts.requests if not came_after(at, since)]
    words = [*earlier_words(project, session), *before]
    unquoted = choose_words(words, RULES_LIMIT, least=WISH, quoted=body)
    last_request_at = facts.requests[-1][0] if facts.requests else ""
    sections = [(UNQUOTED_TITLE, render_requests(unquoted))]
    if max(facts.worked_at, last_request_at) > since:
        sections += list_work(project, session, since)
    work = render_sections("###", sections)
    return "\n\n" + hide_secrets(work) if work else ""


def list_work(project: Project, session: Session, since: str) -> list[tuple[str, str]]:
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
        (REQUESTS_TITLE, render_requests(requests)),
        ("The workflow of this session", quote(workflow)),
        ("Todo list", render_todos(facts.todos)),
        ("Files edited", render_lines("- ", edited)),
        ("Uncommitted changes (git status)", quote("\n".join(changed), "    ")),
        ("The last commands", render_commands(commands, facts)),
        ("Without a result", render_lines("    ", waiting)),
    ]
    if came_after(facts.failed.get("at", ""), since):
        sections.append(("The last command that failed", render_failure(facts)))
    if facts.passed and came_after(facts.passed["at"], since):
        sections.append(("The last check", render_check(facts.passed)))
    if came_after(facts.said_at, since):
        progress = told_progress(facts)
        if not facts.todos and progress not in facts.said_last:
            sections.append(("How far the work got", quote(progress)))
        sections.append(("What the agent said last", quote(facts.said_last)))
    return sections


def what_waits(call: Call) -> str:
    """A call that has no result: its command, or the files that it edits."""
    return call["command"] or ", ".join(call.get("writes", []))


def came_after(at: str, since: str) -> bool:
    """Whether an ISO time is after another; without the other, everything is."""
    return not since or at > since


def render_sections(level: str, sections: list[tuple[str, str]]) -> str:
    """Headings with text; none without something under it."""
    texts = ["%s %s\n\n%s\n" % (level, title, text) for title, text in sections if text]
    text = re.sub(CONTROL, "", "\n".join(texts))
    return text.replace("\ufffd", "?")  # is_plain_text refuses a file that has one


def render_lines(mark: str, texts: list[str]) -> str:
    """A line for each text: a name may hold newlines."""
    return "\n".join(mark + one_line(text, LINE_LIMIT) for text in texts if text)


def render_requests(requests: list[str]) -> str:
    return "\n\n".join(quote(words) for words in requests if words)


def render_commands(commands: list[str], facts: Facts) -> str:
    """A line for each; the last one with the end of its output."""
    text = render_lines("    ", commands)
    last = commands[-1:]
    if last and last == facts.output[:1] and last[0] != facts.failed.get("command"):
        text += "\n" + quote(facts.output[1], "      ")
    return text.rstrip()


def render_todos(todos: list[list[str]]) -> str:
    lines = []
    for status, text in todos:
        box = "- [x] " if status in DONE else "- [ ] "
        if text and status != "deleted":
            lines.append(box + text)
    return "\n".join(lines)


def render_check(check: dict[str, str]) -> str:
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
    room = PIN_LIMIT - len(PIN_HEAD) - len(rest)
    kept = choose_words([words for _, words in facts.requests], room)
    requests = cut_middle(render_requests(kept), room)  # many short lines, many marks
    return "\n\n".join([PIN_HEAD, requests, rest]) if requests or rest else ""


# =============================================================================
# Gate
# =============================================================================
# Once a session, at the first tool call, the agent hears which context files to
# read. A marker in the temp folder says that this was done; the launcher looks for
# it, too. After a compaction and after /clear the gate speaks again.

GATE_TEXT = "STOP. Read your context files before proceeding: %s"
GATE_CHECKPOINT = (
    "When you have read them, say so in one line: Context Loaded — Read: … Skipped: …"
)
READING_AGENTS = (  # types of subagents that only read: Explore, Plan and their like
    r"(?i)(?:^|[-_: ])(?:explor|plan|search|research|review|read|guide|audit|scout)"
)


def add_gate(run: Run) -> None:
    """Say which files to read, unless that was said or there is nothing to read."""
    if not claim_marker(run):
        return
    paths = context_files(run.project)
    read = files_read(run, paths)
    add_names(run, [path for path in paths if path not in read])


def add_subagent_gate(run: Run) -> None:
    """A subagent has seen none of it: one that may edit learns which files bind."""
    key = "gate " + run.event.agent_id
    is_reader = re.search(READING_AGENTS, run.event.agent_type)
    if not is_reader and key not in run.session.said:
        add_names(run, context_files(run.project, "gate.subagent_files"))
        mark_said(run, key)


def add_names(run: Run, paths: list[str]) -> None:
    """Name those of these files that say something."""
    worth = [path for path in paths if is_worth_reading(run.project, path)]
    if not worth or run.settings.text("gate.mode") == "off":
        return
    if run.event.cwd in ("", run.project.root):  # elsewhere an agent needs whole paths
        worth = [run.project.relative(path) for path in worth]
    names = ", ".join(worth)
    text = GATE_TEXT % names
    if run.settings.is_on("gate.checkpoint"):
        text += "\n" + GATE_CHECKPOINT
    run.reply.add(text)
    record(run, "gate:said", files=names)


def context_files(project: Project, setting: str = "gate.files") -> list[str]:
    """The paths that a setting names."""
    return [project.path(name) for name in project.settings.words(setting)]


def is_worth_reading(project: Project, path: str) -> bool:
    """Whether a file may reach the agent and says something."""
    return may_be_delivered(project, path) and says_something(read_text(path))


def files_read(run: Run, files: list[str]) -> list[str]:
    """Which of these files the agent has read in this session."""
    read = "/%s\n" % "\n/".join(run.session.facts.read).replace("\\", "/")
    return [path for path in files if "/%s\n" % run.project.relative(path) in read]


def marker_path(session_id: str, env: Env) -> str:
    folder = env.get("TEMP" if IS_WINDOWS else "TMPDIR") or "/tmp"
    return join(folder, "ctx-loaded-" + safe_name(session_id))


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
# Each session hears each signal once, and again after a compaction. Everything in
# the header has a default.

SIGNAL_RULE = r"[ \t]*---[ \t]*(?:\n|\Z)"
SIGNAL_PARTS = r"(?s)%s(?:(.*?\n)??%s)?(.*)" % (SIGNAL_RULE, SIGNAL_RULE)
SIGNALS_LOOKED_AT = 200
SIGNAL_LIMIT_BYTES = 64_000
EXPIRED = "signal:expired"  # a row of the recorder
BODY_LIMIT = 2_000
LONGEST_TTL_S = 30.0 * 86400
MOST_HOLDS = 3  # stops in a row that signals hold, however many come
EVERYBODY = "every session"
FROM_CLONE = "(a file of this repository says) "
ONE_SIGNAL = "⚠️ [ctx monitor] "
MANY_SIGNALS = "⚠️ [ctx monitor] %d issues:"
MORE_SIGNALS = "  … %d more will follow"
SEQUENCES = {  # monitor.notify: what a terminal is sent to draw the person's attention
    "off": "",
    "bell": "\x07",
    "desktop": "\x1b]9;{}\x07",
}


# --- the file


def read_signal(path: str, now: float) -> Signal:
    """A signal from its file. What is missing or broken has its default; a time in the
    future counts for nothing."""
    cut_time(path, now)
    written_at = modified_at(path)
    text = read_text(path, SIGNAL_LIMIT_BYTES)
    header, body = split_header(text)
    signal = Signal(header)  # auditor, code, severity
    signal.path = path
    signal.mark = time_mark(written_at) + content_mark(text)
    signal.severity = signal.severity.lower()
    if signal.severity not in SEVERITIES:
        signal.severity = Signal.severity
    ttl = header.get("ttl", "")
    if re.fullmatch(r"\d{1,20}(\.\d+)?", ttl):
        signal.ttl_s = min(float(ttl), LONGEST_TTL_S)
    stated_at = parse_iso(header.get("generated_at"))
    signal.generated_at = stated_at if 0 < stated_at <= now else written_at
    signal.body = clean_text(cut_middle(body.strip() or signal.code, BODY_LIMIT))
    return signal


def split_header(text: str) -> tuple[dict[str, str], str]:
    """({key: value}, body); without a header the whole text is the body."""
    match = re.fullmatch(SIGNAL_PARTS, text)
    header, body = match.groups("") if match else ("", text)
    rows = [strip_comment(line).partition(":") for line in header.splitlines()]
    return {key.strip().lower(): unquote(value) for key, _, value in rows}, body


def listener_of(path: str) -> str:
    """For whom a signal is, in words."""
    name = basename(dirname(path))
    return EVERYBODY if name == "global" else "session " + name[:8]


# --- which signals wait


def own_signals(project: Project, session_id: str) -> str:
    """The folder of the signals for one session."""
    return project.path("signals", "sessions", safe_name(session_id))


def signal_files(run: Run) -> list[File]:
    """The files for this session, its own and those for all, the newest first."""
    own = own_signals(run.project, run.session.id)
    shared = run.project.path("signals", "global")
    files = list_files(own, MARKDOWN) + list_files(shared, MARKDOWN)
    return sorted(files, key=lambda file: -file[1])


def read_signals(run: Run, files: Iterable[File]) -> list[Signal]:
    """Those that this session has not heard; expired ones are removed."""
    waiting = []
    for path, written_at in files:
        heard = heard_mark(run.session, path)
        is_same_file = heard.startswith(time_mark(written_at))
        if is_same_file and run.event.name != "UserPromptSubmit":
            continue  # heard; at prompts we look whether it changed or expired
        signal = read_signal(path, run.now)
        if run.now > signal.expires_at:
            record(run, EXPIRED, path=path, body=signal.body[:200])
            remove_file(path)
        elif signal.body and signal.mark != heard:
            signal.is_strangers = is_from_repository(run.project, path)
            if signal.is_strangers:
                signal.body = FROM_CLONE + signal.body
            waiting.append(signal)
    return waiting


def minimum_rank(run: Run) -> int:
    """Which severity reaches the agent; the environment wins over the settings."""
    word = run.env.get("CTX_INJECT_MIN_SEVERITY", "").lower()
    if word not in SEVERITIES:
        word = run.settings.text("monitor.inject_min_severity")
    return SEVERITIES.index(word)


def newest_of_each(signals: list[Signal]) -> list[Signal]:
    """One signal of each source and code; a newer one replaces those before it."""
    newest: dict[tuple[str, str, str], Signal] = {}
    for signal in sorted(signals, key=lambda one: (one.generated_at, one.mark)):
        code = signal.code if signal.auditor else ""
        place = dirname(signal.path) if code else signal.path
        key = (place, signal.auditor, code)
        if key in newest:
            remove_file(newest[key].path)
        newest[key] = signal
    return list(newest.values())


# --- what is said


def add_signals(run: Run, alerts: list[Signal]) -> list[Signal]:
    """Add alerts and waiting signals to the reply; gives back those that fit."""
    return say_items(run, waiting_items(run, alerts))


def hold_for_signals(run: Run) -> None:
    """At a Stop: a critical signal that this session has not heard holds it, once."""
    event, session = run.event, run.session
    may_hold = event.is_known_client and session.holds < MOST_HOLDS
    if run.reply.is_hold or event.permission_mode == "plan" or not may_hold:
        return
    items = waiting_items(run, [])
    # what could not be saved would hold the next stop, too
    if any(map(is_for_person, items)) and save_session(run.project, session):
        run.reply.is_hold = bool(say_items(run, items))
        session.holds += 1


def waiting_items(run: Run, alerts: list[Signal]) -> list[Signal]:
    """The alerts and the signals that are to be said now."""
    if not can_speak(run.event):
        return []
    return choose_items(run, alerts, signal_files(run)[:SIGNALS_LOOKED_AT])


def choose_items(run: Run, alerts: list[Signal], files: Iterable[File]) -> list[Signal]:
    """What is severe enough, for the agent or for `watch`: critical first, then the
    oldest, strangers' last."""
    items, least = alerts + read_signals(run, files), minimum_rank(run)
    items = newest_of_each([item for item in items if item.rank() >= least])
    return sorted(items, key=lambda item: (item.is_strangers, -item.rank()))


def say_items(run: Run, items: list[Signal]) -> list[Signal]:
    """Add as many as fit, as one block; gives back those that are in it."""
    said = items.copy()
    while said and not run.reply.add(render_block(said, len(items))):
        said.pop()
    shown = shown_marks(run.project) if any(map(is_for_person, said)) else set()
    for signal in said:
        note_said(run, signal, signal.mark in shown)
    return said


def render_block(items: list[Signal], total: int) -> str:
    """One block; the last line says how many of the total are not in it."""
    if total == 1:
        return ONE_SIGNAL + items[0].body
    lines = [MANY_SIGNALS % total]
    lines += ["  • " + one_line(item.body, BODY_LIMIT) for item in items]
    if len(items) < total:
        lines.append(MORE_SIGNALS % (total - len(items)))
    return "\n".join(lines)


def is_for_person(signal: Signal) -> bool:
    return signal.severity == "critical" and not signal.is_strangers


def shown_marks(project: Project) -> set[str]:
    """What sessions of the project heard, and the person saw with it."""
    tables = [session.said for session in all_sessions(project)]
    return {mark for said in tables for _, mark in said.values()} - {""}


def note_said(run: Run, signal: Signal, is_shown: bool = False) -> None:
    """Tell the person of a critical one, and remember what the agent hears."""
    body, path, is_alert = signal.body, signal.path, bool(signal.codes)
    if is_for_person(signal) and not is_shown:
        told = body.partition("\n")[0] if is_alert else body  # advice is for the agent
        told = one_line(for_terminal(told), 200)
        run.reply.tell("ctx: " + told.replace("Context: ", "context ", 1))
        run.reply.bell = SEQUENCES[run.settings.text("monitor.notify")].format(told)
    if is_alert:
        return record(run, "alert:said", code=signal.codes[0], text=body)
    record(run, "signal:delivered", severity=signal.severity, body=body[:200])
    run.reply.when_said(mark_said, run, path, signal.mark)
    if listener_of(path) != EVERYBODY:
        run.reply.when_said(remove_file, path)


# =============================================================================
# Auto
# =============================================================================
# A workflow holds the agent at Stop until its check exits 0, or phase by phase until
# each has its completion block and its check. agreed.json at home says what the person
# agreed to and how far it is; .caw/auto-state.json repeats that. Nothing is called
# passed before every agreed check has. When in doubt, let it stop and tell the person.

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
SKIPPED_WITH = {"fix": "review", "check": "review"}  # by skip_review in `config`
END = "none"  # what comes after the last phase
TRANSITIONS = {
    "TRANSITION_TO_QA": "qa",
    "TRANSITION_TO_VALIDATION": "review",
    "TRANSITION_TO_FIX": "fix",
    "AUTO_COMPLETE": END,
}
PHASE_NAME = r"[a-z][a-z0-9_-]{0,39}"
TASK = "task"  # the one phase of --until
STALE_AFTER_S = 7200
TIME_TOLERANCE_S = 300


# --- the state, and whether it counts


def workflow_path(project: Project) -> str:
    """Where others see the state; "" if a link leads out of the project."""
    path = join(project.root, ".caw", "auto-state.json")
    return path if is_inside(path, project.root) else ""


def read_workflow(project: Project) -> Workflow:
    """Our workflow; if none runs, the one of another tool, without checks."""
    flow = Workflow(load_state(project.state("agreed.json")))
    shown = Workflow(read_object(workflow_path(project)))
    if flow.active:
        flow.is_altered = shown.as_dict() != flow.as_dict()
    elif shown.active:
        flow = shown
        is_known = exists(session_path(project, flow.session_id))
        flow.is_foreign = bool(flow.token) or not is_known
        flow.checks, flow.until, flow.token = {}, "", ""
        flow.phases = plan_phases(flow.phases, flow.config)
    return flow


def save_workflow(project: Project, flow: Workflow) -> bool:
    """Write both files; False if that fails."""
    state = flow.as_dict()
    is_kept = not flow.token or write_object(project.state("agreed.json"), state)
    return is_kept and write_object(workflow_path(project), state)


def plan_phases(names: list[str], flags: dict[str, bool]) -> list[str]:
    """The phases to go through: the given ones, else ours; none twice, none skipped."""
    known = [name for name in map(str, names) if re.fullmatch(PHASE_NAME, name)]
    phases = dict.fromkeys(known) or PHASES
    return [
        name for name in phases if not flags.get("skip_" + SKIPPED_WITH.get(name, name))
    ]


def workflow_of(project: Project, session: Session) -> str:
    """The session's workflow for its handoff; "" if it has none."""
    flow = read_workflow(project)
    is_own = flow.session_id == session.id
    return "\n".join(describe_workflow(flow)[:3]) if is_own else ""


# --- completion blocks

ANY_TEXT = ".+"
FORMS = {  # signal -> what its block needs beside PHASE and TIMESTAMP
    "PHASE_ERROR": {"STATUS": "error", "ERROR": ANY_TEXT, "RECOVERABLE": "true|false"},
    "PHASE_BLOCKED": {"STATUS": "blocked", "NEEDS": ANY_TEXT},
}
COMPLETION = {"STATUS": "complete", "NEXT": ANY_TEXT}
# Lines `key: value` between two lines `---`; one `---` may close a block and open one.
# A block may be indented, but not by one blank: that is how a diff quotes.
BLOCK = (
    r"(?m)^(?:[ \t]{2,})?---[ \t\r]*\n"
    r"((?:[ \t]*\w+[ \t]*:.*\n|[ \t\r]*\n)+)"
    r"(?=[ \t]*---[ \t\r]*$)"
)
FIELD = r"(\w+)[ \t]*:(.*)"
ONE_BLOCK = " Only one of your blocks counted; print the next one when it is due."
PHASE_DONE = "Phase %s is complete. Now comes %s."


def parse_blocks(text: str) -> list[Block]:
    """The blocks in a text, bare or fenced, as {key: value}."""
    blocks = []
    for lines in re.findall(BLOCK, text):
        block = {key.upper(): value.strip() for key, value in re.findall(FIELD, lines)}
        if "SIGNAL" in block:
            block["SIGNAL"] = block["SIGNAL"].upper()
            blocks.append(block)
    return blocks


def problem_of_block(block: Block, flow: Workflow, now: float) -> str:
    """What is wrong with a block in this phase; "" if it counts."""
    needed = {
        "SIGNAL": "|".join([*flow.next_by_signal, *FORMS]),
        "PHASE": flow.phase,
        **FORMS.get(block["SIGNAL"], COMPLETION),
    }
    for key, wanted in needed.items():
        if not re.fullmatch(wanted, block.get(key, ""), re.IGNORECASE):
            return "%s must be %s" % (key, wanted.replace(ANY_TEXT, "filled in"))
    at = parse_iso(block.get("TIMESTAMP"))
    since = min(now, parse_iso(flow.phase_started_at)) - TIME_TOLERANCE_S
    if not at or not since <= at <= now + TIME_TOLERANCE_S:
        return "TIMESTAMP must be " + format_iso(now)
    return ""


def judge_words(run: Run, flow: Workflow) -> Block:
    """The last block that counts, or {}; then the opening says what is wrong. A line
    BLOCKED counts, too. With --until each stop claims that the task is done."""
    said = run.session.facts.said
    needs = re.search(BLOCKED_LINE, said)
    if needs:
        return {"SIGNAL": "PHASE_BLOCKED", "NEEDS": needs[1]}
    if flow.until:
        return {"SIGNAL": flow.signal}
    run.opening = "The completion block of %s is missing." % flow.stage
    blocks = parse_blocks(said)
    for block in reversed(blocks):
        problem = problem_of_block(block, flow, run.now)
        if not problem:
            run.opening = ONE_BLOCK if len(blocks) > 1 else ""
            return block
        run.opening = "Your block does not count: %s." % problem
    return {}


# --- at a prompt, after /clear, after a compaction

CANCEL_WORDS = "ctx cancel"
CANCELLED = "[ctx workflow] The person cancelled it; you may stop when you like."
ALTERED = ".caw/auto-state.json was changed or removed; what you agreed to counts."


def brief(run: Run) -> None:
    """Bind the workflow if it waits for this session, and tell the agent about it."""
    flow = read_workflow(run.project)
    if not bind(run, flow):
        return
    reason = hear_person(run, flow) if run.event.is_typed else ""
    run.opening = BRIEFING
    may_brief = conclude(run, flow, reason) and can_speak(run.event)
    if may_brief and not run.session.briefed and run.reply.add(render(run, flow)):
        run.session.briefed = True
        record(run, "auto:briefed", stage=flow.stage)


def bind(run: Run, flow: Workflow) -> bool:
    """Bind a workflow that waits to this session; True if it runs here."""
    session = run.session
    if flow.is_foreign and flow.session_id == session.id:
        conclude(run, flow, "unreadable")
    if not flow.is_running:
        return False
    is_attended = run.env.get("CLAUDE_CODE_SESSION_ATTENDED") != "0"
    may_bind = flow.any_prompt or run.event.is_typed and is_attended
    if flow.session_id:  # after /clear it goes along to the next session
        may_bind = was_cleared(load_session(run.project, flow.session_id), session)
    if may_bind:
        flow.session_id = session.id
    if not flow.signals.last_checked:
        session.briefed = False  # that was about an earlier workflow
    return flow.session_id == session.id


def hear_person(run: Run, flow: Workflow) -> str:
    """A person's prompt resets the counts of rounds and idle stops, and answers a phase
    that was blocked. Gives the reason if it ends the workflow."""
    if run.event.prompt.strip().lower() == CANCEL_WORDS:
        run.reply.add(CANCELLED)
        return "user_cancelled"
    worked_at = run.session.facts.worked_at
    last = max(flow.signals.last_checked, flow.phase_started_at, worked_at)
    is_stale = 0 < parse_iso(last) < run.now - STALE_AFTER_S
    if is_stale and not flow.needs:
        return "stale_state"
    flow.needs = ""
    flow.iteration = 0
    run.session.holds = 0
    return ""


# --- at a stop

IDLE_LIMIT = 3  # well below the 8 after which a client holds no longer
FULL_PERCENT = 95
BLOCKED_LINE = r"(?im)^[ \t*_]*BLOCKED[ \t*_]*:[ \t*_]*(\S.*)\s*\Z"
OUTCOMES = {
    # the workflow's phase then: {why the agent may stop: what the person is told}
    "complete": {
        "all_phases_complete": "{flow.proof}; done after {rounds}, {age}",
    },
    "failed": {
        "max_iterations_reached": "the workflow failed: {flow.stage} was not complete"
        " after {flow.max_iterations} rounds",
        "phase_error": "the workflow failed: an error ended {flow.stage}: {flow.needs}",
        "stale_state": "the workflow ended: no activity for 2 hours",
        "unreadable": "the workflow ended: what you agreed to cannot be read",
    },
    "cancelled": {
        "user_cancelled": "the workflow was cancelled during {flow.stage}",
    },
    "": {  # it is not over
        "phase_blocked": "{flow.stage} waits for you: {flow.needs}"
        " (answer with your next prompt)",
        "changed": "the workflow was changed while its check ran; the agent may stop",
        "subagents": "subagents are at work; {flow.stage} continues when they are done",
        "wake_up": "a wake-up is scheduled; {flow.stage} continues then",
        "plan_mode": "in plan mode the agent may stop; {flow.stage} stays open",
        "context_full": "the context is full: the agent may stop; {flow.stage} stays"
        " open",
        "no_progress": "3 stops without a tool call: the agent may stop; {flow.stage}"
        " stays open",
        "unwritable": ".caw/auto-state.json cannot be written; the agent may stop",
    },
}


def enforce_stop(run: Run) -> None:
    """Let the agent stop, or hold it. If a check is due, ask for it and return. We are
    called again when it has ended; a person may have changed the workflow meanwhile."""
    flow = read_workflow(run.project)
    if not bind(run, flow):
        return
    block = judge_words(run, flow)
    is_claim = block.get("SIGNAL") in flow.next_by_signal
    due = flow.checks.get(flow.phase, "") if is_claim else ""
    tasks = {str(dig(task, "type")) for task in run.event.background_tasks}
    reason = first_true(
        changed=run.check not in ("", due),
        subagents=tasks - {"shell"},  # a server may run for ever
        wake_up=run.event.session_crons,
        plan_mode=run.event.permission_mode == "plan",
    )
    if run.check != due and not reason:
        run.check = due
    elif conclude(run, flow, reason or count_round(run, flow, block)):
        hold(run, flow)


def count_round(run: Run, flow: Workflow, block: Block) -> str:
    """Follow the block, unless its check failed; why the agent may stop, or ""."""
    session = run.session
    calls = session.facts.tool_calls
    session.holds = session.holds + 1 if session.held_calls == calls else 0
    session.held_calls = calls
    flow.rounds += 1
    flow.iteration += 1
    if run.verdict:
        told = ROUND.format(run=run, flow=flow)
        run.reply.tell("ctx: " + told)
        run.opening = CHECK_FAILED % told
        block = {}
    elif run.check:
        passed = {
            "command": run.check,
            "verdict": "passed",
            "at": format_iso(run.now),
            "end": run.output,
        }
        fold_passed(session.facts, passed)
        fit_outputs(session.facts)
    return follow_block(run, flow, block) or first_true(
        phase_blocked=flow.needs,
        context_full=run.full.percent >= FULL_PERCENT,
        no_progress=session.holds >= IDLE_LIMIT,
        max_iterations_reached=flow.iteration >= flow.max_iterations,
    )


def follow_block(run: Run, flow: Workflow, block: Block) -> str:
    """Note the signal, and go to its phase; why the agent may stop, or ""."""
    if not block:
        return ""
    signal = block["SIGNAL"]
    at = format_iso(run.now)
    words = one_line(text_of(dig(block, "NEEDS ERROR REASON")), 500)
    flow.signals.detected_signals.append(
        {"signal": signal, "detected_at": at, "reason": words}
    )
    if signal in FORMS:
        if block.get("RECOVERABLE", "").lower() == "true":
            run.opening = "You reported an error: %s. Recover and go on." % words
            return ""
        flow.needs = words
        return signal.lower()
    to = flow.next_by_signal[signal]
    if to == END:
        return "all_phases_complete"
    run.opening = PHASE_DONE % (flow.phase, to) + run.opening
    flow.phase = to
    flow.phase_started_at = at
    flow.iteration = 0
    return ""


def first_true(**values: object) -> str:
    """The name of the first value that is true; "" if there is none."""
    return next((name for name, value in values.items() if value), "")


def conclude(run: Run, flow: Workflow, reason: str) -> bool:
    """Save the state; True if the agent goes on: there is no reason to stop."""
    if flow.is_altered:
        run.reply.tell("ctx: " + ALTERED)
    if reason:
        let_go(run, flow, reason)
    flow.signals.last_checked = format_iso(run.now)
    if not save_workflow(run.project, flow):
        reason = "unwritable"
        let_go(run, flow, reason)
    return not reason


def let_go(run: Run, flow: Workflow, reason: str) -> None:
    """The agent may stop: tell the person why, and end the workflow if that ends it."""
    end = next(phase for phase, lines in OUTCOMES.items() if reason in lines)
    text = OUTCOMES[end][reason].format(
        flow=flow,
        rounds="%d round%s" % (flow.rounds, "" if flow.rounds == 1 else "s"),
        age=format_age(run.now - (parse_iso(flow.started_at) or run.now)),
    )
    run.reply.tell("ctx: " + text)
    record(run, "auto:released", reason=reason, said=text)
    if end:
        flow.active = False
        flow.last_phase = flow.phase
        flow.phase = end
        flow.outcome = text


def hold(run: Run, flow: Workflow) -> None:
    """The agent goes on: with three lines, or with the whole text if it knows none."""
    record(run, "auto:held", said=run.opening)
    if not flow.until:
        run.opening = CONTINUATION_HEAD + "\n" + run.opening
    run.reply.texts.append(render(run, flow))  # all of its parts are bounded
    run.reply.is_hold = True
    run.session.briefed = True
    run.session.facts.said = ""  # these words were judged; a block counts once


# --- what the agent is told

CONTINUATION_HEAD = "## Auto Mode Continuation"  # some clients show it as a prompt
BRIEFING = "[ctx workflow] A workflow runs in this session."
ROUND = "{run.verdict}, round {flow.iteration} of {flow.max_iterations}"
CHECK_FAILED = "[ctx workflow] %s."
UNTIL_TEXT = """\
- Task: {task}
- Go on until `{proof}` exits 0, or end with a line \
BLOCKED: <what the person must decide>"""
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
    " print the block with SIGNAL: {flow.signal}, NEXT: {next} and the time, now {now};"
    " with REASON: nothing was left to do, because … if that is so; PHASE_BLOCKED if"
    " the person must decide, PHASE_ERROR if it went wrong. What to do now: {about}"
)


def render(run: Run, flow: Workflow) -> str:
    """The opening, then the whole text, or the short one for an agent that knows it;
    then what a failed check printed."""
    text = SHORT_TEXT if run.session.briefed else WHOLE_TEXT
    if flow.until:
        text = UNTIL_TEXT
    about = run.settings.text("auto.about." + flow.phase)
    text = text.format(
        flow=flow,
        about=one_line(about or PHASES.get(flow.phase, "finish it"), 300),
        task=one_line(flow.task_description, 1000),
        proof=one_line(flow.checks.get(flow.phase, "your word"), 300),
        next=flow.next_by_signal[flow.signal],
        now=format_iso(run.now),
    )
    output = run.output if run.verdict else ""
    return clean_text("\n".join([run.opening, text, output]).strip())


# --- the check: the one process that a person's agreement lets us start

CHECK_LIMIT_S = 140  # the client waits 150 s
CHECK_TAIL = 2_000
CHECK_OUTPUT_LIMIT, CHECK_POLL_S = 50_000_000, 0.05
# This process ends the whole group when the command is over. Should it be killed
# before, a watcher beside the command does so within a second. The command's parent is
# a shell, so that a command that kills its parent does not end this process.
WATCHER = """\
(
  while kill -0 "$PPID"; do
    sleep 1
  done
  kill -9 0
) >/dev/null 2>&1 &
sh -c "$1"
exit $?
"""
TASKKILL = r"C:\Windows\System32\taskkill.exe"  # never one from the project's folder
SECRET_NAME = (
    r"(?i)^(ANTHROPIC|CLAUDE_CODE)_"
    r"|(KEY|TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIALS?|_PASS|_PAT)$"
)


def run_check(run: Run) -> None:
    """Run the check; its verdict is "" if it passes. The run gets the end of what it
    printed."""
    import tempfile

    limit_s = min(run.settings.number("auto.check_timeout_s"), CHECK_LIMIT_S)
    start_deadline(limit_s + DEADLINE_BESIDE_CHECK_S)
    began, printed = time.monotonic(), ""
    try:
        with tempfile.TemporaryFile() as output:
            problem = run_command(run, limit_s, output)
            size = output.seek(0, os.SEEK_END)
            output.seek(max(0, size - 4 * CHECK_TAIL))
            printed = output.read().decode("utf-8", "replace")
    except (OSError, ValueError) as error:  # a full disk, a null byte
        problem = "cannot be run: %s" % error
    printed = hide_secrets(printed).strip()
    if len(printed) > CHECK_TAIL:
        printed = "…" + printed[-CHECK_TAIL:].lstrip()
    run.output = printed
    if problem:
        run.verdict = "`%s` %s" % (one_line(run.check, 300), problem)
    run.now += time.monotonic() - began  # it may take minutes


def run_command(run: Run, limit_s: float, output: IO[bytes]) -> str:
    """Why the command failed, "" if it did not. It gets a new process group."""
    import subprocess

    env = {key: run.env[key] for key in run.env if not re.search(SECRET_NAME, key)}
    child = subprocess.Popen(  # the person agreed to this text
        run.check if IS_WINDOWS else ["sh", "-c", WATCHER, "sh", run.check],
        shell=IS_WINDOWS,
        cwd=run.project.root,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        problem = wait_for(child, limit_s, output)
    finally:
        if IS_WINDOWS and child.poll() is None:  # what its shell has started, too
            run_program([TASKKILL, "/F", "/T", "/PID", str(child.pid)])
        child.kill()
        if not IS_WINDOWS:
            attempt(os.killpg, child.pid, 9)  # also what the command left behind
        child.wait()
    return problem


def wait_for(child: subprocess.Popen[bytes], limit_s: float, output: IO[bytes]) -> str:
    """Wait until the command exits; why it failed, or has to be ended before."""
    began = time.monotonic()
    while child.poll() is None:
        took_s = time.monotonic() - began
        if took_s > limit_s:
            return "did not end within %d s" % limit_s
        if output.seek(0, os.SEEK_END) > CHECK_OUTPUT_LIMIT:
            return "printed more than 50 MB"
        if sys.stdout.isatty():  # a person waits for `auto start`
            print("%d s" % took_s, end="\r", flush=True)
        time.sleep(CHECK_POLL_S)
    return "exits %d" % child.returncode if child.returncode else ""


# --- what `auto status` and a handoff say

TASK_LINE = "\nTask: {flow.task_description:.300}"
RESUME = " `auto resume` takes it up again." + TASK_LINE
GOES_ON = (
    TASK_LINE + "\nIt ends when {flow.proof}; before that with `auto stop`, or with"
    " `ctx cancel` as a prompt in its session."
    "\n`auto resume` hands it to the next session."
)
STATES = {  # what `auto status` says, and what a person can do next
    "none": "There is no workflow here, so nobody is held."
    ' `auto start "TASK" --until "COMMAND"` begins one.',
    "foreign": "This workflow came with the project and holds nobody." + RESUME,
    "complete": "It is over: {flow.outcome:.500}." + TASK_LINE,
    "ended": "It is over: {flow.outcome:.500}." + RESUME,
    "blocked": "Your answer is needed, as a prompt in session {flow.session_id:.8},"
    " for {flow.stage}: {flow.needs:.500}" + GOES_ON,
    "waiting": "The workflow waits for your next prompt to the agent; then {flow.stage}"
    " begins." + GOES_ON,
    "running": "Under way in session {flow.session_id:.8}: {flow.stage},"
    " {flow.iteration} of {flow.max_iterations} rounds done." + GOES_ON,
}


def describe_workflow(flow: Workflow) -> list[str]:
    """The workflow in sentences."""
    state = first_true(
        none=not flow.phase,
        foreign=flow.is_foreign,
        complete=flow.phase == "complete",
        ended=not flow.is_running,
        blocked=flow.needs,
        waiting=not flow.session_id,
        running=True,
    )
    return STATES[state].format(flow=flow).split("\n")


# =============================================================================
# Look
# =============================================================================
# The transcript is the truth: it holds every prompt, answer, call, result, and our
# own texts. One pass reads what it gained since the last look and folds each row
# into the session's facts. Everything else is a view of those facts, so it does
# not matter which calls started Python.

LOOK_LIMIT_BYTES = 4_000_000
LATE_S, LATE_POLL_S = 0.25, 0.02
KEY_ROOM = 8_000  # characters; the longest secret fits, and what we keep of a text
LONG_ROW_BYTES = 20_000  # only such a row could take long
KEPT = {"commands": 8, "tried": 5, "edited": 40, "read": 60}
PROGRESS = (  # how far the work got
    r"(?i)\b(?:done|finished|completed?|implemented|added|fixed|works|pass(?:es|ed)?"
    r"|next|remains?|remaining|left|still|so far|fertig|erledigt|nächste\w*|noch"
    r"|terminé|fini|listo|hecho|falta|siguiente|pronto|feito|fatto|finito|manca"
    r"|prossim\w+|klaar|volgende|gotowe|zrobion\w+|następn\w+|готово|сделан\w*"
    r"|дальше|осталось)\b"
    r"|完成|接下来|下一步|完了|次に|残り|완료|다음|남은"
)
CALLS_KEPT, WAITING_CALLS_KEPT = 8, 40
TODOS_KEPT = 40
SAID_LIMIT, PRINTED_LIMIT = 40_000, 200_000
PRINTED_BEGIN = r"(?m)^[ \t*_#]*BEGIN HANDOFF[ \t*_]*$"
PRINTED_END = r"(?m)^[ \t*_#]*END HANDOFF[ \t*_]*$"
MEASURED_LIMIT, MEASURED_WHOLE = 60, 16
REQUESTS_LIMIT = 24_000
SAID_LAST_LIMIT, OUTPUT_LINES, OUTPUT_LIMIT = 3_000, 5, 600
ACKNOWLEDGED = r"(?i)ack:\s*context received"


def look_at(session: Session, event: Event) -> None:
    """Look; wait a moment where the transcript lags behind the event."""
    newest = look(session)
    deadline = time.monotonic() + LATE_S
    while is_behind(session.facts, event, newest) and time.monotonic() < deadline:
        time.sleep(LATE_POLL_S)
        newest = max(newest, look(session))
    if event.name == "Stop" and lacks_last_words(session.facts, event):
        session.facts.said_at = format_iso(session.seen_at)
        add_words(session.facts, hide_secrets(event.last_assistant_message))


def look(session: Session) -> str:
    """Fold what the transcript gained into the facts; gives the newest row's time."""
    dialect, newest, mark = DIALECTS[session.agent], "", session.reading_mark
    hung_at = read_text(mark)
    for line in new_lines(session):
        at = str(session.offset)
        session.offset += len(line) + 1
        if at == hung_at:
            continue  # an earlier run hung in this row
        row = dialect.read_row(parse_object(line))
        if len(line) > LONG_ROW_BYTES and row.kind != "result":  # those are cut first
            write_atomically(mark, at)
        fold_row(session, row)
        newest = max(newest, row.at)
    facts = session.facts
    fit_requests(facts)  # a long prompt may take its time here, too
    fit_outputs(facts)
    remove_file(mark)
    if facts.answered_at > facts.compacted_at:
        beside = dialect.read_beside(session.transcript)
        beside.id, beside.at = facts.answer, facts.answered_at
        fold_usage(facts, beside)
    return newest


def is_behind(facts: Facts, event: Event, newest: str) -> bool:
    """Whether to wait for the transcript: at a Stop it lacks the agent's last words; in
    a context that is half full, or of which nothing is known yet, it lacks the present
    call, and so its numbers."""
    dialect = DIALECTS[event.agent]
    is_late = dialect.is_late and newest < event.timestamp
    if event.name == "Stop":
        return is_late or lacks_last_words(facts, event)
    if not event.name.startswith("PostToolUse"):
        return False
    is_half_full = facts.tokens * 2 >= (facts.window or DEFAULT_WINDOW)
    if not dialect.has_call_ids or not event.tool_use_id:
        return is_late and (is_half_full or not facts.tokens)
    known = [call["id"] for call in facts.calls]
    return is_half_full and event.tool_use_id not in known


def lacks_last_words(facts: Facts, event: Event) -> bool:
    """Whether the transcript lacks the words that a Stop tells."""
    last_words = hide_secrets(event.last_assistant_message[-KEY_ROOM:]).strip()[-200:]
    return last_words not in facts.said


def new_lines(session: Session) -> list[bytes]:
    """The whole lines that the transcript gained; the session's offset is then that of
    the first one."""
    size = size_of(session.transcript)
    if 0 < size < session.offset:  # it was rewritten
        session.offset = 0
        session.facts = Facts()
    start = max(session.offset, size - LOOK_LIMIT_BYTES)
    data = read_bytes(session.transcript, LOOK_LIMIT_BYTES, start=start)
    *lines, _ = data.split(b"\n")
    if start > session.offset and lines:
        start += len(lines.pop(0)) + 1  # its beginning was skipped
    session.offset = start
    return lines


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
        facts.tree_moves += may_move_tree(row.text[:COMMAND_LIMIT])  # by `! git pull`
        fold_prompt(facts, row)
    for given in row.calls:
        fold_call(session, row, given)
    for result in row.results:
        fold_result(session, row.at, result)
    fold_usage(facts, row)


def fold_boundary(facts: Facts, row: Row) -> None:
    """A compaction: nothing of the old fullness holds."""
    facts.compacted_at = row.at
    facts.limit = row.limit or facts.limit
    facts.tokens = row.tokens
    facts.chars = 0
    facts.measured.append((row.at, row.tokens, ""))


def fold_usage(facts: Facts, row: Row) -> None:
    """Tokens, window and model, where the row tells them."""
    facts.window = row.window or facts.window
    facts.model = row.model or facts.model
    if not row.tokens:
        return
    facts.tokens = row.tokens
    if row.id and facts.measured and facts.measured[-1][2] == row.id:
        del facts.measured[-1]  # of the same answer
    facts.measured.append((row.at, row.tokens, row.id))
    if len(facts.measured) > MEASURED_LIMIT:
        del facts.measured[:-MEASURED_WHOLE:2]  # every second of the older ones


def fold_answer(facts: Facts, row: Row) -> None:
    facts.answer = row.id or row.at
    facts.answered_at = row.at
    if not row.text:
        return
    facts.said_at = row.at
    words = hide_secrets(row.text)
    # a Stop may have told it already, or a client writes it twice
    if not facts.said.endswith(words):
        add_words(facts, words)
    if "context received" in row.text.lower() and re.search(ACKNOWLEDGED, row.text):
        facts.acknowledged_at = row.at


def add_words(facts: Facts, text: str) -> None:
    """More words of the agent; a handoff that they print is kept whole."""
    facts.said = (facts.said + "\n\n" + text).strip()
    printed = last_printed(facts.said) if "END HANDOFF" in text else ""
    if printed:
        facts.printed = cut_middle(printed, PRINTED_LIMIT)
        facts.printed_at = facts.said_at
    facts.said = facts.said[-SAID_LIMIT:]
    facts.said_last = facts.said[-SAID_LAST_LIMIT:]


def told_progress(facts: Facts) -> str:
    """The agent's last sentence that tells how far the work got."""
    sentences = split_sentences(facts.said)
    told = [one for one in sentences if re.search(PROGRESS, one)]
    return one_line(told[-1], 300) if told else facts.progress


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
    facts.progress = told_progress(facts)
    facts.said = ""
    words = hide_secrets(text)
    if not facts.requests or facts.requests[-1][1] != words:
        facts.requests.append([row.at, words])


def fit_requests(facts: Facts) -> None:
    """Keep of the person's words what there is room for."""
    kept = choose_words([words for _, words in facts.requests], REQUESTS_LIMIT)
    pairs = zip(facts.requests, kept)
    facts.requests = [[at, words] for (at, _), words in pairs if words]


def slash_command(text: str) -> str:
    """What the person typed, where the client wrote its parts between tags."""
    name, words = [
        text.partition("<%s>" % tag)[2].partition("</%s>" % tag)[0].strip()
        for tag in ("command-name", "command-args")
    ]
    return name + " " + words if name.startswith("/") and words else text


# --- calls

# How much a call adds to the work, by its kind. Two are worth a handoff.
WORK = {"edit": 2, "run": 1, "agent": 1, "other": 1}
LOOKING = tuple(  # how commands begin that only look
    "cd |ls |cat |head |tail |grep |rg |fd |find |sed -n |awk |wc |echo |pwd |which "
    "|type |stat |tree |ps |jq |diff |file |du |df |date |whoami |less |more "
    "|command -v |git status |git diff |git log |git show |git remote |git blame "
    "|git rev-parse |git ls-files |git grep |git branch -a |git branch -r"
    "|git branch -v|git branch --show|git --no-pager diff "
    "|git --no-pager log ".split("|")
)
LOOKING_ENDS = ("git branch", " --version")  # how others end
ACTING = (">", " -exec", " -delete")  # with one of these, they change something
WAITING = ("sleep ", "wait", "watch ", "tail ", "gh run watch")
CHECK = (  # how commands begin that test, build or lint something
    r"(?:\S*/)?(?:pytest|tox|nox|unittest|ruff|mypy|flake8|eslint|tsc|jest|vitest|mocha"
    r"|phpunit|rspec|shellcheck|bats|ctest|make|mvn|gradlew?)(?: |$)"
    r"|(?:\S*/)?(?:go|cargo|dotnet|swift|mix|bun|deno|npm|pnpm|yarn|cmake) (?:run )?"
    r"(?:test|build|lint|check|vet|clippy|--build)"
    r"|(?=\S*\.(?:sh|py)(?: |$))\S*(?:test|check|verify)"
    r"|\S*(?:/test|/check|/verify|/ci|ci/run)(?: |$)"
)
BEFORE_PROGRAM = (  # words that may come before that: X=1 timeout 60 python3 -m
    r"\A(?:(?:-(?!l?c )\S*|[^-=\s][^=\s]*=\S*|\d+[smh]?"
    r"|(?:[^-=\s][^=\s]*/)?(?:python[\d.]*|node|sh|bash)|env|time|nice|sudo|timeout"
    r"|npx|bunx|uvx?|poetry|pipenv|pdm|hatch|bundle|run|exec) )*"
)
TREE_MOVERS = set(  # words of commands that may switch the branch, or commit
    "git gh jj hub checkout switch worktree commit merge rebase pull release deploy "
    "publish version bump".split()
)
REFUSED = r"(?i)user (doesn't want|rejected|refused|denied|declined|cancel+ed)"
NO_DIGITS = str.maketrans("", "", "0123456789")
OUTPUT_FILTERS = ("tail ", "head ", "true ")  # `make | tail -5`, `make || true`


def fold_call(session: Session, row: Row, given: tuple[str, str, Json]) -> None:
    """A tool call: counts, work, files, commands."""
    facts, (call_id, tool, tool_input) = session.facts, given
    if call_id and any(known["id"] == call_id for known in facts.calls):
        return  # some clients write a row twice
    kind, paths = tool_kind(tool), touched_paths(tool_input)
    command = command_of(tool_input) if kind == "run" else ""
    parts = parse_command(command)
    told = one_line(hide_secrets(without_heredocs(command)), 300)
    if kind == "run":
        kind = "look" if is_looking(parts) else "run"
        facts.commands = [known for known in facts.commands if known[1] != told]
        facts.commands.append([row.at, told])
        words = " ".join(parts).split()
        facts.read += [word for word in words if word.endswith(".md")]
    elif kind == "read":
        facts.read += paths
        if "".join(paths).endswith(".output"):  # of a running task
            kind = "poll"
    elif kind == "note":
        fold_todos(facts, tool_input)
    # the commands of an agent are in another transcript; git may be a tool: git_commit
    facts.tree_moves += kind == "agent" or may_move_tree(command or tool)
    writes = paths if kind == "edit" else written_files(parts)
    folder = text_of(tool_input.get("workdir")) or row.cwd
    call: Call = {
        "id": call_id,
        "tool": tool,
        "kind": kind,
        "command": told,
        "does": describe_call(tool, command, parts, tool_input),
        "check": verdict_of(command, parts) if kind == "run" else "",
        "outcome": "",
        "key": "",
        "at": row.at,
        "writes": [join(folder, path) for path in writes],
    }
    count_call(facts, call)


def count_call(facts: Facts, call: Call) -> None:
    """One more call, and its share of the work. The newest are kept. One that waits for
    its result stays longer: an answer may hold a dozen edits, and each counts only when
    its result is there."""
    facts.calls.append(call)
    facts.tool_calls += 1
    facts.breakdown[call["tool"]] = facts.breakdown.get(call["tool"], 0) + 1
    if call["kind"] in WORK:
        facts.work += WORK[call["kind"]]
        facts.worked_at = call["at"]
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


def describe_call(tool: str, command: str, parts: list[str], tool_input: Json) -> str:
    """What a call does, to find repeated ones. Comments, descriptions and ways to look
    at the output do not count."""
    rest = [part for part in parts[1:] if not (part + " ").startswith(OUTPUT_FILTERS)]
    text = " ".join(" ".join(parts[:1] + rest).split())
    if "<<" in command:
        text += content_mark(command)  # what a heredoc holds
    if not command:
        given = dict(tool_input, description="")
        text = tool + " " + json.dumps(given, sort_keys=True)
    return "%s %d" % (hide_secrets(text[:KEY_ROOM])[:200], len(text))


def fold_todos(facts: Facts, tool_input: Json) -> None:
    """The todo list as the client's tool leaves it: a whole list, or one task."""
    rows = blocks_of(dig(tool_input, "todos plan"))
    number = text_of(tool_input.get("taskId"))
    status = text_of(tool_input.get("status"))
    if rows:
        facts.todos = [todo_of(row) for row in rows]
    elif tool_input.get("subject") and not number:
        facts.todos.append(todo_of(tool_input))
    for place, todo in enumerate(facts.todos, 1):
        if number == str(place) and status:
            todo[0] = status
    del facts.todos[TODOS_KEPT:]


def todo_of(row: Json) -> list[str]:
    """[status, text]"""
    text = text_of(dig(row, "subject content step description"))
    return [text_of(row.get("status")) or "pending", one_line(hide_secrets(text), 200)]


# --- shell commands: parsed once, then asked

SHELL_TEXT = r"""(?xs)
    (?<!\S)(?:\#[^\n]*|…) | \d?>&\d | [\d&]?>>?\s?/dev/null\b  # no words, and no file
    | \\(.) | '([^']*)'? | "((?:[^"\\]|\\.)*)"?                # a part of one word
"""
# in a quoted text \0 stands for a blank, … for a sign of the shell
INSIDE_WORD = str.maketrans(" \t\n;&|<>()#", "\0\0\0……………………")
SHELL_SIGNS = set("\\'\"#;&|<>()\n…")
SEPARATOR = r"(&&|\|\||(?<!>)\||(?<![<>])&(?!>)|[;()\n])"
REDIRECTION = r"[\d&]?([<>]{1,3})[|&]?\s*([^\s<>]+)"
HEREDOC = r"(?<!<)<<-?\s*['\"\\]?(\w+)"
WRITERS = ("tee ", "cp ", "mv ", "git mv ", "sed -i")
NO_NAME = r"[$`*?{\n…]|(?:^|/)[~-]|^/dev/|^$"  # only the shell knows it; or no file


def parse_command(command: str) -> list[str]:
    """The simple commands of a shell command: `cd src && make` has two."""
    return list(filter(None, map(str.strip, divide_command(command)[::2])))


def divide_command(command: str) -> list[str]:
    """The simple commands and, between them, what divides them. Each quoted text is one
    word without signs."""
    if SHELL_SIGNS.isdisjoint(command):
        return [command]
    text = re.sub(SHELL_TEXT, as_one_word, without_heredocs(command)).strip()
    return re.split(SEPARATOR, text)


def as_one_word(quoted: re.Match[str]) -> str:
    """The quoted text, without what would divide words and commands."""
    text = "".join(filter(None, quoted.groups()))
    return text.translate(INSIDE_WORD)


def without_heredocs(command: str) -> str:
    """A shell command with … for the texts of its heredocs."""
    kept: list[str] = []
    ends: list[str] = []
    for line in command.split("\n"):
        if not ends:
            ends = re.findall(HEREDOC, line) if "<<" in line else []
            kept.append(line + " …" if ends else line)
        elif line.strip() == ends[0]:
            del ends[0]
    return "\n".join(kept)


def is_looking(parts: list[str]) -> bool:
    """Whether every part of a shell command only looks."""
    if any(sign in part for part in parts for sign in ACTING):
        return False
    others = [part for part in parts if not (part + " ").startswith(LOOKING)]
    return all(part.endswith(LOOKING_ENDS) for part in others)


def may_move_tree(command: str) -> bool:
    """Whether a shell command may switch the branch, or commit."""
    words = re.split(r"[\W_]+", command)
    has_mover = not TREE_MOVERS.isdisjoint(words)
    return has_mover and not is_looking(parse_command(command))


def verdict_of(command: str, parts: list[str]) -> str:
    """What exit code 0 says of a command that tests, builds or lints something; "" for
    other commands. In a pipe or a list it may be the exit code of something else."""
    programs = [re.sub(BEFORE_PROGRAM, "", part) for part in parts]
    if not any(re.match(CHECK, program) for program in programs):
        return ""
    dividers = set(divide_command(command)[1::2])
    return "passed" if dividers <= {"&&", "(", ")"} else "ran"


def written_files(parts: list[str]) -> list[str]:
    """The files that a shell command writes if it succeeds, as far as it names them."""
    files, folder = [], ""
    for part in parts:
        names = [name for sign, name in re.findall(REDIRECTION, part) if ">" in sign]
        words = re.sub(REDIRECTION, "", part).split()
        if part.startswith("cd "):
            folder = join(folder, *words[1:2])
        if part.startswith(WRITERS):
            names.append(words[-1])
        files += [join(folder, name) for name in names]
    return [name.replace("\0", " ") for name in files if not re.search(NO_NAME, name)]


# --- results


def fold_result(session: Session, at: str, result: tuple[str, bool, str]) -> None:
    """What came of a call."""
    call_id, has_failed, text = result
    facts = session.facts
    waiting = {call["id"]: call for call in facts.calls if not call["outcome"]}
    call = waiting.get(call_id)
    if not call:
        return
    call["outcome"] = "failed" if has_failed else "ok"
    command, end = call["command"], text.strip()[-KEY_ROOM:]
    if command:
        facts.output = [command, end]
    note_key(facts, call, text)
    if has_failed:
        return fold_failure(session, call, hide_secrets(end), at)
    for path in call.get("writes", []):  # a state of 0.3.0 has none
        fold_edit(session, path, call["at"])
    passed = {
        "command": command,
        "verdict": call.get("check", ""),
        "at": at,
        "end": end,
    }
    fold_passed(facts, passed)


def fold_edit(session: Session, path: str, at: str) -> None:
    """A call has written this file; `at` is when it was called. The same call may come
    twice: from its event, then from its result in the transcript."""
    facts, handoff = session.facts, session.handoff
    if is_own_handoff(session, path):
        handoff.written_at = max(handoff.written_at, at)
        return
    facts.edited = [row for row in facts.edited if row[0] != path]
    facts.edited.append([path, at])


def fold_present_edit(session: Session, event: Event) -> None:
    """The result of the present call is written after this hook; where a failed call
    has an event of its own, this one succeeded."""
    is_over = "PostToolUseFailure" in DIALECTS[event.agent].registered
    is_edit = event.name == "PostToolUse" and tool_kind(event.tool_name) == "edit"
    for path in touched_paths(event.tool_input) if is_over and is_edit else []:
        fold_edit(session, path, session.facts.answered_at)


def fold_failure(session: Session, call: Call, text: str, at: str) -> None:
    """A call failed: a command is kept, and whether the person refused the handoff."""
    facts = session.facts
    if call["command"]:
        facts.failed = {"command": call["command"], "error": text[-1500:], "at": at}
        facts.tried = []
    is_handoff = any(is_own_handoff(session, path) for path in call.get("writes", []))
    if is_handoff and re.search(REFUSED, text):
        session.handoff.refused_at = at


def fold_passed(facts: Facts, passed: dict[str, str]) -> None:
    """A command exited 0; if it had failed before, that is over."""
    command = passed["command"]
    if command == facts.failed.get("command"):
        facts.failed = {}
    elif command and facts.failed:
        facts.tried.append(command)
    if passed["verdict"]:
        facts.passed = passed


def fit_outputs(facts: Facts) -> None:
    """Keep the last lines of what the last command printed, and the last one of the
    last check's. Earlier ones are replaced by then, so their secrets need no look."""
    if facts.output:
        command, output = facts.output
        last_lines = "\n".join(hide_secrets(output).split("\n")[-OUTPUT_LINES:])
        facts.output = [command, last_lines[-OUTPUT_LIMIT:]]
    if facts.passed:
        last_line = hide_secrets(facts.passed.get("end", "")).rpartition("\n")[2]
        facts.passed["end"] = one_line(last_line, 120)


def note_key(facts: Facts, call: Call, text: str) -> None:
    """The call's key: in which state of things it ran, what it did, what came of it.

    Each success that is new changes the state of things: the same test after another
    edit is no repetition. The same edit twice is one in any state.
    """
    has_failed, is_edit = call["outcome"] == "failed", call["kind"] == "edit"
    is_waiting = call["command"].startswith(WAITING) and not has_failed
    if call["kind"] in ("poll", "note") or is_waiting:
        return
    did, came = call["does"], text[:80] + text[-80:]
    if has_failed and is_edit:  # another guess at the same place
        did, came = call["tool"], text.partition("\n")[0]
    if has_failed:
        did = did.translate(NO_DIGITS)  # other ports, longer waits
    if has_failed or call["command"]:
        came = came.translate(NO_DIGITS)  # times, process ids
    did = " %s %s" % (content_mark(did + came), call["outcome"])
    is_new = not any(other["key"].endswith(did) for other in facts.calls)
    call["key"] = ("edit" if is_edit else str(facts.changes)) + did
    is_look = call["kind"] in ("read", "look")
    facts.changes += is_new and not is_look and not has_failed


# --- views: fullness

SMALL_MODELS = r"(?i)claude-3|(?:opus|sonnet|haiku)-4(?![-.][789])"
CHARS_PER_TOKEN = 4


def fullness(run: Run) -> Fullness:
    """The fullness of the run's session, by its facts."""
    session, found = run.session, Fullness()
    facts = session.facts
    has_begun = facts.answered_at or facts.compacted_at
    found.is_exact = facts.tokens > 0
    found.tokens = facts.tokens or facts.chars // CHARS_PER_TOKEN
    found.is_measured = bool(has_begun and found.tokens)
    found.window = find_window(session, run.settings)
    dialect = DIALECTS[session.agent]
    root = run.env.get(dialect.project_variable) or run.project.root
    limit = dialect.find_limit(found.window, model_of(session), root, run.env)
    found.usable = min(limit, session.limit or limit) or found.window
    found.percent = found.percent_of(found.tokens)
    return found


def learn_limit(run: Run) -> int:
    """The tokens at which the client last compacted by itself, here or in an earlier
    session with the same model; 0 if we saw none, or that limit no longer holds."""
    session, facts = run.session, run.session.facts
    path = run.project.state("limits.json")
    limits = read_object(path)
    name = "%s %s" % (session.agent, model_of(session))
    known = count_of(limits.get(name))
    limit = facts.limit or known
    since = [row[1] for row in facts.measured if row[0] > facts.compacted_at]
    if sum(tokens > limit for tokens in since) > 1:  # the client answers above it
        limit = facts.limit = 0
    if limit != known:
        write_object(path, {**limits, name: limit})
    return limit


def find_window(session: Session, settings: Settings) -> int:
    """The context window in tokens, from the first source that tells it."""
    facts = session.facts
    configured = int(settings.text("monitor.context_window"))
    window = (
        configured
        or facts.window
        or session.window_told
        or DIALECTS[session.agent].window
        or window_of_model(session)
        or DEFAULT_WINDOW
    )
    measured = max((row[1] for row in facts.measured), default=0)
    if configured or measured <= window:
        return window
    return max(LARGE_WINDOW, window)


def model_of(session: Session) -> str:
    """The model's name; the start of a session tells [1m], an answer may not."""
    if "[1m]" in session.model:
        return session.model
    return session.facts.model or session.model


def window_of_model(session: Session) -> int:
    """As Claude Code decides it by the model's name; 0 for other models."""
    name = model_of(session)
    if not name or session.agent != "claude" and "claude" not in name:
        return 0
    is_small = re.search(SMALL_MODELS, name) and "[1m]" not in name
    return DEFAULT_WINDOW if is_small else LARGE_WINDOW


# =============================================================================
# Clients
# =============================================================================
# The one place that knows the clients' JSON: event names and fields, reply
# shapes, tool names, transcript rows. Each client is one class at the end. The
# rest of the file speaks in Event, Row and Reply; only of Claude Code it also reads
# variables, and pins words for its summary.

EVENTS = {  # event, by Claude Code's name -> mode
    "SessionStart": "inject",
    "UserPromptSubmit": "inject",
    "PreToolUse": "gate",
    "SubagentStart": "gate",
    "PostToolUse": "monitor",
    "PostToolUseFailure": "monitor",
    "PreCompact": "monitor",
    "Stop": "stop-enforce",
    "SessionEnd": "cleanup",
}
NEVER_HEARD = ("PreCompact", "SessionEnd")
REPLY_LIMIT = 9_900  # the client cuts at 10,000 UTF-16 units
LARGE_WINDOW = 1_000_000  # tokens; 200,000 is the usual one
NOWHERE = ("", "", "", "")


class Dialect:
    """How a client speaks. A subclass says only what is different."""

    label: str = ""
    settings: str = ""  # the project's settings file with its hooks
    user_settings: str = ""  # the same in the home, where it has another name
    more_settings: tuple[str, ...] = ()  # other files with hooks that it runs there
    project_variable: str = ""  # names the folder that the client was started in
    shell_variables: tuple[str, ...] = ()  # one of them is set in its agent's shell
    takes_comments: bool = False  # its settings may have them, and trailing commas
    renamed: dict[str, str] = {}  # our event name -> theirs
    registered: tuple[str, ...] = tuple(EVENTS)
    time_unit: int = 1  # of a timeout in the settings, per second
    end_limit_s: int = 5
    fields: dict[str, str] = {}  # their field of an event -> ours
    proofs: dict[str, str] = {}  # event -> a field that only the real one has
    unheard: tuple[str, ...] = NEVER_HEARD  # events whose text the model never gets
    has_receipts: bool = True  # its transcript holds what hooks said
    is_flat: bool = False  # the text is at the top level of a reply
    reply_unit: tuple[str, int] = ("utf-16-le", 2)  # its limit counts these: bytes
    runs_claudes: tuple[str, ...] = ()  # scopes in which it runs Claude's settings, too
    instruction_files: tuple[str, ...] = ("AGENTS.md",)  # it reads the first it finds
    home_variable: str = ""  # names its folder in the home, if that is another
    limit_file: str = "settings.json"  # beside its settings: it may tell the limit
    compacts_at: int = 100  # percent of the window
    told_limit: str = ""  # a pattern for the user's limit there: tokens, or a share
    reserve_tokens: int = 0  # what it keeps free for a summary
    bytes_per_token: float = 1.5  # a token adds at least so much to its transcript
    window: int = 0  # where every model has the same
    is_late: bool = False  # its transcript is written a moment after the event
    has_call_ids: bool = False  # an event names the call as the transcript does
    # Its transcript. A place is a path of keys, such as `message.id`; see dig().
    passed_over: str = "isSidechain"  # marks rows that are not of the main agent
    row_type: str = "type"
    kinds: dict[str, str] = {}  # type of a row -> our kind; other rows say nothing
    places: dict[str, str] = {}  # field of Row -> its place in theirs
    call: Places = NOWHERE  # places of the blocks; in a block: id, tool, input
    result: Places = NOWHERE  # the same; in a block: id, sign of failure, text
    failure: str = ""  # a pattern, where only the result's text tells a failure
    result_head: str = ""  # a pattern of what the client puts before a result's text

    def adjust(self, event: Event, env: Env) -> None:
        """Correct an event in which a client means something else."""

    def read_row(self, row: Json) -> Row:
        """One row of its transcript, in our words."""
        kind = self.kinds.get(text_of(dig(row, self.row_type)), "")
        found = Row({field: dig(row, place) for field, place in self.places.items()})
        found.at = exact_iso(found.at)
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

    def read_calls(self, row: Json) -> list[tuple[str, str, Json]]:
        blocks, *places = self.call
        calls = []
        for block in blocks_of(dig(row, blocks)):
            call = call_of(*[dig(block, place) for place in places])
            if call[1]:  # other blocks have no tool
                calls.append(call)
        return calls

    def read_results(self, content: object) -> list[tuple[str, bool, str]]:
        _, id_place, failure, text_place = self.result
        results = []
        for block in blocks_of(content):
            call_id = text_of(dig(block, id_place))
            text = joined_texts(dig(block, text_place))
            is_told = bool(self.failure) and re.search(self.failure, text)
            sign = is_told or dig(block, failure) or block.get("status") == "failed"
            if self.result_head:
                text = re.sub(self.result_head, "", text)
            if call_id:
                results.append((call_id, bool(sign), text))
        return results

    def read_beside(self, transcript: str) -> Row:
        """Numbers that a file beside the transcript tells."""
        return Row()

    def own_folder(self, env: Env) -> str:
        """Its folder in the user's home."""
        name = (self.user_settings or self.settings).partition("/")[0]
        default = join(home_folder(env), name)
        return os.path.abspath(env.get(self.home_variable) or default)

    def settings_paths(self, root: str, env: Env) -> list[str]:
        """Its settings of all scopes: the user's, then those of the project in which it
        finds hooks, the strongest last."""
        own = (self.user_settings or self.settings).partition("/")[2]
        names = (self.settings, *self.more_settings)
        places = [join(root, name) for name in names]
        return [join(self.own_folder(env), own), *places]

    def find_limit(self, window: int, model: str, root: str, env: Env) -> int:
        """At how many tokens it compacts by itself; 0 if it never does."""
        own = limit = window * self.compacts_at // 100
        for path in self.settings_paths(root, env) if self.told_limit else []:
            text = read_text(join(dirname(path), self.limit_file))
            match = re.search(self.told_limit, text)
            if match:
                told = float(match[1])
                # tokens can only lower the client's own limit
                limit = min(own, int(told)) if told > 1 else int(window * told)
        return min(limit, max(window - self.reserve_tokens, window // 2))


# --- events


def parse_event(data: object, mode: str, word: str, env: Env) -> Event | None:
    """The event in our words; None if it is none that this mode is for."""
    data = object_of(data)
    agent = detect_agent(word, data)
    dialect = DIALECTS[agent]
    named = {ours: data.get(theirs) for theirs, ours in dialect.fields.items()}
    event = Event({**named, **data})  # a field in both spellings: ours wins
    names = {dialect.renamed.get(name, name): name for name in dialect.registered}
    event.name = names.get(event.hook_event_name, "")
    proof = dialect.proofs.get(event.name)
    is_proven = proof is None or proof in data
    if EVENTS.get(event.name) != mode or not is_proven:
        return None
    event.agent = agent
    # Cursor and others run Claude's line too; only Claude Code sets these.
    is_claude_code = env.get("CLAUDECODE") or env.get("AI_AGENT")
    event.is_known_client = bool(word or agent != "claude" or is_claude_code)
    event.is_subagent = bool(data.get("agent_id") or data.get("subagentType"))
    if event.source == "new":
        event.source = "startup"
    event.prompt = persons_words(event.prompt)
    event.is_typed = event.name == "UserPromptSubmit" and is_typed(event.prompt)
    dialect.adjust(event, env)
    return event


def detect_agent(word: str, data: Json) -> str:
    """The agent's word in the command; but Copilot and Grok run Claude's line too."""
    if word in DIALECTS:
        return word
    if "workspaceRoot" in data:
        return "grok"
    has_copilots_shape = "timestamp" in data and "permission_mode" not in data
    return "copilot" if has_copilots_shape else "claude"


def start_folder(event: Event, env: Env) -> str:
    """The folder that the client was started in, else where it is now."""
    variable = DIALECTS[event.agent].project_variable
    return env.get(variable, "") or event.cwd


def read_client_settings(path: str) -> Json:
    """A client's settings; some take comments and trailing commas in theirs."""
    text = read_text(path, STATE_LIMIT_BYTES)
    for dialect in DIALECTS.values():
        if dialect.takes_comments and path.endswith(dialect.settings):
            text = plain_json(text)
    return parse_object(text)


def agent_variables() -> list[str]:
    """One of these is set in an agent's shell."""
    return [name for agent in DIALECTS.values() for name in agent.shell_variables]


def can_speak(event: Event) -> bool:
    return event.name not in DIALECTS[event.agent].unheard


# --- replies


def render_reply(event: Event, reply: Reply, env: Env) -> str:
    """What goes to stdout; "" if there is nothing to say."""
    if reply.plain:
        return reply.plain
    dialect = reply.dialect
    text = "\n\n".join(reply.texts)
    answer: Json = {}
    if reply.notes:
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


def holds_by_text(event: Event, env: Env) -> bool:
    """Whether the agent goes on for a text at a Stop; else we block the stop. Claude
    Code does from 2.1.163 on, without showing an error. An outer agent's AI_AGENT may
    be inherited, so the session must agree."""
    is_own = env.get("CLAUDE_CODE_SESSION_ID") == event.session_id
    version = re.findall(r"\d{1,9}", env.get("AI_AGENT", ""))
    is_new = [int(part) for part in version] >= [2, 1, 163]
    return event.agent == "claude" and is_own and is_new


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
    "agent": "agent task sendmessage spawn_agent spawn_subagent send_input wait_agent "
    "resume_agent close_agent",
}
COMMAND_LIMIT = 8_000
PATCHED_FILE = r"(?m)^\*\*\* (?:Update|Add|Delete) File: (.+)$"


def tool_kind(tool: str) -> str:
    """A key of TOOL_KINDS, or "other"."""
    name = tool.lower().rpartition("__")[2]  # mcp__browser__wait_for
    for kind, names in TOOL_KINDS.items():
        if name in names.split():
            return kind
    return "poll" if "wait" in name else "other"


def touched_paths(tool_input: Json) -> list[str]:
    """The files that a call reads or edits, as it names them."""
    keys = "file_path path notebook_path absolute_path target_file"
    path = text_of(dig(tool_input, keys))
    patch = text_of(dig(tool_input, "command input patch"))
    if path:
        return [path]
    return re.findall(PATCHED_FILE, patch) if "*** " in patch else []


def command_of(tool_input: Json) -> str:
    """The shell command of a call; "" if it has none."""
    command = dig(tool_input, "command cmd")
    if isinstance(command, list):
        command = " ".join(map(str, command))
    return text_of(command)[:COMMAND_LIMIT]


# --- transcripts: what all readers need

HOOK_TAGS = ("hook_context", "qwen:user-prompt-submit-context")
FILES_MARK = "\n--- Content from referenced files ---"  # Gemini and Qwen: of @file
MACHINE_PROMPTS = (  # how prompts begin that nobody typed
    "Caveat: The messages below",
    "[Request interrupted",
    "# AGENTS.md instructions",
    "## Auto Mode",
    "⚠️ [ctx monitor]",
    "[ctx workflow]",
    "Stop hook feedback",
    "Stop hook additional context",
)
MACHINE_TAGS = (  # or with which tags, some only where they hold all of it
    r"<(?:task-notification|system-reminder|(?:local-)?command-\w+|skill)>"
    r"|(?s:<[a-z]+[-_][\w-]*[ >].*</[\w-]+>\Z)"
)


def dig(value: object, places: str) -> object:
    """What is at a place, such as `message.id`. Of several places, divided by blanks,
    the first that holds something counts; None if none does."""
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
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return 0
    return int(value) if 0 < value < most else 0


def sum_of(usage: object, keys: str) -> int:
    return sum(count_of(dig(usage, key)) for key in keys.split())


def blocks_of(content: object) -> list[Json]:
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
    """A text without what a tag holds. One that stays open is the person's own."""
    *parts, rest = text.split("</%s>" % tag)
    return "".join(part.partition("<%s>" % tag)[0] for part in parts) + rest


def is_typed(prompt: str) -> bool:
    """Whether a person typed this prompt."""
    is_tagged = prompt.startswith("<") and re.match(MACHINE_TAGS, prompt)
    return bool(prompt) and not is_tagged and not prompt.startswith(MACHINE_PROMPTS)


def number_in(env: Env, name: str) -> int:
    """A number in the environment, such as 200000 or 200k; 0 if there is none."""
    text = env.get(name, "")
    try:
        return int(as_tokens(text)) if text else 0
    except ValueError:
        return 0


def call_of(call_id: object, tool: object, given: object) -> tuple[str, str, Json]:
    """An entry of Row.calls. The input is an object, JSON of one, or a plain text."""
    if isinstance(given, str):
        given = parse_object(given) or {"command": given}
    return text_of(call_id), text_of(tool), object_of(given)


# --- the clients, one class each: first what is special in its settings, events and
# replies, then its transcript, then methods for what no table can say

COMMON = ("SessionStart", "UserPromptSubmit", "PostToolUse", "Stop", "SessionEnd")
WITH_COMPACTION = COMMON + ("PreCompact",)
WITH_FAILURES = WITH_COMPACTION + ("PostToolUseFailure",)
# Claude Code compacts by itself at 167,000 of 200,000 and at 977,000 of 1,000,000.
RESERVE_TOKENS, RESERVE_LARGE_TOKENS, OUTPUT_TOKENS = 33_000, 23_000, 20_000
OFF_SWITCHES = ("DISABLE_AUTO_COMPACT", "DISABLE_COMPACT")
CLAUDE_SETTINGS = (".claude/settings.json", ".claude/settings.local.json")
NOT_SET = {"", "0", "false"}
LEAST_TOLD_TOKENS = 100_000  # it takes no smaller window, and ignores such a setting
MANAGED = (
    "/etc/claude-code/managed-settings.json",
    "/Library/Application Support/ClaudeCode/managed-settings.json",
    r"C:\Program Files\ClaudeCode\managed-settings.json",
)
CLAUDE_USAGE = "input_tokens cache_creation_input_tokens cache_read_input_tokens"
MODEL_FORM = r"^.*?(?=claude-)|-\d{8}.*|-v\d.*|[@:\[].*"  # provider, date, [1m]


class ClaudeCode(Dialect):
    label = "Claude Code"
    settings = CLAUDE_SETTINGS[0]
    more_settings = (CLAUDE_SETTINGS[1], *MANAGED)
    project_variable = "CLAUDE_PROJECT_DIR"
    shell_variables = ("CLAUDECODE", "AI_AGENT")
    instruction_files = ("CLAUDE.md", "CLAUDE.local.md", "AGENTS.md")
    home_variable = "CLAUDE_CONFIG_DIR"
    bytes_per_token = 3.0  # it writes each result twice
    has_call_ids = True
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
        "cwd": "cwd",
        "id": "message.id",
        "model": "message.model",
        "tokens": "compactMetadata.postTokens",
        "text": "message.content attachment.content attachment.prompt",
    }
    call = ("message.content", "id", "name", "input")
    result = ("message.content", "tool_use_id", "is_error", "content")

    def read_row(self, row: Json) -> Row:
        found = super().read_row(row)
        if found.model == "<synthetic>":
            return Row()
        if found.kind == "answer":
            found.tokens = sum_of(dig(row, "message.usage"), CLAUDE_USAGE)
            asked = text_of(row.get("requestedModel"))
            found.model = asked if "[1m]" in asked else found.model
        elif dig(row, "isMeta isCompactSummary"):
            found.kind = "heard"
        meta = dig(row, "compactMetadata")
        # one that was prepared while the person was away says nothing of the limit
        if dig(meta, "trigger") == "auto" and not dig(meta, "precomputed"):
            found.limit = count_of(dig(meta, "preTokens"))
        return found

    def read_settings(self, model: str, root: str, env: Env) -> Json:
        """Its settings of all scopes in one, with what they say of this model."""
        merged: Json = {}
        for path in self.settings_paths(root, env):
            found = parse_object(read_text(path))
            merged.update(found)
            for name, values in object_of(found.get("modelSettings")).items():
                if re.sub(MODEL_FORM, "", name) == re.sub(MODEL_FORM, "", model):
                    merged.update(object_of(values))
        return merged

    def find_limit(self, window: int, model: str, root: str, env: Env) -> int:
        settings = self.read_settings(model, root, env)
        switches = {env.get(name, "") for name in OFF_SWITCHES}
        if switches - NOT_SET or settings.get("autoCompactEnabled") is False:
            return 0
        told = number_in(env, "CLAUDE_CODE_AUTO_COMPACT_WINDOW")
        own = count_of(settings.get("autoCompactWindow"))  # not "auto"
        told = told or (own if own >= LEAST_TOLD_TOKENS else 0)
        reserve = RESERVE_LARGE_TOKENS if window >= LARGE_WINDOW else RESERVE_TOKENS
        if told:
            reserve = RESERVE_TOKENS
            window = min(window, max(told, LEAST_TOLD_TOKENS))
        usable = max(window - reserve, window // 2)  # half of a small one that was set
        percent = number_in(env, "CLAUDE_AUTOCOMPACT_PCT_OVERRIDE")
        if percent:
            usable = min(usable, max(window - OUTPUT_TOKENS, 1000) * percent // 100)
        return usable


class Codex(Dialect):
    label = "Codex"
    settings = ".codex/hooks.json"
    shell_variables = ("CODEX_CI", "CODEX_THREAD_ID")
    registered = WITH_COMPACTION + ("SubagentStart",)
    end_limit_s = 3
    reply_unit = ("utf-8", 1)
    compacts_at = 94
    home_variable = "CODEX_HOME"
    limit_file = "config.toml"
    told_limit = (
        r"\A(?:(?!\[).*\n)*?model_auto_compact_token_limit *= *([1-9][0-9_]{0,9})"
    )
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
    result = ("payload", "call_id", "exit_code", "output aggregated_output")
    result_head = r"\AChunk ID: (?:(?!Process running).*\n){1,5}?Output:\n"
    failure = r"\AChunk ID: (?:.*\n){1,3}?Process exited with code [1-9]"

    def read_row(self, row: Json) -> Row:
        found = super().read_row(row)
        if dig(row, "payload.name") == "exec":  # what a script runs has its own rows
            found.calls = []
        item = object_of(dig(row, "payload.item"))
        if text_of(item.get("id")).startswith("exec-"):
            found.calls = [self.read_item(item)]
            found.results = self.read_results({**item, "call_id": item["id"]})
        return found

    def read_item(self, item: Json) -> tuple[str, str, Json]:
        """What a script did (code mode), as a call."""
        changes = object_of(item.get("changes"))
        if changes:
            patch = "\n".join("*** Update File: " + path for path in changes)
            return call_of(item["id"], "apply_patch", patch)
        command = list_of(item.get("command"))[2:]  # without bash -lc
        return call_of(item["id"], "exec_command", {"command": command})


class GeminiCli(Dialect):
    label = "Gemini CLI"
    settings = ".gemini/settings.json"
    takes_comments = True
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
    instruction_files = ("GEMINI.md",)
    window = 1_048_576
    compacts_at = 50
    told_limit = r'"compressionThreshold"\s*:\s*(0\.\d{1,9}|1)\b'
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

    def adjust(self, event: Event, env: Env) -> None:
        """Its Stop has the text of the whole turn, with what earlier holds brought. The
        last line is enough to tell whether the transcript has caught up."""
        said = event.last_assistant_message.strip()
        event.last_assistant_message = said.rpartition("\n")[2]

    def read_row(self, row: Json) -> Row:
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
    takes_comments = True
    project_variable = "QWEN_PROJECT_DIR"
    shell_variables = ("QWEN_CODE",)
    registered = WITH_FAILURES
    fields = {"crons": "session_crons"}
    proofs = {"UserPromptSubmit": "submitted_prompt"}  # it comes before every request
    has_receipts = False  # the start's text goes into the system message
    compacts_at = 85
    told_limit = r'"autoCompactThreshold"\s*:\s*(0\.\d{1,9}|1)\b'
    reserve_tokens = 33_000
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


class CopilotCli(Dialect):
    label = "Copilot CLI"
    settings = ".github/hooks/ctx_hooks.json"
    user_settings = ".copilot/hooks/ctx_hooks.json"
    project_variable = "COPILOT_PROJECT_DIR"
    shell_variables = ("COPILOT_CLI",)
    registered = WITH_FAILURES
    is_flat = True
    more_settings = CLAUDE_SETTINGS
    runs_claudes = ("project",)
    home_variable = "COPILOT_HOME"
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

    def adjust(self, event: Event, env: Env) -> None:
        """Only its Stop names the transcript; it lies where the session's id says."""
        name = safe_name(event.session_id)
        path = join(self.own_folder(env), "session-state", name, "events.jsonl")
        event.transcript_path = event.transcript_path or path

    def read_row(self, row: Json) -> Row:
        found = super().read_row(row)
        has_failed = found.kind == "boundary" and not dig(row, "data.success")
        return Row() if has_failed else found


class Droid(Dialect):
    label = "droid"
    settings = ".factory/settings.json"
    takes_comments = True
    project_variable = "DROID_PROJECT_DIR"
    shell_variables = ("FACTORY_DISABLE_SETTINGS_PERSISTENCE", "BUN_PTY_LIB")
    registered = WITH_COMPACTION
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

    def read_row(self, row: Json) -> Row:
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
    proofs = {"Stop": "promptId"}  # at the end comes another, which can hold nothing
    unheard = NEVER_HEARD + ("SessionStart", "UserPromptSubmit")
    has_receipts = False
    more_settings = CLAUDE_SETTINGS
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

    def read_row(self, row: Json) -> Row:
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
        signals = read_object(join(dirname(transcript), "signals.json"))
        return Row({"window": count_of(signals.get("contextWindowTokens"))})


# By the word in the registered command. The launcher knows in which variable a client
# has the session's id; without one it never answers a call alone. install.py knows in
# GREETS which clients show the person a line of a hook.
DIALECTS = {
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
# What we keep of a session: session-<id>.json in the project's state folder. `facts`
# is what the transcript says; the rest is what events said and what we did about it.

SESSION_FILE = r"^session-.*\.json$"
SAID_KEPT = 250  # more than the signals that are looked at
NEVER_SAID = (0.0, "")
SIGN_OF_LIFE_S = 600
SESSIONS_LOOKED_AT = 200


def session_path(project: Project, session_id: str) -> str:
    return project.state("session-%s.json" % safe_name(session_id))


def read_session(path: str, session_id: str = "") -> Session:
    """The session in a file; a new one of this id if that cannot be used."""
    session = Session(load_state(path))
    is_another = session_id not in ("", session.id)
    if is_another or session.version != SESSION_VERSION:
        session = Session({"id": session_id})
    session.reading_mark = path + ".reading"
    return session


def load_session(project: Project, session_id: str) -> Session:
    return read_session(session_path(project, session_id), session_id)


def save_session(project: Project, session: Session) -> bool:
    data = json.dumps(session.as_dict(), separators=(",", ":"))
    return write_atomically(session_path(project, session.id), data)


def mark_said(run: Run, key: str, mark: str = "") -> None:
    """Remember that this was said: a signal by its path, an alert by its code."""
    said = run.session.said
    said.pop(key, None)  # the newest comes last
    said[key] = (run.now, mark)
    for old in list(said)[:-SAID_KEPT]:
        del said[old]


def heard_mark(session: Session, path: str) -> str:
    """The mark of a signal that the agent heard; "" if it did not, or if a compaction
    came since, whose summary may have lost it."""
    at, mark = session.said.get(path, NEVER_SAID)
    return mark if format_iso(at) > session.facts.compacted_at else ""


def is_running(pid: str) -> bool | None:
    """Whether the client's process runs; None if that cannot be asked: on Windows
    os.kill would end it."""
    if not pid.isdecimal() or IS_WINDOWS:
        return None
    try:
        os.kill(int(pid), 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass  # another user's
    return True


def is_open(session: Session, now: float) -> bool:
    """Whether a session is open in some window. If we do not know its client's process,
    it counts as open for ten minutes after its last sign of life."""
    if not session.id or session.ended_at:
        return False
    runs = is_running(session.client_pid)
    seen_at = max(session.seen_at, modified_at(session.transcript))
    return abs(now - seen_at) < SIGN_OF_LIFE_S if runs is None else runs


def is_same_client(one: Session, other: Session) -> bool:
    """Whether both ran in one process of a client: in one window."""
    return one.client_pid == other.client_pid != ""


def was_cleared(before: Session, session: Session) -> bool:
    """Whether the person left a session by /clear, in the client of this one."""
    return before.end_reason == "clear" and is_same_client(before, session)


def writer_of(project: Project, name: str) -> Session:
    """The session that a handoff belongs to; an empty one if we know none."""
    stem, _ = os.path.splitext(name)
    return read_session(project.state("session-%s.json" % stem))


def all_sessions(project: Project, since: float = 0.0) -> list[Session]:
    """The sessions of the project that are kept, the newest first."""
    files = list_files(project.home, SESSION_FILE)
    paths = [path for path, at in files if at >= since]
    sessions = map(read_session, paths[:SESSIONS_LOOKED_AT])
    return [session for session in sessions if session.id]


# =============================================================================
# Git
# =============================================================================
# Branch and commit are read from files, and so is how they moved: git logs each move
# of HEAD in logs/HEAD. We ask git what changed when a handoff is made, and what it
# tracks when a handoff or a signal waits. Nothing that a repository holds makes it run
# a program. If there is no git, or it is too slow, we do without its answer.

GIT_LIMIT_S = 0.6
LOG_LIMIT_BYTES = 64_000
CHANGED_LIMIT = 30
ONE_COMMIT = r"(?:commit|cherry-pick|revert)(?! \(amend)"  # in git's own words
# Nothing in a repository may make git run a program, ask, or write.
SAFE_GIT = (
    "--no-optional-locks --no-pager -c safe.bareRepository=explicit"
    " -c core.fsmonitor=false -c core.hooksPath=%s -c diff.external=" % os.devnull
).split()
# A clone without all objects would fetch them, with programs that its settings name.
# NOTHING is the value of a setting that is switched off by --config-env.
SAFE_GIT_ENV = {"GIT_ALLOW_PROTOCOL": "none", "NOTHING": ""}
OURS = (  # in a line of `git status`, which lists a new folder without its files
    r"^.. (?:.*/)?(?:\.caw/|\.context/(?:$|handoffs|signals|monitor-state|\.gitignore)"
    r"|\.claude/(?:$|hooks/(?:$|ctx_hooks\.py|\.gitattributes)))"
)
STATUS_WORDS = "status --porcelain --no-renames --ignore-submodules=dirty".split()
# With a filter of ours among them, so that no answer means that git failed.
FILTER_WORDS = (
    r"-c filter.ctx.clean= config --show-scope --name-only --get-regexp ^filter\."
).split()
TRACKED_WORDS = "--icase-pathspecs ls-files -z --recurse-submodules --".split()


def git_folder(root: str) -> str:
    """The git folder of a working tree; "" if there is none here or above."""
    for folder in upwards(root):
        path = join(folder, ".git")
        if isdir(path):
            return path
        told = read_text(path).partition("gitdir:")[2].strip()  # a worktree
        if told:
            return os.path.normpath(join(folder, told))
        if lexists(join(folder, "HEAD")):
            return ""  # git may take this folder's own settings, which may run things
    return ""


def read_head(root: str) -> tuple[str, str]:
    """(branch, short commit); ("", "") without git. A detached head is "commit …"."""
    folder = git_folder(root)
    head = read_text(join(folder, "HEAD")).strip() if folder else ""
    if is_commit(head):
        return "commit " + head[:10], head[:10]
    name = head.partition("ref: ")[2]
    if not name or name.endswith("/.invalid"):  # git keeps them elsewhere: reftable
        return "", ""
    branch = for_terminal(name.replace("refs/heads/", "", 1))
    return branch[:100], read_ref(folder, name)[:10]


def count_commits(root: str, commit: str) -> int:
    """How many commits moved HEAD since it was at this one; 0 if something else did,
    such as a reset, or git did not log it."""
    path = join(git_folder(root), "logs", "HEAD")
    start = max(0, size_of(path) - LOG_LIMIT_BYTES)
    log = read_bytes(path, LOG_LIMIT_BYTES, start).decode("utf-8", "replace")
    for count, line in enumerate(reversed(log.strip().split("\n")), 1):
        before, _, words = line.partition("\t")
        if not re.match(ONE_COMMIT, words):
            return 0
        if before.startswith(commit or "0000000"):
            return count
    return 0


def read_ref(folder: str, name: str) -> str:
    """The commit of a branch; a worktree shares its branches with the main folder."""
    shared = join(folder, read_text(join(folder, "commondir")).strip())
    commit = read_text(join(shared, name)).strip()
    if not is_commit(commit):
        packed = read_text(join(shared, "packed-refs"), STATE_LIMIT_BYTES)
        commit = packed.partition(" %s\n" % name)[0].rpartition("\n")[2]
    return commit if is_commit(commit) else ""


def is_commit(text: str) -> bool:
    return len(text) in (40, 64) and not text.strip("0123456789abcdef")


def find_git() -> str:
    """Where git is; "" if there is none. Windows itself would take one that lies in the
    project's folder."""
    name = "git.exe" if IS_WINDOWS else "git"
    for folder in os.get_exec_path():
        path = join(folder, name)
        if isabs(path) and os.access(path, os.X_OK):
            return path
    return ""


def run_git(root: str, words: list[str], limit_s: float = GIT_LIMIT_S) -> str:
    """What git prints in a folder; "" if it fails, is too slow, or there is none."""
    git = find_git()
    if not git or not git_folder(root):
        return ""
    # git's own variables may name another repository: it sets them for its hooks
    env = {name: os.environ[name] for name in os.environ if name[:4] != "GIT_"}
    env.update(SAFE_GIT_ENV)
    code, told = run_program([git, *SAFE_GIT, *words], root, env, limit_s)
    return "" if code else told


def run_program(
    words: list[str],
    folder: str | None = None,
    env: Env | None = None,
    limit_s: float = 20.0,
) -> tuple[int, str]:
    """Exit code and stdout; 127 and why, if it cannot be run or takes too long."""
    import subprocess

    quiet = subprocess.DEVNULL
    try:
        done = subprocess.run(
            words,
            cwd=folder,
            env=env,
            stdin=quiet,
            stdout=subprocess.PIPE,
            stderr=quiet,
            timeout=limit_s,
        )
    except (OSError, subprocess.SubprocessError) as error:
        return 127, str(error)
    return done.returncode, os.fsdecode(done.stdout)


def changed_files(root: str) -> list[str]:
    """The lines of `git status --porcelain` but our own, at most CHANGED_LIMIT."""
    # Git would run the filters of the repository's own settings on changed files.
    filters = run_git(root, FILTER_WORDS)
    if not filters:
        return []  # it is too slow, or older than 2.26: we cannot switch them off
    names = re.findall(r"(?m)^(?:local|worktree)\t(.*)", filters)
    words = ["--config-env=%s=NOTHING" % name for name in names]
    told = run_git(root, words + STATUS_WORDS)
    lines = told.encode("utf-8", "replace").decode().split("\n")
    lines = [line for line in lines if line.strip() and not re.search(OURS, line)]
    return lines[:CHANGED_LIMIT]


# --- what came with the repository: it speaks to the agent, not to the person

NOTED_LIMIT_BYTES = 64_000_000  # a clone may hold many files
PLAIN_INDEX = (b"", b"dirc\0\0\0\2", b"dirc\0\0\0\3")  # version 4 shortens the names
# Our folders, or signs that names are elsewhere: in a split or sparse index, in a
# submodule's.
INDEX_SIGNS = (b"signals", b"handoffs", b"link\0", b"sdir\0", b"\0\0\xe0\0")


def is_from_repository(project: Project, path: str) -> bool:
    """Whether a signal or handoff is a stranger's: git tracks it, or it was there
    before this user's first run, or the folder of a session's signals was."""
    if not project.strangers:
        words = [*TRACKED_WORDS, project.real_name(project.context)]
        # if git fails, what a later pull brought passes for the user's own
        tracked = run_git(project.root, words) if may_track(project.root) else ""
        noted = read_text(project.state("cloned"), NOTED_LIMIT_BYTES)
        project.strangers = set((tracked + noted).lower().split("\0"))
    name = project.real_name(path).lower()
    return not project.strangers.isdisjoint((name, dirname(name)))


def may_track(root: str) -> bool:
    """Whether git may track a signal or handoff. A plain index names each file in full,
    so most runs need not ask git."""
    index = read_bytes(join(git_folder(root), "index"), NOTED_LIMIT_BYTES).lower()
    is_plain = index[:8] in PLAIN_INDEX and len(index) < NOTED_LIMIT_BYTES
    return not is_plain or any(sign in index for sign in INDEX_SIGNS)


# =============================================================================
# Project
# =============================================================================
# A project is the folder in which the client was started, or its nearest parent,
# if it has a context folder. Our state about it is in the user's home, so no clone
# can forge it. A run holds the project's one lock while it works; a check command
# runs without it.

PROJECT_NAME_LIMIT = 100 if IS_WINDOWS else 200  # of 260 for a path there
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
# What install.py removes of ours: in a project's state folder, in .context, in .caw
# and in the cache.
STATE_FILES = (
    r"(session-.*|(agreed|metrics|limits|install-\w+)\.json|events\.jsonl|errors\.log"
    r"|cloned|edits|lock|root|paused|swept|greeted|ctx_hooks\.py\.\w+)"
    r"(\.corrupt|\.tmp-\d+)?"
)
RUNTIME_FILES = (
    r"monitor-state\.json(\.corrupt|\.tmp-\d+)?"
    r"|signals/(global|sessions/[^/]+)/[^/]+\.md"
)
WORKFLOW_FILES = r"auto-state\.json(\.corrupt|\.tmp-\d+)?"
WORKFLOW_IGNORE = "/auto-state.json\n/.gitignore\n"
CACHE_FILES = r"python3|bytecode/.*ctx_hooks\.[^/]*\.pyc[^/]*|calm/[a-z]+-[^/]*"
GITIGNORE = """\
# Runtime files of ctx_hooks. The context files beside this one are yours.
/signals/
/handoffs/
/monitor-state.json
/.gitignore
"""


class Project:
    """A project's folders and settings."""

    def __init__(self, root: str, settings: Settings, env: Env) -> None:
        self.root = root
        self.settings = settings
        self.context = join(root, settings.text("context_dir"))
        self.home = project_state_folder(root, env)
        self.cache = cache_folder(env)
        self.strangers: set[str] = set()  # what came with the repository, once asked

    def state(self, name: str) -> str:
        """The path of one of our own files about this project."""
        return join(self.home, name)

    def path(self, *names: str) -> str:
        """A path below the context folder."""
        return join(self.context, *names)

    def relative(self, path: str) -> str:
        """A path as it is named inside the project."""
        try:
            inside = relpath(path, self.root)
        except ValueError:  # another drive
            return path
        return path if inside.startswith("..") else inside.replace(os.sep, "/")

    def real_name(self, path: str) -> str:
        """The same with links resolved, as git knows it."""
        return "/".join(parts_inside(path, self.root))


def find_project(start: str, env: Env) -> Project | None:
    """The project of a folder; None if there is none, or it is not ours to work in."""
    if not isabs(start) or "\0" in start or not home_folder(env):
        return None
    start = os.path.normpath(start)
    for folder in upwards(start):
        is_start = folder == start
        may_read = is_start or is_ours(join(folder, ".contextrc"))
        settings = read_settings(folder if may_read else "", env)
        project = Project(folder, settings, env)
        may_use = is_start or is_ours(project.context)
        if may_use and isdir(project.context):
            return project if is_safe_to_use(project) else None
    return None


def is_ours(path: str) -> bool:
    """A parent's file counts only if it is this user's or root's, and so is a link to
    it: in a shared folder somebody else could have put it there."""
    if IS_WINDOWS or not exists(path):
        return True
    owners = {os.stat(path).st_uid, os.lstat(path).st_uid}
    return owners <= {0, os.getuid()}


def is_safe_to_use(project: Project) -> bool:
    """Whether none of our folders is a link: it could lead our writes elsewhere."""
    parts = parts_inside(project.context, project.root)
    if parts in ([], ["."]) or is_private(parts):
        return False
    return not any(islink(project.path(name)) for name in RUNTIME_FOLDERS)


def is_private(parts: list[str]) -> bool:
    """Whether a path leads through the folder of git or of Claude Code."""
    return any(part.lower() in (".git", ".claude") for part in parts)


def prepare_folders(project: Project) -> bool:
    """The state folder, and a .gitignore that names our files in the context folder.
    False if there can be no state: the home is read-only."""
    make_folder(project.home)
    if not os.access(project.home, os.W_OK):
        return False
    if not exists(project.state("root")):
        note_clone(project)
        write_atomically(project.state("root"), project.root)  # for `status --all`
    path = project.path(".gitignore")
    if not lexists(path):
        write_atomically(path, GITIGNORE)
    return True


def note_clone(project: Project) -> None:
    """Before this user's first run here: what is there was written by somebody else.
    A script may choose its session's id, so a folder of signals may be for it."""
    names = []
    for folder in ("signals/global", "signals/sessions", "handoffs"):
        path = project.path(folder)
        names += [project.real_name(path) + "/" + name for name in list_names(path)]
    write_atomically(project.state("cloned"), "\0".join(names))


# --- the user's folders


def home_folder(env: Env) -> str:
    """The user's home; "" if there is none. Never guessed: that could be root's."""
    home = env.get("USERPROFILE" if IS_WINDOWS else "HOME", "")
    return home if isabs(home) else ""


def user_folder(env: Env, variable: str, below_home: str) -> str:
    """Our folder in one of XDG, or in its default below the home; on Windows in
    %LOCALAPPDATA%. The caller made sure that there is a home."""
    given = env.get("LOCALAPPDATA" if IS_WINDOWS else variable, "")
    if not isabs(given):
        given = join(home_folder(env), below_home)
    return join(given, "ctx_hooks")


def state_folder(env: Env) -> str:
    return user_folder(env, "XDG_STATE_HOME", ".local/state")


def cache_folder(env: Env) -> str:
    """Bytecode and launcher files, where the launcher looks, too."""
    folder = user_folder(env, "XDG_CACHE_HOME", ".cache")
    return join(folder, "cache") if IS_WINDOWS else folder


def settings_path(env: Env) -> str:
    """The user's own settings for all projects."""
    return join(user_folder(env, "XDG_CONFIG_HOME", ".config"), "contextrc")


def read_settings(root: str, env: Env) -> Settings:
    """The user's settings for all projects, then the project's own."""
    settings = Settings()
    settings.read(read_text(settings_path(env)))
    if root:
        path = join(root, ".contextrc")
        settings.read(read_text(path, SETTINGS_LIMIT_BYTES), is_projects=True)
    return settings


def project_state_folder(root: str, env: Env) -> str:
    """Where our own files about a project lie."""
    path = os.path.normcase(realpath(root))  # C: and c: are one
    name = safe_name(path, PROJECT_NAME_LIMIT)
    return join(state_folder(env), name)


# --- the lock


def take_lock(project: Project, wait_s: float) -> IO[bytes] | None:
    """The project's lock, an open file: closing it releases the lock. None if another
    process holds it for so long."""
    deadline = time.monotonic() + wait_s
    file = open(project.state("lock"), "a+b")
    while not try_lock(file):
        if time.monotonic() >= deadline:
            file.close()
            return None
        time.sleep(LOCK_POLL_S)
    return file


def try_lock(file: IO[bytes]) -> bool:
    try:
        if sys.platform == "win32":
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
# Known skills let the agent write its handoff here.
SKILL_HANDOFF = ".claude/ll-continue-prompt.md"


def may_be_delivered(project: Project, path: str) -> bool:
    """Whether a file may reach the agent: it is inside the project with all links
    resolved, not below .git or .claude (SKILL_HANDOFF aside), and no secret."""
    parts = parts_inside(path, project.root)
    is_secret = any(re.fullmatch(SECRET_NAMES, part) for part in parts)
    if not parts or is_secret:
        return False
    return not is_private(parts) or "/".join(parts) == SKILL_HANDOFF


# --- whether to speak at all


def is_switched_off(project: Project, env: Env, now: float) -> bool:
    """By CTX_HOOKS_DISABLE, or by `pause`: its file holds an epoch, or 0 for no end."""
    if env.get("CTX_HOOKS_DISABLE", "") not in ("", "0"):
        return True
    path = project.state("paused")
    until = read_text(path).strip()
    is_over = until.isdecimal() and 0 < int(until) <= now
    return exists(path) and not is_over


# =============================================================================
# Config
# =============================================================================
# .contextrc is a small subset of YAML: nested keys by indentation, scalars, lists
# as [a, b] or as "- a" lines, comments, quotes. A bad line or list entry is skipped
# and reported with line and column.

CONTEXT_FILES = [
    "CONSTITUTION.md",
    "TASKS.md",
    "CONVENTIONS.md",
    "DECISIONS.md",
    "LEARNINGS.md",
    "AGENT_PLAYBOOK.md",
]
# those of every client: a handoff in one of them is found and removed again
INSTRUCTION_FILES = "CLAUDE.md CLAUDE.local.md AGENTS.md GEMINI.md QWEN.md".split()
SEVERITIES = ("info", "warning", "critical")
SWITCHES = ("true", "false", "yes", "no", "on", "off")
SETTINGS_LIMIT_BYTES = 16_000  # a longer file would slow down every hook


def as_path(text: str) -> str:
    parts = text.replace("\\", "/").split("/")
    is_odd = text[:1] in ("", "[", "/", "~")  # a "[" is a list that is not closed
    if is_odd or ".." in parts or ":" in parts[0]:
        raise ValueError("must be a path inside the project")
    return text


def as_number(text: str) -> str:
    if not re.fullmatch(r"\d{1,9}(\.\d{1,6})?", text):
        raise ValueError("must be a number")
    return text


def as_tokens(text: str) -> str:
    """200000, 200k or 1m, as a plain number."""
    given = text.lower().replace("_", "")
    if not re.fullmatch(r"\d{1,9}[km]?", given):
        raise ValueError("must be a number of tokens, such as 200000 or 200k")
    return given.replace("k", "000").replace("m", "000000")


def as_threshold(text: str) -> str:
    """auto, a percentage, or a number of tokens such as 300k."""
    if not re.fullmatch(r"(?i)auto|[1-9]\d?%?|100%?|\d{1,6}[km]", text):
        raise ValueError("must be auto, a percentage, or tokens such as 300k")
    return text.lower().rstrip("%")


def as_pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(error) from None
    return text


def as_plain_pattern(text: str) -> str:
    """A project's pattern: plain text, in which * stands for anything. A regular
    expression of a stranger's could freeze the terminal."""
    if not re.search(r"\w", text):
        raise ValueError("name a word of the prompt")
    pattern, *others = map(re.escape, text.split("*", 8))
    for number, part in enumerate(others, 1):
        # takes the first place that fits, and never looks back
        pattern += r"(?=(.{0,200}?%s))\%d" % (part, number)
    return pattern


def as_yours(text: str) -> str:
    raise ValueError("counts only in your own settings, ~/.config/ctx_hooks/contextrc")


def as_unknown(text: str) -> str:
    raise ValueError("unknown setting")


def one_of(*choices: str) -> Check:
    """A check that takes only these words, in any case."""
    known = {choice.lower(): choice for choice in choices}

    def as_choice(text: str) -> str:
        if text.lower() not in known:
            raise ValueError("must be one of: " + ", ".join(choices))
        return known[text.lower()]

    return as_choice


as_switch = one_of(*SWITCHES)

# A setting's default (a list, if it takes several values), and the check of one value,
# which may normalise it.
SETTINGS: dict[str, Setting] = {
    "context_dir": (".context", as_path),
    "gate.mode": ("directive", one_of("directive", "off")),
    "gate.files": (CONTEXT_FILES, as_path),
    "gate.subagent_files": (["CONSTITUTION.md", "CONVENTIONS.md"], as_path),
    "gate.checkpoint": ("false", as_switch),
    "monitor.inject_min_severity": ("warning", one_of(*SEVERITIES)),
    "monitor.notify": ("off", one_of("off", "bell", "desktop")),
    "monitor.context_window": ("0", as_tokens),
    "handoff.enabled": ("true", as_switch),
    "handoff.threshold": ("auto", as_threshold),
    "audit.stale_days": ("14", as_number),
    "startup.enabled": ("true", as_switch),
    "startup.files": ([], as_path),
    "startup.max_age_hours": ("72", as_number),
    "startup.budget_chars": ("8000", as_number),
    "startup.require_ack": ("auto", one_of("auto", *SWITCHES)),
    "startup.retry_backoffs_s": (["1", "2", "5", "10"], as_number),
    "startup.file_fallback_after_attempts": ("3", as_number),
    "startup.fallback_file": ([], one_of(*INSTRUCTION_FILES)),
    "auto.phases": ([], str),
    "auto.about.*": ("", str),
    "auto.done_when.*": ("", str),
    "auto.check_timeout_s": ("120", as_number),
    "wrap.ready_patterns": ([], as_pattern),
}
UNKNOWN = ("", as_unknown)
# These settings reach outside the conversation, so a project's file has other checks.
PROJECT_SETTINGS = {
    **SETTINGS,
    "monitor.notify": ("off", as_yours),
    "wrap.ready_patterns": ([], as_plain_pattern),
}


class Settings:
    """The values of a .contextrc as checked texts, and what is wrong with it."""

    def __init__(self) -> None:
        self.values: dict[str, list[str]] = {}
        self.problems: list[Value] = []  # line, column, what

    def words(self, name: str) -> list[str]:
        """The entries of a list."""
        default, _ = find_setting(SETTINGS, name)
        usual = default if isinstance(default, list) else [default]
        return self.values.get(name, usual)

    def text(self, name: str) -> str:
        return self.words(name)[-1]

    def number(self, name: str) -> float:
        return float(self.text(name))

    def is_on(self, name: str) -> bool:
        return self.text(name) in ("true", "yes", "on")

    def read(self, text: str, is_projects: bool = False) -> None:
        """Take the values of one file's text; later files win."""
        known = PROJECT_SETTINGS if is_projects else SETTINGS
        for name, values in parse_keys(text):
            default, check = find_setting(known, name)
            if values or isinstance(default, list):
                self.take(name, check, values)

    def take(self, name: str, check: Check, values: list[Value]) -> None:
        """The values of one setting. A bad one is reported, and drops only itself."""
        good = []
        for line, column, text in values:
            try:
                good.append(check(text))
            except ValueError as error:
                self.problems.append((line, column, "%s: %s" % (name, error)))
        if good or not values:
            self.values[name] = good


def find_setting(known: dict[str, Setting], name: str) -> Setting:
    """A setting's row; those of a phase share one."""
    group = name.rpartition(".")[0] + ".*"
    return known.get(name) or known.get(group) or UNKNOWN


def parse_keys(text: str) -> list[tuple[str, list[Value]]]:
    """The keys of a .contextrc with dots, and their values."""
    found: list[tuple[str, list[Value]]] = []
    parents: dict[int, str] = {}  # column -> key that this line is inside of
    for line, content in enumerate(text.split("\n"), 1):
        words = strip_comment(content).strip()
        column = content.index(words) + 1
        if words in ("", "---"):
            continue
        if words.startswith("- ") and found:
            found[-1][1].append((line, column, unquote(words[2:])))
            continue
        key, colon, value = words.partition(":")
        parents = {at: parent for at, parent in parents.items() if at < column}
        parents[column] = unquote(key)
        entries = split_list(value.strip() if colon else words)  # words alone are wrong
        values = [(line, column, unquote(entry)) for entry in entries]
        found.append((".".join(parents.values()), values))
    return found


def strip_comment(line: str) -> str:
    """A line without its comment; a # inside quotes or a word is none."""
    if "#" not in line:  # most runs compile no pattern for this
        return line
    text = r"""((?:[^'"#]|"[^"]*"|'[^']*'|(?<=\S)#|['"])*)"""
    return re.sub("^" + text + ".*", r"\1", line)  # fits every line, so it is quick


def unquote(text: str) -> str:
    return re.sub(r"""\A(['"])(.*)\1\Z""", r"\2", text.strip())


def split_list(text: str) -> list[str]:
    """The entries of [a, b]; one value is a list of one. Quotes may hold a comma."""
    if not (text.startswith("[") and text.endswith("]")):
        return [text] if text else []
    return re.findall(r""""[^"]*"|'[^']*'|[^\s,][^,]*""", text[1:-1])


# =============================================================================
# Recorder
# =============================================================================
# events.jsonl has one row for each thing said or decided, with the reason; `why` shows
# them. When it is full, the older half is dropped.
#
#     {"at": "2026-02-03T10:45:00Z", "event": "signal:delivered", "session": "…", …}

EVENTS_LIMIT_BYTES = 400_000
ERRORS_LIMIT_BYTES = 40_000


def record(run: Run, event: str, **details: object) -> None:
    """Write one row for `why`."""
    row: Json = {"at": format_iso(run.now), "event": event}
    row["session"] = run.session.id
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


def read_events(project: Project) -> list[Json]:
    """The recorder's rows, oldest first."""
    content = read_bytes(project.state("events.jsonl"), 2 * EVENTS_LIMIT_BYTES)
    rows = map(parse_object, content.split(b"\n"))
    return [row for row in rows if row]


def read_metrics(project: Project) -> Metrics:
    return Metrics(load_state(project.state("metrics.json")))


def count_metric(run: Run, name: str) -> None:
    """Count one outcome of a delivery."""
    metrics = read_metrics(run.project)
    setattr(metrics, name, getattr(metrics, name) + 1)
    write_object(run.project.state("metrics.json"), metrics.as_dict())


def count_success(run: Run) -> None:
    """Count a delivery that arrived, even after it was given up; move the averages."""
    metrics, delivery = read_metrics(run.project), run.session.delivery
    is_first = delivery.attempts == 1
    metrics.failed -= delivery.state == "failed"
    metrics.succeededOnFirstTry += is_first
    metrics.succeededAfterRetry += not is_first
    count = metrics.succeededOnFirstTry + metrics.succeededAfterRetry
    more = delivery.attempts - metrics.averageAttemptsToSuccess
    longer_s = max(0.0, run.now - delivery.first_at) - metrics.averageTimeToSuccess
    metrics.averageAttemptsToSuccess += more / count
    metrics.averageTimeToSuccess += longer_s / count
    write_object(run.project.state("metrics.json"), metrics.as_dict())


# =============================================================================
# Words
# =============================================================================
# What the person said, where there is no room for all of it. Each sentence has a
# weight, and choose_words keeps the heaviest, of those the newest. What is kept is
# kept to the letter, and a gap shows as […].

GAP = "[…] "
TEXT_COST = 4  # characters that the quoting of a text takes
SENTENCE_LIMIT = 800  # characters; a longer one is taken in pieces
LONG = 60  # characters; for each so many, a sentence ranks one lower
SHORT_LEAD = 22  # characters of "Wait." and its like: the next sentence says what
FIRST_FEW = 30  # sentences of one text and weight; more wait for other texts
LAST_WHOLE, WHOLE_SHARE = 3, 5  # the first and the last three, up to a fifth each
WHOLE = 99  # their rank
RARE, RARITY = 2, 3  # said twice is rare; what a sentence of rare words gains

# A sentence ends with its line, or at a full stop: not that of `2.` or an initial,
# and before a small letter only behind a longer word (`etc. and`).
SENTENCE_END = (
    r"[\n.!?…。！？](?:(?<=\n)\s*|(?<=[。！？])[。！？」』”）]*\s*"
    r"|(?<=\S[!?…])[.!?…]{0,9}[\"')\]»”*]*\s+"  # a run may be long
    r"|(?<=\S\.)(?<!\b\w\.)(?<!\b\d\d\.)[\"')\]»”*]*\s+"
    r"(?:(?=[^\sa-zà-ÿа-яё])|(?<=\w\w\w\w\.\s)))"
)
PIECE = r"(?s).{1,%d}(?:\s+|\Z)|.{%d}" % (SENTENCE_LIMIT, SENTENCE_LIMIT)
FENCED = r"(?ms)^([ \t]*```.*?^[ \t]*```[^\n]*\n?)"
LIST_ITEM = r"\s*(?:[-*•·+–]|\(?\w{1,2}[.):])\s"
LOG_LINE = (  # pasted, not said
    r"\s*(?:\[?\d{4}-\d\d-\d\d[T ]\d|\[?\d\d:\d\d:\d\d|at [\w.$<>]+\(|File \"|Traceback"
    r"|\[?(?:INFO|DEBUG|WARN(?:ING)?|ERROR|FATAL|TRACE)\b|npm ERR|[+-]{3} |@@ |[$#%] "
    r"|[\w.]+(?:Error|Exception):|[\w./-]+:\d+:\d|[-=]{3} |<[/\w-]+>|[Ww]arning: "
    r"|error\b\W)"
)
WORD = r"(?:[cdjlmnst]|qu)'(?=\w)|\w+(?:'\w+)*|[|^]"
CLAUSE_BORDER = r"(?:[,;:(—–，；：、]\s*)+"
FILLERS = (  # what may stand before an order
    r"\^ (?:(?:please|and|but|so|also|ok|okay|then|now|well|yes|yeah|hey|just|und|aber"
    r"|bitte|et|mais|donc|alors|y|pero|por favor|mas|então|ma|poi|per favore|maar|dus"
    r"|ale|więc|proszę|и|но|так|пожалуйста) )+"
)
UNIT = r"[^\W\d_\u3040-\u9fff]+|[\u3040-\u9fff]{1,2}"  # a word, or about one
SEVERAL_WORDS = r"\w\W+\w|\w:|[^\0-\x7f]"
WORD_START = r"(?<!\S)\S|[\u3040-\u9fff\uac00-\ud7af]"  # some write without spaces
# A number, code, a path, a name.
VALUE_SET = r"\d|`|\w[/_]\w|\w\.\w|[二三四五六七八九十百千万]{2}"

# The tables: what a sentence says if it holds one of these. `*` is any ending, `^`
# the beginning of a clause, `| ^` of one that follows another (`tabs, not spaces`);
# the longest entry counts (`don't know` is no `don't`).
# A line that begins with # names the language; an underscore is a blank, so that no
# spell checker takes a foreign word for a slip.
CORRECTS = """
# English
disregard, nevermind, never mind, i meant, i misspoke, i mistyped, i misread,
correction, scratch that, strike that, undo that, changed my, changing my, changed our,
made up my, second thoughts, on reflection, come to think, take that back, take it back,
taking back, taking that, took back, let me revise, let me rephrase, let me correct,
let me restate, let me clarify, let me rethink, let me change, let me be clear,
let me start over, let me reconsider, my mistake, my error, i was wrong, i was mistaken,
i'm wrong, i stand corrected, i got that wrong, oh wait, hmm wait, but wait, well wait,
^ hold on, ^ hang on, let's go with, let's go for, let's settle, let's skip, finalized,
finalised, stick to, sticking to, from now, from this moment, henceforth, hereafter,
forthwith, going forward, moving forward, as of today, as of this,
effective immediately, starting now, starting tomorrow, new rule, new rules, new policy,
new requirement, new requirements, new constraint, new decision, updated rule,
updated plan, updated requirement, just this once, sorry i, in favor of, in favour of,
never again, one correction, small correction, that's off, is off the table,
off the table, it's settled, locked in, set in stone, last word, has been decided,
^ no | ^ i meant, no wait, final answer, ^ final, my final, i've thought about it,
thought about it again, going with, we'll keep, we will keep, we chose, we have chosen,
for the record, consider the matter, that's final, is out of scope, ^ scrap, scrap the,
^ cancel the, ^ undo, ^ revert to, ^ skip, ^ drop, ^ hmm | ^ no, ^ no | ^ use,
^ no | ^ wait, ^ from here on, ^ as of now, i'd prefer, we've settled, the team settled,
^ use instead, will be used instead, decided against, let's not, let's go back to,
let's switch, let's change, let's revert, let's forget, let's drop, let's cancel,
let's scrap, let's postpone, let's defer, let's hold off, let's use, let's call,
let's name, let's limit, let's cap, let's agree, let's say, let's assume, let's store,
let's target, let's support, let's only, let's always, let's never, i've decided,
i have decided, we have decided, we're going with, we are going with, we'll go with,
we will go with, i'll go with, i'm going with, we'll use, we will use, we'll stick,
we will stick, we are sticking, we're sticking, we're staying, we are staying,
we are switching, we're switching, we agreed, it was agreed, my preference is,
my choice, my pick, our choice, our decision, the plan is now, new plan, new deadline,
new limit, new name, has changed, has moved to, was moved to, changed to, postponed,
moved up, pushed back, brought forward, now due, no longer need, no longer want,
no longer use, no longer support, no longer valid, no longer applies, we no longer,
not anymore, don't need that anymore, is cancelled, is canceled, is dropped,
is obsolete, is outdated, on hold, ^ pause, ^ stop working, to correct myself,
i correct myself, what i actually, what i really, i really meant, meant to say,
should have said, mistyped, misspoke, wrong file, wrong name, ignore previous,
ignore everything, previous message, last message, earlier message, said earlier,
said before, told you before, told you earlier, as i said, like i said, i told you,
i asked you, ^ switch, ^ swap, ^ go back, ^ back to, ^ change of, ^ revise, ^ amend,
^ on second, ^ second thought, ^ rather, settled, it is settled, that settles it,
got the numbers mixed, mixed up, got that mixed, i mixed, let us not, let us postpone,
let us drop, let us keep, let us use, let us skip, let us leave, my last word,
i changed my mind, changed my mind, not what i asked, not what i wanted,
not what i meant, not like that, not like this, it is then, the winner is,
is the winner, we have a winner, that's not what i asked, that's not what i wanted,
that's not what i meant, that's not what i said, thinking about it more,
thinking about it again, thinking it over, now that i think, hold that thought,
design after all, one after all, version after all, option after all, plan after all,
the deadline moved, deadline moved, got moved, has been moved, have been moved,
is moved, moved from, is now on, is now at, is now due, has shifted, shifted to,
slipped to, slips to, pushed to, pushed it to, rescheduled, is delayed, is postponed,
been postponed, was postponed, changed the plan, plan changed, plans changed,
plan has changed, the correct, correct figure, wrong number, wrong date, wrong link,
wrong port, should read, should say, it should have been, i mixed up, i typed,
i miswrote, final call, my call, the call is, we're doing, we are doing, that one it is,
discard, scratch what, scratch my, undo my, let me fix that, i got it wrong,
not what i said, wins, supplants, in place of, | ^ it should be, it should be the,
i made a typo, is out for good, what i meant, misremembered, i misheard, i misjudged,
my preference, we start with, the right one is, the real number, the actual number,
the actual value, the actual name, instead of that, got the order wrong,
got the name wrong, got the date wrong, got it wrong,
# Deutsch
nicht mehr, keine mehr, kein mehr, stattdessen, anstelle, vergiss, vergesst,
vergessen wir, ignorier*, doch nicht, doch lieber, doch besser, ich meine, gemeint,
korrektur*, korrigier*, anders überlegt, meinung geändert, ^ nee, ^ nö, ^ doch,
ach nein, oh nein, ^ warte, lassen wir, lasst das, lass es, endgültig*, entschied*,
beschlossen, beschluss, dabei bleib*, bleiben dabei, bleibt es bei, bleiben bei,
bleiben wir, ab jetzt, ab sofort, ab heute, ab nun, ab morgen, von nun an, von jetzt an,
von heute an, künftig*, zukünftig*, in zukunft, neue regel, neuer plan, neue vorgabe,
neuer name, nehme zurück, nehme das zurück, zurück zu, zurück auf, verwirf, verworfen,
streich*, gilt nicht, gilt nun, gilt jetzt, gilt ab, mein fehler, geirrt, verschrieben,
vertan, umgestellt, wechseln zu, jetzt doch, hinfällig, das war falsch, war falsch,
umentschieden, anders entschieden, habe mich entschieden, hab mich entschieden,
wir bleiben, ^ lieber, lieber doch, wir nehmen, wir machen, fliegt raus, kommt weg,
entfällt, nicht wieder ein, nicht wieder einbauen, sorry | ^ ich meinte, ich meinte,
letzte antwort, kannst du vergessen, könnt ihr vergessen, diesmal nicht, steht fest,
ist_entschieden, ist_beschlossen, planänderung, brauchen wir nicht mehr, verschoben,
verschiebt, verschieben, vorverlegt, verlegt auf, vorgezogen, falsche nummer,
falscher name, falsches datum, vertippt, tippfehler, richtig_ist, korrekt_ist,
doch anders, wir machen doch, nehmen doch, vom tisch, gestrichen, ich habe mich geirrt,
habe mich vertan, nicht mehr nötig, doch mit, doch das, doch die, doch den, doch der,
doch dem, plan geändert, gemeint war, was ich meinte, verlegt,
# Français
à la place, au lieu, plutôt que, oublie, oubliez, oublions, ignorez, laisse tomber,
laissez tomber, je voulais dire, je me suis trompé, je me suis trompée, trompé,
mon erreur, je corrige, rectific*, ah non, oh non, ^ attends, ^ attendez,
changé d' avis, change d' avis, changement de plan, changement de programme, définitif,
définitive, décidé, décidée, décision, tranché, on garde, on part sur, désormais,
dorénavant, à partir de maintenant, à partir d', à partir de demain, dès maintenant,
dès à présent, dès aujourd'hui, nouvelle règle, nouvelle consigne, tout compte fait,
réflexion faite, à la réflexion, mais plutôt, revenons, annule, annulez, annulé,
n' est plus, plus jamais, n' utilise plus, c' est plus, abandonn*, obsolète,
j' ai changé, contrairement à, je me corrige, me corrige, je parlais de, je parlais des,
je parlais du, je voulais parler, on_reste, on repart sur, on passe à, on revient à,
on_abandonne, on laisse tomber, réponse finale, réponse définitive, cette fois on,
cette fois ci, pas cette fois, n' a plus besoin, plus besoin de, on n' a plus besoin,
c' est décidé, c' est tranché, c' est acté, on a décidé, ^ plutôt, ^ finalement,
je retire, je reviens sur, repoussé, repoussée, reporté, reportée, décalé, décalée,
avancé au, avancée au, mauvais numéro, mauvaise date, faute de frappe, le bon chiffre,
la bonne date, on a choisi, on choisit, j' ai choisi, on a tranché, n' est plus utilisé,
on annule, on change, finalement par, finalement avec, finalement on, le plan a changé,
ce que je voulais dire, avancé, avancée, passe du, passe au, déplacé, déplacée,
# Español
ya no, en vez de, en lugar de, en su lugar, mejor no, mejor dicho, mejor con, olvida,
olvide, olvidad, olviden, olvídate, olvidemos, ignoren, me equivoqué, me he equivocado,
mi error, error mío, corrección, corrijo, ah no, ^ espera, ^ espere, cambié de,
cambio de planes, cambio de plan, cambiado de, cambiamos de, definitiv*, decidí,
decisión, quedamos en, a partir de ahora, a partir de hoy, de ahora en adelante,
en adelante, desde ahora, desde hoy, desde ya, nueva regla, nueva norma,
pensándolo bien, vuelve a, cancela, cancelado, descarta, descartado, queda anulado,
anulad*, me refería, me refiero, quise decir, quería decir, esta vez no, he cambiado,
cambio de opinión, seguimos con, nos quedamos, volvemos a, respuesta final,
respuesta definitiva, hemos decidido, vamos con, mejor usa, mejor usemos, ^ mejor,
se descarta, queda descartado, al final usamos, retiro lo, retiro lo dicho,
se ha movido, movido al, movida al, aplaza*, pospuest*, retrasad*, adelantad*,
número equivocado, fecha equivocada, nombre equivocado, errata, lo correcto,
el correcto, la correcta, hemos elegido, hemos cambiado, al final empezamos,
al final vamos, el plan ha cambiado, lo que quería decir, pasa del, pasa al, se pasó a,
se cambió a, se trasladó,
# Português
já não, em vez do, em vez da, ao invés, no lugar de, esqueça, esquece, esqueçam,
ignorem, deixa pra lá, deixa para lá, queria dizer, me enganei, enganei me, correção,
corrigindo, retifico, ah não, ^ calma, mudei de, mudança de planos, mudança de plano,
mudamos de, decidi, decisão, vamos com, vamos ficar com, a partir de agora,
a partir de hoje, daqui em diante, daqui para a frente, daqui pra frente,
de agora em diante, doravante, nova regra, pensando bem, pensando melhor, voltamos,
volta para, descarte, não mais, mas sim, me corrijo, quis dizer, eu quis dizer,
desta vez não, dessa vez não, por esta vez, resposta final, resposta definitiva,
decidido, está decidido, decidimos, vamos usar, melhor usar, ^ melhor,
não precisamos mais, não usamos mais, foi descartado, retiro o que, retiro o, adiad*,
antecipad*, remarcad*, mudou para, passou para, número errado, data errada, nome_errado,
erro_de digitação, o correto, a correta, o certo é, escolhemos, o plano mudou,
no final vamos, o que eu quis dizer, passa do, passa para, foi movida, foi movido,
foi transferid*,
# Italiano
al posto, piuttosto che, dimentica, dimenticate, dimentichiamo, ignorate,
lascia perdere, lascia stare, lasciamo perdere, volevo dire, mi sono sbagliato,
mi sono sbagliata, ho sbagliato, mio errore, correggo, correzione, rettific*, ^ aspetta,
^ aspettate, cambio idea, cambio di programma, cambio di piano, ripensandoci,
pensandoci bene, d' ora in poi, d' ora in avanti, da ora in poi, da adesso, da oggi,
da domani, a partire da, nuova regola, decisione, decidiamo, bensì, non più,
non voglio più, annulla, annullat*, scart*, mi correggo, intendevo, stavolta non,
questa volta non, ho cambiato idea, cambiato idea, restiamo su, restiamo con,
torniamo a, risposta definitiva, risposta finale, è deciso, abbiamo deciso, andiamo con,
usiamo, meglio usare, ^ meglio, non serve più, non usiamo più, ritiro quanto,
ritiro quello, spostat*, rinviat*, posticipat*, anticipat*, slitta, slittat*,
numero sbagliato, data sbagliata, nome_sbagliato, refuso, quello giusto, la data giusta,
abbiamo scelto, scegliamo, definitivo, definitiva, alla fine partiamo, alla fine usiamo,
il piano è cambiato, quello che volevo dire, passa dal, passa al, è passata a,
è passato a, ho deciso di usare,
# Nederlands
niet meer, niet langer, geen meer, in plaats van, in plaats daarvan, vergeet, negeer,
laat maar, ik bedoel*, correctie, vergiste, vergist, mijn fout, foutje, oh nee, ^ wacht,
bij nader inzien, van gedachten, toch niet, toch maar, toch liever, definitie*,
beslissing, besluit, vanaf nu, vanaf vandaag, vanaf heden, vanaf morgen, in het vervolg,
nieuwe regel, we houden, we gaan voor, we gaan met, terug naar, vervalt, geannuleerd,
geschrapt, schrap, annuleer, planwijziging, ik corrigeer, corrigeer mezelf,
ik heb me bedacht, me bedacht, had het over, ik had het over, deze keer niet,
laten we niet, laten we toch, we blijven bij, blijven bij, laatste antwoord, besloten,
we hebben besloten, we kiezen, we nemen, we gebruiken toch, ^ liever, ^ toch,
gebruiken we niet meer, gaat niet door, neem het terug, neem dat terug,
ik trek het terug, verschoven, verschuift, uitgesteld, vervroegd, schuift op,
verplaatst naar, verkeerd nummer, verkeerde datum, verkeerde naam, tikfout, typefout,
het juiste, de juiste, definitief, we gaan toch, toch met, toch de, toch het, toch voor,
het plan is veranderd, wat ik bedoelde, gaat van, gaat naar, voortaan,
# Polski
już nie, zamiast, zapomnij*, zignoruj*, ignoruj*, miałam na myśli, chodziło mi,
pomyliłem, pomyliłam, mój błąd, korekta, poprawiam, ach nie, o nie, ^ czekaj,
^ zaczekaj, zmiana planu, zmiana planów, ostatecz*, finaln*, zdecydowa*, decyzja,
decyzję, postanowi*, od teraz, od dziś, od dzisiaj, od jutra, od tej pory,
od tego momentu, na przyszłość, odtąd, nowa zasada, nowa reguła, po namyśle, cofam,
wycofuję, anuluj*, odwołuj*, nieaktualn*, tym razem nie, o pozostałych zapomnij,
poprawka, zmieniłem zdanie, zmieniłam zdanie, zostajemy, zostańmy, miałem na myśli,
wracamy, bierzemy, używamy jednak, ^ lepiej, nie potrzebujemy już, odpada, rezygnujemy,
przesunięt*, przesuwa*, przełożon*, przeniesion*, zły_numer, zła data, literówka,
poprawny, prawidłow*, wybieramy, wybraliśmy, stanęło na, jednak zaczynamy,
jednak używamy, plan się zmienił, chodziło mi o,
# Русский
больше не, забудь*, забудем, игнорир*, не обращай внимания, не обращайте внимания,
я имела в виду, имела в виду, ошиблась, моя ошибка, исправлен*, ^ нет, ой нет, а нет,
^ подожди*, ^ погоди*, ^ стоп, ^ стой*, передумал*, план изменился, планы изменились,
изменение плана, смена плана, окончательн*, финальн*, с этого момента,
с сегодняшнего дня, с этого дня, отныне, впредь, начиная с, новое правило, оставляем,
оставим, останемся, остановимся на, лучше не, давай не, давайте не, неактуальн*,
в этот раз не, этот раз давай, про остальные забудь, поправлюсь, поправка, ошибся,
я передумал, я передумала, мы передумали, остаёмся, остаемся, возвращаемся, я про,
я имел в виду, имел в виду, имею в виду, решено, решили, решение принято, берём,
выбираем, пусть будет, ^ лучше, ^ всё таки, ^ все таки, отказываемся, перенес*,
перенос*, переносит*, сдвинул*, сдвигает*, отложил*, отложен*, отклады*, ошибся номером,
не тот номер, не та дата, опечат*, правильно так, правильная дата, верная цифра,
выбрали, остановились на, договорились, всё таки начинаем, всё таки, все таки,
план поменялся, поменялись планы, я хотел сказать, я хотела сказать,
# in several languages
change of plan, change of plans, change of heart, беру, on prend, ficamos, teniamo,
strike the last, i've made up, oops, ups, hoppla, oups, ^ actually, ^ en realidad,
^ na verdade, ^ in realtà, ^ en fait, ^ eigentlich, ^ eigenlijk, ^ właściwie,
^ на самом деле, ^ al final, ^ alla fine, ^ uiteindelijk, ^ jednak, ^ в итоге, anzi,
final decision, final version, final word, decision is, decision stands, ^ forget,
forget about, forget what, forget that, forget the, forget my, forget everything,
forget all, forget it, ignore what, ignore my, ignore that, ignore the, ignore all,
^ go with, ^ stick with, ^ settle on, we decided, we've decided, i decided,
it's decided, is decided, ^ decided, ^ no | ^ i mean, ^ no | ^ i want, ^ no | ^ i said,
^ no | ^ it's not, ^ no | ^ that's not, ^ no | ^ we use, superseded, supersedes,
supersede, ^ ignor*, un momen*, 错了, 틀렸어, 잘못했,
# 中文
不再, 改为, 改用, 换为, 而是, 而不是, 取代, 忘掉, 忘记之前, 忘了之前, 忽略, 不用管,
等一下, 等下, 我的意思, 我是说, 更正, 纠正, 修正一下, 说错, 弄错, 搞错, 写错, 改主意,
改变主意, 重新考虑, 最终, 最后决定, 确定用, 从现在, 从今, 往后, 即日起, 从明天, 新规则,
新规定, 新要求, 取消, 作废, 还是选, 这次不, 这次别, 这次先, 先别, 先不, 撤回, 收回,
就选, 就这么定, 計劃, 其實, 計画改, 我更正, 我改主意, 我指的是, 我说的是, 指的是,
其他的都不要, 其他的忘, 还是用, 换成, 决定用, 决定了, 就用, 就这样定, 我收回, 收回刚才,
就定了, 定了用, 改到, 推迟, 延期, 提前到, 挪到, 号码错, 日期错, 打错, 正确的是, 应该是,
选定, 决定采用, 放弃, 忘掉我, 忘掉我刚才, 计划变了, 计划改了, 还是先, 我想说的是,
现在叫,
# 日本語
もう使わ, もう必要な, もうや, じゃなく, でなく, かわりに, 忘れて, 無視, やはり, 訂正,
間違え, 間違い, 言い間違, ちょっと待, お待ち, 取り消, 取り下げ, 変更します, に変更,
最終, 結論, 確定, 今後, 以降, 今日から, 明日から, 新しいルール, つもりだった,
つもりでした, なかったこと, いいえ, 違いま, 考え直, 気が変わ, に戻, をやめ, は中止,
やめておき, のままで, のことです, 今回は, やっぱり, 代わりに, にします, に決め,
に決まり, ことにし, に変わり, に変わった, 前倒し, 番号を間違, 打ち間違, 正しくは,
に決定, で決定, 採用し, やめます, 使いません, 計画が変わ, 予定が変わ, 言いたかったのは,
になりました, に移りました, に移動し,
# 한국어
더 이상, 더는, 말고, 아니라, 아니야, 아니요, 아뇨, 잊어, 잊으, 무시, 기다려, 정정,
수정할, 수정하겠, 번복, 잘못 말, 잘못 적, 마음을 바꾸, 생각해 보니, 생각해보니,
바꾸기로, 최종, 확정, 앞으로, 이제부터, 지금부터, 오늘부터, 내일부터, 이후로, 새 규칙,
새로운 규칙, 하기로, 제 말은, 내 말은, 다시 생각, 계획이 바뀌, 철회, 되돌, 생각이 바뀌,
마음이 바뀌, 로 갑시다, 로 하죠, 로 하고, 말이에요, 말입니다, 말한 겁니다, 이번에는,
이번엔, 하지 맙시다, 나머지는 잊, 대신, 취소, 그대로 둬, 로 결정, 바뀌었, 변경되었,
변경됐, 연기되, 연기됐, 미뤄, 앞당겨, 번호를 잘못, 오타, 올바른, 정확한 값은, 선택했,
하려던 말은, 옮겼, 옮겨졌
"""
BINDS = """
# English
mustn't, shan't, ought*, may be only, isn't acceptable, isn't an option,
isn't negotiable, isn't optional, exclusively, verbatim, word for word, exempt,
no circumstances, no account, no means, no condition, at any cost, at all times,
at no time, irrespective, not touch, not acceptable, not okay, not an option,
not optional, not welcome, at a minimum, no later, no earlier, no fewer, no longer than,
refrain, abstain, steer clear, stay clear, stay off, stay within, stay under,
stay below, keep away, keep out, keep off, keep clear, leave everything, off limits,
out of scope, out of bounds, out of the question, forbid*, ban, banned, disallow*,
veto*, taboo, no go, nogo, unacceptable, inadmissible, non negotiable, negotiable,
mandatory, compulsory, imperative, invariant*, hard limit, hard stop, hard line,
hard requirement, red line, red lines, deal breaker, dealbreaker, non starter, insist*,
provided that, provided you, on condition, without fail, end of story, stop using,
stop adding, stop doing, stop writing, stop making, stop putting, stop changing,
stop calling, stop asking, stop committing, stop touching, ask first, ask before,
asking me, asking first, tell me before, show me first, show me before, confirm with,
my permission, my consent, my ok, my okay, my go ahead, my sign off, my blessing,
my say so, my explicit, our approval, written approval, explicit approval, i approve,
i confirm, i say so, i sign off, never forget, always forget, not forget, don't forget,
keep in mind, bear in mind, note that, ^ note, nb, mind you, beware, sacred,
confidential, non breaking, zero tolerance, adher*, comply, complies, compliant,
conform*, abide, before merging, before committing, before pushing, before deploying,
before touching, before changing, limit is, capped, upper bound, hard cap,
whatever you do, whatever happens, whatever it takes, is law, kosher, halal,
doesn't belong, doesn't go, does not belong, does not go, top priority, you can only,
i want no, we insist, we require, violat*, breach, first and foremost,
more than anything, see to it, confine*, bound by, one and only, save for, if and only,
stick to the, no hands, law of, rien ne, tous les, hold off until, one exception,
one rule, ^ never, ^ always, should never, should always, should only, may never,
needs to stay, need to stay, no new, nothing newer, nothing older, nothing else,
and nowhere else, nobody else, is never, are never, not to push, not to touch,
not to change, not to use, not to add, ^ wait for my, ^ wait until, wait for my,
before you, check with me, ^ if in doubt, ^ when in doubt, ^ whenever you,
every time you, ^ before every, ^ before each, ^ after every, ^ after each, ^ whatever,
^ requirement, ^ constraint, ^ deadline, ^ decision, ^ house rule, ^ treat, ^ prefer,
^ at most, takes priority, take priority, comes first, come first, is secondary,
do not belong, don't belong, is frozen, are frozen, is final, is not supported,
are not supported, nothing but, is read only, are read only, read only for,
is mandatory, is forbidden, are forbidden, is prohibited, are prohibited, i never want,
i want all, we won't, we will not, we are not going, we're not going, you're not to,
you are not to, ^ only, ^ nobody, is off limits, are off limits, is gone for good,
and don't ever, ^ don't, please no, please never, please always, please only,
please leave, please keep, let's avoid, let's keep, let's leave, let's stick,
let's stay, ask me first, ask me before, ask me for, ^ ask me, tell me first,
i'd rather you, rather you didn't, full stop, without changing, without touching,
without adding, without breaking, without telling, until further notice, ^ do not,
show me the diff, show me the plan, before writing it, no deploys, i don't want,
i do not want, don't want any, i always want, you can't use, you cannot use, can't use,
cannot use, may not be, have to keep, has to keep, have to be, has to be, has to run,
has to work, have to work, has to stay, needs at least, need at least, at the most,
at all costs, not negotiable, ^ branch, ^ follow, ^ stick, ^ under no, ^ in no, ^ at no,
^ on no, ^ until, ^ hold off, ^ refuse, ^ require, ^ reject, ^ protect, ^ preserve,
^ maintain, ^ honor, ^ honour, ^ ensure, ^ confirm, ^ double check, ^ limit, ^ restrict,
^ guarantee, ^ watch out, ^ quit, ^ cease, ^ assume, ^ default to, ^ pin, ^ freeze,
^ lock, ^ reserve, ^ hide, ^ mask, ^ redact, ^ encrypt, ^ validate all, ^ escape,
^ sanitize, belongs in, belong in, belongs to, goes through, only ever, solely,
is reserved, are reserved, is locked, are locked, are pinned, is deprecated,
are deprecated, is banned, are banned, is required, are required, is not an option,
is a must, are a must, is a no go, is non negotiable, takes precedence, take precedence,
has precedence, outranks, is the source of truth, source of truth, single source,
not before, not until, not without, not under any, not even, not a single, ever again,
at any time, by any means, in any case, in all cases, every single, each and every,
without exception, no matter what, no ifs, is untouchable, hands off, keep your hands,
leave it, leave that, leave them, leave this, leave the, leave my, leave all, stays in,
stays on, stays the, remains the, remain the, exactly one, exactly two, exactly three,
no one, permitted to, limit of, maximum of, minimum of, no more than, no less than,
not more than, ^ period, ^ respect, must, | ^ not, | ^ never, | ^ nothing,
no exceptions, | ^ period, | ^ nobody, | ^ nowhere, is not allowed, are not allowed,
not allowed to, isn't allowed, aren't allowed, ^ no | ^ the other, never ever, may only,
may not, i decide, leave it to me, leave that to me, leave this to me, cannot afford,
can't afford, make it work without, as little as possible, as simple as possible,
as small as possible, are responsible for, is responsible for, has to hold,
official term, official name, we support only, we only support, only support, we only,
we never, we always, after every step, after each step, ^ do the smallest, ^ do as,
^ answer with, ^ answer only, ^ reply with, ^ reply only, ^ whoever, in this project,
in this repo, for this project, is sacred, from this commit, from this point,
against policy, is against, ^ you can't, ^ you cannot, ^ you shall, ^ you must,
^ you may, i only want, i need this to, i need it to, i need you to,
backward compatible, backwards compatible, backward compatibility, ^ per legal,
^ as discussed, ^ as agreed, ^ as decided, needs my, my signature, work on the branch,
stay away from, ^ the other file, is limited to, are limited to, limited to,
restricted to, is restricted, limit yourself, restrict yourself, confine yourself,
no higher, no lower, not above, not exceed, exceed, must stay, not permitted to,
are not permitted, is not permitted, stays below, stays under, stay above,
the only one who, the only one allowed, and no other, and nobody else, and no one else,
by him alone, by her alone, alone may, needs approval, require approval,
requires approval, require sign off, requires sign off, needs sign off, has to sign off,
must sign off, has to approve, must approve, goes live, go live, before legal,
until legal, has signed off, green light, unwanted, undesired, not wanted, in no event,
in no case, at no point, irrevocab*, idempotent, immutable, as immutable, we owe,
owe the, is a fixed, are fixed, in charge of, unless i say, unless told,
if you are unsure, if you're unsure, if you are not sure, if you're not sure,
rather you ask, rather than guess, ask than guess, instead of guessing, do not guess,
^ no, only supposed to, you're supposed to, you are supposed to, order matters,
don't bother, do not bother, don't waste, is forbidden from, are forbidden from,
long lived, trunk based, under the new, hard limit of, is the law, in writing,
on my behalf, in my name, copied on, in copy, in cc, ^ it is not allowed,
^ it's not allowed, ^ it is forbidden, ^ it's forbidden, ^ it must, ^ it has to,
i insist, ask me before you, the limit is, don't you dare, do not you dare, counts as,
count as, doesn't count as, zero downtime, write access, read access, three approvals,
two approvals, approvals are needed, squash before, make it a rule, gender neutral,
insists that, insist that, before easter, before christmas, needs to be ready,
has to be ready, must be ready, for you only, to be clear, just to be clear,
for clarity, to avoid doubt, for the avoidance of doubt, it goes without saying,
goes without saying, needless to say, hold the line, draw the line, last say, final say,
has the say, has the final, decides on, decides about, decides what, has to decide,
the decision lies, signs off, approves,
# Deutsch
nimmer, musst, müsst, darfst, dürft, ausschließlich, ausschliesslich, verboten, verbot,
untersag*, verbiet*, unzulässig, tabu, finger weg, finger von, hände weg, unbedingt,
zwingend, verbindlich, pflicht*, keinerlei, hör auf, hört auf, keinen fall, keinesfalls,
keineswegs, keinen umständen, in jedem fall, ausnahme, ausnahmen, ausnahmslos,
es sei denn, höchstens, maximal, mindestens, spätestens, frühestens, strikt, vorgabe*,
bedingung*, vorschrift*, vermeid*, unterlass*, in ruhe, unverändert, unangetastet,
erst wenn, erst nach, erst fragen, frag mich, frage mich, fragt mich, frag erst,
frag vorher, vorher fragen, denk daran, denkt daran, achte*, merk dir, merke dir,
wohlgemerkt, sämtliche*, grundsätzlich, prinzipiell, soll nicht, sollen nicht, soll nie,
soll immer, soll nur, hat zu, haben zu, sind zu, entscheidend, notwendig, erforderlich,
gestattet, zulässig, genehmig*, freigabe, zustimmung, rücksprache, rühr*, halte dich,
haltet, gehört nicht, gehören in, einzig*, obergrenze, vertraulich, geheim,
solltest nicht, sollte nicht, darf nicht, darf nie, darf niemals, dürfen nicht,
dürfen nie, darf nichts, darf kein, darf keine, nichts selbst, wird nicht, werden nicht,
wird nie, werden nie, ich will keine, ich will kein, ich will nicht, ich möchte keine,
ich möchte nicht, ich möchte kein, wir wollen keine, bitte keine, bitte nicht,
füge keine, füge nichts, lösche nie, lösche nichts, ändere nichts, ändere nie,
ändere nicht, fass nicht, fass nichts, mach nicht, mach keine, mach nie, sag nie,
antworte, schreibe, schreib, zeig mir erst, zeig mir zuerst, zeig mir vorher, warte auf,
warte bis, bevor du, bevor ihr, ehe du, vor_jedem, vor_jeder, nach jeder, nach jedem,
jede_funktion, jede datei, jede klasse, jeder test, ^ jede, ^ jeder, ^ jedes, ^ nur,
^ nichts, ^ immer, ^ nie, ^ niemals, ^ kein, ^ keine, ^ ohne, ^ erst, ^ wichtig,
^_frist, ^ statt, muss auch, muss immer, muss ohne, muss bis, muss mit, muss auf,
muss zuerst, muss erst, müssen immer, müssen mit, mehr_als, nicht mehr_als,
nicht länger_als, nicht später, bleib bei, bleibt bei, bleibt so, bleiben so, lass die,
lass das, lass den, ist_tabu, sind tabu, ist_verboten, sind verboten, ist_pflicht,
ist_gesperrt, hat vorrang, geht_vor, wir sagen, es heißt, heißt bei uns, bei uns heißt,
ist_eingefroren, nichts zu ändern, mache ich selbst, mach ich selbst, fasst nur, nimm,
nutze, verwende, benutze, | ^ nicht, | ^ niemals, | ^ kein, | ^ keine, | ^ sonst,
mache ich, mach ich, überlass mir, überlasst mir, überlass das mir, überlass,
wir unterstützen nur, nur die letzten, ist_heilig, begrenzt, beschränk*, nicht über,
nicht_unter, nicht überschreiten, keine ausnahmen, genehmigt, gibt frei, freigeben,
einverständnis, okay von, ja von, allein entscheidet, allein darf, und sonst niemand,
kein anderer, halte dich an, halt dich an, beschränk dich, frag lieber, lieber fragen,
nachfragen statt, bei unklarheit, unerwünscht, brauchen die, braucht die, brauchen eine,
braucht eine, fasse nicht, fass, lass die finger, bleib weg, ^_alle, egal_was, egal_wer,
egal_ob, was auch passiert, in meinem namen, verschwende, in kopie, reihenfolge,
letzte wort, letztes wort, entscheidet, bestimmt allein,
# Français
systématiquement, devez, devra, devront, devrait, uniquement, exclusivement, interdit*,
interdiction, défense de, défendu, proscri*, prohib*, impérati*, obligat*, primordial,
hormis, excepté, à moins, en aucun cas, hors de question, à tout prix, quoi qu', évite*,
consigne*, contrainte*, exigence*, avant tout, avant toute, avant chaque, demandez moi,
mon accord, mon feu vert, mon aval, ma permission, rappel, veille*, gare, intouchable,
arrête*, allerg*, strict*, accepté*, plafond, tolér*, végétar*, confidentiel*, ne doit,
ne doivent, ne dois, tu ne dois, ne peut pas être, ne peuvent pas, n' ajoute,
n' utilise, n' oublie, n'_installe, n' écris, n' efface, n' envoie, ne touche,
ne touchez, ne modifie, ne change, ne supprime, ne crée, ne fais, ne mets, ne pousse,
ne lance, ne renomme, ne commite, ne stocke, ne rajoute, on ne touche, on ne change,
on n' utilise, je ne veux, je ne souhaite, montre moi d'_abord, montre moi le,
attends mon, attends que, demande moi, avant d' écrire, avant de déployer,
avant de supprimer, avant de_commiter, avant de pousser, ^ aucun, ^ aucune, ^ seul,
^ seule, ^ seuls, ^ seules, ^ toujours, ^ sans exception, ^ chaque, ^ tout le, ^ pas de,
^ pas plus, ^ important, ^ règle, ^ attention, ça doit, il doit, elle doit, ils doivent,
doit marcher, doit fonctionner, doit rester, doit être, réponds, écris toujours,
lance toujours, utilise, on dit, on parle de, au maximum, au plus tard, au minimum,
pas plus de, pas plus que, sous aucun, en aucune, à aucun moment, laisse le, laisse la,
laisse les, date_limite, la_limite, le délai, respecte*, | ^ pas, | ^ jamais,
je m' en occupe, laisse moi, c' est moi qui, ne fais rien, il nous faut,
uniquement avec, limité*, limite_toi, limitez, borne_toi, tiens_toi, tenez vous,
en tenir à, sans dépasser, dépasser, plafonné*, l' accord de, l' accord d', exige*,
requiert, nécessite l', doit valider, doit approuver, peut valider, peut approuver,
arrête de, arrêtez de, cesse de, demande plutôt, demande avant, si tu doutes,
si tu hésites, pas de commentaire*, indésirable, et personne d' autre, ne jamais,
ne doit jamais, n' est pas permis, n' est pas autorisé, touche pas, touche surtout pas,
en mon nom, perds pas, en_copie, quelles que soient, peu importe, décide, qui tranche,
dernier_mot,
# Español
deberá*, debería*, tienes que, ha de, han de, únicamente, exclusivamente, vetado,
imperativo, esencial, salvo, excepto, excepción, excepciones, a menos, en ningún,
de ninguna, de ningún, a toda costa, evita*, evite*, como mínimo, requisito*, condición,
condiciones, restricci*, mi permiso, mi aprobación, mi visto bueno, mi autorización,
recuerde*, ten en cuenta, tengan en cuenta, deja de, dejen de, en paz, intocable*,
alérgic*, estrict*, permitid*, mantén*, cumple*, no añadas, no agregues, no uses,
no toques, no borres, no elimines, no cambies, no modifiques, no_hagas, no pongas,
no escribas, no crees, no subas, no ejecutes, no_instales, no olvides, no_te olvides,
no rompas, no dejes, no muevas, no renombres, no guardes, no permitas, no inventes,
no supongas, no asumas, no despliegues, no quiero, no queremos, no se toca, no se tocan,
no se cambia, no se puede, no se debe, no se permite, no debe, no deben, no debes,
no puede, no pueden, no puedes, no haces, no hagamos, nunca uses, nunca_hagas,
nunca borres, nunca guardes, siempre usa, siempre ejecuta, _responde, contesta,
escribe siempre, ^ ningún, ^ ninguna, ^ nadie, ^ jamás, ^ siempre, ^ sólo, ^ todas las,
^ todos los, ^ todo el, ^ sin excepción, ^ como máximo, ^ máximo, ^ mínimo, ^ regla,
tiene que funcionar, tiene que_ser, tienen que, debe funcionar, debe_ser, debe estar,
deben_ser, antes de escribirlo, antes de escribir, antes de borrar, antes de desplegar,
antes de tocar, antes de hacer, enséñame, muéstrame, espera mi, espera a que,
pregúntame, decimos, bajo ninguna, bajo ningún, como máximo, como mucho, más de,
sin excepciones, sin excepción, deja el, deja la, deja los, ^ usen, ^ usar, | ^ nunca,
| ^ jamás, | ^ no a, | ^ no en, | ^ no el, | ^ no la, | ^ no los, | ^ no las,
| ^ no por, | ^ no un, | ^ no con, | ^ no de, déjamela, déjamelo, déjame, lo hago yo,
la hago yo, me encargo yo, no_hagas nada, limitad*, limítate, cíñete, atente,
sin pasar de, no puede pasar, no puede superar, superar, la aprobación de,
el visto bueno, la autorización de, _requiere*, debe aprobar, puede aprobar, aprobar,
dejad de, pregunta antes, pregunta en vez, si dudas, ante la duda, indesead*,
y nadie más, modifiques, bajo ninguna circunstancia, no se comparte, en mi nombre,
pase_lo que, pierdas tiempo, en copia, sea como sea, decide, última palabra,
quien decide,
# Português
deves, deverá*, deveria*, têm que, têm de, tens de, é preciso, unicamente, proibi*,
vedado, obrigat*, imprescind*, exceto, exceção, exceções, de jeito nenhum,
de forma alguma, de modo algum, hipótese alguma, hipótese nenhuma, sob nenhuma,
custe o que custar, no máximo, no mínimo, condiç*, restriç*, até que, minha permissão,
minha aprovação, minha autorização, pare de, em paz, intocáve*, estrit*, mantenha*,
mantém, respeit*, não adicione, não use, não usar, não mexa, não mexe, não altere,
não mude, não apague, não remova, não faça, não crie, não escreva, não execute,
não rode, não_instale, não esqueça, não suba, não quebre, não delete, não toque,
não invente, não_assuma, não renomeie, não quero, não queremos, não pode, não podem,
não deve, não devem, não vamos, nunca use, nunca faça, nunca apague, nunca guarde,
sempre use, sempre rode, responda, use sempre, escreva sempre, ^ nenhum, ^ nenhuma,
^ ninguém, ^ nunca, ^ jamais, ^ só, ^ somente, ^ apenas, ^ cada, ^ todos os, ^ todas as,
^ todo o, ^ sem exceção, ^ regra, tem que funcionar, tem que_ser, deve funcionar,
deve_ser, devem_ser, devem estar, antes de escrever, antes de apagar, antes de publicar,
antes de mexer, antes de cada, antes de fazer, me mostre, me pergunte, espere minha,
espere_meu, espere até, pergunte antes, dizemos, em hipótese, em nenhum caso,
de nenhuma forma, mais de, sem exceções, sem exceção, deixe o, deixe a, deixe os,
^ use sempre, | ^ não, | ^ e não, deixe comigo, comigo, eu faço, eu mesmo faço,
eu cuido, não faça nada, limite_se, atenha se, sem passar de, não pode passar,
não pode exceder, exceder, a aprovação de, o aval, a autorização de, requer*,
deve aprovar, pode aprovar, deixe de, pergunte em vez, na dúvida, se tiver dúvida,
indesejad*, e mais ninguém, altere o, não altere nada, ^ toda, em_meu_nome,
aconteça o que, perca tempo, em cópia, seja como for, quem decide, última palavra,
# Italiano
dovete, occorre, va fatto, va fatta, va usato, va usata, esclusivamente, rigorosamente,
strettamente, vietat*, vieta, obbligatori*, essenzial*, indispensab*, tassativ*,
cruciale, tranne, eccetto, eccezion*, a meno che, a tutti i costi, a ogni costo,
costi quel che costi, al massimo, al minimo, norme, condizion*, vincol*, chiedi*,
chiedere, il mio permesso, mio consenso, mio ok, mio benestare, la mia approvazione,
tieni presente, tieni conto, attento, attenta, smett*, intoccab*, consentit*, permess*,
mantieni, rispett*, riservat*, non usare, non aggiungere, non toccare, non cambiare,
non modificare, non cancellare, non eliminare, non fare, non creare, non scrivere,
non installare, non eseguire, non dimenticare, non rimuovere, non rinominare,
non rompere, non inventare, non mettere, non spostare, non committare, non voglio,
non vogliamo, non devi, non deve, non devono, non può, non possono, non puoi,
non si tocca, non si toccano, non si cambia, non si deve, non si può, non rifacciamo,
mai usare, mai cancellare, rispondi, scrivi sempre, lancia sempre, ^ nessun, ^ nessuna,
^ nessuno, ^ mai, ^ sempre, ^ soltanto, ^ ogni, ^ tutti i, ^ tutte le, ^ tutti gli,
^ tutto il, ^ senza eccezioni, ^ massimo, ^ importante, ^ regola, deve funzionare,
deve essere, deve restare, devono essere, devono restare, prima di scriverlo,
prima di scrivere, prima di cancellare, prima del deploy, prima di ogni,
prima di toccare, fammi vedere, mostrami, aspetta il mio, aspetta la mia, aspetta che,
diciamo, in nessuna, in nessun, per nessun motivo, più di, senza eccezioni,
senza eccezione, lascia il, lascia la, lascia i, usa, utilizza, ^ usare, | ^ mai,
| ^ e non, la faccio io, lo faccio io, ci penso io, lascia fare a me, non fare niente,
smettila di, limitat*, limitati, attieniti, attenersi, senza superare, non può superare,
non deve superare, superare, l' approvazione di, il via libera, il consenso di,
richied*, deve approvare, può approvare, smetti di, chiedi invece, nel dubbio,
se hai dubbi, indesiderat*, e nessun altro, non devi mai, a mio_nome, qualunque cosa,
perdere tempo, in copia, comunque vada, in nessun caso, ultima parola, chi decide,
# Nederlands
dient, dienen, uitsluitend, verboden, verbied*, taboe, verplicht*, noodzakelijk,
essentieel, cruciaal, beslist, tenzij, behalve, uitgezonderd, uitzondering*,
hoe dan ook, koste wat kost, vermijd*, hooguit, maximaal, minstens, uiterlijk,
hoogstens, voorwaarde*, eisen, beperking*, voor je, telkens, vraag me, vraag mij,
vraag eerst, vraag het, mijn toestemming, mijn akkoord, mijn goedkeuring, onthoud*,
denk aan, denk eraan, let op, pas op, stop met, met rust, ongemoeid, toegestaan, limiet,
vegetar*, vertrouwelijk, mag niet, mag niets, mag nooit, mag geen, mogen niet,
mogen nooit, mogen geen, moet werken, moet altijd, moet blijven, moeten blijven,
moet zijn, moeten zijn, ik_wil geen, ik_wil niet, we willen geen, voeg geen, voeg niets,
doe geen, doe niet, doe nooit, maak geen, maak nooit, raak niet, raak geen,
verander niets, verander niet, verander geen, wijzig niets, wijzig geen,
verwijder niets, verwijder nooit, verwijder geen, schrijf geen, schrijf nooit,
schrijf altijd, push niets, push nooit, commit nooit, commit pas, antwoord, blijf je af,
blijf af, afblijven, eerst overleggen, eerst vragen, laat me eerst, laat mij eerst,
wacht op, wacht tot, voordat je, voor elke, na elke, ^ alleen, ^ niemand, ^ niets,
^ nooit, ^ altijd, ^ geen, ^ elke, ^ elk, ^ iedere, ^ belangrijk, ^ regel,
^ zonder uitzondering, onder geen, in geen geval, niet meer dan, meer dan,
uitstel kan niet, dan pas, pas_als, pas na, wij zeggen, we zeggen, heet bij_ons,
laat de, laat het, gebruik, | ^ niet, | ^ nooit, | ^ geen, | ^ en niet, doe ik zelf,
doe ik, laat dat aan mij, doe niets, ik neem het terug, eis is, de eis, beperkt tot,
beperk je, houd je aan, hou je aan, hou het bij, niet boven, niet onder,
niet overschrijden, overschrijden, het akkoord van, akkoord, goedkeuren, goedkeurt,
mag goedkeuren, vereist, vereisen, hou op met, houd op met, vraag liever, liever vragen,
in geval van twijfel, ongewenst, en niemand anders, blijf van, kom niet aan, laat je,
onder geen_beding, wat er ook, in mijn naam, namens mij, verspil, wat er gebeurt,
het is verboden, ^ het is niet, laatste woord,
# Polski
przenigdy, należy, powin*, wolno, wyłącznie, ściśle, zabroni*, zabrania*, zakaz*,
obowiązk*, konieczn*, niezbędn*, bezwzględ*, kluczow*, nikomu, oprócz, chyba że,
wyjątk*, w żadnym, za wszelką cenę, unikaj*, maksym*, najwyżej, co najmniej, najpóźniej,
reguła, reguły, regułę, regułą, warun*, wymag*, ogranicz*, dopóki, za każdym, zapytaj*,
pytaj*, pytać, zgod*, akceptac*, pamiętaj*, uważaj*, przestań*, zostaw*, ruszaj*,
uczulon*, alergi*, dozwol*, wegan*, wegetar*, poufn*, obowiązuj*, nie dodawaj,
nie używaj, nie zmieniaj, nie ruszaj, nie ruszamy, nie usuwaj, nie kasuj, nie twórz,
nie pisz, nie commituj, nie pushuj, nie chcę, nie chcemy, nie instaluj, nie uruchamiaj,
nie zapominaj, nie zapomnij, nie rób, nie przerabiaj*, nie modyfikuj, nie nazywaj,
nie zapisuj, nie wysyłaj, nie wdrażaj, nie wymyślaj, nie zakładaj, nie może, nie mogą,
nie możesz, nie można, nie powin*, niczego nie, nic nie zmieniaj, nigdy nie,
zawsze używaj, zawsze pytaj, odpowiadaj, pisz zawsze, uruchamiaj, ^ nikt, ^ nigdy,
^ zawsze, ^ tylko, ^ żadnych, ^ żaden, ^ żadne, ^ żadna, ^ każdy, ^ każda, ^ każde,
^ wszystkie, ^ wszystko, ^ bez wyjątk*, ^ ważne, ^ zasada, musi działać, musi być,
muszą być, musi zostać, muszą zostać, zanim coś, zanim cokolwiek, zanim zaczniesz,
przed każdym, przed każdą, po każdej, po każdym, przed wdrożeniem, pokaż mi,
poczekaj na, czekaj na, na moją zgodę, mojej zgody, bez mojej, mówimy, pod żadnym,
nie więcej niż, więcej niż, używaj, stosuj, użyj, | ^ nie, | ^ nigdy, | ^ a nie,
zostaw mnie, zrobię sam, zrobię to sam, sam zrobię, robię sam, nic nie rób,
nie formatuj, ograniczon*, ogranicz się, trzymaj się, nie przekracza*, przekracz*,
zgoda, zgody, wymaga, wymagają, zatwierdza*, może zatwierdzać, może zatwierdzić,
przestań, skończ z, lepiej zapytaj, w razie, niepożądan*, i nikt inny,
pod żadnym pozorem, w moim imieniu, cokolwiek, nie trać, w kopii, bez względu na,
decyduje, ostatnie słowo,
# Русский
необходим*, следует, исключит*, единствен*, строго, запрещ*, запрет*, недопуст*,
категорич*, критич*, если только, за исключением, ни за что, любой ценой, во что бы то,
избега*, максимум, минимум, не более, не менее, не позже, правил*, услови*, требован*,
требует*, огранич*, прежде чем, до тех пор, спроси*, спрашива*, разрешен*, разреши*,
запомни*, учти*, учитыва*, имей в виду, осторожн*, перестань*, прекрати*, оставь*,
оставить, трогай*, трогать, аллерги*, допуст*, лимит*, обяза*, соблюда*, абсолют*,
веган*, вегетар*, не храни*, не запускай*, не менять, не меняй*, не меняем, не трогать,
не трогаем, не трогай*, не создавай*, не коммить*, не пушь*, не пушить, не ломай*,
не забудь*, не забывай*, не переименовывай*, не переписывай*, не переделывай*,
не ставь*, не устанавливай*, не выдумывай*, не предполагай*, не отправляй*,
не выкладывай*, не деплой*, не должен, не должна, не должно, не должны, не хочу,
не хотим, не нужны, не нужно, не нужен, не нужна, не надо, ничего не меняй*,
ничего не трогай*, ничего не пушь, сам ничего, никогда не, всегда использ*,
всегда запуск*, всегда спрашив*, всегда пиши*, отвечай*, пиши, пишите, говори,
запускай*, используй*, дождись, жди, ждём, подожди моего, покажи мне, сначала покажи,
сначала спроси, сначала согласуй, только после, только с, только через, только по,
только для, трогает только, может только, делает только, ^ никто, ^ ничего, ^ никогда,
^ всегда, ^ только, ^ никаких, ^ никакие, ^ каждый, ^ каждая, ^ каждое, ^ все, ^ всё,
^ без исключений, ^ не более, ^ важно, нельзя, должно работать, должен работать,
должна работать, должны работать, должно быть, должны быть, до моего, моего согласия,
моего разрешения, моего одобрения, с моего, без моего, перед тем как, перед каждым,
после каждой, после каждого, мы говорим, называется, называем, ни при каких, ни в каком,
ни в коем, не больше, просьба не, прошу, оставляй, удаляй, коммить, давай без, как есть,
переносить нельзя, | ^ а не, | ^ не, | ^ никогда, занимаюсь я, сделаю сам, делаю сам,
делаю я, оставь мне, ничего не делай, не форматируй*, ограничен*, ограничься,
придерживай*, держись, обходись, не превыша*, превыша*, с согласия, без согласия,
одобря*, утвержда*, хватит предлагать, прекращай, лучше спроси, лучше уточни,
при сомнении, если сомнева*, если не уверен*, нежелательн*, и никто другой,
и больше никто, оставь как есть, не изменяй*, изменять нельзя, писать нельзя,
не добавлять, что бы ни, кто бы ни, от моего имени, не трать, в копии, не зависимо от,
вне зависимости, решает, последнее слово,
# in several languages
^ without, ^ unless, ^ except, ^ keep, ^ leave, ^ stop, ^ stay, ^ rules, ^ rule,
^ careful, ^ remember, ^ make sure, ^ be sure, ^ use only, no exception, use only,
should not be, rule is, rules are, the rules, my rule, our rule, hard rule, policy is,
our policy, the limit, requirement is, is essential, is critical, is crucial, is vital,
with care, without asking, without my, without our, without review, without tests,
nobody but, nobody may, none of, keep the public, keep the api, at least one,
at least two, at least three, we don't do, we don't want, always use, never use,
never commit, never push, never call, never change, never touch, never delete,
always run, always ask, always write, always keep, bis auf weiteres, auf jeden,
darf nur, dürfen nur, nicht ändern, nicht anfassen, bleibt unverändert,
bleiben unverändert, nur noch, nur mit, nur nach, bitte nie, bitte kein, bitte immer,
bitte nur, doivent être, il faut, deben estar, hay que usar, por favor no, deve estar,
por favor não, per favore non, bisogna usare, moet worden, moeten worden, mag alleen,
graag niet, nie wolno, proszę nie, должен быть, должна быть, пожалуйста не,
не используй*, не удаляй*, не пиши*, не добавляй*, не делай*, you must, ^ exactly one,
^ dont, please don't, please do not, just don't, just do not, you don't touch,
^ you don't, don't ever, don't touch, don't use, don't change, don't add, don't commit,
don't push, don't delete, don't remove, don't write, don't rename, don't merge,
don't deploy, don't assume, don't guess, don't skip, don't mock, don't log, do not ever,
do not touch, do not use, do not change, do not add, do not commit, do not push,
do not delete, ^ nada de, ^ hay que, ^ bisogna, debe usar*, jede änderung, jeder commit,
todos los mensajes, toutes les, in doubt, when unsure, if unsure, im zweifel,
bei zweifel, bei unsicherheit, en cas de doute, en caso de duda, si tienes dudas,
em caso de dúvida, in caso di dubbio, bij twijfel, w razie wątpliwości,
в случае сомнений, если сомневаешься, erlaubnis, rückfrage, mit rücksprache,
accord préalable, permiso, aprobación, autorización, permissão, aprovação, autorização,
approvazione, consenso, autorizzazione, toestemming, goedkeuring, akkoord van, соглас*,
одобрен*, to be done, has to remain, word by word, słowo po słowie, not a cent, ^ avoid,
please avoid, and avoid, requisiti, confidenc*, autoris*, essenci*, deve usar*,
やめましょう, やめよう, 遵守, 従って, 従う, 指示された, 지 맙시다, 맙시다, 말자,
# 中文
绝不, 决不, 从不, 必需, 務必, 务必, 不要, 不能, 不准, 不可, 不该, 不应, 不允许, 不使用,
不支持, 不接受, 严禁, 切勿, 切记, 杜绝, 避免, 别动, 别改, 别用, 别提交, 别把, 别在,
别给, 别让, 别写, 别加, 别删, 别忘, 请别, 千万, 只用, 只要, 只允许, 只许, 只可, 只支持,
唯一, 除非, 否则, 最少, 不超过, 不少于, 不低于, 上限, 下限, 至多, 规则, 规定, 原则,
限制, 约束, 之前先, 之前必, 先问, 问我, 批准, 许可, 记住, 牢记, 一律, 统统, 不碰, 不改,
绝对, 底线, 没有我, 未经, 不希望, 任何情况下都不, 任何情况下都要, 别再, 别碰, 先给我,
等我同意, 只有我, 只能, 必须, 始终用, 请始终, 每次改完, 每次提交, 不叫, 我们叫, 不许,
最多, 至少要, 都用, 都要用, 统一用, 严格, 不得, 请勿, 请不要, 请用, 请使用, 用英文回答,
用中文回答, 截止日期, 全部用, 保持不变, | ^ 不是, | ^ 不要, | ^ 不用, | ^ 不叫,
| ^ 不按, | ^ 而不, 由我来, 我自己来, 什么都不要, 不要动, 不能超过, 不得超过, 限于,
仅限, 只使用, 仅使用, 需要得到, 须经, 的批准, 的同意, 才可以, 才可, 别再提, 不要再,
有疑问, 不确定就问, 有疑问就问, 不想要, 其他人都不, 一概不, 无论如何, 以我的名义,
不管怎样, 不论, 抄送, 由我, 说了算,
# 日本語
絶対, 決して, ないでくだ, ないでね, ないこと, ないでほし, ないように, 厳禁, だめ, ダメ,
駄目, てはいけ, ではいけ, ちゃいけ, てはなら, べからず, すること, なければなら,
ないといけ, なきゃ, ねばなら, のみ, 限定, を除, 必須, 義務, 厳守, 守って, ルール, 規則,
原則, 制約, 制限, 要件, 気をつけ, 避け, やめて, 止めて, 触らな, 触れな, 変えな,
変更しな, 使わな, 使用しな, 許可, 承認, 確認してから, 聞いてから, 忘れないで, 忘れずに,
許さ, 厳密, 正確に, しないでください, 実行しないで, 追加しないで, 消さないで,
コミットしないで, どんな場合でも, いかなる場合, 勝手に, しないこと, してはいけません,
してはならない, 出してはいけ, 必要があります, なければなりません, だけです,
見せてください, 待ってください, を使って, でお願いします, 常に, 必ず, と呼びます,
ではなく, 単位で, すべてutc, 統一して, 禁止, 私がやります, 私がします, 自分でやります,
何もしないで, までです, を超えない, 超えては, に限り, に限定, だけを使, のみ使, の承認,
の許可, 承認が必要, 許可が必要, もうやめて, 提案はやめ, 迷ったら, 不明な点は,
不明なときは, 推測しない, 見せてはいけ, 以外は使わ, 以外の人, 何があっても, 私の名前で,
理由を問わず, ccに, が決めます, が決める, 決定権,
# 한국어
절대, 결코, 무조건, 지 마, 지마, 지 말, 지말, 금지, 안 됩, 안됩, 안 돼, 안돼, 안 되,
하면 안, 돼야, 되어야, 야 합, 야 한, 만 사용, 만 써, 만 쓰, 만 허용, 만 해, 에만,
에서만, 으로만, 제외, 예외, 아니면, 경우에만, 의무, 엄격, 정확히, 규칙, 원칙, 제약,
제한, 주의, 조심, 피하, 멈춰, 건드리, 바꾸지, 쓰지, 허락, 승인, 동의, 확인받,
저에게 물어, 나에게 물어, 나한테 물어, 먼저 물어, 저한테 물어, 하기 전, 기억해, 잊지,
명심, 알레르기, 말 것, 하지 마, 하지 말, 하지 맙, 넣지 마, 추가하지, 지우지 마,
커밋하지, 푸시하지, 돌리지 마, 면 안, 해야 합니다, 해야 해, 동작해야, 항상, 반드시,
최대, 까지만, 기다리세요, 먼저 보여, 보여 주세요, 물어보세요, 사용하세요, 쓰세요,
실행하세요, 답변하세요, 작성하세요, 라고 부릅, 단위입니다, 모든 시간, 만 수정, 만 승인,
어떤 상황, 어떤 경우, 제가 합니다, 제가 할게, 내가 할게, 제가 하겠, 아무것도 하지,
초과하지, 넘지 않, 넘으면 안, 이하로, 제한되, 제한됩, 만 사용하, 승인이 필요,
허락이 필요, 그만 제안, 제안하지, 확실하지 않으면, 모르면 물어, 추측하지, 보여 주면 안,
수정하지 마, 바꾸지 마, 무슨 일이 있어도, 제 이름으로, 어떤 이유로도, 참조로,
결정합니다, 결정권
"""
MAY_BIND = """
# English
anymore, any more, forget, i mean, scratch the, strike the, undo the, revert the,
cancel the, cancel my, drop my, change of, second thought, better idea, take back,
takes back, reconsider*, my bad, settle on, settling on, conclusion, concluded,
stick with, sticking with, stay with, staying with, from today, from tomorrow,
from then, starting today, revise, this time, what i said, what i told, what i wrote,
earlier i, i said earlier, but not, i changed, we changed, ^ sorry, i'd rather not,
to correct, to be precise, opposite, abandon*, back on, the other way, we switch,
hold off, not yet, it stays, my answer, we choose, choice is, shall, have to, had to be,
having to, needs to, got to, gotta, do not, will not, should be, should stay,
should remain, might not, isn't to, aren't to, only, exactly, unless, except,
exceptions, excluding, excluded, regardless, not more, not less, not later, not under,
not use, not ok, not any, not one, at least, without, stay away, stay out, stay on,
keep them, keep that, keep this, keep your, keep all, keep every, keep to, keep both,
intact, allowed, permitted, acceptable, essential*, crucial, vital, rule, rules, policy,
policies, condition, conditions, guideline*, principle*, guarantee, guaranteed,
as long as, so long as, whenever, every time, each time, any time, anytime, everywhere,
all cases, any case, by all means, stop when, ask us, check with, show me the, my word,
i've approved, by me, past me, remember that, mind the, careful, carefully, watch out,
watch for, reminder, none, agreement, refuse*, compliance, obey, until i, until we,
until you, before any, before every, before each, before anything, before editing,
before writing, before opening, before doing, for good, permanently, permanent, forever,
gluten, rely on, count on, or else, warn me, prioriti*, i expect, your job, you may,
we expect, fixed at, hard code*, hardcode*, pinned, freeze, frozen, above all, be sure,
make sure, make certain, double check, see that, preserve, retain, maintain, restrict*,
bound to, budget, just one, anything but, other than, apart from, aside from, but only,
instead, no longer, switch to, switching to, switch back, change that, overrid*,
overrul*, replaced by, replaces, as of now, corrected, outdated, obsolete, out of date,
not what i, on the contrary, update to the rule, not the other, roll back, rolled back,
verdict, contrary to, change my, ^ wait, undo what, what i asked, revert to,
cancel that, drop that, revert that, let me fix, let me redo, never, always, has to,
shouldn't, should not, needn't, exclusive, strict, on each, entirety, unchanged,
default is, with every, follow the, the minimum, the maximum, max of, even in, even for,
even as, nowhere, constraint*, contains no, contain no, remember to,
under any circumstances, anything other, at most, at the latest, at minimum, at maximum,
no less, we do not, you are to, my approval, hold to, not allowed, not permitted,
read only, untouched, ceiling, not supposed, ask me, don't, rather than, keep it,
nobody, go with, not to, not in, nothing, ^ use, ^ sort, ^ round, ^ name, ^ call it,
^ call the, ^ quote, ^ reply, ^ answer, ^ store, ^ log, ^ format, ^ spell, ^ put,
^ do it, i prefer, i want, we want, i'd like, it would be better, are always, is always,
prefer, ^ tests, given in, stored as, expire, expires, lasts, lives in, belongs,
come from, comes from, go next to, goes next to, is called, are called, it's called,
our test, is billed, we bill, we support, supports, by law, kilobytes, megabytes,
milliseconds, grams, metres, characters, ^ everything, ^ not, let's make,
let's do, is now, are now, ^ better, ^ change the, stays, remains, ^ exclude,
^ document, ^ target, ^ support, ^ release, ^ host, is due, is named, ^ dates, ^ times,
^ prices, ^ amounts, ^ passwords, ^ sessions, ^ the default, ^ the limit,
^ the deadline, ^ the budget, ^ my name, ^ our, per second, per minute, per hour,
per day, per month, per user, per seat, per request, per page, cents, utc, gb, mb, kb,
ms, percent, retries, ^ verify, per change, per commit, per ticket, per file, per pull,
per tenant, is responsible, are responsible, let us, afford, the official, official,
the primary key, is the primary, we standardised, we standardized, we're on, runs on,
^ in this repo, ^ fail, or none, ^ make it, the new name, the answer is, this project,
^ you should, we cannot, we can't, option a, option b, option c, option one, option two,
the client wants, the customer wants, the boss wants, the ceo wants, my boss, said no,
says no, spelled, the timezone, the currency, the language is, the unit, units are,
starts at, start at, metric, i live in, my name, i hate, i dislike, requires, max, min,
every monday, every tuesday, every wednesday, every thursday, every friday, every week,
every month, every quarter, on mondays, on tuesdays, on wednesdays, on thursdays,
on fridays, on weekends, on sundays, on saturdays, are private, is private, ids are,
dates are, names are, keys are, always in, project name, code name, codename, i said,
is better, tests first, kelvin, celsius, fahrenheit, currency, are given,
is given, given as, on the branch, carries, carry, have changed, wrong branch,
absolutely, won't be, after all, ^ all the, ^ all of, ^ all amounts, ^ all prices,
^ all dates, ^ all times, ^ all ids, codename is, spelled with, spelt, with a hyphen,
without a hyphen, with an umlaut, is valid for, are valid for, valid for, valid until,
live for, kept for, are kept, rotates, is measured in, are measured in, is measured,
are measured, is given in, are given in, is billed in, begin with, begins with,
starting with, followed by, digits, standardise on, standardize on, standardise,
standardize, is immutable, by default, off by default, on by default, disable, enable,
opt in, opt out, i own, i maintain, i lead, i run the, i represent, i work for,
i work at, i work as, my title, i'm the, i am the, my role, my team, the team is,
contact is, reachable at, the reviewer is, the owner is, is the owner, is the reviewer,
is the contact, address is, number is, rate is, size is, length is, version is, port is,
key is, name is, title is, figure is, total is, budget is, target is, quota, sla,
uptime, per household, per customer, per account, per project, every other, from next,
starting in, starting on, starting from, no rollout, the freeze, oldest, newest,
earliest, latest, code comes, comes before, come before, before speed, before code,
first then, in that order, in this order, order of work, new order, british spelling,
american spelling, english spelling, spelling, indent, pascalcase, camelcase,
snake_case, kebab case, iso 8601, bullet points, allergic to, intolerant, can't have,
cannot have, can't eat, don't eat, do not eat, vegetarian*, vegan*, diabetic, pregnant,
throughout, speak with, talk to, instead of, the only, only one, the sole, contact at,
contact for, contact person, done by two, raise an error, throw an error, fail fast,
fail loudly, target audience, audience, tone, wording, formal, informal, afterwards,
francs, pounds, yen, rupees, kroner, billed by, per head, per person, i can't stand,
favorite, favourite, my email, my birthday, i was born, colour blind, color blind,
left handed, offline, metric units, imperial units, is pinned, pinned to,
license header, licence header, revised, supported, unsupported, is taken from,
must match, has to match, single binary, constraint, one more constraint, supplier,
is hosted, are hosted, runs in, run in, deployed to, lives under, live under, lives at,
live in, based in, located in, ^ no | ^, ^ nothing, cutoff, cut off, threshold, ratio,
retention, retention period, margins, pixels, px, sentence case, title case, lower case,
lowercase, upper case, uppercase, header row, exchange rate, minimum age,
write access is, backups, every night, closes at, opens at, time zone, time limit,
word limit, page limit, character limit, row limit, allergy, in dozens, brand colour,
brand color, hex, law, gdpr, pci, hipaa, dictionary, guests, i go by, pronouns,
my pronouns, no sugar, nothing with, region, zone, port, host, hostname, endpoint,
schema, license, licence, copyright, trademark, footer must, header must, ^ whenever,
^ wherever, ^ anything, ^ anyone, ^ for anything, ^ for any, ^ for all, ^ for every,
^ in all, ^ in every, ^ on every, ^ with every, ^ at every, ^ replace, ^ ship, hyphen,
hyphenated, your contact, my contact, favour, favor, dr, we don't support,
we do not support, but it is, we take, we'll take, i work in, i work from, third party,
third parties, per attempt, attempts,
# Deutsch
eigentlich, anstatt, statt, ^ moment, ^ halt, letztlich, entscheid*, es bleibt, sondern,
finale, falsch war, diesmal, dieses mal, nun doch, überholt, ersetzt, abgesagt,
verzichten, nie, immer, jedesmal, muss, müssen, müsste*, darf, dürfen, dürfte*, nur,
kein, keine, keinen, keinem, keiner, keines, ohne, weder, niemand*, nirgends, nichts,
außer, ausser, genau, exakt, streng, wichtig*, regel, regeln, bevor, solange, sobald,
bis ich, beachte*, jede, jeder, jedes, jedem, jeden, überall, kritisch, erlaubt, bleibt,
bleiben, nötig, vorsicht, achtung, bloß, grenze, niemals, jederzeit, stets, nirgendwo,
lediglich, ^ nein, in cent, in euro, in metern, in sekunden, sind utc, cent, prozent,
die_frist, der name, unsere, _unser, läuft der, läuft die, bekommt einen, bekommt eine,
steht in, stehen in, liegen in, liegt in, ^ preise, ^ beträge, ^ zeitstempel, ^ zeiten,
^ passwörter, selbst, sind in, zuerst, gehört in, gehört zu, gehören zu, heißt,
nennen wir, nennt sich, wird gemessen, gemessen in, angegeben in, gültig bis,
gültig für, gilt bis, beginnt mit, beginnen mit, endet auf, enden auf, stellen, ziffern,
zuständig, verantwortlich für, ich bin der, ich bin die, alle_zwei wochen, jeden montag,
jeden dienstag, jeden freitag, megabyte, kilogramm, mehrwertsteuer, standard_ist,
in dieser reihenfolge, dienstags, montags, freitags, _frist, intern, ist_jetzt,
sind jetzt, ist_nun, braucht, brauchen, unterstützt*, unterstützen, pro minute,
pro stunde, pro monat, pro nutzer, pro person, tonfall, der ton, liegt bei, läuft auf,
läuft_unter, franken, danach, zielgruppe, ansprechpartner*, verlangt, erst danach,
formell, mindest*, höchst*, ersetz*, verhältnis, schreibzugriff, zugriff, aufbewahr*,
unterschreib*, unterzeichne*, hausfarbe, wechselkurs, grenzwert, schwelle, jede nacht,
schließt um, öffnet um, allergie, gesetz, gesetzlich, dürfen wir, tausend,
# Français
en fait, ^ minute, finalement, définitivement, restons, retour à, cette fois, remplac*,
toujours, dois, doit, faut, faudra, seulement, exactement, ni, aucun, aucune, personne,
sans, sauf, au plus, au moins, important*, règle, règles, avant de, avant que, tant que,
chaque, attention, permis, laisse*, seul, seule, seuls, nécessaire*, sinon, jamais,
nulle part, doivent, devons, essentiel*, ^ non, sont en, est en, en centimes, pour cent,
notre, nos, ^ les prix, ^ les montants, ^ les dates, ^ préfère, s' appelle,
s' appellent, d'_abord, rien n' est, nommé, nommée, se nomme, mesuré en, mesurés en,
exprimé en, exprimés en, valable, valide_jusqu'*, commence par, commencent par,
finit par, finissent par, se_termine par, chiffres, responsable_de, je suis le,
je suis la, toutes les deux, tous les lundis, tous les mardis, mégaoctets, kilos, tva,
dans cet ordre, en milliers, en interne, le nom est, l'_adresse est, le seul, la seule,
les seuls, est maintenant, sont maintenant, pris_en charge, prise en charge,
à la minute, par minute, par heure, par mois, par utilisateur, par personne, le ton,
tourne sur, hors ligne, public cible, contact chez, formel, à l' heure, rapport est,
droits d' écriture, accès, âge minimum, minimum, conserv*, signe les, couleur, taux,
seuil, chaque nuit, ferme à, ouvre à, loi, légal, légale, région, partout, ne pouvons,
on ne peut,
# Español
en realidad, finalmente, a partir de, sino, al final, esta vez, dejemos, sustitu*,
reemplaz*, siempre, debe, debes, hay que, sólo, ningún, ninguna, ninguno, nadie, sin,
al menos, máximo, mínimo, regla, reglas, norma, normas, antes de, hasta que, mientras,
cada, toda, todos, todas, recuerda*, cuidado, ojo, límite*, limit*, cualquier, nunca,
jamás, tiene que, tenemos que, deben, debemos, exactamente, crític*, pregunta*,
respeta*, solamente, mantener, van en, va en, están en, en céntimos, en centavos,
por ciento, la fecha de, fecha de entrega, fecha límite, plazo, nuestro, nuestra,
^ los precios, ^ los importes, ^ las fechas, primero, se llama, se denomina, se mide en,
se miden en, expresad*, válid*, empieza por, empiezan por, comienza con, termina en,
terminan en, dígitos, soy el, soy la, cada dos, todos los lunes, todos los martes, iva,
en este orden, en miles, miles de, internamente, el nombre es, la dirección es, ^ todo,
el único, la única, los únicos, es ahora, ahora es, son ahora, ahora son, soportad*,
compatible con, por minuto, por hora, por mes, por usuario, por persona, el tono,
sin conexión, francos, público objetivo, contacto en, cobramos, sustituy*, proporción,
permiso de escritura, acceso, edad mínima, mínim*, máxim*, firma los, color,
tipo de cambio, umbral, cada noche, cierra a, abre a, alergia, ley, legal, región,
se adelanta, en todas partes, no podemos, sin decimales, van sin,
# Português
na verdade, em vez de, afinal, no final, desta vez, dessa vez, substitu*, sempre, só,
apenas, nem, nenhum, nenhuma, ninguém, sem, pelo menos, regra, regras, antes do,
enquanto, tudo, lembr*, atenção, necessári*, qualquer, tem que, tem de, temos que,
temos de, devem, devemos, exatamente, pergunt*, somente, são em, estão em, em centavos,
por cento, o prazo, prazo, nosso, nossa, ^ os preços, ^ os valores, ^ as_datas,
primeiro, nada se, chama se, denomina se, medido em, medidos em, expresso_em,
começa com, começam com, termina em, terminam em, responsável por, sou o, sou a, a cada,
toda segunda, toda terça, quilos, nesta ordem, em milhares, milhares de, o_nome é,
o endereço é, o único, a única, único, única, é agora, agora é, são agora, suportad*,
por mês, por usuário, por pessoa, o tom, sem conexão, público alvo, contato na,
proporção, permissão de escrita, acesso, idade mínima, assine os, cor, câmbio, limiar,
toda noite, fecha às, abre às, região, em toda parte, reuniões, não podemos,
# Italiano
in realtà, a dire il vero, invece, un attimo, alla fine, restiamo, torniamo,
questa volta, stavolta, sostitu*, devi, bisogna, né, nessun*, niente, nulla, senza,
assolutamente, almeno, massimo, minimo, regola, regole, prima di, finché, ogni, tutta,
ricord*, attenzione, com'è, necessari*, qualsiasi, mai, devono, dobbiamo, esattamente,
critic*, soltanto, mantenere, sono in, è in, in centesimi, per cento, la scadenza,
scadenza, nostro, nostra, ^ i prezzi, ^ gli importi, ^ le date, ^ gli orari, deve,
prima i, prima le, prima il, niente si, dovr*, si chiama, si misura in, misurat*,
espress*, valid*, inizia con, iniziano con, finisce con, finiscono con, cifre,
responsabile di, sono il, sono la, ogni due, ogni lunedì, ogni martedì, chili,
in quest'ordine, in migliaia, migliaia di, il_nome è, l' indirizzo è, il solo,
l' unico, l' unica, unico, unica, è ora, ora è, sono ora, supportat*, al minuto,
all'ora, al mese, per utente, a persona, il tono, senza rete, franchi, destinatari,
referente, formale, fatturiamo, rapporto è, permesso di scrittura, accesso, età minima,
minim*, conserva*, firma le, colore, cambio è, soglia, ogni notte, chiude_alle,
apre_alle, allergia, legge, regione, ovunque, dappertutto, non possiamo, | ^ non,
^ solo, vanno, deciso,
# Nederlands
eigenlijk, uiteindelijk*, we blijven, het blijft, deze keer, dit keer, maar niet,
vervang*, altijd, steeds, moet, moeten, moest*, alleen, enkel, precies, geen, zonder,
niets, belangrijk*, regels, voordat, zolang, totdat, elke, iedere, blijf*, grens, nodig,
houd, hou, bewaar*, nooit, hoeft, nergens, kritiek, slechts, zijn in, staan in,
in centen, de deadline, deadline, onze, _ons, ^ prijzen, ^ bedragen, ^ alle_tijden,
mag je, mag er, mogen we, heet, genaamd, noemen we, gemeten in, uitgedrukt in,
geldig tot, geldig voor, begint met, beginnen met, eindigt op, eindigen op, cijfers,
verantwoordelijk voor, ik ben de, om de week, elke maandag, elke dinsdag, kilo, btw,
in deze volgorde, duizend*, de naam is, het_adres is, de enige, het enige, is nu,
zijn nu, ondersteund*, ondersteunen, per minuut, per uur, per maand, per gebruiker,
per persoon, de toon, doelgroep, contactpersoon, formeel, rekenen, verhouding,
schrijfrechten, toegang, minimum*, minimaal, maximum*, onderteken*, kleur, koers,
drempel, elke nacht, sluit om, opent om, wet, wettelijk, _regio, _overal, komen nooit,
komt nooit, niet gebruiken,
# Polski
właściwie, ^ chwila, jednak, w przyszłości, zostaje, tym razem, a nie, lecz, zawsze,
musi, musisz, musimy, trzeba, tylko, dokładnie, ani, nikt, nic, bez, poza, ważn*,
zasad*, zanim, przed, każd*, wszystk*, wszędzie, uwaga, potrzebn*, nigdy, żaden, żadna,
żadne, żadnych, żadnego, żadnej, muszą, musicie, nigdzie, jedynie, dopiero, są w,
jest w, w groszach, procent, termin, nasz, nasza, nasze, ^ ceny, ^ kwoty, ^_daty,
^ hasła, najpierw, nazywamy, nazywa się, zwie się, mierzone w, mierzony w, podawane w,
wyrażone w, ważny do, ważne do, zaczyna się od, zaczynają się od, kończy się na,
kończą się na, cyfr, odpowiedzialn*, jestem z, co dwa, w każdy poniedziałek, kilogram*,
vat, w tej kolejności, w tysiącach, tysięcy, wewnętrznie, nazwa to, adres_to, jedyn*,
jest teraz, są teraz, obsługiwan*, obsługujemy, za minutę, na minutę, za godzinę,
na miesiąc, na osobę, ton, grupa docelowa, osoba kontaktowa, formaln*, rozliczamy,
zamień, zastąp, zastęp*, stosunek, prawa zapisu, dostęp, minimaln*, maksymaln*, wiek,
podpisuj*, kolor, kurs, próg, co noc, zamykają o, prawo, nie możemy,
# Русский
на самом деле, уже не, решил*, итог*, на этот раз, в этот раз, а лучше, точнее, всегда,
постоянно, должен, должна, должно, должны, нужно, надо, только, лишь, точно, важн*, ни,
никак*, никто, ничего, без, кроме, прежде, перед, пока, каждый, каждая, каждое, каждого,
каждой, каждом, все, всё, всех, везде, помни*, хватит, секрет*, любой, любые, любом,
никогда, ровно, нигде, никому, в дальнейшем, отмен*, решен*, решён*, указаны в,
хранятся в, в копейках, в центах, процент*, срок, наш, наша, наши, ^ цены, ^ суммы,
^ даты, ^ пароли, вместо, а не, указан*, сначала, зовётся, зовется, именуется, измеря*,
даны в, выражен*, действител*, начинается с, начинаются с, заканчивается на,
заканчиваются на, цифр, отвечает за, отвечаю за, ответствен*, раз в две, раз в неделю,
каждый понедельник, каждый вторник, мегабайт*, килограмм*, ндс, в таком порядке,
в этом порядке, в тысячах, тысяч*, внутри команды, имя файла, адрес, поддержива*,
в минуту, поминутно, в час, в месяц, на человека, тон, без сети, офлайн, аудитори*,
контактн*, официальн*, берём плату, содержать, замени, замените, соотношение,
права на запись, доступ, минимальн*, максимальн*, возраст, хранятся, подписыва*, цвет,
курс, порог, каждую ночь, закрывается в, аллергия, закон, регион, никаких, не принимаем,
указана в, указано в, не можем, нельзя использовать,
# in several languages
confirmation, would be wrong, in english, auf englisch, auf deutsch, en français,
en anglais, en español, en inglés, em português, em inglês, in italiano, in inglese,
in het nederlands, in het engels, po polsku, po angielsku, на русском, на английском,
in german, in french, in spanish, standardmäßig, par défaut, por defecto, por padrão,
predefinit*, standaard, domyślnie, по умолчанию, eerst, vragen, nachfragen, first ask,
confirmación, confirmação, conferma, potwierdz*, подтвержд*, this one only, sofort,
immédiatement, inmediatamente, imediatamente, subito, onmiddellijk, natychmiast,
немедленно, decided, very important, is important, avoid*, they must, he must, she must,
i must, absolu*, ignor*, 使用中文, 用中文, 用英文, 用英语, 我让你, 简洁, 日本語で,
英語で, デフォルト, 通りに, ましょう, 指示, 한국어로, 영어로, 기본적, 기본값, 먼저,
합시다, 갑시다, 틀렸, 할 것, 명확, ^ rather than, as it is, not be, the rule, is not to,
are not to, gets merged, gets deployed, gets committed, cannot be, can't be, you can't,
you cannot, and don't, but don't, so don't, also don't, then don't, and do not,
but do not, so do not, we don't, permission, approval, consent, authorization,
authorisation, sign off,
# 中文
其实, 代替, 算了, 不对, 等等, 稍等, 今后, 以后, 从来, 总是, 始终, 一直, 每次, 一定,
应该, 应当, 不需要, 不想, 只有, 只在, 只是, 除了, 无论, 不管, 任何, 至少, 重要, 要求,
条件, 之前, 同意, 确认, 注意, 停止, 保持, 保留, 所有, 每个, 每一, 每当, 全部, 都要,
都得, 直到, 单位是, 都是, 统一, 期限, 不用, 我们用, 我们说, 默认, 优先, 建议用, 叫做,
以后叫, 内部叫, 称作, 命名为, 计量, 为单位, 有效期, 开头, 结尾, 尾号, 位数字, 负责,
每两周, 每周一, 每周二, 公斤, 千克, 税率, 按这个顺序, 先后, 千元, 代号, 地址是, 名字是,
改在, 现在是, 支持, 每分钟, 按分钟, 每小时, 每月, 每人, 计费, 语气, 离线, 目标用户,
联系人, 正式, 替换, 改成, 比例, 写权限, 权限, 最高, 年龄, 保存期, 署名, 颜色, 汇率,
阈值, 每晚, 过敏, 法律, 地区, 到处, 不开会, 先做, 保持原, 原样, 开尔文, 摄氏, 不带,
不含, 决定, 才能, 一切, 最大, 永远,
# 日本語
実は, 実際は, 待って, 変更に, 方針, 決定, 決め, これから, 違う, 中止, いつも, 毎回,
ないで, べき, 限り, 以外, 場合は, 全て, 必要, 守る, 守り, しない, 前に, 以内, 以下,
以上, 最小, 最低, 覚えて, そのまま, なく, ません, ずに, には, ください, お願い, だけ,
まで, 単位, すべて, という名前, と言います, といいます, 測り, で表し, 有効期限,
有効です, で始ま, で終わ, 末尾, 桁, 担当, 週間ごと, 毎週, キロ, の順, 千円, 社内では,
コードネーム, アドレスは, 対応ブラウザ, 対応し, 分ごと, 毎月, 一人あたり, 口調,
オフライン, 対象者, 連絡先, 計算し, 文字以上, 敬語, 置き換え, 比率, 書き込み権限, 権限,
年齢, 保存期間, 色は, 為替, しきい値, 毎晩, アレルギー, 地域, の名前は, ケルビン, 摂氏,
使用する, なしで, 抜きで,
# 한국어
사실, 잠깐, 잠시만, 착각, 변경, 결정, 정했, 그냥, 언제나, 매번, 해야, 어야, 아야, 야 해,
로만, 오직, 유일, 경우, 모두, 전부, 필수, 조건, 요구, 중요, 피해, 그만, 지 않, 없이,
물어보, 물어봐, 묻고, 기 전, 전에, 까지, 이내, 이하, 이상, 최소, 기억하, 그대로, 말아,
아무도, 아무것도, 때마다, 모든, 주세요, 단위, 라고 합니다, 라고 불러, 측정, 표시합,
유효, 로 시작, 로 끝나, 끝자리, 자리 숫자, 담당, 주마다, 매주, 킬로, 세율, 순서로,
천 원, 내부적으로, 코드명, 주소는, 지원하, 분당, 시간당, 매월, 인당, 말투, 오프라인,
그다음, 대상, 담당자, 격식, 바꿔, 교체, 비율, 쓰기 권한, 권한, 최저, 최고, 나이, 보관,
서명, 색상, 환율, 임계, 매일 밤, 법률, 지역, 올리지, 사용할 수 없
"""
WISHES = """
# English
prefer*, rather, would like, would love, would prefer, would be nice, would be better,
we'd like, i need, we need, i hope, should, please, pls, kindly, using, call, called,
calls, name, names, because, since, in order to, the reason, reason, by monday,
by tuesday, by wednesday, by thursday, by friday, by saturday, by sunday, by tomorrow,
by noon, by midnight, by tonight, by eod, by end, by the end, try to, consider, ideal*,
needs, goal, purpose, stands for, short for, aka, style, convention*, keep, store,
stored, stores, format*, unit, units, default*, not, isn't, aren't, doesn't, won't,
wouldn't, is in, are in, is on, are on, is our, is my, goes in, lives on, known as,
we say, we use, we call, we write, we name, we keep, we store, we ship, we deploy,
we pay, we charge, we count, we measure, i use, spell, rename, twelve, second one,
third, option, plan, variant, answer, each, every, follow, maximum, private, secret,
car il, important, importantly, is to, are to, ensure, ensures, verify, warning,
caution, danger, dangerous, literally, actually, otherwise, reserve*, treat, go back,
going back, back to, expected to, go for, going for, went with, change it, demand,
demands, remain, up to, rejected, reject, respect, refer to, limited, require*,
is wrong, was wrong, were wrong, was a mistake, kept, switched, moved to, moving to,
we moved, drop the, drop it, revision, besides, neither, nor, locked, off the, cannot,
can't, dont, and not, our, items, named, versions, version, will be, ^ same, ^ one,
entire, decision, final, remember, uses, start with, starts with, in each, priority,
anything else, before we, before i, make that, failing test, failing tests, fee, fees,
tax, taxes, price, costs, discount, customers, users, the branch, until the, ^ the, ^ a,
^ an, minutes, hours, days, weeks, months, dollars, seconds, euros, my phone, ^ sign,
^ ring, ^ hold, ^ mark, ^ tag, ^ serve, ^ mention, ^ include, ^ translate, ^ cite,
^ prefix, ^ suffix, ^ shorten, ^ speak, ^ label, ^ wrap, ^ bill, ^ charge, ^ pay,
^ invite, ^ notify, ^ alert, make it, ask the, three, four, five, six, seven, eight,
nine, ten, eleven, fifteen, dozen, percentages, decimals,
# Deutsch
möchte*, würde*, bitte, lieber, bevorzug*, soll, sollen, sollte*, wünsch*, wollen,
brauche*, nehmen, nutz*, benutz*, verwend*, heißen, heisst, nenn*, weil, denn, damit,
sonst, stell sicher, sicherstell*, ziel, grund, nicht, ^ der, ^ die, ^ den, ^ ein,
^ eine, minuten, stunden, _tage, wochen, monate, sekunden, drei, vier, fünf, sechs,
sieben, acht, neun, zehn, zwölf, fünfzehn, million*, dutzend, prozentwerte, lass uns,
# Français
voudrais, aimerais, préfèr*, préfér*, souhait*, s' il vous plaît, merci de, appel*,
nomm*, parce que, afin, pour que, délai, échéance, veux, voulons, besoin, assure*,
on utilise, on écrit, objectif, ne, n', pas, ^ le, ^ la, ^ les, ^ l', ^ un, ^ une,
^ tout, ^ toute, heures, jours, semaines, mois, secondes, ensuite, trois, quatre, cinq,
sept, huit, neuf, dix, douze, quinze, douzaine, pourcentages,
# Español
quiero, queremos, quisiera, gustaría, prefier*, por favor, usar, usen, llama*, nombr*,
porque, ya que, para que, fecha, necesit*, conviene, asegúra*, está en, usamos,
objetivo, nada, necesari*, solo, todo, ^ el, ^ los, ^ las, ^ una, minutos, horas, días,
semanas, meses, segundos, después, tres, cuatro, cinco, seis, siete, ocho, nueve, diez,
doce, quince, millones, docena, porcentajes,
# Português
quero, queria, gostaria, prefir*, usem, chama*, pois, precis*, convém, certifi*,
está em, não, ^ os, ^ as, ^ um, ^ uma, dias, depois, três, quatro, sete, oito, nove,
dez, doze, quarenta, milhão, milhões, dúzia,
# Italiano
vorrei, vogliamo, voglio, per favore, per piacere, usare, usate, uso, utilizz*, chiam*,
nomin*, perché, poiché, affinché, serve, servono, bisogno, assicur*, obiettivo, non,
^ il, ^ lo, ^ gli, minuti, _ore, giorni, settimane, mesi, secondi, poi, _tre, quattro,
cinque, sette, otto, dieci, dodici, quindici, milione, milioni, dozzina, tutto, tutti,
tutte,
# Nederlands
willen, graag, liever, voorkeur, alsjeblieft, alstublieft, gebruik*, noem*, heten,
omdat, zodat, anders, termijn, zou, zouden, zorg*, we gebruiken, we noemen, doel, exact,
niet, ^ de, ^ het, ^ een, uur, dagen, weken, maanden, seconden, daarna, drie, vijf, zes,
zeven, negen, tien, twaalf, vijftien, miljoen, dozijn, percentages van,
# Polski
chcę, chce, chcemy, chciał*, wolę, wolał*, prosz*, używa*, użyj*, nazyw*, nazw*,
ponieważ, żeby, aby, inaczej, termin*, potrzeb*, upewnij, stosuj*, cel, minut, godzin,
dni, tygodni, tygodnie, miesięcy, sekund, sekundy, potem, trzy, cztery, pięć, sześć,
siedem, osiem, dziewięć, dziesięć, dwanaście, piętnaście, _milion*,
# Русский
хочу, хотим, хотел*, предпоч*, лучше, пожалуйста, использ*, называ*, назов*, назван*,
потому что, чтобы, иначе, срок*, дедлайн*, нужн*, стоит, убедись, убедитесь, говорим,
пишем, цель, цены, не, минут, часов, дней, недель, недели, месяцев, секунд, секунды,
потом, теперь, три, четыре, пять, шесть, семь, восемь, девять, десять, двенадцат*,
пятнадцат*, миллион*, процентные,
# in several languages
euro, dollar, meters, bytes, centimes, céntimos, centavos, centesimi, centen, groszach,
копейк*, vão em, prices, preise, prix, precios, preços, prezzi, prijzen, ceny, amounts,
beträge, montants, importes, valores, importi, bedragen, kwoty, суммы, utilisez,
utiliser, utilizar, utilice, garantir, garantire, garanta, 希望, 想要, 最好, 宁愿,
更喜欢, 偏好, 建议, 称为, 名为, 名字, 因为, 所以, 为了, 截止, 需要, 确保, 单位, 目标,
版本, 预算, ほしい, 欲しい, したい, 下さい, 好み, 方がいい, ほうがいい, 使って, 使う,
使い, 呼ぶ, 呼び, 呼ん, 名前, なぜなら, ので, ため, 締め切り, 締切, 目標, 予算, 원해,
원합, 좋겠, 부탁, 선호, 사용, 써 주, 써줘, 부르, 이름, 왜냐, 때문, 위해, 마감, 기한,
기본, 목표, 예산, 하세요, 해줘, 해 줘, 分为单位, 以分, 价格, 金额, セント, 価格, 金額,
센트, 가격, 금액, need, needed, immediately, right away, minimal, smallest, as is,
# 中文
星期, 我是, 之后, 表示,
# 日本語
その後, 私は,
# 한국어
이제, 저는
"""
SMALL_TALK = """
thanks, thank you, thx, cheers, haha, hahaha, lol, hi, hello, hey, good morning,
good evening, good night, good job, how are you, nice, great, awesome, cool, wow,
lovely, weekend, weather, coffee, lunch, breakfast, dinner, funny, sunny, rain, rainy,
holiday, vacation, movie, cat, dog, kids, tired, birthday, danke, hallo, moin,
guten morgen, guten tag, super, toll, schön, wetter, wochenende, kaffee, merci, bonjour,
salut, génial, parfait, café, gracias, hola, buenos días, genial, tiempo, obrigado,
obrigada, olá, bom dia, grazie, ciao, buongiorno, bello, caffè, bedankt, dank je, hoi,
leuk, mooi, weer, dzięki, dziękuję, cześć, świetnie, pogoda, kawa, спасибо, привет,
отлично, здорово, погода, погоду, кофе, круто, 谢谢, 你好, 哈哈, 天气, 周末, 咖啡,
早上好, ありがとう, こんにちは, おはよう, 天気, 週末, すごい, コーヒー, 감사, 안녕,
날씨, 주말, 커피, ㅋㅋ, ㅎㅎ,
# English
oh, ah, yeah, yes, yep, really, very, quite, too, much, pretty, so much, a lot,
a little, she, him, her, his, they, you, your, you're, you've, you'll, you'd, sir,
madam, mister, mr, mrs, miss, dear, darling, honey, got, i'd, i've, i'll, i love, love,
loved, feel, feels, happy, glad, afraid, worried, excited, heard, hear, sounds,
sounds good, of course, tell, could, would you, today, tonight, yesterday, this morning,
people, train, tv, eat, family, wife, husband, friend, friends, mother, father, brother,
sister, doctor, hospital, woman, how about, what about, you know, excuse me, pardon,
bye, goodbye, see you, welcome, congratulations, good luck, good idea, that's,
sounds like, often, usually, sometimes, something, someone, almost, little, many,
things, right now, he, he's, she's, they're, you'd better, never mind that, excuse, i'm,
^ it, ^ it's, ^ that, ^ this, ^ there, ^ there's, ^ these, ^ those, ^ oh well,
^ here, here's, ^ sure, ^ right, ^ let me, ^ i,
# Deutsch
ach, wirklich, sehr, ziemlich, er, ihm, ihn, du, dich, dir, dein, _deine, deinen, _sie,
ihnen, mir, mich, herr, frau, lieber gott, schatz, hat, hast, habe, gehört, liebe,
fühle, fühlt, glücklich, froh, angst, klingt, natürlich, klar, heute abend, gestern,
gestern abend, leute, schule, essen, familie, freund, freunde, mutter, vater, bruder,
schwester, arzt, wie wäre, wie war, was_ist, entschuldigung, tschüss, willkommen,
viel glück, gute idee, oft, manchmal, etwas, jemand, viele, ein bisschen, gern, gerne,
so viel, ganz, ich mag, magst, hätte, wäre, ach ja, na ja, ja klar, ich, ^ es, ^ das,
^ dies, ^ da, ^ hier, ^ na, ^ nun,
# Français
oui, vraiment, très, trop, assez, ils, elles, leur, t', _toi, tes, vous, votre, vos,
monsieur, madame, cher, chérie, entendu, aime, adore, heureux, heureuse, content,
contente, peur, bien sûr, aujourd'hui, ce soir, hier, gens, voiture, école,
fête, _manger, famille, ami, amis, mère, père, frère, soeur, médecin, hôtel, et si,
excusez moi, au revoir, bienvenue, bonne chance, bonne idée, souvent, parfois,
quelque chose, quelqu'un, presque, un peu, beaucoup, ça, c' était, j', ^ c', ^ ça,
^ cela, ^ voilà, ^ voici, ^ eh bien, ^ bon,
# Español
sí, realmente, muy, demasiado, bastante, él, ella, ellos, tú, tus, usted, señor, señora,
cariño, oído, encanta, siento, feliz, miedo, claro, por supuesto, hoy, esta noche, ayer,
coche, escuela, fiesta, comer, familia, amigo, amigos, hermano, hermana, médico,
qué tal, perdón, adiós, bienvenido, buena suerte, buena idea, a menudo, a veces, algo,
alguien, casi, un poco, mucho, mucha, muchos, muchas, me gusta, sería, suena, yo, ^ eso,
^ esto, ^ aquí, ^ allí, ^ bueno, ^ pues, ^ vale,
# Português
oi, sim, muito, muita, demais, ele, ela, _eles, você, vocês, seu, senhor, senhora,
querido, querida, ouvi, sinto, medo, com certeza, hoje, hoje à noite, ontem, carro,
escola, família, mãe, pai, irmão, irmã, livro, que tal, desculpe, tchau, bem vindo,
boa sorte, boa ideia, às vezes, alguém, quase, um pouco, eu gosto, seria, eu, ^ isso,
^ isto, ^ aqui, ^ ali, ^ bom,
# Italiano
sì, davvero, molto, troppo, abbastanza, lui, loro, suo, sua, tu, tuo, tua, signore,
signora, caro, cara, tesoro, hai, ho, sentito, amo, adoro, sento, felice, contento,
contenta, paura, certo, certamente, oggi, stasera, ieri, gente, macchina, scuola, festa,
mangiare, famiglia, amico, amici, madre, padre, fratello, sorella, medico, albergo,
che ne dici, scusi, scusa, arrivederci, benvenuto, buona fortuna, buona idea, spesso,
qualche, qualcosa, qualcuno, quasi, un po, tanto, tanti, molti, vuoi, puoi, penso che,
mi piace, sarebbe, io, ^ questo, ^ quello, ^ ecco, ^ beh, ^ allora,
# Nederlands
echt, erg, heel, te_veel, hij, zij, hem, haar, je, jij, jou, jouw, uw, meneer, mevrouw,
lieve, schat, gehoord, hou van, voel, blij, gelukkig, bang, natuurlijk, vandaag,
vanavond, gisteren, mensen, feest, eten, vriend, vrienden, moeder, vader, broer, zus,
dokter, wat vind, sorry, tot ziens, welkom, _succes, goed idee, vaak, soms, iets,
iemand, bijna, een beetje, veel, zou je, ik, ^ het is, ^ dat, ^ dit, ^ daar, ^ nou,
# Polski
och, naprawdę, bardzo, dość, jego, jej, jemu, ciebie, tobie, twój, twoja, państwo,
kochanie, słyszałem, słyszałam, kocham, lubię, czuję, szczęśliwy, szczęśliwa, boję,
oczywiście, dzisiaj, dziś wieczorem, wczoraj, ludzie, samochód, szkoła, impreza, jeść,
rodzina, przyjaciel, przyjaciele, matka, ojciec, brat, siostra, lekarz, przepraszam,
do widzenia, witaj, powodzenia, dobry pomysł, często, czasami, coś, ktoś, prawie,
trochę, dużo, wiele, ^ to, ^ tu, ^ tam, ^ no i, mnie,
# Русский
ой, ах, да, правда, очень, слишком, довольно, он, она, они, его, её, ему, ей, им, ты,
тебя, тебе, твой, твоя, вы, вас, вам, ваш, ваша, господин, дорогой, дорогая, слышал,
слышала, люблю, нравится, чувствую, рад, рада, счастлив*, боюсь, конечно, сегодня,
сегодня утром, вечером, вчера, люди, школа, вечеринка, семья, друг, друзья, мама, папа,
мать, отец, брат, сестра, врач, гостиница, извините, извини, до свидания,
добро пожаловать, удачи, хорошая идея, часто, иногда, что то, кто то, почти, немного,
много, опять, снова, я, мне, меня, ^ это, ^ тут, ^ там, ^ ну, ^ вот,
# 中文
哦, 吧, 呢, 嗯, 是的, 真的, 非常, 太, 他, 她, 他们, 你, 您, 先生, 小姐, 女士, 亲爱的,
听说, 喜欢, 觉得, 高兴, 开心, 害怕, 担心, 当然, 今天, 今晚, 人们, 钱, 车, 学校, 吃, 买,
朋友, 妈妈, 爸爸, 医生, 酒店, 音乐, 对不起, 抱歉, 再见, 欢迎, 祝, 好主意, 有时, 经常,
一点, 一些, 很多, 吗, 我, 这个, 那个, 这里, 那里,
# 日本語
ああ, ええ, はい, うん, ね, よね, 本当, とても, すごく, かなり, 彼, 彼女, あなた,
聞きました, 好き, 嬉しい, うれしい, 楽しい, 怖い, 大丈夫, もちろん, 今日, 今夜, 人々,
お金, 食べ, 家族, 友達, お母さん, お父さん, 医者, 音楽, 本を, すみません, ごめん,
さようなら, ようこそ, 時々, 少し, たくさん, 私, これは, それは, あれは, ここ, そこ, 僕,
# 한국어
정말, 매우, 아주, 너무, 그는, 그녀, 당신, 너는, 선생님, 들었, 사랑, 좋아, 기분, 행복,
기뻐, 무서, 물론, 오늘, 오늘 밤, 사람들, 학교, 가족, 친구, 엄마, 아빠, 의사, 음악, 미안,
죄송, 안녕히, 환영, 가끔, 자주, 조금, 많이, 나는, 저는 정말, 이것은, 그것은, 여기, 거기
"""
REPORTS = """
# English
i see, i saw, i get, i got, i tried, i ran, i think, i thought, i guess, i wonder,
i noticed, i looked, i checked, i tested, i found, i just, i already, i removed,
i added, i fixed, i renamed, i changed the, i couldn't, i still, i'm seeing,
i'm getting, i'm still, i've seen, i've been, i've tried, i expected, i would have,
i was, i had, i have no idea, i have to leave, i'm going to, i'm working on, i'm new,
we don't know, we had, we haven't, we were, we might, we could, we tried, they said,
he said, she said, they say, you were right, you said, you forgot, you changed,
you added, you removed, you missed, reported, the log says, the logs say, the logs show,
according to, the docs say, my guess, not sure, any idea, no idea, works, worked,
doesn't work, not working, fails, failed, failing, crashes, crashed, crashing, breaks,
broke, broken, hangs, hanging, throws, threw, returned, gets called, shows, showed,
happens, happened, happening, undefined, seems, seem, looks like, looks odd, appears,
apparently, turned out, turns out, it turned, for some reason, somehow,
since the update, used to, were, did, didn't, wasn't, weren't, couldn't, took, has been,
have been, came, went, wrong by, stopped, died, still the, still fails, still not,
still shows, same error, same problem, another error, a different error, i wish, weird,
strange, unfortunately, probably, maybe, perhaps, by the way, just wondering, wondering,
curious, ^ why, ^ how, ^ what, ^ where, ^ who, ^ which, ^ is, ^ are, ^ does, ^ do we,
^ do you, ^ do i, ^ can i, ^ can we, ^ could, ^ would, ^ isn't, ^ aren't, ^ have you,
^ has, is affected, passes, compiles, here's the, here is the, here is what,
this is the output, let's see, let's look, let me check, let me try, let me see,
let me know, that explains, that's not, that didn't, it worked, it works, traceback,
don't know, don't think, don't mind, don't worry, don't care, don't remember,
don't get it, don't believe, don't recall, don't feel, don't you, dont know, dont worry,
do not know, can't wait, can't believe, can't remember, can't sleep, can't complain,
can't help but, cannot wait, cannot believe, never thought, never knew, never heard,
never seen, never imagined, always been, always loved, always wanted, always knew,
always nice, always fun, no worries, no problem, no problems, no rush, no hurry,
no doubt, no thanks, no kidding, no wonder, no surprise, no pressure, no offense,
nothing much, nothing new, at least it's, at least the weather, every morning,
every now and then, first time, last night, last week, last weekend, i remember,
if only, only yesterday, ever since, have you ever, more than ever, hold my, weiß nicht,
glaube nicht, denke nicht, kein problem, keine ahnung, keine sorge, kein stress,
keine eile, keine lust, nicht schlecht, nicht schlimm, nicht wahr, nicht sicher,
nicht so, nicht viel los, immer schön, crois pas, pense pas, marche pas, pas de souci,
pas de problème, pas mal, pas grave, no creo, no importa, no me acuerdo, no recuerdo,
nada más, não acho, não faz mal, não tem problema, não importa, não me lembro,
non credo, non importa, non ricordo, niente di che, weet niet, niet zo, niet slecht,
niet erg, geen idee, geen zorgen, geen haast, nie sądzę, nie myślę, nie szkodzi,
nie pamiętam, nie martw, nic takiego, не думаю, не помню, не уверен, не переживай,
не волнуйся, не за что, ничего страшного, i don't, they don't, people don't, i do not,
i can't, she can't, he can't, i cannot, i never, i've never, have never, has never,
i've always, have always, has always, he always, she always, they always, it always,
never been, he never, she never, must be nice, must be fun, must be tired, must be hard,
must be great, i must say, i must admit, i have to say, i have to admit, i have to go,
to have to, not bad, not really, not at all, the whole way, it's not that, i'm not,
final game, in the end, at last, no thank you, can't tell you, we decided to go,
best decision, never a dull, you never know, better late than never, never say never,
like always, always a, always so, always such, always happy, always makes, always tells,
always says, ich muss sagen, muss ich sagen, ich muss gestehen, je dois dire,
il faut dire, tengo que decir, hay que decir, devo dire, devo dizer, tenho que dizer,
moet zeggen, muszę powiedzieć, должен сказать, должна сказать, muss man sagen,
wie immer, noch nie, comme toujours, como siempre, como sempre, come sempre,
zoals altijd, jak zawsze, как всегда, may i, don't pay, you should see, you should have,
that must be, as you must, ^ no problem, not much, not too, not today, not long, not so,
we don't think, we don't have, you don't look, you don't know, you don't think,
you don't have, just don't think, not only, if you ask me, i must be, must be a,
must be an, must be so, must be very, don't need to, ^ no | ^ thanks,
^ no | ^ thank you, i decided to go, we don't need, ne sai*, geen problee*,
has to be the, there has to be, must be the, must've, only difference, ^ not true,
no change, no luck, no error, no errors, no difference, no result, no results,
no output, no response, no effect, no such, no matches, no content, no function,
no longer works, no longer getting, no longer see, not a big, not that i, nothing to,
need to find, only happens, only breaks, only see, only sees, only appears, only fails,
only works, as always, not found, does not work, don't work, doesn't help, doesn't seem,
don't see, don't match, doesn't match, doesn't exist, does not exist, can't find,
can't see, cannot see, can't reproduce, can't log, can't open, nothing happens,
nothing changed, never happens, never finishes, never returns, never reaches,
never answered, never resolved, never worked, never comes, never got, never get,
never gets, never saw, instead of failing, ^ no idea, always the same, ^ at least the,
^ at least it, ^ all of the, ^ all green, ^ everything else, ^ everything works,
^ only the first, ^ only two, ^ only one, show me the result, only way, let's use those,
the rest of the, nothing special, ^ settled in, let's keep working, let's keep going,
keep going, keep working, great keep, is now fixed, are now green, is now gone,
what will be, see above, you don't need to, no man, only thing, let me still,
nothing specific, ^ as of now it, don't have, must be something, must be some,
must be related, is fast, it's fast, it is fast, is slow, it's slow, for no reason,
no reason, ^ forget to mention, raining, i always, every time i, looks as if,
already fast, quite fast, it's quite, ^ not all of, i mix, tests pass now,
all tests pass, tests still pass, no news, no crash, no big, no clue, no warnings,
no need, no way to, no sign, no trace, no logs, no data, no matter how, no one knows,
no one answered, no particular, no longer the case, no tests ran, docs never mention,
never mention, never mentions, nobody reacted, nobody replied, nobody noticed,
could not be, couldn't be, cannot be reached, everything is fine, everything is green,
everything is ok, everything is okay, everything is working, everything is up,
^ only admins see, only users see, every weekend, i compared, i must have, we can't see,
we cannot see, whenever i, takes forever, he told, she told, they told,
they only differ, somebody merged, someone merged, he says, she says, went out,
every second request, every few, forever to, must have, must have been, may be a,
may be the, may be related, i agree, keep the change, no more questions, no way,
don't mention it, don't be, you can't be, never mind i, not always, i won't be,
not every, no more, i don't want to go, i'm afraid, i'd love, that's all right,
all right, the only reason, the only problem, only one of, only just, is missing here,
something is missing, ^ it should be possible, nothing suspicious, nothing unusual,
stops after, we only see, we only get, we only saw, any news, any luck, any thoughts,
# Deutsch
ich sehe, ich habe, ich hatte, ich dachte, ich glaube, ich denke, ich vermute,
ich verstehe, ich weiß, ich weiss, ich wollte nur, ich frage mich, ich_finde, ich bin,
ich war, ich muss los, ich muss in, ich bekomme, ich kriege, wir wissen, wir haben,
wir hatten, wir waren, stürzt, abgestürzt, schlägt fehl, schlagen fehl, fehlgeschlagen,
funktioniert, läuft es, läuft nicht, läuft jetzt, geht nicht, geht es, geht jetzt,
hängt, kaputt, fehlermeldung, passiert, kommt immer, kommt nur, tritt auf, war, wurde,
hatte, hat gestern, zeigt, scheint, sieht aus, anscheinend, offenbar, vermutlich,
wahrscheinlich, vielleicht, irgendwie, seit dem, seit gestern, seltsam, komisch, leider,
immer noch, gleicher fehler, derselbe fehler, kein fehler, keine fehler, keinen fehler,
plan was, keinen unterschied, liegt es, liegt am, lag am, hat nicht, hat geholfen,
hat nichts, ^ warum, ^ wieso, ^ wo, ^ wer, ^ kannst du, ^ könntest, ^ sollten wir,
^ kann man, nie verstanden, nie fertig, nie gesehen, nur zwei, nur bei, tests schlagen,
verstanden, gesehen, gefunden, nur noch zwei, nur ein test, alle_tests, alles grün,
alles gut, ^ nur zwei, ^ nur bei, ^ nur die erste, ^ kein plan, ^ keine ahnung,
^ kein fehler, ^ keine fehler, ^ ohne die, ^ ohne den, ^ ohne das, ^ immer wenn,
^ immer der gleiche, ^ immer noch, ist_es schnell, ist_schnell, ist_langsam, ohne grund,
findet keine, heute früh, verwechsle,
# Français
je vois, je ne vois, j' ai vu, j' ai eu, j' ai essayé, j' ai trouvé, j' ai ajouté,
j' ai lancé, j' ai testé, je pense, je pensais, je crois, je croyais, je comprends,
je ne comprends, je n' ai, je ne_sais, je me demande, je dois partir, je suis, j' étais,
on ne sait, on avait, on n' a, nous avons, plante, planté, échoue, échouent, échoué,
ne marche, ça marche, ça ne, ça bloque, fonctionne pas, ne fonctionne, cassé, cassée,
il y a, il n' y a, il ne se passe, se passe, n' y a, était, étaient, avait, affiche,
semble, on dirait, apparemment, sans doute, peut être, bizarre, malheureusement,
depuis la, depuis hier, même erreur, aucune erreur, finit jamais, ne finit, pas compris,
jamais compris, ^ pourquoi, ^ comment, ^ où, ^ qui, ^ est ce, ^ tu peux, ^ pourrais tu,
^ peux tu, retourne, renvoie, a renvoyé, toujours la même, toujours le même,
^ toujours la, ^ toujours le, ^ sans l' option, ^ sans ça, ^ sans le, ^ aucun problème,
^ aucune idée, ^ tous les tests, ^ pas de souci, ^ pas de problème, ^ aucune erreur,
sans_raison, c' est rapide, c' est lent, je confonds,
# Español
veo, he visto, he probado, probé, creo, creía, pensé, pensaba, entiendo, entendí,
no entiendo, sé, no sabemos, me pregunto, tengo que irme, estoy, estaba, estaban, eran,
fue, tenía, teníamos, hemos, se cae, falla, fallan, falló, fallando, funcionan,
funcionaba, no funciona, se cuelga, se rompe, roto, pasa, no pasa, ocurre, sucede,
hay un, hay una, muestra, devuelve, devolvió, al parecer, quizás, quizá, tal vez,
probablemente, raro, extraño, desafortunadamente, lamentablemente, desde ayer,
desde la actualización, sigue, el mismo error, mismo error, ningún error, ^ por qué,
^ cómo, ^ dónde, ^ quién, ^ puedes, ^ podrías, ^ qué, salió, nunca entendí, solo fallan,
solo pasa, ya funciona, no hay, no sé, no veo, ^ sin la, ^ sin el, ^ siempre se,
^ siempre el mismo, ^ solo fallan, ^ solo falla, ^ solo pasa, ^ nunca entendí,
^ ningún error, ^ ninguna idea, ^ ningún problema, no carga, no se ve, no se ven,
no sale, no aparece, sin motivo, sin razón, va rápido, va lento, se reinicia,
# Português
vejo, vi, tentei, testei, acho, achei, achava, pensei, entendi, entendo, não entendo,
sei, sabemos, não sabemos, me pergunto, tenho que sair, estou, estava, estavam, eram,
foi, tinha, tínhamos, trava, travou, falha, falham, falhou, falhando, funciona,
funcionam, funcionou, não funciona, quebrou, quebrado, acontece, não acontece, há um,
há uma, tem um_erro, aparece, retorna, retornou, parece, aparentemente, talvez,
provavelmente, estranho, infelizmente, desde ontem, desde a atualização, continua,
o mesmo_erro, mesmo_erro, nenhum_erro, termina de, ^ por que, ^ como, ^ onde, ^ quem,
^ você pode, ^ poderia, ^ será que, nunca entendi, nunca termina, só acontece, só dois,
agora funciona, deu_erro, não há, não sei, não vejo, ^ sem a, ^ sem o, ^ sempre trava,
^ sempre o mesmo, ^ só dois, ^ só acontece, ^ nunca termina, ^ nunca entendi,
^ nenhum_erro, ^ nenhuma ideia, ^ nenhum problema, não carrega, não aparece, não abre,
sem motivo, sem razão, fica lento, é rápido, confundo, reinicia,
# Italiano
vedo, ho visto, ho provato, ho trovato, ho aggiunto, ho testato, ho mai, credo, pensavo,
penso, capisco, capito, non capisco, so perché, sappiamo, non sappiamo, mi chiedo,
devo andare, sono, ero, era, erano, aveva, avevamo, abbiamo, si blocca, fallisce,
falliscono, fallito, funziona, funzionano, funzionava, non funziona, non va, va in,
si rompe, rotto, rotta, _succede, non_succede, c' è, ci sono, non ci sono, appare,
mostra, restituisce, sembra, a quanto pare, _forse, probabilmente, strano, purtroppo,
da ieri, dall'aggiornamento, ancora, lo stesso errore, stesso errore, nessun errore,
finisce mai, finisce di, ^ perché, ^ come, ^ dove, ^ chi, ^ puoi, ^ potresti,
^ dovremmo, mai capito, solo due, ora funziona, non c' è, non so, non vedo,
^ senza l' opzione, ^ senza la, ^ senza il, ^ sempre lo stesso, ^ solo due,
^ solo la prima, ^ mai visto, ^ nessun errore, ^ nessuna idea, ^ nessun problema,
non carica, non appare, non si apre, non si vede, senza motivo, senza ragione, è veloce,
è lento, confondo, si riavvia,
# Nederlands
ik zie, ik zag, ik heb, ik had, ik dacht, ik denk, ik geloof, ik begrijp, ik snap,
ik weet, ik vraag me, ik moet over, ik moet weg, ik ben, ik was, ik krijg, we weten,
we hadden, we hebben, crasht, faalt, falen, gefaald, mislukt, werkt, werken niet,
werkte, hangt, stuk, kapot, gebeurt, er staat, er is een, er zijn, er falen, was, waren,
had, hadden, toont, lijkt, blijkbaar, misschien, waarschijnlijk, vreemd, raar, helaas,
sinds de, sinds gisteren, nog steeds, dezelfde fout, geen fout, geen fouten, klaar met,
^ waarom, ^ hoe, ^ waar, ^ wie, ^ kun je, ^ zou je, ^ moeten we, nooit begrepen,
nooit klaar, bij mij, alleen bij, nu werkt, ^ zonder de, ^ zonder het,
^ altijd dezelfde, ^ alleen de eerste, ^ nooit gezien, ^ geen fout, ^ geen fouten,
^ geen idee, ^ geen_probleem, ^ alle_tests, laadt niet, opent niet, zonder reden,
is snel, is traag, herstart,
# Polski
widzę, widziałem, próbowałem, sprawdziłem, myślę, myślałem, myślałam, rozumiem,
rozumiałem, rozumiałam, nie rozumiem, wiemy, nie wiemy, zastanawiam, muszę wyjść,
jestem, byłem, był, była, było, były, miałem, mieliśmy, mamy, wywala, wywalił, sypie,
pada, padł, działa, działają, działało, nie działa, nie działają, zepsuty, zepsuta,
wiesza, zawiesza, dzieje, nic się, zdarza, jest błąd, pojawia, pokazuje, zwraca,
zwrócił, wygląda, chyba, prawdopodobnie, może, dziwne, niestety, od wczoraj,
od aktualizacji, nadal, wciąż, ten sam błąd, żadnego błędu, przechodzą, nie przechodzą,
kończy, ^ dlaczego, ^ czemu, ^ jak, ^ gdzie, ^ kto, ^ możesz, ^ mógłbyś, ^ czy,
tylko dwa, u mnie, teraz działa, nie ma, nie wiem, nie widzę, ^ bez opcji, ^ bez tego,
^ zawsze ten sam, ^ zawsze się wywala, ^ tylko dwa, ^ tylko pierwsza,
^ nigdy nie rozumia*, ^ nigdy nie widzia*, ^ wszystkie testy, nie ładuje, nie otwiera,
nie pojawia, nigdy nie kończy, bez powodu, jest szybko, jest wolno, mylę, restartuje,
# Русский
вижу, видел, пробовал*, попробовал*, проверил*, думаю, думал*, понимаю, понимал*,
понял*, знаю, знаем, не знаем, интересно, мне надо уйти, был, была, было, были, имел,
падает, упал, упала, упало, падают, работает, работают, работал*, не работает,
не работают, сломал*, зависает, виснет, происходит, ничего не происходит, случается,
нет ошибок, нет никаких, нет никакой, в консоли, появляется, показывает, возвращает,
вернул, выглядит, кажется, похоже, наверное, возможно, видимо, может быть, странно,
к сожалению, со вчерашнего, после обновления, всё равно, все равно, до сих пор,
та же ошибка, проходят, не проходят, догружается, загружается, ^ почему, ^ зачем, ^ как,
^ где, ^ кто, ^ можешь, ^ мог бы, ^ может, у меня, только два, теперь работает,
получилось, не получилось, не помогло, оказалось, заметил*, нашёл, нашел, не вижу,
не знаю, не понимаю, ^ без опции, ^ без этого, ^ всегда одна, ^ всегда падает,
^ только два, ^ только первая, ^ никогда не понимал*, ^ никогда не видел*,
^ никаких ошибок, ^ все тесты, ^ всё равно, ^ все равно, ^ ничего не происходит,
^ ничего не изменилось, никогда не догружается, ^ всё зелёное, ^ всё работает,
не открывается, не грузится, без причины, всё быстро, путаю, перезапускается,
# 中文
不知道, 不明白, 不清楚, 看不到, 没有任何错误, 没有错误, 没有报错, 没有反应, 报错, 出错,
失败, 崩溃, 卡住, 不行, 没用, 可以了, 好了, 以为, 我觉得, 好像, 似乎, 可能是, 也许,
奇怪, 可惜, 一样的错误, 还是一样, 同样的错误, 发现, 看到, 试了, 试过, 刚才, 昨天,
为什么, 怎么, 是不是, 能不能, 要不要, 能帮我, 帮我看, 什么, 哪里, 一直不明白, 加载不完,
没问题, 显示, 返回, 了吗, 无故, 搞混, 总是搞, 不能用,
# 日本語
分かりません, わかりません, 分からない, わからない, 見えません, 見つかりません,
動きません, 動かない, 動きました, 動きます, 落ちます, 落ちました, 失敗し,
エラーがありません, エラーが出, エラーです, 起こりません, 終わりません, 思いました,
思います, と思う, かもしれ, ようです, みたい, らしい, たぶん, おそらく, 不思議, 残念,
まだ同じ, 同じエラー, なぜ, どう, どこ, 何が, ですか, ますか, もらえますか, くれますか,
いいですか, 見てもらえ, していました, しました, ありました, でした, なりました,
違いました, 昨日, さっき見, 出ないと, 理由なく, 混同し,
# 한국어
모르겠, 몰라, 안 보, 보이지 않, 안 되는데, 안 되네, 안돼요, 됩니다, 되네요, 죽어요,
죽습니다, 실패해, 실패했, 실패한, 에러가 없, 오류가 없, 에러가 나, 오류가 나,
일어나지 않, 끝나지 않, 줄 알았, 생각했, 같아요, 같습니다, 것 같, 아마, 이상하, 이상해,
아쉽, 여전히, 같은 에러, 같은 오류, 어떻게, 어디, 무엇, 까요, 나요, 인가요, 주시겠어요,
봤어요, 봤습니다, 했어요, 했습니다, 됐어요, 됐습니다, 있었, 없었, 어제, 아까 본, 나가야,
이유 없이, 헷갈
"""
WEIGHTS = {
    5: CORRECTS,  # takes back, or decides
    4: BINDS,  # orders, or forbids
    2: MAY_BIND,  # two of these bind
    1: WISHES,  # a wish, a name, a reason
    -1: SMALL_TALK,  # words of a chat
    -2: REPORTS,  # tells or asks what happens, or only sounds like a rule
}
ENDING_COSTS = {"?": 3, "？": 3, "!": 1, "！": 1}
# the least weights: of a correction, of what binds, of a wish
CORRECTION, BINDING, WISH = 5, 4, 2
LEAST = -1  # no sentence weighs less


def read_scale() -> Scale:
    """The tables' entries and their weights."""
    scale: Scale = {}
    for weight, table in WEIGHTS.items():
        lines = [line for line in table.split("\n") if line[:1] != "#"]
        entries = ",".join(lines).replace("_", " ")
        for entry in filter(None, re.split(r",\s*", entries)):
            if entry[-1:] < "\u3000":  # a script with blanks between words
                entry = entry[:-1] if entry[-1:] == "*" else entry + " "
            scale[entry] = weight
            for end in range(1, len(entry)):
                scale.setdefault(entry[:end], 0)  # an entry may begin so
    return scale


def weigh(scale: Scale, sentence: str) -> int:
    """The sum of what its entries weigh, less for a question. A number or a name counts
    as a wish."""
    if not re.search(SEVERAL_WORDS, sentence):
        return 0
    found = find_entries(scale, plain_clauses(sentence)).values()
    has_value = re.search(VALUE_SET, sentence) is not None
    cost = ENDING_COSTS.get(sentence.rstrip()[-1:], 0)
    return max(LEAST, sum(found) + has_value - cost)


def plain_clauses(sentence: str) -> str:
    """The words of a sentence as the tables have them."""
    text = sentence.lower().replace("’", "'")
    item = re.match(LIST_ITEM, text)
    text = re.sub(CLAUSE_BORDER, " | ^ ", text[item.end() :] if item else text)
    text = "^ %s " % " ".join(re.findall(WORD, text))
    return re.sub(FILLERS, "^ ", text)


def find_entries(scale: Scale, words: str) -> dict[str, int]:
    """The entries that a sentence holds, and their weights: everywhere the longest."""
    found: dict[str, int] = {}
    end = 0
    for match in re.finditer(WORD_START, words):
        start = match.start()
        if start < end:
            continue
        entry = find_entry(scale, words, start)
        if words[start] == "^":
            after = find_entry(scale, words, start + len("^ "))
            entry = max(entry, "^ " + after, key=len)
        found[entry] = scale.get(entry) or scale.get(entry[len("^ ") :], 0)
        end = start + len(entry)
    return found


def find_entry(scale: Scale, words: str, start: int) -> str:
    """The longest entry that the words have there; "" for none."""
    entry = ""
    for end in range(start + 1, len(words) + 1):
        beginning = words[start:end]
        if beginning not in scale:
            break
        if scale[beginning]:
            entry = beginning
    return entry


def weigh_sentences(scale: Scale, text: str) -> Weighed:
    """The sentences of a text, to the letter. What a line such as `Rules:` or `Wait.`
    announces, a sentence or a list, weighs as much as that line."""
    found: Weighed = []
    announced = LEAST
    for number, part in enumerate(re.split(FENCED, text)):
        for sentence in split_sentences(part):
            is_pasted = number % 2 or re.match(LOG_LINE, sentence)
            weight = LEAST if is_pasted else weigh(scale, sentence)
            found.append((sentence, max(weight, announced)))
            if announces(sentence, weight):
                announced = weight
            elif not re.match(LIST_ITEM, sentence):
                announced = LEAST
    return found


def announces(sentence: str, weight: int) -> bool:
    """Whether the next sentence says what this one is about."""
    words = sentence.rstrip("*_ \n")
    is_short = len(words.encode("utf-8", "replace")) < SHORT_LEAD
    return words.endswith((":", "：")) or (weight >= 5 and is_short)


def split_sentences(text: str) -> list[str]:
    """The sentences of a text, with the space behind them; a long one in pieces."""
    ends = [match.end() for match in re.finditer(SENTENCE_END, text)]
    found: list[str] = []
    for start, end in zip([0, *ends], [*ends, len(text)]):
        found += re.findall(PIECE, text[start:end])
    return found


def plain_words(text: str) -> str:
    """A text without case and signs, to find out whether one quotes another."""
    return " %s " % " ".join(re.findall(r"\w+", text.lower()))


def choose_words(
    texts: list[str], room: int, least: int = LEAST, quoted: str = ""
) -> list[str]:
    """What is kept of each text, so that all of it fits into the room; "" for none.
    `least` is the least weight, and what `quoted` says already is left out."""
    if least < 0 and sum(len(text) + TEXT_COST for text in texts) <= room:
        return texts
    scale = read_scale()
    rows: list[Sentence] = []  # the sentences of all texts, each with its text's number
    for number, text in enumerate(texts):
        rows += [(number, *pair) for pair in weigh_sentences(scale, text)]
    known = plain_words(quoted) if quoted else ""
    seen: dict[str, int] = {}  # the words of a sentence -> its text
    kept: set[int] = set()
    begun: set[int] = set()  # the texts of which something is kept
    for rank, _, place in rank_sentences(texts, rows, 0 if least > 0 else room):
        number, sentence, weight = rows[place]
        gaps = (place - 1 not in kept) - (place + 1 in kept)
        cost = len(sentence) + gaps * len(GAP) + (number not in begun) * TEXT_COST
        words = plain_words(sentence) if cost <= room and weight >= least else ""
        is_said_before = seen.setdefault(words, number) != number and rank < WHOLE
        if words and words not in known and not is_said_before:
            room -= cost
            kept.add(place)
            begun.add(number)
    return show_kept(rows, kept, len(texts))


def rank_sentences(texts: list[str], rows: list[Sentence], room: int) -> list[Rank]:
    """The sentences in the order in which they get room, as (rank, turn, place): by
    weight, more for rare words, then the newest first. The first text and the last
    ones are to stay whole."""
    ranks: list[Rank] = []
    counts = Counter(re.findall(UNIT, " ".join(texts).lower()))
    tally: dict[tuple[int, int], int] = {}
    for place, (number, sentence, weight) in enumerate(rows):
        is_at_end = number == 0 or number >= len(texts) - LAST_WHOLE
        is_whole = is_at_end and len(texts[number]) <= room // WHOLE_SHARE
        tally[number, weight] = tally.get((number, weight), 0) + 1
        turn = -(tally[number, weight] // FIRST_FEW)
        if sentence.strip() not in ("", GAP.strip()):
            is_correction = weight >= CORRECTION  # none goes before what it corrects
            rarity = 1 if is_correction else measure_rarity(counts, sentence)
            value = weight - len(sentence) // LONG + RARITY * rarity
            ranks.append((WHOLE if is_whole else value, turn, place))
    return sorted(ranks, reverse=True)


def measure_rarity(counts: dict[str, int], sentence: str) -> float:
    """How much of a sentence, 0 to 1, is words that hardly come again: small talk
    repeats itself, a fact does not."""
    words = re.findall(UNIT, sentence.lower())
    return sum(counts[word] <= RARE for word in words) / (len(words) or 1)


def show_kept(rows: list[Sentence], kept: set[int], count: int) -> list[str]:
    """The texts, with a mark wherever something was left out before a sentence."""
    texts = [""] * count
    is_gap = False
    for place, (number, sentence, _) in enumerate(rows):
        if place in kept:
            texts[number] += GAP + sentence if is_gap else sentence
        is_gap = place not in kept and (is_gap or sentence.strip() != "")
    return [text.rstrip() for text in texts]


# =============================================================================
# Text
# =============================================================================
# Text for the agent loses control characters, tags that imitate a client's markup,
# and lines that pose as a turn. Text that the kit writes down loses its secrets.

CONTROL = (  # also invisible characters, bidi controls, surrogates
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u200b-\u200f\u2028-\u202e\u2060-\u206f"
    "\ufeff\ud800-\udfff\U000e0000-\U000e0fff]"
)
MARKUP = (
    r"(?i)</?\s*(?:(?:system|user)[-_]\w+|function_\w+|tool_\w+|hook_\w+|command-\w+"
    r"|local-command-\w+|task-notification|antml:\w+|invoke)\b[^<>]*>"
    r"|(?:</|(?<!\w)<)\s*(?:system|user|assistant|human)\b[^<>]*>"  # not List<User>
)
POSED_TURN = r"(?im)^([ \t]*)(?=(?:human|user|assistant|system)[ \t]*:)"
# What looks like a secret, as (signs, pattern). A text without any of the signs, in
# lower case, cannot match: most runs compile none of these patterns, which would take
# longer than all else. A group is the left side, which stays. Each pattern is linear:
# what may repeat is bounded, or ends before it could begin again.
PASS_SIGNS = "pass pwd "
KEY_SIGNS = "key secret token credential auth "
NEXT_LINE = r"(?:\\r|\\n|\r?\n[ \t>|]*)+"
NO_VALUE = (
    r"(?![$<{\[(]|\*{3}|(?:str|string|bytes|text|none|null|true|false|undefined"
    r"|required|optional|(?:token|password|secret)\d?|int|any|char|varchar)\b"
    r"|(?:os|self|this|cls|config|cfg|settings|process|req|request|env|args|options"
    r"|params|secrets|var|local|data|app|ctx|props)\.)"
)
PASS_NAME = r"(?:password|passwd|passphrase|(?:\b|_)pass|(?:\b|_)pwd)"
KEY_NAME = (
    r"(?:(?:secret|api|access|private|account|auth|encryption|signing)"
    r"(?:[_-]?access)?[_-]?key(?:[_-]?(?:id|base))?|secret|token|credential"
    r"|auth[_-]?token|\b_auth)"
)
WITH_DIGIT = r"(?!\d+(?![\w-]))(?=[^\s'\"]{0,200}?\d)"  # and no mere number
VALUE = r"[^\s'\"(),;&<>{}\[\]]"
LOOSE = r"['\"]?\s{0,4}(?:[:=]|:=|=>)\s{0,4}"
SECRETS = (
    (
        "private key",
        # to its last line of base64
        r"-----BEGIN [A-Z ]{0,30}PRIVATE KEY[A-Z ]{0,10}-----"
        r"(?:%s(?:(?:Proc-Type|DEK-Info|Version|Comment): [^\n\\]{1,100}"
        r"|[A-Za-z0-9+/]{24,}={0,2}|[A-Za-z0-9+/]{1,23}={1,2}|=[A-Za-z0-9+/]{4}"
        r"|[A-Za-z0-9+/]{1,23}(?=%s-----END))(?=[\s\\'\"]|\Z))*"
        r"(?:%s-----END [A-Z ]{0,40}-----)?" % (NEXT_LINE, NEXT_LINE, NEXT_LINE),
    ),
    (
        "sk- sk_ pk- pk_ rk- rk_",
        r"\b(?:sk|pk|rk)[-_](?:[a-z0-9]{1,20}[-_]){0,3}"
        r"(?=[\w-]{0,200}?\d)[A-Za-z0-9]{16,}[A-Za-z0-9_-]*",
    ),
    (
        "ghp_ gho_ ghu_ ghs_ ghr_ npm_ hf_ shp sntry rubygems_ whsec_ gsk_ sbp_ r8_",
        r"\b(?:gh[pousr]|npm|hf|shp(?:at|ss|ca|pa)|sntry[su]|rubygems|whsec|gsk|sbp"
        r"|r8)_"
        r"[A-Za-z0-9]{16,}",
    ),
    (
        "github_pat_ gl xox xapp- pypi- dckr_pat_ _v1_ lin_api_ figd_ hvs. hvb. hvr."
        " sg. ya29. atatt eaa age-secret-key- pmak- tskey- nvapi- xai- lsv2_ dp.st."
        " ops_eyj",
        r"\b(?:github_pat_|gl[a-z]{1,5}-|xox[abeprs]-|xapp-|pypi-|dckr_pat_|do[opr]_v1_"
        r"|lin_api_|figd_|hv[sbr]\.|SG\.|ya29\.|ATATT|EAA[A-Z]|AGE-SECRET-KEY-"
        r"|PMAK-|tskey-|nvapi-|xai-|lsv2_|dp\.st\.|ops_eyJ)"
        r"(?=[\w.-]{0,200}?\d)[A-Za-z0-9_.=-]{16,}",
    ),
    ("akia asia", r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b"),
    ("aiza", r"\bAIza[A-Za-z0-9_-]{30,}"),
    ("eyj", r"\beyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{5,}"),
    # Twilio
    ("sk", r"\bSK[0-9a-f]{32}\b"),
    # a bot of Telegram, then one of Discord; nearly every text has their sign, and a
    # pattern that begins with a letter is found quickly
    (":", r"\d(?<=\b\d)\d{7,9}:[A-Za-z0-9_-]{35}\b"),
    (
        ".",
        r"[MNO](?<=\b.)[A-Za-z0-9_-]{23,25}\.[A-Za-z0-9_-]{6}\.[A-Za-z0-9_-]{27,38}\b",
    ),
    (
        "hooks.slack.com discord",
        r"(hooks\.slack\.com/services/|discord(?:app)?\.com/api/webhooks/)[\w/-]{20,}",
    ),
    ("://", r"(?<=://)[^/\s:@$<{]{0,200}:[^/\s@$<{]{1,200}(?=@)"),
    ("://", r"(?<=://)(?=[\w-]{0,200}?\d)[A-Za-z0-9_-]{16,}(?=@)"),
    (
        "?sig &sig x-amz- x-goog-",
        r"(?i)([?&](?:sig|signature|x-(?:amz|goog)-(?:signature|security-token))=)"
        r"[\w%.~+/-]{16,}",
    ),
    ("cookie:", r"(?i)(\bcookie:\s{0,4}[\w.-]{1,60}=)[^\s'\"][^\n'\"]{7,}"),
    (
        "</",
        r"(?i)(<(?:\w{1,20}[_-]?)?(?:password|token|secret|api-?key)>)"
        r"[^<>\s]{4,200}(?=</)",
    ),
    (
        "bearer basic",
        r"(?i)(\b(?:bearer|basic)\s{1,4})(?=[\w.~+/-]{0,200}?\d)[\w.~+/-]{16,}=*",
    ),
    (
        "authorization:",
        r"(?i)(\bauthorization:\s{0,4}(?:basic|bearer|token)\s{1,4})[\w.~+/-]{8,}=*",
    ),
    (
        "curl wget http xh",
        r"(\b(?:curl|wget|https?|xh)\b[^\n|;]{0,300}?\s(?:-u|--user)[ =]?['\"]?"
        r"[^\s:'\"$]{1,100}:)[^\s'\"$]{1,200}",
    ),
    (
        "mysql mariadb",
        r"(\b(?:mysql\w{0,10}|mariadb)\b[^\n|;]{0,200}?\s-p)[^\s'\"$]{3,200}",
    ),
    (
        "sshpass login redis-cli",
        r"(\b(?:(?:sshpass|(?:docker|podman|az|oc)(?:\s\w{1,20})?\slogin)\b"
        r"[^\n|;]{0,200}?\s-p|redis-cli\b[^\n|;]{0,200}?\s-a)\s{0,2}['\"]?)"
        r"[^\s'\"$-][^\s'\"]{2,200}",
    ),
    (
        "machine",
        r"(\bmachine\s{1,4}\S{1,100}\s{1,4}login\s{1,4}\S{1,100}\s{1,4}password\s{1,4})"
        r"\S{3,}",
    ),
    (
        "password passphrase",
        r"(?i)(\b(?:password|passphrase)\sis\s['\"]?)(?!base|sha|md5|utf)"
        r"(?=[^\s'\"]{0,100}?\d)[^\s'\"]{6,}",
    ),
    (
        "passwort kennwort passe contrase senha wachtwoord hasło пароль 密码 パスワード 비밀번호",
        # [t]: or a spell checker takes it for a slip
        r"(?i)((?:passwort|kennwort|mo[t] de passe|contrase[ñn]a|senha|wachtwoord|hasło"
        r"|пароль|密码|パスワード|비밀번호)"
        r"(?:\s{0,4}(?:[:=：是は]|는)|\s(?:is[t]?|est|es|é|jest|to)\b)\s{0,4}['\"]?)"
        r"%s%s%s{6,}" % (NO_VALUE, WITH_DIGIT, VALUE),
    ),
    (
        "_key=",
        r"(\b[A-Z0-9_]{1,40}_KEY=['\"]?)(?=[^\s'\"]{0,100}?\d)(?=[^\s'\"]{0,100}?[a-z])"
        r"(?=[^\s'\"]{0,100}?[A-Z])[\w+/=-]{12,}",
    ),
    (
        PASS_SIGNS + KEY_SIGNS,
        r"(?i)(--?(?:[a-z]{1,20}-)?(?:password|passwd|passphrase|token|api-?key|secret"
        r"|(?:access|secret)-key)(?:=|\s{1,4})['\"]?)"
        r"(?![-$<{\[])(?=[^\s'\"]{0,200}?[\d!@#%^&*+])[^\s'\"]{3,}",
    ),
    # in quotes; PASS=x; at last `password: x1` and KEY=x1
    (
        PASS_SIGNS + KEY_SIGNS,
        r"(?i)((?:%s|%s)%s['\"])%s[^'\"\n]{4,}(?=['\"])"
        % (PASS_NAME, KEY_NAME, LOOSE, NO_VALUE),
    ),
    (
        PASS_SIGNS,
        r"(?i)(%s['\"]?=)%s(?!/|\d{1,3}\b)%s{4,}(?![\w(])"
        % (PASS_NAME, NO_VALUE, VALUE),
    ),
    (
        PASS_SIGNS,
        r"(?i)((?:passw(?:or)?d|passphrase|_pass|_pwd)%s)(?!/)%s%s%s{6,}(?![\w(])"
        % (LOOSE, NO_VALUE, WITH_DIGIT, VALUE),
    ),
    (
        KEY_SIGNS,
        r"(?i)(%s%s)%s%s%s{8,}(?![\w(])"
        % (KEY_NAME, LOOSE, NO_VALUE, WITH_DIGIT, VALUE),
    ),
)
# Lines of base64, and the end of a key if they are one, as `tail` shows it. It takes
# the other lines, too, so that it reads each only once.
KEY_END = (
    r"(?<![\w+/=])(?:[A-Za-z0-9+/]{24,100}={0,2}%s)+(?:[A-Za-z0-9+/]{1,23}={0,2}%s)?"
    r"(-----END [A-Z ]{0,30}PRIVATE KEY[A-Z ]{0,10}-----)?" % (NEXT_LINE, NEXT_LINE)
)
HIDDEN = "[hidden]"
CUT_MARK = "\n[… cut …]\n"
FILLER = (
    r"(?i)#.*|(?:\[.*\]|todo|tbd|fixme|none|n/a)?[.…:]*"  # a line that says nothing
)


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
    text = re.sub(MARKUP, "·", text)  # with " " its neighbours could form a tag
    return text.replace("<", "·") if re.search(MARKUP, text) else text


def for_terminal(text: str) -> str:
    """One line for a person's screen."""
    line = " ".join(text.split())
    return "".join(filter(str.isprintable, line))


def hide_secrets(text: str) -> str:
    lower = text.lower()
    for signs, pattern in SECRETS:
        if any(sign in lower for sign in signs.split()):
            # `password = …` keeps its left side; others have an empty group
            text = re.sub(pattern + "()", r"\g<1>" + HIDDEN, text)
    if "-----end" in lower:
        text = re.sub(KEY_END, lambda lines: HIDDEN if lines[1] else lines[0], text)
    return text


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


def says_something(text: str) -> bool:
    """Whether a Markdown file holds more than headings, comments and fillers."""
    if not text:
        return False
    text = re.sub(r"(?s)<!--.*?(-->|\Z)", "", text)
    lines = [line.strip("-*_|> \t\r") for line in text.split("\n")]
    return not all(re.fullmatch(FILLER, line) for line in lines)


def content_mark(text: str) -> str:
    """Tells one content from another; "" for none."""
    import zlib

    if not text:
        return ""
    return "%08x" % zlib.crc32(text.encode("utf-8", "replace"))


# =============================================================================
# Files
# =============================================================================
# Reading is bounded and never waits for a FIFO or a device. Every write is atomic, a
# line added to a log aside: a reader sees the old file or the new one. A moment is
# epoch seconds, or ISO 8601 in UTC with milliseconds where people read it and rows are
# compared.

STATE_LIMIT_BYTES = 16_000_000
TEXT_LIMIT_BYTES = 512_000
NAME_LIMIT = 120
MARKDOWN = r"\.md$"
ISO_TIME = (
    r"(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d(?::\d\d)?)(?:[.,]\d+)?"
    r"\s*(?:Z|([+-]\d\d):?(\d\d))?"
)
JSON_STRING = r'(?s)"(?:[^"\\]+|\\.?)*(?:"|\Z)'
PLAIN_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-"


def read_bytes(path: str, limit_bytes: int = TEXT_LIMIT_BYTES, start: int = 0) -> bytes:
    """The file's bytes from `start` on; b"" if it cannot be read."""
    if not isfile(path):  # a FIFO, a device
        return b""
    try:
        with open(path, "rb") as file:
            file.seek(start)
            return file.read(limit_bytes)
    except OSError:
        return b""


def read_text(path: str, limit_bytes: int = TEXT_LIMIT_BYTES) -> str:
    """The file's text without BOM and CR; "" if it cannot be read."""
    data = read_bytes(path, limit_bytes)
    is_wide = data[:2] in (b"\xff\xfe", b"\xfe\xff")  # as PowerShell's `>` writes
    text = data.decode("utf-16" if is_wide else "utf-8", "replace")
    return text.lstrip("\ufeff").replace("\r\n", "\n")


def parse_object(text: str | bytes | bytearray) -> Json:
    """The JSON object in a text; {} for anything else."""
    try:
        return object_of(json.loads(text))
    except (ValueError, RecursionError):
        return {}


def object_of(value: object) -> Json:
    """The value if it is a JSON object; {} for anything else."""
    return value if isinstance(value, dict) else {}


def list_of(value: object) -> list[object]:
    """The value if it is a list; [] for anything else."""
    return value if isinstance(value, list) else []


def plain_json(text: str) -> str:
    """The text as strict JSON: comments and trailing commas are blanks in it, so that
    every other letter keeps its place."""
    text = re.sub(JSON_STRING + r"|//[^\n]*|/\*.*?(?:\*/|\Z)", blank_out, text)
    return re.sub(JSON_STRING + r"|,(?=\s*[}\]])", blank_out, text)


def blank_out(match: re.Match[str]) -> str:
    found = match[0]
    return found if found.startswith('"') else re.sub(r"[^\r\n]", " ", found)


def read_object(path: str) -> Json:
    """The JSON object in a file; {} if there is none."""
    return parse_object(read_bytes(path, STATE_LIMIT_BYTES))


def load_state(path: str) -> Json:
    """The JSON object in one of our own files. One that cannot be used is set aside."""
    content = read_bytes(path, STATE_LIMIT_BYTES)
    value = parse_object(content)
    if content and not value and content.strip() != b"{}":
        attempt(os.replace, path, path + ".corrupt")
    return value


def write_atomically(path: str, content: str | bytes) -> bool:
    """Replace the file as a whole, make its folder if need be; False if that fails. A
    new folder is for this user alone."""
    data = content.encode("utf-8", "replace") if isinstance(content, str) else content
    make_folder(dirname(path))
    try:
        replace_content(path, data)
        return True
    except (OSError, ValueError):
        return False


def replace_content(path: str, data: bytes, mode: int = 0) -> None:
    """Replace the file as a whole. Without a mode it keeps its own."""
    draft = "%s.tmp-%d" % (path, os.getpid())
    if not mode and exists(path):
        mode = os.stat(path).st_mode & 0o777
    try:
        with open(draft, "xb") as file:
            if mode:
                os.chmod(draft, mode)
            file.write(data)
        replace_file(draft, path)
    finally:
        remove_file(draft)  # there is none if it took the file's place


def replace_file(source: str, target: str) -> None:
    """os.replace; on Windows a reader may hold the target for a moment."""
    for _ in range(20):
        try:
            return os.replace(source, target)
        except PermissionError:
            if not IS_WINDOWS:
                raise
            time.sleep(0.02)
    os.replace(source, target)


def write_object(path: str, value: Mapping[str, object]) -> bool:
    return write_atomically(path, json.dumps(value, indent=1) + "\n")


def attempt(action: Action, *args: object) -> None:
    """Change a file if possible: it may be gone, or on a read-only disk."""
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


def list_files(folder: str, pattern: str = "") -> list[File]:
    """Path and time of the folder's regular files of such a name, newest first. A
    folder that is a link counts as empty: it may lead out of the project."""
    if islink(folder):
        return []
    try:
        with os.scandir(folder) as entries:
            files = [entry for entry in entries if entry.is_file(follow_symlinks=False)]
    except (OSError, ValueError):  # ValueError: a lone surrogate in the path
        return []
    paths = [file.path for file in files if re.search(pattern, file.name)]
    found = [(path, modified_at(path)) for path in paths]
    return sorted(found, key=lambda file: (-file[1], file[0]))


def is_regular(path: str) -> bool:
    return isfile(path) and not islink(path)


def list_names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def speak_utf8(newline: str | None = None) -> None:
    """Write UTF-8 to stdout, whatever the locale says."""
    import io

    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8", errors="replace", newline=newline)


def modified_at(path: str) -> float:
    """The file's time; 0.0 if it is not there."""
    try:
        return os.stat(path).st_mtime
    except (OSError, ValueError):
        return 0.0


def cut_time(path: str, now: float) -> None:
    """Give a file from the future the time of now, so that it does not stay new."""
    if modified_at(path) > now:
        set_time(path, now)


def time_mark(written_at: float) -> str:
    return "%.6f-" % written_at


def size_of(path: str) -> int:
    try:
        return os.stat(path).st_size
    except (OSError, ValueError):
        return 0


def safe_name(text: str, limit: int = NAME_LIMIT) -> str:
    """A file name for an outside string; distinct strings stay distinct."""
    name = ""
    for byte in text.encode("utf-8", "surrogatepass"):
        letter = chr(byte)
        name += letter if letter in PLAIN_LETTERS else "%%%02X" % byte
    if name.startswith(".") or len(name) > limit:
        digest = sha256_of(name.encode())[:32]
        return "%%%s-%s" % (name[: limit - 34], digest)
    return name


def sha256_of(content: bytes) -> str:
    """The sha256 of a text; CRLF counts as LF, for git may change that in a file."""
    import hashlib

    return hashlib.sha256(content.replace(b"\r\n", b"\n")).hexdigest()


def is_inside(path: str, folder: str) -> bool:
    """Whether a path, with all links resolved, is the folder or lies below it."""
    return bool(parts_inside(path, folder))


def parts_inside(path: str, folder: str) -> list[str]:
    """The names from a folder down to a path, links resolved; [] if it leads out."""
    try:
        inside = relpath(realpath(path), realpath(folder))
    except (OSError, ValueError):  # a null byte, another drive
        return []
    parts = inside.split(os.sep)
    return [] if parts[0] == ".." else parts


def upwards(folder: str) -> list[str]:
    """The folder and its parents, the root aside."""
    found = []
    while folder != dirname(folder):
        found.append(folder)
        folder = dirname(folder)
    return found


def format_iso(epoch: float) -> str:
    """UTC with milliseconds: such texts can be compared."""
    seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(epoch))
    return "%s.%03dZ" % (seconds, epoch % 1 * 1000)


def exact_iso(text: str) -> str:
    """A client's UTC time in the form of format_iso; "" if it is none."""
    match = re.match(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)\.?(\d{0,3})", text)
    return "%s.%sZ" % (match[1], match[2].ljust(3, "0")) if match else ""


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
    """End this process in silence after so long, whatever it is doing. The watchdog
    thread needs no interpreter lock, so even a regular expression cannot stop it."""
    import faulthandler

    nobody = open(os.devnull, "w")
    faulthandler.dump_traceback_later(seconds, exit=True, file=nobody)


# =============================================================================
# Registration
# =============================================================================
# How this kit came here, and its lines in the clients' settings: made for install.py,
# recognised for it and `doctor`. hooks.json says which mode an event has. A line is
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
    \ (?P<words>(?P<mode>inject|gate|monitor|stop-enforce|cleanup|statusline)
       (?:\ (?!now\b)(?P<agent>[a-z]+))?(?:\ now)?)
    (?:\ 2>/dev/null)?(?:\ \|\|\ (?:exit\ 0|true)|;\ exit\ 0)?
"""


def parse_line(command: object) -> RegisteredLine | None:
    """What a command runs, if it runs this kit and nothing else; else None."""
    match = re.fullmatch(REGISTERED, text_of(command))
    if not match or match["agent"] not in (None, *DIALECTS):
        return None
    line = RegisteredLine(match.groupdict())
    line.words = match["words"].split()
    line.path = re.sub(r"""("|')(.*?)\1""", r"\2", line.path, flags=re.DOTALL)
    return line


def find_lines(settings: object) -> list[RegisteredLine]:
    """The RegisteredLines in a client's settings, in their order."""
    found = []
    for event, groups in object_of(dig(settings, "hooks")).items():
        for index, group in enumerate(list_of(groups)):
            for position, entry in enumerate(list_of(dig(group, "hooks"))):
                line = parse_line(dig(entry, "command"))
                if line:
                    line.event, line.index, line.position = event, index, position
                    line.group, line.entry = object_of(group), object_of(entry)
                    found.append(line)
    return found


def adapt_hooks(
    hooks: object, agent: str, path: str, form: str = SHELL_LINE
) -> dict[str, Json]:
    """{event: group} of hooks.json in the words and units of one client.

    `path` is the kit as a word for the shell.
    """
    dialect = DIALECTS[agent]
    adapted = {}
    for line in find_lines({"hooks": hooks}):
        if line.event not in dialect.registered:
            continue
        limit_s = count_of(line.entry["timeout"])
        if line.event == "SessionEnd":
            limit_s = dialect.end_limit_s
        entry = dict(line.entry, timeout=limit_s * dialect.time_unit)
        group = dict(line.group, hooks=[entry])
        if agent != "claude":
            line.words.insert(1, agent)
            group.pop("matcher", None)  # only Claude Code needs it
        entry["command"] = form % (path, " ".join(line.words))
        adapted[dialect.renamed.get(line.event, line.event)] = group
    return adapted


def kit_word(agent: str) -> str:
    """A project's kit as a word for the shell; "" if the client sets no variable."""
    variable = DIALECTS[agent].project_variable
    return '"$%s/%s"' % (variable, KIT_PLACE) if variable else ""


OWN_LINE = r"ctx_hooks\.py\W{1,12}(?:inject|gate|monitor|stop-enforce|cleanup)\b"


def another_kit_speaks(project: Project, agent: str) -> bool:
    """Whether this kit is the plugin's or the user's, and the project has its own."""
    own = join(project.root, KIT_PLACE)
    if is_inside(__file__, project.root) or not exists(own):
        return False
    paths = DIALECTS[agent].settings_paths(project.root, {})[1:]
    return any(re.search(OWN_LINE, plain_json(read_text(path))) for path in paths)


# --- how this kit came here, and its commands as they can be pasted there

PLUGIN = "ctx-hooks"
PLUGIN_IS_ON = r'"ctx-hooks@[^"]*"\s*:\s*true'  # among `enabledPlugins`
# There is one for `auto`, too; but a person agrees to a check in a terminal.
SLASH_COMMANDS = "status why handoff signal pause resume doctor init wake".split()


class Kit:
    """A kit file. `origin` says how it came here: "plugin", also if that is read where
    it lies; "user", in the user's folder; or "project"."""

    def __init__(
        self, root: str, env: Env, path: str = __file__, start: str = ""
    ) -> None:
        self.root = root
        self.env = env
        self.start = start or root  # where a command would be pasted
        self.path = os.path.abspath(path)
        self.folder = dirname(self.path)
        self.origin = self.find_origin()
        self.record = self.read_record()
        # where the kit came from, or beside it
        self.installer = join(self.record.source or self.folder, "install.py")

    def find_origin(self) -> str:
        claude = DIALECTS["claude"]
        paths = claude.settings_paths(self.root, self.env)
        is_run = self.env.get("CLAUDE_PLUGIN_ROOT") == self.folder
        is_on = is_run or re.search(PLUGIN_IS_ON, "".join(map(read_text, paths)))
        if is_on and isdir(join(self.folder, ".claude-plugin")):
            return "plugin"
        own = join(claude.own_folder(self.env), "hooks")
        return "user" if self.folder == own else "project"

    def read_record(self) -> Installation:
        """What install.py wrote down, for this project or for all."""
        root, name = self.root, "install-project.json"
        if self.origin == "user":
            root, name = home_folder(self.env), "install-user.json"
        folder = project_state_folder(root, self.env)
        return Installation(read_object(join(folder, name)))

    def call(self, words: str) -> str:
        """A command that people run, as it can be pasted in the project's folder."""
        if self.origin == "plugin" and words.split(" ")[0] in SLASH_COMMANDS:
            return "/%s:%s" % (PLUGIN, words)
        return program_call(self.path, words, self.start)

    def with_calls(self, text: str) -> str:
        """A hint, in which commands between backquotes can then be pasted."""
        pattern = "`(%s)(?=[ `])" % "|".join(COMMANDS)
        return re.sub(pattern, lambda found: "`" + self.call(found[1]), text)

    def install_call(self, words: str = "") -> str:
        """What installs the kit again."""
        if self.origin == "plugin":
            return "claude plugin update %s@%s" % (PLUGIN, PLUGIN)
        if isfile(self.installer):
            return program_call(self.installer, words, self.start)
        return ("in your copy of ctx_hooks: python3 install.py " + words).strip()

    def init_call(self) -> str:
        """What makes this folder a project."""
        if self.origin == "plugin":
            return self.call("init")
        needs_more = self.origin != "user" and isfile(self.installer)
        return self.install_call() if needs_more else "mkdir .context"


def program_call(path: str, words: str, folder: str) -> str:
    """The command for a Python program, as it can be pasted in a folder."""
    import shlex
    import subprocess

    if path.startswith(join(folder, "")):
        path = relpath(path, folder)
        path = path if os.sep in path else join(".", path)
    call = shlex.quote(path)
    target = join(folder, path)
    if IS_WINDOWS:
        call = "py -3 " + subprocess.list2cmdline([path])
    elif exists(target) and not os.access(target, os.X_OK):
        call = "python3 " + call
    return (call + " " + words).strip()


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
SILENCERS = (
    "disableAllHooks",
    "allowManagedHooksOnly",
    "strictPluginOnlyCustomization",
)
NO_HOME = "there is no home folder, so the hooks stay silent"
NO_PROJECT = "no .context folder here or above: the hooks stay silent"


def diagnose(here: Here) -> list[Finding]:
    """All findings, in the order in which a person would look."""
    rows = [(OK, "ctx_hooks " + VERSION, "")]
    if not home_folder(here.env):
        return [*rows, (FAIL, NO_HOME, "set HOME to the full path of your home")]
    files = {}
    for path in settings_files(here):
        settings = read_client_settings(path)
        files[path] = find_lines(settings)
        for key in SILENCERS:
            if settings.get(key) is True:
                rows.append((FAIL, "no hook of yours runs: " + key, "see " + path))
    rows += check_registration(here, files)
    if here.found:
        return rows + project_problems(here) + project_hints(here)
    is_for_all = here.kit.origin in ("plugin", "user")  # not each folder takes part
    rows.append((HINT if is_for_all else FAIL, NO_PROJECT, here.kit.init_call()))
    return rows


# --- the settings of the clients


def settings_files(here: Here) -> list[str]:
    """The settings in which a client may find this kit."""
    paths: list[str] = []
    for dialect in DIALECTS.values():
        paths += dialect.settings_paths(here.root, here.env)
    if here.kit.origin == "plugin":
        paths.append(join(here.kit.folder, ".claude-plugin", "hooks.json"))
    return list(dict.fromkeys(paths))  # some run Claude's, too


def check_registration(
    here: Here, files: dict[str, list[RegisteredLine]]
) -> list[Finding]:
    """Where the kit is registered; it must be somewhere, and not twice."""
    rows = []
    for path, lines in files.items():
        if lines:
            rows += check_lines(here, path, lines)
    if not rows:
        return [(FAIL, "no client runs this kit here", here.kit.install_call())]
    shared, private = [join(here.root, name) for name in CLAUDE_SETTINGS]
    if files[shared] and files[private]:
        hint = here.kit.install_call("--scope local --uninstall")
        rows.append((WARN, "registered twice: shared, and privately", hint))
    if files[shared] or files[private]:
        rows += check_start_folder(here)
    return rows


def check_start_folder(here: Here) -> list[Finding]:
    """Claude Code reads only the settings of the folder in which it is started."""
    paths = DIALECTS["claude"].settings_paths(here.folder, here.env)
    if here.kit.origin == "plugin" or any(map(find_lines, map(read_object, paths))):
        return []
    what = "Claude Code runs no hook if you start it here, in " + here.folder
    also = here.kit.install_call(".")
    return [(WARN, what, "start it in %s, or: %s" % (here.root, also))]


def check_lines(here: Here, path: str, lines: list[RegisteredLine]) -> list[Finding]:
    """Are our lines in one settings file complete, and do they run?"""
    dialect = DIALECTS[lines[0].agent]
    starts = [line for line in lines if line.mode == "inject"]
    option = scope_option(here, path)
    if not starts or len(lines) < len(dialect.registered):
        what = path + " lacks some of our hooks"
        return [(FAIL, what, here.kit.install_call(option))]
    rows = [(OK, "%s is registered in %s" % (dialect.label, path), "")]
    if lines[0].agent == "codex":
        rows.append(check_trust(here))
    return rows + try_line(here, starts[0], here.kit.install_call(option))


def scope_option(here: Here, path: str) -> str:
    """The option with which install.py writes these settings; "" for shared ones."""
    if path == join(here.root, CLAUDE_SETTINGS[1]):
        return "--scope local"
    return "" if path.startswith(join(here.root, "")) else "--scope user"


def check_trust(here: Here) -> Finding:
    """Codex runs no hook in a folder that is not trusted."""
    folder = DIALECTS["codex"].own_folder(here.env)
    told = read_text(join(folder, "config.toml"))
    if '[projects."%s"]\ntrust_level = "trusted"' % here.root in told:
        return OK, "Codex trusts this folder; it asks you once about new hooks", ""
    what = "Codex runs no hook before you trust this folder and the hooks"
    return HINT, what, "start codex here; it asks you"


# --- does a registered line run?

# A line that each kit has, whatever formatters did to it.
KIT_MARK = rb"(?m)^(# |__doc__ = ...)ctx_hooks: hooks that keep a coding agent on track"
CHANGED = "%s was changed since it was installed, by a formatter?"
CUT = "cut short"
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


def try_line(here: Here, line: RegisteredLine, install: str) -> list[Finding]:
    """Try a registered line, but run only this very file. `install` is the command
    that writes line and kit anew."""
    values = {
        DIALECTS[line.agent].project_variable: here.root,
        "CLAUDE_PLUGIN_ROOT": here.kit.folder,
        "HOME": home_folder(here.env),
    }
    path = re.sub(
        r"\$\{?(\w+)\}?", lambda name: values.get(name[1], name[0]), line.path
    )
    content = read_bytes(path, STATE_LIMIT_BYTES)
    put_back = "`%s` puts it back" % install
    if b"\r\n" in content[:200]:
        what = path + " has CRLF line ends, which a shell cannot run"
        return [(FAIL, what, put_back)]
    is_this_file = content == read_bytes(here.kit.path, STATE_LIMIT_BYTES)
    rows = [run_in_scratch(here, line)] if is_this_file else []
    if is_changed_kit(content, here.kit.record):
        rows.append((WARN if is_this_file else FAIL, CHANGED % path, put_back))
    elif not is_this_file:
        what = "not tried, it is missing or another version: " + path
        rows.append((FAIL, what, install))
    return rows


def is_changed_kit(content: bytes, record: Installation) -> bool:
    """Whether this is the release that was installed here, but with other bytes. If it
    is another release, it came by git."""
    if kit_version(content) not in (record.version, CUT):
        return False
    return sha256_of(content) not in record.kits


def kit_version(content: bytes) -> str:
    """The release of a kit, changed or not; "" for any other file."""
    if not re.search(KIT_MARK, content):
        return ""
    version = re.search(rb"(?m)^VERSION *= *.([\w.]+)", content)
    return version[1].decode() if version else CUT


def run_in_scratch(here: Here, line: RegisteredLine) -> Finding:
    """Start a session by a registered line, in a scratch project."""
    import tempfile

    if IS_WINDOWS:
        what = "the line was not tried: on Windows the client chooses the shell"
        return HINT, what, "start a session, then see " + here.kit.call("status")
    variable = DIALECTS[line.agent].project_variable or "PWD"
    trial = ["sh", "-c", TRIAL, "sh", here.kit.path, variable]
    trial += [cache_folder(here.env), *line.words]
    with tempfile.TemporaryDirectory(prefix="ctx-doctor-") as folder:
        run_program(trial, folder, here.env)  # compiles the file
        start = time.perf_counter()
        _, problem = run_program(trial, folder, here.env)
        took_ms = (time.perf_counter() - start) * 1000
        python = realpath(folder + "/home/ctx_hooks/python3")
    if problem:
        what = "the registered line fails: " + problem
        return FAIL, what, here.kit.install_call("--python PATH")
    what = "the registered line runs, in %d ms, with %s" % (took_ms, python)
    return OK, what, ""


# --- the project


def project_problems(here: Here) -> list[Finding]:
    """What is wrong in the project itself; `status` shows this, too."""
    project = here.project
    rows = []
    if is_switched_off(project, here.env, here.now):
        what = "all hooks are silent here, " + off_since(here)
        rows.append((FAIL, what, here.kit.call("resume")))
    if not can_be_written(project.home):
        what = "cannot write to %s, so the hooks stay silent" % project.home
        rows.append((FAIL, what, "check its owner and permissions"))
    own = settings_path(here.env)
    files = filter(exists, (own, join(project.root, ".contextrc")))
    hint = "this line is ignored; see " + " or ".join(files)
    for problem in project.settings.problems:
        rows.append((WARN, "settings, line %d, column %d: %s" % problem, hint))
    errors = project.state("errors.log")
    if modified_at(errors) > here.now - KEPT_S:
        what = "there were internal errors; please report them"
        rows.append((WARN, what, "cat " + errors))
    return rows


def off_since(here: Here) -> str:
    """Since when and until when the hooks are silent, and by what."""
    path = here.project.state("paused")
    if not exists(path):
        return "by CTX_HOOKS_DISABLE in the environment"
    until = read_text(path).strip()
    text = "since %s, by `pause`" % here.clock(modified_at(path))
    if until.isdecimal() and int(until):
        text += ", until " + here.clock(int(until))
    return text


def can_be_written(folder: str) -> bool:
    """Whether this folder, or the one in which it would be made, can be written."""
    while not lexists(folder):
        folder = dirname(folder)
    return isdir(folder) and os.access(folder, os.W_OK | os.X_OK)


def project_hints(here: Here) -> list[Finding]:
    """What is not wrong, but may surprise; only `doctor` says it."""
    project = here.project
    rows = []
    if would_stage_ours(project):
        what = "git would stage handoffs and signals: private to you"
        lines = " ".join("/" + name for name in RUNTIME_NAMES)
        rows.append((WARN, what, "add %s to %s" % (lines, project.path(".gitignore"))))
    paths = context_files(project)
    has_text = any(is_worth_reading(project, path) for path in paths)
    if not has_text and project.settings.text("gate.mode") != "off":
        what = "no context file says anything yet, so the agent reads none"
        rows.append((HINT, what, "write into " + project.path("TASKS.md")))
    return rows


def would_stage_ours(project: Project) -> bool:
    """Whether an ignore list of the project's own lets `git add -A` take our files."""
    if not lexists(project.path(".gitignore")):
        return False  # the first hook writes ours
    paths = [project.relative(project.path(name, "x.md")) for name in RUNTIME_NAMES]
    ignored = run_git(project.root, ["check-ignore", *paths]).splitlines()
    is_there = run_git(project.root, ["rev-parse", "--git-dir"]) != ""
    return is_there and len(ignored) < len(paths)


# =============================================================================
# Status
# =============================================================================
# What people see, 80 columns wide. A row is (state, text, hint). No control
# character reaches the terminal.

SESSIONS_SHOWN = 5
ROWS_SHOWN = 6
ROW_LIMIT = 500  # so that a long path is whole
HEAD_LINE = "  %-8.8s %-11s %-7s %-7s "
METER_LINE = "%12s %s %s of %dk"
DELIVERIES = "deliveries  %d: %d%% at the first try, %d%% in all, %d%% given up"
UNHEARD_SHOWN_S = 86400
INDENT = " " * 11  # the width of "  warning  "
OVER = ("ended", "killed")
SPARKS = "▁▂▃▄▅▆▇██"  # one for every 12 %
SPARK_COLUMNS = 12


class Here:
    """The folder of a person, and its project if there is one, as they are now."""

    def __init__(self, folder: str, env: Env, kit_path: str = __file__) -> None:
        self.folder = folder
        self.env = env
        self.now = time.time()
        self.found = find_project(folder, env)
        self.root = self.found.root if self.found else folder
        self.kit = Kit(self.root, env, kit_path, folder)

    @property
    def project(self) -> Project:
        """The project; a UserError if there is none."""
        if self.found is None:
            raise UserError(NO_PROJECT, self.kit.init_call())
        return self.found

    def run(self, session: Session) -> Run:
        """A run without an event: what hooks can tell of a session."""
        event = Event({"name": "SessionStart"})
        run = Run(event, self.project, self.env, self.now)
        run.session = session
        return run

    def runs(self) -> list[Run]:
        """One for each session, as its transcript is now: the open ones first, of these
        and of the others the newest first. Nothing is saved."""
        runs = map(self.run, all_sessions(self.project))
        known = [run for run in runs if run.session.agent in DIALECTS]
        for run in known:
            look(run.session)
        return sorted(known, key=lambda run: session_state(run) in OVER)

    def clock(self, epoch: float) -> str:
        return format_clock(epoch, self.now)


# --- sessions


def session_data(run: Run) -> Json:
    """A session for scripts: its names are public."""
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
        "threshold_crossed_at": session.handoff.crossed_at or None,
        "handoff_complete": session.handoff.is_complete,
    }


def session_state(run: Run) -> str:
    session = run.session
    if session.ended_at:
        return "ended"
    if is_running(session.client_pid) is False:
        return "killed"
    was_asked = session.facts.requests or session.facts.calls
    return "working" if was_asked and is_busy(session, run.now) else "waiting"


TOLD = {  # codes of alerts that only the agent hears
    "CTX_REPETITION": "that it repeats itself",
    "CTX_TREE_MOVED": "that the tree moved",
    "CTX_AUDIT_DUE": "that nobody touches the context files",
}


def session_lines(run: Run) -> list[str]:
    """Who does what, and how full the context is; below that some details."""
    session = run.session
    label = DIALECTS[session.agent].label
    seen_at = max(session.seen_at, modified_at(session.transcript))
    age = format_age(run.now - seen_at)
    head = HEAD_LINE % (session.id, label, session_state(run), age)
    started_at = format_clock(parse_iso(session.session_start), run.now)
    note = "since %s · calls: %d" % (started_at, session.facts.tool_calls)
    note += handoff_note(session)
    read = files_read(run, context_files(run.project))
    if read:
        note += " · read: " + ", ".join(map(basename, read))
    return [head + meter(run), INDENT + note, *edit_lines(run), *told_lines(run)]


def edit_lines(run: Run) -> list[str]:
    """What an open session edited in the last hour; first, with a mark, the files that
    other open sessions edited, too."""
    if not is_open(run.session, run.now):
        return []
    others = [(other.id, edits_of(run, other)) for other in open_sessions(run)]
    names: list[str] = []
    for path in edits_of(run, run.session):
        also = ["%.8s" % session_id for session_id, edited in others if path in edited]
        if also:
            names.insert(0, "⚠ %s (also %s)" % (path, ", ".join(also)))
        else:
            names.append(path)
    shown = ", ".join(names[:FILES_NAMED])
    return [INDENT + "edited: " + shown] if names else []


def told_lines(run: Run) -> list[str]:
    """What only the agent heard, and how often."""
    events, own = read_events(run.project), run.session.id
    codes = [row.get("code") for row in events if row.get("session") == own]
    told = [
        "%d × %s" % (codes.count(code), TOLD[code]) for code in TOLD if code in codes
    ]
    return [INDENT + "told the agent " + ", ".join(told)] if told else []


def handoff_note(session: Session) -> str:
    """What became of the handoff, once it is wanted."""
    if not session.handoff.crossed_at:
        return ""
    if session.handoff.is_complete:
        return " · handoff written"
    is_owed = is_handoff_owed(session)
    return " · handoff asked for" if is_owed else " · handoff refused"


def meter(run: Run) -> str:
    """How full the context is, over time and now."""
    full = fullness(run)
    if not full.is_measured:
        return " not measured yet"
    spark = sparkline(run.session.facts.measured, full)
    bar = "█" * (full.percent // 10)
    usable_k = full.usable // 1000
    return METER_LINE % (spark, bar.ljust(10, "░"), full.shown(), usable_k)


def sparkline(measured: list[Measure], full: Fullness) -> str:
    """Fullness over time, in at most SPARK_COLUMNS; the last one is the newest."""
    step = len(measured) // SPARK_COLUMNS + 1
    text = ""
    for row in measured[::-1][::step]:
        text = SPARKS[full.percent_of(row[1]) // 12] + text
    return text


# --- handoffs and signals, as rows


def handoff_rows(here: Here, runs: list[Run]) -> list[Finding]:
    """The handoffs that wait, then those that a session got."""
    takers = {run.session.handoff.began_with: "→ %.8s" % run.session.id for run in runs}
    places = {"waiting": "handoffs", "used": "handoffs/delivered"}
    rows = []
    for state, folder in places.items():
        for path, written_at in list_files(here.project.path(folder), MARKDOWN):
            name = basename(path)
            text = " ".join((here.clock(written_at), name, takers.get(name, "")))
            rows.append((state, text, ""))
    return rows


def signal_rows(here: Here, runs: list[Run]) -> list[Finding]:
    """The signals that wait and who heard them; then those that expired in the last
    day before anybody had heard them."""
    heard: dict[str, list[str]] = {}
    for run in runs:
        for path in run.session.said:
            heard.setdefault(path, []).append("%.8s" % run.session.id)
    rows = []
    for signal in live_signals(here):
        hint = waits_for(here, signal)
        if signal.path in heard:
            hint += "; heard by " + ", ".join(heard[signal.path])
        rows.append((signal.severity, one_line(signal.body, BODY_LIMIT), hint))
    for event in read_events(here.project):
        at = parse_iso(event.get("at"))
        is_recent = event.get("event") == EXPIRED and here.now - at < UNHEARD_SHOWN_S
        if is_recent and event.get("path") not in heard:
            body = text_of(event.get("body"))
            rows.append(("unheard", body, "expired at " + here.clock(at)))
    return rows


def live_signals(here: Here) -> list[Signal]:
    """Every session's signals and those for all, without what has expired."""
    found = []
    for folder, _, _ in os.walk(here.project.path("signals")):
        for path, _ in list_files(folder, MARKDOWN)[:SIGNALS_LOOKED_AT]:
            found.append(read_signal(path, here.now))
    return [signal for signal in found if signal.expires_at >= here.now]


def waits_for(here: Here, signal: Signal) -> str:
    """Who will hear a signal, until when, and the name by which it is withdrawn."""
    is_heard = signal.rank() >= minimum_rank(here.run(Session()))
    listener = listener_of(signal.path) if is_heard else "`status` alone"
    name = basename(signal.path)
    return "for %s, until %s (%s)" % (listener, here.clock(signal.expires_at), name)


# --- the page


def status_rows(here: Here, runs: list[Run]) -> dict[str, list[Finding]]:
    return {
        "handoffs": handoff_rows(here, runs),
        "signals": signal_rows(here, runs),
        "problems": project_problems(here),
    }


def status_data(here: Here) -> Json:
    """All that `status` shows, for scripts."""
    runs = here.runs()
    return {
        "version": VERSION,
        "project": here.root,
        "sessions": list(map(session_data, runs)),
        "workflow": read_workflow(here.project).as_dict(),
        "deliveries": read_metrics(here.project).as_dict(),
        **status_rows(here, runs),
    }


def status_page(here: Here) -> list[str]:
    """The page of one project."""
    runs = here.runs()
    page = ["ctx_hooks %s · %s" % (VERSION, here.root)]
    for run in runs[:SESSIONS_SHOWN]:
        page += session_lines(run)
    if not runs:
        page.append("  no session yet; is all in place? " + here.kit.call("doctor"))
    if read_workflow(here.project).phase:
        page += ["", "workflow", *workflow_lines(here)]
    for title, rows in status_rows(here, runs).items():
        if rows:
            page += ["", title, *row_lines(rows[:ROWS_SHOWN])]
    return [*page, *delivery_lines(read_metrics(here.project)), ""]


def delivery_lines(metrics: Metrics) -> list[str]:
    """How the deliveries at a session's start went."""
    arrived = metrics.succeededOnFirstTry + metrics.succeededAfterRetry
    ended = arrived + metrics.failed
    if not ended:
        return []
    counts = (metrics.succeededOnFirstTry, arrived, metrics.failed)
    rates = [count * 100 // ended for count in counts]
    return ["", DELIVERIES % (ended, *rates)]


def workflow_lines(here: Here) -> list[str]:
    """The workflow in sentences; the commands in them can be pasted."""
    call = "`%s " % here.kit.call("auto")
    sentences = describe_workflow(read_workflow(here.project))
    return ["  " + text.replace("`auto ", call) for text in sentences]


def row_lines(rows: list[Finding]) -> list[str]:
    """Rows as lines, each hint below, whole, so that it can be pasted."""
    lines = []
    for state, text, hint in rows:
        lines.append("  %-8s %s" % (state, one_line(text, ROW_LIMIT)))
        if hint:
            lines.append(INDENT + hint)
    return lines


def print_page(lines: list[str]) -> None:
    """Print each text as one line."""
    for line in lines:
        print(re.sub(CONTROL, "", line).replace("\n", " "))


# --- why

DECISIONS = {
    "alert:said": "told the agent ({code}): {text}",
    "auto:briefed": "told the agent about the workflow: {stage}",
    "auto:started": "began a workflow: {stage}",
    "auto:held": "sent the agent on: {said}",
    "auto:released": "let the agent stop: {said}",
    "gate:said": "asked the agent to read {files}, before its first tool call",
    "handoff:crossed": "saw the context {percent}% full:"
    " from now on a handoff is wanted",
    "handoff:asked": "asked for a handoff at {percent}%: there was none yet",
    "handoff:failed": "could not write {path}; the next start tries again",
    "handoff:written": "stopped asking for a handoff: the agent wrote {path}",
    "injection:attempted": "sent the startup text {handoff}, attempt {attempt}",
    "injection:succeeded": "saw that the startup text arrived: {evidence}",
    "injection:escalated": "wrote the startup text into {file}:"
    " no sign yet that it arrived",
    "injection:failed": "gave up on the startup text after {attempts} attempts",
    "signal:delivered": "told the agent a signal ({severity}): {body}",
    "signal:expired": "removed an expired signal: {body}",
    "wrap:typed": "typed the startup text into the program",
    "wrap:submitted": "pressed Enter: the program showed our text",
    "wrap:gave-up": "typed nothing more: {reason}",
}


def describe_decision(here: Here, row: Json) -> str:
    """One row of the recorder: when, in which session, what, and why."""
    try:
        text = DECISIONS[text_of(row.get("event"))].format_map(row)
    except KeyError:  # of another version
        text = json.dumps(row)
    at = here.clock(parse_iso(row.get("at")))
    return for_terminal("%s %.8s %s" % (at, row.get("session"), text))


# =============================================================================
# Wrap
# =============================================================================
# `wrap -- aider` runs a program without hooks in a pseudo-terminal, passes everything
# through, and types the startup context when the program waits for a line. It never
# answers for the person: it presses Enter only after our text has appeared in the
# program's output. Screen knows, Typist decides, Terminal moves the bytes.

WRAP_POLL_S, WRAP_SETTLE_S = 0.2, 0.5
WRAP_ECHO_S = 8.0  # our text appears within this; the person's keys wait so long
WRAP_ANSWER_S = 5.0  # after so long at its prompt, it has not acknowledged
WRAP_OUTPUT_BYTES = 10_000  # at least 5,000 characters
WRAP_READ_BYTES = 16_384
WRAP_LINE_BYTES = 4_000  # a terminal loses what is longer than 4,095
DELIVERED = "ctx: the context was delivered"
NOT_DELIVERED = "ctx: no sign that the context arrived: %s"
SHELLS = "sh bash dash zsh fish ksh mksh ash csh tcsh nu pwsh xonsh elvish".split()
SCREENS = (  # editors, pagers, monitors: every key is a command
    "vi vim nvim view ex ed nano pico emacs micro hx helix kak joe "
    "less more most man top htop"
).split()


def run_wrap(here: Here, options: Namespace) -> int:
    """Run a command with the startup context; its exit code."""
    import shutil
    import subprocess

    command = options.command
    refuse_program(here, command)
    if not shutil.which(command[0]):
        raise UserError("cannot start " + command[0], "is it installed?")
    run = start_wrap(here, options.context or "")
    if run.session.delivery.state == "owed":
        typist = Typist(run, options.timeout)
        if not IS_WINDOWS and os.isatty(0) and os.isatty(1):
            return Terminal(typist).run(command)
        typist.give_up("there is no terminal")
        typist.close()
    if not IS_WINDOWS:
        os.execvp(command[0], command)
    return subprocess.call(command)  # Windows cannot put it in our place


def refuse_program(here: Here, command: list[str]) -> None:
    """A UserError for what has hooks, or takes each typed line as a command."""
    hint = "name the agent: `wrap -- aider`, `wrap -- sh -c '...'`"
    if not command:
        raise UserError("a command is missing", hint)
    name = basename(command[0])
    if name in DIALECTS:
        install = here.kit.install_call("--agent " + name)
        raise UserError("%s has hooks; they do this better" % name, install)
    runs_script = any(not word.startswith("-") for word in command[1:])
    if name in SCREENS or (name in SHELLS and not runs_script):
        raise UserError("%s would take the context as commands" % name, hint)


def start_wrap(here: Here, context_file: str) -> Run:
    """A run whose session has a delivery for the program, as at a client's start."""
    run = here.run(Session({"id": "wrap-%d" % os.getpid(), "seen_at": here.now}))
    if is_switched_off(run.project, run.env, run.now):
        return run
    with hold_lock(run.project):
        if not context_file:
            start_session(run)
            return run
    text = cut_middle(clean_text(read_text(context_file)), REPLY_LIMIT - 400)
    if not says_something(text):
        raise UserError("no context in " + context_file, "name a text file")
    run.session.delivery = Delivery({"state": "owed", "text": text})
    return run


# --- what the program shows

MOVES = r"\x1b\[[0-9;]*[ABEFGHfd]|\r\n?"
FORWARD = r"\x1b\[\d*C"
ESCAPES = (
    r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?"
    r"|\x1bO.|\x1b[ -/]*[0-~]"
)
MODES = rb"\x1b\[\?(?:\d+;)*(1049|2004)(?:;\d+)*([hl])"  # alternate screen, pastes


class Screen:
    """What is known of the program: the end of its output, and how it takes input."""

    def __init__(self) -> None:
        self.kept = b""  # since we, or the person, last typed a line
        self.modes: dict[bytes, bytes] = {}  # number -> h or l
        self.heard_at = time.monotonic()
        self.silent_s = 0.0
        self.process = "unknown"  # or reading, polling, busy
        self.is_raw = False
        self.is_free = True  # input is not hidden, no alternate screen, no half line

    def feed(self, data: bytes) -> None:
        self.heard_at = time.monotonic()
        self.kept = (self.kept + data)[-WRAP_OUTPUT_BYTES:]
        self.modes.update(re.findall(MODES, self.kept))

    def text(self) -> str:
        """The output as plain text; where the cursor jumps, a line begins."""
        text = self.kept.decode("utf-8", "replace")
        text = re.sub(FORWARD, " ", re.sub(MOVES, "\n", text))
        return re.sub(ESCAPES + "|" + CONTROL, "", text)


def last_lines(text: str, count: int = 1) -> str:
    """The last lines that are not blank."""
    lines = re.findall(r"\S(?:.*\S)?", text)
    return "\n".join(lines[-count:])


# --- does it ask the person something?

PROMPT = (  # nothing is typed behind it yet
    r"^[│┃|]?[\w ./:~()\[\]-]{0,40}(>{1,3}|[❯›»]|\]:)[\s│┃|]*$"
    r"|^(you|user|me|human|prompt|input|ask|chat|message|query)\s?:$"
    r"|\bready[.!]?$|\bhow (can|may) (i|we) (help|assist)\b.{0,40}\?$"  # a greeting
)
QUESTION = r"""(?imx)
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
ANSWERED = r"(?im)^.*(/no?[\])]\??:?|\]:) \w+$"  # Remove it? [Y/n] y


def is_prompt(line: str, patterns: list[str]) -> bool:
    return any(re.search(pattern, line, re.I) for pattern in patterns)


def has_question(text: str, patterns: list[str]) -> bool:
    """Whether the last lines ask the person something."""
    asked = last_lines(text, 12)
    if is_prompt(last_lines(text), patterns):
        # The prompt itself may end as a question does. A question further up, or one
        # that has its answer, no longer counts.
        asked = re.sub(ANSWERED, "", last_lines(text, 3)) + "\n"
    return bool(re.search(QUESTION, asked))


# --- does it wait for a line?

READY_ABOVE = 0.7
MID_THOUGHT = r"([\w,;:(\[{–—-]|\.\.|…)$"


def readiness(screen: Screen, patterns: list[str]) -> float:
    """How sure we are that the program waits for a line: 0 is no, 1 is yes."""
    last = last_lines(screen.text())
    has_prompt = is_prompt(last, patterns)
    # In raw mode a key may be a command; a poll in line mode may be for the network.
    is_unclear = screen.is_raw or screen.process == "polling"
    if screen.process == "busy" or (is_unclear and not has_prompt):
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


BUSY = r"\((?:%s)\) |\) [RD] " % "|".join(SHELLS + SCREENS)  # name and state in stat
READ_WAITS = ("wait_woken", "n_tty_read")
POLL_WAITS = (
    "poll_schedule_timeout do_select do_poll do_sys_poll ep_poll do_epoll_wait"
).split()


def process_state(pid: int, is_raw: bool) -> str:
    """What a program does: reading, polling or busy; unknown without Linux's /proc."""
    folder = "/proc/%d/" % pid
    if re.search(BUSY, read_text(folder + "stat")):
        return "busy"
    wait = read_text(folder + "wchan").partition(".")[0]
    if wait in ("", "0"):
        return "unknown"
    if wait in POLL_WAITS:
        return "reading" if is_raw else "polling"
    # A read may be of a socket, so it has to be of descriptor 0.
    reads_input = re.match(r"\d+ 0x0 ", read_text(folder + "syscall"))
    return "reading" if wait in READ_WAITS and reads_input else "busy"


# --- the text, and what comes back

ECHO_LETTERS = 24  # more than an acknowledgement has, less than our request around it
# In letters alone, however it is wrapped: the acknowledgement, not our request for it.
TOLD_ACK = "(?<!reply)ackcontextreceived(?!toconfirm)"


def letters_of(text: str) -> str:
    """The letters of a text alone: lines and frames may have wrapped it."""
    return re.sub(r"[\W_]", "", text).lower()


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
        self.deadline = time.monotonic() + timeout_s  # when this state ends
        self.prompt = ""  # the line at which we typed last
        self.typed = ""
        self.trouble = "the program ended first"
        self.patterns = [PROMPT, *run.settings.words("wrap.ready_patterns")]

    def step(self, screen: Screen, now: float) -> bytes:
        """The keys to type now; b"" for none."""
        run = self.run
        run.now = time.time()
        if now >= self.deadline:
            self.give_up("the program was not ready in time")
        elif self.state == "typed":
            return self.press_enter(screen)
        elif self.state == "submitted" and self.has_arrived(screen):
            self.state = "done"
            end_delivery(run, "output")
        elif run.session.delivery.state != "failed" and self.is_ready(screen):
            return self.type_next(screen, now)
        return b""

    def has_arrived(self, screen: Screen) -> bool:
        """Whether the program acknowledged it; if it need not, the echo is enough."""
        told = re.search(TOLD_ACK, letters_of(screen.text()))
        return bool(told) or not wants_ack(self.run)

    def is_ready(self, screen: Screen) -> bool:
        """Whether it waits for a line, has settled, is back at its prompt, and asks
        nothing."""
        wait_s = WRAP_SETTLE_S
        if self.state == "submitted":
            wait_s = max(WRAP_ANSWER_S, retry_wait_s(self.run))
        is_sure = readiness(screen, self.patterns) > READY_ABOVE
        is_quiet = screen.is_free and screen.silent_s >= wait_s
        is_back = self.prompt in ("", same_prompt(screen))
        is_asking = has_question(screen.text(), self.patterns)
        return is_sure and is_quiet and is_back and not is_asking

    def type_next(self, screen: Screen, now: float) -> bytes:
        """The keys of the next attempt: the text, or where it is."""
        run = self.run
        run.reply.texts = []
        retry(run)
        self.typed = "\n\n".join(run.reply.texts)
        record(run, "wrap:typed")
        self.state = "typed"
        self.deadline = now + WRAP_ECHO_S
        self.prompt = same_prompt(screen)
        return plan_keys(self.typed, screen.modes.get(b"2004") == b"h")

    def press_enter(self, screen: Screen) -> bytes:
        """Press Enter once our text is on the screen and no question follows it."""
        run = self.run
        end = letters_of(self.typed)[-ECHO_LETTERS:]
        pattern = "(?i)" + r"[\W_]*".join(end)  # however it is wrapped
        behind = re.split(pattern, screen.text())[1:]
        is_asking = has_question("".join(behind[-1:]), self.patterns)
        if not behind or is_asking or not screen.is_free:
            return b""
        record(run, "wrap:submitted")
        self.deadline = float("inf")
        self.state = "submitted"
        self.trouble = "the program did not acknowledge it"
        if run.session.delivery.state != "failed":
            note_sent(run)
        return b"\r"

    def give_up(self, trouble: str) -> None:
        """Type nothing any more, and write the text into the instruction file."""
        self.state = "done"
        self.trouble = trouble
        record(self.run, "wrap:gave-up", reason=trouble)
        write_fallback(self.run)

    def close(self) -> None:
        """The program has ended. Without evidence the handoff waits again. The person
        reads one line about what became of it."""
        run, delivery = self.run, self.run.session.delivery
        line = delivery.note or DELIVERED
        if delivery.state != "done":
            line = NOT_DELIVERED % self.trouble
            line += "; it is in " + delivery.file if delivery.file else ""
            line += "; the next session gets it" if delivery.handoff else ""
            give_back(run.project, delivery.handoff)
        save_session(run.project, run.session)
        write_some(2, (line + "\n").encode())


def same_prompt(screen: Screen) -> str:
    """The last line, to know a prompt again, even one with a number."""
    return re.sub(r"\d+", "0", last_lines(screen.text()))


# --- the pseudo-terminal

LINE_ENDS = (b"\r", b"\n", b"\x03", b"\x04", b"\x15")  # Enter, ^C, ^D, ^U
# what a terminal answers by itself: its kind, the cursor's place, focus, colours
TERMINAL_REPORTS = (
    rb"\x1b\[[\d;?>=]*[cnRtyIO]|\x1b\[\?\d+u|\x1b[\]P][^\x07\x1b]*(\x07|\x1b\\)"
)


class Terminal:
    """The person's terminal, and the pseudo-terminal in which the program runs."""

    def __init__(self, typist: Typist) -> None:
        self.typist = typist
        self.screen = Screen()
        self.queue = b""  # keys on their way to the program
        self.looked_at = 0.0
        self.line = ""  # what the person typed: "half" a line, or one that has "ended"

    def run(self, command: list[str]) -> int:
        """Pass everything through until the program ends; its exit code."""
        import termios

        self.saved = termios.tcgetattr(0)
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

    def start(self, command: list[str]) -> None:
        import fcntl
        import signal
        import subprocess
        import termios

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
        """The person's terminal as it was."""
        import termios

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
        is_due = time.monotonic() - self.looked_at >= WRAP_POLL_S
        if is_due and self.typist.state != "done":
            self.look()

    def read_keys(self) -> None:
        import signal

        keys = read_some(0)
        if not keys:
            raise SystemExit(128 + signal.SIGHUP)  # the window was closed
        self.queue += keys
        if keys.endswith(LINE_ENDS):
            self.line = "ended"
        elif re.sub(TERMINAL_REPORTS, b"", keys):
            self.line = "half"

    def read_output(self) -> bytes:
        """Pass on what the program writes; b"" if there is nothing."""
        data = read_some(self.master)
        if self.line == "ended" and data.strip():
            self.line = ""
            self.screen.kept = b""  # what was asked there has its answer
        self.screen.feed(data)
        rest = data
        while rest:
            rest = write_some(1, rest)
        return data

    def look(self) -> None:
        """Let the typist look at the program."""
        import termios

        screen, now = self.screen, time.monotonic()
        self.looked_at = now
        flags = termios.tcgetattr(self.master)[3]
        screen.is_raw = not flags & termios.ICANON
        is_hidden = not screen.is_raw and not flags & termios.ECHO
        is_alternate = screen.modes.get(b"1049") == b"h"
        screen.is_free = not (is_hidden or is_alternate or self.line)
        screen.process = process_state(self.process.pid, screen.is_raw)
        screen.silent_s = now - screen.heard_at
        lock = take_lock(self.typist.run.project, LOCK_WAIT_S)
        if not lock:
            return  # the next look tries again
        with lock:
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
    """Write; what is left to write, nothing if nobody reads it any more."""
    try:
        return data[os.write(descriptor, data) :]
    except BlockingIOError:
        return data  # full for now
    except OSError:
        return b""


# =============================================================================
# Commands
# =============================================================================
# What people run: a function, a row of COMMANDS and the words in USAGE each. What fails
# is a UserError: two lines on stderr, and exit 1.

DURATION = r"([1-9]\d{0,6})([smhd]?)"
UNITS_S = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}
NO_DECISION = "Nothing was said or decided here yet; silence is not recorded."
SIGNAL_FILE = """\
---
generated_at: %s
severity: %s
ttl: %d
auditor: signal-command
code: %s
---
%s
"""


class UserError(Exception):
    """What is wrong, as a sentence for the person, and what to do about it."""


# --- what several commands need


def hold_lock(project: Project) -> IO[bytes]:
    """The project's lock; a UserError if it cannot be had."""
    prepare_folders(project)
    lock = take_lock(project, LOCK_WAIT_STOP_S)
    if not lock:
        raise UserError("the project is busy", "try again in a second")
    return lock


def must_write(path: str, content: str) -> None:
    if not write_atomically(path, content):
        raise UserError("cannot write " + path, "check its owner and permissions")


def duration(text: str) -> int:
    match = re.fullmatch(DURATION, text)
    if not match:
        raise UserError("no duration: " + text, "for example 90 (seconds), 30m, 2h, 1d")
    return int(match[1]) * UNITS_S[match[2]]


def choose(names: list[str], prefix: str) -> str:
    """The one name that begins with this."""
    if not names:
        raise UserError("nothing waits", "`status` shows what there is")
    found = [name for name in names if name.startswith(prefix)]
    if len(found) != 1:
        problem = "say which one" if found else "there is no " + prefix
        raise UserError(problem, "there are: " + ", ".join(names))
    return found[0]


# --- the commands


def show_status(here: Here, options: Namespace) -> None:
    places = all_projects(here.env) if options.all else [here]
    if options.json:
        data = [status_data(place) for place in places]
        print(json.dumps(data if options.all else data[0], indent=1))
        return
    for place in places:
        print_page(status_page(place))


def all_projects(env: Env) -> list[Here]:
    """The user's projects that still have a context folder."""
    home = state_folder(env)
    roots = [join(home, name, "root") for name in sorted(list_names(home))]
    places = [Here(read_text(path), env) for path in roots]
    return [here for here in places if here.found and here.root == here.folder]


def show_why(here: Here, options: Namespace) -> None:
    rows = read_events(here.project)[-options.count :]
    print_page([describe_decision(here, row) for row in rows] or [NO_DECISION])


def run_handoff(here: Here, options: Namespace) -> None:
    """show, now, list, drop"""
    project = here.project
    run = here.run(Session())
    with hold_lock(project):
        update_others(run)  # as the next start would
        if options.action == "now":
            make_now(here)
        elif options.action == "drop":
            name = choose(list(waiting_handoffs(run)), options.name)
            take_handoff(project, name)
            note = "taken away; for some days it is kept in handoffs/delivered/"
            print_page([note + name])
        elif options.action == "list":
            rows = handoff_rows(here, here.runs())
            print_page(row_lines(rows) or ["There is no handoff yet."])
        else:
            prepare_delivery(run)
            text = re.sub(CONTROL, "", run.session.delivery.text)
            print(text or "No handoff waits for the next session.")


def make_now(here: Here) -> None:
    """Make a handoff of the newest session."""
    for run in here.runs()[:1]:
        if make_handoff(run, run.session, here.now):
            save_session(run.project, run.session)
            print(handoff_path(run.project, run.session))
            return
    what = "there is no session, or it did no work yet"
    raise UserError(what, "a handoff is made of edits and commands")


def send_signal(here: Here, options: Namespace) -> None:
    """Send a text, or --list, or --withdraw NAME."""
    if options.list:
        rows = row_lines(signal_rows(here, here.runs()))
        return print_page(rows or ["No signal waits."])
    if options.withdraw:
        return withdraw_signal(here, options.withdraw)
    text = " ".join(options.text)
    if text == "-":
        text = sys.stdin.buffer.read(SIGNAL_LIMIT_BYTES).decode("utf-8", "replace")
    if not text.strip():
        raise UserError("the signal is empty", '`signal "what is wrong → what to do"`')
    prepare_folders(here.project)  # git is to ignore the file
    name = "signal-%x" % time.time_ns()
    path = here.project.path("signals", "global", name + ".md")
    content = SIGNAL_FILE % (
        format_iso(here.now),
        options.severity,
        duration(options.ttl),
        one_line(options.code or name, 200),
        hide_secrets(text),
    )
    must_write(path, content)
    print_page([waits_for(here, read_signal(path, here.now))])


def withdraw_signal(here: Here, prefix: str) -> None:
    """Take a signal away; a session that has heard it still knows it."""
    paths = {basename(one.path): one.path for one in live_signals(here)}
    name = choose(list(paths), prefix)
    os.unlink(paths[name])
    print_page(["withdrawn: " + name])


WATCH_EVERY_S = 1.0
WAITS = "a signal waits; it comes with this message"


def watch(here: Here, options: Namespace) -> None:
    """Print signals as they come, a line each, until nobody can read them. --wake is
    for a client's monitor: it only says that one waits, once the agent is idle. While
    the agent works, it hears of signals by itself."""
    if options.severity:
        here.env["CTX_INJECT_MIN_SEVERITY"] = options.severity
    run = run_around(here)
    seen = before = set(signal_files(run))
    parent = os.getppid()
    while os.getppid() == parent and not is_unread(WATCH_EVERY_S):
        files = set(signal_files(run))
        new = files & before - seen  # one that changed just now may be half written
        before = files
        if not new:
            continue
        run = run_around(here)
        is_off = is_switched_off(run.project, run.env, run.now)
        if not options.wake or not (is_off or is_busy(run.session, run.now)):
            print_signals(choose_items(run, [], new), options.wake)
            # reading a file from the future has changed its time
            seen |= new.union((path, modified_at(path)) for path, _ in new)


def is_unread(wait_s: float) -> bool:
    """Wait; True as soon as nobody can read what we print."""
    import select

    if not hasattr(select, "poll"):  # Windows
        time.sleep(wait_s)
        return False
    poller = select.poll()
    poller.register(1, 0)  # it always tells that a pipe or terminal was closed
    return bool(poller.poll(wait_s * 1000))


def run_around(here: Here) -> Run:
    """A run of the session that we are called from; after /clear it is another one of
    the same client. Settings and what git tracks are read anew."""
    place = Here(here.folder, here.env)
    pid = here.env.get("CLAUDE_PID", "-")
    session_id = here.env.get("CLAUDE_CODE_SESSION_ID", "-")
    for session in all_sessions(place.project):
        if session.client_pid == pid or session.id == session_id:
            return place.run(session)
    return place.run(Session())


def print_signals(signals: list[Signal], is_for_monitor: bool) -> None:
    """A line each; for a monitor one line, since the next hook says them."""
    lines = [
        "%s: %s" % (one.severity, one.body) for one in signals if not one.is_strangers
    ]
    if lines and is_for_monitor:
        lines = [WAITS]
    for line in lines:
        print(for_terminal(line), flush=True)


def pause(here: Here, options: Namespace) -> None:
    length = vars(options)["for"]
    until = here.now + duration(length) if length else 0.0
    must_write(here.project.state("paused"), "%d\n" % until)
    when = here.clock(until) if until else "you run " + here.kit.call("resume")
    print("all hooks in %s are silent until %s" % (here.root, when))


def resume(here: Here, options: Namespace) -> None:
    remove_file(here.project.state("paused"))
    print("the hooks are on")


FOR_PERSONS = "only a person agrees to a check, or ends a workflow"
OWN_TERMINAL = (
    "use a terminal of your own; ! in the client is the agent's shell, too."
    " `ctx cancel` as a prompt ends it"
)
A_START = '`auto start "Add a login page" --until "make test"`'
NOT_FOUND = " exits 127"
FAILS_NOW = "%s now (%s). The agent goes on until it exits 0."


def run_auto(here: Here, options: Namespace) -> None:
    """start, status, resume, stop"""
    run = here.run(Session())
    refuse_agent(run, options)
    flow = None
    if options.action == "start":
        flow = new_workflow(run, options)
        run_first(run, flow)
        ask_person(flow, options.agree)
    elif options.action == "resume":
        flow = old_workflow(run.project)
    with hold_lock(run.project):
        if flow:
            publish(run, flow, options.any)
        elif options.action == "stop":
            cancel_workflow(run)
    print_page(workflow_lines(here))


def refuse_agent(run: Run, options: Namespace) -> None:
    """A UserError if an agent's shell agrees to a check, or ends a workflow."""
    decides = options.until or options.agree or options.action == "stop"
    if decides and any(map(run.env.get, agent_variables())):
        raise UserError(FOR_PERSONS, OWN_TERMINAL)


def new_workflow(run: Run, options: Namespace) -> Workflow:
    """What `auto start` was asked for; a UserError if that cannot be meant."""
    until = options.until
    names = plan_phases([TASK] if until else run.settings.words("auto.phases"), {})
    phases = [name for name in names if name not in options.skip]
    if read_workflow(run.project).is_running:
        raise UserError("a workflow runs already", "`auto stop` ends it")
    if not options.task.strip():
        raise UserError("the task is empty", A_START)
    if until is not None and not until.strip():
        raise UserError("the command of --until is empty", A_START)
    if not phases or not set(options.skip) <= set(names):
        raise UserError("unknown phase in --skip", "the phases: " + ", ".join(names))
    checks = {}
    for phase in phases:
        command = until or run.settings.text("auto.done_when." + phase)
        if command:
            checks[phase] = command
    return Workflow(
        {
            "phases": phases,
            "phase": phases[0],
            "checks": checks,
            "until": until,
            "task_description": hide_secrets(options.task),
            "started_at": format_iso(run.now),
        }
    )


def run_first(run: Run, flow: Workflow) -> None:
    """Run the check of --until once, and show for how long. A UserError if it passes,
    or cannot be run at all."""
    if not flow.until:
        return
    print_page(["`%s` runs once, to see that it fails …" % flow.until])
    began = run.now
    run.check = flow.until
    run_check(run)
    if not run.verdict:
        hint = "choose a check that fails until the task is done"
        raise UserError("`%s` passes already" % flow.until, hint)
    if run.verdict.endswith(NOT_FOUND):
        raise UserError("`%s`: not found" % flow.until, run.output)
    print_page([FAILS_NOW % (run.verdict, format_age(run.now - began))])


def ask_person(flow: Workflow, has_agreed: bool) -> None:
    """The person agrees, in a terminal, to the checks that they did not type; a
    UserError if they do not."""
    commands = list(flow.checks.values())
    if not commands or flow.until or has_agreed:
        return
    if sys.stdin.isatty():
        print_page(["  " + command for command in commands])
        answer = input("May these commands run as checks? [y/N] ")
        if answer.strip().lower() in ("y", "yes"):
            return
    what = "you did not agree to its checks: " + ", ".join(commands)
    raise UserError(what, "--agree lets the workflow run them")


def old_workflow(project: Project) -> Workflow:
    """The workflow that `auto resume` takes up, also after it ended."""
    flow = read_workflow(project)
    flow.phase = flow.last_phase or flow.phase
    if flow.phase not in flow.phases:
        raise UserError("there is no workflow to take up", "see `auto start --help`")
    return flow


def publish(run: Run, flow: Workflow, for_anybody: bool) -> None:
    """Write the workflow down, so that it waits for its session."""
    state = dict(
        flow.as_dict(),
        active=True,
        token=os.urandom(16).hex(),
        session_id=run.env.get("CLAUDE_CODE_SESSION_ID", ""),
        any_prompt=for_anybody,
        iteration=0,
        needs="",
        last_phase="",
        phase_started_at=format_iso(run.now),
        signals={},  # no hook has met it yet
    )
    if not save_workflow(run.project, Workflow(state)):
        raise UserError("cannot write .caw/auto-state.json", "check its folder's owner")
    ignored = join(run.project.root, ".caw", ".gitignore")
    if not lexists(ignored):
        write_atomically(ignored, WORKFLOW_IGNORE)
    record(run, "auto:started", stage=flow.stage)


def cancel_workflow(run: Run) -> None:
    flow = read_workflow(run.project)
    if flow.active:
        conclude(run, flow, "user_cancelled")


def run_doctor(here: Here, options: Namespace) -> int:
    rows = diagnose(here)
    print_page(row_lines(rows))
    return int(any(FAIL in row for row in rows))


def show_statusline(here: Here, options: Namespace) -> None:
    """One line for the client's JSON on stdin; none where the hooks are silent."""
    data = parse_object(sys.stdin.buffer.read(STDIN_LIMIT_BYTES))
    here = Here(text_of(dig(data, "workspace.project_dir")), here.env)
    if not here.found:
        return
    session = load_session(here.project, text_of(data.get("session_id")))
    if session.agent not in DIALECTS:
        return
    size = count_of(dig(data, "context_window.context_window_size"))
    if size not in (0, session.window_told):  # the client tells it nowhere else
        with hold_lock(here.project):
            session = load_session(here.project, session.id)
            session.window_told = size
            save_session(here.project, session)
    used = sum_of(dig(data, "context_window.current_usage"), CLAUDE_USAGE)
    session.facts.tokens = used or session.facts.tokens
    full = fullness(here.run(session))
    print_page(["ctx " + full.shown() + handoff_note(session)])


# --- the command line

COMMANDS = {
    "status": show_status,
    "why": show_why,
    "handoff": run_handoff,
    "signal": send_signal,
    "watch": watch,
    "auto": run_auto,
    "pause": pause,
    "resume": resume,
    "doctor": run_doctor,
    "statusline": show_statusline,
    "wrap": run_wrap,
}
# Each command with its words. name=10 has a default, name=a|b choices, the first one by
# default; name... takes many words; --name alone is a flag.
USAGE = """
status      sessions, handoffs, signals, workflow, problems
    --json                              for scripts
    --all                               all your projects
why         what was said and decided last, and why
    count=10                            how many
handoff     what the next session gets; make or drop one
    action=show|now|list|drop
    name=                               drop: how its name begins
signal      tell the agents something while they work
    text...                             "what is wrong → what to do"; - reads stdin
    --list                              what waits, who heard it, what nobody heard
    --withdraw=                         NAME, as --list shows it
    --severity=warning|critical|info
    --ttl=1d                            90s, 30m, 2h, 1d
    --code=                             a newer one of this code replaces it
watch       print signals as they come
    --severity=|info|warning|critical   this and above
    --wake                              only say that one waits, to an idle session
auto        workflows: keep the agent at work until a check passes
    action=status|start|resume|stop
    task=                               start: what is to be done
    --until=                            done when this command exits 0
    --skip...                           leave this phase out
    --any                               a script's prompt counts, too
    --agree                             to the checks of .contextrc
pause       switch the hooks off in this project
    --for=                              30m, 2h
resume      end a pause
doctor      what can keep the hooks from working, and what to do
statusline  a line for the status line of Claude Code
wrap        run an agent that has no hooks: wrap -- aider
    --context=                          a file to type instead of the handoff
    --timeout=30                        seconds
    command...                          behind --
"""
USAGE_COMMAND = r"(?m)^(\w+) +(.*)\n((?: .*\n)*)"
USAGE_WORD = r"(?m)^ *([\w-]+)(=|\.\.\.|)(\S*) *(.*)$"


def make_parser() -> ArgumentParser:
    import argparse

    class Parser(argparse.ArgumentParser):
        def error(self, message: str) -> NoReturn:
            raise UserError(message, self.prog + " --help")

    parser = Parser(
        prog=program_call(os.path.abspath(__file__), "", os.getcwd()),
        description="Hooks that keep a coding agent on track.",
    )
    parser.add_argument("--version", action="version", version="ctx_hooks " + VERSION)
    subparsers = parser.add_subparsers(title="commands", metavar="COMMAND")
    for name, text, words in re.findall(USAGE_COMMAND, USAGE):
        command = subparsers.add_parser(name, help=text, description=text)
        command.set_defaults(run=COMMANDS[name])
        add_arguments(command, words)
    return parser


def add_arguments(parser: ArgumentParser, usage: str) -> None:
    """Let a parser take these words, each in a line of its own, as in USAGE."""
    for name, sign, value, text in re.findall(USAGE_WORD, usage):
        parser.add_argument(name, help=text, **option_kind(name, sign, value))


def option_kind(name: str, sign: str, value: str) -> dict[str, Any]:
    """The arguments of argparse for one word of USAGE."""
    if not sign:
        return {"action": "store_true"}
    is_option = name.startswith("-")
    choices = value.split("|")
    kind: dict[str, Any] = {"choices": choices} if len(choices) > 1 else {}
    if sign == "...":
        kind.update(
            {"action": "append", "default": []} if is_option else {"nargs": "*"}
        )
    elif is_option:
        kind["default"] = choices[0] or None
    else:
        kind.update(nargs="?", default=choices[0])
    if value.isdigit():
        kind["type"] = int
    return kind


READER_HAS_GONE = (32, 22)  # EPIPE; Windows says EINVAL


def run_people(argv: list[str]) -> int:
    """Run a person's command; its exit code."""
    parser = make_parser()

    def run() -> int:
        options = parser.parse_args(argv or ["--help"])
        here = Here(os.getcwd(), dict(os.environ))
        try:
            return options.run(here, options) or 0
        except UserError as error:
            what, hint = error.args
            raise UserError(what, here.kit.with_calls(hint)) from None

    return run_guarded(run, parser.prog + " doctor")


def run_guarded(action: Callable[[], int], hint: str) -> int:
    """The exit code of what a person runs, or two lines on stderr and 1; the hint is
    for what the system refuses. Never 2: to a client, that would mean "deny"."""
    speak_utf8()
    try:
        try:
            return action()
        finally:
            print(end="", flush=True)  # also after --help, which ends by an exception
    except UserError as error:
        what, hint = error.args
    except OSError as error:
        if error.errno in READER_HAS_GONE:  # it has seen enough
            os._exit(1)  # nothing more can be flushed
        what = "%s: %s" % (error.filename or "failed", error.strerror)
    except (KeyboardInterrupt, EOFError):  # ^C, or ^D at a question
        return 130
    sys.stderr.write("error: %s\nhint: %s\n" % (for_terminal(what), for_terminal(hint)))
    return 1


# =============================================================================
# Main
# =============================================================================
# The first word is a mode, for clients, or a command, for people. An unknown mode
# of a hook exits with 1: 2 would mean "deny" to the client.


def main(argv: list[str]) -> int:
    if argv and argv[0] in HANDLERS:
        guarded_hook(argv[0], argv[1:])  # ends the process
    return run_people(argv)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
