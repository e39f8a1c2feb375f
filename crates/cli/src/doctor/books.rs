//! The cost of the tracker's books alone.

use uncopy_measure::Failure;
use uncopy_measure::tracker_alone::{
    BUFFERS, COPIED, RECEIVED, SIZE, TrackerAlone, UNSUITABLE, buffer,
};

use super::measured::{Measured, Work};
use super::sample::{of, time};

/// Time of `work` for one of all buffers.
fn each(books: &mut TrackerAlone, mut work: impl FnMut(&mut TrackerAlone, usize)) -> f64 {
    time(|| (0..BUFFERS).for_each(|i| work(books, i))) / BUFFERS as f64
}

/// Measures; calls `done` after each piece of work.
pub fn measure(results: &mut Vec<Measured>, mut done: impl FnMut()) -> Result<(), Failure> {
    let mut books = TrackerAlone::new();
    let mut put = |work, ns| {
        results.push(Measured { work, bytes: 0, ns });
        done();
    };
    // The first copy moves the source out; from then on both sides are unmapped.
    for i in 0..BUFFERS {
        books.copy(buffer(COPIED, i), buffer(RECEIVED, i), SIZE);
    }
    if books.elided() != BUFFERS as u64 {
        return Err(Failure::new("the simulated tracker elided nothing"));
    }
    put(Work::BooksInput, of(|| each(&mut books, |b, i| b.receive(buffer(RECEIVED, i)))));
    put(
        Work::BooksAgain,
        of(|| {
            each(&mut books, |b, i| b.receive(buffer(RECEIVED, i)));
            each(&mut books, |b, i| b.copy(buffer(COPIED, i), buffer(RECEIVED, i), SIZE))
        }),
    );
    put(Work::BooksOutput, of(|| each(&mut books, |b, i| b.send(buffer(COPIED, i)))));
    let mut parts = 0;
    put(
        Work::BooksElide,
        of(|| {
            // Never as long as the last one.
            parts = (parts + 1) % 2;
            let len = SIZE - parts * (SIZE / 4);
            each(&mut books, |b, i| b.copy(buffer(COPIED, i), buffer(RECEIVED, i), len))
        }),
    );
    put(
        Work::BooksLook,
        of(|| {
            each(&mut books, |b, i| {
                b.copy(buffer(UNSUITABLE, i) + SIZE, buffer(UNSUITABLE, i), SIZE)
            })
        }),
    );
    Ok(())
}
