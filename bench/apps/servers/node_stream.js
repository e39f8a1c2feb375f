// Node.js: a request's body goes through streams (PassThrough, then a sink); the answer is its length (with `?digest`, its SHA-256).
const http = require('http');
const crypto = require('crypto');
const { PassThrough, pipeline } = require('stream');
http.createServer((request, response) => {
  const hash = request.url.includes('digest') ? crypto.createHash('sha256') : null;
  let length = 0;
  const through = new PassThrough({ highWaterMark: 1 << 20 });
  through.on('data', (part) => {
    length += part.length;
    if (hash) hash.update(part);
  });
  pipeline(request, through, (error) => {
    if (!error) response.end(hash ? hash.digest('hex') : String(length));
  });
}).listen(Number(process.argv[2]), '127.0.0.1');
