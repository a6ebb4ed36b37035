"""The Lambda functions of `template.yaml`, a module each: translate the event, call, translate back.

    root, health, whoami, status, message, tasks, task, swarms     routes behind the HTTP API (`http_api`)
    stream                                                         every route, streamed, behind a function URL
    turn, dead_letter                                              tokens from the queues, and what became of bad ones
    sweeper                                                        each minute

`wiring` makes what they work with, once per process; `telemetry` is their log and their metrics.
"""
