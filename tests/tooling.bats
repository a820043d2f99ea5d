load helper

@test "the literal commands of hooks.json are silent and successful where there is nothing to say" {
  make_project
  rm -r "$PROJECT/.context"
  for pair in UserPromptSubmit:UserPromptSubmit PreToolUse:PreToolUse.Bash PostToolUse:PostToolUse.Bash Stop:Stop; do
    run hook "${pair%%:*}" "${pair#*:}"
    [ "$status" -eq 0 ]
    [ -z "$output" ]
  done
}

@test "a recorded event names the project it was moved into" {
  make_project
  run event PreToolUse.Bash session_id=s1
  [ "$status" -eq 0 ]
  [[ $output == *"a project's"* ]]
  [[ $output == *'"session_id": "s1"'* ]]
}
