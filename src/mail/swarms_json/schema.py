"""The JSON Schema of swarms.json files, for editors and for programs in other languages.

python -m mail.swarms_json.schema > docs/swarms-schema.json
"""

import json
import sys
from typing import Any

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema

from mail.swarms_json.specs import SwarmSpec


class PlainSchema(GenerateJsonSchema):
    """A generator of JSON Schema (draft 2020-12) that omits the titles of fields, which only repeat their names."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        """Return False for every field."""
        return False


def swarms_schema() -> dict[str, Any]:
    """Return the schema of the entries. It can't express how they fit together or what references name."""
    return {
        "$schema": PlainSchema.schema_dialect,
        "title": "swarms.json",
        "description": "Swarms of agents, as MAIL servers load them.",
        **TypeAdapter(list[SwarmSpec]).json_schema(schema_generator=PlainSchema),
    }


if __name__ == "__main__":
    json.dump(swarms_schema(), sys.stdout, indent=4, ensure_ascii=False)
    sys.stdout.write("\n")
