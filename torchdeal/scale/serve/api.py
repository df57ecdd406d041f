"""The addresses of the service, and their description (`/openapi.json`, and for people `/docs`)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

from fastapi import FastAPI, File, Query, Request, UploadFile
from fastapi.exceptions import RequestValidationError
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse, JSONResponse, Response

import torchdeal
from torchdeal.app.guard import refused
from torchdeal.io.printable import printable
from torchdeal.scale.serve.asked import AskedDeblur, AskedDenoise, AskedInpaint, AskedUpscale
from torchdeal.scale.serve.gate import Gate
from torchdeal.scale.serve.orders import MEDIA
from torchdeal.scale.serve.page import CONTENT_POLICY, page_of
from torchdeal.scale.serve.service import ServeSettings, Service

ABOUT = (
    "Image reconstruction by deep attentive least squares. A picture is sent as a form (multipart/form-data), the "
    "parameters in the address. The answer is a picture of the same kind. How the run went is in the headers "
    "Deal-Status, Deal-Distance (estimated, to the fixed point), Deal-Iterations, Deal-Sigma, and Deal-Report (all of "
    'it, as JSON). Errors are JSON: {"error": "one sentence"}.'
)
REPORT = {
    "status": "CONVERGED",
    "converged": True,
    "distance": 0.00087,
    "iterations": 18,
    "cg_iterations": 128,
    "sigma": 25.0,
    "estimated": False,
    "seconds": 1.234,
    "waited": 0.001,
    "batch": 1,
}  # an example, not a measurement
ERRORS = {
    400: "The form is broken.",
    401: "The token is missing or wrong.",
    403: "The request comes from another site, or to another name of this machine.",
    408: "The request did not arrive in time.",
    413: "Too many bytes or pixels.",
    415: "No form, or a file of a kind that is not taken.",
    422: "A parameter or the file cannot be used.",
    429: "Too many are waiting: try again after the seconds in Retry-After.",
    503: "The server is about to end.",
    504: "It took too long.",
}
WORDS = {  # in place of those of the library, by its names
    "missing": "It is missing",
    "extra_forbidden": "There is no such parameter",
    "string_pattern_mismatch": "It must be gaussian:STD, disk:RADIUS or motion:LENGTH,ANGLE",
    "value_error": "It must be a file",
}
_ERROR_SCHEMA = {"type": "object", "properties": {"error": {"type": "string"}}, "required": ["error"]}
_HEADERS = ("Deal-Status", "Deal-Distance", "Deal-Iterations", "Deal-Sigma", "Deal-Report")
_BINARY = {"schema": {"type": "string", "format": "binary"}}

Picture = Annotated[UploadFile, File(description="The picture: PNG, JPEG, WebP, BMP, TIFF or npy.")]
KernelFile = Annotated[UploadFile | None, File(description="A kernel, as npy or a picture, scaled to the sum 1.")]
MaskFile = Annotated[UploadFile, File(description="What is known of the picture: not black. PNG, TIFF or npy.")]


def create(settings: ServeSettings | None = None) -> FastAPI:
    """The application that a server such as uvicorn runs."""
    settings = settings or ServeSettings()
    service = Service(settings)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        service.start()
        yield
        await run_in_threadpool(service.close)

    app = FastAPI(
        title="deal serve",
        version=torchdeal.__version__,
        description=ABOUT,
        docs_url=None,  # these load scripts from elsewhere
        redoc_url=None,
        lifespan=lifespan,
    )
    app.state.service = service
    app.add_middleware(
        Gate,
        service=service,
        host=settings.host,
        token=settings.token,
        most_bytes=settings.megabytes * 2**20,
        upload_seconds=settings.upload_seconds,
    )
    app.add_exception_handler(HTTPException, _refused)
    app.add_exception_handler(RequestValidationError, _invalid)
    _add_pictures(app, service)
    _add_facts(app, service)
    return app


def _add_pictures(app: FastAPI, service: Service) -> None:
    def address(goal: str) -> Any:
        return app.post(f"/v1/{goal}", tags=["pictures"], responses=_responses(), response_class=Response)

    @address("denoise")
    async def denoise(request: Request, image: Picture, asked: Annotated[AskedDenoise, Query()]) -> Response:
        """Remove noise. Its level is estimated, unless sigma is given."""
        return await service.answer(request, asked, {"image": image})

    @address("deblur")
    async def deblur(
        request: Request, image: Picture, asked: Annotated[AskedDeblur, Query()], kernel_file: KernelFile = None
    ) -> Response:
        """Undo a known blur: a formula, or a file."""
        return await service.answer(request, asked, {"image": image, "kernel_file": kernel_file})

    @address("upscale")
    async def upscale(
        request: Request, image: Picture, asked: Annotated[AskedUpscale, Query()], kernel_file: KernelFile = None
    ) -> Response:
        """Enlarge a picture."""
        return await service.answer(request, asked, {"image": image, "kernel_file": kernel_file})

    @address("inpaint")
    async def inpaint(
        request: Request, image: Picture, mask: MaskFile, asked: Annotated[AskedInpaint, Query()]
    ) -> Response:
        """Fill in missing pixels."""
        return await service.answer(request, asked, {"image": image, "mask": mask})


def _add_facts(app: FastAPI, service: Service) -> None:
    @app.get("/health", tags=["facts"], responses={503: {"description": "Not ready: it begins, or ends."}})
    async def health() -> JSONResponse:
        """Whether it is alive, and ready: models are loaded, and it does not end. Needs no token."""
        known = service.health()
        return JSONResponse(known, 200 if known["ready"] else 503)

    @app.get("/metrics", tags=["facts"], response_class=Response, responses={200: {"content": {"text/plain": {}}}})
    async def metrics() -> Response:
        """Numbers for Prometheus."""
        text, kind = service.counters.told()
        return Response(text, media_type=kind)

    @app.get("/docs", include_in_schema=False)
    @app.get("/", include_in_schema=False)
    async def page(request: Request) -> HTMLResponse:
        text = page_of(app.openapi(), str(request.base_url))
        return HTMLResponse(text, headers={"Content-Security-Policy": CONTENT_POLICY})


def _responses() -> dict[int | str, dict[str, Any]]:
    example = {"report": REPORT, "image": {"media_type": "image/png", "base64": "iVBORw0KGgo..."}}
    done = {
        "description": "The picture; with answer=json an object that has the report and the picture in base64.",
        "content": {**dict.fromkeys(MEDIA.values(), _BINARY), "application/json": {"example": example}},
        "headers": {name: {"schema": {"type": "string"}} for name in _HEADERS},
    }
    errors = {
        status: {"description": words, "content": {"application/json": {"schema": _ERROR_SCHEMA}}}
        for status, words in ERRORS.items()
    }
    return {200: done, **errors}


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return refused(error.status_code, str(error.detail), error.headers)


async def _invalid(request: Request, error: Exception) -> Response:
    """The first of what is wrong, in one sentence, without what was sent."""
    assert isinstance(error, RequestValidationError)
    wrong = error.errors()[0]
    place = printable(".".join(str(part) for part in wrong["loc"][1:]))[:60]
    return refused(422, f"{place}: {WORDS.get(wrong['type'], wrong['msg'])}.")
