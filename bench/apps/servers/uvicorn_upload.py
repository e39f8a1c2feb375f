"""uvicorn with h11: joins a request's body from its parts, answers with its length (with `?digest`, its SHA-256)."""

import hashlib
import sys

import uvicorn


async def app(scope, receive, send):
    if scope["type"] != "http":
        return
    parts, more = [], True
    while more:
        message = await receive()
        parts.append(message.get("body", b""))
        more = message.get("more_body", False)
    body = b"".join(parts)
    text = hashlib.sha256(body).hexdigest() if b"digest" in scope["query_string"] else str(len(body))
    headers = [(b"content-length", str(len(text)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": text.encode()})


uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), http="h11", loop="asyncio", lifespan="off", log_level="warning", access_log=False)
