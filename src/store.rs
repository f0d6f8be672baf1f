//! Where records go: from a finished execution to its entry.
//!
//! The quick way takes one spinlock: the backend remembers which slot it found a key in. The slow way goes through
//! the index and, for a new statement, finds its text and makes an entry. Nothing here raises; what cannot be kept is
//! counted as skipped.

use crate::carried::{self, Carried};
use crate::counters::{Counters, Event, Failure};
use crate::guc;
use crate::key::Key;
use crate::lock_rules::Lock;
use crate::normalize::{self, Place, Value};
use crate::pg::local::{Local, LocalRef};
use crate::pg::lwlock::{self, Tranche};
use crate::pg::parse::Analysed;
use crate::pg::spin::prefetch;
use crate::pg::statement::Statement;
use crate::pg::{clock, server, shmem};
use crate::secrets;
use crate::stripes::{self, SETS, Stripe, Stripes, StripesState};
use crate::table::{Link, Locks, NewEntry, PARTITIONS, State, Table, Update, bucket_count};
use crate::textpool::{BLOCK, Block, PoolState, TextPool};
use std::borrow::Cow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::AtomicU32;

/// The table with the server's locks.
pub type SharedTable = Table<'static, LwLocks>;

static TABLE: Local<Option<&'static SharedTable>> = Local::new(None);
static CARRIED: LocalRef<Carried> = LocalRef::new(Carried::new());
static SCRATCH: LocalRef<Scratch> = LocalRef::new(Scratch { places: Vec::new(), text: Vec::new() });
static REMEMBERED: LocalRef<Remembered> = LocalRef::new(Remembered { places: Vec::new(), era: 0 });

const INDEX_TRANCHE: &std::ffi::CStr = c"pgss_rs_index";
const TEXT_TRANCHE: &std::ffi::CStr = c"pgss_rs_text";

/// The table; `None` until the server has laid out shared memory.
#[inline(always)]
pub fn table() -> Option<&'static SharedTable> {
    TABLE.get()
}

#[derive(Clone, Copy)]
pub struct LwLocks {
    index: Tranche,
    text: Tranche,
}

impl Locks for LwLocks {
    fn shared<R>(&self, partition: usize, f: impl FnOnce() -> R) -> R {
        self.index.shared(partition, f)
    }

    fn exclusive<R>(&self, partition: usize, f: impl FnOnce() -> R) -> R {
        self.index.exclusive(partition, f)
    }

    fn texts<R>(&self, f: impl FnOnce() -> R) -> R {
        self.text.exclusive(0, f)
    }

    fn prefetch(&self, partition: usize) {
        self.index.prefetch(partition);
    }

    fn process(&self) -> usize {
        server::process_number()
    }
}

/// Which place a key was last found at, by hash; a wrong answer costs a look into the index, no more.
struct Remembered {
    places: Vec<(u32, u32)>,
    /// When they were found, as the table counts resets.
    era: u32,
}

impl Remembered {
    const MOST: usize = 1 << 14;
    const UNKNOWN: u32 = u32::MAX;

    #[inline]
    fn get(&self, hash: u64) -> Option<u32> {
        let (tag, slot) = *self.places.get(hash as usize & self.places.len().wrapping_sub(1))?;
        (tag == (hash >> 32) as u32 && slot != Self::UNKNOWN).then_some(slot)
    }

    #[inline]
    fn prefetch(&self, hash: u64) {
        if let Some(place) = self.places.get(hash as usize & self.places.len().wrapping_sub(1)) {
            prefetch(place, 0..size_of_val(place));
        }
    }

    fn put(&mut self, hash: u64, slot: u32, era: u32) {
        if era != self.era {
            self.places.fill((0, Self::UNKNOWN));
            self.era = era;
        }
        if self.places.is_empty() {
            let size = (2 * guc::max_entries()).next_power_of_two().min(Self::MOST);
            if self.places.try_reserve_exact(size).is_err() {
                return;
            }
            self.places.resize(size, (0, Self::UNKNOWN));
        }
        let at = hash as usize & (self.places.len() - 1);
        self.places[at] = ((hash >> 32) as u32, slot);
    }
}

/// How a statement's text is had when its entry is made.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum TextOf {
    /// Normalised when it was analysed, and carried since.
    Carried,
    /// A utility statement's: on 15 as it was written (unless it is only part of another statement, of whose rule's action
    /// say; then it has that one's identifier and text), from 16 on as above; without secrets.
    Utility,
    /// A utility statement's without this value, which is no part of its identifier, and without secrets.
    UtilityWithout(Value),
    /// As it was written, because there is nothing in it that could be a secret.
    Written,
}

/// `key`'s entry will soon be asked for: see [`expect`].
#[inline(always)]
pub fn seek(key: &Key) {
    REMEMBERED.with(|r| r.prefetch(key.hash()));
}

/// Where the backend remembers `key`'s entry. An event will soon be added to it: by then its memory, which is seldom at
/// hand, will be.
#[inline(always)]
pub fn expect(key: &Key) -> Option<u32> {
    let table = table()?;
    let place = REMEMBERED.with(|r| r.get(key.hash())).flatten();
    match place {
        Some(place) => table.prefetch(place),
        None => table.prefetch_lookup(key),
    }
    place
}

/// Adds an event to `key`'s entry if it is at that place and no one else is.
#[inline(always)]
pub fn record_at_once(place: u32, key: &Key, event: &Event) -> bool {
    table().is_some_and(|table| table.update_at_once(place, key, |c| c.add(event)))
}

/// Adds an event to `key`'s entry. Its place, when there is one.
#[inline(never)]
pub fn record(key: &Key, event: &Event, text: TextOf, statement: impl Fn() -> Statement) -> Option<u32> {
    let table = table()?;
    if let Some(place) = REMEMBERED.with(|r| r.get(key.hash())).flatten() {
        match table.update(place, key, |c| c.add(event)) {
            Update::Done => return Some(place),
            Update::OtherKey | Update::Moved(_) => {}
            Update::Busy => {
                table.skip();
                return None;
            }
        }
    }
    record_slowly(table, key, event, text, &statement())
}

#[cold]
#[inline(never)]
fn record_slowly(
    table: &SharedTable,
    key: &Key,
    event: &Event,
    text: TextOf,
    statement: &Statement,
) -> Option<u32> {
    // a bug of ours must not unwind into the server
    let slot = catch_unwind(AssertUnwindSafe(|| {
        let change = |c: &mut Counters| c.add(event);
        match table.glance(key).map(|slot| table.settle(slot, key, change)) {
            Some(Ok(place)) => return Some(place),
            Some(Err(Update::Busy)) => {
                table.skip();
                return None;
            }
            _ => {}
        }
        let insert = |text: &[u8]| {
            let new = NewEntry { text, encoding: server::encoding(), now: server::now() };
            table.insert_or_update(key, new, change)
        };
        with_text(text, key, statement, insert)
    }));
    let slot = slot.unwrap_or_else(|_| {
        table.skip();
        None
    })?;
    REMEMBERED.with(|r| r.put(key.hash(), slot, table.resets()));
    Some(slot)
}

/// The text of a statement that the backend knows no entry of, for [`record_failure`] when the source has gone.
#[cold]
pub fn text_if_new(key: &Key, text: TextOf, statement: &Statement) -> Option<Vec<u8>> {
    let copied = |text: &[u8]| {
        let mut copy = Vec::new();
        copy.try_reserve_exact(text.len()).ok()?;
        copy.extend_from_slice(text);
        Some(copy)
    };
    let made = || if has_entry(key) { None } else { with_text(text, key, statement, copied) };
    // a bug of ours must not unwind into the server
    catch_unwind(AssertUnwindSafe(made)).unwrap_or(None)
}

/// Adds a failure to `key`'s entry. `text` is for a new one.
#[cold]
pub fn record_failure(key: &Key, failure: &Failure, text: Option<&[u8]>) {
    let Some(table) = table() else { return };
    let _ = catch_unwind(AssertUnwindSafe(|| {
        let change = |c: &mut Counters| c.add_failure(failure);
        match table.glance(key).map(|slot| table.settle(slot, key, change)) {
            Some(Ok(_)) => {}
            Some(Err(Update::Busy)) => table.skip(),
            _ => {
                let text = text.unwrap_or_default();
                let new = NewEntry { text, encoding: server::encoding(), now: server::now() };
                table.insert_or_update(key, new, change);
            }
        }
    }));
}

/// Calls `f` with the text for a new entry of the statement's.
fn with_text<R>(text: TextOf, key: &Key, statement: &Statement, f: impl Fn(&[u8]) -> R) -> R {
    match text {
        TextOf::Utility if statement.is_utility_of_its_own() => f(&masked(statement.text().0)),
        TextOf::Utility => with_carried_text(statement, key, |text| f(&masked(text))),
        TextOf::UtilityWithout(value) => f(&masked(&without(value, statement))),
        TextOf::Written => f(statement.text().0),
        TextOf::Carried => with_carried_text(statement, key, f),
    }
}

/// A utility statement's text without secrets; without memory for that, none.
fn masked(text: &[u8]) -> Cow<'_, [u8]> {
    secrets::masked(text).unwrap_or_default()
}

/// A utility statement's text without a value that stands in it.
fn without(value: Value, statement: &Statement) -> Vec<u8> {
    let (text, start) = statement.text();
    let value = match value {
        Value::At(at) => Value::At(at.saturating_sub(start)),
        Value::LastName => Value::LastName,
    };
    normalize::without_value(text, value).unwrap_or_default()
}

/// Memory that is used again for every statement that is normalised.
struct Scratch {
    places: Vec<Place>,
    text: Vec<u8>,
}

impl Scratch {
    fn normalise(&mut self, analysed: &Analysed, text: &[u8], start: usize) -> Option<()> {
        analysed.constants(start, &mut self.places)?;
        normalize::at_locations(text, &self.places, analysed.highest_param, &mut self.text)
    }

    /// Gives back what only a long statement needs.
    fn trim(&mut self) {
        if self.text.capacity() > carried::MAX_TEXT || self.places.capacity() > carried::MAX_TEXT / 16 {
            (self.places, self.text) = (Vec::new(), Vec::new());
        }
    }
}

fn carried_name(key: &Key) -> u64 {
    carried::name(key.queryid, key.userid, key.toplevel)
}

/// The message in which this backend last removed all entries.
static EMPTIED_IN: Local<i64> = Local::new(0);

/// The statement that is running has removed all entries.
///
/// With pg_stat_statements its own text is then the one it was written with, which tells what the reset was given. So
/// it is here, but for everything else in it: see [`normalize::literals_but_numbers_given_to`].
pub fn emptied() {
    EMPTIED_IN.set(server::statement_start());
}

fn with_text_of_reset<R>(statement: &Statement, f: impl Fn(&[u8]) -> R) -> Option<R> {
    const NAME: &str = "pg_stat_statements_reset";
    let text = statement.text().0;
    let called = text.windows(NAME.len()).any(|w| w.eq_ignore_ascii_case(NAME.as_bytes()));
    let normalised = called.then(|| normalize::literals_but_numbers_given_to(NAME, text))?;
    normalised.map(|text| f(&text))
}

/// The text as it was analysed at the key's level, or at the other one: a commit's first statement is analysed before
/// it is known to be nested.
fn with_carried_text<R>(statement: &Statement, key: &Key, f: impl Fn(&[u8]) -> R) -> R {
    let other = Key { toplevel: !key.toplevel, ..*key };
    let get = |key| CARRIED.with(|c| c.get(carried_name(key)).map(&f)).flatten();
    if EMPTIED_IN.get() == server::statement_start()
        && let Some(done) = with_text_of_reset(statement, &f)
    {
        return done;
    }
    get(key).or_else(|| get(&other)).unwrap_or_else(|| {
        // No longer carried: every literal goes, the ones that analysis would have left in place too. Without memory
        // for that there is no text, but never one with literals.
        let text = normalize::literals(statement.text().0);
        f(text.as_deref().unwrap_or_default())
    })
}

/// Makes sure that the text of a statement that was just analysed will be at hand when it is executed. `key` is what
/// it would be counted under. `in_utility`: its text is that of the utility statement that contains it, with what secrets
/// that has.
///
/// After a reset all texts are taken anew: statements with the same identifier may differ in names and spaces, and the
/// one that comes first after a reset is the one whose text is shown, as with pg_stat_statements.
pub fn carry(analysed: &Analysed, key: &Key, in_utility: bool) {
    let Some(table) = table() else { return };
    let era = table.resets();
    // a bug of ours must not unwind into the server; without the text there is still `normalize::literals`
    let _ = catch_unwind(AssertUnwindSafe(|| {
        if has_entry(key) {
            return;
        }
        table.prefetch_insertion(key);
        let (text, start) = analysed.statement.text();
        SCRATCH.with(|scratch| {
            if let Some(()) = scratch.normalise(analysed, text, start) {
                let text = if in_utility { masked(&scratch.text) } else { Cow::Borrowed(&scratch.text[..]) };
                CARRIED.with(|c| c.put(carried_name(key), era, &text));
            }
            scratch.trim();
        });
    }));
}

/// Whether the backend carries a text of the present era for the statement, or has no table to fill.
#[inline(always)]
pub fn carries(queryid: u64, userid: u32, toplevel: bool) -> bool {
    let Some(table) = table() else { return true };
    CARRIED.with(|c| c.touch(carried::name(queryid, userid, toplevel), table.resets())).unwrap_or(true)
}

/// A number that changes whenever entries are removed on request.
#[inline(always)]
pub fn era() -> u32 {
    table().map_or(0, SharedTable::resets)
}

/// Whether the backend remembers a slot for the key and it still is its.
fn has_entry(key: &Key) -> bool {
    let slot = REMEMBERED.with(|r| r.get(key.hash())).flatten();
    slot.zip(table()).is_some_and(|(n, table)| table.has(n, key))
}

fn text_blocks() -> usize {
    guc::text_bytes() / BLOCK
}

/// Set in the postmaster, so that it is the same whenever it is asked for.
fn stripes() -> usize {
    static COUNT: Local<usize> = Local::new(0);
    if COUNT.get() == 0 {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        COUNT.set(SETS * stripes::width(processors));
    }
    COUNT.get()
}

fn request() {
    let (slots, blocks) = (guc::max_entries(), text_blocks());
    shmem::request_array::<State>(1);
    shmem::request_array::<AtomicU32>(bucket_count(slots));
    shmem::request_array::<Link>(slots);
    shmem::request_array::<crate::table::Slot>(slots);
    shmem::request_array::<StripesState>(1);
    shmem::request_array::<Stripe>(stripes());
    shmem::request_array::<PoolState>(1);
    shmem::request_array::<AtomicU32>(blocks);
    shmem::request_array::<Block>(blocks);
    lwlock::request(INDEX_TRANCHE, PARTITIONS);
    lwlock::request(TEXT_TRANCHE, 1);
}

fn startup() {
    let (slots, blocks) = (guc::max_entries(), text_blocks());
    let state: &'static State = &shmem::place_array(c"pgss_rs state", 1)[0];
    let table = SharedTable {
        state,
        buckets: shmem::place_array(c"pgss_rs index", bucket_count(slots)),
        links: shmem::place_array(c"pgss_rs index links", slots),
        slots: shmem::place_array(c"pgss_rs entries", slots),
        stripes: Stripes {
            state: &shmem::place_array(c"pgss_rs stripes state", 1)[0],
            all: shmem::place_array(c"pgss_rs stripes", stripes()),
        },
        texts: TextPool {
            state: &shmem::place_array(c"pgss_rs text state", 1)[0],
            links: shmem::place_array(c"pgss_rs text links", blocks),
            blocks: shmem::place_array(c"pgss_rs texts", blocks),
        },
        locks: LwLocks {
            index: Tranche::get(INDEX_TRANCHE, PARTITIONS, Lock::Partition, &state.index_waits),
            text: Tranche::get(TEXT_TRANCHE, 1, Lock::Texts, &state.text_waits),
        },
        clip: server::clip,
    };
    table.init(server::now());
    clock::tell_time_to(state.time());
    // once per start of the server; a crash restart leaves the old one behind, some hundred bytes
    TABLE.set(Some(Box::leak(Box::new(table))));
    crate::persist::startup();
}

pub fn init() {
    shmem::install(request, startup);
}
