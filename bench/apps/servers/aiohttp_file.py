"""aiohttp: reads a file whole for each request, and answers with it."""

import os
import sys

from aiohttp import web

ROOT = sys.argv[2]


async def get(request):
    with open(os.path.join(ROOT, request.match_info["name"]), "rb", buffering=0) as f:
        return web.Response(body=f.read())


app = web.Application()
app.router.add_get("/{name}", get)
web.run_app(app, host="127.0.0.1", port=int(sys.argv[1]), print=None, access_log=None)
