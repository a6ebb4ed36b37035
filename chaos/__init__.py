"""Everything at once, while everything goes wrong: `python -m chaos`.

    rounds      one seed: its plan of workloads and faults, played to the end and checked
    clients     the workloads: each sends orders, joins, cancels, retries, and remembers what it was answered
    swarm       the swarms that work for them; what their actions did is written down outside of the engine
    servers     the servers of both swarms, which die and are started again
    process     a server that can be killed at any fault point: what it would do after that never happens
    faults      the plan of each process, its clock, and a queue that loses wake-ups
    receivers   the receivers of webhooks, which are down now and then
    worlds      what outlives processes: an SQLite file, PostgreSQL, DynamoDB
    loop        an event loop whose time leaps to the next timer when nobody is at work, so that leases expire soon
    invariants  those of DESIGN.md, on all that is stored, on every commit, and on all that clients were answered

The points, plans and ports are those of `mail.testing.faults`, and the wrappers of stores those of `support.faults`, as
in tests/crash, which kills real processes. Both check the invariants of this package.

A seed decides who asks for what, and by which chance each fault is drawn. On SQLite, where only timers are waited for,
it decides everything: a round that failed fails again in the same way. PostgreSQL and DynamoDB answer when they like,
so there the same seed gives the same load and as many faults, but they meet in another order.
"""
