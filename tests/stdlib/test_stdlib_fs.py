"""The actions of mail.stdlib.fs: what they do below their root, and that nothing leads out of it."""

import json
import os
import shutil
import stat
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from support.plugins.tiers import sized

from mail.errors import AgentFault, ConfigurationError, ToolCallFault
from mail.stdlib.fs import actions, create_directory, delete_file, files, read_directory
from mail.stdlib.fs.actions import find_files, list_directory, read_file, search_files, write_file
from mail.stdlib.fs.files import MAX_DEPTH, matches, parts_of
from mail.utils.outcomes import ActionFailed

SECRET = "the secret outside"


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The root, beside which there is a secret."""
    (tmp_path / "secret.txt").write_text(SECRET)
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret.txt").write_text(SECRET)
    folder = tmp_path / "root"
    folder.mkdir()
    monkeypatch.setenv("MAIL_STDLIB_FS_ROOT", str(folder))
    return folder


def outside(root: Path) -> dict[str, str]:
    """Everything beside the root."""
    above = root.parent
    return {
        str(path.relative_to(above)): path.read_text() if path.is_file() else ""
        for path in above.rglob("*")
        if root != path and root not in path.parents
    }


class TestReading:
    async def test_a_file(self, root: Path, run: Any) -> None:
        (root / "a").mkdir()
        (root / "a" / "b.txt").write_text("Grüße\n")
        for path in ("a/b.txt", "./a//b.txt", "a/./b.txt"):
            assert await run(read_file, path=path) == {"path": "a/b.txt", "size": 8, "text": "Grüße\n"}

    async def test_piece_by_piece(self, root: Path, run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(actions, "MAX_READ_BYTES", 5)
        text = "äöü€𝄞 and more"
        (root / "a").write_text(text)
        read, offset = "", 0
        while offset is not None:
            piece = await run(read_file, path="a", offset=offset)
            assert piece["text"]
            read, offset = read + piece["text"], piece.get("next_offset")
        assert read == text

    async def test_beyond_the_end(self, root: Path, run: Any) -> None:
        (root / "a").write_text("abc")
        assert await run(read_file, path="a", offset=2**62) == {"path": "a", "size": 3, "text": ""}

    async def test_what_is_no_text(self, root: Path, run: Any) -> None:
        (root / "a").write_bytes(b"a\0b")
        assert (await run(read_file, path="a"))["not_shown"] == "the file is not text"
        (root / "b").write_bytes(b"a\xffb\xe2")
        assert (await run(read_file, path="b"))["text"] == "a\ufffdb\ufffd"

    async def test_what_is_no_file(self, root: Path, told: Any) -> None:
        (root / "folder").mkdir()
        os.mkfifo(root / "pipe")
        (root / "file").write_text("")
        assert "is a directory" in await told(ToolCallFault, read_file, path="folder")
        assert "pipe or socket" in await told(ToolCallFault, read_file, path="pipe")
        assert "root directory" in await told(ToolCallFault, read_file, path=".")
        assert "there is no 'gone'" in await told(ToolCallFault, read_file, path="gone")
        assert "there is no 'gone'" in await told(ToolCallFault, read_file, path="gone/a")
        assert "'file' is not a directory" in await told(ToolCallFault, read_file, path="file/a")


class TestWriting:
    async def test_a_file(self, root: Path, run: Any) -> None:
        assert await run(write_file, path="a/b/c.txt", content="Grüße") == {"path": "a/b/c.txt", "size": 7}
        assert (root / "a/b/c.txt").read_text() == "Grüße"
        await run(write_file, path="a/b/c.txt", content="")
        assert (root / "a/b/c.txt").read_text() == ""
        assert os.listdir(root / "a/b") == ["c.txt"]

    async def test_only_a_new_one(self, root: Path, run: Any, told: Any) -> None:
        await run(write_file, path="a", content="old", overwrite=False)
        refused = await told(ToolCallFault, write_file, path="a", content="new", overwrite=False)
        assert "already exists" in refused
        assert (root / "a").read_text() == "old"
        assert os.listdir(root) == ["a"]

    async def test_one_of_many_makes_a_new_one(self, root: Path) -> None:
        """Who comes second is refused, however close."""
        outcomes: list[str] = []
        gate = threading.Barrier(8)

        def write(content: str) -> None:
            gate.wait()
            try:
                actions.write_whole(("a",), content.encode(), overwrite=False)
                outcomes.append(content)
            except ToolCallFault:
                pass

        threads = [threading.Thread(target=write, args=(str(n),)) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert outcomes == [(root / "a").read_text()]

    async def test_readers_see_the_old_or_the_new(self, root: Path, run: Any) -> None:
        await run(write_file, path="a", content="a" * 100_000)
        with (root / "a").open() as opened:
            await run(write_file, path="a", content="b" * 100_000)
            assert opened.read() == "a" * 100_000

    async def test_permissions_are_kept(self, root: Path, run: Any) -> None:
        (root / "run.sh").write_text("")
        (root / "run.sh").chmod(0o4750)
        await run(write_file, path="run.sh", content="echo")
        assert stat.S_IMODE((root / "run.sh").stat().st_mode) == 0o750

    async def test_what_is_no_file(self, root: Path, told: Any) -> None:
        (root / "folder").mkdir()
        (root / "file").write_text("")
        os.mkfifo(root / "pipe")
        for path in ("folder", "pipe", ".", "folder/", "file/a"):
            await told(ToolCallFault, write_file, path=path, content="x")
        assert sorted(os.listdir(root)) == ["file", "folder", "pipe"]

    async def test_too_much(self, root: Path, told: Any, run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(actions, "MAX_WRITE_BYTES", 4)
        await run(write_file, path="a", content="ää")
        assert "5 bytes" in await told(ToolCallFault, write_file, path="a", content="ääx")
        assert "UTF-8" in await told(ToolCallFault, write_file, path="a", content="\ud800")

    async def test_a_name_that_is_too_long(self, root: Path, told: Any) -> None:
        assert "too long" in await told(ActionFailed, write_file, path="a" * 300, content="")
        assert os.listdir(root) == []


class TestListing:
    async def test_a_directory(self, root: Path, run: Any) -> None:
        (root / "b").mkdir()
        (root / "a.txt").write_text("abc")
        (root / "link").symlink_to("/etc/passwd")
        os.mkfifo(root / "pipe")
        assert await run(list_directory) == {
            "path": ".",
            "entries": [
                {"name": "a.txt", "kind": "file", "size": 3},
                {"name": "b", "kind": "directory"},
                {"name": "link", "kind": "symlink"},
                {"name": "pipe", "kind": "special"},
            ],
        }
        assert await run(list_directory, path="b") == {"path": "b", "entries": []}

    async def test_a_long_one(self, root: Path, run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(actions, "MAX_ENTRIES", 2)
        for name in "cab":
            (root / name).touch()
        listed = await run(list_directory)
        assert [entry["name"] for entry in listed["entries"]] == ["a", "b"]
        assert listed["left_out"] == 1

    async def test_names_that_are_no_text(self, root: Path, run: Any) -> None:
        (Path(os.fsdecode(os.fsencode(root) + b"/\xff"))).touch()
        assert [entry["name"] for entry in (await run(list_directory))["entries"]] == ["?"]

    async def test_a_file(self, root: Path, told: Any) -> None:
        (root / "a").touch()
        assert "not a directory" in await told(ToolCallFault, list_directory, path="a")


class TestDirectoriesAndDeleting:
    async def test_a_directory_is_made_with_those_on_the_way(self, root: Path, run: Any) -> None:
        for _ in range(2):
            assert await run(create_directory, path="a//b/c") == {"path": "a/b/c"}
        assert (root / "a" / "b" / "c").is_dir()
        assert await run(create_directory, path=".") == {"path": "."}
        assert await run(read_directory, path="a") == await run(list_directory, path="a")

    async def test_a_file_is_deleted(self, root: Path, run: Any, told: Any) -> None:
        (root / "a.txt").write_text("x")
        assert await run(delete_file, path="./a.txt") == {"path": "a.txt"}
        assert not (root / "a.txt").exists()
        assert "there is no 'a.txt'" in await told(ToolCallFault, delete_file, path="a.txt")

    async def test_what_is_refused(self, root: Path, told: Any) -> None:
        (root / "folder").mkdir()
        (root / "link").symlink_to(root.parent / "secret.txt")
        (root / "way").symlink_to(root.parent / "outside")
        before = outside(root)
        for path in (
            "folder",
            "link",
            "way/secret.txt",
            "../secret.txt",
            str(root.parent / "secret.txt"),
            ".",
        ):
            await told(ToolCallFault, delete_file, path=path)
        for path in ("way/new", "../new", "/new"):
            await told(ToolCallFault, create_directory, path=path)
        assert (root / "link").is_symlink()
        assert outside(root) == before


class TestFinding:
    @pytest.fixture(autouse=True)
    def files(self, root: Path) -> None:
        for path in ("a.txt", "b.md", "x/a.txt", "x/y/c.txt", "x/y/z/a.md"):
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(f"first\nTea in {path}\nlast")
        (root / "x" / "loop").symlink_to("..")
        (root / "x" / "out.txt").symlink_to("../../secret.txt")

    @pytest.mark.parametrize(
        ("pattern", "found"),
        [
            ("*.txt", ["a.txt", "x/a.txt", "x/y/c.txt"]),
            ("**/*.txt", ["a.txt", "x/a.txt", "x/y/c.txt"]),
            ("x/*.txt", ["x/a.txt"]),
            ("x/**/*.md", ["x/y/z/a.md"]),
            ("x/**", ["x/a.txt", "x/y/c.txt", "x/y/z/a.md"]),
            ("./[ab].*", ["a.txt", "b.md"]),
            ("A.TXT", []),
        ],
    )
    async def test_patterns(self, run: Any, pattern: str, found: list[str]) -> None:
        assert await run(find_files, pattern=pattern) == {"paths": found, "is_partial": False}

    async def test_below_a_directory(self, run: Any) -> None:
        assert (await run(find_files, path="x", pattern="y/*.txt"))["paths"] == ["x/y/c.txt"]

    async def test_text(self, run: Any) -> None:
        found = await run(search_files, text="Tea in x", pattern="*.txt")
        assert found == {
            "matches": [
                {"path": "x/a.txt", "line": 2, "text": "Tea in x/a.txt"},
                {"path": "x/y/c.txt", "line": 2, "text": "Tea in x/y/c.txt"},
            ],
            "is_partial": False,
        }
        assert (await run(search_files, text="tea"))["matches"] == []
        assert len((await run(search_files, text="tEA", ignore_case=True))["matches"]) == 5
        assert (await run(search_files, text=SECRET))["matches"] == []

    async def test_limits(self, run: Any, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(actions, "MAX_ENTRIES", 5)
        assert not (await run(find_files, pattern="*"))["is_partial"]
        monkeypatch.setattr(actions, "MAX_ENTRIES", 4)
        assert (await run(find_files, pattern="*"))["is_partial"]
        monkeypatch.setattr(files, "MAX_MATCHES", 1)
        found = await run(search_files, text="Tea")
        assert (len(found["matches"]), found["is_partial"]) == (1, True)
        monkeypatch.setattr(files, "MAX_FILE_BYTES", 3)
        assert await run(search_files, text="Tea") == {"matches": [], "is_partial": True}
        monkeypatch.setattr(files, "MAX_VISITED", 2)
        assert await run(find_files, pattern="*") == {"paths": ["a.txt", "b.md"], "is_partial": True}

    async def test_long_lines_and_no_text(self, run: Any, root: Path) -> None:
        (root / "long.txt").write_text("Tea" * 1000)
        (root / "binary.txt").write_bytes(b"Tea\0")
        found = (await run(search_files, text="Tea", pattern="[lb]*.txt"))["matches"]
        assert [match["path"] for match in found] == ["long.txt"]
        assert len(found[0]["text"]) < 400

    async def test_deep_trees(self, root: Path, run: Any, told: Any) -> None:
        deep = "/".join("d" * (MAX_DEPTH - 1))
        await run(write_file, path=f"{deep}/e", content="")
        assert "segments" in await told(ToolCallFault, write_file, path=f"{deep}/d/e", content="")
        assert await run(find_files, pattern="e") == {"paths": [f"{deep}/e"], "is_partial": False}
        (root / deep / "d").mkdir()
        assert (await run(find_files, pattern="e"))["is_partial"]

    def test_a_pattern_takes_no_time(self) -> None:
        assert not matches(("a",) * 30, parts_of("/".join(["**/a*a*a*a*a"] * 15 + ["b"]))[:32])


class TestNothingLeadsOut:
    @pytest.mark.parametrize(
        "path",
        [
            "../secret.txt",
            "a/../../secret.txt",
            "..",
            "a/..",
            "/etc/passwd",
            "//etc/passwd",
            "a\0b",
            "\udc80",
            "a" * 1025,
        ],
    )
    async def test_paths(self, root: Path, told: Any, path: str) -> None:
        before = outside(root)
        (root / "a").mkdir()
        await told(ToolCallFault, read_file, path=path)
        await told(ToolCallFault, write_file, path=path, content="x")
        await told(ToolCallFault, list_directory, path=path)
        await told(ToolCallFault, find_files, path=path, pattern="*")
        await told(ToolCallFault, search_files, path=path, text="x")
        assert outside(root) == before
        assert os.listdir(root) == ["a"]

    async def test_links(self, root: Path, told: Any) -> None:
        before = outside(root)
        (root / "file").symlink_to("../secret.txt")
        (root / "absolute").symlink_to(root.parent / "secret.txt")
        (root / "folder").symlink_to("../outside")
        (root / "dangling").symlink_to("../new.txt")
        for path in ("file", "absolute", "folder/secret.txt", "dangling"):
            assert "symbolic link" in await told(ToolCallFault, read_file, path=path)
        for path in ("file", "absolute", "dangling", "folder", "folder/new.txt", "folder/new/new.txt"):
            assert "symbolic link" in await told(ToolCallFault, write_file, path=path, content="x")
        assert "symbolic link" in await told(ToolCallFault, list_directory, path="folder")
        assert outside(root) == before

    async def test_devices(self, root: Path, told: Any) -> None:
        try:
            os.mknod(root / "zero", stat.S_IFCHR | 0o666, os.makedev(1, 5))
        except PermissionError:
            pytest.skip("only root can make devices")
        assert "device" in await told(ToolCallFault, read_file, path="zero")
        assert "device" in await told(ToolCallFault, write_file, path="zero", content="")

    @settings(
        max_examples=sized(fast=25, full=25, soak=10_000),
        suppress_health_check=[HealthCheck.function_scoped_fixture],
    )
    @given(
        path=st.text(max_size=60)
        | st.lists(
            st.sampled_from(
                ["..", ".", "", "a", "folder", "out", "file", "\0", "*", "~", "secret.txt", "\\..\\"]
            ),
            max_size=8,
        ).map("/".join)
    )
    @example(path="folder/out/secret.txt")
    async def test_any_path(self, root: Path, path: str) -> None:
        (root / "folder").mkdir(exist_ok=True)
        for link, to in (("folder/out", "../../outside"), ("file", "../secret.txt")):
            if not (root / link).is_symlink():
                (root / link).symlink_to(to)
        before = outside(root)
        calls = (
            (write_file, {"path": path, "content": "written"}),
            (read_file, {"path": path}),
            (list_directory, {"path": path}),
            (search_files, {"path": path, "text": "secret"}),
            (find_files, {"path": ".", "pattern": path or "*"}),
        )
        for action, arguments in calls:
            try:
                result = await action(arguments)
            except AgentFault as error:
                result = str(error)
            assert SECRET not in result
            assert str(root.parent) not in result
        assert outside(root) == before

    @pytest.mark.parametrize("path", ["place", "place/secret.txt"])
    async def test_whoever_changes_the_tree_meanwhile(self, root: Path, path: str) -> None:
        """The place is now a file or directory, now a link out of the root; the secret is neither read nor changed."""
        place, parked = root / "place", root / "parked"
        goal = "../outside" if "/" in path else "../outside/secret.txt"
        links = 0
        is_over = threading.Event()

        def swap() -> None:
            nonlocal links
            while not is_over.is_set():
                shutil.rmtree(parked) if parked.is_dir() else parked.unlink(missing_ok=True)
                with suppress(OSError):  # a writer may come between
                    place.rename(parked)
                with suppress(OSError):
                    place.symlink_to(goal)
                    links += 1
                time.sleep(0.0001)
                with suppress(OSError):
                    place.unlink()
                with suppress(OSError):
                    parked.rename(place)

        before = outside(root)
        await write_file({"path": path, "content": "harmless"})
        thread = threading.Thread(target=swap)
        thread.start()
        seen = set()
        try:
            for _ in range(400):
                with suppress(AgentFault):
                    await write_file({"path": path, "content": "harmless"})
                with suppress(AgentFault):
                    seen.add(json.loads(await read_file({"path": path}))["text"])
        finally:
            is_over.set()
            thread.join()
        assert links > 10
        assert seen <= {"harmless"}  # on a busy machine, every read may meet the link, and is refused
        assert outside(root) == before


class TestTheRoot:
    async def test_unset(self, told: Any) -> None:
        assert "set MAIL_STDLIB_FS_ROOT" in await told(ConfigurationError, read_file, path="a")

    async def test_not_there(self, root: Path, told: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("MAIL_STDLIB_FS_ROOT", str(root / "gone"))
        told_of = await told(ConfigurationError, list_directory)
        assert "MAIL_STDLIB_FS_ROOT" in told_of
        assert str(root) not in told_of

    async def test_may_be_a_link(self, root: Path, run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        (root.parent / "link").symlink_to(root)
        monkeypatch.setenv("MAIL_STDLIB_FS_ROOT", str(root.parent / "link"))
        await run(write_file, path="a", content="x")
        assert (root / "a").read_text() == "x"

    async def test_nothing_stays_open(self, root: Path, run: Any, told: Any) -> None:
        def opened() -> set[str]:
            """Return the open files below the root; other parts of this process may open and close some meanwhile."""
            links = Path("/proc/self/fd").iterdir()
            found = set()
            for link in links:
                with suppress(OSError):  # the one that lists them is gone
                    found.add(os.readlink(link))
            return {name for name in found if name.startswith(str(root))}

        before = opened()
        for _ in range(20):
            await run(write_file, path="a/b", content="x")
            await run(read_file, path="a/b")
            await run(find_files, pattern="*")
            await told(ToolCallFault, read_file, path="a/c")
            await told(ToolCallFault, read_file, path="c/c")
            await told(ToolCallFault, read_file, path="a")
        assert opened() == before
