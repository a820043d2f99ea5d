#!/usr/bin/env bash
# The yardstick of tests/bench.py: the same jobs as a plain bash and jq hook, the way one writes it in an
# afternoon. No locks, no hostile input, no acknowledgement; it only has to be fair about the work.
#
#   jq-hook.sh gate|monitor|inject|stop-enforce   the event's JSON on stdin
set -u
input=$(cat)
session=$(jq -r '.session_id' <<<"$input")
root=${CLAUDE_PROJECT_DIR:-$(jq -r '.cwd' <<<"$input")}
[ -d "$root/.context" ] || exit 0

say() { # say EVENT TEXT
  jq -n --arg event "$1" --arg text "$2" '{hookSpecificOutput: {hookEventName: $event, additionalContext: $text}}'
}

case $1 in
  gate)
    marker=${TMPDIR:-/tmp}/ctx-loaded-$session
    [ -e "$marker" ] && exit 0
    date -u +%FT%TZ >"$marker"
    files=$(cd "$root" && echo .context/*.md)
    say PreToolUse "STOP. Read your context files before proceeding: $files"
    ;;
  monitor)
    transcript=$(jq -r '.transcript_path' <<<"$input")
    tokens=$(tail -n 40 "$transcript" | jq -s '[.[] | select(.type == "assistant" and .isSidechain != true)
      | .message.usage | .input_tokens + .cache_creation_input_tokens + .cache_read_input_tokens] | last // 0')
    percent=$((tokens * 100 / 200000))
    state=$root/.context/state/$session.json
    mkdir -p "${state%/*}"
    [ -s "$state" ] || echo '{}' >"$state"
    jq --argjson tokens "$tokens" '.tool_calls = (.tool_calls // 0) + 1 | .estimated_tokens = $tokens' "$state" \
      >"$state.tmp" && mv "$state.tmp" "$state"
    [ "$percent" -ge 80 ] || exit 0
    say PostToolUse "Context: $percent% full ($tokens/200000). Write a handoff to $root/.claude/ll-continue-prompt.md"
    ;;
  inject)
    text=''
    for file in "$root/.context/signals/sessions/$session"/*.md "$root/.context/signals/global"/*.md; do
      [ -e "$file" ] || continue
      ttl=$(sed -n 's/^ttl: //p' "$file" | head -n 1)
      written=$(date -d "$(sed -n 's/^generated_at: //p' "$file" | head -n 1)" +%s)
      if [ "$(($(date +%s) - written))" -lt "$ttl" ]; then
        text="$text  • $(awk 'n >= 2 {print} /^---$/ {n++}' "$file")"$'\n'
      fi
      rm -f "$file"
    done
    [ -z "$text" ] || say UserPromptSubmit "⚠️ [ctx monitor] $text"
    ;;
  stop-enforce)
    state=$root/.caw/auto-state.json
    [ -e "$state" ] || exit 0
    phase=$(jq -r '.phase' "$state")
    message=$(jq -r '.last_assistant_message' <<<"$input")
    signal=$(tr '[:lower:]' '[:upper:]' <<<"$phase")_COMPLETE
    grep -q "^SIGNAL: $signal" <<<"$message" && exit 0
    jq '.iteration = (.iteration // 0) + 1' "$state" >"$state.tmp" && mv "$state.tmp" "$state"
    say Stop "## Auto Mode Continuation: phase $phase is not complete. Print the $signal block when it is."
    ;;
esac
