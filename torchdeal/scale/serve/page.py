"""The description for people: one page, made of the description for machines. It loads nothing."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import Any

CONTENT_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; frame-ancestors 'none'"
EXAMPLES = {
    "/v1/denoise": "curl -F image=@noisy.png '{base}/v1/denoise?sigma=25' -o clean.png",
    "/v1/deblur": "curl -F image=@blurred.png '{base}/v1/deblur?kernel=gaussian:1.6' -o sharp.png",
    "/v1/upscale": "curl -F image=@small.png '{base}/v1/upscale?scale=2' -o large.png",
    "/v1/inpaint": "curl -F image=@damaged.png -F mask=@mask.png '{base}/v1/inpaint' -o whole.png",
}
STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}"
    "body{color:#222;background:#fff}"
    "table{border-collapse:collapse;width:100%}td,th{border-bottom:1px solid #ddd;padding:.3rem .6rem .3rem 0;"
    "text-align:left;vertical-align:top}pre{background:#f3f3f3;padding:.6rem;overflow-x:auto}code{white-space:nowrap}"
    "@media(prefers-color-scheme:dark){body{color:#ddd;background:#181818}pre{background:#252525}"
    "td,th{border-color:#444}a{color:#8bf}}"
)


def page_of(description: dict[str, Any], base: str) -> str:
    """HTML of an OpenAPI description, with examples for the server at this address."""
    about = description["info"]
    parts = [f"<h1>{escape(about['title'])} {escape(about['version'])}</h1>", f"<p>{escape(about['description'])}</p>"]
    parts += ['<p>For machines: <a href="openapi.json">openapi.json</a>.</p>']
    for path, methods in description["paths"].items():
        for method, operation in methods.items():
            parts += _address(path, method, operation, description, base)
    style = f"<style>{STYLE}</style>"
    head = f'<meta charset="utf-8"><meta name="viewport" content="width=device-width">{style}'
    title = escape(about["title"])
    return (
        f'<!doctype html><html lang="en"><head><title>{title}</title>{head}</head><body>{"".join(parts)}</body></html>'
    )


def _address(
    path: str, method: str, operation: dict[str, Any], description: dict[str, Any], base: str
) -> Iterator[str]:
    yield f"<h2><code>{method.upper()} {escape(path)}</code></h2><p>{escape(operation.get('description', ''))}</p>"
    if path in EXAMPLES:
        yield f"<pre>{escape(EXAMPLES[path].replace('{base}', base.rstrip('/')))}</pre>"
    rows = [*_files(operation, description), *_parameters(operation, description)]
    if rows:
        yield f"<table><tr><th>name<th>type<th>meaning{''.join(rows)}</table>"
    failures = [f"<tr><td>{status}<td>{escape(each['description'])}" for status, each in _errors(operation)]
    if failures:
        yield f"<details><summary>Errors</summary><table>{''.join(failures)}</table></details>"


def _files(operation: dict[str, Any], description: dict[str, Any]) -> Iterator[str]:
    for content in operation.get("requestBody", {}).get("content", {}).values():
        schema = _resolved(content["schema"], description)
        for name, each in schema.get("properties", {}).items():
            needed = "file" if name in schema.get("required", ()) else "file, optional"
            yield _row(name, needed, each.get("description", ""))


def _parameters(operation: dict[str, Any], description: dict[str, Any]) -> Iterator[str]:
    for each in operation.get("parameters", ()):
        schema = _resolved(each["schema"], description)
        default = "" if each["required"] or "default" not in schema else f" Default: {schema['default']}."
        yield _row(each["name"], _kind(schema, description), each.get("description", "") + default)


def _kind(schema: dict[str, Any], description: dict[str, Any]) -> str:
    schema = _resolved(schema, description)
    if "anyOf" in schema:
        return " or ".join(_kind(each, description) for each in schema["anyOf"] if each.get("type") != "null")
    if "enum" in schema:
        return ", ".join(map(str, schema["enum"]))
    names = {"minimum": "from", "exclusiveMinimum": "above", "maximum": "to"}
    bounds = " ".join(f"{word} {schema[name]:g}" for name, word in names.items() if name in schema)
    return f"{schema.get('type', '')} {bounds}".strip()


def _resolved(schema: dict[str, Any], description: dict[str, Any]) -> dict[str, Any]:
    """What a reference leads to, with what is said beside it."""
    if "$ref" not in schema:
        return schema
    name = schema["$ref"].rpartition("/")[2]
    return {**description["components"]["schemas"][name], **schema}


def _errors(operation: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    return [(status, each) for status, each in operation["responses"].items() if not status.startswith("2")]


def _row(name: str, kind: str, meaning: str) -> str:
    return f"<tr><td><code>{escape(name)}</code><td>{escape(kind)}<td>{escape(meaning)}"
