"""What was compiled is kept for the next start only while every file of it is what it was."""

from pathlib import Path

from core.models.native.layers import source_hash_of


def test_a_change_in_any_file_is_another_stamp(tmp_path: Path) -> None:
    for name in ("parts", "kernel"):
        (tmp_path / f"{name}.py").write_text(f"x = '{name}'")
    before = source_hash_of(tmp_path)
    assert source_hash_of(tmp_path) == before
    (tmp_path / "parts.py").write_text("x = 'other'")
    assert source_hash_of(tmp_path) != before
