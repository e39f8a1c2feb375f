// An echo server and an HTTP server of Node's, and a client that asks each over several connections,
// one question at a time: `serve PORT`, `ask PORT echo|http|short CONNECTIONS SECONDS`. See libuv.py.
"use strict";
const http = require("http");
const net = require("net");

const [what, port, kind, connections, seconds] = process.argv.slice(2);
const question = Buffer.alloc(64, "q");

function serve() {
  net.createServer((socket) => socket.setNoDelay(true).pipe(socket)).listen(+port, "127.0.0.1");
  const answer = Buffer.alloc(100, "a");
  http.createServer((_, response) => response.end(answer)).listen(+port + 1, "127.0.0.1", () => {
    console.log("ready");
  });
  process.on("SIGTERM", () => process.exit(0));
}

function ask() {
  const end = Date.now() + seconds * 1000;
  const begun = process.hrtime.bigint();
  let answers = 0;
  let open = +connections;
  const closed = () => {
    if (--open === 0) console.log(answers / (Number(process.hrtime.bigint() - begun) / 1e9));
  };
  for (let i = 0; i < +connections; i++) {
    if (kind === "echo") {
      const socket = net.connect(+port, "127.0.0.1", () => socket.write(question));
      let left = question.length;
      socket.setNoDelay(true);
      socket.on("data", (bytes) => {
        left -= bytes.length;
        if (left > 0) return;
        answers++;
        left = question.length;
        if (Date.now() < end) socket.write(question);
        else socket.end();
      });
      socket.on("close", closed);
    } else {
      const agent = new http.Agent({ keepAlive: kind === "http", maxSockets: 1 });
      const one = () => {
        http.get({ agent, host: "127.0.0.1", port: +port + 1 }, (response) => {
          response.resume();
          response.on("end", () => {
            answers++;
            if (Date.now() < end) return setImmediate(one);
            agent.destroy();
            closed();
          });
        });
      };
      one();
    }
  }
}

if (what === "serve") serve();
else ask();
