// Node.js: joins a request's body with Buffer.concat, answers with its length (with `?digest`, its SHA-256).
const http = require('http');
const crypto = require('crypto');
http.createServer((request, response) => {
  const parts = [];
  request.on('data', (part) => parts.push(part));
  request.on('end', () => {
    const body = Buffer.concat(parts);
    const digest = request.url.includes('digest');
    response.end(digest ? crypto.createHash('sha256').update(body).digest('hex') : String(body.length));
  });
}).listen(Number(process.argv[2]), '127.0.0.1');
