"""Three agents and a person in a group chat, on an exchange: broadcasts, direct mail and channels, without a model.

    python -m mail.examples.group_chat

Begin with `chat`; `agents` has who takes part.
"""
