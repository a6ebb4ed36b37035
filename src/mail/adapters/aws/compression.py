"""Compresses the texts of items with dictionaries of what they have in common, such as JSON keys and words of English.

A compressed text begins with the number of its dictionary. What is stored is read forever: a dictionary never changes.
Another one is added under the next number, and becomes `PRESENT`.
"""

import zlib
from functools import lru_cache

from mail.errors import WrittenLater

_RAW_DEFLATE = -zlib.MAX_WBITS

_LEVEL = 6

_REMEMBERED = 8
"""Texts: one commit stores the same state, and may store the same message, in several items."""

_WORDS = (
    " the of and to in that is for it with as on be at by this have from or not are but what all were when we there "
    "can an your which their said if do will each about how up out them then she many some so these would other into "
    "has more two like him see time could no make than first been its who now people my made over did down only way "
    "find use may water long little very after words called just where most know get through back much before go "
    "good new write our used me man too any day same right look think also around another came come work three word "
    "must because does part even place well such here take why things help put years different away again off went old "
    "number please thank you should whether between today tomorrow because however information following answer "
    "question result request example error data file code list name value user there are, that the , and the . The . "
    "I have . It is . You can . This is ation tion ing ment ence ent, able to of the in the to the on the for the "
    "with the it is you are I will "
)

_RARE_PARTS_OF_TASKS = (
    '"cancellation":{"requested":"","by":"user:","reason":"","seq":},"dead_letters":[],"resumptions":[{"seq":,"agent":"",'
    '"portions":}],"breakpoint":{"agent":"supervisor","tool_format":"completions","calls":[{"call_id":"","name":"",'
    '"arguments":{}}]},"webhooks":{"":{"url":"https://","events":["task_complete","task_error","breakpoint_tool_call",'
    '"task_cancelled"],"after":,"upto":}},"usage":{"calls":,"input_tokens":,"cached_tokens":,"cache_write_tokens":,"output_tokens":,'
    '"reasoning_tokens":,"cost":0.0,"unpriced_calls":0},"models":{"openai/gpt-":{"calls":1,"input_tokens":"peers":{"":'
    '{"has_task":true,"end_message":,"end_delivered":true}},"parent_swarm":"","deadline":,"number":2,"limit_notice":,"limit_reached":"",'
    '"answers_unread":,"client_tools":,"unread_questions":'
)

_CHECKPOINT = (
    '{"text":null,"calls":[{"tool_name":"","tool_args":{},"tool_call_id":"","reasoning":null,"preamble":null,"reply":0}],'
    '"receipts":[{"state":"started","content":""},{"state":"done","content":"'
)

_RARE_EVENTS = (
    '"task_cancelled","The task was cancelled by "task_error","agent_error","dead_letter","dead letter: "reason":"",'
    '"attempts":1,"message_seq":,"message_id":"","sender":"agent_error","agent \' failed: "help_called",'
    '"broadcast_ignored","text_answer","webhook_delivered","webhook_error","task_forked","history_inherited",'
    '"builtin_tool_call","breakpoint_tool_call","interswarm_message_sent","interswarm_message_received","turn_discarded",'
    '"acknowledge_broadcast","ignore_broadcast","send_interrupt","interrupt","send_broadcast","broadcast"'
    '::task_complete::","task_complete","finish_message":"SUCCESS: task completed"}]"task_complete_call"," called'
    ' task_complete, full response to follow","msg_type":"broadcast_complete","recipients":[{"address_type":"agent",'
    '"address":"all"}],"recipient_swarms":null,"broadcast_id":"{"address_type":"system","address":""action_call",'
    '"action_complete","action_error"," called action "," completed: '
)

_TASK = (
    '{"owner":"user:","contributors":["user:"],"entrypoint":"supervisor","title":"","updated":'
    '"2026-11-22T00:00:00.000000+00:00","limits":{"steps":15,"turns":300},"histories":{"supervisor":1,"worker":1},'
    '"requests":[{"request_id":"","sender":"supervisor","recipient":""},{"request_id":""}],"stored_bytes":,"steps":,'
    '"turns":1}'
)

_HISTORY = (
    '[{"role":"user","content":"<incoming_message>\\n<timestamp>2026-11-22T00:00:00.000000+00:00</timestamp>\\n'
    '<from type=\\"user\\"></from>\\n<to>\\n<address type=\\"agent\\">supervisor</address>\\n</to>\\n'
    "<subject>New Message</subject>\\n<body></body>\\n</incoming_message>"
    '"},{"role":"assistant","content":null,"tool_calls":[{"id":"call_","type":"function","function":'
    '{"name":"send_request","arguments":"{\\"target\\": \\"\\", \\"subject\\": \\"\\", \\"body\\": \\"\\"}"}},'
    '{"id":"call_1","type":"function","function":{"name":"await_message","arguments":"{}"}}]},'
    '{"role":"tool","tool_call_id":"call_0","content":"SUCCESS: request sent to "},'
    '{"role":"tool","tool_call_id":"call_1","content":"SUCCESS: waiting for mail"}]'
    '"content":"SUCCESS: response sent to supervisor"}]'
)

_EVENTS = (
    ',"tool_call","2026-11-22T00:00:00.000000+00:00","agent supervisor called await_message",{"agent":"supervisor",'
    '"tool_name":"await_message","tool_args":{},"tool_call_id":"call_1"},null],[,"await_message",'
    '"2026-11-22T00:00:00.000000+00:00","agent \'supervisor\' is awaiting a new message: no reason given",'
    '{"agent":"supervisor","reason":null},null],,"tool_call","2026-11-22T00:00:00.000000+00:00",'
    '"agent supervisor called send_request",{"agent":"supervisor","tool_name":"send_request","tool_args":{"target":"",'
    '"subject":"","body":""},"tool_call_id":"call_0"},null],[,"new_message","2026-11-22T00:00:00.000000+00:00",'
    '"sending message:",{},'
)

_MESSAGE = (
    '{"id":"","timestamp":"2026-11-22T00:00:00.000000+00:00","msg_type":"request","message":{"task_id":"","sender":'
    '{"address_type":"user","address":""},"subject":"Response","body":"","sender_swarm":null,"routing_info":null,'
    '"request_id":"","recipient":{"address_type":"agent","address":"supervisor"},"recipient_swarm":null}}]]'
    '"msg_type":"response","message":{"task_id":"","sender":{"address_type":"agent","address":"'
)

_LATER_PARTS_OF_TASKS = '"stored_bytes":,"history_bytes":,"steps":,"turns":1,"versions":[""]}'

PRESENT = 2
"""The dictionary that texts are compressed with."""

_RARE = _WORDS + _RARE_PARTS_OF_TASKS + _CHECKPOINT + _RARE_EVENTS
_FREQUENT = _HISTORY + _EVENTS + _MESSAGE  # the most frequent at the end, where references to it are short

DICTIONARIES = {
    1: (_RARE + _TASK + _FREQUENT).encode(),
    2: (_RARE + _TASK + _LATER_PARTS_OF_TASKS + _FREQUENT).encode(),
}
"""What may stand in texts, by number."""


@lru_cache(_REMEMBERED)
def compress(text: str) -> bytes | None:
    """Return a text compressed; None if that is no shorter."""
    plain = text.encode()
    deflate = zlib.compressobj(_LEVEL, zlib.DEFLATED, _RAW_DEFLATE, zdict=DICTIONARIES[PRESENT])
    compressed = bytes([PRESENT]) + deflate.compress(plain) + deflate.flush()
    return compressed if len(compressed) < len(plain) else None


def decompress(compressed: bytes) -> str:
    """Return the text that `compress` has compressed. Raises WrittenLater if a later version has."""
    dictionary = DICTIONARIES.get(compressed[0])
    if dictionary is None:
        raise WrittenLater
    return zlib.decompressobj(_RAW_DEFLATE, zdict=dictionary).decompress(compressed[1:]).decode()
