"""Write the files of this folder that follow from the code: two JSON Schemas and two OpenAPI documents.

    python spec/generate.py            write them
    python spec/generate.py --check    write nothing; exit with 1 when a file is not what the code says

The types in `mail.core` and the routes in `mail.http` are the source; nobody edits these files by hand.
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import yaml
from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, models_json_schema

from mail.core.protocol.interswarm import MAILInterswarmMessage
from mail.core.protocol.message import MAILMessage
from mail.http.app import create_app
from mail.http.mail2.app import build
from mail.http.routes import load_routers
from mail.http.service import Service

FOLDER = Path(__file__).resolve().parent


class PlainSchema(GenerateJsonSchema):
    """pydantic's JSON Schema (draft 2020-12) without a title per field, which only repeats its name."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        """Never."""
        return False


def schema_of(model: type[BaseModel], title: str) -> dict[str, Any]:
    """A schema document whose root is `model`; what it is made of can be referred to below `$defs`."""
    _, definitions = models_json_schema([(model, "validation")], schema_generator=PlainSchema)
    return {
        "$schema": PlainSchema.schema_dialect,
        "$id": f"urn:mail:1.3:{title.lower()}",
        "title": f"MAIL 1.3 {title}",
        "$ref": f"#/$defs/{model.__name__}",
        **definitions,
    }


def _json(document: dict[str, Any]) -> str:
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


class _Dumper(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):  # type: ignore[misc]
    """Texts of several lines stay as they are written."""


_Dumper.add_representer(
    str,
    lambda dumper, text: dumper.represent_scalar(
        "tag:yaml.org,2002:str", text, style="|" if "\n" in text else None
    ),
)


def core_schema() -> str:
    """The envelope, its payloads and their addresses."""
    return _json(schema_of(MAILMessage, "core"))


def interswarm_schema() -> str:
    """The wrapper for mail between swarms."""
    return _json(schema_of(MAILInterswarmMessage, "interswarm"))


def openapi() -> str:
    """The HTTP binding. The routes are documented without being served, so there is no runtime behind them."""
    nothing = cast(Any, None)
    service = Service(runtime=nothing, documents=nothing, authenticator=nothing, started=0.0)
    app = create_app(service, load_routers())
    return yaml.dump(app.openapi(), Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=110)


def openapi_of_mail2() -> str:
    """MAIL 2.0, as `mail server` serves it below `/v2`."""
    return yaml.dump(build(None).openapi(), Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=110)


FILES: dict[str, Callable[[], str]] = {
    "MAIL-core.schema.json": core_schema,
    "MAIL-interswarm.schema.json": interswarm_schema,
    "openapi.yaml": openapi,
    "openapi-mail-2.0.yaml": openapi_of_mail2,
}
"""What is generated: the file's name, and what makes its text."""


def drifted() -> list[str]:
    """The names of the files that are not what the code says."""
    return [
        name
        for name, make in FILES.items()
        if not (FOLDER / name).is_file() or (FOLDER / name).read_text(encoding="utf-8") != make()
    ]


def main(arguments: list[str]) -> int:
    """Write or check the files; returns the exit code."""
    if arguments not in ([], ["--check"]):
        print(__doc__)
        return 2
    stale = drifted()
    for name in stale:
        if arguments:
            print(f"✗ {name} is not what the code says; run: python spec/generate.py")
        else:
            (FOLDER / name).write_text(FILES[name](), encoding="utf-8")
            print(f"✓ wrote {name}")
    return 1 if stale and arguments else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
