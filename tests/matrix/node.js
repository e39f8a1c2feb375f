// Node under test: `serve PORT` (HTTP, TLS at PORT + 1, a raw TCP echo at PORT + 2), `ask PORT` (its client), `files`.
"use strict";
const crypto = require("crypto");
const fs = require("fs");
const http = require("http");
const https = require("https");
const net = require("net");
const path = require("path");
const zlib = require("zlib");
const { pipeline } = require("stream/promises");
const { Transform, PassThrough } = require("stream");

const digest = (data) => crypto.createHash("sha256").update(data).digest("hex").slice(0, 16);

function same(what, got, want) {
  if (Buffer.compare(got, want) === 0) return;
  let at = 0;
  while (at < got.length && at < want.length && got[at] === want[at]) at++;
  console.error(`${what}: ${got.length} bytes of ${want.length}, different from offset ${at} on`);
  process.exit(1);
}

async function collect(stream) {
  const pieces = [];
  for await (const piece of stream) pieces.push(piece);
  return Buffer.concat(pieces);
}

async function handle(request, response) {
  const [, how, name] = request.url.split("/");
  const file = path.basename(name ?? "");
  if (how === "pipe") return pipeline(fs.createReadStream(file, { highWaterMark: 300000 }), response);
  if (how === "read") return response.end(await fs.promises.readFile(file));
  if (how === "chunked") {
    const data = await fs.promises.readFile(file);
    for (let at = 0, size = 1000; at < data.length; at += size, size = (size * 3) % 999983) {
      const step = data.subarray(at, at + size);
      if (!response.write(step)) await new Promise((done) => response.once("drain", done));
    }
    return response.end();
  }
  if (how === "echo-concat") return response.end(await collect(request));
  if (how === "echo-pipe") return pipeline(request, new PassThrough({ highWaterMark: 1 << 20 }), response);
  if (how === "gzip") return pipeline(request, zlib.createGzip({ chunkSize: 256 << 10 }), response);
  if (how === "store") {
    await pipeline(request, fs.createWriteStream(file));
    return response.end();
  }
  response.statusCode = 404;
  response.end();
}

function serve(port) {
  const answer = (request, response) =>
    handle(request, response).catch((error) => {
      console.error(error);
      response.destroy();
    });
  const secret = { key: fs.readFileSync("key.pem"), cert: fs.readFileSync("cert.pem") };
  http.createServer(answer).listen(port, "127.0.0.1");
  https.createServer(secret, answer).listen(port + 1, "127.0.0.1");
  net.createServer({ allowHalfOpen: true }, (s) => s.pipe(s)).listen(port + 2, "127.0.0.1");
  process.on("SIGTERM", () => process.exit(0));
}

function send(module, options, body) {
  return new Promise((done, failed) => {
    const request = module.request(options, (response) =>
      response.statusCode === 200 ? collect(response).then(done, failed) : failed(new Error(`status ${response.statusCode}`)),
    );
    request.on("error", failed);
    if (!body) return request.end();
    // in unequal pieces
    for (let at = 0, size = 70001; at < body.length; at += size, size = (size * 5) % 1999993) {
      request.write(body.subarray(at, at + size));
    }
    request.end();
  });
}

async function ask(port) {
  const big = fs.readFileSync("big");
  const text = fs.readFileSync("text");
  const ca = fs.readFileSync("cert.pem");
  for (const [name, module, options] of [
    ["HTTP", http, { host: "127.0.0.1", port, agent: new http.Agent({ keepAlive: true }) }],
    ["TLS", https, { host: "127.0.0.1", servername: "localhost", port: port + 1, ca, agent: new https.Agent({ keepAlive: true }) }],
  ]) {
    for (const how of ["pipe", "read", "chunked"]) {
      const all = await Promise.all([1, 2, 3].map(() => send(module, { ...options, path: `/${how}/big` })));
      all.forEach((got) => same(`${name} GET ${how}`, got, big));
    }
    for (const how of ["echo-concat", "echo-pipe"]) {
      const all = await Promise.all([big, text, big].map((body) => send(module, { ...options, method: "POST", path: `/${how}` }, body)));
      [big, text, big].forEach((body, i) => same(`${name} POST ${how}`, all[i], body));
    }
    const packed = await send(module, { ...options, method: "POST", path: "/gzip" }, text);
    same(`${name} POST gzip`, zlib.gunzipSync(packed), text);
    console.log(`${name} ${digest(big)} ${digest(packed)}`);
    options.agent.destroy();
  }
  const socket = net.connect(port + 2, "127.0.0.1");
  socket.end(big);
  same("TCP echo", await collect(socket), big);
  console.log(`TCP ${digest(big)}`);
}

async function files() {
  const upside = () => new Transform({ transform: (piece, _, done) => done(null, Buffer.from(piece.map((b) => b ^ 255))) });
  await pipeline(
    fs.createReadStream("big", { highWaterMark: 1 << 20 }),
    upside(),
    upside(),
    fs.createWriteStream("big.copy", { highWaterMark: 2 << 20 }),
  );
  const big = fs.readFileSync("big");
  const copy = Buffer.alloc(big.length);
  for (let at = 0; at < big.length; at += 777777) big.copy(copy, at, at, at + 777777);
  // moves within one buffer, there and back
  copy.copyWithin(1000, 0, 8000000);
  copy.set(big.subarray(1000, 8001000), 1000);
  const out = fs.openSync("big.written", "w");
  for (let at = 0; at < copy.length; at += 1 << 20) fs.writeSync(out, copy, at, Math.min(1 << 20, copy.length - at));
  fs.closeSync(out);
  const handle = await fs.promises.open("big");
  const buffer = Buffer.allocUnsafe(3 << 20);
  for (let at = 0; at < big.length; at += buffer.length) {
    const { bytesRead } = await handle.read(buffer, 0, buffer.length, at);
    same("positioned read", Buffer.from(buffer.subarray(0, bytesRead)), big.subarray(at, at + bytesRead));
  }
  await handle.close();
  await pipeline(fs.createReadStream("text"), zlib.createGzip({ level: 6, chunkSize: 512 << 10 }), fs.createWriteStream("text.gz"));
  await pipeline(fs.createReadStream("text.gz"), zlib.createGunzip({ chunkSize: 1 << 20 }), fs.createWriteStream("text.back"));
  fs.writeFileSync("text.z", zlib.deflateSync(fs.readFileSync("text")));
  console.log(`memory ${digest(copy)}`);
}

const fail = (error) => {
  console.error(error);
  process.exit(1);
};
const [what, port] = process.argv.slice(2);
if (what === "serve") serve(Number(port));
else (what === "ask" ? ask(Number(port)) : files()).catch(fail);
