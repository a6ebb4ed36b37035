"""Three agents and a person in a group chat, on an exchange: broadcasts, direct mail and channels, without a model.

    python -m mail.examples.group_chat

`chat` has the agents and the chat.
"""
