"""`GET /metrics`: what Prometheus reads."""

from fastapi import APIRouter, Request
from fastapi.responses import Response

from mail.errors import MetricsOff
from mail.http.access import RoleGate
from mail.http.openapi import PROTECTED, problems
from mail.http.service import service_of

router = APIRouter(tags=["server"])
_gate = RoleGate("admin")

TEXT = "text/plain"


@router.get(
    "/metrics",
    summary="Metrics of the server",
    response_class=Response,
    responses={
        200: {
            "description": "Counters, gauges and histograms in Prometheus' text format.",
            "content": {TEXT: {"schema": {"type": "string"}}},
        },
        **problems(404, *PROTECTED),
    },
    openapi_extra=_gate.docs(),
)
async def get_metrics(request: Request) -> Response:
    """What this process has counted since it started. Only for admins, unless the server lets everybody read it."""
    service = service_of(request)
    if service.metrics is None or not service.metrics_are_public:
        await _gate(request)
    if service.metrics is None:
        raise MetricsOff
    return Response(service.metrics.render(), media_type=service.metrics.content_type)
