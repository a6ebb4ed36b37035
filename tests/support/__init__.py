"""What tests of different kinds share. pytest puts `tests/` on the path: `from support.rig import Rig`.

- `agents`   scripted agents: a policy from what an agent has read to the tools it calls
- `swarms`   small swarms of such agents
- `clock`    a clock and ids that are the same in every run
- `rig`      store, queue, runtime and workers in this process, wired as `bootstrap` wires them
"""
