# What a shell sees of install.py: the literal commands it registers, run as the client runs them.
# shellcheck shell=bash
bats_require_minimum_version 1.5.0

setup() {
  REPO=$(cd "$BATS_TEST_DIRNAME/.." && pwd -P)
  BASE=$(mktemp -d "$BATS_TEST_TMPDIR/base.XXXXXX")
  PROJECT="$BASE/it's \"über\" \$HOME/a project"
  mkdir -p "$PROJECT/.context" "$BASE/home" "$BASE/tmp" "$BASE/bin" "$BASE/kit" "$BASE/elsewhere"
  printf '# Tasks\n\n- finish the parser\n' >"$PROJECT/.context/TASKS.md"
  cp "$REPO/install.py" "$REPO/hooks.json" "$REPO/ctx_hooks.py" "$BASE/kit/"
  TEST_PYTHON=${TEST_PYTHON:-$(python3 -c 'import os, sys; print(os.path.realpath(sys.executable))')}
  ln -s "$TEST_PYTHON" "$BASE/bin/python3"
  PLAIN_PATH=$BASE/bin:/usr/local/bin:/usr/bin:/bin
  cd "$PROJECT" || return 1
}

# plain COMMAND…: nothing of the caller's environment gets in
plain() {
  env -i PATH="$PLAIN_PATH" HOME="$BASE/home" TMPDIR="$BASE/tmp" LC_ALL="${LOCALE:-C}" "$@"
}

installer() {
  plain python3 "$BASE/kit/install.py" "$@"
}

# commands FILE: "EVENT<tab>COMMAND" for each registered hook
commands() {
  "$TEST_PYTHON" -I -X utf8 -c 'import json, sys
for event, groups in json.load(open(sys.argv[1], encoding="utf-8-sig"))["hooks"].items():
    for group in groups:
        for hook in group["hooks"]:
            print(event, hook["command"], sep="\t")' "$1"
}

# client COMMAND EVENT [NAME=VALUE…]: as the client runs it, from another folder
client() {
  local command=$1 event=$2
  shift 2
  printf '{"hook_event_name": "%s", "session_id": "s-1", "cwd": "%s", "tool_name": "Bash", "tool_input": {}}' \
    "$event" "$BASE/elsewhere" >"$BASE/event.json"
  (cd "$BASE/elsewhere" && plain CLAUDE_PROJECT_DIR="$PROJECT" "$@" /bin/sh -c "$command" <"$BASE/event.json")
}

# each FILE FUNCTION: FUNCTION COMMAND EVENT for each registered hook; there has to be one
each() {
  local event command count=0
  while IFS=$'\t' read -r event command; do
    "$2" "$command" "$event" || { echo "failed: $event: $command" && return 1; }
    count=$((count + 1))
  done < <(commands "$1")
  [ "$count" -ge 7 ]
}

# listing: names, modes, links and checksums of everything in the project
listing() {
  (cd "$PROJECT" && "$TEST_PYTHON" -I -X utf8 -c 'import os, zlib
for folder, folders, files in os.walk("."):
    for path in (os.path.join(folder, name) for name in folders + files):
        data = open(path, "rb").read() if os.path.isfile(path) else b""
        print(ascii(path), oct(os.lstat(path).st_mode), os.path.islink(path) and os.readlink(path), zlib.crc32(data))' |
    sort)
}

# bytecode: name, inode and time of each cached file of the kit in the user's cache folder
bytecode() {
  "$TEST_PYTHON" -I -c 'import os, sys
for folder, _, names in os.walk(sys.argv[1]):
    for name in names:
        info = os.stat(os.path.join(folder, name))
        print(name, info.st_ino, info.st_mtime_ns)' "$BASE/home/.cache/ctx_hooks" | sort
}

succeeds() {
  client "$1" "$2" >/dev/null 2>"$BASE/stderr" && [ ! -s "$BASE/stderr" ]
}

succeeds_silently() {
  local said
  said=$(client "$1" "$2" 2>/dev/null) && [ -z "$said" ]
}

@test "install, run every registered command from elsewhere, uninstall: the tree is as it was" {
  mkdir .claude
  printf '\xef\xbb\xbf{\r\n\t"model": "\xc3\xbc"\r\n}' >.claude/settings.json
  chmod 640 .claude/settings.json
  before=$(listing)
  installer
  each .claude/settings.json succeeds
  installer --check
  rm -rf .context/state .context/signals .context/*.json* .context/.gitignore
  installer --uninstall
  [ "$(listing)" = "$before" ]
}

@test "the first tool call gets the context files named" {
  installer
  command=$(commands .claude/settings.json | sed -n 's/^PreToolUse\t//p')
  run client "$command" PreToolUse
  [ "$status" -eq 0 ]
  [[ $output == *TASKS.md* ]]
}

@test "bytecode lies in the user's cache, is written once and never beside the kit" {
  installer
  each .claude/settings.json succeeds
  before=$(bytecode)
  [ -n "$before" ]
  each .claude/settings.json succeeds
  [ "$(bytecode)" = "$before" ]
  [ "$(ls -A .claude/hooks)" = ".ctx_hooks
ctx_hooks.py" ]
}

@test "a missing kit, a broken kit and a missing interpreter deny nothing" {
  installer
  rm .claude/hooks/ctx_hooks.py
  each .claude/settings.json succeeds_silently
  echo 'raise SystemExit(2)' >.claude/hooks/ctx_hooks.py
  each .claude/settings.json succeeds_silently
  echo '(' >.claude/hooks/ctx_hooks.py
  each .claude/settings.json succeeds_silently
  PLAIN_PATH=/nowhere
  no_python() { (cd "$BASE/elsewhere" && env -i PATH=/nowhere /bin/sh -c "$1" 2>/dev/null </dev/null); }
  each .claude/settings.json no_python
}

@test "the commands of hooks.json find the kit of a plugin" {
  plugin() { client "$1" "$2" CLAUDE_PLUGIN_ROOT="$BASE/kit" >/dev/null 2>"$BASE/stderr" && [ ! -s "$BASE/stderr" ]; }
  each "$BASE/kit/hooks.json" plugin
  [ ! -e .claude ]
}

@test "user scope runs without a project's help" {
  installer --scope user
  [ ! -e .claude ]
  each "$BASE/home/.claude/settings.json" succeeds
  installer --scope user --uninstall
  [ "$(ls -A "$BASE/home")" = .cache ]
}

@test "git status shows the kit and the settings, nothing that runs left behind" {
  command -v git >/dev/null || skip 'needs git'
  plain git init -q .
  plain git add -A
  installer
  each .claude/settings.json succeeds
  run plain git status --porcelain -uall
  [ "${lines[*]}" = "A  .context/TASKS.md ?? .claude/hooks/ctx_hooks.py ?? .claude/settings.json" ]
}

@test "a private install leaves nothing that git would stage" {
  command -v git >/dev/null || skip 'needs git'
  plain git init -q .
  plain git add -A
  installer --scope local --statusline
  each .claude/settings.local.json succeeds
  plain git add -A
  run plain git status --porcelain
  [ "${lines[*]}" = "A  .context/TASKS.md" ]
}

@test "a dry run can be read in any locale" {
  LOCALE=en_US.ISO-8859-1 installer --dry-run >"$BASE/printed"
  grep -q 'sha256' "$BASE/printed"
}

@test "a closed stdout is no failure, a full one no traceback" {
  installer --dry-run >&-
  installer --dry-run 2>"$BASE/stderr" | true
  [ "$(grep -c Traceback "$BASE/stderr")" -eq 0 ]
  installer >&-
  installer --check
}

@test "the launcher runs the project's kit from any folder of it" {
  mkdir -p a/b
  installer --launcher="$BASE/bin"
  cd a/b
  run plain ctx --version
  cd ../..
  [ "$status" -eq 0 ]
  [[ ${lines[0]} == "ctx_hooks "* ]]
  installer --uninstall --launcher="$BASE/bin"
  [ ! -e "$BASE/bin/ctx" ]
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
  [[ $stderr == "hint: "* ]]
  for line in "${lines[@]:0:${#lines[@]}-1}"; do
    [[ $line =~ ^(wrote|merged|unchanged|removed|kept|restored|took)\  ]]
  done
  [[ ${lines[-1]} == "next: "* ]]
  echo '{,}' >.claude/settings.json
  run installer
  [ "$status" -eq 1 ]
  [[ ${lines[0]} == "error: .claude/settings.json: Expecting property name"*": line 1 column 2 "* ]]
  [[ ${lines[1]} == "hint: "* ]]
}
