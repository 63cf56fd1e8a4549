"""A file is written whole or left as it was, and stays what it is."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from andrea_bench.errors import BadInput
from andrea_bench.files import make_folder, write_whole


def test_an_interrupt_leaves_no_stray_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "facts.json").write_bytes(b"old")

    def interrupted(handle: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("andrea_bench.files.os.fsync", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_whole(tmp_path / "facts.json", b"new")
    assert [(file.name, file.read_bytes()) for file in tmp_path.iterdir()] == [("facts.json", b"old")]


def test_permissions_are_the_old_files_or_those_of_a_new_one(tmp_path: Path) -> None:
    (tmp_path / "old").touch()
    (tmp_path / "old").chmod(0o640)
    umask = os.umask(0o077)
    try:
        write_whole(tmp_path / "old", b"")
        write_whole(tmp_path / "new", b"")
    finally:
        os.umask(umask)
    assert [(tmp_path / name).stat().st_mode & 0o777 for name in ("old", "new")] == [0o640, 0o600]


def test_links_and_pipes_stay_what_they_are(tmp_path: Path) -> None:
    (tmp_path / "real").write_text("old")
    (tmp_path / "link").symlink_to("real")
    write_whole(tmp_path / "link", b"new")
    assert (tmp_path / "link").is_symlink() and (tmp_path / "real").read_text() == "new"
    os.mkfifo(tmp_path / "pipe")
    reader = subprocess.Popen(["cat", tmp_path / "pipe"], stdout=subprocess.PIPE)
    write_whole(tmp_path / "pipe", b"through")
    assert reader.communicate(timeout=60)[0] == b"through"
    assert (tmp_path / "pipe").is_fifo()
    with pytest.raises(BadInput, match="name a file"):
        write_whole(Path("-"), b"")
    with pytest.raises(BadInput, match="name a folder"):
        make_folder(Path("-"))


@pytest.mark.parametrize("redirected", [">>", "|"])
def test_what_goes_to_stdout_follows_what_is_there(redirected: str, tmp_path: Path) -> None:
    code = "from pathlib import Path; from andrea_bench.files import check_file, write_whole as w; " \
           "print('first'); check_file(Path('/dev/stdout')); w(Path('/dev/stdout'), b'second\\n')"  # fmt: skip
    out = tmp_path / "out"
    out.write_text("before\n")
    end = f">> {out}" if redirected == ">>" else f"| cat >> {out}"
    subprocess.run(f'{sys.executable} -c "{code}" {end}', shell=True, check=True)
    assert out.read_text() == "before\nfirst\nsecond\n"
