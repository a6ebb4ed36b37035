"""Everything at once, while everything goes wrong: `python -m chaos`.

    plan        what a seed stands for: who asks for what, and which faults there are
    people      those who use the swarms: they ask, answer, join, cancel, come back, and remember what they were told
    company     the swarms that work for them; what their actions did is written down outside of the engine
    process     a server that can be killed at any await: what it would do after that never happens
    faults      the store, the queue and the wire of such a process, in bad weather
    worlds      what outlives processes: an SQLite file, PostgreSQL, DynamoDB
    loop        an event loop whose time leaps to the next timer when nobody is at work, so that leases expire soon
    invariants  those of DESIGN.md, on all that is stored, on every commit, and on all that people were told
    rounds      one seed, played to its end and checked

A seed decides who asks for what, and by which chance each fault is drawn. On SQLite, where nothing but timers is waited for,
it decides everything: a round that failed fails again in the same way. PostgreSQL and DynamoDB answer when they like, so there
the same seed gives the same load and as many faults, but they meet in another order.
"""
