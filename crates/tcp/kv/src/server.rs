//! From events to answers. Requests that come together are answered together; a client that does
//! not read its answers is not read from.

use crate::protocol::{self, END, Parsed, Request, STORED, parse, words};
use crate::store::Store;
use std::collections::HashMap;
use std::io;
use std::time::Duration;
use uncopy_tcp_events::{Context, Id};

/// So many bytes of answers are made before they are sent: what follows is read after that.
const ANSWERS: usize = 64 << 10;

/// The answer to one request is at most so long: a client that asks for more keys than that holds
/// is told so, as memcached does.
const ANSWER: usize = 1 << 20;
const TOO_MUCH: &[u8] = b"SERVER_ERROR out of memory writing get response\r\n";

/// Serves a context's connections from a store.
#[derive(Debug)]
pub struct Server<'a> {
    store: &'a Store,
    /// Answers that did not go out yet, and whether the connection ends with them: of hardly any
    /// connection.
    backlog: HashMap<Id, (Vec<u8>, bool)>,
    answers: Vec<u8>,
}

impl<'a> Server<'a> {
    /// A server that answers from this store.
    pub fn new(store: &'a Store) -> Self {
        Self { store, backlog: HashMap::new(), answers: vec![] }
    }

    /// Serves until nothing has come for so long; `None`: for ever.
    ///
    /// # Errors
    /// Those of [`Context::poll`].
    pub fn serve(&mut self, context: &mut Context, timeout: Option<Duration>) -> io::Result<()> {
        loop {
            let events = context.poll(timeout)?;
            for i in 0..events {
                self.attend(context, i);
            }
            if events == 0 && timeout.is_some() {
                return Ok(());
            }
        }
    }

    /// Answers what came with event `i`.
    fn attend(&mut self, context: &mut Context, i: usize) {
        let event = context.event(i);
        let connection = event.connection;
        if event.what.is_of_listener() {
            return;
        }
        if let Some((rest, ends)) = self.backlog.get_mut(&connection) {
            match context.send(connection, rest) {
                Ok(sent) if sent < rest.len() => {
                    rest.drain(..sent);
                    return;
                }
                Ok(_) if !*ends => drop(self.backlog.remove(&connection)),
                _ => return self.close(context, connection),
            }
        }
        let (taken, over) = self.answer(context.bytes(i));
        context.take(i, taken);
        let sent = match context.send(connection, &self.answers) {
            Ok(sent) => sent,
            Err(_) => return self.close(context, connection),
        };
        if sent < self.answers.len() {
            self.backlog.insert(connection, (self.answers[sent..].to_vec(), over));
            return;
        }
        if self.answers.len() >= ANSWERS {
            context.again(connection);
        } else if over || context.is_over(connection) {
            self.close(context, connection);
        }
    }

    fn close(&mut self, context: &mut Context, connection: Id) {
        self.backlog.remove(&connection);
        context.close(connection);
    }

    /// Answers the requests in `bytes`: how many bytes they have, and whether the connection is to
    /// end.
    fn answer(&mut self, bytes: &[u8]) -> (usize, bool) {
        self.answers.clear();
        let mut taken = 0;
        while self.answers.len() < ANSWERS {
            let (request, length) = match parse(&bytes[taken..]) {
                Parsed::Incomplete => break,
                Parsed::Request(request, length) => (request, length),
                Parsed::Unknown(length) => {
                    self.answers.extend_from_slice(b"ERROR\r\n");
                    taken += length;
                    continue;
                }
                Parsed::Broken(why) => {
                    self.answers.extend_from_slice(why.as_bytes());
                    return (bytes.len(), true);
                }
            };
            taken += length;
            let answers = &mut self.answers;
            match request {
                Request::Get(keys) => {
                    let begin = answers.len();
                    for key in words(keys) {
                        self.store.get(key, |value| {
                            protocol::value(answers, key, value.flags, &value.bytes);
                        });
                        if answers.len() - begin > ANSWER {
                            break;
                        }
                    }
                    if answers.len() - begin > ANSWER {
                        answers.truncate(begin);
                        answers.extend_from_slice(TOO_MUCH);
                    } else {
                        answers.extend_from_slice(END);
                    }
                }
                Request::Set { key, flags, value, quiet } => {
                    self.store.set(key, flags, value);
                    if !quiet {
                        answers.extend_from_slice(STORED);
                    }
                }
                Request::Delete { key, quiet } => {
                    let was = self.store.delete(key);
                    if !quiet {
                        let answer: &[u8] = if was { b"DELETED\r\n" } else { b"NOT_FOUND\r\n" };
                        answers.extend_from_slice(answer);
                    }
                }
                Request::Version => {
                    let version = concat!("VERSION ", env!("CARGO_PKG_VERSION"), "\r\n");
                    answers.extend_from_slice(version.as_bytes());
                }
                Request::Quit => return (taken, true),
            }
        }
        (taken, false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::VALUE;

    /// A request of 2 KB that names a value of 32 KB a thousand times.
    #[test]
    fn an_answer_to_one_request_is_bounded() {
        let store = Store::default();
        store.set(b"k", 0, &vec![b'x'; VALUE]);
        let mut server = Server::new(&store);
        let mut request = b"get".to_vec();
        request.extend_from_slice(&b" k".repeat(1000));
        request.extend_from_slice(b"\r\n");
        let both = [request.as_slice(), b"get nothing\r\n"].concat();
        assert_eq!(server.answer(&both), (both.len(), false));
        assert!(server.answers.capacity() < 4 * ANSWER, "{}", server.answers.capacity());
        assert_eq!(server.answers, [TOO_MUCH, END].concat());
        // The values that fit come.
        let few = [b"get".as_slice(), &b" k".repeat(20), b"\r\n"].concat();
        assert_eq!(server.answer(&few), (few.len(), false));
        assert!(server.answers.len() > 20 * VALUE && server.answers.ends_with(END));
    }
}
