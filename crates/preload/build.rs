//! Link options of `libuncopy.so`.

fn main() {
    // Never unloaded: the monitor thread and the signal wrappers live in it. No lazy binding: a
    // forked or vforked child must not have to resolve symbols.
    for option in ["-Wl,-z,nodelete", "-Wl,-z,now"] {
        println!("cargo:rustc-cdylib-link-arg={option}");
    }
}
