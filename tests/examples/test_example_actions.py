"""The actions of the example swarms `support`, `research` and `data-analysis`."""

import json
from importlib import import_module
from typing import Any

import pytest

from mail.errors import ToolCallFault

CASES: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    (
        "support.faq:search_faq",
        {"query": "How do I pay?", "max_results": 1},
        {"answers": {"How can I pay?": ...}},
    ),
    ("support.faq:search_faq", {"query": "Xyzzy?"}, {"answers": {}}),
    (
        "support.classifier:classify_ticket",
        {"text": "I was charged twice on my card!"},
        {"category": "billing", "priority": "high", "priority_words": ["charge", "twice"]},
    ),
    ("support.classifier:classify_ticket", {"text": "hello"}, {"category": "general", "priority": "normal"}),
    (
        "support.sentiment:analyze_sentiment",
        {"text": "Great, thanks!"},
        {"sentiment": "positive", "score": 1.0},
    ),
    (
        "support.sentiment:analyze_sentiment",
        {"text": "I don't love it."},
        {"sentiment": "negative", "negative_words": ["love"]},
    ),
    ("support.sentiment:analyze_sentiment", {"text": "Great, but late."}, {"sentiment": "mixed"}),
    (
        "support.sentiment:create_escalation",
        {"ticket_id": "T-1", "reason": "r", "priority": "urgent"},
        {"ticket_id": "T-1", "answer_within_hours": 1},
    ),
    (
        "research.verifier:verify_claim",
        {"claim": "Ostwick opened its harbour in 1880."},
        {"verdict": "contradicted"},
    ),
    ("research.verifier:verify_claim", {"claim": "The moon is made of cheese."}, {"verdict": "not found"}),
    (
        "research.verifier:verify_claim",
        {"claim": "It rained in May.", "sources": ["It rained in May.", "It never rained in May."]},
        {"verdict": "disputed"},
    ),
    (
        "research.verifier:rate_confidence",
        {"claim": "c", "evidence": []},
        {"confidence": 0.0, "level": "low"},
    ),
    (
        "research.summarizer:summarize_text",
        {"text": "The cat sat. The cat ate the fish. Dogs bark. A cat and a fish met.", "max_length": 50},
        {"summary": "The cat ate the fish. A cat and a fish met."},
    ),
    (
        "research.summarizer:summarize_text",
        {"text": "x" * 100, "max_length": 50},
        {"summary": "x" * 49 + "…"},
    ),
    *(
        (
            "research.summarizer:create_bibliography",
            {
                "style": style,
                "sources": [{"title": "Tides", "author": "Haan, M.", "date": "2007"}, {"title": "Light"}],
            },
            {"bibliography": bibliography},
        )
        for style, bibliography in {
            "apa": "Haan, M. (2007). Tides.\nLight. (n.d.).",
            "mla": '"Light."\nHaan, M. "Tides." 2007',
            "chicago": '"Light."\nHaan, M. "Tides." 2007',
            "simple": "Haan, M., Tides, 2007\nLight",
        }.items()
    ),
    (
        "data_analysis.processor:parse_csv",
        {"data": 'n,text\n1,"a,b"\n2,c\n'},
        {"rows": 2, "columns": {"n": [1.0, 2.0], "text": ["a,b", "c"]}},
    ),
    (
        "data_analysis.statistics:calculate_statistics",
        {"data": [1, 2, 2, 9]},
        {"mean": 3.5, "mode": 2.0, "std": 3.696846, "quartiles": [1.75, 2.0, 3.75]},
    ),
    ("data_analysis.statistics:calculate_statistics", {"data": [3]}, {"count": 1, "std": None}),
    (
        "data_analysis.statistics:run_correlation",
        {"x": [1, 2, 3], "y": [7, 5, 3]},
        {"strength": "strong", "correlation": -1.0, "slope": -2.0, "intercept": 9.0},
    ),
]


def find(reference: str) -> Any:
    agent, _, name = reference.partition(":")
    return getattr(import_module(f"mail.examples.{agent}.actions"), name)


@pytest.mark.parametrize(("reference", "given", "expected"), CASES, ids=lambda value: str(value)[:40])
async def test_results(reference: str, given: dict[str, Any], expected: dict[str, Any]) -> None:
    result = json.loads(await find(reference)(given))
    for name, value in expected.items():
        if isinstance(value, dict) and ... in value.values():
            assert result[name].keys() == value.keys()
        else:
            assert result[name] == value


@pytest.mark.parametrize("dataset", ["sales", "users", "inventory", "weather"])
async def test_sample_data_is_csv_and_always_the_same(dataset: str) -> None:
    generate, parse = (
        find("data_analysis.processor:generate_sample_data"),
        find("data_analysis.processor:parse_csv"),
    )
    data = await generate({"dataset": dataset, "rows": 5})
    assert (await generate({"dataset": dataset})).startswith(data)
    table = json.loads(await parse({"data": data}))
    assert table["rows"] == 5
    assert any(isinstance(column[0], float) for column in table["columns"].values())


async def test_a_report_is_markdown() -> None:
    sections = [{"heading": "Mean\nvalue", "content": "2.3\n"}, {"heading": "Next", "content": ""}]
    report = await find("data_analysis.reporter:format_report")({"title": "Weather", "sections": sections})
    assert report == "# Weather\n\n## Mean value\n\n2.3\n\n## Next\n"


@pytest.mark.parametrize(
    ("reference", "given", "problem"),
    [
        ("data_analysis.processor:parse_csv", {"data": "a,b\n1"}, "row 2 has 1 values, but the header has 2"),
        ("data_analysis.processor:parse_csv", {"data": 'a\n"1'}, "not CSV"),
        (
            "data_analysis.statistics:calculate_statistics",
            {"data": [1], "metrics": ["meen"]},
            "Did you mean 'mean'",
        ),
        ("data_analysis.statistics:run_correlation", {"x": [1, 2], "y": [1]}, "give two or more pairs"),
        ("data_analysis.statistics:run_correlation", {"x": [1, 2], "y": [1, 1]}, "is constant"),
        ("support.faq:search_faq", {"query": "pay", "max_results": 11}, "less than or equal to 10"),
    ],
)
async def test_mistakes_are_explained(reference: str, given: dict[str, Any], problem: str) -> None:
    with pytest.raises(ToolCallFault, match=problem):
        await find(reference)(given)
