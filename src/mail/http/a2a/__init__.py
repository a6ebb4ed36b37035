"""A2A 1.0 (https://a2a-protocol.org) for agents of other frameworks: a mapping between its SDK's types and the runtime.

    contextId          a task of MAIL
    task               a run of it: a message with everything until its answer
    INPUT_REQUIRED     the task is paused: for a result, or for a decision on a call
    artifact           an answer
    messageId          an idempotency key

The SDK reads requests and writes responses for both bindings, and for A2A 0.3. Everything that is stored is the
runtime's. `mail.http.routes.a2a` imports this package, and with it the SDK, for the first request.
"""
