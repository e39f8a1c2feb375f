//! Threads past std, which keeps a list of its threads behind a lock
//! (`stack_overflow::thread_info`): where one of them starts or ends just as another forks, no
//! thread of the child can start. (libc's own locks are whole again in a child.)
//!
//! unsafe: makes and joins threads; what they run lives in a box of their own.

use core::ffi::c_void;
use core::mem::MaybeUninit;

/// A thread's function, and then its result.
struct Job<T> {
    run: Option<Box<dyn FnOnce() -> T>>,
    result: Option<T>,
}

/// A thread, to be joined.
pub struct Thread<T> {
    id: libc::pthread_t,
    job: *mut Job<T>,
}

/// Runs `f` in a thread.
pub fn spawn<T: Send + 'static>(f: impl FnOnce() -> T + Send + 'static) -> Thread<T> {
    // SAFETY: `f` owns all that it uses.
    unsafe { spawn_borrowing(f) }
}

/// Runs `f` in a thread of its own, and waits until that is gone.
pub fn run(f: impl FnOnce() + Send) {
    // SAFETY: joined at once.
    unsafe { spawn_borrowing(f) }.join();
}

/// # Safety
/// The thread must be joined while what `f` borrows lives.
unsafe fn spawn_borrowing<'a, T: Send + 'a>(f: impl FnOnce() -> T + Send + 'a) -> Thread<T> {
    let run: Box<dyn FnOnce() -> T + 'a> = Box::new(f);
    // SAFETY: the caller's promise; only the lifetime changes.
    let run =
        unsafe { core::mem::transmute::<Box<dyn FnOnce() -> T + 'a>, Box<dyn FnOnce() -> T>>(run) };
    let job = Box::into_raw(Box::new(Job { run: Some(run), result: None }));
    let mut id = MaybeUninit::uninit();
    // SAFETY: the job is the thread's until it is joined.
    let error =
        unsafe { libc::pthread_create(id.as_mut_ptr(), core::ptr::null(), body::<T>, job.cast()) };
    assert_eq!(error, 0, "no thread");
    // SAFETY: written by the call that succeeded.
    Thread { id: unsafe { id.assume_init() }, job }
}

extern "C" fn body<T>(job: *mut c_void) -> *mut c_void {
    // SAFETY: the job is this thread's until it is joined. (A panic ends the process here.)
    let job = unsafe { &mut *job.cast::<Job<T>>() };
    job.result = job.run.take().map(|run| run());
    core::ptr::null_mut()
}

impl<T> Thread<T> {
    /// Waits until the thread is gone; what it returned.
    pub fn join(self) -> T {
        // SAFETY: joined once; then the job is nobody else's.
        let job = unsafe {
            assert_eq!(libc::pthread_join(self.id, core::ptr::null_mut()), 0, "no such thread");
            Box::from_raw(self.job)
        };
        job.result.expect("the thread came to its end")
    }
}
