//! Link options of `libuncopy_profile.so`.

fn main() {
    // Never unloaded: its threads live in it. No lazy binding: a
    // forked or vforked child must not have to resolve symbols. First of all constructors: fork handlers run in the
    // reverse of the order in which they were registered, and ours must be the last before fork, because it takes a
    // lock that others wait for while they hold theirs.
    for option in ["-Wl,-z,nodelete", "-Wl,-z,now", "-Wl,-z,initfirst"] {
        println!("cargo:rustc-cdylib-link-arg={option}");
    }
}
