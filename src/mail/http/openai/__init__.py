"""The swarm behind OpenAI's APIs, so that programs written for them can talk to a swarm.

A response is one generation of a task of the caller; a completion of Chat Completions is a response in another shape:

    request ──► submission ──► the task runs ──► the generation ends ──► response
    input, instructions        with the client's tools                   the answer, or the waiting tool calls

- `request`     the body of `POST /responses`, and which of OpenAI's features are refused
- `submission`  from a request to the submission that begins or continues a task
- `output`      from the events of a generation to the response object
- `stream`      the same as a stream of OpenAI's events
- `chat`        the requests and answers of Chat Completions as those of Responses
- `errors`      errors in OpenAI's shape
- `endpoints`   what `mail.http.routes.openai` serves
"""
