//! Requests and answers as bytes: memcached's text protocol, of it get (of several keys), set,
//! delete, version and quit.

/// A key has at most so many bytes.
pub const KEY: usize = 250;
/// A value has at most so many: a whole request fits into a connection's window.
pub const VALUE: usize = 32 << 10;
/// The words before a value.
const LINE: usize = 2048;

/// A client's request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request<'a> {
    /// The values of these keys, of those that there are.
    Get(&'a [u8]),
    /// This pair from now on; `quiet`: no answer.
    Set {
        /// Its key.
        key: &'a [u8],
        /// The client's own number.
        flags: u32,
        /// Its value.
        value: &'a [u8],
        /// No answer.
        quiet: bool,
    },
    /// No such pair from now on.
    Delete {
        /// Its key.
        key: &'a [u8],
        /// No answer.
        quiet: bool,
    },
    /// The version of the server.
    Version,
    /// No more.
    Quit,
}

/// The parse of the first bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Parsed<'a> {
    /// The beginning of something.
    Incomplete,
    /// A request, and how many bytes it has.
    Request(Request<'a>, usize),
    /// No request that is known: so many bytes of it are skipped.
    Unknown(usize),
    /// After this nothing can be understood any more.
    Broken(&'static str),
}

/// The keys of a request.
pub fn words(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(|byte| *byte == b' ').filter(|word| !word.is_empty())
}

fn number(word: &[u8]) -> Option<u64> {
    std::str::from_utf8(word).ok()?.parse().ok()
}

/// Reads the first request.
pub fn parse(bytes: &[u8]) -> Parsed<'_> {
    let Some(end) = bytes.iter().take(LINE).position(|byte| *byte == b'\n') else {
        let broken = Parsed::Broken("CLIENT_ERROR line is too long\r\n");
        return if bytes.len() < LINE { Parsed::Incomplete } else { broken };
    };
    let line = bytes[..end].strip_suffix(b"\r").unwrap_or(&bytes[..end]);
    let after = end + 1;
    let mut rest = words(line);
    match rest.next() {
        Some(b"get") => {
            let keys = &line[3..];
            let fine = words(keys).count() > 0 && words(keys).all(|key| key.len() <= KEY);
            if fine { Parsed::Request(Request::Get(keys), after) } else { Parsed::Unknown(after) }
        }
        Some(b"set") => set(bytes, after, rest),
        Some(b"delete") => {
            let key = rest.next().filter(|key| key.len() <= KEY);
            let quiet = rest.next() == Some(b"noreply");
            match key {
                Some(key) => Parsed::Request(Request::Delete { key, quiet }, after),
                None => Parsed::Unknown(after),
            }
        }
        Some(b"version") => Parsed::Request(Request::Version, after),
        Some(b"quit") => Parsed::Request(Request::Quit, after),
        _ => Parsed::Unknown(after),
    }
}

/// set KEY FLAGS EXPIRES BYTES [noreply], and the value on a line of its own.
fn set<'a>(bytes: &'a [u8], after: usize, mut rest: impl Iterator<Item = &'a [u8]>) -> Parsed<'a> {
    let mut next = || rest.next();
    let (key, flags, expires, length) = (next(), next(), next(), next());
    let quiet = next() == Some(b"noreply");
    let flags = flags.and_then(number).and_then(|flags| u32::try_from(flags).ok());
    let (Some(key), Some(flags), Some(length)) = (key, flags, length.and_then(number)) else {
        return Parsed::Broken("CLIENT_ERROR bad command line format\r\n");
    };
    // (Nothing expires here: a client that wants that is told.)
    if key.len() > KEY || expires != Some(b"0") {
        return Parsed::Broken("CLIENT_ERROR bad command line format\r\n");
    }
    let Ok(length @ 0..=VALUE) = usize::try_from(length) else {
        return Parsed::Broken("SERVER_ERROR object too large for cache\r\n");
    };
    let Some(value) = bytes.get(after..after + length + 2) else { return Parsed::Incomplete };
    let Some(value) = value.strip_suffix(b"\r\n") else {
        return Parsed::Broken("CLIENT_ERROR bad data chunk\r\n");
    };
    Parsed::Request(Request::Set { key, flags, value, quiet }, after + length + 2)
}

/// A value as it is answered; behind the last one stands [`END`].
pub fn value(into: &mut Vec<u8>, key: &[u8], flags: u32, bytes: &[u8]) {
    into.extend_from_slice(b"VALUE ");
    into.extend_from_slice(key);
    into.push(b' ');
    digits(into, u64::from(flags));
    into.push(b' ');
    digits(into, bytes.len() as u64);
    into.extend_from_slice(b"\r\n");
    into.extend_from_slice(bytes);
    into.extend_from_slice(b"\r\n");
}

/// Behind all values.
pub const END: &[u8] = b"END\r\n";

/// The request that a client sends for it.
pub fn get(into: &mut Vec<u8>, key: &[u8]) {
    into.extend_from_slice(b"get ");
    into.extend_from_slice(key);
    into.extend_from_slice(b"\r\n");
}

/// Likewise.
pub fn put(into: &mut Vec<u8>, key: &[u8], bytes: &[u8]) {
    into.extend_from_slice(b"set ");
    into.extend_from_slice(key);
    into.extend_from_slice(b" 0 0 ");
    digits(into, bytes.len() as u64);
    into.extend_from_slice(b"\r\n");
    into.extend_from_slice(bytes);
    into.extend_from_slice(b"\r\n");
}

/// The answer to [`put`].
pub const STORED: &[u8] = b"STORED\r\n";

fn digits(into: &mut Vec<u8>, number: u64) {
    let mut text = [0; 20];
    let (mut left, mut at) = (number, text.len());
    loop {
        at -= 1;
        text[at] = b'0' + (left % 10) as u8;
        left /= 10;
        if left == 0 {
            break;
        }
    }
    into.extend_from_slice(&text[at..]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_read_whole_or_not_at_all() {
        let mut bytes = vec![];
        put(&mut bytes, b"key", b"va\r\nlue");
        get(&mut bytes, b"key");
        let set = Request::Set { key: b"key", flags: 0, value: b"va\r\nlue", quiet: false };
        let Parsed::Request(first, length) = parse(&bytes) else { panic!("{bytes:?}") };
        assert_eq!(first, set);
        assert_eq!(parse(&bytes[length..]), Parsed::Request(Request::Get(b" key"), 9));
        for end in 0..length {
            assert_eq!(parse(&bytes[..end]), Parsed::Incomplete, "{end}");
        }
    }

    #[test]
    fn a_line_that_is_no_request_is_refused() {
        assert_eq!(parse(b"gets k\r\n"), Parsed::Unknown(8));
        assert_eq!(parse(b"get \r\n"), Parsed::Unknown(6));
        assert!(matches!(parse(b"set k 0 0 99999999999\r\n"), Parsed::Broken(_)));
        assert!(matches!(parse(b"set k 0 0 1\r\nabc"), Parsed::Broken(_)));
        assert!(matches!(parse(b"set k 0 60 1\r\na\r\n"), Parsed::Broken(_)));
        assert!(matches!(parse(&[b'x'; LINE]), Parsed::Broken(_)));
        assert_eq!(parse(b"quit\n"), Parsed::Request(Request::Quit, 5));
    }

    #[test]
    fn numbers_are_written_as_rust_writes_them() {
        for number in [0, 7, 10, 12_345, u64::MAX] {
            let mut text = vec![];
            digits(&mut text, number);
            assert_eq!(text, number.to_string().into_bytes());
        }
    }
}
