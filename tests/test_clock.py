"""Clock: ISO 8601 and epoch seconds, the deadline."""
from __future__ import annotations

import random
import subprocess
from datetime import datetime, timedelta, timezone

import pytest

import helper

EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
NOON = 1770115500  # 2026-02-03T10:45:00Z


@pytest.mark.parametrize("text", [
    "2026-02-03T10:45:00Z", "2026-02-03t10:45:00z", "2026-02-03 10:45:00", "2026-02-03T10:45", " 2026-02-03T10:45Z\n",
    "2026-02-03T12:45:00+02:00", "2026-02-03T12:45:00+0200", "2026-02-03T12:45:00+02", "2026-02-03T05:15:00-05:30",
    "2026-02-03T10:45:00.000000Z", "2026-02-03T10:45:00,000+00:00", "2026-02-04T00:44:00+13:59",
])
def test_every_common_form_of_one_time_is_understood(kit, text):
    assert kit.parse_iso(text) == NOON


@pytest.mark.parametrize("text", [
    "", "T", "now", "2026", "2026-02", "2026-2-3", "20260203T104500Z", "2026-02-30", "2026-13-01", "2026-00-10",
    "2025-02-29", "2026-02-03T", "2026-02-03T10", "2026-02-03T24:00:00Z", "2026-02-03T10:60Z", "2026-02-03T10:45:61Z",
    "2026-02-03T10:45:00+1", "2026-02-03T10:45:00+24:00", "2026-02-03T10:45:00+02:60", "2026-02-03T10:45:00.Z", "2026-02-03T10:45:00.123456789Z or so",
    "2026-02-03T10:45:00+02:00Z", "2026-02-03T10:45:00 and more", "2026-02-03X10:45:00Z", "２０２６-02-03T10:45:00Z",
    "<ISO 8601 time>", "YYYY-MM-DDTHH:MM:SSZ", "2026-02-03T1:45:00Z", "-026-02-03", "2026-02-03T10:45:00Z\0",
    None, 5, 5.0, True, b"2026-02-03", [], {},
])
def test_what_is_not_a_time_is_none(kit, text):
    assert kit.parse_iso(text) is None


def test_a_date_alone_is_its_midnight_in_utc(kit):
    assert kit.parse_iso("2024-02-29") == 1709164800


def test_a_fraction_may_have_any_length(kit):
    assert kit.parse_iso("2026-02-03T10:45:00.25Z") == NOON + 0.25
    assert kit.parse_iso("2026-02-03T10:45:00.250000000000000Z") == NOON + 0.25


def test_a_leap_second_counts_as_the_next_second(kit):
    assert kit.parse_iso("2016-12-31T23:59:60Z") == kit.parse_iso("2017-01-01T00:00:00Z")


def test_times_are_written_with_z_and_milliseconds_on_demand(kit):
    assert kit.format_iso(NOON) == "2026-02-03T10:45:00Z"
    assert kit.format_iso(NOON + 0.999) == "2026-02-03T10:45:00Z"
    assert kit.format_iso(NOON + 0.25, fraction=True) == "2026-02-03T10:45:00.250Z"
    assert kit.format_iso(NOON + 0.9999, fraction=True) == "2026-02-03T10:45:01.000Z"


@pytest.mark.parametrize("seconds", [-1, -1e18, 1e18, 0])
def test_a_clock_far_off_still_gives_a_time_that_parses(kit, seconds):
    assert kit.parse_iso(kit.format_iso(seconds, fraction=True)) is not None


def test_parsing_agrees_with_datetime(kit, rounds):
    rng = random.Random(11)
    for _ in range(rounds(2000)):
        zone = timezone(timedelta(minutes=rng.randrange(-1439, 1440)))
        moment = datetime(rng.randrange(1, 10000), rng.randrange(1, 13), rng.randrange(1, 29), rng.randrange(24),
                          rng.randrange(60), rng.randrange(60), tzinfo=zone)
        sign = "+" if zone.utcoffset(None) >= timedelta(0) else "-"
        minutes = abs(zone.utcoffset(None)) // timedelta(minutes=1)
        text = moment.strftime("%m-%dT%H:%M:%S") + "%s%02d:%02d" % (sign, minutes // 60, minutes % 60)
        assert kit.parse_iso("%04d-%s" % (moment.year, text)) == (moment - EPOCH).total_seconds()


def test_what_was_written_reads_back_the_same(kit, rounds):
    rng = random.Random(12)
    for _ in range(rounds(2000)):
        whole = rng.randrange(0, 32503680000)  # Windows knows no year after 3000
        assert kit.parse_iso(kit.format_iso(whole)) == whole
        text = kit.format_iso(rng.uniform(0, 4e9), fraction=True)
        assert kit.format_iso(kit.parse_iso(text), fraction=True) == text


def test_parsing_never_raises(kit, rounds):
    rng = random.Random(13)
    for _ in range(rounds(3000)):
        letters = list("2026-02-03T10:45:00.5+02:00")
        for _ in range(rng.randrange(6)):
            letters[rng.randrange(len(letters))] = rng.choice("0123456789-+:.,TZ \ud800²٣é\0")
        found = kit.parse_iso("".join(letters))
        assert found is None or isinstance(found, (int, float))


# --- the alarm clock


DEADLINE = """
import sys, time
sys.path.insert(0, %r)
import ctx_hooks as kit
start = time.monotonic()
kit.add_time(9)  # without a deadline there is nothing to move
kit.set_deadline(start + %s)
%s
time.sleep(60)
"""


@pytest.mark.parametrize("later", ["", "kit.add_time(0.3)", "kit.set_deadline(start + 0.4)"])
def test_a_process_past_its_deadline_ends_in_silence(later):
    code = DEADLINE % (helper.REPO, "0.2", later)
    done = subprocess.run([helper.PYTHON, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=50)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_time_that_was_added_is_there():
    code = DEADLINE % (helper.REPO, "0.1", "kit.add_time(0.8); time.sleep(0.4); print('still here', flush=True)")
    done = subprocess.run([helper.PYTHON, "-c", code], stdout=subprocess.PIPE, timeout=50)
    assert (done.returncode, done.stdout.strip()) == (0, b"still here")


@pytest.mark.parametrize("text, yes", [("0", True), ("007", True), ("", False), ("1.5", False), ("-1", False), ("²", False),
                                       ("٣", False), ("1" * 11, True), ("1" * 12, False)])
def test_digits_are_ascii_and_of_sane_length(kit, text, yes):
    assert kit.is_digits(text) is yes
