# A MAIL server as an image (docs/docker.md), and a worker for a deployment on AWS (--target worker, docs/workers.md).

# docs/docker.md says how to find the digest and give it here: python:3.12-slim-bookworm@sha256:…
ARG PYTHON_IMAGE=python:3.12-slim-bookworm

# ------------------------------------------------------------------------------------------------------- build
FROM ${PYTHON_IMAGE} AS build

# What the server has besides itself; "llm" and "mcp" are for agents with a language model, and large.
ARG EXTRAS=metrics,oidc,otel,postgres

WORKDIR /build
RUN python -m venv /opt/mail && python -m venv /opt/build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1

# First what seldom changes, so that a change of the source doesn't download it again. The versions are those that are
# tested, and each file has the hash that its pin names.
COPY requirements requirements
RUN /opt/build/bin/pip install --require-hashes --requirement requirements/build.txt
RUN set -- --requirement requirements/run.txt \
    && for extra in $(echo "${EXTRAS}" | tr , ' '); do set -- "$@" --requirement "requirements/extra-${extra}.txt"; done \
    && /opt/mail/bin/pip install --require-hashes "$@"

COPY pyproject.toml README.md LICENSE template.yaml worker.yaml ./
COPY layers/run.sh layers/
COPY spec/SPEC.md spec/
COPY src src
RUN /opt/build/bin/pip wheel --no-deps --no-build-isolation --wheel-dir dist . \
    && /opt/mail/bin/pip install --no-deps --no-index dist/*.whl \
    && /opt/mail/bin/pip uninstall --yes pip

# --------------------------------------------------------------------------------------------------------- run
FROM ${PYTHON_IMAGE} AS run

# The database, the registry of other swarms, and a swarm of one's own with its mail.toml are in /data.
RUN groupadd --gid 10001 mail \
    && useradd --uid 10001 --gid mail --home-dir /data --no-create-home --shell /usr/sbin/nologin mail \
    && install --directory --owner mail --group mail --mode 0700 /data
COPY --from=build /opt/mail /opt/mail

ENV PATH=/opt/mail/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    XDG_STATE_HOME=/tmp/state \
    MAIL_LOG_FORMAT=json
WORKDIR /data
VOLUME /data
USER 10001:10001
EXPOSE 8000
STOPSIGNAL SIGTERM

HEALTHCHECK --interval=30s --timeout=10s --start-period=30s --retries=3 \
    CMD ["python", "-c", "from urllib.request import urlopen; urlopen('http://127.0.0.1:8000/live', timeout=5)"]

ENTRYPOINT ["mail"]

# ------------------------------------------------------------------------------------------------------ worker
FROM run AS worker

# The folder that `sam build` puts into the functions.
COPY swarm /opt/swarm
WORKDIR /opt/swarm
CMD ["worker", "--port", "8000"]

# ------------------------------------------------------------------------------------------------------ server
FROM run AS server

# Inside a container loopback is nobody's: whoever publishes the port decides who reaches it.
CMD ["server", "--host", "0.0.0.0", "--port", "8000"]
