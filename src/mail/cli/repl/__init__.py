"""The prompt of `mail client`: it reads lines, from a terminal or a pipe, and runs them as commands.

shell       the loop over lines
words       a lexer that splits lines into words
commands    all commands, and those about the prompt itself
terminal    editing, completion and history of lines (prompt_toolkit)
"""
