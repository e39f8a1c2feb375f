//! The loaded objects, as the dynamic linker has them, and the mappings, as the kernel says.
//!
//! unsafe: asks the dynamic linker; refers to what it has loaded.

use core::ffi::{CStr, c_int, c_void};
use core::ops::Range;
use libc::{Elf64_Sym, PF_W, PF_X, PT_DYNAMIC, PT_GNU_EH_FRAME, PT_LOAD, dl_phdr_info};
use uncopy_gate_places::object::{Object, Segment};
use uncopy_kernel::procfs;

/// A loaded segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    /// Where it is.
    pub span: Range<u64>,
    /// How much of it comes from the file: the rest was zeros.
    pub filled: u64,
    pub executable: bool,
    pub writable: bool,
}

/// A loaded object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Loaded {
    /// Its path, as the dynamic linker says it; the program has none.
    pub name: String,
    pub parts: Vec<Part>,
    /// Where its table of functions is.
    pub frames: Option<u64>,
    /// Where its dynamic section is.
    dynamic: Option<u64>,
    base: u64,
}

const PAGE: u64 = 4096;

impl Part {
    /// Its pages.
    pub const fn pages(&self) -> Range<u64> {
        self.span.start & !(PAGE - 1)..self.span.end.next_multiple_of(PAGE)
    }
}

impl Loaded {
    pub fn text(&self) -> impl Iterator<Item = &Part> {
        self.parts.iter().filter(|it| it.executable)
    }

    pub fn has(&self, at: u64) -> bool {
        self.parts.iter().any(|it| it.span.contains(&at))
    }

    /// Whether all of this is its text.
    pub fn has_text(&self, span: &Range<u64>) -> bool {
        self.text().map(Part::pages).any(|it| it.start <= span.start && span.end <= it.end)
    }

    /// Its name, for people.
    pub fn called(&self) -> &str {
        if self.name.is_empty() { "the program" } else { &self.name }
    }

    /// It belongs to glibc: how its system calls are made is known.
    pub fn is_glibcs(&self) -> bool {
        const GLIBCS: [&str; 13] = [
            "ld-linux-x86-64.so.2",
            "libBrokenLocale.so.1",
            "libanl.so.1",
            "libc.so.6",
            "libc_malloc_debug.so.0",
            "libdl.so.2",
            "libm.so.6",
            "libnsl.so.1",
            "libpthread.so.0",
            "libresolv.so.2",
            "librt.so.1",
            "libthread_db.so.1",
            "libutil.so.1",
        ];
        let name = self.name.rsplit('/').next().unwrap_or_default();
        GLIBCS.contains(&name)
    }

    /// Copies of what it has of data that can be written: any call of libc's may change it. (Words
    /// that another thread changes meanwhile are copied as they are before or after.)
    ///
    /// # Safety
    /// It is loaded.
    pub unsafe fn data(&self) -> Vec<(u64, Vec<u8>)> {
        let data = self.parts.iter().filter(|it| it.writable && !it.executable);
        data.map(|part| {
            let at = part.span.start.next_multiple_of(8);
            let end = (part.span.start + part.filled).max(at);
            let words = (0..(end - at) / 8).map(|i| (at + 8 * i) as *const u64);
            // SAFETY: the segment is there, and can be read.
            (at, words.flat_map(|it| unsafe { it.read_volatile() }.to_le_bytes()).collect())
        })
        .collect()
    }

    /// Itself, with what cannot be written where it is.
    ///
    /// # Safety
    /// It stays loaded, and nobody changes its text, while what is returned is used.
    pub unsafe fn object<'a>(&self, data: &'a [(u64, Vec<u8>)]) -> Object<'a> {
        let kept = self.parts.iter().filter(|it| it.executable || !it.writable).map(|part| {
            let (at, n) = (part.span.start, part.filled as usize);
            // SAFETY: the caller's promise.
            let bytes = unsafe { core::slice::from_raw_parts(at as *const u8, n) };
            Segment { at, bytes, executable: part.executable }
        });
        let data = data.iter().map(|(at, bytes)| Segment { at: *at, bytes, executable: false });
        Object {
            segments: kept.chain(data).collect(),
            // SAFETY: the caller's promise.
            symbols: unsafe { self.symbols() },
            frames: self.frames,
        }
    }
}

impl Loaded {
    /// A value of the dynamic section that is an address. (The dynamic linker has replaced offsets
    /// by addresses where it may write.)
    ///
    /// # Safety
    /// It is loaded.
    unsafe fn dynamic(&self, tag: u64) -> Option<u64> {
        let mut entry = self.dynamic? as *const [u64; 2];
        loop {
            // SAFETY: the section ends with an entry whose tag is 0.
            match unsafe { *entry } {
                [0, _] => return None,
                [has, value] if has == tag => {
                    return Some(if value < self.base { value + self.base } else { value });
                }
                // SAFETY: it is not the last one.
                _ => entry = unsafe { entry.add(1) },
            }
        }
    }

    /// Where functions begin that it lets others call by name. (Of some assembly symbols have no
    /// type.)
    ///
    /// # Safety
    /// It is loaded.
    pub unsafe fn symbols(&self) -> Vec<u64> {
        const DT_HASH: u64 = 4;
        const DT_SYMTAB: u64 = 6;
        const DT_GNU_HASH: u64 = 0x6fff_fef5;
        // `STT_NOTYPE`, `STT_FUNC`, `STT_GNU_IFUNC`.
        const FUNCTIONS: [u8; 3] = [0, 2, 10];
        // SAFETY: the caller's promise.
        let at = |tag| unsafe { self.dynamic(tag) };
        let Some(table) = at(DT_SYMTAB) else { return Vec::new() };
        // SAFETY: the object's own tables are as long as they say.
        let listed = unsafe {
            match (at(DT_GNU_HASH), at(DT_HASH)) {
                (Some(hash), _) => hashed(hash),
                // (The number of buckets, and of symbols.)
                (None, Some(hash)) => 0..word(hash, 1),
                (None, None) => 0..0,
            }
        };
        let symbols = table as *const Elf64_Sym;
        listed
            // SAFETY: there are so many.
            .map(|i| unsafe { &*symbols.add(i) })
            .filter(|it| it.st_shndx != 0 && FUNCTIONS.contains(&(it.st_info & 0xf)))
            .map(|it| self.base + it.st_value)
            .collect()
    }
}

/// # Safety
/// The table at this address has so many words of 32 bits.
unsafe fn word(table: u64, i: usize) -> usize {
    // SAFETY: the caller's promise.
    unsafe { *(table as *const u32).add(i) as usize }
}

/// Which symbols a table of hashes (`DT_GNU_HASH`) has.
///
/// # Safety
/// One is at this address.
unsafe fn hashed(table: u64) -> Range<usize> {
    // It has the number of buckets, of symbols that are not in it, of words of a filter. Each
    // bucket has its first symbol; of each symbol there is a hash, odd for the last one.
    // SAFETY: it is as long as it says.
    let word = |i: usize| unsafe { word(table, i) };
    let (buckets, skipped, filter) = (word(0), word(1), word(2));
    let first = 4 + 2 * filter;
    let hashes = first + buckets;
    let last = (0..buckets).map(|i| word(first + i)).max().filter(|&it| it >= skipped);
    let Some(mut last) = last else { return 0..0 };
    while word(hashes + last - skipped) & 1 == 0 {
        last += 1;
    }
    skipped..last + 1
}

/// Calls `f` with all objects while the dynamic linker's lock is held: none is unloaded meanwhile.
/// (An object that is loaded meanwhile may not be listed yet.)
pub(crate) fn while_none_is_unloaded<R>(f: impl FnOnce(Vec<Loaded>) -> R) -> R {
    struct Once<F, R>(Option<F>, Option<R>);
    unsafe extern "C" fn once<F: FnOnce(Vec<Loaded>) -> R, R>(
        _: *mut dl_phdr_info,
        _: usize,
        once: *mut c_void,
    ) -> c_int {
        // SAFETY: `while_none_is_unloaded`'s, below.
        let once = unsafe { &mut *once.cast::<Once<F, R>>() };
        // (The lock may be taken again by who has it.)
        once.1 = once.0.take().map(|f| f(objects()));
        1
    }
    fn of<F: FnOnce(Vec<Loaded>) -> R, R>(
        _: &Once<F, R>,
    ) -> unsafe extern "C" fn(*mut dl_phdr_info, usize, *mut c_void) -> c_int {
        once::<F, R>
    }
    let mut all = Once(Some(f), None);
    let called = of(&all);
    // SAFETY: it is called with what it is given here, before this returns.
    unsafe { libc::dl_iterate_phdr(Some(called), (&raw mut all).cast()) };
    all.1.expect("the program itself is an object")
}

/// All objects, in the dynamic linker's order.
pub(crate) fn objects() -> Vec<Loaded> {
    let mut all: Vec<Loaded> = Vec::new();
    // SAFETY: `one` is called with what it is given here, before this returns.
    unsafe { libc::dl_iterate_phdr(Some(one), (&raw mut all).cast()) };
    all
}

unsafe extern "C" fn one(info: *mut dl_phdr_info, _: usize, all: *mut c_void) -> c_int {
    // SAFETY: the dynamic linker's, valid during the call; `all` is `objects`'.
    let (info, all) = unsafe { (&*info, &mut *all.cast::<Vec<Loaded>>()) };
    let name = if info.dlpi_name.is_null() {
        String::new()
    } else {
        // SAFETY: a C string of the dynamic linker's.
        unsafe { CStr::from_ptr(info.dlpi_name) }.to_string_lossy().into_owned()
    };
    // SAFETY: as many headers as it says.
    let headers =
        unsafe { core::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)) };
    let at = |address: u64| info.dlpi_addr.wrapping_add(address);
    let loaded = headers.iter().filter(|it| it.p_type == PT_LOAD);
    all.push(Loaded {
        name,
        parts: loaded
            .map(|it| Part {
                span: at(it.p_vaddr)..at(it.p_vaddr) + it.p_memsz,
                filled: it.p_filesz,
                executable: it.p_flags & PF_X != 0,
                writable: it.p_flags & PF_W != 0,
            })
            .collect(),
        frames: headers.iter().find(|it| it.p_type == PT_GNU_EH_FRAME).map(|it| at(it.p_vaddr)),
        dynamic: headers.iter().find(|it| it.p_type == PT_DYNAMIC).map(|it| at(it.p_vaddr)),
        base: info.dlpi_addr,
    });
    0
}

/// A line of `/proc/self/maps`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mapping {
    pub span: Range<u64>,
    /// As `r-xp`.
    pub access: String,
    /// Where it begins in its file.
    pub offset: u64,
    /// The file's device and number.
    pub file: String,
    /// A path, or a name of the kernel's in brackets, or nothing.
    pub name: String,
}

impl Mapping {
    pub fn is_executable(&self) -> bool {
        self.access.as_bytes().get(2) == Some(&b'x')
    }

    /// Whether it is the same memory of the same file. (The file's name changes when it is
    /// deleted.)
    pub fn is(&self, other: &Self) -> bool {
        let what = |it: &Self| (it.span.clone(), it.offset, it.access.clone(), it.file.clone());
        what(self) == what(other)
    }

    /// Whether these bytes, which lie at `at`, are what the file has there. `None`: the file is not
    /// to be had (it was replaced).
    pub fn file_has(&self, at: u64, bytes: &[u8]) -> Option<bool> {
        const AT_ONCE: usize = 64 << 10;
        let file = procfs::open(self.name.as_bytes())?;
        let mut room = vec![0; AT_ONCE];
        let mut done = 0;
        while done < bytes.len() {
            let n = AT_ONCE.min(bytes.len() - done);
            let offset = self.offset + (at - self.span.start) + done as u64;
            let n = rustix::io::pread(&file, &mut room[..n], offset).ok().filter(|&n| n > 0)?;
            if bytes[done..done + n] != room[..n] {
                return Some(false);
            }
            done += n;
        }
        Some(true)
    }

    /// The kernel's own text, which leaves nothing.
    pub fn is_the_kernels(&self) -> bool {
        matches!(&*self.name, "[vdso]" | "[vsyscall]" | "[uprobes]")
    }
}

/// More than any process has.
const MOST: usize = 64 << 20;

/// All of them, in order. `None`: the kernel does not tell.
pub(crate) fn mappings() -> Option<Vec<Mapping>> {
    let text = procfs::whole(c"/proc/self/maps", MOST)?;
    String::from_utf8_lossy(&text).lines().map(mapping).collect()
}

fn mapping(line: &str) -> Option<Mapping> {
    // START-END ACCESS OFFSET DEVICE INODE, spaces, and the name, which may have spaces.
    let mut words = line.splitn(6, ' ');
    let (start, end) = words.next()?.split_once('-')?;
    let number = |hexadecimal| u64::from_str_radix(hexadecimal, 16).ok();
    let access = words.next()?.to_owned();
    let offset = number(words.next()?)?;
    let file = format!("{} {}", words.next()?, words.next()?);
    let name = words.next().unwrap_or_default().trim_start().to_owned();
    Some(Mapping { span: number(start)?..number(end)?, access, offset, file, name })
}

/// How many threads this process has.
pub(crate) fn threads() -> Option<u64> {
    let text = procfs::whole(c"/proc/self/status", MOST)?;
    field(&String::from_utf8_lossy(&text), "Threads:")
}

fn field(status: &str, name: &str) -> Option<u64> {
    status.lines().find_map(|it| it.strip_prefix(name))?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_maps_says_where_how_and_what() {
        let line = "7f0000001000-7f0000003000 r-xp 00026000 08:01 1234    /a b/libc.so.6 (deleted)";
        let it = mapping(line).unwrap();
        assert_eq!(it.span, 0x7f00_0000_1000..0x7f00_0000_3000);
        assert!(it.is_executable());
        assert_eq!(it.name, "/a b/libc.so.6 (deleted)");
        assert_eq!((it.offset, &*it.file), (0x26000, "08:01 1234"));
        let it = mapping("7f0000001000-7f0000003000 rw-p 00000000 00:00 0 ").unwrap();
        assert_eq!((it.is_executable(), &*it.name), (false, ""));
        let it = mapping("7ffc00-7ffd00 r-xp 00000000 00:00 0                [vdso]").unwrap();
        assert!(it.is_executable() && it.is_the_kernels());
    }

    #[test]
    fn threads_are_counted_by_the_kernel() {
        assert_eq!(field("Name:\tx\nThreads:\t12\nSigQ:\t0/1\n", "Threads:"), Some(12));
        assert_eq!(field("Name:\tx\n", "Threads:"), None);
    }

    #[test]
    fn the_test_itself_is_loaded_and_so_is_libc() {
        let all = objects();
        assert!(all.iter().any(|it| it.has(objects as *const () as u64)));
        assert!(all.iter().any(|it| it.is_glibcs() && it.text().count() == 1));
        let it = all.iter().find(|it| it.name.ends_with("/libc.so.6")).unwrap();
        // SAFETY: it is loaded.
        let symbols = unsafe { it.symbols() };
        assert!(symbols.len() > 1000 && symbols.contains(&(libc::fsync as *const () as u64)));
        let maps = mappings().unwrap();
        let text = all.iter().find(|it| it.is_glibcs()).unwrap().text().next().unwrap().pages();
        let it = maps.iter().find(|it| it.span.contains(&text.start)).unwrap();
        assert!(it.is_executable() && it.span.end >= text.end);
        assert_eq!(while_none_is_unloaded(|again| again.len()), all.len());
    }

    #[test]
    fn functions_are_listed_by_either_table_of_hashes() {
        for style in ["sysv", "gnu"] {
            let to = std::env::temp_dir().join(format!("gate-{}-{style}.so", std::process::id()));
            let mut compiler = std::process::Command::new("cc");
            compiler.args(["-shared", "-fPIC", "-xc", "-", "-o"]).arg(&to);
            compiler.arg(format!("-Wl,--hash-style={style}")).stdin(std::process::Stdio::piped());
            let mut compiler = compiler.spawn().expect("cc is there");
            let mut source = compiler.stdin.take().unwrap();
            std::io::Write::write_all(&mut source, b"int gate_is_listed(void) { return 1; }")
                .unwrap();
            drop(source);
            assert!(compiler.wait().unwrap().success());
            let path = std::ffi::CString::new(to.to_str().unwrap()).unwrap();
            // SAFETY: a library that does nothing.
            let library = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW) };
            // SAFETY: it is loaded.
            let function = unsafe { libc::dlsym(library, c"gate_is_listed".as_ptr()) };
            std::fs::remove_file(&to).unwrap();
            let all = objects();
            let it = all.iter().find(|it| it.name.ends_with(&format!("{style}.so"))).unwrap();
            // SAFETY: as above.
            assert!(unsafe { it.symbols() }.contains(&(function as u64)), "{style}");
        }
    }
}
