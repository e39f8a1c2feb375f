//! The cost of userfaultfd's calls and faults.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use uncopy_kernel::uffd::{Event, FEATURE_MOVE, Maker, Msg, Uffd};
use uncopy_measure::{Failure, cores};
use uncopy_ranges::span::{PAGE, Span};

use super::mapping::Mapping;
use super::measured::{Measured, SIZES, Work};
use super::sample::{of, time};

/// Pages that are filled around a fault: one, or these.
const AROUND: [usize; 2] = [1, 16];

/// Measures, with faults taken and answered on the first of `available` cores; calls `done` after
/// each piece of work.
pub fn measure(
    available: &[usize],
    results: &mut Vec<Measured>,
    mut done: impl FnMut(),
) -> Result<(), Failure> {
    let uffd = Maker::open()
        .make(FEATURE_MOVE)
        .map_err(|why| Failure::new("no userfaultfd").because(format_args!("{why:?}")))?;
    let mut put = |work, bytes, ns| {
        results.push(Measured { work, bytes, ns });
        done();
    };
    calls(&uffd, &mut put)?;

    let own = available[0];
    let places =
        [(Work::FaultSameCore, Some(own)), (Work::FaultOtherCore, available.get(1).copied())];
    for (work, handler) in places {
        let Some(handler) = handler else { continue };
        for pages in AROUND {
            put(work, pages * PAGE, faults(own, handler, pages)?);
        }
    }
    Ok(())
}

fn calls(uffd: &Uffd, put: &mut impl FnMut(Work, usize, f64)) -> Result<(), Failure> {
    let largest = SIZES[SIZES.len() - 1];
    // The end stays unregistered, so that registering splits the mapping as it mostly does.
    let (memory, other) = (Mapping::map(largest + PAGE)?, Mapping::map(largest)?);
    memory.touch(memory.part(largest, PAGE));
    other.touch(other.span());
    for size in SIZES {
        let (here, there) = (memory.part(0, size), other.part(0, size));
        let mut refusal = None;
        uffd.register(here).map_err(|e| Failure::new("UFFDIO_REGISTER failed").because(e))?;
        let fill = of(|| {
            memory.discard(here);
            time(|| refusal = refusal.or(uffd.copy(here, there.start).1))
        });
        let moved = of(|| {
            memory.discard(here);
            other.touch(there);
            time(|| refusal = refusal.or(uffd.move_pages(here.start, there, false).1))
        });
        other.touch(there);
        uffd.unregister(here).map_err(|e| Failure::new("UFFDIO_UNREGISTER failed").because(e))?;
        if let Some(why) = refusal {
            return Err(Failure::new("UFFDIO_COPY or UFFDIO_MOVE failed").because(why));
        }
        put(Work::Fill, size, fill);
        put(Work::Move, size, moved);
    }
    let part = memory.part(0, 64 << 10);
    let mut refusal = None;
    let register = of(|| {
        let register = time(|| refusal = refusal.or(uffd.register(part).err()));
        refusal = refusal.or(uffd.unregister(part).err());
        register
    });
    let unregister = of(|| {
        refusal = refusal.or(uffd.register(part).err());
        time(|| refusal = refusal.or(uffd.unregister(part).err()))
    });
    if let Some(why) = refusal {
        return Err(Failure::new("UFFDIO_REGISTER failed").because(why));
    }
    put(Work::Register, part.len(), register);
    put(Work::Unregister, part.len(), unregister);
    Ok(())
}

/// Time of a touch that a thread on core `handler` answers with `pages` pages, seen from a thread
/// on core `own`.
pub fn faults(own: usize, handler: usize, pages: usize) -> Result<f64, Failure> {
    let uffd = Maker::open()
        .make(FEATURE_MOVE)
        .map_err(|why| Failure::new("no userfaultfd").because(format_args!("{why:?}")))?;
    let (memory, content) = (Mapping::map(pages * PAGE)?, Mapping::map(pages * PAGE)?);
    content.touch(content.span());
    uffd.register(memory.span()).map_err(|e| Failure::new("UFFDIO_REGISTER failed").because(e))?;
    let stop = AtomicBool::new(false);
    let (span, source) = (memory.span(), content.span());
    let result = thread::scope(|scope| {
        let answering = scope.spawn(|| {
            // On a core that it cannot have it answers all the same.
            let _ = cores::pin(handler);
            answer(&uffd, span, source, &stop);
        });
        // A thread of its own too: the caller's core stays the caller's choice.
        let touching = scope.spawn(|| {
            let _ = cores::pin(own);
            of(|| {
                memory.discard(span);
                time(|| memory.touch(Span::sized(span.start, PAGE)))
            })
        });
        let result = touching.join();
        stop.store(true, Ordering::Release);
        let answered = answering.join();
        result.and_then(|ns| answered.map(|()| ns))
    });
    result.map_err(|_| Failure::new("a measuring thread failed"))
}

/// Fills all of `span` at every fault in it, as the library's thread does: waiting in `poll`.
fn answer(uffd: &Uffd, span: Span, content: Span, stop: &AtomicBool) {
    // How long the end is not noticed.
    const TIMEOUT_MS: u8 = 2;
    let mut messages = [Msg::default(); 32];
    while !stop.load(Ordering::Acquire) {
        let _ =
            poll(&mut [PollFd::new(uffd.fd(), PollFlags::POLLIN)], PollTimeout::from(TIMEOUT_MS));
        for message in uffd.read(&mut messages) {
            if matches!(message.event(), Event::Fault(_)) {
                let (_, refusal) = uffd.copy(span, content.start);
                if refusal.is_some() {
                    // Nobody must wait for ever: the pages become ordinary ones.
                    let _ = uffd.unregister(span);
                }
            }
        }
    }
}
