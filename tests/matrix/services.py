"""Servers that give back what they get, in the ways of Python's libraries, and their clients: serve KIND PORT, ask KIND PORT, numpy."""

import asyncio
import hashlib
import pickle
import random
import signal
import sys

SIZES = [0, 1, 4095, 65536, 70001, 262144, 1_000_003, 4 << 20, 9_000_001]
BODIES = [random.Random(size).randbytes(size) for size in SIZES]
MOST = 64 << 20


def stop_on_term(loop, event):
    loop.add_signal_handler(signal.SIGTERM, event.set)


# ---- asyncio streams: a length and so many bytes, echoed after they were joined with others ----


async def echo(reader, writer):
    try:
        while True:
            size = int.from_bytes(await reader.readexactly(8), "big")
            data = bytearray()
            while len(data) < size:
                data += await reader.read(min(size - len(data), 300_000))
            writer.write(size.to_bytes(8, "big") + data)
            await writer.drain()
    except asyncio.IncompleteReadError:
        writer.close()


async def serve_streams(port):
    stop = asyncio.Event()
    stop_on_term(asyncio.get_running_loop(), stop)
    async with await asyncio.start_server(echo, "127.0.0.1", port, limit=1 << 20):
        await stop.wait()


async def ask_streams(port):
    async def one():
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 20)
        for body in BODIES:
            async def send(body=body):
                writer.write(len(body).to_bytes(8, "big"))
                writer.writelines(body[at : at + 123_457] for at in range(0, len(body), 123_457))
                await writer.drain()

            sending = asyncio.create_task(send())
            size = int.from_bytes(await reader.readexactly(8), "big")
            check("streams", await reader.readexactly(size), body)
            await sending
        writer.close()

    await asyncio.gather(*(one() for _ in range(3)))


# ---- HTTP: aiohttp's server, uvicorn's; aiohttp's client ----


async def serve_aiohttp(port):
    from aiohttp import web

    async def whole(request):
        return web.Response(body=await request.read())

    async def stream(request):
        response = web.StreamResponse()
        await response.prepare(request)
        async for piece in request.content.iter_any():
            await response.write(piece)
        await response.write_eof()
        return response

    async def form(request):
        fields = await request.post()
        return web.Response(body=fields["file"].file.read())

    app = web.Application(client_max_size=MOST)
    app.add_routes([web.post("/whole", whole), web.post("/stream", stream), web.post("/form", form)])
    stop = asyncio.Event()
    stop_on_term(asyncio.get_running_loop(), stop)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    await stop.wait()
    await runner.cleanup()


async def asgi(scope, receive, send):
    if scope["type"] != "http":
        return
    headers = {"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"application/octet-stream")]}
    pieces, more = [], True
    if scope["path"] == "/stream":
        await send(headers)
    while more:
        message = await receive()
        more = message.get("more_body", False)
        if scope["path"] == "/stream":
            await send({"type": "http.response.body", "body": message["body"], "more_body": more})
        else:
            pieces.append(message["body"])
    if scope["path"] != "/stream":
        await send(headers)
        await send({"type": "http.response.body", "body": b"".join(pieces)})


def serve_uvicorn(port):
    import uvicorn

    server = uvicorn.Server(uvicorn.Config(asgi, host="127.0.0.1", port=port, log_level="error", lifespan="off"))
    try:
        server.run()
    except KeyboardInterrupt:
        pass


async def ask_http(port, paths):
    import aiohttp

    async def pieces(body):
        for at in range(0, len(body), 200_003):
            yield body[at : at + 200_003]

    async def one(session):
        for path in paths:
            for body in BODIES:
                if path == "/form":
                    data = aiohttp.FormData()
                    data.add_field("file", body, filename="file")
                    ways = [data]
                else:
                    ways = [body, pieces(body)]
                for data in ways:
                    async with session.post(f"http://127.0.0.1:{port}{path}", data=data) as response:
                        assert response.status == 200, f"{path}: status {response.status}"
                        check(path, await response.read(), body)

    timeout = aiohttp.ClientTimeout(total=300)
    async with aiohttp.ClientSession(timeout=timeout) as session:
        await asyncio.gather(one(session), one(session))


# ---- gRPC: bytes as they are, one message, streams of messages both ways ----

LIMITS = [("grpc.max_receive_message_length", MOST), ("grpc.max_send_message_length", MOST)]


def serve_grpc(port):
    from concurrent import futures

    import grpc

    methods = {
        "Echo": grpc.unary_unary_rpc_method_handler(lambda body, _: body),
        "Join": grpc.stream_unary_rpc_method_handler(lambda bodies, _: b"".join(bodies)),
        "Split": grpc.unary_stream_rpc_method_handler(
            lambda body, _: (body[at : at + 500_001] for at in range(0, len(body), 500_001))
        ),
        "Chat": grpc.stream_stream_rpc_method_handler(lambda bodies, _: bodies),
    }
    server = grpc.server(futures.ThreadPoolExecutor(4), options=LIMITS)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("matrix.Bytes", methods),))
    server.add_insecure_port(f"127.0.0.1:{port}")
    server.start()
    signal.sigwait({signal.SIGTERM})
    server.stop(1).wait()


def ask_grpc(port):
    import grpc

    with grpc.insecure_channel(f"127.0.0.1:{port}", options=LIMITS) as channel:
        for body in BODIES:
            check("Echo", channel.unary_unary("/matrix.Bytes/Echo")(body, timeout=120), body)
            check("Split", b"".join(channel.unary_stream("/matrix.Bytes/Split")(body, timeout=120)), body)
        check("Join", channel.stream_unary("/matrix.Bytes/Join")(iter(BODIES), timeout=120), b"".join(BODIES))
        answers = list(channel.stream_stream("/matrix.Bytes/Chat")(iter(BODIES * 2), timeout=120))
        assert len(answers) == 2 * len(BODIES)
        for got, want in zip(answers, BODIES * 2):
            check("Chat", got, want)
        calls = [channel.unary_unary("/matrix.Bytes/Echo").future(body, timeout=120) for body in BODIES * 2]
        for future, want in zip(calls, BODIES * 2):
            check("Echo, at once", future.result(), want)


def arrays():
    import numpy

    a = numpy.arange(1_000_000, dtype="<u4")
    a.tofile("array.bin")
    b = numpy.fromfile("array.bin", dtype="<u4")
    assert numpy.array_equal(a, b)
    c = b.reshape(1000, 1000).T.copy().T  # transposed twice, copied between
    numpy.save("array.npy", numpy.ascontiguousarray(c))
    d = numpy.load("array.npy")
    assert numpy.array_equal(d.ravel(), a)
    e = numpy.concatenate([numpy.fromfile("array.bin", dtype="<u4") for _ in range(4)])
    e[: len(a)] = d.ravel()
    with open("pickle", "wb") as f:
        pickle.dump({"array": e, "bodies": BODIES}, f, protocol=5)
    with open("pickle", "rb") as f:
        back = pickle.load(f)
    assert numpy.array_equal(back["array"], numpy.tile(a, 4)) and back["bodies"] == BODIES
    m = numpy.memmap("array.bin", dtype="<u4", mode="r")
    assert int(m.sum(dtype="u8")) == int(a.sum(dtype="u8"))
    print("numpy", hashlib.sha256(e.tobytes()).hexdigest()[:16])


def check(what, got, want):
    if bytes(got) != want:
        at = next((i for i, (x, y) in enumerate(zip(got, want)) if x != y), min(len(got), len(want)))
        sys.exit(f"{what}: {len(got)} bytes of {len(want)}, different from offset {at} on")


def main(what, kind="", port="0"):
    port = int(port)
    # before any thread is made, so that none of them takes the signal
    if what == "serve" and kind == "grpc":
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    if what == "numpy":
        return arrays()
    if what == "serve":
        served = {"streams": serve_streams, "aiohttp": serve_aiohttp, "uvicorn": serve_uvicorn, "grpc": serve_grpc}[kind](port)
    else:
        served = {
            "streams": ask_streams,
            "aiohttp": lambda port: ask_http(port, ["/whole", "/stream", "/form"]),
            "uvicorn": lambda port: ask_http(port, ["/whole", "/stream"]),
            "grpc": ask_grpc,
        }[kind](port)
    if asyncio.iscoroutine(served):
        asyncio.run(served)
    if what == "ask":
        print(kind, hashlib.sha256(b"".join(BODIES)).hexdigest()[:16])


main(*sys.argv[1:])
