"""`POST /responses`: the swarm behind OpenAI's Responses API, so that programs written for it can talk to a swarm.

Only a server in debug mode serves it. A response is one generation of a task of the caller:

    request ──► submission ──► the task runs ──► the generation ends ──► response
    input, instructions        with the client's tools                   the answer, or the waiting tool calls

- `request`     the request body, and which of OpenAI's features are refused
- `submission`  from a request to the submission that begins or continues a task
- `output`      from the events of a generation to the response object
- `stream`      the same as a stream of OpenAI's events
- `errors`      errors in OpenAI's shape
- `routes`      the endpoints
"""
