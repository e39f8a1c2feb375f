//! Link options of `libuncopy_profile.so`.

fn main() {
    // Never unloaded: its threads live in it. No lazy binding: a forked or vforked child must not
    // have to resolve symbols. First of all constructors: fork handlers run in the reverse of the
    // order in which they were registered, and ours must be the last before fork, because it takes
    // a lock that others wait for while they hold theirs. A call of our own must reach our own
    // function: a program may define a function of libc's itself (Erlang does `sigaction`), and its
    // definition stands before ours for everybody.
    let options = ["-Wl,-z,nodelete", "-Wl,-z,now", "-Wl,-z,initfirst", "-Wl,-Bsymbolic-functions"];
    for option in options {
        println!("cargo:rustc-cdylib-link-arg={option}");
    }
}
