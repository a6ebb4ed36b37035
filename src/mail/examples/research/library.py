"""The sources of the research desk. They are made up."""

from typing import Literal

from pydantic import BaseModel

SourceType = Literal["wikipedia", "academic", "news", "general"]


class Source(BaseModel):
    """A source, as a bibliography lists it."""

    title: str
    author: str = ""
    url: str = ""
    date: str = ""
    source_type: SourceType = "general"


class Text(Source):
    """A source with its text."""

    text: str


_TEXTS: tuple[tuple[SourceType, str, str, str, str], ...] = (
    ("wikipedia", "Ostwick", "", "2021",
     "Ostwick opened its harbour in 1871. In 1904 it had three quays and employed 640 people."),
    ("academic", "Storms of the north coast", "Berg, L.", "1998",
     "A storm destroyed the eastern quay of Ostwick in November 1904. The quay was not rebuilt until 1911."),
    ("academic", "Tea and tides", "Haan, M.", "2007",
     "Tea came to Ostwick with the steamers from 1880 on. By 1900 every second crate landed there held tea."),
    ("news", "Quay reopens", "Ostwick Courier", "1911-05-02",
     "The eastern quay of Ostwick was reopened on Monday. The storm of 1904 had destroyed it."),
    ("general", "Lighthouses", "", "2015",
     "The lighthouse of Ostwick stands 41 metres above the sea. It has been automatic since 1987."),
)  # fmt: skip

LIBRARY = [
    Text(
        title=title,
        author=author,
        url=f"https://library.example/{number}",
        date=date,
        source_type=kind,
        text=text,
    )
    for number, (kind, title, author, date, text) in enumerate(_TEXTS, start=1)
]
