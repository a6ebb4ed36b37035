"""A game of Mafia in manual mode: a narrator, and players who must not know what others are told in private.

    python -m mail.examples.mafia --players 7 --seed 3

Begin with `game`; `state` has the rules, `swarm` and `agents` say who plays. `players`, `narrator`, `evidence` and
`hearing` are for those that follow rules instead of asking a model.
"""
