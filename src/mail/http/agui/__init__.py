"""AG-UI 1.0 (https://docs.ag-ui.com) for front ends: a mapping between its package's types and the runtime.

    threadId           a task of MAIL
    run                a request, and what becomes of it until the task stops, also by a pause
    id of a message    an idempotency key
    frontend tool      a tool of the caller, which the entrypoint may call
    interrupt          a call that waits for an approval, or for its result
    subagent           a turn of an agent that is not the entrypoint

Everything that is stored is the runtime's. `mail.http.routes.agui` imports this package, and with it `ag_ui`, for the
first request.
"""
