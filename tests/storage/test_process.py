"""The process that records a run, and whether it still runs."""

import dataclasses
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from storage import process as module
from storage.process import UNKNOWN, Process, start_mark


def ended_pid() -> int:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    return ended.pid


def test_this_process_is_not_gone() -> None:
    me = Process.current()
    assert me.pid == os.getpid()
    assert me.start not in (None, UNKNOWN)
    assert not me.is_gone()
    assert Process.current() == me


def test_a_process_is_gone_if_it_ended_or_its_id_has_another_start() -> None:
    me = Process.current()
    assert dataclasses.replace(me, pid=ended_pid()).is_gone()
    assert dataclasses.replace(me, start="another boot 123").is_gone(), "the pid was reused"
    assert not dataclasses.replace(me, host="elsewhere", start="x").is_gone(), "another host"


def test_a_process_of_unknown_start_is_not_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not dataclasses.replace(Process.current(), start=UNKNOWN).is_gone()
    monkeypatch.setattr(module, "start_mark", lambda pid: UNKNOWN)
    assert not dataclasses.replace(Process.current(), start="x").is_gone()


def test_two_processes_have_different_marks() -> None:
    other = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    with other:
        mark = start_mark(other.pid)
        assert mark is not None
        assert mark != start_mark(os.getpid())
    assert start_mark(other.pid) is None


@pytest.mark.skipif(sys.platform == "win32", reason="no ps")
@pytest.mark.skipif(shutil.which("ps") is None, reason="no ps")
def test_without_proc_the_start_is_read_from_ps(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setattr(module, "PROC", tmp_path)
    me = Process.current()
    assert me.start
    assert not me.is_gone()
    assert dataclasses.replace(me, pid=ended_pid()).is_gone()
    assert dataclasses.replace(me, start="Thu Jan 1 00:00:00 1970").is_gone()


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="no /proc")
def test_a_program_name_may_have_brackets_and_blanks(monkeypatch, tmp_path):
    numbers = " ".join(str(number) for number in range(4, 53))
    for pid, state in ((7, "S"), (8, "Z")):
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "stat").write_text(f"{pid} (a) b (c)) {state} {numbers}\n")
    (tmp_path / "self").mkdir()
    (tmp_path / "self" / "stat").touch()
    monkeypatch.setattr(module, "PROC", tmp_path)
    assert start_mark(7) == " 22"
    assert start_mark(8) is None, "a zombie runs no code"
