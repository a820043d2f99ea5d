"""Messages: constants and every sentence that is shown to somebody."""
from __future__ import annotations

import string


def texts(kit):
    for name, value in sorted(vars(kit).items()):
        if name.isupper() and not name.startswith("_") and not name.endswith(("LOADER", "START", "GUARD", "CACHE", "PATH")):
            for item in value.values() if isinstance(value, dict) else [value]:
                if isinstance(item, str) and "{" in item:
                    yield name, item


def test_every_template_has_only_named_fields(kit):
    """What the tests of the other sections fill in; `{}` or a stray brace would raise in the middle of a hook."""
    for name, text in texts(kit):
        fields = [field for _, field, _, _ in string.Formatter().parse(text) if field is not None]
        assert all(field.isidentifier() for field in fields), name


def test_our_own_sentences_survive_our_own_cleaning(kit):
    for name, text in texts(kit):
        assert kit.clean_text(text) == text, name


def test_one_reply_stays_below_the_clients_limit(kit):
    assert kit.REPLY_LIMIT < 10_000
    assert max(kit.GATE_CONTENT_LIMIT, kit.STARTUP_LIMIT) < kit.REPLY_LIMIT


def test_the_ignore_list_names_every_runtime_file_and_no_context_file(kit):
    names = [line for line in kit.GITIGNORE_TEXT.split("\n") if line and not line.startswith("#")]
    assert {"signals/", "state/", "monitor-state.json", "metrics.json", "events.jsonl", "events.jsonl.1"} <= set(names)
    assert not set(kit.CONTEXT_FILES) & set(names) and not any(name.endswith(".md") or "*" in name for name in names)


def test_alert_levels_clear_below_where_they_fire(kit):
    assert all(clear < fires for fires, clear, _ in kit.HEALTH_LEVELS)
    assert {fires for fires, _, _ in kit.HEALTH_LEVELS} == set(kit.HEALTH_ACTIONS)
