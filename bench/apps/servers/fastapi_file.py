"""FastAPI behind uvicorn: `GET /SIZE` answers with so many bytes, made once and kept by the program."""

import functools
import random
import sys

import uvicorn
from fastapi import FastAPI, Response

app = FastAPI()


@functools.cache
def content(size):
    return random.Random(size).randbytes(size)


@app.get("/{size}")
async def answer(size: int):
    return Response(content(size), media_type="application/octet-stream")


uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), http="h11", loop="asyncio", log_level="warning", access_log=False)
