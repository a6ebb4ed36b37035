"""The Lambda functions of `template.yaml`, a module each: translate the event, call, translate back.

    root, health, whoami, status, message, tasks, task, swarms, interswarm
                          routes behind the HTTP API (`http_api`)
    stream                every route, streamed, behind a function URL
    turn, outbound        tokens from the queues (`tokens`): turns of agents, and deliveries to other swarms
    dead_letter           what became of bad ones
    sweeper, peer_health  each minute

`wiring` makes what they work with, once per process; `telemetry` is their log and their metrics.
"""
