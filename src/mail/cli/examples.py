"""The examples at the end of `mail … --help`, by command."""

EXAMPLES: dict[str, tuple[str, ...]] = {
    "server": (
        "mail server",
        "mail server --port 8001 --database other.db",
        "mail server --reload --swarm-name my-swarm",
    ),
    "client": (
        "mail client http://localhost:8000",
        "mail client localhost:8000 -c 'message \"weather in Tokyo\"' -c tasks",
        "mail client localhost:8000 --json < commands.txt",
    ),
    "chat": ("mail chat --continue", "mail chat https://mail.example --task-id trip"),
    "send": (
        'mail send "weather in Tokyo"',
        'mail send "and in Oslo?" --task-id trip --to supervisor',
        'mail send "a long report" --no-wait',
        'mail send "What does the plan say?" --file plan.pdf',
    ),
    "reply": ('mail reply trip "by train"', 'mail reply trip "by train" "at noon" --json'),
    "file upload": ("mail file upload plan.pdf", "mail file upload notes --name notes.txt --type text/plain"),
    "file get": ("mail file get 0f3a9c1e5b7d2468ace013579bdf0246 -o plan.pdf",),
    "agents": ("mail agents", "mail agents --server https://mail.example --json"),
    "demo": ("mail demo", 'mail demo "ask a human: may I?"'),
    "init": ("mail init my-swarm", "mail init my-swarm --model ollama/llama3.2"),
    "build": ("mail build", "mail build --architecture arm64"),
    "local-aws": ("mail local-aws", "mail local-aws --port 8000 --env OPENAI_API_KEY"),
    "check": (
        "mail check",
        "mail check swarms.json --swarm-name my-swarm",
        "mail check --against https://mail.example",
    ),
    "draft list": ("mail draft list",),
    "draft show": ("mail draft show shorter", "mail draft show shorter --json"),
    "draft save": (
        "mail draft save shorter lead --system 'Answer in one sentence.'",
        "mail draft save shorter lead --llm openai/gpt-5-mini --option verbosity=low --tester user:ann",
    ),
    "draft publish": ("mail draft publish shorter",),
    "draft withdraw": ("mail draft withdraw shorter",),
    "draft delete": ("mail draft delete shorter",),
    "swarm versions": ("mail swarm versions", "mail swarm versions --json"),
    "ui": ("mail ui", "mail ui --server https://mail.example --no-browser"),
    "mcp": ("mail mcp", "mail mcp --server https://mail.example"),
    "ping": ("mail ping http://localhost:8000", "mail ping localhost:8000 --timeout 10"),
    "smoke": ("mail smoke https://mail.example", "mail smoke https://mail.example --message hello --json"),
    "aws-check": ("mail aws-check --plan", "mail aws-check", "mail aws-check --only deploy --only smoke"),
    "aws-versions": ("mail aws-versions", "mail aws-versions --back", "mail aws-versions --prune"),
    "worker": ("mail worker --stack mail", "mail worker --stack mail --concurrency 200"),
    "version": ("mail version", "mail version --json"),
    "db-init": ("mail db-init", "mail db-init --database postgresql://user@host/database"),
    "db-import": (
        "mail db-import --dry-run",
        "mail db-import --from postgresql://user@host/database",
    ),
    "db-reindex": ("mail db-reindex", "mail db-reindex --database tasks.db"),
    "backup": ("mail backup", "mail backup before-upgrade.db --database tasks.db"),
    "restore": ("mail restore before-upgrade.db",),
    "register": ("mail register", "mail register --steps macos"),
    "usage": (
        "mail usage",
        "mail usage --by model --since 7d",
        "mail usage --task-id trip --json",
    ),
    "audit": (
        "mail audit --caller admin:root --since 7d",
        "mail audit --act 'create token' --json",
        "mail audit --since 2026-01-01 --lines",
    ),
    "approvals list": ("mail approvals list", "mail approvals list --json"),
    "approvals show": ("mail approvals show 019c1310e400-0f2c5b0e-6a53-4c0e-9d6e-5f1f6a1e8a11.0",),
    "approvals approve": (
        "mail approvals approve 019c1310e400-0f2c5b0e-6a53-4c0e-9d6e-5f1f6a1e8a11.0",
        "mail approvals approve 019c1310e400-0f2c5b0e-6a53-4c0e-9d6e-5f1f6a1e8a11.0 --arguments '{\"amount\": 5}'",
    ),
    "approvals answer": (
        'mail approvals answer 019c1310e400-0f2c5b0e-6a53-4c0e-9d6e-5f1f6a1e8a11.0 "on Friday"',
    ),
    "approvals reject": (
        'mail approvals reject 019c1310e400-0f2c5b0e-6a53-4c0e-9d6e-5f1f6a1e8a11.0 --reason "too expensive"',
    ),
    "inbox": ("mail inbox", "mail inbox --pending --overdue"),
    "thread": ("mail thread ol-1", 'mail thread ol-1 --reply "in euros"'),
    "token create": (
        "mail token create --role user --id alice",
        "mail token create --role agent --id other-swarm",
    ),
    "token list": ("mail token list",),
    "token revoke": ("mail token revoke 0123456789ab",),
    "caller show": ("mail caller show user:ann",),
    "caller delete": ("mail caller delete user:ann",),
    "caller hold": (
        'mail caller hold user:ann "case 4711"',
        'mail caller hold user:ann "case 4711" --task trip',
    ),
    "caller release": ("mail caller release user:ann", "mail caller release user:ann --task trip"),
    "caller holds": ("mail caller holds", "mail caller holds --json"),
    "task list": (
        "mail task list",
        "mail task list --status paused --limit 5",
        "mail task list --query invoice",
    ),
    "task show": ("mail task show trip", "mail task show trip --events", "mail task show trip --at 5"),
    "task turn": ("mail task turn trip 5", "mail task turn trip 5 --json"),
    "task watch": ("mail task watch trip", "mail task watch trip --after 12 --json"),
    "task cancel": ("mail task cancel trip", 'mail task cancel trip --reason "found it" --wait 30'),
    "task delete": ("mail task delete trip", "mail task delete trip --caller user:ann"),
    "task export": ("mail task export trip -o trip.jsonl", "mail task export trip --markdown -o trip.md"),
    "task cancel-call": ("mail task cancel-call film 5f2c…", "mail task cancel-call last 5f2c… --json"),
    "task cancel-timer": (
        "mail task cancel-timer trip t019c1f0a2b3c4d5e6f708192a",
        "mail task cancel-timer last t019c1f0a2b3c4d5e6f708192a --json",
    ),
    "task approve": (
        "mail task approve trip",
        "mail task approve trip --call call_1 --arguments '{\"amount\": 5}'",
    ),
    "task reject": ("mail task reject trip", 'mail task reject trip --reason "too expensive"'),
    "task fork": (
        'mail task fork trip --at 5 --message "and by train?"',
        "mail task fork trip --run --actions ask",
    ),
    "dead-letter list": ("mail dead-letter list", "mail dead-letter list --task trip --json"),
    "dead-letter redrive": ("mail dead-letter redrive trip 5", "mail dead-letter redrive --all"),
    "dead-letter discard": ("mail dead-letter discard trip", "mail dead-letter discard --all"),
    "webhook list": ("mail webhook list", "mail webhook list --task trip"),
    "webhook register": (
        "mail webhook register https://example.com/hook",
        "mail webhook register https://example.com/hook --event '*'",
    ),
    "webhook delete": ("mail webhook delete 0123456789abcdef",),
    "schedule list": ("mail schedule list",),
    "schedule show": ("mail schedule show morning",),
    "schedule create": (
        'mail schedule create morning "30 8 * * mon-fri" "What is new?" --timezone Europe/Berlin',
        'mail schedule create report "0 18 * * fri" "The week, please" --caller user:ann --overlap queue',
    ),
    "schedule change": (
        'mail schedule change morning --cron "0 9 * * *"',
        "mail schedule change morning --disabled",
    ),
    "schedule delete": ("mail schedule delete morning",),
    "schedule run": ("mail schedule run morning",),
    "action finish": ("mail action finish TOKEN https://films.example/waves",),
    "action fail": ('mail action fail TOKEN "the disk is full"',),
    "action report": ('mail action report TOKEN "half of it"',),
}


def epilog(name: str) -> str:
    """Return the end of a command's help; empty without examples."""
    lines = EXAMPLES.get(name, ())
    return "\n".join(("\b", "Examples:", *(f"  {line}" for line in lines))) if lines else ""
