"""aiohttp: reads a request's body whole, answers with its length (with `?digest`, its SHA-256)."""

import hashlib
import sys

from aiohttp import web


async def upload(request):
    body = await request.read()
    if "digest" in request.query:
        return web.Response(text=hashlib.sha256(body).hexdigest())
    return web.Response(text=str(len(body)))


app = web.Application(client_max_size=1 << 30)
app.router.add_post("/", upload)
web.run_app(app, host="127.0.0.1", port=int(sys.argv[1]), print=None, access_log=None)
