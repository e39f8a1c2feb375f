//! Link options of `libuncopy.so`.

fn main() {
    // Never unloaded: the monitor thread and the signal wrappers live in it. No lazy binding: a
    // forked or vforked child must not have to resolve symbols. Our constructor is the first of
    // all: no thread exists yet, and our fork handlers are registered first, so they come last
    // before a fork, when all others have the locks that they wait for. A call of our own must
    // reach our own function: a program may define a function of libc's itself (Erlang does
    // `sigaction`), and its definition stands before ours for everybody.
    let options = ["-Wl,-z,nodelete", "-Wl,-z,now", "-Wl,-z,initfirst", "-Wl,-Bsymbolic-functions"];
    for option in options {
        println!("cargo:rustc-cdylib-link-arg={option}");
    }
}
