bats_require_minimum_version 1.5.0
load helper

setup() {
  make_project
  KIT="$PROJECT/.claude/hooks/ctx_hooks.py"
}

# person WORDS...: a command as somebody types it, in a plain environment; LOOK holds NAME=VALUE words
person() {
  # shellcheck disable=SC2086 # LOOK is a list of words
  env -i PATH="$PLAIN_PATH" HOME="$BASE/home" TMPDIR="$BASE/tmp" ${LOOK:-} python3 "$KIT" "$@"
}

fill() {
  hook SessionStart SessionStart.startup session_id=s1 >"$BASE/out"
  hook PreToolUse PreToolUse.Bash session_id=s1 >"$BASE/out"
  hook PostToolUse PostToolUse.Bash session_id=s1 >"$BASE/out"
  person signal "CI: 3 tests fail on main, and this line goes on for quite a while to be wrapped somewhere" --global >"$BASE/out"
  person auto start "a task that is described with rather many words so that it does not fit" >"$BASE/out"
}

@test "status in a pipe has no escape sequences, in any locale, with and without NO_COLOR" {
  fill
  for LOOK in '' LC_ALL=C.UTF-8 LC_ALL=C NO_COLOR=1 'LANG=de_DE.UTF-8 TERM=xterm-256color'; do
    person status | cat >"$BASE/shown"
    grep -q 'session s1' "$BASE/shown"
    run grep -c "$(printf '\033')" "$BASE/shown"
    [ "$output" = 0 ]
  done
}

@test "the text in a pipe is the same twice" {
  fill
  LOOK=LC_ALL=C.UTF-8
  person status | sed 's/ *[0-9][0-9]*[smh]/#/g' >"$BASE/one"
  person status | sed 's/ *[0-9][0-9]*[smh]/#/g' >"$BASE/two"
  diff "$BASE/one" "$BASE/two"
}

@test "long lines are not broken, so that what stands in them can be pasted" {
  fill
  LOOK='LC_ALL=C COLUMNS=60'
  person status | grep -q 'CI: 3 tests fail on main, and this line goes on for quite a while to be wrapped somewhere'
}

@test "a reader that has seen enough is no error" {
  fill
  person status 2>"$BASE/err" | head -1 >"$BASE/shown"
  [ "$(wc -l <"$BASE/shown")" -eq 1 ]
  person why 2>>"$BASE/err" | true
  [ ! -s "$BASE/err" ]
}

@test "a closed stdout or stderr is no traceback" {
  fill
  for word in status why doctor --help --version; do
    run sh -c '"$0" "$1" "$2" >&- 2>"$3"; grep -c Traceback "$3"' "$TEST_PYTHON" "$KIT" "$word" "$BASE/err"
    [ "${lines[0]}" = 0 ]
    run sh -c '"$0" "$1" "$2" --bogus 2>&- | grep -c Traceback' "$TEST_PYTHON" "$KIT" "$word"
    [ "${lines[0]}" = 0 ]
  done
}

@test "a full disk behind stdout is an error and not a silence" {
  [ -w /dev/full ] || skip "no /dev/full"
  run sh -c '"$0" "$1" --version >/dev/full' "$TEST_PYTHON" "$KIT"
  [ "$status" -ne 0 ]
}

@test "the status line works as it is registered, with sh -c around the user's own" {
  "$TEST_PYTHON" -I "$REPO/install.py" "$PROJECT" --statusline --python "$TEST_PYTHON" >/dev/null || skip "this install.py has no --statusline"
  command=$("$TEST_PYTHON" -I -c 'import json, sys; print(json.load(open(sys.argv[1]))["statusLine"]["command"])' "$PROJECT/.claude/settings.json")
  event statusLine session_id=s1 >"$BASE/event.json"
  run client "$command" NO_COLOR=1 COLUMNS=80 LC_ALL=C.UTF-8 <"$BASE/event.json"
  [ "$status" -eq 0 ]
  [[ ${lines[0]} == *'% of the window'*'Sonnet 5.5' ]]
  [ -s "$PROJECT/.context/state/s1.statusline" ]
}

@test "the status line shows the user's own first" {
  event statusLine session_id=s1 >"$BASE/event.json"
  run client "python3 -I -S '.claude/hooks/ctx_hooks.py' statusline -- sh -c 'echo \"it'\\''s mine\"'" NO_COLOR=1 COLUMNS=80 <"$BASE/event.json"
  [ "$status" -eq 0 ]
  [ "${lines[0]}" = "it's mine" ]
  [[ ${lines[1]} == *'% of the window'*'Sonnet 5.5' ]]
}

@test "a workflow says in five lines what will happen, and its hint can be pasted" {
  person auto start "Mend it" --until "make test" >"$BASE/shown"
  [ "$(wc -l <"$BASE/shown")" -eq 5 ]
  out=$(sed -n 's/^out: *\(.*\), or type.*/\1/p' "$BASE/shown")
  run client "$out"
  [ "$output" = cancelled ]
}

@test "no word at all is the help; an unknown one says nothing on stdout" {
  run --separate-stderr person
  [ "$status" -eq 0 ]
  [[ $output == *status*doctor*--version* ]]
  run --separate-stderr person docter
  [ "$status" -eq 1 ]
  [ -z "$output" ]
  # shellcheck disable=SC2154 # bats sets stderr
  [[ $stderr == *'did you mean doctor?'* ]]
}

@test "errors go to stderr with a hint, exit 1; wrong usage exits 2" {
  rm -r "$PROJECT/.context"
  run --separate-stderr person status
  [ "$status" -eq 1 ]
  [ -z "$output" ]
  # shellcheck disable=SC2154 # bats sets stderr
  [[ $stderr == 'error: '*$'\n''hint: '* ]]
  run --separate-stderr person status --bogus
  [ "$status" -eq 2 ]
  [ -z "$output" ]
}
