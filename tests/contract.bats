# What only a shell sees: the literal command strings of hooks.json, run by /bin/sh as the client runs them.
bats_require_minimum_version 1.5.0
load helper

setup() { make_project; }

EVENTS='SessionStart:SessionStart.startup UserPromptSubmit:UserPromptSubmit PreToolUse:PreToolUse.Bash
PostToolUse:PostToolUse.Bash PostToolUseFailure:PostToolUseFailure PreCompact:PreCompact.auto
Stop:Stop SessionEnd:SessionEnd.other'

# hook_in FOLDER EVENT NAME: the registered command with the project moved to FOLDER
hook_in() {
  local command
  command=$(registered "$2")
  event "$3" session_id=s1 cwd="$1" >"$BASE/event.json"
  client "$command" CLAUDE_PROJECT_DIR="$1" <"$BASE/event.json"
}

@test "every registered command is silent or says one ASCII object, and exits 0" {
  for pair in $EVENTS; do
    run --separate-stderr hook "${pair%%:*}" "${pair#*:}" session_id=s1
    [ "$status" -eq 0 ]
    [ -z "$stderr" ]
    [ -z "$output" ] || printf '%s' "$output" | "$TEST_PYTHON" -I -c 'import json, sys
text = sys.stdin.buffer.read().decode("ascii")
assert isinstance(json.loads(text), dict) and "\n" not in text'
  done
}

# shellcheck disable=SC2016 # the dollars are part of the name
@test "paths with spaces, quotes, dollars, backslashes and other scripts work" {
  for name in 'two  spaces' "it's" 'say "hi"' '$HOME `id` $(id)' 'back\slash' 'größe 中文' '-dash' '*' 'semi;colon&' '%s%n'; do
    folder="$BASE/$name"
    cp -R "$PROJECT" "$folder"
    run --separate-stderr hook_in "$folder" PreToolUse PreToolUse.Bash
    [ "$status" -eq 0 ]
    [ -z "$stderr" ]
    [[ $output == *'STOP. Read your context files before proceeding: .context/TASKS.md'* ]]
    rm -f "$BASE"/tmp/ctx-*
  done
  [ ! -e "$BASE/pwned" ]
}

@test "the plugin's folder is used when the client names one" {
  mkdir "$BASE/plug in"
  mv "$PROJECT/.claude/hooks/ctx_hooks.py" "$BASE/plug in/"
  event PreToolUse.Bash session_id=s1 >"$BASE/event.json"
  run client "$(registered PreToolUse)" CLAUDE_PLUGIN_ROOT="$BASE/plug in" <"$BASE/event.json"
  [ "$status" -eq 0 ]
  [[ $output == *STOP.* ]]
}

@test "the locale does not matter" {
  for locale in C POSIX C.UTF-8 de_DE.ISO-8859-1 nonsense ''; do
    event PreToolUse.Bash session_id="s-$locale" >"$BASE/event.json"
    run --separate-stderr client "$(registered PreToolUse)" LC_ALL="$locale" LANG="$locale" <"$BASE/event.json"
    [ "$status" -eq 0 ]
    [ -z "$stderr" ]
    [[ $output == *'\u2014'* ]]
  done
}

@test "an environment without HOME and TMPDIR is survived" {
  session=bats-$$-$RANDOM # its marker goes to the real /tmp
  event PreToolUse.Bash session_id="$session" >"$BASE/event.json"
  run --separate-stderr env -i CLAUDE_PROJECT_DIR="$PROJECT" PATH="$PLAIN_PATH" /bin/sh -c "$(registered PreToolUse)" <"$BASE/event.json"
  rm -f "/tmp/ctx-loaded-$session" "/tmp/ctx-quiet-$session"
  [ "$status" -eq 0 ]
  [ -z "$stderr" ]
  [[ $output == *STOP.* ]]
}

@test "python variables of the user change nothing" {
  mkdir "$BASE/evil"
  for name in json os re _stat sitecustomize usercustomize; do
    echo "open('$BASE/evil/ran', 'w')" >"$BASE/evil/$name.py"
  done
  event PreToolUse.Bash session_id=s1 >"$BASE/event.json"
  run --separate-stderr client "$(registered PreToolUse)" PYTHONPATH="$BASE/evil" PYTHONHOME=/nowhere PYTHONSTARTUP="$BASE/evil/os.py" \
    PYTHONINSPECT=1 PYTHONWARNINGS=error PYTHONIOENCODING=utf-16 PYTHONOPTIMIZE=2 PYTHONVERBOSE=1 <"$BASE/event.json"
  [ "$status" -eq 0 ]
  [ -z "$stderr" ]
  [[ $output == *STOP.* ]]
  [ ! -e "$BASE/evil/ran" ]
}

@test "a folder full of foreign modules is not searched before the standard library" {
  for name in json os re posix time _json _stat typing; do
    echo "open('$BASE/ran', 'w')" >"$PROJECT/.claude/hooks/$name.py"
  done
  for pair in $EVENTS; do
    run hook "${pair%%:*}" "${pair#*:}" session_id=s1
    [ "$status" -eq 0 ]
  done
  [ ! -e "$BASE/ran" ]
}

@test "closed stdin, stdout and stderr are survived" {
  for pair in $EVENTS; do
    command=$(registered "${pair%%:*}")
    event "${pair#*:}" session_id=s1 >"$BASE/event.json"
    client "$command" <"$BASE/event.json" >&-
    client "$command" <"$BASE/event.json" >"$BASE/out" 2>&-
    client "$command" <&- >"$BASE/out"
    [ ! -s "$BASE/out" ]
    client "$command" <&- >&- 2>&-
  done
}

@test "a reader that leaves early is survived" {
  event PreToolUse.Bash session_id=s1 >"$BASE/event.json"
  command=$(registered PreToolUse)
  # shellcheck disable=SC2216 # true reads nothing, that is the point
  { client "$command" <"$BASE/event.json" 2>"$BASE/err"; echo $? >"$BASE/status"; } | true
  [ "$(cat "$BASE/status")" -eq 0 ]
  [ ! -s "$BASE/err" ]
}

@test "a missing interpreter ends in exit 0 and says nothing on stdout" {
  mkdir "$BASE/empty"
  for pair in $EVENTS; do
    run --separate-stderr client "$(registered "${pair%%:*}")" PATH="$BASE/empty" </dev/null
    [ "$status" -eq 0 ]
    [ -z "$output" ]
  done
}

@test "a missing kit ends in exit 0 and says nothing on stdout" {
  rm -r "$PROJECT/.claude/hooks"
  for pair in $EVENTS; do
    run --separate-stderr hook "${pair%%:*}" "${pair#*:}" session_id=s1
    [ "$status" -eq 0 ]
    [ -z "$output" ]
  done
}

@test "a kit cut off in the middle ends in exit 0 and says nothing on stdout" {
  head -c 30000 "$REPO/ctx_hooks.py" >"$PROJECT/.claude/hooks/ctx_hooks.py"
  run --separate-stderr hook PreToolUse PreToolUse.Bash session_id=s1
  [ "$status" -eq 0 ]
  [ -z "$output" ]
}

@test "a kit in a folder that cannot be written works" {
  chmod -R a-w "$PROJECT/.claude"
  run --separate-stderr hook PreToolUse PreToolUse.Bash session_id=s1
  chmod -R u+w "$PROJECT/.claude"
  [ "$status" -eq 0 ]
  [[ $output == *STOP.* ]]
}

@test "no temp folder: the gate speaks every time and nothing breaks" {
  event PreToolUse.Bash session_id=s1 >"$BASE/event.json"
  for _ in 1 2; do
    run --separate-stderr client "$(registered PreToolUse)" TMPDIR="$BASE/nowhere" <"$BASE/event.json"
    [ "$status" -eq 0 ]
    [ -z "$stderr" ]
    [[ $output == *STOP.* ]]
  done
}

@test "the session's folder is where the agent went, the project is where the client started" {
  mkdir -p "$BASE/elsewhere"
  cd "$BASE/elsewhere"
  run hook PreToolUse PreToolUse.Bash session_id=s1 cwd="$BASE/elsewhere"
  [ "$status" -eq 0 ]
  [[ $output == *"$PROJECT/.context/TASKS.md"* ]]
}

@test "a marker in the temp folder spares the gate its interpreter, and only the gate" {
  event PreToolUse.Bash session_id=s1 >"$BASE/event.json"
  run client "$(registered PreToolUse)" CLAUDE_CODE_SESSION_ID=s1 <"$BASE/event.json"
  [[ $output == *STOP.* ]]
  [ -f "$BASE/tmp/ctx-quiet-s1" ]
  rm "$BASE/bin/python3"
  ln -s "$(command -v false)" "$BASE/bin/python3"
  run --separate-stderr client "$(registered PreToolUse)" CLAUDE_CODE_SESSION_ID=s1 <"$BASE/event.json"
  [ "$status" -eq 0 ]
  [ -z "$output$stderr" ]
}

@test "two sessions: the handoff of the first is the start of the second, and nothing else is left" {
  run hook SessionStart SessionStart.startup session_id=s1
  [ -z "$output" ]
  run hook PreToolUse PreToolUse.Bash session_id=s1
  [[ $output == *STOP.* ]]
  run hook PreToolUse PreToolUse.Bash session_id=s1
  [ -z "$output" ]
  run hook PostToolUse PostToolUse.Bash session_id=s1 tool_use_id=t1
  [ -z "$output" ]
  "$BASE/bin/python3" "$PROJECT/.claude/hooks/ctx_hooks.py" signal 'CI is red' --action 'Look at the log' --session s1
  run hook PostToolUseFailure PostToolUseFailure session_id=s1 tool_use_id=t2
  [[ $output == *'[ctx monitor] CI is red'* ]]
  grep -q '"tool_calls": 2' "$PROJECT/.context/state/s1.json"
  run hook UserPromptSubmit UserPromptSubmit session_id=s1
  [ -z "$output" ]
  run hook Stop Stop session_id=s1
  [ -z "$output" ]
  mkdir -p "$PROJECT/.context/handoffs"
  printf 'Goal: finish the parser.\n' >"$PROJECT/.context/handoffs/s1.md"
  run hook SessionEnd SessionEnd.other session_id=s1
  [ -z "$output" ]
  [ ! -e "$PROJECT/.context/state/s1.json" ]
  [ ! -e "$PROJECT/.context/signals/sessions/s1" ]
  [ -z "$(ls "$BASE/tmp")" ]
  run hook SessionStart SessionStart.startup session_id=s2
  [[ $output == *'CONTEXT INJECTION'*'finish the parser'* ]]
  [ "$(cat "$PROJECT/.context/handoffs/s1.md")" = 'Goal: finish the parser.' ]
}
