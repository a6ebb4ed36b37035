#!/bin/sh
# AWS_LAMBDA_EXEC_WRAPPER of the streaming function: Lambda starts this instead of its Python runtime. The handler's
# name is that of an ASGI application; the Web Adapter, an extension, passes the requests on to it.
here=$(dirname "$0")
cd "${LAMBDA_TASK_ROOT:-.}" || exit
export PYTHONPATH="${LAMBDA_TASK_ROOT:-.}:$here/python${PYTHONPATH:+:$PYTHONPATH}"
exec python3 -m uvicorn --host 127.0.0.1 --port "${PORT:-8080}" --no-access-log "$_HANDLER"
