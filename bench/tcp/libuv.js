// An echo server and an HTTP server of Node's, and a client that asks each over several connections,
// one question at a time: `serve` says its two ports, then `ask PORT echo|http|short CONNECTIONS
// SECONDS`. See libuv.py.
"use strict";
const http = require("http");
const net = require("net");

const [what, port, kind, connections, seconds] = process.argv.slice(2);
const question = Buffer.alloc(64, "q");

function serve() {
  const echo = net.createServer((socket) => socket.setNoDelay(true).pipe(socket));
  const answer = Buffer.alloc(100, "a");
  const answers = http.createServer((_, response) => response.end(answer));
  echo.listen(0, "127.0.0.1", () => {
    answers.listen(0, "127.0.0.1", () => {
      console.log(echo.address().port, answers.address().port);
    });
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
        http.get({ agent, host: "127.0.0.1", port: +port }, (response) => {
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
