//! The blocks that one peer has been given, each by a number, a *handle*. The peer says how many
//! bytes of it it has done with, in any order and in any parts; when that is all of them the block
//! is free. Its word is believed to its own harm only: a peer that says too much sees other bytes,
//! one that says too little is charged for it.

/// Handles that one peer has: more blocks than these are never out to it.
pub const HANDLES: usize = 512;

/// The places that are charged within a peer: its connections.
pub const PLACES: usize = 256;

/// Bytes that one connection may have out, whatever it has received of them; beyond that its bytes
/// are copied.
pub const MOST_OF_ONE: u64 = 4 << 20;

/// The blocks that are out to one peer. `T` is kept as long.
#[derive(Debug)]
pub struct Out<T> {
    handles: Vec<Option<Given<T>>>,
    free: Vec<u16>,
    bytes: u64,
    of: Box<[u64; PLACES]>,
}

#[derive(Debug)]
struct Given<T> {
    what: T,
    bytes: u32,
    place: u8,
}

impl<T> Default for Out<T> {
    fn default() -> Self {
        Self { handles: vec![], free: vec![], bytes: 0, of: Box::new([0; PLACES]) }
    }
}

impl<T> Out<T> {
    /// Bytes that are out.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Nothing is out.
    pub fn is_empty(&self) -> bool {
        self.free.len() == self.handles.len()
    }

    /// So many bytes more may be given to this connection's end.
    pub fn may(&self, place: u8, bytes: u32) -> bool {
        self.of[usize::from(place)] + u64::from(bytes) <= MOST_OF_ONE
            && (!self.free.is_empty() || self.handles.len() < HANDLES)
    }

    /// Gives it, if it [may](Self::may) be.
    ///
    /// # Errors
    /// It may not: what was to be given.
    pub fn give(&mut self, place: u8, bytes: u32, what: T) -> Result<u16, T> {
        if !self.may(place, bytes) {
            return Err(what);
        }
        let handle = self.free.pop().unwrap_or_else(|| {
            self.handles.push(None);
            self.handles.len() as u16 - 1
        });
        self.handles[usize::from(handle)] = Some(Given { what, bytes, place });
        self.bytes += u64::from(bytes);
        self.of[usize::from(place)] += u64::from(bytes);
        Ok(handle)
    }

    /// The peer says that it has done with so many bytes of this, in all. Returns what was kept, if
    /// that is all of it.
    pub fn done(&mut self, handle: u16, bytes: u32) -> Option<T> {
        let given = self.handles.get_mut(usize::from(handle))?;
        let Given { what, bytes, place } = given.take_if(|given| given.bytes == bytes)?;
        self.free.push(handle);
        self.bytes -= u64::from(bytes);
        self.of[usize::from(place)] -= u64::from(bytes);
        Some(what)
    }

    /// All that is out.
    pub fn all(&self) -> impl Iterator<Item = &T> {
        self.handles.iter().flatten().map(|given| &given.what)
    }

    /// What is out to this connection's end.
    pub fn of(&self, place: u8) -> impl Iterator<Item = &T> {
        let some = self.of[usize::from(place)] > 0;
        let all = if some { &self.handles[..] } else { &[] };
        all.iter().flatten().filter(move |given| given.place == place).map(|given| &given.what)
    }

    /// All that is out comes back: the peer is no more.
    pub fn take_all(&mut self) -> impl Iterator<Item = T> {
        self.free.clear();
        self.bytes = 0;
        self.of.fill(0);
        std::mem::take(&mut self.handles).into_iter().flatten().map(|given| given.what)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_that_are_out_come_back_in_any_order_when_all_of_them_is_done() {
        let mut out = Out::default();
        let a = out.give(0, 1000, 'a').unwrap();
        let b = out.give(1, 500, 'b').unwrap();
        assert_eq!(out.bytes(), 1500);
        assert_eq!((out.done(b, 499), out.done(a, 1)), (None, None));
        assert_eq!(out.done(b, 500), Some('b'));
        assert_eq!(out.done(b, 500), None, "it is no more");
        assert_eq!(out.give(2, 7, 'c'), Ok(b), "its number is another's");
        assert_eq!((out.done(a, 1000), out.bytes()), (Some('a'), 7));
        assert!(!out.is_empty());
        assert_eq!(out.take_all().collect::<Vec<_>>(), ['c']);
        assert!(out.is_empty() && out.bytes() == 0);
    }

    #[test]
    fn a_connection_that_keeps_too_much_gets_no_more_and_others_do() {
        let mut out = Out::default();
        let most = MOST_OF_ONE as u32;
        let first = out.give(3, most - 10, 1).unwrap();
        assert_eq!(out.give(3, 11, 2), Err(2));
        assert!(out.may(3, 10) && out.give(4, most, 3).is_ok());
        assert_eq!(out.done(first, most - 10), Some(1));
        assert!(out.give(3, most, 4).is_ok());
    }

    #[test]
    fn a_peer_has_so_many_handles_and_each_is_its_own() {
        let mut out = Out::default();
        let mut handles: Vec<u16> =
            (0..HANDLES).map(|i| out.give(i as u8, 1, i).unwrap()).collect();
        assert_eq!(out.give(0, 1, 0), Err(0));
        handles.sort_unstable();
        handles.dedup();
        assert_eq!(handles.len(), HANDLES);
        assert!(handles.iter().all(|handle| usize::from(*handle) < HANDLES));
        assert!(out.done(u16::MAX, 1).is_none(), "there is none of this number");
    }
}
