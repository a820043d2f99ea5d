#!/usr/bin/env bats
# What only a shell sees of the people's commands.

setup() {
  REPO=$(cd "$BATS_TEST_DIRNAME/.." && pwd -P)
  BASE=$(mktemp -d "$BATS_TEST_TMPDIR/base.XXXXXX")
  mkdir -p "$BASE/project/.context" "$BASE/home" "$BASE/tmp" "$BASE/bin"
  ln -s "$(python3 -c 'import os, sys; print(os.path.realpath(sys.executable))')" "$BASE/bin/python3"
  export HOME=$BASE/home TMPDIR=$BASE/tmp PATH=$BASE/bin:/usr/bin:/bin
  unset CLAUDECODE AI_AGENT CLAUDE_PROJECT_DIR CTX_HOOKS_DISABLE
  cd "$BASE/project" || return 1
}

@test "a closed stdout is no crash" {
  run sh -c "sh '$REPO/ctx_hooks.py' status >&-"
  [[ $output != *Traceback* ]]
}

@test "a C locale and a pipe get UTF-8" {
  run env LC_ALL=C sh "$REPO/ctx_hooks.py" signal "rot → grün"
  [ "$status" -eq 0 ]
  run sh -c "LC_ALL=C sh '$REPO/ctx_hooks.py' status | cat"
  [[ $output == *"rot → grün"* ]]
}
