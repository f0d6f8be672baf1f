//! How the properties here are tried: on the committed inputs by every `cargo test`, on inputs that libFuzzer makes up by
//! `make fuzz`.
//!
//! `corpus/NAME.txt` has an input a line, as Rust writes bytes ([`slice::escape_ascii`]); a line that begins with `#` says
//! what the ones below it were found for. `make fuzz` begins with these, keeps its own under `target/fuzz`, and leaves
//! what breaks a property there, with the line to add.

use std::path::Path;

/// A property of any bytes: panics where it does not hold.
pub struct Target {
    pub name: &'static str,
    pub holds: fn(&[u8]),
}

impl Target {
    /// Tries the committed inputs, or, under `--cfg fuzzing`, what libFuzzer makes of them.
    pub fn test(&'static self) {
        let inputs = self.committed();
        assert!(!inputs.is_empty());
        #[cfg(not(fuzzing))]
        for input in inputs {
            eprintln!("{}: {}", self.name, input.escape_ascii());
            (self.holds)(&input);
        }
        #[cfg(fuzzing)]
        libfuzzer::run(self, &inputs);
    }

    fn committed(&self) -> Vec<Vec<u8>> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("pg_test/fuzz/corpus");
        let lines = std::fs::read_to_string(root.join(self.name).with_extension("txt")).unwrap();
        lines.lines().filter(|line| !line.starts_with('#')).map(unescaped).collect()
    }
}

/// The bytes that [`slice::escape_ascii`] writes so.
fn unescaped(line: &str) -> Vec<u8> {
    let mut bytes = line.bytes();
    let mut all = Vec::new();
    while let Some(byte) = bytes.next() {
        all.push(match (byte, if byte == b'\\' { bytes.next() } else { None }) {
            (_, Some(b'x')) => {
                let digits = [bytes.next().unwrap(), bytes.next().unwrap()];
                u8::from_str_radix(std::str::from_utf8(&digits).unwrap(), 16).unwrap()
            }
            (_, Some(b'n')) => b'\n',
            (_, Some(b'r')) => b'\r',
            (_, Some(b't')) => b'\t',
            (_, Some(other)) => other,
            (byte, None) => byte,
        });
    }
    all
}

#[test]
fn bytes_come_back_as_they_were_escaped() {
    let all: Vec<u8> = (0..=255).collect();
    assert_eq!(unescaped(&all.escape_ascii().to_string()), all);
}

/// What a property takes out of an input, from its front. Behind the end there are zeros.
pub struct Input<'a>(pub &'a [u8]);

#[allow(dead_code, reason = "the driver's targets use a part of it")]
impl<'a> Input<'a> {
    pub fn byte(&mut self) -> u8 {
        match self.0 {
            [first, rest @ ..] => {
                self.0 = rest;
                *first
            }
            [] => 0,
        }
    }

    pub fn flag(&mut self) -> bool {
        self.byte() & 1 == 1
    }

    /// 0 to one less than `n`.
    pub fn below(&mut self, n: usize) -> usize {
        usize::from(self.byte()) % n
    }

    pub fn one_of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }

    pub fn word(&mut self) -> u64 {
        u64::from_le_bytes(std::array::from_fn(|_| self.byte()))
    }

    pub fn bytes(&mut self, most: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(most.min(self.0.len()));
        self.0 = rest;
        taken
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(fuzzing)]
#[allow(unsafe_code, reason = "libFuzzer is called as the C library it is")]
mod libfuzzer {
    use super::Target;
    use std::ffi::{CString, c_char, c_int};
    use std::path::Path;
    use std::sync::OnceLock;

    static TARGET: OnceLock<&Target> = OnceLock::new();

    unsafe extern "C" {
        fn LLVMFuzzerRunDriver(
            argc: *mut c_int,
            argv: *mut *mut *mut c_char,
            input: unsafe extern "C" fn(*const u8, usize) -> c_int,
        ) -> c_int;
    }

    /// libfuzzer-sys has its own way to the input, which is not taken here, and wants this for it.
    // SAFETY: no other function has this name.
    #[unsafe(no_mangle)]
    #[allow(improper_ctypes_definitions, reason = "it is as it is called")]
    extern "C" fn rust_fuzzer_test_input(_: &[u8]) -> i32 {
        0
    }

    unsafe extern "C" fn holds(data: *const u8, size: usize) -> c_int {
        // SAFETY: libFuzzer hands over that many bytes; null if there are none.
        let input = if size == 0 { &[] } else { unsafe { std::slice::from_raw_parts(data, size) } };
        if let Some(target) = TARGET.get()
            && std::panic::catch_unwind(|| (target.holds)(input)).is_err()
        {
            eprintln!("add to pg_test/fuzz/corpus/{}.txt:\n{}", target.name, input.escape_ascii());
            std::process::abort();
        }
        0
    }

    /// Runs until `PGSS_RS_FUZZ` (libFuzzer's options, such as `-max_total_time=60`) says that it is enough. Ends the
    /// process.
    pub fn run(target: &'static Target, inputs: &[Vec<u8>]) -> ! {
        use libfuzzer_sys as _;
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/fuzz").join(target.name);
        std::fs::create_dir_all(&root).unwrap();
        for (n, input) in inputs.iter().enumerate() {
            std::fs::write(root.join(format!("committed-{n}")), input).unwrap();
        }
        let found = root.parent().unwrap().join(format!("found-{}-", target.name));
        std::panic::set_hook(Box::new(|panic| eprintln!("{panic}")));
        let options = std::env::var("PGSS_RS_FUZZ").unwrap_or_default();
        let mut arguments = vec!["fuzz".to_owned(), format!("-artifact_prefix={}", found.display())];
        arguments.extend(options.split_whitespace().map(str::to_owned));
        arguments.push(root.display().to_string());
        assert!(TARGET.set(target).is_ok(), "one target in a process");
        let arguments: Vec<CString> = arguments.into_iter().map(|a| CString::new(a).unwrap()).collect();
        let mut pointers: Vec<*mut c_char> = arguments.iter().map(|a| a.as_ptr().cast_mut()).collect();
        let mut count = pointers.len() as c_int;
        pointers.push(std::ptr::null_mut());
        let mut arguments = pointers.as_mut_ptr();
        // SAFETY: as C's main would be called; the arguments outlive the call.
        let status = unsafe { LLVMFuzzerRunDriver(&raw mut count, &raw mut arguments, holds) };
        std::process::exit(status);
    }
}
