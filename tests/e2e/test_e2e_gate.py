"""The gate's text stands beside the first tool result, once."""

from __future__ import annotations

from stub_model import Turn, bash

GATE = "STOP. Read your context files before proceeding: "
FILES = ".context/CONSTITUTION.md, .context/TASKS.md, .context/DECISIONS.md"


def test_the_gate_is_beside_the_first_tool_result_and_not_beside_the_second(kit):
    markers = []
    kit.stub.script(
        bash("echo first-result"), bash("echo second-result", act=lambda _: markers.extend(kit.markers())), "done"
    )
    session = kit.run("work")
    prompt, first, second = kit.stub.of("main")
    assert GATE not in prompt.text()
    assert "first-result" in first.news() and GATE + FILES in first.news()
    assert "Context Loaded" not in first.news()  # nobody is there to read the line
    assert "second-result" in second.news() and GATE not in second.news()
    assert [r.count(GATE) for r in kit.stub.of("main")] == [0, 1, 1]
    assert markers == ["ctx-loaded-" + session.id]
    assert kit.left_behind() == []


def test_once_the_gate_has_spoken_no_interpreter_is_started_before_a_tool(kit):
    kit.stub.script(*[bash("echo %d" % number) for number in range(6)], "done")
    kit.run("work")
    assert kit.runs("monitor") == 6 and kit.runs("gate") <= 2


def test_files_that_say_nothing_are_not_named(kit):
    kit.write(".context/TASKS.md", "# Tasks\n\n<!-- one line for each -->\n- \n- TBD\n")
    kit.stub.script(bash("echo a"), "done")
    kit.run("work")
    assert GATE + ".context/CONSTITUTION.md, .context/DECISIONS.md" in kit.stub.of("main")[1].news()


def test_parallel_first_calls_get_one_gate(kit):
    reads = [("Read", {"file_path": str(kit.path("README.md"))})] * 2 + [("Bash", {"command": "cat README.md"})] * 2
    kit.stub.script(Turn("all at once", reads), "done")
    kit.run("work")
    assert kit.stub.of("main")[1].count(GATE) == 1


def test_a_gate_in_content_mode_carries_the_files_themselves(kit):
    kit.write(".contextrc", "gate:\n  mode: content\n")
    kit.stub.script(bash("echo hi"), "done")
    kit.run("work")
    assert (
        "Never push to main." in kit.stub.of("main")[1].news() and "finish the parser" in kit.stub.of("main")[1].news()
    )


def test_a_project_without_context_files_hears_nothing_and_gets_no_folder(kit):
    for path in kit.path(".context").iterdir():
        path.unlink()
    kit.path(".context").rmdir()
    kit.stub.script(bash("echo hi", tokens=190000 // 2), "done")
    kit.run("work")
    assert kit.emitted() == [] and not kit.path(".context").exists() and kit.left_behind() == []


def test_the_gate_names_absolute_paths_after_the_agent_changed_its_folder(kit):
    kit.path("sub").mkdir()
    kit.stub.script(bash("cd sub && pwd"), "moved", bash("echo hi"), "done")
    kit.run("move", "/compact", "work")
    assert GATE + str(kit.path(".context/CONSTITUTION.md")) in kit.stub.of("main")[-1].text()
