# What a shell sees of install.py: the literal lines it registers, run as a client runs them.
# shellcheck shell=bash
bats_require_minimum_version 1.5.0

setup() {
  REPO=$(cd "$BATS_TEST_DIRNAME/.." && pwd -P)
  BASE=$(mktemp -d "$BATS_TEST_TMPDIR/base.XXXXXX")
  PROJECT="$BASE/it's \"über\" \$HOME/a project"
  mkdir -p "$PROJECT/.context" "$BASE/home" "$BASE/tmp" "$BASE/bin" "$BASE/kit" "$BASE/elsewhere"
  printf '# Tasks\n\n- finish the parser\n' >"$PROJECT/.context/TASKS.md"
  cp -R "$REPO/install.py" "$REPO/hooks.json" "$REPO/ctx_hooks.py" "$REPO/.claude-plugin" "$BASE/kit/"
  TEST_PYTHON=${TEST_PYTHON:-$(python3 -c 'import os, sys; print(os.path.realpath(sys.executable))')}
  ln -s "$TEST_PYTHON" "$BASE/bin/python3"
  cd "$PROJECT" || return 1
}

plain() {
  env -i HOME="$BASE/home" TMPDIR="$BASE/tmp" PATH="$BASE/bin:/usr/bin:/bin" LC_ALL="${LOCALE:-C.UTF-8}" "$@"
}

installer() { plain python3 "$BASE/kit/install.py" "$@"; }

listing() { find . -path ./.git -prune -o -type f -exec sh -c 'for f; do ls -l "$f" | cut -c1-10; cksum "$f"; done' sh {} + | sort; }

# lines FILE: "event<TAB>command" for each hook of a settings file
lines_of() {
  plain python3 - "$1" <<'PY'
import json, sys
for event, groups in json.load(open(sys.argv[1], encoding="utf-8-sig"))["hooks"].items():
    print(event, groups[0]["hooks"][0]["command"], sep="\t")
PY
}

# client COMMAND EVENT [NAME=VALUE…]: as Claude Code runs a hook, from another folder
client() {
  local command=$1 event=$2
  shift 2
  (cd "$BASE/elsewhere" && printf '{"session_id": "s1", "hook_event_name": "%s", "cwd": "/", "transcript_path": ""}' "$event" |
    plain CLAUDE_PROJECT_DIR="$PROJECT" GEMINI_PROJECT_DIR="$PROJECT" CLAUDECODE=1 "$@" /bin/sh -c "$command")
}

# each FILE FUNCTION: FUNCTION COMMAND EVENT succeeds for every hook of a settings file
each() {
  local event command
  while IFS=$'\t' read -r event command; do
    "$2" "$command" "$event" </dev/null || { echo "failed: $event: $command" && return 1; }
  done < <(lines_of "$1")
}

succeeds() { client "$1" "$2" >/dev/null 2>"$BASE/stderr" && [ ! -s "$BASE/stderr" ]; }

succeeds_silently() {
  local said
  said=$(client "$1" "$2" 2>/dev/null) && [ -z "$said" ]
}

@test "install, run every line from elsewhere, uninstall: every byte is as it was" {
  mkdir .claude
  printf '\xef\xbb\xbf{\r\n\t"model": "\xc3\xbc"\r\n}' >.claude/settings.json
  chmod 640 .claude/settings.json
  before=$(listing)
  installer --agent claude --agent gemini
  each .claude/settings.json succeeds
  each .gemini/settings.json succeeds
  installer --check
  rm -rf .context/signals .context/handoffs .context/*.json .context/.gitignore
  installer --uninstall
  [ "$(listing)" = "$before" ]
  [ -z "$(find "$BASE/home" -name '*ctx_hooks*')" ]
}

@test "the registered line is what the README shows, and short" {
  installer
  run lines_of .claude/settings.json
  [[ ${lines[3]} == PostToolUse$'\t''sh "$CLAUDE_PROJECT_DIR/.claude/hooks/ctx_hooks.py" monitor || exit 0' ]]
  for line in "${lines[@]}"; do [ "${#line}" -le 120 ]; done
}

@test "a missing kit, a broken kit and a missing interpreter deny nothing" {
  installer
  rm .claude/hooks/ctx_hooks.py
  each .claude/settings.json succeeds_silently
  echo 'exit 2' >.claude/hooks/ctx_hooks.py
  each .claude/settings.json succeeds_silently
  no_python() { (cd "$BASE/elsewhere" && env -i CLAUDE_PROJECT_DIR="$PROJECT" PATH=/nowhere /bin/sh -c "$1" 2>/dev/null </dev/null); }
  each .claude/settings.json no_python
  installer --force
  each .claude/settings.json no_python
}

@test "the lines of the plugin find its kit" {
  plugin() { client "$1" "$2" CLAUDE_PLUGIN_ROOT="$BASE/kit" >/dev/null 2>"$BASE/stderr" && [ ! -s "$BASE/stderr" ]; }
  each "$BASE/kit/.claude-plugin/hooks.json" plugin
  [ ! -e .claude ]
}

@test "user scope runs without a project's help" {
  installer --scope user
  [ ! -e .claude ]
  each "$BASE/home/.claude/settings.json" succeeds
  installer --scope user --uninstall
  [ ! -e "$BASE/home/.claude" ]
}

@test "git sees the kit and the settings; of a private install it would stage nothing" {
  command -v git >/dev/null || skip 'needs git'
  plain git init -q .
  plain git add -A
  installer --scope local --statusline
  each .claude/settings.local.json succeeds
  plain git add -A
  run plain git status --porcelain
  [ "${lines[*]}" = "A  .context/TASKS.md" ]
  installer --scope local --uninstall
  installer
  each .claude/settings.json succeeds
  run plain git status --porcelain -uall
  [ "${lines[*]}" = "A  .context/TASKS.md ?? .claude/hooks/.gitattributes ?? .claude/hooks/ctx_hooks.py ?? .claude/settings.json" ]
}

@test "git gives the kit no CRLF" {
  command -v git >/dev/null || skip 'needs git'
  plain git init -q .
  plain git config core.autocrlf true
  installer
  plain git add -A 2>/dev/null
  rm .claude/hooks/ctx_hooks.py
  plain git checkout -q -- .claude
  cmp "$BASE/kit/ctx_hooks.py" .claude/hooks/ctx_hooks.py
}

@test "a dry run can be read in any locale, and writes nothing" {
  before=$(listing)
  LOCALE=C installer --dry-run --init --verbose >"$BASE/printed"
  grep -q 'would write .claude/hooks/ctx_hooks.py' "$BASE/printed"
  [ "$(listing)" = "$before" ]
  [ -z "$(ls -A "$BASE/home")" ]
}

@test "a closed stdout is no failure, a full one no traceback" {
  installer --dry-run >&-
  installer --dry-run 2>"$BASE/stderr" | true
  run ! grep -q . "$BASE/stderr"
  installer >&-
  installer --check
}

@test "an interpreter that is too old says what is needed" {
  old=$(command -v python3.6 || command -v python3.7) || skip 'needs an old Python'
  "$old" -c pass 2>/dev/null || skip 'needs an old Python'
  run "$old" "$BASE/kit/install.py"
  [ "$status" -eq 1 ]
  [[ ${lines[0]} == "error: ctx_hooks needs Python 3.8"* ]]
  [[ ${lines[1]} == "hint: "* ]]
}

@test "one line an action, the next step last; errors and hints on stderr" {
  run --separate-stderr installer --init
  [ "$status" -eq 0 ]
  [ -z "$stderr" ]
  [[ ${lines[0]} == "write "* ]]
  [[ ${lines[-1]} == "next: "* ]]
  echo '{,}' >.claude/settings.json
  run --separate-stderr installer
  [ "$status" -eq 1 ]
  [ -z "$output" ]
  [[ ${stderr_lines[0]} == "error: .claude/settings.json: Expecting property name"*": line 1 column 2 "* ]]
  [[ ${stderr_lines[1]} == "hint: "* ]]
}

@test "check has an exit code for each answer" {
  run installer --check
  [ "$status" -eq 3 ]
  installer
  run installer --check
  [ "$status" -eq 0 ]
  run installer --check --statusline
  [ "$status" -eq 4 ]
  run installer --check --scope galaxy
  [ "$status" -eq 2 ]
}
