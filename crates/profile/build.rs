//! Link options of `libuncopy_profile.so`.

fn main() {
    // Never unloaded: its threads live in it. No lazy binding: a
    // forked or vforked child must not have to resolve symbols.
    for option in ["-Wl,-z,nodelete", "-Wl,-z,now"] {
        println!("cargo:rustc-cdylib-link-arg={option}");
    }
}
