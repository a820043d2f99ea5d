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

# each FILE: every hook of a settings file succeeds without a complaint, run from another folder as Claude Code runs it
each() {
  local event command
  while IFS=$'\t' read -r event command; do
    printf '{"session_id": "s1", "hook_event_name": "%s", "cwd": "/", "transcript_path": ""}' "$event" >"$BASE/event"
    (cd "$BASE/elsewhere" && plain CLAUDE_PROJECT_DIR="$PROJECT" GEMINI_PROJECT_DIR="$PROJECT" CLAUDECODE=1 \
      CLAUDE_PLUGIN_ROOT="${CLAUDE_PLUGIN_ROOT:-}" /bin/sh -c "$command" <"$BASE/event" >/dev/null 2>"$BASE/stderr") &&
      [ ! -s "$BASE/stderr" ] || { echo "failed: $event: $command" && return 1; }
  done < <(lines_of "$1")
}

@test "install, run every line from elsewhere, uninstall: every byte is as it was" {
  mkdir .claude
  printf '\xef\xbb\xbf{\r\n\t"model": "\xc3\xbc"\r\n}' >.claude/settings.json
  chmod 640 .claude/settings.json
  before=$(listing)
  installer --agent claude --agent gemini
  each .claude/settings.json
  each .gemini/settings.json
  installer --check
  rm -rf .context/signals .context/handoffs .context/*.json .context/.gitignore
  installer --uninstall
  [ "$(listing)" = "$before" ]
  [ -z "$(find "$BASE/home" -name '*ctx_hooks*')" ]
}

@test "the lines of the plugin find its kit" {
  export CLAUDE_PLUGIN_ROOT="$BASE/kit"
  each "$BASE/kit/.claude-plugin/hooks.json"
  [ ! -e .claude ]
}

@test "git gives the kit no CRLF" {
  plain git init -q .
  plain git config core.autocrlf true
  installer
  plain git add -A 2>/dev/null
  rm .claude/hooks/ctx_hooks.py
  plain git checkout -q -- .claude
  cmp "$BASE/kit/ctx_hooks.py" .claude/hooks/ctx_hooks.py
}

@test "a dry run can be read in any locale" {
  LOCALE=C installer --dry-run --verbose >"$BASE/printed"
  grep -q 'would write .claude/hooks/ctx_hooks.py' "$BASE/printed"
}

@test "a closed stdout is no failure, a full one no traceback" {
  installer --dry-run >&-
  installer --dry-run 2>"$BASE/stderr" | true
  run ! grep -q . "$BASE/stderr"
  installer >&-
  installer --check
}

@test "one line an action, how to undo it last; errors and hints on stderr" {
  run --separate-stderr installer
  [ "$status" -eq 0 ]
  [ -z "$stderr" ]
  [[ ${lines[0]} == "wrote "* ]]
  [[ ${lines[-1]} == "to undo all of it: "*install.py*" --uninstall" ]]
  echo '{,}' >.claude/settings.json
  run --separate-stderr installer
  [ "$status" -eq 1 ]
  [ -z "$output" ]
  [[ ${stderr_lines[0]} == "error: .claude/settings.json: Expecting property name"*": line 1 column 2 "* ]]
  [[ ${stderr_lines[1]} == "hint: "* ]]
}
