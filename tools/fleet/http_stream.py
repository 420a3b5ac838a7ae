"""Requests over HTTP/1.1 with asyncio, for as many at once as a trace has, without a package."""

import asyncio
import contextlib
import json
import urllib.parse


class Refused(RuntimeError):
    """The server said no, or the answer ended early."""


class Reply:
    def __init__(self, status, headers, reader):
        self.status, self.headers, self.reader = status, headers, reader

    async def pieces(self):
        if self.headers.get("transfer-encoding") != "chunked":
            length = self.headers.get("content-length")
            if length is not None:
                yield await self.reader.readexactly(int(length))
            else:
                yield await self.reader.read()
            return
        while size := int((await self.reader.readline()).split(b";")[0], 16):
            yield await self.reader.readexactly(size)
            await self.reader.readline()
        await self.reader.readline()

    async def body(self):
        return b"".join([piece async for piece in self.pieces()])

    async def events(self):
        """The JSON of each event of a stream, as it comes."""
        rest = b""
        async for piece in self.pieces():
            *lines, rest = (rest + piece).split(b"\n")
            for line in lines:
                if line.startswith(b"data: {"):
                    yield json.loads(line[len(b"data: "):])


@contextlib.asynccontextmanager
async def send(url, path, body=None, timeout_s=600):
    """A Reply whose status and headers are there."""
    place = urllib.parse.urlsplit(url)
    reader, writer = await asyncio.open_connection(place.hostname, place.port, limit=1 << 22)
    try:
        data = b"" if body is None else json.dumps(body).encode()
        writer.write(f"{'GET' if body is None else 'POST'} {path} HTTP/1.1\r\n"
                     f"Host: {place.netloc}\r\nContent-Type: application/json\r\n"
                     f"Content-Length: {len(data)}\r\nConnection: close\r\n\r\n".encode() + data)
        await writer.drain()
        status = int((await asyncio.wait_for(reader.readline(), timeout_s)).split()[1])
        headers = {}
        while (line := (await reader.readline()).decode().strip()):
            name, _, value = line.partition(":")
            headers[name.lower()] = value.strip()
        yield Reply(status, headers, reader)
    finally:
        writer.close()


async def ask(url, path, body=None):
    """The JSON of an answer with status 200."""
    async with send(url, path, body) as reply:
        text = await reply.body()
        if reply.status != 200:
            raise Refused(f"{path}: HTTP {reply.status}: {text[:300].decode(errors='replace')}")
        return json.loads(text)
