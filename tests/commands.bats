#!/usr/bin/env bats
# What only a shell sees of the people's commands.

setup() {
  REPO=$(cd "$BATS_TEST_DIRNAME/.." && pwd -P)
  BASE=$(mktemp -d "$BATS_TEST_TMPDIR/base.XXXXXX")
  PROJECT="$BASE/a person's project"
  mkdir -p "$PROJECT/.context" "$PROJECT/.claude/hooks" "$BASE/home" "$BASE/tmp" "$BASE/bin"
  printf -- '- finish the parser\n' >"$PROJECT/.context/TASKS.md"
  cp "$REPO/ctx_hooks.py" "$PROJECT/.claude/hooks/"
  ln -s "$(python3 -c 'import os, sys; print(os.path.realpath(sys.executable))')" "$BASE/bin/python3"
  export HOME=$BASE/home TMPDIR=$BASE/tmp PATH=$BASE/bin:/usr/bin:/bin
  unset CLAUDECODE AI_AGENT CLAUDE_PROJECT_DIR CTX_HOOKS_DISABLE
  cd "$PROJECT" || return 1
}

@test "the executable bit is enough to call a command" {
  run .claude/hooks/ctx_hooks.py status
  [ "$status" -eq 0 ]
  [[ $output == *"ctx_hooks 0."* ]]
}

@test "each shell runs the commands as python3 does" {
  for shell in sh dash bash "busybox sh" zsh; do
    command -v "${shell%% *}" >/dev/null || continue
    run $shell .claude/hooks/ctx_hooks.py resume
    [ "$output" = "the hooks are on; there was no pause" ]
  done
}

@test "an unknown mode prints nothing on stdout and exits with 1" {
  run sh -c "sh .claude/hooks/ctx_hooks.py gates claude 2>/dev/null </dev/null"
  [ "$status" -eq 1 ]
  [ -z "$output" ]
}

@test "a command that fails prints nothing on stdout" {
  run sh -c "sh .claude/hooks/ctx_hooks.py pause --for never 2>/dev/null"
  [ "$status" -eq 1 ]
  [ -z "$output" ]
}

@test "a closed stdout is no crash" {
  run sh -c "sh .claude/hooks/ctx_hooks.py status >&-"
  [[ $output != *Traceback* ]]
}

@test "a command that is shown can be pasted, also with a quote in the path" {
  cd "$BASE"
  said=$(cd "$PROJECT" && mkdir -p src && cd src && sh ../.claude/hooks/ctx_hooks.py pause)
  cd "$PROJECT"
  run sh -c "${said##*until you run }"
  [ "$output" = "the hooks are on again" ]
}

@test "a C locale and a pipe get UTF-8" {
  run env LC_ALL=C sh .claude/hooks/ctx_hooks.py signal "rot → grün"
  [ "$status" -eq 0 ]
  run sh -c "LC_ALL=C sh .claude/hooks/ctx_hooks.py status | cat"
  [[ $output == *"rot → grün"* ]]
}

@test "outside a project help works, and nothing is created" {
  cd "$BASE"
  run sh "$PROJECT/.claude/hooks/ctx_hooks.py" --help
  [ "$status" -eq 0 ]
  [ ! -e "$HOME/.local" ]
}
