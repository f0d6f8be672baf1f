//! The file that carries statistics over a restart: how it is written and read.
//!
//! One JSON object a line, each behind its CRC-32 in hexadecimal and a space. The first line is the [`Header`], then one
//! [`Saved`] an entry, and the last says how many there were. Objects name their fields; a field that is missing takes its default and one that is unknown is
//! passed over, so that versions of ours read each other's files. A damaged line costs its own entry and no other.

use crate::counters::{Counters, Evicted};
use crate::key::Key;
use crate::table::Body;
use crate::textpool::TextRef;
use serde::{Deserialize, Serialize};
use std::io::{self, BufRead, Write};

/// Changes only when older libraries must not read the file.
const FORMAT: u32 = 1;
/// A longer line is taken for damage.
const LONGEST_LINE: u64 = 1 << 28;

/// What is saved of the table as a whole.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Header {
    pgss_rs_format: u32,
    /// Of the server that computed the query identifiers.
    pub server_major: u16,
    pub stats_reset: i64,
    pub dealloc: u64,
    pub evicted: Evicted,
}

impl Header {
    pub fn new(server_major: u16) -> Self {
        Header { pgss_rs_format: FORMAT, server_major, ..Header::default() }
    }
}

/// One entry.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Saved {
    pub queryid: u64,
    pub userid: u32,
    pub dbid: u32,
    pub toplevel: bool,
    /// The server's number of the text's encoding.
    pub encoding: i32,
    pub text: Text,
    pub truncated: bool,
    pub stats_since: i64,
    pub minmax_stats_since: i64,
    pub counters: Counters,
}

impl Saved {
    /// What a table is given of it, beside the text.
    pub fn body(&self) -> Body {
        Body {
            key: Key { queryid: self.queryid, userid: self.userid, dbid: self.dbid, toplevel: self.toplevel },
            encoding: self.encoding,
            text: TextRef::without_text(self.truncated),
            stats_since: self.stats_since,
            minmax_stats_since: self.minmax_stats_since,
            counters: self.counters,
            ..Body::default()
        }
    }
}

/// A text as a string where it is UTF-8, else as bytes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Text {
    Utf8(String),
    Bytes(Vec<u8>),
}

impl Default for Text {
    fn default() -> Self {
        Text::Utf8(String::new())
    }
}

impl Text {
    pub fn new(bytes: Vec<u8>) -> Self {
        String::from_utf8(bytes).map_or_else(|e| Text::Bytes(e.into_bytes()), Text::Utf8)
    }

    pub fn bytes(&self) -> &[u8] {
        match self {
            Text::Utf8(s) => s.as_bytes(),
            Text::Bytes(b) => b,
        }
    }
}

/// Why a file is not read at all.
#[derive(Debug, PartialEq, Eq)]
pub enum Unreadable {
    /// Its first line is not a header of ours.
    Foreign,
    /// Written by a library too new for this one.
    Newer,
}

/// The last line.
#[derive(Serialize, Deserialize)]
struct End {
    end_after: u64,
}

/// Writes entry by entry: nothing is gathered in memory but some lines.
pub fn write(
    mut to: impl Write,
    header: &Header,
    entries: impl IntoIterator<Item = Saved>,
) -> io::Result<()> {
    let mut lines = Lines { bytes: Vec::new(), refused: false };
    lines.add(&mut to, header)?;
    let mut end_after = 0;
    for entry in entries {
        lines.add(&mut to, &entry)?;
        end_after += 1;
    }
    lines.add(&mut to, &End { end_after })?;
    lines.flush(&mut to)?;
    to.flush()
}

/// Lines that are not written yet.
struct Lines {
    bytes: Vec<u8>,
    /// There was no memory for what was added.
    refused: bool,
}

impl Lines {
    /// So many bytes are written at once, or a longer line.
    const ENOUGH: usize = 1 << 16;
    const CRC: usize = 9;

    fn add(&mut self, to: &mut impl Write, value: &impl Serialize) -> io::Result<()> {
        let start = self.bytes.len();
        self.push(&[0; Self::CRC]);
        serde_json::to_writer(&mut *self, value)?;
        self.push(b"\n");
        if self.refused {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        let line = &mut self.bytes[start..];
        let crc = crc32fast::hash(&line[Self::CRC..line.len() - 1]);
        write!(&mut line[..Self::CRC], "{crc:08x} ")?;
        if self.bytes.len() >= Self::ENOUGH { self.flush(to) } else { Ok(()) }
    }

    fn flush(&mut self, to: &mut impl Write) -> io::Result<()> {
        to.write_all(&self.bytes)?;
        self.bytes.clear();
        Ok(())
    }

    fn push(&mut self, bytes: &[u8]) {
        self.refused |= self.bytes.try_reserve(bytes.len()).is_err();
        if !self.refused {
            self.bytes.extend_from_slice(bytes);
        }
    }
}

/// Never fails: an error would be passed on in memory that there is none of. See [`Lines::refused`].
impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.push(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The entries of a file whose lines are whole.
pub struct Entries<R> {
    from: R,
    /// How many there should have been; known once all were read, unless the file is cut off.
    pub written: Option<u64>,
}

impl<R: BufRead> Iterator for Entries<R> {
    type Item = Saved;

    fn next(&mut self) -> Option<Saved> {
        loop {
            let Some(line) = next_line(&mut self.from)? else { continue };
            if let Some(end) = value::<End>(&line) {
                self.written = Some(end.end_after);
            } else if let Some(entry) = value::<Saved>(&line).filter(|e| e.queryid != 0) {
                return Some(entry);
            }
        }
    }
}

/// The header, and the entries to be read.
pub fn read<R: BufRead>(mut from: R) -> Result<(Header, Entries<R>), Unreadable> {
    let first = next_line(&mut from).flatten();
    let header: Header = first.as_deref().and_then(value).ok_or(Unreadable::Foreign)?;
    match header {
        Header { pgss_rs_format: 0, .. } => Err(Unreadable::Foreign),
        Header { pgss_rs_format, .. } if pgss_rs_format > FORMAT => Err(Unreadable::Newer),
        _ => Ok((header, Entries { from, written: None })),
    }
}

/// `None` at the end, or where reading fails; `Some(None)` for a line that is too long.
fn next_line(from: &mut impl BufRead) -> Option<Option<Vec<u8>>> {
    let mut line = Vec::new();
    let n = io::Read::take(io::Read::by_ref(from), LONGEST_LINE).read_until(b'\n', &mut line).ok()?;
    if n == 0 {
        return None;
    }
    Some((line.pop() == Some(b'\n')).then_some(line))
}

fn value<T: for<'a> Deserialize<'a>>(line: &[u8]) -> Option<T> {
    let (crc, json) = line.split_at_checked(9)?;
    let crc = u32::from_str_radix(std::str::from_utf8(crc).ok()?.strip_suffix(' ')?, 16).ok()?;
    if crc32fast::hash(json) != crc {
        return None;
    }
    serde_json::from_slice(json).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counters::{Event, Kind};
    use crate::variance::Shared;

    fn sample() -> (Header, Vec<Saved>) {
        let mut counters = Counters::default();
        for (nanoseconds, weight) in [(1_234_567, 1.0), (7, 1.0 / 0.3)] {
            counters.add(&Event {
                kind: Kind::Exec,
                weight,
                nanoseconds,
                rows: 3,
                usage: None,
                jit: None,
                workers: [0; 2],
                at: 5,
                shared: Shared::NOTHING,
            });
        }
        let entry = |queryid: u64, text: &[u8]| Saved {
            queryid,
            userid: 10,
            dbid: 5,
            toplevel: true,
            encoding: 6,
            text: Text::new(text.to_vec()),
            truncated: queryid == 2,
            stats_since: 1,
            minmax_stats_since: 2,
            counters,
        };
        let entries = vec![entry(u64::MAX, b"SELECT\n $1"), entry(2, b"SELECT \xe9"), entry(3, b"")];
        let header = Header { stats_reset: 9, dealloc: 4, ..Header::new(15) };
        (header, entries)
    }

    fn file() -> Vec<u8> {
        let (header, entries) = sample();
        let mut file = Vec::new();
        write(&mut file, &header, entries).unwrap();
        file
    }

    fn entries_of(file: &[u8]) -> Result<Vec<Saved>, Unreadable> {
        read(file).map(|(_, entries)| entries.collect())
    }

    #[test]
    fn what_was_written_is_read_to_the_last_bit() {
        let file = file();
        let (header, mut entries) = read(file.as_slice()).unwrap();
        assert_eq!((header, entries.by_ref().collect::<Vec<_>>()), sample());
        assert_eq!(entries.written, Some(3));
    }

    #[test]
    fn cut_at_every_byte_it_yields_the_whole_lines_before() {
        let (file, (_, entries)) = (file(), sample());
        for end in 0..file.len() {
            let whole = file[..end].iter().filter(|b| **b == b'\n').count();
            match read(&file[..end]) {
                Ok((_, mut got)) => {
                    assert_eq!(got.by_ref().collect::<Vec<_>>(), entries[..whole - 1]);
                    assert_eq!(got.written, None);
                }
                Err(e) => assert!(whole == 0 && e == Unreadable::Foreign),
            }
        }
    }

    #[test]
    fn no_flipped_bit_yields_a_wrong_entry() {
        let (file, (_, entries)) = (file(), sample());
        for bit in 0..file.len() * 8 {
            let mut damaged = file.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            if let Ok(got) = entries_of(&damaged) {
                assert!(got.iter().all(|e| entries.contains(e)), "bit {bit}");
                assert!(got.len() + 2 >= entries.len(), "bit {bit}: {} entries", got.len());
            }
        }
    }

    #[test]
    fn foreign_and_newer_files_are_told_apart() {
        assert_eq!(entries_of(b""), Err(Unreadable::Foreign));
        assert_eq!(entries_of(b"\x00\x01\x02\n"), Err(Unreadable::Foreign));
        let newer = Header { pgss_rs_format: FORMAT + 1, ..Header::new(15) };
        let mut file = Vec::new();
        write(&mut file, &newer, []).unwrap();
        assert_eq!(entries_of(&file), Err(Unreadable::Newer));
    }

    #[test]
    fn fields_of_other_versions_are_passed_over_or_defaulted() {
        let json = r#"{"queryid":7,"from_the_future":[1,2],"counters":{"exec":{"calls":3.0},"more":1}}"#;
        let line = format!("{:08x} {json}\n", crc32fast::hash(json.as_bytes()));
        let mut file = Vec::new();
        write(&mut file, &Header::new(15), []).unwrap();
        file.truncate(file.iter().position(|byte| *byte == b'\n').unwrap() + 1);
        file.extend_from_slice(line.as_bytes());
        let got = entries_of(&file).unwrap();
        assert_eq!((got.len(), got[0].queryid, got[0].counters.exec.calls), (1, 7, 3.0));
    }
}
