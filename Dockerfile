# A MAIL server as an image: docs/docker.md.

# ------------------------------------------------------------------------------------------------------- build
FROM python:3.12-slim-bookworm AS build

# What the server has besides itself; "llm" and "mcp" are for agents with a language model, and large.
ARG EXTRAS=metrics,otel,postgres

WORKDIR /build
RUN python -m venv /opt/mail
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1

# First what seldom changes, so that a change of the source doesn't fetch it anew.
COPY requirements/run.txt requirements/dev.txt requirements/
RUN /opt/mail/bin/pip install --requirement requirements/run.txt

COPY pyproject.toml README.md LICENSE ./
COPY src src
# The versions are those that are tested.
RUN /opt/mail/bin/pip install --constraint requirements/run.txt --constraint requirements/dev.txt ".[${EXTRAS}]" \
    && /opt/mail/bin/pip uninstall --yes pip

# --------------------------------------------------------------------------------------------------------- run
FROM python:3.12-slim-bookworm

# The database, the registry of other swarms, and a swarm of one's own with its mail.toml are in /data.
RUN groupadd --gid 10001 mail \
    && useradd --uid 10001 --gid mail --home-dir /data --no-create-home --shell /usr/sbin/nologin mail \
    && install --directory --owner mail --group mail --mode 0700 /data
COPY --from=build /opt/mail /opt/mail

ENV PATH=/opt/mail/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    MAIL_LOG_FORMAT=json
WORKDIR /data
VOLUME /data
USER 10001:10001
EXPOSE 8000
STOPSIGNAL SIGTERM

HEALTHCHECK --interval=30s --timeout=10s --start-period=30s --retries=3 \
    CMD ["mail", "ping", "http://127.0.0.1:8000"]

ENTRYPOINT ["mail"]
# Inside a container loopback is nobody's: whoever publishes the port decides who reaches it.
CMD ["server", "--host", "0.0.0.0", "--port", "8000"]
