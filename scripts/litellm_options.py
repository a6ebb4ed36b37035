"""Write the names of litellm's options to src/mail/factories/options.json; run it after an update of litellm."""

import json
from pathlib import Path

from mail.factories.models import load_litellm
from mail.factories.options import read_names

TARGET = Path(__file__).resolve().parent.parent / "src" / "mail" / "factories" / "options.json"

if __name__ == "__main__":
    TARGET.write_text(json.dumps(read_names(load_litellm()), indent=1) + "\n", encoding="utf-8")
