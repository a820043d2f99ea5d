# For every .bats file: `load helper`, then `setup() { make_project; }`.
# shellcheck shell=bash

REPO=$(cd "${BATS_TEST_DIRNAME:?}/.." && pwd -P)

# A project with a space and a quote in its path, the kit in its .claude/hooks, a private HOME and TMPDIR,
# and `python3` = the real interpreter under test (a shim would be measured, not the kit).
make_project() {
  BASE=$(mktemp -d "${BATS_TEST_TMPDIR:?}/base.XXXXXX")
  PROJECT="$BASE/a project's"
  mkdir -p "$PROJECT/.context" "$PROJECT/.claude/hooks" "$BASE/home" "$BASE/tmp" "$BASE/bin"
  printf '# Tasks\n\n- finish the parser\n' >"$PROJECT/.context/TASKS.md"
  cp "$REPO/ctx_hooks.py" "$PROJECT/.claude/hooks/"
  TEST_PYTHON=${TEST_PYTHON:-$(python3 -c 'import os, sys; print(os.path.realpath(sys.executable))')}
  ln -s "$TEST_PYTHON" "$BASE/bin/python3"
  PLAIN_PATH=$BASE/bin:/usr/local/bin:/usr/bin:/bin
  cd "$PROJECT" || return 1
}

# registered EVENT: the literal command of hooks.json
registered() {
  "$TEST_PYTHON" -I -c 'import json, sys
print(json.load(open(sys.argv[1]))["hooks"][sys.argv[2]][0]["hooks"][0]["command"])' "$REPO/hooks.json" "$1"
}

# client COMMAND [NAME=VALUE...]: run a command as the client does, stdin passed on, nothing else inherited
client() {
  local command=$1
  shift
  env -i PATH="$PLAIN_PATH" HOME="$BASE/home" TMPDIR="$BASE/tmp" LC_ALL=C CLAUDECODE=1 \
    CLAUDE_PROJECT_DIR="$PROJECT" "$@" /bin/sh -c "$command"
}

# event NAME [KEY=VALUE...]: a recorded event moved into the project
event() {
  PYTHONPATH=$REPO/tests "$TEST_PYTHON" -c 'import json, sys, helper
project = helper.Project.__new__(helper.Project)
project.root, project.home = sys.argv[1] + "/a project'"'"'s", sys.argv[1] + "/home"
print(json.dumps(project.event(sys.argv[2], **dict(word.split("=", 1) for word in sys.argv[3:]))))' "$BASE" "$@"
}

# hook EVENT NAME [KEY=VALUE...]: the registered command of EVENT on the recorded event NAME
hook() {
  local command
  command=$(registered "$1")
  shift
  event "$@" >"$BASE/event.json" # a file: a hook need not read its stdin
  client "$command" <"$BASE/event.json"
}
