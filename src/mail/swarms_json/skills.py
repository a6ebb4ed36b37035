"""Reading skills from their folders, when a swarm is built."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

from mail.core.task.skills import MAIN_FILE, Skill
from mail.errors import ConfigurationError

MOST_BYTES = 2 * 1024 * 1024
"""Bytes of the text files of a skill, which stay in memory."""

MOST_DESCRIPTION = 1024
"""Characters of a description, by the specification of Agent Skills."""

_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_KEY = re.compile(r"([A-Za-z][\w-]*):(?:\s+(.*))?")
_BLOCK = re.compile(r"[|>][+-]?\d?")


def load_skills(where: str, given: Iterable[str | Skill], *, is_trusted: bool) -> list[Skill]:
    """Return the skills in these folders, each of which is a skill or has some; those that were read stay.

    `where` is whose they are, for messages; `is_trusted` says whether the operator has named the folders. Raises
    ConfigurationError that says what to change.
    """
    found: list[Skill] = []
    for each in given:
        if not is_trusted and not isinstance(each, Skill):
            raise ConfigurationError(
                f"{where}: skills are files of the server, and can be set only in its own swarms.json, not in a loaded "
                "swarm"
            )
        found += [each] if isinstance(each, Skill) else _load_folder(where, each)
    names = [skill.name for skill in found]
    if double := sorted({name for name in names if names.count(name) > 1}):
        raise ConfigurationError(
            f"{where}: skills must have different names, but there are two {double[0]!r}"
        )
    return found


def _load_folder(where: str, given: str) -> list[Skill]:
    folder = Path(given)
    if not folder.is_dir():
        raise ConfigurationError(f"{where}: skills: there is no folder {str(folder.absolute())!r}")
    if (folder / MAIN_FILE).is_file():
        return [_load(f"{where}: skill", folder)]
    inner = sorted(path.parent for path in folder.glob(f"*/{MAIN_FILE}"))
    if not inner:
        raise ConfigurationError(
            f"{where}: skills: neither {given!r} nor a folder in it has a file {MAIN_FILE}"
        )
    return [_load(f"{where}: skill", path) for path in inner]


def _load(where: str, folder: Path) -> Skill:
    where = f"{where} {str(folder)!r}"
    root, texts, size, digest = folder.resolve(), dict[str, str](), 0, sha256()
    for path in sorted(each for each in folder.rglob("*") if each.is_file()):
        name = path.relative_to(folder).as_posix()
        if any(part.startswith(".") or part == "__pycache__" for part in name.split("/")):
            continue
        if not path.resolve().is_relative_to(root):
            raise ConfigurationError(f"{where}: {name!r} is a link out of the folder; copy the file into it")
        size += path.stat().st_size
        if size > MOST_BYTES:
            raise ConfigurationError(
                f"{where}: its files have more than {MOST_BYTES} bytes; move data that is not instructions elsewhere"
            )
        data = path.read_bytes()
        digest.update(b"%s\0%d\0%s" % (name.encode(errors="surrogateescape"), len(data), data))
        try:
            texts[name] = data.decode("utf-8-sig")
        except UnicodeDecodeError:  # an image, for example, which no agent reads
            continue
    if MAIN_FILE not in texts:
        raise ConfigurationError(f"{where}: {MAIN_FILE} must be text in UTF-8")
    front, texts[MAIN_FILE] = _split(where, texts[MAIN_FILE])
    skill = Skill(front.get("name", ""), front.get("description", ""), str(folder), digest.hexdigest(), texts)
    return _checked(where, folder.name or root.name, skill)


def _checked(where: str, folder: str, skill: Skill) -> Skill:
    if not _NAME.fullmatch(skill.name) or len(skill.name) > 64:
        raise ConfigurationError(
            f"{where}: name in {MAIN_FILE} must be 1 to 64 lowercase letters, digits and single hyphens, not "
            f"{skill.name!r}"
        )
    if skill.name != folder:
        raise ConfigurationError(
            f"{where}: name in {MAIN_FILE} is {skill.name!r}; it must be that of its folder, {folder!r}"
        )
    if not 0 < len(skill.description) <= MOST_DESCRIPTION:
        raise ConfigurationError(
            f"{where}: description in {MAIN_FILE} must have 1 to {MOST_DESCRIPTION} characters: what the skill is for, "
            "and when to use it"
        )
    return replace(skill, description=" ".join(skill.description.split()))


def _split(where: str, text: str) -> tuple[dict[str, str], str]:
    """Return the top-level texts of the front matter, and what comes after it.

    This reads the YAML that skills use for their names and descriptions: plain, quoted and block texts. Other keys may
    have any form.
    """
    lines = text.splitlines()
    end = next((n for n, line in enumerate(lines[1:], 1) if line.rstrip() == "---"), None)
    if not lines or lines[0].rstrip() != "---" or end is None:
        raise ConfigurationError(
            f"{where}: {MAIN_FILE} must begin with its front matter: a line ---, name: …, description: …, a line ---"
        )
    front: dict[str, list[str]] = {}
    key = ""
    for line in lines[1:end]:
        if found := _KEY.fullmatch(line.rstrip()):
            key = found[1]
            front[key] = [found[2] or ""]
        elif key and (not line.strip() or line[0].isspace()):
            front[key].append(line.strip())
    return {key: _read_text(given) for key, given in front.items()}, "\n".join(lines[end + 1 :]).strip()


def _read_text(lines: Sequence[str]) -> str:
    first = lines[0].strip()
    text = " ".join(lines[1:] if _BLOCK.fullmatch(first) else lines).strip()
    if text[:1] == '"' and text[-1:] == '"' and len(text) > 1:
        return re.sub(r"\\(.)", r"\1", text[1:-1])
    if text[:1] == "'" and text[-1:] == "'" and len(text) > 1:
        return text[1:-1].replace("''", "'")
    return re.sub(r"\s#.*$", "", text) if not _BLOCK.fullmatch(first) else text
