"""A game of Mafia in manual mode: a narrator, and players who must not see each other's private mail.

    python -m mail.examples.mafia --players 7 --seed 3

Start with `game`; `state` has the rules, `roles` the characters, `prompts` and `phrases` the texts. `players` and
`narrator` also play without a language model; `hearings` is what such an agent has heard.
"""
