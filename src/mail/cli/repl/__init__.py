"""The interactive client: lines in, requests out.

shell        reads lines, from a terminal or a pipe, and performs them one after another
words        lines to words, as a shell would cut them
arguments    what a command takes; parsing it
commands     every command
session      what they share: the client, the output, what was seen so far
completion, history, terminal    typing with comfort (prompt_toolkit)
"""
