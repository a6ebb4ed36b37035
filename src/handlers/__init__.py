"""The Lambda functions of `template.yaml`, one module each: translate the event, call, translate back.

    root, health, whoami, status, message, tasks, task, threads, swarms, interswarm, mail2
                          routes behind the HTTP API (`http_api`)
    stream                all routes, streamed, behind a function URL (`function_url`)
    protocols             A2A, AG-UI, MCP and OpenAI's APIs, behind another one
    turn, outbound        wake-ups from the queues: agents' turns, and deliveries to other swarms and to webhooks
    dead_letter           wake-ups that failed too often
    sweeper               several times a minute
    peer_health           every minute

`wiring` builds what they work with, once per process; `routing` serves all routes; `telemetry` is their log and their
metrics.
"""

from mail import startup

startup.begin()  # each function ends it when it has built what it works with
startup.skip_plugins()
