"""`POST /responses`: the swarm behind OpenAI's Responses API, so that programs written for it can talk to a swarm.

Only a server in debug mode has it. A response is one generation of a task of the caller:

    request ──► a submission ──► the task runs ──► the generation ends ──► response
    input, instructions          tools are lent to it                       its answer, or the calls that wait

- `request`     what clients send, and what is refused of it
- `asking`      from a request to the submission that begins a task, or goes on with one
- `answering`   from the events of a generation to the response object
- `stream`      the same as a stream of OpenAI's events
- `errors`      errors in OpenAI's shape
- `routes`      the endpoints
"""
