"""Metrics (Prometheus), traces (OpenTelemetry) and log lines."""
