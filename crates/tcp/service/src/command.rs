//! Where the command lies that programs start to serve them.

use std::path::{Path, PathBuf};

/// Where it may be, of the preload library at this path: beside it, or where `make install` puts
/// it.
pub fn commands(library: &Path) -> [PathBuf; 2] {
    ["uncopy", "../../bin/uncopy"].map(|file| library.with_file_name(file))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_lies_beside_the_library_or_where_it_is_installed() {
        let expected = ["/usr/lib/uncopy/uncopy", "/usr/lib/uncopy/../../bin/uncopy"];
        assert_eq!(
            commands(Path::new("/usr/lib/uncopy/libuncopy.so")),
            expected.map(PathBuf::from)
        );
    }
}
