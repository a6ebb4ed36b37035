"""The file in which the swarms that a program knows outlive it.

    {"local_swarm_name": …, "local_base_url": …, "endpoints": {"<name>": {"base_url": …, "auth_token_ref": …, …}}}

People may write it by hand; a name and a `base_url` will do. It never holds a token.
"""

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from mail.core.task.interswarm import PeerRecord
from mail.errors import BadRequest, ConfigurationError
from mail.net.secrets import reference_to, variable_for
from mail.net.urls import check_name, check_url


class _Entry(BaseModel):
    """An entry as it is written; what else stands there is ignored."""

    model_config = ConfigDict(extra="ignore")

    base_url: str
    version: str = ""
    swarm_description: str = ""
    entrypoint: str = ""
    keywords: tuple[str, ...] = ()
    public: bool = False
    metadata: dict[str, Any] = Field(default_factory=dict)
    auth_token_ref: str | None = None
    auth_token: str | None = None
    auth: Any = "bearer"
    caller_id: str = ""
    registered: str = ""

    def record(self, name: str) -> PeerRecord:
        return PeerRecord(
            name=check_name(name),
            base_url=check_url(self.base_url),
            version=self.version,
            description=self.swarm_description,
            entrypoint=self.entrypoint,
            keywords=self.keywords,
            public=self.public,
            metadata=self.metadata,
            auth_token=self.auth_token_ref or self.auth_token or reference_to(variable_for(name)),
            auth=self.auth,
            caller_id=self.caller_id,
            registered=self.registered,
        )


def read_file(path: Path) -> list[PeerRecord]:
    """The entries of the file; none where there is no file. Tokens may be written out in it, if people have done so.

    Raises ConfigurationError that names the entry and what is wrong with it, but no value: it may be secret.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return []
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path}: can't be read: {error}") from error
    try:
        document = json.loads(text) if text.strip() else {}
    except json.JSONDecodeError as error:
        raise ConfigurationError(f"{path}: is not valid JSON: {error}") from error
    entries = document.get("endpoints", {}) if isinstance(document, dict) else None
    if not isinstance(entries, dict):
        raise ConfigurationError(
            f'{path}: is no registry: it must be an object {{"endpoints": {{name: entry}}}}'
        )
    return [_read_entry(path, name, entry) for name, entry in entries.items()]


def write_file(path: Path, header: Mapping[str, Any], records: Iterable[PeerRecord]) -> None:
    """Write the entries, as a whole or not at all; nobody else may read the file. Raises ConfigurationError."""
    document = {**header, "endpoints": {record.name: _entry(record) for record in records}}
    text = json.dumps(document, indent=2, ensure_ascii=False) + "\n"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_name(f".{path.name}.{os.urandom(4).hex()}")
        try:
            draft.touch(mode=0o600, exist_ok=False)
            draft.write_text(text, encoding="utf-8")
            draft.replace(path)
        finally:
            draft.unlink(missing_ok=True)
    except OSError as error:
        raise ConfigurationError(f"{path}: can't be written: {error}") from error


def _entry(record: PeerRecord) -> dict[str, Any]:
    entry = _Entry(
        swarm_description=record.description,
        auth_token_ref=record.auth_token or None,
        **record.model_dump(exclude={"name", "description", "auth_token", "volatile", "expires"}),
    )
    return entry.model_dump(mode="json", exclude_none=True)


def _read_entry(path: Path, name: str, entry: object) -> PeerRecord:
    try:
        return _Entry.model_validate(entry).record(name)
    except BadRequest as error:
        raise ConfigurationError(f"{path}: {name!r}: {error.detail}") from error
    except ValidationError as error:
        first = error.errors(include_input=False, include_context=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        raise ConfigurationError(f"{path}: {name!r}: {place}: {first['msg']}") from error
