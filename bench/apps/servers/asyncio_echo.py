"""asyncio streams: reads messages of a fixed length with readexactly, sends each back."""

import asyncio
import sys


async def echo(reader, writer):
    size = int.from_bytes(await reader.readexactly(8), "little")
    try:
        while True:
            writer.write(await reader.readexactly(size))
            await writer.drain()
    except asyncio.IncompleteReadError:
        writer.close()


async def main():
    server = await asyncio.start_server(echo, "127.0.0.1", int(sys.argv[1]), limit=4 << 20)
    await server.serve_forever()


asyncio.run(main())
