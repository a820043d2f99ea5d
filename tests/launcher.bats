# The launcher: the literal registered lines in every shell that may be `sh`.
# shellcheck shell=bash disable=SC2015,SC2016,SC2119,SC2120 # a case is a chain of &&; client lines hold variables
bats_require_minimum_version 1.5.0

SHELLS=${SHELLS:-dash bash busybox zsh} # those that are here are tried as `sh`
SESSION=0f3a2b7c-5d1e-4c1b-9a75-3f0f7c1d2e4b

setup_file() {
  export LINES="$BATS_FILE_TMPDIR/lines" REAL_PYTHON
  REAL_PYTHON=${TEST_PYTHON:-$(python3 -c 'import os, sys; print(os.path.realpath(sys.executable))')}
  "$REAL_PYTHON" -I -c 'import json, sys
for event, groups in json.load(open(sys.argv[1]))["hooks"].items():
    print(event, groups[0]["hooks"][0]["command"], sep="\t")' "$BATS_TEST_DIRNAME/../hooks.json" >"$LINES"
}

setup() {
  REPO=$(cd "$BATS_TEST_DIRNAME/.." && pwd -P)
  KIT=${KIT:-$REPO/ctx_hooks.py} # or one that a formatter has changed
}

# A project whose path a careless line would break, a home, and `sh` = the shell at hand.
make_world() {
  BASE=$(mktemp -d "$BATS_TEST_TMPDIR/base.XXXXXX")
  PROJECT="$BASE/it's \"über\" \$HOME \$(touch pwned)"
  CACHE="$BASE/home/.cache/ctx_hooks" CALM="$BASE/home/.cache/ctx_hooks/calm/claude-$SESSION"
  mkdir -p "$PROJECT/.context/signals/global" "$PROJECT/.claude/hooks" "$PROJECT/.git/refs/heads" "$BASE/home" "$BASE/tmp" "$BASE/bin"
  printf 'ref: refs/heads/main\n' >"$PROJECT/.git/HEAD"
  printf 'a%.0s' {1..40} | tee "$PROJECT/.git/refs/heads/main" >"$PROJECT/.git/refs/heads/feature"
  printf '# Tasks\n\n- finish the parser\n' >"$PROJECT/.context/TASKS.md"
  cp "$KIT" "$PROJECT/.claude/hooks/"
  age "$PROJECT/.context/signals/global" "$PROJECT/.git/HEAD"
  ln -s "$(command -v "$1")" "$BASE/bin/sh"
  mkdir -p "$CACHE" # as after the first run; but this interpreter notes each start
  counting_python "$BASE/bin/python3" && cp "$BASE/bin/python3" "$CACHE/python3"
  cd "$PROJECT" || return 1
}

# in_every_shell CASE: run it in a world of its own for each shell
in_every_shell() {
  local shell
  for shell in $SHELLS; do
    command -v "$shell" >/dev/null || { echo "# $shell is not here" >&3 && continue; }
    make_world "$shell"
    "$1" || { echo "failed with $shell as sh" && return 1; }
  done
}

age() { touch -d '2001-09-09 01:46:40' "$@"; }

# counting_python FILE: an interpreter that notes each start
counting_python() {
  printf '#!/bin/sh\necho start >>"%s/started"\nexec "%s" "$@"\n' "$BASE" "$REAL_PYTHON" >"$1"
  chmod +x "$1"
}

# started: how often Python was started since the last question
started() {
  local count=0
  [ ! -f "$BASE/started" ] || count=$(wc -l <"$BASE/started")
  rm -f "$BASE/started"
  echo $((count))
}

line_of() { awk -F '\t' -v event="$1" '$1 == event { print $2 }' "$LINES"; }

# client EVENT [NAME=VALUE…]: as the client runs the registered line of this event; with LATE=1 it has not written to the
# transcript since the event before
client() {
  local event=$1
  shift
  printf '{"session_id": "%s", "hook_event_name": "%s", "transcript_path": "%s/transcript.jsonl", "cwd": "/",
    "tool_name": "Bash", "tool_input": {"command": "make"}, "permission_mode": "default"}' \
    "${ID:-$SESSION}" "$event" "$BASE" >"$BASE/event"
  [ -n "${LATE:-}" ] || [ ! -f "$BASE/transcript.jsonl" ] || echo >>"$BASE/transcript.jsonl" # has the present call
  run_line "$(line_of "$event")" "$@" <"$BASE/event"
}

# run_line COMMAND [NAME=VALUE…]: it exits with 0; what it says is in $said and $complained
run_line() {
  local command=$1
  shift
  env -i HOME="$BASE/home" TMPDIR="$BASE/tmp" PATH="$BASE/bin:/usr/bin:/bin" LC_ALL=C CLAUDECODE=1 \
    CLAUDE_PROJECT_DIR="$PROJECT" CLAUDE_CODE_SESSION_ID="${ID:-$SESSION}" "$@" \
    "$BASE/bin/sh" -c "$command" >"$BASE/stdout" 2>"$BASE/stderr" || { echo "exit $?: $command" && return 1; }
  said=$(cat "$BASE/stdout") complained=$(cat "$BASE/stderr")
}

# quiet COMMAND…: it succeeds, and neither stdout nor stderr has a word
quiet() {
  "$@" || return 1
  [ -z "$said$complained" ] || { echo "said: $said; complained: $complained" && return 1; }
}

# answer TOKENS: the agent's next answer with a call, as the client writes it
answer() {
  number=$((${number:-0} + 1))
  printf '{"type": "assistant", "timestamp": "2026-02-03T10:45:%02d.000Z", "message": {"id": "m%d", "model": "claude-opus-4-6",
 "content": [{"type": "tool_use", "id": "t%d", "name": "Bash", "input": {"command": "make part%d"}}], "usage": {"input_tokens": %d}}}\n' \
    $((number % 60)) "$number" "$number" "$number" "$1" | tr -d '\n' >>"$BASE/transcript.jsonl"
  echo >>"$BASE/transcript.jsonl"
}

# become_calm [NAME=VALUE…]: the first call of a session that has much room
become_calm() {
  rm -f "$CALM" "$CALM.tally"
  answer 30000
  quiet client PostToolUse "$@" || return 1
  [ "$(started)" = 1 ]
}

# calm_file FILE: a calm that nothing ends but its eight calls
calm_file() {
  printf '8\n0 999999\n%s\n' "$BASE/bin/python3" >"$1"
}

# --- the lines

every_line() {
  local event command
  while IFS=$'\t' read -r event command; do
    client "$event" || return 1
    [ -z "$complained" ] || { echo "$event: $complained" && return 1; }
    case $said in '' | '{'*'}') ;; *) echo "$event: $said" && return 1 ;; esac
  done <"$LINES"
  [ ! -e pwned ] && [ "$(wc -l <"$LINES")" -eq 9 ]
}

@test "every registered line exits with 0 and says nothing or one JSON object, in every shell" {
  in_every_shell every_line
}

odd_places() {
  mkdir -p "$PROJECT/src/deep"
  printf '{"session_id": "s", "hook_event_name": "PreToolUse"}' >"$BASE/event"
  run_line "sh '$KIT' gate || exit 0" CLAUDE_PROJECT_DIR="$PROJECT/src/deep/" <"$BASE/event"
  [[ $said == *STOP* ]] || return 1
  mv "$PROJECT" "$BASE/two
lines"
  PROJECT="$BASE/two
lines"
  cd "$PROJECT" && client PreToolUse && [[ $said == *STOP*TASKS.md* ]] && answer 30000 && quiet client PostToolUse
}

@test "a project is found from a folder below it, and with a line break in its path" {
  in_every_shell odd_places
}

@test "people can run the file by any shell, by python3 and by its name" {
  make_world dash
  for start in sh dash bash 'busybox sh' zsh python3 ''; do
    [ -z "$start" ] || command -v "${start%% *}" >/dev/null || continue
    run -0 env HOME="$BASE/home" $start ./.claude/hooks/ctx_hooks.py --version
    [[ $output == *"$(sed -n 's/^VERSION = "\(.*\)"/\1/p' .claude/hooks/ctx_hooks.py)"* ]]
  done
  run -1 --separate-stderr env HOME="$BASE/home" sh ./.claude/hooks/ctx_hooks.py no-such-mode </dev/null
  [ -z "$output" ]
}

# --- what the shell answers alone

gate_once() {
  client PreToolUse && [[ $said == *STOP*TASKS.md* ]] && [ "$(started)" = 1 ] || return 1
  quiet client PreToolUse && [ "$(started)" = 0 ] || return 1
  ID=another client PreToolUse && [[ $said == *STOP* ]]
}

@test "the gate speaks once a session; then the shell sees its marker" {
  in_every_shell gate_once
}

calm_calls() {
  become_calm || return 1
  for _ in 1 2 3 4 5 6 7 8; do
    answer 30100
    quiet client PostToolUse && [ "$(started)" = 0 ] || return 1
  done
  quiet client PostToolUse && [ "$(started)" = 1 ]
}

@test "a calm session is answered by the shell for eight calls, then Python looks again" {
  in_every_shell calm_calls
}

growth_ends_calm() {
  local least most size
  become_calm && read -r least most < <(sed -n 2p "$CALM") || return 1
  size=$(wc -c <"$BASE/transcript.jsonl")
  [ "$least" -eq "$size" ] && [ "$most" -eq $((size + 3 * (141950 - 30000))) ] || { cat "$CALM" && return 1; }
  truncate -s $((most - 1)) "$BASE/transcript.jsonl" && quiet client PostToolUse && [ "$(started)" = 0 ] || return 1
  quiet client PostToolUse && [ "$(started)" = 1 ] || return 1
  become_calm && truncate -s -1 "$BASE/transcript.jsonl" && quiet client PostToolUse && [ "$(started)" = 1 ] || return 1
  echo >>"$BASE/transcript.jsonl" && become_calm && answer 150000 && truncate -s +400000 "$BASE/transcript.jsonl"
  echo >>"$BASE/transcript.jsonl" && client PostToolUse && [[ $said == *"Write a handoff"* ]]
}

@test "the calm ends when the transcript has grown so much that a level may be reached, or shrinks" {
  in_every_shell growth_ends_calm
}

late_transcript() {
  become_calm && LATE=1 quiet client PostToolUse && [ "$(started)" = 1 ] || return 1
  become_calm && quiet client PostToolUse && [ "$(started)" = 0 ] || return 1
  LATE=1 quiet client PostToolUse && [ "$(started)" = 1 ]
}

@test "a transcript that does not have the last call yet ends the calm: its size proves nothing" {
  in_every_shell late_transcript
}

odd_transcripts() {
  local file=$BASE/transcript.jsonl wc=$BASE/bin/wc
  become_calm && mv "$file" "$BASE/aim" && ln -s aim "$file" && quiet client PostToolUse && [ "$(started)" = 0 ] || return 1
  rm "$file" && mkfifo "$file" && quiet client PostToolUse && [ "$(started)" = 1 ] || return 1
  rm "$file" && cp "$BASE/aim" "$file" && become_calm && rm "$file" && quiet client PostToolUse && [ "$(started)" = 1 ] || return 1
  mkdir "$file" && calm_file "$CALM" && sed -i "3s|.*|$file|" "$CALM" && quiet client PostToolUse && [ "$(started)" = 1 ] || return 1
  rmdir "$file" && cp "$BASE/aim" "$file" && become_calm || return 1
  printf '#!/bin/sh\nsleep 1; exec /usr/bin/wc "$@"\n' >"$wc" && chmod +x "$wc" # slow
  quiet client PostToolUse && [ "$(started)" = 0 ] || return 1
  printf '#!/bin/sh\nread -r x; echo "    30"\n' >"$wc" && quiet client PostToolUse && [ "$(started)" = 1 ] || return 1
  rm "$wc" && become_calm && printf '#!/bin/sh\necho "  $(/usr/bin/wc -c)"\n' >"$wc" && chmod +x "$wc" # as on macOS
  quiet client PostToolUse && [ "$(started)" = 0 ] || return 1
  for odd in 'exit 3' 'echo; exit 3' 'echo' 'echo many' 'echo -5' 'echo 99999999999999999999999' "echo 'a[\$(touch pwned)]'"; do
    rm "$wc" && become_calm && printf '#!/bin/sh\n%s\n' "$odd" >"$wc" && chmod +x "$wc"
    quiet client PostToolUse && [ "$(started)" = 1 ] || { echo "$odd" && return 1; }
  done
  rm "$wc" && become_calm && mkdir "$BASE/only" && ln -s "$BASE/bin/sh" "$BASE/bin/python3" "$BASE/only/" || return 1
  quiet client PostToolUse PATH="$BASE/only" && [ ! -e pwned ] || return 1
  [ "$(started)" = 1 ] || case $(readlink "$BASE/bin/sh") in *busybox*) ;; *) return 1 ;; esac # it has a wc of its own
}

@test "a link is followed; a FIFO, a folder, a missing transcript and an odd, slow or missing wc do no harm" {
  in_every_shell odd_transcripts
}

calm_ends() {
  local end
  for end in .context/signals/global/ci.md ".context/signals/sessions/$SESSION/ci.md"; do
    become_calm || return 1
    quiet client PostToolUse && [ "$(started)" = 0 ] || return 1
    mkdir -p "${end%/*}" && echo "The build is red." >"$end"
    client PostToolUse && [[ $said == *"The build is red."* ]] || { echo "$end: $said" && return 1; }
    started >/dev/null && rm -f "$end" && age .context/signals/global ".context/signals/sessions/$SESSION" 2>/dev/null
  done
  become_calm || return 1
  echo 'ref: refs/heads/feature' >.git/HEAD
  client PostToolUse && [[ $said == *"is on feature now"* ]]
}

@test "a signal and a switched branch end the calm at once" {
  in_every_shell calm_ends
}

not_calm() {
  local change
  become_calm || return 1
  quiet client PostToolUseFailure && [ "$(started)" = 1 ] || return 1 # the word now
  for change in GROK_SESSION_ID=x COPILOT_CLI=1 CLAUDE_CODE_SESSION_ID=; do
    become_calm || return 1
    quiet client PostToolUse "$change" && [ "$(started)" = 1 ] || { echo "$change" && return 1; }
  done
}

@test "a failing call, another client under this line and no session in the environment start Python" {
  in_every_shell not_calm
}

odd_id() {
  local id
  mkdir -p "$CACHE/calm" && calm_file "$CACHE/calm/claude-a.b"
  for id in ../../escape a/b .. 'a b' "a'b" 'a$(touch pwned)b' a.b ü '*'; do
    ID=$id quiet client PostToolUse && [ "$(started)" = 1 ] || { echo "$id" && return 1; }
  done
  [ ! -e pwned ] && [ -z "$(find "$CACHE/calm" -mindepth 1 ! -type f)" ] && [ -z "$(find "$BASE" -name 'escape*')" ]
}

@test "a session id with slashes or other letters becomes no path; Python always looks" {
  in_every_shell odd_id
}

agents_words() {
  local word variable line
  while read -r word variable; do
    # shellcheck disable=SC2016 # the variable is the client's
    line='sh "$CLAUDE_PROJECT_DIR/.claude/hooks/ctx_hooks.py" monitor '"$word"' || exit 0'
    mkdir -p "$CACHE/calm" && rm -f "$CACHE"/calm/*
    calm_file "$CACHE/calm/$word-$SESSION"
    quiet run_line "$line" "$variable=$SESSION" CLAUDE_CODE_SESSION_ID= </dev/null && [ "$(started)" = 0 ] || return 1
    quiet run_line "$line" "$variable=" </dev/null && [ "$(started)" = 1 ] || return 1 # never Claude's variable
    quiet run_line "${line/ || / now || }" "$variable=$SESSION" </dev/null && [ "$(started)" = 1 ] || return 1
  done <<'TABLE'
gemini GEMINI_SESSION_ID
qwen QWEN_CODE_SESSION_ID
droid session_id
grok GROK_SESSION_ID
TABLE
  for word in codex copilot other; do
    calm_file "$CACHE/calm/$word-" && calm_file "$CACHE/calm/$word-$SESSION"
    quiet run_line "${line/grok/$word}" id="$SESSION" </dev/null && [ "$(started)" = 1 ] || { echo "$word" && return 1; }
  done
  # codex sets no variable: in a shell of Claude's its own folder counts, not Claude's project
  quiet run_line "sh '$KIT' monitor codex || exit 0" CLAUDE_PROJECT_DIR=/nowhere </dev/null
  [ "$(started)" = 1 ]
}

@test "the agent's word chooses the session's variable; codex and copilot always start Python" {
  in_every_shell agents_words
}

nothing_here() {
  rm -r .context
  quiet every_line || return 1
  [ "$(started)" = 0 ] && [ "$(cd "$BASE" && find home tmp -type f)" = home/.cache/ctx_hooks/python3 ] || return 1
  touch .contextrc && quiet client PostToolUse && [ "$(started)" = 1 ] || return 1 # it may name another folder
  rm .contextrc && mkdir -p "$BASE/home/.config/ctx_hooks" && touch "$BASE/home/.config/ctx_hooks/contextrc"
  quiet client PostToolUse && [ "$(started)" = 1 ]
}

@test "without a context folder nothing starts and nothing is created" {
  in_every_shell nothing_here
}

# --- what may be broken

# broken LINES [NAME=VALUE…]: exit 0 and nothing on stdout; the shells themselves may say so many lines
broken() {
  local most=$1
  shift
  client PostToolUse "$@" || return 1
  [ -z "$said" ] && [ "$(printf '%s' "$complained" | grep -c '')" -le "$most" ] || { echo "$said $complained" && return 1; }
}

broken_file() {
  local kit=.claude/hooks/ctx_hooks.py
  rm $kit && broken 1 || return 1
  mkdir $kit && broken 1 || return 1
  rmdir $kit && : >$kit && broken 0 || return 1
  sed 's/$/\r/' "$KIT" >$kit && broken 3 || return 1
  { printf '\357\273\277' && cat "$KIT"; } >$kit && broken 1
}

@test "a missing file, a folder in its place, CRLF and a BOM: exit 0 and nothing on stdout" {
  in_every_shell broken_file
}

broken_python() {
  local only=$BASE/only
  rm "$CACHE/python3" && mkdir "$only" && ln -s "$BASE/bin/sh" "$only/sh"
  broken 0 PATH="$only" || return 1
  printf '#!/bin/sh\nexit 3\n' >"$only/python3" && chmod +x "$only/python3"
  broken 0 PATH="$only" || return 1
  printf '#!/bin/sh\nkill -9 $$\n' >"$only/python3"
  broken 1 PATH="$only" || return 1 # the outer shell may say "Killed"
  rm "$only/python3" && mkdir "$only/python3" && broken 1 PATH="$only"
}

@test "without python3 a person reads what is needed, and a hook says nothing" {
  make_world sh
  rm -f "$CACHE/python3" "$BASE/bin/python3"
  run -127 env -i HOME="$BASE/home" PATH="$BASE/bin" sh "$PROJECT/.claude/hooks/ctx_hooks.py" status
  [ "$output" = "ctx_hooks needs Python 3.8 or newer" ]
  run env -i HOME="$BASE/home" PATH="$BASE/bin" CLAUDE_PROJECT_DIR="$PROJECT" sh -c "$(line_of Stop)"
  [ "$status" -eq 0 ] && [ -z "$output" ]
}

@test "no python3, one that fails and one that is killed: exit 0 and nothing on stdout" {
  in_every_shell broken_python
}

hanging_python() {
  printf '#!/bin/sh\necho $$ >"%s/pid"\nexec sleep 60\n' "$BASE" >"$CACHE/python3"
  local status=0
  printf '{}' | env -i HOME="$BASE/home" PATH="$BASE/bin:/usr/bin:/bin" CLAUDE_PROJECT_DIR="$PROJECT" \
    timeout 1 "$BASE/bin/sh" -c "$(line_of PostToolUse)" || status=$?
  sleep 0.2
  case $(ps -o stat= -p "$(cat "$BASE/pid")") in '' | Z*) [ "$status" = 124 ] ;; *) return 1 ;; esac
}

@test "a python3 that hangs ends with the client's time limit and leaves no process" {
  command -v timeout >/dev/null || skip "timeout is not here"
  SHELLS="dash busybox" in_every_shell hanging_python
}

odd_homes() {
  local place
  answer 30000
  quiet run_line "unset HOME; $(line_of PostToolUse)" <"$BASE/transcript.jsonl" || return 1
  for place in HOME= HOME=home HOME=/nonexistent XDG_CACHE_HOME= XDG_CACHE_HOME=relative \
    "XDG_CACHE_HOME=$BASE/event" XDG_CACHE_HOME=/proc/self XDG_CACHE_HOME=/dev/null XDG_CONFIG_HOME=relative; do
    quiet client PostToolUse "$place" && quiet client PostToolUse "$place" || { echo "$place" && return 1; }
  done
  [ ! -e home ] && [ ! -e relative ] && [ ! -e /python3 ] || return 1
  started >/dev/null && become_calm && chmod 400 "$CALM" && chmod 500 "$CACHE/calm" "$CACHE" || return 1
  quiet client PostToolUse && quiet client PostToolUse
  local status=$?
  chmod 700 "$CACHE" "$CACHE/calm" && return $status
}

@test "an unset, relative, unusable or read-only HOME or cache: silence, and nothing is made in the project" {
  in_every_shell odd_homes
}

hostile_calm() {
  become_calm || return 1
  local text
  for text in '$(touch pwned)' '`touch pwned`' 'a[$(touch pwned)]' '8; touch pwned' '9999999999999999999' -1 08 0x9 '9 9 9' \
    '' '*' '!' '(' -f; do
    for content in "$text\n$text\n$text\n$text\n" "8\n$text\n$text\n$text\n" "8\n0 $text\n$BASE/event\n$text\n" \
      "8\n$text 9999\n$BASE/event\n$text\n" "8\n0 9999\n$text\n" "8\n0 9999\n$BASE/event\n$text\n$text"; do
      printf "${content//%/%%}" >"$CALM"
      printf '%s' "$text" >"$CALM.tally"
      quiet client PostToolUse || { echo "$content" && return 1; }
    done
  done
  # that of another version
  printf '8\n%s\n%s\n%s\n' "$PROJECT/.context/signals/global" "$BASE/event" "$BASE/event" >"$CALM" && rm -f "$CALM.tally"
  started >/dev/null && quiet client PostToolUse && [ "$(started)" = 1 ] || return 1
  head -c 1000000 /dev/zero | tr '\0' 9 >"$CALM" && quiet client PostToolUse && [ "$(started)" = 1 ] || return 1
  head -c 1000000 /dev/zero | tr '\0' . >"$CALM.tally" && quiet client PostToolUse && [ "$(started)" = 1 ] || return 1
  head -c 300000 /dev/urandom >"$CALM" && quiet client PostToolUse || return 1
  [ ! -e pwned ]
}

@test "a hostile calm file is read and compared, never run" {
  in_every_shell hostile_calm
}

long_tally() {
  become_calm && seq 200000 >"$CALM.tally" || return 1
  local start=$SECONDS
  quiet client PostToolUse && [ "$(started)" = 1 ] && [ $((SECONDS - start)) -lt 4 ]
}

@test "calls that nobody answers, as in a paused project, make no later one slow" {
  in_every_shell long_tally
}

calm_is_no_file() {
  become_calm || return 1
  rm "$CALM" && mkfifo "$CALM" && quiet client PostToolUse && [ "$(started)" = 1 ] || return 1
  [ -f "$CALM" ] || return 1 # Python has made it anew
  rm "$CALM" && ln -s /nonexistent "$CALM" && quiet client PostToolUse && [ "$(started)" = 1 ] || return 1
  rm "$CALM" && calm_file "$BASE/aim" && ln -s "$BASE/aim" "$CALM" && quiet client PostToolUse || return 1
  started >/dev/null && rm -f "$CALM" && mkdir "$CALM" && quiet client PostToolUse && [ "$(started)" = 1 ]
}

@test "a FIFO, a link and a folder in the calm file's place do no harm" {
  in_every_shell calm_is_no_file
}

# --- the interpreter behind the shim

behind_a_shim() {
  local link=$CACHE/python3
  rm "$link" # `python3` is the shim now
  quiet client PostToolUse && [ "$(started)" = 1 ] && [ "$(readlink "$link")" = "$REAL_PYTHON" ] || return 1
  client Stop && [ "$(started)" = 0 ] || return 1 # the shim was passed by
  ln -sf /nonexistent/python3 "$link" && quiet client Stop && [ "$(started)" = 1 ] || return 1
  [ "$(readlink "$link")" = "$REAL_PYTHON" ] || return 1 # made anew
  printf '#!/bin/sh\necho py\n' >"$BASE/bin/py" && chmod +x "$BASE/bin/py"
  rm "$link" && mkdir "$link" && quiet client Stop && [ "$(started)" = 1 ] || return 1
  client Stop LOCALAPPDATA='C:\data' && [ "$said" = py ] # where python3 may only open the Store
}

@test "the first run links the interpreter behind a shim; a link to nowhere is made anew; on Windows py starts" {
  in_every_shell behind_a_shim
}

@test "exported options of a shell, errexit and nounset, change nothing" {
  command -v bash >/dev/null || skip "bash is not here"
  cd "$BATS_TEST_TMPDIR"
  for mode in inject gate monitor stop-enforce cleanup; do
    run env SHELLOPTS=braceexpand:errexit:nounset bash "$BATS_TEST_DIRNAME/../ctx_hooks.py" "$mode" </dev/null
    [ "$status" -eq 0 ]
    [ -z "$output" ]
  done
  run env SHELLOPTS=braceexpand:errexit:nounset bash "$BATS_TEST_DIRNAME/../ctx_hooks.py" --version </dev/null
  [ "$status" -eq 0 ]
}
